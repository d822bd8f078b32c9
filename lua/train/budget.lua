-- budget.lua -- how much memory a network may take, and when a step computes
-- values twice to stay within it.
--
-- vram      bytes on the device for weights, arena and kept samples; else what is
--           free
-- recompute off; bytes: of the arena of a training step; auto: what is free when
--           the network is opened
--
-- What is computed twice has the same bits, so neither changes a number.

local core = require "seg.core"
local config = require "seg.recipe.config"
local util = require "seg.util"

local M = {}

-- Of what is free: the rest is for uploads, of a GPU; of this machine for batches
-- made ahead, volumes that are kept, and other programs.
local SHARE = { device = 0.95, host = 0.8 }

-- Bytes of this machine that are spoken for beside the network: batches made ahead, the
-- program (footprint.lua).
M.rest = 0

-- What sessions were given: { bytes, near }.
local given = setmetatable({}, { __mode = "k" })

-- Is this the name of a GPU?
function M.on_gpu(device) return device:match("^cuda") ~= nil end

-- The bytes of --vram, or nil.
function M.limit()
  return util.bytes_of(config.ensure().vram)
end

-- A part of `free` bytes on a device, nil of nil.
function M.share(device, free)
  if not free then return nil end
  if M.on_gpu(device) then return math.floor(free * SHARE.device) end
  return math.max(math.min(math.floor(free * SHARE.host), free - M.rest), 0)
end

-- The smaller of two numbers of which either may be missing.
local function least(a, b)
  return a and b and math.min(a, b) or a or b
end

-- Bytes that a network, weights and arena, may have on `device`; nil where nobody
-- knows. opens: a GPU may be opened to ask it.
function M.whole(device, opens)
  local asked = opens or not M.on_gpu(device)
  return least(M.limit(), asked and M.share(device, core.room(device)) or nil)
end

-- Bytes that the arena of a training step may have beside `weights` bytes, and
-- whether they may be passed where less cannot be; nil: any. session: opened
-- already, else nothing is opened.
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

-- A session that trains keeps to it from now on; `ranks`: has the work of so many, and the
-- memory that each of them was given.
function M.give(session, ranks)
  local facts = session:facts()
  local bytes, near = M.arena(facts.device, facts.param_bytes, session)
  if not bytes then return end
  bytes = near and bytes or bytes * (ranks or 1)
  session:budget(bytes, near)
  given[session] = near and { bytes, near } or nil
end

-- The same where less is left than was thought: plans that are made from now on.
function M.lower(session, bytes)
  given[session] = { math.max(bytes, 1), true }
  session:budget(given[session][1], true)
end

-- One line on what a plan computes twice, nil when nothing.
function M.told(plan)
  if plan.again_dropped == 0 and plan.again_calls == 0 then return nil end
  return string.format(
    "%d of %d values that backward reads are computed again: %.2f GFLOP (%.0f %% of a forward "
    .. "run) and %s moved more a step, arena %s for %s", plan.again_dropped, plan.again_values,
    plan.again_flops / 1e9, 100 * plan.again_flops / math.max(plan.flops, 1),
    util.bytes(math.floor(plan.again_moved)), util.bytes(plan.bytes),
    util.bytes(plan.kept_bytes))
end

return M
