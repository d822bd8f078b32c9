-- reading.lua -- the reader options that a checkpoint keeps, without names of patients or folders,
-- and the data that they are compared with.

local t = dofile("tests/support/harness.lua")
local reading = require "seg.data.reading"
local likeness = require "seg.data.likeness"
local core = require "seg.core"
local util = require "seg.util"
local data = require("seg").data

local several = reading.people({ { key = "a", patient = "MARKERID1" },
                                 { key = "b", patient = "MARKERID2" } },
                               { a = "MARKERNAME^P1", b = "MARKERNAME^P2" })
local alone = reading.people({ { key = "a", patient = "Smith" } })

t.test("patterns name no patient, no folder and no UID", function()
  for _, row in ipairs {
    { "FLAIR", "FLAIR" }, { "*_T1w", "*_T1w" }, { "imagesTr/*", "imagesTr/*" },
    { "T2 FLAIR SPACE", "T2 FLAIR SPACE" }, { "hippocampus_*", "hippocampus_*" },
    { "PROJECT/sub-*/anat/*_T1w", "*/sub-*/anat/*_T1w" },
    { "/home/MARKERPATH/*_FLAIR", "*/*/*_FLAIR" }, { "C:\\Hospital\\T1", "*:/*/T1" },
    { "MARKERNAME*", "*" }, { "markerid1_T1", "*_T1" }, { "MARKER_*_T1", "*_*_T1" },
    { "scan_19990909*", "scan_*" }, { "1.2.840.113619.2", nil }, { "Müller_*", "Müller_*" },
  } do
    t.equal(reading.pattern(row[1], several), row[2], row[1])
  end
  -- with a single patient any other word may be the name
  for _, row in ipairs { { "Smith_*_T1w", "*_*_T1w" }, { "J Doe FLAIR", "* * FLAIR" },
                         { "*_T1w", "*_T1w" }, { "sub-0012_*", "sub-*_*" } } do
    t.equal(reading.pattern(row[1], alone), row[2], row[1])
    t.equal(reading.pattern(row[1], nil), row[2], row[1])
  end
  t.equal(reading.patterns({ "FLAIR", "1.2.3.4" }, several), nil)
  t.equal(table.concat(reading.patterns({ "FLAIR", "T1" }, several), "+"), "FLAIR+T1")
end)

t.test("the kinds of images that names speak of", function()
  local function kinds(name)
    return table.concat(util.sorted_keys(reading.kinds(name)), "+")
  end
  for name, want in pairs { ["sub-01_ses-1_T1w"] = "T1", ["AX T2 FLAIR"] = "FLAIR", T2 = "T2",
                            ["T1 post-contrast"] = "T1 with contrast", T1ce = "T1 with contrast",
                            ["sub_T1w_brainmask"] = "a mask", FLAIR_ROI = "a mask", head1 = "",
                            ["T1 pre-contrast"] = "T1", patient_CT = "CT", octant = "" } do
    t.equal(kinds(name), want, name)
  end
end)

-- All options but target and paths are kept: a new option of a reader too.
t.test("options are those that the readers declare", function()
  local one = data.nifti { root = "/home/somebody", image = "x/*_T1w", mask = "x/*_seg",
                           labels = { 1, 2 }, form = "qform", channels = true, patient = "folder" }
  local kept = reading.of(one.source, several)
  t.equal(kept.kind, "nifti")
  t.equal(kept.options.image, "*/*_T1w")
  t.equal(kept.options.mask, "*/*_seg")
  t.equal(kept.options.form, "qform")
  t.equal(kept.options.channels, true)
  for _, key in ipairs { "root", "patient", "labels", "skip_bad" } do
    t.equal(kept.options[key], nil, key)
  end
  reading.declare("nifti", { form = "both", nan = "refused", root = true })
  t.equal(reading.takes("nifti", "nan"), true)
  t.equal(reading.takes("nifti", "root"), false)
  t.equal(reading.takes("nifti", "resample_tilt"), false)
  -- it crops the faces of BIWI, so bundles need it
  kept = reading.of(data.biwi { face_mm = 250 }.source)
  t.equal(kept.made.options.face_mm, 250)
  t.equal(kept.made.options.same, nil)
end)

t.test("the script adds to what the weights say, and synthetic data does not", function()
  local kept = { kind = "dicom", options = { image = "FLAIR", resample_tilt = true } }
  local source, other = reading.merged(kept, data.phantom {}.source)
  t.equal(source.options.resample_tilt, true)
  t.equal(#other, 0)
  source, other = reading.merged(kept, data.dicom { image = "FLAIR", assume_hu = true }.source)
  t.equal(source.options.resample_tilt, true)
  t.equal(source.options.assume_hu, true)
  t.equal(#other, 0)
  kept = { kind = "nifti", options = { form = "qform" } }
  source, other = reading.merged(kept, data.nifti { form = "sform" }.source)
  t.equal(source.options.form, "sform")
  t.equal(other[1], "form = sform, training qform")
  t.equal(reading.merged(nil, source), source)
end)

t.test("ranges over the images of training, and what is beyond them", function()
  local cases = {}
  local name, remove = t.folder()
  for i = 1, 3 do
    local a = require("seg").array.zeros { 2, 2, 2 }
    for k = 1, 8 do a:set(100 * i + k, (k - 1) // 4 + 1, (k - 1) // 2 % 2 + 1, (k - 1) % 2 + 1) end
    core.array.save(string.format("%s/%d.npy", name, i), a)
    cases[i] = { key = "c" .. i, patient = "p" .. i, image = string.format("%s/%d.npy", name, i) }
  end
  local set = data.cases { fields = { { name = "image", read = "npy", rank = 3 } }, cases = cases }
  local p = set:pipeline {}
  local kept = likeness.describe(p)
  t.equal(kept.cases, 3)
  t.equal(table.concat(kept.channels[1].range, " "), "101 308")
  t.equal(table.concat(kept.channels[1].mean, " "), "104.5 304.5")
  t.near(kept.channels[1].sd[1], math.sqrt(5.25), 1e-5) -- of 1 .. 8
  t.equal(kept.modality, nil)
  p:close()
  -- the statistics are the same from the file of prepared cases
  for time = 1, 2 do
    p = set:pipeline { store = name .. "/prepared.cases" }
    t.equal(util.json(likeness.describe(p)), util.json(kept))
    t.check(time == 1 or p:store():find("3 found", 1, true), p:store())
    p:close()
  end
  remove()
  kept = { cases = 9, format = "DICOM", modality = "MR", spacing = { { 1, 1 }, { 1, 1 }, { 3, 5 } },
           channels = { { range = { 0, 255 }, mean = { 10, 36 }, sd = { 18, 45 } } } }
  local source = { kind = "dicom", options = { image = "FLAIR" } }
  local function words(o)
    local seen, list = { path = "x/FLAIR", modality = "MR", description = "FLAIR",
                         spacing = { 4, 1, 1 }, channels = { { mean = 20, sd = 30 } } }, {}
    for k, v in pairs(o) do seen[k] = v end
    for i, one in ipairs(likeness.differences(kept, source, seen)) do list[i] = one[1] end
    return table.concat(list, " ")
  end
  t.equal(words {}, "")
  t.equal(words { spacing = { 0.8, 0.8, 6 } }, "") -- another matrix is no other kind
  t.equal(words { spacing = { 1, 1, 10 } }, "spacing")
  t.equal(words { modality = "CT" }, "modality")
  t.equal(words { description = "T1 pre-contrast" }, "name")
  t.equal(words { description = "ax 3", path = "x/T1post" }, "name")
  t.equal(words { channels = { { mean = 60, sd = 70 } } }, "") -- another gain
  t.equal(words { channels = { { mean = 0.2, sd = 0.4 } } }, "intensities") -- a mask
  t.equal(words { channels = { { mean = 900, sd = 300 } } }, "intensities")
end)

t.finish()
