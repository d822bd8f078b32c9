-- nn_loss_shape.lua -- losses that compare shapes by a map of signed distances, as nodes; a part of
-- nn.lua.
--
-- A map (N,K,...) has for each class the distance of a position from the boundary of its ground
-- truth, negative inside, 0 everywhere if the class is absent or fills the image
-- (set:signed_distance makes it). Logits have K channels, or K + 1 with the background first.

local core = require "seg.core"
local operands = require "seg.recipe.loss_operands"
local util = require "seg.util"

local op, options, none, fail = core.op, util.options, util.none, util.fail

local M = {}

-- The probabilities of the classes of a map, the map as a constant, and the class weights of these
-- classes.
local function operands_of(what, x, distance, o)
  if not util.is_node(distance) then
    fail("usage", "%s: the map of signed distances must be a node of the network, got %s", what,
         type(distance))
  end
  util.check_pair(what, x, distance, true)
  operands.check_extents(what, "map of signed distances", x, distance, math.max(x.c - 1, 1), x.c)
  operands.check_mask(what, o, x)
  local weights = operands.class_weights(what, x, o.class_weights)
  local p, phi = operands.probabilities(x), op.stop(distance)
  if distance.c == x.c then return p, phi, weights end
  return operands.foreground(p), phi, operands.foreground_weights(weights)
end

-- nn.boundary_loss(x, distance, {class_weights, mask, weight}): the mean of p times the signed
-- distance. Kervadec and others, "Boundary loss for highly unbalanced segmentation", MIDL 2019. It
-- is below 0 for a good prediction, and is added to a loss of regions.
local function boundary_loss(x, distance, o)
  o = options("nn.boundary_loss", o, { class_weights = none, mask = none, weight = none })
  local p, phi, weights = operands_of("nn.boundary_loss", x, distance, o)
  return operands.mean_of_channels(p * phi, weights, o.mask, o.weight)
end

-- nn.hausdorff_loss(x, t, distance, {alpha=2, class_weights, ignore, mask, weight}): the mean of
-- (p - t)^2 |distance|^alpha, the one-sided estimate of Karimi and Salcudean, "Reducing the
-- Hausdorff distance in medical image segmentation with convolutional neural networks", IEEE TMI 39
-- (2020): distances from the ground truth only, so no prediction needs a distance transform.
local function hausdorff_loss(x, t, distance, o)
  local what = "nn.hausdorff_loss"
  o = options(what, o, { alpha = 2, class_weights = none, ignore = none, mask = none,
                         weight = none })
  operands.check_classes(what, x, t)
  operands.check_number(what, "alpha", o.alpha, 0.1, 4)
  operands.check_ignore(what, o.ignore)
  local p, phi, weights = operands_of(what, x, distance, o)
  local truth = operands.one_hot(what, x, t, o)
  local mask = operands.counted(t, o.ignore, o.mask)
  if p.c < x.c then
    truth = operands.foreground(truth)
    if mask and mask.c == x.c then mask = operands.foreground(mask) end
  end
  local e = p - truth
  return operands.mean_of_channels(e * e * op.abs(phi) ^ o.alpha, weights, mask, o.weight)
end

M.losses = { boundary_loss = boundary_loss, hausdorff_loss = hausdorff_loss }

return M
