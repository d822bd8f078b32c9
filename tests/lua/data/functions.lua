-- functions.lua -- functions of a recipe as data steps: their arguments and effects, their errors,
-- and that results do not depend on threads.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local data = seg.data

local folder, remove = t.folder()

-- Pictures of 2 channels, 5 x 7, with a mask of classes 0 to 2 and two numbers.
local function pictures(count)
  local cases = {}
  for i = 1, count do
    local x, m = seg.array.zeros { 2, 5, 7 }, seg.array.zeros { 5, 7 }
    for h = 1, 5 do
      for w = 1, 7 do
        for c = 1, 2 do x:set(i + 10 * c + h + 0.125 * w, c, h, w) end
        m:set((h + w + i) % 3 * 5, h, w)
      end
    end
    local name = string.format("%s/p%02d", folder, i)
    seg.array.save(name .. "x.npy", x)
    seg.array.save(name .. "m.npy", m)
    cases[i] = { key = string.format("case_%02d", i), patient = "p" .. i, image = name .. "x.npy",
                 mask = name .. "m.npy", pose = { i, -2 * i } }
  end
  return data.cases {
    fields = { { name = "image", read = "npy", rank = 2, axes = "chw" },
               { name = "mask", kind = "label", read = "npy", rank = 2 },
               { name = "pose", kind = "numbers", count = 2 } },
    cases = cases, labels = { 5, 10 },
  }
end

-- A synthetic volume of 4 slices of 16 x 16 with its mask; two patients.
local function volumes()
  return data.phantom { root = folder .. "/phantom", patients = 2, size = 32, slices = 4 }
end

-- All numbers of a batch's blocks as texts, one a field.
local function bytes(batch)
  local list = {}
  for _, block in ipairs(batch.fields) do
    local a = block:array()
    seg.array.save(folder .. "/bytes.npy", a)
    list[#list + 1] = t.read(folder .. "/bytes.npy")
  end
  return table.concat(list)
end

-- The first `count` batches of a set, as bytes.
local function stream(set, count, how)
  local pipeline = set:pipeline { threads = how.threads or 1, seed = 3, store = how.store,
                                  cache_bytes = how.cache_bytes or 0 }
  local loader = set:loader(pipeline, { workers = how.workers or 0, seed = 4 })
  if how.from then loader:seek(how.from[1], how.from[2]) end
  local list = {}
  for i = 1, count do list[i] = bytes(loader:next()) end
  loader:close()
  pipeline:close()
  return table.concat(list)
end

-- Opening the set must raise an error with `part`, after case and step.
local function fails(set, part, step)
  t.raises(function() set:pipeline {} end, "case_01: " .. (step or "change") .. ": ")
  t.raises(function() set:pipeline {} end, part)
end

-- Effects of a function --------------------------------------------------------

t.test("fields are read and changed", function()
  local batch = t.first_batch(pictures(2):change(function(case)
    local x, m, pose = case.image, case.mask, case.pose
    assert(x.name == "image" and x.kind == "image" and x.c == 2 and x.d == 1 and x.h == 5
           and x.w == 7 and #x.shape == 3 and x.shape[2] == 5)
    assert(m.kind == "label" and m.c == 1 and pose.kind == "numbers" and #pose.shape == 1)
    assert(case.dose == nil)
    local i = pose:get(1) -- the number of the case
    assert(x:get(2, 3, 4) == i + 20 + 3 + 0.5 and pose:get(2) == -2 * i)
    assert(m:get(1, 1, 1) == (2 + i) % 3)
    -- only channel 1: its mean; then only the places of the mask
    assert(math.abs(x:mean(1) - (i + 13.5)) < 1e-6 and x:min(2) == i + 21.125)
    assert(x:max() == i + 25.875 and math.abs(x:std(1) - math.sqrt(2 + 0.0625)) < 1e-6)
    local sum, count = 0, 0
    for h = 1, x.h do
      for w = 1, x.w do
        if m:get(1, h, w) > 0 then sum, count = sum + x:get(1, h, w), count + 1 end
      end
    end
    assert(math.abs(x:mean(1, m) - sum / count) < 1e-9)
    x:add(-i):mul(2, 1):clamp(24, 100, 2):apply(function(v) return v + 0.5 end, 2)
    x:fill(-1, 1, m)
    x:set(2, 5, 7, 3)
    m:set(1, 1, 1, 2):fill(0, m)
    pose:add(pose)
  end):batches { size = 2 })
  for n = 1, 2 do
    local seen = 0
    for h = 1, 5 do
      for w = 1, 7 do
        local label = (h + w + n) % 3
        seen = seen + label
        t.equal(batch.image:get(n, 1, h, w), label > 0 and -1 or 2 * (10 + h + 0.125 * w))
        t.equal(batch.image:get(n, 2, h, w),
                h == 5 and w == 7 and 3 or math.max(24, 20 + h + 0.125 * w) + 0.5)
      end
    end
    t.check(seen > 0)
    t.equal(batch.pose:get(n, 1), 2 * n)
    t.equal(batch.pose:get(n, 2), -4 * n)
    t.equal(select(2, batch.mask:stats()), 0)
  end
end)

t.test("volumes have d, and their masks whole numbers", function()
  local plain = volumes():slices {}:batches { size = 4 }
  local batch = t.first_batch(volumes():change(function(case)
    local x, m = case.image, case.mask
    assert(x.d == 4 and m.d == 4 and #x.shape == 4)
    for h = 1, x.h do
      for w = 1, x.w do x:set(1, 2, h, w, -7) end
    end
    m:fill(1):set(1, 3, 1, 1, 0)
  end):slices {}:batches { size = 4 })
  local was = t.first_batch(plain)
  t.equal(batch.image:get(2, 1, 5, 5), -7)
  t.equal(batch.image:get(3, 1, 5, 5), was.image:get(3, 1, 5, 5))
  t.equal(batch.mask:get(3, 1, 1, 1), 0)
  t.equal(batch.mask:get(2, 1, 1, 1), 1)
end)

t.test("sequences have w, and samples of them their length", function()
  local a = seg.array.zeros { 6, 2 }
  seg.array.save(folder .. "/s.npy", a)
  local set = data.cases {
    fields = { { name = "x", read = "npy", rank = 1 }, { name = "length", kind = "length" } },
    cases = { { key = "s", patient = "p", x = folder .. "/s.npy" } } }
    :change(function(case)
      assert(case.length == nil and case.x.w == 6) -- found when all steps have run
      case.x:set(2, 6, 4)
    end):fit { w = 8, at = "start" }
    :augment { vary = function(sample)
      assert(sample.x.w == 8)
      sample.x:set(1, sample.length + 1, sample.length)
    end }:batches {}
  local batch = t.first_batch(set)
  t.equal(batch.x:get(1, 2, 6), 4)
  t.equal(batch.x:get(1, 1, 7), 6)
  t.equal(batch.length:get(1, 1), 6)
end)

t.test("a function that does nothing changes nothing", function()
  local plain = volumes():normalize {}:slices {}:batches { size = 2, shuffle = true }
  local same = volumes():change(function() end):normalize {}:change(function() end, { k = 1 })
    :slices {}:augment { vary = function() end }:batches { size = 2, shuffle = true }
  t.check(stream(plain, 6, {}) == stream(same, 6, {}), "the bytes differ")
end)

t.test("constants are handed over, and forgotten what is done to them", function()
  local batch = t.first_batch(pictures(3):change(function(case, constants)
    assert(constants.name == "z" and constants.on == true and constants.list[2] == 0.1)
    constants.add = constants.add + case.pose:get(1) -- in this call only
    constants.list[1], constants.name = 5, nil
    case.image:fill(constants.add)
  end, { add = 10, name = "z", on = true, list = { 1, 0.1 } }):batches { size = 3 })
  for n = 1, 3 do t.equal(batch.image:get(n, 1, 1, 1), 10 + n) end
  batch = t.first_batch(pictures(1):augment { vary = { function(sample, rng, constants)
    assert(rng)
    sample.image:fill(constants.k)
  end, k = 4 } }:batches { size = 1 })
  t.equal(batch.image:get(1, 1, 1, 1), 4)
end)

t.test("pairs goes in one order", function()
  stream(pictures(1):change(function(case)
    local seen = {}
    for k, v in pairs { z = 1, a = 2, [3] = 5, [1] = 6, [2.5] = 7, [true] = 8 } do
      seen[#seen + 1] = tostring(k) .. v
    end
    assert(table.concat(seen, " ") == "true8 16 2.57 35 a2 z1", table.concat(seen, " "))
    seen = {}
    for name, field in pairs(case) do seen[#seen + 1] = name .. field.name end
    assert(table.concat(seen, " ") == "imageimage maskmask posepose")
  end), 1, {})
end)

-- Independence of threads -------------------------------------------------------

-- Random draws, channel dropout, a constant, and a cached change before them.
local function varied()
  return pictures(7):change(function(case) case.image:add(case.image:mean(1, case.mask)) end)
    :augment {
      flip = { axis = "hw" },
      vary = { function(sample, rng, constants)
        local x = sample.image
        if rng:uniform() < 0.5 then x:fill(0, rng:int(1, x.c)) end
        x:add(rng:normal(constants.mean, 0.5)):mul(rng:uniform(0.9, 1.1), sample.mask)
        x:apply(function(v) return v + rng:normal(0, 0.01) end)
        if rng:int(0, 1) == 1 then sample.mask:fill(2, sample.mask) end
      end, mean = 2 } }
    :batches { size = 3, shuffle = true }
end

t.test("the same bytes for any workers and caches", function()
  local want = stream(varied(), 9, {})
  for _, workers in ipairs { 0, 1, 4, 8 } do
    for _, cache in ipairs { 0, 1000, 1 << 30 } do
      t.check(stream(varied(), 9, { workers = workers, threads = workers, cache_bytes = cache })
              == want, "workers %d, cache %d", workers, cache)
    end
  end
  local store = folder .. "/prepared.cases"
  for round = 1, 2 do
    t.check(stream(varied(), 9, { workers = 4, store = store }) == want, "stored, round %d", round)
  end
  -- cached cases of another function or constant are not used
  local made, files = {}, pictures(2) -- files that do not change
  for i, by in ipairs { 1, 2, 1 } do
    made[i] = stream(files:change(function(case, k) case.image:fill(k.by) end, { by = by })
                     :batches { size = 2 }, 1, { store = store })
  end
  t.check(made[1] ~= made[2] and made[1] == made[3], "constants are no part of the stamp")
  for i, f in ipairs { function(c) c.image:fill(2) end, function(c) c.image:fill(3) end } do
    made[i] = stream(files:change(f):batches { size = 2 }, 1, { store = store })
  end
  t.check(made[1] ~= made[2] and made[2] ~= made[3], "nor is the function")
end)

t.test("draws are of epoch and sample", function()
  -- 3 batches an epoch
  local want = stream(varied(), 9, {})
  t.check(want:sub(1, #want // 3) ~= want:sub(#want // 3 + 1, #want // 3 * 2), "epochs repeat")
  t.check(stream(varied(), 4, { from = { 1, 2 }, workers = 2 })
          == want:sub(-#stream(varied(), 4, { from = { 1, 2 } })), "resumed")
end)

t.test("random numbers have their moments", function()
  local batch = t.first_batch(pictures(1):resize { h = 200, w = 200 }:augment { vary =
    function(sample, rng)
      local counts, x = { 0, 0, 0 }, sample.image
      for _ = 1, 3000 do
        local k = rng:int(-1, 1)
        counts[k + 2] = counts[k + 2] + 1
      end
      for i = 1, 3 do assert(math.abs(counts[i] - 1000) < 120, counts[i]) end
      x:apply(function() return rng:normal(3, 2) end, 1)
      x:apply(function() return rng:uniform(-1, 3) end, 2)
    end }:batches {})
  local sum, square, lo, hi = { 0, 0 }, { 0, 0 }, 9, -9
  for h = 1, 200 do
    for w = 1, 200 do
      for c = 1, 2 do
        local v = batch.image:get(1, c, h, w)
        sum[c], square[c] = sum[c] + v, square[c] + v * v
        if c == 2 then lo, hi = math.min(lo, v), math.max(hi, v) end
      end
    end
  end
  local n = 200 * 200
  t.near(sum[1] / n, 3, 0.05, "mean")
  t.near(square[1] / n - (sum[1] / n) ^ 2, 4, 0.15, "variance")
  t.near(sum[2] / n, 1, 0.03, "mean")
  t.check(lo >= -1 and lo < -0.99 and hi <= 3 and hi > 2.99, "%g to %g", lo, hi)
end)

-- Identity of functions ---------------------------------------------------------

local function code_of(f, constants)
  return pictures(1):change(f, constants).steps
end

t.test("a function is known by what it says", function()
  local first = code_of(function(case) case.image:add(1) end)
  t.check(first:match("^change code=%d+ with=0\n$"), first)
  -- the same tokens on other lines, inside another function, under a name
  local helper = 5
  local function around()
    return code_of(function(case) -- a comment
      --[[ another ]] case.image
        :add(1)
    end), helper
  end
  local function named(case) case.image:add(1) end
  t.equal(around(), first)
  t.equal(code_of(named), first)
  t.equal(load("return function(case) case.image:add(1) end")
          and code_of(load("return function(case) case.image:add(1) end")()), first)
  t.check(code_of(function(case) case.image:add(2) end) ~= first, "another number")
  t.check(code_of(function(case) case.image:add(1) end, { 1 }) ~= first, "constants")
  t.equal(code_of(function(case) case.image:add(1) end, {}), first)
  t.check(code_of(function(case) case.image:add(1) end, { a = 1 })
          ~= code_of(function(case) case.image:add(1) end, { a = 1.0 }), "other constants")
  -- several on one line
  local a, b = code_of(function(c) c.image:apply(function(x) return x + 1 end) end),
    code_of(function(c) c.image:apply(function(x) return x + 2 end) end)
  t.check(a ~= b and a ~= first, a)
  t.equal(code_of(function(c) c.image:apply(function(x) return x + 1 end) end), a)
  -- in one chain, with functions that differ in one constant only
  local set = pictures(2)
  -- luacheck: push no max line length
  local chain = set:change(function(c) c.image:fill(10) end):change(function(c) c.image:add(2) end):change(function(c) c.image:add(3) end)
  local second, third = chain.steps:match("code=%d+ .-code=(%d+) .-code=(%d+)")
  t.check(second ~= third, chain.steps)
  t.equal(t.first_batch(chain:batches { size = 1 }).image:get(1, 1, 1, 1), 15)
  -- also when they get their globals through the enclosing function
  local function inside()
    return tostring(1), code_of(function(c) c.image:fill(math.pi) end), code_of(function(c) c.image:fill(math.abs(2)) end), code_of(function(c) c.image:fill(math.abs(3)) end)
  end
  local _, p, q, r = inside()
  t.check(p ~= q and q ~= r and p ~= r, "one is taken for another")
  t.equal(code_of(function(c) c.image:fill(math.abs(3)) end), r)
  -- equal code in equal tokens is one function; in other tokens it is ambiguous
  t.equal(set:change(function(c) c.image:add(4) end):change(function(c) c.image:add(4) end).steps:match("\n(.*)"),
          code_of(function(c) c.image:add(4) end))
  t.raises(function() set:change(function(c) c.image:add(16) end):change(function(d) d.image:add(0x10) end) end,
           "two functions with the same bytecode and different text; fix: write them on lines of "
           .. "their own")
  -- luacheck: pop
  -- keywords in strings and comments do not open or close blocks
  t.check(code_of(function(c) local s = "end" .. [[ end ]] --[==[ end ]==]
    if s ~= 'it\'s the end' then c.image:add(#s) end
  end))
end)

t.test("what is outside is refused", function()
  local set, cfg, limit <const> = pictures(1), { a = 1 }, 3
  t.raises(function() set:change(function(case) case.image:add(cfg.a) end) end,
           'uses "cfg" from outside itself')
  t.raises(function() set:augment { vary = function(case) case.image:add(cfg.a) end } end,
           "vary = { function(case, rng, constants) ... end, k = 3 }")
  t.raises(function() set:change(function(case) case.image:add(limit) end) end,
           "uses a local <const> from outside itself")
  t.raises(function() set:change(print) end, "must be written in the script")
  t.raises(function() set:change(seg.data.nifti) end, "must be written in the script")
  t.raises(function() set:change() end, "wanted a function, got nil")
  t.raises(function() set:change { code = 5 } end, "wanted a function, got table")
  t.raises(function() set:augment { vary = true } end, "vary: wanted a function, got boolean")
  t.raises(function() set:augment { vary = { p = 1 } } end, "vary: wanted a function, got nil")
  t.raises(function() set:change(function() end, 3) end, "constants must be a table, got number")
  t.raises(function() set:change(function() end, { a = { b = print } }) end,
           "constant change.a.b is a function")
  t.raises(function() set:change(function() end, { [2.5] = 1 }) end, "a key is a float")
  local loop = {}
  loop.loop = loop
  t.raises(function() set:change(function() end, loop) end, "tables in tables")
  local lone = load("local _ENV = { x = 1 } return function(case) return x end")()
  t.raises(function() set:change(lone) end, "globals of its own; fix: ")
end)

t.test("weights want the function that they were trained with", function()
  local of = require("seg.data.functions").of
  local steps = pictures(1):change(function(case) case.image:add(8) end, { k = 8 }).steps
  t.equal(#of(steps), 1)
  t.raises(function() of((steps:gsub("with=%d+", "with=12"))) end, "the constants of change at "
           .. "tests/lua/data/functions.lua:")
  t.raises(function() of((steps:gsub("code=%d+", "code=12"))) end, "is not the one that the "
           .. "weights were trained with; fix: restore the script, or train again")
end)

-- Errors -------------------------------------------------------------------------

t.test("errors name case, script and line", function()
  local set, here = pictures(2), "change: tests/lua/data/functions.lua:"
  local function line() return debug.getinfo(2, "l").currentline end
  local at = line() + 1
  local broken = set:change(function(case) case.nose:add(1) end)
  fails(broken, here .. at .. ": attempt to index a nil value (field 'nose')")
  fails(set:change(function() error("as told") end), here .. line() .. ": as told")
  fails(set:change(function() error("as told", 0) end), here .. line() .. ": as told")
  fails(set:change(function() error({}) end), here .. line() .. ": the function raised a table")
  fails(set:change(function() error(12) end), here .. line() .. ": 12")
  fails(set:change(function(c) c.image:ad(1) end), "a field has no ad; it has name")
  fails(set:change(function(c) c.image = 1 end), "case.image is not assigned")
  fails(set:change(function(c) c.image:get(1, 2) end), "positions are c, h, w; got 2 arguments")
  fails(set:change(function(c) c.image:set(1, 2, 8, 0) end), "image: w is from 1 to 7, got 8")
  fails(set:change(function(c) c.image:mean(3) end), "image has channels 1 to 2, got 3")
  fails(set:change(function(c) c.image:mul(c.pose) end), "the extents differ")
  fails(set:change(function(c) c.mask:fill(0):mean(c.mask) end), "no voxels, mask is 0 everywhere")
  fails(set:change(function(c) c.image:clamp(2, 1) end), "is not a range")
  fails(set:change(function(c) c.image:apply(function() end) end), "returned a nil, wanted")
  fails(set:change(function(c) c.image:add("1") end), here .. line() .. ": bad argument #1")
  fails(set:change(function(_, k) return k.k end), "index a nil value (local 'k')")
end)

t.test("only numbers that a field can hold are stored", function()
  local set = pictures(2)
  for _, bad in ipairs { 0.5, 3, -1 } do
    fails(set:change(function(c, k) c.mask:set(1, 1, 1, k.bad) end, { bad = bad }),
          "is not a class number from 0 to 2")
  end
  fails(set:change(function(c) c.mask:fill(0 / 0) end), "is not a class number")
  fails(set:change(function(c) c.image:add(0 / 0) end), "image: a value would be NaN")
  fails(set:change(function(c) c.image:fill(1e39) end), "image: a value would be infinite")
  fails(set:change(function(c) c.pose:set(1, 1 / 0) end), "pose: a value would be infinite")
  -- the same message for a sample, with the position of the sample
  local loader = set:augment { vary = function(s) s.mask:mul(0.5) end }:batches {}
  loader = loader:loader(loader:pipeline {}, { workers = 2 })
  for _ = 1, 2 do -- again and again
    t.raises(function() loader:next() end,
             "case_01: vary: tests/lua/data/functions.lua:")
  end
  t.raises(function() loader:next() end, "mask: 0.5 is not a class number from 0 to 2")
  loader:close()
  local slices = volumes():slices {}:augment { vary = function() error("as told") end }:batches {}
  loader = slices:loader(slices:pipeline {}, {})
  t.raises(function() loader:next() end, ": slice 1: vary: tests/lua/data/functions.lua:")
  loader:close()
end)

t.test("nothing reaches out or stays", function()
  local set = pictures(2)
  fails(set:change(function() return os.time() end), "there is no global os")
  fails(set:change(function() return io.open("x") end), "there is no global io")
  fails(set:change(function() return require("seg") end), "there is no global require")
  fails(set:change(function() return load("return 1") end), "there is no global load")
  fails(set:change(function() return next({}) end), "there is no global next")
  fails(set:change(function() return math.random() end), "fix: rng:uniform(lo, hi)")
  -- luacheck: push ignore 111 142 512
  fails(set:change(function() count = 1 end), "count is set outside of the function")
  fails(set:change(function() math.count = 1 end), "count is set outside")
  fails(set:change(function() _ENV.x = 1 end), "x is set outside")
  fails(set:change(function() return string.dump(print) end), "there is no string.dump")
  fails(set:change(function() for _ in pairs { [{}] = 1 } do break end end),
        "a key is a table, which has no order")
  -- luacheck: pop
  fails(set:change(function()
    local s = ("x"):rep(1 << 20)
    while true do s = s .. s end
  end), "needs more than 256 MiB in addition to the fields")
end)

t.test("globals are those of the call", function()
  -- luacheck: push ignore 113 121 122
  local set = pictures(3):change(function(case)
    case.pose:fill(counter and counter + 1 or 0)
    _ENV = { counter = (counter or 0) + 1 }
  end)
  fails(set, "there is no global counter")
  local batch = t.first_batch(pictures(3):change(function(case)
    local assert, pcall, known = assert, pcall, pcall(function() return counter end)
    case.pose:fill(known and counter + 1 or 0)
    _ENV = { counter = known and counter + 1 or 0, assert = assert, pcall = pcall }
  end):augment { vary = function(sample, rng)
    local got, old = pcall(function() return kept end)
    sample.pose:add(got and old and 100 or 0)
    _ENV = { kept = rng, pcall = pcall }
  end }:batches { size = 3 })
  -- luacheck: pop
  for n = 1, 3 do t.equal(batch.pose:get(n, 1), 0) end
end)

t.test("texts and orders say nothing of memory and time", function()
  stream(pictures(1):change(function(case)
    local function f() end
    local thing = {}
    for _, v in ipairs { thing, f, case.image, math.abs } do
      assert(tostring(v) == type(v) and ("%s %5.2s"):format(v, "abc") == type(v) .. "    ab")
      assert(string.format("%%%s%d", v, 3) == "%" .. type(v) .. "3")
    end
    assert(tostring(nil) == "nil" and tostring(1.5) == "1.5" and tostring(true) == "true")
    assert(string.format("%q %s %g", "a", nil, 0.5) == '"a" nil 0.5')
    local ok, why = pcall(function() math[thing] = 1 end) -- luacheck: ignore 142
    assert(not ok and why:find("table is set outside", 1, true), why)
    -- equal elements keep their order
    local list = {}
    for i = 1, 1000 do list[i] = { i * 7919 % 10, i } end
    table.sort(list, function(a, b) return a[1] < b[1] end)
    for i = 2, #list do
      local a, b = list[i - 1], list[i]
      assert(a[1] < b[1] or a[1] == b[1] and a[2] < b[2])
    end
    local words = { "b", "c", "a" }
    table.sort(words)
    assert(table.concat(words) == "abc")
    table.sort {}
  end), 1, {})
  local set = pictures(2)
  fails(set:change(function(c) return ("%p"):format(c) end), "%p would give an address")
  fails(set:change(function(c) return ("x").dump(c) end), "there is no string.dump")
  -- the message names the line of the function only
  local here = string.format("change: tests/lua/data/functions.lua:%d: ",
                             debug.getinfo(1, "l").currentline + 1)
  fails(set:change(function() local _ = ("%d"):format({}) end), here .. "bad argument #2 to")
  fails(set:change(function() table.sort { 1, "a" } end), "attempt to compare string with number")
  fails(set:change(function() table.sort { {}, {} } end), "attempt to compare two table values")
  fails(set:change(function() table.sort(3) end), "table expected, got number")
  fails(set:change(function() table.sort({ 1 }, 3) end), "function expected, got number")
  fails(set:change(function() table.sort({ 2, 1 }, function() error("as told") end) end), "as told")
end)

t.test("a function that hangs ends with its loader", function()
  local set = pictures(8):augment { vary = function(sample)
    while sample.pose:get(1) > 2 do pcall(function() while true do sample = sample end end) end
  end }:batches {}
  local loader = set:loader(set:pipeline { cache_bytes = 1 << 20 }, { workers = 2 })
  loader:next()
  loader:next() -- the third sample hangs by this time, or will
  core.sys.sleep(0.05)
  local started = core.sys.clock()
  loader:close()
  t.check(core.sys.clock() - started < 0.45, "it took %g s", core.sys.clock() - started)
end)

-- Recipes ---------------------------------------------------------------------

-- scripts/nfbs_unet.lua with another text before its normalize and at the beginning of its augment,
-- below the scratch folder.
local function recipe(name, before, augment)
  local text = t.read("scripts/nfbs_unet.lua")
  local changed, count = text:gsub("    :normalize", function() return before .. ":normalize" end)
  t.equal(count, 1)
  if augment then
    changed, count = changed:gsub(":augment {", function() return ":augment { " .. augment end)
    t.equal(count, 1)
  end
  return t.write(folder .. "/" .. name .. ".lua", changed)
end

local add = ":change(function(case, k) case.image:add(k.by) end, { by = %d })"
-- two on one line
local two = ":change(function(c) c.image:add(1) end):change(function(c) c.image:add(%d) end)"

t.test("predict runs the function of the script, if it is that of training", function()
  local common = " --preset check --phantom " .. folder .. "/phantom --out " .. folder .. "/runs"
  local script = recipe("r", add:format(3) .. two:format(2),
                        "vary = function(s, rng) s.image:add(rng:normal()) end,")
  local code, text = t.program(script .. " train --device_dataset auto" .. common)
  t.equal(code, 0, text)
  local image = t.lines("find " .. folder .. "/phantom -name '*_T1w.nii.gz' | sort")[1]
  local predict = script .. " predict --preset check --weights " .. folder
    .. "/runs/r/001/checkpoint_best.safetensors --in " .. image .. " --out " .. folder .. "/made"
  code, text = t.program(predict)
  t.equal(code, 0, text)
  -- a checkpoint of the old script, with the new one
  recipe("r", "--[[ moved ]]\n" .. add:format(3) .. two:format(2))
  code, text = t.program(predict)
  t.equal(code, 0, text)
  recipe("r", add:format(3) .. two:format(3))
  code, text = t.program(predict)
  t.equal(code, 2, text)
  t.check(text:find("r.lua:%d+ is not the one that the weights were trained with"), text)
  code, text = t.program(script .. " train --epochs 2 --resume " .. folder .. "/runs/r/001"
                         .. common)
  t.equal(code, 2, text)
  t.check(text:find("the preparation of the data of this script differs from the resumed run", 1,
                    true),
          text)
  recipe("r", add:format(4) .. two:format(2))
  code, text = t.program(predict)
  t.equal(code, 2, text)
  t.check(text:find("r.lua:%d+ are not those that the weights were trained with"), text)
  recipe("r", ":change(function(case, k) case.image:mul(k.by) end, { by = 3 })")
  code, text = t.program(predict)
  t.equal(code, 2, text)
  t.check(text:find("r.lua:%d+ is not the one that the weights were trained with"), text)
  recipe("r", "")
  code, text = t.program(predict)
  t.equal(code, 2, text)
  t.check(text:find("a function of change, which this script does not have", 1, true), text)
  -- a run can only be resumed with its own functions
  recipe("r", add:format(4))
  code, text = t.program(script .. " train --epochs 2 --resume " .. folder .. "/runs/r/001"
                         .. common)
  t.equal(code, 2, text)
  t.check(text:find("the preparation of the data of this script differs from the resumed run", 1,
                    true),
          text)
end)

t.test("doctor data runs it", function()
  local common = " doctor data %s --preset check --phantom " .. folder .. "/phantom --out "
    .. folder .. "/runs"
  local code, text = t.program(common:format(recipe("d", add:format(3))))
  t.check(code ~= 1 and code ~= 2 and not text:find("a step fails", 1, true), text)
  code, text = t.program(common:format(recipe("d", ":change(function() error 'as told' end)")))
  t.equal(code, 3, text)
  t.check(text:find("as told", 1, true), text)
end)

t.test("Ctrl-C ends a function that hangs", function()
  local common = " train --preset check --workers 1 --phantom " .. folder .. "/phantom --out "
    .. folder .. "/runs"
  -- while cases are prepared, and while a sample is made ahead
  for _, steps in ipairs { { ":change(function() while true do end end)" },
                           { "", "vary = function() while true do end end," },
                           -- in a C function, which no hook of Lua reaches
                           { "", "vary = function() string.find(('a'):rep(1e5), '.-.-.-.-b') "
                             .. "end," } } do
    local started = core.sys.clock()
    local code, text = t.program(recipe("hang", steps[1], steps[2]) .. common,
                                 "timeout --preserve-status -s INT 2 ")
    t.equal(code, 130, text)
    t.check(core.sys.clock() - started < 18, "it took %g s", core.sys.clock() - started)
  end
end)

remove()
t.finish()
