-- loss_operands.lua -- the operands of losses: options that are checked by name, targets as one
-- channel a class, masks without the ignored class, and means over classes.
--
-- Shapes: logits x (N,C,...); a target t has C channels, or one with class numbers from 0 if C > 1.

local core = require "seg.core"
local elementwise = require "seg.recipe.elementwise"
local shapes = require "seg.recipe.shapes"
local util = require "seg.util"

local op, fail, is_node = core.op, util.fail, util.is_node

local M = {}

-- Checks that the option `key` of a loss is a number from low to high.
function M.check_number(what, key, v, low, high)
  if math.type(v) and v >= low and v <= high then return v end
  fail("usage", "%s: %s must be a finite number from %g to %g, got %s", what, key, low, high,
       tostring(v))
end

-- Checks the option eps, a number from 0 on, or above 0.
function M.check_eps(what, eps, above)
  if math.type(eps) and eps >= 0 and eps <= 1e30 and not (above and eps < 1e-30) then return end
  fail("usage", "%s: eps must be a finite number %s 0, got %s", what,
       above and "above" or "not below", tostring(eps))
end

function M.check_whole(what, key, v, low, high)
  if math.type(v) and math.tointeger(v) and v >= low and v <= high then
    return math.tointeger(v)
  end
  fail("usage", "%s: %s must be a whole number from %d to %d, got %s", what, key, low, high,
       tostring(v))
end

function M.check_flag(what, key, v)
  if type(v) ~= "boolean" then
    fail("usage", "%s: %s must be true or false, got %s", what, key, tostring(v))
  end
  return v
end

local EMPTY = { count = true, skip = true }

-- Checks the option empty of a loss by classes.
function M.check_empty(what, empty)
  if EMPTY[empty] then return end
  fail("usage", '%s: empty must be "count" or "skip", got %s', what, tostring(empty))
end

-- Checks the options mask and weight: nil, or nodes that are broadcast to the prediction x, whose
-- extents are equal or 1. A map of classes without the background has one channel less.
function M.check_mask(what, o, x)
  for _, key in ipairs { "mask", "weight" } do
    local q = o[key]
    if q ~= nil and not is_node(q) then
      fail("usage", "%s: %s must be a node of the network, got %s", what, key, type(q))
    end
    local fits = not q or (q.c == 1 or q.c == x.c or q.c == x.c - 1)
    for _, axis in ipairs { "d", "h", "w" } do
      fits = fits and (not q or q[axis] == 1 or q[axis] == x[axis])
    end
    if not fits then
      fail("usage", "%s: %s must have the extents of the prediction, %s, or 1, got %s", what, key,
           tostring(x), tostring(q))
    end
  end
end

-- Checks that `t`, the `role` of a loss, has the positions of x and one of these numbers of
-- channels.
function M.check_extents(what, role, x, t, ...)
  local channels = false
  for _, c in ipairs { ... } do channels = channels or t.c == c end
  if channels and t.rank == x.rank and t.d == x.d and t.h == x.h and t.w == x.w then return end
  fail("usage", "%s: the %s must have the positions of the prediction, %s, and %s, got %s", what,
       role, tostring(x), util.plural((...), "channel")
       .. (select("#", ...) > 1 and select(2, ...) ~= (...) and " or " .. select(2, ...) or ""),
       tostring(t))
end

-- Checks prediction and target of a loss with logits.
function M.check_classes(what, x, t)
  util.check_pair(what, x, t, true)
  M.check_extents(what, "target", x, t, 1, x.c)
end

-- Checks prediction, target, mask, weight and ignore of a loss with class numbers, one a position.
function M.check_numbers(what, x, t, o)
  util.check_pair(what, x, t, true)
  if x.c < 2 then
    fail("usage", "%s: the prediction must have a channel for each of two or more classes, got %s",
         what, tostring(x))
  end
  M.check_extents(what, "target", x, t, 1)
  M.check_mask(what, o, x)
  M.check_ignore(what, o.ignore)
end

-- A node with one number of the list for each channel, (1,#list,1,...), and the axes of `like`.
function M.vector(like, list)
  local nodes = {}
  for i, v in ipairs(list) do nodes[i] = op.constant(like, { value = v }) end
  return shapes.concat(nodes)
end

-- The option class_weights, a number for each channel of x, as a list of x.c numbers; nil without.
function M.class_weights(what, x, list)
  if list == nil then return nil end
  if x.c == 1 then
    fail("usage", "%s: class_weights need several channels, the prediction has one: %s; pos_weight "
         .. "of nn.bce weighs the foreground of one", what, tostring(x))
  end
  if type(list) ~= "table" or is_node(list) or #list ~= x.c then
    fail("usage", "%s: class_weights must be a list of %d numbers, one for each channel of the "
         .. "prediction, got %s", what, x.c,
         type(list) == "table" and #list .. " numbers" or type(list))
  end
  local sum = 0
  for i, v in ipairs(list) do
    M.check_number(what, string.format("class_weights[%d]", i), v, 0, 1e30)
    sum = sum + v
  end
  if sum == 0 then fail("usage", "%s: class_weights are all 0, so nothing counts", what) end
  return list
end

-- The option ignore, a value of the target; nil without.
function M.check_ignore(what, ignore)
  if ignore ~= nil then M.check_number(what, "ignore", ignore, -1e9, 1e9) end
  return ignore
end

-- 1 where the target is not `ignore`, else 0, times the mask; the mask alone without `ignore`.
function M.counted(t, ignore, mask)
  if ignore == nil then return mask end
  local valid = 1 - elementwise.eq(t, ignore)
  return mask and valid * mask or valid
end

-- The uses of inputs as targets by losses made of nodes, as core.targets lists those of operators,
-- with the node that reads the input; `binary`: each channel is 0 or 1.
M.uses = {}

-- Notes that `node` of the loss `what` reads the target t of x, for the check of targets before
-- training (targets.lua).
local function note_use(what, x, t, o, node, binary)
  if t.kind ~= "input" then return end
  table.insert(M.uses, { op = what:match "[%w_]+$", input = t.name, channels = x.c, truths = t.c,
                         masked = o.mask ~= nil, ignore = o.ignore, node = node, classes = true,
                         binary = binary })
end

-- The target with one channel for each of the C channels of x: 1 for the true class, else 0. With
-- o.ignore this value becomes 0 in a target that is not class numbers.
function M.one_hot(what, x, t, o)
  local truth = t.kind == "input" and t or op.stop(t)
  if x.c > 1 and t.c == 1 then
    local numbers = {}
    for i = 1, x.c do numbers[i] = i - 1 end
    truth = op.eq(truth, M.vector(t, numbers))
  elseif o.ignore then
    truth = op.select(M.counted(t, o.ignore), truth)
  end
  note_use(what, x, t, o, truth)
  return truth
end

-- A target of channels that are 0 or 1 each: 1 where it is above 1/2, else 0.
function M.bits(what, x, t, o)
  local truth = M.binary(t)
  note_use(what, x, t, o, truth, true)
  return truth
end

-- 1 where t is above 1/2, else 0.
function M.binary(t) return elementwise.gt(t, 0.5) end

-- The logarithm of the softmax over channels.
function M.log_softmax(x)
  local top = op.stop(op.amax(x, { c = true }))
  local e = x - top
  return e - op.log(op.sum(op.exp(e), { c = true }))
end

-- The probabilities of logits: sigmoid of one channel, softmax of several.
function M.probabilities(x) return x.c == 1 and op.sigmoid(x) or op.softmax(x) end

-- x without its first channel, the background.
function M.foreground(x) return op.slice(x, { c0 = 1, c = x.c - 1 }) end

-- The class weights without that of the first class; nil without class weights.
function M.foreground_weights(list) return list and table.move(list, 2, #list, 1, {}) end

-- x summed over all positions: (N,C), or over channels too: (N,1).
function M.per_sample(x, channels)
  local attrs = { d = x.rank > 2, h = x.rank > 1, w = x.rank > 0, c = channels or false,
                  drop = true }
  if x.rank == 0 and not channels then return x end
  return op.sum(x, attrs)
end

-- The mean over everything where mask is not 0.
function M.mean(x, mask, weight) return op.mean(x, x, mask, weight) end

-- A divisor that is not 0: x, where that is not below 1e-30.
function M.divisor(x) return elementwise.max(x, 1e-30) end

-- The divisor that turns sum m q w l / M into the weighted mean sum m q w l / sum m w, with the
-- weight w of each channel: a number without a mask, else a node that is not 0.
function M.mean_weight(x, list, mask)
  if not mask then
    local sum = 0
    for _, v in ipairs(list) do sum = sum + v end
    return sum / #list
  end
  return M.divisor(M.mean(mask * 0 + M.vector(x, list), mask))
end

-- The mean of l (N,C,...) where mask is not 0, times weight; with `list` a weighted mean over its
-- channels.
function M.mean_of_channels(l, list, mask, weight)
  if not list then return M.mean(l, mask, weight) end
  local q = M.vector(l, list)
  return M.mean(l, mask, weight and weight * q or q) / M.mean_weight(l, list, mask)
end

-- The mean of l (N,1,...) where mask is not 0; with `list` a weighted mean with the weight of the
-- true class of each position.
function M.mean_of_targets(x, one_hot, l, list, mask, weight)
  if not list then return M.mean(l, mask, weight) end
  local q = op.sum(one_hot * M.vector(x, list), { c = true })
  return M.mean(l, mask, weight and weight * q or q) / M.divisor(M.mean(q, mask))
end

return M
