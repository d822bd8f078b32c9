-- Focal Tversky loss: Abraham and Khan, "A novel focal Tversky loss function with improved
-- attention U-Net for lesion segmentation", ISBI 2019.
--
--   TI = (I + eps) / (I + alpha FP + beta FN + eps),  I = sum p t, FP = sum p (1 - t),
--   FN = sum (1 - p) t
--   loss = mean over images of (1 - TI)^(1 / gamma)
--
-- nn.focal_tversky is the same built in.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local function focal_tversky(p, t, o)
  local function sum(y) return seg.sum(y, { axes = { "h", "w" } }) end
  local both = sum(p * t) + o.eps
  local index = both / (both + o.alpha * sum(p * (1 - t)) + o.beta * sum((1 - p) * t))
  return seg.mean((1 - index) ^ (1 / o.gamma))
end

local image, mask = synthetic.discs(4)
local x = nn.input("image", { c = 1, h = 8, w = 8 })
local t = nn.input("mask", { c = 1, h = 8, w = 8 })
local p = nn.sigmoid(nn.conv(nn.relu(nn.conv(x, 4, 3)), 1, 1))
local loss = focal_tversky(p, t, { alpha = 0.3, beta = 0.7, gamma = 4 / 3, eps = 1 })
local step = seg.step { loss = loss, optim = optim.adam { lr = 0.02 }, threads = 1 }
synthetic.weights(step)
for i = 1, 20 do synthetic.show(i, step:run { image = image, mask = mask }) end
