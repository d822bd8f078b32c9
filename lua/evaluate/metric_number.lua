-- metric_number.lua -- metrics of a few numbers a sample: classes of pictures, angles, or any
-- output of rank 0.
--
-- sample(rows, undo) gets the output and the target of one sample as lists; undo: mean and sd of a
-- standardised target, or nil. A case with several samples has their mean.

local core = require "seg.core"
local base = require "seg.evaluate.metric_base"
local volume = require "seg.evaluate.metric_volume"
local util = require "seg.util"

local fail = util.fail
local M = {}

local function metric(kind, output, target, o, better, word, classes)
  return { kind = kind, way = "numbers", better = better, when = o.when, names = o.names,
           unit = "", word = word, target = target, read = { output, target },
           classes = classes }
end

-- A metric of logits of classes and the number of the true class.
local function classified(kind, logits, target, o)
  base.classes(kind, logits, target)
  if target.c ~= 1 then
    fail("usage", "metric.%s: the truth must be the number of a class, got %d numbers", kind,
         target.c)
  end
  local m = metric(kind, logits, target, o, "max", "class", logits.c > 1 and logits.c or 2)
  m.logits, m.threshold = logits, o.threshold or 0.5
  return m
end

-- Softmax of logits; the maximum is subtracted first, so that no exponential overflows.
local function softmax(logits)
  local most, sum, out = math.max(table.unpack(logits)), 0, {}
  for k, x in ipairs(logits) do
    out[k] = math.exp(x - most)
    sum = sum + out[k]
  end
  for k in ipairs(out) do out[k] = out[k] / sum end
  return out
end

-- The predicted class, from 0: for one logit whether its probability is above the threshold, else
-- the first maximum.
local function predicted(logits, threshold)
  if #logits == 1 then
    return logits[1] > math.log(threshold / (1 - threshold)) and 1 or 0
  end
  local best = 1
  for k = 2, #logits do
    if logits[k] > logits[best] then best = k end
  end
  return best - 1
end

-- The true class, nil if it is not one of n.
local function true_class(target, n)
  local t = n == 1 and (target[1] >= 0.5 and 1 or 0) or target[1]
  return t >= 0 and t < math.max(n, 2) and t == t // 1 and math.tointeger(t) or nil
end

-- The record of a sample: the true class, the predicted one and its probability.
local function record_of(logits, t, p)
  if #logits > 1 then return { t = t, p = p, q = softmax(logits)[p + 1] } end
  local one = 1 / (1 + math.exp(-logits[1]))
  return { t = t, p = p, q = p == 1 and one or 1 - one }
end

-- The confusion matrix of samples with n classes: rows are true, columns predicted classes.
local function confusion_of(records, n)
  local matrix = {}
  for t = 1, n do
    matrix[t] = {}
    for p = 1, n do matrix[t][p] = 0 end
  end
  for _, r in ipairs(records) do
    local row = matrix[r.t + 1]
    row[r.p + 1] = row[r.p + 1] + 1
  end
  return matrix
end

-- The share of samples with the right class. {threshold=0.5}
function M.accuracy(logits, target, o)
  o = base.options("accuracy", o, { threshold = 0.5 }, "epoch")
  local m = classified("accuracy", logits, target, o)
  m.rule, m.classes = "share of right ones", 1
  function m.sample(rows)
    local t = true_class(rows[2], #rows[1])
    if not t then return nil, {} end
    local p = predicted(rows[1], o.threshold)
    return p == t and 1 or 0, {}, record_of(rows[1], t, p)
  end
  function m.confusion(records) return confusion_of(records, math.max(logits.c, 2)) end
  return m
end

-- The confusion matrix of samples; the value is the share on the diagonal. {threshold=0.5}
function M.confusion(logits, target, o)
  o = base.options("confusion", o, { threshold = 0.5 }, "epoch")
  local m = classified("confusion", logits, target, o)
  local n = math.max(logits.c, 2)
  m.rule = "share on the diagonal; by class: recall"
  function m.sample(rows)
    local t = true_class(rows[2], #rows[1])
    if not t then return nil end
    local p = predicted(rows[1], o.threshold)
    return p == t and 1 or 0, {}, record_of(rows[1], t, p)
  end
  function m.confusion(records) return confusion_of(records, n) end
  function m.total(records)
    local matrix, recall = confusion_of(records, n), {}
    for t, row in ipairs(matrix) do
      local all = 0
      for _, count in ipairs(row) do all = all + count end
      recall[t] = all > 0 and row[t] / all or nil
    end
    return volume.right_share(matrix), { matrix = matrix, classes = recall }
  end
  return m
end

-- Groups found without labels, compared with known classes: the share of samples with the right
-- class if each group is assigned to one class, for the best assignment. The numbers of groups are
-- arbitrary, so accuracy would be meaningless.
function M.groups(logits, target, o)
  o = base.options("groups", o, {}, "epoch")
  local m = classified("groups", logits, target, o)
  local n = math.max(logits.c, 2)
  m.rule, m.classes = "share of right ones, each group the class that fits best, one to one", 1
  function m.sample(rows)
    -- there may be more classes than groups
    local t = true_class(rows[2], #rows[1] > 1 and math.huge or 1)
    if not t then return nil end
    return nil, {}, { t = t, p = predicted(rows[1], 0.5) }
  end
  function m.total(records)
    local groups, classes = {}, {}
    for i, r in ipairs(records) do groups[i], classes[i] = r.p, r.t end
    return base.agreement(groups, classes, n), {}
  end
  return m
end

-- Area under the ROC curve over all samples: for two classes that of the second, for more classes
-- the mean of each against the rest.
function M.auc(logits, target, o)
  o = base.options("auc", o, {}, "epoch")
  local m = classified("auc", logits, target, o)
  local first = logits.c <= 2 and math.max(logits.c, 1) or 1
  m.rule = logits.c > 2 and "over all samples, each class against the rest" or "over all samples"
  m.classes = logits.c > 2 and logits.c or 1
  function m.sample(rows)
    local t = true_class(rows[2], #rows[1])
    if not t then return nil end
    return nil, {}, { t = t, scores = #rows[1] > 1 and softmax(rows[1]) or rows[1] }
  end
  function m.total(records)
    local value, list = base.mean_of(first, math.max(logits.c, 1), function(k)
      local scores, truth = {}, {}
      for i, r in ipairs(records) do
        scores[i], truth[i] = r.scores[k], r.t == (logits.c == 1 and 1 or k - 1)
      end
      return core.measure.area(scores, truth)
    end)
    return value, { classes = list }
  end
  return m
end

-- metric.mae(output, target, {scale=1, unit=}): mean of |output - target| over the numbers of a
-- sample, and for each number; standardised numbers are converted back first.
function M.mae(output, target, o)
  o = base.options("mae", o, { scale = 1, unit = "" }, "epoch")
  base.check_nodes("mae", "output and target", output or false, target or false)
  util.check_pair("metric.mae", output, target, false)
  base.number("mae", "scale", o.scale, -1e30, 1e30)
  local m = metric("mae", output, target, o, "min", "number", output.c)
  m.unit, m.rule = o.unit, "mean of the numbers"
  function m.sample(rows, undo)
    return base.mean_of(1, #rows[1], function(k)
      local t = rows[2][math.min(k, #rows[2])]
      return math.abs(rows[1][k] - t) * math.abs(o.scale) * (undo and undo.sd[k] or 1)
    end)
  end
  return m
end

-- Rotations ---------------------------------------------------------------------

local function multiply(a, b)
  local out = {}
  for i = 0, 2 do
    for j = 1, 3 do
      out[3 * i + j] = a[3 * i + 1] * b[j] + a[3 * i + 2] * b[3 + j] + a[3 * i + 3] * b[6 + j]
    end
  end
  return out
end

-- A vector of length 1; nil for a zero vector.
local function unit(x, y, z)
  local n = math.sqrt(x * x + y * y + z * z)
  if not (n > 1e-12) then return nil end
  return { x / n, y / n, z / n }
end

local function cross(a, b)
  return a[2] * b[3] - a[3] * b[2], a[3] * b[1] - a[1] * b[3], a[1] * b[2] - a[2] * b[1]
end

-- The rotation, row by row, closest to the two given columns: the direction of the first is kept,
-- the second is made perpendicular (Zhou and others 2019). nil if the columns are degenerate.
local function from_columns(a, b)
  local x = unit(a[1], a[2], a[3])
  if not x then return nil end
  local dot = x[1] * b[1] + x[2] * b[2] + x[3] * b[3]
  local y = unit(b[1] - dot * x[1], b[2] - dot * x[2], b[3] - dot * x[3])
  if not y then return nil end
  local z = { cross(x, y) }
  return { x[1], y[1], z[1], x[2], y[2], z[2], x[3], y[3], z[3] }
end

-- The rotation for numbers in each form, row by row, or nil.
local forms
forms = {
  -- yaw, pitch, roll in degrees, as in data.w300lp and data.biwi: R = Rz(roll) Ry(yaw) Rx(pitch),
  -- about fixed axes
  euler = { count = 3, make = function(v)
    local y, p, r = math.rad(v[1]), math.rad(v[2]), math.rad(v[3])
    local sy, cy, sp, cp, sr, cr = math.sin(y), math.cos(y), math.sin(p), math.cos(p),
                                   math.sin(r), math.cos(r)
    local about_z, about_y = { cr, -sr, 0, sr, cr, 0, 0, 0, 1 }, { cy, 0, sy, 0, 1, 0, -sy, 0, cy }
    return multiply(multiply(about_z, about_y), { 1, 0, 0, 0, cp, -sp, 0, sp, cp })
  end },
  -- the same with roll = 0
  ["yaw pitch"] = { count = 2, make = function(v) return forms.euler.make { v[1], v[2], 0 } end },
  -- row by row; orthonormalised by its first two columns
  matrix = { count = 9, make = function(v)
    return from_columns({ v[1], v[4], v[7] }, { v[2], v[5], v[8] })
  end },
  -- the first two columns
  ["6d"] = { count = 6, make = function(v)
    return from_columns({ v[1], v[2], v[3] }, { v[4], v[5], v[6] })
  end },
  -- w, x, y, z, of any length except 0
  quaternion = { count = 4, make = function(v)
    local n = math.sqrt(v[1] ^ 2 + v[2] ^ 2 + v[3] ^ 2 + v[4] ^ 2)
    if not (n > 1e-12) then return nil end
    local w, x, y, z = v[1] / n, v[2] / n, v[3] / n, v[4] / n
    return { 1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w),
             2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w),
             2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y) }
  end },
}

-- The angle in degrees of the rotation from a to b: |a - b| = 2 sqrt 2 sin(angle / 2) is accurate
-- for small angles, unlike an arc cosine of the trace, and the trace of the quotient, 4 cos(angle /
-- 2)^2 - 1, for large ones.
local function angle(a, b)
  local sum, trace = 0, 0
  for i = 1, 9 do
    sum, trace = sum + (a[i] - b[i]) ^ 2, trace + a[i] * b[i]
  end
  local half = math.sqrt(sum / 8)
  return math.deg(2 * math.atan(half, math.sqrt(math.max(0, (trace + 1) / 4))))
end

-- metric.geodesic(output, target, {form="euler", truth=form}): the angle in degrees of the rotation
-- between both, each in a form: "euler" (yaw, pitch, roll in degrees), "yaw pitch" (roll is 0),
-- "matrix" (9 numbers), "6d", "quaternion".
function M.geodesic(output, target, o)
  o = base.options("geodesic", o, { form = "euler", truth = util.none }, "epoch")
  local words = util.sorted_keys(forms)
  base.check_nodes("geodesic", "output and target", output or false, target or false)
  local of = { forms[base.word("geodesic", "form", o.form, words)],
               forms[base.word("geodesic", "truth", o.truth or o.form, words)] }
  for i, node in ipairs { output, target } do
    if node.rank ~= 0 or node.c ~= of[i].count then
      fail("usage", "metric.geodesic: %s takes %d numbers of a sample, got %s",
           i == 1 and o.form or o.truth or o.form, of[i].count, tostring(node))
    end
  end
  local m = metric("geodesic", output, target, o, "min", "angle", 1)
  m.unit, m.rule = "degrees", "angle between the rotations"
  function m.sample(rows, undo)
    local rotation = {}
    for i = 1, 2 do
      local v = {}
      -- only an output in the form of the target is standardised like it
      local back = undo and (i == 2 or of[1] == of[2]) and undo
      for k, x in ipairs(rows[i]) do v[k] = back and x * back.sd[k] + back.mean[k] or x end
      rotation[i] = of[i].make(v)
    end
    if not rotation[1] or not rotation[2] then return nil, {} end
    return angle(rotation[1], rotation[2]), {}
  end
  return m
end

return M
