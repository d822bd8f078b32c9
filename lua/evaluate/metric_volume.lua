-- metric_volume.lua -- metrics of a whole case, stitched on its prepared grid: surface distances,
-- volumes, ROC curves over voxels, dose.
--
-- A case (stitch.lua) has measured(m), the arguments of core.measure. Distances are in mm by the
-- spacing of the prepared grid, with axes at right angles; pictures have pixels of 1 mm.

local core = require "seg.core"
local base = require "seg.evaluate.metric_base"
local util = require "seg.util"

local measure, fail = core.measure, util.fail
local M = {}

-- A metric of a segmentation that needs whole cases.
local function segmented(kind, logits, target, o, unit, better)
  base.classes(kind, logits, target, o.mask)
  base.number(kind, "threshold", o.threshold, 0, 1)
  return { kind = kind, way = "volume", better = better, when = o.when, names = o.names,
           unit = unit, word = "class", logits = logits, target = target, mask = o.mask,
           threshold = o.threshold, fixed = o.fixed, classes = logits.c > 1 and logits.c - 1 or 1 }
end

-- Surfaces ----------------------------------------------------------------------

local missing_rules = {
  diagonal = "one side empty: the diagonal of the grid",
  skip = "one side empty: left out",
}

-- A metric of surfaces: pick(surface) of the result of core.measure.surface.
local function surface_metric(kind, unit, better, more, pick)
  -- metric.hd95(logits, target, {threshold=0.5, mask=, empty="skip"|"one",
  -- missing="diagonal"|"skip"}): `empty` is the value of a class that neither ground truth nor
  -- prediction has, "one" the best possible value; `missing` is the value of a class that only one
  -- of them has.
  M[kind] = function(logits, target, o)
    local known = { threshold = 0.5, mask = util.none, empty = "skip", missing = "diagonal" }
    for k, v in pairs(more) do known[k] = v end
    o = base.options(kind, o, known, "end")
    base.word(kind, "empty", o.empty, { "skip", "one" })
    base.word(kind, "missing", o.missing, { "diagonal", "skip" })
    if o.tolerance then base.number(kind, "tolerance", o.tolerance, 0, 1e6) end
    if o.both then base.word(kind, "both", o.both, { "max", "union" }) end
    local m = segmented(kind, logits, target, o, unit, better)
    local best, worst = better == "max" and 1 or 0, better == "max" and 0 or nil
    m.rule = (o.empty == "skip" and base.empty_rules.skip
              or string.format("empty cases count %d", best)) .. "; "
      .. (worst and o.missing == "diagonal" and "one side empty: 0" or missing_rules[o.missing])
    if kind == "hd95" then
      m.rule = (o.both == "max" and "the larger of both directions; "
                or "percentile of both directions together; ") .. m.rule
    elseif kind == "surface_dice" then
      m.rule = string.format("within %g mm; ", o.tolerance) .. m.rule
    end
    local first = base.first(logits)
    function m.measure(case)
      return base.mean_of(first, logits.c - 1, function(k)
        local s = case:surface(m, k + 1, o.tolerance or 0)
        if s.predicted == 0 and s.truth == 0 then return o.empty == "one" and best or nil end
        if s.predicted > 0 and s.truth > 0 then return pick(s, o) end
        if o.missing == "skip" then return nil end
        return worst or s.diagonal
      end)
    end
    return m
  end
end

surface_metric("hd95", "mm", "min", { both = "max" }, function(s, o)
  return o.both == "max" and s.hd95 or s.hd95_union
end)
surface_metric("hd", "mm", "min", {}, function(s) return s.hd end)
surface_metric("assd", "mm", "min", {}, function(s) return s.assd end)
surface_metric("surface_dice", "", "max", { tolerance = 1 }, function(s) return s.within end)

-- Volumes -----------------------------------------------------------------------

-- |predicted - true| in ml, or in % of the true volume; signed: predicted - true.
-- metric.volume_error(logits, target, {unit="ml"|"%", signed=false, threshold=, mask=})
function M.volume_error(logits, target, o)
  o = base.options("volume_error", o, { threshold = 0.5, mask = util.none, unit = "ml",
                                        signed = false }, "end")
  base.word("volume_error", "unit", o.unit, { "ml", "%" })
  local m = segmented("volume_error", logits, target, o, o.unit, "min")
  m.rule = (o.signed and "predicted less true" or "absolute")
    .. (o.unit == "%" and ", of the true volume; without truth left out" or "")
  local first = base.first(logits)
  function m.measure(case)
    local sums, ml = case:overlap(m), case:voxel_ml(m)
    return base.mean_of(first, #sums // 3 - 1, function(k)
      local p, t = sums[3 * k + 2], sums[3 * k + 3]
      local by = o.signed and p - t or math.abs(p - t)
      if o.unit == "ml" then return by * ml end
      return t > 0 and 100 * by / t or nil
    end)
  end
  return m
end

-- Voxels ------------------------------------------------------------------------

-- Area under the ROC curve over the voxels of a case, of each class against the rest.
function M.auc(logits, target, o)
  o = base.options("auc", o, { mask = util.none }, "end")
  o.threshold = 0.5
  local m = segmented("auc", logits, target, o, "", "max")
  m.rule = "over the voxels of a case; without both kinds left out"
  local first = base.first(logits)
  function m.measure(case)
    return base.mean_of(first, logits.c - 1, function(k)
      return measure.roc(case:measured(m), k + 1)
    end)
  end
  return m
end

-- The sum of matrices of counts.
local function add_matrices(list)
  local sum = {}
  for _, matrix in ipairs(list) do
    for t, row in ipairs(matrix) do
      sum[t] = sum[t] or {}
      for p, n in ipairs(row) do sum[t][p] = (sum[t][p] or 0) + n end
    end
  end
  return sum
end

-- The share on the diagonal, nil for an empty matrix.
function M.right_share(matrix)
  local right, all = 0, 0
  for t, row in ipairs(matrix) do
    for p, n in ipairs(row) do
      all = all + n
      right = right + (p == t and n or 0)
    end
  end
  return all > 0 and right / all or nil
end

-- The confusion matrix of voxels; the value is the share on the diagonal: accuracy.
function M.confusion(logits, target, o)
  o = base.options("confusion", o, { threshold = 0.5, mask = util.none }, "end")
  local m = segmented("confusion", logits, target, o, "", "max")
  if target.c ~= 1 then
    fail("usage", "metric.confusion: the truth must be class numbers, got %d channels", target.c)
  end
  m.rule, m.classes = "share of voxels on the diagonal", 1
  function m.measure(case)
    local matrix = measure.confusion(case:measured(m))
    return M.right_share(matrix), {}, matrix
  end
  function m.total(records)
    local matrix = add_matrices(records)
    return M.right_share(matrix), { matrix = matrix }
  end
  return m
end

-- Numbers and dose --------------------------------------------------------------

-- A metric of a map of numbers; scale: a factor on output and target.
local function mapped(kind, output, target, o, unit)
  base.check_nodes(kind, "output, target and mask", output or false, target or false, o.mask)
  util.check_pair("metric." .. kind, output, target, false)
  base.number(kind, "scale", o.scale, -1e30, 1e30)
  return { kind = kind, way = "volume", better = "min", when = o.when, names = o.names,
           unit = unit, word = "channel", output = output, target = target, mask = o.mask,
           classes = output.c, threshold = 0.5 }
end

-- metric.mae(output, target, {mask=, scale=1, unit=}): mean of |output - target| over the voxels of
-- a case, by channel; standardised targets are converted back to their unit.
function M.mae(output, target, o)
  o = base.options("mae", o, { mask = util.none, scale = 1, unit = "" }, "epoch")
  local m = mapped("mae", output, target, o, o.unit)
  m.rule = o.mask and "within the mask" or "of all voxels"
  function m.measure(case)
    local sums, counts = measure.error(case:measured(m))
    local sd = case:scale(target)
    return base.mean_of(0, #sums - 1, function(k)
      local by = math.abs(o.scale) * (sd and sd[math.min(k + 1, #sd)] or 1)
      return counts[k + 1] > 0 and sums[k + 1] / counts[k + 1] * by or nil
    end)
  end
  return m
end

-- The dose score of OpenKBP: metric.mae within the mask of possible dose, in Gy.
function M.dose_score(output, target, o)
  o = base.options("dose_score", o, { mask = util.none, scale = 1 }, "epoch")
  if not o.mask then
    fail("usage", "metric.dose_score: mask is missing: where there may be dose")
  end
  local m = M.mae(output, target, { mask = o.mask, scale = o.scale, unit = "Gy", when = o.when })
  m.kind = "dose_score"
  return m
end

local OPENKBP = { "Brainstem", "SpinalCord", "RightParotid", "LeftParotid", "Esophagus", "Larynx",
                  "Mandible", "PTV56", "PTV63", "PTV70" }
local POINTS = { organ = { "d_01cc", "mean" }, target = { "d_99", "d_95", "d_1" } }

-- The DVH score of OpenKBP: the mean of |predicted - true| over D_0.1cc and mean dose
-- of every organ, D_99, D_95 and D_1 of every target structure, over all cases together.
--   metric.dvh_score(output, target, {structures=node, targets={8, 9, 10}, names=, mask=, scale=1})
-- structures: a binary channel for each; targets: the channels of target structures; both
-- default to the ten structures of OpenKBP.
function M.dvh_score(output, target, o)
  o = base.options("dvh_score", o, { structures = util.none, targets = util.none, scale = 1,
                                     mask = util.none }, "epoch")
  local m = mapped("dvh_score", output, target, o, "Gy")
  local structures = o.structures
  base.check_nodes("dvh_score", "structures", structures or false)
  local usual = structures.c == #OPENKBP and not o.targets and not o.names
  if not o.targets and not usual then
    fail("usage", "metric.dvh_score: targets is missing: the numbers of the structures that are "
         .. "to be irradiated, of %d", structures.c)
  end
  local kinds = {}
  for _, k in ipairs(usual and { 8, 9, 10 } or o.targets) do
    if math.type(k) ~= "integer" or k < 1 or k > structures.c then
      fail("usage", "metric.dvh_score: targets must be numbers of structures from 1 to %d, got %s",
           structures.c, tostring(k))
    end
    kinds[k] = "target"
  end
  m.targets, m.scale = kinds, o.scale -- for pictures
  m.structures, m.classes, m.word = structures, structures.c, "structure"
  m.names = usual and OPENKBP or o.names
  m.rule = "over all cases, structures and values; missing structures left out"
  function m.measure(case)
    local sd = case:scale(target)
    local by = math.abs(o.scale) * (sd and sd[1] or 1)
    local sum, n = 0, 0
    local _, list = base.mean_of(0, structures.c - 1, function(k)
      local found = case:dvh(output, structures, m.mask, k + 1)
      local truth = found and case:dvh(target, structures, nil, k + 1)
      if not found then return nil end
      local points, of_one = POINTS[kinds[k + 1] or "organ"], 0
      for _, point in ipairs(points) do
        of_one = of_one + math.abs(found[point] - truth[point]) * by
      end
      sum, n = sum + of_one, n + #points
      return of_one / #points
    end)
    return n > 0 and sum / n or nil, list, { sum = sum, n = n }
  end
  function m.total(records)
    local sum, n = 0, 0
    for _, r in ipairs(records) do sum, n = sum + r.sum, n + r.n end
    return n > 0 and sum / n or nil, {}
  end
  return m
end

return M
