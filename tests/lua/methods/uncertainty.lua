-- Uncertainty weighting: Kendall et al., "Multi-task learning using uncertainty to weigh losses",
-- CVPR 2018.
--
--   loss = exp(-s1) CE + s1 / 2 + exp(-s2) MSE / 2 + s2 / 2,  s: learnt logarithms of variances
--
-- One task is the mask, the other its area. nn.uncertainty_loss is the same built in.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local function weighted(loss, name, factor)
  local s = nn.param(name, { 1 }, { decay = false })
  return seg.mean(factor * seg.exp(-s) * loss + s / 2)
end

local x = nn.input("image", { c = 1, h = 8, w = 8 })
local t = nn.input("mask", { c = 1, h = 8, w = 8 })
local features = nn.relu(nn.conv(x, 4, 3))
local logits = nn.conv(features, 1, 1)
local area = nn.linear(nn.global_pool(features), 1)
local wanted = seg.sum(t, { axes = { "h", "w" } }) / 10
local loss = weighted(nn.bce(logits, t), "mask_log_variance", 1)
  + weighted(nn.mse(area, wanted), "area_log_variance", 0.5)

local step = seg.step { loss = loss, optim = optim.adam { lr = 0.02 }, threads = 1 }
synthetic.weights(step)
local image, mask = synthetic.discs(4)
for i = 1, 20 do synthetic.show(i, step:run { image = image, mask = mask }) end
