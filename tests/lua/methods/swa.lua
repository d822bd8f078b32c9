-- Stochastic weight averaging: Izmailov et al., "Averaging weights leads to wider optima and better
-- generalization", UAI 2018, by a hook of a recipe.
--
--   mean = mean + (w - mean) / k  after epoch k;  the network of the mean is the result
--
-- The hook copies the weights into one model, and a second one follows it. This mean is not in the
-- checkpoint of an epoch: `swa` of a recipe is built in, and goes on after --resume.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local cfg = seg.config { epochs = 20, batch = 4, threads = 1 }
local plane = { c = 1, h = 8, w = 8 }
local x, t = nn.input("image", plane), nn.input("mask", plane)
local logits = nn.conv(nn.relu(nn.conv(x, 4, 3)), 1, 1)
local loss = nn.bce(logits, t)

local current = seg.model { outputs = { loss = loss }, threads = 1 }
local mean = seg.model { outputs = { loss = loss }, threads = 1 }
local image, mask = synthetic.discs(4)
local function on_epoch(at)
  for name in pairs(at:parameters()) do current:set(name, at:get(name)) end
  mean:follow(current, (at.epoch - 1) / at.epoch)
  synthetic.show(at.epoch, mean:run { image = image, mask = mask }.loss:get())
  if at.epoch < at.epochs then return end
  for name in pairs(at:parameters()) do at:set(name, mean:get(name)) end
end
local function on_batch(at)
  if at.step == 1 then synthetic.weights(at) end
end

seg.recipe {
  inputs = { x, t }, outputs = { mask = nn.sigmoid(logits) }, loss = loss,
  train = synthetic.cases(cfg.out .. "/discs", 4):batches { size = cfg.batch },
  optim = optim.adam { lr = 0.02 }, on_batch = on_batch, on_epoch = on_epoch }
