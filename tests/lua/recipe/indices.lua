-- indices.lua -- functions of nodes that compute indices or choose by them: values, gradients,
-- mistakes.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local nn, array, optim = seg.nn, seg.array, seg.optim

local made = 0

-- An input with these extents.
local function input(o)
  made = made + 1
  return nn.input("x" .. made, o)
end

-- An array of this shape in user order.
local function filled(shape, numbers)
  local a, i = array.zeros(shape), 0
  local at = {}
  local function fill(axis)
    for k = 1, shape[axis] do
      at[axis] = k
      if axis < #shape then fill(axis + 1) else
        i = i + 1
        a:set(numbers[i], table.unpack(at))
      end
    end
  end
  fill(1)
  return a
end

-- The elements of an array in user order, as a text.
local function text_of(a)
  local list, at, shape = {}, {}, a.shape
  local function read(axis)
    for k = 1, shape[axis] do
      at[axis] = k
      if axis < #shape then read(axis + 1) else
        list[#list + 1] = string.format("%g", a:get(table.unpack(at)))
      end
    end
  end
  read(1)
  return table.concat(list, " ")
end

-- The elements of a node for these numbers as the input `x`.
local function run(x, node, numbers)
  local out = seg.model { outputs = { y = node } }:run { [x.name] = filled(x.shape, numbers) }
  return text_of(out.y)
end

t.test("sort, argsort and top_k", function()
  local x = input { c = 1, w = 6 }
  local numbers = { 3, -1, 2, 3, 0, -1 }
  local values, index = seg.sort(x, { axis = "w" })
  t.equal(run(x, values, numbers), "-1 -1 0 2 3 3")
  t.equal(run(x, index, numbers), "1 5 4 2 0 3")
  t.equal(run(x, seg.argsort(x, { axis = "w" }), numbers), "1 5 4 2 0 3")
  values, index = seg.sort(x, { axis = "w", descending = true })
  t.equal(run(x, values, numbers), "3 3 2 0 -1 -1")
  t.equal(run(x, index, numbers), "0 3 2 4 1 5")
  values, index = seg.top_k(x, 2, { axis = "w" })
  t.equal(run(x, values, numbers), "3 3")
  t.equal(run(x, index, numbers), "0 3")
  values, index = seg.top_k(x, 3, { axis = "w", largest = false })
  t.equal(run(x, values, numbers), "-1 -1 0")
  t.equal(run(x, index, numbers), "1 5 4")
end)

t.test("several axes are one, in PyTorch's order", function()
  local x = input { c = 2, h = 2, w = 2 }
  local numbers = { 4, 3, 8, 1, 5, 7, 2, 6 } -- as c, h, w
  t.equal(run(x, (seg.sort(x, { axis = { "c", "h", "w" } })), numbers), "1 2 3 4 5 6 7 8")
  t.equal(run(x, (seg.sort(x, { axis = { "w", "h" } })), numbers), "1 3 4 8 2 5 6 7")
  t.equal(run(x, (seg.sort(x, { axis = "c" })), numbers), "4 3 2 1 5 7 8 6")
  t.equal(run(x, seg.argsort(x, { axis = { "c", "w" } }), numbers), "1 0 1 2 2 3 3 0")
end)

t.test("gather chooses along an axis", function()
  local x = input { c = 2, w = 3 }
  local index = input { c = 2, w = 4 }
  local y = seg.gather(x, index, { axis = "w" })
  t.equal(table.concat(y.shape, "x"), "1x2x4")
  local out = seg.model { outputs = { y = y } }:run {
    [x.name] = filled({ 1, 2, 3 }, { 1, 2, 3, 4, 5, 6 }),
    [index.name] = filled({ 1, 2, 4 }, { 2, 0, 0, 1, 1, 1, 0, 2 }) }
  t.equal(text_of(out.y), "3 1 1 2 5 5 4 6")
  -- one index for all channels
  local one = input { c = 1, w = 2 }
  out = seg.model { outputs = { y = seg.gather(x, one, { axis = "w" }) } }:run {
    [x.name] = filled({ 1, 2, 3 }, { 1, 2, 3, 4, 5, 6 }),
    [one.name] = filled({ 1, 1, 2 }, { 2, 3 }) }
  t.equal(text_of(out.y):gsub("-nan", "nan"), "3 nan 6 nan", "an index beyond the axis")
end)

-- The gradient of the sum of the two largest of a x goes to a where they are.
t.test("the gradient of sorted values goes back by the index", function()
  local x = nn.input("fixed", { c = 1, w = 5 })
  local a = nn.param("factor", { 1, 1, 5 }, { init = 1 })
  local step = seg.step { loss = seg.mean((seg.top_k(a * x, 2, { axis = "w" }))),
                          optim = optim.sgd { lr = 1 } }
  step:run { fixed = filled({ 2, 1, 5 }, { 1, 5, 2, 4, 3, -1, -2, -3, -4, -5 }) }
  t.equal(text_of(step:gradients().factor), "-0.25 0.75 0 1 0")
end)

t.test("argmax, argmin and one_hot", function()
  local x = input { c = 2, h = 2, w = 2 }
  local numbers = { 4, 3, 8, 8, 5, 7, 2, 8 } -- as c, h, w
  t.equal(run(x, seg.argmax(x, { axes = { "c", "h", "w" } }), numbers), "2")
  t.equal(run(x, seg.argmin(x, { axes = { "c", "h", "w" } }), numbers), "6")
  t.equal(run(x, seg.argmax(x, { axes = { "h", "w" } }), numbers), "2 3")
  local kept = seg.argmax(x, { axes = { "c" }, keep = true })
  t.equal(table.concat(kept.shape, "x"), "1x1x2x2")
  t.equal(run(x, kept, numbers), "1 1 0 0")
  t.equal(run(x, seg.gather(x, kept, { axis = "c" }), numbers), "5 7 8 8")
  local row = seg.argmax(x, { axes = { "h" } })
  t.equal(table.concat(row.shape, "x") .. " " .. row.rank, "1x2x2 1")
  t.equal(run(x, seg.one_hot(kept, 2), numbers), "0 0 1 1 1 1 0 0")
  t.equal(run(x, seg.one_hot(kept + 1, 2), numbers), "0 0 0 0 0 0 1 1", "no class, no one")
end)

-- A step of gradient descent on the sum of the rows 1, 1 and 3, of (N,1,W) as of (N,1).
t.test("an embedding is a table of learnt vectors", function()
  local index = nn.input("words", { c = 1, w = 3 })
  local y = nn.embedding(index, { count = 4, size = 2, name = "table" })
  t.equal(table.concat(y.shape, "x"), "1x2x3")
  local step = seg.step { loss = seg.mean(y), optim = optim.sgd { lr = 1 }, outputs = { y = y } }
  step:set("table.weight", filled({ 4, 2 }, { 0, 1, 2, 3, 4, 5, 6, 7 }))
  local _, out = step:run { words = filled({ 2, 1, 3 }, { 1, 1, 3, 0, 3, 1 }) }
  t.equal(text_of(out.y), "2 2 6 3 3 7 0 6 2 1 7 3")
  local share = 1 / 12
  local gradient = step:gradients()["table.weight"]
  for row, count in ipairs { 1, 3, 0, 2 } do
    t.near(gradient:get(row, 1), count * share, 1e-7)
  end
  local one = nn.embedding(nn.input("group", { c = 1 }), { count = 3, size = 5 })
  t.equal(table.concat(one.shape, "x") .. " " .. one.rank, "1x5 0")
end)

t.test("random numbers: new in each step, of the seed, the same everywhere", function()
  local x = nn.input("noise", { c = 2, w = 5 })
  local zeros = {}
  for i = 1, 30 do zeros[i] = 0 end
  for _, node in ipairs { seg.normal(x, { mean = 1, std = 2 }),
                          seg.uniform(x, { low = -1, high = 3 }) } do
    local a = nn.param("a" .. node.kind, { 1 }, { init = 1 })
    local function texts(o)
      o.loss, o.optim, o.outputs = seg.mean(a * node), optim.sgd { lr = 0.1 }, { y = node }
      local step, list = seg.step(o), {}
      for i = 1, 2 do
        local _, out = step:run { noise = filled({ 3, 2, 5 }, zeros) }
        list[i] = text_of(out.y)
      end
      return list
    end
    local first = texts { seed = 5 }
    t.check(first[1] ~= first[2], "the second step repeats the first")
    t.check(texts { seed = 6 }[1] ~= first[1], "another seed, the same numbers")
    for _, o in ipairs { { device = "ref" }, { threads = 1 }, { fuse = false } } do
      o.seed = 5
      local other = texts(o)
      t.equal(other[1], first[1])
      t.equal(other[2], first[2])
    end
    -- the draws of predict --mc
    local session = core.session { roots = { node }, device = "cpu", seed = 5, draws = true }
    local seen = {}
    for i = 1, 3 do
      session:draw(i % 2)
      session:forward({ noise = filled({ 3, 2, 5 }, zeros) }, false)
      seen[i] = text_of(session:read(node))
    end
    t.check(seen[1] == seen[3] and seen[1] ~= seen[2], "--mc: draws are numbered")
    local mean = seg.model { outputs = { y = node } }:run { noise = filled({ 3, 2, 5 }, zeros) }
    for n = 1, 3 do for w = 1, 5 do t.equal(mean.y:get(n, 2, w), 1) end end
  end
end)

t.test("mistakes are named", function()
  local x = input { c = 2, h = 3, w = 4 }
  local function raises(what, f, ...)
    local args = table.pack(...)
    t.raises(function() return f(table.unpack(args, 1, args.n)) end, what)
  end
  for _, name in ipairs { "sort", "argsort" } do
    local f, who = seg[name], "seg." .. name .. ": "
    raises(who .. "the operand must be a node", f, nil, { axis = "w" })
    raises(who .. "the operand must be a node", f, array.zeros { 2 }, { axis = "w" })
    raises(who .. "axis must be a name or a list of names", f, x)
    raises(who .. "axis must be a name or a list of names", f, x, { axis = 1 })
    raises(who .. "axis must be a name or a list of names", f, x, { axis = {} })
    raises(who .. "options must be a table", f, x, "w")
    raises(who .. "there is no axis d in", f, x, { axis = "d" })
    raises(who .. "there is no axis 2 in", f, x, { axis = { "w", 2 } })
    raises(who .. "axis n is the batch", f, x, { axis = "n" })
    raises(who .. "axis w is given twice", f, x, { axis = { "w", "w" } })
    raises(who .. "descending must be true or false, got 1", f, x, { axis = "w", descending = 1 })
    raises(who .. 'unknown option "axes"', f, x, { axes = { "w" } })
  end
  raises("seg.gather: the index must be a node of the network, got number", seg.gather, x, 0,
         { axis = "w" })
  raises("seg.gather: axis must be", seg.gather, x, x)
  raises("gather: an index of shape", seg.gather, x, input { c = 2, h = 2, w = 4 }, { axis = "w" })
  raises("gather: an index of shape", seg.gather, x, input { c = 2, w = 4 }, { axis = "w" })
  raises("seg.top_k: k must be a whole number from 1 to 4, the extent of axis w, got 5", seg.top_k,
         x, 5, { axis = "w" })
  for _, k in ipairs { 0, -1, 1.5, 0 / 0, math.huge, "1", false } do
    raises("seg.top_k: k must be a whole number", seg.top_k, x, k, { axis = "w" })
  end
  raises("seg.top_k: axis must be the name of one axis", seg.top_k, x, 1, { axis = { "w", "h" } })
  raises("seg.top_k: axis must be the name of one axis", seg.top_k, x, 1)
  for _, name in ipairs { "argmax", "argmin" } do
    local f, who = seg[name], "seg." .. name .. ": "
    raises(who .. "the operand must be a node", f, 3, { axes = { "w" } })
    raises(who .. "axes must be a list of names", f, x)
    raises(who .. "axes must be a list of names", f, x, { axes = "w" })
    raises(who .. "axes go by name", f, x, { "w" })
    raises(who .. "axis n is the batch", f, x, { axes = { "n" } })
    raises(who .. "keep must be true or false", f, x, { axes = { "w" }, keep = 1 })
  end
  local one = nn.slice(x, { c = { 1, 1 } })
  for _, classes in ipairs { 0, 1.5, -1, 1 << 25, "2", false } do
    raises("seg.one_hot: classes must be a whole number from 1", seg.one_hot, one, classes)
  end
  raises("seg.one_hot: classes must be", seg.one_hot, one)
  raises("one_hot: class numbers have one channel, got 2", seg.one_hot, x, 3)
  raises("seg.one_hot: the operand must be a node", seg.one_hot, 1, 3)
  raises("nn.embedding: the operand must be a node", nn.embedding, 1, { count = 2, size = 2 })
  raises("nn.embedding: count must be >= 1, got nil", nn.embedding, one, { size = 2 })
  raises("nn.embedding: size must be >= 1, got 0", nn.embedding, one, { count = 2, size = 0 })
  raises("embedding: 20000000 indices", nn.embedding, one, { count = 20000000, size = 1 })
  raises("embedding: indices have one channel, got 2", nn.embedding, x, { count = 2, size = 2 })
  raises("nn.embedding: init must be a number", nn.embedding, one,
         { count = 2, size = 2, init = "ones" })
  raises("seg.normal: the operand must be a node", seg.normal, { 2, 3 })
  raises("seg.normal: std must be 0 or more, got -1", seg.normal, x, { std = -1 })
  raises("seg.normal: mean must be a number within", seg.normal, x, { mean = x })
  raises("a + b * seg.normal(x)", seg.normal, x, { std = x })
  raises("seg.normal: std must be a number within", seg.normal, x, { std = 0 / 0 })
  raises('seg.normal: unknown option "sd"', seg.normal, x, { sd = 1 })
  raises("seg.uniform: low is 2 and high is 1", seg.uniform, x, { low = 2 })
  raises("seg.uniform: low is -3e+38 and high is 3e+38", seg.uniform, x,
         { low = -3e38, high = 3e38 })
  raises("seg.uniform: high must be a number within", seg.uniform, x, { high = math.huge })
  raises("seg.top_k: largest must be true or false", seg.top_k, x, 1, { axis = "w", largest = 0 })
end)

t.finish()
