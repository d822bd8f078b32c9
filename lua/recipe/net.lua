-- net.lua -- seg.net: networks ready to use, as functions from a node to a node.
--
-- Each is a short composition of nn.* that a recipe could write itself. Options are one table; an
-- unknown option is an error that suggests the nearest. docs/reference.md has a table of the
-- networks with their parameters and arithmetic.

local block = require "seg.recipe.net_block"
local mednext = require "seg.recipe.net_mednext"
local nn = require "seg.recipe.nn"
local nnunet = require "seg.recipe.net_nnunet"
local resnet = require "seg.recipe.net_resnet"
local sequence = require "seg.recipe.net_sequence"
local transformer = require "seg.recipe.net_transformer"
local unet = require "seg.recipe.net_unet"
local util = require "seg.util"

local M = {
  unet = unet.unet, deep_loss = unet.deep_loss,
  nnunet = nnunet.nnunet, nnunet_patch = nnunet.patch, nnunet_names = nnunet.names,
  mednext = mednext.mednext, mednext_block = mednext.block,
  resnet = resnet.resnet, pose_resnet = resnet.pose_resnet,
  transformer = transformer.transformer, patch_embed = transformer.patch_embed,
  vit = transformer.vit, unetr = transformer.unetr,
  cnn_lstm = sequence.cnn_lstm, lstm_decoder = sequence.lstm_decoder,
  squeeze_excite = block.squeeze_excite, attention_gate = block.attention_gate,
  self_attention = block.self_attention,
}

-- net.mlp(x, {...}) -> (N, out): linear layers with norm, activation and dropout,
-- and a last one without. `late` puts the activation before the norm.
M.mlp = block.builder("mlp", {
  out = 1, hidden = {}, norm = "batch", act = "relu", dropout = 0, late = false,
}, 0, function(x, o, what)
  local s = { norm = block.norm(what, o.norm), act = block.act(what, o.act), dropout = o.dropout,
              late = block.flag(what .. ": late", o.late) }
  x = block.linears(x, block.widths(what .. ": hidden", o.hidden, true), s)
  return nn.linear(x, block.whole(what .. ": out", o.out, 1), { name = "head" })
end)

-- net.pose_cnn(x, {...}) -> (N, out): stages of two convolutions, of which the first halves the
-- extents, then the mean over positions and two linear layers.
M.pose_cnn = block.builder("pose_cnn", {
  out = 3, features = { 32, 64, 128, 256 }, hidden = 128, norm = "batch", act = "relu",
  dropout = 0, init = util.none,
}, 1, function(x, o, what)
  local norm, normed = block.norm(what, o.norm)
  local act = block.act(what, o.act)
  local s = { convs = 2, kernel = 3, bias = not normed, norm = norm, act = act, init = o.init,
              residual = false, squeeze = 0, dropout = 0 }
  for i, filters in ipairs(block.widths(what .. ": features", o.features)) do
    x = nn.scope("stage" .. i, function() return block.convs(x, filters, s, 2) end)
  end
  x = act(nn.linear(nn.global_pool(x), block.whole(what .. ": hidden", o.hidden, 1),
                    { name = "hidden" }))
  return nn.linear(nn.dropout(x, o.dropout), block.whole(what .. ": out", o.out, 1),
                   { name = "head" })
end)

-- net.pix2pix(x, {...}) -> (N, out, ...): the generator of Isola et al. 2017 (arXiv:1611.07004) as
-- in OpenKBP's baseline (Babier et al. 2021): kernels of 4 that halve the extents `levels` times
-- and double them again, up to 8 times `filters` channels, dropout in every second step up, a mean
-- filter over 3 voxels that counts only voxels inside. squeeze: squeeze and excitation with this
-- reduction, from the fourth step down. Extents must be multiples of 2^levels. Keras' conventions:
-- Glorot uniform weights, eps 1e-3, momentum 0.99 of running statistics.
M.pix2pix = block.builder("pix2pix", {
  out = 1, filters = 64, levels = 6, slope = 0.2, dropout = 0.2, smooth = 3, final = "relu",
  squeeze = 0,
  norm = { "batch", eps = 1e-3, momentum = 0.01 }, init = "xavier_uniform",
}, 1, function(x, o, what)
  local norm, normed = block.norm(what, o.norm)
  local final = block.act(what .. ": final", o.final)
  local filters = block.whole(what .. ": filters", o.filters, 1)
  local levels = block.whole(what .. ": levels", o.levels, 1)
  local smooth = block.whole(what .. ": smooth", o.smooth, 1)
  local squeeze = block.whole(what .. ": squeeze", o.squeeze, 0)
  if smooth % 2 == 0 then util.fail("usage", "%s: smooth must be odd, got %d", what, smooth) end
  local need = block.halved(what, levels)
  for _, axis in ipairs(block.axes(x)) do
    block.divisible(what, x, axis, need, string.format("halving %d times", levels))
  end
  local function conv(kind, y, width, bias)
    return nn[kind](y, width, 4, { stride = 2, pad = 1, bias = bias, init = o.init })
  end
  local function width(level) return filters * math.min(1 << (level - 1), 8) end
  local skips = {}
  for i = 1, levels do
    x = nn.scope("x" .. i, function()
      local y = conv("conv", x, width(i), not normed)
      y = nn.leaky_relu(i < levels and norm(y) or y, o.slope)
      return squeeze > 0 and i > 3 and block.squeeze_excite(y, { reduction = squeeze }) or y
    end)
    skips[i] = x
  end
  for i = levels - 1, 1, -1 do
    x = nn.scope("x" .. i .. "b", function()
      local y = norm(conv("upconv", x, width(i), not normed))
      return nn.relu(nn.spatial_dropout(y, i % 2 == 0 and o.dropout or 0))
    end)
    x = x .. skips[i]
  end
  x = nn.scope("x0b", function() return conv("upconv", x, o.out, true) end)
  if smooth > 1 then
    x = nn.avgpool(x, smooth, { stride = 1, pad = (smooth - 1) // 2, count = "valid" })
  end
  return final(x)
end)

return M
