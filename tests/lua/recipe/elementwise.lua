-- elementwise.lua -- functions of the elements of nodes: values, broadcasting, numbers as operands,
-- gradients through a composite loss, mistakes.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local nn, array, optim = seg.nn, seg.array, seg.optim

local made = 0

-- An input of 6 numbers along w.
local function input()
  made = made + 1
  return nn.input("x" .. made, { c = 1, w = 6 })
end

-- The elements of a node for these numbers as the input `x`.
local function run(x, node, numbers)
  local a = array.zeros { 1, 1, #numbers }
  for i, v in ipairs(numbers) do a:set(v, 1, 1, i) end
  local out = seg.model { outputs = { y = node } }:run({ [x.name] = a }).y
  local list = {}
  for i = 1, #numbers do list[i] = out:get(1, 1, i) end
  return list
end

-- Checks that f of a node and f of numbers are the same. f(v, seg) works on both: of numbers
-- `lib` has functions of numbers.
local function agrees(what, numbers, f, lib)
  local x = input()
  local got = run(x, f(x, seg), numbers)
  for i, v in ipairs(numbers) do
    local want = f(v, lib)
    t.check(math.abs(got[i] - want) <= 1e-6 * math.max(1, math.abs(want)),
            string.format("%s of %g is %.9g, want %.9g", what, v, got[i], want))
  end
end

local function bit(holds) return holds and 1 or 0 end

local numbers_of = {
  exp = math.exp, log = math.log, sqrt = math.sqrt, abs = math.abs, sin = math.sin, cos = math.cos,
  floor = math.floor,
  log1p = function(v) return math.log(1 + v) end,
  rsqrt = function(v) return 1 / math.sqrt(v) end,
  sign = function(v) return v > 0 and 1 or v < 0 and -1 or 0 end,
  tanh = function(v) return (math.exp(2 * v) - 1) / (math.exp(2 * v) + 1) end,
  sigmoid = function(v) return 1 / (1 + math.exp(-v)) end,
  relu = function(v) return math.max(v, 0) end,
  round = function(v)
    local low = math.floor(v)
    if v - low ~= 0.5 then return math.floor(v + 0.5) end
    return low % 2 == 0 and low or low + 1
  end,
  max = math.max, min = math.min,
  clamp = function(v, low, high) return math.min(math.max(v, low), high) end,
  gt = function(a, b) return bit(a > b) end, ge = function(a, b) return bit(a >= b) end,
  lt = function(a, b) return bit(a < b) end, le = function(a, b) return bit(a <= b) end,
  eq = function(a, b) return bit(a == b) end, ne = function(a, b) return bit(a ~= b) end,
  where = function(c, a, b) return c ~= 0 and a or b end,
}

local any, above_0 = { -2.5, -0.5, 0, 0.5, 1.5, 3 }, { 0.1, 0.5, 1, 1.7, 2, 9 }

t.test("functions of one operand", function()
  for _, name in ipairs { "exp", "abs", "sign", "sin", "cos", "tanh", "sigmoid", "relu", "floor",
                          "round" } do
    agrees(name, any, function(v, lib) return lib[name](v) end, numbers_of)
  end
  for _, name in ipairs { "log", "log1p", "sqrt", "rsqrt" } do
    agrees(name, above_0, function(v, lib) return lib[name](v) end, numbers_of)
  end
  local x = input() -- the error function at 0.5, from tables
  t.near(run(x, seg.erf(x), { 0.5, 0, 0, 0, 0, 0 })[1], 0.5204998778, 1e-7)
end)

t.test("functions of two operands, one a number", function()
  for _, name in ipairs { "max", "min", "gt", "ge", "lt", "le", "eq", "ne" } do
    agrees(name, any, function(v, lib) return lib[name](v, 0.5) end, numbers_of)
    agrees(name, any, function(v, lib) return lib[name](0.5, v) end, numbers_of)
    agrees(name, any, function(v, lib) return lib[name](v, v * v) end, numbers_of)
  end
  agrees("clamp", any, function(v, lib) return lib.clamp(v, -1, 1) end, numbers_of)
  agrees("clamp of nodes", any, function(v, lib) return lib.clamp(v, v * 0 - 1, v * v) end,
         numbers_of)
end)

t.test("operators of nodes and numbers", function()
  agrees("x ^ 2", any, function(v) return v ^ 2 end)
  agrees("x ^ 3", any, function(v) return v ^ 3 end)
  agrees("x ^ 0.5", above_0, function(v) return v ^ 0.5 end)
  agrees("2 ^ x", any, function(v) return 2 ^ v end)
  agrees("x ^ x", above_0, function(v) return v ^ v end)
  agrees("1 / x", above_0, function(v) return 1 / v end)
  for _, b in ipairs { 0.75, -0.75 } do
    agrees("x % b", any, function(v) return v % b end)
    agrees("x // b", any, function(v) return v // b end)
    agrees("b % x", above_0, function(v) return b % v end)
    agrees("b // x", above_0, function(v) return b // v end)
  end
  for b = 1, 60 do -- whole quotients, which a product with 1 / b misses
    agrees("x // b", { b, -b, 41 * b, 49 * b, 0, b - 1 }, function(v) return v // b end)
  end
  agrees("all", above_0, function(v, lib)
    return lib.clamp(lib.exp(-(v * v)) * lib.sigmoid(v) + lib.sqrt(lib.abs(v - 1)), 0, 2)
  end, numbers_of)
end)

t.test("where takes nothing of what it does not choose", function()
  local x = input()
  local got = run(x, seg.where(seg.gt(x, 0), seg.log(x), 7), { -1, 0, 1, 2, 1, 1 })
  t.equal(got[1], 7)
  t.equal(got[2], 7)
  t.equal(got[3], 0)
  t.near(got[4], math.log(2), 1e-6)
  agrees("where", any, function(v, lib) return lib.where(lib.gt(v, 0), v, 0) end, numbers_of)
end)

t.test("extents of 1 are repeated", function()
  local x = nn.input("wide", { c = 3, w = 2 })
  local y = seg.max(x, nn.global_pool(x))
  t.equal(table.concat(y.shape, "x"), "1x3x2")
  local a = array.zeros { 1, 3, 2 }
  for c = 1, 3 do a:set(c, 1, c, 1) end
  local out = seg.model { outputs = { y = y } }:run({ wide = a }).y
  for c = 1, 3 do
    t.equal(out:get(1, c, 1), c)
    t.equal(out:get(1, c, 2), c / 2)
  end
end)

-- Smooth L1 by hand is nn.huber, and so are its gradients: the weights after a step are the same.
t.test("a loss of functions trains as the operator does", function()
  local function weights(loss_of)
    made = made + 1
    local name = "in" .. made
    local x = nn.input(name, { c = 2, w = 8 })
    local y = nn.conv(x, 1, 3, { name = "conv" .. made, bias = false })
    local target = nn.input(name .. "t", { c = 1, w = 8 })
    local step = seg.step { loss = loss_of(y, target), optim = optim.sgd { lr = 0.5 }, seed = 1 }
    local a, b = array.zeros { 2, 2, 8 }, array.zeros { 2, 1, 8 }
    for n = 1, 2 do
      for w = 1, 8 do
        for c = 1, 2 do a:set(math.sin(n + 3 * c + w), n, c, w) end
        b:set(3 * math.cos(n * w), n, 1, w)
      end
    end
    local w = array.zeros { 1, 2, 3 }
    for c = 1, 2 do for k = 1, 3 do w:set(0.1 * c - 0.2 * k, 1, c, k) end end
    step:set("conv" .. made .. ".weight", w)
    step:run { [name] = a, [name .. "t"] = b }
    local list = {}
    w = step:get("conv" .. made .. ".weight")
    for c = 1, 2 do for k = 1, 3 do list[#list + 1] = w:get(1, c, k) end end
    return list
  end
  local want = weights(function(y, target) return nn.huber(y, target) end)
  local got = weights(function(y, target)
    local e = seg.abs(y - target)
    return seg.mean(seg.where(seg.le(e, 1), 0.5 * e ^ 2, e - 0.5))
  end)
  for i, v in ipairs(want) do t.near(got[i], v, 1e-6) end
end)

-- The array of a node for x = 1, 2, 3, .. in user order, (2,3,2,4) as N, C, H, W.
local function over_axes(f)
  made = made + 1
  local x = nn.input("image" .. made, { c = 3, h = 2, w = 4 })
  local a, i = array.zeros { 2, 3, 2, 4 }, 0
  for n = 1, 2 do for c = 1, 3 do for h = 1, 2 do for w = 1, 4 do
    i = i + 1
    a:set(i, n, c, h, w)
  end end end end
  local y = f(x)
  return seg.model { outputs = { y = y } }:run({ [x.name] = a }).y, y
end

t.test("sums and means over axes", function()
  local y, node = over_axes(function(x) return seg.sum(x, { axes = { "h", "w" } }) end)
  t.equal(table.concat(y.shape, "x") .. " " .. node.rank, "2x3 0")
  t.equal(y:get(1, 1), 36)
  t.equal(y:get(2, 3), 8 * 40 + 36)
  y, node = over_axes(function(x) return seg.mean(x, { axes = { "h" } }) end)
  t.equal(table.concat(y.shape, "x") .. " " .. node.rank, "2x3x4 1")
  t.equal(y:get(1, 1, 2), 4)
  y = over_axes(function(x) return seg.mean(x, { axes = { "w" } }) end)
  t.equal(table.concat(y.shape, "x"), "2x3x2")
  t.equal(y:get(1, 1, 2), 6.5)
  y = over_axes(function(x) return seg.sum(x, { axes = { "c" } }) end)
  t.equal(table.concat(y.shape, "x"), "2x1x2x4")
  t.equal(y:get(1, 1, 1, 1), 1 + 9 + 17)
  y = over_axes(function(x) return seg.sum(x, { axes = { "w", "c" }, keep = true }) end)
  t.equal(table.concat(y.shape, "x"), "2x1x2x1")
  y = over_axes(function(x) return seg.var(x, { axes = { "h", "w" } }) end)
  t.near(y:get(2, 2), (64 - 1) / 12, 1e-6)
  y = over_axes(function(x) return seg.max(x, { axes = { "c", "w" } }) end)
  t.equal(table.concat(y.shape, "x"), "2x1x2")
  t.equal(y:get(2, 1, 1), 24 + 20)
  y = over_axes(function(x) return seg.min(x, { axes = { "h", "w" } }) end)
  t.equal(y:get(2, 3), 41)
  y = over_axes(function(x) return seg.norm(x, { axes = { "h" } }) end)
  t.near(y:get(1, 1, 1), math.sqrt(1 + 25), 1e-6)
  y = over_axes(function(x) return seg.logsumexp(x * 100, { axes = { "h", "w" } }) end)
  t.equal(table.concat(y.shape, "x"), "2x3")
  t.equal(y:get(2, 1), 3200, "no overflow")
  y = over_axes(function(x) return seg.mean(x) end)
  t.equal(y:get(), 24.5)
  y = over_axes(function(x) return seg.mean(x, { mask = seg.gt(x, 46) }) end)
  t.equal(y:get(), 47.5)
  y = over_axes(function(x) return seg.mean(x, { mask = seg.gt(x, 99) }) end)
  t.equal(y:get(), 0, "a mean over nothing")
end)

-- One step of y = a x + stop(b x) on x = 1, with gradients of the loss y: d/da = 1, d/db = 0.
t.test("learnt tensors, and constants among them", function()
  local x = nn.input("one", { c = 2, w = 3 })
  local a = nn.param("a", { 2 }, { init = 3 })
  local b = nn.param("b", { 1, 2, 3 }, { init = { normal = 0.5 }, decay = false })
  local fixed = nn.param("fixed", { 1 }, { init = 2, trained = false })
  local y = a * x + seg.stop(b * x) + b * 0 + fixed
  local step = seg.step { loss = seg.mean(y), optim = optim.sgd { lr = 1 }, outputs = { y = y } }
  local ones = array.zeros { 1, 2, 3 }
  for c = 1, 2 do for w = 1, 3 do ones:set(1, 1, c, w) end end
  local before = step:get("b"):get(1, 2, 3)
  local _, out = step:run { one = ones }
  t.near(out.y:get(1, 2, 3), 3 + before + 2, 1e-6)
  t.near(step:get("a"):get(1), 3 - 0.5, 1e-6)
  t.equal(step:get("b"):get(1, 2, 3), before, "no gradient through a stop")
  t.equal(step:get("fixed"):get(1), 2)
  t.check(step:gradients().fixed == nil)
  local wrong = { ["the shape must be"] = {}, ["axis 1 of the shape is 2, wanted 1"] = { 2, 3 },
                  ["axis 2 of the shape is 0.5"] = { 1, 0.5 } }
  for what, shape in pairs(wrong) do
    t.raises(function() nn.param("no", shape) end, what)
  end
  t.raises(function() nn.param("no", { 1 }, { init = "ones" }) end,
           "init must be a number, { normal")
  t.raises(function() nn.param("no", { 1 }, { init = 1e300 }) end, "init must be a number")
  t.raises(function() nn.param("no", { 1 }, { decay = 0.1 }) end, "decay must be true or false")
  t.raises(function() nn.param("a", { 2 }) end, "exists already")
end)

t.test("mistakes are named", function()
  local x, y = input(), nn.input("other", { c = 1, w = 5 })
  t.raises(function() return seg.max(x, y) end, "max: shapes")
  t.raises(function() return seg.exp(3) end,
           "seg.exp: the operand must be a node of the network, got number; for numbers alone")
  t.raises(function() return seg.exp(array.zeros { 2 }) end, "seg.exp: the operand must be a node")
  t.raises(function() return seg.max(1, 2) end, "must be a node of the network, got number")
  t.raises(function() return seg.max(x, "1") end,
           "seg.max: operand 2 must be a node of the network or a number, got string")
  t.raises(function() return seg.lt(x, "1") end, "seg.lt: operand 2 must be")
  t.raises(function() return seg.max(x, -math.huge) end, "-1e30 serves as minus infinity")
  t.raises(function() return seg.where(seg.gt(x, 0), x) end, "seg.where: operand 3 must be")
  t.raises(function() return seg.clamp(x) end, "give a lower or an upper limit")
  t.raises(function() return seg.clamp(x, 2, 1) end,
           "the lower limit is 2 and the upper one 1")
  t.raises(function() return seg.clamp(x, "0", 1) end, "seg.clamp: the lower limit must be")
  t.raises(function() return x ^ {} end, "operand 2 of ^ must be a node of the network or a number")
  t.raises(function() return x + "2" end, "operand 2 of + must be a node of")
  t.raises(function() return nil - x end, "operand 1 of - must be a node of")
  t.raises(function() return x / 0 end, "a division by 0")
  t.raises(function() return x % 0 end, "a % 0: a division by 0")
  t.raises(function() return x // -0.0 end, "a // 0: a division by 0")
  t.raises(function() return x + math.huge end, "the number inf is not finite")
  t.raises(function() return x * 1e300 end, "the number 1e+300 is not finite as a 32-bit float")
  t.raises(function() return x > 0.5 end, "seg.gt(a, b), ge, lt, le give a node")
  t.raises(function() return seg.step { loss = x, optim = optim.sgd { lr = 1 } } end,
           "seg.mean(node) makes one")
  local flat = seg.sum(nn.input("plane", { c = 1, h = 4, w = 4 }), { axes = { "w" } })
  t.raises(function() return nn.input("other plane", { c = 1, h = 4, w = 4 }) - flat end, "letters")
  t.raises(function() return nn.input("plane2", { c = 1, h = 4, w = 4 }) - flat end,
           "their axes would be mixed up")
  t.raises(function() return seg.sum(x) end, "seg.sum: give axes")
  t.raises(function() return seg.sum(x, { axes = { "h" } }) end, "there is no axis h in")
  t.raises(function() return seg.sum(x, { axes = { "n" } }) end, "axis n is the batch")
  t.raises(function() return seg.sum(x, { axes = { "w", "w" } }) end, "axis w is given twice")
  t.raises(function() return seg.mean(x, { axes = "w" }) end, "axes must be a list")
  t.raises(function() return seg.sum(x, { axes = {} }) end, "got a table without a list")
  t.raises(function() return seg.sum(x, { "w" }) end, "axes go by name")
  t.raises(function() return seg.sum(x, { axes = { "w" }, keep = 0 }) end, "keep must be true or")
  t.raises(function() return seg.var(x) end, "seg.var: axes must be a list")
  t.raises(function() return seg.mean(x, { mask = 1 }) end, "seg.mean: mask must be a node")
  t.raises(function() return seg.max(x, { axes = { "d" } }) end, "seg.max: there is no axis d")
  t.raises(function() return seg.min(3, { axes = { "w" } }) end, "must be a node")
  t.raises(function() return seg.mean(x, { axes = { "w" }, mask = x }) end,
           "mask and weight are for the mean over everything")
  t.raises(function() return seg.mean(x, { keep = true }) end, "keep goes with axes")
end)

t.finish()
