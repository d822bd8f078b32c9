-- nn.lua -- layers: parameters plus operators, as functions from node to node.
--
-- Layers compose like functions; a skip is a plain variable; `a .. b` concatenates channels.
-- Channels, extents and rank are read from the operand, so the same function serves 1-D, 2-D and
-- 3-D. Losses take logits.
--
-- Parameters are named scope.layer.tensor. The layer is the kind and a number, counted from 1 by
-- kind inside its scope in the order of creation, or the option `name`. Names of tensors are
-- PyTorch's.

local core = require "seg.core"
local embeddings = require "seg.recipe.nn_embedding"
local losses = require "seg.recipe.nn_loss"
local pretext = require "seg.recipe.nn_pretext"
local sequences = require "seg.recipe.nn_sequence"
local terms = require "seg.recipe.nn_loss_terms"
local util = require "seg.util"

local op, options, none, fail = core.op, util.options, util.none, util.fail
local M = {}

-- Scopes ----------------------------------------------------------------------

-- A scope counts layers by kind. When a shared scope is entered again, `replay` returns the
-- parameters of the first time, in order.
local function new_scope(path, frozen)
  return { path = path, counts = {}, made = {}, entered = {}, frozen = frozen }
end

local scope = new_scope("", false)
local scopes = {}

local function check_name(what, name)
  if type(name) ~= "string" or name == "" then
    fail("usage", "%s must be a text, got %s", what, name == "" and "an empty one" or type(name))
  end
  return name
end

local function join(path, name)
  return path == "" and name or path .. "." .. name
end

-- Runs f inside scope `name` and returns its results. Entering one path twice is an error, unless
-- {share=true} is given: then the parameters made the first time are used again, in order,
-- including those of inner scopes. With {frozen=true} its parameters and those of inner scopes are
-- not trained, batch norms use their running statistics and dropout does nothing, as in evaluation.
function M.scope(name, f, o)
  o = options("nn.scope", o, { share = false, frozen = false })
  check_name("nn.scope: the name", name)
  if type(f) ~= "function" then
    fail("usage", 'nn.scope("%s"): needs a function to run inside, got %s', name, type(f))
  end
  if type(o.frozen) ~= "boolean" then
    fail("usage", 'nn.scope("%s"): frozen must be true or false, got %s', name, tostring(o.frozen))
  end
  local path, outer = join(scope.path, name), scope
  local known = scopes[path]
  if known and known.frozen ~= (o.frozen or outer.frozen) then
    fail("usage", 'nn.scope: "%s" was entered with frozen = %s before, and its parameters are the '
         .. "same", path, tostring(known.frozen))
  end
  if scope.replay and not known then
    fail("usage", 'shared scope "%s": it had no scope "%s" the first time', scope.path, name)
  end
  if known and not (o.share or scope.replay) then
    fail("usage", 'nn.scope: "%s" was entered before; give it another name, or '
         .. "{share=true} to use the same parameters again", path)
  end
  scope = known or new_scope(path, o.frozen or outer.frozen)
  scopes[path] = scope
  if known then scope.replay, scope.counts = 0, {} end
  -- also if f raises, with the location of the error
  local _ <close> = setmetatable({}, { __close = function()
    scopes[path].replay, scope = nil, outer
  end })
  return f()
end

-- The full name of the next layer of a kind, or of the layer called `name`.
local function layer(kind, name)
  if not name then
    scope.counts[kind] = (scope.counts[kind] or 0) + 1
    name = kind .. scope.counts[kind]
  end
  return join(scope.path, check_name("the name of a layer", name))
end

local function param(name, shape, rank, o)
  if scope.replay then
    scope.replay = scope.replay + 1
    local old = scope.made[scope.replay]
    local same = old and old.name == name and #old.shape == #shape
    for i = 1, same and #shape or 0 do same = same and old.shape[i] == shape[i] end
    if not same then
      fail("usage", 'shared scope "%s": parameter %s does not match the first use',
           scope.path, name)
    end
    return old.node
  end
  if scope.frozen then o.trained = false end
  local node = core.param(name, shape, rank, o)
  scope.made[#scope.made + 1] = { name = name, shape = shape, node = node }
  return node
end

-- Shapes ----------------------------------------------------------------------

-- An extent for each axis: a number for all axes of x, or a list; returned for d, h, w, with 1 (or
-- `rest`) for axes that x does not have.
local function per_axis(what, v, rank, rest)
  local list = v
  if type(v) == "number" then
    list = {}
    for i = 1, rank do list[i] = v end
  end
  if type(list) ~= "table" or #list ~= rank then
    fail("usage", "%s must be a number or a list of %d, got %s", what, rank,
         type(v) == "table" and #v .. " numbers" or tostring(v))
  end
  local out = { rest, rest, rest }
  for i = 1, rank do
    if math.type(list[i]) == nil or math.tointeger(list[i]) == nil then
      fail("usage", "%s must hold whole numbers, got %s", what, tostring(list[i]))
    end
    out[3 - rank + i] = math.tointeger(list[i])
  end
  return out
end

-- Padding before and after each axis. `pad` is nil (keeps the extent for odd kernels at stride 1),
-- a number, a list, or "same" (TensorFlow's: the result has ceil(size / stride), and an odd element
-- of padding is at the end).
local function padding(what, x, pad, k, s, dil, default)
  local lo, hi = { 0, 0, 0 }, { 0, 0, 0 }
  local size = { x.d, x.h, x.w }
  local list = pad ~= nil and pad ~= "same" and per_axis(what .. " pad", pad, x.rank, 0)
  for i = 4 - x.rank, 3 do
    local span = dil[i] * (k[i] - 1) + 1
    if pad == "same" then
      local all = math.max((math.ceil(size[i] / s[i]) - 1) * s[i] + span - size[i], 0)
      lo[i], hi[i] = all // 2, all - all // 2
    else
      lo[i] = list and list[i] or default(k[i], s[i], dil[i])
      hi[i] = lo[i]
    end
  end
  return lo, hi
end

local function window(o, s, lo, hi)
  o.sd, o.sh, o.sw = s[1], s[2], s[3]
  o.pd0, o.ph0, o.pw0 = lo[1], lo[2], lo[3]
  o.pd1, o.ph1, o.pw1 = hi[1], hi[2], hi[3]
  return o
end

-- The shape of a weight in user order: (a, b, [kd], [kh], kw).
local function weight_shape(a, b, k, rank)
  local shape = { a, b }
  for i = 4 - rank, 3 do shape[#shape + 1] = k[i] end
  return shape
end

-- Initialisation: PyTorch's default, uniform within 1/sqrt(fan_in) for weight and bias (Kaiming
-- with a = sqrt 5), or by name.
local inits = {
  default = function(fan_in) return { init = "uniform", value = 1 / math.sqrt(fan_in) } end,
  kaiming_uniform = function(fan_in) return { init = "uniform", value = math.sqrt(6 / fan_in) } end,
  kaiming_normal = function(fan_in) return { init = "normal", value = math.sqrt(2 / fan_in) } end,
  kaiming_normal_out = function(_, fan_out)
    return { init = "normal", value = math.sqrt(2 / fan_out) }
  end,
  xavier_uniform = function(fan_in, fan_out)
    return { init = "uniform", value = math.sqrt(6 / (fan_in + fan_out)) }
  end,
  xavier_normal = function(fan_in, fan_out)
    return { init = "normal", value = math.sqrt(2 / (fan_in + fan_out)) }
  end,
  zero = function() return { init = "const", value = 0 } end,
}

local function init_of(name, fan_in, fan_out)
  local f = inits[name or "default"]
  if not f then
    fail("usage", 'init "%s" is not known; %s', tostring(name),
         util.suggest(name, util.sorted_keys(inits)))
  end
  return f(fan_in, fan_out)
end

-- PyTorch draws the bias within 1/sqrt(fan_in) of its weight.
local function bias_of(o, name, channels, fan_in)
  if not o.bias then return nil end
  local init = o.init and { init = "const", value = 0 }
    or { init = "uniform", value = 1 / math.sqrt(fan_in) }
  return param(name .. ".bias", { channels }, -1, init)
end

local function positive(what, v)
  if math.type(v) == nil or math.tointeger(v) == nil or v < 1 then
    fail("usage", "%s must be >= 1, got %s", what, tostring(v))
  end
  return math.tointeger(v)
end

-- Inputs ----------------------------------------------------------------------

-- An input of the network; its rank follows from the keys: {c}, {c,w}, {c,h,w}, {c,d,h,w}.
function M.input(name, o)
  o = options("nn.input", o, { c = none, d = none, h = none, w = none })
  check_name("nn.input: the name", name)
  local rank = o.d and 3 or o.h and 2 or o.w and 1 or 0
  if not o.c or (rank >= 1 and not o.w) or (rank == 3 and not o.h) then
    fail("usage", 'nn.input("%s"): give {c}, {c,w}, {c,h,w} or {c,d,h,w}', name)
  end
  return core.input(name, o.c, o.d or 1, o.h or 1, o.w or 1, rank)
end

-- Convolutions ----------------------------------------------------------------

-- Convolution: `kernel` is a number or a list by axis; stride 1, padding that keeps the extents for
-- odd kernels. y = (N, filters, ...).
function M.conv(x, filters, kernel, o)
  o = options("nn.conv", o, { stride = 1, pad = none, dilation = 1, groups = 1, bias = true,
                              init = none, name = none })
  filters = positive("nn.conv: filters", filters)
  local k = per_axis("nn.conv: kernel", kernel, x.rank, 1)
  local s = per_axis("nn.conv: stride", o.stride, x.rank, 1)
  local dil = per_axis("nn.conv: dilation", o.dilation, x.rank, 1)
  local lo, hi = padding("nn.conv:", x, o.pad, k, s, dil,
                         function(n, _, d) return d * (n - 1) // 2 end)
  local name, each = layer("conv", o.name), x.c // positive("nn.conv: groups", o.groups)
  local taps = k[1] * k[2] * k[3]
  local w = param(name .. ".weight", weight_shape(filters, each, k, x.rank), x.rank,
                  init_of(o.init, each * taps, filters // o.groups * taps))
  local b = bias_of(o, name, filters, each * taps)
  return op.conv(x, w, b, window({ dd = dil[1], dh = dil[2], dw = dil[3], groups = o.groups,
                                   name = name }, s, lo, hi))
end

-- Transposed convolution: stride 2 and padding (k - stride) / 2, so that a kernel of 2 or 4 doubles
-- the extents exactly; out_pad adds elements at the end.
function M.upconv(x, filters, kernel, o)
  o = options("nn.upconv", o, { stride = 2, pad = none, out_pad = 0, dilation = 1, groups = 1,
                                bias = true, init = none, name = none })
  filters = positive("nn.upconv: filters", filters)
  local k = per_axis("nn.upconv: kernel", kernel, x.rank, 1)
  local s = per_axis("nn.upconv: stride", o.stride, x.rank, 1)
  local dil = per_axis("nn.upconv: dilation", o.dilation, x.rank, 1)
  local more = per_axis("nn.upconv: out_pad", o.out_pad, x.rank, 0)
  local lo, hi = padding("nn.upconv:", x, o.pad, k, s, dil,
                         function(n, stride) return math.max(n - stride, 0) // 2 end)
  for i = 1, 3 do hi[i] = hi[i] - more[i] end
  local name, each = layer("upconv", o.name), filters // positive("nn.upconv: groups", o.groups)
  local taps = k[1] * k[2] * k[3]
  -- PyTorch computes the fan of a transposed weight from its second axis
  local w = param(name .. ".weight", weight_shape(x.c, each, k, x.rank), x.rank,
                  init_of(o.init, each * taps, x.c // o.groups * taps))
  local b = bias_of(o, name, filters, each * taps)
  return op.upconv(x, w, b, window({ dd = dil[1], dh = dil[2], dw = dil[3], groups = o.groups,
                                     name = name }, s, lo, hi))
end

-- Linear layer on the channels of each position.
function M.linear(x, width, o)
  o = options("nn.linear", o, { bias = true, init = none, name = none })
  width = positive("nn.linear: width", width)
  local name = layer("linear", o.name)
  local w = param(name .. ".weight", { width, x.c }, 0, init_of(o.init, x.c, width))
  return op.linear(x, w, bias_of(o, name, width, x.c), { name = name })
end

-- Norms -----------------------------------------------------------------------

-- Weight and bias of a norm, which begin with the value `weight` and with 0; nil if not wanted.
local function affine(name, c, wanted, weight)
  if not wanted then return nil, nil end
  if type(weight) ~= "number" or not (math.abs(weight) <= 3.4e38) then
    fail("usage", "%s: weight, the first value of the weights, must be a number, got %s", name,
         tostring(weight))
  end
  return param(name .. ".weight", { c }, -1, { init = "const", value = weight }),
         param(name .. ".bias", { c }, -1, { init = "const", value = 0 })
end

-- Batch norm with PyTorch's conventions: running <- (1 - momentum) running +
-- momentum batch, unbiased running variance.
function M.batch_norm(x, o)
  o = options("nn.batch_norm", o, { eps = 1e-5, momentum = 0.1, affine = true, weight = 1,
                                    name = none })
  local name = layer("norm", o.name)
  local w, b = affine(name, x.c, o.affine, o.weight)
  local mean = param(name .. ".running_mean", { x.c }, -1,
                     { init = "const", value = 0, trained = false })
  local var = param(name .. ".running_var", { x.c }, -1,
                    { init = "const", value = 1, trained = false })
  if scope.frozen then -- as in evaluation
    local y = (x - mean) * op.rsqrt(var + o.eps)
    return w and y * w + b or y
  end
  return op.batch_norm(x, w, b, mean, var, { eps = o.eps, momentum = o.momentum, name = name })
end

-- Norms without running statistics: per sample and channel; per sample and group of channels; per
-- position over channels.
local function norm(row, known)
  known.eps, known.affine, known.weight, known.name = 1e-5, true, 1, none
  return function(x, o)
    o = options("nn." .. row, o, known)
    local name = layer("norm", o.name)
    local w, b = affine(name, x.c, o.affine, o.weight)
    return op[row](x, w, b, { eps = o.eps, groups = o.groups, name = name })
  end
end

M.instance_norm = norm("instance_norm", {})
M.group_norm = norm("group_norm", { groups = 8 })
M.layer_norm = norm("layer_norm", {})

-- Pools and sizes -------------------------------------------------------------

local function pool(row)
  return function(x, kernel, o)
    local known = { stride = none, pad = 0 }
    if row == "avgpool" then known.count = "all" end
    o = options("nn." .. row, o, known)
    local k = per_axis("nn." .. row .. ": kernel", kernel, x.rank, 1)
    local s = per_axis("nn." .. row .. ": stride", o.stride or kernel, x.rank, 1)
    local lo, hi = padding("nn." .. row .. ":", x, o.pad, k, s, { 1, 1, 1 },
                           function() return 0 end)
    local attrs = window({ kd = k[1], kh = k[2], kw = k[3] }, s, lo, hi)
    if row == "avgpool" then
      if o.count ~= "all" and o.count ~= "valid" then
        fail("usage", 'nn.avgpool: count must be "all" or "valid", got "%s"', tostring(o.count))
      end
      attrs.count_all = o.count == "all"
    end
    return op[row](x, attrs)
  end
end

M.maxpool = pool("maxpool")
-- count = "all" divides by the kernel size, "valid" by the number of elements inside
M.avgpool = pool("avgpool")

-- Upsampling by whole factors; mode "nearest" or "linear".
function M.upsample(x, factor, o)
  o = options("nn.upsample", o, { mode = "nearest", align_corners = false })
  local f = per_axis("nn.upsample: factor", factor, x.rank, 1)
  local attrs = { fd = f[1], fh = f[2], fw = f[3] }
  if o.mode == "nearest" then return op.upsample_nearest(x, attrs) end
  if o.mode ~= "linear" then
    fail("usage", 'nn.upsample: mode must be "nearest" or "linear", got "%s"', tostring(o.mode))
  end
  attrs.align = o.align_corners
  return op.upsample_linear(x, attrs)
end

-- Concatenates the channels of the operands.
function M.concat(...)
  return op.concat(...)
end

-- Two whole numbers for an axis.
local function pair(what, v)
  if type(v) ~= "table" or math.type(v[1]) ~= "integer" or math.type(v[2]) ~= "integer" then
    fail("usage", "%s must be two whole numbers {a, b}, got %s", what,
         type(v) == "table" and "another list" or tostring(v))
  end
  return v[1], v[2]
end

-- A box of x: {c={from, size}, ...}; from counts from 1.
function M.slice(x, box)
  box = options("nn.slice", box, { c = none, d = none, h = none, w = none })
  local attrs = {}
  for axis, range in pairs(box) do
    local from, size = pair("nn.slice: " .. axis, range)
    attrs[axis .. "0"], attrs[axis] = from - 1, size
  end
  return op.slice(x, attrs)
end

-- Pads with `value`: {w={before, after}, ...}.
function M.pad(x, border, o)
  o = options("nn.pad", o, { value = 0 })
  border = options("nn.pad", border, { d = none, h = none, w = none })
  local attrs = { value = o.value }
  for axis, v in pairs(border) do
    attrs["p" .. axis .. "0"], attrs["p" .. axis .. "1"] = pair("nn.pad: " .. axis, v)
  end
  return op.pad(x, attrs)
end

-- (N, C*D*H*W) in PyTorch's order.
function M.flatten(x)
  return op.flatten(x)
end

-- Activations -----------------------------------------------------------------

for _, row in ipairs { "relu", "sigmoid", "tanh", "gelu", "silu", "softmax" } do
  M[row] = function(x) return op[row](x) end
end

function M.leaky_relu(x, slope)
  return op.leaky_relu(x, { slope = slope or 0.01 })
end

local function dropout(row)
  return function(x, p)
    p = p == nil and 0.5 or p
    if type(p) ~= "number" or not (p >= 0 and p < 1) then
      fail("usage", "nn.%s: p must be from 0 to below 1, got %s", row, tostring(p))
    end
    return (p == 0 or scope.frozen) and x or op[row](x, { p = p })
  end
end

-- nn.dropout(x, p = 0.5): the share of elements set to 0 in training
M.dropout = dropout("dropout")
M.spatial_dropout = dropout("spatial_dropout") -- whole channels of a sample

-- The initial values for the function `what`: a number, or { normal = deviation } or { uniform =
-- bound }.
local function values_of(what, init)
  if type(init) == "number" and math.abs(init) <= 3.4e38 then
    return { init = "const", value = init }
  end
  local kind, value
  if type(init) == "table" then kind, value = next(init) end
  if (kind ~= "normal" and kind ~= "uniform") or type(value) ~= "number" or next(init, kind)
    or not (value >= 0 and value <= 1e30) then
    fail("usage", "%s: init must be a number, { normal = deviation } or { uniform = bound }, both "
         .. "from 0 on", what)
  end
  return { init = kind, value = value }
end

-- nn.param(name, shape, {init=0, trained=true, decay=true}): a tensor that is learnt
function M.param(name, shape, o)
  o = options("nn.param", o, { init = 0, trained = true, decay = true })
  check_name("nn.param: the name", name)
  if type(shape) ~= "table" or #shape < 1 or #shape > 5 then
    local got = type(shape) == "table" and #shape .. " axes" or type(shape)
    fail("usage", 'nn.param("%s"): the shape must be { C }, or { 1, C, [D], [H], [W] } with an '
         .. "axis for the batch, got %s", name, got)
  end
  for i, extent in ipairs(shape) do
    if math.type(extent) ~= "integer" or extent < 1 or (i == 1 and #shape > 1 and extent ~= 1) then
      fail("usage", 'nn.param("%s"): axis %d of the shape is %s, wanted %s', name, i,
           tostring(extent), i == 1 and #shape > 1 and "1, the batch" or "a whole number above 0")
    end
  end
  for _, what in ipairs { "trained", "decay" } do
    if type(o[what]) ~= "boolean" then
      fail("usage", 'nn.param("%s"): %s must be true or false, got %s', name, what,
           tostring(o[what]))
    end
  end
  local how = values_of(string.format('nn.param("%s")', name), o.init)
  how.trained, how.decayed = o.trained, o.decay
  return param(join(scope.path, name), shape, #shape == 1 and -1 or #shape - 2, how)
end

local made = { layer = layer, param = param, init_of = init_of, positive = positive,
               values_of = values_of, dropout = M.dropout, spatial_dropout = M.spatial_dropout,
               batch_norm = M.batch_norm, layer_norm = M.layer_norm,
               frozen = function() return scope.frozen end }
for name, f in pairs(sequences(made)) do M[name] = f end
for name, f in pairs(embeddings(made)) do M[name] = f end
made.global_pool = M.global_pool
for name, f in pairs(pretext(made)) do M[name] = f end
for name, loss in pairs(losses(layer)) do M[name] = loss end
made.scope = M.scope
for name, f in pairs(terms(made)) do M[name] = f end

-- All but these begin with a node; any other value (mostly the nil of a misspelt variable) is an
-- error at the recipe's line.
local NO_NODE = { scope = true, input = true, param = true, uncertainty_loss = true }
for name, layer_of in pairs(M) do
  if not NO_NODE[name] then
    M[name] = function(x, ...)
      if not util.is_node(x) then
        fail("usage", "nn.%s: the operand must be a node of the network, got %s", name,
             x == nil and "nil" or type(x))
      end
      return layer_of(x, ...)
    end
  end
end

return M
