-- Variational autoencoder: Kingma and Welling, "Auto-encoding variational Bayes", ICLR 2014.
--
--   loss = E[-log p(x | z)] + KL(q(z | x), N(0, 1)),  z = mean + exp(log_var / 2) noise
--   KL = 1/2 sum (mean^2 + exp(log_var) - 1 - log_var)
--
-- The noise is an input here, so that others can have the same; seg.normal(mean) draws it in each
-- training step and is 0 in evaluation. nn.gaussian_kl is the KL term built in.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local x = nn.input("mask", { c = 1, h = 8, w = 8 })
local noise = nn.input("noise", { c = 3 })

local hidden = nn.relu(nn.linear(nn.flatten(x), 16, { name = "encode" }))
local mean = nn.linear(hidden, 3, { name = "mean" })
local log_var = nn.linear(hidden, 3, { name = "log_var" })
local z = mean + seg.exp(log_var / 2) * noise
local back = nn.linear(nn.relu(nn.linear(z, 16, { name = "decode" })), 64, { name = "pixels" })
local logits = seg.reshape(back, { c = 1, h = 8, w = 8 })

local likelihood = 64 * nn.bce(logits, x) -- the sum over an image, the mean over the batch
local kl = 0.5 * mean.c * seg.mean(mean ^ 2 + seg.exp(log_var) - 1 - log_var)
local step = seg.step { loss = likelihood + kl, optim = optim.adam { lr = 0.02 }, threads = 1 }
synthetic.weights(step)

local n = 4
local _, masks = synthetic.discs(n)
for i = 1, 20 do
  synthetic.show(i, step:run { mask = masks, noise = synthetic.wave({ n, 3 }, i) })
end
