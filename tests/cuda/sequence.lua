-- sequence.lua -- a cooperative LSTM kernel, whose blocks wait for each other,
-- and attention with dropout, trained on the emulated GPU: in f32 the losses
-- equal the CPU's, in 16 bits nearly. Steps after the first are CUDA graphs.
--
--     BUILD/emu/plain/segengine tests/cuda/sequence.lua

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local nn, optim = seg.nn, seg.optim

local STEPS = 5

-- 80 units: more than one block has (cuda/ops/lstm.cu).
local function network()
  local x, n = nn.input("x", { c = 6, w = 5 }), nn.input("n", { c = 1 })
  local y = nn.lstm(nn.linear(x, 16), 80, { bidirectional = true, lengths = n })
  y = nn.attention(y, { heads = 4, lengths = n, dropout = 0.2 })
  local function pool(mode) return nn.global_pool(y, { mode = mode, lengths = n }) end
  return nn.mse(nn.linear(pool("mean") .. pool("max") .. pool("ends"), 2),
                nn.input("t", { c = 2 }))
end

local loss = network()

local function feeds(step)
  local list = {}
  for i = 1, 3 * 6 * 5 do list[i] = math.sin(i * 1.7 + step) end
  return { x = seg.array { shape = { 3, 6, 5 }, data = list },
           n = seg.array { shape = { 3, 1 }, data = { 5, 2, 3 } },
           t = seg.array { shape = { 3, 2 }, data = { 1, 0, 0, 1, 1, 1 } } }
end

local function losses(device, precision)
  local s = seg.step { loss = loss, optim = optim.sgd { lr = 0.1 }, device = device,
                       precision = precision, seed = 1 }
  local out = {}
  for i = 1, STEPS do out[i] = s:run(feeds(i)) end
  return out
end

local want = losses("cpu", "f32")
t.check(want[STEPS] < 0.6 * want[1], "the loss went from %g to %g", want[1], want[STEPS])

for precision, bound in pairs { f32 = 1e-5, tf32 = 2 ^ -11, bf16 = 2 ^ -8, f16 = 2 ^ -11 } do
  t.test("losses in " .. precision, function()
    for i, got in ipairs(losses("cuda", precision)) do
      t.near(got, want[i], bound * want[i], "loss of step " .. i)
    end
  end)
end

t.finish()
