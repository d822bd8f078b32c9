-- fuse.lua -- fused operators (--fuse): the same bytes of every recipe's training with and without
-- fusion, also when a run is resumed with the other setting; and the output of plan, bench, check.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local folder, remove = t.folder()

local brain = "scripts/brain_unet.lua --preset check --quiet "

-- Trains a recipe for some steps; returns its last checkpoint.
local function trained(recipe, name, options)
  t.says("scripts/" .. recipe .. ".lua --preset check --quiet --threads 2 --phantom " .. folder
         .. "/" .. recipe .. " --out " .. folder .. "/" .. name .. " " .. options, 0, "")
  return t.read(folder .. "/" .. name .. "/" .. recipe .. "/001/checkpoint_last.safetensors")
end

-- The number of plan rows that are fused with another.
local function fused(recipe, options)
  local text = t.says("scripts/" .. recipe .. ".lua plan --preset check --device cpu " .. options,
                      0, "parameters")
  return select(2, text:gsub(" %+ l?e?a?k?y?_?relu ", ""))
end

t.test("every recipe: the same bytes", function()
  local rows = 0
  for _, recipe in ipairs { "brain_unet", "headpose_cnn", "hippocampus_unet3d", "nfbs_unet",
                            "openkbp_unet3d", "sequence_cnn_lstm" } do
    rows = rows + fused(recipe, "")
    t.equal(fused(recipe, "--fuse false"), 0, recipe)
    local want = trained(recipe, "plain", "--steps 3 --fuse false")
    t.equal(trained(recipe, "fused", "--steps 3 --fuse true") == want, true, recipe)
  end
  t.check(rows > 20, "%d rows run with another", rows)
end)

t.test("resumed the other way", function()
  local want = trained("brain_unet", "whole", "--steps 7 --fuse true")
  trained("brain_unet", "cut", "--steps 3 --fuse false")
  t.equal(trained("brain_unet", "cut", "--steps 7 --fuse true --resume " .. folder
                  .. "/cut/brain_unet/001") == want, true, "checkpoint")
end)

t.test("the same bytes, computed twice as well", function()
  -- scratch memory of Winograd's transforms would dominate so small an arena
  local steps = "--steps 3 --winograd false --recompute "
  local want = trained("brain_unet", "once", steps .. "off --fuse false")
  t.equal(trained("brain_unet", "twice", steps .. "1M") == want, true, "checkpoint")
end)

-- 20 channels are enough for Winograd's method.
local function numerical(channels)
  local nn = seg.nn
  local name = "of" .. channels
  local x = nn.input("x_" .. name, { c = 2, h = 12, w = 12 })
  local y = nn.scope(name, function()
    local a = nn.leaky_relu(nn.batch_norm(nn.conv(x, channels, 3)), 0.2)
    a = nn.relu(nn.batch_norm(nn.conv(a, channels, 3)) + a)
    return nn.relu(nn.batch_norm(nn.conv(a, channels, 3)))
  end)
  local a = seg.array.random({ 2, 2, 12, 12 }, 3)
  local out = {}
  for i, fuse in ipairs { true, false } do
    local m = seg.model { outputs = { y = y }, seed = 4, fuse = fuse }
    m:set(name .. ".norm1.running_mean", seg.array.random({ channels }, 6))
    out[i] = m:run { [x.name] = a }.y
    local target = nn.input(name .. "_t" .. i, { c = channels, h = 12, w = 12 })
    local s = seg.step { loss = nn.mse(y, target), optim = seg.optim.adam { lr = 0.01 },
                         outputs = { y = y }, seed = 4, fuse = fuse }
    local feeds = { [x.name] = a, [target.name] = seg.array.random({ 2, channels, 12, 12 }, 5) }
    for _ = 1, 3 do out[2 + i] = select(2, s:run(feeds)).y end
    out[4 + i] = s:gradients()
  end
  t.equal((out[1]:distance(out[2])), 0, "evaluation")
  t.equal((out[3]:distance(out[4])), 0, "third step")
  for key, g in pairs(out[5]) do t.equal((g:distance(out[6][key])), 0, key) end
end

t.test("evaluation and the numerical face", function()
  numerical(5)
  numerical(20)
end)

-- Convolutions with an implicit concat, in f32 and by Winograd's method.
t.test("a concat in two parts", function()
  local nn = seg.nn
  local x = nn.input("x_parts", { c = 3, d = 4, h = 11, w = 9 })
  local y = nn.scope("parts", function()
    local skip = nn.relu(nn.instance_norm(nn.conv(x, 37, 3)))
    local up = nn.conv(nn.conv(skip, 8, 3), 32, 1)
    return nn.relu(nn.instance_norm(nn.conv(up .. skip, 24, 3)))
  end)
  local feeds, out, gradients = { [x.name] = seg.array.random({ 2, 3, 4, 11, 9 }, 3) }, {}, {}
  for i, fuse in ipairs { true, false } do
    local m = seg.model { outputs = { y = y }, seed = 4, fuse = fuse }
    out[i] = m:run(feeds).y
    local target = nn.input("t_parts" .. i, { c = 24, d = 4, h = 11, w = 9 })
    local s = seg.step { loss = nn.mse(y, target), optim = seg.optim.adam { lr = 0.01 },
                         outputs = { y = y }, seed = 4, fuse = fuse }
    local all = { [x.name] = feeds[x.name],
                  [target.name] = seg.array.random({ 2, 24, 4, 11, 9 }, 5) }
    for _ = 1, 3 do out[2 + i] = select(2, s:run(all)).y end
    gradients[i] = s:gradients()
  end
  t.equal((out[1]:distance(out[2])), 0, "evaluation")
  t.equal((out[3]:distance(out[4])), 0, "third step")
  for key, g in pairs(gradients[1]) do t.equal((g:distance(gradients[2][key])), 0, key) end
end)

-- More than a cache holds: convolutions, a norm and a pool run in micro-batches.
t.test("a wide batch, some samples at a time", function()
  local nn = seg.nn
  local x = nn.input("x_wide", { c = 3, h = 96, w = 96 })
  local y = nn.scope("wide", function()
    local skip = nn.relu(nn.batch_norm(nn.conv(nn.relu(nn.conv(x, 32, 3)), 32, 3)))
    local up = nn.upconv(nn.conv(nn.maxpool(skip, 2), 32, 3), 32, 2)
    return nn.conv(up .. skip, 2, 3)
  end)
  local a, out = seg.array.random({ 16, 3, 96, 96 }, 3), {}
  for _, precision in ipairs { "f32", "bf16" } do
    for i, fuse in ipairs { true, false } do
      local m = seg.model { outputs = { y = y }, seed = 4, fuse = fuse, precision = precision }
      out[i] = m:run { [x.name] = a }.y
    end
    t.equal((out[1]:distance(out[2])), 0, precision)
  end
  local function plan(fuse)
    return core.plan { roots = { y }, inputs = { x_wide = { 16, 3, 96, 96 } }, plain = not fuse }
  end
  t.check(plan(true).microbatched > 4 and plan(false).microbatched == 0, "%d calls",
          plan(true).microbatched)
end)

t.test("evaluation: the same table of cases", function()
  local run = folder .. "/whole/brain_unet/001"
  local got = {}
  for i, fuse in ipairs { "true", "false" } do
    t.says(brain .. "evaluate --split valid --threads 2 --weights " .. run .. " --fuse " .. fuse
           .. " --phantom " .. folder .. "/brain_unet", 0, "")
    got[i] = t.read(run .. "/evaluate_valid.json")
  end
  t.equal(got[1] == got[2], true, "evaluate_valid.json")
end)

t.test("what is said", function()
  t.says(brain .. "plan", 0, "batch_norm + relu")
  t.says(brain .. "plan --base 16", 0, "concat + conv")
  t.says("scripts/brain_unet.lua plan --batch 4 --device cpu", 0, "for a few samples at a time")
  t.says(brain .. "bench --threads 1", 0, "batch_norm + relu")
  t.says(brain .. "bench --threads 1 --fuse false", 0, "batch_norm ")
  t.says(brain .. "check --device cpu --phantom " .. folder .. "/brain_unet", 0,
         "losses that --fuse false changes")
  t.says(brain .. "plan --fuse maybe", 2, "--fuse")
  local x = seg.nn.input("x_said", { c = 1, h = 4, w = 4 })
  local ok, why = pcall(seg.model, { outputs = { y = seg.nn.relu(x) }, fuse = "no" })
  t.check(not ok and tostring(why):find("seg.model: fuse must be true or false, got no", 1, true),
          tostring(why))
end)

remove()
t.finish()
