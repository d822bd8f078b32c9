-- metric.lua -- the metrics of a validation or test set.
--
-- evaluate.lua computes a metric in one of three ways:
--
--   counts   the device counts voxels of each sample (node), summed by case:
--            value(sums, voxels). The overlap of a case is that of the whole volume
--            even if the network gets slices. For patches, which overlap, the
--            stitched volume is counted.
--   volume   the output for a case is stitched on its prepared grid (stitch.lua):
--            measure(case)
--   numbers  few numbers a sample, such as classes or angles: sample(rows)
--
-- Each returns a value and, for several classes or numbers, a list of values; nil if the case has
-- no value. total(records) returns one value over all cases if it is not a mean. `better` is the
-- direction of improvement; `rule` describes the treatment of empty masks and is printed with every
-- value.

local core = require "seg.core"
local nn = require "seg.recipe.nn"
local base = require "seg.evaluate.metric_base"
local util = require "seg.util"

local M = {}

-- Metrics from counts (both, predicted, true, all voxels); nil if undefined.
local ratios = {
  dice = function(both, p, t) return 2 * both / (p + t) end,
  iou = function(both, p, t) return both / (p + t - both) end,
  sensitivity = function(both, _, t) return t > 0 and both / t or nil end,
  precision = function(both, p) return p > 0 and both / p or 0 end,
  specificity = function(both, p, t, all)
    return all > t and (all - t - p + both) / (all - t) or nil
  end,
}

-- One node serves every metric that needs the same counts.
local nodes = {}

local function overlap_node(logits, target, o)
  local key = string.format("%d %d %d %g", core.node_id(logits), core.node_id(target),
                            o.mask and core.node_id(o.mask) or -1, o.threshold)
  nodes[key] = nodes[key] or nn.overlap(logits, target, { mask = o.mask, threshold = o.threshold })
  return nodes[key]
end

-- A node that counts the voxels of one channel: with a prediction of 1 everywhere, all are
-- predicted.
local function area_node(target, o)
  local key = "area " .. core.node_id(target) .. " " .. (o.mask and core.node_id(o.mask) or -1)
  if not nodes[key] then
    nodes[key] = core.op.overlap(target * 0 + 1, target, o.mask, { threshold = 0.5 })
  end
  return nodes[key]
end

-- The number of voxels: with several classes each voxel is predicted as one of them.
local function voxels(sums, all)
  if #sums == 3 then return all end
  local sum = 0
  for k = 2, #sums, 3 do sum = sum + sums[k] end
  return sum
end

-- The common part of metrics of counts. all: the metric needs the number of voxels.
local function counted(kind, logits, target, o, all)
  local node = overlap_node(logits, target, o)
  return {
    kind = kind, way = "counts", better = "max", when = o.when, names = o.names, unit = "",
    word = "class", logits = logits, target = target, mask = o.mask, threshold = o.threshold,
    fixed = o.fixed, node = node, area = all and logits.c == 1 and area_node(target, o) or nil,
    classes = logits.c > 1 and logits.c - 1 or 1,
  }
end

local function overlap_metric(kind)
  -- metric.dice(logits, target, {threshold=0.5, empty="skip"|"one", mask=}): `empty` is the value
  -- of a case that is empty in both ground truth and prediction.
  M[kind] = function(logits, target, o)
    o = base.options(kind, o, { threshold = 0.5, empty = "skip", mask = util.none }, "epoch")
    base.word(kind, "empty", o.empty, { "skip", "one" })
    base.classes(kind, logits, target, o.mask)
    base.number(kind, "threshold", o.threshold, 0, 1)
    local first = base.first(logits)
    local m = counted(kind, logits, target, o, kind == "specificity")
    -- an empty case that is predicted empty is correct
    m.rule = kind == "specificity" and "of voxels that are not of the class"
      or base.empty_rules[o.empty]
    -- `sums`: counts of all classes of one case or one slice
    function m.value(sums, all)
      all = voxels(sums, all)
      return base.mean_of(first, #sums // 3 - 1, function(k)
        local both, p, t = sums[3 * k + 1], sums[3 * k + 2], sums[3 * k + 3]
        if p + t > 0 or kind == "specificity" then return ratios[kind](both, p, t, all) end
        return o.empty == "one" and 1 or nil
      end)
    end
    return m
  end
end

for kind in pairs(ratios) do overlap_metric(kind) end

-- The share of voxels of a map, or of cases, with the right class, background included.
-- {threshold=0.5, mask=}
function M.accuracy(logits, target, o)
  if util.is_node(logits) and logits.rank == 0 then
    return require("seg.evaluate.metric_number").accuracy(logits, target, o)
  end
  o = base.options("accuracy", o, { threshold = 0.5, mask = util.none }, "epoch")
  base.classes("accuracy", logits, target, o.mask)
  base.number("accuracy", "threshold", o.threshold, 0, 1)
  local m = counted("accuracy", logits, target, o, true)
  m.rule, m.classes = "of all voxels", 1
  function m.value(sums, all)
    all = voxels(sums, all)
    if not (all > 0) then return nil end
    local right = 0
    for k = 0, #sums // 3 - 1 do right = right + sums[3 * k + 1] end
    -- with one channel, voxels in neither mask are right as well
    if #sums == 3 then right = right + all - sums[2] - sums[3] + sums[1] end
    return right / all, {}
  end
  return m
end

-- Metrics defined in other files; some depend on the rank of their operand.
for _, name in ipairs { "hd95", "hd", "assd", "surface_dice", "volume_error", "dvh_score",
                        "dose_score" } do
  M[name] = function(...) return require("seg.evaluate.metric_volume")[name](...) end
end
for _, name in ipairs { "mean", "case" } do
  M[name] = function(...) return require("seg.evaluate.metric_own")[name](...) end
end
M.loss_parts = require("seg.evaluate.loss_parts").make
for _, name in ipairs { "geodesic", "groups" } do
  M[name] = function(...) return require("seg.evaluate.metric_number")[name](...) end
end
for _, name in ipairs { "mae", "auc", "confusion" } do
  M[name] = function(output, ...)
    local flat = util.is_node(output) and output.rank == 0
    return require("seg.evaluate.metric_" .. (flat and "number" or "volume"))[name](output, ...)
  end
end

-- Summaries ---------------------------------------------------------------------

local DRAWS, MOST_FEW = 2000, 4

-- Groups the indices of values by owner: { { index, ... }, ... } in the order of first occurrence;
-- without owners each value is a group.
local function group(n, owners)
  local units, by_owner = {}, {}
  for i = 1, n do
    local owner = owners and owners[i] or i
    if not by_owner[owner] then
      by_owner[owner] = {}
      units[#units + 1] = by_owner[owner]
    end
    table.insert(by_owner[owner], i)
  end
  return units
end

-- The 95 % interval of f(list of indices 1 .. n) by 2000 bootstrap draws (Efron 1979),
-- deterministic for the same values: the 2.5 % and 97.5 % quantiles. The draws are of owners
-- (patients) with all their cases, because cases of one patient are correlated. nil for fewer than
-- five owners, where it would be far too narrow. A draw for which f returns nil is skipped.
function M.interval(n, owners, f)
  if math.type(n) ~= "integer" or (owners ~= nil and type(owners) ~= "table")
    or type(f) ~= "function" then
    util.fail("usage", "metric.interval: needs a count, a list of owners or nil, and a function, "
              .. "got %s, %s, %s", type(n), type(owners), type(f))
  end
  local units, values = group(n, owners), {}
  if #units <= MOST_FEW then return nil end
  for b = 1, DRAWS do
    local draws, places = core.random(b, #units), {}
    for i = 1, #units do
      for _, place in ipairs(units[1 + math.floor(draws[i] * #units)]) do
        places[#places + 1] = place
      end
    end
    values[#values + 1] = f(places)
  end
  if #values < DRAWS // 2 then return nil end
  table.sort(values)
  local side = math.max(#values // 40, 1)
  return values[side], values[#values - side + 1]
end

-- Mean and median of the values in a list (nil entries are skipped). For two values or more also
-- the standard deviation, and the interval of the mean.
function M.summary(values, owners)
  local v, of, there = {}, owners and {}, {}
  for i in pairs(values) do there[#there + 1] = i end
  table.sort(there)
  for k, i in ipairs(there) do
    v[k] = values[i]
    if of then of[k] = owners[i] end
  end
  local n, mean = #v, util.mean(v)
  local var = 0
  for _, x in ipairs(v) do var = var + (x - mean) ^ 2 end
  local out = { n = n, mean = mean, median = util.median(v) }
  if n > 1 then out.sd = math.sqrt(var / (n - 1)) end
  out.low, out.high = M.interval(n, of, function(places)
    local sum = 0
    for _, i in ipairs(places) do sum = sum + v[i] end
    return sum / #places
  end)
  return out
end

return M
