-- Knowledge distillation: Hinton et al., "Distilling the knowledge in a neural network", 2015.
--
--   loss = (1 - a) CE(x, class) + a T^2 KL(softmax(y / T), softmax(x / T))
--   x: logits of the student, y: logits of the teacher, T: temperature
--
-- The teacher is a model that runs first; its logits are an input of the student's loss.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local function classifier(name, x, width)
  return nn.scope(name, function()
    return nn.linear(nn.global_pool(nn.relu(nn.conv(x, width, 3))), 2)
  end)
end
local function log_softmax(x)
  return x - seg.logsumexp(x, { axes = { "c" }, keep = true })
end

local image = nn.input("image", { c = 1, h = 8, w = 8 })
local class, y = nn.input("class", { c = 1 }), nn.input("teacher_logits", { c = 2 })
local teacher = seg.model { outputs = { y = classifier("teacher", image, 8) }, threads = 1 }
synthetic.weights(teacher) -- yours: teacher:load "teacher.safetensors"

local a, T = 0.7, 2
local x = classifier("student", image, 4)
local wanted, found = log_softmax(y / T), log_softmax(x / T)
local kl = seg.mean(seg.sum(seg.exp(wanted) * (wanted - found), { axes = { "c" } }))
local loss = (1 - a) * nn.cross_entropy(x, class) + a * T ^ 2 * kl
local step = seg.step { loss = loss, optim = optim.adam { lr = 0.05 }, threads = 1 }
synthetic.weights(step)

local n = 8
local images = synthetic.discs(n)
local logits = teacher:run { image = images }.y
for i = 1, 20 do
  synthetic.show(i, step:run { image = images, class = synthetic.classes(n),
                               teacher_logits = logits })
end
