-- scaling.lua -- how long a training step of many ranks takes: a model, by hand.
--
--   segengine tests/bench/scaling.lua [--key value ...]
--
-- docs/scaling.md has its table and says what it leaves out. Of n ranks, each with b
-- samples of a network of P parameters and L batch norms:
--
--   compute   b t              t: seconds a sample
--   gradients 2 (n-1)/n 4 P / w + 2 k a(n)
--             each number leaves a rank twice (engine/ranks.c); k pieces of 512 KiB,
--             or one with --pieces 1 as NCCL sends them; w: bytes a second of a link
--   norms     (3 L + 3) a(n)   few numbers, so latency: two sums forward and one back
--             a layer, two of the loss, one to agree on going on
--   a(n)      a ceil(log2 n)   a: seconds of a message
--
-- Nothing overlaps, as nothing does in the program; efficiency is compute / step.

local o = { params = 7762465, norms = 18, ms_sample = 2.0, batch = 16, gbit = 400, us = 5,
            pieces = 0, whole = 0 }
local i = 1
while arg[i] do
  local key, value = arg[i]:match("^%-%-([%w_]+)$"), tonumber(arg[i + 1])
  if not key or not o[key] or not value then
    io.stderr:write("scaling: ", arg[i], ": want one of --params --norms --ms_sample --batch ",
                    "(samples a rank) --whole (samples of all ranks) --gbit --us --pieces\n")
    os.exit(2)
  end
  o[key], i = value, i + 2
end

local bytes = 4 * o.params
local pieces = o.pieces > 0 and o.pieces or math.ceil(bytes / (512 << 10))
print(string.format("%8s %10s %12s %12s %10s %10s %12s", "ranks", "samples", "compute ms",
                    "gradients ms", "norms ms", "efficiency", "samples/s"))
for k = 0, 10 do
  local n = 1 << k
  -- a rank has a whole number of samples; the largest share is waited for
  local b = o.whole > 0 and math.ceil(o.whole / n) or o.batch
  local all = o.whole > 0 and o.whole or b * n
  if o.whole > 0 and n > o.whole then break end
  local wait = n > 1 and o.us * 1e-3 * k or 0
  local compute = b * o.ms_sample
  local sums = n > 1 and 2 * (n - 1) / n * bytes / (o.gbit / 8 * 1e6) + 2 * pieces * wait or 0
  local norms = n > 1 and (3 * o.norms + 3) * wait or 0
  local step = compute + sums + norms
  print(string.format("%8d %10d %12.2f %12.2f %10.2f %9.0f %% %12.0f", n, all, compute, sums, norms,
                      100 * all * o.ms_sample / n / step, 1e3 * all / step))
end
