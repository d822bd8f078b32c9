-- net_mednext.lua -- seg.net.mednext and its block: ConvNeXt for volumes.
--
-- Roy et al. 2023 (arXiv:2303.09975): blocks of a depthwise convolution, norm, a convolution of 1
-- to more channels, GELU and a convolution of 1 back; a step between grids is such a block with a
-- stride. The paper's group norm has one channel in a group, which is instance norm.

local block = require "seg.recipe.net_block"
local nn = require "seg.recipe.nn"
local util = require "seg.util"

local none, fail = util.none, util.fail
local M = {}

-- The sizes of the paper's table 1 as lists by level, the bottom last.
local sizes = {
  S = { blocks = { 2, 2, 2, 2, 2 }, expansions = { 2, 2, 2, 2, 2 } },
  B = { blocks = { 2, 2, 2, 2, 2 }, expansions = { 2, 3, 4, 4, 4 } },
  M = { blocks = { 3, 4, 4, 4, 4 }, expansions = { 2, 3, 4, 4, 4 } },
  L = { blocks = { 3, 4, 8, 8, 8 }, expansions = { 3, 4, 8, 8, 8 } },
}

-- The block -----------------------------------------------------------------------

-- The depthwise convolution of a block; with `step` "down" or "up" it halves or doubles the grid.
local function first(x, kernel, step, init)
  local pad = {}
  for i, k in ipairs(kernel) do pad[i] = k // 2 end
  return nn[step == "up" and "upconv" or "conv"](x, x.c, kernel, {
    stride = step and 2 or 1, pad = pad, groups = x.c, init = init })
end

-- x on the grid and with the channels of the block's result.
local function shortcut(x, filters, step, init)
  if not step then return x end
  return nn[step == "up" and "upconv" or "conv"](x, filters, 1, {
    stride = 2, pad = 0, init = init, name = "short" })
end

-- The layers of a block. s: { expansion, kernel (a list by axis), step, norm, init, residual }
local function layers(x, filters, s)
  local y = s.norm(first(x, s.kernel, s.step, s.init))
  y = nn.gelu(nn.conv(y, s.expansion * x.c, 1, { init = s.init, name = "conv2" }))
  y = nn.conv(y, filters, 1, { init = s.init, name = "conv3" })
  if s.residual then y = y + shortcut(x, filters, s.step, s.init) end
  if s.step ~= "up" then return y end
  -- a transposed convolution of odd width gives 2 n - 1 positions; the first of 2 n is 0
  local border = {}
  for _, axis in ipairs(block.axes(x)) do border[axis] = { 1, 0 } end
  return nn.pad(y, border)
end

-- net.mednext_block(x, {...}): a block that keeps the grid, halves ("down") or doubles ("up") it.
M.block = block.builder("mednext_block", {
  filters = none, expansion = 4, kernel = 3, step = none, norm = "instance", residual = true,
  init = none,
}, 1, function(x, o, what)
  local filters = block.whole(what .. ": filters", o.filters or x.c, 1)
  local s = { expansion = block.whole(what .. ": expansion", o.expansion, 1),
              kernel = block.odd(what .. ": kernel", o.kernel, x),
              step = o.step and block.choice(what .. ": step", o.step, { "down", "up" }),
              norm = block.norm(what, o.norm), init = o.init,
              residual = block.flag(what .. ": residual", o.residual) }
  if s.residual and not s.step and filters ~= x.c then
    fail("usage", "%s: filters = %d, but x has %d channels and is added; give residual = false, or "
         .. 'step = "down" or "up"', what, filters, x.c)
  end
  return layers(x, filters, s)
end)

-- The network ---------------------------------------------------------------------

-- A list of whole numbers by level.
local function by_level(what, v)
  if type(v) ~= "table" or #v == 0 then
    fail("usage", "%s must be a list by level, the bottom last, as { 2, 2, 2 }, got %s", what,
         type(v) == "table" and "an empty one" or tostring(v))
  end
  local list = {}
  for i, n in ipairs(v) do list[i] = block.whole(what .. ": level " .. i, n, 1) end
  return list
end

-- Checks and converts the options. width(level): its channels; layers(y, name, level, out, step):
-- a block of a level with the channels of level `out`, in a scope of this name.
local function read(x, o, what)
  local size = sizes[block.choice(what .. ": size", o.size, util.sorted_keys(sizes))]
  local s = { blocks = o.blocks or size.blocks, expansions = o.expansions or size.expansions,
              out = block.whole(what .. ": out", o.out, 1) }
  local filters = block.whole(what .. ": filters", o.filters, 1)
  local kernel, norm = block.odd(what .. ": kernel", o.kernel, x), block.norm(what, o.norm)
  s.blocks = by_level(what .. ": blocks", s.blocks)
  s.expansions = by_level(what .. ": expansions", s.expansions)
  s.last = #s.blocks
  if #s.expansions ~= s.last or s.last < 2 then
    fail("usage", "%s: blocks has %s and expansions %d; wanted as many of both, for each level and "
         .. "the bottom, at least 2", what, util.plural(s.last, "entry", "entries"),
         #s.expansions)
  end
  local need = block.halved(what, s.last - 1)
  for _, axis in ipairs(block.axes(x)) do
    block.divisible(what, x, axis, need, "a network of " .. util.plural(s.last - 1, "level"))
  end
  function s.width(level) return filters << (level - 1) end
  function s.layers(y, name, level, out, step)
    return nn.scope(name, function()
      return layers(y, s.width(out), { expansion = s.expansions[level], kernel = kernel,
                                       step = step, norm = norm, init = o.init, residual = true })
    end)
  end
  return s
end

-- The blocks of a level, in scopes block1, block2, ... of `name`.
local function stage(x, s, name, level)
  return nn.scope(name, function()
    for i = 1, s.blocks[level] do x = s.layers(x, "block" .. i, level, level) end
    return x
  end)
end

-- Level `level` and all coarser levels. -> the result; `decoded` gets it by level.
local function levels(x, s, level, decoded)
  if level == s.last then
    decoded[level] = stage(x, s, "bottom", level)
    return decoded[level]
  end
  local skip = stage(x, s, "enc" .. level, level)
  local low = levels(s.layers(skip, "down" .. level, level, level + 1, "down"), s, level + 1,
                     decoded)
  local up = s.layers(low, "up" .. level, level, level, "up")
  decoded[level] = stage(up + skip, s, "dec" .. level, level)
  return decoded[level]
end

-- net.mednext(x, {...}) -> logits with x's extents, and with deep = true a list of the logits of
-- all coarser levels and the bottom.
M.mednext = block.builder("mednext", {
  out = 1, size = "S", filters = 32, kernel = 3, blocks = none, expansions = none,
  norm = "instance", deep = false, init = none,
}, 1, function(x, o, what)
  local s, decoded, deep = read(x, o, what), {}, {}
  local wanted = block.flag(what .. ": deep", o.deep)
  local y = levels(nn.conv(x, s.width(1), 1, { init = o.init, name = "stem" }), s, 1, decoded)
  local logits = nn.conv(y, s.out, 1, { init = o.init, name = "head" })
  if not wanted then return logits end
  for level = 2, s.last do
    deep[level - 1] = nn.conv(decoded[level], s.out, 1, { init = o.init, name = "head" .. level })
  end
  return logits, deep
end)

return M
