-- opened.lua -- opens a part of the data for a recipe: every case prepared, and a loader of the
-- samples; the device may make the batches itself.

local batches = require "seg.train.batch"
local core = require "seg.core"
local config = require "seg.recipe.config"
local ranks = require "seg.train.ranks"
local show = require "seg.show"
local targets = require "seg.data.targets"
local traces = require "seg.inspect.trace"
local util = require "seg.util"

local M = {}

-- The inputs of the recipe that are fields of the data, by the index of their field. A data set may
-- have more fields than the network uses.
local function inputs_of(names, recipe)
  local nodes = {}
  for i, name in ipairs(names) do
    for _, input in ipairs(recipe.inputs) do
      if input.name == name then nodes[i] = input end
    end
  end
  return nodes
end

-- The blocks of a batch by the names of the inputs.
function M.feeds(batch, names, recipe)
  local feeds = {}
  for i, input in pairs(inputs_of(names, recipe)) do
    feeds[input.name] = batch.device_batch or batch.fields[i]
  end
  return feeds
end

-- Checks that the inputs of the recipe are fields of the data and have the same shape. With buckets
-- a plan is made for each batch length; w of the network is then an upper bound.
function M.check_inputs(recipe, set, pipeline, names, loader)
  local bucket, part = set.batch.bucket, set.part or "given"
  local have = {}
  for _, name in ipairs(names) do have[name] = true end
  for _, input in ipairs(recipe.inputs) do
    if not have[input.name] then
      util.fail("usage", 'the %s set has no field "%s" for the input of that name; fix: name the '
                .. 'input after one of its fields: %s', part, input.name, table.concat(names, ", "))
    end
    local want = input.shape
    local got = (bucket and loader or pipeline):shape(set:field_of(input.name))
    if got[1] ~= want[2] then
      local source = set.source.kind
      local names_them = (source == "nifti" or source == "dicom") and input.name == "image"
        and "image = { ... } names them, and " or ""
      local line = input.where ~= "" and input.where .. ": " or ""
      core.sys.raise("usage", string.format(
        '%sthe network expects %s in "%s", the %s set gives %d; fix: %snn.input("%s", { c = %d }) '
        .. "takes them as they are; no step changes their number", line,
        util.plural(want[2], "channel"), input.name, part, got[1], names_them, input.name, got[1]),
        true)
    end
    for i = 1, math.max(#got, #want - 1) do
      local along_w = bucket and input.rank >= 1 and #got == #want - 1 and i == #got
      if along_w and got[i] > want[i + 1] then
        util.fail("usage", 'input "%s" is at most %d along w, batches of the %s set are up to %d; '
                  .. "fix: a larger w in nn.input, a smaller multiple, or fit { w = %d, at = "
                  .. "'start' }", input.name, want[i + 1], part, got[i], want[i + 1])
      elseif got[i] ~= want[i + 1] and not along_w then
        util.fail("usage", 'input "%s" expects %s (C,...), the %s set gives %s; fix: fit or resize '
                  .. "it", input.name, table.concat(want, "x", 2), part, table.concat(got, "x"))
      end
    end
  end
end

-- Bytes that the prepared volumes of a set may use: --cache_mb, but at most half of the memory that
-- this machine, or the control group of a batch system or container, has left besides the network.
-- A case that is not kept is prepared again, with the same bytes.
local function cache_bytes()
  local wanted = config.ensure().cache_mb << 20
  local most, room = require("seg.train.footprint").cache(wanted)
  if most < wanted and not M.said_cache then
    M.said_cache = true
    show.line("cache: at most %s of the %s of --cache_mb, as %s of memory are left here",
              util.bytes(most), util.bytes(wanted), util.bytes(room))
  end
  return most
end

-- Options for opening sets: threads, the cache, the file of prepared cases.
local function opening()
  local v = config.ensure()
  local file = v.cache_file
  if file == "auto" then
    core.sys.mkdir(v.out)
    file = v.out .. "/prepared.cases"
  end
  return { threads = math.max(v.workers, 1), seed = v.seed, cache_bytes = cache_bytes(),
           store = file ~= "" and file or nil }
end

-- Computes the numbers of standardize steps on the train set of a recipe, if they are missing, and
-- sets them in all of its sets.
function M.fit_numbers(r)
  if not r.train:standardizes() then return end
  local started = core.sys.clock()
  local train, said = r.train:fitted(opening())
  r.train = train
  for line in said:gmatch("[^\n]+") do
    show.line("train: %s (%s)", line, util.duration(core.sys.clock() - started))
  end
  for _, part in ipairs { "valid", "test" } do
    if r[part] then r[part] = r[part]:fitted_as(r.train) end
  end
end

-- A loader with additional fields after those of the data: for each entry of `twice`, name of a
-- field = name of its second view, the field of `other`, which gives the same samples with other
-- random augmentation. fields: the names of the data's fields.
local function with_views(loader, other, twice, fields)
  local place = {}
  for i, name in ipairs(fields) do place[name] = i end
  local both = setmetatable({}, { __index = function(_, method)
    return function(_, ...) return loader[method](loader, ...) end
  end })
  function both.seek(_, ...)
    loader:seek(...)
    other:seek(...)
  end
  function both.next()
    local batch, again = loader:next(), other:next()
    for k, name in ipairs(util.sorted_keys(twice)) do
      batch.fields[#fields + k] = again.fields[place[name]]
    end
    return batch
  end
  function both.close()
    loader:close()
    other:close()
  end
  return both
end

-- The names of the fields in a batch: fields of the data, then second views.
local function fields_of(set)
  local names, twice, have = set:dataset():fields(), set.batch.twice or {}, {}
  for _, name in ipairs(names) do have[name] = true end
  for _, name in ipairs(util.sorted_keys(twice)) do
    if not have[name] or have[twice[name]] then
      util.fail("usage", 'batches: twice = { %s = "%s" }: %s', name, twice[name], have[name]
                and "the set has a field of that name" or util.suggest(name, names))
    end
    names[#names + 1] = twice[name]
  end
  return names
end

-- The loader that makes the batches of a set on the host. With several ranks each rank makes its
-- shard: of every training batch, and of the list of batches of other sets.
local function loader_of(set, pipeline, train)
  local v, twice = config.ensure(), set.batch.twice
  local function make(again)
    return set:loader(pipeline, { workers = v.workers, seed = v.seed, again = again,
                                  rank = ranks.rank, ranks = ranks.count, whole = not train,
                                  prefetch_bytes = math.max(v.prefetch_mb << 20, 1),
                                  idle = v.idle_workers, trace = traces.now })
  end
  if not twice then return make(false) end
  return with_views(make(false), make(true), twice, set:dataset():fields())
end

-- Goes back to a loader on the host after the session that held the samples of an opened set on its
-- device is closed.
function M.renew(d)
  if d.on_device then d.loader, d.on_device = loader_of(d.set, d.pipeline, d.train), false end
end

-- The samples of an opened set in order and without augmentation, `size` in a batch, from its
-- prepared cases. -> { set=, loader= }; the caller closes the loader
function M.in_order(d, size)
  local set = d.set:in_order(size)
  return { set = set, loader = loader_of(set, d.pipeline, false) }
end

local SAID = 5 -- different warnings of readers that are shown

-- Prints the warnings of readers, each kind once, with its first case and the number of others.
-- They name files, so they do not go to the log.
local function say_doubts(set, pipeline)
  local count, first, order = {}, {}, {}
  for i = 1, #pipeline:cases() do
    for line in pipeline:facts(i).notes:gmatch "warning: ([^\n]+)" do
      -- warnings that differ only in numbers are one kind
      local kind = (line:match("^.-: (.+)$") or line):gsub("%-?%d[%d.e+-]*", "#")
      if not count[kind] then count[kind], first[kind], order[#order + 1] = 0, line, kind end
      count[kind] = count[kind] + 1
    end
  end
  for i = 1, math.min(#order, SAID) do
    local n = count[order[i]]
    show.aside("%s: warning: %s%s", set.part or "data", first[order[i]],
               n > 1 and string.format(" (and %d more)", n - 1) or "")
  end
  if #order > SAID then
    show.aside("%s: %d more kinds of warnings; segengine doctor data lists them",
               set.part or "data", #order - SAID)
  end
end

-- Opens a set for a recipe: prepares every case, and makes the names of the fields and a loader.
-- train: for training. -> { set=, pipeline=, names=, loader=, train= }
function M.open(recipe, set, train)
  local names = fields_of(set)
  targets.check(recipe, set, set:dataset()) -- before the expensive preparation
  local pipeline = set:pipeline(opening())
  for _, bad in ipairs(pipeline:bad()) do
    show.aside("%s: left out: %s", set.part or "data", bad.reason)
  end
  say_doubts(set, pipeline)
  local kept = pipeline:store()
  if kept then show.line("%s: %s", set.part or "data", kept) end
  batches.settle(recipe, set, pipeline:samples())
  local loader = loader_of(set, pipeline, train)
  M.check_inputs(recipe, set, pipeline, names, loader)
  return { set = set, pipeline = pipeline, names = names, loader = loader, train = train }
end

-- Opens a set for a loop of a script (epoch.lua), without a recipe. -> { names=, loader= }
function M.open_alone(set)
  local names, pipeline = fields_of(set), set:pipeline(opening())
  for _, bad in ipairs(pipeline:bad()) do
    show.aside("%s: left out: %s", set.part or "data", bad.reason)
  end
  say_doubts(set, pipeline)
  return { names = names, loader = loader_of(set, pipeline, true) }
end

-- Keeps the samples of an opened set on the device of `session` if --device_dataset and the free
-- memory allow it; the device then makes the same batches. Prints the decision. -> whether the
-- device makes the batches. train: for training. was: the decision of the resumed run, or nil.
-- Augmentation on host and device differs by rounding, so a run keeps its first decision: only
-- --device_dataset on or off, or another device, overrides it.
function M.keep(session, recipe, d, train, was)
  local v, started, part = config.ensure(), core.sys.clock(), d.set.part or "the set"
  local cuda = session:facts().device == "cuda"
  local function changed(is)
    show.warn("%s: %s makes the batches now, not %s: the numbers differ from an uninterrupted run",
              part, is and "the device" or "the host",
              is and "the host" or "the device")
  end
  if v.device_dataset == "off" or (was == false and v.device_dataset == "auto") then
    if was then changed(false) end
    return false
  end
  local dataset, why, memory
  if d.set.batch.bucket then
    why = "only the loader makes buckets of like length"
  elseif d.set.batch.twice then
    why = "only the loader makes second views"
  elseif d.cut then
    why = "only some of its samples are used (--overfit)"
  else
    dataset, why, memory = core.data.device_dataset(session, d.pipeline, {
      nodes = inputs_of(d.names, recipe),
      batch = math.min(d.set:batch_size(), (select(2, d.loader:batches()))),
      train = train, augment = d.set.augmented, workers = v.workers,
      must = v.device_dataset == "on" or was })
  end
  if not dataset then
    if v.device_dataset == "on" then
      -- a device that is too small is not a mistake on the command line
      core.sys.raise(memory or "usage",
                     string.format("--device_dataset on: %s cannot be kept: %s; fix: "
                                   .. "--device_dataset auto", part, why), true)
    end
    if was and cuda then
      core.sys.raise(memory or "usage", string.format(
        "%s: the device made the batches of the resumed run, and cannot make them now: %s; fix: "
        .. "free memory of the GPU, or give --device_dataset off, which changes the numbers", part,
        why), true)
    end
    if was then changed(false) end
    d.refused_memory = memory == "device"
    if cuda then show.line("%s: from the loader: %s", part, why) end
    return false
  end
  if was == false then changed(true) end
  local ids = d.set:loader(d.pipeline, { seed = v.seed, ids = true, rank = ranks.rank,
                                         ranks = ranks.count, whole = not train })
  d.loader:close()
  d.loader = {
    batches = function() return ids:batches() end,
    seek = function(_, epoch, batch) return ids:seek(epoch, batch) end,
    stats = function() return ids:stats() end,
    next = function()
      local batch = ids:next()
      batch.device_batch = dataset:draw(batch.epoch, batch.samples)
      return batch
    end,
  }
  show.line("%s: %s of samples on the device (%s)", part, util.bytes(dataset:bytes()),
            util.duration(core.sys.clock() - started))
  return true
end

-- Facts that distinguish this result from a result on other cases: the part, the number of cases,
-- and a keyed hash of their names and voxels. -> json
function M.identify(json, part, d, hash)
  local list = {}
  for i = 1, #d.pipeline:cases() do
    local f = d.pipeline:facts(i)
    list[i] = f.key .. "\0" .. f.image
  end
  json.split, json.count, json.data = part, #list, hash(table.concat(list, "\0"))
  json.left_out = #d.pipeline:bad() -- cases left out by skip_bad
  return json
end

-- The name of a sample of a pipeline, by the number of spatial axes of its images.
local whole = { [0] = "case", "sequence", "picture", "volume" }

function M.sample_name(pipeline)
  local facts = pipeline:facts(1)
  if facts.patches then return "patch", "patches" end
  local _, slice = pipeline:item(1)
  local name = slice > 0 and "slice" or whole[facts.rank]
  return name, name .. "s"
end

return M
