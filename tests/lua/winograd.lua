-- winograd.lua -- the option `winograd`: its effect on training, and that a run, its weights and
-- its bundle keep it. tests/engine/plan/no_winograd.c tests that it reaches the calls.

local t = dofile("tests/support/harness.lua")
local core = require "seg.core"
local json = require "seg.json"
local seg = require "seg"
local nn = seg.nn
local folder, remove = t.folder()

-- A network with convolutions that Winograd's method accepts: 3x3, 16 or more channels in input and
-- output; the target is a fixed picture.
local x = nn.input("x", { c = 16, h = 24, w = 20 })
local truth = nn.input("t", { c = 1, h = 24, w = 20 })
local hidden = nn.relu(nn.batch_norm(nn.conv(x, 32, 3)))
local second = nn.conv(hidden, 16, 3)
local y = nn.conv(nn.relu(nn.batch_norm(second)), 1, 1)
local loss = nn.bce(y, truth)

local feeds = { x = seg.array.random({ 3, 16, 24, 20 }, 1),
                t = seg.array.random({ 3, 1, 24, 20 }, 2, true) }

-- Losses of 50 steps.
local function trace(winograd)
  local s = seg.step { loss = loss, outputs = { y = y }, seed = 4, winograd = winograd,
                       optim = seg.optim.adamw { lr = 0.002 } }
  local losses = {}
  for i = 1, 50 do losses[i] = s:run(feeds) end
  return losses
end

t.test("a loss trace with and without", function()
  local with, without = trace(true), trace(false)
  t.check(without[20] < 0.95 * without[1], "it learns: %g, then %g", without[1], without[20])
  for i, want in ipairs(without) do
    t.near(with[i], want, (i <= 20 and 1e-3 or 1e-2) * want, "loss of step " .. i)
  end
  t.check(table.concat(with, " ") ~= table.concat(without, " "), "the option does nothing")
  -- true by default, and a second run with false gives the same losses
  t.equal(table.concat(trace(nil), " "), table.concat(with, " "))
  t.equal(table.concat(trace(false), " "), table.concat(without, " "))
end)

t.test("what it may be", function()
  t.raises(function() seg.model { outputs = { y = y }, winograd = "no" } end,
           "winograd must be true or false, got string")
  t.raises(function() trace(1) end, "winograd must be true or false, got number")
  t.says("scripts/brain_unet.lua plan --winograd no", 2,
         '--winograd takes true or false, got "no"')
end)

-- The recipe, with channels that Winograd's method accepts.
local line = "scripts/brain_unet.lua"
local place = " --phantom " .. folder .. "/phantom --out " .. folder .. "/"
local numbers = " --preset check --base 16 --epochs 2"

-- The configuration in the last checkpoint of a run, a key a line.
local function kept(name)
  return core.checkpoint.meta(folder .. "/" .. name
                              .. "/brain_unet/001/checkpoint_last.safetensors").config
end

t.test("a run that is resumed goes on as it began", function()
  t.says(line .. numbers .. " --winograd false" .. place .. "whole", 0, "without Winograd")
  t.check(kept("whole"):find("\nwinograd = false\n", 1, true), kept("whole"))
  local config = t.read(folder .. "/whole/brain_unet/001/config.txt")
  t.check(config:find("\nwinograd = false\n", 1, true), config)
  t.says(line .. numbers .. " --winograd false --steps 5" .. place .. "cut", 0, "")
  local resume = line .. " --resume " .. folder .. "/cut/brain_unet/001"
  local refused = t.says(resume .. " --winograd true", 2, "--winograd true differs from the run")
  t.check(refused:find(" (false);", 1, true), refused)
  t.says(resume .. " --steps 0", 0, "without Winograd")
  t.equal(kept("cut"), kept("whole"))
  local last = "/brain_unet/001/checkpoint_last.safetensors"
  t.equal(t.read(folder .. "/cut" .. last), t.read(folder .. "/whole" .. last), "checkpoint")
end)

-- The bundle of the run `name` has winograd = false; predictions of the script and of the bundle
-- are the same files.
local function bundled(name)
  local run, file = folder .. "/" .. name .. "/brain_unet/001", folder .. "/made.safetensors"
  t.says(line .. " export --bundle " .. file .. " --weights " .. run, 0, "segengine predict")
  local said = json.decode(core.checkpoint.meta(file).bundle, "bundle").run
  t.equal(said.winograd, false)
  local input = t.lines("ls -d " .. folder .. "/phantom/*/*/FLAIR")[1]
  local ends = " --in " .. input .. " --out " .. folder .. "/" .. name
  t.says(line .. " predict --weights " .. run .. ends .. "_a", 0, "nii.gz")
  t.says("predict --bundle " .. file .. ends .. "_b", 0, "nii.gz")
  t.check(os.execute(string.format("diff -r %s/%s_a %s/%s_b", folder, name, folder, name)),
          "other files")
  return file
end

t.test("its weights bring it along, and its bundle", function()
  local run = folder .. "/whole/brain_unet/001"
  local said = t.says(line .. " evaluate --json --weights " .. run, 0, '"winograd": "false"')
  t.check(not said:find('"winograd": "true"', 1, true), said)
  local file = folder .. "/brain.safetensors"
  local export = line .. " export --bundle " .. file .. " --weights " .. run
  t.says(export .. " --winograd true", 0, "segengine predict")
  t.equal(json.decode(core.checkpoint.meta(file).bundle, "bundle").run.winograd, nil)
  bundled("whole")
end)

t.test("the library runs a bundle as it says", function()
  -- a program of its own, as a file's network is read into an empty graph; arg[1]: the file
  local script = t.write(folder .. "/library.lua", [[
local seg, core = require "seg", require "seg.core"
local image = seg.array.random({ 1, 1, 32, 32 }, 5)
local got = seg.open(arg[1], { threads = 1 }):run { image = image }.mask
local roots = core.graph_parse(core.checkpoint.meta(arg[1]).graph)
local m = seg.model { outputs = { mask = roots[1] }, winograd = arg[2] == "with" }
m:load(arg[1])
print("distance " .. m:run({ image = image }).mask:distance(got))
]])
  local file = bundled("whole")
  t.says(script .. " " .. file .. " without", 0, "distance 0.0\n")
  t.check(not t.says(script .. " " .. file .. " with", 0, "distance"):find "distance 0.0\n")
end)

remove()
t.finish()
