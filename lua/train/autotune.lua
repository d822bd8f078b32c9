-- autotune.lua -- --autotune: which layers are faster with sums as they stand.
--
-- Which convolutions go by Winograd's method the program knows by their shapes, from
-- measurements on a few processors. Here it is measured on the one that is to train: a step
-- with all of them so, and one with none. What comes of it is the config's `direct`, so a run
-- keeps it, and with it the bits that it began with; a run that is resumed does not measure.

local core = require "seg.core"
local bench = require "seg.bench"
local config = require "seg.config"
local plans = require "seg.plan"
local ranks = require "seg.ranks"
local recipes = require "seg.recipe"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

local MARGIN = 0.03 -- what a layer, and then a step, has to win: less is noise

-- The layers of r that have a choice, in the order of the network.
local function layers_of(r, batch)
  local list, seen = {}, {}
  for _, row in ipairs(plans.plan(r, batch, true).rows) do
    -- one with a comma in its name could not be written down
    if row.winograd and row.name ~= "" and not row.name:find(",") and not seen[row.name] then
      list[#list + 1], seen[row.name] = row.name, true
    end
  end
  return list
end

-- With these layers as they stand: milliseconds of each layer, both ways, by name, and of a
-- whole step.
local function measure(r, feeds, layers)
  config.ensure().direct = table.concat(layers, ",")
  local session <close> = recipes.session(r, "train", nil, nil, nil, true)
  session:step(feeds, { lr = 0 })
  local ms = {}
  for _, c in ipairs(bench.calls(session, feeds)) do
    ms[c.name] = (ms[c.name] or 0) + c.ms
  end
  return ms, bench.step_ms(session, feeds)
end

-- Those of `layers` that took less time in `without` than in `with`, which are milliseconds by
-- name.
function M.faster(layers, with, without)
  local list = {}
  for _, name in ipairs(layers) do
    if without[name] < (1 - MARGIN) * with[name] then list[#list + 1] = name end
  end
  return list
end

-- What of the layers is to be as it stands, by measuring, and what to say of it.
local function find(r, layers, batch)
  local feeds = bench.feeds(r, batch)
  local with, step = measure(r, feeds, {})
  local faster = M.faster(layers, with, (measure(r, feeds, layers)))
  local said = string.format("%s measured", util.plural(#layers, "convolution"))
  if not faster[1] then return faster, said .. ", none is faster as it stands" end
  -- what a layer wins may be lost beside it, as where a concat has to be made again
  local _, now = measure(r, feeds, faster)
  said = string.format("%s, %d faster as they stand: a step %.1f ms, was %.1f", said, #faster,
                       now, step)
  if now < (1 - MARGIN) * step then return faster, said end
  return {}, said .. ", which is not worth it"
end

-- Put into the config what --autotune finds, if it is asked for: of all ranks at once. What
-- --direct says, or the weights that a run begins with, is kept.
function M.choose(r)
  local v = config.ensure()
  if not v.autotune then return end
  if not v.winograd then
    util.refuse("--autotune: --winograd false has chosen for all layers; leave one of them out")
  end
  local device = core.device(v.device)
  if device ~= "cpu" then
    show.line("autotune: nothing to choose on %s", device)
    return
  end
  if v.direct ~= "" then
    show.line("autotune: as they stand are %s, as --direct says", v.direct)
    return
  end
  local batch = math.ceil(v.batch / ranks.count)
  local layers = layers_of(r, batch)
  if not layers[1] then
    show.line("autotune: no convolution of this network has a choice")
    return
  end
  local chosen, said = find(r, layers, batch)
  -- every rank has measured, and one is heard
  v.direct, said = ranks.of_first(table.concat(chosen, ",")), ranks.of_first(said)
  show.line("autotune: %s%s", said, v.direct ~= "" and ": " .. v.direct or "")
end

return M
