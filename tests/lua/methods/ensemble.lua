-- Deep ensemble with a diversity term: Lakshminarayanan et al., "Simple and scalable predictive
-- uncertainty estimation using deep ensembles", NeurIPS 2017; the term is that of negative
-- correlation learning, Liu and Yao, Neural Networks 1999.
--
--   loss = mean over members of mean (p_m - t)^2 - diversity mean (p_m - q)^2,  q = mean of p_m
--
-- All members train in one step, each in a scope of its own; the variance of p_m over the members
-- is an output, as a map of uncertainty.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local function ensemble(x, count)
  local members, sum = {}, 0
  for m = 1, count do
    members[m] = nn.scope("member" .. m, function()
      return nn.sigmoid(nn.conv(nn.relu(nn.conv(x, 4, 3)), 1, 1))
    end)
    sum = sum + members[m]
  end
  return members, sum / count
end

local x = nn.input("image", { c = 1, h = 8, w = 8 })
local t = nn.input("mask", { c = 1, h = 8, w = 8 })
local members, mean = ensemble(x, 3)
local diversity, loss, variance = 0.5, 0, 0
for _, p in ipairs(members) do
  loss = loss + nn.mse(p, t) / #members
  variance = variance + (p - mean) ^ 2 / #members
end
loss = loss - diversity * seg.mean(variance)

local step = seg.step { loss = loss, outputs = { mask = mean, uncertainty = variance },
                        optim = optim.adam { lr = 0.02 }, threads = 1 }
synthetic.weights(step)
local image, mask = synthetic.discs(4)
for i = 1, 20 do
  synthetic.show(i, (step:run { image = image, mask = mask }))
end
