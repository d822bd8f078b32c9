-- indices.lua -- functions of nodes that compute indices or choose by them: values, gradients,
-- mistakes.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
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
  raises("seg.top_k: largest must be true or false", seg.top_k, x, 1, { axis = "w", largest = 0 })
end)

t.finish()
