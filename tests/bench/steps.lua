-- steps.lua -- training steps and inferences of a network of networks.lua, on request.
--
--   segengine tests/bench/steps.lua NETWORK BATCH SIZE FOLDER THREADS [write]
--
-- The segengine side of tests/pytorch/speed.py. `write` writes weights (init.safetensors) and
-- inputs (NAME.npy) to FOLDER for both programs. Otherwise prints the loss of a first step, then
-- answers each line "train N", "infer N", "train_bf16 N" or "infer_bf16 N" on stdin with the
-- milliseconds of each of N runs, and sleeps in between.

local seg = require "seg"
local core = require "seg.core"

local function whole(i) return math.tointeger(tonumber(arg[i])) end

local name, batch, size = arg[1], whole(2), whole(3)
local folder, threads = arg[4], whole(5)
local one = dofile("tests/bench/networks.lua")[name](batch, size)
local weights = folder .. "/init.safetensors"

if arg[6] == "write" then
  seg.model({ outputs = { y = one.output }, threads = threads, seed = 1 }):save(weights)
  for input, array in pairs(one.inputs) do
    core.array.save(folder .. "/" .. input .. ".npy", array)
  end
  return
end

-- Made on first use, one at a time: several at once would compete for memory and cores.
local made = {}
local function ready(key, make)
  if not made[key] then
    made = { [key] = make() }
    collectgarbage()
    made[key]:load(weights)
  end
  return made[key]
end

local function train(precision)
  return ready("train " .. precision, function()
    return seg.step { loss = one.loss, threads = threads, optim = one.optim,
                      precision = precision }
  end):run(one.inputs)
end

local function infer(precision)
  return ready("infer " .. precision, function()
    return seg.model { outputs = { y = one.output }, threads = threads, precision = precision }
  end):run(one.inputs)
end

local run = {
  train = function() return train "f32" end,
  infer = function() return infer "f32" end,
  train_bf16 = function() return train "bf16" end,
  infer_bf16 = function() return infer "bf16" end,
}

io.stdout:setvbuf("line")
print(string.format("%.9g", run.train()))
for line in io.lines() do
  local what, count = line:match "([%w_]+) (%d+)"
  local out = {}
  for i = 1, math.tointeger(tonumber(count)) do
    local began = core.sys.clock()
    run[what]()
    out[i] = string.format("%.3f", 1000 * (core.sys.clock() - began))
  end
  print(table.concat(out, " "))
end
