-- footprint.lua -- what a command takes of memory, part by part: said before anything
-- is opened, and again when data are.
--
-- The network's part is exact (plan.lua). Of the program's own, the batches that are
-- made ahead are known from the recipe; the size of volumes is not, so training looks
-- again when they are open, before its first step. What does not fit is refused, as the
-- kernel would end the process where nobody is told why.

local core = require "seg.core"
local budget = require "seg.budget"
local config = require "seg.config"
local ranks = require "seg.ranks"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

-- What the heap of Lua, stacks of threads, small blocks and what an allocator keeps
-- may grow by, in bytes.
local SMALL = 12 << 20

local function on_gpu(device) return device:match("^cuda") ~= nil end

-- The device that a command runs on; nothing is opened to know it.
function M.device()
  local device = config.ensure().device
  return device == "auto" and core.device("auto") or device
end

local function part_sets(r)
  local list = {}
  for _, part in ipairs { "train", "valid", "test" } do
    if r[part] and type(r[part].batch_size) == "function" then list[#list + 1] = r[part] end
  end
  return list
end

-- Are its batches of the extents that the network's inputs have?
local function fixed(r) return not (r.train and r.train.batch and r.train.batch.bucket) end

-- Elements of a sample of all inputs.
local function elements(r)
  local sum = 0
  for _, input in ipairs(r.inputs) do
    local n = 1
    for i, extent in ipairs(input.shape) do n = n * (i == 1 and 1 or extent) end
    sum = sum + n
  end
  return sum
end

-- Bytes of `batch` samples on their way (data/load/loader.c, make_slots).
local function ring(bytes, batch)
  local v = config.ensure()
  if v.workers == 0 then return bytes * batch end
  local slots, each = 3, bytes * batch
  while slots > 2 and each > math.max(v.prefetch_mb << 20, 1) // slots do slots = slots - 1 end
  return slots * each
end

-- Bytes of the batches that training makes ahead, all sets together, at `batch` samples a
-- batch of the training set (nil: as the recipe says).
function M.batches(r, batch)
  local sum = 0
  for _, set in ipairs(part_sets(r)) do
    local size = set.batch.size or 1
    if batch and set == r.train then size = batch end
    local views = set == r.train and set.batch.twice and 2 or 1
    if set == r.train then size = math.ceil(size / ranks.count) end
    sum = sum + views * ring(4 * elements(r), size)
  end
  return sum
end

-- Processes of this machine that need the same.
local function processes()
  if ranks.count == 1 then return 1 end
  return ranks.via == "MPI" and math.max(core.sys.machine().cores // ranks.threads(0), 1)
    or ranks.count
end

-- Bytes of this machine that a command takes beside its network. o: train; batch.
function M.beside(r, o)
  local batches = o.train and M.batches(r, o.batch) or 0
  return batches + SMALL
end

-- Bytes of this machine that a network may have, when `rest` is taken beside it; nil:
-- nobody knows.
function M.room(rest)
  local room = core.room "cpu"
  return room and room // processes() - rest
end

-- The bytes that `purpose` takes of a recipe, before a session is there: param (weights,
-- with gradients, moments and average when it trains), arena (of training and
-- evaluation, which share it), rest.
function M.of(r, purpose, change)
  local plans = require "seg.plan"
  local v, train = config.ensure(), purpose == "train"
  local batch = change and change.batch or v.batch
  local share = train and math.ceil(batch / ranks.count) or batch
  local function plan(training, how)
    return plans.plan(r, training and share or batch, training, how)
  end
  local ok, now = pcall(plan, train, change or {})
  if not ok then return nil, now end
  local out = { param = now.param_bytes, arena = now.bytes, plan = now,
                rest = M.beside(r, { train = train, batch = change and batch }) }
  if train and (r.valid or r.test) then
    local how = change and { scale = change.scale, precision = change.precision } or nil
    local fine, eval = pcall(plan, false, how)
    if fine and eval.bytes > out.arena then out.arena = eval.bytes end
  end
  return out
end

-- Refuses, with what would take less, a network of which `n` (M.of) says that it takes
-- more than `room` bytes; `what` has them.
local function refuse(r, purpose, n, room, gpu, what)
  local wanted = n.param + n.arena
  local text = require("seg.memory").lines(r, { wanted = wanted, room = room, device = gpu,
                                                command = purpose, rest = not gpu and n.rest })
  core.sys.eprint(table.concat(text, "\n") .. "\n")
  core.sys.raise(gpu and "device" or "failure", string.format(
    "no memory: the network wants %d bytes (weights %s, arena %s)%s, and %s; fix: one of the "
    .. "changes above, or more memory", wanted, util.bytes(n.param), util.bytes(n.arena),
    n.rest > 0 and not gpu and string.format(" beside %s of batches and program",
                                             util.bytes(n.rest)) or "", what), true)
end

-- Before a session of a recipe is opened: does it fit, with all that the command takes
-- beside it? `purpose` "train" or "evaluate".
function M.check(r, purpose)
  local v, device = config.ensure(), M.device()
  if purpose == "predict" or device == "ref" then return end
  local gpu, limit = on_gpu(device), budget.limit()
  if gpu and not limit then return end -- asked when the device is open
  local n, why = M.of(r, purpose)
  if not n then
    -- what cannot be planned fails again, with its own words, where it is run
    return why
  end
  if not fixed(r) then n.arena = 0 end -- shorter sequences take less: see M.settle
  if limit and n.param + n.arena > limit then
    refuse(r, purpose, n, limit, gpu,
           string.format("--vram gives %d (%s)", limit, util.bytes(limit)))
  end
  local room = not gpu and M.room(n.rest)
  if room and n.param + n.arena > room then
    refuse(r, purpose, n, math.max(room + n.rest, 0), false,
           string.format("%s are free here%s", util.bytes(math.max(room + n.rest, 0)),
                         processes() > 1 and " for each of the processes" or ""))
  end
  M.expected = gpu and 0 or n.arena + n.rest - SMALL
  M.took = M.took or core.sys.machine().now_bytes
  return v
end

-- Bytes of this machine that prepared volumes may take when a set is opened: half of
-- what is left beside what training is going to take.
function M.cache(wanted)
  local room = core.room "cpu"
  if not room then return wanted, nil end
  room = math.max(room // processes() - (M.expected or 0) - SMALL, 0)
  return math.min(wanted, room // 2), room
end

-- When data are open -----------------------------------------------------------------

-- Bytes of one array (N,C,...) of a node on the grid of the largest case of a set, in
-- float: what is put together there.
local function stitched(r, d)
  local stitch_bytes, base = 0, require "seg.metric_base"
  local seen, channels, slab = {}, 0, 0
  for _, m in pairs(r.metrics) do
    if m.way == "volume" or (m.output and m.logits) then
      for _, node in ipairs(base.of_case(m)) do
        local id = core.node_id(node)
        if not seen[id] then seen[id], channels = true, channels + (node.c or 1) end
      end
    end
  end
  if channels == 0 then return 0 end
  for item = 1, #d.pipeline:cases() do
    local f = d.pipeline:facts(item)
    -- values, and in places the slab that takes them in
    stitch_bytes = math.max(stitch_bytes, 4 * f.voxels * (channels + 1))
    slab = math.max(slab, f.voxels)
  end
  return stitch_bytes
end

-- The largest sample of a set, all its fields, in bytes.
local function sample_bytes(d)
  local sum = 0
  for _, name in ipairs(d.names) do
    local ok, shape = pcall(d.loader.shape, d.loader, name)
    local n = 1
    for _, extent in ipairs(ok and shape or {}) do n = n * extent end
    sum = sum + 4 * n
  end
  return sum
end

-- The largest parameter, for the copies by which it is read.
local function largest(session)
  local most = 0
  for _, p in ipairs(session:params()) do
    local n = 1
    for _, extent in ipairs(p.shape) do n = n * extent end
    most = math.max(most, n)
  end
  return most
end

-- What is still to come of memory of this machine when the data of `run` are open, by
-- part, in bytes.
function M.to_come(run)
  local v, r, plans = config.ensure(), run.recipe, require "seg.plan"
  local out = { arena = 0, stitched = 0, changed = 0, made = 0, saving = 12 * largest(run.session),
                small = SMALL }
  local cpu = run.session:facts().device ~= "cuda"
  for _, part in ipairs { "train", "valid", "test" } do
    local d = run.data[part]
    if d then
      local _, samples = d.loader:batches()
      local size = math.min(d.set.batch.size or v.batch, samples)
      local train = part == "train"
      if train then size = math.ceil(size / ranks.count) end
      local ok, plan = pcall(plans.plan, r, size, train, { session = run.session })
      if ok and cpu and fixed(r) then out.arena = math.max(out.arena, plan.bytes) end
      if not train then out.stitched = math.max(out.stitched, stitched(r, d)) end
      if train and d.set.augmented then
        out.changed = 2 * math.max(v.workers, 1) * sample_bytes(d)
      end
      local cache = d.pipeline:cache()
      if cache.kept < cache.count then out.made = math.max(out.made, run.opening_bytes or 0) end
    end
  end
  out.total = out.arena + out.small + out.changed + math.max(out.stitched, out.saving) + out.made
  return out
end

return M
