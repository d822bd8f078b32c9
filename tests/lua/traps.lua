-- traps.lua -- eleven mistakes that the five source reports made or nearly made (numbered as in
-- docs/systems/README.md): each is off by default, and can be demonstrated.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local data, nn, optim = seg.data, seg.nn, seg.optim

local folder, remove = t.folder()

local brain = "scripts/brain_unet.lua --preset check --phantom " .. folder .. "/phantom --run "
  .. folder .. "/"

-- Nine arrays of 6 x 6 of three patients, each with two numbers.
local function arrays(o)
  local cases = {}
  for i = 1, 9 do
    local path = string.format("%s/%d.npy", folder, i)
    seg.array.save(path, seg.array.random({ 6, 6 }, i))
    cases[i] = { key = "k" .. i, patient = "p" .. (i - 1) // 3, x = path, pose = { i, -i } }
  end
  o = o or {}
  o.cases = cases
  o.fields = { { name = "x", read = "npy", rank = 2 },
               { name = "pose", kind = "numbers", count = 2 } }
  return data.cases(o)
end

-- The distance of two fields of numbers.
local function distance(a, b) return (a:distance(b)) end

t.test("T1: a Dice of empty slices that hides what is found", function()
  -- an empty slice with a prediction of a hundredth of a pixel in all
  local x = nn.input("x1", { c = 1, h = 4, w = 4 })
  local truth = nn.input("t1", { c = 1, h = 4, w = 4 })
  local trap = { per = "sample", eps = 1e-6 }
  local m = seg.model { outputs = { default = nn.dice_loss(x, truth),
                                    trap = nn.dice_loss(x, truth, trap),
                                    skip = nn.dice_loss(x, truth, { per = "sample", eps = 1e-6,
                                                                    empty = "skip" }) } }
  local logits, mask = seg.array.zeros { 2, 1, 4, 4 }, seg.array.zeros { 2, 1, 4, 4 }
  for h = 1, 4 do
    for w = 1, 4 do
      -- the first sample is exactly right, the second empty
      logits:set(w < 3 and 20 or -20, 1, 1, h, w)
      mask:set(w < 3 and 1 or 0, 1, 1, h, w)
      logits:set(-7, 2, 1, h, w)
    end
  end
  local out = m:run { x1 = logits, t1 = mask }
  t.check(out.default:get() < 0.01, "by default the loss is %g", out.default:get())
  t.check(out.skip:get() < 0.01, "without empty slices %g", out.skip:get())
  t.near(out.trap:get(), 0.5, 1e-3, "the loss of the trap, half of it the empty slice")
  -- the run with the trap prints a warning, and the run without it does not
  local long = " --epochs 20 --t_max 20 --lr 1e-2 --slices 12"
  local said = t.says(brain .. "t1_trap --dice_per sample --dice_eps 1e-6" .. long, 0, "done:")
  t.check(said:find("of the loss is the Dice of the %d+ %% of samples without foreground"),
          said)
  said = t.says(brain .. "t1" .. long, 0, "done:")
  t.check(not said:find("nothing to find", 1, true), said)
end)

t.test("T2: a cosine that climbs again", function()
  local falls, climbs = optim.cosine {}, optim.cosine { t_max = 90 }
  t.check(falls.rate(1, 120, 120) < 1e-3, "falls to the end")
  t.near(climbs.rate(1, 120, 120), 0.24, 0.02, "the rate at the end of the trap")
  t.equal(falls.warning(1, 120), nil)
  t.check(climbs.warning(1, 120):find("climbs again from epoch 92", 1, true))
  t.equal(optim.cosine { t_max = 90, clamp = true }.rate(1, 120, 120), 0)
  t.says(brain .. "t2 --epochs 4 --t_max 2", 0, "note: cosine: t_max 2")
end)

t.test("T3: a schedule that nobody steps, and a save that is tried at the end only", function()
  t.says(brain .. "t3 --epochs 4 --t_max 4 --lr 1e-2", 0, "done:")
  local rates = {}
  for line in t.read(folder .. "/t3/metrics.csv"):gmatch("\n%d+,%d+,([^,]+)") do
    rates[#rates + 1] = tonumber(line)
  end
  t.equal(#rates, 4)
  for i = 2, 4 do t.check(rates[i] < rates[i - 1], "the rate of epoch %d", i) end
  -- a run that ends in its first steps has written a checkpoint before
  t.equal((t.program(brain .. "t3_wild --lr 1e30 --batch 1")), 5, "exit code of one that diverges")
  t.equal(core.checkpoint.meta(folder .. "/t3_wild/checkpoint_last.safetensors").epoch, "0")
end)

t.test("T4: the same random changes in every epoch", function()
  local set = arrays():augment { noise = { sigma = 0.1, p = 1 } }:batches { size = 9 }
  local loader = set:loader(set:pipeline {}, {})
  local function epoch(n)
    loader:seek(n, 0)
    return loader:next().fields[1]:array()
  end
  local first, second, again = epoch(0), epoch(1), epoch(0)
  loader:close()
  t.equal(distance(first, again), 0, "an epoch made twice: what the trap would give")
  t.check(distance(first, second) > 0.01, "two epochs have other changes")
end)

t.test("T5: slices of one head on both sides", function()
  local train, valid, test = arrays():split { valid = 1, test = 1, seed = 3 }
  local seen = {}
  for part, set in pairs { train = train, valid = valid, test = test } do
    for _, case in ipairs(set:dataset():cases()) do
      t.check((seen[case.patient] or part) == part, "%s is on two sides", case.patient)
      seen[case.patient] = part
    end
  end
  -- split by hand between slices: refused, with the patient's name
  local all = arrays()
  local a = all:filter(function(case) return case.key:byte(-1) % 2 == 0 end):pipeline {}
  local b = all:filter(function(case) return case.key:byte(-1) % 2 == 1 end):pipeline {}
  local ok, why = pcall(core.data.split_leakage, { a, b })
  t.check(not ok and tostring(why):find("p0", 1, true), tostring(why))
end)

t.test("T6: a mirror image that keeps its angles; numbers found on all data", function()
  local function pose(o)
    local set = arrays():augment { flip = o }:batches { size = 9 }
    return t.first_batch(set).pose
  end
  local plain, kept = pose(nil), pose { axis = "w", p = 1 }
  local turned = pose { axis = "w", p = 1, negate = { 2 } }
  for i = 1, 9 do
    t.equal(kept:get(i, 2), plain:get(i, 2), "without negate, which doctor data asks about")
    t.equal(turned:get(i, 2), -plain:get(i, 2), "the second number of a mirror image")
    t.equal(turned:get(i, 1), plain:get(i, 1))
  end
  -- valid is not augmented, so it is as on disk; its statistics are those of train
  local train, valid = arrays():standardize { field = "pose" }:split { valid = 1, seed = 1 }
  t.raises(function() valid:pipeline {} end, "standardize")
  local known = train:fitted()
  t.equal(valid:fitted_as(known).steps, known.steps)
  t.check(known.steps ~= (valid:fitted()).steps, "those of valid would be others")
end)

t.test("T7: results that depend on the padding", function()
  local x, length = nn.input("x7", { c = 2, w = 8 }), nn.input("n7", { c = 1 })
  local m = seg.model { outputs = {
    masked = nn.global_pool(x, { mode = "mean", lengths = length }), trap = nn.global_pool(x) } }
  local short, noisy = seg.array.zeros { 1, 2, 8 }, seg.array.zeros { 1, 2, 8 }
  for w = 1, 8 do
    for c = 1, 2 do
      short:set(w <= 5 and w * c or 0, 1, c, w)
      noisy:set(w <= 5 and w * c or 99, 1, c, w)
    end
  end
  local five = seg.array { shape = { 1, 1 }, data = { 5 } }
  local a, b = m:run { x7 = short, n7 = five }, m:run { x7 = noisy, n7 = five }
  t.equal(a.masked:get(1, 1), 3)
  t.equal(distance(a.masked, b.masked), 0, "with lengths")
  t.check(distance(a.trap, b.trap) > 1, "without")
end)

t.test("T8: numbers fetched from the device after every batch", function()
  local x = nn.input("x", { c = 1, h = 6, w = 6 })
  local logits = nn.conv(x, 1, 3, { name = "t8" })
  local truth = nn.sigmoid(x)
  local r = { inputs = { x }, outputs = {}, loss = nn.bce(logits, truth), train = arrays(),
              predict = {}, metrics = { dice = seg.metric.dice(logits, truth) } }
  local session = core.session { roots = { r.loss, r.metrics.dice.node }, device = "cpu",
                                 threads = 1, seed = 1 }
  local set = arrays():batches { size = 1 }
  local pipeline, reads, batches = set:pipeline {}, 0, 0
  local loader = set:loader(pipeline, {})
  local counted = setmetatable({}, { __index = function(_, name)
    return function(_, ...)
      if name == "kept" then reads = reads + 1 end
      if name == "forward" then batches = batches + 1 end
      return session[name](session, ...)
    end
  end })
  local result = require "seg.train.pass".run(counted, r, pipeline, loader, { "x", "pose" }, "t8")
  loader:close()
  t.equal(batches, 9)
  t.equal(reads, 2, "once before the pass, once after it")
  t.equal(#result.metrics.dice.list, 9)
end)

t.test("T9: a run that goes on without its schedule, moments or random numbers", function()
  local line = " --optim radam --schedule plateau --dropout 0.2 --epochs 3 --lr 1e-2"
  t.says(brain .. "t9" .. line, 0, "done:")
  t.says(brain .. "t9_cut" .. line .. " --steps 8", 0, "stopped after 8 steps")
  t.says("scripts/brain_unet.lua --phantom " .. folder .. "/phantom --resume " .. folder
         .. "/t9_cut", 0, "done:")
  local function last(name)
    return t.read(folder .. "/" .. name .. "/checkpoint_last.safetensors")
  end
  t.check(last "t9" == last "t9_cut", "a run that was cut ends with other bytes")
  -- resuming from weights alone gives another run
  t.says(brain .. "t9_trap" .. line .. " --weights " .. folder .. "/t9_cut", 0, "done:")
  t.check(last "t9" ~= last "t9_trap", "weights alone give the same")
end)

t.test("T10: an image that cannot be read becomes a black one", function()
  local bad, some = arrays(), arrays { skip_bad = true }
  t.write(folder .. "/4.npy", "no array")
  local ok, why = pcall(function() bad:pipeline {} end)
  t.check(not ok and tostring(why):find("4.npy", 1, true), tostring(why))
  local pipeline = some:pipeline {}
  t.equal(#pipeline:bad(), 1, "left out when asked, counted and named")
  t.equal(#pipeline:cases(), 8, "and nothing in its place")
end)

t.test("T11: a DVH loss of the first sample of a batch", function()
  local dose, truth = nn.input("y11", { c = 1, w = 16 }), nn.input("t11", { c = 1, w = 16 })
  local organ = nn.input("s11", { c = 2, w = 16 })
  local m = seg.model { outputs = { y = nn.dvh_loss(dose, truth, organ) } }
  local function fill(shape, f)
    local a = seg.array.zeros(shape)
    for i = 1, shape[1] do
      for c = 1, shape[2] do for w = 1, 16 do a:set(f(i, c, w), i, c, w) end end
    end
    return a
  end
  -- the loss of n samples, numbered from `from`
  local function loss(n, from)
    return m:run {
      y11 = fill({ n, 1, 16 }, function(i, _, w) return w * (i + from) end),
      t11 = fill({ n, 1, 16 }, function(_, _, w) return 3 * w end),
      s11 = fill({ n, 2, 16 }, function(_, c, w) return w % 2 == c - 1 and 1 or 0 end),
    }.y:get()
  end
  local first, second = loss(1, 0), loss(1, 1)
  t.check(math.abs(first - second) > 0.1 * first, "two samples that differ")
  t.near(loss(2, 0), (first + second) / 2, 1e-5 * first, "the loss of both")
end)

remove()
t.finish()
