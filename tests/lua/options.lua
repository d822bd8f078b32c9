-- options.lua -- option names of other frameworks, messages on options without an effect, and
-- mistakes that are found before data is opened.

local t = dofile("tests/support/harness.lua")
local folder, remove = t.folder()
local says = t.says
local brain, nfbs = "scripts/brain_unet.lua ", "scripts/nfbs_unet.lua "

t.test("words of PyTorch, Lightning, MONAI and nnU-Net lead to the option", function()
  for _, row in ipairs {
    { "--batch-size 4", "--batch-size: unknown option; here that is --batch" },
    { "--batch_size 4", "--batch_size: unknown option; here that is --batch" },
    { "--bla 4", "--bla: unknown option (segengine" },
    { "--patient folder", "--patient: unknown option; it is an option of data.dicom { ... } in the "
      .. "script, and none of the command line (" },
    { "--skip-unmatched", "--skip-unmatched: unknown option; it is an option of data.dicom" },
    { "--form sform", "--form: unknown option; it is an option of data.nifti { ... }" },
    { "--batch_size=4", "here that is --batch" }, { "--bathc_size 4", "here that is --batch" },
    { "--num-workers 4", "here that is --workers" }, { "--max_epochs 4", "here that is --epochs" },
    { "--learning-rate 1", "here that is --lr" }, { "--weight-decay 1", "here that is --decay" },
    { "--use_amp", "here that is --precision" }, { "--gpus 2", "here that is --device" },
    { "--data-dir x", "here that is --data" }, { "--output_dir x", "here that is --out" },
    { "--ckpt_path x", "here that is --weights" }, { "--img_size 4", "here that is --size" },
    { "--filters 4", "here that is --base" }, { "--optimizer adam", "here that is --optim" },
    { "--early-stopping 4", "here that is --patience" },
    { "--manual_seed 4", "here that is --seed" }, { "--val_split .1", "here that is --valid" },
    { "--accumulate 4", "the script says it: seg.recipe { accumulate = N" },
    { "--deterministic", "runs are deterministic always" },
    { "--epocs 4", 'did you mean "epochs"' }, -- our own words come first
    { "--qzxj 1", "--qzxj: unknown option (segengine scripts/brain_unet.lua --help lists all)" },
  } do
    local text = says(brain .. row[1], 2, row[2])
    t.check(#text < 300, "a screen full of options: " .. text)
  end
  says(nfbs .. "--base 4", 2, "--base: unknown option; here that is --features")
  says("scripts/openkbp_unet3d.lua --base 4", 2, "here that is --filters")
  says(brain .. "-i x", 2, 'option "-i" is not understood; options are written --name VALUE: here '
       .. "that is --in")
  says(brain .. "-x", 2, 'option "-x" is not understood; options are written --name VALUE\n')
  -- an option with - in place of _ is the same
  says(brain .. "plan --preset check --split-seed 3", 0, "parameters")
end)

-- The smallest recipe; `config` and `fields` are inserted into it.
local function recipe(name, config, fields)
  return t.write(folder .. "/" .. name, string.format([[
local seg = require "seg"
local cfg = seg.config { %s }
local x = seg.nn.input("x", { c = 1, h = 4, w = 4 })
local y = seg.nn.conv(x, 1, 3)
local set = seg.data.npy { root = cfg.data or ".", rank = 2, patient = "file" }
seg.recipe { inputs = { x }, outputs = { y = y }, loss = seg.nn.mae(y, x),
             train = set:batches { size = 2 }, optim = seg.optim.adam { lr = 1e-3 }, %s }
]], config, fields))
end

t.test("an option that the program reads changes something", function()
  -- as the recipe of docs/guide.md, which leaves epochs to the program
  local script = recipe("reads.lua", "epochs = 3", "")
  t.check(not says(script .. " plan --epochs 2 --seed 7", 0, "parameters"):find("warning", 1, true))
  says(recipe("own.lua", "epochs = 3", "epochs = 5") .. " plan --epochs 2", 0,
       "warning: --epochs changes nothing here")
  local runs = " --batch 4 --steps 1 --data " .. folder .. " --out " .. folder .. "/own"
  says(script .. runs, 3, "warning: --batch changes nothing here")
  -- the batch size also sets the batches of `plan`
  t.check(not says(script .. " plan --batch 4", 0, "parameters"):find("warning", 1, true))
  local auto = t.write(folder .. "/auto.lua", (t.read(script):gsub("size = 2", 'size = "auto"')))
  t.check(not says(auto .. " plan --batch 4", 0, "parameters"):find("warning", 1, true))
  local fixed = t.write(folder .. "/fixed.lua", (t.read(script):gsub("cfg.data or ", "")))
  says(fixed .. " plan --data elsewhere", 0, "warning: --data changes nothing here")
end)

t.test("the help of a recipe has no comment of another option", function()
  local script = recipe("help.lua", table.concat({
    "\n  wide = 3, -- channels", "tall = 4,", 'plain = "a", deep = 2,',
    "low = 0.1, high = 0.9, -- of the window\n" }, "\n  "), "")
  local text = says(script .. " --help", 0, "options of this recipe")
  for _, line in ipairs {
    "  --wide          3            channels\n", "  --tall          4\n", "  --plain         a\n",
    "  --deep          2\n", "  --low 0.1 --high 0.9         of the window\n" } do
    t.check(text:find(line, 1, true), line .. text)
  end
  -- each number in the recipes of scripts/ has a description of its own
  for _, path in ipairs(t.lines("ls scripts/*.lua")) do
    text = says(path .. " --help", 0, "options of this recipe")
    for line in text:match("with their defaults\n(.-)\n\n"):gmatch "[^\n]+" do
      local _, options = line:gsub("%-%-%w", "")
      local said = options > 1 or line:match "^  %-%-%S+%s+%S+%s+%S" or line:match "^  %-%-%S+%s+%l"
      t.check(said, path .. ": no word about " .. line)
    end
  end
end)

t.test("what the shell makes of a pattern without quotes", function()
  os.execute("mkdir " .. folder .. "/imagesTr; touch " .. folder .. "/imagesTr/1 " .. folder
             .. "/imagesTr/2")
  local script = recipe("r.lua", "", "")
  says(script .. " --image " .. folder .. "/imagesTr/* --epochs 1", 2, '"' .. folder
       .. "/imagesTr/2\" is not a command, but a file or folder; --image takes one value, and the "
       .. "shell makes several words of a pattern with *; fix: quote patterns: --image '" .. folder
       .. "/imagesTr/*'")
  says(script .. " predict --in " .. folder .. "/imagesTr/*", 2, "fix: give the folder: --in "
       .. folder .. "/imagesTr")
  says(script .. " " .. folder .. "/imagesTr", 2, "put its option before it, as --data ")
  says(script .. " trian", 2, 'command "trian" is not known; did you mean "train"')
end)

t.test("what is no script is said to be none, and where to look at it", function()
  local image = t.write(folder .. "/x.nii.gz", "\x1f\x8b\8\0\1\2")
  says(image, 2, image .. " is not a Lua script (it is not text); fix: segengine inspect " .. image)
  local table_file = t.write(folder .. "/x.csv", "key,age\n1,2\n")
  says(table_file, 2, "x.csv is not a Lua script (")
  says(folder, 2, folder .. " is a folder, not a Lua script; fix: segengine inspect " .. folder)
  says(folder .. "/nothere.lua --data x", 2, "there is no script " .. folder .. "/nothere.lua")
  says(t.write(folder .. "/wrong", "local x = 1 2\n"), 2, "wrong:1: unexpected symbol near '2'")
  says(t.write(folder .. "/wrong.lua", "1 2\n"), 2, "wrong.lua:1: ")
end)

t.test("help of commands that need no script", function()
  says("doctor --help", 0, "segengine doctor data SCRIPT.lua")
  says("doctor -h", 0, "segengine doctor data SCRIPT.lua")
  says("doctor --helf", 2, "doctor takes data SCRIPT.lua or nothing")
  says("doctor data --help", 0, "segengine doctor data SCRIPT.lua")
  says("doctor data scripts/brain_unet.lua --help", 0, "options of this recipe")
end)

t.test("a script without a recipe, asked to do something with one", function()
  local script = t.write(folder .. "/forgot.lua", [[
local seg = require "seg"
local x = seg.nn.input("x", { c = 1, h = 4, w = 4 })
local y = seg.nn.relu(x)
]])
  says(script .. " plan", 2, "forgot.lua declares no recipe, so there is nothing to plan; fix: end "
       .. "the script with seg.recipe { ... }")
  says(script .. " train", 2, "nothing to train")
  says(script .. " own words", 0, "") -- of a script, for itself
  says(script .. " export words", 0, "")
  says(script .. " train --data=x", 2, "forgot.lua declares no recipe and reads no arguments, so "
       .. "--data=x did nothing; fix: end the script with seg.recipe { ... }, or read arg in it")
  says(script .. " --bla 3", 0, "") -- of no recipe either
  -- a script that may read its arguments gets them, and so does a file that it includes
  t.write(folder .. "/lib.lua", "return arg[1]")
  for _, text in ipairs { "local n = #arg", "local n = select('#', ...)", "dofile('lib.lua')",
                          "local lib = require 'lib'", "seg.config {}" } do
    local reads = t.write(folder .. "/reads.lua", t.read(script) .. text)
    local code, said = t.program(reads .. " --data=x", "cd " .. folder .. "; ")
    t.equal(code, 0, text .. ": " .. said)
  end
end)

t.test("numbers that do not fit are said as they were given", function()
  local set = ":slices {}:augment { affine = { rotate = 15 } }"
  says(t.write(folder .. "/affine.lua", 'require "seg".data.nifti { root = "." }' .. set), 2,
       "affine: rotate takes {lo, hi}, got 15")
  local two = "predict = { names = { 'anterior' } }, outputs = { y = seg.nn.softmax(z) }"
  local script = t.write(folder .. "/names.lua", (t.read(recipe("n.lua", "", two))
    :gsub("outputs = { y = y }, ", ""):gsub("local set", "local z = seg.nn.conv(x, 3, 3)\n%0")))
  says(script .. " plan", 2, "predict: names must be a list of 2 names, as output \"y\" has 3 "
       .. "channels, of which the first is the background, got 1")
  says(recipe("metric.lua", "", "metrics = { mine = function() end }") .. " plan", 2,
       "metrics must be a table name = metric of seg.metric, or a node, got mine = a function")
end)

t.test("a place that cannot be written is found out before data is opened", function()
  local file = t.write(folder .. "/file", "")
  local check = brain .. "--preset check --phantom " .. folder .. "/phantom "
  for _, row in ipairs {
    { "--out " .. file, "--out" }, { "--out " .. file .. "/a/b", "--out" },
    { "--run " .. file .. "/a --out " .. folder, "--run" },
    { "folds --folds 2 --out " .. file .. "/a", "--out" },
    { "--trace " .. file .. "/t.json --out " .. folder, "--trace" },
    { "--cache_file " .. file .. "/c --out " .. folder, "--cache_file" },
    { "export --reference " .. file .. "/a", "--reference" },
    { "lr_range --out " .. file, "--out" },
  } do
    local text = says(check .. row[1], 1, "file: Not a directory; fix: give another place with "
                      .. row[2])
    t.check(not text:find("synthetic patients", 1, true), "data was opened: " .. text)
  end
  says(check .. "--trace " .. folder .. " --out " .. folder, 2,
       "that is a folder; give the name of a file")
  for _, option in ipairs { "bundle", "onnx", "safetensors" } do
    local path = folder .. "/no/where/x"
    says(check .. "export --" .. option .. " " .. path, 2, "--" .. option .. " " .. path
         .. ": there is no folder " .. folder .. "/no/where; fix: make it")
  end
end)

t.test("the log of a run has its results", function()
  local text = says(brain .. "--preset check --phantom " .. folder .. "/phantom --out " .. folder
                    .. "/runs", 0, "done: ")
  local log = t.read(folder .. "/runs/brain_unet/001/log.txt")
  local line = text:match "dice per case[^\n]*"
  t.check(line and log:find(line, 1, true), "no result in the log:\n" .. log)
end)

remove()
t.finish()
