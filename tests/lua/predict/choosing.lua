-- choosing.lua -- the files of a folder that predict takes, and how it reads them: as training did,
-- whichever branch of the script runs; and its messages on the other files.

local t = dofile("tests/support/harness.lua")
local core = require "seg.core"
local data = require("seg").data
local folder, remove = t.folder()

local function shell(command) t.check(os.execute(command), command) end

-- The files that a prediction has written: names with blanks between.
local function made(out)
  return table.concat(t.lines("ls " .. folder .. "/" .. out), " ")
end

-- A recipe that reads its files from --data, else synthetic patients.
local function recipe(name, format, read, more)
  return t.write(folder .. "/" .. name .. ".lua", string.format([[
local seg = require "seg"
local nn, data = seg.nn, seg.data
local cfg = seg.config { workers = 1, batch = 4, epochs = 1 }
local set
if cfg.data then set = %s
else set = data.phantom { format = "%s", patients = 2, size = 16, slices = 4 } end
set = set:resize { h = 16, w = 16 }:normalize {}:slices {}
local shape = { c = 1, h = 16, w = 16 }
local x, y = nn.input("image", shape), nn.input("mask", shape)
local z = nn.conv(x, 1, 3)
seg.recipe { inputs = { x, y }, outputs = { mask = nn.sigmoid(z) }, loss = nn.bce(z, y),
  train = set:batches { size = 4 }, optim = seg.optim.sgd { lr = 0.1 }, epochs = 1 %s }
]], read, format, more or ""))
end

local runs = " --out " .. folder .. "/runs"
local function weights(name) return " --weights " .. folder .. "/runs/" .. name .. "/001" end
local function places(input, out)
  return " --in " .. folder .. "/" .. input .. " --out " .. folder .. "/" .. out
end

-- Volumes of the phantom as sub-N_T1w.nii, sub-N_mask.nii in one folder; their sform and qform
-- differ, so they can be read with form = "qform" only.
local function make_nifti()
  data.phantom { format = "nifti", patients = 3, size = 16, slices = 4,
                 root = folder .. "/phantom" }:dataset()
  shell("mkdir " .. folder .. "/heads")
  for i, path in ipairs(t.lines("find " .. folder .. "/phantom -name '*_T1w.nii.gz' | sort")) do
    for from, to in pairs { T1w = "T1w", T1w_brainmask = "mask" } do
      local file = string.format("%s/heads/sub-%d_%s.nii", folder, i, to)
      shell("zcat " .. path:gsub("T1w%.nii", from .. ".nii") .. " > " .. file)
      local bytes = t.read(file)
      -- both codes 1, quatern_offset_x 7 mm more than in the sform
      bytes = bytes:sub(1, 252) .. string.pack("<i2i2", 1, 1) .. bytes:sub(257, 268)
        .. string.pack("<f", string.unpack("<f", bytes, 269) + 7) .. bytes:sub(273)
      t.write(file, bytes)
    end
  end
end

local script
t.test("NIfTI: those called as in training, read as training read them", function()
  make_nifti()
  script = recipe("heads", "nifti", 'data.nifti { root = cfg.data, image = "*_T1w", '
                  .. 'mask = "*_mask", patient = "file", labels = "nonzero", form = "qform" }')
  t.says(script .. " --data " .. folder .. "/heads" .. runs, 0, "done:")
  local meta = core.checkpoint.meta(folder .. "/runs/heads/001/checkpoint_last.safetensors")
  t.check(meta.read:find('"form": "qform"', 1, true), meta.read)
  t.check(meta.read:find('"image": "*_T1w"', 1, true), meta.read)
  -- without --data the script reads synthetic patients
  local text = t.says(script .. " predict" .. weights "heads" .. places("heads", "all"), 0,
                      '--in: 3 of 6 NIfTI files are named as in training ("*_T1w")')
  t.equal(made "all", "sub-1.nii.gz sub-2.nii.gz sub-3.nii.gz")
  t.check(not text:find("differs", 1, true), "the same images: " .. text)
  -- a bundle of these weights keeps both choices
  local bundle = folder .. "/heads.bundle"
  t.says(script .. " export --bundle " .. bundle .. weights "heads", 0, "run it with")
  t.says("predict --bundle " .. bundle .. places("heads", "bundle"), 0, "3 of 6 NIfTI files")
  t.equal(made "bundle", made "all")
  shell(string.format("cmp %s/all/sub-2.nii.gz %s/bundle/sub-2.nii.gz", folder, folder))
  -- a C program that opens it does so too: for a folder with one image and its mask
  shell(string.format("mkdir %s/one && cp %s/heads/sub-2_* %s/one", folder, folder, folder))
  require("seg").open(bundle, { threads = 1 }):predict_file(folder .. "/one", folder .. "/c.nii.gz")
  shell(string.format("cmp %s/all/sub-2.nii.gz %s/c.nii.gz", folder, folder))
end)

t.test("a bundle takes what training took, whatever word the script has for it", function()
  local other = recipe("bravo", "nifti", 'data.nifti { root = cfg.data, image = "*_bravo", '
                       .. 'mask = "*_mask", patient = "file", labels = "nonzero", form = "qform" }',
                       ', predict = { image = "*_bravo" }')
  shell(string.format("cp -r %s/heads %s/bravo && cd %s/bravo && for f in *_T1w.nii; do "
                      .. "mv $f ${f%%T1w.nii}bravo.nii; done", folder, folder, folder))
  t.says(other .. " --data " .. folder .. "/bravo" .. runs, 0, "done:")
  local bundle = folder .. "/bravo.bundle"
  t.says(other .. " export --bundle " .. bundle .. weights "bravo", 0, "run it with")
  t.says("predict --bundle " .. bundle .. places("bravo", "bravo_out"), 0, "3 of 6 NIfTI files")
  t.equal(made "bravo_out", "sub-1.nii.gz sub-2.nii.gz sub-3.nii.gz")
end)

t.test("a file by its name is taken, and what differs is in the table", function()
  local predict = script .. " predict" .. weights "heads"
  local text = t.says(predict .. places("heads/sub-1_mask.nii", "m"), 0,
                      "warning: sub-1_mask differs from the training images: its name says a "
                      .. "mask, training took T1; its intensities have mean ")
  t.check(text:find("\ncase +voxels +ml +differs +file\n"), text)
  t.check(text:find("\nsub%-1_mask .* name, intensities +%S+sub%-1_mask%.nii%.gz\n"), text)
end)

t.test("evaluate says it of the cases that it measures, and keeps it", function()
  shell(string.format("cp -r %s/heads %s/scaled", folder, folder))
  local file = folder .. "/scaled/sub-2_T1w.nii"
  local bytes = t.read(file)
  t.write(file, bytes:sub(1, 112) .. string.pack("<f", 100) .. bytes:sub(117)) -- scl_slope
  local evaluate = script .. " evaluate --split train" .. weights "heads" .. runs
  local text = t.says(evaluate .. " --data " .. folder .. "/scaled --json 2>&1", 0, '"differs": {')
  t.check(text:find('"differs": {%s+"%x+": "its intensities have mean [^"]*"%s+}'), text)
  t.check(not t.says(evaluate .. " --json", 0, "{"):find("differs", 1, true))
  t.says(script .. " --image x", 2, "--image is not for train, but for predict")
end)

t.test("a folder where nothing is called so", function()
  shell(string.format("mkdir %s/masks && cp %s/heads/*_mask.nii %s/masks", folder, folder, folder))
  local predict = script .. " predict" .. weights "heads" .. places("masks", "none")
  t.says(predict, 3, 'none of 3 NIfTI files is named as the images of training, "*_T1w"; there '
         .. "are sub-1_mask, sub-2_mask, sub-3_mask; fix: --image PATTERN (* is any text), or "
         .. "predict = { image = PATTERN } in the recipe")
  t.says(predict .. " --image 'sub-2*'", 0, '1 of 3 NIfTI files are taken ("sub-2*")')
  t.equal(made "none", "_mask.nii.gz") -- the name is the text that * matched
end)

-- Weights without these entries, as written by earlier versions.
t.test("weights of before say that they have none", function()
  local old = t.write(folder .. "/old.lua", [[
local core, seg = require "seg.core", require "seg"
local x = seg.nn.input("image", { c = 1, h = 16, w = 16 })
local m = seg.model { outputs = { mask = seg.nn.sigmoid(seg.nn.conv(x, 1, 3)) } }
local meta = core.checkpoint.load(arg[1], m.session, false)
meta.read, meta.training = nil, nil
core.checkpoint.save(arg[2], m.session, false, meta)
]])
  t.says(string.format("%s %s/runs/heads/001/checkpoint_last.safetensors %s/old.safetensors", old,
                       folder, folder), 0, "")
  local predict = script .. " predict --weights " .. folder .. "/old.safetensors"
  t.says(predict .. places("phantom", "old"), 0,
         "note: these weights were written by a version that did not record the images of "
         .. "training; "
         .. "every image of --in is taken; --image PATTERN chooses")
  t.equal(#t.lines("ls " .. folder .. "/old"), 6)
  -- the script may name its files and their form: without form they are refused
  local text = t.says(predict .. places("heads", "old2"), 3, "sub-1_T1w.nii")
  t.check(text:find("form", 1, true), text)
  t.says(predict .. " --data " .. folder .. "/heads" .. places("heads", "old2"), 0,
         "those that the script names are taken")
  t.equal(made "old2", made "all")
end)

t.test("DICOM: the series that training took", function()
  local read = 'data.dicom { root = cfg.data, image = "FLAIR", mask = "MASK", assume_hu = true }'
  local flair = recipe("flair", "dicom", read)
  t.says(flair .. runs, 0, "done:")
  local place = t.lines("ls -d " .. folder .. "/runs/phantom/flair-*")[1]
  t.says(flair .. " --data " .. place .. " --out " .. folder .. "/real", 0, "done:")
  local w = " --weights " .. folder .. "/real/flair/001"
  local to = " --out " .. folder .. "/series"
  local text = t.says(flair .. " predict" .. w .. " --in " .. place .. to, 0,
                      "PHANTOM_001")
  t.equal(#t.lines("ls " .. folder .. "/series"), 4)
  t.check(not text:find("differs", 1, true), "the same series: " .. text)
  -- a folder without this series, and the series by its own folder
  local masks = t.lines("find " .. place .. " -type d -name '*MASK*' | sort")[1]
  shell("mkdir -p " .. folder .. "/other/a && cp -r " .. masks .. " " .. folder .. "/other/a")
  t.says(flair .. " predict" .. w .. places("other", "other_out"), 3,
         'no study has the image "FLAIR"; there are: ')
  t.says(flair .. " predict" .. w .. places("other", "other_out"), 3, "; fix: --image NAME")
  -- two series of that name: the message has one fix, that of predict
  text = t.says(flair .. " predict" .. w .. " --in " .. place .. " --image '*'" .. to, 3,
                '2 series are "*" of one study')
  t.equal(select(2, text:gsub("; fix: ", "")), 1, text)
  -- several series in one folder are not one series that is named directly
  shell(string.format("mkdir %s/flat && find %s -path '*MASK*' -name '*.dcm' | "
                      .. "while read -r f; do cp \"$f\" %s/flat/$(echo $f | tr / _); done", folder,
                      place, folder))
  t.says(flair .. " predict" .. w .. places("flat", "other_out"), 3, "no study has the image")
  t.says(flair .. " predict" .. w .. " --in " .. masks .. to, 0,
         "its series description says a mask, training took FLAIR")
  -- also when the recipe names the images, and for the bundle of the same weights
  local named = recipe("flair_named", "dicom", read, ', predict = { image = "FLAIR" }')
  local bundle = folder .. "/flair.bundle"
  t.says(named .. " export --bundle " .. bundle .. w, 0, "predict --bundle")
  for _, line in ipairs { named .. " predict" .. w, "predict --bundle " .. bundle } do
    t.says(line .. " --in " .. masks .. to, 0, 'note: --in: the only series is taken; it is not '
           .. 'named "FLAIR", as the series of training')
  end
  t.says(named .. " predict" .. w .. " --image FLAIR --in " .. masks .. to, 3,
         "no study has the image")
  -- a NIfTI image is taken by its name, and the message names its kind
  t.says(flair .. " predict" .. w .. places("heads/sub-1_T1w.nii", "t1"), 3, "form")
  local image = t.lines("find " .. folder .. "/phantom -name '*_T1w.nii.gz' | sort")[1]
  t.says(flair .. " predict" .. w .. " --in " .. image .. to, 0,
         "its name says T1, training took FLAIR")
  shell("cp " .. image .. " " .. folder .. "/scan.nii.gz")
  t.says(flair .. " predict" .. w .. places("scan.nii.gz", "scan"), 0,
         "NIfTI has neither modality nor series description: only spacing and intensities are "
         .. "compared with the training images (FLAIR, MR)")
end)

-- An array of 16 x 16 of these numbers.
local function array(value)
  local a = core.array.zeros { 16, 16 }
  for h = 1, 16 do
    for w = 1, 16 do a:set(value(h, w), h, w) end
  end
  return a
end

-- A BMP of 16 x 16 pixels, 8 bits of grey each, half of them 1.
local function grey_bmp(path)
  local palette = {}
  for i = 0, 255 do palette[i + 1] = string.char(i, i, i, 0) end
  t.write(path, "BM" .. string.pack("<I4I2I2I4", 1334, 0, 0, 1078)
          .. string.pack("<I4i4i4I2I2I4I4i4i4I4I4", 40, 16, 16, 1, 8, 0, 256, 0, 0, 256, 0)
          .. table.concat(palette) .. ("\0"):rep(128) .. ("\1"):rep(128))
end

-- Files of two kinds with masks: options of the recipe, channels, function that writes one.
local kinds = {
  images = { "", 3, function(path, i)
    local p = core.picture.canvas(16, 16, 60 * i * 0x010101)
    p:save(path .. ".png")
    p:close()
    grey_bmp(path .. "_seg.bmp")
  end },
  npy = { ", rank = 2", 1, function(path, i)
    core.array.save(path .. ".npy", array(function(h, w) return (60 * i + h * w) % 256 end))
    core.array.save(path .. "_seg.npy", array(function(h) return h // 9 end))
  end },
}
for kind, row in pairs(kinds) do
  t.test(kind .. ": masks beside them are left out, also where any name is an image", function()
    local place = folder .. "/" .. kind
    shell("mkdir " .. place)
    for i = 1, 3 do row[3](place .. "/case_" .. i, i) end
    for name, pattern in pairs { any = "*", named = "case_*" } do
      local own = kind .. "_" .. name
      local mine = t.write(folder .. "/" .. own .. ".lua", string.format([[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { workers = 1, batch = 2 }
local set = seg.data.%s { root = cfg.data, image = "%s", mask = "%s_seg", patient = "file"%s }
local x = nn.input("image", { c = %d, h = 16, w = 16 })
local y = nn.input("mask", { c = 1, h = 16, w = 16 })
local z = nn.conv(x, 1, 3)
seg.recipe { inputs = { x, y }, outputs = { mask = nn.sigmoid(z) }, loss = nn.bce(z, y),
  train = set:batches { size = 2 }, optim = seg.optim.sgd { lr = 0.1 }, epochs = 1 }
]], kind, pattern, pattern, row[1], row[2]))
      t.says(mine .. " --data " .. place .. runs, 0, "done:")
      t.says(mine .. " predict" .. weights(own) .. places(kind, own), 0, "--in: 3 of 6 ")
      t.equal(#t.lines("ls " .. folder .. "/" .. own), 3, own)
      t.check(not made(own):find("seg", 1, true), made(own))
    end
  end)
end

remove()
t.finish()
