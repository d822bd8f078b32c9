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

help.as_pytorch(FILES, "nnunet_plain", function(x)
  return joined(net.nnunet(x, { out = 2, base = 2, limit = 4, encoder = "plain",
                                spacing_mm = { 1, 1, 3 } }))
end)
help.as_pytorch(FILES, "nnunet_residual", function(x)
  return joined(net.nnunet(x, { out = 2, base = 2, limit = 3, spacing_mm = { 1, 1, 3 } }))
end)
help.as_pytorch(FILES, "unet_by_level", function(x)
  return joined(net.unet(x, { features = { 2, 3 }, bottom = 4, kernels = { 5, 3, { 1, 3 } },
                              factors = { { 2, 1 }, 2 }, convs = { 1, 2, 3 },
                              decoder_convs = { 1, 2 }, down = "conv", norm = "instance",
                              bias = true, act = "leaky_relu", deep = 1 }))
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
  t.raises(function() net.mednext(nil) end, "must be a node of the network, got nil")
  t.raises(function() net.mednext_block(input { c = 2 }) end, "no axes except channels")
end)

help.learns("MedNeXt", { c = 1, h = 8, w = 8 }, function(x)
  return joined(net.mednext(x, { filters = 2, blocks = { 1, 2, 1 }, expansions = { 2, 2, 3 },
                                 deep = true }))
end, 4)

help.as_pytorch(FILES, "mednext", function(x)
  return joined(net.mednext(x, { filters = 2, blocks = { 1, 2, 1 }, expansions = { 2, 3, 2 },
                                 out = 2, deep = true }))
end)
help.as_pytorch(FILES, "mednext5", function(x)
  return joined(net.mednext(x, { filters = 2, blocks = { 1, 1 }, expansions = { 2, 1 }, kernel = 5,
                                 deep = true }))
end)

t.finish()
