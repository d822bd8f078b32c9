-- footprint.lua -- the memory that a command needs, by purpose: checked before anything is opened,
-- and again when the data are open.
--
-- The part of the network is exact (plan.lua). Of the program's own memory, the batches made ahead
-- follow from the recipe. The size of volumes does not, so training checks again when they are
-- open, before its first step. A command that does not fit is refused, because the kernel would
-- kill the process without a message.

local core = require "seg.core"
local budget = require "seg.train.budget"
local config = require "seg.recipe.config"
local devices = require "seg.train.device"
local epoch_steps = require "seg.train.epoch_steps"
local ranks = require "seg.train.ranks"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

-- Bytes that the Lua heap, stacks of threads, small blocks and the allocator's free lists may grow
-- by.
local SMALL = 16 << 20

-- Bytes that stay free, because a control group also counts page tables and pages of files that are
-- being written.
local MARGIN = 16 << 20

-- The device that a command runs on.
function M.device()
  devices.choose()
  return config.ensure().device
end

-- The sets of these parts of a recipe that have batches.
local function sets_of(r, parts)
  local list = {}
  for _, part in ipairs(parts) do
    if r[part] and type(r[part].batch_size) == "function" then list[#list + 1] = r[part] end
  end
  return list
end

-- Whether its batches have the extents of the network's inputs.
local function fixed(r) return not (r.train and r.train.batch and r.train.batch.bucket) end

-- Elements of one sample of all inputs.
local function elements(r)
  local sum = 0
  for _, input in ipairs(r.inputs) do
    sum = sum + util.product { table.unpack(input.shape, 2) }
  end
  return sum
end

-- Bytes of the loader's slots for `batch` samples (data/loader/loader.c, make_slots).
local function ring(bytes, batch)
  local v = config.ensure()
  if v.workers == 0 then return bytes * batch end
  local slots, each = 3, bytes * batch
  while slots > 2 and each > math.max(v.prefetch_mb << 20, 1) // slots do slots = slots - 1 end
  return slots * each
end

-- The batch size of a set if --batch were `batch` (nil: the value of the config).
local function size_of(set, batch)
  local size, now = set.batch.size or 1, config.ensure().batch
  return size == now and batch or size == "auto" and now or size
end

-- Bytes of the batches that training makes ahead, all sets together.
function M.batches(r, batch)
  local sum = 0
  for _, set in ipairs(sets_of(r, { "train", "valid", "test" })) do
    local size, views = size_of(set, batch), 1
    if set == r.train then
      size, views = math.ceil(size / ranks.count), set.batch.twice and 2 or 1
    end
    sum = sum + views * ring(4 * elements(r), size)
  end
  return sum
end

-- The number of processes on this machine that need the same memory.
local function processes()
  if ranks.count == 1 then return 1 end
  return ranks.via == "MPI" and math.max(core.sys.machine().cores // ranks.threads(0), 1)
    or ranks.count
end

-- Bytes of this machine that a command needs besides its network. o: train; batch.
function M.besides_network(r, o)
  local batches = o.train and M.batches(r, o.batch)
    or ring(4 * elements(r), o.batch or config.ensure().batch)
  return batches + SMALL
end

-- Bytes of this machine that this process may still use; nil if unknown.
function M.room()
  local room = core.room "cpu"
  return room and math.max(room // processes() - MARGIN, 0)
end

-- The bytes that a recipe needs for `purpose` ("train", "evaluate"), before there is a session:
-- param (weights; for training also gradients, moments and average), arena (training and evaluation
-- share it), rest (besides the network), plan. change: as in plans.plan, and batch. Returns nil and
-- the reason if there is no such network.
function M.of(r, purpose, change)
  local plans = require "seg.inspect.plan"
  change = change or {}
  local train, batch = purpose == "train", change.batch or config.ensure().batch
  local share = train and math.ceil(batch / ranks.count) or batch
  local rest = M.besides_network(r, { train = train, batch = batch })
  if not budget.on_gpu(M.device()) then budget.rest = rest end
  local ok, now = pcall(plans.plan, r, share, train, change)
  if not ok then return nil, now end
  local out = { param = now.param_bytes, arena = now.bytes, plan = now, rest = rest }
  for _, set in ipairs(train and sets_of(r, { "valid", "test" }) or {}) do
    local fine, eval = pcall(plans.plan, r, size_of(set, batch), false, change)
    if fine then out.arena = math.max(out.arena, eval.bytes) end
  end
  return out
end

-- Raises that the command needs more than `room` bytes, with remedies. with_rest: the batches and
-- the program must fit in `room` too.
local function refuse(purpose, n, room, gpu, with_rest, what)
  local wanted = n.param + n.arena
  M.refused = { early = true, rest = with_rest and n.rest or nil, command = purpose }
  core.sys.raise(gpu and "device" or "failure", string.format(
    "no memory: %s needs %d bytes (weights%s %s, arena %s)%s, %s; fix: one of the changes below, "
    .. "or more memory", purpose == "train" and "training" or "evaluation", wanted,
    purpose == "train" and ", gradients and moments" or "", util.bytes(n.param),
    util.bytes(n.arena), with_rest and " and " .. util.bytes(n.rest)
      .. " of batches and program" or "", what), true, wanted, math.max(room, 0))
end

-- Checks that a session with everything the command needs fits, before the session is opened.
-- purpose: as in recipes.session; device, precision: if not those of the config.
function M.check(r, purpose, device, precision)
  if not r.inputs then return end -- a round of clusters
  local name = device or M.device()
  local gpu, limit = budget.on_gpu(name), budget.limit()
  if gpu and not limit then return end -- checked when the device is open
  local n = M.of(r, purpose, { device = device, precision = precision })
  -- a network that cannot be planned fails with its own message when it runs
  if not n then return end
  -- shorter sequences need less; how much is known when the data are open
  if not fixed(r) then n.arena = 0 end
  if limit and n.param + n.arena > limit then
    refuse(purpose, n, limit, gpu, false,
           string.format("--vram gives %d (%s)", limit, util.bytes(limit)))
  end
  if gpu then return end
  local room = M.room()
  if room and n.param + n.arena + n.rest > room then
    refuse(purpose, n, room, false, true, string.format("%s of this machine are free%s",
           util.bytes(room), processes() > 1 and " for each process" or ""))
  end
  M.expected = n.arena + n.rest - SMALL
end

-- Bytes of this machine that prepared volumes may use when a set is opened: half of the memory that
-- remains after the expected needs. -> that number, the remaining memory
function M.cache(wanted)
  local room = M.room()
  if not room then return wanted end
  room = math.max(room - (M.expected or 0) - SMALL, 0)
  return math.min(wanted, room // 2), room
end

-- With open data ---------------------------------------------------------------------

-- Bytes of the float maps that are stitched on the grid of the largest case of a set, for metrics
-- of whole cases.
local function stitched(r, d)
  local base, seen, channels, voxels = require "seg.evaluate.metric_base", {}, 0, 0
  local arrays = 0 -- channels of the arrays that functions of metric.case get
  local facts = d.pipeline:facts(1)
  for _, m in pairs(r.metrics) do
    if m.way == "volume" or (m.output and facts.patches and not facts.drawn) then
      for _, node in ipairs(base.of_case(m)) do
        local id = core.node_id(node)
        if not seen[id] then seen[id], channels = true, channels + node.c end
      end
    end
    if m.kind == "case" and m.output then arrays = arrays + m.output.c + m.target.c end
  end
  if channels == 0 then return 0 end
  for item = 1, #d.pipeline:cases() do
    voxels = math.max(voxels, d.pipeline:facts(item).voxels)
  end
  -- summed scores, predictions, and ground truth
  return 4 * voxels * (2 * channels + 1 + arrays)
end

-- Bytes of the largest sample of a set, all its fields.
local function sample_bytes(d)
  local sum = 0
  for _, name in ipairs(d.names) do
    local ok, shape = pcall(d.loader.shape, d.loader, name)
    sum = sum + 4 * util.product(ok and shape or {})
  end
  return sum
end

-- Elements of the largest parameter, for the buffers that copy parameters to the host.
local function largest(session)
  local most = 0
  for _, p in ipairs(session:params()) do most = math.max(most, util.product(p.shape)) end
  return most
end

-- Bytes of the snapshots that the run will take of its checkpoints.
local function snapshots(run)
  local v, s, epochs = run.values, run.state, run.epochs
  if not ranks.writes() or run.saving.in_place then return 0 end
  if v.until_epoch > 0 then epochs = math.min(epochs, v.until_epoch) end
  if v.steps > 0 then
    local batches = epoch_steps.count(run)
    epochs = math.min(epochs, v.steps // math.ceil(batches / run.recipe.accumulate))
  end
  local count = math.max(0, math.min(epochs - s.epoch, run.saving.most))
  return count * run.session:facts().snapshot_bytes
end

-- Memory of this machine that the run will still allocate after its data are open, by purpose, in
-- bytes, and `total`.
function M.to_come(run)
  local v, r, plans = config.ensure(), run.recipe, require "seg.inspect.plan"
  local out = { arena = 0, train = 0, stitched = 0, changed = 0, made = 0,
                saving = 12 * largest(run.session), snapshots = snapshots(run) }
  local cpu = run.session:facts().device ~= "cuda"
  for _, part in ipairs { "train", "valid", "test" } do
    local d = run.data[part]
    if d then
      local train = part == "train"
      local size = math.min(d.set:batch_size(), (select(2, d.loader:batches())))
      if train then size = math.ceil(size / ranks.count) end
      local ok, plan = pcall(plans.plan, r, size, train, { session = run.session })
      if ok and cpu and fixed(r) then
        out.arena = math.max(out.arena, plan.bytes)
        if train then out.train = plan.bytes else out.evaluation = plan.bytes end
      end
      if not train then out.stitched = math.max(out.stitched, stitched(r, d)) end
      if train and d.set.augmented then
        out.changed = 2 * math.max(v.workers, 1) * sample_bytes(d)
      end
      -- volumes that are not kept are prepared again, by as many threads as at opening
      local cache = d.pipeline:cache()
      if cache.kept < cache.count then out.made = run.opening_bytes end
    end
  end
  -- a round of clusters trains in its own session, with its own moments
  out.rounds = r.clusters and cpu and run.session:facts().param_bytes + out.train or 0
  out.total = out.arena + out.changed + out.made + out.rounds + out.snapshots
    + math.max(out.stitched, out.saving) + SMALL
  return out
end

-- Checks, before the first step and with the data open, that the remaining allocations fit. With
-- --recompute auto the step may be planned again for the memory that is left.
function M.settle(run)
  local v, room = config.ensure(), M.room()
  local come = M.to_come(run)
  local gpu = run.session:facts().device == "cuda"
  if room and come.total > room and come.snapshots > 0 then
    show.line("saving: no room for snapshots of checkpoints (%s), training waits for each write",
              util.bytes(come.snapshots))
    run.saving.in_place = true
    come = M.to_come(run)
  end
  if room and not gpu and come.total > room and v.recompute == "auto" and come.train > 0 then
    budget.lower(run.session, room - (come.total - come.arena))
    come = M.to_come(run)
    if come.total <= room then
      show.line("recompute: the data leave %s for the arena of a step, which takes %s",
                util.bytes(room - (come.total - come.arena)), util.bytes(come.train))
    end
  end
  if room and come.total > room then
    M.refused = { early = true, rest = come.total - come.arena, command = "train" }
    local parts = { "arena " .. util.bytes(come.arena), "program " .. util.bytes(SMALL) }
    for _, e in ipairs { { "cases put together", come.stitched },
                         { "samples under way", come.changed },
                         { "volumes prepared again", come.made },
                         { "rounds of clusters", come.rounds } } do
      if e[2] > 0 then parts[#parts + 1] = e[1] .. " " .. util.bytes(e[2]) end
    end
    core.sys.raise("failure", string.format(
      "no memory: in addition to the open data %s are needed (%s), %s of this machine are free; "
      .. "fix: one of the changes below, a smaller --cache_mb, fewer --workers, or more memory",
      util.bytes(come.total), table.concat(parts, ", "), util.bytes(room)),
      true, math.max(come.arena, 1), room)
  end
  local machine = core.sys.machine()
  local first = not run.planned_bytes
  run.planned_bytes = math.max(run.planned_bytes or 0, machine.rss_bytes,
                               machine.now_bytes + come.total)
  if first then
    show.line("memory: %s planned%s", util.bytes(run.planned_bytes), room and
              string.format(", of %s that this process may take", util.bytes(machine.now_bytes
                                                                              + room)) or "")
  end
end

-- Prints the peak memory, for the log and for a request to a batch system.
function M.report(run)
  local took = core.sys.machine().rss_bytes
  if run.planned_bytes then
    show.line("memory: took at most %s (%d bytes) of %s planned", util.bytes(took), took,
              util.bytes(run.planned_bytes))
  end
end

return M
