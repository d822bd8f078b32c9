-- bench_ranks.lua -- bench --ranks N: the time of a training step with several ranks, by activity,
-- and the comparison with one rank in the same run.
--
-- A step consists of computing, waiting for slower ranks, and the exchange. Waiting and exchange
-- cannot be separated by observation, so more steps are run with a barrier before each exchange:
-- the time in the barrier is the waiting. NCCL sums on the GPUs, where neither can be measured:
-- each rank then also computes its shard alone, and the extra time of a full step is both together.
-- At the end rank 0 trains alone on the whole batch, while the others sleep.

local core = require "seg.core"
local bench = require "seg.inspect.bench"
local budget = require "seg.train.budget"
local config = require "seg.recipe.config"
local ranks = require "seg.train.ranks"
local recipes = require "seg.recipe.recipe"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

local ROUNDS = bench.ROUNDS

-- The number of samples of this rank, as ranks_shard of engine/ranks/ranks.h, and its first from 0.
local function share(batch)
  local first = batch * ranks.rank // ranks.count
  return batch * (ranks.rank + 1) // ranks.count - first, first
end

-- Runs steps on `feeds`, at a rate of 0 so that the weights stay. -> medians in ms of a step, of
-- its communication, and of the waiting in it; bytes and messages of a step. time_waiting: with a
-- barrier before each exchange.
local function steps(session, feeds, time_waiting)
  local all, spent, waited, sent, met = {}, {}, {}, 0, 0
  if ranks.count > 1 then core.ranks.time_waiting(time_waiting) end
  for i = 1, ROUNDS do
    ranks.barrier()
    local s0, b0, m0, w0 = core.ranks.stats()
    local started = core.sys.clock()
    session:step(feeds, { lr = 0 })
    all[i] = 1e3 * (core.sys.clock() - started)
    local s1, b1, m1, w1 = core.ranks.stats()
    spent[i], waited[i], sent, met = 1e3 * (s1 - s0), 1e3 * (w1 - w0), b1 - b0, m1 - m0
  end
  core.ranks.time_waiting(false)
  return util.median(all), util.median(spent), util.median(waited), sent, met
end

-- Milliseconds of a step of this rank alone, with the memory of `count` ranks.
local function by_itself(r, feeds, count)
  local session = recipes.session(r, "train", nil, nil, nil, true)
  budget.give(session, count)
  session:step(feeds, { lr = 0 }) -- allocates memory
  local ms = bench.step_ms(session, feeds)
  session:close()
  return ms
end

-- Milliseconds of a step of rank 0 alone on the whole batch; the other ranks wait.
local function alone(r, batch)
  local ms = ranks.rank == 0 and string.pack("<d", by_itself(r, bench.feeds(r, batch),
                                                             ranks.count)) or ""
  return (string.unpack("<d", ranks.of_first(ms)))
end

-- The command bench, run by all ranks.
function M.command(r)
  local v = config.ensure()
  ranks.check_batch(v.batch)
  local count, first = share(v.batch)
  local feeds, session = bench.feeds(r, count), recipes.session(r, "train")
  local facts = session:facts()
  session:shard(first, false)
  session:step(feeds, { lr = 0 }) -- allocates memory
  local ms, spent, _, sent, met = steps(session, feeds, false)
  local inside, wait = facts.transport:match("^NCCL"), 0
  if not inside then
    local _, between, waiting = steps(session, feeds, true)
    -- the share of waiting, applied to the communication of a normal step
    wait = between > 0 and spent * waiting / between or 0
  end
  session:close()
  if inside then spent = math.max(ms - by_itself(r, feeds, 1), 0) end
  local texts = ranks.gather(string.pack("<dddd", ms, ms - spent, wait, spent - wait))
  local one = alone(r, v.batch)
  if not ranks.writes() then return 0 end
  local rows = { { "rank", "samples", "step ms", "computing", "waiting", "exchange" } }
  local slowest, json = 0, {}
  for k, text in ipairs(texts) do
    local whole, own, waits, moves = string.unpack("<dddd", text)
    local samples = v.batch * k // ranks.count - v.batch * (k - 1) // ranks.count
    slowest = math.max(slowest, whole)
    rows[k + 1] = { tostring(k - 1), tostring(samples), string.format("%.1f", whole),
                    string.format("%.1f", own), string.format("%.1f", waits),
                    string.format("%.1f", moves) }
    json[k] = { samples = samples, step_ms = whole, computing_ms = own, waiting_ms = waits,
                exchange_ms = moves }
  end
  local faster = one / slowest
  if config.line.flags.json then
    print(util.json { batch = v.batch, ranks = ranks.count, via = ranks.via, each = json,
                      threads = facts.threads, step_ms = slowest, transport = facts.transport,
                      bytes = not inside and sent or nil, messages = not inside and met or nil,
                      alone_ms = one, efficiency = faster / ranks.count })
    return 0
  end
  print(show.table(rows))
  print(string.format("training step, batch %d, %d ranks of %s by %s: %.1f ms (medians of %d), "
                      .. "%.2f samples/s", v.batch, ranks.count,
                      show.threads(facts), ranks.via, slowest, ROUNDS,
                      1e3 * v.batch / slowest))
  if inside then
    print(string.format("exchange: by %s, waiting included; plan --ranks %d says what is sent",
                        facts.transport, ranks.count))
  else
    print(string.format("exchange: %s sent by each in %d messages", util.bytes(sent), met))
  end
  print(string.format("one rank alone: %.1f ms; %d are %.2f times as fast, efficiency %.0f %%",
                      one, ranks.count, faster, 100 * faster / ranks.count))
  return 0
end

return M
