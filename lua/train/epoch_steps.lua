-- epoch_steps.lua -- the batches of an epoch of training: all of the loader, or steps_per_epoch
-- steps.
--
-- With steps_per_epoch the epochs of a phase are cut from one sequence, the passes of the loader
-- over the set one after another. So every sample is drawn equally often, and the batches of a step
-- follow from its number alone, as without.

local M = {}

-- The batches and samples of an epoch; the samples of some steps of a pass are rounded up.
function M.count(run)
  local batches, samples = run.data.train.loader:batches()
  local steps = run.recipe.steps_per_epoch
  if not steps then return batches, samples end
  local wanted = steps * run.recipe.accumulate
  return wanted, math.ceil(samples * wanted / batches)
end

-- Makes batch `number` (from 0) of the current epoch the next of the loader.
function M.seek(run, number)
  local s, loader = run.state, run.data.train.loader
  if not run.recipe.steps_per_epoch then return loader:seek(s.epoch, number) end
  local batches = loader:batches()
  local at = (s.epoch - s.first) * M.count(run) + number
  loader:seek(s.first + at // batches, at % batches)
end

return M
