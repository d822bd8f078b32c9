-- pass.lua -- one pass over a part of the data with the evaluation plan: the loss, and the value of
-- each metric for every case.

local core = require "seg.core"
local loss_parts = require "seg.evaluate.loss_parts"
local base = require "seg.evaluate.metric_base"
local metric = require "seg.evaluate.metric"
local not_finite = require "seg.train.not_finite"
local opened = require "seg.data.opened"
local ranks = require "seg.train.ranks"
local show = require "seg.show"
local stitch = require "seg.evaluate.stitch"
local util = require "seg.util"

local M = {}

-- The list of nodes that a pass reads, each once, with their positions.
local Nodes = {}
Nodes.__index = Nodes

function Nodes:add(node)
  local id = core.node_id(node)
  if not self.place[id] then
    self.list[#self.list + 1] = node
    self.place[id] = #self.list
  end
  return self.place[id]
end

-- Decides how each metric is measured on this pipeline; o as in M.run. For random patches only
-- the counts of the patches are known, and nothing about the whole case.
--   -> { { name=, m=, way=, node=, area=, read= (positions of nodes) }, ... }, nodes,
--      nodes that cases are stitched from, nil if there are none; the parts of the loss
local function plan(recipe, pipeline, o)
  local nodes = setmetatable({ list = {}, place = {} }, Nodes)
  local users, whole, seen, stitched = {}, {}, {}, o.each ~= nil
  local facts = pipeline:facts(1)
  local function want(list)
    for _, node in ipairs(list) do
      local id = core.node_id(node)
      if not seen[id] then whole[#whole + 1], seen[id] = node, true end
      nodes:add(node)
    end
  end
  nodes:add(recipe.loss)
  want(o.nodes or {})
  for _, name in ipairs(o.metrics or util.sorted_keys(recipe.metrics)) do
    local m = recipe.metrics[name]
    local user = { name = name, m = m, way = m.way or "counts", cases = {}, values = {},
                   lists = {}, records = {}, each = {} }
    users[#users + 1] = user
    user.node = user.way == "counts" and nodes:add(m.node) or nil
    user.area = m.area and nodes:add(m.area)
    if user.way == "counts" and m.output and not facts.drawn
      and (facts.patches or (o.threshold and not m.fixed)) then
      user.way = "stitched"
    end
    -- the counts of the device use the metric's own threshold
    user.by_slice = user.node and not (o.threshold and not m.fixed)
    if user.way == "numbers" then
      user.read = {}
      for i, node in ipairs(m.read) do user.read[i] = nodes:add(node) end
      user.undo = stitch.undo(pipeline, m.target)
    elseif user.way ~= "counts" and not facts.drawn then
      want(base.of_case(m))
      stitched = true
    end
  end
  local terms = {}
  for i, part in ipairs(loss_parts.of(recipe)) do
    terms[i] = { part = part, node = nodes:add(part.node), each = {} }
  end
  return users, nodes, stitched and whole or nil, terms
end

-- sums[k] += counts[from, k], k = 1 .. n
local function add(sums, counts, from, n)
  for k = 1, n do sums[k] = (sums[k] or 0) + counts:get(from, k) end
end

-- Adds the counts of one sample to its case, and the value of the sample alone.
local function count_sample(user, item, values, i)
  local counts, area = values[user.node], user.area and values[user.area]
  local width, slice = counts.shape[2], {}
  add(slice, counts, i, width)
  local all = area and area:get(i, 2) or nil
  local v = user.m.value(slice, all)
  if v then user.each[#user.each + 1] = { item, v } end
  if user.way == "stitched" then return end -- the case is measured as a whole
  local case = user.cases[item] or { all = 0 }
  user.cases[item] = case
  add(case, counts, i, width)
  case.all = case.all + (all or 0)
end

-- Adds a sample that is a few numbers; a case with several samples has their mean.
local function number_sample(user, item, values, i)
  local rows = {}
  for k, place in ipairs(user.read) do rows[k] = loss_parts.row(values[place], i) end
  local v, list, record = user.m.sample(rows, user.undo)
  local case = user.cases[item] or { sum = 0, n = 0, list = {}, counts = {} }
  user.cases[item] = case
  if v then case.sum, case.n = case.sum + v, case.n + 1 end
  for k, x in pairs(list or {}) do
    case.list[k], case.counts[k] = (case.list[k] or 0) + x, (case.counts[k] or 0) + 1
  end
  local last = user.records[#user.records]
  if record and user.m.merge and last and last.item == item then
    user.m.merge(last.record, record)
  elseif record then
    user.records[#user.records + 1] = { item = item, record = record }
  end
end

-- Measures a case that was stitched.
local function measure_case(users, case)
  for _, user in ipairs(users) do
    local v, list, record
    if user.way == "stitched" then
      v, list = user.m.value(case:overlap(user.m))
    elseif user.way == "volume" then
      v, list, record = user.m.measure(case)
    end
    if user.way == "stitched" or user.way == "volume" then
      user.values[case.item], user.lists[case.item] = v, list
      if record then user.records[#user.records + 1] = { item = case.item, record = record } end
    end
  end
end

-- The mean over samples, { { item, value }, ... }, without samples of cases that do not count; and
-- their number.
local function mean_of_samples(each, bad)
  local sum, n = 0, 0
  for _, e in ipairs(each) do
    if not bad[e[1]] then sum, n = sum + e[2], n + 1 end
  end
  return sum / n, n
end

-- Computes the values of the cases after all samples, without the cases in `bad`.
local function settle(user, cropped, bad)
  local records = {}
  for _, r in ipairs(user.records) do
    if not bad[r.item] then records[#records + 1] = r end
  end
  user.records = records
  for item in pairs(bad) do
    user.cases[item], user.values[item], user.lists[item] = nil, nil, nil
  end
  user.slices = mean_of_samples(user.each, bad)
  for item, case in pairs(user.cases) do
    if user.way == "counts" then
      user.values[item], user.lists[item] =
        user.m.value(stitch.with_missed(case, case.all, cropped and cropped[item]))
    else
      user.values[item] = case.n > 0 and case.sum / case.n or nil
      user.lists[item] = {}
      for k, x in pairs(case.list) do user.lists[item][k] = x / case.counts[k] end
    end
  end
  table.sort(user.records, function(a, b) return a.item < b.item end)
end

-- The records of metrics that have one value over all cases.
local function bare(records, places)
  local list = {}
  for i = 1, places and #places or #records do
    list[i] = records[places and places[i] or i].record
  end
  return list
end

-- The integer keys of a table, sorted.
local function places_of(t)
  local list = {}
  for k in pairs(t) do list[#list + 1] = k end
  table.sort(list)
  return list
end

-- The values of cases in order, and their patients.
local function ordered(values, pipeline)
  local list, owners = {}, {}
  for _, item in ipairs(places_of(values)) do
    list[#list + 1], owners[#owners + 1] = values[item], pipeline:facts(item).patient
  end
  return list, owners
end

-- The result of a metric: values by case, their mean or the one value over all, the mean over
-- slices; the same by class.
local function result_of(user, recipe, pipeline, interval)
  local m = user.m
  local list, owners = ordered(user.values, pipeline)
  local r = { cases = user.values, list = list, owners = owners, mean = util.mean(list),
              slices = user.by_slice and user.slices or nil,
              lists = user.lists, classes = {} }
  if m.total then
    local value, extra = m.total(bare(user.records))
    r.mean, r.matrix, r.total = value or 0 / 0, extra and extra.matrix, true
    r.class_totals, r.n = extra and extra.classes or {}, #user.records
    if interval then
      local of = {}
      for i, e in ipairs(user.records) do of[i] = pipeline:facts(e.item).patient end
      r.low, r.high = metric.interval(#of, of, function(places)
        return (m.total(bare(user.records, places)))
      end)
    end
  end
  if m.confusion and user.records[1] then
    r.records = user.records
    r.matrix = r.matrix or m.confusion(bare(user.records))
    r.names = base.class_names(recipe, m, #r.matrix, recipe.train, 0)
  end
  if (m.classes or 1) < 2 and not (m.total and r.matrix) then return r end
  local count = r.matrix and #r.matrix or m.classes
  local names = base.class_names(recipe, m, count, recipe.train, r.matrix and 0 or 1)
  r.names = names
  for k = 1, m.total and next(r.class_totals) and count or m.classes or 0 do
    local values = {}
    for item, by_class in pairs(user.lists) do values[item] = by_class[k] end
    local class = { name = names[k], cases = values }
    class.list, class.owners = ordered(values, pipeline)
    class.mean = r.class_totals and r.class_totals[k] or util.mean(class.list)
    r.classes[k] = class
  end
  return r
end

-- The ground truth outside the prepared grids, cut off by fit and crop, which no sample has: {
-- [item] = { voxels of class 1, ... } }, and a line about it, nil if there is none. Not computed
-- for sets that use only some of the slices.
function M.cropped(recipe, pipeline)
  local field, out, cases, unknown, voxels = nil, {}, 0, 0, 0
  for _, m in pairs(recipe.metrics) do
    field = field or m.logits and m.target.kind == "input" and m.target.rank > 0 and m.target.name
  end
  for item = 1, field and #pipeline:cases() or 0 do
    local f = pipeline:facts(item)
    if f.slices ~= f.depth then return {} end
    local found = core.measure.cropped(pipeline, item, field)
    if found == false then unknown = unknown + 1 end
    local sum = 0
    for _, n in ipairs(found or {}) do sum = sum + n end
    if sum > 0 then out[item], cases, voxels = found, cases + 1, voxels + sum end
  end
  if unknown > 0 then
    return out, string.format(
      "the prepared grid is smaller than the image in %s; the ground truth outside is not known, "
      .. "as a function changes it, and not counted", util.plural(unknown, "case"))
  end
  return out, cases > 0 and string.format(
    "truth beyond the prepared grid (fit, crop): %.0f voxels in %s, counted as missed; distances "
    .. "and curves are of the grid", voxels, util.plural(cases, "case")) or nil
end

-- Runs every sample of `loader` once, or until a signal, and returns the mean loss and the result
-- of each metric. o: metrics: names of the metrics to measure, default all; interval: also
-- confidence intervals of values that are not means; threshold: for metrics without their own;
-- each(case): called with every case, stitched from `nodes`; cropped: the result of M.cropped.
-- Cases for which the network gives values that are not finite do not count, and neither do such
-- samples in the loss.
--   -> { loss= (NaN of no sample), seen=, bad = {[item]=the value that is not finite},
--        parts = {[name]=mean}, empty= (share of samples),
--        metrics = { dice = { cases = {[item]=v}, mean=, list=, slices=,
--          classes = { {name=, cases=, mean=}, ... }, matrix=, names = of its classes,
--          records = { {item=, record = {t=, p=, q=}}, ... } of classes of samples } } }
function M.run(session, recipe, pipeline, loader, names, label, o)
  o = o or {}
  local users, nodes, whole, terms = plan(recipe, pipeline, o)
  local stitcher = whole and stitch.new(pipeline, whole, o.threshold)
  local loss, seen, begun, waiting, bad = 0, 0, 0, {}, {}

  local function finish(case)
    case.cropped = o.cropped and o.cropped[case.item]
    local ok, why = pcall(function()
      measure_case(users, case)
      if o.each then o.each(case) end
    end)
    case:close()
    if not ok then error(why, 0) end
  end
  local function take(batch, values)
    loss, seen = loss + batch.loss, seen + batch.counted
    local parts = {}
    for k, node in ipairs(whole or {}) do parts[k] = values[nodes.place[core.node_id(node)]] end
    local function count(i, number, item)
      for _, user in ipairs(users) do
        if user.node then count_sample(user, item, values, i) end
        if user.read then number_sample(user, item, values, i) end
      end
      for _, term in ipairs(terms) do
        local v = term.part.value(loss_parts.row(values[term.node], i))
        if v then term.each[#term.each + 1] = { item, v } end
      end
      local case = stitcher and stitcher:put(number, parts, i)
      if case then finish(case) end
    end
    for i, number in ipairs(batch.samples) do
      local item = pipeline:item(number)
      if batch.bad and batch.bad[i] and not bad[item] then
        bad[item] = batch.bad[i]
        if stitcher then stitcher:drop(item) end
      end
      if not bad[item] then count(i, number, item) end
    end
  end
  -- Reads the values that the device has kept. Values of samples are read together at the end, so
  -- that the host does not wait earlier; maps of whole cases after each batch, because they are
  -- large.
  local function collect()
    local kept = session:kept()
    for b, batch in ipairs(waiting) do
      batch.values = table.move(kept, (b - 1) * #nodes.list + 1, b * #nodes.list, 1, {})
    end
    -- runs samples again, so only after all values were read
    for _, batch in ipairs(waiting) do
      not_finite.judge(batch, session, recipe, pipeline, nodes.list, names)
    end
    for _, batch in ipairs(ranks.whole(waiting)) do take(batch, batch.values) end
    waiting = {}
  end

  local batches, samples = loader:batches()
  local rounds, own = ranks.rounds(batches)
  local started = core.sys.clock()
  session:kept() -- discards values left by a pass that failed
  loader:seek(0, 0)
  for round = 1, rounds do
    if round <= own then
      local batch = loader:next()
      session:forward(opened.feeds(batch, names, recipe), false, nodes.list)
      waiting[#waiting + 1] = { number = batch.number, count = batch.count,
                                samples = batch.samples }
      begun = begun + batch.count
      show.bar(label, begun, samples, started)
    end
    if stitcher or ranks.count > 1 then collect() end
    if ranks.stopped() then break end
  end
  collect()
  show.bar_done()
  if stitcher and not ranks.stopped() then
    for _, case in ipairs(stitcher:rest()) do finish(case) end
  end
  if stitcher then stitcher:close() end
  local result = { loss = loss / seen, seen = seen, bad = bad, metrics = {}, parts = {} }
  for _, term in ipairs(terms) do
    local mean, n = mean_of_samples(term.each, bad)
    result.parts[term.part.name] = mean
    result.empty = term.part.empty and n / seen or result.empty
  end
  for _, user in ipairs(users) do
    settle(user, o.cropped, bad)
    result.metrics[user.name] = result_of(user, recipe, pipeline, o.interval)
  end
  return result
end

return M
