-- nn_loss_region.lua -- overlap losses as nodes: Dice with class weights, generalised Dice, focal
-- Tversky, clDice; a part of nn.lua.
--
-- Sums run over the positions of a sample, and the loss is a mean over samples: so it is right
-- whatever the parts in which a batch comes (accumulate, ranks, a short last batch). With p the
-- sigmoid or softmax of the logits, t the target of the class, m the mask and q the weight, of each
-- sample and class
--   I = sum m q p t,   P = sum m q p,   T = sum m q t.

local core = require "seg.core"
local elementwise = require "seg.recipe.elementwise"
local operands = require "seg.recipe.loss_operands"
local util = require "seg.util"

local op, options, none, fail = core.op, util.options, util.none, util.fail

local M = {}

-- The options that these losses share.
local function known_options(own)
  own.mask, own.weight, own.ignore, own.class_weights = none, none, none, none
  own.background, own.empty = false, "count"
  return own
end

-- Checks operands and shared options; returns the class weights of the classes that count.
local function check(what, x, t, o)
  operands.check_classes(what, x, t)
  operands.check_mask(what, o, x)
  operands.check_ignore(what, o.ignore)
  operands.check_flag(what, "background", o.background)
  operands.check_empty(what, o.empty)
  return operands.class_weights(what, x, o.class_weights)
end

-- Probabilities, targets (both with the mask and the weight in one factor, nil without) and class
-- weights of the classes that count: without the background of several classes.
local function classes(what, x, t, o, weights)
  local p, truth = operands.probabilities(x), operands.one_hot(what, x, t, o)
  local factor = operands.counted(t, o.ignore, o.mask)
  if o.weight then factor = factor and factor * o.weight or o.weight end
  if factor and factor.kind ~= "input" then factor = op.stop(factor) end
  if x.c == 1 or o.background then return p, truth, factor, weights end
  if factor and factor.c == x.c then factor = operands.foreground(factor) end
  weights = operands.foreground_weights(weights)
  return operands.foreground(p), operands.foreground(truth), factor, weights
end

-- I, P and T (N,C) of each sample and class.
local function sums(p, truth, factor)
  local own = factor and truth * factor or truth
  local both, predicted = p * own, factor and p * factor or p
  return operands.per_sample(both), operands.per_sample(predicted), operands.per_sample(own)
end

-- 1 where a pair of sample and class counts, or nil: all do.
local function counted(o, truth) return o.empty == "skip" and 1 - op.eq(truth, truth * 0) or nil end

-- a / b, and 1 where b is 0 (a class that neither has, with eps 0).
local function ratio(a, b)
  local none_there = elementwise.eq(b, 0)
  return op.select(1 - none_there, a / (b + none_there)) + none_there
end

-- dice_loss (without o.alpha) or tversky with weights of classes: ops.def has the formulas. o: the
-- checked options of nn.dice_loss, its mask without the ignored class.
function M.overlap(what, x, t, o, weights)
  if o.per ~= "sample" then
    fail("usage", '%s: class_weights go with per = "sample", the mean over samples, got per = "%s"',
         what, o.per)
  end
  operands.check_classes(what, x, t)
  operands.check_eps(what, o.eps)
  local p, truth, factor, list = classes(what, x, t, o, weights)
  local I, P, T = sums(p, truth, factor)
  local score
  if o.alpha then
    for _, key in ipairs { "alpha", "beta" } do operands.check_number(what, key, o[key], 0, 1e6) end
    score = ratio(I + o.eps, I + o.alpha * (P - I) + o.beta * (T - I) + o.eps)
  else
    score = ratio(2 * I + o.eps, P + T + o.eps)
  end
  return operands.mean_of_channels(1 - score, list, counted(o, T))
end

-- nn.generalized_dice(x, t, {eps=1e-5, empty, background, mask, weight, ignore}): Sudre and others,
-- "Generalised Dice overlap as a deep learning loss function", DLMIA 2017. Classes are weighted by
-- the inverse square of their volume:
--   mean over samples of 1 - (2 sum w I + eps) / (sum w (P + T) + eps),  w = (least T / T)^2
-- over classes. A factor common to all w cancels, so the smallest class present has w = 1, and eps
-- means the same for small and large images. A class without ground truth has w = 1 too, as in
-- MONAI (empty "skip": 0).
local function generalized_dice(x, t, o)
  local what = "nn.generalized_dice"
  o = options(what, o, known_options { eps = 1e-5 })
  local weights = check(what, x, t, o)
  operands.check_eps(what, o.eps, true)
  local p, truth, factor, list = classes(what, x, t, o, weights)
  local I, P, T = sums(p, truth, factor)
  T = op.stop(T)
  local there = elementwise.gt(T, 0)
  -- the smallest volume above 0; without any class 1e30, which is replaced below
  local least = -op.amax(-(T + (1 - there) * 1e30), { c = true })
  local w = least / (T + (1 - there))
  w = op.select(there, w * w)
  if o.empty == "count" then w = w + (1 - there) end
  if list then w = w * operands.vector(w, list) end
  local function over_classes(v) return op.sum(v, { c = true }) end
  return operands.mean(1 - (2 * over_classes(w * I) + o.eps)
                       / (over_classes(w * (P + T)) + o.eps))
end

-- nn.focal_tversky(x, t, {gamma=4/3, alpha=0.3, beta=0.7, eps=1, ...}): mean over samples and
-- classes of (1 - s)^(1 / gamma), s = (I + eps) / (I + alpha (P - I) + beta (T - I) + eps).
-- Abraham and Khan, "A novel focal Tversky loss function", ISBI 2019 (their alpha and beta are
-- exchanged). For 1 - s below 1e-6 the gradient is 0: that of a root is infinite at 0.
local function focal_tversky(x, t, o)
  local what = "nn.focal_tversky"
  o = options(what, o, known_options { gamma = 4 / 3, alpha = 0.3, beta = 0.7, eps = 1 })
  local weights = check(what, x, t, o)
  operands.check_number(what, "gamma", o.gamma, 0.1, 10)
  for _, key in ipairs { "alpha", "beta" } do operands.check_number(what, key, o[key], 0, 1e6) end
  operands.check_eps(what, o.eps)
  local p, truth, factor, list = classes(what, x, t, o, weights)
  local I, P, T = sums(p, truth, factor)
  local score = ratio(I + o.eps, I + o.alpha * (P - I) + o.beta * (T - I) + o.eps)
  local off = 1 - score
  off = elementwise.max(off, 1e-6) ^ (1 / o.gamma)
  return operands.mean_of_channels(off, list, counted(o, T))
end

-- Morphology by maximum pools over the neighbours of a position, as in the code of clDice: the
-- erosion takes the minimum over the two neighbours along each axis, the dilation the maximum over
-- the cube of 3 positions.
local function pooled(x, kd, kh, kw)
  return op.maxpool(x, { kd = kd, kh = kh, kw = kw, pd0 = kd // 2, pd1 = kd // 2, ph0 = kh // 2,
                         ph1 = kh // 2, pw0 = kw // 2, pw1 = kw // 2 })
end

local function eroded(x)
  local low = pooled(-x, 1, 1, 3)
  if x.rank > 1 then low = op.max(low, pooled(-x, 1, 3, 1)) end
  if x.rank > 2 then low = op.max(low, pooled(-x, 3, 1, 1)) end
  return -low
end

local function opened(x)
  local d, h = x.rank > 2 and 3 or 1, x.rank > 1 and 3 or 1
  return pooled(eroded(x), d, h, 3)
end

-- The soft skeleton: what an opening removes, at each of `steps` erosions.
local function skeleton(x, steps)
  local skel = op.relu(x - opened(x))
  for _ = 1, steps do
    x = eroded(x)
    local delta = op.relu(x - opened(x))
    skel = skel + op.relu(delta - skel * delta)
  end
  return skel
end

-- nn.cldice(x, t, {steps=3, eps=1, ...}): mean over samples and classes of 1 - 2 a b / (a + b)
--   a = (sum skeleton(p) t + eps) / (sum skeleton(p) + eps),
--   b = (sum skeleton(t) p + eps) / (sum skeleton(t) + eps):
-- precision and sensitivity of the topology. Shit and others, "clDice", CVPR 2021; steps: erosions,
-- at least the largest radius of a vessel in voxels.
local function cldice(x, t, o)
  local what = "nn.cldice"
  local known = known_options { steps = 3, eps = 1 }
  known.weight = nil -- a skeleton of weighted probabilities means nothing
  o = options(what, o, known)
  local weights = check(what, x, t, o)
  operands.check_whole(what, "steps", o.steps, 1, 100)
  operands.check_eps(what, o.eps, true)
  if x.rank == 0 then
    fail("usage", "%s: the prediction must have positions, (N,C,H,W) or (N,C,D,H,W), got %s", what,
         tostring(x))
  end
  local p, truth, factor, list = classes(what, x, t, o, weights)
  if factor then p, truth = p * factor, truth * factor end
  local of_p, of_truth = skeleton(p, o.steps), skeleton(truth, o.steps)
  local sum = operands.per_sample
  local precision = (sum(of_p * truth) + o.eps) / (sum(of_p) + o.eps)
  local sensitivity = (sum(of_truth * p) + o.eps) / (sum(of_truth) + o.eps)
  local score = 2 * precision * sensitivity / (precision + sensitivity)
  return operands.mean_of_channels(1 - score, list, counted(o, sum(truth)))
end

M.losses = { generalized_dice = generalized_dice, focal_tversky = focal_tversky,
             cldice = cldice }

return M
