-- own_loss.lua -- the network of brain_unet.lua with a loss written in the recipe, for its price.
--
--   segengine tests/bench/own_loss.lua bench                 a step with the loss below
--   segengine tests/bench/own_loss.lua bench --own false     with nn.bce_dice
--   segengine tests/bench/own_loss.lua plan --gpu h200       bytes and launches; also --own false

local seg = require "seg"
local data, net, nn, optim, metric = seg.data, seg.net, seg.nn, seg.optim, seg.metric

local cfg = seg.config {
  own = true, -- the loss below; else nn.bce_dice
  size = 256, base = 32, batch = 8, patients = 6, slices = 8,
  presets = { full = {} },
}

local cases = data.phantom { patients = cfg.patients, size = cfg.size, slices = cfg.slices }
local train, valid = cases:split { valid = 2, test = 0, seed = 1 }
local function prepare(set)
  return set:normalize { method = "zscore" }:slices { axis = "axial" }:batches { size = cfg.batch }
end
train, valid = prepare(train), prepare(valid)

local shape = { c = 1, h = cfg.size, w = cfg.size }
local image, truth = nn.input("image", shape), nn.input("mask", shape)
local logits = net.unet(image, { base = cfg.base })
local p = nn.sigmoid(logits)

-- Neighbours of p along an axis: their differences.
local function step_along(axis)
  local n = cfg.size - 1
  local function from(first) return seg.op.slice(p, { [axis .. "0"] = first, [axis] = n }) end
  return seg.mean(seg.abs(from(1) - from(0)))
end

local loss
if cfg.own then
  local dice = 1 - (2 * seg.mean(p * truth) + 1e-6) / (seg.mean(p) + seg.mean(truth) + 1e-6)
  local right = seg.clamp(seg.where(seg.gt(truth, 0.5), p, 1 - p), 1e-7, 1)
  local focal = -seg.mean((1 - right) ^ 2 * seg.log(right))
  local l1 = seg.mean(seg.abs(p - truth))
  local variation = step_along("h") + step_along("w")
  loss = 0.7 * dice + 0.3 * focal + 0.1 * l1 + 0.01 * variation
else
  loss = nn.bce_dice(logits, truth)
end

seg.recipe {
  inputs = { image, truth }, outputs = { mask = p }, loss = loss, train = train, valid = valid,
  optim = optim.adamw { lr = 1e-3 }, epochs = 1,
  metrics = { dice = metric.dice(logits, truth) }, best = { "dice", "max" },
}
