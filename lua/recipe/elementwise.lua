-- elementwise.lua -- functions of nodes: seg.exp, seg.max, seg.where and so on, element by element;
-- reductions over axes.
--
-- Each is one operator or a few (engine/graph/elementwise.def). Where two operands are given,
-- their extents are equal or 1, and one of the two may be a number.

local axes = require "seg.recipe.axes"
local core = require "seg.core"
local util = require "seg.util"

local op, fail, is_node = core.op, util.fail, util.is_node
local check_node, reduction = axes.check_node, axes.options

local M = {}

local UNARY = { "exp", "log", "log1p", "sqrt", "rsqrt", "abs", "sign", "sin", "cos", "tanh",
                "sigmoid", "relu", "erf", "floor", "round", "stop" }

for _, name in ipairs(UNARY) do
  M[name] = function(x)
    check_node(name, "the operand", x)
    return op[name](x)
  end
end

-- The node v, or the number v as a constant with as many axes as the node `like`.
local function node(name, what, v, like)
  if is_node(v) then return v end
  if type(v) ~= "number" then
    fail("usage", "seg.%s: %s must be a node of the network or a number, got %s", name, what,
         type(v))
  elseif not (math.abs(v) <= 3.4e38) then
    fail("usage", "seg.%s: %s is %s, wanted a number within 3.4e38, the largest 32-bit float; "
         .. "where nothing may be larger, -1e30 serves as minus infinity", name, what, tostring(v))
  end
  return op.constant(like, { value = v })
end

-- The two operands of seg.NAME as nodes; one may be a number.
local function pair(name, a, b)
  if not (is_node(a) or is_node(b)) then check_node(name, "an operand", a) end
  return node(name, "operand 1", a, b), node(name, "operand 2", b, a)
end

local largest -- over axes, below

function M.max(a, b)
  if type(b) == "table" then return largest("max", a, b) end
  return op.max(pair("max", a, b))
end

function M.min(a, b)
  if type(b) == "table" then
    check_node("min", "the operand", a)
    return -largest("min", -a, b)
  end
  return op.min(pair("min", a, b))
end

function M.gt(a, b) return op.gt(pair("gt", a, b)) end

function M.ge(a, b) return op.ge(pair("ge", a, b)) end

function M.lt(a, b)
  a, b = pair("lt", a, b)
  return op.gt(b, a)
end

function M.le(a, b)
  a, b = pair("le", a, b)
  return op.ge(b, a)
end

function M.eq(a, b) return op.eq(pair("eq", a, b)) end

function M.ne(a, b) return 1 - op.eq(pair("ne", a, b)) end

function M.clamp(x, low, high)
  check_node("clamp", "the operand", x)
  if low == nil and high == nil then fail("usage", "seg.clamp: give a lower or an upper limit") end
  if type(low) == "number" and type(high) == "number" then
    if not (low <= high) then
      fail("usage", "seg.clamp: the lower limit is %g and the upper one %g, wanted lower <= upper",
           low, high)
    end
    return op.clamp(x, { min = low, max = high })
  end
  if low ~= nil then x = op.max(x, node("clamp", "the lower limit", low, x)) end
  if high ~= nil then x = op.min(x, node("clamp", "the upper limit", high, x)) end
  return x
end

-- The operator select returns the value where the condition is not 0, else 0: no product, so the
-- value at the other elements may be infinite or NaN.
function M.where(condition, a, b)
  check_node("where", "the condition", condition)
  local yes = node("where", "operand 2", a, condition)
  local no = node("where", "operand 3", b, condition)
  local taken = op.select(condition, yes)
  if b == 0 then return taken end
  return taken + op.select(M.eq(condition, 0), no)
end

-- Reductions -------------------------------------------------------------------

-- The attributes of an operator over the axes o.axes of x.
local function flags(name, x, o)
  return axes.reduced(name, x, o, "; seg.mean without axes has the mean over everything")
end

-- seg.NAME of x over axes: op.sum, or with `mean` its mean.
local function sum(name, x, o, mean)
  local attrs = flags(name, x, o)
  attrs.mean = mean
  return op.sum(x, attrs)
end

function M.sum(x, o)
  check_node("sum", "the operand", x)
  o = reduction("sum", o)
  if o.axes == nil then
    fail("usage", 'seg.sum: give axes, as { axes = { "h", "w" } }; over everything there is '
         .. "seg.mean only, as a batch may come in parts")
  end
  return sum("sum", x, o, false)
end

function M.mean(x, o)
  check_node("mean", "the operand", x)
  o = reduction("mean", o, { axes = util.none, keep = false, mask = util.none,
                             weight = util.none })
  if o.axes ~= nil then
    if o.mask ~= nil or o.weight ~= nil then
      fail("usage", "seg.mean: mask and weight are for the mean over everything, without axes")
    end
    return sum("mean", x, o, true)
  end
  if o.keep then fail("usage", "seg.mean: keep goes with axes") end
  for _, what in ipairs { "mask", "weight" } do
    if o[what] ~= nil then check_node("mean", what, o[what]) end
  end
  return op.mean(x, x, o.mask, o.weight)
end

-- The largest element over axes; elements that are equal share the gradient.
function largest(name, x, o)
  check_node(name, "the operand", x)
  return op.amax(x, flags(name, x, reduction(name, o)))
end

-- Two passes, so that a mean that is large beside the deviation costs no digits.
function M.var(x, o)
  check_node("var", "the operand", x)
  o = reduction("var", o)
  local e = x - sum("var", x, { axes = o.axes, keep = true }, true)
  return sum("var", e * e, o, true)
end

-- exp of x minus its largest element does not overflow; the result is the same for any number in
-- place of the largest, so that one has no gradient.
function M.logsumexp(x, o)
  check_node("logsumexp", "the operand", x)
  o = reduction("logsumexp", o)
  local keep = { axes = o.axes, keep = true }
  local top = op.stop(largest("logsumexp", x, keep))
  local result = op.log(sum("logsumexp", op.exp(x - top), keep, false)) + top
  return o.keep and result or sum("logsumexp", result, o, false)
end

function M.norm(x, o)
  check_node("norm", "the operand", x)
  return op.sqrt(sum("norm", x * x, reduction("norm", o), false))
end

return M
