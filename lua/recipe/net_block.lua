-- net_block.lua -- building blocks of seg.net: norms and activations by name, blocks of
-- convolutions, channel and position weighting; and the checks of a builder's arguments.
--
-- A block does not name its layers after a network; the scope around it does.

local nn = require "seg.recipe.nn"
local util = require "seg.util"

local options, none, fail = util.options, util.none, util.fail
local M = {}

-- Checks ----------------------------------------------------------------------

local MOST = 2 ^ 31 - 1 -- of an extent

-- A whole number >= least; returned as an integer.
function M.whole(what, v, least)
  if math.type(v) == nil or math.tointeger(v) == nil or v < least then
    fail("usage", "%s must be a whole number >= %d, got %s", what, least, tostring(v))
  elseif v > MOST then
    fail("usage", "%s must be a whole number up to %d, got %s", what, MOST, tostring(v))
  end
  return math.tointeger(v)
end

function M.flag(what, v)
  if type(v) ~= "boolean" then
    fail("usage", "%s must be true or false, got %s", what, tostring(v))
  end
  return v
end

-- Checks that v is one of a list of names.
function M.choice(what, v, names)
  for _, name in ipairs(names) do
    if v == name then return v end
  end
  fail("usage", '%s "%s" is not known; %s', what, tostring(v), util.suggest(v, names))
end

-- A list of whole numbers >= 1; it may be empty only if `empty` is set.
function M.widths(what, v, empty)
  if type(v) ~= "table" or #v == 0 and not (empty and next(v) == nil) then
    fail("usage", "%s must be a list of widths as {32, 64, 128}, got %s", what,
         type(v) == "table" and "an empty one" or tostring(v))
  end
  local list = {}
  for i, width in ipairs(v) do
    list[i] = M.whole(string.format("%s: width %d", what, i), width, 1)
  end
  return list
end

-- The spatial axes of x, in order: "d", "h", "w", or only the last of them.
function M.axes(x)
  return ({ [0] = {}, { "w" }, { "h", "w" }, { "d", "h", "w" } })[x.rank]
end

-- A whole number for every axis of x, from one number for all or a list.
function M.per_axis(what, v, x, least)
  local list, axes = {}, M.axes(x)
  if type(v) == "table" and #v ~= #axes then
    fail("usage", "%s must be a number or a list of %d, one for each of %s, got %d numbers", what,
         #axes, table.concat(axes, ", "), #v)
  end
  for i in ipairs(axes) do
    list[i] = M.whole(what, type(v) == "table" and v[i] or v, least)
  end
  return list
end

-- An odd width for every axis of x.
function M.odd(what, v, x)
  local kernel = M.per_axis(what, v, x, 1)
  for _, k in ipairs(kernel) do
    if k % 2 == 0 then fail("usage", "%s must be odd, got %d", what, k) end
  end
  return kernel
end

-- 2^levels, of which extents are multiples if each level halves them.
function M.halved(what, levels)
  if levels > 30 then
    fail("usage", "%s: %d levels that halve the extents, wanted at most 30", what, levels)
  end
  return 1 << levels
end

-- Checks that the extent of an axis of x is a multiple of `need`, as `why` says. The error names
-- the nearest valid extents and, with `also`, an alternative.
function M.divisible(what, x, axis, need, why, also)
  local size = x[axis]
  local over = size % need
  if over == 0 then return end
  local below = size > need and string.format("%d or ", size - over) or ""
  fail("usage", "%s: %s = %d is not a multiple of %d, as %s needs; fix: %s%d (resize, fit or "
       .. "patches of the data)%s", what, axis, size, need, why, below, size - over + need,
       also or "")
end

-- Returns a function net.NAME(x, o) that calls build(x, o, "net.NAME"): x must be a node with at
-- least `rank` axes; o has the options `known`. With {name=} all parameters are in a scope of that
-- name, so that a recipe may use a network twice.
function M.builder(name, known, rank, build)
  local what = "net." .. name
  known.name = none
  return function(x, o)
    if not util.is_node(x) then
      fail("usage", "%s: the operand must be a node of the network, got %s", what,
           x == nil and "nil" or type(x))
    end
    if x.rank < rank then
      fail("usage", "%s: the operand has no axes except channels; give nn.input {c,w}, {c,h,w} or "
           .. "{c,d,h,w}", what)
    end
    o = options(what, o, known)
    if o.name == nil then return build(x, o, what) end
    return nn.scope(o.name, function() return build(x, o, what) end)
  end
end

-- Norms and activations by name -------------------------------------------------

local norms = { batch = nn.batch_norm, group = nn.group_norm, instance = nn.instance_norm,
                layer = nn.layer_norm }

-- norm: "batch", "group", "instance", "layer", "none", or one of them with its options, { "group",
-- groups = 4 }. -> function(x, name of the layer or nil, first value of its weights or nil),
-- whether it is a norm
function M.norm(what, norm)
  local kind, given = norm, {}
  if type(norm) == "table" then
    kind = norm[1]
    for k, v in pairs(norm) do
      if k ~= 1 then given[k] = v end
    end
  end
  M.choice(what .. ": norm", kind, { "batch", "group", "instance", "layer", "none" })
  if kind == "none" then return function(x) return x end, false end
  return function(x, name, weight)
    local o = { name = name }
    for k, v in pairs(given) do o[k] = v end
    if weight then o.weight = weight end
    return norms[kind](x, o)
  end, true
end

local acts = { "gelu", "leaky_relu", "none", "relu", "sigmoid", "silu", "tanh" }

-- act: a name of `acts`, or { "leaky_relu", 0.2 }. -> function(x)
function M.act(what, act)
  local kind, value = act, nil
  if type(act) == "table" then kind, value = act[1], act[2] end
  M.choice(what .. ": act", kind, acts)
  if kind == "none" then return function(x) return x end end
  return function(x) return nn[kind](x, value) end
end

-- Blocks ------------------------------------------------------------------------

-- Squeeze and excitation (Hu et al. 2018, arXiv:1709.01507): the means of all channels pass through
-- two linear layers, the first with c / reduction channels, and a sigmoid; the result scales each
-- channel.
M.squeeze_excite = M.builder("squeeze_excite", { reduction = 16 }, 1, function(x, o, what)
  local few = math.max(1, x.c // M.whole(what .. ": reduction", o.reduction, 1))
  local s = nn.relu(nn.linear(nn.global_pool(x), few))
  return x * nn.sigmoid(nn.linear(s, x.c))
end)

-- The ratios of the extents of x to those of `low`, a list by axis.
function M.factors_between(what, x, low)
  local list = {}
  for i, axis in ipairs(M.axes(x)) do
    if x.rank ~= low.rank or x[axis] % low[axis] ~= 0 then
      fail("usage", "%s: the extents %s are not whole multiples of %s", what,
           table.concat(x.shape, "x"), table.concat(low.shape, "x"))
    end
    list[i] = x[axis] // low[axis]
  end
  return list
end

-- Additive attention gate (Oktay et al. 2018, arXiv:1804.03999, eq. 1 and 2): a skip x is
-- multiplied by a map from 0 to 1, upsample(sigmoid(psi(relu(Wx x + Wg g)))), computed on the grid
-- of the coarser g. Wx has no bias and a stride equal to the ratio of the grids; `width` inner
-- channels, default: half of x's.
local gate = M.builder("attention_gate", { gate = none, width = none }, 1, function(x, o, what)
  local f = M.factors_between(what, x, o.gate)
  local width = M.whole(what .. ": width", o.width or math.max(1, x.c // 2), 1)
  local a = nn.conv(x, width, f, { stride = f, pad = 0, bias = false, name = "skip" })
  a = nn.relu(a + nn.conv(o.gate, width, 1, { name = "gate" }))
  a = nn.sigmoid(nn.conv(a, 1, 1, { name = "psi" }))
  return x * nn.upsample(a, f, { mode = "linear" })
end)

function M.attention_gate(x, g, o)
  if not util.is_node(g) then
    fail("usage", "net.attention_gate: the second operand must be the node of the coarser grid, "
         .. "got %s", type(g))
  end
  o = options("net.attention_gate", o, { width = none, name = none })
  return gate(x, { gate = g, width = o.width, name = o.name })
end

-- Multi-head self-attention over all positions with a residual and a pre-norm over the channels of
-- each position (Vaswani et al. 2017, arXiv:1706.03762). There is no positional encoding; positions
-- are known only through the zero padding of earlier convolutions.
M.self_attention = M.builder("self_attention", { heads = 4, dropout = 0 }, 1,
                             function(x, o, what)
  return x + nn.attention(nn.layer_norm(x), { heads = M.whole(what .. ": heads", o.heads, 1),
                                              dropout = o.dropout })
end)

-- The sum of a residual block's own input x with y, its result before the last activation. x has
-- to get y's channels and grid: by a convolution of 1 with the stride; with s.shortcut = "pool" by
-- a mean over the stride, then a convolution of 1 without bias if channels differ (He et al. 2019,
-- arXiv:1812.01187, ResNet-D). The norm after the convolution is like the block's.
local function shortcut(x, y, s, stride)
  local moved = y.w ~= x.w or y.h ~= x.h or y.d ~= x.d
  if x.c == y.c and not moved then return x end
  local bias = s.bias
  if s.shortcut == "pool" then
    if moved then x = nn.avgpool(x, stride) end
    if x.c == y.c then return x end
    bias, stride = false, 1
  end
  x = nn.conv(x, y.c, 1, { bias = bias, init = s.init, stride = stride or 1, name = "short" })
  return s.norm(x, "short_norm")
end

-- s.convs times convolution, norm, activation. With s.residual x is added before the last
-- activation (He et al. 2016, arXiv:1512.03385); with s.zero_last the weights of the norm before
-- the sum begin with 0, so that the block begins as its shortcut (Goyal et al. 2017,
-- arXiv:1706.02677, section 5.1). stride: of the first convolution. s: { convs, kernel, dilation,
-- bias, norm, act, init, residual, shortcut, zero_last, squeeze, dropout }, norm and act as
-- functions.
function M.convs(x, filters, s, stride)
  local y = x
  for i = 1, s.convs do
    local last = s.residual and i == s.convs
    y = nn.conv(y, filters, s.kernel, { bias = s.bias, init = s.init, dilation = s.dilation,
                                        stride = i == 1 and stride or 1 })
    y = s.norm(y, nil, last and s.zero_last and 0 or nil)
    if not last then y = s.act(y) end
  end
  if s.squeeze > 0 then y = M.squeeze_excite(y, { reduction = s.squeeze, name = "squeeze" }) end
  if s.residual then y = s.act(y + shortcut(x, y, s, stride)) end
  return nn.spatial_dropout(y, s.dropout)
end

-- Linear layers of these widths, each with norm, activation and dropout; with `late` the activation
-- is before the norm. s: { norm, act, dropout, late }.
function M.linears(x, widths, s)
  for _, width in ipairs(widths) do
    x = nn.linear(x, width)
    if s.late then x = s.norm(s.act(x)) else x = s.act(s.norm(x)) end
    x = nn.dropout(x, s.dropout)
  end
  return x
end

return M
