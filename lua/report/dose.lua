-- dose.lua -- pictures of a dose: an axial slice of ground truth, prediction and difference over
-- the image, and dose-volume histograms (dvh.lua).

local core = require "seg.core"
local base = require "seg.evaluate.metric_base"
local dvh = require "seg.report.dvh"
local stitch = require "seg.evaluate.stitch"
local util = require "seg.util"

local M = {}

-- Colours of a dose, from zero to the maximum: those of matplotlib's viridis. Their lightness grows
-- evenly, so they can be distinguished with any colour vision and in grey.
local DOSE = { 0x440154, 0x3b528b, 0x21918c, 0x5ec962, 0xfde725 }
local LESS, MORE = 0x3d9bff, 0xff7a1a -- lower and higher than the ground truth
local COVER = 0.65 -- opacity over the image
local MARGIN = 8 -- voxels around the region with a dose
local SIDE = 400 -- pixels of a panel, approximately
local TARGET = 0xffffff
local INK, BACK, HINT = 0xd7dbe0, 0x16181c, 0x9aa1ab

-- The metric with the dose and structures to draw; nil if the recipe has none.
function M.metric(recipe)
  for _, name in ipairs(util.sorted_keys(recipe.metrics)) do
    local m = recipe.metrics[name]
    if m.structures and m.output.c == 1 then return m end
  end
end

-- The slice and planes to draw ---------------------------------------------------

-- The number of the target structure with the highest true mean dose; nil without any.
local function hottest_target(case, m)
  local best, most
  for k = 1, m.classes do
    local points = m.targets[k] and case:dvh(m.target, m.structures, nil, k)
    if points and (not most or points.mean > most) then best, most = k, points.mean end
  end
  return best
end

-- The slice that divides the foreground of a binary volume into halves.
local function middle_slice(volume, slices)
  local areas, all, sum = {}, 0, 0
  for k = 1, slices do
    local slice = volume:slice(k)
    areas[k] = core.picture.overlap(slice, 1, slice, 1)
    all = all + areas[k]
  end
  for k = 1, slices do
    sum = sum + areas[k]
    if 2 * sum >= all then return all > 0 and k or slices // 2 + 1 end
  end
end

-- The slice with the highest dose.
local function hottest_slice(volume, slices)
  local best, most = 1, -math.huge
  for k = 1, slices do
    local _, hi = core.picture.window(volume:slice(k), 1, 0, 1)
    if hi > most then best, most = k, hi end
  end
  return best
end

-- A plane of f(number of a, number of b); b is optional.
local function plane_of(f, a, b)
  local h, w = a.shape[1], a.shape[2]
  local out = core.array.zeros { h, w }
  for y = 1, h do
    for x = 1, w do out:set(f(a:get(y, x), b and b:get(y, x)), y, x) end
  end
  return out
end

-- The box of a plane around all numbers above `least`, with MARGIN; the whole plane if there are
-- none.
local function box_of(plane, least)
  local h, w = plane.shape[1], plane.shape[2]
  local top, bottom, left, right = h, 1, w, 1
  for y = 1, h do
    for x = 1, w do
      if plane:get(y, x) > least then
        top, bottom = math.min(top, y), math.max(bottom, y)
        left, right = math.min(left, x), math.max(right, x)
      end
    end
  end
  if top > bottom then return { top = 1, left = 1, h = h, w = w } end
  top, left = math.max(1, top - MARGIN), math.max(1, left - MARGIN)
  return { top = top, left = left, h = math.min(h, bottom + MARGIN) - top + 1,
           w = math.min(w, right + MARGIN) - left + 1 }
end

local function cut(plane, box)
  local out = core.array.zeros { box.h, box.w }
  for y = 1, box.h do
    for x = 1, box.w do out:set(plane:get(box.top + y - 1, box.left + x - 1), y, x) end
  end
  return out
end

-- The planes to draw of a case (stitch.lua), (h, w) with h toward posterior and w toward
-- left; doses in Gy.
--   -> { image=, truth=, found=, difference= (prediction - truth), targets = { planes }, slice=,
--        slices=, most= (Gy, of the whole case) }
function M.view(case, m, image)
  local factor, offset = dvh.unit(case, m)
  local function axial(volume)
    local view = volume:view("axial")
    return view, (view:extents())
  end
  local function gray(dose) return factor * dose + offset end
  local truth <close>, slices = axial(case:volume(m.target))
  local found <close> = axial(case:volume(m.output))
  local structures, hot = case:volume(m.structures), hottest_target(case, m)
  local v, slice = { targets = {}, slices = slices }, nil
  local function structure(k)
    local one <close> = structures:channel(k)
    return (axial(one))
  end
  if hot then
    local one <close> = structure(hot)
    slice = middle_slice(one, slices)
  end
  slice = slice or hottest_slice(truth, slices)
  for k = 1, m.classes do
    if m.targets[k] then
      local one <close> = structure(k)
      v.targets[#v.targets + 1] = one:slice(slice)
    end
  end
  local below <close> = axial(image)
  v.image, v.slice = below:slice(slice), slice
  v.truth, v.found = plane_of(gray, truth:slice(slice)), plane_of(gray, found:slice(slice))
  v.most = math.max(gray(truth:stats().max), gray(truth:stats().min))
  local box = box_of(v.truth, 0.02 * v.most)
  v.image, v.truth, v.found = cut(v.image, box), cut(v.truth, box), cut(v.found, box)
  for i, plane in ipairs(v.targets) do v.targets[i] = cut(plane, box) end
  v.difference = plane_of(function(p, t) return p - t end, v.found, v.truth)
  return v
end

-- The picture --------------------------------------------------------------------

local TICKS = 4 -- intervals of a scale, each between two colours

-- Colour stops of a dose: transparent at zero, a colour at each tick.
local function dose_stops(most)
  local stops = { { 0, DOSE[1], 0 }, { 0.04 * most, DOSE[1], COVER } }
  for i = 1, TICKS do stops[i + 2] = { most * i / TICKS, DOSE[i + 1], COVER } end
  return stops
end

local function difference_stops(most)
  return { { -most, LESS, 0.9 }, { 0, 0x000000, 0 }, { most, MORE, 0.9 } }
end

-- Draws the colour bar of lo .. hi with its ticks, `pixels` high.
local function draw_bar(p, x, y, pixels, lo, hi, stops, signed)
  local ramp = core.array.zeros { pixels, 1 }
  for i = 1, pixels do ramp:set(hi - (hi - lo) * (i - 0.5) / pixels, i, 1) end
  for i = 0, 13 do p:wash(x + i, y, 1, ramp, 1, stops) end
  for i = 0, TICKS do
    local v, at = hi - (hi - lo) * i / TICKS, y + pixels * i / TICKS
    p:line(x + 14, at, x + 18, at, 1, HINT)
    p:text(x + 22, at - 5, 1.4, INK, string.format(signed and v ~= 0 and "%+g" or "%g", v))
  end
  p:text(x, y - 20, 1.4, HINT, "Gy")
end

-- The least multiple of `step` that is at least v.
local function up_to(v, step) return math.max(1, math.ceil(v / step)) * step end

-- Draws a PNG: ground truth, prediction and their difference over the image, with isodoses at the
-- ticks of the scale and outlined targets.
function M.draw(path, v, caption)
  local h, w = v.image.shape[1], v.image.shape[2]
  local zoom = math.max(1, math.min(64, (SIDE + w // 2) // w))
  local pw, ph, gap, head, foot, bar = w * zoom, h * zoom, 12, 34, 40, 76
  local text_w = math.ceil(core.picture.text_width(1.6, caption)) + 2 * gap
  local p <close> = core.picture.canvas(math.max(3 * pw + 3 * gap + 2 * bar, text_w),
                                        ph + head + foot, BACK)
  local lo, hi = core.picture.window(v.image, 1, 0.01, 0.995)
  local most = up_to(v.most, 20)
  local _, most_off = core.picture.window(plane_of(math.abs, v.difference), 1, 0, 0.995)
  most_off = up_to(most_off, 10)
  local dose, difference = dose_stops(most), difference_stops(most_off)
  local left = gap
  for _, panel in ipairs { { "truth", v.truth, dose }, { "prediction", v.found, dose },
                           { "prediction - truth", v.difference, difference } } do
    local name, plane, stops = table.unpack(panel)
    p:text(left, 11, 1.6, INK, name)
    p:gray(left, head, zoom, v.image, 1, lo, hi)
    p:wash(left, head, zoom, plane, 1, stops)
    for i = 1, plane ~= v.difference and TICKS - 1 or 0 do -- isodoses
      p:contour(left, head, zoom, plane, 1, most * i / TICKS, 1.6, DOSE[i + 1])
    end
    for _, target in ipairs(v.targets) do
      p:contour(left, head, zoom, target, 1, 0.5, math.max(1, zoom * 0.3), TARGET)
    end
    left = left + pw + gap
    if name == "prediction" then
      draw_bar(p, left, head + 24, ph - 34, 0, most, dose)
      left = left + bar
    elseif plane == v.difference then
      draw_bar(p, left, head + 24, ph - 34, -most_off, most_off, difference, true)
    end
  end
  p:text(gap, head + ph + 14, 1.6, INK, caption)
  p:save(path)
end

-- The cases ----------------------------------------------------------------------

-- Calls each(case) with the cases of `list` (indices), stitched from the outputs of the network of
-- run.session.
local function each_case(run, pipeline, list, nodes, each)
  local wanted, r = {}, run.recipe
  for _, item in ipairs(list) do wanted[item] = true end
  local place = {}
  for i, name in ipairs(run.names) do place[name] = i end
  local loader <close> = core.data.loader(pipeline, { batch = 1 })
  local stitcher = stitch.new(pipeline, nodes)
  for number = 1, pipeline:samples() do
    if wanted[pipeline:item(number)] then
      loader:seek(0, number - 1)
      local batch, feeds, values = loader:next(), {}, {}
      for _, input in ipairs(r.inputs) do feeds[input.name] = batch.fields[place[input.name]] end
      run.session:forward(feeds, false)
      for k, node in ipairs(nodes) do values[k] = run.session:read(node) end
      local case = stitcher:put(number, values, 1)
      if case then
        each(case)
        case:close()
      end
    end
  end
  stitcher:close()
end

-- Writes into run.folder/overlays for each case of `list`: PART_HASH.png, the slice;
-- PART_HASH_dvh.png, .svg and .csv, the histograms. text(item) is the end of the caption.
function M.overlays(run, d, list, part, text)
  local m, pipeline = M.metric(run.recipe), d.pipeline
  core.sys.make_new(run.folder .. "/overlays")
  each_case(run, pipeline, list, base.of_case(m), function(case)
    local hash = run.hash(pipeline:facts(case.item).key)
    local path = string.format("%s/overlays/%s_%s", run.folder, part, hash)
    local image <close> = core.measure.prepared(pipeline, case.item, run.names[1])
    local v = M.view(case, m, image)
    M.draw(path .. ".png", v, string.format("%s   axial slice %d of %d%s", hash, v.slice,
                                            v.slices, text(case.item)))
    dvh.write(path .. "_dvh", hash .. ": dose-volume histograms", case, m, run.recipe)
  end)
end

return M
