-- hpo.lua -- a search without training: a toy with a known optimum.
--
-- The "loss" has its minimum, 0, at lr 1e-3, dropout 0.2 and base 32. To search the options of a
-- recipe, call seg.search without an objective next to seg.recipe and run `segengine SCRIPT.lua
-- search`: docs/experiments.md.
--
--   segengine scripts/hpo.lua
--   segengine scripts/hpo.lua --method random --seed 7

local seg = require "seg"

local cfg = seg.config {
  method = "tpe",  -- or random
  tries = 80,      -- number of trials
  study = "",      -- a file that keeps the trials; a second run continues them
}

local function loss(v)
  return (math.log(v.lr, 10) + 3) ^ 2 + ((v.dropout - 0.2) / 0.3) ^ 2 + ((v.base - 32) / 24) ^ 2
end

local found = seg.search {
  space = {
    lr = { 1e-5, 1e-1, log = true },
    dropout = { 0.0, 0.6 },
    base = { 8, 16, 24, 32, 48, 64 },
  },
  trials = cfg.tries, method = cfg.method, seed = cfg.seed,
  objective = loss, study = cfg.study ~= "" and cfg.study or nil,
}

print(string.format("trial %d of %d: lr %.3g, dropout %.3g, base %d, loss %.4f", found.trial,
                    #found.trials, found.values.lr, found.values.dropout, found.values.base,
                    found.value))
