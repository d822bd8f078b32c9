-- Lovasz hinge: Berman et al., "The Lovasz-softmax loss: a tractable surrogate for the optimization
-- of the intersection-over-union measure in neural networks", CVPR 2018.
--
--   e = max(0, 1 - x (2 t - 1)) in descending order, t in the same order,
--   J(k) = 1 - (T - t1 - .. - tk) / (T + (1 - t1) + .. + (1 - tk)),  T = sum t
--   loss = mean over images of sum over k of e(k) (J(k) - J(k - 1))
--
-- nn.lovasz_hinge is the same built in.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local function lovasz_hinge(x, t)
  local flat = { c = 1, w = x.h * x.w }
  x, t = seg.reshape(x, flat), seg.reshape(t, flat)
  local errors, order = seg.sort(seg.relu(1 - x * (2 * t - 1)), { axis = "w", descending = true })
  local truth = seg.gather(t, order, { axis = "w" })
  local total = seg.sum(truth, { axes = { "w" }, keep = true })
  local both = total - seg.cumsum(truth, { axis = "w" })
  local either = total + seg.cumsum(1 - truth, { axis = "w" })
  local jaccard = 1 - both / either
  local before = nn.pad(nn.slice(jaccard, { w = { 1, flat.w - 1 } }), { w = { 1, 0 } })
  return seg.mean(seg.sum(errors * (jaccard - before), { axes = { "w" } }))
end

local image, mask = synthetic.discs(4)
local x = nn.input("image", { c = 1, h = 8, w = 8 })
local t = nn.input("mask", { c = 1, h = 8, w = 8 })
local logits = nn.conv(nn.relu(nn.conv(x, 4, 3)), 1, 1)
local step = seg.step { loss = lovasz_hinge(logits, t), optim = optim.adam { lr = 0.02 },
                        threads = 1 }
synthetic.weights(step)
for i = 1, 20 do synthetic.show(i, step:run { image = image, mask = mask }) end
