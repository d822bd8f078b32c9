-- net_transformer.lua -- seg.net.transformer and its embedding of patches; net.vit, a classifier,
-- and net.unetr, a segmentation network, which consist of both.
--
-- Tokens are positions: nn.attention runs over all positions of a node with any number of axes, so
-- the patches of a volume stay a volume, and only a class token needs a sequence.

local block = require "seg.recipe.net_block"
local core = require "seg.core"
local nn = require "seg.recipe.nn"
local util = require "seg.util"

local none, fail = util.none, util.fail
local M = {}

-- Tokens ------------------------------------------------------------------------

-- A tensor that is added to tokens: small random values, no weight decay.
local function learnt(name, shape)
  return nn.param(name, shape, { init = { normal = 0.02 }, decay = false })
end

-- Patches of `patch` (a list by axis) positions as tokens of `width` channels.
local function embed(x, patch, width, init, what)
  for i, axis in ipairs(block.axes(x)) do
    block.divisible(what, x, axis, patch[i], "a patch")
  end
  return nn.conv(x, width, patch, { stride = patch, pad = 0, init = init, name = "patch" })
end

-- net.patch_embed(x, {...}) -> (N, width, ...) with one position for each patch of x, plus a learnt
-- tensor for each position (Dosovitskiy et al. 2021, arXiv:2010.11929).
M.patch_embed = block.builder("patch_embed", {
  width = 768, patch = 16, position = true, dropout = 0, init = none,
}, 1, function(x, o, what)
  local patch = block.per_axis(what .. ": patch", o.patch, x, 1)
  local width = block.whole(what .. ": width", o.width, 1)
  x = embed(x, patch, width, o.init, what)
  if block.flag(what .. ": position", o.position) then
    x = x + learnt("position", { 1, table.unpack(x.shape, 2) })
  end
  return nn.dropout(x, o.dropout)
end)

-- The encoder -------------------------------------------------------------------

-- Options of the encoder, which the networks on top of it have too.
local ENCODER = { layers = 12, heads = 12, mlp = none, act = "gelu", eps = 1e-6, qkv_bias = true,
                  dropout = 0, attention_dropout = 0 }

-- Checks and converts the options of ENCODER.
local function read(o, what)
  local s = { layers = block.whole(what .. ": layers", o.layers, 1),
              heads = block.whole(what .. ": heads", o.heads, 1),
              mlp = o.mlp and block.whole(what .. ": mlp", o.mlp, 1),
              act = block.act(what, o.act), eps = o.eps,
              qkv_bias = block.flag(what .. ": qkv_bias", o.qkv_bias),
              dropout = o.dropout, attention_dropout = o.attention_dropout, lengths = o.lengths }
  if type(s.eps) ~= "number" or not (s.eps > 0 and s.eps < 1) then
    fail("usage", "%s: eps must be a number above 0 and below 1, got %s", what, tostring(s.eps))
  end
  return s
end

-- Attention and a network of two linear layers, each behind a layer norm and added to its operand.
local function layer(x, s)
  local y = nn.attention(nn.layer_norm(x, { eps = s.eps }), {
    heads = s.heads, lengths = s.lengths, dropout = s.attention_dropout, qkv_bias = s.qkv_bias })
  x = x + nn.dropout(y, s.dropout)
  y = s.act(nn.linear(nn.layer_norm(x, { eps = s.eps }), s.mlp or 4 * x.c,
                      { init = "xavier_uniform" }))
  y = nn.linear(nn.dropout(y, s.dropout), x.c, { init = "xavier_uniform" })
  return x + nn.dropout(y, s.dropout)
end

-- -> the result behind a last norm, and the list of the results of all layers
local function encode(x, s)
  local states = {}
  for i = 1, s.layers do
    x = nn.scope("layer" .. i, function() return layer(x, s) end)
    states[i] = x
  end
  return nn.layer_norm(x, { eps = s.eps, name = "norm" }), states
end

-- `known` with the options of ENCODER.
local function with_encoder(known)
  for k, v in pairs(ENCODER) do
    if known[k] == nil then known[k] = v end
  end
  return known
end

-- net.transformer(x, {...}) -> x's extents, and the list of the results of all layers before the
-- last norm. The order of the norms is the one of Xiong et al. 2020 (arXiv:2002.04745, pre-norm).
M.transformer = block.builder("transformer", with_encoder { lengths = none }, 1,
                              function(x, o, what)
  return encode(x, read(o, what))
end)

-- Classification ----------------------------------------------------------------

-- Tokens as a sequence behind a class token, plus a learnt tensor for each position.
local function with_class(x)
  x = core.op.reshape(x, { rank = 1, c = x.c, w = -1, channels_last = true })
  local class = learnt("class_token", { 1, x.c, 1 })
  x = nn.pad(x, { w = { 1, 0 } }) + nn.pad(class, { w = { 0, x.w } })
  return x + learnt("position", { 1, x.c, x.w })
end

-- net.vit(x, {...}) -> (N, out): the vision transformer of Dosovitskiy et al. 2021
-- (arXiv:2010.11929); the result is a linear layer of the class token, or of the mean over all
-- tokens. With out = 0 the features before this layer.
M.vit = block.builder("vit", with_encoder {
  out = 1000, patch = 16, width = 768, token = "class", init = none,
}, 1, function(x, o, what)
  local s, out = read(o, what), block.whole(what .. ": out", o.out, 0)
  local patch = block.per_axis(what .. ": patch", o.patch, x, 1)
  local class = block.choice(what .. ": token", o.token, { "class", "mean" }) == "class"
  x = embed(x, patch, block.whole(what .. ": width", o.width, 1), o.init, what)
  x = class and with_class(x) or x + learnt("position", { 1, table.unpack(x.shape, 2) })
  x = encode(nn.dropout(x, s.dropout), s)
  x = class and nn.flatten(nn.slice(x, { w = { 1, 1 } })) or nn.global_pool(x)
  return out > 0 and nn.linear(x, out, { name = "head" }) or x
end)

-- Segmentation ------------------------------------------------------------------

-- Doubles the extents.
local function double(x, filters, s, name)
  return nn.upconv(x, filters, 2, { bias = false, init = s.init, name = name })
end

-- The tokens of a layer on the grid of level `level` of `last`: doubled as often as needed, a
-- residual block after each time but the first.
local function skip(x, filters, s, level, last)
  x = double(x, filters, s, "up1")
  for i = 2, last - level + 1 do
    x = double(x, filters, s, "up" .. i)
    x = nn.scope("block" .. i, function() return block.convs(x, filters, s) end)
  end
  return x
end

-- The layers whose results are skips, the finest level first.
local function read_skips(v, layers, what)
  if type(v) ~= "table" then
    fail("usage", "%s: skips must be a list of layers, as { 4, 7, 10 }, got %s", what, tostring(v))
  end
  local list = {}
  for i, n in ipairs(v) do
    list[i] = block.whole(string.format("%s: skips: entry %d", what, i), n, 1)
    if list[i] > layers then
      fail("usage", "%s: skips: entry %d is layer %d, but there are %d", what, i, list[i], layers)
    end
  end
  return list
end

-- net.unetr(x, {...}) -> logits with x's extents: UNETR of Hatamizadeh et al. 2022
-- (arXiv:2103.10504), a transformer over patches as the encoder of a U-shaped network. Default
-- skips are those of MONAI, where numbers count from 0; the paper's are { 3, 6, 9 }. n skips need
-- patches of 2^(n + 1) positions.
M.unetr = block.builder("unetr", with_encoder {
  out = 1, width = 768, features = 16, skips = { 4, 7, 10 }, eps = 1e-5, qkv_bias = false,
  norm = { "instance", affine = false }, init = none,
}, 1, function(x, o, what)
  local s, skips = read(o, what), read_skips(o.skips, o.layers, what)
  local last, patch = #skips + 1, {}
  for i in ipairs(block.axes(x)) do patch[i] = block.halved(what, last) end
  local features = block.whole(what .. ": features", o.features, 1)
  local b = { convs = 2, kernel = 3, bias = false, norm = block.norm(what, o.norm),
              act = block.act(what, "leaky_relu"), init = o.init, residual = true, squeeze = 0,
              dropout = 0 }
  local tokens = embed(x, patch, block.whole(what .. ": width", o.width, 1), o.init, what)
  tokens = tokens + learnt("position", { 1, table.unpack(tokens.shape, 2) })
  local y, states = encode(nn.dropout(tokens, s.dropout), s)
  for level = last, 1, -1 do
    local filters = features << (level - 1)
    local fine = nn.scope("enc" .. level, function()
      if level == 1 then return block.convs(x, filters, b) end
      return skip(states[skips[level - 1]], filters, b, level, last)
    end)
    local up = double(y, filters, b, "up" .. level)
    y = nn.scope("dec" .. level, function() return block.convs(up .. fine, filters, b) end)
  end
  return nn.conv(y, block.whole(what .. ": out", o.out, 1), 1, { init = o.init, name = "head" })
end)

return M
