-- unet_step.lua -- training steps of the base-32 U-Net, on demand.
--
--   segengine tests/bench/unet_step.lua FOLDER THREADS
--
-- The other side of tests/peer/step_time.py, which wrote FOLDER: init.safetensors,
-- image.npy and mask.npy. Says the loss of one step, then answers each line N on
-- stdin with the milliseconds of each of N steps, and sleeps between.

local seg = require "seg"
local core = require "seg.core"
local net = dofile("tests/golden/net.lua")

local folder, threads = arg[1], math.tointeger(tonumber(arg[2]))
local x = seg.array.load(folder .. "/image.npy")
local y = seg.array.load(folder .. "/mask.npy")
local _, truth, logits = net.unet { features = { 32, 64, 128, 256 }, size = x.shape[4] }
local s = seg.step { loss = seg.nn.bce_dice(logits, truth), threads = threads,
                     optim = seg.optim.adamw { lr = 1e-3, decay = 1e-4 } }
s:load(folder .. "/init.safetensors", { rename = net.rename })

io.stdout:setvbuf("line")
print(string.format("%.9g", s:run { image = x, mask = y }))
for line in io.lines() do
  local out = {}
  for i = 1, math.tointeger(tonumber(line)) do
    local began = core.sys.clock()
    s:run { image = x, mask = y }
    out[i] = string.format("%.3f", 1000 * (core.sys.clock() - began))
  end
  print(table.concat(out, " "))
end
