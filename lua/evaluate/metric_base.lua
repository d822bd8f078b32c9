-- metric_base.lua -- the common part of all metrics: checks of their arguments, values by class,
-- names of classes; and the nodes that a recipe's metrics need.

local core = require "seg.core"
local loss_parts = require "seg.evaluate.loss_parts"
local nn = require "seg.recipe.nn"
local util = require "seg.util"

local fail = util.fail
local M = {}

-- The options of every metric: when it is measured ("epoch": also at the end of each epoch; "end":
-- only on the test set and by `evaluate`), and the names of the classes or numbers.
function M.options(what, o, known, when)
  known.when, known.names = when, util.none
  local fixed = type(o) == "table" and o.threshold ~= nil
  o = util.options("metric." .. what, o, known)
  o.fixed = fixed -- an explicit threshold, which no other replaces
  if o.when ~= "epoch" and o.when ~= "end" then
    fail("usage", 'metric.%s: when must be "epoch" or "end", got %s', what, tostring(o.when))
  end
  local names = o.names
  if names ~= nil and not (type(names) == "table" and type(names[1]) == "string") then
    fail("usage", "metric.%s: names must be a list of names, got %s", what, tostring(names))
  end
  return o
end

-- Checks that the value of an option is one of these words.
function M.word(what, key, value, words)
  for _, w in ipairs(words) do
    if value == w then return value end
  end
  fail("usage", 'metric.%s: %s must be "%s", got %s', what, key, table.concat(words, '" or "'),
       type(value) == "string" and '"' .. value .. '"' or tostring(value))
end

-- Checks that a number is within lo .. hi.
function M.number(what, key, value, lo, hi)
  if math.type(value) == nil or not (value >= lo and value <= hi) then
    fail("usage", "metric.%s: %s must be a number from %g to %g, got %s", what, key, lo, hi,
         tostring(value))
  end
  return value
end

-- Checks that operands are nodes; false stands for a missing one.
function M.check_nodes(what, names, ...)
  for _, node in ipairs { ... } do
    if node ~= nil and not util.is_node(node) then
      fail("usage", "metric.%s: %s must be nodes of the network, got %s", what, names,
           node and type(node) or "nothing")
    end
  end
end

-- Checks logits of one class or several, their target, and a mask or nil.
function M.classes(what, logits, target, mask)
  M.check_nodes(what, "logits, target and mask", logits or false, target or false, mask)
  util.check_pair("metric." .. what, logits, target, true)
end

-- With several classes 0 is the background: the first class that is reported.
function M.first(logits) return logits.c > 1 and 1 or 0 end

-- The mean over the classes first .. last of f(class), without nil; and the values by class, from 1
-- for the first reported class.
function M.mean_of(first, last, f)
  local total, n, list = 0, 0, {}
  for k = first, last do
    local v = f(k)
    if v then
      total, n, list[k - first + 1] = total + v, n + 1, v
    end
  end
  return n > 0 and total / n or nil, list
end

-- Texts about masks that are empty in ground truth and prediction.
M.empty_rules = { skip = "empty cases left out", one = "empty cases count 1" }

-- The node of the probabilities of `logits`: the output of the recipe that computes it, so that the
-- metric measures the output of `predict`; else a new node.
function M.probability(r, logits)
  local kind, id = logits.c > 1 and "softmax" or "sigmoid", core.node_id(logits)
  for _, name in ipairs(util.sorted_keys(r.outputs)) do
    local node = r.outputs[name]
    local of = node.kind == kind and core.operand(node)
    if of and core.node_id(of) == id then return node end
  end
  return nn[kind](logits)
end

-- The names of `count` values of a metric: from the metric, from the recipe (predict = { names =
-- ... }), from the numbers of a field, else numbers from `from`. 0: the background is included.
function M.class_names(r, m, count, set, from)
  local numbers = set and m.target and m.target.kind == "input"
    and (rawget(set.source, "numbers") or {})[m.target.name]
  for _, names in ipairs { m.names or false, r.predict.names or false, numbers or false } do
    if type(names) == "table" and #names == count then return names end
    if type(names) == "table" and from == 0 and #names == count - 1 then
      return { "background", table.unpack(names) }
    end
  end
  local list = {}
  for k = 1, count do list[k] = m.word .. " " .. k - 1 + from end
  return list
end

-- The metrics of a recipe -------------------------------------------------------

-- Whether this set has patches, which overlap or leave voxels out.
local function has_patches(set) return set and util.step(rawget(set, "steps") or "", "patches") end

-- Checks that the nodes of metric `name` that are stitched to whole cases have the size of samples.
local function check_size(r, name, m)
  for _, node in ipairs(M.of_case(m)) do
    local fits, image = false, nil
    for _, input in ipairs(r.inputs) do
      if input.rank > 0 then
        image = image or input
        fits = fits or input.rank == node.rank and input.d == node.d and input.h == node.h
          and input.w == node.w
      end
    end
    if not fits then
      fail("usage", 'seg.recipe: metric "%s" is measured on whole cases, and %s of %s has another '
           .. "size than %s; resize it, or give its mean as a metric: metrics = { %s = node }",
           name, tostring(node), node.where, image and tostring(image) or "an image", name)
    end
  end
end

-- Called when the recipe is declared: sets the nodes that cases are stitched from, and the metrics
-- that are measured at the end of every epoch.
function M.settle(r)
  local parts = has_patches(r.valid) or has_patches(r.test) or r.predict.threshold == "valid"
  for _, name in ipairs(util.sorted_keys(r.metrics)) do
    local m = r.metrics[name]
    m.called = name
    if m.logits and m.way ~= "numbers" then m.output = M.probability(r, m.logits) end
    local stitched = m.way == "volume" or m.way ~= "numbers" and m.output and parts
    if stitched then check_size(r, name, m) end
  end
  local drawn = has_patches(r.valid) and has_patches(r.valid):find("at=grid", 1, true) == nil
  local best = r.best and r.metrics[r.best[1]]
  if best then
    best.when = "epoch"
    if best.better and best.better ~= r.best[2] then
      fail("usage", 'seg.recipe: best = { "%s", "%s" }: of %s %s is better; write { "%s", "%s" }',
           r.best[1], r.best[2], best.kind, best.better == "max" and "more" or "less", r.best[1],
           best.better)
    end
    best.better = r.best[2] -- of a metric that does not know
  end
  for _, name in ipairs(drawn and util.sorted_keys(r.metrics) or {}) do
    local m = r.metrics[name]
    if m.way == "volume" and m.when == "epoch" then
      fail("usage", 'seg.recipe: %s is measured on whole cases after every epoch, and valid draws '
           .. 'patches at random; give it patches { at = "grid" }, or the metric when = "end"',
           name)
    end
  end
end

-- The nodes to compute for the metrics of a recipe and the parts of its loss. evaluate: for that
-- command, where any metric may need stitched cases.
function M.nodes(r, evaluate)
  local list = {}
  local whole = evaluate or r.predict.threshold == "valid" or r.predict.temperature == "valid"
    or has_patches(r.valid)
    or has_patches(r.test)
  for _, name in ipairs(util.sorted_keys(r.metrics)) do
    local m = r.metrics[name]
    if m.node then list[#list + 1] = m.node end
    list[#list + 1] = m.area
    for _, node in ipairs(m.read or {}) do list[#list + 1] = node end
    if m.way == "volume" or (m.way == "counts" and whole) then
      for _, node in ipairs(M.of_case(m)) do list[#list + 1] = node end
    end
  end
  for _, part in ipairs(loss_parts.of(r)) do list[#list + 1] = part.node end
  return list
end

-- The nodes of a metric that must be stitched: all except inputs of the network.
function M.of_case(m)
  local list = {}
  for _, node in ipairs { m.output or false, m.target or false, m.mask or false,
                          m.structures or false } do
    if node and node.kind ~= "input" then list[#list + 1] = node end
  end
  return list
end

local MOST_CLASSES = 1024 -- limit of core.measure.match

-- The share of samples with the right class if each of the k groups is assigned to one class, for
-- the best assignment; both are lists of numbers from 0. There may be more classes than groups:
-- samples of unassigned classes are wrong. nil for no samples, and for more than 1024 classes,
-- which are probably other numbers.
function M.agreement(groups, classes, k)
  local counts, place, n, right = {}, {}, 0, 0
  for _, class in ipairs(classes) do
    if not place[class] then n, place[class] = n + 1, n + 1 end
  end
  n = math.max(n, k)
  if n > MOST_CLASSES then return nil end
  for g = 1, n do
    counts[g] = {}
    for c = 1, n do counts[g][c] = 0 end
  end
  for i, g in ipairs(groups) do
    local row, c = counts[g + 1], place[classes[i]]
    row[c] = row[c] + 1
  end
  for g, c in ipairs(core.measure.match(counts)) do right = right + counts[g][c] end
  return #groups > 0 and right / #groups or nil
end

-- The names of the metrics that are measured at the end of an epoch.
function M.by_epoch(r)
  local list = {}
  for _, name in ipairs(util.sorted_keys(r.metrics)) do
    if r.metrics[name].when ~= "end" then list[#list + 1] = name end
  end
  return list
end

-- The metrics of by_epoch that are counts of a batch, which the training step computes too.
function M.counted(r)
  local list = {}
  for _, name in ipairs(M.by_epoch(r)) do
    local m = r.metrics[name]
    if m.node and (m.way or "counts") == "counts" then list[#list + 1] = name end
  end
  return list
end

return M
