-- Attention pooling: Ilse et al., "Attention-based deep multiple instance learning", ICML 2018.
--
--   z = sum over instances of a h,  a = softmax over instances of W (tanh(V h) sigmoid(U h))
--
-- A bag is a sample, its instances lie along w; the attention is an output, as a map of evidence.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local function attention_pool(h, width)
  local gate = nn.sigmoid(nn.linear(h, width, { name = "U" }))
  local score = nn.linear(nn.tanh(nn.linear(h, width, { name = "V" })) * gate, 1, { name = "W" })
  local a = seg.softmax(score, { axis = "w" })
  return seg.sum(a * h, { axes = { "w" } }), a
end

local bag = nn.input("bag", { c = 5, w = 8 })
local label = nn.input("label", { c = 1 })
local instances = nn.relu(nn.linear(bag, 8, { name = "instance" }))
local z, attention = attention_pool(instances, 4)
local logits = nn.linear(z, 1, { name = "bag" })
local step = seg.step { loss = nn.bce(logits, label), outputs = { attention = attention },
                        optim = optim.adam { lr = 0.05 }, threads = 1 }
synthetic.weights(step)

-- Bags of noise; in every second one the third instance is larger by 2.
local n = 6
local bags = synthetic.array({ n, 5, 8 }, function(i)
  return math.sin(1.7 * i) + ((i // 40 % 2 == 1 and i % 8 == 2) and 2 or 0)
end)
local labels = synthetic.array({ n, 1 }, function(k) return k % 2 end)
for i = 1, 20 do synthetic.show(i, (step:run { bag = bags, label = labels })) end
