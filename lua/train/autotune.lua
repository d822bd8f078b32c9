-- autotune.lua -- --autotune: what is faster on the machine that is to train.
--
-- Two choices the program makes by the shapes of layers alone, from measurements on a few
-- machines or from none: on the CPU which convolutions go by Winograd's method, on a GPU which
-- tile the products of each take. Here they are measured. What comes of it is the config's
-- `direct` or `tiles`, so a run keeps it, and with it the bits that it began with; a run that
-- is resumed does not measure.

local core = require "seg.core"
local bench = require "seg.inspect.bench"
local config = require "seg.recipe.config"
local plans = require "seg.inspect.plan"
local ranks = require "seg.train.ranks"
local recipes = require "seg.recipe.recipe"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

local MARGIN = 0.03 -- what a layer, and then a step, has to win: less is noise
local SIDES = { "forward", "backward" }

-- The layers of r that have a choice, in the order of the network: those whose row has `key`.
local function layers_of(r, batch, key)
  local list, seen = {}, {}
  for _, row in ipairs(plans.plan(r, batch, true).rows) do
    -- one with a comma or a sign in its name could not be written down
    if row[key] and row.name ~= "" and not row.name:find("[,=]") and not seen[row.name] then
      list[#list + 1], seen[row.name] = row.name, true
    end
  end
  return list
end

-- With `value` as option `key`: milliseconds { forward = {layer = ms}, backward = ... }, and
-- those of a whole step. Of calls that took `tile` alone, where there is one.
local function measure(r, feeds, key, value, tile)
  config.ensure()[key] = value
  local session <close> = recipes.session(r, "train", nil, nil, nil, true)
  session:step(feeds, { lr = 0 })
  local ms = { forward = {}, backward = {} }
  for _, c in ipairs(bench.calls(session, feeds)) do
    local side = ms[c.backward and "backward" or "forward"]
    if not tile or c.tile == tile then side[c.name] = (side[c.name] or 0) + c.ms end
  end
  return ms, (bench.step_ms(session, feeds))
end

-- `value` if a step with it takes less than `before` ms, else ""; and what to say of it. What
-- layers win may be lost beside them, as where a concat has to be made again.
local function settle(r, feeds, key, value, before, said)
  local _, now = measure(r, feeds, key, value)
  said = string.format("%s: a step %.1f ms, was %.1f", said, now, before)
  if now < (1 - MARGIN) * before then return value, said end
  return "", said .. ", which is not worth it"
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

-- Which layers are to be as they stand, and what to say of it.
local function find_direct(r, layers, feeds)
  local function all(ms)
    local sum = {}
    for _, name in ipairs(layers) do sum[name] = ms.forward[name] + (ms.backward[name] or 0) end
    return sum
  end
  local with, step = measure(r, feeds, "direct", "")
  local without = measure(r, feeds, "direct", table.concat(layers, ","))
  local faster = M.faster(layers, all(with), all(without))
  local said = string.format("%s measured", util.plural(#layers, "convolution"))
  if not faster[1] then return "", said .. ", none is faster as it stands" end
  return settle(r, feeds, "direct", table.concat(faster, ","), step,
                string.format("%s, %d faster as they stand", said, #faster))
end

-- The text of engine/plan/tile_names.h for the layers that were faster with another tile than
-- with the default one, and their number. `own`, and each table of `with` by the tile's name,
-- has the milliseconds of each layer as measure() gives them; nil: the tile does not fit.
function M.tiles(layers, own, with)
  local entries, tiles = {}, util.sorted_keys(with)
  for _, name in ipairs(layers) do
    local chosen = {}
    for i, side in ipairs(SIDES) do
      local least = (1 - MARGIN) * (own[side][name] or 0)
      chosen[i] = "-"
      for _, tile in ipairs(tiles) do
        local ms = with[tile][side][name]
        if ms and ms < least then chosen[i], least = tile, ms end
      end
    end
    if chosen[1] ~= "-" or chosen[2] ~= "-" then
      entries[#entries + 1] = name .. "=" .. table.concat(chosen, "/")
    end
  end
  return table.concat(entries, ","), #entries
end

-- Which tiles products are to take, and what to say of it.
local function find_tiles(r, layers, feeds, device)
  local own, step = measure(r, feeds, "tiles", "")
  local names, with = core.tiles(device), {}
  for _, tile in ipairs(names) do
    local entries = {}
    for i, layer in ipairs(layers) do entries[i] = layer .. "=" .. tile .. "/" .. tile end
    with[tile] = measure(r, feeds, "tiles", table.concat(entries, ","), tile)
  end
  local text, count = M.tiles(layers, own, with)
  local said = string.format("%s measured with %s", util.plural(#layers, "convolution"),
                             util.plural(#names, "tile"))
  if count == 0 then return "", said .. ", none is faster than what the shapes say" end
  return settle(r, feeds, "tiles", text, step,
                string.format("%s, %d faster so", said, count))
end

-- What is measured on a device: the option, which rows of a plan have the choice, who finds.
local function choice_on(device, precision)
  if device == "cpu" then return "direct", "winograd", find_direct end
  -- products of other numbers do not go by tiles
  local narrow = precision == "bf16" or precision == "f16"
  if narrow and core.tiles(device)[1] then return "tiles", "convolution", find_tiles end
end

-- Put into the config what --autotune finds, if it is asked for: of all ranks at once. What
-- --direct or --tiles say, or the weights that a run begins with, is kept.
function M.choose(r)
  local v = config.ensure()
  if not v.autotune then return end
  local device = core.device(v.device)
  local key, of_row, find = choice_on(device, v.precision)
  if not key then
    show.line("autotune: nothing to choose on %s in %s", device, v.precision)
    return
  end
  if key == "direct" and not v.winograd then
    util.refuse("--autotune: --winograd false has chosen for all layers; leave one of them out")
  end
  if v[key] ~= "" then
    show.line("autotune: %s is kept as --%s says", v[key], key)
    return
  end
  local batch = math.ceil(v.batch / ranks.count)
  local layers = layers_of(r, batch, of_row)
  if not layers[1] then
    show.line("autotune: no convolution of this network has a choice")
    return
  end
  local chosen, said = find(r, layers, bench.feeds(r, batch), device)
  -- every rank has measured, and one is heard
  v[key], said = ranks.of_first(chosen), ranks.of_first(said)
  show.line("autotune: %s%s", said, v[key] ~= "" and ": " .. v[key] or "")
end

return M
