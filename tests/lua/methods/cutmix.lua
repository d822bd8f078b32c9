-- CutMix: Yun et al., "CutMix: regularization strategy to train strong classifiers with localizable
-- features", ICCV 2019.
--
--   x = box b + (1 - box) a,  box: 1 inside of a random rectangle, else 0
--   loss = (1 - s) CE(f(x), class a) + s CE(f(x), class b),  s = mean(box)
--
-- A rectangle is four numbers for each sample; the network draws it by comparisons, so that no
-- mask has to be made for each batch.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local plane = { c = 1, h = 8, w = 8 }
local a, b = nn.input("image", plane), nn.input("other", plane)
local class_a, class_b = nn.input("class", { c = 1 }), nn.input("other_class", { c = 1 })
local corner = nn.input("corner", { c = 4 }) -- top, left, bottom, right; the last two are outside

local function positions(axis) return seg.cumsum(a * 0 + 1, { axis = axis }) - 1 end
local h, w = positions "h", positions "w"
local top, left, bottom, right = seg.split(corner, { axis = "c", parts = 4 })
local box = seg.ge(h, top) * seg.lt(h, bottom) * seg.ge(w, left) * seg.lt(w, right)

local x = box * b + (1 - box) * a
local share = seg.mean(box, { axes = { "h", "w" } })
local logits = nn.linear(nn.global_pool(nn.relu(nn.conv(x, 4, 3))), 2)
local loss = nn.cross_entropy(logits, class_a, { weight = 1 - share })
  + nn.cross_entropy(logits, class_b, { weight = share })
local step = seg.step { loss = loss, optim = optim.adam { lr = 0.05 }, threads = 1 }
synthetic.weights(step)

local n = 8
local images, others = synthetic.discs(n), synthetic.discs(n, 1)
for i = 1, 20 do
  local corners = synthetic.array({ n, 4 }, function(k) -- 3 x 4 positions, anywhere
    local place = (i + k // 4 * 3) % 5
    return ({ place, 4 - place, place + 3, 8 - place })[k % 4 + 1]
  end)
  synthetic.show(i, step:run {
    image = images, class = synthetic.classes(n),
    other = others, other_class = synthetic.classes(n, 1), corner = corners })
end
