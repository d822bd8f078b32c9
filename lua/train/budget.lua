-- budget.lua -- the memory that a network may use, and when a step recomputes values to stay within
-- it.
--
-- vram      bytes on the device for weights, arena and device dataset; default: the
--           free memory
-- recompute off; bytes: limit for the arena of a training step; auto: the memory that
--           is free when the network is opened
--
-- Recomputed values have the same bits, so neither option changes a number.

local core = require "seg.core"
local config = require "seg.recipe.config"
local util = require "seg.util"

local M = {}

-- Share of the free memory. The rest of a GPU is for uploads; the rest of this machine for batches
-- made ahead, volumes that are kept, and other programs.
local SHARE = { device = 0.95, host = 0.8 }

-- Bytes of this machine that are reserved besides the network: batches made ahead, the program
-- (footprint.lua).
M.rest = 0

-- The limit of each session: { bytes, near }.
local given = setmetatable({}, { __mode = "k" })

-- Whether this is the name of a GPU.
function M.on_gpu(device) return device:match("^cuda") ~= nil end

-- The bytes of --vram, or nil.
function M.limit()
  return util.bytes_of(config.ensure().vram)
end

-- The usable part of `free` bytes on a device; nil for nil.
function M.share(device, free)
  if not free then return nil end
  if M.on_gpu(device) then return math.floor(free * SHARE.device) end
  return math.max(math.min(math.floor(free * SHARE.host), free - M.rest), 0)
end

-- The smaller of two numbers, either of which may be nil.
local function least(a, b)
  return a and b and math.min(a, b) or a or b
end

-- Bytes that the weights and the arena of a network may have on `device`; nil if unknown. opens:
-- whether a GPU may be opened to ask for its memory.
function M.whole(device, opens)
  local asked = opens or not M.on_gpu(device)
  return least(M.limit(), asked and M.share(device, core.room(device)) or nil)
end

-- The bytes that the arena of a training step may have next to `weights` bytes, and whether a plan
-- may exceed the limit if no plan is small enough; nil: no limit. session: an open session; without
-- one no device is opened.
function M.arena(device, weights, session)
  local how = config.ensure().recompute
  if how == "off" then return nil end
  if how ~= "auto" then return util.bytes_of(how), false end
  if session and given[session] then return given[session][1], given[session][2] end
  local free, left
  if session then
    free, left = session:room()
    free, left = M.share(device, free), left and math.max(left, 1)
  else
    free = M.whole(device)
    free = free and math.max(free - weights, 1)
  end
  return least(left, free), true
end

-- Sets the limit of a training session. ranks: the number of ranks whose work the session does;
-- each had a limit of so many bytes.
function M.give(session, ranks)
  local facts = session:facts()
  local bytes, near = M.arena(facts.device, facts.param_bytes, session)
  if not bytes then return end
  bytes = near and bytes or bytes * (ranks or 1)
  session:budget(bytes, near)
  given[session] = near and { bytes, near } or nil
end

-- Lowers the limit of a session for later plans, if less memory is left than expected.
function M.lower(session, bytes)
  given[session] = { math.max(bytes, 1), true }
  session:budget(given[session][1], true)
end

-- One line about the recomputation of a plan, nil if there is none.
function M.describe(plan)
  if plan.recompute_dropped == 0 and plan.recompute_calls == 0 then return nil end
  return string.format(
    "%d of %d values that backward reads are computed again: %.2f GFLOP (%.0f %% of a forward "
    .. "run) and %s moved more a step, arena %s for %s", plan.recompute_dropped,
    plan.recompute_values, plan.recompute_flops / 1e9,
    100 * plan.recompute_flops / math.max(plan.flops, 1),
    util.bytes(math.floor(plan.recompute_bytes)), util.bytes(plan.bytes),
    util.bytes(plan.kept_bytes))
end

return M
