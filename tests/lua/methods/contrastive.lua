-- Contrastive pre-training: Chen et al., "A simple framework for contrastive learning of visual
-- representations" (SimCLR), ICML 2020.
--
--   loss = mean over views i of -log (exp(s(i, partner)) / sum over k /= i of exp(s(i, k)))
--   s(i, k) = cosine of the embeddings i and k / temperature, over both views of all samples
--
-- Samples of a batch do not see each other in a network, so the views lie along d of one sample;
-- array:reshape { 1, c, n, h, w } takes a batch of one channel there. nn.contrastive(a, b), the
-- loss with the other samples' second views alone as negatives, is built in for batches.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

-- x: (1,C,W), an embedding at each w, the second views behind the n first ones.
local function nt_xent(x, n, temperature)
  x = x / seg.norm(x, { axes = { "c" }, keep = true })
  local s = seg.matmul(x, x, { transpose_b = true }) / temperature
  local row = seg.cumsum(s * 0 + 1, { axis = "w" })
  local column = seg.cumsum(s * 0 + 1, { axis = "c" })
  local others = seg.where(seg.eq(row, column), -1e9, s)
  local partner = seg.eq(seg.abs(row - column), n)
  local positive = seg.sum(partner * s, { axes = { "c" } })
  return seg.mean(seg.logsumexp(others, { axes = { "c" }, keep = true }) - positive)
end

local n = 6
local a = nn.input("first", { c = 1, d = n, h = 8, w = 8 })
local b = nn.input("second", { c = 1, d = n, h = 8, w = 8 })
local views = seg.concat({ a, b }, { axis = "d" })
local features = nn.relu(nn.conv(views, 8, { 1, 3, 3 }))
local embedding = nn.linear(seg.mean(features, { axes = { "h", "w" } }), 4)
local step = seg.step { loss = nt_xent(embedding, n, 0.5), optim = optim.adam { lr = 0.02 },
                        threads = 1 }
synthetic.weights(step)

local images, noisy = synthetic.discs(n), synthetic.array({ n, 1, 8, 8 }, function() return 0 end)
for k = 1, n do -- the second view: brighter, and mirrored along w
  for h = 1, 8 do
    for w = 1, 8 do noisy:set(1.2 * images:get(k, 1, h, 9 - w) + 0.1, k, 1, h, w) end
  end
end
local first, second = images:reshape { 1, 1, n, 8, 8 }, noisy:reshape { 1, 1, n, 8, 8 }
for i = 1, 20 do synthetic.show(i, step:run { first = first, second = second }) end
