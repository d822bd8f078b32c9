-- evaluate.lua -- a set through the evaluation plan, measured by case.

local core = require "seg.core"
local config = require "seg.config"
local metric = require "seg.metric"
local show = require "seg.show"
local targets = require "seg.targets"
local util = require "seg.util"

local M = {}

-- The inputs of the recipe that are fields of the data, by the place of their
-- field: a data set may hold more than a network wants.
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
    feeds[input.name] = batch.drawn or batch.fields[i]
  end
  return feeds
end

-- Inputs of the recipe must be fields of the data and have their shape. A plan is
-- made for each length of batches that are bucketed: there w is what the network
-- says at most.
function M.check_inputs(recipe, set, pipeline, names, loader)
  local bucket, part = set.batch.bucket, set.part or "given"
  local have = {}
  for _, name in ipairs(names) do have[name] = true end
  for _, input in ipairs(recipe.inputs) do
    if not have[input.name] then
      util.fail("usage", 'the %s set has no field "%s" for the input of that name; it has %s',
                part, input.name, table.concat(names, ", "))
    end
    local want, got = input.shape, (bucket and loader or pipeline):shape(input.name)
    if got[1] ~= want[2] then
      local source = set.source.kind
      local names_them = (source == "nifti" or source == "dicom") and input.name == "image"
        and "image = { ... } names them, and " or ""
      local line = input.where ~= "" and input.where .. ": " or ""
      core.sys.raise("usage", string.format(
        '%sthe network wants %s in "%s", the %s set gives %d: %snn.input("%s", { c = %d }) '
        .. "takes them as they are; no step changes their number", line,
        util.plural(want[2], "channel"), input.name, part, got[1], names_them, input.name, got[1]),
        true)
    end
    for i = 1, math.max(#got, #want - 1) do
      local along_w = bucket and input.rank >= 1 and #got == #want - 1 and i == #got
      if along_w and got[i] > want[i + 1] then
        util.fail("usage", 'input "%s" is at most %d along w, batches of the %s set are up to %d: '
                  .. "a larger w in nn.input, a smaller multiple, or fit { w = %d, at = 'start' }",
                  input.name, want[i + 1], part, got[i], want[i + 1])
      elseif got[i] ~= want[i + 1] and not along_w then
        util.fail("usage", 'input "%s" wants %s (C,...), the %s set gives %s; fit or resize it',
                  input.name, table.concat(want, "x", 2), part, table.concat(got, "x"))
      end
    end
  end
end

-- How sets are opened: threads, the cache, the file of prepared cases.
local function opening()
  local v = config.ensure()
  local file = v.cache_file
  if file == "auto" then
    core.sys.mkdir(v.out)
    file = v.out .. "/prepared.cases"
  end
  return { threads = math.max(v.workers, 1), seed = v.seed, cache_bytes = v.cache_mb << 20,
           store = file ~= "" and file or nil }
end

-- The numbers of standardize steps: found on the train set of a recipe, where it
-- has none, and given to all of its sets.
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

-- A set opened for a recipe: every case prepared, the names of the fields, and
-- a loader. -> { set=, pipeline=, names=, loader= }
function M.open(recipe, set)
  local v = config.ensure()
  local names = set:dataset():fields()
  targets.check(recipe, set, set:dataset()) -- before the work of preparing
  local pipeline = set:pipeline(opening())
  for _, bad in ipairs(pipeline:bad()) do
    show.aside("%s: left out: %s", set.part or "data", bad.reason)
  end
  local kept = pipeline:store()
  if kept then show.line("%s: %s", set.part or "data", kept) end
  local loader = set:loader(pipeline, { workers = v.workers, seed = v.seed,
                                        prefetch_bytes = math.max(v.prefetch_mb << 20, 1) })
  M.check_inputs(recipe, set, pipeline, names, loader)
  return { set = set, pipeline = pipeline, names = names, loader = loader }
end

-- Keep the samples of an opened set on the device of `session` when --resident
-- and the room there allow it; `train`: to train with. From then on its loader
-- gives the same batches, which the device makes. Says which it is; -> true where
-- the device does. `was`: the same of a run that is resumed, or nil. Random changes
-- differ by rounding between the two, so what a run began with it keeps to: only
-- --resident on or off, or another device, overrule that.
function M.keep(session, recipe, d, train, was)
  local v, started, part = config.ensure(), core.sys.clock(), d.set.part or "the set"
  local cuda = session:facts().device == "cuda"
  local function changed(is)
    show.warn("%s: %s makes the batches now, not %s: the numbers are not those of an "
              .. "uninterrupted run", part, is and "the device" or "the host",
              is and "the host" or "the device")
  end
  if v.resident == "off" or (was == false and v.resident == "auto") then
    if was then changed(false) end
    return false
  end
  local resident, why, memory
  if d.set.batch.bucket then
    why = "batches of like length are the loader's work"
  else
    resident, why, memory = core.data.resident(session, d.pipeline, {
      nodes = inputs_of(d.names, recipe),
      batch = math.min(d.set.batch.size or 1, (select(2, d.loader:batches()))),
      train = train, augment = d.set.augmented, workers = v.workers,
      must = v.resident == "on" or was })
  end
  if not resident then
    if v.resident == "on" then
      -- a device that is too small is not a mistake on the command line
      core.sys.raise(memory or "usage",
                     string.format("--resident on: %s cannot be kept: %s", part, why), true)
    end
    if was and cuda then
      core.sys.raise(memory or "usage", string.format(
        "%s: the device made the batches of the run that is resumed, and cannot now: %s; free "
        .. "memory of the GPU, or give --resident off, which changes the numbers", part, why), true)
    end
    if was then changed(false) end
    d.refused_memory = memory == "device"
    if cuda then show.line("%s: from the loader: %s", part, why) end
    return false
  end
  if was == false then changed(true) end
  local ids = d.set:loader(d.pipeline, { seed = v.seed, ids = true })
  d.loader:close()
  d.loader = {
    batches = function() return ids:batches() end,
    seek = function(_, epoch, batch) return ids:seek(epoch, batch) end,
    stats = function() return ids:stats() end,
    next = function()
      local batch = ids:next()
      batch.drawn = resident:draw(batch.epoch, batch.samples)
      return batch
    end,
  }
  show.line("%s: %s of samples on the device (%s)", part, util.bytes(resident:bytes()),
            util.duration(core.sys.clock() - started))
  return true
end

-- sums[k] += counts[from, k], k = 1 .. n
local function add(sums, counts, from, n)
  for k = 1, n do sums[k] = (sums[k] or 0) + counts:get(from, k) end
end

-- Every sample of `loader` once, or until a signal: the batches, and of each the
-- values of `nodes`. These are read together at the end, so that nothing waits for
-- a device before.
--   -> { { count=, samples=, values = { array, ... } }, ... }
local function values_of(session, recipe, loader, names, nodes, label)
  local batches, samples = loader:batches()
  local started, seen, list = core.sys.clock(), 0, {}
  session:kept() -- what a pass that failed has left
  loader:seek(0, 0)
  for b = 1, batches do
    local batch = loader:next()
    session:forward(M.feeds(batch, names, recipe), false, nodes)
    list[b] = { count = batch.count, samples = batch.samples, values = {} }
    seen = seen + batch.count
    show.bar(label, seen, samples, started)
    if core.sys.stopped() then break end
  end
  local kept = session:kept()
  for i, v in ipairs(kept) do
    local b, k = (i - 1) // #nodes + 1, (i - 1) % #nodes + 1
    list[b].values[k] = v
  end
  return list, seen
end

-- Run every sample of `loader` once, or until a signal: the mean loss, and for
-- each metric its value by case (of all its slices in the set) and the mean over
-- slices.
--   -> { loss=, metrics = { dice = { cases = {[item]=v}, mean=, slices= } } }
function M.run(session, recipe, pipeline, loader, names, label)
  -- metrics of one node share its counts: node id -> node, sums by case, users
  local by_node, result, loss = {}, { metrics = {} }, 0
  local nodes = { recipe.loss }
  for name, m in pairs(recipe.metrics) do
    local id = core.node_id(m.node)
    if not by_node[id] then
      nodes[#nodes + 1] = m.node
      by_node[id] = { place = #nodes, cases = {}, users = {} }
    end
    by_node[id].users[name] = { m = m, sum = 0, n = 0 }
  end
  local batches, seen = values_of(session, recipe, loader, names, nodes, label)
  for _, batch in ipairs(batches) do
    loss = loss + batch.values[1]:get() * batch.count
    for _, entry in pairs(by_node) do
      local counts = batch.values[entry.place]
      local width = counts.shape[2]
      for i, number in ipairs(batch.samples) do
        local item = pipeline:item(number)
        entry.cases[item] = entry.cases[item] or {}
        add(entry.cases[item], counts, i, width)
        local slice = {}
        add(slice, counts, i, width)
        for _, user in pairs(entry.users) do
          local v = user.m.value(slice)
          if v then user.sum, user.n = user.sum + v, user.n + 1 end
        end
      end
    end
  end
  show.bar_done()
  result.loss = loss / math.max(seen, 1)
  for _, entry in pairs(by_node) do
    for name, user in pairs(entry.users) do
      local values, list = {}, {}
      for item, sums in pairs(entry.cases) do values[item] = user.m.value(sums) end
      for _, item in ipairs(util.sorted_keys(values)) do list[#list + 1] = values[item] end
      result.metrics[name] = { cases = values, mean = util.mean(list), list = list,
                               slices = user.n > 0 and user.sum / user.n or 0 / 0 }
    end
  end
  return result
end

-- The per-case table of a result, worst first by what `best` names, else by the
-- first metric; cases appear as hashes. -> text, numbers of the cases in order
function M.table(recipe, result, pipeline, hash)
  local names = util.sorted_keys(recipe.metrics)
  local main = recipe.best and recipe.metrics[recipe.best[1]] and recipe.best[1] or names[1]
  local items, seen = {}, {}
  for _, name in ipairs(names) do
    for item in pairs(result.metrics[name].cases) do
      if not seen[item] then items[#items + 1], seen[item] = item, true end
    end
  end
  -- a case that has no value stands before the worst
  local function key(item) return result.metrics[main].cases[item] or -1 end
  table.sort(items, function(a, b) return key(a) == key(b) and a < b or key(a) < key(b) end)
  local rows = { { "case", table.unpack(names) } }
  for _, item in ipairs(items) do
    local row = { hash(pipeline:facts(item).key) }
    for _, name in ipairs(names) do
      local v = result.metrics[name].cases[item]
      row[#row + 1] = v and string.format("%.4f", v) or "-"
    end
    rows[#rows + 1] = row
  end
  return show.table(rows), items
end

-- Of what a value by case is: the volume, or the slices or patches of it that
-- the set has. Patches may share voxels, which then count more than once.
local function extent(result, pipeline)
  local used, depth, each, seen = 0, 0, nil, {}
  if pipeline:facts(1).patches then return "of its patches, not of the volume" end
  for _, m in pairs(result.metrics) do
    for item in pairs(m.cases) do seen[item] = true end
  end
  for item in pairs(seen) do
    local f = pipeline:facts(item)
    local text = string.format("of the slices used (%d of %d)", f.slices, f.depth)
    each = (each == nil or each == text) and text
    used, depth = used + f.slices, depth + f.depth
  end
  if used == depth then return "whole volume" end
  return each or string.format("of the slices used (%d of %d in all cases)", used, depth)
end

-- What tells this result from one of other cases: the part, how many cases it
-- has, and a keyed hash of their names and voxels. -> json
function M.identify(json, part, d, hash)
  local list = {}
  for i = 1, #d.pipeline:cases() do
    local f = d.pipeline:facts(i)
    list[i] = f.key .. "\0" .. f.image
  end
  json.split, json.count, json.data = part, #list, hash(table.concat(list, "\0"))
  json.left_out = #d.pipeline:bad() -- skip_bad
  return json
end

-- What a sample of a pipeline is.
function M.sample_name(pipeline)
  if pipeline:facts(1).patches then return "patch", "patches" end
  local _, slice = pipeline:item(1)
  if slice > 0 then return "slice", "slices" end
  return "volume", "volumes"
end

-- A result as lines for people, one a metric, and as a table for summary.json.
function M.summary(recipe, result, pipeline, hash)
  local lines, json = {}, { loss = result.loss, metrics = {}, cases = {} }
  local of = extent(result, pipeline)
  for _, name in ipairs(util.sorted_keys(recipe.metrics)) do
    local r, m = result.metrics[name], recipe.metrics[name]
    local s = metric.summary(r.list)
    local interval = s.low and string.format(", 95 %% interval %.4f .. %.4f", s.low, s.high) or ""
    local spread = s.sd and string.format(", sd %.4f", s.sd) or "" -- of two cases or more
    lines[#lines + 1] = string.format(
      "%s per case %s: mean %s, median %s%s, n %d%s; per %s %s (%s)", name,
      of == "whole volume" and "(whole volume)" or of, util.fixed(s.mean), util.fixed(s.median),
      spread, s.n, interval, (M.sample_name(pipeline)), util.fixed(r.slices), m.rule)
    json.metrics[name] = { mean = s.mean, median = s.median, sd = s.sd, n = s.n, low = s.low,
                           high = s.high, per_slice = r.slices, empty = m.rule, of = of }
    for item, v in pairs(r.cases) do
      local case = hash(pipeline:facts(item).key)
      json.cases[case] = json.cases[case] or {}
      json.cases[case][name] = v
    end
  end
  return lines, json
end

return M
