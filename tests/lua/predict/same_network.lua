-- same_network.lua -- weights are run by the network that they were trained with: parameters of
-- the same names and shapes are not enough.

local t = dofile("tests/support/harness.lua")
local core = require "seg.core"
local folder, remove = t.folder()
local says = t.says

local text = [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { size = 32 }
local cases = seg.data.phantom { format = "nifti", patients = 4, size = 32, slices = 4, seed = 3,
                                 root = "FOLDER/phantom" }
local train, valid, test = cases:split { valid = 1, test = 1, seed = 1 }
local function prepare(set)
  return set:resize { h = cfg.size, w = cfg.size }:normalize {}:slices {}:batches { size = 4 }
end
local x = nn.input("image", { c = 1, h = cfg.size, w = cfg.size })
local m = nn.input("mask", { c = 1, h = cfg.size, w = cfg.size })
local h = nn.batch_norm(nn.conv(x, 4, 3, { name = "a", stride = 2 }), { name = "norm" })
h = nn.dropout(nn.leaky_relu(h), 0.2)
h = nn.slice(nn.upsample(h, 2), { h = { 1, cfg.size }, w = { 1, cfg.size } })
local z = nn.conv(h, 1, 1, { name = "head" })
seg.recipe { inputs = { x, m }, outputs = { mask = nn.sigmoid(z) }, loss = nn.bce(z, m),
  metrics = { dice = seg.metric.dice(z, m) }, best = { "dice", "max" }, ema = 0.5,
  train = prepare(train), valid = prepare(valid), test = prepare(test),
  optim = seg.optim.sgd { lr = 0.1 }, epochs = 1 }
]]
text = text:gsub("FOLDER", folder)
local out = " --out " .. folder .. "/runs"
local script = t.write(folder .. "/net.lua", text)
says(script .. out, 0, "done:")
local run = folder .. "/runs/net/001"
local best = run .. "/checkpoint_best.safetensors"
local image = t.lines("find " .. folder .. "/phantom -name '*.nii.gz' | sort | head -n 1")[1]

-- Writes the script with `from` (plain text) replaced by `to` under a new name.
local number = 0
local function changed(from, to)
  local at, last = text:find(from, 1, true)
  t.check(at, from)
  number = number + 1
  return t.write(folder .. "/changed_" .. number .. ".lua",
                 text:sub(1, at - 1) .. to .. text:sub(last + 1))
end

local function commands(file, weights)
  weights = " --weights " .. (weights or run)
  return { file .. " predict" .. weights .. " --in " .. image .. " --out " .. folder .. "/results",
           file .. " evaluate" .. out .. weights,
           file .. " export --bundle " .. folder .. "/net.bundle" .. weights }
end

t.test("another network than that of the weights is refused", function()
  for _, c in ipairs {
    { "nn.leaky_relu(h)", "nn.tanh(h)", "leaky_relu there, tanh here after norm" },
    { "nn.leaky_relu(h)", "nn.leaky_relu(h, 0.2)", "leaky_relu there, leaky_relu slope=0.2" },
    { '{ name = "norm" })', '{ name = "norm", eps = 10 })', "batch_norm eps=10 (norm) here" },
    { "nn.sigmoid(z)", "nn.sigmoid(z * 0.2 - 3)", "sigmoid there, scale mul=0.2" },
    { "mask = nn.sigmoid(z)", "other = z", "sigmoid there, nothing more here" },
    { "stride = 2 }", "stride = 2, dilation = 2 }", "dh=2" } } do
    local file = changed(c[1], c[2])
    for _, line in ipairs(commands(file)) do
      local said = says(line, 2, "was trained with another network than the network of this script")
      t.check(said:find(c[3], 1, true) and said:find(best, 1, true), said)
      t.check(said:find("fix: use " .. run .. "/recipe.lua", 1, true), said)
    end
  end
  for _, name in ipairs { "results", "net.bundle", "runs/net/001/evaluate_test.json" } do
    t.check(not core.sys.stat(folder .. "/" .. name), "written: " .. name)
  end
end)

t.test("a file alone says its network, also a bundle", function()
  local alone, bundle = folder .. "/alone.safetensors", folder .. "/net.bundle"
  t.check(os.execute("cp " .. best .. " " .. alone))
  local other = changed("nn.leaky_relu(h)", "nn.relu(h)")
  for _, line in ipairs(commands(other, alone)) do
    says(line, 2, "relu here after norm; fix: the script that trained these weights")
  end
  says(script .. " export --bundle " .. bundle .. " --weights " .. run, 0, "predict --bundle")
  says(commands(other, bundle)[1], 2, "leaky_relu there, relu here")
  says("predict --bundle " .. bundle .. " --in " .. image .. " --out " .. folder .. "/results", 0,
       "voxels")
  -- for the first member of an ensemble and for any other
  says(commands(other, run .. "," .. alone)[1], 2, "leaky_relu there, relu here")
end)

t.test("what changes no output is not refused", function()
  for _, c in ipairs {
    { "loss = nn.bce(z, m)", "loss = nn.bce_dice(z, m)" },
    { "local z", "-- another word\nlocal z" },
    { "mask = nn.sigmoid(z)", "probability = nn.sigmoid(z)" },
    { "mask = nn.sigmoid(z)", "mask = nn.sigmoid(z), logits = z" },
    { "0.2)\nh =", "0)\nh =" } } do
    for _, line in ipairs(commands(changed(c[1], c[2]))) do says(line, 0, folder) end
  end
  -- for images of another size: it only affects padding and crop
  says(commands(script)[3] .. " --size 31", 0, "predict --bundle")
end)

t.test("a network that is deeper than calls may be nested", function()
  local function tape(layers, slope)
    local lines = { "input x 1 1 1 1 4 0 0 0" }
    for i = 1, layers do
      lines[i + 1] = string.format("leaky_relu - %d slope=%s", i - 1, i == layers and slope or 0.1)
    end
    return table.concat(lines, "\n") .. "\nroot " .. layers
  end
  local ok, why = pcall(require("seg.predict.same_network").check, "w",
                        { graph = tape(300000, 0.1), outputs = "y" }, tape(300000, 0.2), "y")
  local part = "output y: leaky_relu slope=0.1 there, leaky_relu slope=0.2 here"
  t.check(not ok and tostring(why):find(part, 1, true), tostring(why))
end)

t.test("training begins from weights of another network", function()
  says(changed("nn.leaky_relu(h)", "nn.tanh(h)") .. out .. " --weights " .. run, 0, "done:")
end)

remove()
t.finish()
