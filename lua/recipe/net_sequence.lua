-- net_sequence.lua -- seg.net.cnn_lstm: a vector from a sequence, and seg.net.lstm_decoder: a
-- sequence from a vector.
--
-- Convolutions shorten the sequence, a bidirectional LSTM reads it, a linear layer runs at each
-- step, and the maximum and the mean over all steps form the vector. With `lengths` the result does
-- not depend on the padding of a sequence, nor on the lengths of other sequences in its batch:
-- padded positions are 0 before every convolution, and are skipped by the LSTM and the means. The
-- exception is batch norm in training, whose statistics include all positions; "layer" has none.

local block = require "seg.recipe.net_block"
local nn = require "seg.recipe.nn"
local util = require "seg.util"

local none = util.none
local M = {}

-- Sets padded steps to 0.
local function cut(x, lengths)
  return lengths and nn.mask_length(x, lengths) or x
end

-- net.cnn_lstm(x, {...}) for a sequence (C,W) -> (N, out). lengths: a node with one number a
-- sample, the number of its valid steps.
M.cnn_lstm = block.builder("cnn_lstm", {
  lengths = none, features = { 64, 128, 256 }, kernel = 3, pool = 2, bias = true,
  norm = "batch", act = "relu", dropout = 0.2, hidden = 256, layers = 2, bidirectional = true,
  lstm_dropout = 0.3, project = 512, project_dropout = 0.3, out = 512, init = none,
}, 1, function(x, o, what)
  if x.rank ~= 1 then
    util.fail("usage", "%s: the operand must be a sequence, nn.input(name, { c =, w = }); this has "
              .. "rank %d", what, x.rank)
  end
  local norm, act = block.norm(what, o.norm), block.act(what, o.act)
  local pool = block.whole(what .. ": pool", o.pool, 1)
  local kernel = block.whole(what .. ": kernel", o.kernel, 1)
  if kernel % 2 == 0 then util.fail("usage", "%s: kernel must be odd, got %d", what, kernel) end
  local lengths = o.lengths
  x = cut(x, lengths)
  x = nn.scope("cnn", function()
    local y = x
    for _, filters in ipairs(block.widths(what .. ": features", o.features)) do
      y = act(norm(nn.conv(y, filters, kernel, { bias = o.bias, init = o.init })))
      if pool > 1 then
        y, lengths = nn.maxpool(y, pool), lengths and nn.length_after(lengths, pool)
      end
      y = nn.dropout(cut(y, lengths), o.dropout)
    end
    return y
  end)
  x = nn.lstm(x, o.hidden, { layers = o.layers, bidirectional = o.bidirectional,
                             dropout = o.lstm_dropout, lengths = lengths })
  x = nn.scope("project", function()
    return block.linears(x, { o.project }, { norm = norm, act = act, dropout = o.project_dropout })
  end)
  x = nn.global_pool(x, { mode = "max", lengths = lengths })
    .. nn.global_pool(x, { lengths = lengths })
  return nn.linear(x, block.whole(what .. ": out", o.out, 1), { name = "head" })
end)

-- net.lstm_decoder(x, {out=, like=, ...}) for a vector (N,C) -> a sequence (N,out,W), as long as
-- the sequence `like` and 0 beyond the lengths: an LSTM that gets the vector at every step, and a
-- linear layer. With one layer of few units it is weak, so the vector must carry the information.
M.lstm_decoder = block.builder("lstm_decoder", {
  like = none, lengths = none, hidden = 128, layers = 1, out = none,
}, 0, function(x, o, what)
  local like = o.like
  if x.rank ~= 0 or not util.is_node(like) or like.rank ~= 1 then
    util.fail("usage", "%s: needs a vector (N,C), and like = a sequence (C,W) for the steps; got "
              .. "%s and %s", what, tostring(x), tostring(like))
  end
  local steps = nn.slice(like, { c = { 1, 1 } }) * 0
  local y = nn.lstm(steps + x, o.hidden, { layers = o.layers, lengths = o.lengths })
  y = nn.linear(y, o.out and block.whole(what .. ": out", o.out, 1) or like.c, { name = "head" })
  return cut(y, o.lengths)
end)

return M
