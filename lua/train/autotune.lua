-- autotune.lua -- --autotune: measures the fastest GEMM tile for each layer on this GPU.
--
-- Without autotuning the program chooses tiles by the shapes of layers, with rates that were not
-- measured on the GPU at hand. The choice becomes the config's `tiles`, so the run keeps it and
-- stays reproducible to the bit; a resumed run does not measure again. On a CPU there are no tiles
-- to choose.

local core = require "seg.core"
local bench = require "seg.inspect.bench"
local config = require "seg.recipe.config"
local plans = require "seg.inspect.plan"
local ranks = require "seg.train.ranks"
local recipes = require "seg.recipe.recipe"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

local MARGIN = 0.03 -- minimum gain of a layer, and then of a step; smaller gains are noise
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

-- Measures with these tiles. -> milliseconds { forward = {layer = ms}, backward = ... }, and the
-- milliseconds of a whole step. tile: count only calls that used this tile.
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

-- The value of `tiles` (engine/plan/tile_names.h) for the layers that were faster with another tile
-- than with the default, and their number. `own` and each table of `with`, by the name of the tile,
-- hold the milliseconds of each layer as returned by measure(); nil: the tile does not fit.
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

-- Finds the tiles of the layers. -> `tiles`, a line about them. The whole step must become faster:
-- other calls may lose the gain of the layers, for example if a concat is no longer implicit.
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
  if count == 0 then return "", said .. ", none is faster than the default" end
  local _, now = measure(r, feeds, text)
  said = string.format("%s, %d faster so: a step %.1f ms, was %.1f", said, count, now, before)
  if now < (1 - MARGIN) * before then return text, said end
  return "", said .. ", which is not worth it"
end

-- Sets the config's `tiles` by measurement if --autotune asks for it. All ranks call it together.
-- Tiles from --tiles or from a resumed run are kept.
function M.choose(r, resumed)
  local v = config.ensure()
  if not v.autotune then return end
  local device = v.device
  core.open_device(device) -- the error of a device that is not there comes first
  local tiled = core.tiles(device)[1] ~= nil
  if not tiled and config.given.autotune then
    util.refuse("--autotune measures the tiles of matrix products on a GPU, and the device here, "
                .. "%s, has no tiles; leave it out, or give --device cuda", device)
  end
  if resumed then
    show.line("autotune: a resumed run keeps its tiles")
    return
  end
  if not tiled then
    show.line("autotune: nothing to choose on %s, which has no tiles", device)
    return
  end
  -- products in other precisions do not use the tiles
  if v.precision ~= "bf16" and v.precision ~= "f16" then
    show.line("autotune: nothing to choose on %s in %s", device, v.precision)
    return
  end
  if v.tiles ~= "" then
    show.line("autotune: %s keeps the tiles of --tiles", v.tiles)
    return
  end
  local batch = math.ceil(v.batch / ranks.count)
  local layers = layers_of(r, batch)
  if not layers[1] then
    show.line("autotune: no convolution of this network has a choice")
    return
  end
  local chosen, said = find(r, layers, bench.feeds(r, batch), device)
  -- every rank has measured; all take the choice of rank 0
  v.tiles, said = ranks.of_first(chosen), ranks.of_first(said)
  show.line("autotune: %s%s", said, v.tiles ~= "" and ": " .. v.tiles or "")
end

return M
