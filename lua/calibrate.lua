-- calibrate.lua -- the threshold that serves best, found on the validation part and on
-- nothing else: on test cases it would make the test too good.

local core = require "seg.core"
local base = require "seg.metric_base"
local pass = require "seg.pass"
local util = require "seg.util"

local M = {}

-- The metric whose output is thresholded: what `best` names, else the first of one
-- class. nil: there is none.
local function thresholded(recipe)
  local names = util.sorted_keys(recipe.metrics)
  if recipe.best then table.insert(names, 1, recipe.best[1]) end
  for _, name in ipairs(names) do
    local m = recipe.metrics[name]
    if m and m.output and m.logits and m.logits.c == 1 then return m end
  end
end

-- Raises when the recipe has nothing to choose a threshold for.
function M.check(recipe)
  if not recipe.valid then
    util.fail("usage", "a threshold is chosen on valid, and the recipe has no valid set")
  end
  return thresholded(recipe) or util.fail("usage", "a threshold is chosen by the mean Dice on "
    .. "valid: give the recipe a metric of one class, as metric.dice(logits, truth)")
end

-- The threshold of 0.01, 0.02, ... 0.99 with the highest mean Dice over the cases of
-- the validation part `d`, of equals the one nearest to 0.5; a case without truth and
-- prediction is left out of the mean.
--   -> threshold, mean Dice there, mean Dice at 0.5
function M.threshold(session, recipe, d)
  local m = M.check(recipe)
  local sums, n, steps = {}, {}, 99
  if d.pipeline:facts(1).drawn then
    util.fail("usage", 'patches drawn at random do not cover a case: a threshold wants valid with '
              .. 'patches { at = "grid" }')
  end
  for j = 1, steps do sums[j], n[j] = 0, 0 end
  pass.run(session, recipe, d.pipeline, d.loader, d.names, "threshold", {
    metrics = {}, nodes = base.of_case(m), each = function(case)
      local both, predicted, truth = core.measure.thresholds(case:measured(m))
      for j = 1, steps do
        if predicted[j] + truth > 0 then
          sums[j], n[j] = sums[j] + 2 * both[j] / (predicted[j] + truth), n[j] + 1
        end
      end
    end })
  local best
  local function mean(j) return n[j] > 0 and sums[j] / n[j] or 0 end
  for j = 1, steps do
    local nearer = best and math.abs(j - 50) < math.abs(best - 50)
    if not best or mean(j) > mean(best) or (mean(j) == mean(best) and nearer) then best = j end
  end
  return best / 100, mean(best), mean(50)
end

-- The same, kept in the file of the weights, and a line of what was found.
function M.keep(session, recipe, d, path)
  local threshold, dice, before = M.threshold(session, recipe, d)
  core.checkpoint.note(path, { threshold = util.number(threshold) })
  local said = string.format("threshold %g, chosen on valid: mean Dice %.4f there, %.4f at 0.5",
                             threshold, dice, before)
  return threshold, said
end

return M
