-- training.lua -- options of a recipe for optimisation: runs of a small recipe with variants,
-- tests/golden/training.lua.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local lr_range = require "seg.train.lr_range"
local nn, optim = seg.nn, seg.optim

local folder, remove = t.folder()
local text = t.read("tests/golden/training.lua")
local places = " --phantom " .. folder .. "/phantom --device cpu"

-- One run of a variant, or of the recipe with `from` replaced by `to`; returns its folder and its
-- output.
local count = 0
local function train(variant, options, from, to)
  count = count + 1
  local script = "tests/golden/training.lua"
  local out = folder .. "/r" .. count
  if from then
    local changed, n = text:gsub(from, (to:gsub("%%", "%%%%")))
    t.check(n == 1, from .. " is found " .. n .. " times")
    script = t.write(folder .. "/training.lua", changed)
  end
  local code, said = t.program(script .. " --variant " .. variant .. places .. " --out " .. out
                               .. " " .. (options or ""))
  return out .. "/training/001", said, code
end

local function trained(...)
  local run, said, code = train(...)
  t.equal(code, 0, said:sub(-400))
  return run, said
end

-- The rows of metrics.csv as { column = number }.
local function rows(run)
  local list, head = {}, nil
  for line in t.read(run .. "/metrics.csv"):gmatch("[^\n]+") do
    local cells = {}
    for cell in (line .. ","):gmatch("([^,]*),") do cells[#cells + 1] = cell end
    if head then
      local row = {}
      for i, name in ipairs(head) do row[name] = tonumber(cells[i]) end
      list[#list + 1] = row
    else
      head = cells
    end
  end
  return list
end

-- The shapes of the tensors in a file, by name.
local function weights(path)
  local shapes = {}
  for _, p in ipairs(core.checkpoint.tensors(path)) do shapes[p.name] = p.shape end
  return shapes
end

-- Groups through the numerical interface ----------------------------------------

local serial = 0
-- A network of two scopes with mse, opened with this optimiser.
local function step_of(o)
  serial = serial + 1
  local x = nn.input("gx" .. serial, { c = 3, w = 4 })
  local y = nn.input("gy" .. serial, { c = 2, w = 4 })
  local logits = nn.scope("g" .. serial, function()
    local a = nn.scope("enc1", function() return nn.batch_norm(nn.conv(x, 3, 3)) end)
    local b = nn.scope("enc2", function() return nn.conv(a, 3, 3) end)
    return nn.linear(b, 2, { name = "head" })
  end)
  local s = seg.step { loss = nn.mse(logits, y), optim = o, device = "ref", seed = 3 }
  local feeds = { [x.name] = core.array.random({ 2, 3, 4 }, 1, false),
                  [y.name] = core.array.random({ 2, 2, 4 }, 2, false) }
  return s, feeds, "g" .. serial .. "."
end

-- The change of element 1 of a parameter by one SGD step of rate 0.5, in gradient and value: d =
-- scale (g + decay p).
local function moved(o, name)
  local s, feeds, scope = step_of(o)
  local function first(a) return a:reshape({ a.count }):get(1) end
  local before = first(s:get(scope .. name))
  s:run(feeds)
  return (before - first(s:get(scope .. name))) / 0.5, first(s:gradients()[scope .. name]), before
end

t.test("groups have rates and decay of their own, the first that matches counts", function()
  local o = optim.sgd { lr = 0.5, decay = 0.25, groups = {
    { match = "bias$", decay = 0 }, { match = "enc(%d)", lr_scale = function(n)
      return 0.5 ^ math.tointeger(n)
    end }, { match = "enc1%.norm", lr_scale = 7 }, { match = "head", decay = 2 } } }
  t.raises(function() step_of(o) end, 'every parameter that "enc1%.norm" matches')
  table.remove(o.groups, 3)
  for name, want in pairs {
    ["enc1.conv1.weight"] = { 0.5, 0.25 }, ["enc2.conv1.weight"] = { 0.25, 0.25 },
    ["enc1.norm1.weight"] = { 0.5, 0.25 }, ["enc2.conv1.bias"] = { 1, 0 },
    ["head.weight"] = { 1, 2 }, ["head.bias"] = { 1, 0 } } do
    local d, g, p = moved(o, name)
    t.near(d, want[1] * (g + want[2] * p), 1e-5 * math.max(math.abs(d), 0.1), name)
  end
end)

t.test("decay_on = weights leaves biases and norms out", function()
  local o = optim.sgd { lr = 0.5, decay = 0.5, decay_on = "weights",
                        groups = { { match = "enc1%.norm1%.bias", decay = 1 } } }
  for name, decay in pairs { ["enc1.conv1.weight"] = 0.5, ["enc1.norm1.weight"] = 0,
                             ["head.bias"] = 0, ["head.weight"] = 0.5,
                             ["enc1.norm1.bias"] = 1 } do
    local d, g, p = moved(o, name)
    t.near(d, g + decay * p, 1e-5 * math.max(math.abs(d), 0.1), name)
  end
end)

t.test("a group that is a mistake names what is near", function()
  local function with(g) return function() step_of(optim.sgd { lr = 1, groups = { g } }) end end
  t.raises(with { match = "haed", decay = 0 }, 'did you mean "head"')
  t.raises(with { match = "^enk1", decay = 0 }, "no trained parameter matches")
  t.raises(with { match = "head", decya = 0 }, 'did you mean "decay"')
  t.raises(with { match = "head" }, "give lr_scale or decay")
  t.raises(with { match = "[", decay = 0 }, "must be a Lua pattern")
  t.raises(with { match = "head", lr_scale = -1 }, "lr_scale must be a number")
  t.raises(with { match = "head", lr_scale = function() return "x" end },
           "lr_scale of g" .. serial + 1 .. ".head.weight is x")
  t.raises(function() optim.sgd { lr = 1, decay_on = "weight" } end, 'did you mean "weights"')
  t.raises(function() optim.sgd { lr = 1, groups = 3 } end, "groups must be a list")
end)

-- Runs -------------------------------------------------------------------------

t.test("four batches to an update are one of four times the size", function()
  local options = " --norm false --augment false --epochs 3 --seed 9"
  local whole = trained("plain", "--batch 20" .. options)
  local parts = trained("parts", "--batch 5" .. options)
  local a, b = rows(whole), rows(parts)
  for i = 1, 3 do
    t.equal(a[i].step, b[i].step)
    -- soft Dice depends on the whole batch, so only cross entropy is a mean over samples
    t.check(math.abs(a[i].train_loss - b[i].train_loss) < 0.2)
  end
  local from, to = "loss = nn.bce_dice%(logits, truth%)", "loss = nn.bce(logits, truth)"
  whole = trained("plain", "--batch 20" .. options, from, to)
  parts = trained("parts", "--batch 5" .. options, from, to)
  a, b = rows(whole), rows(parts)
  for i = 1, 3 do
    t.near(b[i].train_loss, a[i].train_loss, 1e-6, "epoch " .. i)
    t.near(b[i].valid_loss, a[i].valid_loss, 1e-6, "epoch " .. i)
  end
end)

t.test("what is validated with ema is what is saved and evaluated", function()
  local run = trained("ema", "")
  local plain = rows(trained("plain", ""))
  local ema = rows(run)
  -- the same steps, evaluated with the average
  t.equal(ema[4].train_loss, plain[4].train_loss)
  t.check(ema[4].valid_loss ~= plain[4].valid_loss)
  local shapes = weights(run .. "/checkpoint_best.safetensors")
  t.check(shapes["ema.head.weight"] and shapes["ema.enc.norm1.running_mean"])
  local best = 1
  for i, row in ipairs(ema) do if row.valid_loss < ema[best].valid_loss then best = i end end
  for _, file in ipairs { "checkpoint_best", "checkpoint_last" } do
    local said = select(2, t.program("tests/golden/training.lua evaluate --json --split valid "
      .. "--variant ema --weights " .. run .. "/" .. file .. ".safetensors" .. places))
    local row = ema[file == "checkpoint_best" and best or 4]
    t.near(tonumber(said:match('"loss": ([%d.e-]+)')), row.valid_loss, 1e-12, file)
  end
end)

t.test("what is counted of training batches costs no pass", function()
  -- constant weights, no randomness, the same samples in both sets: the same Dice
  local script = t.write(folder .. "/tally.lua", [[
local seg = require "seg"
local data, nn, optim, metric = seg.data, seg.nn, seg.optim, seg.metric
local cfg = seg.config { batch = 4, epochs = 2, lr = 0.0, accumulate = 1 }
local set = data.phantom { patients = 4, size = 16, slices = 6, root = ]]
    .. string.format("%q", folder .. "/tallied") .. [[ }
set = set:normalize {}:slices { axis = "axial" }
local train, valid = set:split { valid = 1, seed = 1 }
local image = nn.input("image", { c = 1, h = 16, w = 16 })
local truth = nn.input("mask", { c = 1, h = 16, w = 16 })
local logits = nn.conv(nn.relu(nn.conv(image, 4, 3)), 1, 1)
seg.recipe {
  inputs = { image, truth }, outputs = { mask = nn.sigmoid(logits) },
  loss = nn.bce_dice(logits, truth), accumulate = cfg.accumulate,
  train = train:batches { size = cfg.batch, shuffle = true },
  valid = valid:batches { size = 5 }, optim = optim.sgd { lr = cfg.lr },
  metrics = { dice = metric.dice(logits, truth, { threshold = 0.4 }),
              late = metric.dice(logits, truth, { when = "end" }) },
}
]])
  local function columns(name, options)
    t.says(script .. " --quiet --out " .. folder .. "/" .. name .. " " .. options, 0, "")
    local lines = t.lines("cat " .. folder .. "/" .. name .. "/tally/001/metrics.csv")
    local heads, out = {}, {}
    for head in (lines[1] .. ","):gmatch("([^,]*),") do heads[#heads + 1] = head end
    for e = 2, #lines do
      local i = 0
      for cell in (lines[e] .. ","):gmatch("([^,]*),") do
        i = i + 1
        out[heads[i]] = out[heads[i]] or {}
        out[heads[i]][e - 1] = tonumber(cell)
      end
    end
    return out
  end
  local all = columns("tally", "--overfit 10")
  t.equal(all.train_late, nil, "of a metric that is measured at the end")
  for e = 1, 2 do
    t.check(all.train_dice[e] > 0, "there is something to count")
    t.near(all.train_dice[e], all.valid_slice_dice[e], 1e-12, "epoch " .. e)
  end
  -- stopped in the middle of an epoch and of an accumulated step, resumed with other batches
  local whole = columns("whole", "--lr 0.1 --batch 3 --set accumulate=2")
  columns("cut", "--lr 0.1 --batch 3 --set accumulate=2 --steps 2")
  local cut = columns("cut", "--resume auto --steps 0")
  for e = 1, 2 do t.equal(cut.train_dice[e], whole.train_dice[e], "cut, epoch " .. e) end
  t.check(whole.train_dice[1] ~= whole.train_dice[2], "it learns")
end)

t.test("swa takes the mean of the last epochs with statistics of its own", function()
  local run, said = trained("swa", "")
  t.check(said:find("swa: mean of 2 epochs, valid loss", 1, true), said)
  local shapes = weights(run .. "/swa.safetensors")
  t.check(shapes["head.weight"] and not shapes["swa.head.weight"])
  t.check(weights(run .. "/checkpoint_last.safetensors")["swa.head.weight"])
  t.near(rows(run)[3].lr, 1e-3, 1e-12)
  local value = tonumber(said:match("valid loss ([%d.]+)"))
  local _, again = t.program("tests/golden/training.lua evaluate --json --split valid "
    .. "--variant swa --weights " .. run .. "/swa.safetensors" .. places)
  t.near(tonumber(again:match('"loss": ([%d.e-]+)')), value, 1e-4)
end)

t.test("training ends when nothing becomes better", function()
  local run, said = trained("plain", "--epochs 9", "plain = {}",
                            "plain = { stop = { patience = 2, min_delta = 1e3 } }")
  t.equal(#rows(run), 3)
  t.check(said:find("loss has not become better for 2 epochs: the training ends after epoch 3", 1,
                    true), said)
  t.check(t.read(run .. "/summary.json"):find('"stopped_early": true', 1, true))
  -- early stopping has ended it, for a resumed run too
  trained("plain", "--epochs 9 --resume " .. run, "plain = {}",
          "plain = { stop = { patience = 2, min_delta = 1e3 } }")
  t.equal(#rows(run), 3)
end)

t.test("plateau lowers the rate, and without a valid set by the training loss", function()
  local r = rows((trained("plateau", "--epochs 6")))
  t.near(r[1].lr, 1e-2, 1e-12)
  t.near(r[3].lr, 5e-3, 1e-12)
  local _, said = train("plateau", "", "train = train, valid = valid,", "train = train,")
  t.check(said:find('plateau monitors "loss" of the valid set, and the recipe has none', 1, true),
                    said)
  local run = trained("monitored", "", "train = train, valid = valid,.-local variants = {",
    [[train = train, optim = optim.adamw { lr = cfg.lr } }
local variants = { monitored = { schedule = optim.plateau { monitor = "train_loss", patience = 0,
                                                            threshold = 0.5, factor = 0.5 } },]])
  t.near(rows(run)[4].lr, 2.5e-3, 1e-12)
end)

t.test("one cycle and warm-ups go by the update", function()
  local r = rows((trained("groups", "")))
  t.near(r[1].lr, 1e-2, 1e-12) -- the last update of the warm-up
  r = rows((trained("ema_parts", "")))
  t.near(r[4].lr, 1e-2 / 25 / 1e4, 1e-12)
end)

t.test("phases hand their weights over, and are one run", function()
  local run, said = trained("phases", "")
  local r = rows(run)
  t.equal(#r, 5)
  t.equal(r[5].step, 25)
  for i, phase in ipairs { 1, 1, 2, 3, 3 } do t.equal(r[i].phase, phase, "epoch " .. i) end
  t.check(r[2].valid_dice == nil and r[3].valid_dice)
  t.check(said:find("phase 2 of 3 (head): 1 epoch from epoch 3, sgd 0.01", 1, true), said)
  t.check(core.sys.stat(run .. "/phase1_best.safetensors"))
  t.check(core.sys.stat(run .. "/phase2_best.safetensors"))
  local meta = core.checkpoint.meta(run .. "/checkpoint_last.safetensors")
  t.equal(meta.phase .. " " .. meta.first .. " " .. meta.steps .. " " .. meta.steps_start,
          "3 3 25 15")
  -- the second phase has not changed the parameters that it freezes
  local x, y = nn.input("p", { c = 1, h = 16, w = 16 }), nil
  nn.scope("enc", function() y = nn.relu(nn.batch_norm(nn.conv(x, 4, 3))) end)
  local function conv_of(file)
    local m = seg.model { outputs = { y = y } }
    local list = {}
    core.checkpoint.import(run .. "/" .. file .. "_best.safetensors", m.session,
                           { ["enc.conv1.weight"] = "enc.conv1.weight" }, true)
    local w = m:get("enc.conv1.weight"):reshape { 36 }
    for i = 1, 36 do list[i] = w:get(i) end
    return table.concat(list, " ")
  end
  t.equal(conv_of("phase1"), conv_of("phase2"))
  t.check(conv_of("phase2") ~= conv_of("checkpoint"))
  -- evaluation uses the outputs of the last phase
  local code, what = t.program("tests/golden/training.lua evaluate --variant phases --split valid"
    .. " --weights " .. run .. places)
  t.equal(code, 0, what)
end)

t.test("a phase may have a network of its own, without valid set and masks", function()
  local run, said = trained("plain", "", "plain = {}", [[plain = { phases = {
    { epochs = 1, loss = nn.mse(restored, image), metrics = {}, inputs = { image },
      outputs = { image = restored }, valid = false },
    { epochs = 1 } } }]])
  t.check(said:find("weights: 12 tensors of the phase before, 2 new", 1, true), said)
  t.check(not core.sys.stat(run .. "/phase1_best.safetensors"))
  t.equal(rows(run)[1].valid_loss, nil)
  t.check(rows(run)[2].valid_loss)
end)

t.test("a sum of losses at several outputs has the sum of their gradients", function()
  serial = serial + 1
  local x = nn.input("dx" .. serial, { c = 2, w = 8 })
  local y = nn.input("dy" .. serial, { c = 1, w = 8 })
  local coarse, fine
  nn.scope("deep" .. serial, function()
    local low = nn.conv(nn.maxpool(x, 2), 3, 3)
    coarse = nn.upsample(nn.conv(low, 1, 1, { name = "head2" }), 2)
    fine = nn.conv(nn.upconv(low, 3, 2), 1, 1, { name = "head1" })
  end)
  local a, b = nn.bce(fine, y), nn.bce(coarse, y)
  local feeds = { [x.name] = core.array.random({ 2, 2, 8 }, 1, false),
                  [y.name] = core.array.random({ 2, 1, 8 }, 2, true) }
  local name = "deep" .. serial .. ".conv1.weight"
  local function gradient(loss)
    local s = seg.step { loss = loss, optim = optim.sgd { lr = 1 }, device = "ref", seed = 1 }
    local value = s:run(feeds)
    return value, s:gradients()[name]:reshape { 18 }
  end
  local la, ga = gradient(a)
  local lb, gb = gradient(b)
  local l, g = gradient((a + 0.5 * b) / 1.5)
  t.near(l, (la + 0.5 * lb) / 1.5, 1e-6)
  for i = 1, 18 do t.near(g:get(i), (ga:get(i) + 0.5 * gb:get(i)) / 1.5, 1e-6, "element " .. i) end
  local run = trained("supervised", "--epochs 2")
  t.check(rows(run)[2].train_loss < rows(run)[1].train_loss)
end)

t.test("the plan counts the average", function()
  local function bytes(variant)
    local _, said = t.program("tests/golden/training.lua plan --variant " .. variant)
    return tonumber((said:match("weights +([%d,]+) bytes"):gsub(",", ""))), said
  end
  local plain, said = bytes("plain")
  local ema = bytes("ema")
  t.check(ema > plain, said)
  local _, run = train("ema", "--epochs 1") -- the banner has the session's own count
  t.check(run:find(string.format("%.1f KiB of weights", ema / 1024), 1, true), run:sub(1, 400))
end)

t.test("phases that are mistakes", function()
  local function refuses(to, part)
    local _, said, code = train("plain", "", "plain = {}", "plain = { phases = " .. to .. " }")
    t.equal(code, 2, said)
    t.check(said:find(part, 1, true), said)
  end
  refuses("{ { epoch = 3 } }",
          'seg.recipe: phases[1]: unknown option "epoch"; did you mean "epochs"')
  refuses("{}", "phases must be a list of tables")
  refuses('{ { from = "best" } }', "phases[1]: there is no phase before it")
  refuses('{ {}, { from = "bets" } }', 'did you mean "best"')
  refuses("{ { ema = 0.5, swa = {} } }", "ema and swa both average the weights")
  refuses("{ { loss = 3 } }", "loss must be a loss node")
end)

t.test("weights of another file, by pattern and other names", function()
  local run = trained("plain", "--epochs 1")
  local best = run .. "/checkpoint_best.safetensors"
  local init = 'init = { weights = "' .. best .. '", match = "^enc" }'
  local _, said = trained("plain", "--epochs 1", "plain = {}", "plain = { " .. init .. " }")
  t.check(said:find("weights: " .. best .. ": 12 tensors", 1, true), said)
  -- the folder of a run stands for its best checkpoint
  _, said = trained("plain", "--epochs 1", "plain = {}",
                    'plain = { init = { weights = "' .. run .. '", match = "^enc" } }')
  t.check(said:find("weights: " .. best .. ": 12 tensors", 1, true), said)
  -- parameters that do not fit are listed from both sides
  local function fails(o, ...)
    local _, what, code = train("plain", "", "plain = {}",
                                'plain = { init = { weights = "' .. best .. '", ' .. o .. " } }")
    t.equal(code, 3, what)
    for _, part in ipairs { ... } do t.check(what:find(part, 1, true), part .. " in " .. what) end
  end
  fails('rename = { { "^enc%.conv", "enc.konv" } }',
        "in the network, not in " .. best .. " (4):", "enc.conv1.bias",
        "in " .. best .. ", not in the network (4):", "enc.konv2.weight", "4 missing, 4 unknown")
  fails('match = "^enk"', "0 fit")
  fails('match = "conv1.weight", rename = function(n) return n:gsub("conv2", "conv1") end',
        "are both renamed to enc.conv1.weight")
  local _, what = train("plain", "--weights " .. best, "local function block%(x, f%)",
                        "local function block(x, f) f = f + 1")
  t.check(what:find("of another shape in " .. best, 1, true)
          and what:find("enc.conv1.weight (4,1,3,3) instead of (5,1,3,3)", 1, true), what)
end)

t.test("a run goes on only with the average that it had", function()
  local run = trained("ema", "--epochs 1")
  t.says("tests/golden/training.lua --variant ema --epochs 2 --resume " .. run .. places, 0, "done")
  run = trained("groups", "--epochs 2")
  t.says("tests/golden/training.lua --variant groups --epochs 3 --resume " .. run .. places, 0,
         "note: 3 epochs, the run began with 2; schedule cosine uses the new number")
  run = trained("groups", "--epochs 2", "optim%.cosine { warmup = 1,",
                "optim.cosine { t_max = 9, warmup = 1,")
  local own = folder .. "/training.lua --variant groups --epochs 3 --resume " .. run .. places
  t.check(not t.says(own, 0, "done"):find("the run began with", 1, true), "nothing changes")
  run = trained("ema", "--epochs 1")
  local script = t.write(folder .. "/training.lua", (text:gsub("ema = { ema = 0.9 }",
                                                               "ema = { ema = 0.5 }")))
  t.says(script .. " --variant ema --epochs 3 --resume " .. run .. places, 2,
         "the average of the weights is ema 0.5 (ema, swa of seg.recipe), the run that is resumed "
         .. "has ema 0.9")
end)

t.test("stop, ema and swa that are mistakes", function()
  local function refuses(to, part)
    local _, said, code = train("plain", "", "plain = {}", "plain = { " .. to .. " }")
    t.equal(code, 2, said)
    t.check(said:find(part, 1, true), said)
  end
  refuses("stop = { patience = 0 }", "patience must be a whole number >= 1")
  refuses('stop = { monitor = "dcie" }', 'monitor = "dcie" is not a metric; did you mean "dice"')
  refuses('stop = { monitor = "dice" }', 'is a larger "dice" better? give mode')
  refuses('stop = { mode = "mni" }', 'did you mean "min"')
  refuses("ema = 1", "ema must be a number from 0 (none) to below 1")
  refuses("swa = { from = 9 }", "the number of one of 4, got 9")
  refuses("swa = { form = 2 }", 'did you mean "from"')
end)

t.test("the range of rates falls, explodes and is left without a trace", function()
  local rows_of = {}
  for i = 1, 60 do
    local x = i / 10 -- steepest at 3, least at 5
    rows_of[i] = { lr = 10 ^ (x - 6),
                   smooth = math.max(x - 5, 0) * 3 - 1 / (1 + math.exp(-4 * (x - 3))) }
  end
  local steepest, tenth = lr_range.suggest(rows_of)
  t.near(math.log(steepest, 10), -3, 0.06)
  t.near(math.log(tenth, 10), -2, 0.06)
  for i, row in ipairs(rows_of) do row.smooth = i end
  t.equal(lr_range.suggest(rows_of), nil)
  local out = folder .. "/range"
  local said = t.says("tests/golden/training.lua lr_range --steps 30 --out " .. out .. places, 0,
                      "suggested: lr = ")
  t.check(core.sys.stat(out .. "/training/lr_range.png"), said)
  t.check(not core.sys.stat(out .. "/training/001"))
  t.says("tests/golden/training.lua lr_range --from 1 --to 1" .. places, 2, "the rate must rise")
  t.says("tests/golden/training.lua lr_range --from x" .. places, 2, "--from takes a rate above 0")
end)

local brain = "scripts/brain_unet.lua --preset check --quiet --phantom " .. folder
  .. "/brain --out " .. folder .. "/"

t.test("every third checkpoint, and the newest two of them", function()
  t.says(brain .. "kept --epochs 10 --save_every 3 --keep_last 2", 0, "")
  local list = t.lines("ls " .. folder .. "/kept/brain_unet/001 | grep safetensors")
  t.equal(table.concat(list, " "), "checkpoint_0006.safetensors checkpoint_0009.safetensors "
          .. "checkpoint_best.safetensors checkpoint_last.safetensors")
end)

t.test("a run outlives the terminal that it was started in", function()
  -- the exit code when SIGHUP comes in the middle, with `before` in front of the command
  local function code(before, name)
    return t.lines(string.format("sh -c '%s exec %s %s%s --epochs 12' > %s/said 2>&1 & p=$!; "
      .. "until [ -s %s/%s/brain_unet/001/metrics.csv ]; do sleep 0.02; done; kill -HUP $p; "
      .. "wait $p; echo $?",
      before, t.path(), brain, name, folder, folder, name))[1]
  end
  t.equal(code("", "told"), "129")
  t.equal(code('trap "" HUP;', "deaf"), "0", "its code below nohup")
end)

remove()
t.finish()
