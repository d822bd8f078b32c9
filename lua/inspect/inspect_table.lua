-- inspect_table.lua -- inspect of tables, OpenKBP and BIWI.

local core = require "seg.core"
local inspect_line = require "seg.inspect.inspect_line"
local show = require "seg.show"
local util = require "seg.util"

local M = {}
local LISTED = 20 -- patients of a folder that are listed

-- "1.5 .. 70", or nothing where there are no numbers.
local function range(of, count)
  return count > 0 and string.format("%.6g .. %.6g", of.min, of.max) or ""
end

-- "3.906x3.906x2.5 mm"
local function millimetres(spacing)
  return string.format("%.4gx%.4gx%.4g mm", table.unpack(spacing))
end

-- Prints a table with a header: its columns, and the range of numeric ones. The separator is the
-- comma unless the header has none and has another separator.
local function columns(path, first)
  local separator = ","
  if not first:find(",", 1, true) then separator = first:match("[;\t]") or "," end
  local t = core.data.table_open(path, separator)
  local count, list = t:rows(), t:columns()
  local named = { [","] = "commas", [";"] = "semicolons", ["\t"] = "tabs" }
  print(string.format("%s rows, %d columns, separated by %s", util.thousands(count), #list,
                      named[separator]))
  local rows = { { "column", "kind", "range", "empty" } }
  for _, c in ipairs(list) do
    -- a column is numeric if every cell is a number or empty
    local numeric = c.numbers > 0 and c.numbers + c.empty == count
    local kind = numeric and (c.whole and "whole" or "number")
                 or c.empty == count and "empty" or "text"
    rows[#rows + 1] = { (c.name:gsub("%c", "?"):sub(1, 60)), kind,
                        range(c, numeric and c.numbers or 0), c.empty > 0 and c.empty or "" }
  end
  print(show.table(rows))
end

-- Prints one file of a patient of OpenKBP; a mask has nothing after the comma.
local function grid(path, second)
  local mask = second:match("^%d+,\r?$") ~= nil
  local g = core.data.openkbp_grid(path, mask)
  print(string.format("OpenKBP %s, %s of 128x128x128 voxels%s", mask and "mask" or "values",
                      util.thousands(g.voxels),
                      g.mean and string.format(", %s, mean %.6g", range(g, g.voxels), g.mean)
                      or ""))
end

-- Prints a patient of OpenKBP: which grids exist, their volume and range.
local function patient(path)
  local p = core.data.openkbp(path)
  print(string.format("OpenKBP patient, 128x128x128, %s, axes ILP, %s in memory",
                      millimetres(p.spacing), util.bytes(p.bytes)))
  local cubic = p.spacing[1] * p.spacing[2] * p.spacing[3] / 1000
  local rows = { { "grid", "voxels", "ml", "range" } }
  for _, g in ipairs(p) do
    rows[#rows + 1] = g.has and { g.name, util.thousands(g.voxels),
                                  string.format("%.1f", g.voxels * cubic),
                                  range(g, g.mean and g.voxels or 0) }
                      or { g.name, "absent", "", "" }
  end
  print(show.table(rows))
end

-- The patients of OpenKBP directly below a folder; a list of names. A folder that cannot be opened
-- has none; the listing of its files reports the error.
local function patients_of(path)
  local ok, names = pcall(core.sys.list, path)
  local found = {}
  for _, name in ipairs(ok and names or {}) do
    if util.exists(path .. "/" .. name .. "/voxel_dimensions.csv") then
      found[#found + 1] = name
    end
  end
  table.sort(found)
  return found
end

-- Prints one line for each of the first patients, with the reason for a damaged one.
local function patients(path, found)
  local rows = { { "patient", "spacing", "ct voxels", "dose Gy", "structures" } }
  local bad = {}
  for i = 1, math.min(#found, LISTED) do
    local ok, p = pcall(core.data.openkbp, path .. "/" .. found[i])
    if ok then
      local there = 0
      for k = 4, #p do there = there + (p[k].has and 1 or 0) end
      rows[#rows + 1] = { found[i], millimetres(p.spacing), util.thousands(p[1].voxels),
                          p[2].has and range(p[2], p[2].voxels) or "absent", there }
    else
      rows[#rows + 1] = { found[i], "damaged", "", "", "" }
      bad[#bad + 1] = tostring(p)
    end
  end
  print(show.table(rows))
  if #found > LISTED then print(string.format("... and %d more", #found - LISTED)) end
  for _, why in ipairs(bad) do print("damaged: " .. why) end
  print(string.format("%d OpenKBP patients", #found))
end

local function pose(path)
  local p = core.data.biwi_pose(path)
  print(string.format("BIWI pose: yaw %.2f, pitch %.2f, roll %.2f degrees (pitch as in 300W-LP)",
                      p.yaw, p.pitch, p.roll))
  print(string.format("centre of the head %.1f %.1f %.1f mm", table.unpack(p.centre)))
end

local function camera(path)
  local c = core.data.biwi_camera(path)
  print(string.format("BIWI camera%s: focal length %.6g %.6g, centre %.6g %.6g pixels",
                      c.width > 0 and string.format(" of %dx%d pixels", c.width, c.height) or "",
                      c.focal[1], c.focal[2], c.principal[1], c.principal[2]))
  print(string.format("%d distortion coefficients, translation %.6g %.6g %.6g mm", #c.distortion,
                      table.unpack(c.translation)))
end

-- The first two lines of a file, cut where they are very long.
local function two_lines(path)
  local f = util.open_file(path)
  local text = f:read(4096) or ""
  f:close()
  return text:match("^([^\r\n]*)\r?\n?([^\n]*)")
end

-- Describes a file of these kinds. Returns false for any other name.
function M.file(path)
  local lower = path:lower()
  if lower:match("%.csv$") or lower:match("%.tsv$") then
    local first, second = two_lines(path)
    if first == ",data" then grid(path, second) else columns(path, first) end
  elseif lower:match("_pose%.txt$") then
    pose(path)
  elseif lower:match("%.cal$") then
    camera(path)
  else
    return false
  end
  return true
end

-- The same for a folder.
function M.folder(path)
  if util.exists(path .. "/voxel_dimensions.csv") then
    patient(path)
    return true
  end
  local found = patients_of(path)
  if #found > 0 then
    patients(path, found)
    print("\n" .. inspect_line.openkbp(path))
    return true
  end
  -- the challenge's own folder: train-pats, validation-pats, test-pats
  local lines = {}
  for _, name in ipairs(core.sys.list(path)) do
    local below = path .. "/" .. name
    local stat = core.sys.stat(below)
    local inside = stat and stat.kind == "folder" and patients_of(below) or {}
    if #inside > 0 then
      print(string.format("%s: %d OpenKBP patients, %s .. %s", name, #inside, inside[1],
                          inside[#inside]))
      lines[#lines + 1] = inspect_line.openkbp(below)
    end
  end
  if #lines > 0 then print("\n" .. table.concat(lines, "\n")) end
  return #lines > 0
end

return M
