-- Contrastive pre-training: Chen et al., "A simple framework for contrastive learning of visual
-- representations" (SimCLR), ICML 2020.
--
--   loss = mean over views i of -log (exp s(i, partner) / sum over k /= i of exp s(i, k))
--   s(i, k) = cosine of the embeddings i and k / temperature, over both views of all samples
--
-- seg.op.linear(a, b) takes the embeddings b of the batch as the weights of a linear layer, so its
-- result is the (N,N) products of all samples. The term k = i is exp(1 / temperature), which is
-- subtracted. In a recipe `twice` of set:batches makes the second view; nn.contrastive, whose
-- negatives are the other view alone, is built in.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local function unit(x) return x / seg.norm(x, { axes = { "c" }, keep = true }) end
local function sum(x) return seg.sum(x, { axes = { "c" } }) end

-- a, b: embeddings (N,C) of two views of the same samples.
local function nt_xent(a, b, temperature)
  a, b = unit(a), unit(b)
  local function products(x, y) return sum(seg.exp(seg.op.linear(x, y) / temperature)) end
  local own, partner = math.exp(1 / temperature), sum(a * b) / temperature
  local first = seg.log(products(a, b) + products(a, a) - own)
  local second = seg.log(products(b, a) + products(b, b) - own)
  return seg.mean((first + second) / 2 - partner)
end

local function embed(x)
  return nn.scope("embed", function()
    return nn.linear(nn.global_pool(nn.relu(nn.conv(x, 8, 3))), 4)
  end, { share = true })
end

local image = nn.input("image", { c = 1, h = 8, w = 8 })
local other = nn.input("other", { c = 1, h = 8, w = 8 })
local step = seg.step { loss = nt_xent(embed(image), embed(other), 0.5),
                        optim = optim.adam { lr = 0.01 }, threads = 1 }
synthetic.weights(step)

local n = 6
local images = synthetic.discs(n)
local brighter = synthetic.array({ n, 1, 8, 8 }, function(i) -- and mirrored along w
  return 1.2 * images:get(i // 64 + 1, 1, i // 8 % 8 + 1, 8 - i % 8) + 0.1
end)
for i = 1, 20 do synthetic.show(i, step:run { image = images, other = brighter }) end
