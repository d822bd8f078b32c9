-- data_nnunet.lua -- folders of nnU-Net: dataset.json and the files of its cases.
--
-- Read like nnU-Net 2 (documentation/dataset_format.md, ignore_label.md, region_based_training.md;
-- get_filenames_of_train_images_and_targets of nnunetv2/utilities/utils.py), including the labels
-- of version 1, whose keys and values are swapped. An unsupported entry that would change which
-- voxels or cases are learnt is refused by name, never ignored.

local core = require "seg.core"
local json = require "seg.json"
local show = require "seg.show"
local util = require "seg.util"

local fail = util.fail
local M = {}

-- A label as a whole number, or nil. nnU-Net accepts "1" and 1.0 for 1.
local function whole(value)
  if type(value) == "string" then value = tonumber(value) end
  return type(value) == "number" and math.tointeger(value) or nil
end

-- Raises if a label is a region, which is a list of several labels.
local function check_regions(labels, bad)
  for _, name in ipairs(util.sorted_keys(labels)) do
    local value = labels[name]
    if type(value) == "table" and #value > 1 then
      local list = {}
      for i, v in ipairs(value) do list[i] = tostring(v) end
      bad('label "%s" is the region [%s], made of several labels, which is not supported; fix: '
          .. "give each label a name of its own in a copy of dataset.json", name,
          table.concat(list, ", "))
    end
  end
end

-- The name and number of an entry of "labels": version 2 has { "tumour": 1 }, version 1 { "1":
-- "tumour" }; a list of one number counts as that number.
local function label_of(name, value, bad)
  if type(value) == "table" and #value == 1 then value = value[1] end
  local number, other = whole(value), whole(name)
  if number and other and number ~= other and type(value) == "string" then
    bad('label "%s": "%s" is ambiguous; fix: { "name": number }', name, value)
  end
  if not number and other and type(value) == "string" then return value, other end
  if not number then
    bad('label "%s" is %s, want a whole number; fix: { "name": number } in dataset.json', name,
        type(value) == "string" and '"' .. value .. '"'
        or type(value) == "number" and util.number(value) or "a " .. type(value))
  end
  return tostring(name), number
end

-- The label values in files except 0, in rising order, and all names. say: print notes about
-- surprising labels.
local function labels_of(labels, bad, say)
  local by_value, values, names = {}, {}, {}
  check_regions(labels, bad)
  for _, key in ipairs(util.sorted_keys(labels)) do
    local name, value = label_of(key, labels[key], bad)
    if name == "ignore" then
      bad('label "ignore" (%d) marks voxels without annotation: it is not a class, and losses and '
          .. 'metrics do not leave such voxels out; fix: fully annotated cases, with a '
          .. 'dataset.json without "ignore"', value)
    end
    if name:lower() == "ignore" then
      say('label "%s" is an ordinary class: nnU-Net treats only "ignore" in lower case specially',
          name)
    end
    if value < 0 then
      bad('label "%s" is %d, want 0 or more; fix: the number that it has in the files of labels',
          name, value)
    end
    if name == "background" and value ~= 0 then
      bad('label "background" is %d, and the background is 0; fix: number the labels in '
          .. "dataset.json as the files of labels have them", value)
    end
    if by_value[value] then
      bad('labels "%s" and "%s" are both %d; fix: give each in dataset.json the number that it '
          .. "has in the files of labels", by_value[value], name, value)
    end
    by_value[value], names[#names + 1] = name, name
    if value ~= 0 then values[#values + 1] = value end
  end
  table.sort(values)
  for i, value in ipairs(values) do
    if value ~= i then
      say("labels %s are not 1, 2, ... without gaps, as nnU-Net requires: they become classes 1 to "
          .. "%d, and results have the labels again", table.concat(values, ", "), #values)
      break
    end
  end
  if #values == 0 then
    bad 'labels has only the background; fix: name each class in dataset.json, { "tumour": 1 }'
  end
  return values, names
end

-- The number of channels: their names have the keys "0", "1", ...
local function channels_of(channels, bad)
  local fix = 'fix: name every channel in dataset.json, "channel_names": { "0": "T1" }'
  if type(channels) ~= "table" then bad("channel_names is missing; %s", fix) end
  local count = 0
  for _ in pairs(channels) do count = count + 1 end
  if count == 0 then bad("channel_names is empty; %s", fix) end
  for i = 0, count - 1 do
    if channels[tostring(i)] == nil then
      bad('channel_names has no "%d"; fix: number its %s from "0" without gaps', i,
          util.plural(count, "channel"))
    end
  end
  return count
end

-- The reader of files with other extensions.
local OTHERS = { png = "images", bmp = "images", tif = "images", tiff = "images", jpg = "images",
                 npy = "npy" }

local function ending_of(ending, bad)
  if ending == nil then return ".nii.gz" end
  if type(ending) ~= "string" then
    bad('file_ending is a %s, want a text; fix: "file_ending": ".nii.gz"', type(ending))
  end
  local kind = OTHERS[(ending:match("([^.]*)$") or ""):lower()]
  if kind then
    bad('file_ending is "%s", and nnU-Net data is read as NIfTI only; fix: data.%s { root =, '
        .. 'image = "imagesTr/*_0000", mask = "labelsTr/*", labels = ..., patient = "file" }',
        ending, kind)
  end
  if not core.data.nifti_is_name("x" .. ending) then
    bad('file_ending is "%s", and NIfTI is read (.nii, .nii.gz); fix: convert the files, for '
        .. "example with SimpleITK, and write the new ending", ending)
  end
  return ending
end

-- Reads dataset.json of a folder. -> { path=, channels=, labels = values, names=, ending=, listed =
-- its "dataset" or nil, count = numTraining or nil }
function M.describe(root)
  local path = root .. "/dataset.json"
  if not util.exists(path) then
    fail("data", "%s: this file is missing, and a folder of nnU-Net has it; fix: root = the folder "
         .. "with the file, or for pairs of NIfTI without it data.nifti { root =, image = "
         .. '"imagesTr/*", mask = "labelsTr/*" }', path)
  end
  local ok, d = pcall(json.decode, util.read_file(path), path)
  if not ok then
    fail("data", "%s; fix: correct dataset.json, or fetch it again", tostring(d))
  end
  local function bad(fmt, ...)
    fail("data", "%s: nnunet: %s", path, select("#", ...) > 0 and string.format(fmt, ...) or fmt)
  end
  local function say(fmt, ...)
    show.line("note: dataset.json: %s", string.format(fmt, ...))
  end
  if type(d) ~= "table" then
    bad("it holds a %s, want an object {...}; fix: the dataset.json that nnU-Net takes", type(d))
  end
  local channels = channels_of(d.channel_names or d.modality, bad)
  if type(d.labels) ~= "table" then
    bad 'labels is missing; fix: name each class in dataset.json, { "background": 0, "tumour": 1 }'
  end
  local values, names = labels_of(d.labels, bad, say)
  if d.overwrite_image_reader_writer == "NibabelIOWithReorient" then
    say("overwrite_image_reader_writer makes nnU-Net turn images to the axes RAS; here images keep "
        .. "the axes of their files, unless the recipe has a step orient")
  end
  if d.dataset ~= nil and type(d.dataset) ~= "table" then
    bad('"dataset" is a %s, want { "CASE": { "images": [...], "label": ... }, ... }; fix: correct '
        .. "it, or leave it out if the files have the names that nnU-Net requires", type(d.dataset))
  end
  return { path = path, channels = channels, labels = values, names = names,
           ending = ending_of(d.file_ending, bad), listed = d.dataset,
           count = whole(d.numTraining) }
end

-- A path of "dataset": $NAME and ${NAME} from the environment are replaced; the path is below root
-- unless it begins with a slash.
local function path_of(root, text)
  local path = text:gsub("%${([%w_]+)}", function(n) return os.getenv(n) end)
  path = path:gsub("%$([%w_]+)", function(n) return os.getenv(n) end)
  return path:sub(1, 1) == "/" and path or root .. "/" .. path
end

-- The cases that "dataset" lists.
local function listed_cases(root, d, masks)
  local list = {}
  for _, key in ipairs(util.sorted_keys(d.listed)) do
    local row = d.listed[key]
    local function bad(fmt, ...)
      fail("data", '%s: nnunet: "dataset", case "%s": %s; fix: correct or remove this case there',
           d.path, key, string.format(fmt, ...))
    end
    local images = type(row) == "table" and row.images
    if type(images) ~= "table" or #images ~= d.channels then
      bad("needs a list images of %s, one for each name in channel_names, got %s",
          util.plural(d.channels, "path"), type(images) == "table" and #images or type(images))
    end
    local case = { key = key, image = {} }
    for i, image in ipairs(images) do
      if type(image) ~= "string" then bad("an image is a %s, want a path", type(image)) end
      case.image[i] = path_of(root, image)
    end
    if masks then
      if type(row.label) ~= "string" then bad("label is a %s, want a path", type(row.label)) end
      case.mask = path_of(root, row.label)
    end
    list[#list + 1] = case
  end
  if #list == 0 then
    fail("data", '%s: nnunet: "dataset" lists no case; fix: list the cases, or leave it out if the '
         .. 'files have the names that nnU-Net requires', d.path)
  end
  return list
end

-- Prints notes about files in the folders that belong to no case.
local function say_left(folder, left, what)
  if #left == 0 then return end
  table.sort(left)
  show.aside("note: %s: left out %s %s: %s", folder, util.plural(#left, "file"), what,
             util.first_of(left, 3))
end

-- The cases of imagesTr: CASE_0000.nii.gz and the further channels, with CASE.nii.gz of labelsTr.
local function found_cases(root, d, o)
  local list, seen, other, beyond = {}, {}, {}, {}
  local from, masks = root .. "/" .. o.images, o.masks and root .. "/" .. o.masks
  local function has_ending(name) return name:sub(-#d.ending) == d.ending end
  for _, name in ipairs(util.names_in(from, has_ending)) do
    local key, channel
    if has_ending(name) then
      key, channel = name:sub(1, -#d.ending - 1):match("^(.+)_(%d%d%d%d)$")
    end
    if not key then
      other[#other + 1] = name
    elseif tonumber(channel) >= d.channels then
      beyond[#beyond + 1] = name
    end
    if key and not seen[key] then
      seen[key] = true
      local case = { key = key, image = {} }
      for i = 1, d.channels do
        case.image[i] = string.format("%s/%s_%04d%s", from, key, i - 1, d.ending)
      end
      if masks then case.mask = masks .. "/" .. key .. d.ending end
      list[#list + 1] = case
    end
  end
  if #list == 0 then
    fail("data", "%s: no file is called CASE_0000%s; fix: rename the images, or correct "
         .. "file_ending in dataset.json", from, d.ending)
  end
  say_left(from, other, "not called CASE_0000" .. d.ending)
  say_left(from, beyond, "of channels that channel_names does not have")
  local alone = {}
  for _, name in ipairs(masks and util.exists(masks) and util.names_in(masks, has_ending) or {}) do
    if has_ending(name) and not seen[name:sub(1, -#d.ending - 1)] then alone[#alone + 1] = name end
  end
  if masks then say_left(masks, alone, "without an image in " .. o.images) end
  return list
end

-- Raises if files of cases are missing, and names the first ten.
local function check_there(d, list)
  local missing, cases = {}, 0
  for _, case in ipairs(list) do
    local before, paths = #missing, { table.unpack(case.image) }
    paths[#paths + 1] = case.mask
    for _, path in ipairs(paths) do
      if not util.exists(path) then missing[#missing + 1] = path end
    end
    cases = cases + (#missing > before and 1 or 0)
  end
  if #missing == 0 then return end
  fail("data", "%s: nnunet: %s of %s %s not there: %s; fix: fetch them%s, or skip_bad = true "
       .. "leaves their cases out", d.path,
       util.plural(#missing, "file"), util.plural(cases, "case"),
       #missing == 1 and "is" or "are", util.first_of(missing, 10),
       d.listed and ', correct "dataset" (its paths are below the folder of dataset.json)'
       or "")
end

-- The cases of a folder for the options o of data.nnunet, without their patients: { {key=, image =
-- paths, mask = path or nil}, ... }. "dataset" lists the training cases, so it is not used for
-- images of another folder (o.images).
function M.cases(root, d, o)
  local listed = d.listed and o.images == "imagesTr" and (not o.masks or o.masks == "labelsTr")
  local list = (listed and listed_cases or found_cases)(root, d, listed and o.masks or o)
  if not o.skip_bad then check_there(d, list) end
  if d.count and o.images == "imagesTr" and d.count ~= #list then
    show.warn("dataset.json: numTraining is %d, and there %s", d.count,
              #list == 1 and "is 1 case" or "are " .. #list .. " cases")
  end
  return list
end

return M
