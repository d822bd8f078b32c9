-- random.lua -- nodes of random numbers: seg.normal, seg.uniform.

local axes = require "seg.recipe.axes"
local core = require "seg.core"
local util = require "seg.util"

local op, fail = core.op, util.fail

local M = {}

-- The options of seg.NAME, checked: numbers that are finite as 32-bit floats.
local function numbers(name, o, known)
  o = util.options("seg." .. name, o, known)
  for _, key in ipairs(util.sorted_keys(o)) do
    if type(o[key]) ~= "number" or not (math.abs(o[key]) <= 3.4e38) then
      fail("usage", "seg.%s: %s must be a number within 3.4e38, got %s; fix: for nodes, a + b * "
           .. "seg.%s(x)", name, key, tostring(o[key]), name)
    end
  end
  return o
end

-- Normal numbers with the extents of `like`.
function M.normal(like, o)
  axes.check_node("normal", "the operand", like)
  o = numbers("normal", o, { mean = 0, std = 1 })
  if o.std < 0 then
    fail("usage", "seg.normal: std must be 0 or more, got %g", o.std)
  end
  return op.normal(like, o)
end

-- Numbers from low to high with the extents of `like`.
function M.uniform(like, o)
  axes.check_node("uniform", "the operand", like)
  o = numbers("uniform", o, { low = 0, high = 1 })
  if o.low > o.high or o.high - o.low > 3.4e38 then
    fail("usage", "seg.uniform: low is %g and high is %g, wanted low <= high and a difference "
         .. "within 3.4e38", o.low, o.high)
  end
  return op.uniform(like, o)
end

return M
