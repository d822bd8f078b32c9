-- net_packages.lua -- networks of seg.net that exist in published packages: their parameters, their
-- numbers (tests/golden/packages.py), and what they refuse. Exports: tests/lua/predict/onnx.lua.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local help = dofile("tests/support/nets.lua")(t)
local input, in_scope, shape, parameters = help.input, help.in_scope, help.shape, help.parameters
local net, nn = seg.net, seg.nn

local FILES = "tests/golden/packages"

-- The trained parameters of build(x) with all its results.
local function counted(axes, build)
  return in_scope(function()
    local x = input(axes)
    local y, deep = build(x)
    return (parameters(x, y, table.unpack(deep or {})))
  end)
end

-- The first result plus the means of the coarser ones over positions, as in packages.py.
local function joined(y, deep)
  for _, coarse in ipairs(deep) do y = y + nn.global_pool(coarse) end
  return y
end

-- Ten steps of AdamW on cpu reduce the loss of build(x) against random numbers below `share` of the
-- first.
local function trains(name, axes, share, build)
  t.test(name .. ": ten steps reduce the loss", function()
    nn.scope("trains_" .. name, function()
      local x = input(axes)
      local y = build(x)
      local truth = input { c = y.c, d = y.rank > 2 and y.d or nil, h = y.rank > 1 and y.h or nil,
                            w = y.rank > 0 and y.w or nil }
      local s = seg.step { loss = nn.mse(y, truth), optim = seg.optim.adamw { lr = 3e-3 },
                           threads = 2 }
      local of, of_truth = x.shape, y.shape
      of[1], of_truth[1] = 2, 2
      local feeds = { [x.name] = help.numbers(of, 1), [truth.name] = help.numbers(of_truth, 2) }
      local first, last = s:run(feeds), nil
      for _ = 2, 10 do last = s:run(feeds) end
      t.check(last < share * first, "from %g to %g, wanted less than %g of it", first, last, share)
    end)
  end)
end

-- Checks { options, message } of build(x, options).
local function refuses(x, build, rows)
  for _, row in ipairs(rows) do
    t.raises(function() in_scope(function() build(x, row[1]) end) end, row[2])
  end
end

-- nnU-Net --------------------------------------------------------------------------

-- Parameters that dynamic-network-architectures 0.4.4 counts for the plans of nnunetv2 2.8.1
-- (ExperimentPlanner, nnUNetPlannerResEncM, L, XL): extents of the patch, options, parameters.
-- packages.py has the data sets.
local thick, heart = { 0.711, 0.711, 2 }, { 1.5625, 1.5625, 6.35 }
local PLANS = {
  plain = { { 1, 128, 128, 128 }, { out = 3, encoder = "plain" }, 31196399 },
  plain_thin = { { 1, 14, 256, 224 }, { out = 4, encoder = "plain", spacing_mm = heart },
                 30012884 },
  M = { { 1, 128, 128, 128 }, { out = 3 }, 102350575 },
  M_four = { { 4, 128, 160, 112 }, { out = 4 }, 101944372 },
  M_thick = { { 1, 40, 224, 192 }, { out = 16, spacing_mm = thick }, 101868944 },
  L = { { 1, 192, 192, 192 }, { out = 3 }, 102350575 },
  L_thick = { { 1, 64, 320, 256 }, { out = 16, spacing_mm = thick }, 141413280 },
  XL = { { 1, 224, 256, 224 }, { out = 3 }, 102350575 },
  XL_thick = { { 1, 80, 320, 320 }, { out = 16, spacing_mm = thick }, 141413280 },
  XL_slices = { { 1, false, 512, 512 }, { out = 16 }, 140045360 },
}

t.test("net.nnunet has the parameters of nnU-Net's plans M, L and XL", function()
  for name, plan in pairs(PLANS) do
    local size, o, want = table.unpack(plan)
    local axes = { c = size[1], d = size[2] or nil, h = size[3], w = size[4] }
    t.equal(counted(axes, function(x) return net.nnunet(x, o) end), want, name)
  end
end)

-- What get_plans_for_configuration of nnunetv2 2.8.1's ExperimentPlanner (plain) and
-- nnUNetPlannerResEncM, L, XL gives for median extents, spacing, classes: patch and batch for
-- volumes, then for slices.
local CASES = {
  { { d = 140, h = 171, w = 136, out = 4 },
    plain = "128x160x112 2, 192x160 105", M = "128x160x112 2, 192x160 107",
    L = "160x192x160 3, 192x160 301", XL = "160x192x160 5, 192x160 444" },
  { { d = 103, h = 488, w = 488, spacing_mm = thick, out = 16 },
    plain = "40x224x192 2, 512x512 12", M = "40x224x192 2, 512x512 12",
    L = "64x320x256 2, 512x512 34", XL = "80x320x320 2, 512x512 50" },
  { { d = 14, h = 231, w = 216, spacing_mm = heart, out = 4 },
    plain = "14x256x224 5, 256x224 56", M = "14x256x224 4, 256x224 57",
    L = "14x256x224 12, 256x224 161", XL = "14x256x224 21, 256x224 238" },
  { { d = 482, h = 512, w = 512, spacing_mm = { 0.7676, 0.7676, 1 }, out = 3 },
    plain = "128x128x128 2, 512x512 12", M = "128x128x128 2, 512x512 12",
    L = "192x192x192 2, 512x512 35", XL = "224x256x224 2, 512x512 52" },
}

t.test("net.nnunet_patch gives the patches and batches of nnU-Net's planners", function()
  for _, case in ipairs(CASES) do
    local o = case[1]
    for _, preset in ipairs { "plain", "M", "L", "XL" } do
      o.preset = preset
      local p, batch = net.nnunet_patch(o)
      local mm = o.spacing_mm
      local slice, slices = net.nnunet_patch {
        h = o.h, w = o.w, spacing_mm = mm and { mm[1], mm[2] }, out = o.out, preset = preset }
      t.equal(slice.d, nil)
      t.equal(string.format("%dx%dx%d %d, %dx%d %d", p.d, p.h, p.w, batch, slice.h, slice.w,
                            slices), case[preset], preset .. " of " .. o.d)
    end
  end
end)

t.test("net.nnunet_patch refuses what no plan has", function()
  for _, row in ipairs {
    { { h = 64 }, "net.nnunet_patch: w must be a whole number >= 1, got nil" },
    { { d = 0 / 0, h = 64, w = 64 }, "net.nnunet_patch: d must be a whole number >= 1" },
    { { h = 64, w = 64, preset = "S" }, 'net.nnunet_patch: preset "S" is not known' },
    { { h = 64, w = 64, spacing_mm = { 1, 1, 1 } }, "spacing_mm must be a number or a list of 2" },
    { { h = 64, w = 64, out = 0 }, "net.nnunet_patch: out must be a whole number >= 1, got 0" },
    { { h = 64, w = 64, size = 3 }, 'net.nnunet_patch: unknown option "size"' },
    { { h = 4, w = 4 }, "no patch of 4x4 with 2 classes and a coarser grid fits preset L" },
    { { h = 64, w = 64, out = 1 << 30 }, "no patch of 64x64 with 1073741824 classes" },
    { { d = 1, h = 512, w = 512, out = 1000000 }, "no patch of 1x512x512 with 1000000 classes" },
  } do
    t.raises(function() net.nnunet_patch(row[1]) end, row[2])
  end
end)

t.test("net.nnunet: steps and kernels follow from extents and spacing", function()
  local x = input { c = 1, d = 8, h = 24, w = 16 }
  local logits, deep = net.nnunet(x, { base = 2, limit = 3, spacing_mm = { 1, 1, 4 },
                                       name = "thin" })
  t.equal(shape(logits), "1x1x8x24x16")
  t.equal(#deep, 1) -- 8x24x16, 8x12x8, 8x6x4, by which time d is within twice h and w
  t.equal(shape(deep[1]), "1x1x8x12x8")
  local m = seg.model { outputs = { y = logits, deep = deep[1] } }
  local p = m:parameters()
  t.equal(table.concat(p["thin.enc1.conv1.weight"].shape, "x"), "2x2x1x3x3")
  t.equal(table.concat(p["thin.bottom.block4.conv2.weight"].shape, "x"), "3x3x3x3x3")
  t.equal(m:get("thin.enc1.norm2.weight"):get(1), 0, "zero_last")
  t.equal(m:get("thin.enc1.norm1.weight"):get(1), 1)
  t.equal(m:get("thin.dec1.norm1.weight"):get(1), 1)
  logits, deep = net.nnunet(input { c = 1, w = 16 }, { name = "short" })
  t.equal(shape(logits), "1x1x16")
  t.equal(#deep, 0, "one step, no coarser result")
  logits, deep = net.nnunet(input { c = 1, w = 32 }, { deep = false, name = "no_deep" })
  t.equal(shape(logits), "1x1x32")
  t.equal(deep, nil)
end)

t.test("net.nnunet refuses what it cannot build", function()
  local x = input { c = 1, h = 16, w = 24 }
  refuses(x, net.nnunet, {
    { { encoder = "resnet" }, 'net.nnunet: encoder "resnet" is not known' },
    { { spacing_mm = { 1, 1, 1 } }, "spacing_mm must be a number or a list of 2, along w, h, d, "
      .. "got 3 numbers" },
    { { spacing_mm = { 1, 0 } }, "spacing_mm along h must be a number above 0, got 0" },
    { { spacing_mm = 0 / 0 }, "spacing_mm along h must be a number above 0, got" },
    { { spacing_mm = "1" }, "spacing_mm must be a number or a list of 2" },
    { { base = 0 }, "net.nnunet: base must be a whole number >= 1, got 0" },
    { { limit = 1.5 }, "net.nnunet: limit must be a whole number >= 1, got 1.5" },
    { { deep = 1 }, "net.nnunet: deep must be true or false, got 1" },
    { { levels = 3 }, 'net.nnunet: unknown option "levels"' },
  })
  t.raises(function() net.nnunet(input { c = 1, h = 7, w = 11 }) end,
           "the extents 1x1x7x11 are too small for a coarser grid; one axis needs at least 12")
  t.raises(function() net.nnunet(input { c = 1, h = 18, w = 24 }) end,
           "h = 18 is not a multiple of 4")
end)

-- Options of net.unet by level ---------------------------------------------------------

t.test("net.unet takes kernels, blocks, dilations and norms by level", function()
  local x = input { c = 1, d = 4, h = 8, w = 8 }
  local y = net.unet(x, { features = { 2, 3 }, bottom = 4, kernels = { { 1, 3, 3 }, 3, 5 },
                          factors = { { 1, 2, 2 }, 2 }, blocks = { 1, 2, 1 }, convs = { 1, 2, 3 },
                          decoder_convs = { 2, 1 }, dilations = { 1, { 2, 1, 1 }, 1 }, stem = 5,
                          norms = { "none", { "group", groups = 3 }, "instance" },
                          name = "levels" })
  t.equal(shape(y), "1x1x4x8x8")
  local names, of = {}, seg.model { outputs = { y = y } }:parameters()
  for name, p in pairs(of) do
    if p.shape[3] then names[#names + 1] = name:sub(8) .. " " .. table.concat(p.shape, "x") end
  end
  table.sort(names)
  t.equal(table.concat(names, "\n"), [[
bottom.conv1.weight 4x3x5x5x5
bottom.conv2.weight 4x4x5x5x5
bottom.conv3.weight 4x4x5x5x5
dec1.conv1.weight 2x4x1x3x3
dec1.conv2.weight 2x2x1x3x3
dec2.conv1.weight 3x6x3x3x3
enc1.conv1.weight 2x5x1x3x3
enc2.block1.conv1.weight 3x2x3x3x3
enc2.block1.conv2.weight 3x3x3x3x3
enc2.block2.conv1.weight 3x3x3x3x3
enc2.block2.conv2.weight 3x3x3x3x3
head.weight 1x2x1x1x1
stem.conv1.weight 5x1x1x3x3
up1.weight 3x2x1x2x2
up2.weight 4x3x2x2x2]])
  t.check(of["levels.enc1.conv1.bias"] and of["levels.dec1.conv1.bias"], "no bias without a norm")
  t.check(not of["levels.enc2.block1.conv1.bias"], "a bias before a norm")
  t.check(not of["levels.enc1.norm1.weight"] and of["levels.bottom.norm3.weight"], "norms")
  local dilated = 0
  for line in require("seg.core").graph_text({ y }):gmatch("conv [^\n]*dd=2[^\n]*") do
    t.check(line:find("enc2.", 1, true) or line:find("dec2.", 1, true), line)
    dilated = dilated + 1
  end
  t.equal(dilated, 5)
end)

t.test("residual blocks: of the encoder alone, with a mean as shortcut, from 0 on", function()
  local function names(o)
    local y = in_scope(function() return net.unet(input { c = 1, h = 8, w = 8 }, o) end)
    local m = seg.model { outputs = { y = y } }
    local all = {}
    for name in pairs(m:parameters()) do all[name:match "^s%d+%.(.*)$"] = true end
    return all, m
  end
  local all = names { features = { 2, 3 }, residual = "encoder" }
  t.check(all["enc1.short.weight"] and not all["dec1.short.weight"], "encoder")
  all = names { features = { 2, 2 }, bottom = 2, residual = true, shortcut = "pool", down = "conv",
                norm = "none" }
  t.check(all["enc1.short.weight"] and not all["enc1.short.bias"], "a bias after the mean")
  t.check(not all["enc2.short.weight"] and all["dec2.short.weight"], "equal channels")
  local _, m = names { features = { 2 }, residual = true, zero_last = true }
  local prefix = "s" .. help.count() - 1 .. "."
  t.equal(m:get(prefix .. "bottom.norm2.weight"):get(1), 0)
  t.equal(m:get(prefix .. "bottom.norm1.weight"):get(1), 1)
  t.equal(m:get(prefix .. "bottom.short_norm.weight"):get(1), 1)
end)

t.test("net.unet refuses lists that do not fit", function()
  local x = input { c = 1, h = 16, w = 16 }
  refuses(x, net.unet, {
    { { kernels = { 3, 3 } }, "net.unet: kernels must be a list of 5, one for each level and the "
      .. "bottom, got 2 entries" },
    { { kernels = 3 }, "net.unet: kernels must be a list of 5, one for each level and the bottom, "
      .. "got 3" },
    { { kernels = { 3, 3, 3, 3, { 1, 2 } } }, "net.unet: kernels: level 5 must be odd, got 2" },
    { { blocks = { 1, 2 } }, "net.unet: blocks must be a list of 5" },
    { { blocks = 0 }, "net.unet: blocks must be a whole number >= 1, got 0" },
    { { convs = { 1, 2, 3, 4, "a" } }, "convs: level 5 must be a whole number >= 1, got a" },
    { { decoder_convs = { 1, 2 } }, "decoder_convs must be a list of 4, one for each level, got " },
    { { dilation = -1 }, "net.unet: dilation must be a whole number >= 1, got -1" },
    { { dilations = { 1 } }, "net.unet: dilations must be a list of 5" },
    { { norms = { "batch" } }, "net.unet: norms must be a list of 5" },
    { { norms = { 1, 2, 3, 4, 5 } }, 'norm "1" is not known' },
    { { residual = "decoder" }, 'residual must be true, false or "encoder", got decoder' },
    { { shortcut = "mean" }, 'net.unet: shortcut "mean" is not known' },
    { { zero_last = 0 }, "net.unet: zero_last must be true or false, got 0" },
    { { factors = 1 << 53 }, "factors of level 1 must be a whole number up to 2147483647" },
    { { factors = 65536 }, "net.unet: the product of the factors along h must be a whole number up "
      .. "to 2147483647, got 4294967296" },
    { { levels = 1 << 30 }, "the channels of level 27 must be a whole number up to 2147483647" },
    { { stem = -1 }, "net.unet: stem must be a whole number >= 0, got -1" },
    { { bias = 1 }, "net.unet: bias must be true or false, got 1" },
    { { norm = { "batch", weight = "a" } }, "weight, the first value of the weights, must be a "
      .. "number, got a" },
  })
end)

help.learns("U-Net of nnU-Net's blocks", { c = 2, d = 4, h = 8, w = 8 }, function(x)
  return joined(net.unet(x, { features = { 2, 3, 3 }, bottom = 4, stem = 2, blocks = { 1, 2, 1, 1 },
                              kernels = { { 1, 3, 3 }, 3, 3, 3 }, deep = 2, bias = true,
                              factors = { { 1, 2, 2 }, 2, { 1, 2, 2 } }, residual = "encoder",
                              shortcut = "pool", down = "conv", norm = "instance",
                              act = { "leaky_relu", 0.1 } }))
end, 2)

trains("nnunet", { c = 1, d = 8, h = 8, w = 16 }, 0.9, function(x)
  return (net.nnunet(x, { base = 2, limit = 3, out = 2 }))
end)

help.as_pytorch(FILES, "nnunet_plain", function(x)
  return joined(net.nnunet(x, { out = 2, base = 2, limit = 4, encoder = "plain",
                                spacing_mm = { 1, 1, 3 } }))
end, false, net.nnunet_names(3))
help.as_pytorch(FILES, "nnunet_residual", function(x)
  return joined(net.nnunet(x, { out = 2, base = 2, limit = 3, spacing_mm = { 1, 1, 3 } }))
end, false, net.nnunet_names(3))
help.as_pytorch(FILES, "unet_by_level", function(x)
  return joined(net.unet(x, { features = { 2, 3 }, bottom = 4, kernels = { 5, 3, { 1, 3 } },
                              factors = { { 2, 1 }, 2 }, convs = { 1, 2, 3 },
                              decoder_convs = { 1, 2 }, down = "conv", norm = "instance",
                              bias = true, act = "leaky_relu", deep = 1 }))
end, false, net.nnunet_names(3))

t.test("names of nnU-Net's weights", function()
  local of = net.nnunet_names(6)
  for name, want in pairs {
    ["encoder.stages.5.blocks.2.conv2.norm.bias"] = "bottom.block3.norm2.bias",
    ["encoder.stages.5.0.convs.1.conv.weight"] = "bottom.conv2.weight",
    ["decoder.stages.0.convs.0.conv.weight"] = "dec5.conv1.weight",
    ["decoder.seg_layers.4.weight"] = "head.weight",
    ["decoder.seg_layers.0.bias"] = "head5.bias",
    ["another.weight"] = "another.weight",
  } do t.equal(of(name), want) end
  -- other names of tensors in a checkpoint
  t.equal(of "encoder.stem.convs.0.all_modules.0.weight", nil)
  t.equal(of "decoder.encoder.stem.convs.0.conv.weight", nil)
  t.raises(function() net.nnunet_names(1) end, "stages must be a whole number >= 2, got 1")
  t.raises(function() net.nnunet_names() end, "stages must be a whole number >= 2, got nil")
end)

-- MedNeXt --------------------------------------------------------------------------

t.test("MedNeXt has the parameters of MONAI 1.6.1's S, B, M and L", function()
  local volume = { c = 1, d = 32, h = 32, w = 32 }
  for kernel, want in pairs { [3] = { S = 5550914, B = 10510850, M = 17533506, L = 61726754 },
                              [5] = { S = 5980546, B = 10940482, M = 18245378, L = 62940386 } } do
    for size, count in pairs(want) do
      t.equal(counted(volume, function(x)
        return net.mednext(x, { size = size, kernel = kernel, out = 2 })
      end), count, size .. " of kernel " .. kernel)
    end
  end
  t.equal(counted(volume, function(x) return net.mednext(x, { out = 2, deep = true }) end),
          5552842)
end)

t.test("MedNeXt's block keeps, halves or doubles the grid", function()
  in_scope(function()
    local x = input { c = 2, h = 4, w = 6 }
    t.equal(shape(net.mednext_block(x, { name = "same" })), "1x2x4x6")
    t.equal(shape(net.mednext_block(x, { step = "down", filters = 5, name = "down" })), "1x5x2x3")
    t.equal(shape(net.mednext_block(x, { step = "up", filters = 1, kernel = { 1, 5 },
                                         name = "up" })), "1x1x8x12")
    t.equal(shape(net.mednext_block(x, { filters = 3, residual = false, name = "free" })),
            "1x3x4x6")
  end)
end)

local many = {}
for i = 1, 65 do many[i] = 1 end

t.test("MedNeXt refuses what it cannot build", function()
  local x = input { c = 1, h = 32, w = 32 }
  refuses(x, net.mednext, {
    { { size = "XL" }, 'net.mednext: size "XL" is not known' },
    { { blocks = { 1, 1 } }, "blocks has 2 entries and expansions 5; wanted as many of both" },
    { { blocks = { 1 }, expansions = { 1 } }, "blocks has 1 entry and expansions 1; wanted as " },
    { { blocks = 2 }, "blocks must be a list by level, the bottom last, as { 2, 2, 2 }, got 2" },
    { { blocks = {} }, "net.mednext: blocks must be a list by level" },
    { { blocks = { 1, 0 } }, "net.mednext: blocks: level 2 must be a whole number >= 1, got 0" },
    { { kernel = 4 }, "net.mednext: kernel must be odd, got 4" },
    { { kernel = 0 / 0 }, "net.mednext: kernel must be a whole number >= 1" },
    { { blocks = many, expansions = many }, "64 levels that halve the extents, wanted at most 30" },
    { { deep = 1 }, "net.mednext: deep must be true or false, got 1" },
    { { filters = "32" }, "net.mednext: filters must be a whole number >= 1, got 32" },
    { { norm = "grup" }, 'norm "grup" is not known; did you mean "group"?' },
  })
  t.raises(function() net.mednext(input { c = 1, h = 32, w = 24 }) end,
           "w = 24 is not a multiple of 16, as a network of 4 levels needs; fix: 16 or 32")
  refuses(x, net.mednext_block, {
    { { filters = 2 }, "filters = 2, but x has 1 channels and is added; give residual = false" },
    { { step = "left" }, 'net.mednext_block: step "left" is not known' },
    { { expansion = 0 }, "net.mednext_block: expansion must be a whole number >= 1, got 0" },
    { { residual = "yes" }, "net.mednext_block: residual must be true or false, got yes" },
  })
  t.raises(function() net.pix2pix(x, { levels = 64 }) end, "net.pix2pix: 64 levels that halve")
  t.raises(function() net.mednext(nil) end, "must be a node of the network, got nil")
  t.raises(function() net.mednext_block(input { c = 2 }) end, "no axes except channels")
end)

help.learns("MedNeXt", { c = 1, h = 8, w = 8 }, function(x)
  return joined(net.mednext(x, { filters = 2, blocks = { 1, 2, 1 }, expansions = { 2, 2, 3 },
                                 deep = true }))
end, 4)

trains("mednext", { c = 1, h = 16, w = 16 }, 0.6, function(x)
  return (net.mednext(x, { filters = 4, blocks = { 1, 1, 1 }, expansions = { 2, 2, 2 } }))
end)

help.as_pytorch(FILES, "mednext", function(x)
  return joined(net.mednext(x, { filters = 2, blocks = { 1, 2, 1 }, expansions = { 2, 3, 2 },
                                 out = 2, deep = true }))
end)
help.as_pytorch(FILES, "mednext5", function(x)
  return joined(net.mednext(x, { filters = 2, blocks = { 1, 1 }, expansions = { 2, 1 }, kernel = 5,
                                 deep = true }))
end)

-- Transformers ---------------------------------------------------------------------

t.test("net.vit has the parameters of torchvision 0.29.2's VisionTransformer", function()
  local photo, small = { c = 3, h = 224, w = 224 }, { c = 3, h = 32, w = 32 }
  t.equal(counted(photo, net.vit), 86567656, "vit_b_16")
  t.equal(counted(small, function(x)
    return net.vit(x, { patch = 8, layers = 2, heads = 4, width = 32, mlp = 64, out = 5 })
  end), 24069)
end)

t.test("net.unetr has the parameters of MONAI 1.6.1's UNETR", function()
  -- without those of norm_cross_attn, which MONAI's blocks have and do not use
  local function unetr(want, axes, o)
    t.equal(counted(axes, function(x) return net.unetr(x, o) end), want - 12 * 2 * 768, want)
  end
  unetr(92802478, { c = 1, d = 96, h = 96, w = 96 }, { out = 14 })
  unetr(92830126, { c = 1, d = 96, h = 96, w = 96 }, { out = 14, qkv_bias = true })
  unetr(101809742, { c = 1, d = 96, h = 96, w = 96 }, { out = 14, features = 32, norm = "batch" })
  unetr(102468147, { c = 4, d = 128, h = 128, w = 128 }, { out = 3 })
  unetr(90685124, { c = 1, h = 96, w = 96 }, { out = 4, features = 32, norm = "batch" })
end)

t.test("patches of sequences, images and volumes, and the layers' results", function()
  in_scope(function()
    local o = { width = 6, patch = 4, name = "w" }
    t.equal(shape(net.patch_embed(input { c = 2, w = 12 }, o)), "1x6x3")
    o.name = "h"
    t.equal(shape(net.patch_embed(input { c = 2, h = 8, w = 12 }, o)), "1x6x2x3")
    o.name, o.patch, o.position = "d", { 1, 4, 2 }, false
    local tokens = net.patch_embed(input { c = 1, d = 2, h = 8, w = 12 }, o)
    t.equal(shape(tokens), "1x6x2x2x6")
    local y, states = net.transformer(tokens, { layers = 3, heads = 2, name = "t" })
    t.equal(shape(y), "1x6x2x2x6")
    t.equal(#states, 3)
    local m = seg.model { outputs = { y = y } }
    local p = m:parameters()
    local found
    for name, of in pairs(p) do
      if name:match "%.t%.layer3%.linear1%.weight$" then found = table.concat(of.shape, "x") end
    end
    t.equal(found, "24x6")
  end)
end)

t.test("tokens beyond the lengths do not change the others", function()
  in_scope(function()
    local x, lengths = input { c = 4, w = 6 }, input { c = 1 }
    local y = net.transformer(x, { layers = 2, heads = 2, lengths = lengths })
    local m = seg.model { outputs = { y = y }, device = "ref" }
    local a = help.numbers({ 1, 4, 6 }, 1)
    local of = seg.array { shape = { 1, 1 }, data = { 4 } }
    local before = m:run({ [x.name] = a, [lengths.name] = of }).y
    for c = 1, 4 do a:set(9, 1, c, 6) end
    local after = m:run({ [x.name] = a, [lengths.name] = of }).y
    for c = 1, 4 do
      for i = 1, 4 do t.equal(after:get(1, c, i), before:get(1, c, i)) end
    end
    a:set(9, 1, 1, 1)
    t.check(m:run({ [x.name] = a, [lengths.name] = of }).y:get(1, 2, 3) ~= before:get(1, 2, 3),
            "a token within the lengths has no influence")
  end)
end)

t.test("transformers refuse what they cannot build", function()
  local x = input { c = 8, h = 32, w = 48 }
  refuses(x, net.transformer, {
    { { heads = 3 }, "nn.attention: 8 channels do not divide into 3 heads" },
    { { heads = 2, layers = 0 }, "net.transformer: layers must be a whole number >= 1, got 0" },
    { { heads = 2, mlp = 1.5 }, "net.transformer: mlp must be a whole number >= 1, got 1.5" },
    { { heads = 2, eps = 0 }, "net.transformer: eps must be a number above 0 and below 1, got 0" },
    { { heads = 2, eps = 0 / 0 }, "net.transformer: eps must be a number above 0" },
    { { heads = 2, qkv_bias = 1 }, "net.transformer: qkv_bias must be true or false, got 1" },
    { { heads = 2, dropout = 1 }, "p must be from 0 to below 1, got 1" },
    { { heads = 2, attention_dropout = "a" }, "dropout must be from 0 to below 1, got a" },
    { { heads = 2, lengths = x }, "lengths must be one number a sample" },
    { { heads = 2, act = "geul" }, 'act "geul" is not known; did you mean "gelu"?' },
    { { head = 2 }, 'net.transformer: unknown option "head"; did you mean "heads"?' },
  })
  refuses(x, net.patch_embed, {
    { { patch = 20 }, "net.patch_embed: h = 32 is not a multiple of 20, as a patch needs; fix: 20 "
      .. "or 40" },
    { { patch = { 4, 4, 4 } }, "patch must be a number or a list of 2, one for each of h, w" },
    { { patch = 0 }, "net.patch_embed: patch must be a whole number >= 1, got 0" },
    { { position = 1 }, "net.patch_embed: position must be true or false, got 1" },
  })
  refuses(x, net.vit, {
    { { token = "cls" }, 'net.vit: token "cls" is not known' },
    { { out = -1 }, "net.vit: out must be a whole number >= 0, got -1" },
    { { width = "a" }, "net.vit: width must be a whole number >= 1, got a" },
  })
  refuses(x, net.unetr, {
    { { skips = 3 }, "net.unetr: skips must be a list of layers, as { 4, 7, 10 }, got 3" },
    { { skips = { 4, 13 } }, "skips: entry 2 is layer 13, but there are 12" },
    { { skips = { 0 } }, "net.unetr: skips: entry 1 must be a whole number >= 1, got 0" },
    { { skips = { 1, 2, 3, 4 } }, "w = 48 is not a multiple of 32, as a patch needs" },
    { { skips = many }, "net.unetr: 66 levels that halve the extents, wanted at most 30" },
    { { features = 0 }, "net.unetr: features must be a whole number >= 1, got 0" },
  })
  t.raises(function() net.vit(input { c = 2 }) end, "no axes except channels")
  t.raises(function() nn.attention(x, { qkv_bias = 1 }) end, "bias and qkv_bias must be true or")
end)

help.learns("ViT", { c = 2, h = 8, w = 12 }, function(x)
  return net.vit(x, { patch = 4, layers = 2, heads = 2, width = 8, mlp = 12, out = 3 })
end, 4)
help.learns("ViT of the mean over tokens", { c = 1, d = 2, h = 4, w = 4 }, function(x)
  return net.vit(x, { patch = { 1, 2, 2 }, layers = 1, heads = 2, width = 8, out = 3,
                      token = "mean" })
end, 4)
help.learns("UNETR", { c = 1, d = 8, h = 8, w = 8 }, function(x)
  return net.unetr(x, { layers = 3, heads = 2, width = 8, mlp = 12, features = 2,
                        skips = { 1, 2 }, norm = "instance" })
end, 2)

trains("vit", { c = 1, h = 16, w = 8 }, 0.6, function(x)
  return net.vit(x, { patch = 4, width = 8, heads = 2, layers = 2, mlp = 16, out = 3 })
end)
trains("unetr", { c = 1, h = 16, w = 32 }, 0.8, function(x)
  return net.unetr(x, { width = 8, heads = 2, layers = 4, mlp = 16, features = 2,
                        skips = { 1, 2, 3 } })
end)

help.as_pytorch(FILES, "vit", function(x)
  return net.vit(x, { patch = 4, layers = 2, heads = 2, width = 8, mlp = 12, out = 3 })
end)
help.as_pytorch(FILES, "unetr", function(x)
  return net.unetr(x, { heads = 2, width = 8, mlp = 12, features = 2, out = 2 })
end)

t.finish()
