-- smoke_run.lua -- training on less data: --quick and --overfit.
--
-- --quick trains a few epochs on a few cases of each part: minutes in which every part of a long
-- run is used once. --overfit N trains on N samples and validates on the same samples: a network
-- that cannot memorise them will not learn the whole set, and the fault is in the recipe, the
-- ground truth or the learning rate, not in the amount of data. Neither shows how good a network
-- is, and the first line of the run says so.

local config = require "seg.recipe.config"
local core = require "seg.core"
local picture = require "seg.report.picture"
local show = require "seg.show"

local M = {}

local QUICK = { train = 8, valid = 2, test = 2 } -- cases
local PASSES = 50 -- over the samples in an epoch, which would otherwise be one step

-- The first n cases of a set.
local function first(set, n)
  local seen = 0
  return set:filter(function()
    seen = seen + 1
    return seen <= n
  end)
end

-- Cuts down the sets of a recipe before they are opened.
function M.sets(r)
  local v = config.values
  if v.quick then
    for part, n in pairs(QUICK) do
      if r[part] then r[part] = first(r[part], n) end
    end
    show.line("quick: %d cases to train on, a trial of the recipe; the numbers say nothing about "
              .. "the network", QUICK.train)
  end
  if v.overfit > 0 then
    -- without augmentation and in one batch: memorising needs the same samples in each pass
    r.train, r.valid, r.test = r.train:in_order(math.min(v.overfit, v.batch)), nil, nil
    if r.train.batch.bucket then
      r.train = r.train:batches { size = 1 } -- the lengths differ
    end
  end
end

-- Chooses samples with the most foreground, one a case; if there are too few or no mask, spreads
-- the rest over all samples.
local function choose(d, n)
  local pipeline, list, taken = d.pipeline, {}, {}
  local function take(number)
    if not taken[number] and #list < n then
      list[#list + 1], taken[number] = number, true
    end
  end
  local mask
  for i, name in ipairs(d.names) do if name == "mask" then mask = i end end
  if mask then
    local cases, wanted = #pipeline:cases(), {}
    for i = 1, math.min(n, cases) do wanted[1 + (i - 1) * cases // math.min(n, cases)] = true end
    local loader <close> = core.data.loader(pipeline, { batch = 1 })
    for _, f in pairs(picture.find_samples(loader, pipeline, wanted, mask)) do take(f.number) end
  end
  local all = pipeline:samples()
  for i = 1, math.min(n, all) do take(1 + (i - 1) * all // math.min(n, all)) end
  for number = 1, all do take(number) end
  table.sort(list)
  return list
end

-- Cuts down the samples of the opened train set, and validates on them.
function M.samples(r, data)
  local v, d = config.values, data.train
  if v.overfit == 0 then return end
  local list, often = choose(d, v.overfit), {}
  local function loader(only)
    return d.set:loader(d.pipeline, { workers = v.workers, seed = v.seed, only = only })
  end
  for k = 0, PASSES * #list - 1 do often[k + 1] = list[k % #list + 1] end
  d.loader:close()
  d.loader = loader(often)
  r.valid = r.train
  data.valid = { set = d.set, pipeline = d.pipeline, names = d.names,
                 loader = loader(list) }
  -- the device keeps only whole sets
  d.cut, data.valid.cut = true, true
  show.line("overfit: %d samples, to train (%d times an epoch) and to validate on; the numbers say "
            .. "nothing about other data", #list, PASSES)
end

return M
