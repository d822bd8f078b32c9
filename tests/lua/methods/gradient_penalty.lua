-- Gradient penalty: Gulrajani et al., "Improved training of Wasserstein GANs", NeurIPS 2017, with
-- finite differences for the gradient.
--
--   loss = mean D(fake) - mean D(real) + 10 mean (abs(D(x + h u) - D(x - h u)) / (2 h) - 1)^2
--   x = e real + (1 - e) fake,  u = (real - fake) / norm(real - fake)
--
-- A loss cannot contain a gradient: second derivatives are not computed. The slope of D along u,
-- which two more runs of D have, takes the place of the norm of its gradient at x. It is at most
-- the norm, and equal to it for the best D between the pairs of the optimal coupling (proposition 1
-- of the paper). For R1, the square of the slope along seg.normal(x) has the squared norm as mean.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local function critic(x)
  return nn.scope("D", function()
    return nn.linear(nn.flatten(nn.tanh(nn.conv(x, 4, 3))), 1)
  end, { share = true })
end

local plane = { c = 1, h = 8, w = 8 }
local real, fake = nn.input("real", plane), nn.input("fake", plane)
local e = nn.input("e", { c = 1 }) -- drawn from 0 to 1; or seg.uniform(real)
local x = e * real + (1 - e) * fake
local h, apart = 0.1, real - fake
local u = apart / seg.norm(apart, { axes = { "c", "h", "w" }, keep = true })
local slope = seg.abs(critic(x + h * u) - critic(x - h * u)) / (2 * h)
local loss = seg.mean(critic(fake)) - seg.mean(critic(real)) + 10 * seg.mean((slope - 1) ^ 2)

local n = 4
local step = seg.step { loss = loss, optim = optim.adam { lr = 0.01 }, threads = 1 }
synthetic.weights(step)
local images = synthetic.discs(n)
for i = 1, 20 do
  local shares = synthetic.array({ n, 1 }, function(k) return 0.5 + 0.5 * math.sin(i + 1.7 * k) end)
  synthetic.show(i, step:run { real = images, fake = synthetic.wave({ n, 1, 8, 8 }, 1, 0.5),
                               e = shares })
end
