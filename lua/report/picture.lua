-- picture.lua -- pictures of a run: curves of progress, overlays of cases.
--
-- No picture names a patient: cases appear as their hash.

local core = require "seg.core"
local dose = require "seg.report.dose"
local outlines = require "seg.report.outlines"
local sheet = require "seg.report.sheet"
local show = require "seg.show"
local util = require "seg.util"
local wrong = require "seg.report.misclassified"

local M = {}

local colors, ticks, tick_text = sheet.colors, sheet.ticks, sheet.tick_text
local BLUE, RED, GREEN, DEEP, VIOLET = colors.blue, colors.red, colors.green, colors.deep,
                                       colors.violet
local INK, SOFT, GRID, PAPER = colors.ink, colors.soft, colors.grid, colors.paper

-- Axes ------------------------------------------------------------------------

-- Whether v is a finite number; false is an empty cell.
local function finite(v)
  return v and v == v and v ~= math.huge and v ~= -math.huge
end

-- The range of values in a panel, with a small margin.
local function extent(panel)
  local lo, hi = math.huge, -math.huge
  for _, curve in ipairs(panel.curves) do
    for i = 1, panel.epochs do
      local v = curve.values[i]
      if finite(v) then lo, hi = math.min(lo, v), math.max(hi, v) end
    end
  end
  if panel.zero then lo = math.min(lo, 0) end
  if lo > hi then return 0, 1 end
  local air = math.max((hi - lo) * 0.06, math.abs(hi) * 1e-3, 1e-12)
  local low = lo - air
  if lo >= 0 and low < 0 then low = 0 end
  return low, hi + air
end

-- The mean over the last `span` epochs up to each epoch; fewer at the start.
local function moving_average(values, count, span)
  local out = {}
  for i = 1, count do
    local sum, n = 0, 0
    for k = math.max(1, i - span + 1), i do
      if finite(values[k]) then sum, n = sum + values[k], n + 1 end
    end
    out[i] = n > 0 and sum / n or false
  end
  return out
end

local LEFT, RIGHT, WIDTH = 74, 24, 900 -- margins of a panel, width of the sheet

-- Draws a curve as runs of points; an epoch without a value interrupts it.
local function draw_curve(s, curve, epochs, place)
  local points = {}
  local function flush()
    if #points > 1 then s:line(points, curve.width or 2, curve.color, curve.dash) end
    if not curve.dash and (#points == 1 or epochs <= 40) then
      for _, p in ipairs(points) do s:dot(p[1], p[2], 2.6, curve.color) end
    end
    points = {}
  end
  for i = 1, epochs do
    local v = curve.values[i]
    if finite(v) then points[#points + 1] = { place(i, v) } else flush() end
  end
  flush()
end

-- Draws names and line styles of the curves, from the right edge to the left.
local function draw_legend(s, panel, y)
  local x = WIDTH - RIGHT
  for i = #panel.curves, 1, -1 do
    local curve = panel.curves[i]
    s:text(x, y, 12, INK, curve.name, "end")
    x = x - 7.4 * #curve.name - 12
    s:line({ { x - 24, y - 4 }, { x, y - 4 } }, curve.width or 2, curve.color, curve.dash)
    x = x - 40
  end
end

-- Draws one panel with its upper edge at `top`; the last panel has the epoch axis.
local function draw_panel(s, panel, top, last)
  local lo, hi = extent(panel)
  local first, final = 1, math.max(panel.epochs, 2)
  local wide = WIDTH - LEFT - RIGHT
  local function place(epoch, v)
    return LEFT + (epoch - first) / (final - first) * wide,
           top + (1 - (v - lo) / (hi - lo)) * panel.height
  end
  s:text(LEFT, top - 9, 14, INK, panel.title)
  draw_legend(s, panel, top - 9)
  local rows, step = ticks(lo, hi, panel.height > 150 and 6 or panel.height > 100 and 5 or 3)
  for _, v in ipairs(rows) do
    local _, y = place(1, v)
    s:line({ { LEFT, y }, { WIDTH - RIGHT, y } }, 1, GRID)
    s:text(LEFT - 8, y + 4, 11, SOFT, tick_text(v, step, hi), "end")
  end
  for _, e in ipairs((ticks(first, final, 12, true))) do
    local x = place(e, lo)
    s:line({ { x, top }, { x, top + panel.height } }, 1, GRID)
    if last then
      s:text(x, top + panel.height + 18, 11, SOFT, string.format("%d", e // 1), "middle")
    end
  end
  s:line({ { LEFT, top }, { LEFT, top + panel.height }, { WIDTH - RIGHT, top + panel.height } }, 1,
         SOFT)
  for _, curve in ipairs(panel.curves) do draw_curve(s, curve, panel.epochs, place) end
  if panel.best then
    local value = panel.curves[1].values[panel.best]
    local x, y = place(panel.best, value)
    s:dot(x, y, 5, panel.curves[1].color)
    s:dot(x, y, 2.4, PAPER)
    s:text(LEFT + 10 * #panel.title + 14, top - 9, 12, SOFT,
           string.format("best %.4f, epoch %d", value, panel.best))
  end
  if last then
    s:text(LEFT + wide / 2, top + panel.height + 38, 12, INK, "epoch", "middle")
  end
end

-- The epoch of the best checkpoint, if `name` is the metric that decides.
local function best_epoch(recipe, name, values, count)
  if not recipe.best or recipe.best[1] ~= name then return nil end
  local best
  for i = 1, count do
    local v = values[i]
    if finite(v) and (not best or (recipe.best[2] == "max" and v > values[best])
                      or (recipe.best[2] == "min" and v < values[best])) then
      best = i
    end
  end
  return best
end

-- Whether there are values to draw. A recipe without valid has empty columns.
local function has_values(values)
  for _, v in ipairs(values) do
    if finite(v) then return true end
  end
  return false
end

-- Values as text, to find equal curves.
local function text_of(values)
  local list = {}
  for i, v in ipairs(values) do list[i] = tostring(v) end
  return table.concat(list, " ")
end

local AVERAGE = 5 -- epochs of the moving average

-- The panels from top to bottom, and the number of epochs.
local function panels_of(csv, recipe)
  local train, valid, list = csv:column("train_loss"), csv:column("valid_loss"), {}
  local epochs, shown = #train, {}
  local loss = { title = "loss", height = 230, curves = { { name = "train", values = train,
                                                            color = BLUE } } }
  if has_values(valid) then
    loss.curves[2] = { name = "valid", values = valid, color = RED }
  end
  list[1] = loss
  for _, name in ipairs(util.sorted_keys(recipe.metrics)) do
    local values = csv:column("valid_" .. name)
    -- some metrics have equal curves, for example accuracy and a confusion matrix
    local text = text_of(values)
    local is_best = recipe.best and recipe.best[1] == name
    if has_values(values) and (is_best or not shown[text]) then
      shown[text] = true
      list[#list + 1] = {
        title = "valid " .. name, height = 150,
        best = best_epoch(recipe, name, values, epochs),
        curves = { { name = "by case", values = values, color = GREEN },
                   { name = "mean of " .. AVERAGE, values = moving_average(values, epochs, AVERAGE),
                     color = DEEP, width = 2.4, dash = 6 } } }
    end
  end
  list[#list + 1] = { title = "learning rate", height = 90, zero = true,
                      curves = { { name = "lr", values = csv:column("lr"), color = VIOLET } } }
  for _, panel in ipairs(list) do panel.epochs = epochs end
  return list, epochs
end

local GAP = 44 -- between panels

-- Draws the panels below each other, starting at `top`; and the height of a sheet with them.
local function draw_panels(s, panels, top)
  for i, panel in ipairs(panels) do
    draw_panel(s, panel, top, i == #panels)
    top = top + panel.height + GAP
  end
end

local function height_of(panels, top)
  local height = top + 14
  for _, panel in ipairs(panels) do height = height + panel.height + GAP end
  return height
end

-- Rewrites folder/progress.svg and folder/progress.png: losses, each metric, learning rate by
-- epoch. `csv` has column(name) -> numbers or false by epoch.
function M.progress(folder, csv, recipe)
  local panels, epochs = panels_of(csv, recipe)
  if epochs == 0 then return end
  local TOP = 74
  local height = height_of(panels, TOP)
  local title = folder:match("([^/]+/[^/]+)/*$") or folder
  for ending, s in pairs(sheet.sheets(WIDTH, height)) do
    s:text(LEFT, 28, 17, INK, title)
    s:text(WIDTH - RIGHT, 28, 13, SOFT,
           string.format("epoch %d of %d", epochs, recipe.epochs or epochs), "end")
    draw_panels(s, panels, TOP)
    s:save(folder .. "/progress." .. ending)
  end
end

-- Panels as an SVG inside a page, in the page's colours. panel: {title=, height=, epochs=, curves =
-- { {name=, values = { number or false by epoch }, color=, width=, dash=}, ... }, zero = true if
-- the axis begins at 0, best = epoch}.
function M.sheet(panels, about)
  local TOP = 26
  local s = sheet.inner_svg(WIDTH, height_of(panels, TOP), about)
  draw_panels(s, panels, TOP)
  return s:source()
end

-- The curves of M.progress, for a page; nil before the first epoch.
function M.curves(csv, recipe)
  local panels, epochs = panels_of(csv, recipe)
  return epochs > 0 and M.sheet(panels, "losses, metrics and learning rate by epoch") or nil
end

-- Overlays --------------------------------------------------------------------

-- The indices of the worst two, the middle and the best of `items` (worst first), or of the `count`
-- worst.
local function choose(items, count)
  local list, seen, places = {}, {}, { 1, 2, (#items + 1) // 2, #items }
  if count then
    places = {}
    for at = 1, count do places[at] = at end
  end
  for _, at in ipairs(places) do
    local item = items[at]
    if item and not seen[item] then list[#list + 1], seen[item] = item, true end
  end
  return list, seen
end

-- The plane of `mask` with the largest foreground area, and the area; the middle plane if it is
-- empty.
local function largest_plane(mask, planes)
  local best, most = planes // 2 + 1, 0
  for k = 1, planes do
    local area = core.picture.overlap(mask, k, mask, k)
    if area > most then best, most = k, area end
  end
  return best, most
end

-- The sample of each wanted case with the most foreground: {item = {number=, plane=, planes=,
-- slice=, slices=}}; field: the index of the target field.
function M.find_samples(loader, pipeline, wanted, field)
  local found = {}
  for number = 1, pipeline:samples() do
    local item, slice = pipeline:item(number)
    if wanted[item] then
      loader:seek(0, number - 1)
      local mask = loader:next().fields[field]:array()
      local shape = mask.shape
      local planes = #shape == 5 and shape[3] or 1
      local plane, area = largest_plane(mask, planes)
      local f = found[item] or { area = -1, numbers = {} }
      found[item] = f
      f.numbers[#f.numbers + 1] = number
      f.slices = slice > 0 and #f.numbers or planes
      if area > f.area then
        f.number, f.area, f.plane, f.planes = number, area, plane, planes
        f.slice = slice > 0 and slice or plane
      end
    end
  end
  -- a case without foreground is shown by its middle slice
  for _, f in pairs(found) do
    if f.area == 0 then
      f.number = f.numbers[#f.numbers // 2 + 1]
      local _, slice = pipeline:item(f.number)
      f.slice = slice > 0 and slice or f.plane
    end
  end
  return found
end

-- Draws three panels next to each other with a caption below, and a coloured legend of several
-- classes, as wide as needed. view: image, plane, classes (of outlines.lua), names.
local function draw_overlay(path, view, caption)
  local shape = view.image.shape
  local h, w = shape[#shape - 1], shape[#shape]
  local zoom = math.max(1, math.min(64, (320 + w // 2) // w))
  local pw, ph, gap, head, foot = w * zoom, h * zoom, 12, 34, 40
  local dot, several = 1.6, #view.classes > 1
  local text_w = math.max(math.ceil(core.picture.text_width(dot, caption)),
                          several and outlines.legend_width(dot, view.names) or 0)
  local width = math.max(3 * pw + 4 * gap, text_w + 2 * gap)
  local p = core.picture.canvas(width, ph + head + foot + (several and 24 or 0), 0x16181c)
  local lo, hi = core.picture.window(view.image, view.plane, 0.01, 0.995)
  for i, panel in ipairs {
    { "image" }, { "truth", outlines.truth, outlines.draw_truth },
    { "prediction", outlines.found, outlines.draw_found },
  } do
    local name, color, draw = table.unpack(panel)
    local x = gap + (i - 1) * (pw + gap)
    p:text(x, 11, dot, not several and color or 0xd7dbe0, name)
    p:gray(x, head, zoom, view.image, view.plane, lo, hi)
    if draw then draw(p, x, head, zoom, view.classes) end
  end
  p:text(gap, head + ph + 14, dot, 0xd7dbe0, caption)
  if several then outlines.write_legend(p, gap, head + ph + 38, dot, view.names) end
  p:save(path)
  p:close()
end

-- Dice of all classes of a slice together, as text: "-" if both are empty.
local function dice_text(classes)
  local all, both = 0, 0
  for _, c in ipairs(classes) do
    local a, b, common = core.picture.overlap(c.truth, c.truth_plane, c.found, c.found_plane)
    all, both = all + a + b, both + common
  end
  return all > 0 and string.format("%.4f", 2 * both / all) or "-"
end

-- "dice 0.91 of the case" from the result of evaluate.run, "" without one.
local function case_text(recipe, result, item)
  if not result or not next(recipe.metrics) then return "" end
  local name = recipe.best and recipe.metrics[recipe.best[1]] and recipe.best[1]
               or util.sorted_keys(recipe.metrics)[1]
  local v = result.metrics[name] and result.metrics[name].cases[item]
  return v and string.format("   %s of the case %.4f", name, v) or ""
end

-- The position of a name in a list; nil if absent.
local function position(list, wanted)
  for i, name in ipairs(list) do
    if name == wanted then return i end
  end
end

-- Writes one PNG a case into run.folder/overlays: image | ground truth | prediction for the slice
-- with the largest true area, of the worst two, the middle and the best of `items` (indices of
-- cases, worst first), or of the `count` worst. d: the opened part; result: of evaluate.run, or
-- nil. A dose is drawn by dose.lua.
function M.overlays(run, d, items, part, result, count)
  local field, r = position(run.names, "mask"), run.recipe
  local name = util.sorted_keys(r.outputs)[1]
  local node, pipeline = r.outputs[name], d.pipeline
  if node.rank == 0 then -- numbers of a case have no picture, except classes
    if result then wrong.pictures(run, d, part, result, count) end
    return
  end
  local list, wanted = choose(items, count)
  if dose.metric(r) and #items > 0 then
    return dose.overlays(run, d, list, part, function(item) return case_text(r, result, item) end)
  end
  if not field or field == 1 or #items == 0 then
    show.line("no overlays: they need an image and a field called \"mask\", or a dose with "
              .. "metric.dvh_score")
    return
  end
  local loader = core.data.loader(pipeline, { batch = 1 })
  local found = M.find_samples(loader, pipeline, wanted, field)
  local class_names = outlines.names(r, node, outlines.target(r, "mask"))
  core.sys.make_new(run.folder .. "/overlays")
  for _, item in ipairs(list) do
    local f = found[item]
    if f then
      loader:seek(0, f.number - 1)
      local batch, feeds = loader:next(), {}
      for _, input in ipairs(r.inputs) do
        feeds[input.name] = batch.fields[position(run.names, input.name)]
      end
      run.session:forward(feeds, false)
      local out = run.session:read(node)
      local image, truth = batch.fields[1]:array(), batch.fields[field]:array()
      if not outlines.comparable(out, truth) then
        show.line("no overlays: output %s is not a map of the image's size", name)
        break
      end
      local classes = outlines.classes(out, truth, f.plane, node.kind)
      local hash = run.hash(pipeline:facts(item).key)
      draw_overlay(string.format("%s/overlays/%s_%s.png", run.folder, part, hash),
                   { image = image, plane = f.plane, classes = classes, names = class_names },
                   string.format("%s   slice %d of %d   dice of the slice %s%s", hash, f.slice,
                                 f.slices, dice_text(classes), case_text(r, result, item)))
    end
  end
  loader:close()
end

return M
