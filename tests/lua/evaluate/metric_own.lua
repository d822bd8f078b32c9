-- metric_own.lua -- metrics of a recipe's own: the mean of a node of any size, and a function of a
-- case.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local nn, metric = seg.nn, seg.metric

local folder, remove = t.folder()
local places = " --phantom " .. folder .. "/phantom --device cpu"

local BASE = [[
local seg = require "seg"
local data, nn, optim, metric = seg.data, seg.nn, seg.optim, seg.metric
local cfg = seg.config { batch = 4, valid_batch = 4, epochs = 2, lr = 1e-2 }
local function prepare(set) return set:normalize {}:slices { axis = "axial" } end
local train, valid = data.phantom { patients = 6, size = 16, slices = 5 }:split { valid = 2,
                                                                                 seed = 1 }
local image = nn.input("image", { c = 1, h = 16, w = 16 })
local truth = nn.input("mask", { c = 1, h = 16, w = 16 })
local logits = nn.conv(nn.relu(nn.conv(image, 4, 3)), 1, 1, { name = "head" })
local p = nn.sigmoid(logits)
local r = {
  inputs = { image, truth }, outputs = { mask = p },
  loss = nn.bce(logits, truth), train = prepare(train):batches { size = cfg.batch },
  valid = prepare(valid):batches { size = cfg.valid_batch }, optim = optim.adamw { lr = cfg.lr },
}
]]

local count = 0
local function script(lines)
  count = count + 1
  os.execute("mkdir -p " .. folder .. "/" .. count)
  return t.write(folder .. "/" .. count .. "/r.lua", BASE .. lines .. "\nseg.recipe(r)\n")
end

local function train(path, options)
  local out = path:match("^(.*)/") .. "/out"
  local code, said = t.program(path .. places .. " --out " .. out .. " " .. (options or ""))
  return out .. "/r/001", said, code
end

local function trained(path, options)
  local run, said, code = train(path, options)
  t.equal(code, 0, said:sub(-400))
  return run, said
end

local function rows(run)
  local list, head = {}, nil
  for line in t.read(run .. "/metrics.csv"):gmatch("[^\n]+") do
    local cells, row = {}, {}
    for cell in (line .. ","):gmatch("([^,]*),") do cells[#cells + 1] = cell end
    for i, name in ipairs(head or {}) do row[name] = tonumber(cells[i]) end
    if head then list[#list + 1] = row end
    head = head or cells
  end
  return list
end

-- 10 samples of valid: in batches of 4 the last has 2
local NODES = [[
r.metrics = {
  all = seg.abs(p - truth), mean = metric.mae(p, truth), bce = nn.bce(logits, truth),
  half = seg.abs(nn.avgpool(p, 2) - nn.avgpool(truth, 2)),
  vector = seg.sum(p, { axes = { "h", "w" } }) / 256, row = seg.mean(p, { axes = { "h" } }),
  weight = nn.param("extra", { 1, 2, 1, 1 }, { init = 3 }) ^ 2,
  late = metric.mean(p, { when = "end", better = "max", unit = "mm" }),
}]]

t.test("a node is a metric of any size: its mean over samples, each once", function()
  local run, said = trained(script(NODES))
  for _, row in ipairs(rows(run)) do
    -- all cases have as many samples, so the mean over cases is that over samples
    t.near(row.valid_all, row.valid_mean, 1e-6)
    t.near(row.valid_bce, row.valid_loss, 1e-6, "a loss, with the samples of its batches")
    t.near(row.valid_vector, row.valid_row, 1e-6)
    t.near(row.valid_weight, 9, 1e-5, "without inputs")
    t.check(row.valid_half > 0 and row.valid_half <= row.valid_all + 1e-6)
    t.equal(row.valid_late, nil)
    t.equal(row.train_all, nil, "not computed in training steps")
  end
  t.check(said:find("late [mm] of all cases: 0.", 1, true), said)
end)

t.test("the size of batches changes nothing but rounding", function()
  local four = rows(trained(script(NODES)))[2]
  for _, size in ipairs { 1, 3, 10 } do
    local row = rows(trained(script(NODES), "--set valid_batch=" .. size))[2]
    for _, name in ipairs { "all", "bce", "half", "vector", "row", "weight" } do
      t.near(row["valid_" .. name], four["valid_" .. name], 1e-6, name .. ", batches of " .. size)
    end
  end
end)

t.test("such a metric chooses the best epoch, and changes no weight", function()
  local run = trained(script(NODES .. "\nr.best = { 'half', 'min' }"))
  local plain = trained(script "")
  local function tensors(file)
    local bytes = t.read(file)
    return bytes:sub(9 + string.unpack("<I8", bytes))
  end
  local model = tensors(run .. "/checkpoint_last.safetensors")
  t.check(#model > #tensors(plain .. "/checkpoint_last.safetensors"), "the parameter of the metric")
  t.equal(rows(run)[2].train_loss, rows(plain)[2].train_loss)
  t.check(t.read(run .. "/summary.json"):find('"best_of": "half"', 1, true))
end)

t.test("a function of a case gets whole volumes and returns the metric", function()
  local run, said = trained(script [[
local function mae(a, b, mm, used)
  local sum, shape = 0, a.shape
  assert(#shape == 4 and shape[2] == 5 and #mm == 3 and mm[1] > mm[2] and used == nil)
  for d = 1, 5 do
    for h = 1, 16 do
      for w = 1, 16 do sum = sum + math.abs(a:get(1, d, h, w) - b:get(1, d, h, w)) end
    end
  end
  return sum / (5 * 16 * 16)
end
r.metrics = {
  own = metric.case(p, truth, mae, { better = "min", unit = "x" }), mae = metric.mae(p, truth),
  none = metric.case(p, truth, function() return 0 / 0 end),
}
r.best = { "own", "min" }]])
  for _, row in ipairs(rows(run)) do
    t.near(row.valid_own, row.valid_mae, 1e-6)
    t.equal(row.valid_none, nil)
  end
  t.check(said:find("own [x] per case (whole volume): mean", 1, true), said)
  local path = run:match("^(.*)/out/") .. "/r.lua"
  said = t.says(path .. " evaluate --split valid --weights " .. run .. places, 0,
                "own [x] per case")
  t.check(said:find("(2 left out)", 1, true), said)
end)

t.test("slices that the set leaves out are told", function()
  local path = script [[
r.valid = valid:normalize {}:slices { axis = "axial", range = { 0, 0.5 } }:batches {}
r.metrics = { n = metric.case(p, truth, function(_, _, _, used)
  local n = 0
  for _, has in ipairs(used) do n = n + (has and 1 or 0) end
  return n
end) }]]
  local run, said, code = train(path)
  if code ~= 0 then t.check(false, said:sub(-400)) end
  t.check(rows(run)[1].valid_n >= 1 and rows(run)[1].valid_n < 5)
end)

t.test("a function of numbers gets a vector of each sample", function()
  local run, said = trained(script [[
local a, b = nn.global_pool(p .. p * 2), nn.global_pool(truth .. truth)
r.metrics = {
  own = metric.case(a, b, function(x, y, mm)
    assert(#x.shape == 1 and x.count == 2 and #mm == 0)
    return math.abs(x:get(1) - y:get(1)) + math.abs(x:get(2) - y:get(2))
  end),
  mae = metric.mae(a, b),
}]])
  for _, row in ipairs(rows(run)) do t.near(row.valid_own, 2 * row.valid_mae, 1e-6) end
  t.check(said:find("own per case: mean", 1, true), said)
  local _, why, code = train(script [[
local a = nn.global_pool(p)
r.metrics = { own = metric.case(a, a * 2, function() end) }]])
  t.equal(code, 1, why)
  t.check(why:find('r%.lua:%d+: metric "own": the function returned a nil') and
          why:find("continue with --resume", 1, true), why:sub(-300))
end)

t.test("a function that fails is named with its line, and the run is saved and resumes", function()
  local path = script [[
local calls = 0
r.epochs, r.ema = 3, 0.9
r.metrics = { own = metric.case(p, truth, function()
  calls = calls + 1
  if calls == 4 and os.getenv "BREAK" then error "broken" end
  return calls
end) }]]
  local whole = t.read(trained(path) .. "/checkpoint_last.safetensors")
  os.execute("rm -r " .. path:match("^(.*)/") .. "/out")
  local code, said = t.program(path .. places .. " --out " .. path:match("^(.*)/") .. "/out",
                               "export BREAK=1; ")
  t.equal(code, 1, said)
  t.check(said:find('r%.lua:20: broken %(metric "own", case 2 of 2%); saved at epoch 2, batch 6'),
          said:sub(-400))
  local run = trained(path, "--resume auto")
  local again = t.read(run .. "/checkpoint_last.safetensors")
  local function tensors(bytes) return bytes:sub(9 + string.unpack("<I8", bytes)) end
  t.check(tensors(again) == tensors(whole), "the weights and their average")
end)

t.test("a function that returns no number is named", function()
  for body, want in pairs {
    ["function() end"] = "the function returned a nil, wanted a number",
    ["function() return 'x' end"] = "the function returned a string, wanted a number",
    ["function() return {} end"] = "the function returned a table, wanted a number",
    ["function() return 1 / 0 end"] = "the function returned inf, wanted a number",
    ["function() error 'a\\0b' end"] = "a\\x00b (metric",
    ["function() error {} end"] = "an error that is a table, not a text",
    ["function(a) return a:get(9) end"] = "index",
    ["function() local function f() return 1 + f() end return f() end"] = "stack overflow",
  } do
    local path = script("r.metrics = { own = metric.case(p, truth, " .. body .. ") }")
    local _, said, code = train(path)
    t.equal(code, 1, said)
    t.check(said:find(want, 1, true), body .. ": " .. said:sub(-300))
    t.check(said:find('segengine: [^\n]*r%.lua:%d+: [^\n]*metric "own", case 1 of 2'),
            said:sub(-300))
  end
end)

t.test("a batch with a sample that is not finite does not count", function()
  local x, y = nn.input("own_a", { c = 1, w = 4 }), nn.input("own_b", { c = 1, w = 4 })
  local m, records = metric.mean(nn.mse(x, y)), {}
  for _, v in ipairs { 1, 0 / 0, 3, 1 / 0, -1 / 0, 8 } do
    local value, _, record = m.sample { { v } }
    t.equal(value, nil, "by case")
    records[#records + 1] = record
  end
  t.equal(#records, 3)
  t.equal((m.total(records)), 4.0)
  t.equal((m.total {}), nil)
  local each = metric.mean(x)
  t.equal((each.sample { { 2.5 } }), 2.5)
  local _, _, a = each.sample { { 2 } }
  local _, _, b = each.sample { { 5 } }
  each.merge(a, b)
  t.equal((each.total { a }), 3.5)
end)

t.test("mistakes are found when the recipe is read", function()
  for line, want in pairs {
    ["r.metrics = { x = metric.mae(nn.avgpool(p, 2), nn.avgpool(truth, 2)) }"] =
      'metric "x" is measured on whole cases, and',
    ["r.metrics = { x = metric.hd95(nn.avgpool(logits, 2), nn.avgpool(truth, 2)) }"] =
      "has another size than",
    ["r.metrics = { x = metric.case(nn.avgpool(p, 2), truth, print) }"] =
      "give its mean as a metric: metrics = { x = node }",
    ["r.metrics = { x = 3 }"] =
      "metrics must be a table name = metric of seg.metric, or a node, got x = a number",
    ["r.metrics = { x = { way = 'counts' } }"] = "x = a table",
    ["r.metrics = { x = nn.input('other', { c = 1, h = 4, w = 4 }) }"] = 'inputs lacks "other"',
    ["r.metrics = { x = p } r.best = { 'y', 'min' }"] = 'did you mean "x"',
    ["r.metrics = { x = metric.mean(p, { better = 'max' }) } r.best = { 'x', 'min' }"] =
      "of mean more is better",
  } do t.says(script(line) .. " plan", 2, want) end
  local x = nn.input("own_x", { c = 1, h = 4, w = 4 })
  t.raises(function() metric.mean(3) end, "wanted a node of the network, got number")
  t.raises(function() metric.mean(x, { when = "never" }) end, 'when must be "epoch" or "end"')
  t.raises(function() metric.mean(x, { better = "more" }) end, 'better must be "max" or "min"')
  t.raises(function() metric.mean(x, { unit = 3 }) end, "unit must be a text, got number")
  t.raises(function() metric.case(x, 3, print) end, "must be nodes of the network, got number")
  t.raises(function() metric.case(x, x) end, "wanted a function of prediction, truth")
  t.raises(function() metric.case(nn.global_pool(x), x, print) end, "with as many axes")
  t.raises(function() metric.case(seg.mean(x), seg.mean(x), print) end,
           "wanted a value for each sample of both")
end)

remove()
t.finish()
