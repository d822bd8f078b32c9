-- Learnt positional embedding: Dosovitskiy et al., "An image is worth 16 x 16 words: transformers
-- for image recognition at scale", ICLR 2021.
--
--   y = layers(tokens + place),  place: a learnt vector for each position, equal for all samples
--
-- Behind it one head of attention, softmax(q k' / sqrt(C)) v, with the tokens along w. The target
-- is the position itself, which no network without an embedding could learn.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local function attend(x)
  local all = nn.linear(x, 3 * x.c, { name = "qkv" })
  local q, k, v = seg.split(all, { axis = "c", parts = 3 })
  local scores = seg.matmul(q, k, { transpose_b = true }) / math.sqrt(q.c)
  return x + seg.matmul(seg.softmax(scores), v)
end

local image = nn.input("image", { c = 1, h = 8, w = 8 })
local t = nn.input("target", { c = 1, w = 16 })
local patches = nn.conv(image, 6, 2, { stride = 2, pad = 0, name = "patch" })
local tokens = seg.reshape(patches, { c = 6, w = 16 })
local place = nn.param("place", { 1, 6, 16 }, { init = { normal = 0.02 } })
local y = nn.linear(attend(tokens + place), 1, { name = "head" })
local step = seg.step { loss = nn.mse(y, t), optim = optim.adam { lr = 0.02 }, threads = 1 }
synthetic.weights(step)

local n = 4
local images = synthetic.discs(n)
local targets = synthetic.array({ n, 1, 16 }, function(i) return i % 16 / 16 end)
for i = 1, 20 do synthetic.show(i, step:run { image = images, target = targets }) end
