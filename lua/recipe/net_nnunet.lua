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

-- Blocks of the residual encoder, the finest level first; all further ones have 6.
local BLOCKS = { 1, 3, 4 }

-- The spacing of x's axes d, h, w, from {w, h, d} as in :resample, or one number; in mm.
local function read_spacing(what, v, x)
  local axes, list = block.axes(x), {}
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

-- Factors of the steps and kernels of the levels, the bottom last. The kernel along an axis is 1 as
-- long as the axis' spacing is twice the smallest or more, then 3.
local function topology(x, spacing)
  local size, kernel, factors, kernels = {}, {}, {}, {}
  for i, axis in ipairs(block.axes(x)) do size[i], kernel[i] = x[axis], 1 end
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
    end
    factors[#factors + 1], kernels[#kernels + 1] = step, table.move(kernel, 1, #kernel, 1, {})
  end
  kernels[#kernels + 1] = 3
  return factors, kernels
end

-- net.nnunet(x, {...}) -> logits with x's extents, and with deep = true a list of the logits of all
-- coarser levels, which is empty if there is one level.
M.nnunet = block.builder("nnunet", {
  out = 1, encoder = "residual", spacing_mm = 1, base = 32, limit = none, deep = true,
  init = "kaiming_normal",
}, 1, function(x, o, what)
  local residual = block.choice(what .. ": encoder", o.encoder, { "residual", "plain" })
    == "residual"
  local factors, kernels = topology(x, read_spacing(what, o.spacing_mm, x))
  if #factors == 0 then
    fail("usage", "%s: the extents %s are too small for a coarser grid; one axis needs at least %d "
         .. "or two at least %d", what, table.concat(x.shape, "x"), 3 * SMALLEST, 2 * SMALLEST)
  end
  local base = block.whole(what .. ": base", o.base, 1)
  local limit = block.whole(what .. ": limit", o.limit or (x.rank == 2 and 512 or 320), 1)
  local features, blocks = {}, {}
  for i = 1, #factors + 1 do
    features[i], blocks[i] = math.min(base << (i - 1), limit), residual and (BLOCKS[i] or 6) or 1
  end
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

return M
