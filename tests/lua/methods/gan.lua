-- GAN: Goodfellow et al., "Generative adversarial nets", NeurIPS 2014, with the loss of the
-- generator that does not saturate.
--
--   D: -log D(real) - log(1 - D(G(z))),  G: -log D(G(z))
--
-- Two steps with an optimiser each take turns. A step has its own copy of all parameters, so
-- `follow` fetches the part that the other one has trained. seg.stop spares D the gradient of G.
-- The loss shown is that of D.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local function generator(z)
  return nn.scope("G", function()
    local y = nn.linear(nn.relu(nn.linear(z, 16)), 64)
    return nn.tanh(seg.reshape(y, { c = 1, h = 8, w = 8 }))
  end)
end
local function discriminator(x)
  return nn.scope("D", function()
    local y = nn.leaky_relu(nn.conv(x, 4, 3), 0.2)
    return nn.linear(nn.global_pool(y), 1)
  end, { share = true })
end

local z, real = nn.input("z", { c = 4 }), nn.input("real", { c = 1, h = 8, w = 8 })
local fake = generator(z)
local on_real, on_fake = discriminator(real), discriminator(seg.stop(fake))
local judged = discriminator(fake)
local d = seg.step {
  loss = nn.bce(on_real, on_real * 0 + 1) + nn.bce(on_fake, on_fake * 0),
  optim = optim.adam { lr = 0.02, betas = { 0.5, 0.999 } }, frozen = { "G" }, threads = 1 }
local g = seg.step {
  loss = nn.bce(judged, judged * 0 + 1),
  optim = optim.adam { lr = 0.01, betas = { 0.5, 0.999 } }, frozen = { "D" }, threads = 1 }
synthetic.weights(d)
synthetic.weights(g)

local n = 4
local images = synthetic.discs(n)
for i = 1, 20 do
  local noise = synthetic.wave({ n, 4 }, i)
  d:follow(g, 0, "^G%.")
  local loss = d:run { z = noise, real = images }
  g:follow(d, 0, "^D%.")
  g:run { z = noise }
  synthetic.show(i, loss)
end
