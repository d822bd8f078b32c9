-- nn_loss_terms.lua -- losses that join other losses and networks: the weighted sum with learnt
-- uncertainties, the divergence of a variational autoencoder, the distance in the features of a
-- frozen network; a part of nn.lua.

local core = require "seg.core"
local operands = require "seg.recipe.loss_operands"
local util = require "seg.util"

local op, options, none, fail, is_node = core.op, util.options, util.none, util.fail, util.is_node

local M = {}

-- Functions of nn.lua: layer(kind, name), param(name, shape, rank, init), scope(name, f, o).
local made

-- nn.gaussian_kl(mean, logvar, {per="sample"}): the Kullback-Leibler divergence of the normal
-- distribution with this mean and logarithm of the variance from N(0, 1),
--   (mean^2 + exp(logvar) - 1 - logvar) / 2
-- summed over the numbers of a sample and averaged over samples, or with per = "element" averaged
-- over all numbers. Kingma and Welling, "Auto-encoding variational Bayes", ICLR 2014, appendix B.
-- exp(logvar) is finite up to a logvar of 88.
function M.gaussian_kl(mean, logvar, o)
  local what = "nn.gaussian_kl"
  o = options(what, o, { per = "sample" })
  if o.per ~= "sample" and o.per ~= "element" then
    fail("usage", '%s: per must be "sample" or "element", got %s', what, tostring(o.per))
  end
  if not is_node(logvar) then
    fail("usage", "%s: the logarithm of the variance must be a node of the network, got %s", what,
         type(logvar))
  end
  operands.check_extents(what, "logarithm of the variance", mean, logvar, mean.c)
  local each = 0.5 * (mean * mean + op.exp(logvar) - 1 - logvar)
  return operands.mean(o.per == "sample" and operands.per_sample(each, true) or each)
end

local KINDS = { classification = 1, regression = 0.5 }

-- nn.uncertainty_loss({a, b, ...}, {kinds, init=0, name}): the sum of losses with learnt weights,
--   sum over i of f exp(-s_i) L_i + s_i / 2,  f = 1 for classification and 1/2 for regression,
-- with s_i the logarithm of the variance of task i, a parameter that starts at `init`. Kendall, Gal
-- and Cipolla, "Multi-task learning using uncertainty to weigh losses", CVPR 2018. The mean of a
-- parameter over ranks is the parameter, and so is its gradient that of one process.
function M.uncertainty_loss(losses, o)
  local what = "nn.uncertainty_loss"
  o = options(what, o, { kinds = none, init = 0, name = none })
  if type(losses) ~= "table" or is_node(losses) or #losses < 2 then
    fail("usage", "%s: needs a list of two losses or more, { a, b }, got %s", what,
         type(losses) == "table" and #losses .. " losses" or type(losses))
  end
  for i, loss in ipairs(losses) do
    if not is_node(loss) or loss.rank ~= -2 then
      fail("usage", "%s: loss %d must be a loss, one number, got %s", what, i, tostring(loss))
    end
  end
  if o.kinds ~= nil and (type(o.kinds) ~= "table" or #o.kinds ~= #losses) then
    fail("usage", "%s: kinds must be a list of %d texts, one for each loss, got %s", what, #losses,
         type(o.kinds) == "table" and #o.kinds .. " texts" or type(o.kinds))
  end
  operands.check_number(what, "init", o.init, -20, 20)
  local name, sum = made.layer("uncertainty", o.name), nil
  for i, loss in ipairs(losses) do
    local kind = o.kinds and o.kinds[i] or "classification"
    if not KINDS[kind] then
      fail("usage", '%s: kinds[%d] must be "classification" or "regression", got %s', what, i,
           tostring(kind))
    end
    local s = operands.mean(made.param(string.format("%s.log_variance%d", name, i), { 1 }, -1,
                                       { init = "const", value = o.init, decayed = false }))
    local term = KINDS[kind] * op.exp(-s) * loss + 0.5 * s
    sum = sum and sum + term or term
  end
  return sum
end

-- The features of a picture, a list of nodes, by the network f in the frozen scope `name`.
local function features_of(what, name, f, x)
  local list = made.scope(name, function() return f(x) end, { share = true, frozen = true })
  if is_node(list) then list = { list } end
  if type(list) ~= "table" or #list == 0 then
    fail("usage", "%s: the function of features must return a node or a list of nodes, got %s",
         what, type(list) == "table" and "an empty list" or type(list))
  end
  for i, node in ipairs(list) do
    if not is_node(node) then
      fail("usage", "%s: result %d of the function of features must be a node, got %s", what, i,
           type(node))
    end
  end
  return list
end

-- nn.perceptual_loss(x, t, f, {weights, distance="mse", name="perceptual"}): the weighted sum of
-- the distances (nn.mse or nn.mae) between the features of x and t; f(image) returns a node or a
-- list of nodes. f runs twice in the scope `name`, with the same parameters, which are not trained:
-- init = { weights = FILE, match = "^perceptual" } of the recipe loads them. Johnson, Alahi and
-- Fei-Fei, "Perceptual losses for real-time style transfer and super-resolution", ECCV 2016.
function M.perceptual_loss(x, t, f, o)
  local what = "nn.perceptual_loss"
  o = options(what, o, { weights = none, distance = "mse", name = "perceptual" })
  util.check_pair(what, x, t, false)
  operands.check_extents(what, "target", x, t, x.c)
  if type(f) ~= "function" then
    fail("usage", "%s: needs a function of an image that returns its features, got %s", what,
         type(f))
  end
  if o.distance ~= "mse" and o.distance ~= "mae" then
    fail("usage", '%s: distance must be "mse" or "mae", got %s', what, tostring(o.distance))
  end
  if t.kind ~= "input" then t = op.stop(t) end
  local found, wanted = features_of(what, o.name, f, x), features_of(what, o.name, f, t)
  if o.weights ~= nil and (type(o.weights) ~= "table" or #o.weights ~= #found) then
    fail("usage", "%s: weights must be a list of %d numbers, one for each feature, got %s", what,
         #found, type(o.weights) == "table" and #o.weights .. " numbers" or type(o.weights))
  end
  local sum
  for i, feature in ipairs(found) do
    local weight = o.weights and operands.check_number(what, string.format("weights[%d]", i),
                                                       o.weights[i], 0, 1e30) or 1
    local term = weight * op[o.distance](feature, wanted[i], nil, nil, {})
    sum = sum and sum + term or term
  end
  return sum
end

-- {name = function}
return function(given)
  made = given
  return M
end
