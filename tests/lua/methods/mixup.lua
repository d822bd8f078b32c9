-- mixup: Zhang et al., "mixup: beyond empirical risk minimization", ICLR 2018.
--
--   x = share a + (1 - share) b,  loss = share CE(f(x), class a) + (1 - share) CE(f(x), class b)
--   share: drawn from Beta(alpha, alpha) for each pair
--
-- The partners b are a second batch. `weight` of a loss is a factor of each sample.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local plane = { c = 1, h = 8, w = 8 }
local a, b = nn.input("image", plane), nn.input("other", plane)
local class_a, class_b = nn.input("class", { c = 1 }), nn.input("other_class", { c = 1 })
local share = nn.input("share", { c = 1 })

local x = share * a + (1 - share) * b
local logits = nn.linear(nn.global_pool(nn.relu(nn.conv(x, 4, 3))), 2)
local loss = nn.cross_entropy(logits, class_a, { weight = share })
  + nn.cross_entropy(logits, class_b, { weight = 1 - share })
local step = seg.step { loss = loss, optim = optim.adam { lr = 0.05 }, threads = 1 }
synthetic.weights(step)

local n = 8
local images, others = synthetic.discs(n), synthetic.discs(n, 1)
for i = 1, 20 do
  -- Beta(1, 1) is math.random(); here numbers that PyTorch has as well.
  local shares = synthetic.array({ n, 1 }, function(k) return 0.5 + 0.5 * math.sin(i + 1.7 * k) end)
  synthetic.show(i, step:run {
    image = images, class = synthetic.classes(n),
    other = others, other_class = synthetic.classes(n, 1), share = shares })
end
