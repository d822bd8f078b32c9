-- nn_loss_classes.lua -- losses of several classes, one a position, as nodes; a part of nn.lua.
--
-- Logits (N,C,...), C >= 2; the target (N,1,...) holds class numbers from 0.

local core = require "seg.core"
local elementwise = require "seg.recipe.elementwise"
local operands = require "seg.recipe.loss_operands"
local util = require "seg.util"

local op, options, none = core.op, util.options, util.none

local M = {}

-- nn.softmax_focal(x, t, {gamma=2, class_weights, ignore=-100, mask, weight}): the focal loss of
-- one class a position. Lin and others, "Focal loss for dense object detection", ICCV 2017, with
-- the softmax as p:
--   sum m q w[t] (1 - p[t])^gamma (-log p[t]) / sum m w[t]
-- over the positions that count. For 1 - p[t] below 1e-7 its factor has no gradient: that of a root
-- (gamma below 1) is infinite at 0.
local function softmax_focal(x, t, o)
  local what = "nn.softmax_focal"
  o = options(what, o, { gamma = 2, ignore = -100, class_weights = none, mask = none,
                         weight = none })
  operands.check_numbers(what, x, t, o)
  operands.check_number(what, "gamma", o.gamma, 0, 100)
  local weights = operands.class_weights(what, x, o.class_weights)
  local one_hot = operands.one_hot(what, x, t, o)
  local log_p = op.sum(operands.log_softmax(x) * one_hot, { c = true })
  local loss = -log_p
  if o.gamma > 0 then
    local wrong = 1 - op.exp(log_p)
    loss = loss * elementwise.max(wrong, 1e-7) ^ o.gamma
  end
  return operands.mean_of_targets(x, one_hot, loss, weights,
                                  operands.counted(t, o.ignore, o.mask), o.weight)
end

M.losses = { softmax_focal = softmax_focal }

return M
