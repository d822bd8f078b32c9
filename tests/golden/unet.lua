-- unet.lua -- the same steps as unet.py, in segengine.
--
--   segengine tests/golden/unet.lua KIND FOLDER DEVICE [OPTIMISER ...]
--
-- DEVICE `direct` is `cpu` with winograd = false: direct sums.
-- Reads the files of `unet.py make`. Writes for each optimiser (all when none is
-- named) DEVICE_OPTIM.txt with loss and gradient norm of each step, and the
-- checkpoints of the first and the last step, with tensors in double on `ref`;
-- and logits_DEVICE.npy of the evaluation plan. `unet.py check` compares them.

local seg = require "seg"
local net = dofile("tests/golden/net.lua")
local optim = seg.optim

local STEPS = 10
local kinds = {
  brain = { features = { 32, 64, 128, 256 }, size = 64, loss = {},
            optim = { adamw = { lr = 1e-3, decay = 1e-4 }, sgd = { lr = 0.01, momentum = 0.9 } } },
  nfbs = { features = { 8, 16, 32 }, size = 32, bias = true, loss = { bce = 0.5, dice = 0.5 },
           optim = { adam = { lr = 1e-4, decay = 1e-4, clip_norm = 1.0 },
                     sgd = { lr = 0.01, momentum = 0.9 } } },
}

local kind, folder, name_of_device = kinds[arg[1]], arg[2], arg[3]
local winograd = name_of_device ~= "direct"
local device = winograd and name_of_device or "cpu"
local image, truth, logits = net.unet(kind)
local loss = seg.nn.bce_dice(logits, truth, kind.loss)
local feeds = { [image.name] = seg.array.load(folder .. "/image.npy"),
                [truth.name] = seg.array.load(folder .. "/mask.npy") }
local names = table.move(arg, 4, #arg, 1, {})
if #names == 0 then
  for name in pairs(kind.optim) do names[#names + 1] = name end
end

local model = seg.model { outputs = { logits = logits }, device = device, winograd = winograd }
model:load(folder .. "/init.safetensors", { rename = net.rename })
seg.array.save(folder .. "/logits_" .. name_of_device .. ".npy",
               model:run({ image = feeds.image }).logits)

for _, name in ipairs(names) do
  local step = seg.step { loss = loss, optim = optim[name](kind.optim[name]), device = device,
                          winograd = winograd }
  local base = folder .. "/" .. name_of_device .. "_" .. name
  step:load(folder .. "/init.safetensors", { rename = net.rename })
  local lines = {}
  for i = 1, STEPS do
    local value = step:run(feeds)
    lines[i] = string.format("%.17g %.17g", value, step.grad_norm)
    if i == 1 or i == STEPS then step:save(string.format("%s_%d.safetensors", base, i)) end
  end
  local f = assert(io.open(base .. ".txt", "w"))
  f:write(table.concat(lines, "\n"), "\n")
  f:close()
end
