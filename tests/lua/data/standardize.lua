-- standardize.lua -- statistics of the training cases, from training to prediction.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local data = seg.data

local folder, remove = t.folder()
local script = t.write(folder .. "/standard.lua", (t.read("scripts/brain_unet.lua"):gsub(
  ":normalize %b{}", ':standardize { of = "foreground", clip = { 0.5, 99.5 } }')))

-- Runs the recipe; returns its output, its last weights and their metadata.
local function run(arguments, code, part)
  return t.says(script .. " " .. arguments, code, part)
end

local function out(name)
  return string.format("--preset check --phantom %s/phantom --out %s/%s", folder, folder, name)
end

local function steps_of(name)
  local path = folder .. "/" .. name .. "/standard/001/checkpoint_last.safetensors"
  return core.checkpoint.meta(path).preprocessing, t.read(path)
end

local function numbers(steps)
  return steps:match("\n(standardize [^\n]*mean=%S+ sd=%S+ low=%S+ high=%S+)\n")
end

local steps, weights

t.test("a run finds its numbers, says them and keeps them", function()
  local text = run(out("a") .. " --epochs 2", 0,
                   "train: standardize image: 4 cases, ")
  t.check(text:find("voxels with a label: mean [%d.]+, sd [%d.]+ in [%d.]+ %.%. [%d.]+"), "%s",
          text)
  steps, weights = steps_of("a")
  t.check(numbers(steps), "%s", steps)
  -- the same for any number of threads and any cache
  for i, more in ipairs { "--workers 0", "--workers 4 --cache_mb 0",
                          "--cache_file " .. folder .. "/cases",
                          "--cache_file " .. folder .. "/cases" } do
    local said = run(out("b" .. i) .. " --epochs 2 " .. more, 0, "standardize image")
    local again, same = steps_of("b" .. i)
    t.equal(again, steps)
    t.check(same == weights, "other weights with %s", more)
    if i == 4 then
      t.check(said:find("train: prepared cases: 4 found, 0 added", 1, true), "%s", said)
    end
  end
end)

t.test("a resumed run takes the numbers of its checkpoint", function()
  run(out("c") .. " --epochs 2 --steps 3", 0, "stopped after 3 steps")
  local text = run("--resume " .. folder .. "/c/standard/001", 0, "resumed at epoch")
  t.check(not text:find("standardize image:", 1, true), "they were found again: %s", text)
  local _, same = steps_of("c")
  t.check(same == weights, "other weights after a resume")
  -- another description of the step is another preprocessing
  run(out("d") .. " --epochs 2 --steps 3", 0, "stopped after 3 steps")
  local before = t.read(script)
  t.write(script, (before:gsub("0%.5, 99%.5", "1, 99")))
  t.says(script .. " --resume " .. folder .. "/d/standard/001", 2,
         "the preparation of the data of this script differs from the resumed run")
  t.write(script, before)
end)

t.test("evaluate and predict use the numbers of the weights", function()
  local where = " --weights " .. folder .. "/a/standard/001 --phantom " .. folder .. "/phantom"
  local text = run("evaluate --split test --out " .. folder .. "/e" .. where, 0, "dice per case")
  t.check(not text:find("standardize image:", 1, true), "they were found again: %s", text)
  local json = require("seg.json")
  local summary = json.decode(t.read(folder .. "/a/standard/001/summary.json"), "summary.json")
  t.check(text:find(string.format("dice per case[^\n]*mean %.4f,", summary.test.metrics.dice.mean)),
          "evaluate differs from the run: %s", text)
  run("predict --in " .. folder .. "/phantom --out " .. folder .. "/p --weights " .. folder
      .. "/a/standard/001", 0, "weights: ")
  -- with a changed description the statistics cannot be used
  local before = t.read(script)
  t.write(script, (before:gsub('of = "foreground", ', "")))
  t.says(script .. " evaluate --split test --out " .. folder .. "/e" .. where, 2,
         "its mean and sd were computed with other options")
  t.write(script, before)
end)

t.test("the doctor looks at images before their numbers are known", function()
  t.says("doctor data " .. script .. " " .. out("h"), 0, "0 errors")
end)

t.test("scripts find numbers and hand them on", function()
  local all = data.phantom { patients = 6, size = 16, slices = 8, root = folder }
  local train, valid = all:split { valid = 2, seed = 1 }
  train, valid = train:standardize {}:slices {}, valid:standardize {}:slices {}
  t.raises(function() valid:pipeline {} end, "its mean and sd are not known yet")
  t.raises(function() valid:fitted_as(train) end, "its mean and sd are not known yet")
  local known, said = train:fitted { threads = 2 }
  t.check(said:find("^standardize image: 4 cases, %d+ voxels: mean"), "%s", said)
  t.check(not train.steps:find("mean", 1, true), "the set before has changed")
  valid = valid:fitted_as(known)
  t.equal(valid.steps, known.steps)
  valid:pipeline {}:close()
  -- given statistics: nothing is fitted
  t.raises(function() all:standardize {}:standardize { clip = { 1, 99 } } end,
           "a second standardize of the same field")
  local own = all:standardize { mean = { 0.5 }, sd = { 0.25 } }
  own:pipeline {}:close()
  local _, nothing = own:fitted()
  t.equal(nothing, "")
  t.raises(function() all:standardize { mean = { 1, 2 } } end, "2 numbers in mean, 0 in sd")
  t.raises(function() all:standardize { field = 3 } end, "field takes a name")
  t.raises(function() all:standardize { of = "both" } end, "wanted one of all|foreground")
  t.raises(function() valid:fitted_as(3) end, "fitted_as: wanted a data set, got number")
end)

t.test("a function before it changes what is counted", function()
  local function mean(set)
    return tonumber(set:standardize {}:fitted().steps:match("mean=(%S+)"))
  end
  local set = data.phantom { format = "nifti", patients = 2, size = 16, slices = 4,
                             root = folder .. "/phantom" }
  t.near(mean(set:change(function(case) case.image:add(1000) end)), mean(set) + 1000, 0.01)
end)

t.test("numbers that make images infinite", function()
  local set = data.phantom { format = "nifti", patients = 2, size = 16, slices = 4,
                             root = folder .. "/phantom" }
  t.raises(function() t.first_batch(set:standardize { mean = { 0 }, sd = { 1e-44 } }) end,
           ": mean is 0 and sd 1e-44")
end)

remove()
t.finish()
