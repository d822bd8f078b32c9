-- set.lua -- data sets in recipes: a list of cases, a selection of cases, several sets together,
-- cases under other names, in folds.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local data, nn, keys = seg.data, seg.nn, t.keys

local folder, remove = t.folder()

-- Sequences of 4 + i steps of 2 features, with a class and two angles.
local function sequences(count)
  local cases = {}
  for i = 1, count do
    local a = seg.array { shape = { 4 + i, 2 } }
    for w = 1, 4 + i do
      for c = 1, 2 do a:set(i + 0.1 * w + c, w, c) end
    end
    local path = string.format("%s/s%02d.npy", folder, i)
    seg.array.save(path, a)
    cases[i] = { key = string.format("s%02d", i), patient = "p" .. (i + 1) // 2, x = path,
                 class = i % 2, angles = { 10 * i, -i } }
  end
  return data.cases {
    fields = { { name = "x", read = "npy", rank = 1 },
               { name = "class", kind = "numbers" },
               { name = "angles", kind = "numbers", count = 2 },
               { name = "length", kind = "length" } },
    cases = function() return cases end,
  }
end

local two = { { name = "x", read = "npy", rank = 1 } }

t.test("cases are picked, renamed and joined", function()
  local all = sequences(4)
  t.equal(keys(all), "s01/p1 s02/p1 s03/p2 s04/p2")
  local some = all:filter(function(case) return case.key ~= "s02" end)
  t.equal(keys(some), "s01/p1 s03/p2 s04/p2")
  local other = some:map(function(case) return { key = "b" .. case.key, patient = "q" } end)
  t.equal(keys(other), "bs01/q bs03/q bs04/q")
  t.equal(keys(data.concat(all, other)),
          "bs01/q bs03/q bs04/q s01/p1 s02/p1 s03/p2 s04/p2")
  -- steps and batches belong to the derived set
  local fitted = all:fit { w = 6, at = "start" }:batches { size = 2 }
  t.equal(fitted:filter(function() return true end).steps, "fit d=0 h=0 w=6 at=start\n")
  t.raises(function() all:filter(1) end, "filter: wanted a function of a case {key=, patient=}")
  t.raises(function() data.concat(all, 3) end, "operand 2 must be a data set, got number")
  t.raises(function() data.concat() end, "wanted data sets, got nothing")
  t.raises(function() keys(all:filter(function() return false end)) end,
           "filter leaves none of 4 cases")
  t.raises(function() keys(all:map(function() end)) end, "must return a case {key=, patient=}")
  t.raises(function() keys(all:map(function(c) return { key = c.key } end)) end,
           "s01: patient must be a text, got nil")
  t.raises(function() keys(all:map(function() return { key = "a", patient = "p" } end)) end,
           "1 name stands for more than one case: a")
  t.raises(function() keys(data.concat(all, all)) end, "4 names stand for more than one case")
end)

t.test("folds share no patient and leave none out", function()
  local all, seen = sequences(9), {} -- five patients
  for fold = 1, 3 do
    local train, valid = all:kfold { k = 3, fold = fold, seed = 7 }
    local patients = {}
    for _, case in ipairs(train:dataset():cases()) do patients[case.patient] = true end
    for _, case in ipairs(valid:dataset():cases()) do
      t.check(not patients[case.patient], "%s is on both sides", case.patient)
      t.check(not seen[case.key], "%s is in two folds", case.key)
      seen[case.key] = true
    end
    t.equal(#train:dataset():cases() + #valid:dataset():cases(), 9)
    t.equal(train.part .. " " .. valid.part, "train valid")
  end
  for i = 1, 9 do t.check(seen[string.format("s%02d", i)], "case %d is in no fold", i) end
  t.raises(function() all:kfold { k = 3, fold = 4 } end, "kfold: fold 4 of 3")
  t.raises(function() all:kfold { k = 1 } end, "kfold: fold 1 of 1")
  t.raises(function() all:kfold { k = 2.5 } end, "kfold: k must be a whole number")
  -- all cases of a patient are in one part: patients of two sites
  local houses = {}
  for fold = 1, 2 do
    local train, valid = all:kfold { k = 2, fold = fold, group = function(case)
      return case.patient:byte(-1) % 2 == 0 and "even" or "odd"
    end }
    t.equal(#train:dataset():cases() + #valid:dataset():cases(), 9)
    for _, case in ipairs(valid:dataset():cases()) do
      local house = case.patient:byte(-1) % 2
      t.check((houses[house] or fold) == fold, "a house is in two folds")
      houses[house] = fold
    end
  end
  t.check(houses[0] ~= houses[1], "two houses are in one fold")
  t.raises(function()
    local n = 0
    keys(all:kfold { k = 2, group = function() n = n + 1 return "g" .. n end })
  end, "group puts a patient into two groups")
  t.raises(function() keys(all:kfold { group = function() end }) end, "must return a text")
  t.raises(function() all:kfold { group = "site" } end, 'group must be "patient" or a function')
  -- split with folds is the same as kfold
  local _, mine, none = all:split { folds = 3, seed = 7, valid = 0.5 }
  local _, same = all:kfold { k = 3, seed = 7 }
  t.equal(t.keys(mine), t.keys(same))
  t.equal(none, nil)
  t.equal(mine.folds, 3)
  t.raises(function() all:split { folds = 1 } end, "2 or more, or 0 for none, got 1")
  -- more folds than patients: the error names the first fold, which could have one to validate
  local early = all:kfold { k = 6 }
  t.raises(function() early:dataset() end, "6 folds of 5 patients: some folds would validate no "
           .. "patient; fix: fewer folds")
end)

t.test("what a case lacks is said with its name", function()
  local function open(cases, fields)
    return function()
      data.cases { fields = fields or two, cases = cases }:dataset()
    end
  end
  t.raises(open {}, "the data set has no cases")
  t.raises(open { { key = "a", patient = "p" } }, "a: x must be a path or a list of paths, got nil")
  t.raises(open { { key = "a", patient = "p", x = {} } }, "a: x: no file")
  t.raises(open { { patient = "p", x = "y" } }, 'a case needs a name and a patient, got ""')
  t.raises(open { 3 }, "a case must be a table")
  t.raises(open({ { key = "a", patient = "p", x = "y" } }, {}), "0 fields, wanted 1 to")
  t.raises(open({ { key = "a", patient = "p", x = "y" } }, { { name = "x", reed = "npy" } }),
           'unknown option "reed"; did you mean "read"')
  t.raises(open({ { key = "a", patient = "p", x = "y" } }, { { name = "x", kind = "mask" } }),
           'kind must be image, value, label, numbers or length, got "mask"')
  local with = { two[1], { name = "n", kind = "numbers", count = 2 } }
  t.raises(open({ { key = "a", patient = "p", x = "y", n = 1 } }, with),
           "a: n must be 2 numbers, got number")
  t.raises(open({ { key = "a", patient = "p", x = "y", n = { 1, 2, 3 } } }, with),
           "a: n has 3 numbers, want 2")
  t.raises(open({ { key = "a", patient = "p", x = "y", n = { 1, 0 / 0 } } }, with),
           "n must be a number, got")
  t.raises(function() data.cases { fields = two, cases = 3 } end,
           "data.cases: cases must be a list of cases or a function")
  t.raises(function()
    data.cases { fields = two, cases = { { key = "a", patient = "p", x = folder .. "/no.npy" } } }
      :pipeline {}
  end, "no.npy")
end)

t.test("a network is trained on sequences, numbers and lengths", function()
  local set = sequences(8):fit { w = 8, at = "start" }:batches { size = 4 }
  local pipeline = set:pipeline {}
  t.equal(table.concat(pipeline:shape("x"), " "), "2 8")
  t.equal(table.concat(pipeline:shape("angles"), " "), "2")
  local loader = set:loader(pipeline, {})
  local batch = loader:next()
  local blocks = {}
  for i, name in ipairs(set:dataset():fields()) do blocks[name] = batch.fields[i] end
  local x = nn.input("x", { c = 2, w = 8 })
  local angles, length = nn.input("angles", { c = 2 }), nn.input("length", { c = 1 })
  local y = nn.linear(nn.global_pool(nn.relu(nn.conv(x, 4, 3))), 2)
  local step = seg.step { loss = nn.mse(y, angles), optim = seg.optim.adam { lr = 0.05 },
                          outputs = { length = length + 0, x = x + 0 } }
  local first, out = step:run { x = blocks.x, angles = blocks.angles, length = blocks.length }
  for i = 1, 4 do
    t.equal(out.length:get(i, 1), math.min(4 + i, 8))
    t.near(out.x:get(i, 2, 3), i + 0.3 + 2, 1e-6)
    -- a sequence is padded with its smallest value
    if i < 4 then t.near(out.x:get(i, 1, 8), i + 0.1 + 1, 1e-6) end
  end
  local last
  for _ = 1, 60 do
    last = step:run { x = blocks.x, angles = blocks.angles, length = blocks.length }
  end
  t.check(last < 0.2 * first, "the loss went from %g to %g", first, last)
  loader:close()
end)

t.test("sequences of any length are trained in batches of like length", function()
  sequences(12)
  local function script(w, batches)
    return t.write(folder .. "/bucket.lua", string.format([[
      local seg = require "seg"
      local data, nn = seg.data, seg.nn
      seg.config { batch = 2, epochs = 2, size = 1 }
      local cases = {}
      for i = 1, 12 do
        local name = string.format("c%%02d", i)
        cases[i] = { key = name, patient = name, y = i / 12,
                     x = string.format("%s/s%%02d.npy", 5 * i %% 12 + 1) }
      end
      local set = data.cases { cases = cases, fields = {
        { name = "x", read = "npy", rank = 1 }, { name = "y", kind = "numbers" },
        { name = "length", kind = "length" } } }
      local train, valid = set:split { valid = 4, seed = 1 }
      local x, y = nn.input("x", { c = 2, w = %d }), nn.input("y", { c = 1 })
      local out = nn.linear(nn.global_pool(nn.maxpool(nn.relu(nn.conv(x, 4, 3)), 2)), 1)
      seg.recipe { inputs = { x, y }, outputs = { y = out }, loss = nn.mse(out, y),
                   train = train:augment { noise = { sigma = 0.1, p = 1 } }:batches { size = 2,
                     shuffle = true, %s },
                   valid = valid:batches { size = 2, %s }, optim = seg.optim.adam { lr = 0.01 } }
    ]], folder, w, batches, batches))
  end
  local function train(name, more)
    local text = t.says(script(20, 'bucket = "length", multiple = 4') .. " --out " .. folder .. "/"
                        .. name .. more, 0, "batches of samples of like length, w 8 to 16")
    t.check(text:find("valid: [^\n]*batches of samples of like length"), "%s", text)
    return t.read(folder .. "/" .. name .. "/bucket/001/checkpoint_last.safetensors")
  end
  local whole = train("w0", " --workers 0")
  t.check(whole == train("w3", " --workers 3"), "other weights with three workers")
  -- stopped in the middle of an epoch and resumed
  local same = script(20, 'bucket = "length", multiple = 4')
  t.says(same .. " --steps 5 --out " .. folder .. "/cut", 0, "stopped after 5 steps")
  t.says(same .. " --resume " .. folder .. "/cut/bucket/001", 0, "resumed at epoch 2, batch 2")
  t.check(whole == t.read(folder .. "/cut/bucket/001/checkpoint_last.safetensors"),
          "other weights after a resume")
  -- in the order of lengths the last sample is not of the last case
  local said = t.says(same .. " export --arrays " .. folder .. "/arrays", 0,
                      "/train_*.npy: 8 samples of 8 cases")
  t.check(said:find("/valid_*.npy: 4 samples of 4 cases", 1, true), said)
  -- lengths below w fit for the doctor too; one above does not
  t.says("doctor data " .. same .. " --out " .. folder .. "/well", 0, "0 errors")
  t.says("doctor data " .. script(15, 'bucket = "length"') .. " --out " .. folder .. "/ill", 3,
         "input x expects 2x15, this gives 2x16")
  t.says(script(16, 'bucket = "length", multiple = 10') .. " --out " .. folder .. "/long", 2,
         'input "x" is at most 16 along w, batches of the train set are up to 20')
  t.says(script(20, "") .. " --out " .. folder .. "/none", 3,
         'or batches { bucket = "length" }, as only w differs')
  t.says(script(20, 'bucket = "length"') .. " --device_dataset on --out " .. folder .. "/gpu", 2,
         "train cannot be kept: only the loader makes buckets of like length")
  local set = sequences(2)
  t.raises(function() set:batches { bucket = "width" } end,
           'batches: bucket must be "length", got width')
  t.raises(function() set:batches { multiple = 4 } end,
           'batches: multiple needs bucket = "length"')
  t.raises(function() set:batches { bucket = "length", multiple = 0 } end,
           "batches: multiple must be a whole number >= 1, got 0")
end)

t.test("inputs of a recipe have the rank of their field", function()
  local function recipe(input)
    local script = t.write(folder .. "/recipe.lua", (([[
      local seg = require "seg"
      local nn = seg.nn
      local set = seg.data.cases {
        fields = { { name = "x", read = "npy", rank = 1 },
                   { name = "v", read = "npy", rank = 3 }, { name = "n", kind = "numbers" } },
        cases = {} }
      local INPUT
      seg.recipe { inputs = { x }, outputs = { y = nn.linear(nn.global_pool(x), 1) },
                   loss = nn.mse(nn.linear(nn.global_pool(x), 1), nn.linear(nn.global_pool(x), 1)),
                   train = set, optim = seg.optim.sgd { lr = 1 } }
    ]]):gsub("INPUT", input)))
    return script .. " plan"
  end
  t.says(recipe 'x = nn.input("x", { c = 2, h = 4, w = 4 })', 2,
         'input "x" is 2-D, but the train set gives sequences')
  t.says(recipe 'x = nn.input("v", { c = 2, h = 4, w = 4 })', 2,
         'input "v" is 2-D, but the train set gives whole volumes')
  t.says(recipe 'x = nn.input("n", { c = 2, w = 4 })', 2,
         'input "n" is 1-D, but the train set gives numbers')
  t.says(recipe 'x = nn.input("x", { c = 2, w = 4 })', 0, "parameters")
end)

t.test("a run from kept cases is the same run", function()
  local function train(out, more)
    local code, text = t.program(string.format(
      "scripts/brain_unet.lua --preset check --epochs 1 --out %s/%s --phantom %s/phantom %s",
      folder, out, folder, more))
    t.equal(code, 0, "exit code (" .. text:sub(-300) .. ")")
    return text, t.read(folder .. "/" .. out .. "/brain_unet/001/checkpoint_last.safetensors")
  end
  local _, plain = train("plain", "")
  local first, added = train("kept", "--cache_file " .. folder .. "/some.cases")
  t.check(first:find("train: prepared cases: 0 found, %d+ added"), first)
  local second, found = train("again", "--cache_mb 0 --cache_file " .. folder .. "/some.cases")
  t.check(second:find("train: prepared cases: %d+ found, 0 added"), second)
  t.check(plain == added and added == found, "other weights")
  local third = train("auto", "--cache_file auto")
  t.check(third:find("valid: prepared cases: 0 found, %d+ added"), third)
  t.check(#t.read(folder .. "/auto/prepared.cases") > 1000, "no prepared.cases below --out")
end)

t.test("images of any size make a batch", function()
  local cases = {}
  for i, extents in ipairs { { 5, 7 }, { 9, 4 }, { 6, 6 } } do
    local path = string.format("%s/%d.npy", folder, i)
    seg.array.save(path, seg.array.random({ extents[1], extents[2] }, i))
    cases[i] = { key = "a" .. i, patient = "p" .. i, image = path }
  end
  local set = seg.data.cases { fields = { { name = "image", read = "npy", rank = 2 } },
                               cases = cases }
  local batch = t.first_batch(set:resize { h = 6, w = 8 }:batches { size = 3 })
  t.equal(table.concat(batch.image.shape, "x"), "3x1x6x8")
end)

t.test("a volume is read once, whatever is asked of it", function()
  local set = seg.data.phantom { format = "nifti", patients = 4, size = 16, slices = 6,
                                 root = folder .. "/once" }
  set = set:normalize {}:slices { axis = "axial" }:batches { size = 4, shuffle = true }
  -- how often two epochs prepare one of the four cases again
  local function again(bytes)
    local pipeline = set:pipeline { cache_bytes = bytes }
    local loader, opened = set:loader(pipeline, { workers = 2 }), pipeline:cache().made
    local batches = loader:batches()
    for _ = 1, 2 * batches do loader:next() end
    local made = pipeline:cache().made - opened
    loader:close()
    return made
  end
  t.equal(again(1 << 26), 0, "with a cache")
  t.check(again(1) > 4, "without one they are, many times")
end)

remove()
t.finish()
