-- incoming.lua -- opens the images of --in for prediction, without ground truth, and reads them as
-- training read its own files.

local choosing = require "seg.predict.choosing"
local config = require "seg.recipe.config"
local core = require "seg.core"
local data = require "seg.data.data"
local file_kind = require "seg.data.file_kind"
local files = require "seg.data.data_files"
local images = require "seg.data.data_images"
local reading = require "seg.data.reading"
local show = require "seg.show"
local util = require "seg.util"

local sys, fail = core.sys, util.fail
local M = {}

local SHOWN = 3 -- files that a note names

local is_nifti = core.data.nifti_is_name

-- Whether `test` accepts any file in a folder or below it. Hidden files do not count (macOS creates
-- one for each file).
local function holds(folder, test)
  local function wanted(name) return test(folder .. "/" .. name) end
  return #util.files_below(folder, wanted, true, {}) > 0
end

-- The options of a data set of this kind for --in: o, completed by the options of training.
local function read_as(kind, source, o)
  for key, v in pairs(source.options) do
    if o[key] == nil and reading.takes(kind, key) then o[key] = v end
  end
  -- a case without all the files that training had is left out, and counted (M.open)
  o.skip_unmatched = true
  return o
end

-- The images of a folder with NIfTI files.
local function nifti_folder(path, asked)
  local names = util.files_below(path, is_nifti, false, {})
  local patterns = choosing.choose(path, names, asked, "NIfTI files")
  local masks, left = choosing.masks_among(names, patterns or { "*" }, asked)
  local set = data.nifti(read_as("nifti", asked.source, {
    root = path, image = patterns or "*", patient = "file", skip_bad = true }))
  set.source.skip_bad = false -- cases run one by one, and failures are listed
  -- the keys of the files of each channel: a case needs a file for every channel
  local keys, drop, taken = {}, {}, {}
  for k, pattern in ipairs(patterns or {}) do
    keys[k] = {}
    for _, name in ipairs(names) do
      local key = choosing.nifti_key(name, pattern)
      if key and k == 1 and masks[name] then drop[key] = true end
      if key and not (k == 1 and masks[name]) then keys[k][key] = name end
    end
  end
  for key in pairs(keys[1] or {}) do drop[key] = nil end
  for _, of in ipairs(keys) do
    for key, name in pairs(of) do
      local whole = true
      for _, other in ipairs(keys) do whole = whole and other[key] ~= nil end
      taken[name] = whole or nil
    end
  end
  if left > 0 and patterns then
    set = set:filter(function(case) return not drop[case.key] end)
  end
  if patterns then
    asked.names, asked.taken = names, taken
    choosing.say_taken(asked, taken, names, patterns, "NIfTI files")
  end
  return set, "nifti"
end

-- Whether a folder has no subfolder. Then it is one series, named like the folder.
local function is_flat(path)
  for _, name in ipairs(sys.list(path)) do
    if (sys.stat(path .. "/" .. name) or {}).kind == "folder" then return false end
  end
  return true
end

-- The series of a folder (or file) that training would have taken. If `path` is the folder of a
-- single series, the series is taken whatever its name.
local function dicom_folder(path, asked)
  local file = sys.stat(path).kind == "file"
  local function open(image)
    local set = data.dicom(read_as("dicom", asked.source, { root = path, image = image,
                                                            skip_bad = not file }))
    set.source.skip_bad = false -- cases run one by one, and failures are listed
    return set
  end
  local wanted = asked.image or asked.kept
  local alone = file or is_flat(path)
  if not wanted or file then return open(nil), "dicom" end
  local why
  local ways = { wanted }
  if not asked.image and asked.foreign and #wanted == 1 then
    for _, one in ipairs(choosing.across(wanted[1])) do ways[#ways + 1] = { one } end
  end
  for _, way in ipairs(ways) do
    local set = open(way)
    local ok, said = pcall(set.dataset, set)
    if ok then return set, "dicom" end
    why = why or said
    if tostring(said):find(" series are \"", 1, true) then break end
    if not tostring(said):find("no study has the ", 1, true) then error(said, 0) end
  end
  -- Without --image the pattern is the one of training, from the recipe or the bundle. A single
  -- series is then taken even if its name does not match.
  if alone and not config.line.flags.image then
    local set = open(nil)
    local ok, ds = pcall(set.dataset, set)
    if ok and #ds:cases() == 1 then
      show.line('note: --in: the only series is taken; it is not named "%s", as the series of '
                .. 'training', table.concat(wanted, '", "'))
      return set, "dicom"
    end
  end
  core.sys.raise(core.sys.kind(why), util.without_fix(why) .. "; fix: --image NAME (description or "
    .. "folder, * is any text), or predict = { image = NAME } in the recipe", true)
end

-- Raises the error `why` of the DICOM reader. If the reader found no DICOM at all, the error names
-- the formats that these weights read, and the format of the file or folder.
local function say_what_is_read(path, asked, why)
  local file, source, all = sys.stat(path).kind == "file", asked.source, asked.all
  if not why:find(file and "dicom: not DICOM:" or "dicom: no DICOM image here", 1, true) then
    error(why, 0)
  end
  local reads = source.kind == "dicom" and "DICOM, and take NIfTI" or "NIfTI, and take DICOM"
  if file then
    local what = file_kind.of(path)
    fail("data", "--in %s: this is %s, and the weights need %s; fix: give such a file, or a folder "
         .. "of them", path, what == "image" and "a picture" or what and "a file " .. what
         or "neither NIfTI nor DICOM", reads)
  end
  fail("data", "--in %s: neither NIfTI nor DICOM images in it, and the weights need %s; there %s "
       .. "%s; fix: give the folder with the images", path, reads, #all == 1 and "is" or "are",
       util.first_of(all, SHOWN))
end

-- Opens a NIfTI file or a folder with NIfTI files, else DICOM. If a folder has both, as when
-- results lie next to their images, the format that the recipe was trained on is read.
local function scans(path, asked)
  local source = asked.source
  local stat = sys.stat(path)
  asked.foreign = source.kind ~= "nifti"
  if stat.kind == "file" and is_nifti(path) then
    return data.nifti(read_as("nifti", source, { root = path, patient = "file" })), "nifti"
  end
  if stat.kind == "folder" and holds(path, is_nifti)
    and not (source.kind == "dicom" and holds(path, core.data.dicom_is_file)) then
    return nifti_folder(path, asked)
  end
  asked.foreign = source.kind ~= "dicom"
  local ok, set, kind = pcall(dicom_folder, path, asked)
  local why = not ok and set or select(2, pcall(set.dataset, set))
  if type(why) == "string" then say_what_is_read(path, asked, why) end
  return set, kind
end

-- Other kinds of files -------------------------------------------------------

-- The folder that `path` means, and its files as paths relative to that folder: `path` itself, or
-- the files below it that `wanted` accepts. Subfolders that cannot be opened are added to `unread`.
local function list_files(path, wanted, what, unread)
  if sys.stat(path).kind == "file" then
    local folder, name = path:match("^(.*)/([^/]*)$")
    return folder or ".", { name or path }, true
  end
  local list = util.files_below(path, wanted, false, unread)
  if #list == 0 and unread[1] then fail("data", "%s", unread[1].why) end
  if #list == 0 then fail("data", "--in %s: no %s in it", path, what) end
  return path, list, false
end

-- Makes cases of the files of --in. In a folder, only files that match the image pattern of the
-- user or of training are taken, because masks may lie next to them. -> { {key=, patient=, image=},
-- ... }
local function file_cases(path, wanted, what, asked)
  local root, list, alone = list_files(path, wanted, what, asked.unread)
  local patterns = not alone and choosing.choose(path, list, asked, what) or { "*" }
  if #patterns > 1 then
    fail("usage", "--image: %s are read one a case; give one pattern, got %s", what,
         table.concat(patterns, ", "))
  end
  local masks, left = choosing.masks_among(list, patterns, asked)
  local rest = {}
  for _, name in ipairs(list) do
    if alone or left == 0 or not masks[name] then rest[#rest + 1] = name end
  end
  local cases = files.cases("predict", root, rest, { image = patterns[1], patient = "file" }, what)
  if not alone then
    local taken, below = {}, #root + 2
    for _, case in ipairs(cases) do taken[case.image:sub(below)] = true end
    asked.names, asked.taken = list, taken
    choosing.say_taken(asked, taken, list, patterns, what)
  end
  return cases
end

-- A data set of cases with one field, the input of the network.
local function one_field(field, cases, resample)
  return data.cases { fields = { field }, cases = cases, resample = resample }
end

local function picture_field(o) return images.field("image", "image", o) end

local function is_array(path) return path:lower():match("%.npy$") ~= nil end

-- One function for each way in which training read its files: (path, its options, asked) -> set,
-- kind of files. asked: wanted = {name of an input = node}, image = the recipe's predict.image,
-- source.
local open = {}

function open.images(path, o, asked)
  local cases = file_cases(path, file_kind.is_image, "images", asked)
  return one_field(picture_field(o), cases), "images"
end

-- A copy of `asked` for a folder of photographs. `pattern` is the image pattern of their data set,
-- or nil; it restricts the choice only if at least one file matches it.
local function photographs(path, asked, pattern)
  local list = select(2, list_files(path, file_kind.is_image, "images", {}))
  local found = false
  for _, name in ipairs(list) do
    found = found or pattern and files.matches_pattern(name, pattern)
  end
  return { image = asked.image, kept = found and { pattern } or nil, unread = asked.unread }
end

-- Crops faces from photographs as training did, by a file with this ending next to each photo:
-- box(file, options of the set) -> place. A photo without such a file is used whole.
local function faces(ending, box, pattern)
  return function(path, o, asked)
    local cases = file_cases(path, file_kind.is_image, "images", photographs(path, asked, pattern))
    local whole, alone, good, left_out = 0, sys.stat(path).kind == "file", {}, {}
    for _, case in ipairs(cases) do
      local box_file = case.image:gsub("%.%w+$", ""):gsub("_rgb$", "") .. ending
      local ok, place = true, false
      if sys.stat(box_file) then ok, place = pcall(box, box_file, o) end
      if not ok and (alone or sys.kind(tostring(place)) ~= "data") then error(place, 0) end
      if ok then
        case.image = place and { case.image, box = place } or case.image
        whole = whole + (place and 0 or 1)
        good[#good + 1] = case
      else
        left_out[#left_out + 1] = { kind = "damaged", path = box_file, why = tostring(place) }
      end
    end
    if not good[1] then fail("data", "%s", left_out[1].why) end
    if whole > 0 then
      show.line("--in: %s without a %s with the box of the face: the whole image is taken",
                util.plural(whole, "photograph"), ending)
    end
    local set = one_field(picture_field(o), good)
    set.source.left_out = left_out
    return set, "images"
  end
end

open.w300lp = faces(".mat", function(mat, o) return images.face_box(mat, o.margin) end)
open.pointing04 = faces(".txt", function(txt, o) return images.pointed_box(txt, o.margin) end)

local biwi_faces = faces("_pose.txt", function(pose, o)
  return images.head_box(pose, o.face_mm)
end, "*_rgb")

function open.biwi(path, o, asked)
  if (o.face_mm or 0) > 0 then return biwi_faces(path, o, asked) end
  asked = photographs(path, asked, "*_rgb")
  local cases = file_cases(path, file_kind.is_image, "images", asked)
  return one_field(picture_field(o), cases), "images"
end

function open.npy(path, o, asked)
  local cases = file_cases(path, is_array, ".npy files", asked)
  local fields = { { name = "image", read = "npy", rank = o.rank, axes = o.axes } }
  if o.length then fields[2] = { name = "length", kind = "length" } end
  return data.cases { fields = fields, cases = cases }, "npy"
end

-- Refuses --image for a format in which it selects nothing.
local function refuse_pattern(why)
  if config.line.flags.image then util.refuse("--image: %s; leave it out", why) end
end

-- Patients of OpenKBP: one folder pt_N, or a folder of such folders.
function open.openkbp(path, _, asked)
  refuse_pattern("OpenKBP has its files called as the challenge does")
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
    fail("data", "--in %s: need the folder of a patient, or a folder of such folders", path)
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

-- Whether a file matches --image; true without --image.
local function is_asked(name, asked)
  for _, pattern in ipairs(asked.image or {}) do
    if files.matches_pattern(name, pattern) then return true end
  end
  return not asked.image
end

-- Images of nnU-Net: CASE_0000.nii.gz and the further channels of the case.
function open.nnunet(path, o, asked)
  local channels = asked.wanted.image.c
  local stat, list, seen = sys.stat(path), {}, {}
  if stat.kind == "file" then
    if channels > 1 then
      fail("usage", "--in %s: the network expects %d input channels, one file each; give their "
           .. "folder", path, channels)
    end
    list[1] = { key = util.stem((path:gsub("%.gz$", ""))), image = { path } }
  else
    for _, name in ipairs(util.names_in(path, is_nifti)) do
      local key, ending = name:match("^(.+)_%d%d%d%d(%..+)$")
      if key and is_nifti(name) and not seen[key] and is_asked(name, asked) then
        seen[key] = true
        local case = { key = key, image = {} }
        for i = 1, channels do
          case.image[i] = string.format("%s/%s_%04d%s", path, key, i - 1, ending)
        end
        list[#list + 1] = case
      end
    end
    if #list == 0 then
      fail("data", "--in %s: no file is called %s; fix: name its files CASE_0000.nii.gz, or give "
           .. "one file by its name", path, asked.image and "CASE_0000.nii.gz and as --image says"
           or "CASE_0000.nii.gz")
    end
  end
  for _, case in ipairs(list) do case.patient = case.key end
  local field = { name = "image", read = "nifti" }
  for key, v in pairs(o) do
    if reading.takes("field", key) then field[key] = v end
  end
  return one_field(field, list, o.resample), "nifti"
end

-- Selects the fields of a list of cases that the network uses. -> all of them; the only field that
-- is read from a file, or nil if there are other fields too; and the field of kind length.
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

-- A table with the columns of the training table. If only one field of files is used, its files can
-- be given directly.
function open.csv(path, o, asked)
  local fields, field, length = fed(o.fields, asked.wanted)
  local box = false
  for _, f in ipairs(fields) do
    box = box or f.box ~= nil
    if f.boxed then
      fail("usage", 'predict: field "%s" is cropped by a function of the script (box), and the '
           .. 'script reads other data now; fix: --data DIR, as in training',
           f.name)
    end
  end
  local stat = sys.stat(path)
  local folder, name = path:match("^(.*)/([^/]*)$")
  if stat.kind == "folder" then
    folder, name = path, o.table and util.exists(path .. "/" .. o.table) and o.table or nil
  else
    name = path:lower():match("%.[ct]sv$") and (name or path) or nil
  end
  if name then
    refuse_pattern("a table names its files")
    local kind = fields[1].read or "table"
    return data.csv { root = folder or ".", table = name, separator = o.separator,
                      key = o.key, patient = "file", fields = fields, labels = o.labels },
           kind == "image" and "images" or kind
  end
  if box or not field then
    fail("usage", "--in %s: training read its images from a table%s; give a table like it, a file "
         .. ".csv, or a folder with %s", path, box and ", with a box for each" or "",
         o.table or "it")
  end
  return open.field(path, field, asked, length)
end

-- One field of files, read like the field of a list of cases. length: the field with the length of
-- each sequence, or nil.
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
                        cases = renamed(file_cases(path, test, what, asked)) }
  end
  if field.read == "image" then return set(file_kind.is_image, "images"), "images" end
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
        fail("usage", 'predict: the network has the inputs "%s" and "%s", which data.cases lists '
             .. 'by name; only networks with one input can predict new files', found.name,
             field.name)
      end
      found = field
    end
  end
  return open.field(path, found or o.fields[1], asked, length)
end

-- Whether predict can read this kind of data set.
function M.knows(kind) return type(open[kind]) == "function" end

-- The same cases, all of one patient: files of --in do not name their patient, and normalize { per
-- = "patient" } needs all cases of a patient together. The DICOM and OpenKBP readers find the
-- patients themselves and keep them.
local function of_one_patient(set, kind)
  if kind == "dicom" or kind == "openkbp" then return set end
  return set:map(function(case) return { key = case.key, patient = "in" } end)
end

-- The patterns of --image, else of predict = { image = }; nil without either.
local function asked_image(r)
  local flag, list = config.line.flags.image, {}
  if flag then
    for one in (flag .. ","):gmatch("([^,]*),") do list[#list + 1] = one ~= "" and one or nil end
    if #list == 0 then util.refuse("--image is empty; it needs a pattern, as *_T1w") end
    return list
  end
  local image = r.predict.image
  return type(image) == "string" and { image } or image
end

-- The facts of training that decide which images are taken. meta: the metadata of the weights at
-- `path`.
local function asked_of(r, wanted, meta, path)
  local kept = reading.parse(meta.read, path)
  local source, other = reading.merged(kept, r.train.source)
  for _, text in ipairs(other) do
    show.line("note: %s: files are read as the script says", text)
  end
  local made = source.made and source.made.options or {}
  local asked = { wanted = wanted, source = source, image = asked_image(r), unread = {} }
  -- a script that reads synthetic data says nothing about the files of the weights
  if kept or not source.synthetic then
    asked.kept = reading.list(made.image or source.options.image)
    asked.masks = reading.list(made.mask or source.options.mask)
  end
  asked.before = not kept
  return asked
end

-- Older weights hold no image pattern: prints the choice that is made instead.
local function say_before(asked)
  local taken = asked.image and "those that predict.image or --image names are taken"
    or asked.kept and "those that the script names are taken" or "every image of --in is taken"
  show.line("note: these weights were written by a version that did not record the images of "
            .. "training; %s; --image PATTERN chooses", taken)
end

-- The names of file formats in a sentence, by the result of file_kind.of.
local WORDS = { NIfTI = "NIfTI file", image = "image", [".npy"] = ".npy file",
                [".npz"] = ".npz file", DICOM = "DICOM" }
-- The format that is read from a folder, by the kind of results, as file_kind.of names it.
local READ = { nifti = "NIfTI", dicom = "DICOM", images = "image", npy = ".npy" }

-- The files of `all` in the folder of --in that have another format than `kind`. -> { NIfTI =
-- paths, ..., DICOM = folders }
local function of_other_formats(path, kind, all)
  local found, opened = {}, {}
  for _, name in ipairs(all) do
    local what, place = file_kind.of(name), name
    if not what and kind ~= "dicom" then
      place = name:match("^(.*)/[^/]*$") or "."
      what = not opened[place] and core.data.dicom_is_file(path .. "/" .. name) and "DICOM" or nil
      opened[place] = opened[place] or what ~= nil
    end
    if WORDS[what] and what ~= READ[kind] then
      found[what] = found[what] or {}
      table.insert(found[what], place)
    end
  end
  return found
end

-- Prints which files in the folder of --in are not cases, and adds them to source.left_out of the
-- set.
local function add_left_out(path, set, kind, asked)
  set:dataset() -- fills the list source.left_out
  local list, lacking = set.source.left_out or {}, {}
  table.move(asked.unread, 1, #asked.unread, #list + 1, list)
  for _, l in ipairs(list) do
    if l.kind == "not taken" then lacking[#lacking + 1] = l.path end
  end
  for _, name in ipairs(asked.names or {}) do
    if not asked.taken[name] then
      list[#list + 1] = { kind = "not taken", path = path .. "/" .. name,
                          why = path .. "/" .. name .. ": not called as the images that are taken" }
    end
  end
  if #lacking > 0 then
    show.line("--in: %s left out, without the images that training took: %s",
              util.plural(#lacking, "study or patient", "studies or patients"),
              util.first_of(lacking, SHOWN))
  end
  local others = READ[kind] and of_other_formats(path, kind, asked.all) or {}
  for _, what in ipairs(util.sorted_keys(others)) do
    local names = others[what]
    for _, name in ipairs(names) do
      local place = name == "." and path or path .. "/" .. name
      list[#list + 1] = { kind = "foreign", path = place, why = string.format(
        "%s: %s, and %s is read here", place, what, READ[kind]) }
    end
    show.line("note: --in: %s left out, as %s is read here: %s",
              what == "DICOM" and util.plural(#names, "folder") .. " with DICOM"
              or util.plural(#names, WORDS[what]), READ[kind], util.first_of(names, SHOWN))
  end
  set.source.left_out = list
end

-- Opens the images to predict. r: the recipe; wanted: the inputs that its outputs need, by name;
-- meta: the metadata of the weights at `weights`. -> set; the format of the results: "nifti",
-- "dicom", "images", "npy", "openkbp" or "table" (numbers alone); the source of their files
function M.open(path, r, wanted, meta, weights)
  local stat = sys.stat(path)
  if not stat then fail("data", "--in %s: there is no such file or folder", path) end
  local function any() return true end
  local all = stat.kind == "folder" and util.files_below(path, any, true, {}) or {}
  if stat.kind == "folder" and #all == 0 then
    fail("data", "--in %s is empty; fix: give the folder with the images", path)
  end
  local asked = asked_of(r, wanted, meta, weights)
  asked.all = all
  if asked.before and stat.kind == "folder" then say_before(asked) end
  local made = asked.source.made
  local read = made and open[made.kind] or function() return scans(path, asked) end
  local set, kind = read(path, made and made.options, asked)
  if util.per_patient(r.train.steps) then set = of_one_patient(set, kind) end
  if stat.kind == "folder" then add_left_out(path, set, kind, asked) end
  return set, kind, asked.source
end

return M
