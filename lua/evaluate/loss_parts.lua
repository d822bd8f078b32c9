-- loss_parts.lua -- the parts of a loss of cross entropy and soft Dice by sample: samples with
-- foreground and empty samples.
--
-- A soft Dice by slice gives every slice the same weight. For an empty slice it demands
-- probabilities of zero everywhere: with a small eps it costs nearly 1 until the sum of all
-- probabilities is below eps. If most slices are empty they dominate the loss, and its fall says
-- little about the segmentation. The parts show this next to the loss of a run.

local config = require "seg.recipe.config"
local nn = require "seg.recipe.nn"
local util = require "seg.util"

local fail = util.fail
local M = {}

local MUCH = 0.5 -- the share of empty slices in the loss that causes a note

-- The Dice loss of a sample from means of p t, p, t over n positions; nil if the sample is of the
-- other kind: truth = true selects samples with foreground, false empty ones.
local function dice_of(n, eps, truth)
  return function(row)
    local both, p, t = n * row[1], n * row[2], n * row[3]
    if (t > 0) ~= truth then return nil end
    return 1 - (2 * both + eps) / (p + t + eps)
  end
end

-- metric.loss_parts(logits, target, {bce=1, dice=1, pos_weight=1, per="batch", eps=1,
-- empty="count"}), with the options of nn.bce_dice. For `loss_parts` of a recipe: the means over
-- samples of
--   bce         binary cross entropy
--   dice_fg     1 - soft Dice of each sample with foreground
--   dice_empty  of each empty sample
-- by sample, whatever `per` says: with per = "batch" the loss has one Dice of all samples together,
-- and the parts are the costs of the samples alone. One channel only, like all recipes that count
-- empty slices; no mask and no weight.
--   -> { list = { { name=, node=, value=function(row) -> number or nil, empty= }, ... }, ... }
function M.make(logits, target, o)
  o = util.options("metric.loss_parts", o, { bce = 1, dice = 1, pos_weight = 1, per = "batch",
                                             eps = 1, empty = "count" })
  util.check_pair("metric.loss_parts", logits, target, true)
  if logits.c ~= 1 then
    fail("usage", "metric.loss_parts: logits must have one channel, got %d: with several classes "
         .. "the parts cannot be separated; leave loss_parts out", logits.c)
  end
  local p, n = nn.sigmoid(logits), logits.d * logits.h * logits.w
  local means = nn.global_pool(p * target) .. nn.global_pool(p) .. nn.global_pool(target)
  return {
    bce = o.bce, dice = o.dice, counts_empty = o.per == "sample" and o.empty == "count",
    list = {
      { name = "bce", node = nn.bce(logits, target, { pos_weight = o.pos_weight }),
        value = function(row) return row[1] end },
      { name = "dice_fg", node = means, value = dice_of(n, o.eps, true) },
      { name = "dice_empty", node = means, value = dice_of(n, o.eps, false), empty = true },
    },
  }
end

-- The parts of recipe `r`, from `loss_parts`, or an empty list.
function M.of(r)
  return r.loss_parts and r.loss_parts.list or {}
end

-- Checks seg.recipe { loss_parts = v }: v must be a result of make(), and no metric may have the
-- name of a part.
function M.check(r)
  if r.loss_parts == nil then return end
  if type(r.loss_parts) ~= "table" or type(r.loss_parts.list) ~= "table" then
    fail("usage", "seg.recipe: loss_parts must be a result of metric.loss_parts, got %s",
         type(r.loss_parts))
  end
  for _, part in ipairs(M.of(r)) do
    if r.metrics[part.name] then
      fail("usage", 'seg.recipe: a metric is called "%s", as a part of loss_parts; rename it',
           part.name)
    end
  end
end

-- Sample i of the array of a node: a row of (N,K), or the one number of its batch.
function M.row(array, i)
  if #array.shape == 0 then return { array:get() } end
  local out = {}
  for k = 1, array.shape[2] do out[k] = array:get(i, k) end
  return out
end

-- The parts of an epoch as text: "bce 0.0312 dice_fg 0.3120 dice_empty 0.9981"; parts without a
-- value are left out; nil if none has one.
function M.text(r, values)
  local out = {}
  for _, part in ipairs(M.of(r)) do
    local v = values[part.name]
    if v and v == v then out[#out + 1] = part.name .. " " .. util.fixed(v) end
  end
  return out[1] and table.concat(out, " ") or nil
end

-- A sentence if the loss is mostly due to empty samples, else nil. values: of the parts; share: of
-- the samples that are empty, 0 .. 1.
function M.note(r, values, share)
  local l, v = r.loss_parts, values
  local empty = l and l.counts_empty and share > 0 and l.dice * share * v.dice_empty
  if not empty or empty ~= empty then return nil end
  local rest = share < 1 and l.dice * (1 - share) * v.dice_fg or 0
  local all = l.bce * v.bce + empty + rest
  if not (empty > MUCH * all) then return nil end
  return string.format(
    "%.0f %% of the loss is the Dice of the %.0f %% of samples without foreground; that part falls "
    .. "to 0 at once and says nothing about the others: per = \"batch\" or empty = \"skip\"%s "
    .. "avoids it", 100 * empty / all, 100 * share,
    config.declared.dice_per and " (--dice_per batch)" or "")
end

return M
