-- dicom.lua -- structure sets, doses and multi-frame images in a recipe and in inspect, with files
-- of the fuzz corpus.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local data = seg.data
local corpus = "tests/fuzz/corpus/dicom/"

local folder, remove = t.folder()
for _, name in ipairs { "multi", "structure", "dose" } do
  os.execute(("cp %s%s %s"):format(corpus, name, folder))
end

-- Series have the names of their files.
local function open(more)
  local o = { root = folder, image = "multi", mask = "structure", dose = "dose",
              segments = { "b", "a" }, resample_dose = true }
  for k, v in pairs(more or {}) do o[k] = v or nil end
  return data.dicom(o)
end

t.test("image, mask and dose are fields on one grid", function()
  local set = open()
  t.equal(table.concat(set:dataset():fields(), " "), "image mask dose")
  local batch = t.first_batch(set:batches { size = 1 })
  for _, name in ipairs { "image", "mask", "dose" } do
    t.equal(table.concat(batch[name].shape, "x"), "1x1x3x6x7", name)
  end
  -- the first frame of the file is its last slice; its first value times 2, - 3
  t.equal(batch.image:get(1, 1, 3, 1, 1), 256 * 2 - 3)
  -- a polygon with a hole, and another one two slices further
  t.equal(batch.mask:get(1, 1, 1, 2, 2), 2)
  t.equal(batch.mask:get(1, 1, 1, 3, 4), 0)
  t.equal(batch.mask:get(1, 1, 3, 3, 4), 1)
  t.equal(batch.mask:get(1, 1, 3, 6, 7), 0)
  -- Gy: a thousandth of the stored number; 0 outside of the dose's field of view
  t.near(batch.dose:get(1, 1, 1, 1, 1), 0.256, 1e-6)
  t.equal(batch.dose:get(1, 1, 1, 6, 7), 0)
end)

-- The same files named one by one.
local function list(fields, more)
  local case = { key = "a", patient = "p" }
  for _, field in ipairs(fields) do
    case[field.name] = folder .. "/" .. (field.file or field.name)
    field.file, field.read = nil, field.read or "dicom"
  end
  local o = { fields = fields, cases = { case } }
  for k, v in pairs(more or {}) do o[k] = v end
  return data.cases(o)
end

t.test("files of DICOM are fields of a list", function()
  local want = t.first_batch(open():batches { size = 1 })
  local got = t.first_batch(list {
    { name = "image", file = "multi" },
    { name = "mask", file = "structure", kind = "label", segments = { "b", "a" } },
    { name = "dose", kind = "value", resample_dose = true } }:batches { size = 1 })
  for _, name in ipairs { "image", "mask", "dose" } do
    t.equal(table.concat(got[name].shape, "x"), "1x1x3x6x7", name)
    for d = 1, 3 do
      for h = 1, 6 do
        for w = 1, 7 do
          t.equal(got[name]:get(1, 1, d, h, w), want[name]:get(1, 1, d, h, w), name)
        end
      end
    end
  end
  -- a quantity may be an image; a table names files in the same way
  t.write(folder .. "/t.csv", "file,who\nmulti,a\n")
  local csv = t.first_batch(data.csv { root = folder, table = "t.csv", patient = "who", fields = {
    { name = "image", kind = "value", read = "dicom", column = "file" } } }:batches { size = 1 })
  t.equal(csv.image:get(1, 1, 3, 1, 1), 256 * 2 - 3)
end)

t.test("a list says what a file of DICOM cannot be", function()
  local function refuses(fields, part)
    t.raises(function() t.first_batch(list(fields):batches { size = 1 }) end, part)
  end
  refuses({ { name = "image", file = "dose" } }, "no series here can be an image, there is dose")
  refuses({ { name = "image", file = "multi" }, { name = "dose", kind = "value" } },
          "fix: resample_dose = true")
  refuses({ { name = "image", file = "multi" },
            { name = "mask", file = "structure", kind = "label", segments = "liver" } },
          '0 regions called "liver", need 1; there are "a", "b"')
  refuses({ { name = "image", file = "multi" },
            { name = "mask", file = "structure", kind = "label", same_grid = true } },
          "mask: same_grid is for files without a position")
  refuses({ { name = "image", file = "multi", rank = 2 } }, "image: rank 2, dicom gives 3")
end)

t.test("fractions are channels", function()
  local batch = t.first_batch(open { fractions = true }:batches { size = 1 })
  t.equal(table.concat(batch.mask.shape, "x"), "1x2x3x6x7")
  t.equal(batch.mask:get(1, 1, 3, 3, 4), 1)
  t.equal(batch.mask:get(1, 2, 1, 2, 2), 1)
  t.equal(batch.mask:get(1, 2, 3, 3, 4), 0)
end)

t.test("channels of a prediction become segments", function()
  local core = require "seg.core"
  local set = open { mask = false, dose = false, segments = false }
  local pipeline, ds = set:batches { size = 1 }:pipeline {}, set:dataset()
  local prediction = core.data.prediction(pipeline, 1, 3)
  local a = seg.array.zeros { 1, 3, 3, 6, 7 }
  for c = 1, 3 do a:set(c / 4, 1, c, 2, 3, 4) end
  prediction:put(1, a, 1)
  local volume, path = prediction:restore(), folder .. "/out.dcm"
  local function write(names, o) return volume:write_seg(path, ds, 1, names, o) end
  -- the first of three is the background
  t.equal(write({ "a", "b" }, { fractions = true }), true)
  local text = t.says("inspect " .. path, 0, "FRACTIONAL segmentation, 2 frames\n")
  t.check(text:find("\na +1 +1\n") and text:find("\nb +2 +1\n"), "%s", text)
  t.equal(write({ "a", "b", "c" }, { fractions = true }), true)
  t.says("inspect " .. path, 0, "FRACTIONAL segmentation, 3 frames\n")
  os.remove(path)
  t.near(volume:channel(2):slice(2):get(3, 4), 0.5, 0)
  t.raises(function() write({ "a" }, { fractions = true }) end,
           "1 names of segments for 3 channels")
  t.raises(function() write { "a", "b" } end, "segments need labels; give fractions = true")
  t.raises(function() write({ "a" }, { fraction = true }) end, 'did you mean "fractions"')
  t.raises(function() volume:labels():write_seg(path, ds, 1, { "a" }, { fractions = true }) end,
           "fractions need probabilities, not labels")
  t.raises(function() volume:labels():channel(1) end, "channels need probabilities")
  t.raises(function() volume:channel(4) end, "channel")
end)

t.test("what does not fit is refused on the recipe's line", function()
  t.raises(function() t.first_batch(open { resample_dose = false }) end,
           "fix: resample_dose = true")
  t.raises(function() t.first_batch(open { segments = { "liver" } }) end,
           '0 regions called "liver", need 1; there are "a", "b"')
  t.raises(function() open { dose = "plan" }:dataset() end, 'no study has the dose "plan"')
  t.raises(function() open { doze = "x" } end, "doze")
end)

t.test("position_tolerance is a share of the distance of slices", function()
  t.raises(function() open { position_tolerance = 0.6 }:dataset() end,
           "position_tolerance is a share of the distance of slices, from 0 to 0.45, got 0.6")
  t.equal(#open { position_tolerance = 0.05 }:dataset():fields(), 3)
  t.raises(function()
    list { { name = "image", file = "multi", position_tolerance = -1 } }:dataset()
  end, "position_tolerance is a share")
end)

t.test("inspect of a folder names what is no volume, and chooses by modality", function()
  t.needs("dcmodify", "test")
  local mixed = folder .. "/mixed"
  os.execute("mkdir -p " .. mixed .. "/1.2.1 " .. mixed .. "/1.2.2")
  for i, modality in ipairs { "MR", "CR" } do
    os.execute(("cp %smulti %s/1.2.%d && dcmodify -nb -q -i Modality=%s -i SeriesDescription= "
                .. "-m SeriesInstanceUID=2.25.%d -m SOPInstanceUID=2.25.%d %s/1.2.%d/multi")
               :format(corpus, mixed, i, modality, i, i + 10, mixed, i))
  end
  local text = t.says("inspect " .. mixed, 0, 'image = "MR" }')
  t.check(text:find("1 series (1 CR): projections or pictures", 1, true), text)
  t.check(text:find("patient +series +modality"), text)
  os.execute("rm -r " .. mixed)
end)

t.test("inspect says what each of them is", function()
  local function inspect(name, part)
    local text = t.says("inspect " .. corpus .. name, 0, part)
    return text
  end
  inspect("multi", "7x6x3, 1x2x3 mm, axial, axes LPS, origin (-5.0 7.0 11.0)")
  inspect("dose-z", "3x2x3, 1x2x3 mm, axial")
  local text = inspect("structure", "structure set, 5 contours\n")
  t.check(text:find("\na +1 +3\n") and text:find("\nb +2 +2\n"), text)
  inspect("seg-fraction", "FRACTIONAL segmentation, 2 frames\n")
  inspect("labelmap", "LABELMAP segmentation, 2 frames\n")
  text = t.says("inspect " .. folder, 0, 'image = "multi", mask = "structure", '
                .. 'labels = { 1, 2 }, dose = "dose", resample_dose = true }')
  t.check(text:find("multi%-frame") and text:find("structure set"), text)
  -- regions that share voxels are not labels: b is drawn on the plane of a
  t.needs("dcmodify", "test")
  local shared = folder .. "/shared"
  os.execute("mkdir " .. shared .. " && cp " .. folder .. "/multi " .. folder .. "/structure "
             .. shared .. " && dcmodify -nb -q -m '(3006,0039)[1].(3006,0040)[0].(3006,0050)="
             .. "-4.5\\8\\11\\0.5\\7.4\\11\\1.2\\15.8\\11\\-3\\17\\11' " .. shared .. "/structure")
  t.says("inspect " .. shared, 0, 'image = "multi", mask = "structure", segments = '
         .. '{ "a", "b" }, fractions = true }')
end)

remove()
t.finish()
