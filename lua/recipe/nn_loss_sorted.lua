-- nn_loss_sorted.lua -- losses that sort the positions of a sample: the hardest positions, Lovász
-- hinge and softmax; a part of nn.lua.
--
-- Each sample is sorted alone, so the loss does not depend on the parts in which a batch comes. A
-- sample has at most 2^24 positions.

local core = require "seg.core"
local elementwise = require "seg.recipe.elementwise"
local operands = require "seg.recipe.loss_operands"
local util = require "seg.util"

local op, options, none, fail = core.op, util.options, util.none, util.fail

local M = {}

local LAST = -1e30 -- sorts elements that do not count behind all others

local function check_positions(what, x)
  if x.rank < 1 then
    fail("usage", "%s: the prediction must have positions, (N,C,H,W) or (N,C,D,H,W), got %s", what,
         tostring(x))
  end
end

-- The index of each position in the falling order of x along the axes, from 0; equal elements keep
-- their order.
local function falling_index(x, axes)
  local order = op.argsort(x, { d = axes.d, h = axes.h, w = axes.w, descending = true })
  return op.argsort(order, axes)
end

-- nn.topk_cross_entropy(x, t, {share=0.1, class_weights, ignore=-100, mask, weight}): the cross
-- entropy of the share of positions of each sample where it is largest, rounded up. Wu, Shen and
-- van den Hengel, "Bridging category-level and instance-level semantic image segmentation",
-- arXiv:1605.06885 (2016); nnU-Net's TopKLoss chooses among the positions of the batch.
local function topk_cross_entropy(x, t, o)
  local what = "nn.topk_cross_entropy"
  o = options(what, o, { share = 0.1, class_weights = none, ignore = -100, mask = none,
                         weight = none })
  operands.check_numbers(what, x, t, o)
  operands.check_number(what, "share", o.share, 1e-6, 1)
  check_positions(what, x)
  local weights = operands.class_weights(what, x, o.class_weights)
  local one_hot = operands.one_hot(what, x, t, o)
  local loss = -op.sum(operands.log_softmax(x) * one_hot, { c = true })
  local counts = operands.counted(t, o.ignore, o.mask)
  local key = op.select(counts, loss) + LAST * elementwise.eq(counts, 0)
  local there = elementwise.gt(counts, 0)
  local axes = { d = x.rank > 2, h = x.rank > 1, w = true }
  -- a little less, as 0.1 times 30 is above 3 in floats, and at least one
  local most = o.share * op.sum(there, axes) - 1e-3
  most = elementwise.max(most, 0.5)
  local hard = op.gt(most, falling_index(key, axes)) * counts
  return operands.mean_of_targets(x, one_hot, loss, weights, hard, o.weight)
end

-- The sum of the elements of x (N,C,W) up to and including each position.
local function running_sum(x) return op.cumsum(x, { axis = 2 }) end

-- x (N,C,...) with its positions along w, (N,C,W).
local function in_line(x)
  return op.reshape(x, { rank = 1, c = x.c, w = -1, channels_last = true })
end

-- Sum over positions of errors times the gradient of the Jaccard index's Lovász extension, (N,C),
-- and the number of true positions. With the positions in falling order of their errors, I of the
-- truth still to come and the union U with the positions so far, the gradient is 1 / U at a true
-- position and I / (U (U - 1)) at another: the differences of 1 - I / U (algorithm 1 of Berman)
-- without cancellation.
local function lovasz(errors, truth, counts)
  errors, truth = in_line(errors), in_line(truth)
  local key = errors
  if counts then
    counts = in_line(counts)
    truth = op.select(counts, truth)
    errors = op.select(counts, errors)
    key = errors + LAST * elementwise.eq(counts, 0)
  end
  local index = op.argsort(key, { w = true, descending = true })
  local sorted = op.gather(errors, index, { w = true })
  local s = op.gather(truth, index, { w = true })
  local all = op.sum(truth, { w = true })
  local before, place = running_sum(s), running_sum(s * 0 + 1)
  local left, union = all - before, all + place - before
  local gradient = (s + (1 - s) * left / elementwise.max(union - 1, 1)) / union
  -- without a true position the largest error counts
  local first = elementwise.eq(all + place, 1)
  gradient = op.stop(op.max(gradient, first))
  return operands.per_sample(sorted * gradient), operands.per_sample(truth)
end

-- The mask of errors (N,C,...), with the channels of `truth`; nil: all count.
local function counts_of(truth, t, o)
  local counts = operands.counted(t, o.ignore, o.mask)
  return counts and counts + truth * 0
end

-- nn.lovasz_softmax(x, t, {empty="skip", background=true, class_weights, ignore, mask}): mean over
-- samples and classes of the Lovász extension of 1 - Jaccard index at the errors |t - p|. Berman,
-- Triki and Blaschko, "The Lovász-Softmax loss", CVPR 2018.
local function lovasz_softmax(x, t, o)
  local what = "nn.lovasz_softmax"
  o = options(what, o, { empty = "skip", background = true, class_weights = none, ignore = none,
                         mask = none })
  operands.check_classes(what, x, t)
  operands.check_mask(what, o, x)
  operands.check_ignore(what, o.ignore)
  operands.check_flag(what, "background", o.background)
  operands.check_empty(what, o.empty)
  check_positions(what, x)
  local weights = operands.class_weights(what, x, o.class_weights)
  local truth = operands.binary(operands.one_hot(what, x, t, o))
  local errors = op.abs(truth - operands.probabilities(x))
  local counts = counts_of(truth, t, o)
  if x.c > 1 and not o.background then
    errors, truth = operands.foreground(errors), operands.foreground(truth)
    counts = counts and operands.foreground(counts)
    weights = operands.foreground_weights(weights)
  end
  local loss, all = lovasz(errors, truth, counts)
  local there = o.empty == "skip" and op.gt(all, all * 0) or nil
  return operands.mean_of_channels(loss, weights, there)
end

-- nn.lovasz_hinge(x, t, {empty="count", ignore, mask}): the same at the hinge errors
-- max(0, 1 - x (2 t - 1)) of each channel, which is 0 or 1 by itself.
local function lovasz_hinge(x, t, o)
  local what = "nn.lovasz_hinge"
  o = options(what, o, { empty = "count", class_weights = none, ignore = none, mask = none })
  util.check_pair(what, x, t, true)
  operands.check_extents(what, "target", x, t, x.c)
  operands.check_mask(what, o, x)
  operands.check_ignore(what, o.ignore)
  operands.check_empty(what, o.empty)
  check_positions(what, x)
  local weights = operands.class_weights(what, x, o.class_weights)
  local truth = operands.bits(what, x, t, o)
  local errors = op.relu(1 - x * (2 * truth - 1))
  local loss, all = lovasz(errors, truth, counts_of(truth, t, o))
  local there = o.empty == "skip" and op.gt(all, all * 0) or nil
  return operands.mean_of_channels(loss, weights, there)
end

M.losses = { topk_cross_entropy = topk_cross_entropy, lovasz_softmax = lovasz_softmax,
             lovasz_hinge = lovasz_hinge }

return M
