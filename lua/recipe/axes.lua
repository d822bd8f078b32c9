-- axes.lua -- the axes of nodes by rank, and checks of the operands and axes of functions of nodes.

local util = require "seg.util"

local fail = util.fail

local M = {}

-- The axes of a sample by the rank of a node, in the order of its shape; rank -2 is one number, as
-- a loss, -1 one number a channel without a batch, as a bias.
local AXES = { [-2] = {}, [-1] = { "c" }, [0] = { "c" }, { "c", "w" }, { "c", "h", "w" },
               { "c", "d", "h", "w" } }
-- The spatial axes of these.
local SPATIAL = { [-2] = {}, [-1] = {}, [0] = {}, { "w" }, { "h", "w" }, { "d", "h", "w" } }
M.AXES, M.SPATIAL = AXES, SPATIAL

-- Checks that v, the operand `what` of seg.NAME, is a node.
function M.check_node(name, what, v)
  if util.is_node(v) then return end
  fail("usage", "seg.%s: %s must be a node of the network, got %s%s", name, what, type(v),
       type(v) == "number" and "; for numbers alone use Lua's math" or "")
end

-- The attributes of an operator over the axes of node x whose names are in `list`; `instead` ends
-- the message about the axis of the batch.
function M.flags(name, x, list, instead)
  local attrs = {}
  for _, axis in ipairs(list) do
    local known = false
    for _, own in ipairs(AXES[x.rank]) do known = known or own == axis end
    if axis == "n" then
      fail("usage", "seg.%s: axis n is the batch, which may come in parts, so no function goes "
           .. "over it%s", name, instead or "")
    elseif not known then
      fail("usage", "seg.%s: there is no axis %s in %s of %s; its axes: %s", name, tostring(axis),
           tostring(x), x.where, table.concat(AXES[x.rank], " "))
    elseif attrs[axis] then
      fail("usage", "seg.%s: axis %s is given twice", name, axis)
    end
    attrs[axis] = true
  end
  return attrs
end

-- The options of the reduction seg.NAME, checked: axes and keep, or those of `known`.
function M.options(name, o, known)
  if type(o) == "table" and o[1] ~= nil then
    fail("usage", 'seg.%s: axes go by name, as { axes = { "h", "w" } }', name)
  end
  o = util.options("seg." .. name, o, known or { axes = util.none, keep = false })
  if type(o.keep) ~= "boolean" then
    fail("usage", "seg.%s: keep must be true or false, got %s", name, tostring(o.keep))
  end
  return o
end

-- The attributes of a reduction with these options.
function M.reduced(name, x, o, instead)
  if type(o.axes) ~= "table" or #o.axes == 0 then
    fail("usage", 'seg.%s: axes must be a list of names, as { axes = { "h", "w" } }, got %s', name,
         type(o.axes) == "table" and "a table without a list" or tostring(o.axes))
  end
  local attrs = M.flags(name, x, o.axes, instead)
  attrs.drop = not o.keep
  return attrs
end

return M
