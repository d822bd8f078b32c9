-- patches.lua -- volumes in patches: training draws random positions, prediction uses a grid that
-- covers the volume.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local folder, remove = t.folder()

local function phantom()
  return seg.data.phantom { format = "nifti", patients = 3, size = 24, slices = 20, seed = 2,
                            root = folder .. "/p" }
end

local script = t.write(folder .. "/volume.lua", [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { workers = 1, draw = "random" }
local cases = seg.data.phantom { format = "nifti", patients = 3, size = 24, slices = 20, seed = 2,
                                 root = "]] .. folder .. [[/p" }
local train, valid, test = cases:split { valid = 1, test = 1, seed = 1 }
local function prepare(set)
  return set:normalize {}:patches { d = 8, h = 16, w = 32, count = 3, foreground = 0.5,
                                    at = cfg.draw }
end
local x = nn.input("image", { c = 1, d = 8, h = 16, w = 32 })
local y = nn.input("mask", { c = 1, d = 8, h = 16, w = 32 })
local z = nn.conv(nn.relu(nn.conv(x, 2, 3)), 1, 1)
seg.recipe { inputs = { x, y }, outputs = { mask = nn.sigmoid(z) }, loss = nn.bce_dice(z, y),
  train = prepare(train):augment { flip = true }:batches { size = 2, shuffle = true },
  valid = prepare(valid):batches { size = 2 }, test = prepare(test):batches { size = 2 },
  metrics = { dice = seg.metric.dice(z, y) }, best = { "dice", "max" },
  optim = seg.optim.adamw { lr = 1e-2 }, epochs = 2 }
]])

t.test("trains on patches, predicts whole volumes", function()
  local text = t.says(script .. " --out " .. folder .. "/runs", 0, "done:")
  t.check(text:find("train: .-3 samples, the first 1x1x8x16x32"), "%s", text)
  -- valid has the patches of the recipe, test has whole cases
  t.check(text:find("test: .-samples, the first 1x1x8x16x24") or text:find("test: ", 1, true))
  t.check(text:find("dice per case (whole volume): mean", 1, true), "%s", text)
  t.check(text:find("%(patches %d") and text:find("; per patch %d"), "%s", text)
  local image = t.lines("find " .. folder .. "/p -name '*_T1w.nii.gz' | sort")[1]
  local out = folder .. "/out"
  t.says(script .. " predict --weights " .. folder .. "/runs/volume/001 --in " .. image .. " --out "
         .. out, 0, "nii.gz")
  local function size(path) return (t.says("inspect " .. path, 0, "x"):match("%d+x%d+x%d+")) end
  t.equal(size(t.lines("ls " .. out .. "/*.nii.gz")[1]), size(image), "extents of the prediction")
end)

t.test("a run that is cut and resumed draws the same patches", function()
  local a, b = folder .. "/a", folder .. "/b"
  t.says(script .. " --out " .. a, 0, "done:")
  t.says(script .. " --steps 1 --out " .. b, 0, "stopped after 1 step")
  t.says(script .. " --workers 2 --resume " .. b .. "/volume/001", 0, "done:")
  local last = "/volume/001/checkpoint_last.safetensors"
  t.check(t.read(a .. last) == t.read(b .. last), "checkpoints differ")
end)

t.test("patches of a slice's depth are for networks of 2-D", function()
  local flat = t.write(folder .. "/flat.lua", (t.read(script):gsub("d = 8, h = 16, w = 32, count",
                                                                  "d = 1, h = 16, w = 32, count")
    :gsub("d = 8, h = 16, w = 32 }", "h = 16, w = 32 }")))
  t.says(flat .. " --epochs 1 --out " .. folder .. "/flat", 0, "done:")
  local deep = t.write(folder .. "/deep.lua", (t.read(script):gsub("d = 8, h = 16, w = 32 }",
                                                                  "h = 16, w = 32 }")))
  t.says(deep .. " plan", 2, 'input "image" is 2-D, but the train set gives whole volumes; patches '
         .. "of 2-D have d = 1")
  deep = t.write(folder .. "/deep.lua", (t.read(script):gsub("d = 8, h = 16, w = 32, count",
                                                            "d = 1, h = 16, w = 32, count")))
  t.says(deep .. " plan", 2, 'is 3-D, but the train set gives pictures; leave out d = 1')
end)

-- A network with a receptive field of one voxel gives the same results for patches and for the
-- whole, with any overlap.
t.test("patches blend to the whole", function()
  local nn = seg.nn
  local function predict(set, n)
    return nn.scope("deep" .. n.d, function()
      local x = nn.input("image" .. n.d, { c = 1, d = n.d, h = n.h, w = n.w })
      local model = seg.model { outputs = { y = nn.sigmoid(x * 0.7) } }
      local p = set:pipeline { threads = 1, cache_bytes = 1 << 20, seed = 1 }
      local loader = set:in_order(2):loader(p, { workers = 0, seed = 1 })
      local whole
      for _ = 1, (loader:batches()) do
        local batch = loader:next()
        local out = model:run { [x.name] = batch.fields[1] }.y
        for i, number in ipairs(batch.samples) do
          whole = whole or core.data.prediction(p, 1, 1)
          if p:item(number) == 1 then whole:put(number, out, i) end
        end
      end
      return whole:restore()
    end)
  end
  local set = phantom():normalize {}
  local a = predict(set, { d = 20, h = 24, w = 24 })
  local b = predict(set:patches { d = 8, h = 16, w = 24, at = "grid" }, { d = 8, h = 16, w = 24 })
  local worst = 0
  for k = 1, 20 do
    local p, q = a:slice(k), b:slice(k)
    for i = 1, 24 do
      for j = 1, 24 do worst = math.max(worst, math.abs(p:get(i, j) - q:get(i, j))) end
    end
  end
  t.check(worst < 1e-6 and b:stats().max > 0.6, "off by %g", worst)
end)

t.test("patches that cannot be", function()
  t.raises(function() phantom():patches {} end, "patches: one of d, h, w is needed")
  t.raises(function() phantom():patches { h = 8, overlap = 1 } end,
           "patches: overlap is 1, wanted 0 to 0.9")
  t.raises(function() phantom():patches { h = 8, at = "anywhere" } end,
           'patches: at is "anywhere", wanted one of random|grid')
  t.raises(function() phantom():slices {}:patches { h = 8 } end,
           "a second patches step: samples are already slices")
end)

remove()
t.finish()
