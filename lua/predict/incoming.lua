-- incoming.lua -- new files that a network is to see, read as those that it was
-- trained on: the images of --in, without any truth.

local core = require "seg.core"
local data = require "seg.data"
local files = require "seg.data_files"
local images = require "seg.data_images"
local util = require "seg.util"

local sys, fail = core.sys, util.fail
local M = {}

local is_nifti = core.data.nifti_is_name

-- Whether a file that `test` accepts lies in a folder or below it.
local function holds(folder, test)
  for _, name in ipairs(util.names_in(folder)) do
    local path = folder .. "/" .. name
    local stat = sys.stat(path)
    if stat and stat.kind == "folder" then
      if holds(path, test) then return true end
    elseif test(path) then
      return true
    end
  end
  return false
end

-- Options of a data set that say how its files are read, by what --in holds.
local reading = {
  nifti = { "form", "assume_spacing", "channels", "resample", "skip_unmatched" },
  dicom = { "assume_hu", "resample_tilt", "assume_implicit_le", "position_tolerance", "resample",
            "skip_unmatched" },
}

-- The options of a data set of --in: these, and as training read its files.
local function read_as(kind, source, o)
  for _, key in ipairs(reading[kind]) do o[key] = source.options[key] end
  return o
end

-- A NIfTI file or a folder with NIfTI files, else DICOM. Of a folder with both, as
-- it is when results lie beside their images, the format that the recipe was
-- trained on.
local function scans(path, o)
  local source, image = o.source, o.image
  local stat = sys.stat(path)
  if stat.kind == "file" and is_nifti(path) then
    return data.nifti(read_as("nifti", source, { root = path, patient = "file" })), "nifti"
  end
  if stat.kind == "folder" and holds(path, is_nifti)
    and not (source.kind == "dicom" and holds(path, core.data.dicom_is_file)) then
    return data.nifti(read_as("nifti", source, { root = path, image = image or "*",
                                                 patient = "file" })), "nifti"
  end
  return data.dicom(read_as("dicom", source, { root = path, image = image })), "dicom"
end

-- Files of a kind, one by one ------------------------------------------------

-- The folder and the files below it, by paths below it, that `path` means: itself,
-- or what of a folder `wanted` accepts.
local function list_files(path, wanted, what)
  if sys.stat(path).kind == "file" then
    local folder, name = path:match("^(.*)/([^/]*)$")
    return folder or ".", { name or path }
  end
  local list = util.files_below(path, wanted)
  if #list == 0 then fail("data", "--in %s: no %s in it", path, what) end
  return path, list
end

-- Cases of the files of --in. Of a folder those that are called as the images of
-- training are (or predict = { image = ... } says), when any is: masks may lie
-- beside them. -> { {key=, patient=, image=}, ... }
local function file_cases(path, wanted, what, pattern)
  local root, list = list_files(path, wanted, what)
  local glob = "*"
  if #list > 1 and type(pattern) == "string" then
    for _, name in ipairs(list) do
      if files.matches_pattern(name, pattern) then glob = pattern end
    end
  end
  return files.cases("predict", root, list, { image = glob, patient = "file" }, what)
end

-- A set of cases with one field, the input that is fed.
local function one_field(field, cases, resample)
  return data.cases { fields = { field }, cases = cases, resample = resample }
end

local function picture_field(o, name)
  return { name = name or "image", read = "image", alpha = o.alpha, exif = o.exif, page = o.page,
           trailing = o.trailing }
end

local function is_array(path) return path:lower():match("%.npy$") ~= nil end

-- One function for each way in which training read its files: (path, its options,
-- what is asked) -> set, kind of files. asked: wanted = {name of an input = node},
-- image = the recipe's predict.image, source.
local open = {}

function open.images(path, o, asked)
  local cases = file_cases(path, images.is_image, "images", asked.image or o.image)
  return one_field(picture_field(o), cases), "images"
end

-- Faces of photographs, cut as training cut them by a file that lies beside each, with
-- this ending: box(file, options of the set) -> place. One without is taken whole.
local function faces(ending, box, pattern)
  return function(path, o)
    local cases = file_cases(path, images.is_image, "images", pattern)
    local whole = 0
    for _, case in ipairs(cases) do
      local beside = case.image:gsub("%.%w+$", ""):gsub("_rgb$", "") .. ending
      local place = sys.stat(beside) and box(beside, o)
      case.image = place and { case.image, box = place } or case.image
      whole = whole + (place and 0 or 1)
    end
    if whole > 0 then
      require("seg.show").line("--in: %s without a %s that says where the face is: taken whole",
                               util.plural(whole, "photograph"), ending)
    end
    return one_field(picture_field(o), cases), "images"
  end
end

open.w300lp = faces(".mat", function(mat, o) return images.face_box(mat, o.margin) end)
open.pointing04 = faces(".txt", function(txt, o) return images.pointed_box(txt, o.margin) end)

local biwi_faces = faces("_pose.txt", function(pose, o)
  return images.head_box(pose, o.face_mm)
end, "*_rgb")

function open.biwi(path, o)
  if o.face_mm > 0 then return biwi_faces(path, o) end
  return one_field(picture_field(o), file_cases(path, images.is_image, "images", "*_rgb")), "images"
end

function open.npy(path, o, asked)
  local cases = file_cases(path, is_array, ".npy files", asked.image or o.image)
  local fields = { { name = "image", read = "npy", rank = o.rank, axes = o.axes } }
  if o.length then fields[2] = { name = "length", kind = "length" } end
  return data.cases { fields = fields, cases = cases }, "npy"
end

-- Patients of OpenKBP: a folder pt_N, or one of such folders.
function open.openkbp(path, _, asked)
  local fields, cases = {}, {}
  for _, name in ipairs { "ct", "structures", "possible", "beams" } do
    if asked.wanted[name] then
      fields[#fields + 1] = { name = name, kind = name ~= "ct" and "value" or nil,
                              read = "openkbp_" .. name }
    end
  end
  local function add(name, folder)
    local case = { key = name, patient = name }
    for _, field in ipairs(fields) do case[field.name] = folder end
    cases[#cases + 1] = case
  end
  if sys.stat(path).kind ~= "folder" then
    fail("data", "--in %s: want the folder of a patient, or one of such folders", path)
  end
  if util.exists(path .. "/ct.csv") then
    add(util.stem(path), path)
  else
    for _, name in ipairs(sys.list(path)) do
      if name:match("^pt_%d+$") then add(name, path .. "/" .. name) end
    end
  end
  if #cases == 0 then
    fail("data", "--in %s: it has no ct.csv, and no folder in it is called pt_N", path)
  end
  return data.cases { fields = fields, cases = cases }, "openkbp"
end

-- Images of nnU-Net: CASE_0000.nii.gz and the further channels of the case.
function open.nnunet(path, o, asked)
  local channels = asked.wanted.image.c
  local stat, list, seen = sys.stat(path), {}, {}
  if stat.kind == "file" then
    if channels > 1 then
      fail("usage", "--in %s: the network wants %d channels, which are as many files; give their "
           .. "folder", path, channels)
    end
    list[1] = { key = util.stem((path:gsub("%.gz$", ""))), image = { path } }
  else
    for _, name in ipairs(util.names_in(path, is_nifti)) do
      local key, ending = name:match("^(.+)_%d%d%d%d(%..+)$")
      if key and is_nifti(name) and not seen[key] then
        seen[key] = true
        local case = { key = key, image = {} }
        for i = 1, channels do
          case.image[i] = string.format("%s/%s_%04d%s", path, key, i - 1, ending)
        end
        list[#list + 1] = case
      end
    end
    if #list == 0 then fail("data", "--in %s: no file is called CASE_0000.nii.gz", path) end
  end
  for _, case in ipairs(list) do case.patient = case.key end
  return one_field({ name = "image", read = "nifti", form = o.form,
                     assume_spacing = o.assume_spacing }, list, o.resample), "nifti"
end

-- Of the fields of a list of cases those that are fed: all of them, the only one that
-- is read from a file, or nil where there are others too, and the one of kind length.
local function fed(fields, wanted)
  local list, file, length = {}, nil, nil
  for _, field in ipairs(fields) do
    if field.kind == "length" then
      length = field
      list[#list + 1] = field
    elseif wanted[field.name] then
      file = #list == (length and 1 or 0) and field.read and field or nil
      list[#list + 1] = field
    end
  end
  return list, file, length
end

-- A table as that of training, or where one field of files is fed also its files.
function open.csv(path, o, asked)
  local fields, field, length = fed(o.fields, asked.wanted)
  local box = false
  for _, f in ipairs(fields) do box = box or f.box ~= nil end
  local stat = sys.stat(path)
  local folder, name = path:match("^(.*)/([^/]*)$")
  if stat.kind == "folder" then
    folder, name = path, o.table and util.exists(path .. "/" .. o.table) and o.table or nil
  elseif not path:lower():match("%.[ct]sv$") then
    name = nil
  end
  if name or stat.kind == "file" and path == name then
    local kind = fields[1].read or "table"
    return data.csv { root = folder or ".", table = name or path, separator = o.separator,
                      key = o.key, patient = "file", fields = fields, labels = o.labels },
           kind == "image" and "images" or kind
  end
  if box or not field then
    fail("usage", "--in %s: training took its images by a table%s; give one like it, a file .csv, "
         .. "or a folder with %s", path, box and ", with the part of each that counts" or "",
         o.table or "it")
  end
  return open.field(path, field, asked, length)
end

-- One field of files, read as the field of a list of cases; `length`: the field that
-- says how long each is, or nil.
function open.field(path, field, asked, length)
  local alone = {}
  for k, v in pairs(field) do alone[k] = v end
  alone.column, alone.columns, alone.kind, alone.box = nil, nil, nil, nil
  local function renamed(cases)
    for _, case in ipairs(cases) do
      case[field.name], case.image = case.image, field.name == "image" and case.image or nil
    end
    return cases
  end
  local function set(test, what)
    return data.cases { fields = { alone, length },
                        cases = renamed(file_cases(path, test, what, asked.image)) }
  end
  if field.read == "image" then return set(images.is_image, "images"), "images" end
  if field.read == "npy" then return set(is_array, ".npy files"), "npy" end
  return scans(path, asked)
end

function open.cases(path, o, asked)
  local found, length
  for _, field in ipairs(o.fields) do
    if field.kind == "length" then
      length = field
    elseif asked.wanted[field.name] then
      if found then
        fail("usage", 'predict: the network is fed "%s" and "%s", which data.cases lists by name; '
             .. "only networks fed by one field can be given new files", found.name, field.name)
      end
      found = field
    end
  end
  return open.field(path, found or o.fields[1], asked, length)
end

-- Whether files that training read so can be read.
function M.knows(kind) return type(open[kind]) == "function" end

-- The same cases, all of one patient: files of --in do not say whose they are, and
-- normalize { per = "patient" } needs all of a patient together. Readers that find
-- patients themselves keep theirs.
local function of_one_patient(set, kind)
  if kind == "dicom" or kind == "openkbp" then return set end
  return set:map(function(case) return { key = case.key, patient = "in" } end)
end

-- Images to predict. r: the recipe; wanted: the inputs that its outputs need, by
-- name. -> set, how its results are written: "nifti", "dicom", "images", "npy",
-- "openkbp" or "table" (of numbers alone)
function M.open(path, r, wanted)
  if not sys.stat(path) then fail("data", "--in %s: there is no such file or folder", path) end
  local source = r.train.source
  local asked = { wanted = wanted, image = r.predict.image, source = source }
  local made, set, kind = source.made
  if made then
    set, kind = open[made.kind](path, made.options, asked)
  else
    set, kind = scans(path, asked)
  end
  if util.per_patient(r.train.steps) then set = of_one_patient(set, kind) end
  return set, kind
end

return M
