-- programs.lua -- trees of elementwise operators in one call: random trees have the bits of
-- separate calls, values and gradients.

local t = dofile("tests/support/harness.lua")
local core = require "seg.core"
local seg = require "seg"
local nn, array, optim = seg.nn, seg.array, seg.optim

local device = os.getenv("SEG_TEST_DEVICE") or "cpu"
local trees = math.tointeger(os.getenv("SEG_TEST_TREES") or (device == "cpu" and 500 or 60))

-- A generator of random numbers: the trees are the same in every run.
local state = 1
local function draw(n)
  state = (state * 6364136223846793005 + 1442695040888963407) & 0x7fffffffffffffff
  return (state >> 33) % n + 1
end

-- A number above 0.25 for any number; one between -1 and 1.
local function above_0(a) return seg.abs(a) + 0.25 end
local small = seg.tanh

local UNARY = {
  seg.abs, seg.sign, seg.sin, seg.cos, seg.tanh, seg.sigmoid, seg.relu, seg.erf, seg.floor,
  seg.round, seg.stop, nn.gelu, nn.silu, nn.leaky_relu,
  function(a) return seg.exp(small(a)) end, function(a) return seg.log(above_0(a)) end,
  function(a) return seg.log1p(above_0(a)) end, function(a) return seg.sqrt(above_0(a)) end,
  function(a) return seg.rsqrt(above_0(a)) end, function(a) return small(a) ^ 2 end,
  function(a) return small(a) ^ 3 end, function(a) return -a end,
  function(a) return seg.clamp(a, -0.5, 1) end, function(a) return a * 0.75 + 0.125 end,
  function(a) return 1.5 - a end, function(a) return seg.max(a, 0.25) end,
}
local BINARY = {
  function(a, b) return a + b end, function(a, b) return a - b end,
  function(a, b) return small(a) * b end, function(a, b) return a / above_0(b) end,
  function(a, b) return a % above_0(b) end, function(a, b) return a // above_0(b) end,
  function(a, b) return above_0(small(a)) ^ small(b) end, seg.max, seg.min, seg.gt, seg.ge, seg.eq,
  function(a, b) return seg.where(seg.gt(a, b), a, b * 2) end,
}

local made = 0

-- Parameters and inputs of one tree: two parameters of all extents, a mask of one channel, a number
-- for each channel and one number, which are broadcast.
local function leaves()
  made = made + 1
  local name = "tree" .. made
  local c, h, w = draw(9), draw(5), draw(40)
  local function param(i) return nn.param(name .. i, { 1, c, h, w }, { init = { normal = 1 } }) end
  local list = { param "a", param "b",
                 nn.input(name .. "mask", { c = 1, h = h, w = w }),
                 nn.param(name .. "each", { 1, c, 1, 1 }, { init = { normal = 1 } }),
                 nn.param(name .. "one", { 1, 1, 1, 1 }, { init = { normal = 1 } }) }
  return list, name, h, w
end

-- A random tree over these nodes; now and then an inner node has a second reader.
local function tree(list, depth)
  if depth == 0 then return list[draw(#list)] end
  local node
  if draw(3) == 1 then
    node = UNARY[draw(#UNARY)](tree(list, depth - 1))
  else
    node = BINARY[draw(#BINARY)](tree(list, depth - 1), tree(list, draw(depth) - 1))
  end
  if draw(8) == 1 then list[#list + 1] = node end
  return node
end

-- Checks that two arrays have the same numbers, NaN too.
local function same(what, a, b)
  t.equal(a.count, b.count, what)
  a, b = a:reshape { a.count }, b:reshape { b.count }
  for i = 1, a.count do
    local x, y = a:get(i), b:get(i)
    if x ~= y and (x == x or y == y) then
      t.check(false, string.format("%s: element %d is %.9g joined, %.9g apart", what, i, x, y))
    end
  end
end

-- Values and gradients of a forest, a list of { y =, name =, h =, w = }, in one run.
local function run(forest, fuse)
  local outputs, inputs, loss = {}, {}, 0
  for _, one in ipairs(forest) do
    outputs[one.name] = one.y
    loss = seg.mean(one.y) + loss
    local mask = array.zeros { 1, 1, one.h, one.w }
    for j = 1, one.h do
      for k = 1, one.w do mask:set((j * 3 + k * 5) % 7 / 3 - 1, 1, 1, j, k) end
    end
    inputs[one.name .. "mask"] = mask
  end
  local step = seg.step { loss = loss, optim = optim.sgd { lr = 0.1 }, outputs = outputs,
                          device = device, fuse = fuse, seed = 1 }
  local _, values = step:run(inputs)
  return values, step:gradients()
end

t.test("random trees have the bits of separate calls", function()
  for _ = 1, trees // 10 do
    local forest = {}
    for i = 1, 10 do
      local list, name, h, w = leaves()
      forest[i] = { y = tree(list, 2 + draw(4)) + list[1] * list[3], name = name, h = h, w = w }
    end
    local values, grads = run(forest, true)
    local want_values, want_grads = run(forest, false)
    for _, one in ipairs(forest) do
      same("value of " .. one.name, values[one.name], want_values[one.name])
    end
    for p, g in pairs(want_grads) do same("gradient of " .. p, grads[p], g) end
  end
end)

t.test("a tree of constants", function()
  local x = nn.input("any", { c = 1, w = 2 })
  local y = seg.max(seg.op.constant(x, { value = 2 }) ^ 3, seg.max(x, 3) * 0 + 1)
  local model = seg.model { outputs = { y = y }, device = device }
  t.equal(model:run({ any = array.zeros { 1, 1, 2 } }).y:get(1, 1, 2), 8)
end)

-- Forward two operands are read and one result is written; backward both operands and the gradient
-- of the result are read and two gradients are written.
t.test("a chain reads and writes memory once", function()
  local function operand(name)
    return nn.param(name, { 1, 64, 512, 512 }, { init = { normal = 1 } })
  end
  local a, b = operand("chain_a"), operand("chain_b")
  local y = seg.clamp(seg.exp(-(a * a)) * seg.sigmoid(b) + seg.sqrt(seg.abs(a - b)), 0, 2)
  local plan = core.plan { roots = {}, loss = seg.mean(y), inputs = {}, device = device,
                           optim = optim.sgd { lr = 0.1 } }
  t.equal(plan.calls, 4) -- chain and mean, both ways
  t.equal(plan.rows[1].kind, "mul + scale + 8 more")
  t.equal(#plan.rows[1].ops, 10)
  local apart = core.plan { roots = {}, loss = seg.mean(y), inputs = {}, device = device,
                            optim = optim.sgd { lr = 0.1 }, plain = true }
  t.equal(apart.calls, 22)
  local bytes = 4 * 64 * 512 * 512 -- of the result, whose memory its gradient gets
  t.check(plan.bytes < 2.01 * bytes, "arena of " .. plan.bytes .. " bytes")
end)

t.finish()
