-- inspect.lua -- the command inspect: describes a file or folder: geometry, statistics, preview.

local bundle = require "seg.predict.bundle"
local core = require "seg.core"
local file_kind = require "seg.data.file_kind"
local inspect_line = require "seg.inspect.inspect_line"
local inspect_run = require "seg.inspect.inspect_run"
local inspect_table = require "seg.inspect.inspect_table"
local leftovers = require "seg.data.leftovers"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

local LISTED = 20 -- files of a folder that are listed
local LOOKED_AT = 2000 -- most headers that are read to find damaged files

-- Options to read any image file, even if a data set would ask for a choice.
local LENIENT = { alpha = "drop", trailing = true, exif = "apply", page = 1 }

-- Prints a gray picture in the terminal: two rows of pixels a line, with half blocks: the
-- foreground colour is the upper pixel and the background the lower. Prints nothing if colours are
-- off or stdout is no terminal.
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

-- Prints a volume: geometry (or the text `about`), statistics, its middle slice.
local function volume(v, about)
  local s = v:stats()
  print(about or tostring(v))
  print(string.format("%s, %s voxels, %.6g .. %.6g, mean %.6g, sd %.6g, %.1f %% not 0", s.type,
                      util.thousands(s.voxels), s.min, s.max, s.mean, s.sd, 100 * s.nonzero))
  local slices = math.tointeger(tonumber(tostring(v):match("^%d+x%d+x(%d+)"))) or 1
  -- an upper limit keeps a few bright voxels from making the rest black
  preview(v:slice((slices + 1) // 2), s.min, s.mean + 3 * s.sd)
end

-- Whether a PNG or JPEG has its end marker: an interrupted copy lacks it, although its header is
-- complete.
local function has_end(path, format)
  local mark = ({ PNG = "IEND\xAE\x42\x60\x82", JPEG = "\xFF\xD9" })[format]
  local f = mark and io.open(path, "rb")
  if not f then return true end
  f:seek("end", -#mark)
  local right = f:read(#mark) == mark
  f:close()
  return right
end

-- One line about an image file.
local function image_text(path)
  local i = core.data.image_probe(path, LENIENT)
  -- a file without its end is read, which raises an error if it is damaged
  if not has_end(path, i.format) then core.data.read_image(path, LENIENT) end
  local text = string.format("%s, %d x %d pixels, %d channel%s, %d bit%s", i.format, i.w, i.h,
                             i.channels, i.channels > 1 and "s" or "", i.bits,
                             i.bits > 1 and "s" or "")
  if i.kind == "f" then text = text .. " (float)" end
  if i.kind == "i" then text = text .. " (with sign)" end
  if i.palette then text = text .. ", palette" end
  if i.alpha then text = text .. ", alpha" end
  if i.pages > 1 then text = text .. ", " .. i.pages .. " pages" end
  if i.orientation > 1 then text = text .. ", orientation " .. i.orientation end
  return text
end

-- Prints a photograph or mask, and the error with which a data set would refuse it.
local function show_image(path)
  local text = image_text(path)
  local v = core.data.read_image(path, LENIENT)
  volume(v, text)
  local ok, why = pcall(core.data.read_image, path)
  if not ok then print("as it is, a recipe refuses it: " .. tostring(why)) end
end

local function array(path)
  local a = core.array.load(path)
  local lo, hi, mean = a:stats()
  print(string.format("%s, %.6g .. %.6g, mean %.6g", tostring(a), lo, hi, mean))
end

-- "2x3"; an array without axes is "one number".
local function shape_text(shape)
  return #shape > 0 and table.concat(shape, "x") or "one number"
end

-- Prints the arrays of an archive, with the reason if one cannot be read. -> exit code
local function archive(path)
  local list, code = core.array.list(path), 0
  local rows = { { "array", "type", "shape", "" } }
  for _, a in ipairs(list) do
    local shape = #a.shape == 0 and a.why and "-" or shape_text(a.shape)
    local why = a.why and "not read" or ""
    -- MATLAB types that are not numbers are not an error; the row names file and array already
    if not a.type then code, why = 3, "refused: " .. (a.why:match(": npy: (.*)") or a.why) end
    rows[#rows + 1] = { a.name, a.type or "?", shape, why }
  end
  print(show.table(rows))
  print(string.format("%d array%s", #list, #list == 1 and "" or "s"))
  return code
end

-- A file of prepared cases, made by --cache_file.
local function store(path)
  local s = core.data.store_stats(path)
  print(string.format("prepared cases of --cache_file: %s, %s%s", util.thousands(s.cases),
                      util.bytes(s.bytes), s.current and "" or " (of another version of segengine, "
                      .. "or damaged: the next run begins it anew)"))
  print("they hold images of patients; remove the file when it is not needed")
end

-- A safetensors file of this program or another. -> exit code
local function checkpoint(path)
  local list, count = core.checkpoint.tensors(path), 0
  local rows = { { "tensor", "type", "shape" } }
  for _, t in ipairs(list) do
    rows[#rows + 1] = { t.name, t.type, table.concat(t.shape, "x") }
    count = count + util.product(t.shape)
  end
  print(show.table(rows))
  local ok, why = core.checkpoint.verify(path)
  local meta = ok and core.checkpoint.meta(path) or {}
  -- only files of this program have checksums
  print(string.format("%d tensors, %s elements; %s", #list, util.thousands(count), not ok and why
                      or meta.format and "checksums are right" or "no checksums"))
  for _, key in ipairs { "format", "recipe", "epoch", "batch", "best", "best_epoch", "outputs" } do
    if meta[key] then print(string.format("%-11s %s", key, meta[key])) end
  end
  for _, row in ipairs(meta.bundle and bundle.about(meta, path) or {}) do
    print(string.format("%-11s %s", row[1], row[2]))
  end
  return ok and 0 or 3
end

-- A segmentation object: its grid, and the number of frames of each segment; a structure set has
-- contours and no grid.
local function segmentation(scan, number)
  local about, segments = scan:segments(number)
  local contours = about.type == "RTSTRUCT"
  if about.grid then print(about.grid) end
  print(string.format(contours and "structure set, %d contours" or about.type
                      .. " segmentation, %d frames", about.frames))
  local rows = { contours and { "region", "number", "contours" }
                 or { "label", "segment", "frames" } }
  for _, g in ipairs(segments) do rows[#rows + 1] = { g.label, g.number, g.frames } end
  print(show.table(rows))
end

-- Prints the proposed line of a recipe, or the reason why there is none.
local function propose(paste, why)
  if paste then print("\n" .. paste) end
  if not paste and why then print("\nno line of a recipe opens this as it is: " .. why) end
end

-- Whether two series of a study have the same description, or none: then their numbers are shown.
local function alike(list)
  local seen = {}
  for _, s in ipairs(list) do
    local id = table.concat({ s.patient, s.study, s.description }, "\0")
    if seen[id] then return true end
    seen[id] = true
  end
  return false
end

-- The text of an error: the file is damaged, or this user may not read it.
local function damage(why)
  return (leftovers.is_locked(why) and "not readable: " or "damaged: ") .. why
end

-- Prints the files that a scan left out: all damaged files, and the first few that are no images.
-- -> number of damaged files
local function say_left_out(list)
  local rows, count = {}, 0
  leftovers.each(list or {}, LISTED, function(damaged, text)
    rows[#rows + 1] = damaged and damage(text) or "left out: " .. text
    count = count + (damaged and 1 or 0)
  end)
  if #rows > 0 then print("\n" .. table.concat(rows, "\n")) end
  return count
end

-- Prints one line a series, and the line to paste into a recipe. A single series is described
-- instead. left_out: from the scan of a folder. -> exit code: 3 if a file is damaged
local function dicom(path, scan, list, left_out)
  local rows = { { "patient", "modality", "description", "kind", "size", "files", "folder" } }
  local numbers = alike(list)
  if numbers then table.insert(rows[1], 2, "series") end
  for _, s in ipairs(list) do
    local row = { s.patient, s.modality, s.description, s.kind,
                  string.format("%dx%d", s.cols, s.rows), s.count,
                  s.folder .. (s.damaged and " (a file of it is damaged)" or "") }
    if numbers then table.insert(row, 2, s.number) end
    rows[#rows + 1] = row
  end
  print(show.table(rows))
  local bad = say_left_out(left_out)
  local code = bad > 0 and 3 or 0
  local alone = #list == 1 and not list[1].damaged and list[1].kind
  if alone == "image" or alone == "multi-frame" or alone == "dose" then
    local ok, v, notes = pcall(scan.load, scan, 1)
    -- a blank slice at the end of a series is no error
    local blank = not ok and list[1].count == 1 and tostring(v):match("all %d+ voxels are %S+")
    if blank then
      print(string.format("%s: %s: a slice without content; one in a volume is fine, a data set "
                          .. "refuses a volume of such slices alone", path, blank))
      return code
    end
    if not ok and left_out then
      print("not read: " .. tostring(v))
      return 3
    elseif not ok then
      error(v, 0)
    end
    volume(v)
    io.stdout:write(notes)
    return code
  end
  if alone then
    segmentation(scan, 1)
    return code
  end
  local pictures = inspect_line.pictures(list)
  if pictures then print("\n" .. pictures) end
  local one = inspect_line.one_patient(list)
  if one then print("\n" .. one) end
  propose(inspect_line.dicom(path, scan, list, bad > 0))
  return code
end

local KINDS = { "NIfTI", ".npy", ".npz", ".mat", "image" }

-- The header of a file in one line.
local function about(kind, path)
  if kind == "NIfTI" then return core.data.nifti_text(path) end
  if kind == "image" then return image_text(path) end
  local list, names = core.array.list(path), {}
  if kind == ".npy" then
    return string.format("array %s, %s", shape_text(list[1].shape), list[1].type)
  end
  for i, one in ipairs(list) do names[i] = one.name end
  return string.format("%d arrays: %s", #list, util.first_of(names, 6))
end

-- Errors of readers for intact files that are no image with one number a voxel, or have an
-- ambiguous or missing position.
local NOT_READ = { "intent code", "voxels are ", "several volumes in one file", "no orientation",
                   "sform and qform differ" }

-- The text for a file that is not read: damaged, or another reason. -> text, whether it is damaged
local function not_read(why)
  for _, words in ipairs(NOT_READ) do
    if why:find(words, 1, true) then return "not read: " .. why, false end
  end
  return damage(why), true
end

-- Lists the first files with a text about their headers, and all damaged files. unread: folders
-- that could not be opened. -> number of damaged files
local function list_files(root, found, unread)
  local rows, count, width, bad = {}, {}, 0, #unread
  for i, name in ipairs(found) do
    local kind, path = file_kind.of(name), root .. "/" .. name
    count[kind] = (count[kind] or 0) + 1
    local ok, text = true, nil
    if #rows < LISTED or i <= LOOKED_AT then ok, text = pcall(about, kind, path) end
    -- after the first files only damaged ones are listed
    local damaged = false
    if not ok then text, damaged = not_read(tostring(text)) end
    bad = bad + (damaged and 1 or 0)
    if not ok or #rows < LISTED then
      rows[#rows + 1] = { name, text }
      width = math.max(width, #name)
    end
  end
  local shown = #rows
  for _, l in ipairs(unread) do
    rows[#rows + 1] = { l.path:sub(#root + 2) .. "/", damage(l.why) }
    width = math.max(width, #rows[#rows][1])
  end
  for _, row in ipairs(rows) do print(row[1] .. (" "):rep(width + 2 - #row[1]) .. row[2]) end
  if #found > shown then print(string.format("... and %d more", #found - shown)) end
  local sums = {}
  for _, kind in ipairs(KINDS) do
    local n = count[kind]
    if n then sums[#sums + 1] = util.plural(n, kind .. " file") end
  end
  print(table.concat(sums, ", "))
  return bad
end

-- The number of files of each extension below a folder: "12 .txt, 3 without an ending".
local function endings_text(path)
  local count, names = {}, {}
  local all = util.files_below(path, function() return true end, true, {})
  for _, name in ipairs(all) do
    local ending = name:match("[^/](%.%w+)$") or "without an ending"
    if not count[ending] then names[#names + 1] = ending end
    count[ending] = (count[ending] or 0) + 1
  end
  table.sort(names, function(a, b) return count[a] == count[b] and a < b or count[a] > count[b] end)
  local list = {}
  for i = 1, math.min(#names, 8) do list[i] = count[names[i]] .. " " .. names[i] end
  if #names > 8 then list[9] = "others" end
  return #all, table.concat(list, ", ")
end

-- A folder without files of known names, which may hold DICOM.
local function unknown(path, unread)
  local ok, scan, list, left_out = pcall(core.data.scan, path, true)
  if ok then return dicom(path, scan, list, left_out) end
  if unread[1] then util.fail("data", "%s", unread[1].why) end
  local files, kinds = endings_text(path)
  if files == 0 then util.fail("data", "%s: is empty: there is no file in it or below it", path) end
  if not tostring(scan):find("no DICOM image here (0 DICOM", 1, true) then error(scan, 0) end
  util.fail("data", "%s: %s (%s), none of them an image or table that segengine reads (DICOM, "
            .. "NIfTI, .npy, .npz, .mat, PNG, JPEG, BMP, TIFF, OpenKBP); fix: the folder with the "
            .. "images", path, util.plural(files, "file"), kinds)
end

-- The entries of `list` that are not in `told`, compared by path.
local function but(list, told)
  local known, rest = {}, {}
  for _, l in ipairs(told) do known[l.path] = true end
  for _, l in ipairs(list) do rest[#rest + 1] = not known[l.path] and l or nil end
  return rest
end

-- A folder of images: DICOM by content, the rest by name. -> exit code: 3 if a file or folder is
-- damaged
local function folder(path)
  local unread = {}
  local found = util.files_below(path, file_kind.of, false, unread)
  if #found == 0 then return unknown(path, unread) end
  local code = list_files(path, found, unread) > 0 and 3 or 0
  propose(inspect_line.files(path, found, file_kind.of, code > 0))
  local ok, scan, list, left_out = pcall(core.data.scan, path, true)
  if ok then
    print(string.format("\nthis folder holds %d DICOM series as well:", #list))
    code = math.max(code, dicom(path, scan, list, but(left_out, unread)))
  elseif not tostring(scan):find("no DICOM", 1, true) then
    print("\nthis folder holds DICOM as well: " .. tostring(scan))
    code = 3
  end
  return code
end

-- Other formats found in such folders, by the ends of file names: the name of the format, and the
-- conversion to a supported one.
local foreign = {
  { "%.mg[hz]$", "an image of FreeSurfer", "mri_convert IN OUT.nii.gz" },
  { "%.mnc$", "MINC", "mnc2nii, or nibabel.load and nibabel.save as NIfTI" },
  { "%.par$", "the header of a Philips PAR/REC image", "parrec2nii IN.PAR" },
  { "%.rec$", "the image of a Philips PAR/REC pair", "parrec2nii IN.PAR" },
  { "%+%l+%.head$", "the header of an AFNI image", "3dAFNItoNIFTI IN+orig.HEAD" },
  { "%+%l+%.brik$", "an AFNI image", "3dAFNItoNIFTI IN+orig.HEAD" },
  { "%+%l+%.brik%.gz$", "an AFNI image", "3dAFNItoNIFTI IN+orig.HEAD" },
  { "%.nrrd$", "NRRD", "save it as NIfTI in 3D Slicer" },
  { "%.nhdr$", "NRRD", "save it as NIfTI in 3D Slicer" },
  { "%.mh[ad]$", "MetaImage", "save it as NIfTI, in ITK-SNAP or with SimpleITK.WriteImage" },
  { "%.gii$", "GIFTI, a surface, not an image", nil },
  { "%.trk$", "a tractogram, not an image", nil },
  { "%.tck$", "a tractogram, not an image", nil },
  { "%.dcm%.gz$", "a packed file", "gunzip" },
  { "%.h5$", "HDF5", "save arrays as .npy" },
  { "%.webp$", "WebP", "convert it to PNG" },
  { "%.img$", "the image of a pair whose header (.hdr next to it) is missing",
    "put both files there; Analyze without a header is not NIfTI" },
  { "%.nii%.%w+$", "NIfTI packed or renamed by a program", "unpack it to .nii, or pack it as "
    .. ".nii.gz" },
  { "%.raw$", "numbers without a header", "numpy.fromfile(...).reshape(...) and numpy.save" },
  { "%.vtk$", "VTK", "save it as NIfTI in 3D Slicer or ParaView" },
  { "%.zip$", "an archive", "unzip" },
  { "%.tgz$", "an archive", "tar xzf" },
  { "%.tar%.?%w*$", "an archive", "tar xf" },
  { "%.7z$", "an archive", "7z x" },
}

-- Whether a file is safetensors, by content, because bundles have any name: 8 bytes with the length
-- of a header, which fits into the file and begins with a brace.
local function is_safetensors(path, size)
  local f = io.open(path, "rb")
  local head = f and f:read(9) or ""
  if f then f:close() end
  if #head < 9 or head:byte(9) ~= 123 then return false end
  local header = string.unpack("<i8", head)
  return header > 0 and header <= size - 8
end

-- The path of the header for a file .img of a pair, or nil.
local function header_of(path)
  for _, ending in ipairs { ".hdr", ".HDR" } do
    local header = path:sub(1, -5) .. ending
    if util.exists(header) then return header end
  end
end

-- The command inspect. The kind of a file is found by its name; of DICOM and images by content,
-- because DICOM files have any name and names of images are often wrong.
function M.command(path)
  if not path then util.fail("usage", "inspect needs a PATH") end
  local stat = core.sys.stat(path)
  if not stat then util.fail("data", "%s: there is no such file or folder", path) end
  if stat.kind == "folder" then
    path = path:gsub("(.)/+$", "%1")
    if inspect_run.folder(path) or inspect_table.folder(path) then return 0 end
    return folder(path)
  end
  local file, why = io.open(path, "rb")
  if not file and leftovers.is_locked(why) then
    util.fail("data", "%s; fix: %s", why, leftovers.unlock)
  end
  if file then file:close() end
  local kind = file_kind.of(path)
  -- the image of a pair represents both files
  if kind == "NIfTI" or path:lower():match("%.img%.gz$")
     or path:lower():match("%.img$") and header_of(path) then
    volume(core.data.read_nifti(path))
  elseif kind == ".npy" then
    array(path)
  elseif kind == ".npz" or kind == ".mat" then
    return archive(path)
  elseif path:lower():match("%.safetensors$") or is_safetensors(path, stat.size) then
    return checkpoint(path)
  elseif core.data.is_store(path) then
    store(path)
  elseif path:lower():match("_depth%.bin$") then
    volume(core.data.read_biwi_depth(path))
  elseif inspect_table.file(path) then
    return 0
  elseif core.data.dicom_is_file(path) then
    local scan, list = core.data.scan(path)
    return dicom(path, scan, list)
  elseif kind == "image" or core.data.image_format(path) then
    show_image(path)
  else
    for _, row in ipairs(foreign) do
      local ending, what, fix = table.unpack(row, 1, 3)
      if path:lower():match(ending) then
        util.fail("data", "%s: %s, which is not read%s", path, what,
                  fix and "; fix: " .. fix or "")
      end
    end
    util.fail("data", "%s: is not a file that segengine reads (DICOM, NIfTI, .npy, .npz, .mat, "
              .. ".csv, .safetensors, PNG, JPEG, BMP, TIFF)", path)
  end
  return 0
end

return M
