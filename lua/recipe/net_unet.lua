-- net_unet.lua -- seg.net.unet, and the loss for deep supervision.
--
-- Ronneberger et al. 2015 (arXiv:1505.04597), in 3-D Cicek et al. 2016 (arXiv:1606.06650), with
-- padded convolutions, so that the result has the extents of the input. Scopes are named like those
-- of the recipes: enc1, up1, dec1, ... from the finest grid to the coarsest, bottom, head; so this
-- function gives the networks of scripts/brain_unet.lua and scripts/nfbs_unet.lua with the same
-- names and bytes. With the options by level it also gives the plain and the residual U-Nets of
-- nnU-Net (Isensee et al. 2021, doi:10.1038/s41592-020-01008-z; 2024, arXiv:2404.09556), which
-- net_nnunet.lua calls.

local block = require "seg.recipe.net_block"
local nn = require "seg.recipe.nn"
local util = require "seg.util"

local none, fail = util.none, util.fail
local M = {}

-- Options -----------------------------------------------------------------------

local known = {
  out = 1,             -- channels of the result: logits
  features = none,     -- channels of each level, the finest first; default:
  base = 32,           -- base, 2 base, 4 base, ...
  levels = 4,          -- number of levels for `base`
  bottom = none,       -- channels below the last level, default: twice the last
  factors = 2,         -- between grids: one for all, or a list of one for each
                       -- level, each a number or one an axis
  stem = 0,            -- channels of a convolution before the first level; 0: none
  blocks = 1,          -- blocks of each level and the bottom, or a list, the bottom last
  convs = 2,           -- convolutions in a block, or such a list
  decoder_convs = none, -- in a block of the decoder, or a list by level; default: convs
  kernel = 3,          -- odd; or one an axis
  kernels = none,      -- a list of kernels, the bottom last, in place of `kernel`
  dilation = 1,        -- of these convolutions; or one an axis
  dilations = none,    -- a list of dilations, the bottom last, in place of `dilation`
  bias = none,         -- of these convolutions; default: only without a norm
  norm = "batch",
  norms = none,        -- a list of norms, the bottom last, in place of `norm`
  act = "relu",
  residual = false,    -- residual blocks; "encoder": only in levels and bottom on the way down
  shortcut = "conv",   -- of a residual block that changes its grid: a convolution of 1 with the
                       -- stride; "pool": a mean, then a convolution of 1 without bias
  zero_last = false,   -- the last norm of a residual block begins with the weight 0
  squeeze = 0,         -- squeeze and excitation in each block, with this reduction
  gates = false,       -- skips through attention gates
  heads = 0,           -- heads of a self-attention after the bottom
  dropout = 0,         -- of whole channels, after each block
  down = "maxpool",    -- or "conv": the first convolution of a block has the stride
  up = "upconv",       -- or "linear", "nearest": upsampling, then a convolution of 1
  deep = 0,            -- results of coarser levels in addition to the finest
  pad = false,         -- zeros at the end make the extents divide; the result is cropped
  init = none,
}

-- The factors of every level, a list by axis.
local function read_factors(what, o, x, levels)
  local list = {}
  if type(o.factors) == "table" and #o.factors ~= levels then
    fail("usage", "%s: factors has %s for %s", what, util.plural(#o.factors, "entry", "entries"),
         util.plural(levels, "level"))
  end
  for i = 1, levels do
    local v = type(o.factors) == "table" and o.factors[i] or o.factors
    list[i] = block.per_axis(string.format("%s: factors of level %d", what, i), v, x, 1)
  end
  return list
end

-- A value for each of `count` levels, checked by read(value, what): from the list `each`, or `all`
-- everywhere if `each` is nil. levels: the text for `count`.
local function by_level(what, each, all, count, read, levels)
  if each ~= nil and (type(each) ~= "table" or #each ~= count) then
    fail("usage", "%s must be a list of %d, one for each level%s, got %s", what, count,
         levels or " and the bottom",
         type(each) == "table" and util.plural(#each, "entry", "entries") or tostring(each))
  end
  local list = {}
  for i = 1, count do
    local v = all
    if each ~= nil then v = each[i] end
    list[i] = read(v, each and string.format("%s: level %d", what, i) or what)
  end
  return list
end

-- Whole numbers by level, from one number or a list.
local function counts(what, v, count, levels)
  local list = type(v) == "table"
  return by_level(what, list and v or nil, v, count,
                  function(n, where) return block.whole(where, n, 1) end, levels)
end

-- What differs between the blocks of the levels, a list with the bottom last.
local function read_levels(x, o, what, count)
  local function named(one, many) return what .. (o[many] and ": " .. many or ": " .. one) end
  local function odd(v, where) return block.odd(where, v, x) end
  local function axes(v, where) return block.per_axis(where, v, x, 1) end
  local function norm(v) return { block.norm(what, v) } end
  local kernels = by_level(named("kernel", "kernels"), o.kernels, o.kernel, count, odd)
  local dilations = by_level(named("dilation", "dilations"), o.dilations, o.dilation, count, axes)
  local norms = by_level(what .. ": norms", o.norms, o.norm, count, norm)
  local blocks = counts(what .. ": blocks", o.blocks, count)
  local convs = counts(what .. ": convs", o.convs, count)
  if o.bias ~= nil then block.flag(what .. ": bias", o.bias) end
  local list = {}
  for i = 1, count do
    local f, normed = table.unpack(norms[i])
    list[i] = { blocks = blocks[i], convs = convs[i], kernel = kernels[i],
                dilation = dilations[i], norm = f, bias = not normed }
    if o.bias ~= nil then list[i].bias = o.bias end
  end
  return list
end

-- The settings of the blocks of each level, the bottom last, as block.convs takes them; and those
-- of the decoder.
local function read_blocks(x, o, what, count)
  local residual = o.residual
  if residual ~= "encoder" and type(residual) ~= "boolean" then
    fail("usage", '%s: residual must be true, false or "encoder", got %s', what, tostring(residual))
  end
  local shared = {
    act = block.act(what, o.act), init = o.init, dropout = o.dropout,
    squeeze = block.whole(what .. ": squeeze", o.squeeze, 0),
    shortcut = block.choice(what .. ": shortcut", o.shortcut, { "conv", "pool" }),
    zero_last = block.flag(what .. ": zero_last", o.zero_last), residual = residual ~= false,
  }
  local decoder_convs = o.decoder_convs and counts(what .. ": decoder_convs", o.decoder_convs,
                                                   count - 1, "")
  local down, up = read_levels(x, o, what, count), {}
  for i, s in ipairs(down) do
    for k, v in pairs(shared) do s[k] = v end
    up[i] = {}
    for k, v in pairs(s) do up[i][k] = v end
    up[i].blocks, up[i].residual = 1, residual == true
    if decoder_convs then up[i].convs = decoder_convs[i] end
  end
  return down, up
end

-- Checks and converts the options.
local function read(x, o, what)
  local s = { out = block.whole(what .. ": out", o.out, 1), init = o.init,
              stem = block.whole(what .. ": stem", o.stem, 0),
              gates = block.flag(what .. ": gates", o.gates),
              heads = block.whole(what .. ": heads", o.heads, 0),
              strided = block.choice(what .. ": down", o.down, { "maxpool", "conv" }) == "conv",
              up = block.choice(what .. ": up", o.up, { "upconv", "linear", "nearest" }) }
  if o.features then
    s.features = block.widths(what .. ": features", o.features)
  else
    s.features = {}
    local base = block.whole(what .. ": base", o.base, 1)
    for i = 1, block.whole(what .. ": levels", o.levels, 1) do
      s.features[i] = block.whole(what .. ": the channels of level " .. i, base << (i - 1), 1)
    end
  end
  local last = #s.features
  s.bottom = block.whole(what .. ": bottom", o.bottom or 2 * s.features[last], 1)
  s.encoder, s.decoder = read_blocks(x, o, what, last + 1)
  s.factors = read_factors(what, o, x, last)
  s.deep = block.whole(what .. ": deep", o.deep, 0)
  if s.deep >= last then
    fail("usage", "%s: deep = %d, but of %s at most %d have a coarser result", what, s.deep,
         util.plural(last, "level"), last - 1)
  end
  s.decoded = {}
  return s
end

-- Extents -----------------------------------------------------------------------

-- The padding that makes x divisible by all factors, and the box that crops it again; nil if x is
-- divisible. Without `pad`, an extent that does not divide is an error.
local function fit(x, s, o, what)
  local border, box, cut = {}, {}, false
  for i, axis in ipairs(block.axes(x)) do
    local need, size = 1, x[axis]
    for _, f in ipairs(s.factors) do
      need = block.whole(what .. ": the product of the factors along " .. axis, need * f[i], 1)
    end
    if not o.pad then
      block.divisible(what, x, axis, need, "a network of " .. util.plural(#s.factors, "level"),
                      ", or pad = true")
    end
    local over = size % need
    if over ~= 0 then border[axis], cut = { 0, need - over }, true end
    box[axis] = { 1, size }
  end
  if cut and s.deep > 0 then
    fail("usage", "%s: deep = %d needs extents that divide, which pad = true does not give the "
         .. "coarser results", what, s.deep)
  end
  if cut then return border, box end
end

-- The network -------------------------------------------------------------------

-- The blocks `l` of a level in a scope of this name; several are in scopes block1, block2, ... of
-- it. stride: of the first convolution.
local function scoped(name, x, filters, l, stride)
  return nn.scope(name, function()
    if l.blocks == 1 then return block.convs(x, filters, l, stride) end
    for i = 1, l.blocks do
      x = nn.scope("block" .. i, function()
        return block.convs(x, filters, l, i == 1 and stride or nil)
      end)
    end
    return x
  end)
end

-- One convolution with norm and activation, in the form of those of level 1.
local function stem(x, s)
  if s.stem == 0 then return x end
  local l = {}
  for k, v in pairs(s.encoder[1]) do l[k] = v end
  l.blocks, l.convs, l.residual, l.squeeze = 1, 1, false, 0
  return scoped("stem", x, s.stem, l)
end

-- Upsamples from the coarser grid to the finer one, to `filters` channels.
local function enlarge(x, filters, s, level)
  local f, name = s.factors[level], "up" .. level
  if s.up == "upconv" then
    return nn.upconv(x, filters, f, { stride = f, pad = 0, init = s.init, name = name })
  end
  return nn.conv(nn.upsample(x, f, { mode = s.up }), filters, 1, { init = s.init, name = name })
end

-- Level `level` and all coarser levels; stride: of the step to this level.
local function levels(x, s, level, stride)
  local filters = s.features[level]
  if not filters then
    x = scoped("bottom", x, s.bottom, s.encoder[level], stride)
    return s.heads > 0 and block.self_attention(x, { heads = s.heads, name = "mixer" }) or x
  end
  local skip = scoped("enc" .. level, x, filters, s.encoder[level], stride)
  local f, low = s.factors[level]
  if s.strided then
    low = levels(skip, s, level + 1, f)
  else
    low = levels(nn.maxpool(skip, f), s, level + 1)
  end
  local up = enlarge(low, filters, s, level)
  if s.gates then skip = block.attention_gate(skip, low, { name = "gate" .. level }) end
  s.decoded[level] = scoped("dec" .. level, up .. skip, filters, s.decoder[level])
  return s.decoded[level]
end

-- net.unet(x, {...}) -> logits with x's extents, and with deep = n also a list of the logits of the
-- next n coarser levels.
M.unet = block.builder("unet", known, 1, function(x, o, what)
  block.flag(what .. ": pad", o.pad)
  local s = read(x, o, what)
  local border, box = fit(x, s, o, what)
  local y = levels(stem(border and nn.pad(x, border) or x, s), s, 1)
  local logits, deep = nn.conv(y, s.out, 1, { init = s.init, name = "head" }), {}
  for i = 1, s.deep do
    deep[i] = nn.conv(s.decoded[i + 1], s.out, 1, { init = s.init, name = "head" .. i + 1 })
  end
  if box then logits = nn.slice(logits, box) end
  if s.deep > 0 then return logits, deep end
  return logits
end)

-- Deep supervision --------------------------------------------------------------

-- The weighted sum of loss(x, target) over the finest result and the coarser ones. The target is
-- subsampled to the coarser grids (every second position, every fourth, ...), so that class numbers
-- stay class numbers. Weights: 1, 1/2, 1/4, ... divided by their sum (Isensee et al. 2021,
-- nnU-Net), or `weights`.
function M.deep_loss(logits, deep, target, loss, o)
  o = util.options("net.deep_loss", o, { weights = none })
  if not util.is_node(logits) or type(deep) ~= "table" or not util.is_node(target)
    or type(loss) ~= "function" then
    fail("usage", "net.deep_loss(logits, deep, target, loss): both results of net.unet with deep = "
         .. "n, the truth, and a function as nn.bce_dice; got %s, %s, %s, %s", type(logits),
         type(deep), type(target), type(loss))
  end
  local sum, scale, weights = nil, 0, {}
  for i = 1, #deep + 1 do
    weights[i] = o.weights and o.weights[i] or not o.weights and 0.5 ^ (i - 1)
    if math.type(weights[i]) == nil or not (weights[i] >= 0) then
      fail("usage", "net.deep_loss: weights must be a list of %d numbers >= 0", #deep + 1)
    end
    scale = scale + weights[i]
  end
  if o.weights then scale = 1 end
  for i, w in ipairs(weights) do
    local x, truth = logits, target
    if i > 1 then
      x = deep[i - 1]
      local f = block.factors_between("net.deep_loss", target, x)
      truth = nn.avgpool(target, 1, { stride = f }) -- windows of one voxel: a copy
    end
    local term = loss(x, truth) * (w / scale)
    sum = sum and sum + term or term
  end
  return sum
end

return M
