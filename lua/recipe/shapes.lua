-- shapes.lua -- functions of nodes that move elements: seg.reshape, seg.permute, seg.split and so
-- on; running sums, products of matrices, softmax and standardisation over any axis.
--
-- Axes are named c, d, h, w; the batch n never moves. Functions are in the order (C,[D],[H],W) of
-- shapes. Those that an operator has along channels alone move their axis there and back.

local axes = require "seg.recipe.axes"
local core = require "seg.core"
local elementwise = require "seg.recipe.elementwise"
local util = require "seg.util"

local op, fail, none = core.op, util.fail, util.none
local AXES, check_node = axes.AXES, axes.check_node

local M = {}

local NUMBER = { d = 0, h = 1, w = 2, c = 3 } -- of axes as attributes, in the order of memory
local MOST = 2 ^ 31 - 1 -- of an extent
local CONCAT = 6 -- operands of one op.concat

-- Checks that `axis`, what of seg.NAME, is an axis of x. -> its name
local function check_axis(name, what, x, axis)
  for _, own in ipairs(AXES[x.rank]) do
    if own == axis then return axis end
  end
  if axis == "n" then
    fail("usage", "seg.%s: %s is n, the batch, whose samples stay apart", name, what)
  end
  fail("usage", "seg.%s: %s is %s, wanted an axis of %s of %s: %s", name, what,
       type(axis) == "string" and axis or type(axis), tostring(x), x.where,
       table.concat(AXES[x.rank], " "))
end

-- Checks that v, what of seg.NAME, is a whole number from `least` to MOST. -> the integer
local function whole(name, what, v, least)
  local n = math.type(v) and math.tointeger(v)
  if not n or n < least or n > MOST then
    fail("usage", "seg.%s: %s must be a whole number from %d to %d, got %s", name, what, least,
         MOST, tostring(v))
  end
  return n
end

-- Checks that v, what of seg.NAME, is a list of at least one element without gaps. -> the list
local function list_of(name, what, v)
  if type(v) ~= "table" or #v == 0 then
    fail("usage", "seg.%s: %s must be a list, got %s", name, what,
         type(v) == "table" and "a table without a list" or tostring(v))
  end
  for i = 1, #v do
    if v[i] == nil then fail("usage", "seg.%s: element %d of %s is nil", name, i, what) end
  end
  return v
end

local function options(name, o, known) return util.options("seg." .. name, o, known) end

-- The option table of numbers by axis of seg.NAME, each checked; the axes of x alone.
local function by_axis(name, x, o, least)
  local attrs = {}
  for axis, v in pairs(options(name, o, { c = none, d = none, h = none, w = none })) do
    attrs[check_axis(name, "a key", x, axis)] = whole(name, axis, v, least)
  end
  if next(attrs) == nil then fail("usage", "seg.%s: give a number for an axis of %s", name,
                                  tostring(x)) end
  return attrs
end

-- Order and extents ------------------------------------------------------------

-- The spatial axes that the extents of seg.reshape have.
local function rank_of(o)
  local rank = o.d and 3 or o.h and 2 or o.w and 1 or 0
  for i, axis in ipairs { "w", "h", "d" } do
    if i <= rank and not o[axis] then
      fail("usage", "seg.reshape: %s is missing; a shape has c, c w, c h w or c d h w", axis)
    end
  end
  return rank
end

function M.reshape(x, o)
  check_node("reshape", "the operand", x)
  o = options("reshape", o, { c = none, d = none, h = none, w = none, channels_last = false })
  if o.c == nil then fail("usage", "seg.reshape: c is missing; -1 is what remains") end
  if type(o.channels_last) ~= "boolean" then
    fail("usage", "seg.reshape: channels_last must be true or false, got %s",
         tostring(o.channels_last))
  end
  local attrs = { rank = rank_of(o), channels_last = o.channels_last }
  for axis in pairs(NUMBER) do
    local v = o[axis]
    if v ~= nil then attrs[axis] = v == -1 and -1 or whole("reshape", axis, v, 1) end
  end
  return op.reshape(x, attrs)
end

function M.permute(x, names)
  check_node("permute", "the operand", x)
  local own, attrs, seen = AXES[x.rank], {}, {}
  list_of("permute", "the axes", names)
  for i, axis in ipairs(names) do
    check_axis("permute", "axis " .. i, x, axis)
    if seen[axis] then fail("usage", "seg.permute: axis %s is given twice", axis) end
    seen[axis] = true
    attrs[own[i]] = NUMBER[axis]
  end
  if #names ~= #own then
    fail("usage", "seg.permute: %d axes, wanted all %d of %s in their new order: %s", #names, #own,
         tostring(x), table.concat(own, " "))
  end
  return op.permute(x, attrs)
end

function M.transpose(x, a, b)
  check_node("transpose", "the operand", x)
  check_axis("transpose", "axis 1", x, a)
  check_axis("transpose", "axis 2", x, b)
  return a == b and x or op.permute(x, { [a] = NUMBER[b], [b] = NUMBER[a] })
end

-- f of x with `axis` and the channels exchanged, and exchanged back.
local function as_channels(axis, x, f)
  return M.transpose(f(M.transpose(x, axis, "c")), axis, "c")
end

-- Copies -----------------------------------------------------------------------

function M.flip(x, o)
  check_node("flip", "the operand", x)
  o = options("flip", o, { axes = none })
  local attrs = {}
  for _, axis in ipairs(list_of("flip", "axes", o.axes)) do
    attrs[check_axis("flip", "an axis", x, axis)] = true
  end
  return op.flip(x, attrs)
end

function M.roll(x, o)
  check_node("roll", "the operand", x)
  return op.roll(x, by_axis("roll", x, o, -MOST))
end

function M.repeats(x, o)
  check_node("repeats", "the operand", x)
  return op.repeats(x, by_axis("repeats", x, o, 1))
end

function M.cumsum(x, o)
  check_node("cumsum", "the operand", x)
  o = options("cumsum", o, { axis = none, reverse = false })
  check_axis("cumsum", "axis", x, o.axis)
  if type(o.reverse) ~= "boolean" then
    fail("usage", "seg.cumsum: reverse must be true or false, got %s", tostring(o.reverse))
  end
  return op.cumsum(x, { axis = NUMBER[o.axis], reverse = o.reverse })
end

-- Parts ------------------------------------------------------------------------

-- The sizes of the parts of seg.split along an axis with `extent` elements.
local function sizes_of(o, axis, extent)
  if (o.sizes == nil) == (o.parts == nil) then
    fail("usage", "seg.split: give either sizes, as { 2, 3 }, or parts, a number")
  end
  local sizes, sum = {}, 0
  if o.parts ~= nil then
    local parts = whole("split", "parts", o.parts, 1)
    if extent % parts ~= 0 then
      fail("usage", "seg.split: %s = %d does not divide into %d parts; fix: sizes", axis, extent,
           parts)
    end
    for i = 1, parts do sizes[i] = extent // parts end
    return sizes
  end
  for i, v in ipairs(list_of("split", "sizes", o.sizes)) do
    sizes[i] = whole("split", "size " .. i, v, 1)
    sum = sum + sizes[i]
  end
  if sum ~= extent then
    fail("usage", "seg.split: the sizes add up to %d, wanted %s = %d", sum, axis, extent)
  end
  return sizes
end

function M.split(x, o)
  check_node("split", "the operand", x)
  o = options("split", o, { axis = none, sizes = none, parts = none })
  local axis, nodes, from = check_axis("split", "axis", x, o.axis), {}, 0
  for i, size in ipairs(sizes_of(o, axis, x[axis])) do
    nodes[i] = op.slice(x, { [axis .. "0"] = from, [axis] = size })
    from = from + size
  end
  return table.unpack(nodes)
end

-- The nodes of the list given to seg.NAME, of one number of spatial axes.
local function nodes_of(name, nodes)
  for i, node in ipairs(list_of(name, "the operands", nodes)) do
    check_node(name, "operand " .. i, node)
    if node.rank ~= nodes[1].rank then
      fail("usage", "seg.%s: operand %d is %s and operand 1 is %s, wanted the same axes", name, i,
           tostring(node), tostring(nodes[1]))
    end
  end
  return nodes
end

-- The channels of any number of nodes one behind another, by a tree of op.concat.
local function concat_channels(nodes)
  while #nodes > 1 do
    local joined = {}
    for i = 1, #nodes, CONCAT do
      local last = math.min(i + CONCAT - 1, #nodes)
      joined[#joined + 1] = last > i and op.concat(table.unpack(nodes, i, last)) or nodes[i]
    end
    nodes = joined
  end
  return nodes[1]
end

function M.concat(nodes, o)
  o = options("concat", o, { axis = "c" })
  nodes_of("concat", nodes)
  local axis, turned = check_axis("concat", "axis", nodes[1], o.axis), {}
  for i, node in ipairs(nodes) do
    for _, other in ipairs(AXES[node.rank]) do
      if other ~= axis and node[other] ~= nodes[1][other] then
        fail("usage", "seg.concat: operand %d has %s = %d and operand 1 %d; only %s may differ", i,
             other, node[other], nodes[1][other], axis)
      end
    end
    turned[i] = M.transpose(node, axis, "c")
  end
  return M.transpose(concat_channels(turned), axis, "c")
end

function M.stack(nodes, o)
  o = options("stack", o, { axis = none })
  local first = nodes_of("stack", nodes)[1]
  local own, wider, shape, at = AXES[first.rank], AXES[first.rank + 1], {}, nil
  if first.rank < 0 or not wider then
    fail("usage", "seg.stack: %s takes no more axes; its axes: %s", tostring(first),
         table.concat(own, " "))
  end
  for i, axis in ipairs(wider) do at = axis == o.axis and i or at end
  if not at then
    fail("usage", "seg.stack: axis is %s, wanted the new axis in the result: %s", tostring(o.axis),
         table.concat(wider, " "))
  end
  for i, axis in ipairs(wider) do -- the axes before the new one and behind it
    shape[axis] = i == at and 1 or first[own[i < at and i or i - 1]]
  end
  local wide = {}
  for i, node in ipairs(nodes) do
    if table.concat(node.shape, "x", 2) ~= table.concat(first.shape, "x", 2) then
      fail("usage", "seg.stack: operand %d is %s and operand 1 is %s, wanted equal extents", i,
           tostring(node), tostring(first))
    end
    wide[i] = M.reshape(node, shape)
  end
  return M.concat(wide, { axis = o.axis })
end

-- Products, softmax, standardisation --------------------------------------------

function M.matmul(a, b, o)
  check_node("matmul", "operand 1", a)
  check_node("matmul", "operand 2", b)
  o = options("matmul", o, { transpose_a = false, transpose_b = false })
  for _, key in ipairs { "transpose_a", "transpose_b" } do
    if type(o[key]) ~= "boolean" then
      fail("usage", "seg.matmul: %s must be true or false, got %s", key, tostring(o[key]))
    end
  end
  return op.matmul(a, b, o)
end

function M.softmax(x, o)
  check_node("softmax", "the operand", x)
  o = options("softmax", o, { axis = "c" })
  return as_channels(check_axis("softmax", "axis", x, o.axis), x, op.softmax)
end

function M.standardise(x, o)
  check_node("standardise", "the operand", x)
  o = options("standardise", o, { axes = none, eps = 1e-5 })
  if type(o.eps) ~= "number" or not (o.eps >= 0 and o.eps < math.huge) then
    fail("usage", "seg.standardise: eps must be a finite number from 0 on, got %s", tostring(o.eps))
  end
  for _, axis in ipairs(list_of("standardise", "axes", o.axes)) do
    check_axis("standardise", "an axis", x, axis)
  end
  local over = { axes = o.axes, keep = true }
  local e = x - elementwise.mean(x, over)
  return e * op.rsqrt(elementwise.mean(e * e, over) + o.eps)
end

return M
