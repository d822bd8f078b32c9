-- golden.lua -- a small U-Net compared with PyTorch in float64. The numbers are committed
-- (tests/golden/unet.py small), so it needs no PyTorch. tests/shell/unet_golden.sh tests the full
-- size.
--
-- small.safetensors holds groups of tensors: init.*, grad.* (gradients and
-- running statistics of the first step), sgd.* and adamw.* (weights after ten
-- steps); losses are in its metadata. Float32 holds them closely enough.

local t = dofile("tests/support/harness.lua")
local net = dofile("tests/golden/net.lua")
local seg = require "seg"
local core = require "seg.core"
local optim = seg.optim

local FILE = "tests/golden/small.safetensors"
local STEPS = 10

local _, truth, logits = net.unet { features = { 2, 4 }, size = 16 }
local loss = seg.nn.bce_dice(logits, truth)
local x = seg.array.load("tests/golden/small_image.npy")
local y = seg.array.load("tests/golden/small_mask.npy")

-- A function that maps tensor names of one group of the file to parameter names.
local function group(name)
  return function(n) return n:match("^" .. name .. "%.(.*)$") end
end

-- The tensors of a group, by name: read through a model of the same shape.
local function tensors(name)
  local m = seg.model { outputs = { logits = logits } }
  m:load(FILE, { rename = group(name) })
  local out = {}
  for n in pairs(m:parameters()) do out[n] = m:get(n) end
  return out
end

local function losses(name)
  local list = {}
  for v in core.checkpoint.meta(FILE)["loss_" .. name]:gmatch("%S+") do
    list[#list + 1] = tonumber(v)
  end
  t.equal(#list, STEPS, "committed losses")
  return list
end

-- f(got, want) for each element of two arrays of one shape.
local function each(got, want, f)
  t.equal(table.concat(got.shape, "x"), table.concat(want.shape, "x"), "shape")
  local index = {}
  local function walk(axis)
    for i = 1, want.shape[axis] do
      index[axis] = i
      if axis < #want.shape then
        walk(axis + 1)
      else
        f(got:get(table.unpack(index)), want:get(table.unpack(index)))
      end
    end
  end
  walk(1)
end

-- Largest difference, and mean square error over mean square.
local function compare(got, want)
  local worst, off, power = 0, 0, 0
  each(got, want, function(a, b)
    local d = math.abs(a - b)
    if worst == worst and not (d <= worst) then worst = d end -- keeps NaN
    off, power = off + d * d, power + b * b
  end)
  return worst, off / power
end

-- Checks value <= limit; NaN fails.
local function at_most(value, limit, what)
  t.check(value <= limit, "%s: %.3g, at most %g", what, value, limit)
end

local function new_step(device, o)
  local s = seg.step { loss = loss, optim = o, device = device }
  s:load(FILE, { rename = group("init") })
  return s
end

-- Ten steps: compares losses with the file's, then weights.
local function train(device, name, o, limits)
  local s, want = new_step(device, o), losses(name)
  for i = 1, STEPS do
    local got = s:run { image = x, mask = y }
    at_most(math.abs(got - want[i]) / want[i], i == 1 and limits.first or limits.loss,
            "loss of step " .. i)
  end
  for n, w in pairs(limits.weights and tensors(name) or {}) do
    if not n:find("running") then
      at_most(compare(s:get(n), w), limits.weights, n .. " after " .. STEPS .. " steps")
    end
  end
end

local devices = {
  ref = { gradient = 1e-12, logits = 1e-6, stats = 1e-6,
          sgd = { first = 1e-10, loss = 1e-10, weights = 1e-6 },
          adamw = { first = 1e-10, loss = 1e-10, weights = 1e-6 } },
  cpu = { gradient = 1e-6, logits = 1e-4, stats = 1e-5,
          sgd = { first = 1e-6, loss = 1e-5, weights = 1e-4 },
          adamw = { first = 1e-6, loss = 1e-3 } },
}

for device, limits in pairs(devices) do
  t.test(device .. ": evaluation forward", function()
    local m = seg.model { outputs = { logits = logits }, device = device }
    m:load(FILE, { rename = group("init") })
    at_most(compare(m:run({ image = x }).logits, seg.array.load("tests/golden/small_logits.npy")),
            limits.logits, "logits")
  end)

  t.test(device .. ": gradients and running statistics", function()
    local s, want = new_step(device, optim.sgd { lr = 0.01 }), tensors("grad")
    s:run { image = x, mask = y }
    for n, g in pairs(s:gradients()) do
      local _, nmse = compare(g, want[n])
      at_most(nmse, limits.gradient, "gradient of " .. n)
      want[n] = nil
    end
    for n, v in pairs(want) do
      t.check(n:find("running"), "%s has no gradient", n)
      at_most(compare(s:get(n), v), limits.stats, n)
    end
  end)

  t.test(device .. ": ten steps of SGD", function()
    train(device, "sgd", optim.sgd { lr = 0.01, momentum = 0.9 }, limits.sgd)
  end)

  t.test(device .. ": ten steps of AdamW", function()
    train(device, "adamw", optim.adamw { lr = 1e-3, decay = 1e-4 }, limits.adamw)
  end)
end

t.test("a wrong weight is seen", function()
  local s = new_step("cpu", optim.sgd { lr = 0 })
  local w = s:get("enc2.conv2.weight")
  w:set(w:get(4, 4, 3, 3) + 0.01, 4, 4, 3, 3)
  s:set("enc2.conv2.weight", w)
  local got, want = s:run { image = x, mask = y }, losses("sgd")[1]
  t.check(math.abs(got - want) / want > 1e-6, "a changed weight leaves the loss as it was")
end)

t.finish()
