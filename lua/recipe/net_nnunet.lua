-- net_nnunet.lua -- seg.net.nnunet: the U-Net that nnU-Net would build for these extents.
--
-- Isensee et al. 2021 (doi:10.1038/s41592-020-01008-z) derive levels, strides and kernels from
-- extents and spacing; Isensee et al. 2024 (arXiv:2404.09556) keep the rule and have a residual
-- encoder, the presets ResEnc M, L and XL. These presets are plans for GPUs of 8, 24 and 40 GB: the
-- larger ones have larger patches, and more levels only where these make them possible. So one
-- function of the extents gives all of them.

local block = require "seg.recipe.net_block"
local unet = require "seg.recipe.net_unet"
local util = require "seg.util"

local none, fail = util.none, util.fail
local M = {}

local SMALLEST = 4 -- positions along an axis of the coarsest grid

-- Most channels, by the number of axes.
local LIMIT = { 320, 512, 320 }

-- Blocks of the residual encoder, the finest level first; all further ones have 6.
local BLOCKS = { 1, 3, 4 }

-- The spacing of these axes (d, h, w), from {w, h, d} as in :resample, or one number; in mm.
local function read_spacing(what, v, axes)
  local list = {}
  if type(v) ~= "number" and (type(v) ~= "table" or #v ~= #axes) then
    fail("usage", "%s: spacing_mm must be a number or a list of %d, along w, h, d, got %s", what,
         #axes, type(v) == "table" and util.plural(#v, "number") or tostring(v))
  end
  for i, axis in ipairs(axes) do
    local mm = v
    if type(v) == "table" then mm = v[#axes + 1 - i] end
    if type(mm) ~= "number" or not (mm > 0 and mm < math.huge) then
      fail("usage", "%s: spacing_mm along %s must be a number above 0, got %s", what, axis,
           tostring(mm))
    end
    list[i] = mm
  end
  return list
end

-- The axes that the next step halves, as a set by number: those with at least 2 SMALLEST positions
-- and a spacing below twice the smallest of them. An axis alone needs 3 SMALLEST positions. nil: no
-- further step.
local function halved(size, spacing)
  local least = math.huge
  for i, n in ipairs(size) do
    if n >= 2 * SMALLEST then least = math.min(least, spacing[i]) end
  end
  local set, count, only = {}, 0, nil
  for i, n in ipairs(size) do
    if n >= 2 * SMALLEST and spacing[i] < 2 * least then
      set[i], count, only = true, count + 1, i
    end
  end
  if count == 0 or (count == 1 and size[only] < 3 * SMALLEST) then return nil end
  return set
end

-- Factors of the steps and kernels of the levels, the bottom last, for these extents and spacings,
-- lists by axis. The kernel along an axis is 1 as long as the spacing of the axis is twice the
-- smallest or more, then 3. Third: the products of the factors, by axis.
local function topology(extents, spacings)
  local size, spacing = { table.unpack(extents) }, { table.unpack(spacings) }
  local kernel, needs, factors, kernels = {}, {}, {}, {}
  for i in ipairs(size) do kernel[i], needs[i] = 1, 1 end
  while true do
    local set = halved(size, spacing)
    if not set then break end
    local least, step = math.min(table.unpack(spacing)), {}
    for i = 1, #size do
      if spacing[i] < 2 * least then kernel[i] = 3 end
    end
    for i = 1, #size do
      step[i] = set[i] and 2 or 1
      size[i], spacing[i] = (size[i] + step[i] - 1) // step[i], spacing[i] * step[i]
      needs[i] = needs[i] * step[i]
    end
    factors[#factors + 1], kernels[#kernels + 1] = step, table.move(kernel, 1, #kernel, 1, {})
  end
  kernels[#kernels + 1] = 3
  return factors, kernels, needs
end

-- Channels and blocks of `count` levels, the bottom last.
local function widths(count, base, limit, residual)
  local features, blocks = {}, {}
  for i = 1, count do
    features[i] = math.min(base << math.min(i - 1, 30), limit)
    blocks[i] = residual and (BLOCKS[i] or 6) or 1
  end
  return features, blocks
end

-- net.nnunet(x, {...}) -> logits with x's extents, and with deep = true a list of the logits of all
-- coarser levels, which is empty if there is one level.
M.nnunet = block.builder("nnunet", {
  out = 1, encoder = "residual", spacing_mm = 1, base = 32, limit = none, deep = true,
  init = "kaiming_normal",
}, 1, function(x, o, what)
  local residual = block.choice(what .. ": encoder", o.encoder, { "residual", "plain" })
    == "residual"
  local axes = block.axes(x)
  local factors, kernels = topology({ table.unpack(x.shape, 3) },
                                    read_spacing(what, o.spacing_mm, axes))
  if #factors == 0 then
    fail("usage", "%s: the extents %s are too small for a coarser grid; one axis needs at least %d "
         .. "or two at least %d", what, table.concat(x.shape, "x"), 3 * SMALLEST, 2 * SMALLEST)
  end
  local features, blocks = widths(#factors + 1, block.whole(what .. ": base", o.base, 1),
                                  block.whole(what .. ": limit", o.limit or LIMIT[x.rank], 1),
                                  residual)
  local bottom, wanted = table.remove(features), block.flag(what .. ": deep", o.deep)
  local logits, deep = unet.unet(x, {
    out = o.out, features = features, bottom = bottom, factors = factors, kernels = kernels,
    stem = residual and features[1] or 0, blocks = blocks, decoder_convs = residual and 1 or 2,
    residual = residual and "encoder", shortcut = "pool", zero_last = residual, down = "conv",
    bias = true, norm = "instance", act = "leaky_relu", init = o.init,
    deep = wanted and #factors - 1 or 0,
  })
  if wanted then return logits, deep or {} end
  return logits
end)

-- Extents of a patch ------------------------------------------------------------

-- How many numbers the convolutions write for one sample, by the number of axes, if a batch of
-- BATCH fits a GPU of 8 GB (plain, M), 24 GB (L) and 40 GB (XL): constants of nnU-Net's planners.
local PRESETS = {
  plain = { [2] = 85e6, [3] = 560e6 },
  M = { [2] = 135e6, [3] = 680e6 },
  L = { [2] = 380e6, [3] = 2100e6 },
  XL = { [2] = 560e6, [3] = 3600e6 },
}
local BATCH = { [2] = 12, [3] = 2 }

-- The numbers that the convolutions of the network for `size` write, for `out` classes.
local function written(size, factors, residual, out)
  local features, blocks = widths(#factors + 1, 32, LIMIT[#size], residual)
  local voxels, sum, at = {}, 0, { table.unpack(size) }
  for level = 1, #factors + 1 do
    local step = factors[level - 1]
    voxels[level] = 1
    for i in ipairs(at) do
      at[i] = step and at[i] // step[i] or at[i]
      voxels[level] = voxels[level] * at[i]
    end
    -- two convolutions a block; of a residual level also a shortcut, and the stem at first
    local shortcut = residual and 1 or 0
    sum = sum + (2 * blocks[level] + shortcut) * features[level] * voxels[level]
  end
  local decoder = residual and 2 or 3 -- the transposed convolution and those of the block
  for level = 1, #factors do sum = sum + decoder * features[level] * voxels[level] end
  return sum + out * voxels[1]
end

-- The extents, filled up to multiples of the factors, and what follows from them.
local function filled(size, spacing)
  local factors, _, needs = topology(size, spacing)
  local list = {}
  for i, n in ipairs(size) do list[i] = (n + needs[i] - 1) // needs[i] * needs[i] end
  return list, factors, needs
end

-- The extents with one step less along the axis that is largest beside the median. A step is the
-- product of the factors that the network for the smaller extents has.
local function reduced(size, spacing, median, needs)
  local most, axis = 0, nil
  for i in ipairs(size) do
    if size[i] / median[i] >= most then most, axis = size[i] / median[i], i end
  end
  local list = { table.unpack(size) }
  list[axis] = size[axis] - needs[axis]
  local _, _, less = filled(list, spacing)
  list[axis] = size[axis] - less[axis]
  return list
end

-- net.nnunet_patch {...} -> { d =, h =, w = } of the patches that nnU-Net plans for cases of these
-- median extents, and their number in a batch. The rule: begin with 256^3 (2-D: 2048^2) positions
-- in the shape of a cube in mm, at most the median, and reduce until the numbers that the
-- convolutions write fit the preset.
function M.patch(o)
  local what = "net.nnunet_patch"
  o = util.options(what, o, { d = none, h = none, w = none, spacing_mm = 1, out = 2,
                              preset = "L" })
  local axes = o.d ~= nil and { "d", "h", "w" } or { "h", "w" }
  local median, size, volume = {}, {}, 1
  for i, axis in ipairs(axes) do median[i] = block.whole(what .. ": " .. axis, o[axis], 1) end
  local preset = block.choice(what .. ": preset", o.preset, util.sorted_keys(PRESETS))
  local spacing = read_spacing(what, o.spacing_mm, axes)
  local out, residual = block.whole(what .. ": out", o.out, 1), preset ~= "plain"
  for i in ipairs(axes) do volume = volume * spacing[i] end
  local side = (#axes == 3 and 256 or 2048) * volume ^ (1 / #axes) -- in mm
  for i in ipairs(axes) do
    size[i] = math.min(math.floor(side / spacing[i] + 0.5), median[i])
  end
  local factors, needs
  size, factors, needs = filled(size, spacing)
  local reference, sum = PRESETS[preset][#axes], written(size, factors, residual, out)
  -- plain: as large as two samples allow; the others: as large as BATCH samples allow
  local limit = residual and reference or reference * BATCH[#axes] / 2
  while sum > limit and #factors > 0 do
    size, factors, needs = filled(reduced(size, spacing, median, needs), spacing)
    sum = written(size, factors, residual, out)
  end
  if #factors == 0 or math.min(table.unpack(size)) < 1 then
    fail("usage", "%s: no patch of %s with %s and a coarser grid fits preset %s", what,
         table.concat(median, "x"), util.plural(out, "class", "classes"), preset)
  end
  local patch = {}
  for i, axis in ipairs(axes) do patch[axis] = size[i] end
  return patch, math.max(math.floor(reference / sum * BATCH[#axes] + 0.5), 2)
end

-- Names of nnU-Net's weights ------------------------------------------------------

-- net.nnunet_names(stages) -> a function from the name of a parameter in PlainConvUNet or
-- ResidualEncoderUNet (dynamic-network-architectures) to the name in net.nnunet; nil for a second
-- name of the same tensor. stages: the levels with the bottom, `n_stages` of nnU-Net's plans.
function M.names(stages)
  stages = block.whole("net.nnunet_names: stages", stages, 2)
  local function level(i) return math.tointeger(i) + 1 end
  local function encoder(i)
    return level(i) == stages and "bottom" or "enc" .. level(i)
  end
  local function coarsest_first(what)
    return function(i) return what .. stages - level(i) .. "." end
  end
  local rules = {
    { "^encoder%.stages%.0%.blocks%.0%.", "enc1." }, -- the only block of its level
    { "^encoder%.stages%.(%d+)%.blocks%.(%d+)%.", function(i, b)
      return encoder(i) .. ".block" .. level(b) .. "."
    end },
    { "^encoder%.stages%.(%d+)%.0%.", function(i) return encoder(i) .. "." end },
    { "^encoder%.stem%.", "stem." },
    { "^decoder%.stages%.(%d+)%.", coarsest_first "dec" },
    { "^decoder%.transpconvs%.(%d+)%.", coarsest_first "up" },
    { "^decoder%.seg_layers%.(%d+)%.", coarsest_first "head" },
    { "^head1%.", "head." },
    { "convs%.(%d+)%.(%a+)%.", function(i, layer) return layer .. level(i) .. "." end },
    { "conv(%d)%.(%a+)%.(%a+)$", "%2%1.%3" },
    { "skip%.%d%.conv%.", "short." },
    { "skip%.%d%.norm%.", "short_norm." },
  }
  return function(name)
    if name:find("all_modules", 1, true) or name:find "^decoder%.encoder%." then return nil end
    for _, rule in ipairs(rules) do name = name:gsub(rule[1], rule[2]) end
    return name
  end
end

return M
