-- scaling.lua -- a model of the time of a training step with many ranks.
--
--   segengine tests/bench/scaling.lua [--key value ...]
--
-- docs/clusters.md has its tables and its limits. For n ranks, each with b samples at t seconds, of
-- a network with P parameters and L batch norms: b t of computation, plus the time of the exchange
-- from lua/inspect/scaling.lua, which has the formulas. Efficiency is computation / step.

local scaling = require "seg.inspect.scaling"

-- nccl: 1, or 0 for processes on the CPU; whole: samples of all ranks, 0: batch of each
local o = { params = 7762465, norms = 18, channels = 128, ms_sample = 2.0, batch = 16,
            gbit = 400, us = 5, nccl = 1, whole = 0 }
local i = 1
while arg[i] do
  local key, value = arg[i]:match("^%-%-([%w_]+)$"), tonumber(arg[i + 1])
  if not key or not o[key] or not value then
    io.stderr:write("scaling: ", arg[i], ": want one of --params --norms --channels --ms_sample ",
                    "--batch (samples a rank) --whole (samples of all ranks) --gbit --us --nccl\n")
    os.exit(2)
  end
  o[key], i = value, i + 2
end

local network = { params = math.tointeger(o.params), norms = {}, gpu = o.nccl == 1,
                  nccl = o.nccl == 1 }
for k = 1, o.norms do network.norms[k] = math.tointeger(o.channels) end
local bare = { params = network.params, norms = {}, gpu = network.gpu, nccl = network.nccl }

print(string.format("%8s %10s %12s %12s %10s %10s %12s", "ranks", "samples", "compute ms",
                    "gradients ms", "norms ms", "efficiency", "samples/s"))
for k = 0, 10 do
  local n = 1 << k
  -- a rank has a whole number of samples; the step waits for the largest shard
  local b = o.whole > 0 and math.ceil(o.whole / n) or o.batch
  local all = o.whole > 0 and o.whole or b * n
  if o.whole > 0 and n > o.whole then break end
  local compute = b * o.ms_sample
  local sums = 1e3 * scaling.seconds(scaling.exchange(bare, n), n, o)
  local norms = 1e3 * scaling.seconds(scaling.exchange(network, n), n, o) - sums
  local step = compute + sums + norms
  print(string.format("%8d %10d %12.2f %12.2f %10.2f %9.0f %% %12.0f", n, all, compute, sums, norms,
                      100 * all * o.ms_sample / n / step, 1e3 * all / step))
end
