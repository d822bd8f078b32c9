-- aliases.lua -- saved keys that are renamed, removed or unknown: runs, series, weights and
-- bundles of version 0.1, with such keys. tests/lua/fixtures.lua reads them as they are.

local t = dofile("tests/support/harness.lua")
local aliases = require "seg.aliases"
local config = require "seg.recipe.config"
local core = require "seg.core"
local json = require "seg.json"
local util = require "seg.util"
local folder, remove = t.folder()

local ROOT = "tests/fixtures/0.1/"

-- The patients that the recipe reads.
require("seg").data.phantom { patients = 6, size = 16, slices = 4,
                              root = folder .. "/phantom" }:dataset()

-- A copy of the fixture `name` in a folder of its own: the folder, and the words of the recipe.
local function copied(to, name)
  to = folder .. "/" .. to
  t.check(os.execute(string.format("mkdir -p %s && cp -r %srecipe.lua %s%s %s", to, ROOT, ROOT,
                                   name, to)))
  return to, to .. "/recipe.lua --phantom " .. folder .. "/phantom --out " .. to
end

-- Replace `from`, which is there once, by `to` in a text file.
local function edit(path, from, to)
  local text, count = t.read(path):gsub(from, (to:gsub("%%", "%%%%")))
  t.equal(count, 1, path .. ": " .. from)
  t.write(path, text)
end

-- The same in the config of a weights file; its checksums stay valid.
local function edit_weights(path, from, to)
  local text, count = core.checkpoint.meta(path).config:gsub(from, to)
  t.equal(count, 1, path .. ": " .. from)
  core.checkpoint.note(path, { config = text })
end

-- Names that were given up since 0.1, whose saved values stay valid.
local RENAMED = { carry = { "auto", "allreduce" }, resident = { "auto", "device_dataset" } }

local checkpoint = "/run/001/checkpoint_last.safetensors"

t.test("the lines of a config get the names of today", function()
  aliases.names.olden = { now = "newer" }
  t.equal(aliases.config("a = 1\nolden = 2\nb = x = y\n"), "a = 1\nnewer = 2\nb = x = y\n")
  aliases.names.olden = nil
  t.equal(aliases.config("a = 1\ndirect = \nwinograd = true\n"), "a = 1\nwinograd = true\n")
  t.equal(aliases.config("direct = \n"), "")
  t.equal(aliases.config("direct = conv1,conv2\n"), "direct = conv1,conv2\n")
  t.equal(aliases.config("no line of a config\n"), "no line of a config\n")
end)

t.test("a renamed key is read under its name of today", function()
  aliases.names.grain = { now = "seed" }
  local flags = { saved_from = "config.txt", saved_config = aliases.config("grain = 7\n") }
  config.line.flags, config.values = flags, nil
  t.equal(config.config {}.seed, 7)
  t.equal(config.differs("grain = 7\n"), nil)
  t.equal(table.concat({ config.differs("grain = 8\n") }, " "), "seed 8 7")
  t.equal(#config.notes, 0)
  config.line.flags, config.values = {}, nil
  t.raises(function() config.config { grain = 1 } end, "seg.config: grain: it is called seed now")
  aliases.names.grain = nil
end)

t.test("a name that was given up is read in saved files, and has a hint elsewhere", function()
  for old, row in pairs(RENAMED) do
    local value, new = table.unpack(row)
    t.equal(aliases.config(old .. " = " .. value .. "\n"), new .. " = " .. value .. "\n")
    t.check(t.read(ROOT .. "run/001/config.txt"):find("\n" .. old .. " = ", 1, true), old)
    t.says("scripts/brain_unet.lua plan --" .. old .. " " .. value, 2,
           "--" .. old .. ": unknown option; it is called --" .. new .. " now")
    t.raises(function() config.config { [old] = value } end,
             "seg.config: " .. old .. ": it is called " .. new .. " now")
  end
end)

t.test("a renamed option of a command has a hint, and a recipe may have its name", function()
  t.says("scripts/brain_unet.lua export --twin x", 2,
         "--twin: unknown option; it is called --reference now")
  t.equal(aliases.config("twin = 2\n"), "twin = 2\n")
  t.equal(aliases.hint("twin"), nil)
end)

t.test("a function that was renamed has a hint", function()
  t.raises(function() return require("seg").nn.hide end,
           "nn.hide: there is no such function; it is called nn.mask_steps now")
end)

t.test("a run is not resumed where its removed key changed results", function()
  local to, recipe = copied("layers", "run")
  local file, before = to .. "/run/001/config.txt", t.read(to .. checkpoint)
  edit(file, "\ndirect = \n", "\ndirect = enc.conv1\n")
  local said = t.says(recipe .. " --resume " .. to .. "/run/001", 2,
                      file .. ": direct = enc.conv1: this version does not choose Winograd by ")
  t.check(said:find("fix: resume it with the version of segengine that began it, or start a new "
                    .. "run, with --winograd false for all layers", 1, true), said)
  t.equal(t.read(to .. checkpoint), before)
end)

t.test("nor is a series, which drops the key where it changed nothing", function()
  local to, recipe = copied("series", "series")
  local file = to .. "/series/001/series.json"
  local line = recipe .. " repeat --double false --resume " .. to .. "/series/001 --seeds 2"
  edit(file, '"%-%-double=false"', '"--double=false", "--direct=enc.conv1"')
  t.says(line, 2, file .. ": direct = enc.conv1: this version does not choose Winograd by ")
  edit(file, "direct=enc.conv1", "direct=")
  t.says(line, 0, "seed_43, 2 of 2: finished before")
  t.check(not t.read(file):find("direct", 1, true), t.read(file))
end)

t.test("weights whose removed key changed results are used with a note", function()
  local to, recipe = copied("weights", "run")
  local path = to .. "/run/001/checkpoint_best.safetensors"
  local line = recipe .. " evaluate --json --weights " .. path
  local plain = t.says(line .. " --quiet", 0, "")
  edit_weights(path, "\ndirect = \n", "\ndirect = enc.conv1\n")
  local note = path .. ": direct = enc.conv1: this version does not choose Winograd by layer; "
    .. "results differ in rounding\n"
  t.says(line, 0, "note: " .. note)
  t.equal(t.says(line .. " --quiet", 0, ""), plain, "results")
end)

t.test("weights and a bundle of 0.1 were trained on synthetic patients", function()
  local to, recipe = copied("origin", "run")
  local path = to .. "/run/001/checkpoint_best.safetensors"
  t.equal(core.checkpoint.meta(path).trained_on, "made-up patients")
  local said = t.says(recipe .. " evaluate --weights " .. path, 0, "trained on synthetic patients")
  t.check(not said:find("trained on real data", 1, true), said)
  t.says("inspect " .. ROOT .. "a.bundle", 0, "trained on synthetic patients")
end)

t.test("so is a bundle", function()
  local to = copied("bundle", "a.bundle")
  local path = to .. "/a.bundle"
  local function change(run)
    local b = json.decode(core.checkpoint.meta(path).bundle, path)
    for k, v in pairs(run) do b.run[k] = v end
    b.prepare = util.list(b.prepare)
    core.checkpoint.note(path, { bundle = util.json(b) })
  end
  local line = "predict --bundle " .. path .. " --in " .. folder .. "/phantom --out " .. to .. "/"
  change { direct = "" }
  t.check(not t.says(line .. "none", 0, "nii.gz"):find("note: ", 1, true))
  change { direct = "enc.conv1" }
  t.says(line .. "some", 0, "note: " .. path .. ": bundle: run: direct = enc.conv1: this version "
         .. "does not choose Winograd by layer; results differ in rounding\n")
  t.check(os.execute(string.format("diff -r %s/none %s/some", to, to)), "other files")
  change { nosuch = 7 }
  t.says(line .. "unknown", 3, path .. ': bundle: run: it has rows "nosuch", which this program')
end)

t.test("a key that nobody knows is an error", function()
  local to, recipe = copied("unknown", "run")
  local file, path = to .. "/run/001/config.txt", to .. "/run/001/checkpoint_best.safetensors"
  edit(file, "\nepochs = ", "\nnosuch = 7\nepochs = ")
  local knows = ': neither this program (' .. core.version .. ') nor the script knows the saved '
    .. 'key "nosuch"; fix: use the version of segengine that wrote it'
  t.says(recipe .. " --resume " .. to .. "/run/001", 3, file .. knows
         .. ", or remove the line if it was added by hand\n")
  edit_weights(path, "\nfold = ", "\nnosuch = 7\nfold = ")
  for _, command in ipairs { "evaluate", "export --onnx " .. to .. "/a.onnx" } do
    t.says(recipe .. " " .. command .. " --weights " .. path, 3, path .. knows .. "\n")
  end
end)

t.test("a key that the script has lost ends a resume, and is noted with weights", function()
  local to, recipe = copied("lost", "run")
  local script, path = to .. "/recipe.lua", to .. "/run/001/checkpoint_best.safetensors"
  edit(script, "noise = 0.05, ", "")
  edit(script, "cfg%.noise", "0.05")
  local before = t.read(to .. checkpoint)
  local file = to .. "/run/001/config.txt"
  t.says(recipe .. " --resume " .. to .. "/run/001", 2, file .. ": the script of the run declares "
         .. "noise = 0.05 in seg.config, and this script does not; fix: declare the same keys "
         .. "again (" .. to .. "/run/001/recipe.lua is the script of the run), or start a new "
         .. "run\n")
  t.equal(t.read(to .. checkpoint), before)
  t.says(recipe .. " evaluate --weights " .. path, 0, "note: " .. path .. ": this script does not "
         .. "declare noise = 0.05, and does not read the saved value\n")
  -- a key that the script does not read counts as declared
  edit(script, "epochs = 12, ", "epochs = 12, noise = 0.05, ")
  t.says(recipe .. " --resume " .. to .. "/run/001 --until_epoch 7 --cache_file " .. to
         .. "/prepared.cases", 0, "resumed at epoch 7")
end)

t.test("scripts and command lines have the names of today only", function()
  local script = t.write(folder .. "/old.lua", 'require("seg").config { direct = "" }\n')
  t.says(script, 2, "old.lua:1: seg.config: direct: it is removed; use --winograd false for all "
         .. "layers")
  t.says("scripts/brain_unet.lua plan --direct enc1.conv2", 2,
         "--direct: unknown option; it is removed; use --winograd false for all layers")
end)

t.test("runs are compared by the names of today", function()
  local to = copied("compared", "run")
  t.check(os.execute(string.format("cd %s && cp -r run other && sed -i '/^direct/d; s/^seed.*/seed "
                                   .. "= 43/' other/001/config.txt", to)))
  local said = t.says("compare " .. to .. "/run/001 " .. to .. "/other/001", 0, "--seed")
  t.check(not said:find("direct", 1, true), said)
end)

remove()
t.finish()
