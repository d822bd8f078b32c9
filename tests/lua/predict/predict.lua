-- predict.lua -- results have the geometry of their inputs, and equal the values that training
-- measured.

local t = dofile("tests/support/harness.lua")
local folder, remove = t.folder()

local function run(arguments)
  local code, text = t.program(arguments)
  if code ~= 0 then error(arguments .. ": exit code " .. code .. ": " .. text, 2) end
  return text
end

local function recipe(name, command, more)
  return string.format("scripts/%s.lua %s --preset check --phantom %s/phantom --out %s/%s", name,
                       command, folder, folder, more or "runs")
end

-- Size, spacing, axes and origin as inspect prints them.
local function geometry(path)
  return run("inspect " .. path):match("^[^\n]+")
end

t.test("NIfTI in, NIfTI out on the same grid", function()
  run(recipe("nfbs_unet", "train"))
  local images = t.lines("find " .. folder .. "/phantom -name '*_T1w.nii.gz' | sort")
  t.check(#images > 2, "phantom images")
  for i, image in ipairs { images[1], images[2] } do
    local out = folder .. "/one" .. i
    run("scripts/nfbs_unet.lua predict --preset check --weights " .. folder
      .. "/runs/nfbs_unet/001/checkpoint_best.safetensors --in " .. image .. " --out " .. out)
    local made = t.lines("ls " .. out .. "/*.nii.gz")
    t.equal(#made, 1, "files made")
    t.equal(geometry(made[1]), geometry(image), "grid of the prediction")
  end
end)

t.test("DICOM in, SEG and NIfTI out for each patient", function()
  run(recipe("brain_unet", "train"))
  local data = t.lines("ls -d " .. folder .. "/phantom/flair-*")[1]
  local out = folder .. "/dicom"
  run("scripts/brain_unet.lua predict --preset check --image FLAIR --weights " .. folder
    .. "/runs/brain_unet/001/checkpoint_best.safetensors --in " .. data .. " --out " .. out)
  t.equal(#t.lines("ls " .. out .. "/*.nii.gz"), 6, "NIfTI files")
  t.equal(#t.lines("ls " .. out .. "/*.dcm"), 6, "SEG files")
  local text = run("inspect " .. t.lines("ls " .. out .. "/*.dcm")[1])
  t.check(text:find("SEG", 1, true), text)
  t.needs("dciodvfy", "ci")
  for _, seg in ipairs(t.lines("ls " .. out .. "/*.dcm")) do
    for _, line in ipairs(t.lines("dciodvfy " .. seg .. " 2>&1")) do
      t.check(not line:match("^Error"), "%s: %s", seg, line)
    end
  end
end)

-- The recipe with predict = { fractions = true }, on the weights of the one above.
local function with_fractions(name, weights, input, out)
  local text, n = t.read("scripts/" .. name .. ".lua"):gsub("predict = {", "%0 fractions = true,")
  t.equal(n, 1, "places in the script")
  local script = t.write(folder .. "/" .. name .. ".lua", text)
  return run(script .. " predict --preset check --weights " .. folder .. "/runs/" .. weights
             .. "/001/checkpoint_best.safetensors --in " .. input .. " --out " .. out)
end

t.test("probabilities are kept beside the labels", function()
  local seg = require "seg"
  local out = folder .. "/fractions"
  local image = t.lines("find " .. folder .. "/phantom -name '*_T1w.nii.gz' | sort")[1]
  with_fractions("nfbs_unet", "nfbs_unet", image, out)
  local stem = t.lines("ls " .. out)[2]:match("^(.*)_fraction_1%.nii%.gz$")
  t.check(stem, "no fractions: " .. table.concat(t.lines("ls " .. out), " "))
  t.equal(#t.lines("ls " .. out), 2, "files made")
  local part = out .. "/" .. stem
  t.equal(geometry(part .. "_fraction_1.nii.gz"), geometry(image), "grid of the fractions")
  local said = run("inspect " .. part .. "_fraction_1.nii.gz")
  t.check(said:find("\nF32,", 1, true), "%s", said)
  -- a label is 1 where the fraction is above one half
  local read = require("seg.core").data.read_nifti
  local labels, p = read(part .. ".nii.gz"), read(part .. "_fraction_1.nii.gz")
  for k = 1, 8 do
    local x, y = labels:slice(k), p:slice(k)
    for h = 1, 32 do
      for w = 1, 32 do t.equal(x:get(h, w), y:get(h, w) > 0.5 and 1 or 0) end
    end
  end
  -- of DICOM images they are a SEG, and a data set reads the same from it
  local data = t.lines("ls -d " .. folder .. "/phantom/flair-*")[1]
  local text = with_fractions("brain_unet", "brain_unet", data, out .. "_dicom")
  t.check(not text:find("replaced"), text)
  t.equal(#t.lines("ls " .. out .. "_dicom/*_fractions.dcm"), 6, "fractional SEG files")
  t.equal(#t.lines("ls " .. out .. "_dicom"), 18, "files made")
  local one = t.lines("ls " .. out .. "_dicom/*_fractions.dcm")[1]
  text = run("inspect " .. one)
  t.check(text:find("\nFRACTIONAL segmentation, %d+ frames\n"), text)
  t.check(text:find("\ntumour  +1  +%d+\n"), text)
  local both = folder .. "/fractions_set"
  local patient = one:match("([^/]+)_fractions%.dcm$")
  os.execute("cp -r " .. data .. " " .. both .. " && cp " .. out .. "_dicom/*_fractions.dcm "
             .. both)
  local batch = t.first_batch(seg.data.dicom { root = both, image = "FLAIR", fractions = true,
                                               mask = "probabilities*" }:batches { size = 1 })
  local again = read(out .. "_dicom/" .. patient .. ".nii.gz")
  local depth, size = batch.mask.shape[3], batch.mask.shape[4]
  for k = 1, depth do
    local x = again:slice(k)
    for h = 1, size do
      for w = 1, size do
        local v = batch.mask:get(1, 1, k, h, w)
        if math.abs(v - 0.5) > 1 / 255 then t.equal(x:get(h, w) > 0, v > 0.5) end
      end
    end
  end
  t.needs("dciodvfy", "ci")
  for _, line in ipairs(t.lines("dciodvfy " .. one .. " 2>&1")) do
    t.check(not line:match("^Error"), "%s: %s", one, line)
  end
end)

-- The recipe with outputs that are NaN everywhere.
t.test("DICOM: what is not finite is no result", function()
  local text, n = t.read("scripts/brain_unet.lua"):gsub(
    "nn%.sigmoid%(logits%)", "%0, none = (logits - logits) / (logits - logits)")
  t.equal(n, 1, "places in the script")
  text = text:gsub("predict = {", '%0 output = "none", fractions = true,')
  local out = folder .. "/nan_dicom"
  t.says(t.write(folder .. "/nan.lua", text) .. " predict --preset check --weights " .. folder
         .. "/runs/brain_unet/001 --in " .. t.lines("ls -d " .. folder .. "/phantom/flair-*")[1]
         .. " --out " .. out, 5, "output none: PHANTOM_001: 1024 of 1024 values of the prediction "
         .. "are not finite")
  t.equal(#t.lines("ls " .. out), 0, "files made")
end)

t.test("NIfTI: a case that is not finite is named, the others stay", function()
  local script = t.write(folder .. "/square.lua", [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { batch = 3, fractions = false, epochs = 1 }
local set = seg.data.nifti { root = cfg.data, image = "*_T1w", mask = "*_T1w_brainmask" }
local train, valid = set:split { valid = 1, seed = 1 }
local x = nn.input("image", { c = 1, h = 32, w = 32 })
local m = nn.input("mask", { c = 1, h = 32, w = 32 })
local y = nn.conv(x, 1, 1)
seg.recipe { inputs = { x, m }, outputs = { mask = y, a = y * x }, loss = nn.mse(y, m),
  train = train:slices { axis = "stored" }:batches { size = 3 },
  valid = valid:slices { axis = "stored" }:batches { size = 3 },
  optim = seg.optim.sgd { lr = 0 }, predict = { image = "*", fractions = cfg.fractions } }
]])
  local data, heads = t.lines("ls -d " .. folder .. "/phantom/t1-*")[1], folder .. "/heads"
  run(script .. " --data " .. data .. " --out " .. folder .. "/square")
  local image = t.lines("find " .. data .. " -name '*_T1w.nii.gz' | sort")[1]
  os.execute("mkdir " .. heads .. " && gunzip -c " .. image .. " > " .. heads .. "/a.nii && cp "
             .. heads .. "/a.nii " .. heads .. "/c.nii")
  -- its voxels are finite, their squares are not: scl_slope, at byte 112
  local bytes = t.read(heads .. "/a.nii")
  t.write(heads .. "/b.nii", bytes:sub(1, 112) .. string.pack("<f", 1e30) .. bytes:sub(117))
  for flag, files in pairs { ["--no-fractions"] = "a.nii.gz c.nii.gz",
                             ["--fractions"] = "a.nii.gz a_fraction_1.nii.gz c.nii.gz c_fraction_1"
                               .. ".nii.gz" } do
    local out = folder .. "/square" .. flag
    t.says(script .. " predict " .. (flag == "--fractions" and flag or "") .. " --weights "
           .. folder .. "/square/square/001 --in " .. heads .. " --out " .. out, 5,
           "output a: b: ")
    t.equal(table.concat(t.lines("ls " .. out), " "), files)
  end
end)

t.test("an output that cannot name a segment is said before it is predicted", function()
  local text = t.read("scripts/brain_unet.lua"):gsub("{ mask = nn%.", '{ ["a\\\\b"] = nn.')
  local n
  text, n = text:gsub(', names = { "tumour" }', "")
  t.equal(n, 1, "places in the script")
  local script = t.write(folder .. "/output.lua", text)
  local data = t.lines("ls -d " .. folder .. "/phantom/flair-*")[1]
  t.says(script .. " predict --preset check --weights " .. folder
         .. "/runs/brain_unet/001/checkpoint_best.safetensors --in " .. data .. " --out " .. folder
         .. "/output", 2, 'outputs: name of segment 1, "a\\b", has a backslash')
  t.equal(#t.lines("ls -d " .. folder .. "/output 2>/dev/null"), 0, "folders made")
end)

t.test("results beside their images change nothing", function()
  local data = t.lines("ls -d " .. folder .. "/phantom/flair-*")[1]
  local both = folder .. "/both"
  os.execute("cp -r " .. data .. " " .. both .. " && cp -r " .. folder .. "/dicom " .. both .. "/r")
  run("scripts/brain_unet.lua predict --preset check --weights " .. folder
    .. "/runs/brain_unet/001/checkpoint_best.safetensors --in " .. both .. " --out " .. both .. "2")
  t.equal(#t.lines("ls " .. both .. "2/*.dcm"), 6, "SEG files")
end)

t.test("evaluate gives what training measured", function()
  local summary = t.read(folder .. "/runs/brain_unet/001/summary.json")
  local measured = summary:match('"test".-"dice": {.-"mean": ([%d.e-]+)')
  local text = run(recipe("brain_unet", "evaluate") .. " --split test --json")
  t.equal(text:match('"dice": {.-"mean": ([%d.e-]+)'), measured, "dice of the test set")
end)

t.test("weights know the numbers they were trained with", function()
  local weights = " --weights " .. folder .. "/runs/brain_unet/001/checkpoint_best.safetensors"
  local data = t.lines("ls -d " .. folder .. "/phantom/flair-*")[1]
  -- no preset, no --base, no --size: the weights determine the network
  run("scripts/brain_unet.lua predict --in " .. data .. " --out " .. folder .. "/known" .. weights)
  t.equal(#t.lines("ls " .. folder .. "/known/*.dcm"), 6, "SEG files")
end)

t.test("weights of another network are refused with both lists", function()
  local code, text = t.program("scripts/brain_unet.lua predict --preset check --base 8 --weights "
    .. folder .. "/runs/brain_unet/001/checkpoint_best.safetensors --in x --out " .. folder .. "/y")
  t.equal(code, 3, "exit code")
  local part = "bottom.conv1.weight (64,32,3,3) instead of (128,64,3,3)"
  t.check(text:find(part, 1, true), text)
end)

-- The recipe that docs/guide.md shows, as a reader would copy it.
t.test("the small recipe of the documentation", function()
  local text = t.read("docs/guide.md"):match("```lua\n(%-%- mine%.lua.-)```")
  local script = t.write(folder .. "/mine.lua", text)
  local small = " --size 32 --base 4 --epochs 1 --batch 4 --out " .. folder .. "/mine"
  run(script .. small .. " plan")
  local data = t.lines("ls -d " .. folder .. "/phantom/t1-*")[1]
  run(script .. small .. " --data " .. data)
  run(script .. " --resume " .. folder .. "/mine/mine/001 --epochs 2")
  local images = folder .. "/mine_images"
  run(script .. " predict --weights " .. folder .. "/mine/mine/001/checkpoint_best.safetensors"
    .. " --in " .. data .. " --out " .. images)
  t.equal(#t.lines("ls " .. images), 6, "files made")
  -- without a folder only commands that open it fail
  local missing = "--data is missing: data.nifti has no folder to open"
  -- outside the folder of their run the weights do not know where its data is
  os.execute("cp " .. folder .. "/mine/mine/001/checkpoint_best.safetensors " .. folder)
  for _, command in ipairs { "train", "evaluate --weights " .. folder
                             .. "/checkpoint_best.safetensors" } do
    local said = t.says(script .. small .. " " .. command, 2, missing)
    t.check(said:find("give --data DIR", 1, true), said)
  end
end)

t.test("files that are called otherwise", function()
  local odd = folder .. "/odd"
  local image = t.lines("find " .. folder .. "/phantom -name '*_T1w.nii.gz' | sort")[1]
  os.execute("mkdir " .. odd)
  for i = 1, 7 do os.execute("cp " .. image .. " " .. odd .. "/head" .. i .. ".nii.gz") end
  local predict = "scripts/nfbs_unet.lua predict --preset check --weights " .. folder
    .. "/runs/nfbs_unet/001/checkpoint_best.safetensors --in " .. odd .. " --out " .. odd .. "_out"
  t.says(predict, 3, odd .. ': none of 7 NIfTI files is called "*_T1w"; there are head1, head2, '
         .. "head3, head4, head5, ...; fix: --image PATTERN (* is any text)")
  run(predict .. " --image 'head*'")
end)

t.test("inspect of folders, runs and segmentations", function()
  local nifti = t.lines("ls -d " .. folder .. "/phantom/t1-*")[1]
  local text = run("inspect " .. nifti .. "/")
  t.check(text:find("_T1w.nii.gz  +32x32x8, [^\n]+, axial, axes %u%u%u, origin"), text)
  t.check(text:find("\n12 NIfTI files\n", 1, true), text)
  -- of many files the first 20, damaged ones by name, both formats
  local mixed = folder .. "/mixed"
  os.execute("mkdir -p " .. mixed .. "/a && cp -r " .. folder .. "/phantom/flair-* " .. mixed)
  os.execute("for i in $(seq 30); do cp " .. t.lines("find " .. nifti .. " -name '*_T1w.nii.gz'")[1]
    .. " " .. mixed .. "/a/f$i.nii.gz; done; echo x > " .. mixed .. "/a/f1.nii"
    .. "; echo x > " .. mixed .. "/a/f2.NII")
  require("seg").array.save(mixed .. "/z.npy", require("seg").array.zeros { 2, 3 })
  text = t.says("inspect " .. mixed, 3, "")
  for _, part in ipairs { "... and 13 more", "32 NIfTI files, 1 .npy file", "a/f1.nii  ",
                          "damaged: " .. mixed .. "/a/f1.nii: nifti: ",
                          "this folder holds 12 DICOM series as well:", "FLAIR" } do
    t.check(text:find(part, 1, true), "%s\n%s", part, text)
  end
  -- a path longer than a hundred letters
  local deep = mixed .. "/" .. ("x"):rep(60) .. "/" .. ("y"):rep(60)
  os.execute("mkdir -p " .. deep .. " && mv " .. mixed .. "/flair-* " .. deep)
  t.says("inspect " .. mixed, 3, ("y"):rep(60))
  t.check(run("inspect " .. deep):find(("y"):rep(60), 1, true), "a long path")
  -- predictions of DICOM
  text = run("inspect " .. t.lines("ls " .. folder .. "/dicom/*.dcm")[1])
  t.check(text:find("\n%d+x%d+x%d+, [^\n]+ mm, axial, axes LPS, origin"), text)
  t.check(text:find("\nBINARY segmentation, %d+ frames\n"), text)
  t.check(text:find("\ntumour  +1  +%d+\n"), text)
  text = run("inspect " .. folder .. "/runs/brain_unet/001")
  for _, part in ipairs { "run of brain_unet, finished\n", "\nepochs      1 of 1\n",
                          "\nbest        ", ", epoch 1\n", "checkpoint_best.safetensors",
                          "\nsize = 32" } do
    t.check(text:find(part, 1, true), "%s\n%s", part, text)
  end
end)

remove()
t.finish()
