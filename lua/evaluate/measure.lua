-- measure.lua -- `segengine measure FOUND TRUTH`: compares two NIfTI files of labels from any
-- program, label by label on their common grid.

local core = require "seg.core"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

local COLUMNS = { "dice", "iou", "sensitivity", "precision", "hd95_mm", "assd_mm", "found_ml",
                  "true_ml" }

-- Reads a file of labels; several volumes in one file are refused.
local function read(path)
  local v = core.data.read_labels(path)
  local values = v:values()
  if not values then
    util.fail("data", "%s: has too many different values to be labels; give a file of labels", path)
  end
  return v, values
end

-- All values except 0 of both lists, sorted.
local function labels_of(a, b)
  local list, seen = {}, { [0] = true }
  for _, values in ipairs { a, b } do
    for _, v in ipairs(values) do
      if not seen[v] then list[#list + 1], seen[v] = v, true end
    end
  end
  table.sort(list)
  return list
end

-- Measures one label; a value is nil where it is undefined, for example a distance if one file
-- lacks the label.
local function measure_label(found, truth, value)
  local m = { prediction = found:equal(value), truth = truth:equal(value) }
  local sums = core.measure.overlap(m)
  local s = core.measure.surface(m, 1)
  local _, ml = core.measure.spacing(m.prediction)
  local both, p, t = sums[1], sums[2], sums[3]
  m.prediction:close()
  m.truth:close()
  return { dice = 2 * both / (p + t), iou = both / (p + t - both),
           sensitivity = t > 0 and both / t or nil, precision = p > 0 and both / p or nil,
           hd95_mm = s.hd95, assd_mm = s.assd, found_ml = p * ml, true_ml = t * ml }
end

-- measure FOUND TRUTH [--json]: a row for every label in either file.
function M.command(args)
  local paths, as_json = {}, false
  for i = 2, #args do
    if args[i] == "--json" then as_json = true else paths[#paths + 1] = args[i] end
  end
  local found_path, truth_path = paths[1], paths[2]
  if #paths ~= 2 or found_path:match("^%-%-") or truth_path:match("^%-%-") then
    util.refuse("measure takes two NIfTI files of labels, FOUND and TRUTH, and --json; got %s",
                #paths > 0 and table.concat(paths, " ") or "nothing")
  end
  local found, a = read(found_path)
  local truth, b = read(truth_path)
  local same, why = found:same_grid(truth)
  if not same then
    -- the same voxels may be stored in another axis order or direction
    local moved = found:along(truth)
    if moved:same_grid(truth) then found, same = moved, true end
  end
  if not same then
    util.fail("data", "%s and %s lie on different grids: %s; bring one to the grid of the other",
              found_path, truth_path, why)
  end
  local rows, json = { { "label", table.unpack(COLUMNS) } }, {}
  for _, value in ipairs(labels_of(a, b)) do
    local r, row = measure_label(found, truth, value), { string.format("%g", value) }
    for i, name in ipairs(COLUMNS) do
      row[i + 1] = r[name] and string.format("%.4f", r[name]) or "-"
    end
    rows[#rows + 1], json[row[1]] = row, r
  end
  if #rows == 1 then util.fail("data", "%s and %s: both are empty", found_path, truth_path) end
  print(as_json and util.json(json) or show.table(rows))
  return 0
end

return M
