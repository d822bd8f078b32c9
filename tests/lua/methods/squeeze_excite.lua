-- Squeeze and excitation: Hu et al., "Squeeze-and-excitation networks", CVPR 2018.
--
--   y = x sigmoid(W2 relu(W1 mean(x))),  the mean over all positions, a factor for each channel
--
-- net.squeeze_excite is the same built in.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local function squeeze_excite(x, reduction)
  local mean = seg.mean(x, { axes = { "h", "w" } })
  local hidden = nn.relu(nn.linear(mean, x.c // reduction, { name = "squeeze" }))
  return x * nn.sigmoid(nn.linear(hidden, x.c, { name = "excite" }))
end

local x = nn.input("image", { c = 1, h = 8, w = 8 })
local t = nn.input("mask", { c = 1, h = 8, w = 8 })
local features = squeeze_excite(nn.relu(nn.conv(x, 8, 3)), 4)
local logits = nn.conv(features, 1, 1)
local step = seg.step { loss = nn.bce(logits, t), optim = optim.adam { lr = 0.02 }, threads = 1 }
synthetic.weights(step)
local image, mask = synthetic.discs(4)
for i = 1, 20 do synthetic.show(i, step:run { image = image, mask = mask }) end
