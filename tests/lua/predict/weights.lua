-- weights.lua -- choosing trained weights: which weights a command takes, on which data they were
-- trained, and on which data they may be measured.

local t = dofile("tests/support/harness.lua")
local core = require "seg.core"
local folder, remove = t.folder()

local says = t.says
local run = folder .. "/runs/brain_unet/001"
local weights = " --weights " .. run .. "/checkpoint_best.safetensors"
local place = " --phantom " .. folder .. "/phantom --out " .. folder .. "/runs"
local brain = "scripts/brain_unet.lua --preset check" .. place

local function shell(command)
  t.check(os.execute(command), command)
end

says(brain, 0, "done:")
-- the same images as files of a user: the program cannot know that they are synthetic
local data, other = folder .. "/data", folder .. "/other"
shell("cp -r " .. folder .. "/phantom/flair-6* " .. data)
says(brain .. " --seed 7 --patients 7 --epochs 1 --steps 1", 0, "stopped")
says("scripts/brain_unet.lua --preset check --patients 3 --steps 1 --size 48 --test 1 --valid 1"
  .. " --phantom " .. folder .. "/phantom --out " .. folder .. "/made", 0, "stopped")
shell("cp -r " .. folder .. "/phantom/flair-3x48* " .. other)

t.test("an input is never written over", function()
  local image = t.lines("find " .. folder .. "/phantom -path '*FLAIR*.dcm'")[1]
  local series = image:match("^(.*)/")
  local out, heads = folder .. "/out", folder .. "/heads"
  local predict = "scripts/brain_unet.lua predict" .. weights
  says(predict .. " --in " .. series .. " --out " .. out, 0, "nii.gz")
  shell("mkdir " .. heads)
  shell("cp " .. out .. "/*.nii.gz " .. heads .. "/a.nii.gz && ln -s heads " .. folder .. "/alias")
  shell("mkdir " .. folder .. "/linked && ln -s ../heads/a.nii.gz " .. folder .. "/linked/a.nii.gz")
  local before = t.read(heads .. "/a.nii.gz")
  for _, where in ipairs { "heads", "alias", "linked" } do
    local text = says(predict .. " --in " .. heads .. "/a.nii.gz --out " .. folder .. "/" .. where,
                      2, "segengine: --out " .. folder .. "/" .. where)
    t.check(text:find("is an input", 1, true) and text:find("give another folder", 1, true), text)
    t.equal(t.read(heads .. "/a.nii.gz"), before, "the input")
    t.check(not text:find("voxels", 1, true), "predicted: " .. text)
  end
  local text = says(predict .. " --in " .. series .. " --out " .. out, 0,
                    "2 files from an earlier command were")
  t.check(text:find(out .. ": 2 files from an earlier command were replaced", 1, true), text)
end)

t.test("cases that were trained on are not measured as new", function()
  local evaluate = "scripts/brain_unet.lua evaluate" .. place .. weights
  local again = says(evaluate .. " --test 4 --valid 1", 3, "--split test: ")
  t.check(again:find("2 of 4 cases were in train", 1, true), again)
  t.check(again:find("cases.csv): the value would be too good; leave out --data", 1, true), again)
  local hash = again:match("the first is (%x+)")
  t.check(t.read(run .. "/cases.csv"):find(hash .. ',"PHANTOM_%d+","PHANTOM_%d+",train,'), hash)
  says(evaluate .. " --split all", 3, "--split all: 4 of 6 cases were in train")
  -- the same voxels under another name
  local named = folder .. "/named"
  t.needs("dcmodify", "test")
  shell("cp -r " .. data .. " " .. named .. " && for d in " .. named .. "/*; do find $d -type f "
    .. "-exec dcmodify -nb -q -m \"(0010,0020)=X_$(basename $d)\" {} +; done")
  says(evaluate .. " --split all --data " .. named, 3, "--split all: 4 of 6 cases were in train")
  -- weights without their run: their patients are unknown
  shell("cp " .. run .. "/checkpoint_best.safetensors " .. folder .. "/alone.safetensors")
  says("scripts/brain_unet.lua evaluate --split all" .. place .. " --weights " .. folder
    .. "/alone.safetensors", 0, "evaluate_all_")
end)

t.test("all cases of another folder, in a file of its own", function()
  local evaluate = "scripts/brain_unet.lua evaluate" .. place
  says(evaluate .. weights, 0, "dice per case (whole volume)")
  local of_run = t.read(run .. "/evaluate_test.json")
  t.check(of_run:find('"split": "test"', 1, true) and of_run:find('"count": 1', 1, true), of_run)
  t.check(of_run:find('"base": "4"', 1, true), of_run)
  local summary = t.read(run .. "/summary.json")
  local identity = of_run:match('"data": "(%x+)"')
  t.equal(summary:match('"data": "(%x+)"'), identity, "the data of summary.json")
  -- the patients have the names of the run's patients, the images differ
  local renamed = folder .. "/renamed"
  shell("mkdir " .. renamed .. " && cp -r " .. other .. "/patient_01 " .. renamed)
  local text = says(evaluate .. weights .. " --split all --data " .. renamed, 0, "written: ")
  local file = text:match("written: (%S+)")
  t.check(file:match("/evaluate_all_%x+%.json$"), file)
  t.check(t.read(file):find('"count": 1', 1, true), t.read(file))
  t.check(t.read(file):match('"data": "(%x+)"') ~= identity, "the same hash for other images")
  t.equal(t.read(run .. "/evaluate_test.json"), of_run, "the result on the run's data")
end)

t.test("a recipe that does not split has no all", function()
  local text = t.read("scripts/brain_unet.lua"):gsub("cases:split {.-}\n", "cases, cases, cases\n")
  local script = t.write(folder .. "/brain_unet.lua", text)
  says(script .. " evaluate --split all" .. place .. weights, 2, "this recipe does not split")
end)

t.test("evaluate takes the data of the run", function()
  local out = folder .. "/real"
  local line = "scripts/brain_unet.lua --preset check --out " .. out
  says(line .. " --data " .. data, 0, "done:")
  local text = says("scripts/brain_unet.lua evaluate --out " .. out, 0, "data: that of the run ("
    .. data .. ")")
  t.check(not text:find("synthetic patients", 1, true), text)
  t.check(text:find("trained on real data, image FLAIR", 1, true), text)
  t.check(text:find("evaluate_test.json", 1, true), text)
  local best = out .. "/brain_unet/001/checkpoint_best.safetensors"
  shell("cp " .. best .. " " .. folder .. "/real.safetensors")
  says("scripts/brain_unet.lua evaluate" .. place .. " --weights " .. folder
       .. "/real.safetensors",
       0, "trained on real data and are measured on synthetic patients")
end)

t.test("which weights: finished before newest, and what they know", function()
  -- 001 is finished, 002 was stopped
  local evaluate = "scripts/brain_unet.lua evaluate" .. place
  local text = says(evaluate, 0, "001/checkpoint_best.safetensors (epoch 1), trained on synthetic")
  t.check(text:find("passed over: newer run 002 (not finished: stopped by --steps 1); --weights "
                    .. folder .. "/runs/brain_unet/002 takes it", 1, true), text)
  local stopped = folder .. "/runs/brain_unet/002"
  text = says(evaluate .. " --split train --weights " .. stopped .. "/", 0, "no best checkpoint")
  t.check(text:find("002/checkpoint_last.safetensors", 1, true), text)
  says(evaluate .. " --split train --weights " .. run, 0, "001/checkpoint_best.safetensors")
  says(evaluate .. " --weights " .. folder, 2, "neither checkpoint_best.safetensors nor")
  -- weights of synthetic patients only, for images of a user
  local home = folder .. "/home"
  shell("mkdir " .. home .. " && cp -r " .. folder .. "/runs " .. home .. "/runs")
  local script = t.lines("pwd")[1] .. "/scripts/brain_unet.lua"
  local function predict(more)
    return select(2, t.program(script .. " predict --out p " .. more, "cd " .. home .. " && "))
  end
  t.check(predict("--in " .. data):find("trained on synthetic patients; valid", 1, true), "said")
  t.needs("dcmodify", "test")
  shell("find " .. data .. "/patient_01 -type f -exec dcmodify -nb -q -m '(0010,0020)=A1' {} +")
  text = predict("--in " .. data .. "/patient_01")
  t.check(text:find("were trained on synthetic patients; train on real ones", 1, true), text)
  text = predict("--in " .. data .. "/patient_01 --weights runs/brain_unet/001")
  t.check(text:find("p/A1.nii.gz", 1, true), text)
end)

t.test("weights that do not fit: a few names, and the script of then", function()
  local text = says("scripts/brain_unet.lua evaluate --base 8" .. place .. weights, 3,
                    "; fix: the script of that training, " .. run .. "/recipe.lua, or these "
                    .. "options")
  t.check(text:find("of another shape: bottom.conv1.weight", 1, true), text)
  t.check(not text:find("in the network, not in", 1, true), "a list of names: " .. text)
  t.equal(select(2, text:gsub(" instead of ", "")), 5, "names")
  t.check(text:find("other options: base 4 (here 8)", 1, true), text)
  text = says(brain .. " --base 8" .. weights, 3, "base 4 (here 8)")
  t.check(not text:find("patients: ", 1, true), "opened data: " .. text)
end)

-- A network and its data, for a recipe and for a script that computes the same with the numerical
-- interface.
local network = [[
local seg = require "seg"
local nn = seg.nn
local x = nn.input("image", { c = 1, h = 32, w = 32 })
local m = nn.input("mask", { c = 1, h = 32, w = 32 })
local low = nn.relu(nn.batch_norm(nn.conv(x, 4, 3, { name = "low" })))
local y = nn.conv(low, 1, 3, { name = "head" })
local loss = nn.bce_dice(y, m)
]]

t.test("training begins from weights", function()
  local script = t.write(folder .. "/fine.lua", network .. [[
local cases = seg.data.phantom { patients = 4, size = 32, slices = 6, root = "]] .. folder
    .. [[/fine" }
local train = cases:split { test = 1, seed = 1 }
train = train:normalize {}:slices {}:augment { flip = true, noise = true }
seg.recipe { inputs = { x, m }, outputs = { y = y }, loss = loss, frozen = { "low" },
  train = train:batches { size = 4, shuffle = true }, optim = seg.optim.sgd { lr = 0.1 } }
]])
  local line = script .. " --out " .. folder .. "/fine_runs"
  says(line .. " --epochs 3", 0, "done:")
  local first = folder .. "/fine_runs/fine/001/checkpoint_last.safetensors"
  local text = says(line .. " --steps 1 --weights " .. folder .. "/fine_runs/fine/001", 0,
                    "weights: " .. first .. " (epoch 3) (the run has no best checkpoint")
  t.check(text:find("stopped after 1 step", 1, true), text)
  local meta = core.checkpoint.meta(folder .. "/fine_runs/fine/002/checkpoint_last.safetensors")
  t.equal(meta.epoch, "0")
  -- the first batch of a run of the same seed, and the loss of the weights on it
  says(script .. " export --steps 1 --reference " .. folder .. "/none", 2, "leave frozen out")
  local plain = t.write(folder .. "/steps.lua", (t.read(script):gsub('frozen = { "low" },', "")))
  says(plain .. " export --steps 1 --reference " .. folder .. "/steps", 0, "initial weights")
  local step = t.write(folder .. "/step.lua", network .. [[
local s = seg.step { loss = loss, optim = seg.optim.sgd { lr = 0.1 } }
s:load(arg[1])
local at = arg[2] .. "/step_0001_"
print(string.format("%.9g", (s:run { image = seg.array.load(at .. "image.npy"),
                                     mask = seg.array.load(at .. "mask.npy") })))
]])
  local loss = tonumber(says(step .. " " .. first .. " " .. folder .. "/steps", 0, "."))
  t.near(tonumber(meta.loss_sum) / tonumber(meta.seen), loss, 1e-6 * loss, "loss of step 1")
  local new = tonumber(t.read(folder .. "/steps/loss.csv"):match("([%d.e-]+)\n$"))
  t.check(math.abs(new - loss) > 0.01 * loss, "the loss of weights that were not trained")
  -- one layer more: the message names the missing parameters
  local more = t.write(folder .. "/more.lua", (t.read(script):gsub('nn.conv%(low, 1, 3',
    'nn.conv(nn.conv(low, 4, 1, { name = "between" }), 1, 3')))
  says(more .. " --weights " .. first, 3, "2 missing: between.bias, between.weight")
  says(more .. " --weights " .. folder .. "/no.safetensors", 3, "there is no such file")
end)

t.test("every slice is predicted, and only whole volumes are called so", function()
  local head = "scripts/nfbs_unet.lua --preset check --middle 0.5 --phantom " .. folder
    .. "/phantom --out " .. folder .. "/runs"
  says(head, 0, "dice per case of the slices used (4 of 8): mean")
  t.check(t.read(folder .. "/runs/nfbs_unet/001/summary.json")
    :find('"of": "of the slices used (4 of 8)"', 1, true), "summary.json")
  -- probabilities of one half everywhere: label 0 was not predicted
  local image = t.lines("find " .. folder .. "/phantom -name '*_T1w.nii.gz' | sort")[1]
  local text = t.read("scripts/nfbs_unet.lua"):gsub("predict = {",
                                                      '%0 output = "half", threshold = 0.4,')
    :gsub("mask = nn.sigmoid%(logits%)", "%0, half = nn.sigmoid(logits * 0)")
  local half = t.write(folder .. "/nfbs_unet.lua", text)
  says(half .. " predict --weights " .. folder .. "/runs/nfbs_unet/001 --in " .. image .. " --out "
    .. folder .. "/full", 0, "nii.gz")
  local made = core.data.read_nifti(t.lines("ls " .. folder .. "/full/*.nii.gz")[1])
  t.equal(made:stats().nonzero, 1.0, "share of the voxels predicted")
end)

t.test("a prediction has the label values of the files", function()
  local script = folder .. "/labels.lua"
  local function recipe(labels, classes)
    t.write(script, (network:gsub("nn.conv%(low, 1", "nn.conv(low, " .. classes)
      :gsub("nn.bce_dice%(y, m%)", "nn.cross_entropy(y, m)")) .. ([[
local cases = seg.data.nifti { root = "DATA", image = "*_T1w", mask = "*_T1w_brainmask",
                               patient = "file", labels = LABELS }
local train = cases:split { test = 1, seed = 1 }
train = train:resize { h = 32, w = 32 }:normalize {}:slices {}
seg.recipe { inputs = { x, m }, outputs = { y = nn.softmax(y) }, loss = loss,
  train = train:batches { size = 8 }, optim = seg.optim.sgd { lr = 0.1 },
  predict = { image = "*_T1w" } }
]]):gsub("DATA", folder .. "/labelled"):gsub("LABELS", labels))
  end
  -- masks of another value, made from a prediction of ones
  local source = t.lines("ls -d " .. folder .. "/phantom/t1-*")[1]
  shell("cp -r " .. source .. " " .. folder .. "/labelled")
  local ds = core.data.open_nifti(source, { image = "*_T1w_brainmask", patient = "file" })
  for i, case in ipairs(ds:cases()) do
    local path = t.lines("find " .. source .. " -path '*" .. case.key:match("[^/]+$")
      .. "*brainmask.nii.gz'")[1]
    local p = core.data.pipeline(ds, "", {})
    local whole = core.data.prediction(p, i, 1):restore()
    -- everything is class 1, but for one slice; as 255
    local classes = whole:labels(-1):relabel { 255 }
    classes:write_nifti(folder .. "/labelled" .. path:sub(#source + 1), ds, i)
  end
  recipe("{ 255 }", 2)
  local out = " --out " .. folder .. "/labels_runs"
  says(script .. " --epochs 4" .. out, 0, "done:")
  local w = folder .. "/labels_runs/labels/001"
  t.equal(core.checkpoint.meta(w .. "/checkpoint_last.safetensors").labels, "255")
  local image = t.lines("find " .. source .. " -name '*_T1w.nii.gz' | sort")[1]
  local function largest(name)
    says(script .. " predict --weights " .. name .. " --in " .. image .. " --out " .. folder
      .. "/labels_out", 0, "nii.gz")
    return core.data.read_nifti(t.lines("ls " .. folder .. "/labels_out/*.nii.gz")[1]):stats().max
  end
  t.equal(largest(w), 255.0, "label of the prediction")
  -- exported weights have the label values too; those of earlier versions do not
  says(script .. " export --weights " .. w .. " --safetensors " .. folder .. "/ex.safetensors", 0,
       "parameters")
  t.equal(largest(folder .. "/ex.safetensors"), 255.0, "label of exported weights")
  local old = t.write(folder .. "/old.lua", [[
local core = require "seg.core"
]] .. network:gsub("nn.conv%(low, 1", "nn.conv(low, 2"):gsub("nn.bce_dice%(y, m%)",
    "nn.cross_entropy(y, m)") .. [[
local m2 = seg.model { outputs = { y = y } }
local meta = core.checkpoint.load(arg[1], m2.session, false)
meta.labels = nil
core.checkpoint.save(arg[2], m2.session, false, meta)
]])
  says(old .. " " .. w .. "/checkpoint_last.safetensors " .. folder .. "/old.safetensors", 0, "")
  t.equal(largest(folder .. "/old.safetensors"), 1.0, "label of weights that do not know")
end)

t.test("what the classes are called in the files", function()
  local data_of = require("seg").data
  local function labels(o, step)
    local set = data_of.nifti { root = folder, labels = o }
    return (step and set:select { labels = step } or set):labels()
  end
  t.equal(labels { 2, 1 }, "2,1")
  t.equal(labels(nil), nil)
  t.equal(labels "nonzero", nil)
  t.equal(labels({ 1, 2, 4 }, { 3 }), "4")
  t.equal(labels({ 1, 2, 4 }, { 1, 3 }), nil)
end)

t.test("a run by slabs of one subject is resumed and evaluated", function()
  local one = folder .. "/one"
  shell("mkdir " .. one .. " && cp " .. folder .. "/phantom/t1-6*/A00001/* " .. one)
  local line = "scripts/nfbs_unet.lua --preset check --slabs --middle 1 --out " .. folder
    .. "/slabs --data " .. one .. " --valid 0.1"
  says(line .. " --epochs 2 --steps 1", 0, "stopped after 1 step")
  says(line .. " --resume auto --epochs 2", 0, "done:")
  local evaluate = "scripts/nfbs_unet.lua evaluate --out " .. folder .. "/slabs"
  says(evaluate, 0, "evaluate_test.json")
  says(evaluate .. " --split all", 3, "--split all: 1 of 1 cases were in train")
  for _, what in ipairs { "T1w", "T1w_brainmask" } do
    shell("cp " .. folder .. "/phantom/t1-6*/A00002/*_" .. what .. ".nii.gz " .. one .. "/*_"
          .. what .. ".nii.gz")
  end
  says(line .. " --epochs 3 --resume " .. folder .. "/slabs/nfbs_unet/001", 3,
       "has another image than when the run began")
end)

t.test("cases.csv holds any name", function()
  local files = require "seg.report.run"
  local rows = { { case = "aa", key = 'a "b",c\nd', patient = "", part = "train", image = "11" },
                 { case = "bb", key = "", patient = '"', part = "test", image = "22" } }
  files.write_cases(folder, rows)
  local back = files.read_cases(folder)
  t.equal(#back, 2)
  for i, row in ipairs(rows) do
    for k, v in pairs(row) do t.equal(back[i][k], v, k) end
  end
  -- of an earlier version, without the column for the image; and with damaged rows
  t.write(folder .. "/cases.csv", 'case,key,patient,part\naa,"k","p",train\nrubbish\n"open')
  back = files.read_cases(folder)
  t.equal(#back, 1)
  t.equal(back[1].part, "train")
  t.equal(back[1].image, nil)
end)

remove()
t.finish()
