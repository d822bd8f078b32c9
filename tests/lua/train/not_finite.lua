-- not_finite.lua -- cases for which a network gives NaN or infinite values in validation and test:
-- messages name the case and the layer, the case does not count, and the exit code is 5, as in
-- predict.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local json = require "seg.json"

local folder, remove = t.folder()

-- Arrays of these extents in a folder: p0 .. p7; each case in `bad` has one value of 3e38. The
-- target is a box that is brighter, or by folder a class.
local function arrays(name, shape, bad, classes)
  local count = 1
  for _, n in ipairs(shape) do count = count * n end
  for i = 0, 7 do
    local x, y, noise = {}, {}, seg.array.random(shape, i):reshape { count }
    for k = 1, count do
      y[k] = k % 8 >= 3 and k % 8 <= 6 and 1 or 0
      x[k] = noise:get(k) + 2 * (classes and i % 2 or y[k])
    end
    if bad[i] then x[count // 2] = 3e38 end
    local where = folder .. "/" .. name .. (classes and "/" .. i % 2 or "")
    os.execute("mkdir -p " .. where)
    seg.array.save(string.format("%s/p%d_x.npy", where, i), seg.array { shape = shape, data = x })
    if not classes then
      seg.array.save(string.format("%s/p%d_y.npy", where, i), seg.array { shape = shape, data = y })
    end
  end
end

-- p1 and p5 are in valid with this seed.
arrays("pictures", { 8, 8 }, { [1] = true })
arrays("all", { 8, 8 }, { [1] = true, [5] = true })
arrays("classes", { 8, 8 }, { [1] = true }, true)
arrays("volumes", { 4, 8, 8 }, { [1] = true })
arrays("sequences", { 1, 8 }, { [1] = true }, true)

local recipe = t.write(folder .. "/r.lua", [[
local seg = require "seg"
local data, nn, optim, metric = seg.data, seg.nn, seg.optim, seg.metric
local cfg = seg.config { kind = "pictures", epochs = 2, batch = 2, lr = 1e-2, ema = 0.0,
                         stop = false }
local kind = cfg.kind
local rank = ({ volumes = 3, sequences = 1 })[kind] or 2
local by_class = kind == "classes" or kind == "numbers" or kind == "sequences"
local cases = data.npy { root = cfg.data, image = "*_x", mask = not by_class and "*_y" or nil,
  classes = by_class and { "0", "1" } or nil, rank = rank, patient = "file",
  axes = rank == 1 and "cw" or nil, length = rank == 1 or nil }
local train, valid = cases:split { seed = 1, valid = by_class
  and { "1/p1", "1/p5" } or { "p1", "p5" } }
local function prep(s)
  if rank == 3 then s = s:patches { d = 4, h = 8, w = 4, at = "grid", overlap = 0 } end
  return s:batches { size = cfg.batch, bucket = rank == 1 and "length" or nil }
end
local shape = { c = 1, d = rank == 3 and 4 or nil, h = rank > 1 and 8 or nil,
                w = rank == 3 and 4 or 8 }
local x = nn.input("image", shape)
local h = nn.conv(nn.conv(x + x + x, 4, 3, { name = "first" }), 4, 3, { name = "second" })
local r = { train = prep(train), valid = prep(valid), optim = optim.adamw { lr = cfg.lr },
            ema = cfg.ema > 0 and cfg.ema or nil }
if by_class then
  local y = nn.input("class", { c = 1 })
  local length = rank == 1 and nn.input("length", { c = 1 }) or nil
  r.inputs = { x, y, length }
  local out = nn.linear(nn.global_pool(h, { mode = "mean", lengths = length }),
                        kind == "numbers" and 1 or 2)
  r.outputs = { class = kind == "numbers" and out or nn.softmax(out) }
  r.loss = kind == "numbers" and nn.mse(out, y) or nn.cross_entropy(out, y)
  r.metrics = kind == "numbers" and { m = metric.mae(out, y) }
    or { m = metric.accuracy(out, y), auc = metric.auc(out, y) }
  r.best = { "m", kind == "numbers" and "min" or "max" }
else
  local y = nn.input("mask", shape)
  local z = nn.conv(nn.relu(h), 1, 1)
  r.inputs, r.outputs, r.loss = { x, y }, { mask = nn.sigmoid(z) }, nn.bce_dice(z, y)
  r.metrics = { m = metric.dice(z, y), hd = metric.hd95 and metric.hd95(z, y) or nil }
  r.best = { "loss", "min" }
end
if cfg.stop then
  r.schedule, r.stop = optim.plateau { patience = 0 }, { patience = 2 }
end
seg.recipe(r)
]])

-- A run of a kind on a folder; returns its folder, summary.json, its output.
local count = 0
local function train(kind, where, options)
  count = count + 1
  local out = folder .. "/r" .. count
  local said = t.says(string.format(
    "%s --kind %s --data %s/%s --out %s --device cpu --threads 1 --workers 0 %s", recipe, kind,
    folder, where, out, options or ""), 5, "exit code 5")
  local run = out .. "/r/001"
  return run, json.decode(t.read(run .. "/summary.json"), "summary.json"), said
end

-- The hash that stands for the case `key`.
local function called(run, key)
  local hash = t.read(run .. "/cases.csv"):match('\n(%x+),"[^"]-' .. key .. '_?x?"')
  return hash or error(key .. " is not in cases.csv")
end

-- The messages on the case p1, which is measured three times.
local function check(run, summary, said)
  local hash, layer = called(run, "p1"), "add"
  t.check(not said:find("nan", 1, true), said)
  t.check(said:find("epoch 1, valid: case " .. hash .. ": the prediction is not finite, "
                    .. "first " .. layer, 1, true), said)
  t.check(said:find("(1 left out)", 1, true), said)
  local list = summary.valid.not_finite
  t.check(#list == 1 and list[1].case == hash and list[1].first:find(layer, 1, true), hash)
  t.equal(summary.valid_not_finite, 1)
  t.equal(summary.valid.cases[hash], nil)
  t.check(summary.valid.loss == summary.valid.loss and summary.best, "the other case counts")
  t.equal(summary.valid.metrics.m.n, 1)
  t.check(not t.read(run .. "/metrics.csv"):find("nan", 1, true), "metrics.csv")
  local report = t.read(run .. "/report.html")
  t.check(report:find("case " .. hash .. ": the prediction", 1, true), "report")
  t.check(not (report .. t.read(run .. "/summary.json")):find(folder, 1, true), "no path")
end

-- The input is finite, and the output of a layer is not.
for _, row in ipairs {
  { "pictures", "pictures" }, { "classes", "classes" }, { "numbers", "classes" },
  { "volumes", "volumes", "--ema 0.9" }, { "sequences", "sequences" },
} do
  t.test(row[1] .. ": the case that is not finite does not count", function()
    check(train(row[1], row[2], row[3]))
  end)
end

t.test("the other case counts as it does alone", function()
  local run, summary = train("pictures", "pictures", "--epochs 1")
  local hash = called(run, "p5")
  local evaluate = recipe .. " evaluate --split valid --device cpu --weights " .. run .. " --data "
    .. folder .. "/pictures "
  local said = select(2, t.program(evaluate .. "--json"))
  local v = json.decode(said:match("{.*}"), "evaluate")
  t.equal(v.loss, summary.valid.loss)
  t.equal(v.cases[hash].m, summary.valid.cases[hash].m)
  t.equal(#v.not_finite, 1)
  t.says(evaluate .. "--quiet", 5, "case " .. called(run, "p1") .. ": the prediction is")
end)

t.test("several processes say and count the same", function()
  local run, summary, said = train("pictures", "pictures", "--ranks 2")
  local _, alone = train("pictures", "pictures")
  check(run, summary, said)
  t.near(summary.valid.loss, alone.valid.loss, 1e-5)
end)

t.test("an epoch that gives numbers for fewer cases is never better", function()
  local better = require("seg.train.early_stopping").take_best
  local best = { best = 0.7, best_bad = 0, best_epoch = 1, epoch = 2 }
  t.equal(better({}, 0.7, 0, "max"), true)
  t.equal(better({}, 0.7, 3, "max"), true)
  t.equal(better(best, 0.9, 1, "max"), false) -- of the easy cases alone
  t.equal(best.best_epoch, 1)
  t.equal(better(best, 0.9, 0, "max"), true)
  t.equal(best.best .. " " .. best.best_epoch, "0.9 2")
  t.equal(better({ best = 0.9, best_bad = 2 }, 0.7, 0, "max"), true)
  t.equal(better({ best = 0.9, best_bad = 2 }, 0.95, 2, "max"), true)
  t.equal(better({ best = 0.9, best_bad = 2 }, 0 / 0, 0, "max"), false)
  t.equal(better({ best = 0.2, best_bad = 0 }, 0.1, 1, "min"), false)
end)

t.test("where no case counts nothing is best, and stop and plateau go on", function()
  local run, summary, said = train("pictures", "all", "--epochs 6 --stop true")
  t.equal(summary.best, nil)
  t.check(not said:find("  best", 1, true) and not said:find("nan", 1, true), said)
  t.check(said:find("valid - (2 left out)", 1, true), said)
  t.equal(summary.epochs, 2)
  t.equal(summary.weights.file, "checkpoint_last.safetensors")
  t.equal(core.checkpoint.meta(run .. "/checkpoint_last.safetensors").not_finite, "2")
end)

remove()
t.finish()
