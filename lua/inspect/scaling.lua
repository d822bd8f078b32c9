-- scaling.lua -- a model of the data that ranks exchange in a training step and of the time on a
-- link, for plan --ranks and tests/bench/scaling.lua.
--
-- For n ranks and a network with P trained parameters and batch norms of C_i channels, 4 bytes a
-- parameter (ref: 8), each rank sends in a step, on the CPU
--
--   gradients  2 (n-1)/n 4 P      a reduce-scatter to the owners of slices, then an
--                                 all-gather of the sums (engine/ranks/ranks.c)
--   norms      8 (n-1) sum (2 (C_i + 1) + 2 C_i + 1)
--                                 to all: sums, then squares in forward, with the
--                                 number of rows; both gradient sums in backward
--   loss       8 (n-1) 5          some numbers, once or twice
--
-- and on GPUs (cuda/norm/norm.cu, allreduce.cu), where all sums are exchanged like the gradients
--
--   norms      2 (n-1)/n 8 sum 2 (2 C_i + 1)
--
-- in messages, each of which takes ceil(log2 n) hops if a library sends along a tree, and the bytes
-- are sent at the rate of a link:
--
--   t = messages hop ceil(log2 n) + bytes / link
--
-- Communication and computing do not overlap, as in the program.

local budget = require "seg.train.budget"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

M.PIECE = 512 << 10 -- RANKS_PIECE of engine/ranks/ranks.h

-- Bits a second, each way, of links between machines or GPUs: vendor figures.
M.links = {
  { name = "1 Gbit/s Ethernet", gbit = 1, us = 50 },
  { name = "10 Gbit/s Ethernet", gbit = 10, us = 20 },
  { name = "100 Gbit/s", gbit = 100, us = 5 },
  { name = "400 Gbit/s", gbit = 400, us = 5 },
  { name = "NVLink 4, 450 GB/s", gbit = 3600, us = 3 },
}

-- The bytes and messages that each of n ranks sends in a step. o: params, norms = { channels, ... }
-- (empty if each rank has its own statistics; then `running` numbers are summed, too); real: bytes
-- of a number; gpu: each rank has a GPU; nccl: sums everything at once instead of in pieces of 512
-- KiB.
function M.exchange(o, n)
  local e = { gradient_bytes = 0, norm_bytes = 0, loss_bytes = 0, messages = 0, bytes = 0 }
  if n == 1 then return e end
  local real = o.real or 4
  -- `count` numbers of so many bytes, cut as by ranks_sum_values: slices of equal even length, in
  -- pieces
  local function values(kind, count, bytes)
    local most = M.PIECE // n // bytes & ~1
    while count > 0 do
      local slice = (count + n - 1) // n + 1 & ~1
      if o.nccl then slice = count / n elseif slice > most then slice = most end
      e[kind], e.messages = e[kind] + 2 * slice * bytes * (n - 1), e.messages + 2
      count = count - slice * n
    end
  end
  -- doubles that each rank sends to all others
  local function few(kind, count)
    e[kind], e.messages = e[kind] + 8 * (n - 1) * count, e.messages + 1
  end
  values("gradient_bytes", o.params, real)
  if o.running then values("gradient_bytes", o.running, real) end
  for _, channels in ipairs(o.norms) do
    if o.gpu then
      for _ = 1, 2 do values("norm_bytes", 2 * channels + 1, 8) end
    else
      for _ = 1, 2 do few("norm_bytes", channels + 1) end
      few("norm_bytes", 2 * channels + 1)
    end
  end
  if o.gpu then values("loss_bytes", 5, 8) else few("loss_bytes", 5) end
  for _, kind in ipairs { "gradient_bytes", "norm_bytes", "loss_bytes" } do
    e[kind] = math.ceil(e[kind])
    e.bytes = e.bytes + e[kind]
  end
  return e
end

-- Seconds of this exchange on a link.
function M.seconds(e, n, link)
  local hops = 0
  while 1 << hops < n do hops = hops + 1 end
  return e.messages * hops * link.us * 1e-6 + e.bytes / (link.gbit / 8 * 1e9)
end

-- The argument o of M.exchange for a plan of core.plan. v: config of the run.
function M.of_plan(plan, v)
  local real, sync_norm = v.device == "ref" and 8 or 4, v.sync_norm
  local gpu = budget.on_gpu(v.device) or v.devices ~= ""
  local o = { params = plan.gradient_bytes // real, norms = {}, real = real, gpu = gpu,
              nccl = gpu and v.allreduce ~= "host" }
  for _, row in ipairs(plan.rows) do
    for _, op in ipairs(row.ops) do
      if sync_norm and op == "batch_norm" then
        o.norms[#o.norms + 1] = math.tointeger(tonumber(row.shape:match("^%d+x(%d+)")))
      end
    end
  end
  if not sync_norm and plan.running > 0 then
    o.running = (plan.weight_bytes - plan.gradient_bytes) // real
  end
  return o
end

-- plan --ranks N: the exchange of a step and its time on each link; with `compute_ms` of a rank
-- also the step and its efficiency. -> lines, and the same for --json
function M.describe(o, n, compute_ms)
  local e = M.exchange(o, n)
  local head = string.format("%s sent by each in %d messages a step (gradients %s, norms %s)",
                             util.bytes(e.bytes), e.messages, util.bytes(e.gradient_bytes),
                             util.bytes(e.norm_bytes))
  local rows = { { "link", "exchange ms", compute_ms and "step ms" or "90 % efficiency from ms",
                   compute_ms and "efficiency" or nil } }
  local json = { ranks = n, bytes = e.bytes, messages = e.messages, links = {} }
  for _, link in ipairs(M.links) do
    local ms = 1e3 * M.seconds(e, n, link)
    local row = { link = link.name, exchange_ms = ms }
    if compute_ms then
      row.step_ms, row.efficiency = compute_ms + ms, compute_ms / (compute_ms + ms)
      rows[#rows + 1] = { link.name, string.format("%.2f", ms), string.format("%.2f", row.step_ms),
                          string.format("%.0f %%", 100 * row.efficiency) }
    else
      rows[#rows + 1] = { link.name, string.format("%.2f", ms), string.format("%.1f", 9 * ms) }
    end
    json.links[#json.links + 1] = row
  end
  return head, show.table(rows), json
end

return M
