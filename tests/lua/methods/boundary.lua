-- Boundary loss: Kervadec et al., "Boundary loss for highly unbalanced segmentation", MIDL 2019.
--
--   loss = (1 - alpha) Dice loss + alpha mean(p d),  alpha rising from step to step
--   d: signed distance from the boundary of the ground truth, negative inside
--
-- alpha is a parameter that is not trained and that the loop sets: in a recipe, at:set of a hook
-- does. There cases:signed_distance makes d; nn.boundary_loss is the second term built in.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local image, mask, distance = synthetic.discs(4)
local x = nn.input("image", { c = 1, h = 8, w = 8 })
local t = nn.input("mask", { c = 1, h = 8, w = 8 })
local d = nn.input("distance", { c = 1, h = 8, w = 8 })
local alpha = nn.param("alpha", { 1 }, { trained = false })
local p = nn.sigmoid(nn.conv(nn.relu(nn.conv(x, 4, 3)), 1, 1))

-- One number for each sample.
local function sum(y) return seg.sum(y, { axes = { "h", "w" } }) end
local dice = 1 - (2 * sum(p * t) + 1) / (sum(p) + sum(t) + 1)
local boundary = sum(p * d) / (x.h * x.w)
local loss = seg.mean((1 - alpha) * dice + alpha * boundary)

local step = seg.step { loss = loss, optim = optim.adam { lr = 0.02 }, threads = 1 }
synthetic.weights(step)
for i = 1, 20 do
  step:set("alpha", seg.array { shape = { 1 }, data = { 0.02 * i } })
  synthetic.show(i, step:run { image = image, mask = mask, distance = distance })
end
