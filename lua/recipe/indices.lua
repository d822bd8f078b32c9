-- indices.lua -- functions of nodes that compute indices or choose elements by them: seg.sort,
-- seg.gather and so on.
--
-- An index is a whole number from 0 in a node of floats. Several axes count as one axis, in
-- PyTorch's order of elements.

local axes = require "seg.recipe.axes"
local core = require "seg.core"
local util = require "seg.util"

local op, fail, none, check_node = core.op, util.fail, util.none, axes.check_node

local MOST = 1 << 24 -- classes and indices that a 32-bit float can count

local M = {}

-- The attributes of an operator of seg.NAME along `axis` of x, a name or a list of names.
local function along(name, x, axis)
  local list = type(axis) == "table" and axis or { axis }
  if type(list[1]) ~= "string" then
    fail("usage", 'seg.%s: axis must be a name or a list of names, as { axis = "w" }, got %s', name,
         type(axis) == "table" and "another table" or tostring(axis))
  end
  return axes.flags(name, x, list)
end

-- The permutation that sorts x, for seg.NAME.
local function permutation(name, x, attrs, descending)
  if type(descending) ~= "boolean" then
    fail("usage", "seg.%s: descending must be true or false, got %s", name, tostring(descending))
  end
  return op.argsort(x, { c = attrs.c, d = attrs.d, h = attrs.h, w = attrs.w,
                         descending = descending })
end

-- Sorted values and the permutation that sorts: the gradient flows through the values.
function M.sort(x, o)
  check_node("sort", "the operand", x)
  o = util.options("seg.sort", o, { axis = none, descending = false })
  local attrs = along("sort", x, o.axis)
  local index = permutation("sort", x, attrs, o.descending)
  return op.gather(x, index, attrs), index
end

function M.argsort(x, o)
  check_node("argsort", "the operand", x)
  o = util.options("seg.argsort", o, { axis = none, descending = false })
  return permutation("argsort", x, along("argsort", x, o.axis), o.descending)
end

function M.gather(x, index, o)
  check_node("gather", "the operand", x)
  check_node("gather", "the index", index)
  o = util.options("seg.gather", o, { axis = none })
  return op.gather(x, index, along("gather", x, o.axis))
end

-- The k largest or smallest elements along an axis, sorted, and their indices.
function M.top_k(x, k, o)
  check_node("top_k", "the operand", x)
  o = util.options("seg.top_k", o, { axis = none, largest = true })
  if type(o.axis) ~= "string" then
    fail("usage", 'seg.top_k: axis must be the name of one axis, as { axis = "w" }, got %s',
         type(o.axis) == "table" and "a table" or tostring(o.axis))
  end
  local attrs = along("top_k", x, o.axis)
  local extent = x[o.axis]
  if math.type(k) ~= "integer" or k < 1 or k > extent then
    fail("usage", "seg.top_k: k must be a whole number from 1 to %d, the extent of axis %s, got %s",
         extent, o.axis, tostring(k))
  elseif type(o.largest) ~= "boolean" then
    fail("usage", "seg.top_k: largest must be true or false, got %s", tostring(o.largest))
  end
  local index = op.slice(permutation("top_k", x, attrs, o.largest), { [o.axis] = k })
  return op.gather(x, index, attrs), index
end

-- The index of the largest element over axes; the first of several.
local function argmax(name, x, o)
  return op.argmax(x, axes.reduced(name, x, axes.options(name, o)))
end

function M.argmax(x, o)
  check_node("argmax", "the operand", x)
  return argmax("argmax", x, o)
end

function M.argmin(x, o)
  check_node("argmin", "the operand", x)
  return argmax("argmin", -x, o)
end

-- Class numbers as a channel for each class.
function M.one_hot(index, classes)
  check_node("one_hot", "the operand", index)
  if math.type(classes) ~= "integer" or classes < 1 or classes > MOST then
    fail("usage", "seg.one_hot: classes must be a whole number from 1 to %d, got %s", MOST,
         tostring(classes))
  end
  return op.one_hot(index, { classes = classes })
end

return M
