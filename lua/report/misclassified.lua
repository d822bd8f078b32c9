-- misclassified.lua -- the misclassified cases of a classification network, as a list and as
-- pictures. For sets with one sample a case.

local core = require "seg.core"
local outlines = require "seg.report.outlines"
local util = require "seg.util"

local M = {}

local SHOWN = 6 -- pictures by default
local SIDE = 320 -- pixels of a picture, approximately
local INK, BACK = 0xd7dbe0, 0x16181c

-- The result of the metric that records the predicted class of each case, first the metric of
-- `best`; nil if there is none, or if cases have several samples.
local function classified(recipe, result)
  local names, best = util.sorted_keys(result.metrics), recipe.best and recipe.best[1]
  table.sort(names, function(a, b)
    return (a == best and 0 or 1) < (b == best and 0 or 1) or (a == best) == (b == best) and a < b
  end)
  for _, name in ipairs(names) do
    local r, seen = result.metrics[name], {}
    local single = r.records and r.names
    for _, e in ipairs(r.records or {}) do
      single, seen[e.item] = single and not seen[e.item], true
    end
    if single then return r end
  end
end

-- The misclassified cases, the most confident first: { { item =, truth = name of the class, taken =
-- the same, p = probability of `taken` }, ... }; nil for other networks.
function M.list(recipe, result)
  local r, list = classified(recipe, result), {}
  if not r then return nil end
  for _, e in ipairs(r.records) do
    local is = e.record
    if is.t ~= is.p then
      list[#list + 1] = { item = e.item, truth = r.names[is.t + 1], taken = r.names[is.p + 1],
                          p = is.q }
    end
  end
  table.sort(list, function(a, b) return a.p == b.p and a.item < b.item or a.p > b.p end)
  return list
end

-- The middle plane of an image (1,C,[D],H,W) as a map; colours are averaged.
local function plane_of(image)
  local shape = image.shape
  local channels, h, w = shape[2], shape[#shape - 1], shape[#shape]
  local depth = #shape == 5 and shape[3] or 1
  local k = depth // 2 + 1
  if channels ~= 3 then return image, k end
  local map, at = core.array.zeros { h, w }, outlines.plane(image, k)
  for y = 1, h do
    for x = 1, w do
      local sum = 0
      for c = 1, 3 do sum = sum + at(c, y, x) end
      map:set(sum / 3, y, x)
    end
  end
  return map, 1
end

local function draw(path, image, lines)
  local map, plane = plane_of(image)
  local h, w = map.shape[#map.shape - 1], map.shape[#map.shape]
  local zoom = math.max(1, math.min(64, (SIDE + w // 2) // w))
  local gap, dot, width = 12, 1.6, w * zoom
  for _, line in ipairs(lines) do
    width = math.max(width, math.ceil(core.picture.text_width(dot, line)))
  end
  local p = core.picture.canvas(width + 2 * gap, h * zoom + 2 * gap + 22 * #lines, BACK)
  p:gray(gap, gap, zoom, map, plane, core.picture.window(map, plane, 0.01, 0.995))
  for i, line in ipairs(lines) do p:text(gap, h * zoom + 22 * i, dot, INK, line) end
  p:save(path)
  p:close()
end

-- Writes a PNG for each of the first misclassified cases of a part, at most `count`, into
-- run.folder/overlays: its image, the true class and the predicted one. d: the opened part.
function M.pictures(run, d, part, result, count)
  local list = M.list(run.recipe, result)
  local pipeline, wanted, number = d.pipeline, {}, {}
  if not list or pipeline:facts(1).rank < 2 then return end
  for i = 1, math.min(count or SHOWN, #list) do wanted[i] = list[i] end
  if #wanted == 0 then return end
  for k = 1, pipeline:samples() do number[pipeline:item(k)] = k end
  local loader <close> = core.data.loader(pipeline, { batch = 1 })
  core.sys.make_new(run.folder .. "/overlays")
  for _, e in ipairs(wanted) do
    local hash = run.hash(pipeline:facts(e.item).key)
    loader:seek(0, number[e.item] - 1)
    draw(string.format("%s/overlays/%s_%s.png", run.folder, part, hash),
         loader:next().fields[1]:array(),
         { hash, "true: " .. e.truth,
           string.format("taken for: %s (%.0f %%)", e.taken, 100 * e.p) })
  end
end

return M
