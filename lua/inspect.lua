-- inspect.lua -- what a file or folder is: geometry, statistics, preview.

local core = require "seg.core"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

-- A gray picture in the terminal: two rows of pixels a line, by half blocks
-- whose letter is the upper pixel and whose ground the lower; nothing where
-- colours are not wanted or stdout is no terminal.
local function preview(array, lo, hi)
  local no_color = os.getenv("NO_COLOR")
  if not core.sys.terminal(true) or (no_color and no_color ~= "") then return end
  local h, w = array.shape[1], array.shape[2]
  local columns = math.min(core.sys.terminal(true) - 1, 64)
  local rows = math.max(math.floor(columns * h / w / 2), 1)
  local function gray(r, c, of)
    local y = math.min(math.floor((r - 0.5) * h / of) + 1, h)
    local x = math.min(math.floor((c - 0.5) * w / columns) + 1, w)
    local v = (array:get(y, x) - lo) / math.max(hi - lo, 1e-30)
    return math.floor(math.max(0, math.min(1, v)) * 255)
  end
  for r = 1, rows do
    local line = {}
    for c = 1, columns do
      local top, bottom = gray(2 * r - 1, c, 2 * rows), gray(2 * r, c, 2 * rows)
      line[c] = string.format("\27[38;2;%d;%d;%dm\27[48;2;%d;%d;%dm▀", top, top, top, bottom,
                              bottom, bottom)
    end
    print(table.concat(line) .. "\27[0m")
  end
end

-- One volume: geometry, statistics, its middle slice.
local function volume(v)
  local s = v:stats()
  print(tostring(v))
  print(string.format("%s, %s voxels, %.6g .. %.6g, mean %.6g, sd %.6g, %.1f %% not 0", s.type,
                      util.thousands(s.voxels), s.min, s.max, s.mean, s.sd, 100 * s.nonzero))
  local slices = math.tointeger(tonumber(tostring(v):match("^%d+x%d+x(%d+)"))) or 1
  -- a few bright voxels would leave the rest of the picture black
  preview(v:slice((slices + 1) // 2), s.min, s.mean + 3 * s.sd)
end

local function array(path)
  local a = core.array.load(path)
  local lo, hi, mean = a:stats()
  print(string.format("%s, %.6g .. %.6g, mean %.6g", tostring(a), lo, hi, mean))
end

-- A safetensors file of this program or another. -> exit code
local function checkpoint(path)
  local list, count = core.checkpoint.tensors(path), 0
  local rows = { { "tensor", "type", "shape" } }
  for _, t in ipairs(list) do
    rows[#rows + 1] = { t.name, t.type, table.concat(t.shape, "x") }
    local n = 1
    for _, e in ipairs(t.shape) do n = n * e end
    count = count + n
  end
  print(show.table(rows))
  local ok, why = core.checkpoint.verify(path)
  local meta = ok and core.checkpoint.meta(path) or {}
  -- only our own files carry checksums
  print(string.format("%d tensors, %s elements; %s", #list, util.thousands(count), not ok and why
                      or meta.format and "checksums are right" or "no checksums"))
  for _, key in ipairs { "format", "recipe", "epoch", "batch", "best", "best_epoch", "outputs" } do
    if meta[key] then print(string.format("%-11s %s", key, meta[key])) end
  end
  return ok and 0 or 3
end

-- One line a series, and the line to paste into a recipe: a guess by the names
-- that people give to masks. One image series alone is described instead.
local function dicom(path)
  local scan, list = core.data.scan(path)
  local rows = { { "patient", "modality", "description", "kind", "size", "files", "folder" } }
  for _, s in ipairs(list) do
    rows[#rows + 1] = { s.patient, s.modality, s.description, s.kind,
                        string.format("%dx%d", s.cols, s.rows), s.count, s.folder }
  end
  print(show.table(rows))
  if #list == 1 and list[1].kind == "image" then
    local v, notes = scan:load(1)
    volume(v)
    io.stdout:write(notes)
    return 0
  end
  -- the series that most patients have, and what looks like its mask
  local count, image, mask = {}, nil, nil
  for _, s in ipairs(list) do count[s.description] = (count[s.description] or 0) + 1 end
  for _, name in ipairs(util.sorted_keys(count)) do
    local lower = name:lower()
    if lower:match("mask") or lower:match("seg") or lower:match("roi") then
      if not mask or count[name] > count[mask] then mask = name end
    elseif not image or count[name] > count[image] then
      image = name
    end
  end
  if not image then return 0 end
  print(string.format('\ndata.dicom { root = "%s", image = "%s"%s }', path, image,
                      mask and string.format(', mask = "%s"', mask) or ""))
  return 0
end

-- inspect: the command. What a file is, is told by its name, of DICOM by its
-- content, since DICOM files have any name.
function M.command(path)
  if not path then util.fail("usage", "inspect wants a PATH") end
  local stat = core.sys.stat(path)
  if not stat then util.fail("data", "%s: there is no such file or folder", path) end
  if stat.kind == "folder" then return dicom(path) end
  local lower = path:lower()
  if lower:match("%.nii$") or lower:match("%.nii%.gz$") or lower:match("%.hdr$") then
    volume(core.data.read_nifti(path))
  elseif lower:match("%.npy$") then
    array(path)
  elseif lower:match("%.safetensors$") then
    return checkpoint(path)
  elseif core.data.dicom_is_file(path) then
    return dicom(path)
  else
    util.fail("data", "%s: is no file that segengine reads (DICOM, NIfTI, .npy, .safetensors)",
              path)
  end
  return 0
end

return M
