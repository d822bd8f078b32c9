-- nn_loss.lua -- the losses of nn, and the counts for metrics. Each takes a prediction, a target,
-- and options such as mask and weight.

local core = require "seg.core"
local classes = require "seg.recipe.nn_loss_classes"
local images = require "seg.recipe.nn_loss_image"
local operands = require "seg.recipe.loss_operands"
local regions = require "seg.recipe.nn_loss_region"
local shapes = require "seg.recipe.nn_loss_shape"
local sorted = require "seg.recipe.nn_loss_sorted"
local util = require "seg.util"

local op, options, none, fail = core.op, util.options, util.none, util.fail

-- The options that Dice-like losses share, as attributes of their operators.
local function overlap_options(what, o)
  local per = { batch = 0, sample = 1 }
  local empty = { count = 0, skip = 1 }
  if per[o.per] == nil then
    fail("usage", '%s: per must be "batch" or "sample", got "%s"', what, tostring(o.per))
  end
  if empty[o.empty] == nil then
    fail("usage", '%s: empty must be "count" or "skip", got "%s"', what, tostring(o.empty))
  end
  return { per_sample = per[o.per], eps = o.eps, skip_empty = empty[o.empty],
           background = o.background and 1 or 0 }
end

local overlap_known = { per = "batch", eps = 1, empty = "count", background = false }

-- The losses: operator, own options with defaults, whether it takes logits and classes (ignore,
-- class_weights), and whether it has the options of overlap losses.
local losses = {
  bce = { row = "bce", own = { pos_weight = 1 }, logits = true },
  dice_loss = { row = "dice_loss", own = {}, logits = true, overlap = true },
  bce_dice = { row = "bce_dice", own = { bce = 1, dice = 1, pos_weight = 1 }, logits = true,
               overlap = true },
  cross_entropy = { row = "cross_entropy", own = { ignore = -100 }, logits = true },
  focal = { row = "focal", own = { gamma = 2, alpha = -1 }, logits = true },
  tversky = { row = "tversky", own = { alpha = 0.5, beta = 0.5 }, logits = true, overlap = true },
  mae = { row = "mae", own = {} },
  mse = { row = "mse", own = {} },
  huber = { row = "huber", own = { delta = 1 } },
}

-- Losses with class_weights, which become nodes around the operator: f(x, target, o, attrs,
-- weights) with o.mask already without the ignored class.
local weighted = {}

-- The losses of independent channels as weighted means over them.
for _, name in ipairs { "bce", "focal" } do
  weighted[name] = function(x, target, o, attrs, weights)
    local q = operands.vector(x, weights)
    q = o.weight and o.weight * q or q
    return op[name](x, target, o.mask, q, attrs) / operands.mean_weight(x, weights, o.mask)
  end
end

-- Overlap losses by sample and class, as nodes (nn_loss_region.lua).
function weighted.dice_loss(x, target, o, _, weights)
  return regions.overlap("nn.dice_loss", x, target, o, weights)
end

function weighted.tversky(x, target, o, _, weights)
  return regions.overlap("nn.tversky", x, target, o, weights)
end

function weighted.bce_dice(x, target, o, attrs, weights)
  for _, key in ipairs { "bce", "dice" } do
    operands.check_number("nn.bce_dice", key, o[key], 0, 1e30)
  end
  local bce = weighted.bce(x, target, o, { pos_weight = o.pos_weight, name = attrs.name }, weights)
  return o.bce * bce + o.dice * regions.overlap("nn.bce_dice", x, target, o, weights)
end

-- Cross entropy with weights of classes and label smoothing, as PyTorch's: with w the weights, e
-- the smoothing and C classes, over the positions that count,
--   sum ((1 - e) w[t] (-log p[t]) + e / C sum over c of w[c] (-log p[c])) / sum w[t]
-- Szegedy and others, "Rethinking the Inception architecture", CVPR 2016.
local function smoothed_cross_entropy(x, target, o, attrs, weights, smoothing)
  local mask, q, divisor = operands.counted(target, o.ignore, o.mask), o.weight, nil
  if weights then
    local one_hot = operands.one_hot("nn.cross_entropy", x, target, o)
    local of_target = op.sum(one_hot * operands.vector(x, weights), { c = true })
    divisor = operands.divisor(operands.mean(of_target, mask))
    q = q and q * of_target or of_target
  end
  local loss = op.cross_entropy(x, target, o.mask, q, attrs)
  if smoothing > 0 then
    local each = -operands.log_softmax(x)
    if weights then each = each * operands.vector(x, weights) end
    local even = operands.mean(op.sum(each, { c = true, mean = true }), mask, o.weight)
    loss = (1 - smoothing) * loss + smoothing * even
  end
  return divisor and loss / divisor or loss
end

-- The options of the loss, by name.
local function known_options(name, loss)
  local known = { mask = none, weight = none }
  for k, v in pairs(loss.own) do known[k] = v end
  if loss.overlap then
    for k, v in pairs(overlap_known) do known[k] = v end
  end
  if loss.logits then
    known.class_weights = none
    if known.ignore == nil then known.ignore = none end
  end
  if name == "cross_entropy" then known.label_smoothing = 0 end
  return known
end

-- The function nn.NAME of a loss; layer(kind) returns the full name of the next layer.
local function loss_of(name, loss, layer)
  local known, what = known_options(name, loss), "nn." .. name
  return function(x, target, o)
    o = options(what, o, known)
    util.check_pair(what, x, target, loss.logits)
    operands.check_mask(what, o, x)
    local weights = loss.logits and operands.class_weights(what, x, o.class_weights)
    local attrs = loss.overlap and overlap_options(what, o) or {}
    for k in pairs(loss.own) do attrs[k] = o[k] end
    attrs.name = layer(name)
    if name == "cross_entropy" then
      local e = operands.check_number(what, "label_smoothing", o.label_smoothing, 0, 1)
      if weights or e > 0 then
        operands.check_extents(what, "target", x, target, 1)
        operands.check_ignore(what, o.ignore)
        return smoothed_cross_entropy(x, target, o, attrs, weights, e)
      end
    elseif loss.logits then
      o.mask = operands.counted(target, operands.check_ignore(what, o.ignore), o.mask)
      if weights then return weighted[name](x, target, o, attrs, weights) end
    end
    return op[loss.row](x, target, o.mask, o.weight, attrs)
  end
end

-- Counts (both, predicted, true) of each class and sample, which metrics sum.
local function overlap(x, target, o)
  o = options("nn.overlap", o, { mask = none, threshold = 0.5 })
  util.check_pair("nn.overlap", x, target, true)
  return op.overlap(x, target, o.mask, { threshold = o.threshold })
end

-- The distance between the dose-volume histograms of a predicted dose and the true one, over the
-- structures (a channel each) of a sample; doses are in the unit of `width`, the distance of bins.
local function dvh_loss_of(layer)
  return function(x, target, structures, o)
    o = options("nn.dvh_loss", o, { width = 1, steep = 1, bins = 80 })
    util.check_pair("nn.dvh_loss", x, target, false)
    if not util.is_node(structures) then
      fail("usage", "nn.dvh_loss: the structures must be a node with a channel for each, got %s",
           type(structures))
    end
    return op.dvh_loss(x, target, structures, { width = o.width, steep = o.steep, bins = o.bins,
                                                name = layer("dvh_loss") })
  end
end

-- {name = function}
return function(layer)
  local all = { overlap = overlap, dvh_loss = dvh_loss_of(layer) }
  for name, loss in pairs(losses) do all[name] = loss_of(name, loss, layer) end
  for _, file in ipairs { regions, classes, images, shapes, sorted } do
    for name, f in pairs(file.losses) do all[name] = f end
  end
  return all
end
