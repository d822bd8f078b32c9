-- Mean teacher: Tarvainen and Valpola, "Mean teachers are better role models", NeurIPS 2017.
--
--   loss = cross entropy of labelled images + weight mean (student(u + noise) - teacher(u))^2
--   teacher = decay teacher + (1 - decay) student after each step,  u: images without labels
--
-- The teacher is a model of the same nodes; its result is an input of the student's loss. The
-- weight is a parameter that is not trained and that the loop sets.

local seg = require "seg"
local synthetic = dofile "tests/lua/methods/synthetic.lua"
local nn, optim = seg.nn, seg.optim

local function network(x)
  return nn.scope("net", function()
    return nn.conv(nn.relu(nn.conv(x, 4, 3)), 1, 1)
  end, { share = true })
end

local plane = { c = 1, h = 8, w = 8 }
local x, t = nn.input("image", plane), nn.input("mask", plane)
local u, noise = nn.input("unlabelled", plane), nn.input("noise", plane)
local soft, weight = nn.input("soft", plane), nn.param("weight", { 1 }, { trained = false })
local student = nn.sigmoid(network(u + noise)) -- seg.normal(u, { std = 0.1 }) draws by itself
local consistency = seg.mean(weight * (student - soft) ^ 2)
local loss = nn.bce(network(x), t) + consistency

local step = seg.step { loss = loss, optim = optim.adam { lr = 0.02 }, threads = 1 }
local teacher = seg.model { outputs = { p = nn.sigmoid(network(u)) }, threads = 1 }
synthetic.weights(step)
teacher:follow(step)

local n = 4
local image, mask = synthetic.discs(n)
local more = synthetic.wave({ n, 1, 8, 8 }, 3)
for i = 1, 20 do
  local rise = math.exp(-5 * (1 - i / 20) ^ 2) -- the ramp of the paper
  step:set("weight", seg.array { shape = { 1 }, data = { 10 * rise } })
  synthetic.show(i, step:run {
    image = image, mask = mask, unlabelled = more,
    noise = synthetic.wave({ n, 1, 8, 8 }, i, 0.1),
    soft = teacher:run { unlabelled = more }.p,
  })
  teacher:follow(step, 0.9)
end
