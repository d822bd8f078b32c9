-- nn_loss_image.lua -- losses of images that a network makes, as nodes: structural similarity,
-- total variation; a part of nn.lua.

local axes_by_rank = require("seg.recipe.axes").SPATIAL
local core = require "seg.core"
local operands = require "seg.recipe.loss_operands"
local util = require "seg.util"

local op, options, fail = core.op, util.options, util.fail

local M = {}

-- The spatial axes of x, at least one.
local function axes_of(what, x)
  if x.rank < 1 then
    fail("usage", "%s: the prediction must be an image, (N,C,H,W) or (N,C,D,H,W), got %s", what,
         tostring(x))
  end
  return axes_by_rank[x.rank]
end

-- The part of x from place `from` (0: the first) along one axis, with `size` positions.
local function part(x, axis, from, size)
  return op.slice(x, { [axis .. "0"] = from, [axis] = size })
end

-- Weights of a Gaussian window with the sum 1.
local function gaussian(window, sigma)
  local list, sum = {}, 0
  for i = 1, window do
    list[i] = math.exp(-((i - (window + 1) / 2) ^ 2) / (2 * sigma ^ 2))
    sum = sum + list[i]
  end
  for i = 1, window do list[i] = list[i] / sum end
  return list
end

-- The weighted mean of each window inside x. Slices, because a convolution would round to 16 bits
-- with a lower precision, and the variances below are differences of large numbers.
local function windowed(x, weights)
  local n = #weights
  for _, axis in ipairs(axes_by_rank[x.rank]) do
    local size, sum = x[axis] - n + 1, nil
    for i = 1, n // 2 do -- the weights are symmetric
      local both = (part(x, axis, i - 1, size) + part(x, axis, n - i, size)) * weights[i]
      sum = sum and sum + both or both
    end
    local middle = part(x, axis, n // 2, size) * weights[n // 2 + 1]
    x = sum and sum + middle or middle
  end
  return x
end

-- nn.ssim_loss(x, t, {range=1, window=11, sigma=1.5, k1=0.01, k2=0.03}): 1 minus the mean
-- structural similarity over channels and all windows inside the image,
--   (2 a b + c1) (2 cov + c2) / ((a^2 + b^2 + c1) (var x + var t + c2)),  c1 = (k1 range)^2
-- with the means a, b, variances and the covariance under a Gaussian window, along each axis. Wang
-- and others, "Image quality assessment", IEEE TIP 13 (2004). range: the largest minus the smallest
-- intensity.
local function ssim_loss(x, t, o)
  local what = "nn.ssim_loss"
  o = options(what, o, { range = 1, window = 11, sigma = 1.5, k1 = 0.01, k2 = 0.03 })
  util.check_pair(what, x, t, false)
  operands.check_extents(what, "target", x, t, x.c)
  for _, key in ipairs { "range", "sigma", "k1", "k2" } do
    operands.check_number(what, key, o[key], 1e-6, 1e6)
  end
  local axes = axes_of(what, x)
  if operands.check_whole(what, "window", o.window, 1, 99) % 2 == 0 then
    fail("usage", "%s: window must be odd, got %d", what, o.window)
  end
  for _, axis in ipairs(axes) do
    if x[axis] < o.window then
      fail("usage", "%s: window is %d, but the image has %d positions along %s: %s; a smaller odd "
           .. "window fits", what, o.window, x[axis], axis, tostring(x))
    end
  end
  if t.kind ~= "input" then t = op.stop(t) end
  local weights = gaussian(math.tointeger(o.window), o.sigma)
  local function mean(v) return windowed(v, weights) end
  local a, b = mean(x), mean(t)
  local spread = mean(x * x + t * t) - (a * a + b * b) -- var x + var t
  local cov = mean(x * t) - a * b
  local c1, c2 = (o.k1 * o.range) ^ 2, (o.k2 * o.range) ^ 2
  local similar = (2 * a * b + c1) * (2 * cov + c2) / ((a * a + b * b + c1) * (spread + c2))
  return operands.mean(1 - similar)
end

-- nn.total_variation(x, {isotropic=false, eps=1e-3}): the sum over axes of the mean absolute
-- difference of neighbours; isotropic: the mean of sqrt(sum of squared differences + eps^2), over
-- the positions that have a next one along every axis. Rudin, Osher and Fatemi, "Nonlinear total
-- variation based noise removal algorithms", Physica D 60 (1992).
local function total_variation(x, o)
  local what = "nn.total_variation"
  o = options(what, o, { isotropic = false, eps = 1e-3 })
  operands.check_flag(what, "isotropic", o.isotropic)
  operands.check_number(what, "eps", o.eps, 1e-6, 1e6)
  local axes, sum = axes_of(what, x), nil
  for _, axis in ipairs(axes) do
    if x[axis] < 2 then
      fail("usage", "%s: axis %s must have 2 positions or more, got %s", what, axis, tostring(x))
    end
  end
  for _, axis in ipairs(axes) do
    local size = x[axis] - 1
    local e = part(x, axis, 1, size) - part(x, axis, 0, size)
    if o.isotropic then
      for _, other in ipairs(axes) do
        if other ~= axis then e = part(e, other, 0, x[other] - 1) end
      end
      e = e * e
    else
      e = operands.mean(op.abs(e))
    end
    sum = sum and sum + e or e
  end
  return o.isotropic and operands.mean(op.sqrt(sum + o.eps ^ 2)) or sum
end

M.losses = { ssim_loss = ssim_loss, total_variation = total_variation }

return M
