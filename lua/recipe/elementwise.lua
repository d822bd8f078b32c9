-- elementwise.lua -- functions of nodes: seg.exp, seg.max, seg.where and so on, element by element;
-- sums and means over axes.
--
-- Each is one operator or a few (engine/graph/elementwise.def). Where two operands are given,
-- their extents are equal or 1, and one of the two may be a number.

local core = require "seg.core"
local util = require "seg.util"

local op, fail = core.op, util.fail

local M = {}

local UNARY = { "exp", "log", "log1p", "sqrt", "rsqrt", "abs", "sign", "sin", "cos", "tanh",
                "sigmoid", "relu", "erf", "floor", "round", "stop" }

local function is_node(v) return type(v) == "userdata" end

-- Checks an operand of seg.NAME. A function of numbers alone is Lua's.
local function check(name, v, numbers)
  if is_node(v) or numbers and type(v) == "number" then return end
  fail("usage", "seg.%s: the operand must be a node of the network%s, got %s%s", name,
       numbers and " or a number" or "", type(v),
       type(v) == "number" and "; for numbers alone use Lua's math" or "")
end

for _, name in ipairs(UNARY) do
  M[name] = function(x)
    check(name, x)
    return op[name](x)
  end
end

-- The node v, or the number v as a constant with as many axes as the node `like`.
local function node(v, like)
  return is_node(v) and v or op.constant(like, { value = v })
end

-- op.ROW(a, b) of two operands of seg.NAME, of which one may be a number.
local function binary(name, row, a, b)
  check(name, a, is_node(b))
  check(name, b, is_node(a))
  return op[row](node(a, b), node(b, a))
end

function M.max(a, b) return binary("max", "max", a, b) end

function M.min(a, b) return binary("min", "min", a, b) end

function M.gt(a, b) return binary("gt", "gt", a, b) end

function M.ge(a, b) return binary("ge", "ge", a, b) end

function M.lt(a, b) return binary("lt", "gt", b, a) end

function M.le(a, b) return binary("le", "ge", b, a) end

function M.eq(a, b) return binary("eq", "eq", a, b) end

function M.ne(a, b) return 1 - binary("ne", "eq", a, b) end

function M.clamp(x, low, high)
  check("clamp", x)
  if low == nil and high == nil then fail("usage", "seg.clamp: give a lower or an upper limit") end
  if type(low) == "number" and type(high) == "number" then
    if low > high then
      fail("usage", "seg.clamp: the lower limit, %g, is above the upper one, %g", low, high)
    end
    return op.clamp(x, { min = low, max = high })
  end
  if low ~= nil then x = binary("clamp", "max", x, low) end
  if high ~= nil then x = binary("clamp", "min", x, high) end
  return x
end

-- A select takes the value where the condition is not 0, else 0, so a value that is not taken may
-- be infinite or NaN.
function M.where(condition, a, b)
  check("where", condition)
  check("where", a, true)
  check("where", b, true)
  local taken = op.select(condition, node(a, condition))
  if b == 0 then return taken end
  return taken + op.select(M.eq(condition, 0), node(b, condition))
end

-- Sums and means ---------------------------------------------------------------

local AXES = { [-2] = {}, [-1] = { "c" }, [0] = { "c" }, { "c", "w" }, { "c", "h", "w" },
               { "c", "d", "h", "w" } }

-- The flags of the operator sum from the options of seg.NAME.
local function flags(name, x, o)
  local attrs = { drop = not o.keep }
  if type(o.axes) ~= "table" or #o.axes == 0 then
    fail("usage", 'seg.%s: axes must be a list as { "h", "w" }, got %s', name, tostring(o.axes))
  end
  for _, axis in ipairs(o.axes) do
    local known = false
    for _, own in ipairs(AXES[x.rank]) do known = known or own == axis end
    if axis == "n" then
      fail("usage", "seg.%s: axis n is the batch, which may come in parts, so there is no sum over "
           .. "it; seg.mean without axes has the mean over everything", name)
    elseif not known then
      fail("usage", "seg.%s: there is no axis %s in %s of %s; axes: %s", name, tostring(axis),
           tostring(x), x.where, table.concat(AXES[x.rank], " "))
    elseif attrs[axis] then
      fail("usage", "seg.%s: axis %s is given twice", name, axis)
    end
    attrs[axis] = true
  end
  return attrs
end

function M.sum(x, o)
  check("sum", x)
  o = util.options("seg.sum", o, { axes = util.none, keep = false })
  if o.axes == nil then
    fail("usage", 'seg.sum: give axes, as { axes = { "h", "w" } }; over everything there is '
         .. "seg.mean only, as a batch may come in parts")
  end
  return op.sum(x, flags("sum", x, o))
end

function M.mean(x, o)
  check("mean", x)
  o = util.options("seg.mean", o, { axes = util.none, keep = false, mask = util.none,
                                    weight = util.none })
  if o.axes == nil then
    if o.keep then fail("usage", "seg.mean: keep goes with axes") end
    return op.mean(x, x, o.mask, o.weight)
  end
  if o.mask ~= nil or o.weight ~= nil then
    fail("usage", "seg.mean: mask and weight are for the mean over everything, without axes")
  end
  local attrs = flags("mean", x, o)
  attrs.mean = true
  return op.sum(x, attrs)
end

-- Two passes, so that a mean that is large beside the deviation costs no digits.
function M.var(x, o)
  check("var", x)
  o = util.options("seg.var", o, { axes = util.none, keep = false })
  local e = x - M.mean(x, { axes = o.axes, keep = true })
  return M.mean(e * e, { axes = o.axes, keep = o.keep })
end

return M
