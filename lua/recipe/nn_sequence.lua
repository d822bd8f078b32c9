-- nn_sequence.lua -- layers for sequences with lengths, and attention: a part of nn.lua, which
-- passes the functions that make parameters and names.

local core = require "seg.core"
local util = require "seg.util"

local op, options, none, fail = core.op, util.options, util.none, util.fail

local M = {}

-- Functions of nn.lua: layer(kind, name), param(name, shape, rank, init), init_of(name, fan_in,
-- fan_out), positive(what, v), dropout(x, p), frozen().
local made

-- Checks the lengths of sequences: one number a sample (rank 0, one channel), for positions along
-- w. Position p is valid if p < length.
local function check_lengths(what, x, lengths, wanted)
  if lengths == nil and not wanted then return end
  if not util.is_node(lengths) or lengths.rank ~= 0 or lengths.c ~= 1 then
    fail("usage", '%s: lengths must be one number a sample, as of nn.input("length", { c = 1 })',
         what)
  end
  if x.rank ~= 1 then
    fail("usage", "%s: lengths count along w, of a sequence (C,W); this has rank %d", what, x.rank)
  end
end

-- The pooling modes: functions of x and lengths.
local ends = {
  last = function(x, lengths) return op.last_step(x, lengths) end,
  -- the final state of each direction of a bidirectional LSTM: the last step of the first half of
  -- the channels, the first step of the second half
  ends = function(x, lengths)
    if x.rank ~= 1 or x.c % 2 ~= 0 then
      fail("usage", 'nn.global_pool: mode "ends" needs a sequence with an even number of channels')
    end
    local half = x.c // 2
    return op.concat(op.last_step(op.slice(x, { c0 = 0, c = half }), lengths),
                     op.flatten(op.slice(x, { c0 = half, c = half, w0 = 0, w = 1 })))
  end,
  mean = function(x, lengths) return op.global_avgpool(x, lengths) end,
  max = function(x, lengths) return op.global_maxpool(x, lengths) end,
}

-- The mean over all positions, or over the positions within `lengths`; the maximum ({mode="max"}),
-- the last position ("last"), or the final states of both directions of an LSTM ("ends"). The
-- result has rank 0.
function M.global_pool(x, o)
  o = options("nn.global_pool", o, { mode = "mean", lengths = none })
  local pooled = ends[o.mode]
  if not pooled then
    fail("usage", 'nn.global_pool: mode must be "mean", "max", "last" or "ends", got "%s"',
         tostring(o.mode))
  end
  check_lengths("nn.global_pool", x, o.lengths)
  return pooled(x, o.lengths)
end

-- x with 0 beyond the lengths.
function M.mask_length(x, lengths)
  check_lengths("nn.mask_length", x, lengths, true)
  return op.mask_length(x, lengths)
end

-- Lengths after a pool or convolution along w: floor((length + 2 pad - span) / stride) + 1, span =
-- dilation (kernel - 1) + 1. The value is not this whole number, but a number with as many valid
-- positions; this also holds after several pools, up to a total reduction of 500 steps to one.
function M.length_after(lengths, kernel, o)
  o = options("nn.length_after", o, { stride = none, pad = 0, dilation = 1 })
  kernel = made.positive("nn.length_after: kernel", kernel)
  local stride = made.positive("nn.length_after: stride", o.stride or kernel)
  local span = made.positive("nn.length_after: dilation", o.dilation) * (kernel - 1) + 1
  -- Position p is valid if p stride < length + 2 pad - span + 1. Both sides are whole, so
  -- subtracting a little changes nothing and is safe from rounding. The next pool divides the
  -- remainder of a step, so the subtracted number must be small.
  return op.scale(lengths, { mul = 1 / stride, add = (2 * o.pad - span + 1 - 1 / 1024) / stride })
end

-- LSTM over the steps of a sequence: (N, hidden, W), twice the channels if bidirectional, forward
-- first; 0 beyond the lengths. The backward direction begins at each sample's last valid step. The
-- parameters are PyTorch's, so its state_dict loads.
--
-- A layer and direction is a linear layer over all steps at once, in the precision of the plan, and
-- the operator `lstm`, which runs over the steps in f32. So the large part is a normal matrix
-- product, and a backend needs no code for layers, directions and the dropout between them. Both
-- linear layers come before both LSTMs, so that a plan can run these in one launch (plan_pairs.c).
function M.lstm(x, hidden, o)
  o = options("nn.lstm", o, { layers = 1, bidirectional = false, dropout = 0, lengths = none,
                              bias = true, name = none })
  hidden = made.positive("nn.lstm: hidden", hidden)
  check_lengths("nn.lstm", x, o.lengths)
  if x.rank ~= 1 then
    fail("usage", "nn.lstm: needs a sequence (C,W), as of nn.input(name, { c =, w = }); this has "
         .. "rank %d", x.rank)
  end
  local name = made.layer("lstm", o.name)
  local init = { init = "uniform", value = 1 / math.sqrt(hidden) }
  local function direction(y, suffix, reverse)
    local function tensor(kind, shape, rank)
      return made.param(name .. "." .. kind .. "_" .. suffix, shape, rank, init)
    end
    local w_ih, w_hh = tensor("weight_ih", { 4 * hidden, y.c }, 0),
                       tensor("weight_hh", { 4 * hidden, hidden }, 0)
    local b_ih = o.bias and tensor("bias_ih", { 4 * hidden }, -1) or nil
    local b_hh = o.bias and tensor("bias_hh", { 4 * hidden }, -1) or nil
    local own = { name = name .. "." .. suffix } -- its own row in plan and bench
    local gates = op.linear(y, w_ih, b_ih, own)
    return function()
      return op.lstm(gates, w_hh, b_hh, o.lengths, { reverse = reverse, name = own.name })
    end
  end
  for i = 0, made.positive("nn.lstm: layers", o.layers) - 1 do
    if i > 0 then x = made.dropout(x, o.dropout) end
    local forward = direction(x, "l" .. i, 0)
    local backward = o.bidirectional and direction(x, "l" .. i .. "_reverse", 1)
    x = not backward and forward() or op.concat(forward(), backward())
  end
  return x
end

-- Multi-head self-attention over all positions (any rank; for a sequence within its lengths): (N,
-- C, ...), 0 beyond the lengths. The parameters are those of PyTorch's MultiheadAttention; dropout
-- is applied to the attention weights. qkv_bias: the bias of queries, keys and values; default: as
-- bias.
function M.attention(x, o)
  o = options("nn.attention", o, { heads = 1, lengths = none, dropout = 0, bias = true,
                                   qkv_bias = none, name = none })
  local heads = made.positive("nn.attention: heads", o.heads)
  local qkv_bias = o.bias
  if o.qkv_bias ~= nil then qkv_bias = o.qkv_bias end
  if type(qkv_bias) ~= "boolean" then
    fail("usage", "nn.attention: bias and qkv_bias must be true or false, got %s",
         tostring(qkv_bias))
  end
  check_lengths("nn.attention", x, o.lengths)
  if x.c % heads ~= 0 then
    fail("usage", "nn.attention: %d channels do not divide into %d heads", x.c, heads)
  end
  if type(o.dropout) ~= "number" or not (o.dropout >= 0 and o.dropout < 1) then
    fail("usage", "nn.attention: dropout must be from 0 to below 1, got %s", tostring(o.dropout))
  end
  local name, c = made.layer("attention", o.name), x.c
  local function tensor(kind, shape, rank, init)
    return made.param(name .. kind, shape, rank, init)
  end
  local w_in = tensor(".in_proj_weight", { 3 * c, c }, 0, made.init_of("xavier_uniform", c, 3 * c))
  local b_in = qkv_bias and tensor(".in_proj_bias", { 3 * c }, -1, made.init_of("zero")) or nil
  local w_out = tensor(".out_proj.weight", { c, c }, 0, made.init_of("default", c, c))
  local b_out = o.bias and tensor(".out_proj.bias", { c }, -1, made.init_of("zero")) or nil
  local y = op.attention(op.linear(x, w_in, b_in, { name = name .. ".in_proj" }), o.lengths,
                         { heads = heads, p = made.frozen() and 0 or o.dropout, name = name })
  y = op.linear(y, w_out, b_out, { name = name .. ".out_proj" })
  -- with a bias the values beyond the lengths are not 0
  return o.lengths and op.mask_length(y, o.lengths) or y
end

return function(given)
  made = given
  return M
end
