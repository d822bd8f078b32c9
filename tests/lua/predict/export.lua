-- export.lua -- exported files: bundles, which run without their script, and weights for other
-- frameworks. tests/lua/predict/onnx.lua tests networks for other runtimes.

local t = dofile("tests/support/harness.lua")
local core = require "seg.core"
local json = require "seg.json"
local seg = require "seg"
local util = require "seg.util"
local bundle = require "seg.predict.bundle"
local folder, remove = t.folder()
local PYTHON = os.getenv("SEG_PYTHON") or "/usr/bin/python3"

local function shell(command)
  t.check(os.execute(command), command)
end

-- The recipes, trained for an epoch on synthetic patients, as bundles.
local function trained(name)
  local run = { line = string.format("scripts/%s.lua", name), file = folder .. "/" .. name
                .. ".safetensors" }
  local place = string.format(" --out %s/runs --phantom %s/%s", folder, folder, name)
  t.says(run.line .. " --preset check" .. place, 0, "done:")
  run.weights = folder .. "/runs/" .. name .. "/001"
  run.said = t.says(run.line .. " export --bundle " .. run.file .. " --weights " .. run.weights, 0,
                    "segengine predict --bundle " .. run.file)
  return run
end
local brain, head = trained "brain_unet", trained "nfbs_unet"

-- Checks that two folders have the same files, by name and bytes.
local function same(a, b)
  local files = t.lines("cd " .. a .. " && find . -type f | sort")
  t.check(#files > 0, "nothing in " .. a)
  shell(string.format("diff -r %s %s", a, b))
  return #files
end

t.test("a bundle predicts what its script predicts, to the byte", function()
  local dicom = t.lines("ls -d " .. folder .. "/brain_unet/*")[1]
  local nifti = t.lines("find " .. folder .. "/nfbs_unet -name '*_T1w.nii.gz' | sort")
  local n = 0
  for i, case in ipairs {
    { brain, dicom, 12 }, { brain, nifti[1], 1 }, { head, nifti[1], 1 },
    { head, t.lines("ls -d " .. folder .. "/nfbs_unet/*")[1], 6 } } do
    local run, input, files = table.unpack(case)
    local by_script, by_bundle = folder .. "/script" .. i, folder .. "/bundle" .. i
    t.says(run.line .. " predict --weights " .. run.weights .. " --in " .. input .. " --out "
           .. by_script, 0, "nii.gz")
    -- from another folder, without the script
    local code, text = t.program("predict --bundle " .. run.file .. " --in " .. input .. " --out "
                                 .. by_bundle .. (i == 1 and " --batch 3 --threads 1" or ""),
                                 "cd / && ")
    t.equal(code, 0, text)
    t.equal(same(by_script, by_bundle), files)
    n = n + files
  end
  t.equal(n, 20)
end)

t.test("with one result a voxel, segments, a threshold and probabilities", function()
  local script = t.write(folder .. "/own.lua", [[
local seg = require "seg"
local nn = seg.nn
local x = nn.input("image", { c = 1, h = 24, w = 24 })
local m = nn.input("mask", { c = 1, h = 24, w = 24 })
local y = nn.conv(nn.relu(nn.conv(x, 4, 3)), 1, 3)
local cases = seg.data.phantom { patients = 4, size = 32, slices = 6, root = "]] .. folder
.. [[/own" }
local train = cases:split { test = 1, seed = 1 }
train = train:resample { spacing_mm = { 8, 8, 0 } }:fit { h = 24, w = 24 }
  :clamp { range = { -5, 900.5 } }:normalize {}:slices { axis = "coronal" }
seg.recipe { inputs = { x, m }, outputs = { mask = nn.sigmoid(y) }, loss = nn.bce(y, m),
  train = train:batches { size = 4 }, optim = seg.optim.sgd { lr = 0.1 }, epochs = 1,
  predict = { image = "FLAIR", names = { "spot" }, threshold = 0.25, fractions = true } }
]])
  t.says(script .. " --out " .. folder .. "/own_runs", 0, "done:")
  local weights = folder .. "/own_runs/own/001"
  t.says(script .. " export --bundle " .. folder .. "/own.safetensors --weights " .. weights, 0,
         "segengine predict")
  local images = t.lines("ls -d " .. folder .. "/own/*")[1]
  t.says(script .. " predict --weights " .. weights .. " --in " .. images .. " --out " .. folder
         .. "/own1", 0, "nii.gz")
  t.says("predict --bundle " .. folder .. "/own.safetensors --in " .. images .. " --out " .. folder
         .. "/own2", 0, "nii.gz")
  t.equal(same(folder .. "/own1", folder .. "/own2"), 12)
  local meta = core.checkpoint.meta(folder .. "/own.safetensors")
  local b = json.decode(meta.bundle, "bundle")
  local one = t.lines("ls -d " .. images .. "/*/FLAIR")[1]
  seg.open(folder .. "/own.safetensors"):predict_file(one, folder .. "/own.dcm")
  local by = t.lines("ls " .. folder .. "/own2/*_001.dcm")
  shell("cmp " .. by[1] .. " " .. folder .. "/own.dcm")
  for _, row in ipairs {
    { script, 3, "own.lua is not a bundle: it is a script; fix: segengine " .. script },
    { one .. "/IM0001.dcm", 3, "not a bundle: it is not a safetensors file; fix: give the file "
     .. "that" },
    { folder, 2, "is a folder, not a bundle; fix: give the file that" },
    { folder .. "/none", 2, "there is no such file; fix: give the file that" } } do
    t.says("predict --bundle " .. row[1] .. " --in " .. images .. " --out " .. folder .. "/own3",
           row[2], row[3])
  end
  -- an output folder that cannot be written is noticed before anything is opened
  local text = t.says("predict --bundle " .. folder .. "/own.safetensors --in " .. images
                      .. " --out " .. folder .. "/own.dcm/a", 1, "own.dcm: Not a directory; fix: ")
  t.check(not text:find("weights:", 1, true), text)
  t.equal(b.prepare[1].step, "resample")
  t.equal(b.prepare[1].spacing_mm[3], 0)
  t.equal(b.prepare[3].range[2], 900.5)
  t.equal(b.predict.threshold, 0.25)
  t.equal(bundle.fill(meta, "x").preprocessing,
          core.checkpoint.meta(weights .. "/checkpoint_last.safetensors").preprocessing)
end)

t.test("windows of volumes, several classes, pieces and holes", function()
  local script = t.write(folder .. "/volumes.lua", [[
local seg = require "seg"
local nn = seg.nn
local x = nn.input("image", { c = 1, d = 4, h = 16, w = 16 })
local m = nn.input("mask", { c = 1, d = 4, h = 16, w = 16 })
local y = nn.conv(nn.relu(nn.conv(x, 4, 3)), 3, 3)
local cases = seg.data.phantom { format = "nifti", patients = 4, size = 32, slices = 8,
                                 root = "]] .. folder .. [[/volumes" }
local train = cases:split { test = 1, seed = 1 }
train = train:normalize {}:patches { d = 4, h = 16, w = 16, count = 2 }
  :augment { flip = { axis = "hw" } }
seg.recipe { inputs = { x, m }, outputs = { other = nn.conv(y, 1, 1), mask = nn.softmax(y) },
  loss = nn.cross_entropy(y, m), train = train:batches { size = 2 },
  optim = seg.optim.sgd { lr = 0.3 }, epochs = 3, ema = 0.9,
  predict = { image = "*_T1w", output = "mask", names = { "a", "b" }, keep = 2, overlap = 0.25,
              fill_holes = true, each = { b = { keep = "largest", connect = 6 },
                                          { min_ml = 3, fill_holes = "slices" } } } }
]])
  t.says(script .. " --out " .. folder .. "/volume_runs", 0, "done:")
  local weights, file = folder .. "/volume_runs/volumes/001", folder .. "/volumes.safetensors"
  t.says(script .. " export --bundle " .. file .. " --weights " .. weights, 0, "segengine predict")
  -- training drew random patches, predict covers the whole volume
  local shown = t.says("inspect " .. file, 0, "patches d=4 h=16 w=16 at=grid count=1 ")
  t.check(not shown:find("at=random", 1, true), shown)
  local image = t.lines("find " .. folder .. "/volumes -name '*_T1w.nii.gz' | sort")[1]
  local by = {}
  for i, line in ipairs { script .. " predict --weights " .. weights,
                          "predict --bundle " .. file } do
    for k, more in ipairs { "", " --tta flips" } do
      local out = folder .. "/volumes" .. i .. k
      t.says(line .. " --in " .. image .. " --out " .. out .. more, 0, "nii.gz")
      by[#by + 1] = out
    end
  end
  same(by[1], by[3])
  same(by[2], by[4])
  local v = core.data.read_nifti(t.lines("ls " .. by[1] .. "/*.nii.gz")[1]):stats()
  t.check(v.max > 0 and v.nonzero < 1, "nothing was found, or everything")
  -- a column of each class
  local said = t.says("predict --bundle " .. file .. " --in " .. image .. " --out " .. by[1], 0,
                      "voxels")
  local _, ml, a, b = said:match("case +voxels +ml +a_ml +b_ml +file\n%S+ +(%S+) +(%S+) +"
                                   .. "(%S+) +(%S+)")
  t.near(tonumber(a) + tonumber(b), tonumber(ml), 0.02, "ml of the classes")
  t.says("predict --bundle " .. file .. " --json --in " .. image .. " --out " .. by[1], 0,
         '"a_ml": ' .. tonumber(a))
  -- the bundle has the averaged weights, which differ from the last weights
  local average = t.write(folder .. "/average.lua", [[
local core = require "seg.core"
local roots = core.graph_parse(core.checkpoint.meta(arg[1]).graph)
local function session()
  return core.session { roots = roots, device = "cpu", threads = 1, seed = 9 }
end
local given, mean, plain, ema, raw = session(), session(), session(), {}, {}
core.checkpoint.load(arg[1], given, false)
for _, p in ipairs(core.checkpoint.tensors(arg[2])) do
  local name = p.name:match("^ema%.(.*)")
  if name then ema[p.name], raw[name] = name, name end
end
core.checkpoint.import(arg[2], mean, ema)
core.checkpoint.import(arg[2], plain, raw)
local off, other = 0, 0
for _, p in ipairs(given:params()) do
  off = off + given:get(p.name):distance(mean:get(p.name))
  other = other + given:get(p.name):distance(plain:get(p.name))
end
print(off == 0, other > 0)
]])
  t.says(average .. " " .. file .. " " .. weights .. "/checkpoint_last.safetensors", 0,
         "true\ttrue")
  seg.open(file):predict_file(image, folder .. "/volumes.nii.gz")
  shell("cmp " .. by[1] .. "/*.nii.gz " .. folder .. "/volumes.nii.gz")
end)

t.test("from C, without Lua: the same bytes", function()
  local nifti = t.lines("find " .. folder .. "/nfbs_unet -name '*_T1w.nii.gz' | sort")[1]
  local dicom = t.lines("ls -d " .. folder .. "/brain_unet/*/*")[1]
  local out = folder .. "/c"
  shell("mkdir " .. out)
  local m = seg.open(brain.file, { threads = 1 })
  m:predict_file(dicom, out .. "/a.nii.gz")
  m:predict_file(dicom, out .. "/a.dcm")
  m:predict_file(nifti, out .. "/b.nii.gz")
  seg.open(head.file, { threads = 2 }):predict_file(nifti, out .. "/c.nii.gz")
  for i, case in ipairs {
    { brain, dicom, "*.nii.gz", "a.nii.gz" }, { brain, dicom, "*.dcm", "a.dcm" },
    { brain, nifti, "*.nii.gz", "b.nii.gz" }, { head, nifti, "*.nii.gz", "c.nii.gz" } } do
    local by_program = folder .. "/program" .. i
    t.says("predict --bundle " .. case[1].file .. " --in " .. case[2] .. " --out " .. by_program, 0,
           "nii.gz")
    local made = t.lines("ls " .. by_program .. "/" .. case[3])
    t.equal(#made, 1)
    shell("cmp " .. made[1] .. " " .. out .. "/" .. case[4])
  end
end)

t.test("a bundle is weights too", function()
  local input = t.lines("find " .. folder .. "/nfbs_unet -name '*_T1w.nii.gz' | sort")[2]
  t.says(head.line .. " predict --weights " .. head.file .. " --in " .. input .. " --out " .. folder
         .. "/again", 0, "nii.gz")
  local m = seg.open(head.file, { threads = 1 })
  t.equal(table.concat(m:outputs().mask, "x"), "1x1x32x32")
end)

-- A copy of the bundle with other metadata: change(meta, rows) -> text for the key bundle.
local function altered(name, change)
  local meta = core.checkpoint.meta(head.file)
  local rows = json.decode(meta.bundle, "bundle")
  local text = change(meta, rows)
  meta.bundle = text ~= false and (text or util.json(rows)) or nil
  local path = folder .. "/" .. name .. ".safetensors"
  core.checkpoint.save(path, head.session, false, meta)
  return path
end

t.test("what is wrong with a bundle is said before anything is predicted", function()
  local image = t.lines("find " .. folder .. "/nfbs_unet -name '*_T1w.nii.gz' | sort")[1]
  local meta = core.checkpoint.meta(head.file)
  local roots = core.graph_parse(meta.graph)
  head.session = core.session { roots = roots, device = "cpu", threads = 1, seed = 1 }
  t.raises(function() core.graph_parse(meta.graph) end, "there is a network already")
  -- message of the program, change, and message of the C library if it differs
  for i, case in ipairs {
    { "its version is 2, this program (", function(_, b) b.version = 2 end },
    { "its version is old", function(_, b) b.version = "old" end },
    { "its version is missing", function(_, b) b.version = nil end },
    { "its version is missing", function() return "[]" end },
    { "json: line 1", function() return "{" end, "bundle: expected '\"'" },
    { 'it has rows "crop", which this program', function(_, b) b.crop = {} end,
      'it has "crop", which this program' },
    { "prepare is missing, want a table", function(_, b) b.prepare = nil end,
      "prepare is missing" },
    { "predict is a string, want a table", function(_, b) b.predict = "x" end,
      "predict is a text, want a table" },
    { 'prepare: row 2: no step "shear"; fix: the version of segengine', function(_, b)
      b.prepare[2].step = "shear"
    end },
    { "prepare: row 1: resize has no", function(_, b) b.prepare[1].bend = 3 end },
    { "prepare: row 2 has no step", function(_, b) b.prepare[2] = { h = 3 } end },
    { "prepare: row 2 has no step", function(_, b) b.prepare[2] = "resize" end },
    { 'predict: unknown option "shrink"', function(_, b) b.predict.shrink = { 1 } end,
      'predict: it has "shrink"' },
    { "predict: threshold must be a number between 0 and 1", function(_, b)
      b.predict.threshold = 2
    end, "threshold is 2, want a number between 0 and 1" },
    { "predict: overlap must be a number from 0 to 0.9", function(_, b)
      b.predict.overlap = 1
    end, "overlap is 1, want a number from 0 to 0.9" },
    { "predict: min_ml must be a number above 0", function(_, b) b.predict.min_ml = -1 end,
      "min_ml is -1, want a number above 0" },
    { "read: options is missing, want a table", function(_, b) b.read.options = nil end },
    { 'read: it has rows "as", which', function(_, b) b.read.as = 1 end, 'read: it has "as"' },
    { "run: batch is a table, want a whole number", function(_, b) b.run.batch = {} end,
      "run: batch is a table, want a number" },
    { "run: winograd is a number, want a boolean", function(_, b) b.run.winograd = 0 end,
      "run: winograd is a number, want true or false" },
    { 'no input "picture"', function(_, b) b.inputs = { "picture" } end },
    { "other inputs", function(_, b) b.inputs = {} end, "inputs is" },
    { 'row 1: no step "flop"', function(_, b) b.flip = { step = "flop" } end, "flip" },
    { 'no output "picture"', function(_, b) b.output = "picture" end },
    { "no output", function(m) m.outputs = "mask,other" end, "1 outputs, but the names" },
    { "network text", function(m) m.graph = "nonsense" end },
    { "holds weights, but is not a bundle; fix: predict with its script", function()
      return false
    end, "holds weights without the preprocessing" },
  } do
    local path = altered("bad" .. i, case[2])
    local out = folder .. "/bad" .. i
    local text = t.says("predict --bundle " .. path .. " --in " .. folder .. "/nfbs_unet --out "
                        .. out, 3, case[1])
    t.check(text:find(path, 1, true), "the file is not named: " .. text)
    t.check(not util.exists(out), "predicted all the same")
    -- and the C library fails too
    local ok, why = pcall(function() seg.open(path):predict_file(image, out .. ".nii.gz") end)
    t.check(not ok and why:find(case[3] or case[1], 1, true),
            case[1] .. " from C: " .. tostring(why))
  end
  -- one changed bit in the weights, one in the metadata
  local bytes = t.read(head.file)
  for i, at in ipairs { #bytes - 9, bytes:find("brain_unet", 1, true) or bytes:find("prepare") } do
    local path = folder .. "/bit" .. i .. ".safetensors"
    t.write(path, bytes:sub(1, at - 1) .. string.char(bytes:byte(at) ~ 1) .. bytes:sub(at + 1))
    t.says("predict --bundle " .. path .. " --in " .. folder .. "/nfbs_unet --out " .. folder
           .. "/bit", 3, path)
  end
end)

t.test("a temperature, which labels do not need, is no reason against C", function()
  local image = t.lines("find " .. folder .. "/nfbs_unet -name '*_T1w.nii.gz' | sort")[1]
  for name, value in pairs { warm = 1.5, cold = false } do
    local path = altered(name, function(_, b) b.predict.temperature = value or nil end)
    seg.open(path):predict_file(image, folder .. "/" .. name .. ".nii.gz")
  end
  shell(string.format("cmp %s/warm.nii.gz %s/cold.nii.gz", folder, folder))
end)

t.test("mistakes of a caller in C", function()
  local images = t.lines("find " .. folder .. "/nfbs_unet -name '*_T1w.nii.gz' | sort")
  local image, out = images[1], folder .. "/caller.nii.gz"
  local function wrong(file, input, output, part)
    local ok, why = pcall(function() seg.open(file):predict_file(input, output) end)
    t.check(not ok and why:find(part, 1, true), part .. ": " .. tostring(why))
    t.check(not util.exists(out), "a file all the same")
  end
  wrong(head.weights .. "/checkpoint_last.safetensors", image, out, "holds weights without the "
        .. "preprocessing")
  wrong(head.file, folder .. "/nothing", out, "there is no such file or folder")
  wrong(head.file, image, folder .. "/x.png", "the name of a result must end in .nii, .nii.gz or")
  wrong(head.file, image, folder .. "/x.dcm", "a DICOM SEG needs an image in DICOM")
  wrong(head.file, folder .. "/nfbs_unet", out, "holds 6 images, want one")
  wrong(head.file, folder .. "/volumes.lua", out, folder)
  wrong(head.file, image, folder .. "/no/such/folder.nii.gz", "no/such")
  local copy = folder .. "/copied"
  shell("mkdir -p " .. copy .. " && cp " .. image .. " " .. copy .. "/a_T1w.nii.gz && ln -s "
        .. "a_T1w.nii.gz " .. copy .. "/b.nii.gz")
  local before = t.read(copy .. "/a_T1w.nii.gz")
  for _, input in ipairs { copy, copy .. "/a_T1w.nii.gz" } do
    wrong(head.file, input, copy .. "/b.nii.gz", "would be written over an input")
  end
  t.equal(t.read(copy .. "/a_T1w.nii.gz"), before, "the input")
  for i, case in ipairs {
    { "mean over mirrored images", function(_, b) b.predict.tta = "flips" end },
    { "does not hold class numbers", function(_, b) b.predict.as = "values" end },
    { "neither NIfTI nor DICOM", function(_, b) b.read.made = { kind = "npy", options = {} } end },
    { "other inputs, or no output", function(_, b) b.inputs = { "image", "image" } end },
    { "keep, fill_holes or connect of class 1", function(_, b) b.predict.keep = "smallest" end },
    { 'each: it has "size"', function(_, b) b.predict.each = { brain = { size = 3 } } end },
    { "each has a class that the output does not have", function(_, b)
      b.predict.each = { skull = { keep = 1 } }
    end },
    { "each has a class that the output does not have", function(_, b)
      b.predict.names, b.predict.each = nil, { mask = { keep = 1 }, mask_300 = { keep = 1 } }
    end },
    { 'precision is "f7"', function(_, b) b.run.precision = "f7" end },
    { "batch is 0", function(_, b) b.run.batch = 0 end },
    { 'labels are "x"', function(_, b) b.labels = "1,x" end },
    { 'form is "third"', function(_, b) b.read.options.form = "third" end },
  } do wrong(altered("caller" .. i, case[2]), image, out, case[1]) end
end)

t.test("mistakes on the command line", function()
  local line = " --in x --out " .. folder .. "/none"
  t.says("predict" .. line, 2, "predict is a command of a recipe: segengine SCRIPT.lua predict; "
         .. "without a recipe it needs a bundle")
  t.says("predict --bundle " .. folder .. "/none" .. line, 2, "there is no such file")
  t.says("predict --bundle " .. head.file .. " --weights x" .. line, 2, "a bundle has its own")
  t.says("predict --bundle " .. head.file .. line, 3, "--in x: there is no such file or folder")
  t.says("predict --bundle " .. head.file .. " --in " .. folder, 2, "predict needs --out DIR")
  t.says("predict --bundle " .. head.file .. " --epocs 3" .. line, 2, "--epocs: unknown option")
  t.says("predict --bundle " .. head.file .. " train" .. line, 2, "one command at a time")
  t.says(head.line .. " predict --bundle " .. head.file .. line, 2, "it has its own network")
  t.says(head.line .. " train --bundle x", 2, "--bundle is not for train, but for export, predict")
  t.equal(t.says("predict --help", 0, "segengine predict --bundle FILE"),
          t.says("predict -h", 0, "new images, with a bundle of export --bundle"))
end)

t.test("what a bundle cannot hold is refused", function()
  local function script(steps, predict)
    return t.write(folder .. "/refused.lua", [[
local seg = require "seg"
local nn = seg.nn
local x = nn.input("image", { c = 1, h = 32, w = 32 })
local m = nn.input("mask", { c = 1, h = 32, w = 32 })
local y = nn.conv(x, 1, 3)
local cases = seg.data.phantom { patients = 4, size = 32, slices = 6, root = "]] .. folder
.. [[/own" }
local train = cases:split { test = 1, seed = 1 }]] .. steps .. [[:slices {}
seg.recipe { inputs = { x, m }, outputs = { mask = nn.sigmoid(y) }, loss = nn.bce(y, m),
  train = train:batches { size = 4 }, optim = seg.optim.sgd { lr = 0.1 }, epochs = 1,
  predict = { ]] .. predict .. [[ } }
]])
  end
  local made = script(":change(function(case) return case end)", "")
  local place = " --out " .. folder .. "/refused_runs"
  t.says(made .. place, 0, "done:")
  t.says(made .. " export --bundle " .. folder .. "/no.safetensors" .. place, 2,
         "calls a function of the script (change)")
  t.check(not util.exists(folder .. "/no.safetensors"), "a file all the same")
end)

t.test("the text of a recipe loses paths, days and names", function()
  local names = { ["MARKER_17"] = true, ["12"] = true, ["JANE DOE"] = true }
  local text, count = bundle.clean([[
-- prepared on 2024-03-01 in /home/jane/brains, see ~/notes.txt and ../x.lua
local root, half = "/data/hospital/a b", size / 2
local series = "1.2.840.113619.2.55.3", "study_20230517"
local part = { test = { "MARKER_17", '12', "JANE DOE" }, k = 12 }
local glob, share = "imagesTr/case_*", a/b
local other = 'C:\scans\new' -- and MARKER_17
]], names)
  for _, word in ipairs { "jane", "hospital", "a b", "notes", "x.lua", "2024", "840", "MARKER",
                          "'12'", "JANE", "scans" } do
    t.check(not text:find(word, 1, true), word .. " is there: " .. text)
  end
  for _, word in ipairs { "size / 2", "imagesTr/case_*", "a/b", "k = 12",
                          "prepared on (date left out)" } do
    t.check(text:find(word, 1, true), word .. " is gone: " .. text)
  end
  t.check(count >= 9, count)
  t.equal(bundle.clean_config("base = 4\nfolder = /data/x\nfold = a/b\nglob = */a\n"
                              .. "who = MARKER_17\n", names), "base = 4\nglob = */a\n")
  local whole = t.read("scripts/brain_unet.lua")
  local same_text, none = bundle.clean(whole, {})
  t.check(same_text == whole and none == 0, "a script without any stays as it is")
end)

t.test("exported weights in PyTorch, and back", function()
  local file, back = folder .. "/torch_in.safetensors", folder .. "/torch_out.safetensors"
  t.says(brain.line .. " export --safetensors " .. file .. " --weights " .. brain.weights, 0,
         "parameters and running statistics")
  local image = seg.array.zeros { 2, 1, 32, 32 }
  for n = 1, 2 do
    for i = 1, 32 do
      for k = 1, 32 do image:set(math.sin(0.3 * i * n) + math.cos(0.2 * k), n, 1, i, k) end
    end
  end
  seg.array.save(folder .. "/torch_x.npy", image)
  t.needs(PYTHON, "test")
  local said = t.lines(PYTHON .. " tests/lua/predict/export_peer.py " .. folder
                       .. " 2>&1; echo code $?")
  local code = said[#said]:match("^code (%d+)$")
  if code == "77" then t.skip(said[#said - 1]) end
  t.equal(code, "0", table.concat(said, "\n"))
  -- the exported file and PyTorch's own, run by PyTorch
  local want = seg.array.load(folder .. "/torch_y.npy")
  local got = seg.open(file, { threads = 1 }):run { image = image }.mask
  local off, all = got:distance(want)
  t.check(off <= 1e-10 * all, string.format("%g of %g", off, all))
  local read = t.write(folder .. "/read.lua", [[
local core = require "seg.core"
local roots = core.graph_parse(core.checkpoint.meta(arg[1]).graph)
local s = core.session { roots = roots, device = "cpu", threads = 1, seed = 9 }
local names = {}
for _, p in ipairs(core.checkpoint.tensors(arg[2])) do names[p.name] = p.name end
core.checkpoint.import(arg[2], s, names)
s:forward({ image = core.array.load(arg[3]) }, false)
core.array.save(arg[4], s:read(roots[1]))
]])
  t.says(string.format("%s %s %s %s/torch_x.npy %s/torch_z.npy", read, file, back, folder, folder),
         0, "")
  off = seg.array.load(folder .. "/torch_z.npy"):distance(got)
  t.equal(off, 0.0, "distance of what came back")
end)

remove()
t.finish()
