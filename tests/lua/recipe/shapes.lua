-- shapes.lua -- functions that move the elements of nodes, running sums, products of matrices:
-- every element by a formula, in the order of PyTorch; gradients through them; mistakes.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local nn, op, array, optim = seg.nn, seg.op, seg.array, seg.optim

local made = 0

-- An input of extents c, h, w (or c, w) and its array with two samples of 1, 2, 3, .. in the order
-- of PyTorch.
local function numbered(c, h, w)
  made = made + 1
  local name = "x" .. made
  local x = nn.input(name, { c = c, h = w and h, w = w or h })
  local shape = w and { 2, c, h, w } or { 2, c, h }
  local a = array.zeros(shape)
  local i = 0
  local function fill(at, axis)
    if axis > #shape then
      i = i + 1
      a:set(i, table.unpack(at))
      return
    end
    for k = 1, shape[axis] do
      at[axis] = k
      fill(at, axis + 1)
    end
  end
  fill({}, 1)
  return x, a
end

-- The element of such an array with these indices, from 1.
local function number(shape, ...)
  local i = 0
  for k, v in ipairs { ... } do i = i * shape[k] + v - 1 end
  return i + 1
end

local function run(y, x, a)
  return seg.model { outputs = { y = y } }:run({ [x.name] = a }).y
end

-- Checks the shape of array y, and each element against f(n, c, h, w).
local function check(what, y, shape, f)
  t.equal(table.concat(y.shape, "x"), table.concat(shape, "x"), what)
  local function each(at, axis)
    if axis > #shape then
      t.near(y:get(table.unpack(at)), f(table.unpack(at)), 1e-4,
             what .. " at " .. table.concat(at, " "))
      return
    end
    for k = 1, shape[axis] do
      at[axis] = k
      each(at, axis + 1)
    end
  end
  each({}, 1)
end

t.test("reshape keeps the order of PyTorch", function()
  local x, a = numbered(3, 2, 4)
  local function count(...) -- of a shape, 1 2 3 ..
    local shape = { ... }
    return function(...) return number(shape, ...) end
  end
  local y = seg.reshape(x, { c = 4, h = 3, w = 2 })
  check("c h w", run(y, x, a), { 2, 4, 3, 2 }, count(2, 4, 3, 2))
  check("d too", run(seg.reshape(x, { c = 2, d = 3, h = 1, w = 4 }), x, a), { 2, 2, 3, 1, 4 },
        count(2, 2, 3, 1, 4))
  check("flat", run(seg.reshape(x, { c = -1 }), x, a), { 2, 24 }, count(2, 24))
  check("the rest", run(seg.reshape(x, { c = 6, w = -1 }), x, a), { 2, 6, 4 }, count(2, 6, 4))
  check("same channels", run(seg.reshape(x, { c = 3, w = 8 }), x, a), { 2, 3, 8 },
        count(2, 3, 8))
  check("back", run(seg.reshape(y, { c = 3, h = 2, w = 4 }), x, a), { 2, 3, 2, 4 },
        count(2, 3, 2, 4))
  -- in the order of memory: element (h, w, c) of x is number (h * 4 + w) * 3 + c
  check("channels last", run(seg.reshape(x, { c = 6, w = 4, channels_last = true }), x, a),
        { 2, 6, 4 }, function(n, c, w)
    local i = (w - 1) * 6 + c - 1
    return number({ 2, 3, 2, 4 }, n, i % 3 + 1, i // 12 + 1, i // 3 % 4 + 1)
  end)
end)

t.test("axes change places", function()
  local x, a = numbered(3, 2, 4)
  local own = { 2, 3, 2, 4 }
  check("transpose", run(seg.transpose(x, "w", "c"), x, a), { 2, 4, 2, 3 },
        function(n, c, h, w) return number(own, n, w, h, c) end)
  check("transpose of h and w", run(seg.transpose(x, "h", "w"), x, a), { 2, 3, 4, 2 },
        function(n, c, h, w) return number(own, n, c, w, h) end)
  check("permute", run(seg.permute(x, { "w", "c", "h" }), x, a), { 2, 4, 3, 2 },
        function(n, c, h, w) return number(own, n, h, w, c) end)
  check("the same axis twice", run(seg.transpose(x, "w", "w") * 1, x, a), own,
        function(...) return number(own, ...) end)
end)

t.test("flip, roll, repeats, cumsum", function()
  local x, a = numbered(3, 2, 4)
  local own = { 2, 3, 2, 4 }
  check("flip", run(seg.flip(x, { axes = { "h", "c" } }), x, a), own,
        function(n, c, h, w) return number(own, n, 4 - c, 3 - h, w) end)
  check("roll", run(seg.roll(x, { h = 3, w = -1 }), x, a), own,
        function(n, c, h, w) return number(own, n, c, 3 - h, w % 4 + 1) end)
  check("repeats", run(seg.repeats(x, { c = 2, w = 3 }), x, a), { 2, 6, 2, 12 },
        function(n, c, h, w) return number(own, n, (c - 1) % 3 + 1, h, (w - 1) % 4 + 1) end)
  check("cumsum", run(seg.cumsum(x, { axis = "w" }), x, a), own, function(n, c, h, w)
    return w * number(own, n, c, h, 1) + w * (w - 1) / 2
  end)
  check("cumsum from the end", run(seg.cumsum(x, { axis = "c", reverse = true }), x, a), own,
        function(n, c, h, w)
    local sum = 0
    for k = c, 3 do sum = sum + number(own, n, k, h, w) end
    return sum
  end)
end)

t.test("split, concat and stack", function()
  local x, a = numbered(3, 2, 4)
  local own = { 2, 3, 2, 4 }
  local left, right = seg.split(x, { axis = "w", sizes = { 1, 3 } })
  check("a part", run(right, x, a), { 2, 3, 2, 3 },
        function(n, c, h, w) return number(own, n, c, h, w + 1) end)
  check("together again", run(seg.concat({ left, right }, { axis = "w" }), x, a), own,
        function(...) return number(own, ...) end)
  local parts = { seg.split(x, { axis = "h", parts = 2 }) }
  t.equal(#parts, 2)
  check("other order", run(seg.concat({ parts[2], parts[1] }, { axis = "h" }), x, a), own,
        function(n, c, h, w) return number(own, n, c, 3 - h, w) end)
  local many = {}
  for i = 1, 8 do many[i] = x * i end
  check("more channels than an operator takes", run(seg.concat(many), x, a), { 2, 24, 2, 4 },
        function(n, c, h, w)
    return ((c - 1) // 3 + 1) * number(own, n, (c - 1) % 3 + 1, h, w)
  end)

  for i, axis in ipairs { "c", "d", "h", "w" } do
    local shape = { 2, 3, 2, 4 }
    table.insert(shape, i + 1, 2)
    check("stack along " .. axis, run(seg.stack({ x, -x }, { axis = axis }), x, a), shape,
          function(...)
      local at = { ... }
      local which = table.remove(at, i + 1)
      return (which == 1 and 1 or -1) * number(own, table.unpack(at))
    end)
  end
  local v, b = numbered(3, 5)
  check("stack of rank 1", run(seg.stack({ v, v }, { axis = "w" }), v, b), { 2, 3, 5, 2 },
        function(n, c, h) return number({ 2, 3, 5 }, n, c, h) end)
end)

-- Rows are along w, columns along c: element (row i, column k) of x is x[n, k, .., i].
t.test("products of matrices", function()
  local x, a = numbered(3, 2, 4) -- 4 rows, 3 columns, for two h
  local own = { 2, 3, 2, 4 }
  local function product(ta, tb)
    return function(n, c, h, w)
      local sum = 0
      for k = 1, ta and 4 or 3 do
        sum = sum + 1e-3 * (ta and number(own, n, w, h, k) or number(own, n, k, h, w)) *
              (tb and number(own, n, k, h, c) or number(own, n, c, h, k))
      end
      return sum
    end
  end
  check("A Bt", run(seg.matmul(x, x * 1e-3, { transpose_b = true }), x, a), { 2, 4, 2, 4 },
        product(false, true))
  check("At B", run(seg.matmul(x, x * 1e-3, { transpose_a = true }), x, a), { 2, 3, 2, 3 },
        product(true, false))
  local once = nn.param("once", { 1, 2, 3 }, { init = 0.5 }) -- 3 rows, 2 columns, for all
  check("broadcast", run(seg.matmul(x, once), x, a), { 2, 2, 2, 4 }, function(n, _, h, w)
    local sum = 0
    for k = 1, 3 do sum = sum + 0.5 * number(own, n, k, h, w) end
    return sum
  end)
end)

-- The mean of the product of p x with itself over all pairs of positions is the sum over c of
-- p[c]^2 m[c]^2, m the mean of x over positions; both gradients of the product add up.
t.test("a product of a node with itself", function()
  for _, device in ipairs { "cpu", "ref" } do
    local x, a = numbered(2, 5) -- of samples 1 and 2: means 3 and 8, 13 and 18
    local name = "gain" .. made
    local y = x * 0.1 * nn.param(name, { 2 }, { init = 0.5 })
    local step = seg.step { loss = seg.mean(seg.matmul(y, y, { transpose_b = true })),
                            optim = optim.sgd { lr = 1 }, device = device }
    t.near(step:run { [x.name] = a }, 0.25 * (0.09 + 0.64 + 1.69 + 3.24) / 2, 1e-6)
    t.near(step:get(name):get(1), 0.5 - 0.5 * (0.09 + 1.69), 1e-6)
    t.near(step:get(name):get(2), 0.5 - 0.5 * (0.64 + 3.24), 1e-6)
  end
end)

-- One head of attention by hand has the values, and a layer before it the gradients, of the
-- operator.
t.test("attention from products and a softmax", function()
  local function results(attend)
    made = made + 1
    local name = "seq" .. made
    local x = nn.input(name, { c = 2, w = 7 })
    local qkv = nn.conv(x, 12, 1, { name = "qkv" .. made, bias = false })
    local y = attend(qkv)
    local step = seg.step { loss = seg.mean(y * y), optim = optim.sgd { lr = 1 }, seed = 3,
                            outputs = { y = y } }
    local a, w = array.zeros { 2, 2, 7 }, array.zeros { 12, 2, 1 }
    for n = 1, 2 do for c = 1, 2 do for i = 1, 7 do
      a:set(math.sin(n + 3 * c + i * i), n, c, i)
    end end end
    for o = 1, 12 do for c = 1, 2 do w:set(math.cos(o + 5 * c), o, c, 1) end end
    step:set("qkv" .. made .. ".weight", w)
    local _, out = step:run { [name] = a }
    return out.y, step:get("qkv" .. made .. ".weight")
  end
  local y, w = results(function(qkv) return op.attention(qkv, { heads = 1 }) end)
  local got, gw = results(function(qkv)
    local q, k, v = seg.split(qkv, { axis = "c", parts = 3 })
    local scores = seg.matmul(q, k, { transpose_b = true }) / 2
    return seg.matmul(seg.softmax(scores), v)
  end)
  check("y", got, { 2, 4, 7 }, function(...) return y:get(...) end)
  for o = 1, 12 do
    for c = 1, 2 do t.near(gw:get(o, c, 1), w:get(o, c, 1), 1e-6, "weight") end
  end
end)

t.test("softmax and standardisation over any axis", function()
  local x, a = numbered(3, 2, 4)
  local own = { 2, 3, 2, 4 }
  for axis, steps in pairs { c = { 3, 8 }, h = { 2, 4 }, w = { 4, 1 } } do
    check("softmax over " .. axis, run(seg.softmax(x * 0.1, { axis = axis }), x, a), own,
          function(_, c, h, w)
      local at = ({ c = c, h = h, w = w })[axis]
      local sum = 0
      for k = 1, steps[1] do sum = sum + math.exp(0.1 * steps[2] * (k - at)) end
      return 1 / sum
    end)
  end
  local y = seg.standardise(x, { axes = { "h", "w" }, eps = 0 })
  check("standardise", run(y, x, a), own, function(_, _, h, w)
    return (h * 4 + w - 8.5) / math.sqrt((64 - 1) / 12)
  end)
end)

t.test("other sizes than those of the recipe", function()
  local x = nn.input("any", { c = 2, h = 4, w = 4 })
  local left = seg.split(x, { axis = "c", parts = 2 })
  local y = seg.softmax(seg.concat({ x, seg.flip(x, { axes = { "w" } }) }, { axis = "h" }),
                        { axis = "w" }) .. seg.repeats(seg.roll(left, { w = 1 }), { h = 2 })
  local out = seg.model { outputs = { y = y } }:run({ any = array.zeros { 1, 2, 3, 5 } }).y
  check("y", out, { 1, 3, 6, 5 }, function(_, c) return c == 3 and 0 or 0.2 end)
end)

t.test("mistakes are named", function()
  local x = nn.input("wrong", { c = 3, h = 2, w = 4 })
  local v, far = nn.input("vector", { c = 6 }), nn.input("volume", { c = 3, d = 2, h = 2, w = 2 })
  local function raises(part, f, ...)
    local args = table.pack(...)
    t.raises(function() return f(table.unpack(args, 1, args.n)) end, part)
  end
  local nan = 0 / 0

  raises("seg.reshape: the operand must be a node", seg.reshape, nil, { c = 1 })
  raises("seg.reshape: c is missing", seg.reshape, x)
  raises("seg.reshape: options must be a table", seg.reshape, x, 6)
  raises("seg.sum: options must be a table {...}, got a node; fix: of several results", seg.sum,
         seg.sort(x, { axis = "w" }))
  raises("seg.reshape: w is missing", seg.reshape, x, { c = 2, h = 12 })
  raises("seg.reshape: h is missing", seg.reshape, x, { c = 2, d = 12, w = 1 })
  raises('unknown option "n"', seg.reshape, x, { c = 24, n = 2 })
  raises("reshape: the 24 elements of a sample of 1x3x2x4 (N,C,H,W) do not fill c 5, d 1, h 1, w 1",
         seg.reshape, x, { c = 5 })
  raises("do not fill c -1", seg.reshape, x, { c = -1, w = 7 })
  raises("do not fill c 2147483647", seg.reshape, x, { c = 2 ^ 31 - 1, h = 2 ^ 31 - 1,
                                                       w = 2 ^ 31 - 1 })
  raises("-1 for one axis", seg.reshape, x, { c = -1, w = -1 })
  for _, wrong in ipairs { nan, 1 / 0, 0, -2, 1.5, "many", 2 ^ 31, {} } do
    raises("seg.reshape: c must be a whole number from 1 to 2147483647", seg.reshape, x,
           { c = wrong })
    raises("seg.repeats: w must be a whole number", seg.repeats, x, { w = wrong })
  end
  raises("channels_last must be true or false", seg.reshape, x, { c = 24, channels_last = 1 })

  raises("seg.permute: axis 2 is d, wanted an axis of input wrong", seg.permute, x,
         { "w", "d", "c" })
  raises("seg.permute: 2 axes, wanted all 3", seg.permute, x, { "w", "c" })
  raises("seg.permute: axis c is given twice", seg.permute, x, { "w", "c", "c" })
  raises("seg.permute: the axes must be a list, got wc", seg.permute, x, "wc")
  raises("seg.permute: axis 1 is n, the batch", seg.permute, x, { "n", "c", "h", "w" })
  raises("seg.transpose: axis 2 is nil, wanted an axis", seg.transpose, x, "w")
  raises("seg.transpose: axis 1 is table", seg.transpose, x, { "w", "c" })

  raises("seg.permute: element 1 of the axes is nil", seg.permute, x, { nil, "h", "w" })
  raises("seg.concat: element 1 of the operands is nil", seg.concat, { nil, x })
  raises("seg.flip: axes must be a list, got w", seg.flip, x, { axes = "w" })
  raises("seg.flip: axes must be a list, got nil", seg.flip, x)
  raises("seg.flip: an axis is d, wanted", seg.flip, x, { axes = { "d" } })
  raises("seg.roll: give a number for an axis", seg.roll, x)
  raises("seg.roll: a key is d, wanted an axis of", seg.roll, x, { d = 1 })
  raises("seg.roll: w must be a whole number from -2147483647", seg.roll, x, { w = nan })
  raises("seg.repeats: the operand must be a node", seg.repeats, 3, { w = 2 })
  raises("repeats: w = 4 times 2147483647 is too large", seg.repeats, x, { w = 2 ^ 31 - 1 })
  raises("seg.cumsum: axis is nil, wanted", seg.cumsum, x)
  raises("seg.cumsum: reverse must be true or false", seg.cumsum, x, { axis = "w", reverse = 1 })

  raises("give either sizes", seg.split, x, { axis = "c" })
  raises("give either sizes", seg.split, x, { axis = "c", parts = 3, sizes = { 1, 2 } })
  raises("c = 3 does not divide into 2 parts", seg.split, x, { axis = "c", parts = 2 })
  raises("the sizes add up to 2, wanted c = 3", seg.split, x, { axis = "c", sizes = { 2 } })
  raises("size 2 must be a whole number from 1", seg.split, x, { axis = "c", sizes = { 3, 0 } })
  raises("seg.split: axis is n, the batch", seg.split, x, { axis = "n", parts = 1 })
  raises("the operands must be a list", seg.concat, x)
  raises("seg.concat: operand 2 must be a node of the network, got number", seg.concat, { x, 1 })
  raises("wanted the same axes", seg.concat, { x, far })
  raises("operand 2 has c = 2 and operand 1 3; only w may differ", seg.concat,
         { x, nn.slice(x, { c = { 1, 2 } }) }, { axis = "w" })
  raises("takes no more axes", seg.stack, { far, far }, { axis = "w" })
  raises("axis is nil, wanted the new axis in the result: c d h w", seg.stack, { x, x })
  raises("wanted equal extents", seg.stack, { x, seg.repeats(x, { w = 2 }) }, { axis = "d" })

  raises("seg.matmul: operand 2 must be a node", seg.matmul, x, 2)
  raises("1x3x2x4 (N,C,H,W) has 3 columns, and 1x3x2x4 (N,C,H,W) has 4 rows", seg.matmul, x, x)
  raises("transposed has 4 columns", seg.matmul, x, nn.slice(x, { w = { 1, 3 } }),
         { transpose_a = true })
  raises("n, d and h must be equal or 1", seg.matmul, x,
         nn.slice(seg.repeats(x, { h = 2 }), { w = { 1, 3 }, h = { 1, 3 } }))
  raises("transpose_a must be true or false", seg.matmul, x, x, { transpose_a = "yes" })
  raises('unknown option "transpose"', seg.matmul, x, x, { transpose = true })
  raises("seg.softmax: axis is d, wanted", seg.softmax, x, { axis = "d" })
  raises("seg.softmax: axis is w, wanted an axis of input vector", seg.softmax, v, { axis = "w" })
  raises("seg.standardise: axes must be a list", seg.standardise, x)
  raises("eps must be a finite number from 0 on, got -1", seg.standardise, x,
         { axes = { "w" }, eps = -1 })
  raises("an axis is d", seg.standardise, x, { axes = { "d" } })
end)

-- The bare operators check their attributes too.
t.test("mistakes in attributes are named", function()
  local x = nn.input("bare", { c = 3, w = 4 })
  local function raises(part, name, attrs)
    t.raises(function() return core.op[name](x, attrs) end, part)
  end
  raises("reshape: rank must be 0 .. 3, got 4", "reshape", { c = 12, rank = 4 })
  raises("more axes than the operands", "reshape", { c = 3, w = 4 })
  raises("permute: w must be an axis, 0 .. 3, got 4", "permute", { w = 4 })
  raises("permute: axis w of the operand is given twice", "permute", { c = 2 })
  raises("permute: 1x3x4 (N,C,W) has no axis h", "permute", { h = 2, w = 1 })
  raises("repeats: c must be >= 1, got 0", "repeats", { c = 0 })
  raises("more axes than the operands", "repeats", { h = 2 })
  raises("cumsum: axis must be 0 .. 3, got -1", "cumsum", { axis = -1 })
  raises("matmul: operand 2 is missing", "matmul", {})
end)

t.finish()
