-- clDice: Shit et al., "clDice - a novel topology-preserving loss function for tubular structure
-- segmentation", CVPR 2021.
--
--   loss = 0.5 (1 - Dice(p, t)) + 0.5 (1 - 2 a b / (a + b))
--   a = sum(S(p) t) / sum S(p),  b = sum(S(t) p) / sum S(t),  S: the soft skeleton
--
-- The skeleton sums what an opening removes after each erosion. nn.cldice is the same built in.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local function pool(x, kernel, pad) return nn.maxpool(x, kernel, { stride = 1, pad = pad }) end
local function dilate(x) return pool(x, { 3, 3 }, { 1, 1 }) end
local function erode(x)
  return seg.min(-pool(-x, { 3, 1 }, { 1, 0 }), -pool(-x, { 1, 3 }, { 0, 1 }))
end

local function skeleton(x, erosions)
  local s = seg.relu(x - dilate(erode(x)))
  for _ = 1, erosions do
    x = erode(x)
    local delta = seg.relu(x - dilate(erode(x)))
    s = s + seg.relu(delta - s * delta)
  end
  return s
end

-- Means instead of sums: the number of voxels cancels, but for the smoothing by 1 voxel.
local function overlap(top, bottom, voxels)
  return (seg.mean(top) + 1 / voxels) / (seg.mean(bottom) + 1 / voxels)
end

local function cldice(p, t, erosions, voxels)
  local sp, st = skeleton(p, erosions), skeleton(t, erosions)
  local a, b = overlap(sp * t, sp, voxels), overlap(st * p, st, voxels)
  local dice = overlap(2 * p * t, p + t, voxels)
  return 0.5 * (1 - dice) + 0.5 * (1 - 2 * a * b / (a + b))
end

local n = 4
local image, mask = synthetic.discs(n)
local x = nn.input("image", { c = 1, h = 8, w = 8 })
local t = nn.input("mask", { c = 1, h = 8, w = 8 })
local p = nn.sigmoid(nn.conv(nn.relu(nn.conv(x, 4, 3)), 1, 1))
local step = seg.step { loss = cldice(p, t, 3, n * 8 * 8), optim = optim.adam { lr = 0.02 },
                        threads = 1 }
synthetic.weights(step)
for i = 1, 20 do synthetic.show(i, step:run { image = image, mask = mask }) end
