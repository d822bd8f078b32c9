-- fixtures.lua -- this version reads the files of earlier versions, with the same results.
--
-- tests/fixtures/VERSION/ holds a recipe and files that this version made (tests/fixtures/make): a
-- stopped run, an unfinished series and study, prepared cases, a bundle. results.csv has the
-- results: a checksum of every tensor and of every label map, and the weights of the recipes of
-- scripts/. SEG_FIXTURES_WRITE=DIR writes DIR/results.csv anew.

local t = dofile("tests/support/harness.lua")
local json = require "seg.json"
local util = require "seg.util"
local folder, remove = t.folder()

local ROOT = "tests/fixtures/0.1"
local write = os.getenv("SEG_FIXTURES_WRITE")
if write then ROOT = write end

-- Every processor has these instructions, and they give the same bits on all processors.
local PORTABLE = "SEG_ISA=portable "

-- The results: lines "name,value" in the order of the tests.
local lines, want = {}, {}
if not write then
  for line in t.read(ROOT .. "/results.csv"):gmatch("[^\n]+") do
    local name, value = line:match("^(.*),([^,]*)$")
    want[name] = value
  end
end

-- A result: recorded when writing, compared when reading.
local function result(name, value)
  if write then
    lines[#lines + 1] = name .. "," .. value
  else
    t.equal(value, want[name], name)
  end
end

-- Runs the program, which must end with 0; returns its output.
local function run(arguments)
  local code, text = t.program(arguments, PORTABLE)
  t.equal(code, 0, arguments .. ": " .. text)
  return text
end

-- The checksum that a checkpoint has of each of its tensors, under names that begin with `name`.
local function tensors(name, path)
  local bytes = t.read(path)
  local size = string.unpack("<I8", bytes)
  local header = json.decode(bytes:sub(9, 8 + size), path)
  local digits, at = header.__metadata__["crc32c.tensors"], 0
  header.__metadata__ = nil
  for _, tensor in ipairs(util.sorted_keys(header)) do
    result(name .. " " .. tensor, digits:sub(at + 1, at + 8))
    at = at + 8
  end
  t.equal(at, #digits, path .. ": checksums")
end

-- The patients of the recipe; the cache key of a case contains the time of its file.
require("seg").data.phantom { patients = 6, size = 16, slices = 4,
                              root = folder .. "/phantom" }:dataset()
os.execute("find " .. folder .. "/phantom -type f -exec touch -d @1700000000 {} +")

-- Copies the fixture's recipe and `names` into a new folder.
local function copied(name, names)
  local to = folder .. "/" .. name
  t.check(os.execute(string.format("mkdir -p %s && cd %s && cp -r recipe.lua %s %s", to, ROOT,
                                   names, to)))
  return to, to .. "/recipe.lua --phantom " .. folder .. "/phantom --out " .. to
end

-- The voxels of the label maps that predict has written.
local function labels(name, out)
  for i = 1, 6 do
    local file = string.format("%s/PHANTOM_00%d.nii.gz", out, i)
    result(name .. " " .. i, t.lines("gzip -dc " .. file .. " | tail -c +353 | cksum")[1])
  end
end

t.test("prepared cases are taken, a run goes on with the same bits", function()
  local to, recipe = copied("run", "run prepared.cases")
  local text = run(recipe .. " --resume " .. to .. "/run/001 --cache_file " .. to
                   .. "/prepared.cases")
  for part, cases in pairs { train = 4, valid = 1, test = 1 } do
    local says = string.format("%s: prepared cases: %d found, 0 added", part, cases)
    t.check(text:find(says, 1, true), text)
  end
  t.check(text:find("resumed at epoch 7, batch 1", 1, true), text)
  result("run test", text:match("\ndice per case %(whole volume%): mean (%S+),"))
  tensors("run last", to .. "/run/001/checkpoint_last.safetensors")
  tensors("run best", to .. "/run/001/checkpoint_best.safetensors")
end)

t.test("weights and a bundle predict the same voxels", function()
  local to, recipe = copied("weights", "run a.bundle")
  run(recipe .. " predict --weights " .. to .. "/run/001/checkpoint_best.safetensors --in "
      .. folder .. "/phantom --out " .. to .. "/found")
  labels("weights", to .. "/found")
  run("predict --bundle " .. to .. "/a.bundle --in " .. folder .. "/phantom --out " .. to
      .. "/bundled")
  labels("bundle", to .. "/bundled")
end)

t.test("a series and a study go on", function()
  local to, recipe = copied("series", "series study")
  run(recipe .. " repeat --double false --resume " .. to .. "/series/001 --seeds 3")
  for i, line in ipairs(t.lines("cat " .. to .. "/series/001/seeds.csv")) do
    result("seeds line " .. i, (line:gsub(",", " ")))
  end
  tensors("seed 44", to .. "/series/001/seed_44/checkpoint_last.safetensors")
  local text = run(recipe .. " search --resume " .. to .. "/study/001 --trials 3")
  result("study", (text:match("\n(highest dice: [^\n]*)"):gsub(",", ";")))
  tensors("trial 3", to .. "/study/001/trial_003/checkpoint_last.safetensors")
end)

local RECIPES = { "brain_unet", "headpose_cnn", "hippocampus_unet3d", "nfbs_unet", "openkbp_unet3d",
                  "sequence_cnn_lstm" }

for _, name in ipairs(RECIPES) do
  t.test("the weights of scripts/" .. name .. ".lua with any number of threads", function()
    for threads = 1, write and 1 or 3 do
      local out = folder .. "/threads" .. threads
      run(string.format("scripts/%s.lua --preset check --quiet --threads %d --workers %d "
                        .. "--phantom %s/%s --out %s", name, threads, threads, folder, name, out))
      tensors(name, out .. "/" .. name .. "/001/checkpoint_last.safetensors")
    end
  end)
end

-- The kernels of cuda/ under the emulator, which the build of the tests makes.
t.test("the weights of two steps on a GPU", function()
  local emulated = (os.getenv("BUILD") or "build") .. "/emu/plain/segengine"
  if not write and not util.exists(emulated) then t.skip(emulated .. " (make emulated)") end
  for _, name in ipairs(RECIPES) do
    local out = folder .. "/gpu"
    local line = string.format(PORTABLE .. "EMU_GUARD=0 %s scripts/%s.lua --preset check --steps 2 "
                               .. "--quiet --device cuda --phantom %s/%s --out %s 2>&1", emulated,
                               name, folder, name, out)
    t.check(os.execute(line), line)
    tensors("gpu " .. name, out .. "/" .. name .. "/001/checkpoint_last.safetensors")
  end
end)

if write then t.write(ROOT .. "/results.csv", table.concat(lines, "\n") .. "\n") end
remove()
t.finish()
