-- results.lua -- the results of predict for each kind of file, and for several predictions of one
-- image.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local folder, remove = t.folder()

local function run(arguments) return t.says(arguments, 0, "") end
local function bytes(path) return t.read(folder .. "/" .. path) end
local function listed(path) return table.concat(t.lines("ls " .. folder .. "/" .. path), " ") end

-- The same samples through the plan of evaluation and the plan of prediction, in batches of other
-- sizes.
t.test("predict sees and makes what validation does, to the bit", function()
  local script = t.write(folder .. "/same.lua", [[
local core, recipes = require "seg.core", require "seg.recipe.recipe"
local opened = require "seg.data.opened"
dofile("scripts/" .. os.getenv("RECIPE") .. ".lua")
local r = recipes.current
recipes.current = nil -- nothing is to be trained
local path = os.getenv("WEIGHTS")
local name = next(r.outputs)
local function all(recipe, set, purpose)
  local session, list = recipes.session(r, purpose), {}
  require("seg.report.run").load(path, session)
  local d = opened.open(recipe, set)
  for _ = 1, (d.loader:batches()) do
    local batch = d.loader:next()
    session:forward(opened.feeds(batch, d.names, recipe), false)
    local out = session:read(r.outputs[name])
    local flat = out:reshape { out.shape[1], out.count // out.shape[1] }
    for i, number in ipairs(batch.samples) do
      local numbers = {}
      for k = 1, flat.shape[2] do numbers[k] = string.pack("f", flat:get(i, k)) end
      list[table.concat({ d.pipeline:item(number) }, "/")] = table.concat(numbers)
    end
  end
  return list, d.pipeline:cases()
end
local valid = r.valid:fitted_as(r.train:prepare_steps()):in_order(4)
local a = all(r, valid, "evaluate")
local image = valid:in_order(3)
image.steps = core.data.predict_steps(r.train:prepare_steps())
local b = all({ inputs = { r.inputs[1] } }, image, "predict")
local same, values = 0, {}
for key, numbers in pairs(a) do
  if not b[key] then error("no " .. key) end
  if b[key] ~= numbers then error(key .. " differs") end
  same, values[numbers] = same + 1, true
end
local different = 0
for _ in pairs(values) do different = different + 1 end
print("same", same, different)
]])
  for _, name in ipairs { "brain_unet", "nfbs_unet" } do
    run("scripts/" .. name .. ".lua train --preset check --phantom " .. folder .. "/phantom --out "
        .. folder .. "/runs")
    local weights = folder .. "/runs/" .. name .. "/001/checkpoint_best.safetensors"
    local pipe = io.popen(string.format("RECIPE=%s WEIGHTS=%s %s %s --preset check --phantom "
                                        .. "%s/phantom --out %s/x 2>&1", name, weights,
                                        os.getenv("PROGRAM"), script, folder, folder))
    local text = pipe:read("a")
    pipe:close()
    local same, different = text:match("same\t(%d+)\t(%d+)")
    t.check(same and tonumber(same) >= 6 and tonumber(different) >= 6, "%s: %s", name, text)
  end
end)

-- Pictures of w x h grey pixels, the first row on top, as a BMP.
local function write_bmp(path, w, h, value)
  local palette, rows = {}, {}
  for i = 0, 255 do palette[#palette + 1] = string.char(i, i, i, 0) end
  for y = h, 1, -1 do
    local row = {}
    for x = 1, w do row[x] = string.char(value(x, y)) end
    rows[#rows + 1] = table.concat(row) .. ("\0"):rep(-w % 4)
  end
  local pixels = table.concat(rows)
  local head = string.pack("<c2 I4 I4 I4 I4 i4 i4 I2 I2 I4 I4 i4 i4 I4 I4", "BM",
                           54 + 1024 + #pixels, 0, 54 + 1024, 40, w, h, 1, 8, 0, #pixels, 0, 0, 0,
                           0)
  t.write(path, head .. table.concat(palette) .. pixels)
end

-- A network that returns its image, sharpened: 1 above the middle.
local pictures = [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { workers = 1, batch = 2 }
local set = seg.data.images { root = cfg.data, image = "*_x", mask = "*_y", labels = { 255 },
                              patient = "file" }
local train, valid = set:split { valid = 1, seed = 1 }
local function prepare(s) return s:scale {}:fit { h = 16, w = 24 } end
local x = nn.input("image", { c = 1, h = 16, w = 24 })
local y = nn.input("mask", { c = 1, h = 16, w = 24 })
local k = nn.conv(x, 1, 1)
local z = (x - 0.5) * 20 + k * 0
seg.recipe { inputs = { x, y }, outputs = { spot = nn.sigmoid(z) }, loss = nn.bce(z, y),
  train = prepare(train):augment { flip = { axis = "hw" } }:batches { size = 2 },
  valid = prepare(valid):batches { size = 2 }, optim = seg.optim.sgd { lr = 0 }, epochs = 1,
  predict = { PREDICT } }
]]

-- Two components, of 12 and 2 pixels; the large one has a hole.
local function spots(x, y)
  if x >= 3 and x <= 6 and y >= 4 and y <= 7 and not (x == 4 and y == 5) then return 255 end
  return x >= 12 and x <= 13 and y == 9 and 255 or 10
end

local function recipe(name, text, predict)
  return t.write(folder .. "/" .. name .. ".lua", (text:gsub("PREDICT", predict or "")))
end

t.test("pictures in, pictures out", function()
  os.execute("mkdir -p " .. folder .. "/bmp " .. folder .. "/new")
  for i = 1, 4 do
    write_bmp(string.format("%s/bmp/p%d_x.bmp", folder, i), 20, 14, function(x, y)
      return x == i and y == 14 and 20 or spots(x, y)
    end)
    write_bmp(string.format("%s/bmp/p%d_y.bmp", folder, i), 20, 14, function(x, y)
      return spots(x, y) == 255 and 255 or 0
    end)
  end
  write_bmp(folder .. "/new/one.bmp", 20, 14, spots)
  write_bmp(folder .. "/new/two.bmp", 21, 13, spots)
  local script = recipe("picture", pictures)
  run(script .. " --data " .. folder .. "/bmp --out " .. folder .. "/runs")
  local weights = " --weights " .. folder .. "/runs/picture/001"
  local text = run(script .. " predict" .. weights .. " --image '*' --overlays --in " .. folder
                   .. "/new --out " .. folder .. "/png")
  t.equal(listed("png"), "one.png one_overlay.png two.png two_overlay.png")
  local function check(path, w, h, want)
    local v = core.data.read_image(folder .. "/" .. path)
    local a = v:slice(1)
    t.equal(a.shape[1] .. "x" .. a.shape[2], h .. "x" .. w)
    for y = 1, h do
      for x = 1, w do t.equal(a:get(y, x), want(x, y), path .. " at " .. x .. "," .. y) end
    end
  end
  check("png/one.png", 20, 14, function(x, y) return spots(x, y) == 255 and 255 or 0 end)
  check("png/two.png", 21, 13, function(x, y) return spots(x, y) == 255 and 255 or 0 end)
  t.check(text:find("one +17 "), "%s", text)
  -- of the training folder only the images
  run(script .. " predict" .. weights .. " --in " .. folder .. "/bmp --out " .. folder .. "/four")
  t.equal(listed("four"), "p1.png p2.png p3.png p4.png")
  -- one file; components and holes
  script = recipe("picture", pictures,
                  'keep = "largest", fill_holes = true, fractions = true')
  local predict = script .. " predict" .. weights .. " --in " .. folder .. "/new/one.bmp --out "
    .. folder
  text = run(predict .. "/tidy")
  t.equal(listed("tidy"), "one.png one_fractions.npy")
  t.check(text:find("one: class 1 (spot): 1 of 2 pieces gone (2 voxels), 1 voxels of holes filled",
                    1, true), "%s", text)
  check("tidy/one.png", 20, 14, function(x, y)
    return x >= 3 and x <= 6 and y >= 4 and y <= 7 and 255 or 0
  end)
  local p = seg.array.load(folder .. "/tidy/one_fractions.npy")
  t.equal(table.concat(p.shape, "x"), "14x20")
  t.near(p:get(5, 3), 1 / (1 + math.exp(-10)), 1e-6)
  -- the network commutes with mirroring, so the mean equals each prediction, but for rounding
  text = run(predict .. "/tta --tta flips")
  t.check(bytes("tta/one.png") == bytes("tidy/one.png"), "%s", text)
end)

t.test("options of steps that cannot be", function()
  for text, said in pairs {
    ['keep = 0'] = 'predict: keep must be "largest" or a whole number >= 1, got 0',
    ['min_ml = -1'] = "predict: min_ml must be a number above 0, got -1",
    ['fill_holes = 3'] = 'predict: fill_holes must be true, false or "slices", got 3',
    ['connect = 18'] = "predict: connect must be 6 (faces) or 26",
    ['each = { spot = { keeps = 1 } }'] = 'spot: unknown option "keeps"; did you mean "keep"?',
    ['as = "label"'] = 'predict: as is label; did you mean "labels"?',
    ['as = "numbers"'] = 'as = "numbers" needs an output of a case',
    ['overlap = 1'] = "predict: overlap must be a number from 0 to 0.9, got 1",
    ['output = "spots"'] = 'predict: output = "spots" is not an output; did you mean "spot"?',
    ['each = { spat = { keep = 1 } }'] = 'each: there is no class spat; did you mean "spot"?',
  } do
    t.says(recipe("picture", pictures, text) .. " predict --image '*' --weights " .. folder
           .. "/runs/picture/001 --in " .. folder .. "/new --out " .. folder .. "/no", 2, said)
  end
  local script = recipe("picture", pictures)
  local function says(flags, said)
    t.says(script .. " predict --image '*' --weights " .. folder .. "/runs/picture/001 --in "
           .. folder .. "/new --out " .. folder .. "/no " .. flags, 2, said)
  end
  says("--tta d", 'tta: "d" is not an axis of the images; use flips, or axes of w, h with commas')
  says("--mc 0", '--mc takes a whole number from 1 to 10000, got "0"')
end)

-- Sequences of numbers and a table: x is a picture of one grey g, the truth 3 g.
t.test("numbers of cases, turned back", function()
  os.execute("mkdir -p " .. folder .. "/table")
  local rows = { "file,who,angle,other" }
  for i = 1, 5 do
    local a = seg.array.zeros { 2, 3 }
    for y = 1, 2 do
      for x = 1, 3 do a:set(i, y, x) end
    end
    seg.array.save(string.format("%s/table/%d.npy", folder, i), a)
    rows[#rows + 1] = string.format("%d.npy,p%d,%d,%d", i, i, 30 * i, i % 2)
  end
  t.write(folder .. "/table/t.csv", table.concat(rows, "\n") .. "\n")
  local script = t.write(folder .. "/table.lua", [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { workers = 1, batch = 2 }
local set = seg.data.csv { root = cfg.data, table = "t.csv", patient = "who", fields = {
  { name = "image", read = "npy", rank = 2, column = "file" },
  { name = "pose", kind = "numbers", columns = { "angle", "other" } } } }
local train, valid = set:split { valid = { "p5" } }
local function prepare(s) return s:standardize { field = "pose" } end
local x = nn.input("image", { c = 1, h = 2, w = 3 })
local y = nn.input("pose", { c = 2 })
local g = nn.global_pool(x)
local z = nn.dropout(nn.linear(g, 2) * 0 + (g .. g), 0)
seg.recipe { inputs = { x, y }, outputs = { pose = z }, loss = nn.mse(z, y),
  train = prepare(train):batches { size = 2 }, valid = prepare(valid):batches { size = 2 },
  optim = seg.optim.sgd { lr = 0 }, epochs = 1 }
]])
  run(script .. " --data " .. folder .. "/table --out " .. folder .. "/runs")
  local weights = " --weights " .. folder .. "/runs/table/001"
  local predict = script .. " predict" .. weights .. " --in " .. folder
  local text = run(predict .. "/table --out " .. folder .. "/numbers")
  t.check(text:find('pose: the standardisation of "pose" is undone', 1, true), "%s", text)
  local lines = t.lines("cat " .. folder .. "/numbers/predictions.csv")
  t.equal(lines[1], "case,angle,other")
  t.equal(#lines, 6)
  -- mean and sd of 30, 60, 90, 120
  for i = 1, 5 do
    local key, angle = lines[1 + i]:match("^(.-),(.-),")
    t.equal(key, i .. ".npy")
    t.near(tonumber(angle), i * math.sqrt(1125) + 75, 2e-3)
  end
  -- files alone, without a table; the same draws give the same numbers
  run(predict .. "/table/3.npy --out " .. folder .. "/alone --mc 5")
  lines = t.lines("cat " .. folder .. "/alone/predictions.csv")
  t.equal(lines[1], "case,angle,sd_angle,other,sd_other")
  t.near(tonumber(lines[2]:match("^3,(.-),")), 3 * math.sqrt(1125) + 75, 2e-3)
  t.equal(lines[2]:match("^3,.-,(.-),"), "0", "without dropout the draws are the same")
end)

-- The recipe of brain_unet with another text in predict, on the weights from above.
local function brain(name, predict, output)
  local text, n = t.read("scripts/brain_unet.lua"):gsub("predict = {", "%0 " .. predict .. ",")
  t.equal(n, 1, "places in the script")
  if output then text = text:gsub("outputs = { mask = nn%.sigmoid%(logits%) }", output) end
  local script = t.write(folder .. "/" .. name .. ".lua", text)
  return script .. " predict --preset check --weights " .. folder .. "/runs/brain_unet/001 --in "
    .. t.lines("ls -d " .. folder .. "/phantom/flair-*")[1] .. " --out " .. folder .. "/" .. name
    .. " "
end

-- The errors that a program of dicom3tools finds in a file.
local function errors(path)
  local list = {}
  for _, line in ipairs(t.lines("dciodvfy " .. path .. " 2>&1")) do
    if line:match("^Error") then list[#list + 1] = line end
  end
  return table.concat(list, "\n")
end

t.test("a dose in DICOM", function()
  local text = run(brain("dose", 'as = "dose", output = "dose"',
                         "outputs = { mask = nn.sigmoid(logits), dose = nn.sigmoid(logits) * 70 }"))
  t.check(text:find("case +lowest +mean +highest +file"), "%s", text)
  t.equal(#t.lines("ls " .. folder .. "/dose/*.dcm"), 6, "RT doses")
  t.equal(#t.lines("ls " .. folder .. "/dose"), 12, "files")
  text = run("inspect " .. t.lines("ls " .. folder .. "/dose/*.dcm")[1])
  t.check(text:find("RTDOSE", 1, true), "%s", text)
  -- read back with its image: the numbers of the NIfTI
  local both = folder .. "/dose_set"
  os.execute("cp -r " .. folder .. "/phantom/flair-* " .. both .. " && cp " .. folder
             .. "/dose/PHANTOM_001.dcm " .. both)
  local set = seg.data.dicom { root = both, image = "FLAIR", dose = "predicted*",
                               skip_unmatched = true }
  local batch = t.first_batch(set:batches { size = 1 })
  local want = core.data.read_nifti(folder .. "/dose/PHANTOM_001.nii.gz")
  local d, h, w = want:extents()
  t.equal(table.concat(batch.dose.shape, "x"), "1x1x" .. d .. "x" .. h .. "x" .. w)
  local highest = want:stats().max
  t.check(highest > 20, "highest %g", highest)
  for k = 1, d do
    local slice = want:slice(k)
    for y = 1, h do
      for x = 1, w do
        t.near(batch.dose:get(1, 1, k, y, x), slice:get(y, x), highest / 131070 * 1.01)
      end
    end
  end
  t.needs("dciodvfy", "ci")
  t.equal(errors(t.lines("ls " .. folder .. "/dose/*.dcm")[1]), "")
end)

t.test("steps behind a segmentation, in DICOM and NIfTI alike", function()
  local before = run(brain("plain", "threshold = 0.5547"))
  local after = run(brain("tidied", 'threshold = 0.5547, each = { tumour = { keep = 1 } }')
                    .. "--overlays")
  t.check(after:find("PHANTOM_001: class 1 %(tumour%): %d+ of %d+ pieces gone"), "%s", after)
  t.check(before:match("PHANTOM_001 +(%d+)") ~= after:match("PHANTOM_001 +(%d+) "), "%s", after)
  local read = core.data.read_nifti(folder .. "/tidied/PHANTOM_001.nii.gz")
  local voxels = math.tointeger(read:stats().nonzero * read:stats().voxels + 0.5)
  t.check(after:find("PHANTOM_001 +" .. (voxels or "")), "%s", after)
  t.equal(#t.lines("ls " .. folder .. "/tidied/*_overlay.png"), 6)
  local said = run("inspect " .. folder .. "/tidied/PHANTOM_001.dcm")
  t.check(said:find("BINARY segmentation", 1, true), "%s", said)
end)

-- The mean over networks, mirrored images and draws, compared with sums computed here.
t.test("several predictions of one image", function()
  local script = t.write(folder .. "/several.lua", [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { workers = 1, batch = 2, p = 0.5, top = 0 }
local set = seg.data.npy { root = cfg.data, image = "*_x", mask = "*_y", rank = 2,
                           patient = "file" }
local train, valid = set:split { valid = 1, seed = 1 }
local function prepare(s) return s:patches { h = 4, w = 4, at = "grid" } end
local x = nn.input("image", { c = 1, h = 4, w = 4 })
local y = nn.input("mask", { c = 1, h = 4, w = 4 })
local z = nn.conv(nn.dropout(nn.batch_norm(x), cfg.p), 2 + cfg.top, 3)
seg.recipe { inputs = { x, y }, outputs = { map = nn.softmax(z) }, loss = nn.cross_entropy(z, y),
  train = prepare(train):augment { flip = { axis = "w" } }:batches { size = 2 },
  valid = prepare(valid):batches { size = 2 }, optim = seg.optim.sgd { lr = 1 }, epochs = 1,
  predict = { fractions = true } }
]])
  os.execute("mkdir -p " .. folder .. "/npy " .. folder .. "/flat " .. folder .. "/folds")
  local function array(name, f)
    local a = seg.array.zeros { 6, 8 }
    for i = 1, 6 do
      for j = 1, 8 do a:set(f(i, j), i, j) end
    end
    seg.array.save(folder .. "/" .. name .. ".npy", a)
    return a
  end
  for i = 1, 4 do
    array("npy/" .. i .. "_x", function(h, w) return (h * 7 + w * i * 3) % 11 / 5 - 1 end)
    array("npy/" .. i .. "_y", function(h, w) return (h * 7 + w * i * 3) % 11 > 5 and 1 or 0 end)
  end
  local function value(h, w) return (h * h * 3 + w * 5) % 13 / 6 - 1 end
  array("new", value)
  array("turned", function(h, w) return value(h, 9 - w) end)
  for seed = 1, 3 do
    run(script .. " --data " .. folder .. "/npy --seed " .. seed .. " --out " .. folder
        .. "/folds/all")
  end
  local runs = folder .. "/folds/all/several/"
  local function predict(image, weights, out, more)
    local text = run(script .. " predict --weights " .. weights .. " --in " .. folder .. "/"
                     .. image .. ".npy --out " .. folder .. "/" .. out .. " " .. (more or ""))
    return seg.array.load(folder .. "/" .. out .. "/" .. image .. "_fractions.npy"), text
  end
  local function same(a, b, tolerance, what)
    for i = 1, 6 do
      for j = 1, 8 do t.near(a:get(i, j), b(i, j), tolerance, what) end
    end
  end
  local one = {}
  for i = 1, 3 do one[i] = predict("new", runs .. "00" .. i, "e" .. i) end
  t.check(one[1]:distance(one[2]) > 1e-3, "networks are the same")
  -- an ensemble, by names and as a folder of runs
  local function mean(i, j) return (one[1]:get(i, j) + one[2]:get(i, j) + one[3]:get(i, j)) / 3 end
  local names = runs .. "001," .. runs .. "002," .. runs .. "003"
  same(predict("new", names, "ens"), mean, 1e-6, "ensemble")
  same(predict("new", runs, "folds_out"), mean, 1e-6, "folds")
  t.check(bytes("ens/new_fractions.npy") == bytes("folds_out/new_fractions.npy"))
  t.equal(table.concat(t.lines("ls " .. folder .. "/ens"), " "), "new.npy new_fractions.npy")
  -- flips along the axis of training: the mean of the image and its mirror image
  local turned = predict("turned", runs .. "001", "turned_out")
  local both = predict("new", runs .. "001", "tta_out", "--tta flips")
  same(both, function(i, j) return (one[1]:get(i, j) + turned:get(i, 9 - j)) / 2 end, 1e-6, "flips")
  t.check(both:distance(one[1]) > 1e-6, "flips change nothing")
  local mirrored = predict("turned", runs .. "001", "tta_turned", "--tta flips")
  same(mirrored, function(i, j) return both:get(i, 9 - j) end, 1e-6, "of the mirror image")
  -- four ways
  predict("new", runs .. "001", "tta4", "--tta w,h")
  t.check(bytes("tta4/new_fractions.npy") ~= bytes("tta_out/new_fractions.npy"))
  -- draws: the same bytes again, for any batch size; other bytes with another seed
  local _, text = predict("new", runs .. "001", "mc1", "--mc 6")
  t.equal(listed("mc1"), "new.npy new_entropy.npy new_fractions.npy new_mean.npy new_variance.npy")
  predict("new", runs .. "001", "mc2", "--mc 6 --batch 5 --threads 1")
  predict("new", runs .. "001", "mc3", "--mc 6 --seed 9")
  for _, name in ipairs { "new.npy", "new_mean.npy", "new_entropy.npy", "new_variance.npy" } do
    t.check(bytes("mc1/" .. name) == bytes("mc2/" .. name), "%s differs", name)
  end
  t.check(bytes("mc1/new_mean.npy") ~= bytes("mc3/new_mean.npy"), "the seed changes nothing")
  local function load(name) return seg.array.load(folder .. "/" .. name .. ".npy") end
  local variance, average, entropy = load "mc1/new_variance", load "mc1/new_mean",
                                     load "mc1/new_entropy"
  t.check(variance:stats() >= 0 and select(2, variance:stats()) > 1e-3, "%s", text)
  t.equal(table.concat(average.shape, "x"), "2x6x8")
  same(entropy, function(i, j)
    local h = 0
    for c = 1, 2 do
      local p = average:get(c, i, j)
      h = h - p * math.log(p)
    end
    return h
  end, 1e-5, "entropy")
  -- p = 0: no randomness, and the mean equals the prediction without draws
  predict("new", runs .. "001", "mc0", "--mc 4 --p 0")
  local least, most = load("mc0/new_variance"):stats()
  t.equal(least, 0)
  t.equal(most, 0)
  t.check(bytes("mc0/new_fractions.npy") == bytes("e1/new_fractions.npy"), "the mean of one")
  -- members that do not match
  run(script .. " --data " .. folder .. "/npy --top 1 --out " .. folder .. "/top")
  t.says(script .. " predict --weights " .. runs .. "001," .. folder .. "/top/several/001 --in "
         .. folder .. "/new.npy --out " .. folder .. "/no", 3, "does not fit this network")
  local other = t.read(script):gsub("s:patches", "s:scale {}:patches")
  other = t.write(folder .. "/several.lua", other)
  run(other .. " --data " .. folder .. "/npy --out " .. folder .. "/scaled")
  t.says(other .. " predict --weights " .. runs .. "001," .. folder .. "/scaled/several/001 --in "
         .. folder .. "/new.npy --out " .. folder .. "/no", 3, "prepare images otherwise, so their "
         .. "predictions cannot be averaged: ")
end)

-- A patient of OpenKBP: a bright cube, in half of which dose is possible.
local function write_patient(path, from)
  os.execute("mkdir -p " .. path)
  local ct, possible, dose = { ",data" }, { ",data" }, { ",data" }
  for x = from, from + 31 do
    for y = 32, 63 do
      for z = 32, 63, 1 do
        local index = z + 128 * (y + 128 * x)
        ct[#ct + 1] = index .. ",1000.0"
        if y < 48 then
          possible[#possible + 1] = index .. ","
          dose[#dose + 1] = index .. ",20.0"
        end
      end
    end
  end
  local function write(name, rows)
    t.write(path .. "/" .. name .. ".csv", table.concat(rows, "\n") .. "\n")
  end
  write("ct", ct)
  write("possible_dose_mask", possible)
  write("dose", dose)
  t.write(path .. "/voxel_dimensions.csv", ("3.906250000000000000e+00\n"):rep(2)
          .. "2.500000000000000000e+00\n")
end

t.test("patients of OpenKBP in, files of the challenge out", function()
  local script = t.write(folder .. "/kbp.lua", [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { workers = 1, batch = 1 }
local set = seg.data.openkbp { root = cfg.data }
local train, valid = set:split { valid = 1, seed = 1 }
local function prepare(s)
  return s:scale { from = { 0, 1000 } }:resize { d = 32, h = 32, w = 32, method = "linear" }
end
local function input(name) return nn.input(name, { c = 1, d = 32, h = 32, w = 32 }) end
local ct, possible, dose = input "ct", input "possible", input "dose"
local y = (nn.conv(ct, 1, 1) * 0 + ct * 20) * possible
seg.recipe { inputs = { ct, possible, dose }, outputs = { dose = y }, loss = nn.mae(y, dose),
  train = prepare(train):batches { size = 1 }, valid = prepare(valid):batches { size = 1 },
  optim = seg.optim.sgd { lr = 0 }, epochs = 1 }
]])
  for i = 1, 2 do write_patient(folder .. "/kbp/pt_" .. i, 16 + 16 * i) end
  run(script .. " --data " .. folder .. "/kbp --out " .. folder .. "/runs")
  local predict = script .. " predict --weights " .. folder .. "/runs/kbp/001 --in " .. folder
  local text = run(predict .. "/kbp --out " .. folder .. "/submit")
  t.equal(listed("submit"), "pt_1.csv pt_2.csv")
  t.check(text:find("pt_1 +0 +%S+ +20 "), "%s", text)
  -- read back as the dose of a patient: 20 where dose is possible, else less
  os.execute("cp " .. folder .. "/submit/pt_2.csv " .. folder .. "/kbp/pt_2/dose.csv")
  local batch = t.first_batch(seg.data.openkbp { root = folder .. "/kbp" }
                              :filter(function(case) return case.key == "pt_2" end)
                              :batches { size = 1 })
  t.near(batch.dose:get(1, 1, 48 + 17, 40, 40), 20, 1e-4)
  t.equal(batch.dose:get(1, 1, 48 + 17, 60, 40), 0)
  t.equal(batch.dose:get(1, 1, 10, 40, 40), 0)
  -- the archive in the challenge's format
  t.says(predict .. "/kbp --zip " .. folder .. "/submit --out " .. folder .. "/zipped", 2,
         "that is a folder; give the name of a file")
  run(predict .. "/kbp --overlays --zip " .. folder .. "/a/b.zip --out " .. folder .. "/zipped")
  run(predict .. "/kbp --zip " .. folder .. "/c.zip --threads 1 --out " .. folder .. "/zipped")
  t.check(bytes("a/b.zip") == bytes("c.zip"), "other bytes of the same results")
  -- one patient by its folder; no dose is needed
  os.execute("rm " .. folder .. "/kbp/pt_1/dose.csv")
  run(predict .. "/kbp/pt_1 --out " .. folder .. "/single")
  t.check(bytes("single/pt_1.csv") == bytes("submit/pt_1.csv"), "one patient alone")
  t.says(predict .. "/png --out " .. folder .. "/no", 3, "it has no ct.csv, and no folder in it is "
         .. "called pt_N")
  -- Python reads the same files out of the archive
  t.needs("python3", "test")
  t.equal(t.lines("python3 -c 'import zipfile, sys; z = zipfile.ZipFile(sys.argv[1]); print("
                  .. "z.testzip(), *(z.read(n) == open(sys.argv[2] + n, \"rb\").read() and n "
                  .. "for n in z.namelist()))' " .. folder .. "/c.zip " .. folder .. "/submit/")[1],
          "None pt_1.csv pt_2.csv")
end)

-- Two channels, a file each, in nnU-Net's naming; and a table that names pictures.
t.test("layouts of others", function()
  local image = t.lines("find " .. folder .. "/phantom -name '*_T1w.nii.gz' | sort")[1]
  local mask = image:gsub("_T1w", "_T1w_brainmask")
  os.execute(("mkdir -p %s/nn/imagesTr %s/nn/labelsTr %s/nn/imagesTs"):gsub("%%s", folder))
  t.write(folder .. "/nn/dataset.json", '{"channel_names": {"0": "A", "1": "B"}, "labels": '
          .. '{"background": 0, "brain": 1}, "file_ending": ".nii.gz"}')
  for _, case in ipairs { "a_1", "b_1", "c_1" } do
    for c = 0, 1 do
      os.execute(string.format("cp %s %s/nn/imagesTr/%s_%04d.nii.gz", image, folder, case, c))
    end
    os.execute(string.format("cp %s %s/nn/labelsTr/%s.nii.gz", mask, folder, case))
  end
  for c = 0, 1 do
    os.execute(string.format("cp %s %s/nn/imagesTs/new_%04d.nii.gz", image, folder, c))
  end
  local script = t.write(folder .. "/nn.lua", [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { workers = 1, batch = 4 }
local set = seg.data.nnunet { root = cfg.data, patient = "^(%a)" }
local function prepare(s) return s:normalize {}:slices {} end
local x = nn.input("image", { c = 2, h = 32, w = 32 })
local y = nn.input("mask", { c = 1, h = 32, w = 32 })
local z = nn.conv(x, 1, 3)
seg.recipe { inputs = { x, y }, outputs = { brain = nn.sigmoid(z) }, loss = nn.bce(z, y),
  train = prepare(set):batches { size = 4 }, optim = seg.optim.sgd { lr = 0.1 }, epochs = 1 }
]])
  run(script .. " --data " .. folder .. "/nn --out " .. folder .. "/runs")
  local predict = script .. " predict --weights " .. folder .. "/runs/nn/001 --in " .. folder
  run(predict .. "/nn/imagesTs --out " .. folder .. "/nn_out")
  t.equal(listed("nn_out"), "new.nii.gz")
  t.says(predict .. "/nn/imagesTs/new_0000.nii.gz --out " .. folder .. "/no", 2, "the network "
         .. "expects 2 input channels, one file each; give their folder")
  t.says(predict .. "/nn/labelsTr --out " .. folder .. "/no", 3, "no file is called CASE_0000")
end)

-- Sequences of lengths 3 to 8, in two folders; the classes in the order of the cases.
t.test("sequences and their classes", function()
  os.execute(("mkdir -p %s/seq/up %s/seq/down %s/fresh"):gsub("%%s", folder))
  local function write(path, length, sign)
    local a = seg.array.zeros { length, 2 }
    for w = 1, length do
      a:set(sign * w / 8, w, 1)
      a:set(length / 8, w, 2)
    end
    seg.array.save(folder .. "/" .. path .. ".npy", a)
  end
  for i = 3, 8 do
    write("seq/up/" .. i, i, 1)
    write("seq/down/" .. i, i, -1)
    write("fresh/s" .. 9 - i, i, i % 2 == 0 and 1 or -1)
  end
  local script = t.write(folder .. "/seq.lua", [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { workers = 1, batch = 3, epochs = 30, map = false }
local set = seg.data.npy { root = cfg.data, classes = { "down", "up" }, rank = 1, patient = "file",
                           length = true }
local x = nn.input("image", { c = 2, w = 8 })
local y = nn.input("class", { c = 1 })
local z = nn.linear(nn.global_pool(x), 2)
local out = cfg.map and nn.softmax(nn.conv(x, 2, 1)) or nn.softmax(z)
seg.recipe { inputs = { x, y }, outputs = { class = out }, loss = nn.cross_entropy(z, y),
  train = set:batches { size = 3, bucket = "length" }, optim = seg.optim.adamw { lr = 0.1 },
  epochs = cfg.epochs, predict = { as = cfg.map and "values" or nil } }
]])
  run(script .. " --data " .. folder .. "/seq --out " .. folder .. "/runs")
  run(script .. " predict --weights " .. folder .. "/runs/seq/001 --in " .. folder
      .. "/fresh --out " .. folder .. "/seq_out")
  local lines = t.lines("cat " .. folder .. "/seq_out/predictions.csv")
  t.equal(lines[1], "case,class,p_down,p_up")
  t.equal(#lines, 7)
  for i = 1, 6 do
    local key, class, p, q = lines[i + 1]:match("^(.-),(.-),(.-),(.-)$")
    t.equal(key, "s" .. i)
    t.equal(class, (9 - i) % 2 == 0 and "up" or "down")
    t.near(p + q, 1, 1e-5)
  end
  -- a map along the sequence has its own length
  run(script .. " --map --epochs 1 --data " .. folder .. "/seq --out " .. folder .. "/runs_map")
  run(script .. " predict --weights " .. folder .. "/runs_map/seq/001 --in " .. folder
      .. "/fresh --out " .. folder .. "/seq_map")
  for i = 1, 6 do
    local shape = seg.array.load(folder .. "/seq_map/s" .. i .. ".npy").shape
    t.equal(table.concat(shape, "x"), 9 - i .. "x2")
  end
end)

t.test("attention draws too", function()
  local nn = seg.nn
  local x = nn.input("steps", { c = 4, w = 5 })
  local y = nn.attention(x, { heads = 1, dropout = 0.5 })
  local function made(draws, number)
    local s = core.session { roots = { y }, device = "cpu", draws = draws, seed = 3 }
    s:draw(number)
    s:forward({ steps = seg.array.random({ 1, 4, 5 }, 1) }, false)
    return s:read(y)
  end
  t.check(made(true, 0):distance(made(true, 1)) > 1e-6, "draws are the same")
  t.equal((made(true, 1):distance(made(true, 1))), 0)
  t.equal((made(false, 0):distance(made(false, 1))), 0)
end)

remove()
t.finish()
