-- metrics.lua -- metrics compared with their definitions: slices, patches and whole volumes agree
-- with the files that `predict` writes, for any threads and batch.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local folder, remove = t.folder()
local nn, metric = seg.nn, seg.metric
seg.config { device = "cpu" }

-- A network with a receptive field of one voxel; its two weights fit samples of any rank.
local script = t.write(folder .. "/seen.lua", [[
local seg = require "seg"
local nn, metric = seg.nn, seg.metric
local cfg = seg.config { kind = "slices", draw = "grid", valid_draw = "grid", best = "dice",
                         up = "max", threshold = 0.5, epochs = 2, range = 1.0, workers = 1,
                         cut = 0 }
local cases = seg.data.phantom { format = "nifti", patients = 8, size = 24, slices = 20, seed = 2,
                                 root = "]] .. folder .. [[/p" }
local train, valid, test = cases:split { valid = 2, test = 5, seed = 1 }
local function prepare(set, draw)
  set = set:normalize {}
  if cfg.cut > 0 then set = set:fit { h = cfg.cut, w = cfg.cut } end
  if cfg.kind == "slices" then return set:slices { range = { 0, cfg.range } } end
  if cfg.kind == "whole" then return set end
  return set:patches { d = 8, h = 16, w = 24, count = 2, at = draw }
end
local edge = cfg.cut > 0 and cfg.cut or 24
local n = { c = 1, h = edge, w = edge }
if cfg.kind == "whole" then n.d = 20 elseif cfg.kind == "patches" then n.d, n.h = 8, 16 end
local x, y = nn.input("image", n), nn.input("mask", n)
local z = nn.linear(x, 1)
seg.recipe {
  inputs = { x, y }, outputs = { mask = nn.sigmoid(z) }, loss = nn.bce_dice(z, y),
  train = prepare(train, cfg.draw):batches { size = 2, shuffle = true },
  valid = prepare(valid, cfg.valid_draw):batches { size = 3 },
  test = prepare(test, cfg.draw):batches { size = 2 },
  metrics = { dice = metric.dice(z, y), iou = metric.iou(z, y), precision = metric.precision(z, y),
              sensitivity = metric.sensitivity(z, y), specificity = metric.specificity(z, y),
              accuracy = metric.accuracy(z, y), hd95 = metric.hd95(z, y), hd = metric.hd(z, y),
              union = metric.hd95(z, y, { both = "union" }), assd = metric.assd(z, y),
              close = metric.surface_dice(z, y, { tolerance = 5 }), auc = metric.auc(z, y),
              ml = metric.volume_error(z, y, { signed = true }),
              percent = metric.volume_error(z, y, { unit = "%" }), matrix = metric.confusion(z, y),
              mae = metric.mae(nn.sigmoid(z), y) },
  best = { cfg.best, cfg.up },
  predict = { threshold = cfg.threshold > 0 and cfg.threshold or "valid" },
  optim = seg.optim.adamw { lr = 0.3 }, epochs = cfg.epochs,
}
]])

local run = folder .. "/runs/seen/001"

-- The JSON of `evaluate` as a Lua table.
local function evaluate(more)
  local code, text = t.program(script .. " evaluate --json --quiet --weights " .. run .. " "
                               .. more)
  t.equal(code, 0, "exit code (" .. text .. ")")
  return require("seg.json").decode(text:match("{.*}"), "json")
end

-- Positions of the voxels of a label volume that are not 0, and of its surface: the voxels with a
-- neighbour that is 0.
local function surface_of(volume, n)
  local inside, list = {}, {}
  local function at(d, h, w) return inside[(d * 64 + h) * 64 + w] end
  for d = 1, n.d do
    local slice = volume:slice(d)
    for h = 1, n.h do
      for w = 1, n.w do
        if slice:get(h, w) > 0.5 then inside[(d * 64 + h) * 64 + w] = { w, h, d } end
      end
    end
  end
  local count = 0
  for _, v in pairs(inside) do
    local w, h, d = v[1], v[2], v[3]
    count = count + 1
    if not (at(d - 1, h, w) and at(d + 1, h, w) and at(d, h - 1, w) and at(d, h + 1, w)
            and at(d, h, w - 1) and at(d, h, w + 1)) then
      list[#list + 1] = v
    end
  end
  return inside, list, count
end

-- The distance of every voxel of a to the nearest one of b, ascending.
local function distances(a, b, mm)
  local out = {}
  for i, p in ipairs(a) do
    local best = math.huge
    for _, q in ipairs(b) do
      local x, y, z = mm[1] * (p[1] - q[1]), mm[2] * (p[2] - q[2]), mm[3] * (p[3] - q[3])
      best = math.min(best, x * x + y * y + z * z)
    end
    out[i] = math.sqrt(best)
  end
  table.sort(out)
  return out
end

local function percentile(sorted, q)
  local at = q / 100 * (#sorted - 1)
  local low = math.floor(at)
  local a, b = sorted[low + 1], sorted[low + 2] or sorted[low + 1]
  return a + (at - low) * (b - a)
end

-- Compares the files that `predict` writes into a folder with the truth, voxel by voxel; returns
-- the metrics of each case. flat: without distances.
local function measured_files(out, flat)
  local found = {}
  for _, path in ipairs(t.lines("find " .. folder .. "/p -name '*_brainmask.nii.gz' | sort")) do
    local key = path:match("([^/]+)_T1w_brainmask")
    local written = t.lines("ls " .. out .. "/*" .. key .. "*.nii.gz")[1]
    local p, q = core.data.read_nifti(written), core.data.read_nifti(path)
    local mm, ml = core.measure.spacing(p)
    local n = { d = 20, h = 24, w = 24 }
    local a, sa, na = surface_of(p, n)
    local b, sb, nb = surface_of(q, n)
    local both, N = 0, 20 * 24 * 24
    for i in pairs(a) do both = both + (b[i] and 1 or 0) end
    local f = {
      dice = 2 * both / (na + nb), iou = both / (na + nb - both), precision = both / na,
      sensitivity = both / nb, ml = (na - nb) * ml, percent = 100 * math.abs(na - nb) / nb }
    found[#found + 1] = f
    if not flat then
      local ab, ba = distances(sa, sb, mm), distances(sb, sa, mm)
      local all, sum, near = {}, 0, 0
      for _, list in ipairs { ab, ba } do
        for _, v in ipairs(list) do
          all[#all + 1], sum, near = v, sum + v, near + (v <= 5 and 1 or 0)
        end
      end
      table.sort(all)
      f.specificity, f.accuracy = (N - na - nb + both) / (N - nb), (N - na - nb + 2 * both) / N
      f.matrix, f.union, f.hd = f.accuracy, percentile(all, 95), all[#all]
      f.hd95 = math.max(percentile(ab, 95), percentile(ba, 95))
      f.assd, f.close = sum / #all, near / #all
    end
  end
  return found
end

-- Every case has the metrics of its file.
local function expect_files(result, found)
  local cases = 0
  for _, case in pairs(result.cases) do
    local same
    for _, f in ipairs(found) do
      if math.abs(f.dice - case.dice) < 1e-12 then same = f end
    end
    t.check(same, "no file has the dice %.17g", case.dice)
    for name, v in pairs(same) do t.near(case[name], v, 1e-9 * math.max(1, math.abs(v)), name) end
    cases = cases + 1
  end
  t.equal(cases, 5, "cases")
end

local function predict(out, more)
  t.says(script .. " predict --weights " .. run .. " --in " .. folder .. "/p --out " .. folder
         .. out .. " " .. more, 0, "nii.gz")
  return folder .. out
end

local whole

t.test("what is measured is what predict writes", function()
  local text = t.says(script .. " --out " .. folder .. "/runs", 0, "done:")
  t.check(text:find("hd95 %[mm%] per case %(whole volume%): mean"), "%s", text)
  t.check(text:find("loss 0%.%d+, mean of 100 slices"), "%s", text)
  -- surface metrics are computed at the end only, as they are slow
  t.check(not text:match("epoch 1/2 [^\n]*"):find("hd95", 1, true), "%s", text)
  whole = evaluate ""
  expect_files(whole, measured_files(predict("/out", "")))
end)

t.test("truth that the steps cut off is missed", function()
  local c = folder .. "/cut"
  local text = t.says(script .. " --cut 12 --out " .. c, 0, "done:")
  t.check(text:find("truth beyond the prepared grid %(fit, crop%): %d+ voxels in 5 cases, counted"),
          "%s", text)
  local whole_run = run
  run = c .. "/seen/001"
  local cut, found = evaluate "--cut 12", measured_files(predict("/out_cut", "--cut 12"), true)
  expect_files(cut, found)
  expect_files(evaluate "--cut 12 --kind whole", found)
  run = whole_run
  t.check(not t.says(script .. " evaluate --weights " .. run, 0, "dice"):find("beyond", 1, true))
end)

t.test("files of labels, whatever made them", function()
  local truth = t.lines("find " .. folder .. "/p -name '*_brainmask.nii.gz' | sort")[1]
  local found = t.lines("ls " .. folder .. "/out/*" .. truth:match("([^/]+)_T1w_brainmask")
                        .. "*.nii.gz")[1]
  local _, text = t.program("measure --json " .. found .. " " .. truth)
  local r = require("seg.json").decode(text, "json")["1"]
  local same
  for _, f in ipairs(measured_files(folder .. "/out")) do
    if math.abs(f.dice - r.dice) < 1e-12 then same = f end
  end
  t.near(r.hd95_mm, same.hd95, 1e-9)
  t.near(r.assd_mm, same.assd, 1e-9)
  t.near(r.found_ml - r.true_ml, same.ml, 1e-9)
  t.near(r.sensitivity, same.sensitivity, 1e-12)
  t.says("measure " .. truth .. " " .. truth, 0, "1.0000")
  t.says("measure " .. truth, 2, "measure takes two NIfTI files")
  t.says("measure " .. truth .. " " .. truth .. " " .. truth, 2, "measure takes two NIfTI files")
  local image = truth:gsub("_brainmask", "")
  t.says("measure " .. image .. " " .. truth, 3, "too many different values")
  local other = seg.data.phantom { format = "nifti", patients = 1, size = 16, slices = 8, seed = 3,
                                   root = folder .. "/q" }
  other:dataset()
  t.says("measure " .. t.lines("find " .. folder .. "/q -name '*_brainmask.nii.gz'")[1] .. " "
         .. truth, 3, "lie on different grids")
end)

t.test("slices, patches and whole volumes agree", function()
  for _, kind in ipairs { "whole", "patches" } do
    local other = evaluate("--kind " .. kind)
    for case, values in pairs(whole.cases) do
      for name, v in pairs(values) do
        -- scores that were equal may differ after blending has rounded them
        local by = name == "auc" and 1e-4 or 1e-6
        t.near(other.cases[case][name], v, by * math.max(1, math.abs(v)), kind .. " " .. name)
      end
    end
    for name, m in pairs(other.metrics) do t.equal(m.of, "whole volume", kind .. " " .. name) end
  end
end)

t.test("neither threads, workers nor batches decide", function()
  for _, more in ipairs { "--workers 0 --threads 1", "--workers 3 --threads 2", "--batch 7" } do
    local other = evaluate(more)
    t.equal(seg.version and require("seg.util").json(other.cases),
            require("seg.util").json(whole.cases), more)
  end
end)

t.test("slices that are left out are left out of everything", function()
  local part = evaluate "--range 0.5"
  for _, name in ipairs { "hd95", "dice", "ml" } do
    t.equal(part.metrics[name].of, "of the slices used (10 of 20)")
  end
  for case, values in pairs(part.cases) do
    t.check(values.hd95 ~= whole.cases[case].hd95 and values.hd95 < 200, "hd95 %g", values.hd95)
    -- one is counted on the device, one in the volume
    t.near(values.matrix, values.accuracy, 1e-12, "accuracy")
  end
end)

t.test("a table, a CSV, pictures; no names of patients", function()
  local text = t.says(script .. " evaluate --pictures 3 --weights " .. run, 0, "evaluate_test.csv")
  t.check(text:find("true \\ taken for"), "%s", text)
  local rows = t.lines("cat " .. run .. "/evaluate_test.csv")
  t.equal(#rows, 6)
  t.check(rows[1]:find("^case,accuracy,assd,auc,"), "%s", rows[1])
  for i = 2, 6 do t.check(rows[i]:find("^%x%x%x%x%x%x%x%x%x%x,"), "%s", rows[i]) end
  t.check(not (t.read(run .. "/evaluate_test.csv") .. t.read(run .. "/evaluate_test.json"))
    :find("PHANTOM"), "a patient is named")
  t.equal(#t.lines("ls " .. run .. "/overlays/*.png"), 4, "three worst, and the best of training")
end)

t.test("the threshold that serves best, on valid, goes with the weights", function()
  local a = folder .. "/a"
  local text = t.says(script .. " --threshold 0 --out " .. a, 0, "chosen on valid: mean Dice")
  local path = a .. "/seen/001/checkpoint_best.safetensors"
  local kept = tonumber(core.checkpoint.meta(path).threshold)
  local at, best, before = text:match("threshold ([%d.]+), chosen on valid: mean Dice ([%d.]+) "
                                      .. "there, ([%d.]+) at 0.5")
  t.near(kept, tonumber(at), 1e-12)
  t.check(tonumber(best) >= tonumber(before), "%s < %s", best, before)
  t.check((core.checkpoint.verify(path)), "the checkpoint is damaged")
  -- the added threshold keeps all tensors: a run could resume from it
  local util, last = require "seg.util", (path:gsub("_best", "_last"))
  t.equal(util.json(core.checkpoint.tensors(path)), util.json(core.checkpoint.tensors(last)))
  t.equal(core.checkpoint.meta(path).contents, "full")
  t.equal(core.checkpoint.meta(path).temperature, nil, "a temperature that nobody wanted")
  -- no other threshold does better on valid
  for _, threshold in ipairs { kept - 0.03, kept + 0.03, 0.5 } do
    local v = string.format("%.2f", threshold)
    local other = t.write(folder .. "/at.lua", (t.read(script)
      :gsub("metric.dice%(z, y%)", "metric.dice(z, y, { threshold = " .. v .. " })")))
    local _, said = t.program(other .. " evaluate --json --quiet --split valid --weights " .. path)
    local dice = require("seg.json").decode(said:match("{.*}"), "json").metrics.dice.mean
    t.check(dice <= tonumber(best) + 5e-5, "%g at %s, %s at %g", dice, v, best, kept)
  end
  -- evaluate uses the threshold, and finds the same one again
  local said = t.says(script .. " evaluate --calibrate --threshold 0 --weights " .. path, 0,
                      "chosen on valid: mean Dice " .. best)
  t.equal(said:match("dice per case [^\n]*mean ([%d.]+)"),
          text:match("dice per case [^\n]*mean ([%d.]+)"))
  t.says(script .. " evaluate --split test --weights " .. path, 0, "threshold " .. at)
  t.says(script .. " predict --threshold 0 --weights " .. run .. " --in " .. folder
         .. "/p --out " .. folder .. "/out2", 0, "no threshold that was chosen on valid")
end)

t.test("what cannot be measured is said", function()
  t.says(script .. " plan --best hd95", 2, 'of hd95 less is better; write { "hd95", "min" }')
  t.says(script .. " plan --best hd95 --up min --kind patches --valid_draw random", 2,
         "hd95 is measured on whole cases after every epoch, and valid draws patches at random")
  local x, y = nn.input("x", { c = 1, h = 4, w = 4 }), nn.input("y", { c = 1, h = 4, w = 4 })
  local z = nn.conv(x, 1, 1)
  t.raises(function() return metric.hd59(z, y) end, 'did you mean "hd95"?')
  t.raises(function() metric.hd95(z, y, { tolerence = 1 }) end, 'unknown option "tolerence"')
  t.raises(function() metric.hd95(z, y, { missing = "none" }) end,
           'missing must be "diagonal" or "skip", got "none"')
  t.raises(function() metric.hd95(nn.sigmoid(z), y) end, "takes logits")
  t.raises(function() metric.surface_dice(z, y, { tolerance = -1 }) end,
           "tolerance must be a number")
  t.raises(function() metric.dose_score(z, y) end, "mask is missing")
  t.raises(function() metric.dvh_score(z, y, { structures = y }) end, "targets is missing")
  t.raises(function() metric.dice(z, y, { when = "always" }) end, 'when must be "epoch" or "end"')
end)

t.test("a metric of surfaces by epoch chooses the best", function()
  local text = t.says(script .. " --best hd95 --up min --out " .. folder .. "/b", 0, "done:")
  t.check(text:match("epoch 1/2 [^\n]*"):find("hd95 %d+"), "%s", text)
  t.check(t.lines("head -1 " .. folder .. "/b/seen/001/metrics.csv")[1]:find(",valid_hd95,", 1,
                                                                              true))
end)

t.test("a run that is cut and resumed measures the same", function()
  local c = folder .. "/c"
  t.says(script .. " --steps 7 --out " .. c, 0, "stopped after 7 steps")
  t.says(script .. " --resume " .. c .. "/seen/001", 0, "done:")
  for _, file in ipairs { "checkpoint_last.safetensors", "checkpoint_best.safetensors" } do
    t.check(t.read(c .. "/seen/001/" .. file) == t.read(run .. "/" .. file), "%s differs", file)
  end
end)

-- Classes --------------------------------------------------------------------------

-- Evaluates a set with nodes that have no weights, in this process.
local function measure(recipe, set)
  recipe.predict, recipe.train, recipe.outputs = recipe.predict or {}, set, recipe.outputs or {}
  require("seg.evaluate.metric_base").settle(recipe)
  local session = require("seg.recipe.recipe").session(recipe, "evaluate")
  local d = require("seg.data.opened").open(recipe, set)
  local result = require("seg.train.pass").run(session, recipe, d.pipeline, d.loader, d.names, "x",
                                         { interval = true })
  local lines, json = require("seg.evaluate.evaluate").summary(recipe, result, d.pipeline, tostring)
  return result, table.concat(lines, "\n"), json
end

-- Pictures of 8 x 6 with the predicted class as value, and their truth, by a rule of case, row and
-- column.
local function classes_of(case, h, w)
  local p = (h + 2 * w + case) % 3
  local truth = h < 4 and p or (h * case + w) % 3
  if case == 2 and truth == 2 then truth = 1 end -- no class 2 in the truth
  if case == 3 then return p > 0 and 1 or 0, truth > 0 and 1 or 0 end -- class 2 nowhere
  return p, truth
end

t.test("values by class, and what is empty on one side", function()
  local where = folder .. "/classes"
  os.execute("mkdir -p " .. where)
  local want, right, all = {}, 0, 0
  for case = 1, 4 do
    local x, y, n = seg.array.zeros { 8, 6 }, seg.array.zeros { 8, 6 }, {}
    for h = 1, 8 do
      for w = 1, 6 do
        local p, q = classes_of(case, h, w)
        x:set(p, h, w)
        y:set(q, h, w)
        for k = 0, 2 do
          local c = n[k] or { 0, 0, 0 }
          n[k] = { c[1] + (p == k and q == k and 1 or 0), c[2] + (p == k and 1 or 0),
                   c[3] + (q == k and 1 or 0) }
        end
        right, all = right + (p == q and 1 or 0), all + 1
      end
    end
    want[case] = n
    seg.array.save(where .. "/c" .. case .. "_x.npy", x)
    seg.array.save(where .. "/c" .. case .. "_y.npy", y)
  end
  local set = seg.data.npy { root = where, image = "*_x", mask = "*_y", labels = { 1, 2 }, rank = 2,
                             patient = "file" }
  local n = { c = 1, h = 8, w = 6 }
  local x, y = nn.input("image", n), nn.input("mask", n)
  local z = (x * -1 + 0.5) .. x * 0 .. (x - 1.5)
  local result, text, json = measure({
    inputs = { x, y }, loss = nn.cross_entropy(z, y), predict = { names = { "liver", "tumour" } },
    metrics = { dice = metric.dice(z, y), one = metric.dice(z, y, { empty = "one" }),
                far = metric.hd95(z, y), skip = metric.hd95(z, y, { missing = "skip" }),
                zero = metric.hd95(z, y, { empty = "one" }), matrix = metric.confusion(z, y),
                right = metric.accuracy(z, y), ml = metric.volume_error(z, y) } }, set)
  local r = result.metrics
  for case = 1, 4 do
    local function dice(k)
      local c = want[case][k]
      return c[2] + c[3] > 0 and 2 * c[1] / (c[2] + c[3]) or nil
    end
    t.equal(r.dice.classes[1].cases[case], dice(1))
    t.equal(r.dice.classes[2].cases[case], dice(2))
    local mean = dice(2) and (dice(1) + dice(2)) / 2 or dice(1)
    t.near(r.dice.cases[case], mean, 1e-15)
    t.near(r.one.cases[case], (dice(1) + (dice(2) or 1)) / 2, 1e-15)
    local ml = 0
    for k = 1, 2 do ml = ml + math.abs(want[case][k][2] - want[case][k][3]) / 2000 end
    t.near(r.ml.cases[case], ml, 1e-15)
  end
  t.equal(#r.dice.classes[2].list, 3, "cases with class 2")
  -- class 2 is absent in case 3, and in case 2 it is in the prediction only
  t.near(r.far.classes[2].cases[2], 10, 1e-12, "the diagonal")
  t.equal(r.skip.classes[2].cases[2], nil)
  t.equal(r.far.classes[2].cases[3], nil)
  t.equal(r.zero.classes[2].cases[3], 0)
  t.near(r.matrix.mean, right / all, 1e-15)
  t.near(r.right.mean, right / all, 1e-15)
  local sum = 0
  for _, row in ipairs(r.matrix.matrix) do sum = sum + row[1] + row[2] + row[3] end
  t.equal(sum, all)
  t.check(text:find("by class: liver 0%.%d+ %(n 4%), tumour 0%.%d+ %(n 3%)"), "%s", text)
  t.check(text:find("background  liver  tumour"), "%s", text)
  t.equal(json.metrics.dice.classes.tumour.n, 3)
  t.check(text:find("one side empty: the diagonal of the grid", 1, true), "%s", text)
end)

t.test("classes and numbers of pictures", function()
  local where, cases = folder .. "/pictures", {}
  os.execute("mkdir -p " .. where)
  for i = 1, 10 do
    local a = seg.array { shape = { 2, 2 }, data = { i, i, i, i } }
    seg.array.save(where .. "/" .. i .. ".npy", a)
    cases[i] = { key = "c" .. i, patient = "p" .. (i + 1) // 2, photo = where .. "/" .. i .. ".npy",
                 class = { i > 4 and 1 or 0 }, pose = { 2 * i, -i, 0 } }
  end
  local set = seg.data.cases { cases = cases, fields = {
    { name = "photo", read = "npy", rank = 2 }, { name = "class", kind = "numbers", count = 1 },
    { name = "pose", kind = "numbers", count = 3 } } }:fitted()
  set = set:standardize { field = "pose", mean = { 1, 2, 3 }, sd = { 4, 5, 6 } }
  local x = nn.input("photo", { c = 1, h = 2, w = 2 })
  local class, pose = nn.input("class", { c = 1 }), nn.input("pose", { c = 3 })
  local m = nn.global_pool(x)
  local z = (m * 0 + 6.5) .. m -- the second channel is larger from 7 on
  local result, text = measure({
    inputs = { x, class, pose }, loss = nn.cross_entropy(z, class),
    metrics = { right = metric.accuracy(z, class), matrix = metric.confusion(z, class),
                auc = metric.auc(z, class),
                mae = metric.mae(pose + 1, pose, { names = { "yaw", "pitch", "roll" } }),
                angle = metric.geodesic(pose + 1, pose) } }, set)
  local r = result.metrics
  t.near(r.right.mean, 0.8, 1e-15)
  t.equal(table.concat(r.matrix.matrix[2], " "), "2 4")
  t.near(r.auc.mean, 1, 0)
  t.check(r.auc.low == 1, "the interval of the area: %s", tostring(r.auc.low))
  -- off by one standard deviation each, in degrees
  t.near(r.mae.mean, 5, 1e-5)
  t.near(r.mae.classes[3].mean, 6, 1e-5)
  t.check(text:find("by number: yaw 4.0000 (n 10), pitch 5.0000", 1, true), "%s", text)
  t.check(r.angle.mean > 5 and r.angle.mean < 9, "%g degrees", r.angle.mean)
end)

t.test("a temperature makes probabilities honest", function()
  local where = folder .. "/sure"
  os.execute("mkdir -p " .. where)
  -- `share` of 16 voxels of each kind are true; the network triples the logit of that probability
  local share, n = { 2, 5, 12, 15 }, 16
  local x, y = seg.array.zeros { 4, n }, seg.array.zeros { 4, n }
  for k = 1, 4 do
    for i = 1, n do
      x:set(3 * math.log(share[k] / (n - share[k])), k, i)
      y:set(i <= share[k] and 1 or 0, k, i)
    end
  end
  seg.array.save(where .. "/c1_x.npy", x)
  seg.array.save(where .. "/c1_y.npy", y)
  local calibrate = require "seg.evaluate.calibrate"
  local logits = nn.input("image2", { c = 1, h = 4, w = n })
  local truth = nn.input("mask2", { c = 1, h = 4, w = n })
  local set = seg.data.cases { cases = { { key = "a", patient = "a", image2 = where .. "/c1_x.npy",
                                     mask2 = where .. "/c1_y.npy" } },
                         fields = { { name = "image2", read = "npy", rank = 2 },
                                    { name = "mask2", kind = "label", read = "npy", rank = 2 } } }
  local r = { inputs = { logits, truth }, outputs = {}, predict = {}, train = set, valid = set,
              loss = nn.bce(logits * 1, truth),
              metrics = { dice = metric.dice(logits * 1, truth) } }
  require("seg.evaluate.metric_base").settle(r)
  local session = require("seg.recipe.recipe").session(r, "evaluate")
  local found = calibrate.find(session, r, require("seg.data.opened").open(r, set))
  t.near(tonumber(found.temperature), 3, 0.02, "temperature")
  -- the same for a volume: its odds to the power of 1/3
  local d = require("seg.data.opened").open(r, set)
  local p = core.data.prediction(d.pipeline, 1, 1, { grid = "prepared" })
  p:put(1, seg.array { shape = { 1, 1, 4, n }, data = (function()
    local list = {}
    for i = 1, 4 * n do list[i] = i / (4 * n + 1) end
    return list
  end)() }, 1)
  local v = (p:restore()):temper(3)
  for i = 1, 4 * n do
    local q = i / (4 * n + 1)
    local want = 1 / (1 + math.exp(-math.log(q / (1 - q)) / 3))
    t.near(v:slice(1):get((i - 1) // n + 1, (i - 1) % n + 1), want, 1e-6)
  end
end)

-- Metrics of numbers -----------------------------------------------------------------

-- Inputs of rank 0.
local made = 0
local function numbers(c)
  made = made + 1
  return nn.input("numbers" .. made, { c = c })
end

t.test("angles between rotations", function()
  local a, b = numbers(3) * 1, numbers(3)
  local m = metric.geodesic(a, b)
  local function angle(p, q) return (m.sample { p, q }) end
  t.near(angle({ 10, 20, 30 }, { 10, 20, 30 }), 0, 1e-12)
  t.near(angle({ 10, 0, 0 }, { -25, 0, 0 }), 35, 1e-12)
  t.near(angle({ 0, 1e-6, 0 }, { 0, 0, 0 }), 1e-6, 1e-15)
  t.near(angle({ 0, 0, 90 }, { 0, 0, -90 }), 180, 1e-6)
  -- Rz(90) Ry(90): the trace of the product is 0, so its angle is 120 degrees
  t.near(angle({ 90, 0, 90 }, { 0, 0, 0 }), 120, 1e-9)
  -- standardized numbers are first converted to angles
  local undo = { mean = { 5, 0, 0 }, sd = { 10, 20, 30 } }
  t.near((m.sample({ { 1, 0, 0 }, { -1, 0, 0 } }, undo)), 20, 1e-12)
  -- the same rotation in each form
  local c, s = math.cos(math.rad(40)), math.sin(math.rad(40))
  for form, v in pairs {
    matrix = { c, -s, 0, s, c, 0, 0, 0, 1 }, ["6d"] = { 2 * c, 2 * s, 0, -s + c, c + s, 0 },
    quaternion = { math.cos(math.rad(20)), 0, 0, math.sin(math.rad(20)) } } do
    local of = metric.geodesic(numbers(#v) * 1, b, { form = form, truth = "euler" })
    t.near((of.sample { v, { 0, 0, 40 } }), 0, 1e-6, form)
    t.near((of.sample { v, { 0, 0, 10 } }), 30, 1e-9, form)
  end
  local flat = metric.geodesic(numbers(2) * 1, numbers(2), { form = "yaw pitch" })
  t.near((flat.sample { { 10, 20 }, { 0, 0 } }), angle({ 10, 20, 0 }, { 0, 0, 0 }), 1e-12)
  t.raises(function() metric.geodesic(a, b, { form = "matrix" }) end, "matrix takes 9 numbers")
end)

t.test("classes of cases", function()
  local m = metric.confusion(numbers(3) * 1, numbers(1))
  local auc = metric.auc(numbers(3) * 1, numbers(1))
  local records, scores = {}, {}
  for i, row in ipairs { { { 2, 1, 0 }, 0 }, { { 0, 3, 1 }, 1 }, { { 5, 3, 1 }, 1 },
                         { { 0, 1, 1 }, 2 }, { { 0, 0, 9 }, 2 } } do
    records[i] = select(3, m.sample { row[1], { row[2] } })
    scores[i] = select(3, auc.sample { row[1], { row[2] } })
  end
  local value, extra = m.total(records)
  t.near(value, 3 / 5, 1e-15)
  t.equal(table.concat(extra.matrix[2], " "), "1 1 0")
  -- the first of equal scores wins
  t.equal(table.concat(extra.matrix[3], " "), "0 1 1")
  t.near(extra.classes[2], 0.5, 0)
  -- class 0: its softmax exceeds that of all other samples but one
  t.near(select(2, auc.total(scores)).classes[1], 3 / 4, 1e-15)
  t.check(auc.total { scores[1] } == nil, "one kind has no area")
  t.equal((metric.accuracy(numbers(1) * 1, numbers(1)).sample { { 0.1 }, { 1 } }), 1)
end)

t.test("numbers in their own unit", function()
  local m = metric.mae(numbers(3) * 1, numbers(3), { unit = "degrees" })
  local v, list = m.sample({ { 1, 2, 3 }, { 2, 2, 1 } }, { sd = { 10, 1, 2 } })
  t.near(v, (10 + 0 + 4) / 3, 1e-12)
  t.equal(table.concat(list, " "), "10 0 4")
end)

t.test("intervals are drawn over patients", function()
  local values, owners = {}, {}
  for i = 1, 12 do values[i], owners[i] = i % 6, "p" .. i % 6 end
  local cases, together = metric.summary(values), metric.summary(values, owners)
  t.check(together.high - together.low > (cases.high - cases.low) * 1.2,
          "pairs are no twelve cases")
  -- a patient for each case: the same bootstrap draws as over cases
  for i = 1, 12 do owners[i] = "q" .. i end
  t.equal(metric.summary(values, owners).low, cases.low)
  for i = 1, 12 do owners[i] = "q" .. i % 4 end
  t.check(metric.summary(values, owners).low == nil, "four patients are too few")
end)

remove()
t.finish()
