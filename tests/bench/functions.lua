-- functions.lua -- times a chain of functions of elements: joined in programs, and each a call.
--
--   segengine tests/bench/functions.lua [--device cpu] [--threads 2] [--rounds 9]
--
-- The chain is clamp(exp(-(a a)) sigmoid(b) + sqrt(|a - b|), 0, 2) on 16 x 64 x 128 x 128 numbers,
-- forward and backward with the gradients of a and b, without the mean that makes a loss of it;
-- tests/pytorch/functions.py is the same in PyTorch. Medians of the rounds, taken in turn.

local core = require "seg.core"
local seg = require "seg"

local o = { device = "cpu", threads = 2, rounds = 9 }
for i = 1, #arg, 2 do
  local key, value = arg[i]:match("^%-%-(%w+)$"), arg[i + 1]
  if not key or o[key] == nil or not value then
    io.stderr:write("functions: ", arg[i], ": want --device, --threads or --rounds and a value\n")
    os.exit(2)
  end
  o[key] = math.tointeger(tonumber(value)) or value
end

-- the same number of elements, as a parameter has no batch
local shape = { 1, 64, 512, 512 }
local a = seg.nn.param("a", shape, { init = { normal = 1 } })
local b = seg.nn.param("b", shape, { init = { normal = 1 } })
local y = seg.clamp(seg.exp(-(a * a)) * seg.sigmoid(b) + seg.sqrt(seg.abs(a - b)), 0, 2)

local runs = {}
for _, plain in ipairs { false, true } do
  local session = core.session { roots = {}, loss = seg.mean(y), device = o.device, seed = 1,
                                 threads = o.threads, optim = seg.optim.sgd { lr = 0 },
                                 frozen = {}, plain = plain }
  runs[#runs + 1] = { name = plain and "apart" or "joined", session = session, forward = {},
                      backward = {}, both = {} }
end

local function median(list)
  table.sort(list)
  return list[(#list + 1) // 2]
end

for round = 0, o.rounds do -- round 0 allocates memory
  for _, run in ipairs(runs) do
    local ms = { [false] = 0, [true] = 0 }
    for _, call in ipairs(run.session:time({}, true)) do
      if call.kind ~= "mean" then ms[call.backward] = ms[call.backward] + call.ms end
    end
    if round > 0 then
      table.insert(run.forward, ms[false])
      table.insert(run.backward, ms[true])
      table.insert(run.both, ms[false] + ms[true])
    end
  end
end

for _, run in ipairs(runs) do
  print(string.format("%-6s  forward %8.3f ms  backward %8.3f ms  both %8.3f ms", run.name,
                      median(run.forward), median(run.backward), median(run.both)))
end
