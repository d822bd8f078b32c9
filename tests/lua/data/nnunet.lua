-- nnunet.lua -- tests of data.nnunet: members of dataset.json, and the files that are cases.
-- Nothing is trained; volumes have a few voxels.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local show = require "seg.show"
local data = seg.data

local folder, remove = t.folder()
local root = folder .. "/nn"

-- A NIfTI file of 2 x 2 x 1 voxels.
local function nifti(path, voxels) t.nifti(path, { 2, 2, 1 }, voxels) end

-- Cases a and b of one channel, with labels 0, 1, 2; `labels` and further members of dataset.json
-- as text.
local function make(labels, more)
  os.execute(string.format("rm -rf %s && mkdir -p %s/imagesTr %s/labelsTr %s/elsewhere", root, root,
                           root, root))
  for i, name in ipairs { "a", "b" } do
    nifti(root .. "/imagesTr/" .. name .. "_0000.nii", { 10 * i, 20, 30, 40 })
    nifti(root .. "/labelsTr/" .. name .. ".nii", { 0, 1, 2, 0 })
  end
  t.write(root .. "/dataset.json", string.format(
    '{"channel_names": {"0": "CT"}, "labels": %s, "numTraining": 2, "file_ending": ".nii"%s}',
    labels or '{"background": 0, "one": 1, "two": 2}', more or ""))
end

-- Opens the set; returns it and all messages.
local function open(o)
  local said, was = {}, { line = show.line, aside = show.aside, warn = show.warn }
  for name in pairs(was) do
    show[name] = function(...) said[#said + 1] = string.format(...) end
  end
  o = o or {}
  o.root, o.patient = root, "file"
  local set = data.nnunet(o)
  local ok, why = pcall(t.keys, set)
  for name, f in pairs(was) do show[name] = f end
  if not ok then error(why, 0) end
  return set, table.concat(said, "\n")
end

local function refused(labels, part, more)
  make(labels, more)
  local _, why = pcall(function() t.keys(data.nnunet { root = root, patient = "file" }) end)
  why = tostring(why)
  t.check(why:find("dataset.json: nnunet: " .. part, 1, true), "%s in %s", part, why)
  t.check(why:find("; fix: ", 1, true), "what to do in %s", why)
end

-- Labels ----------------------------------------------------------------------

t.test("labels that are no classes are refused by name", function()
  refused('{"background": 0, "a": 1, "ignore": 2}', 'label "ignore" (2) marks voxels')
  refused('{"0": "background", "1": "a", "2": "ignore"}', 'label "ignore" (2) marks voxels')
  refused('{"background": 0, "ignore": [2], "a": 1}', 'label "ignore" (2) marks voxels')
  refused('{"background": 0, "whole": [1, 2], "core": 2}', 'label "whole" is the region [1, 2]',
          ', "regions_class_order": [1, 2]')
  refused('{"background": 0, "a": 1, "b": 1}', 'labels "a" and "b" are both 1')
  refused('{"background": 1, "a": 2}', 'label "background" is 1, and the background is 0')
  refused('{"background": 0, "a": -1}', 'label "a" is -1, want 0 or more')
  refused('{"background": 0, "a": 1.5}', 'label "a" is 1.5, want a whole number')
  refused('{"background": 0, "a": true}', 'label "a" is a boolean')
  refused('{"background": 0, "a": "b"}', 'label "a" is "b"')
  refused('{"1": "2", "2": "1"}', 'label "1": "2" is ambiguous')
  refused('{"background": 0}', "labels has only the background")
  refused("3", "labels is missing")
  -- a truncated file
  make()
  t.write(root .. "/dataset.json", t.read(root .. "/dataset.json"):sub(1, 30))
  t.raises(function() open() end, root .. "/dataset.json: json: line ")
  t.raises(function() open() end, "; fix: correct dataset.json, or fetch it again")
  -- inspect does not suggest a line that fails
  make '{"background": 0, "a": 1, "ignore": 2}'
  local text = t.says("inspect " .. root, 0, "no line of a recipe opens this as it is: ")
  t.check(text:find('label "ignore" (2)', 1, true), text)
  t.check(not text:find("data.nnunet {", 1, true), text)
end)

t.test("labels are read as nnU-Net reads them", function()
  for _, row in ipairs {
    { '{"background": 0, "one": 1, "two": 2}', "1,2", "" },
    { '{"0": "background", "1": "one", "2": "two"}', "1,2", "" },
    { '{"background": 0, "one": "1", "two": 2.0}', "1,2", "" },
    { '{"background": 0, "one": [1], "two": 2}', "1,2", "" },
    { '{"background": 0, "Ignore": 2, "one": 1}', "1,2",
      'label "Ignore" is an ordinary class' },
    { '{"background": 0, "two": 2, "one": 1, "far": 7}', "1,2,7",
      "labels 1, 2, 7 are not 1, 2, ... without gaps, as nnU-Net requires: they become classes 1 "
      .. "to 3" },
  } do
    make(row[1])
    local set, said = open()
    t.equal(set:labels(), row[2], row[1])
    t.check(row[3] == "" and said == "" or row[3] ~= "" and said:find(row[3], 1, true), said)
  end
  -- a value that is not in labels is an error, not a class
  make '{"background": 0, "one": 1}'
  t.raises(function() open():pipeline {} end, "value 2 in 1 voxel, wanted 0, 1; fix: correct "
           .. "labels in dataset.json, which lists the classes")
  -- with the byte order mark that Windows writes before UTF-8
  make()
  t.write(root .. "/dataset.json", "\u{feff}" .. t.read(root .. "/dataset.json"))
  t.equal(t.keys((open())), "a/a b/b")
end)

-- Cases -----------------------------------------------------------------------

t.test("cases and files of dataset.json's own list", function()
  make(nil, ', "dataset": {"only": {"images": ["elsewhere/x.nii"], "label": "elsewhere/y.nii"}}')
  nifti(root .. "/elsewhere/x.nii", { 7, 8, 9, 10 })
  nifti(root .. "/elsewhere/y.nii", { 2, 0, 0, 1 })
  local set, said = open()
  t.equal(t.keys(set), "only/only")
  t.check(said:find("numTraining is 2, and there is 1 case", 1, true), said)
  local batch = t.first_batch(set:batches { size = 1 })
  t.equal(batch.image:get(1, 1, 1, 1, 1), 7)
  t.equal(batch.mask:get(1, 1, 1, 2, 2), 1)
  t.says("inspect " .. root, 0, 'data.nnunet { root = "' .. root .. '", patient = "file" }')
  -- images only; images of the other folder are not in the list
  t.equal(t.keys((open { masks = false })), "only/only")
  os.execute(string.format("cp -r %s/imagesTr %s/imagesTs", root, root))
  t.equal(t.keys((open { images = "imagesTs", masks = false })), "a/a b/b")
  -- absolute paths and the environment; a folder without imagesTr
  os.execute(string.format("rm -r %s/imagesTr", root))
  local json = t.read(root .. "/dataset.json")
  t.write(root .. "/dataset.json", (json:gsub('"elsewhere/x', '"' .. root .. "/elsewhere/x")
                                    :gsub('"elsewhere/y', '"${PWD}/no/../elsewhere/y')))
  t.raises(function() open() end, "1 file of 1 case is not there: " .. t.lines("pwd")[1]
           .. "/no/../elsewhere/y.nii; fix: fetch them, correct \"dataset\"")
  t.write(root .. "/dataset.json", (json:gsub('"elsewhere/x', '"' .. root .. "/elsewhere/x")))
  t.equal(t.keys((open())), "only/only")
  for _, row in ipairs {
    { '"dataset": []', '"dataset" lists no case' }, { '"dataset": 3', '"dataset" is a number' },
    { '"dataset": {"k": 3}', 'case "k": needs a list images of 1 path' },
    { '"dataset": {"k": {"images": ["a", "b"], "label": "c"}}', "channel_names, got 2" },
    { '"dataset": {"k": {"images": [1], "label": "c"}}', "an image is a number" },
    { '"dataset": {"k": {"images": ["a"]}}', "label is a nil" },
  } do
    refused(nil, "", ", " .. row[1])
    t.raises(function() open() end, row[2])
  end
end)

t.test("what is no file of a case is left out and named", function()
  make(nil, ', "overwrite_image_reader_writer": "NibabelIOWithReorient"')
  for _, name in ipairs { "imagesTr/._a_0000.nii", "imagesTr/.DS_Store", "imagesTr/Thumbs.db",
                          "imagesTr/~$b_0000.nii", "imagesTr/notes.txt", "imagesTr/a_0001.nii",
                          "imagesTr/c.nii", "labelsTr/._a.nii", "labelsTr/z.nii" } do
    t.write(root .. "/" .. name, "x")
  end
  local set, said = open()
  t.equal(t.keys(set), "a/a b/b")
  for _, part in ipairs {
    "imagesTr: left out 2 files of macOS, Windows or an office program, or hidden: ._a_0000.nii, "
    .. "~$b_0000.nii",
    "imagesTr: left out 2 files not called CASE_0000.nii: c.nii, notes.txt",
    "imagesTr: left out 1 file of channels that channel_names does not have: a_0001.nii",
    "labelsTr: left out 1 file without an image in imagesTr: z.nii",
    "overwrite_image_reader_writer makes nnU-Net turn images to the axes RAS" } do
    t.check(said:find(part, 1, true), "%s in %s", part, said)
  end
  local text = t.says("inspect " .. root, 3, "data.nnunet")
  t.check(not text:find("_a_0000.nii  ", 1, true), text)
end)

t.test("files of other kinds are named with what reads them", function()
  make()
  local json = t.read(root .. "/dataset.json")
  local function ending(e) t.write(root .. "/dataset.json", (json:gsub('"%.nii"', e))) end
  for _, row in ipairs {
    { '".png"', "nnU-Net data is read as NIfTI only; fix: data.images {" },
    { '".tif"', "fix: data.images {" }, { '".npy"', "fix: data.npy {" },
    { '".nrrd"', 'file_ending is ".nrrd", and NIfTI is read' }, { "7", "file_ending is a number" },
  } do
    ending(row[1])
    t.raises(function() open() end, row[2])
  end
end)

remove()
t.finish()
