-- api.lua -- the Lua interface: shapes, names, counts, and error messages.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local nn, optim, data = seg.nn, seg.optim, seg.data

local count = 0
-- A new input in a scope of its own, so that tests do not share names.
local function input(o)
  count = count + 1
  return nn.input("x" .. count, o)
end

local function shape(node)
  return table.concat(node.shape, "x")
end

local function in_scope(f)
  count = count + 1
  return nn.scope("s" .. count, f)
end

t.test("what is no node, no function is said so", function()
  local x = input { c = 1 }
  t.raises(function() return data.foo end,
           "data.foo: there is no such function; known: biwi, cases, concat, csv")
  t.raises(function() seg.model { outputs = { a = x, y = 3 } } end,
           "a list of nodes of the network has a number at 2")
  t.raises(function() seg.metric.dice(nil, x) end, "must be nodes of the network, got nothing")
end)

t.test("rank comes from the input and stays", function()
  t.equal(input { c = 3 }.rank, 0)
  t.equal(input { c = 3, w = 5 }.rank, 1)
  t.equal(input { c = 3, h = 4, w = 5 }.rank, 2)
  local x = input { c = 3, d = 2, h = 4, w = 6 }
  t.equal(x.rank, 3)
  t.equal(shape(x), "1x3x2x4x6")
  t.equal(shape(nn.maxpool(x, 2)), "1x3x1x2x3")
end)

t.test("convolution: sizes as PyTorch counts them", function()
  in_scope(function()
    local x = input { c = 3, h = 17, w = 20 }
    t.equal(shape(nn.conv(x, 8, 3)), "1x8x17x20")
    t.equal(shape(nn.conv(x, 8, 3, { stride = 2 })), "1x8x9x10")
    t.equal(shape(nn.conv(x, 8, 3, { stride = 2, pad = "same" })), "1x8x9x10")
    t.equal(shape(nn.conv(x, 8, 4, { stride = 2, pad = 1 })), "1x8x8x10")
    t.equal(shape(nn.conv(x, 8, { 1, 5 }, { pad = { 0, 2 } })), "1x8x17x20")
    t.equal(shape(nn.conv(x, 8, 3, { dilation = 2 })), "1x8x17x20")
    t.equal(shape(nn.upconv(x, 5, 2)), "1x5x34x40")
    t.equal(shape(nn.upconv(x, 5, 4)), "1x5x34x40")
    t.equal(shape(nn.upconv(x, 5, 3, { pad = 1, out_pad = 1 })), "1x5x34x40")
    t.equal(shape(nn.upsample(x, 2)), "1x3x34x40")
    t.equal(shape(nn.flatten(x)), "1x1020")
    t.equal(shape(nn.global_pool(x)), "1x3")
    t.equal(shape(x .. x), "1x6x17x20")
  end)
end)

t.test("parameters are named by scope, kind and number", function()
  local x = input { c = 2, h = 8, w = 8 }
  local y = nn.scope("enc", function()
    local a = nn.relu(nn.batch_norm(nn.conv(x, 4, 3, { bias = false })))
    local deep = nn.scope("deep", function() return nn.conv(a, 4, 1, { name = "head" }) end)
    return nn.conv(deep, 1, 1)
  end)
  local m = seg.model { outputs = { y = y } }
  local names = {}
  for name, p in pairs(m:parameters()) do
    names[#names + 1] = name .. "=" .. table.concat(p.shape, "x")
  end
  table.sort(names)
  t.equal(table.concat(names, " "), "enc.conv1.weight=4x2x3x3 enc.conv2.bias=1 "
    .. "enc.conv2.weight=1x4x1x1 enc.deep.head.bias=4 enc.deep.head.weight=4x4x1x1 "
    .. "enc.norm1.bias=4 enc.norm1.running_mean=4 enc.norm1.running_var=4 enc.norm1.weight=4")
end)

t.test("a shared scope uses its parameters again", function()
  local x = input { c = 2, w = 6 }
  local function twin() return nn.conv(x, 2, 3) end
  local a = nn.scope("twin", twin, { share = true })
  local b = nn.scope("twin", twin, { share = true })
  local m = seg.model { outputs = { a = a, b = b } }
  local values = seg.array { shape = { 1, 2, 6 }, data = { 1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1 } }
  local out = m:run { [x.name] = values }
  t.equal(out.a:get(1, 2, 3), out.b:get(1, 2, 3))
  t.raises(function() nn.scope("twin", twin) end, 'nn.scope: "twin" was entered before')
end)

t.test("a shared scope shares the scopes inside it", function()
  local x = input { c = 2, w = 6 }
  local function deep(inner)
    return nn.scope("outer", function()
      local y = nn.scope(inner, function() return nn.conv(x, 2, 3) end)
      return nn.conv(y, 1, 1)
    end, { share = true })
  end
  local m = seg.model { outputs = { a = deep "inner", b = deep "inner" } }
  local names = {}
  for name in pairs(m:parameters()) do names[#names + 1] = name end
  table.sort(names)
  t.equal(table.concat(names, " "), "outer.conv1.bias outer.conv1.weight outer.inner.conv1.bias "
          .. "outer.inner.conv1.weight")
  t.raises(function() deep "other" end, 'shared scope "outer": it had no scope "other" the first')
end)

t.test("arithmetic of nodes", function()
  local x = input { c = 1, w = 3 }
  local y = (2 * x + 1) / 4 - x * x + (3 - x)
  local m = seg.model { outputs = { y = y }, device = "ref" }
  local out = m:run { [x.name] = seg.array { shape = { 1, 1, 3 }, data = { 0, 1, 2 } } }
  for i, v in ipairs { 0, 1, 2 } do
    t.near(out.y:get(1, 1, i), (2 * v + 1) / 4 - v * v + 3 - v, 1e-6)
  end
end)

t.test("one SGD step of a linear layer, by hand", function()
  in_scope(function()
    local x, y = input { c = 2 }, input { c = 1 }
    local loss = nn.mse(nn.linear(x, 1, { name = "fc" }), y)
    local s = seg.step { loss = loss, optim = optim.sgd { lr = 0.1 }, device = "ref" }
    local scope = "s" .. (count - 2)
    local w0, w1 = s:get(scope .. ".fc.weight"):get(1, 1), s:get(scope .. ".fc.weight"):get(1, 2)
    local b = s:get(scope .. ".fc.bias"):get(1)
    local got = s:run { [x.name] = seg.array { shape = { 1, 2 }, data = { 3, -2 } },
                        [y.name] = seg.array { shape = { 1, 1 }, data = { 0.5 } } }
    local e = w0 * 3 - w1 * 2 + b - 0.5
    t.near(got, e * e, 1e-6)
    t.near(s:get(scope .. ".fc.weight"):get(1, 1), w0 - 0.1 * 2 * e * 3, 1e-6)
    t.near(s:get(scope .. ".fc.bias"):get(1), b - 0.1 * 2 * e, 1e-6)
    t.near(s:gradients()[scope .. ".fc.weight"]:get(1, 2), 2 * e * -2, 1e-5)
  end)
end)

t.test("frozen layers keep their weights, the others learn", function()
  in_scope(function()
    local x, y = input { c = 2 }, input { c = 1 }
    local hidden = nn.linear(x, 3, { name = "old" })
    local loss = nn.mse(nn.linear(hidden, 1, { name = "new" }), y)
    local scope = "s" .. (count - 2)
    local function step(frozen)
      return seg.step { loss = loss, optim = optim.adamw { lr = 0.1, decay = 0.5 },
                        device = "ref", frozen = frozen }
    end
    local s = step { scope .. ".old" }
    local old, new = s:get(scope .. ".old.weight"):get(2, 1), s:get(scope .. ".new.bias"):get(1)
    s:run { [x.name] = seg.array { shape = { 1, 2 }, data = { 3, -2 } },
            [y.name] = seg.array { shape = { 1, 1 }, data = { 0.5 } } }
    t.equal(s:get(scope .. ".old.weight"):get(2, 1), old)
    t.near(math.abs(s:get(scope .. ".new.bias"):get(1) - new), 0.1, 0.06)
    t.raises(function() step { "nobody" } end,
             'frozen: no trained parameter is called "nobody" or begins with "nobody."')
    t.raises(function() step { 1 } end, "frozen must be a list of names")
  end)
end)

t.test("a target that is no class is named", function()
  in_scope(function()
    local x, y = input { c = 3, w = 2 }, input { c = 1, w = 2 }
    local loss = nn.cross_entropy(nn.conv(x, 3, 1), y)
    local s = seg.step { loss = loss, optim = optim.sgd { lr = 0.1 } }
    local values = seg.array.zeros { 1, 3, 2 }
    local target = seg.array { shape = { 1, 1, 2 }, data = { 0, 3 } }
    t.raises(function() s:run { [x.name] = values, [y.name] = target } end,
             "the target holds 3, want a class number from 0 to 2, or -100 to be ignored")
    target:set(-100, 1, 1, 2)
    t.near(s:run { [x.name] = values, [y.name] = target }, math.log(3), 0.7)
  end)
end)

t.test("weights saved are weights loaded, by other names too", function()
  local folder, remove = t.folder()
  local x = input { c = 1, w = 4 }
  local a = nn.conv(x, 2, 3, { name = "first" })
  local b = nn.conv(x, 2, 3, { name = "second" })
  local one = seg.model { outputs = { y = a }, seed = 1 }
  one:save(folder .. "/w.safetensors")
  local two = seg.model { outputs = { y = b }, seed = 2 }
  local function rename(n) return (n:gsub("first", "second")) end
  two:load(folder .. "/w.safetensors", { rename = rename })
  t.equal(two:get("second.weight"):get(2, 1, 3), one:get("first.weight"):get(2, 1, 3))
  t.raises(function() two:load(folder .. "/w.safetensors") end, "second.weight")
  remove()
end)

t.test("arrays: indices, shapes, files", function()
  local folder, remove = t.folder()
  local a = seg.array { shape = { 2, 3 }, data = { { 1, 2, 3 }, { 4, 5, 6 } } }
  t.equal(a:get(2, 1), 4.0)
  a:set(7.5, 1, 3)
  seg.array.save(folder .. "/a.npy", a)
  local b = seg.array.load(folder .. "/a.npy")
  t.equal(table.concat(b.shape, "x"), "2x3")
  t.equal(b:get(1, 3), 7.5)
  t.raises(function() a:get(3, 1) end, "index must be from 1 to 2, got 3")
  t.raises(function() a:get(1, 1, 1) end, "3 indices, the array has 2 axes")
  t.raises(function() seg.array { shape = { 2 }, data = { 1, 2, 3 } } end, "data has 3 numbers")
  t.raises(function() seg.array { shape = { 2 }, data = 5 } end, "data must be a table of numbers")
  remove()
end)

t.test("arrays: by name from archives", function()
  local folder, remove = t.folder()
  local corpus = "tests/fuzz/corpus/"
  -- inputs of the fuzz target mat have a byte of options in front
  os.execute("cp " .. corpus .. "npz/deflated " .. folder .. "/x.npz; tail -c +2 " .. corpus
    .. "mat/file_be > " .. folder .. "/x.MAT; tail -c +2 " .. corpus .. "mat/kinds > " .. folder
    .. "/kinds.mat")
  local npz, mat, kinds = folder .. "/x.npz", folder .. "/x.MAT", folder .. "/kinds.mat"
  local a = seg.array.load(npz, "a")
  t.equal(tostring(a), "array 2x3")
  t.equal(a:get(2, 1), 3.0)
  t.equal(seg.array.load(npz, "f"):get(2, 1), 3.0, "Fortran order")
  t.equal(seg.array.load(npz, "s").count, 1, "one number")
  local m = seg.array.load(mat, "abc")
  t.equal(tostring(m), "array 2x3")
  t.equal(m:get(2, 1), 1.0, "columns")
  t.equal(m:get(1, 2), 2.0, "columns")
  local function listed(path)
    local rows = {}
    for i, e in ipairs(seg.array.list(path)) do
      rows[i] = e.name .. " " .. e.type .. " " .. table.concat(e.shape, "x")
        .. (e.why and "!" or "")
    end
    return table.concat(rows, ", ")
  end
  t.equal(listed(npz), "a int16 2x3, f float32 2x3, s float64 ")
  t.equal(listed(mat), "abc double 2x3")
  t.equal(listed(kinds), "t char 1x4!, s struct 1x1!, z complex double 1x1!, c_ cell 1x2!, "
    .. "l logical 1x2")
  seg.array.save(folder .. "/a.npy", a)
  t.equal(listed(folder .. "/a.npy"), " float32 2x3")
  t.raises(function() seg.array.load(npz) end, "give the name of one, load(path, name)")
  t.raises(function() seg.array.load(folder .. "/a.npy", "a") end, "it has no names")
  t.raises(function() seg.array.load(npz, "b") end, 'no array "b"; there are: a, f, s')
  t.raises(function() seg.array.load(kinds, "z") end, "kinds.mat: mat: z: is complex, need real")
  t.raises(function() seg.array.load(folder .. "/no.npz", "b") end, "no.npz: npz: cannot open")
  t.raises(function() seg.array.list(folder .. "/no.mat") end, "no.mat: mat: cannot open")
  remove()
end)

t.test("mistakes are named at the recipe's line", function()
  local x = input { c = 3, h = 8, w = 8 }
  t.raises(function() nn.conv(x, 0, 3) end, "nn.conv: filters must be >= 1, got 0")
  t.raises(function() nn.conv(x, 4, 3, { strid = 2 }) end,
           'unknown option "strid"; did you mean "stride"')
  t.raises(function() nn.conv(x, 4, { 3, 3, 3 }) end,
           "nn.conv: kernel must be a number or a list of 2")
  t.raises(function() nn.conv(nil, 4, 3) end,
           "nn.conv: the operand must be a node of the network, got nil")
  t.raises(function() nn.maxpool(x, 9) end, "a window of 9 does not fit h = 8")
  t.raises(function() return x .. nn.maxpool(x, 2) end, "differ in more than channels")
  t.raises(function() nn.bce(nn.maxpool(x, 2), x) end, "a target of shape")
  t.raises(function() nn.dropout(x, 1) end, "nn.dropout: p must be from 0 to below 1, got 1")
  t.raises(function() nn.input(x.name, { c = 1 }) end, "exists already")
  t.raises(function() nn.input("bad name", { c = 1 }) end, "letters, digits")
  t.raises(function() nn.input("y", { h = 3, w = 3 }) end, 'nn.input("y"): give {c}')
  t.raises(function() optim.adamw { lr = "fast" } end,
           "optim.adamw: lr must be a number >= 0, got fast")
  t.raises(function() optim.adamw { rate = 1 } end, 'unknown option "rate"')
  t.raises(function() return x.q end, 'a node has no field "q"')
  t.raises(function() seg.model { outputs = { y = x }, device = "tpu" } end,
           'device "tpu" is not known')
  t.raises(function() seg.model { outputs = { y = x }, precision = "f16" } end,
           "precision f16 is not available on device cpu, which has f32, bf16: use --precision f32")
  t.raises(function() seg.model { outputs = { y = x }, precision = "half" } end,
           'precision "half" is not known; use f32, tf32, bf16 or f16')
  t.raises(function() seg.step { loss = x, optim = optim.sgd { lr = 1 } } end,
           "the loss must be one number")
end)

t.test("data steps are checked where they are written", function()
  local set = data.dicom { root = "nowhere" }
  t.raises(function() set:resize { hight = 3 } end, 'resize: unknown option "hight"; did you mean')
  t.raises(function() set:normalize { method = "z" } end, "zscore")
  t.raises(function() set:augment { rotate = {} } end, 'augment: unknown change "rotate"')
  t.raises(function() set:augment { affine = { angle = 3 } } end, 'affine: unknown option "angle"')
  t.raises(function() set:augment { affine = { rotate = { 0, 200 } } } end, "wanted -180 to 180")
  t.raises(function() set:augment { affine = { shift = true } } end,
           "affine: shift is true, wanted numbers")
  t.raises(function() set:augment { flip = { swap = { 1, 2, 3 } } } end, "wanted pairs")
  t.raises(function() set:augment { elastic = { spacing = 8 } } end,
           "wanted at most 0.4 spacing = 3.2")
  t.equal(set:augment { flip = { swap = { 1, 2, 7, 8 }, negate = { 2 } } }.steps,
          "flip axis=w p=0.5 negate=2 swap=1,2,7,8\n")
  t.equal(set:augment { affine = { rotate = { -5, 5 }, shift = 0 }, flip = true }.steps,
          "flip axis=w p=0.5\naffine rotate=-5,5 scale=0.9,1.1 shift=0 p=0.3 shear=0,0 "
          .. "about=all step=0\n")
  t.raises(function() data.dicom { root = 1 } end, "data.dicom: root must be the folder")
  t.raises(function() set:dataset() end, "nowhere")
end)

t.test("numbers for people", function()
  local util = require "seg.util"
  for _, row in ipairs {
    { util.duration(0.04), "0.0 s" }, { util.duration(59.94), "59.9 s" },
    { util.duration(59.96), "1 min 00 s" }, { util.duration(185.2), "3 min 05 s" },
    { util.duration(3599.7), "1 h 00 min" }, { util.duration(7800.3), "2 h 10 min" },
    { util.plain_name("Pä1 頭"), "Pä1_頭" }, { util.plain_name("../A\\1:b"), ".._A_1_b" },
    { util.plain_name("P\xe41"), "P_1" }, { util.plain_name("a\u{202e}b\u{a0}c"), "a_b_c" },
    { util.bytes(1023), "1023 B" }, { util.bytes(1.5 * 2 ^ 30), "1.5 GiB" },
    { util.thousands(7762465), "7,762,465" }, { util.thousands(-123456), "-123,456" },
    { util.thousands(0), "0" }, { util.number(0.1), "0.1" },
    { util.number(1 / 3), "0.3333333333333333" },
  } do t.equal(row[1], row[2]) end
end)

t.test("schedules equal their closed forms", function()
  local c = optim.cosine { t_max = 90 }
  t.near(c.rate(1e-3, 1, 120), 1e-3, 0)
  t.near(c.rate(1e-3, 46, 120), 0.5e-3, 1e-12)
  t.near(c.rate(1e-3, 91, 120), 0, 1e-12)
  t.check(c.rate(1e-3, 120, 120) > 2e-4, "the rate climbs after t_max")
  t.check(c.warning(1e-3, 120):find("climbs again from epoch 92", 1, true), "and says so")
  t.check(c.warning(1e-3, 120):find("t_max = 120 lets it fall", 1, true), "with the way out")
  local one, two = seg.metric.summary { 0.5 }, seg.metric.summary { 0.5, 0.7 }
  t.check(one.n == 1 and one.mean == 0.5 and not one.sd and not one.low, "one case has no spread")
  t.near(two.sd, math.sqrt(0.02), 1e-12)
  t.check(not two.low, "no interval of two")
  local five = seg.metric.summary { 0.1, 0.2, 0.3, 0.4, 0.5 }
  t.check(five.low < 0.3 and five.high > 0.3, "an interval of five")
  t.equal(optim.cosine { t_max = 90, clamp = true }.warning(1e-3, 120), nil)
  t.check(optim.cosine({ t_max = 25, clamp = true }).warning(1e-3, 6):find(
            "t_max 25 is longer than 6 epochs, so the rate ends at 0.000905 of 0.001; t_max = 6 ",
            1, true), optim.cosine({ t_max = 25 }).warning(1e-3, 6))
  t.equal(optim.cosine({ t_max = 25 }).warning(1e-3, 24), nil) -- nearly nothing is left
  t.near(optim.cosine { t_max = 90, clamp = true }.rate(1e-3, 120, 120), 0, 1e-12)
  t.near(optim.step { every = 30 }.rate(1, 61, 90), 0.01, 1e-12)
  t.near(optim.poly {}.rate(1, 51, 100), 0.5 ^ 0.9, 1e-12)
end)

t.test("probabilities, or the truth, where logits are taken", function()
  local x, truth = input { c = 2, h = 8, w = 8 }, input { c = 2, h = 8, w = 8 }
  local logits = nn.conv(x, 2, 1)
  for _, loss in ipairs { "bce", "dice_loss", "bce_dice", "focal", "tversky", "cross_entropy" } do
    t.raises(function() nn[loss](nn.sigmoid(logits), truth) end, "nn." .. loss
             .. " takes logits and does the sigmoid itself; leave nn.sigmoid out of its operand")
    t.raises(function() nn[loss](nn.softmax(logits), truth) end, "does the softmax itself")
    t.raises(function() nn[loss](truth, logits) end, "nn." .. loss .. ": the operands are "
             .. '(prediction, target); the first is the input "' .. truth.name .. '"')
    t.raises(function() nn[loss](logits) end, "the target must be a node of the network, got nil")
  end
  t.raises(function() seg.metric.iou(nn.sigmoid(logits), truth) end, "metric.iou takes logits")
  t.raises(function() seg.metric.dice(truth, logits) end, "metric.dice: the operands are")
  nn.mse(nn.sigmoid(logits), truth) -- accepts any target
  local dose, parts = input { c = 1, h = 8, w = 8 }, input { c = 3, h = 8, w = 8 }
  local predicted = nn.conv(x, 1, 1)
  t.equal(nn.dvh_loss(predicted, dose, parts, { bins = 70, width = 0.5 }).kind, "dvh_loss")
  t.raises(function() nn.dvh_loss(predicted, dose) end, "the structures must be a node")
  t.raises(function() nn.dvh_loss(predicted, dose, parts, { bins = 257 }) end, "must be 1 .. 256")
  t.raises(function() nn.dvh_loss(dose, predicted, parts) end, "nn.dvh_loss: the operands are")
end)

t.test("weights that bring their own network", function()
  local folder, remove = t.folder()
  local x = input { c = 2, h = 4, w = 6 }
  local y = nn.conv(x, 3, 3, { name = "opened" })
  local m = seg.model { outputs = { y = y, z = nn.relu(y) } }
  m:save(folder .. "/w.safetensors")
  local feed = { [x.name] = seg.array.random({ 2, 2, 4, 6 }, 7) }
  local want = m:run(feed)
  -- twice, and together with the network of this script: names do not collide
  for _ = 1, 2 do
    local o = seg.open(folder .. "/w.safetensors")
    t.equal(table.concat(o:inputs()[x.name], "x"), "1x2x4x6")
    t.equal(table.concat(o:outputs().z, "x"), "1x3x4x6")
    local out = o:run(feed)
    t.equal(table.concat(out.y.shape, "x"), "2x3x4x6")
    for i = 1, 3 do t.equal(out.y:get(2, i, 3, 4), want.y:get(2, i, 3, 4)) end
    t.equal(out.z:get(1, 1, 1, 1), want.z:get(1, 1, 1, 1))
    t.raises(function() o:run {} end, 'input "' .. x.name .. '" is missing')
    t.raises(function() o:run { other = feed[x.name] } end, 'the network has no input "other"')
    t.raises(function() o:run { [x.name] = 1 } end, "must be a seg.array")
    t.raises(function() o:run { [x.name] = seg.array.zeros { 2 } } end, "has 1 axes, want")
    t.raises(function() o:run() end, "inputs must be a table name -> array")
  end
  t.raises(function() seg.open(folder .. "/none") end, folder .. "/none")
  t.raises(function() seg.open() end, "seg.open: the path must be a text, got nil")
  t.raises(function() seg.open(folder .. "/w.safetensors", { device = "tpu" }) end, "tpu")
  remove()
end)

t.test("reshape", function()
  local a = seg.array { shape = { 2, 3 }, data = { 1, 2, 3, 4, 5, 6 } }
  local b = a:reshape { 3, 1, 2 }
  t.equal(table.concat(b.shape, "x"), "3x1x2")
  t.equal(b:get(2, 1, 2), 4.0)
  b:set(9, 1, 1, 1)
  t.equal(a:get(1, 1), 1.0)
  t.raises(function() a:reshape { 4, 2 } end, "reshape: 6 elements, the new shape needs 8")
  t.raises(function() a:reshape { 2 ^ 31, 2 } end, "extent must be from 1")
end)

t.test("a name that a public table does not have", function()
  local x = nn.input("unknown_names", { c = 1, h = 4, w = 4 })
  for _, case in ipairs {
    { function() nn.dice(x, x) end, 'nn.dice: there is no such function; did you mean "dice_' },
    { function() nn.Dropout(x) end, 'did you mean "dropout"?' },
    { function() nn.Conv2d(x) end, 'did you mean "conv"?' },
    { function() optim.rmsprop {} end, "optim.rmsprop: there is no such function; " },
    { function() seg.metric.hausdorff(x, x) end, "metric.hausdorff: there is no such function; " },
    { function() seg.Recipe {} end, 'seg.Recipe: there is no such function; did you mean "rec' },
    { function() seg.array.zeroes {} end, 'did you mean "zeros"?' },
    { function() seg.op.rellu(x) end, 'did you mean "relu"?' },
    { function() seg.data.nifty {} end, 'did you mean "nifti"?' },
    { function() seg.data.nifti {}:normalise {} end, 'did you mean "normalize"?' },
  } do
    t.raises(case[1], case[2])
  end
end)

t.finish()
