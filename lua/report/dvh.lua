-- dvh.lua -- dose-volume histograms of a case: the volume of each structure that gets at least a
-- dose, in ground truth and prediction, as a picture and as a table.

local core = require "seg.core"
local base = require "seg.evaluate.metric_base"
local sheet = require "seg.report.sheet"
local util = require "seg.util"

local colors = sheet.colors
local M = {}

M.STEP = 0.5 -- Gy between two points of a curve

-- Cool colours and grey for organs, warm ones for targets, as distinguishable with red-green colour
-- blindness as ten lines can be (after Okabe and Ito, https://jfly.uni-koeln.de/color).
local ORGANS = { 0x0072b2, 0x009e73, 0x56b4e9, 0x7a4fb5, 0x6b7280, 0x24292f, 0x35c4b0, 0xcc79a7 }
local TARGETS = { 0xb38600, 0xe69f00, 0xd55e00, 0x8c2d04 }

-- The conversion of the network's numbers to Gy: Gy = factor * number + offset.
function M.unit(case, m)
  local undo, factor, offset = case:undo(m.target), 1, 0
  if undo and undo.sd[1] then factor, offset = undo.sd[1], undo.mean[1] end
  return m.scale * factor, m.scale * offset
end

-- The histograms of a case (stitch.lua) by a metric with structures.
--   -> { step =, points =, list = { { name=, target=, color=, truth= { percent at 0,
--      step, 2 step, ... Gy }, found = the same }, ... } }, of the structures of the
--      case, up to the maximum of both doses
function M.curves(case, m, recipe)
  local factor, offset = M.unit(case, m)
  local most = 0
  for _, node in ipairs { m.output, m.target } do
    local stats = case:volume(node):stats()
    most = math.max(most, factor * stats.max + offset, factor * stats.min + offset)
  end
  local points = math.min(math.ceil(most / M.STEP), 1000) + 2
  local names = base.class_names(recipe, m, m.classes, recipe.train, 1)
  local list, seen = {}, { [true] = 0, [false] = 0 }
  local function curve(dose, mask, k)
    return case:dvh_curve(dose, m.structures, mask, k, -offset / factor, M.STEP / factor, points)
  end
  for k = 1, m.classes do
    local target = m.targets[k] ~= nil
    local palette = target and TARGETS or ORGANS
    seen[target] = seen[target] + 1
    local truth = curve(m.target, nil, k)
    list[#list + 1] = truth and { name = names[k], target = target, truth = truth,
                                  found = curve(m.output, m.mask, k),
                                  color = palette[(seen[target] - 1) % #palette + 1] }
  end
  return { step = M.STEP, points = points, list = list }
end

-- The histograms as CSV: a row for each dose, two columns of percent for each structure.
function M.csv(curves)
  local head, lines = { "dose_gy" }, {}
  for _, s in ipairs(curves.list) do
    local name = util.plain_name(s.name)
    head[#head + 1], head[#head + 2] = name .. "_truth", name .. "_predicted"
  end
  lines[1] = table.concat(head, ",")
  for k = 1, curves.points do
    local cells = { string.format("%g", (k - 1) * curves.step) }
    for _, s in ipairs(curves.list) do
      cells[#cells + 1] = string.format("%.3f", s.truth[k])
      cells[#cells + 1] = string.format("%.3f", s.found[k])
    end
    lines[k + 1] = table.concat(cells, ",")
  end
  return table.concat(lines, "\n") .. "\n"
end

-- The picture -------------------------------------------------------------------

local WIDTH, HEIGHT = 900, 480
local LEFT, TOP, WIDE, HIGH = 74, 52, 640, 356 -- of the axes
local DASH = { 7, 6 }

-- The points where a curve bends, down to 0; points on the line between their neighbours are
-- dropped.
local function corners(values, place)
  local points = {}
  for k, v in ipairs(values) do
    local before, after = values[k - 1], values[k + 1]
    if not before or not after or v - before ~= after - v then
      points[#points + 1] = { place(k, v) }
    end
    if v == 0 then break end
  end
  return points
end

local function draw_axes(s, most)
  for _, v in ipairs { 0, 20, 40, 60, 80, 100 } do
    local y = TOP + (1 - v / 100) * HIGH
    s:line({ { LEFT, y }, { LEFT + WIDE, y } }, 1, colors.grid)
    s:text(LEFT - 8, y + 4, 11, colors.soft, string.format("%d", v), "end")
  end
  local ticks, each = sheet.ticks(0, most, 10)
  for _, v in ipairs(ticks) do
    local x = LEFT + v / most * WIDE
    s:line({ { x, TOP }, { x, TOP + HIGH } }, 1, colors.grid)
    s:text(x, TOP + HIGH + 18, 11, colors.soft, sheet.tick_text(v, each, most), "middle")
  end
  s:line({ { LEFT, TOP }, { LEFT, TOP + HIGH }, { LEFT + WIDE, TOP + HIGH } }, 1, colors.soft)
  s:text(LEFT, TOP - 10, 12, colors.ink, "volume, %")
  s:text(LEFT + WIDE / 2, TOP + HIGH + 38, 12, colors.ink, "dose, Gy", "middle")
end

local function draw_legend(s, list)
  local x, y = LEFT + WIDE + 20, TOP + 12
  for _, key in ipairs { { "truth" }, { "prediction", DASH } } do
    s:line({ { x, y - 4 }, { x + 34, y - 4 } }, 2, colors.ink, key[2])
    s:text(x + 42, y, 12, colors.ink, key[1])
    y = y + 20
  end
  y = y + 12
  for _, one in ipairs(list) do
    s:line({ { x, y - 4 }, { x + 34, y - 4 } }, 3, one.color)
    s:text(x + 42, y, 12, colors.ink, one.name)
    y = y + 20
  end
end

-- Writes path.png and path.svg: volume by dose, a colour for each structure, ground truth as a
-- solid line, prediction dashed.
function M.draw(path, title, curves)
  local most = math.max(10, (curves.points - 2) * curves.step)
  local function place(k, percent)
    return LEFT + math.min((k - 1) * curves.step / most, 1) * WIDE,
           TOP + (1 - percent / 100) * HIGH
  end
  for ending, s in pairs(sheet.sheets(WIDTH, HEIGHT)) do
    s:text(LEFT, 22, 15, colors.ink, title)
    draw_axes(s, most)
    for _, one in ipairs(curves.list) do
      s:line(corners(one.truth, place), 2, one.color)
      s:line(corners(one.found, place), 2, one.color, DASH)
    end
    draw_legend(s, curves.list)
    s:save(path .. "." .. ending)
  end
end

-- Writes the table and the picture of a case, as path.csv, path.png and path.svg.
function M.write(path, title, case, m, recipe)
  local curves = M.curves(case, m, recipe)
  core.sys.write(path .. ".csv", M.csv(curves))
  M.draw(path, title, curves)
end

return M
