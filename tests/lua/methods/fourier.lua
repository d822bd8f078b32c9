-- Fourier features: Tancik et al., "Fourier features let networks learn high frequency functions in
-- low dimensional domains", NeurIPS 2020.
--
--   features(v) = cos(2 pi B v), sin(2 pi B v),  v: coordinates from 0 to 1, B: fixed frequencies
--
-- A coordinate network learns one image. B is a linear layer that is frozen; its weights come from
-- a normal distribution, whose deviation sets the finest detail (here from a formula).

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local function fourier(v, count)
  local angle = 2 * math.pi * nn.linear(v, count, { name = "B", bias = false })
  return seg.cos(angle) .. seg.sin(angle)
end

local image = nn.input("image", { c = 1, h = 8, w = 8 })
-- Coordinates are made of an input, so that they have the extents of every image.
local function along(axis, extent)
  return (seg.cumsum(image * 0 + 1, { axis = axis }) - 0.5) / extent
end
local v = along("h", image.h) .. along("w", image.w)
local hidden = nn.relu(nn.linear(fourier(v, 8), 16, { name = "hidden" }))
local y = nn.linear(hidden, 1, { name = "value" })
local step = seg.step { loss = nn.mse(y, image), frozen = { "B" },
                        optim = optim.adam { lr = 0.02 }, threads = 1 }
synthetic.weights(step)
step:set("B.weight", synthetic.wave({ 8, 2 }, 0, 3))

local images = synthetic.discs(1)
for i = 1, 20 do synthetic.show(i, step:run { image = images }) end
