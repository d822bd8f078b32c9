-- calibrate.lua -- chooses the best threshold and the temperature that calibrates probabilities, on
-- the validation part only: chosen on test cases they would make the test too good.

local core = require "seg.core"
local base = require "seg.evaluate.metric_base"
local pass = require "seg.train.pass"
local ranks = require "seg.train.ranks"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

local THRESHOLDS = 99 -- 0.01, 0.02, ... 0.99
local COLDEST, HOTTEST, STEPS = 0.05, 20, 60 -- range and steps of the search for a temperature

-- The metric with the output to calibrate: the metric of `best`, else the first metric of one class
-- or of classes of samples; nil if there is none.
local function calibrated(recipe)
  local names = util.sorted_keys(recipe.metrics)
  if recipe.best then table.insert(names, 1, recipe.best[1]) end
  for _, name in ipairs(names) do
    local m = recipe.metrics[name]
    if m and m.logits and (m.way == "numbers" or m.output and m.logits.c == 1) then return m end
  end
end

-- Whether the recipe has an option that is chosen on valid.
function M.wanted(recipe)
  return recipe.predict.threshold == "valid" or recipe.predict.temperature == "valid"
end

-- Raises if the recipe has nothing to calibrate. -> the metric to calibrate for
function M.check(recipe)
  if not recipe.valid then
    util.fail("usage", "a threshold is chosen on valid, and the recipe has no valid set")
  end
  return calibrated(recipe) or util.fail("usage", "a threshold is chosen by the mean Dice on "
    .. "valid: give the recipe a metric of one class, as metric.dice(logits, truth)")
end

-- Sets the numbers in the options `predict`: an option that is "valid" or absent gets the value
-- that was chosen on that set and stored in the weights.
function M.settle(predict, meta)
  for what, otherwise in pairs { threshold = 0.5, temperature = 1 } do
    local kept = tonumber(meta[what])
    if predict[what] == "valid" and not kept then
      show.warn("these weights have no %s that was chosen on valid (evaluate --calibrate does it): "
                .. "%g is used", what, otherwise)
    end
    if predict[what] == "valid" or predict[what] == nil then predict[what] = kept end
  end
end

-- Thresholds --------------------------------------------------------------------

-- Adds the Dice of a case at every threshold; a case that is empty in ground truth and prediction
-- is skipped.
local function add_case(sums, m, case)
  local both, predicted, truth = core.measure.thresholds(case:measured(m))
  for j = 1, THRESHOLDS do
    local s = sums[j] or { 0, 0 }
    sums[j] = s
    if predicted[j] + truth > 0 then
      s[1], s[2] = s[1] + 2 * both[j] / (predicted[j] + truth), s[2] + 1
    end
  end
end

-- The threshold with the highest mean, in a tie the one nearest to 0.5; the mean there and at 0.5.
local function best_threshold(sums)
  local best
  local function mean(j) return sums[j][2] > 0 and sums[j][1] / sums[j][2] or 0 end
  for j = 1, THRESHOLDS do
    local nearer = best and math.abs(j - 50) < math.abs(best - 50)
    if not best or mean(j) > mean(best) or (mean(j) == mean(best) and nearer) then best = j end
  end
  return best / 100, mean(best), mean(50)
end

-- Temperature -------------------------------------------------------------------

-- log(1 + exp(x)) without overflow.
local function softplus(x)
  return math.max(x, 0) + math.log(1 + math.exp(-math.abs(x)))
end

-- -log of the probability of the true class, from one logit or several.
local function surprise(logits, class, t)
  if #logits == 1 then return softplus((class == 1 and -logits[1] or logits[1]) / t) end
  local most, sum = math.max(table.unpack(logits)), 0
  for _, z in ipairs(logits) do sum = sum + math.exp((z - most) / t) end
  return math.log(sum) - (logits[class + 1] - most) / t
end

-- The temperature (divisor of the logits) that minimises loss(temperature) (Guo and others 2017),
-- by golden-section search on its logarithm: the loss has one minimum.
local function best_temperature(loss)
  local golden = (math.sqrt(5) - 1) / 2
  local lo, hi = math.log(COLDEST), math.log(HOTTEST)
  local a, b = hi - golden * (hi - lo), lo + golden * (hi - lo)
  local at_a, at_b = loss(math.exp(a)), loss(math.exp(b))
  for _ = 1, STEPS do
    if at_a < at_b then
      hi, b, at_b = b, a, at_a
      a = hi - golden * (hi - lo)
      at_a = loss(math.exp(a))
    else
      lo, a, at_a = a, b, at_b
      b = lo + golden * (hi - lo)
      at_b = loss(math.exp(b))
    end
  end
  return math.exp((lo + hi) / 2)
end

-- Adds the voxels of a case to bins by logit: the numbers of true and of false voxels.
local function add_bins(bins, m, case)
  local yes, no, logit = core.measure.reliability(case:measured(m))
  for b, z in ipairs(logit) do
    local sum = bins[b] or { z = z, yes = 0, no = 0 }
    bins[b], sum.yes, sum.no = sum, sum.yes + yes[b], sum.no + no[b]
  end
end

local function loss_of_bins(bins)
  local all = 0
  for _, b in ipairs(bins) do all = all + b.yes + b.no end
  return function(t)
    local sum = 0
    for _, b in ipairs(bins) do
      if b.yes + b.no > 0 then sum = sum + b.yes * softplus(-b.z / t) + b.no * softplus(b.z / t) end
    end
    return sum / math.max(all, 1)
  end
end

local function loss_of_samples(samples)
  return function(t)
    local sum = 0
    for _, s in ipairs(samples) do sum = sum + surprise(s.logits, s.class, t) end
    return sum / math.max(#samples, 1)
  end
end

-- Threshold and temperature -------------------------------------------------------

-- Runs the network over the validation part `d` for classes of samples. -> logits and true classes
local function read_samples(session, recipe, d, m)
  local samples = {}
  local reader = { way = "numbers", read = m.read, target = m.target, sample = function(rows)
    local class = #rows[1] == 1 and (rows[2][1] >= 0.5 and 1 or 0) or math.tointeger(rows[2][1])
    local known = class and class >= 0 and (#rows[1] == 1 or class < #rows[1])
    if known then samples[#samples + 1] = { logits = rows[1], class = class } end
  end }
  local with = setmetatable({ metrics = { reader = reader } }, { __index = recipe })
  pass.run(session, with, d.pipeline, d.loader, d.names, "calibrate")
  return samples
end

-- Chooses the best values on the validation part `d`. -> { threshold=, temperature= } as text for
-- the weights (no threshold for classes of samples), and a line about each
function M.find(session, recipe, d)
  local m = M.check(recipe)
  if d.pipeline:facts(1).drawn then
    util.fail("usage", 'patches drawn at random do not cover a case: a threshold needs valid with '
              .. 'patches { at = "grid" }')
  end
  local found, lines, loss = {}, {}
  if m.way == "numbers" then
    loss = loss_of_samples(read_samples(session, recipe, d, m))
  else
    local sums, bins = {}, {}
    pass.run(session, recipe, d.pipeline, d.loader, d.names, "calibrate", {
      metrics = {}, nodes = base.of_case(m), each = function(case)
        add_case(sums, m, case)
        add_bins(bins, m, case)
      end })
    local threshold, dice, before = best_threshold(sums)
    found.threshold = util.number(threshold)
    lines.threshold = string.format(
      "threshold %g, chosen on valid: mean Dice %.4f there, %.4f at 0.5", threshold, dice, before)
    loss = loss_of_bins(bins)
  end
  local temperature = best_temperature(loss)
  found.temperature = util.number(temperature)
  lines.temperature = string.format(
    "temperature %.4g, chosen on valid: -log p %.4f there, %.4f at 1", temperature,
    loss(temperature), loss(1))
  return found, lines
end

-- Chooses the values and stores them in the file of the weights (nil: none): all, or only the
-- values that are "valid" in the recipe if `wants` is set. -> threshold or nil, lines
function M.keep(session, recipe, d, path, wants)
  local kept, said = {}, {}
  local found, lines = M.find(session, recipe, d)
  for _, what in ipairs { "threshold", "temperature" } do
    if found[what] and (not wants or recipe.predict[what] == "valid") then
      kept[what], said[#said + 1] = found[what], lines[what]
    end
  end
  if path and ranks.writes() then core.checkpoint.note(path, kept) end
  return tonumber(kept.threshold), table.concat(said, "\n")
end

return M
