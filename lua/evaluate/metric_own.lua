-- metric_own.lua -- metrics of a recipe's own: the mean of a node, and a function of a case.

local axes = require "seg.recipe.axes"
local core = require "seg.core"
local base = require "seg.evaluate.metric_base"
local elementwise = require "seg.recipe.elementwise"
local user_function = require "seg.user_function"
local util = require "seg.util"

local fail, is_node = util.fail, util.is_node
local M = {}

-- The options when, better and unit of both.
local function options(what, o)
  o = util.options("metric." .. what, o, { when = "epoch", better = util.none, unit = "" })
  base.word(what, "when", o.when, { "epoch", "end" })
  if o.better ~= nil then base.word(what, "better", o.better, { "max", "min" }) end
  if type(o.unit) ~= "string" then
    fail("usage", "metric.%s: unit must be a text, got %s", what, type(o.unit))
  end
  return o
end

-- The mean of each sample of a node (N,C,...) as (N,1); of a node without inputs, and of a loss,
-- one number for the batch.
local function by_sample(node)
  if node.rank == -2 then return node, true end
  if node.rank < 0 or not ("\n" .. core.graph_text { node }):find("\ninput ", 1, true) then
    return elementwise.mean(node), true
  end
  if node.rank > 0 then node = elementwise.mean(node, { axes = axes.SPATIAL[node.rank] }) end
  return elementwise.mean(node, { axes = { "c" }, keep = true }), false
end

-- metric.mean(node, {when="epoch", better=, unit=""}): the mean over all samples, each counted
-- once; a node may have any size. A loss, one number a batch, counts with the samples of the batch.
function M.mean(node, o)
  if not is_node(node) then
    fail("usage", "metric.mean: wanted a node of the network, got %s", type(node))
  end
  o = options("mean", o)
  local read, whole = by_sample(node)
  local m = { kind = "mean", way = "numbers", better = o.better, when = o.when, unit = o.unit,
              word = "number", read = { read },
              rule = whole and "mean over batches by their samples" or "mean over samples" }
  -- a batch has no value by case, and none at all if one of its samples is not finite
  function m.sample(rows)
    local v = rows[1][1]
    if not (math.abs(v) < math.huge) then return nil, {} end
    return not whole and v or nil, {}, { sum = v, n = 1 }
  end
  function m.merge(into, record) into.sum, into.n = into.sum + record.sum, into.n + record.n end
  function m.total(records)
    local sum, n = 0.0, 0
    for _, r in ipairs(records) do sum, n = sum + r.sum, n + r.n end
    return n > 0 and sum / n or nil, {}
  end
  return m
end

-- The text of the last failure of a function.
local last

-- Whether this error is the failure of a function of metric.case.
function M.failed(why) return why ~= nil and why == last end

local function refuse(fmt, ...)
  last = string.format(fmt, ...)
  core.sys.raise("failure", last, true)
end

-- The value of f(...), nil for NaN; `of` names the call.
local function call(f, of, ...)
  local ok, v = pcall(f, ...)
  if not ok then refuse("%s (%s)", user_function.error_text(f, v), of) end
  if math.type(v) == nil or math.abs(v) == math.huge then
    refuse("%s: %s: the function returned %s, wanted a number (NaN, 0 / 0: the case has no value)",
           user_function.place(f), of, type(v) == "number" and tostring(v) or "a " .. type(v))
  end
  return v == v and v or nil
end

-- The numbers of a sample, a list, as an array (C).
local function vector(row) return core.array { shape = { #row }, data = row } end

-- metric.case(prediction, truth, f, {when="epoch", better=, unit=""}): the mean over cases of
-- f(prediction, truth, spacing, used): arrays of the whole case, (C,D,H,W) of volumes, and the
-- spacing in mm by axis, { d, h, w }; used: for each slice whether the set has it, nil: it has all.
-- Of nodes without axes of space (C) and {}; a case with several samples has their mean.
function M.case(prediction, truth, f, o)
  base.check_nodes("case", "prediction and truth", prediction or false, truth or false)
  if type(f) ~= "function" then
    fail("usage", "metric.case: wanted a function of prediction, truth and spacing, got %s",
         type(f))
  end
  o = options("case", o)
  if prediction.rank < 0 or prediction.rank ~= truth.rank then
    fail("usage", "metric.case: the prediction is %s and the truth %s, wanted a value for each "
         .. "sample of both, with as many axes; the mean of a node is metric.mean",
         tostring(prediction), tostring(truth))
  end
  local m = { kind = "case", better = o.better, when = o.when, unit = o.unit, word = "channel",
              target = truth, threshold = 0.5, rule = "a function of the case" }
  local function name() return string.format('metric "%s"', m.called or m.kind) end
  if prediction.rank == 0 then
    m.way, m.read = "numbers", { prediction, truth }
    function m.sample(rows)
      return call(f, name(), vector(rows[1]), vector(rows[2]), {}), {}
    end
    return m
  end
  m.way, m.output = "volume", prediction
  function m.measure(case)
    local of = string.format("%s, case %d of %d", name(), case.item, #case.pipeline:cases())
    return call(f, of, case:array(prediction), case:array(truth), case:spacing(prediction),
                case.used), {}
  end
  return m
end

return M
