-- search.lua -- seg.search: trials of a recipe and of a function, with any interruption.

local seg = require "seg"
local json = require "seg.json"
local t = dofile("tests/support/harness.lua")
local folder, remove = t.folder()

os.execute("mkdir -p " .. folder .. "/npy")
for p = 1, 6 do
  local x, y = seg.array.zeros { 6, 8 }, seg.array.zeros { 6, 8 }
  for i = 1, 6 do
    for j = 1, 8 do
      local v = (i * 7 + j * p * 3) % 11 / 5 - 1
      x:set(v + (i * j * p) % 7 / 7, i, j)
      y:set(v > 0.1 and 1 or 0, i, j)
    end
  end
  seg.array.save(string.format("%s/npy/planted%d_x.npy", folder, p), x)
  seg.array.save(string.format("%s/npy/planted%d_y.npy", folder, p), y)
end

-- A recipe with the search `text`; rates above 5 raise an error in the script.
local function recipe(name, text)
  return t.write(folder .. "/" .. name .. ".lua", [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { batch = 2, lr = 0.05, width = 4, act = "relu", epochs = 2, top = 5.0 }
if cfg.lr > cfg.top then error("lr " .. cfg.lr .. " is planted to fail") end
local cases = seg.data.npy { root = cfg.data, image = "*_x", mask = "*_y", rank = 2,
                             patient = "file" }
local train, valid = cases:split { valid = 2, seed = 1 }
local x = nn.input("image", { c = 1, h = 6, w = 8 })
local y = nn.input("mask", { c = 1, h = 6, w = 8 })
local z = nn.conv(nn[cfg.act](nn.conv(x, cfg.width, 3)), 1, 1)
seg.recipe { inputs = { x, y }, outputs = { mask = nn.sigmoid(z) }, loss = nn.bce_dice(z, y),
  metrics = { dice = seg.metric.dice(z, y) }, best = { "dice", "max" },
  train = train:batches { size = cfg.batch, shuffle = true }, valid = valid:batches { size = 2 },
  optim = seg.optim.adam { lr = cfg.lr }, schedule = seg.optim.cosine {}, epochs = cfg.epochs }
]] .. text)
end

local toy = recipe("toy", [[
seg.search { trials = 6, startup = 3, space = {
  lr = { 1e-3, 100.0, log = true }, width = { 2, 6, step = 2 },
  act = { "relu", "tanh", "sigmoid" } } }
]])

local function line(script, words, out)
  return string.format("%s %s --data %s/npy --out %s/%s --workers 1", script, words, folder, folder,
                       out)
end

-- The records of a study, and its first record.
local function records(path)
  local list = {}
  for text in t.read(path):gmatch("[^\n]+") do list[#list + 1] = json.decode(text, path) end
  return list, table.remove(list, 1)
end

t.test("a search of a recipe", function()
  local said = t.says(line("search " .. toy, "", "whole"), 0, "highest dice: trial ")
  local base = folder .. "/whole/toy/001"
  local list, head = records(base .. "/study.jsonl")
  t.equal(#list, 6)
  t.equal(head.method .. head.metric .. head.mode, "tpedicemax")
  local best, failed
  for i, r in ipairs(list) do
    t.equal(r.trial, i)
    if r.value then
      if not best or r.value > best.value then best = r end
      -- the configuration of the trial's run has these numbers
      local config = "\n" .. t.read(base .. "/" .. r.run .. "/config.txt")
      for k, v in pairs(r.values) do
        t.check(config:find("\n" .. k .. " = " .. v .. "\n", 1, true), "%s %s", k, v)
      end
      local summary = json.decode(t.read(base .. "/" .. r.run .. "/summary.json"), "")
      t.near(r.value, summary.best, 1e-5)
    else
      failed = r
      t.check(tonumber(r.values.lr) > 5 and r.state == "failed", "%s", r.state)
      t.check(r.reason:find("is planted to fail", 1, true), "%s", r.reason)
    end
  end
  t.check(failed, "no trial failed; the test says nothing of those")
  local summary = json.decode(t.read(base .. "/summary.json"), "")
  t.equal(summary.best.trial, best.trial)
  t.check(not t.read(base .. "/summary.json"):find(folder, 1, true), "the summary has a path")
  -- the printed command repeats the trial
  local command = said:match("\nsegengine ([^\n]* %-%-lr=[^\n]*)\n")
  t.says(command .. " --out=" .. folder .. "/pasted", 0, "done")
  t.check(t.read(folder .. "/pasted/toy/001/checkpoint_last.safetensors")
          == t.read(base .. "/" .. best.run .. "/checkpoint_last.safetensors"), "another run")
  local page = t.read(base .. "/study.html")
  for _, part in ipairs { "lr 0.001 .. 100 (log)", "one of relu, tanh, sigmoid", "<svg",
                          'class="thread best"', "trial " .. failed.trial .. ": failed" } do
    t.check(page:find(part, 1, true), "no %s on the page", part)
  end
  t.check(not page:find(folder, 1, true), "the page has a path")
end)

t.test("a search that is killed ends as one that was not", function()
  local base, whole = folder .. "/cut/toy/001", folder .. "/whole/toy/001"
  for i, delay in ipairs { 0, 0.03, 0.06, 0.01 } do
    -- interrupted while trial i runs, at different moments
    t.lines(string.format(
      "%s %s > %s/said 2>&1 & p=$!; n=0; while [ ! -e %s/trial_%03d.log ] && [ $n -lt 600 ]; do "
      .. "sleep 0.01; n=$((n + 1)); done; sleep %g; kill -%s $p; wait $p 2> /dev/null", t.path(),
      line(toy, "search --resume auto", "cut"), folder, base, i, delay, i == 2 and "TERM"
      or "KILL"))
    t.check(#records(base .. "/study.jsonl") < 6, "it was not cut")
  end
  t.says(line(toy, "search --resume " .. base, "cut"), 0, "highest dice")
  t.check(t.read(base .. "/study.jsonl") == t.read(whole .. "/study.jsonl"), "another study")
  for _, r in ipairs((records(base .. "/study.jsonl"))) do
    local file = "/" .. r.run .. "/checkpoint_last.safetensors"
    if r.value then t.check(t.read(base .. file) == t.read(whole .. file), "%s differs", file) end
  end
  -- a search with more trials starts with the same ones
  t.says(line(toy, "search --trials 7 --resume " .. base, "cut"), 0, "trial 7 of 7")
  t.equal(t.read(base .. "/study.jsonl"):sub(1, #t.read(whole .. "/study.jsonl")),
          t.read(whole .. "/study.jsonl"))
end)

t.test("successive halving goes on from checkpoints", function()
  local script = recipe("halved", [[
seg.search { method = "halving", trials = 4, eta = 2, metric = { "loss", "min" }, space = {
  lr = { 1e-3, 0.1, log = true }, width = { 2, 4, 6 } } }
]])
  t.says(line(script, "search --epochs 4", "half"), 0, "round 3 of 3, up to epoch 4")
  local base = folder .. "/half/halved/001"
  local list, count = records(base .. "/study.jsonl"), {}
  for _, r in ipairs(list) do count[r.epochs] = (count[r.epochs] or 0) + 1 end
  t.equal(string.format("%d %d %d", count[1], count[2], count[4]), "4 2 1")
  -- the two best of the first round
  local first = { table.unpack(list, 1, 4) }
  table.sort(first, function(a, b) return a.value < b.value end)
  t.equal(math.min(first[1].trial, first[2].trial), list[5].trial)
  t.equal(math.max(first[1].trial, first[2].trial), list[6].trial)
  -- the last one equals a run of all epochs at once
  local last = list[7]
  t.says(line(script, "--epochs 4 --lr " .. last.values.lr .. " --width " .. last.values.width,
              "once"), 0, "done")
  local file = "/checkpoint_last.safetensors"
  t.check(t.read(base .. "/" .. last.run .. file) == t.read(folder .. "/once/halved/001" .. file),
          "a survivor is another run")
end)

t.test("a search of a function", function()
  local said = t.says("scripts/hpo.lua --seed 3", 0, "trial ")
  local lr, dropout, base, loss = said:match("lr (%S+), dropout (%S+), base (%d+), loss (%S+)")
  t.near(math.log(tonumber(lr), 10), -3, 0.35, "lr")
  t.near(tonumber(dropout), 0.2, 0.1, "dropout")
  t.equal(base, "32")
  t.check(tonumber(loss) < 0.15, "%s", said)
  local function search(study, trials, f)
    return seg.search { space = { x = { -4.0, 4.0 }, k = { 1, 2, 3 } }, trials = trials, seed = 5,
                        study = study, metric = { "height", "max" },
                        objective = f or function(v) return v.k - (v.x - 1) ^ 2 end }
  end
  local whole = search(nil, 25)
  t.equal(whole.values.k, 3)
  t.near(whole.values.x, 1, 0.3)
  -- in two parts, with a file
  search(folder .. "/f.jsonl", 12)
  local both = search(folder .. "/f.jsonl", 25)
  t.equal(both.value, whole.value)
  t.equal(both.trial, whole.trial)
  -- errors, NaN and nil are failed trials
  local bad = search(nil, 6, function(v)
    if v.k == 1 then error "no" end
    return v.k == 2 and 0 / 0 or nil
  end)
  t.equal(bad.value, nil)
  t.equal(#bad.trials, 6)
  for _, r in ipairs(bad.trials) do t.equal(r.state, "failed") end
  -- a study of another search
  local ok, why = pcall(seg.search, { space = { x = { -4.0, 4.0 } }, seed = 5, trials = 2,
    study = folder .. "/f.jsonl", metric = { "height", "max" }, objective = math.abs })
  t.check(not ok and tostring(why):find("the search is another one", 1, true), "%s", why)
end)

t.test("a space that is used up", function()
  local n = 0
  seg.search { space = { a = { 1, 2, 3 }, b = { list = { 0.5, 1.5 } } }, trials = 50,
               objective = function(v) n = n + 1 return v.a * v.b end }
  t.equal(n, 6)
end)

t.test("mistakes", function()
  local function says(name, text, part)
    t.says(line(recipe(name, text), "search", "bad"), 2, part)
  end
  says("e1", "seg.search { space = { lrr = { 1, 2 } } }",
       'the config has no such key; did you mean "lr"?')
  says("e2", "seg.search { space = { lr = { 1e-3, 1e-1 } }, metric = { 'dize', 'max' } }",
       'metric "dize" is not measured after each epoch; did you mean "dice"?')
  says("e3", "seg.search { space = { act = { 1, 2 } } }", "is a range, but --act is string")
  says("e4", "seg.search { space = { lr = { 0, 1, log = true } } }", "log needs a range above 0")
  says("e5", "seg.search { space = { seed = { 1, 2, 3 } } }", "does not change the training")
  says("e6", "seg.search { space = { width = { 2, 4, stepp = 2 } } }", "stepp is not an option "
       .. "here")
  says("e7", "seg.search { space = { lr = { 0.1, 0.2 } }, method = 'tpo' }", 'did you mean "tpe"?')
  says("e8", "", "the script declares no search")
  t.says(line(toy, "search --lr 0.1", "bad"), 2, "--lr: the search tries values of it")
  t.says(line(toy, "train --trials 3", "bad"), 2, "--trials is not for train, but for search")
  t.says("search", 2, "search needs a SCRIPT.lua")
  t.says(line(recipe("none", "seg.search { trials = 2, space = { lr = { 6.0, 9.0 } } }"), "search",
              "bad"), 1, "no trial has a value")
end)

remove()
t.finish()
