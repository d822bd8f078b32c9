-- nn_pretext.lua -- self-supervised learning: losses without labels, and masking of sequences; a
-- part of nn.lua.
--
-- Everything is composed of existing operators, so every backend has it.

local core = require "seg.core"
local util = require "seg.util"

local op, options, none, fail = core.op, util.options, util.none, util.fail

local M = {}

-- Functions of nn.lua: layer(kind, name), param(name, shape, rank, init), batch_norm(x, o),
-- layer_norm(x, o), global_pool(x, o), dropout(x, p), spatial_dropout(x, p).
local made

-- Checks that x is a node with one vector a sample.
local function check_vector(what, x)
  if not util.is_node(x) or x.rank ~= 0 then
    fail("usage", "%s: needs a vector for each sample, (N,C), got %s", what, tostring(x))
  end
end

-- Checks that x is a node of sequences.
local function check_sequence(what, which, x)
  if not util.is_node(x) or x.rank ~= 1 then
    fail("usage", "%s: the %soperand must be a sequence, nn.input(name, { c =, w = }), got %s",
         what, which, tostring(x))
  end
end

-- nn.contrastive(a, b, {temperature=0.1}): InfoNCE (van den Oord and others 2018,
-- arXiv:1807.03748; within a batch as NT-Xent of Chen and others 2020,
-- arXiv:2002.05709). a, b (N,C): vectors of two views of the same N samples. With s
-- the correlation of two vectors over their C numbers, divided by the temperature,
--   loss = mean over i of log(exp s(a_i, b_i) + sum over j of exp s(a_i, b_j))
--          - s(a_i, b_i):
-- each view must find its partner among the partners of all samples. The pair itself
-- is counted twice in the sum, so the minimum is log 2. With several ranks each rank
-- uses only its shard of the batch.
function M.contrastive(a, b, o)
  o = options("nn.contrastive", o, { temperature = 0.1 })
  check_vector("nn.contrastive", a)
  check_vector("nn.contrastive", b)
  if a.c ~= b.c or a.c < 2 then
    fail("usage", "nn.contrastive: both views must have the same 2 numbers or more, got %d and %d",
         a.c, b.c)
  end
  if not (math.type(o.temperature) and o.temperature > 0) then
    fail("usage", "nn.contrastive: temperature must be a number above 0, got %s",
         tostring(o.temperature))
  end
  local name = made.layer("contrastive")
  -- mean 0 and mean square 1, so that a product is C times the correlation
  local function unit(x) return made.layer_norm(x, { affine = false }) end
  local left, right = unit(a), unit(b)
  local ones = made.param(name .. ".ones", { 1, a.c }, 0,
                          { init = "const", value = 1, trained = false })
  local own = op.linear(left * right, ones)
  -- the vectors b of the batch are the weights of this linear layer: (N,N)
  local all = op.linear(left, right, nil, { name = name })
  local scores = op.concat(own, all) * (1 / (a.c * o.temperature))
  return op.cross_entropy(scores, own * 0, nil, nil, { ignore = -100, name = name })
end

-- The mean of all numbers of the batch, as one number.
local function mean(x)
  return op.mean(x, x)
end

-- nn.statistics(x, sequence, {lengths=}): the squared distance of two statistics of the batch, each
-- averaged over channels: the mean, and the standard deviation over the batch, of the vectors x
-- (N,C) and of the means over time of the sequences. It is a weak loss: mapping all samples to one
-- vector almost minimises it. It exists to reproduce a published report. In evaluation the running
-- statistics replace the statistics of the batch.
function M.statistics(x, sequence, o)
  o = options("nn.statistics", o, { lengths = none })
  check_vector("nn.statistics", x)
  check_sequence("nn.statistics", "second ", sequence)
  local means = made.global_pool(sequence, { lengths = o.lengths })
  -- z has deviation 1, so the mean of v z is the mean of the deviations of v
  local function deviation(v) return mean(v * made.batch_norm(v, { affine = false })) end
  local shift = mean(x) - mean(means)
  local spread = deviation(x) - deviation(means)
  return shift * shift + spread * spread
end

-- nn.mask_steps(x, {steps=0, span=1, channels=0, numbers=0}) masks a sequence (C,W) in training:
-- runs of `span` steps, channels and single numbers are set to 0 with these probabilities; the rest
-- is scaled to keep its mean, as in dropout. w must be a multiple of span, and so must `multiple`,
-- to which bucketed batches are rounded up. In evaluation the result is x.
function M.mask_steps(x, o)
  o = options("nn.mask_steps", o, { steps = 0, span = 1, channels = 0, numbers = 0 })
  check_sequence("nn.mask_steps", "", x)
  for _, share in ipairs { "steps", "channels", "numbers" } do
    if not (math.type(o[share]) and o[share] >= 0 and o[share] < 1) then
      fail("usage", "nn.mask_steps: %s must be a number from 0 to below 1, got %s", share,
           tostring(o[share]))
    end
  end
  if math.type(o.span) ~= "integer" or o.span < 1 or x.w % o.span ~= 0 then
    fail("usage", "nn.mask_steps: span must be a whole number that divides w = %d, got %s", x.w,
         tostring(o.span))
  end
  x = made.spatial_dropout(made.dropout(x, o.numbers), o.channels)
  if o.steps == 0 then return x end
  local ones = op.slice(x, { c0 = 0, c = 1 }) * 0 + 1
  if o.span > 1 then ones = op.maxpool(ones, { kw = o.span, sw = o.span }) end
  ones = made.dropout(ones, o.steps)
  return x * (o.span > 1 and op.upsample_nearest(ones, { fw = o.span }) or ones)
end

return function(given)
  made = given
  return M
end
