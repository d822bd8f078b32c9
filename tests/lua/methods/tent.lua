-- Test-time entropy minimisation: Wang et al., "Tent: fully test-time adaptation by entropy
-- minimization", ICLR 2021.
--
--   loss = mean of -sum over classes of p log p
--
-- Only scale and shift of the norms learn; a training step takes the statistics of the test batch.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local image = nn.input("image", { c = 1, h = 8, w = 8 })
local features = nn.relu(nn.batch_norm(nn.conv(image, 4, 3, { name = "stem" }), { name = "norm" }))
local logits = nn.conv(features, 3, 1, { name = "head" })
local log_p = logits - seg.logsumexp(logits, { axes = { "c" }, keep = true })
local loss = -seg.mean(seg.sum(seg.exp(log_p) * log_p, { axes = { "c" } }))

local step = seg.step { loss = loss, outputs = { p = seg.exp(log_p) }, frozen = { "stem", "head" },
                        optim = optim.adam { lr = 0.02 }, threads = 1 }
synthetic.weights(step) -- yours: step:load "trained.safetensors"
local images = synthetic.discs(4)
for i = 1, 20 do synthetic.show(i, (step:run { image = images })) end
