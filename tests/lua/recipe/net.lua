-- net.lua -- the networks of seg.net: parameter counts, shapes, names, errors, gradients, and
-- PyTorch's numbers (tests/golden/networks.py).

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local net, nn, optim = seg.net, seg.nn, seg.optim

local help = dofile("tests/support/nets.lua")(t)
local input, in_scope, shape, planned = help.input, help.in_scope, help.shape, help.planned
local parameters, numbers, learns = help.parameters, help.numbers, help.learns
local folder, remove = t.folder()

-- Parameters of the recipes' networks and of others with known counts ----------------

t.test("U-Nets have the parameters that they are known by", function()
  local function unet(o, axes)
    return in_scope(function()
      local x = input(axes or { c = 1, h = 64, w = 64 })
      return (parameters(x, net.unet(x, o)))
    end)
  end
  t.equal(unet {}, 7762465)
  t.equal(unet { base = 64 }, 31036481)
  t.equal(unet({}, { c = 3, h = 64, w = 64 }), 7763041)
  t.equal(unet { features = { 32, 64, 128, 256, 512 }, bias = true }, 31105953)
  t.equal(unet { features = { 32, 64, 128, 256 }, bias = true }, 7765409)
end)

t.test("the generator, ResNets and pose networks too", function()
  local box = { c = 11, d = 64, h = 64, w = 64 }
  for filters, want in pairs { [32] = 29261569, [64] = 116981249, [128] = 467794945 } do
    in_scope(function()
      local x = input(box)
      local _, all = parameters(x, net.pix2pix(x, { filters = filters }))
      t.equal(all, want, filters .. " filters")
    end)
  end
  local photo = { c = 3, h = 64, w = 64 }
  for depth, want in pairs { [18] = 11689512, [34] = 21797672, [50] = 25557032 } do
    in_scope(function()
      local x = input(photo)
      t.equal(parameters(x, net.resnet(x, { depth = depth })), want, "depth " .. depth)
    end)
  end
  in_scope(function()
    local x = input(photo)
    t.equal(parameters(x, net.pose_resnet(x)), 14850274)
  end)
  in_scope(function()
    local x = input(photo)
    local trained, all = parameters(x, net.pose_cnn(x))
    t.equal(trained, 1206499)
    t.equal(all, 1208419)
  end)
  in_scope(function()
    local x = input { c = 1024, w = 500 }
    t.equal(parameters(x, net.cnn_lstm(x)), 3738944)
  end)
  in_scope(function()
    local x = input { c = 512 }
    t.equal(parameters(x, net.mlp(x, { hidden = { 256, 128 }, out = 5 })), 165637)
  end)
end)

t.test("the table of networks in docs/reference.md is what plan counts", function()
  local rows = 0
  for call, axes, trained, all, gflop in t.read("docs/reference.md"):gmatch(
    "\n| `(net%.[^`]+)` | `([^`]+)` | ([%d,]+) | ([%d,]+) | (%S+) |") do
    rows = rows + 1
    in_scope(function()
      local x = input(load("return " .. axes)())
      local y, deep = load("local net, x = ... return " .. call)(net, x)
      local plan = planned(x, y, table.unpack(deep or {}))
      t.equal(plan.trained, tonumber((trained:gsub(",", ""))), call)
      t.equal(plan.trained + plan.running, tonumber((all:gsub(",", ""))), call)
      t.equal(string.format("%.4g", plan.flops / 1e9), gflop, call)
    end)
  end
  t.check(rows >= 15, "docs/reference.md has %d rows", rows)
end)

-- The operators of this kind as "operand before: attributes", in order.
local function behind(node, kind)
  local list, before = {}, ""
  for line in core.graph_text({ node }):gmatch("[^\n]+") do
    local row, name, attributes = line:match("^(%S+) (%S+) %S+ ?(.*)$")
    if row == kind then list[#list + 1] = before .. ": " .. attributes end
    if row ~= "param" then before = name ~= "-" and name or row end
  end
  return table.concat(list, ", ")
end

t.test("dropout and norms as the originals have them", function()
  local y = net.pix2pix(input { c = 1, h = 64, w = 64 }, { filters = 1, name = "d" })
  t.equal(behind(y, "spatial_dropout"), "d.x4b.norm1: p=0.200000003, d.x2b.norm1: p=0.200000003")
  local keras = " eps=0.00100000005 momentum=0.00999999978"
  t.equal(select(2, core.graph_text({ y }):gsub(keras, "")), 10)
  y = net.pose_resnet(input { c = 3, h = 32, w = 32 }, { base = 1, name = "p" })
  local places = { "shared 0.3", "face 0.2", "pose 0.2", "face_encoder 0.1", "face_encoder 0.1",
                   "pose_encoder 0.1", "pose_encoder 0.1", "fusion 0.1", "relu 0.05" }
  local found = behind(y, "dropout"):gsub("p%.([%w_]+)%.norm%d: p=", "%1 ")
  local function short(p) return string.format("%g", p) end
  t.equal(found:gsub("relu: p=", "relu "):gsub("%d%.%d+", short), table.concat(places, ", "))
  y = net.cnn_lstm(input { c = 2, w = 16 }, { name = "q" })
  found = behind(y, "dropout"):gsub("%d%.%d+", short)
  t.equal(found, "maxpool: p=0.2, maxpool: p=0.2, maxpool: p=0.2, concat: p=0.3, relu: p=0.3")
end)

-- The two recipes --------------------------------------------------------------

-- Runs a script and returns the text of its graph; with a path also writes initial weights there.
local function network(script, options)
  local path = t.write(folder .. "/network.lua", [[
    local core, seg = require "seg.core", require "seg"
    local logits = (function() ]] .. script .. [[ end)()
    if not logits then
      logits = require("seg.recipe.recipe").current.outputs.mask
    end
    print(core.graph_text { logits })
    local m = seg.model { outputs = { mask = logits }, seed = 42 }
    m:save("]] .. folder .. [[/network.safetensors")
    os.exit(0)]])
  local code, text = t.program(path .. " " .. options)
  t.equal(code, 0, text)
  return text, t.read(folder .. "/network.safetensors")
end

t.test("the recipes' networks are calls of net.unet, byte for byte", function()
  for name, call in pairs {
    brain_unet = "{ base = cfg.base }",
    nfbs_unet = "{ features = cfg.features, bias = true }",
  } do
    local preset = "--preset check"
    local text, weights = network('dofile "scripts/' .. name .. '.lua"', preset)
    local mine, same = network([[
      local cfg = seg.config { size = 32, base = 4, features = { 4, 8, 16 } }
      local x = seg.nn.input("image", { c = 1, h = cfg.size, w = cfg.size })
      return seg.nn.sigmoid(seg.net.unet(x, ]] .. call .. ")) ", "")
    t.equal(mine, text, name)
    t.check(same == weights, "%s: initial weights differ", name)
  end
end)

-- Shapes -------------------------------------------------------------------------

t.test("a U-Net takes the rank of its input, and any widths", function()
  in_scope(function()
    local o = { features = { 2, 3 }, out = 4 }
    local function unet(axes, more)
      for k, v in pairs(more or {}) do o[k] = v end
      o.name = "u" .. help.count(1)
      return net.unet(input(axes), o)
    end
    t.equal(shape(unet { c = 5, w = 12 }), "1x4x12")
    t.equal(shape(unet { c = 5, h = 8, w = 12 }), "1x4x8x12")
    t.equal(shape(unet { c = 5, d = 4, h = 8, w = 12 }), "1x4x4x8x12")
    local thin = { factors = { { 1, 2, 2 }, 2 }, kernel = { 1, 3, 3 } }
    t.equal(shape(unet({ c = 1, d = 2, h = 8, w = 12 }, thin)), "1x4x2x8x12")
    o.factors, o.kernel = nil, nil
    local logits, deep = unet({ c = 1, h = 16, w = 8 }, { features = { 2, 3, 4 }, deep = 2 })
    t.equal(shape(logits), "1x4x16x8")
    t.equal(#deep, 2)
    t.equal(shape(deep[1]) .. " " .. shape(deep[2]), "1x4x8x4 1x4x4x2")
  end)
end)

t.test("other extents are refused with those that fit, or padded", function()
  in_scope(function()
    local x = input { c = 1, h = 100, w = 96 }
    t.raises(function() net.unet(x) end,
             "net.unet: h = 100 is not a multiple of 16, as a network of 4 levels needs; fix: 96 "
             .. "or "
             .. "112 (resize, fit or patches of the data), or pad = true")
    t.raises(function() net.unet(input { c = 1, w = 3 }, { levels = 2 }) end,
             "w = 3 is not a multiple of 4, as a network of 2 levels needs; fix: 4 (")
    t.raises(function() net.pix2pix(x) end,
             "net.pix2pix: h = 100 is not a multiple of 64, as halving 6 times needs; fix: 64 or "
             .. "128")
    t.raises(function() net.unet(x, { pad = true, deep = 1 }) end, "deep = 1 needs extents")
    t.equal(shape(net.unet(x, { base = 2, pad = true, name = "padded" })), "1x1x100x96")
  end)
end)

t.test("a padded network is the network of the padded image", function()
  in_scope(function()
    local small, large = input { c = 1, w = 5 }, input { c = 1, w = 8 }
    local function unet(x, pad)
      return nn.scope("twin", function()
        return net.unet(x, { features = { 2, 3 }, pad = pad })
      end, { share = true })
    end
    local m = seg.model { outputs = { a = unet(small, true), b = unet(large) }, device = "ref" }
    local out = m:run {
      [small.name] = seg.array { shape = { 1, 1, 5 }, data = { 1, -2, 3, 4, 5 } },
      [large.name] = seg.array { shape = { 1, 1, 8 }, data = { 1, -2, 3, 4, 5, 0, 0, 0 } } }
    t.equal(table.concat(out.a.shape, "x"), "1x1x5")
    for i = 1, 5 do t.equal(out.a:get(1, 1, i), out.b:get(1, 1, i), "position " .. i) end
  end)
end)

-- Errors ---------------------------------------------------------------------------

t.test("options are checked, and the nearest is named", function()
  in_scope(function()
    local x, vector = input { c = 2, h = 16, w = 16 }, input { c = 2 }
    for _, case in ipairs {
      { { feature = { 1 } }, 'net.unet: unknown option "feature"; did you mean "features"?' },
      { { norm = "btach" }, 'net.unet: norm "btach" is not known; did you mean "batch"?' },
      { { norm = { "group", group = 2 } }, 'unknown option "group"; did you mean "groups"?' },
      { { act = "rleu" }, 'net.unet: act "rleu" is not known; did you mean "relu"?' },
      { { features = {} }, "features must be a list of widths as {32, 64, 128}, got an empty one" },
      { { features = { 4, 0 } }, "features: width 2 must be a whole number >= 1, got 0" },
      { { features = 32 }, "features must be a list of widths as {32, 64, 128}, got 32" },
      { { kernel = 2 }, "net.unet: kernel must be odd, got 2" },
      { { kernel = { 3, 3, 3 } }, "kernel must be a number or a list of 2, one for each of h, w" },
      { { factors = { 2 } }, "net.unet: factors has 1 entry for 4 levels" },
      { { deep = 4 }, "deep = 4, but of 4 levels at most 3 have a coarser result" },
      { { gates = 1 }, "net.unet: gates must be true or false, got 1" },
      { { up = "cubic" }, 'net.unet: up "cubic" is not known' },
      { { dropout = 1 }, "p must be from 0 to below 1, got 1" },
    } do
      t.raises(function() in_scope(function() net.unet(x, case[1]) end) end, case[2])
    end
    t.raises(function() net.unet(vector) end, "net.unet: the operand has no axes except channels")
    t.raises(function() net.unet(nil) end, "must be a node of the network, got nil")
    t.raises(function() net:unet(x) end, "write a dot, net.unet")
    t.raises(function() return net.unett end, 'did you mean "unet"?')
    t.raises(function() net.cnn_lstm(x) end, "the operand must be a sequence")
    t.raises(function() net.resnet(x, { depth = 20 }) end, "depth must be 18, 34 or 50, got 20")
    t.raises(function() net.pix2pix(x, { levels = 2, smooth = 2 }) end, "smooth must be odd")
    t.raises(function() net.pose_resnet(x, { dropout = 0.3 }) end, "dropout must be four shares")
    t.raises(function() net.attention_gate(x) end, "the second operand must be the node")
    t.raises(function() net.attention_gate(x, input { c = 1, h = 3, w = 16 }) end,
             "the extents 1x2x16x16 are not whole multiples of 1x1x3x16")
    net.unet(x, { base = 2 })
    t.raises(function() net.unet(x, { base = 2 }) end, "was entered before")
  end)
end)

-- Gradients ------------------------------------------------------------------------

-- a gradient everywhere, so that no unit is dead by chance
local leaky = { "leaky_relu", 0.1 }

learns("1-D U-Net", { c = 2, w = 8 }, function(x)
  return net.unet(x, { features = { 2, 3 }, act = leaky, bias = true, norm = "none" })
end)
learns("residual U-Net with gates and squeezing", { c = 1, h = 8, w = 16 }, function(x)
  return net.unet(x, { features = { 4, 4 }, act = "silu", residual = true, gates = true,
                       squeeze = 1, norm = { "group", groups = 2 }, up = "linear", down = "conv" })
end)
learns("3-D U-Net with dropout", { c = 1, d = 4, h = 4, w = 8 }, function(x)
  return net.unet(x, { features = { 2 }, act = leaky, norm = "none", dropout = 0.2 })
end)
learns("generator", { c = 2, d = 4, h = 4, w = 8 }, function(x)
  return net.pix2pix(x, { filters = 2, levels = 2, final = "none" })
end)
learns("ResNet-18", { c = 3, h = 32, w = 48 }, function(x)
  return net.resnet(x, { base = 4, out = 3 })
end)
learns("pose_cnn", { c = 3, h = 16, w = 16 }, function(x)
  return net.pose_cnn(x, { features = { 3, 4 }, hidden = 6, act = leaky })
end)
learns("pose_resnet", { c = 3, h = 32, w = 32 }, function(x)
  return net.pose_resnet(x, { base = 2, shared = 16, face = { 12, 8 }, pose = { 12, 6 },
                              face_encoder = { 8, 6 }, pose_encoder = { 8, 6 }, fusion = 8,
                              hidden = 8 })
end)
learns("mlp", { c = 4 }, function(x)
  return net.mlp(x, { hidden = { 5, 4 }, out = 3, act = leaky, dropout = 0.1, late = true })
end)

learns("cnn_lstm", { c = 3, w = 13 }, function(x)
  return net.cnn_lstm(x, { features = { 4, 6 }, hidden = 4, project = 6, out = 3, act = leaky,
                           norm = "layer" })
end)
learns("U-Net with self-attention", { c = 1, h = 8, w = 8 }, function(x)
  return net.unet(x, { features = { 4, 4 }, heads = 2, act = "silu", norm = "layer" })
end)

t.test("a sequence's vector depends on its own steps only", function()
  in_scope(function()
    local x, lengths = input { c = 2, w = 16 }, input { c = 1 }
    local y = net.cnn_lstm(x, { lengths = lengths, features = { 3, 4 }, hidden = 3, project = 5,
                                out = 4 })
    for _, device in ipairs { "ref", "cpu" } do
      local m = seg.model { outputs = { y = y }, device = device }
      local function run(values, ends)
        return m:run({ [x.name] = values,
                       [lengths.name] = seg.array { shape = { #ends, 1 }, data = ends } }).y
      end
      local both = numbers({ 2, 2, 16 }, 5)
      local alone, padded = seg.array.zeros { 1, 2, 7 }, seg.array.zeros { 1, 2, 12 }
      for c = 1, 2 do
        for i = 1, 7 do
          alone:set(both:get(2, c, i), 1, c, i)
          padded:set(both:get(2, c, i), 1, c, i)
        end
        for i = 8, 12 do padded:set(99, 1, c, i) end
      end
      local want = run(both, { 16, 7 })
      for k = 1, 4 do
        t.equal(run(alone, { 7 }):get(1, k), want:get(2, k), device .. ": alone")
        t.equal(run(padded, { 7 }):get(1, k), want:get(2, k), device .. ": padding of 99")
      end
      t.check(run(both, { 16, 8 }):get(2, 1) ~= want:get(2, 1), "a longer one is the same")
    end
  end)
end)

t.test("deep supervision: the weighted sum of losses on thinned-out truths", function()
  in_scope(function()
    local x = input { c = 1, h = 8, w = 8 }
    local truth = input { c = 1, h = 8, w = 8 }
    local logits, deep = net.unet(x, { features = { 2, 2, 2 }, out = 3, deep = 2, norm = "none" })
    local function ce(a, b) return nn.cross_entropy(a, b) end
    local sum = net.deep_loss(logits, deep, truth, ce)
    local given = net.deep_loss(logits, deep, truth, ce, { weights = { 1, 0.5, 0 } })
    local feeds, classes = { [x.name] = numbers({ 2, 1, 8, 8 }, 3) }, {}
    feeds[truth.name] = seg.array.zeros { 2, 1, 8, 8 }
    for n = 1, 2 do
      for i = 1, 8 do
        for j = 1, 8 do feeds[truth.name]:set((n * i * j) % 3, n, 1, i, j) end
      end
    end
    -- the same losses built here: every 2nd and 4th position of the target, as inputs
    for k = 1, 2 do
      local e = 8 >> k
      local a = seg.array.zeros { 2, 1, e, e }
      for n = 1, 2 do
        for i = 1, e do
          for j = 1, e do
            a:set(feeds[truth.name]:get(n, 1, ((i - 1) << k) + 1, ((j - 1) << k) + 1), n, 1, i, j)
          end
        end
      end
      local y = input { c = 1, h = e, w = e }
      classes[k], feeds[y.name] = y, a
    end
    local terms = { ce(logits, truth), ce(deep[1], classes[1]), ce(deep[2], classes[2]) }
    local function value(loss)
      local s = seg.step { loss = loss, optim = optim.sgd { lr = 0 }, device = "ref",
                           outputs = { a = terms[1], b = terms[2], c = terms[3] } }
      local v, out = s:run(feeds)
      return v, out.a:get(), out.b:get(), out.c:get()
    end
    local v, a, b, c = value(sum)
    t.near(v, (a + b / 2 + c / 4) / 1.75, 1e-6)
    t.near((value(given)), a + b / 2, 1e-6)
    t.check(math.abs(a - b) > 1e-3 and math.abs(b - c) > 1e-3, "the terms do not differ")
    t.raises(function() net.deep_loss(logits, deep, truth, ce, { weights = { 1 } }) end,
             "weights must be a list of 3 numbers >= 0")
    t.raises(function() net.deep_loss(logits, truth, ce) end, "both results of net.unet")
  end)
end)

t.test("weights of a deeper network are no weights of this one", function()
  local path = folder .. "/deep.safetensors"
  local function model(depth)
    local x = input { c = 1, h = 16, w = 16 }
    local y = in_scope(function()
      return net.resnet(x, { depth = depth, base = 1, out = 2, stem = "small" })
    end)
    return seg.model { outputs = { y = y } }, "s" .. help.count() .. "."
  end
  local deep, from = model(34)
  local flat, to = model(18)
  deep:save(path)
  t.raises(function()
    flat:load(path, { rename = function(name) return to .. name:sub(#from + 1) end })
  end, "does not fit this network: 80 unknown: ")
end)

-- PyTorch ----------------------------------------------------------------------------

-- The networks of CASES in networks.py, by name.
local cases = {
  unet1d = function(x) return net.unet(x, { features = { 4, 5 } }) end,
  unet2d = function(x)
    return net.unet(x, { features = { 2, 4 }, residual = true, gates = true, squeeze = 2, out = 2 })
  end,
  unet3d = function(x)
    return net.unet(x, { features = { 2, 4 }, norm = { "group", groups = 2 }, act = "silu",
                         gates = true })
  end,
  unetdeep = function(x)
    local y, deep = net.unet(x, { features = { 2, 3, 4 }, norm = "instance", down = "conv",
                                  act = { "leaky_relu", 0.2 }, up = "linear", deep = 2,
                                  residual = true, convs = 3 })
    return y + nn.global_pool(deep[1]) + nn.global_pool(deep[2])
  end,
  resnet18 = function(x) return net.resnet(x, { base = 2, out = 5 }) end,
  resnet34 = function(x)
    return net.resnet(x, { depth = 34, base = 1, out = 4, stem = "small" })
  end,
  resnet50 = function(x)
    return net.resnet(x, { depth = 50, base = 1, out = 3, stem = "small" })
  end,
  pose_resnet = function(x)
    return net.pose_resnet(x, { base = 1, shared = 6, face = { 5, 7 }, pose = { 4, 3 },
                                face_encoder = { 4, 3 }, pose_encoder = { 3, 2 }, fusion = 4,
                                hidden = 3, dropout = { 0, 0, 0, 0 } })
  end,
  pose_cnn = function(x) return net.pose_cnn(x, { features = { 2, 3, 4 }, hidden = 5 }) end,
  pix2pix = function(x) return net.pix2pix(x, { filters = 1, levels = 3, dropout = 0 }) end,
  pix2pix6 = function(x) return net.pix2pix(x, { filters = 1, dropout = 0 }) end,
  unetheads = function(x)
    return net.unet(x, { features = { 2, 4 }, heads = 4, act = "silu" })
  end,
  cnn_lstm = function(x, lengths)
    return net.cnn_lstm(x, { lengths = lengths, features = { 4, 5 }, hidden = 4, project = 6,
                             out = 3, norm = "layer", dropout = 0, lstm_dropout = 0,
                             project_dropout = 0 })
  end,
  cnn_lstm1 = function(x)
    return net.cnn_lstm(x, { features = { 4, 5 }, hidden = 4, project = 6, out = 3, dropout = 0,
                             layers = 1, bidirectional = false, project_dropout = 0 })
  end,
  mlp = function(x) return net.mlp(x, { hidden = { 5, 4 }, out = 3 }) end,
}

-- Cases with sequences of different lengths.
local with_lengths = { cnn_lstm = true }

for case, build in pairs(cases) do
  help.as_pytorch("tests/golden/networks", case, build, with_lengths[case])
end

remove()
t.finish()
