-- autotune.lua -- --autotune: measures which tiles the matrix products of each layer take on
-- this GPU.
--
-- Without it the program chooses tiles by the shapes of layers, with rates that were measured
-- on no GPU. The choice becomes the config's `tiles`, so the run keeps it, and with it its
-- bits; a resumed run does not measure. A CPU has no tiles to choose.

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

-- The names of the convolutions of r, in the order of the network.
local function layers_of(r, batch)
  local list, seen = {}, {}
  for _, row in ipairs(plans.plan(r, batch, true).rows) do
    -- `tiles` cannot name a layer with a comma or an equals sign in its name
    if row.convolution and row.name ~= "" and not row.name:find("[,=]") and not seen[row.name] then
      list[#list + 1], seen[row.name] = row.name, true
    end
  end
  return list
end

-- The times with these tiles: milliseconds { forward = {layer = ms}, backward = ... }, and of a
-- whole step. tile: count the calls alone that took it.
local function measure(r, feeds, tiles, tile)
  config.ensure().tiles = tiles
  local session <close> = recipes.session(r, "train", nil, nil, nil, true)
  session:step(feeds, { lr = 0 })
  local ms = { forward = {}, backward = {} }
  for _, c in ipairs(bench.calls(session, feeds)) do
    local side = ms[c.backward and "backward" or "forward"]
    if not tile or c.tile == tile then side[c.name] = (side[c.name] or 0) + c.ms end
  end
  return ms, (bench.step_ms(session, feeds))
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

-- The tiles of the layers, and a line about them. A step must become faster as a whole: other
-- calls may lose what the layers win, as where a concat has to be made again.
local function find(r, layers, feeds, device)
  local own, before = measure(r, feeds, "")
  local names, with = core.tiles(device), {}
  for _, tile in ipairs(names) do
    local entries = {}
    for i, layer in ipairs(layers) do entries[i] = layer .. "=" .. tile .. "/" .. tile end
    with[tile] = measure(r, feeds, table.concat(entries, ","), tile)
  end
  local text, count = M.tiles(layers, own, with)
  local said = string.format("%s measured with %s", util.plural(#layers, "convolution"),
                             util.plural(#names, "tile"))
  if count == 0 then return "", said .. ", none is faster than what the shapes say" end
  local _, now = measure(r, feeds, text)
  said = string.format("%s, %d faster so: a step %.1f ms, was %.1f", said, count, now, before)
  if now < (1 - MARGIN) * before then return text, said end
  return "", said .. ", which is not worth it"
end

-- Put the tiles that --autotune finds into the config, if it is asked for: of all ranks at once.
-- --tiles, and what a run that is resumed has, are kept.
function M.choose(r, resumed)
  local v = config.ensure()
  if not v.autotune then return end
  local device = core.device(v.device)
  local tiled = core.tiles(device)[1] ~= nil
  if not tiled and config.given.autotune then
    util.refuse("--autotune measures the tiles of matrix products on a GPU, and the device here, "
                .. "%s, has no tiles; leave it out, or give --device cuda", device)
  end
  if resumed then
    show.line("autotune: a run that is resumed keeps what it has")
    return
  end
  if not tiled then
    show.line("autotune: nothing to choose on %s, which has no tiles", device)
    return
  end
  -- products of other numbers do not go by tiles
  if v.precision ~= "bf16" and v.precision ~= "f16" then
    show.line("autotune: nothing to choose on %s in %s", device, v.precision)
    return
  end
  if v.tiles ~= "" then
    show.line("autotune: %s is kept as --tiles says", v.tiles)
    return
  end
  local batch = math.ceil(v.batch / ranks.count)
  local layers = layers_of(r, batch)
  if not layers[1] then
    show.line("autotune: no convolution of this network has a choice")
    return
  end
  local chosen, said = find(r, layers, bench.feeds(r, batch), device)
  -- every rank has measured; all take the choice of the first
  v.tiles, said = ranks.of_first(chosen), ranks.of_first(said)
  show.line("autotune: %s%s", said, v.tiles ~= "" and ": " .. v.tiles or "")
end

return M
