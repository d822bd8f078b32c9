-- nn_loss.lua -- the losses of nn, and the counts for metrics. Each takes a prediction, a target,
-- and options such as mask and weight.

local core = require "seg.core"
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

-- The losses: operator, own options with defaults, whether it takes logits, and whether it has the
-- options of overlap losses.
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

-- The function nn.NAME of a loss; layer(kind) returns the full name of the next layer.
local function loss_of(name, loss, layer)
  local known = { mask = none, weight = none }
  for k, v in pairs(loss.own) do known[k] = v end
  if loss.overlap then
    for k, v in pairs(overlap_known) do known[k] = v end
  end
  return function(x, target, o)
    o = options("nn." .. name, o, known)
    util.check_pair("nn." .. name, x, target, loss.logits)
    local attrs = loss.overlap and overlap_options("nn." .. name, o) or {}
    for k in pairs(loss.own) do attrs[k] = o[k] end
    attrs.name = layer(name)
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
  return all
end
