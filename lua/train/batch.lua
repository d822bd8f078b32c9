-- batch.lua -- batch = "auto": the largest batch that fits in memory.
--
-- The plan gives the memory of a batch to the byte, so nothing is tried out: batches are planned
-- until the largest is found whose arena and weights fit. The config of the run keeps the number,
-- and a resumed run does not search again.

local core = require "seg.core"
local budget = require "seg.train.budget"
local config = require "seg.recipe.config"
local footprint = require "seg.train.footprint"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

local MOST = 1 << 20 -- the limit of the config

-- Whether this process chose the batch itself.
local found = false

-- Bytes that the command needs for a batch of this size; nil and the reason if the network cannot
-- have such a batch. A training run evaluates in the same arena. The recomputation of `auto` is not
-- counted on: a smaller batch costs less time.
local function need(r, batch, train, change)
  local plans = require "seg.inspect.plan"
  local ok, plan = pcall(plans.plan, r, batch, train, change or { recompute = "given" })
  if not ok then return nil, plan end
  local bytes = plan.bytes
  if train then
    local fine, eval = pcall(plans.plan, r, batch, false)
    if not fine then return nil, eval end
    bytes = math.max(bytes, eval.bytes)
  end
  return bytes + plan.param_bytes
end

-- The largest batch that needs at most `room` bytes, and its bytes; or nil and the bytes of a batch
-- of 1, or the reason why there is none. A batch that fits is doubled until it does not, then the
-- interval is bisected. machine: free bytes of this machine; nil if the network is on a GPU or the
-- number is unknown.
local function largest(r, room, train, machine)
  local fits, bytes, why
  local function try(batch)
    local now, reason = need(r, batch, train)
    local rest = machine and footprint.besides_network(r, { train = train, batch = batch })
    if now and now <= room and (not machine or now + rest <= machine) then
      fits, bytes = batch, now
      return true
    end
    why = why or now or reason
    return false
  end
  -- one sample may have no variance, so 2 is tried as well
  if not try(1) and (type(why) == "number" or not try(2)) then return nil, why end
  local over = MOST + 1
  while fits < MOST do
    local next = fits * 2
    if not try(next) then
      over = next
      break
    end
  end
  while over - fits > 1 do
    local middle = (fits + over) // 2
    if not try(middle) then over = middle end
  end
  return fits, bytes
end

-- The batch that `auto` would choose if the network and this machine had so many bytes, and the
-- bytes of the network with it; nil if not even one sample fits.
function M.most(r, room, train, machine)
  local batch, bytes = largest(r, room, train, machine)
  return batch, batch and bytes
end

-- Commands that run training steps.
local trains = { train = true, bench = true, plan = true, check = true, export = true }

-- Replaces "auto" by a number and prints it, or raises that not even one sample fits, with
-- remedies.
function M.choose(r, command)
  local v, train = config.ensure(), trains[command] or false
  local device = footprint.device()
  local gpu = budget.on_gpu(device)
  local room = budget.whole(device, command ~= "plan")
  local machine = not gpu and footprint.room() or nil
  if not room then
    util.refuse("--batch auto: plan opens no device, so give its memory: --vram 80G, or give a "
                .. "number")
  end
  local batch, bytes = largest(r, room, train, machine)
  if not batch and train and v.recompute == "auto" then
    local least = need(r, 1, true, { recompute = "least" })
    if least and least <= room then batch = 1 end
    bytes = least or bytes
  end
  if not batch and type(bytes) == "string" then error(bytes, 0) end
  if not batch then
    v.batch = 1
    local lines = require("seg.train.memory").lines(r, {
      wanted = bytes, room = room, command = command, device = gpu })
    core.sys.eprint(table.concat(lines, "\n") .. "\n")
    core.sys.raise(gpu and "device" or "failure", string.format(
      "--batch auto: a batch of 1 takes %s, and %s may be used", util.bytes(bytes),
      util.bytes(room)), true)
  end
  v.batch, found = batch, true
  show.line("batch: %d, the most that fits: %s of %s %s", batch, util.bytes(bytes),
            util.bytes(room), budget.limit() == room and "(--vram)" or "that may be used")
end

-- Called when a set of the recipe has been opened: no batch is larger than the training set.
function M.settle(r, set, samples)
  local v = config.ensure()
  if not found or set ~= r.train or samples >= v.batch then return end
  v.batch = math.max(samples, 1)
  show.line("batch: %d, all samples of the training set", v.batch)
end

return M
