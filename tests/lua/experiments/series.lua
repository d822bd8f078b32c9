-- series.lua -- several runs of one recipe by one command: folds, seeds. Interrupted ones end with
-- the results of uninterrupted ones.

local seg = require "seg"
local folds, repeats = require "seg.experiments.folds", require "seg.experiments.repeats"
local json = require "seg.json"
local run_folder = require "seg.report.run"
local t = dofile("tests/support/harness.lua")
local folder, remove = t.folder()

os.execute("mkdir -p " .. folder .. "/npy")
-- seven patients, every other one with two cases
for p = 1, 7 do
  for k = 1, 1 + p % 2 do
    local x, y = seg.array.zeros { 6, 8 }, seg.array.zeros { 6, 8 }
    for i = 1, 6 do
      for j = 1, 8 do
        local v = (i * 7 + j * p * 3 + k) % 11 / 5 - 1
        x:set(v + (i * j * p) % 7 / 7, i, j)
        y:set(v > 0.1 and 1 or 0, i, j)
      end
    end
    local name = string.format("%s/npy/planted%d_%d", folder, p, k)
    seg.array.save(name .. "_x.npy", x)
    seg.array.save(name .. "_y.npy", y)
  end
end
local script = t.write(folder .. "/toy.lua", [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { batch = 2, lr = 0.05, epochs = 3, k = 3, test = 0, folds = true }
local cases = seg.data.npy { root = cfg.data, image = "*_x", mask = "*_y", rank = 2,
                             patient = "^(planted%d+)" }
local train, valid, test
if cfg.test > 0 then cases, _, test = cases:split { test = cfg.test, seed = 1 } end
if cfg.folds then train, valid = cases:kfold { k = cfg.k, seed = 3 }
else train, valid = cases:split { valid = 2, seed = cfg.seed } end
local x = nn.input("image", { c = 1, h = 6, w = 8 })
local y = nn.input("mask", { c = 1, h = 6, w = 8 })
local z = nn.conv(nn.relu(nn.conv(x, 4, 3)), 1, 1)
seg.recipe { inputs = { x, y }, outputs = { mask = nn.sigmoid(z) }, loss = nn.bce_dice(z, y),
  metrics = { dice = seg.metric.dice(z, y) }, best = { "dice", "max" },
  train = train:batches { size = cfg.batch, shuffle = true }, valid = valid:batches { size = 2 },
  test = test and test:batches { size = 2 }, optim = seg.optim.adam { lr = cfg.lr },
  epochs = cfg.epochs, predict = { fractions = true } }
]])

-- A command line for runs below `out`.
local function line(words, out)
  return string.format("%s %s --data %s/npy --out %s/%s --workers 1", script, words, folder, folder,
                       out)
end

local function run(words, out, part)
  return t.says(line(words, out), 0, part or "")
end

local function decode(path) return json.decode(t.read(path), path) end

-- Copies the key of the hashes from `out`, so that whole files can be compared.
local function same_key(out, other)
  os.execute(string.format("mkdir -p %s/%s/toy && cp %s/%s/toy/.key %s/%s/toy/.key", folder, other,
                           folder, out, folder, other))
end

-- Checks the page of a series: every run in the table and as a curve of each panel, with their
-- mean; the result and its number of cases; no reference to other files.
local function shows(base, kind, count, of, mean)
  local html = t.read(base .. "/series.html")
  t.check(html:find(of, 1, true), "it does not say: %s", of)
  t.check(html:find(string.format("<h3>dice %.4f</h3>", mean), 1, true), "its dice is another")
  local _, rows = html:gsub("<td>" .. kind .. " %d+</td>", "")
  t.equal(rows, count, "rows")
  local _, dots = html:gsub("<circle [^>]*><title>" .. kind .. " %d+: ", "")
  t.equal(dots, count, "dots")
  local lines, panels = select(2, html:gsub("<polyline", "")), select(2, html:gsub(">mean</text>",
                                                                                  ""))
  t.check(panels >= 3 and lines >= panels * (count + 1), "%d lines in %d panels", lines, panels)
  for _, part in ipairs { "://", "<script", "src=", "planted" } do
    t.check(not html:find(part, 1, true), "it has %s", part)
  end
end

t.test("all folds by one command", function()
  local said = run("folds", "whole", "11 cases of 7 patients, each validated in one of 3 folds")
  local base = folder .. "/whole/toy/001"
  local s, sum, seen = decode(base .. "/summary.json"), 0, 0
  for case, v in pairs(s.cases) do
    -- the fold's own result for its case
    local own = decode(base .. "/fold_" .. v.fold .. "/summary.json").valid.cases[case]
    t.equal(v.dice, own.dice, case)
    sum, seen = sum + v.dice, seen + 1
  end
  t.equal(seen, 11)
  t.equal(s.metrics.dice.n, 11)
  t.equal(s.patients, 7)
  t.near(s.metrics.dice.mean, sum / 11, 1e-6)
  t.check(s.metrics.dice.low < s.metrics.dice.mean and s.metrics.dice.mean < s.metrics.dice.high)
  t.equal(#s.metrics.dice.by_fold, 3)
  local a, b, c = table.unpack(s.metrics.dice.by_fold)
  local mean = (a + b + c) / 3
  t.near(s.metrics.dice.over_folds.mean, mean, 1e-6)
  t.near(s.metrics.dice.over_folds.sd,
         math.sqrt(((a - mean) ^ 2 + (b - mean) ^ 2 + (c - mean) ^ 2) / 2), 1e-6)
  local rows = t.lines("cat " .. base .. "/cases_valid.csv")
  t.equal(rows[1], "case,fold,dice")
  t.equal(#rows, 12)
  -- worst first
  t.check(tonumber(rows[2]:match("[^,]*$")) <= tonumber(rows[3]:match("[^,]*$")))
  t.check(said:find("predict --weights " .. base, 1, true), "%s", said)
  shows(base, "fold", 3, "mean over 11 cases", s.metrics.dice.mean)
  -- status and inspect find the folds of a series
  t.says("status " .. folder .. "/whole", 0, "/toy/001/fold_")
  t.says("inspect " .. folder .. "/whole", 0, "toy/001/fold_3")
end)

t.test("a series from outside: how it stands, and two of them beside each other", function()
  local a, b = folder .. "/whole/toy/001", folder .. "/other/toy/001"
  run("folds --lr 0.2 --epochs 2", "other")
  local text = t.says("status " .. a, 0, "series     " .. a .. ", folds: finished")
  t.check(text:find("runs +3 begun, 3 of them finished; the last:\nrun +" .. a .. "/fold_3"), text)
  t.equal(json.decode(t.says("status --json " .. a .. "/fold_1", 0, "{"), "s").series.finished, 3)
  -- every case as measured by the network that was not trained on it, in pairs
  local pairs_of = json.decode(t.says("compare --json " .. a .. " " .. b, 0, "{"), "c").paired[1]
  local first, second = decode(a .. "/summary.json").cases, decode(b .. "/summary.json").cases
  t.equal(pairs_of.metric .. pairs_of.part .. pairs_of.n, "dicevalid11")
  local sum, other = 0, 0
  for _, v in pairs(first) do sum = sum + v.dice end
  for _, v in pairs(second) do other = other + v.dice end
  t.near(pairs_of.mean, (other - sum) / 11, 1e-9)
  t.says("compare " .. a .. " " .. b .. " --html " .. folder .. "/c.html", 0, "case by case")
  os.remove(b .. "/summary.json")
  t.says("compare " .. a .. " " .. b, 2, "the folds of " .. b .. " are not all done")
  t.says("status " .. b, 0, "stopped; SCRIPT.lua folds --resume " .. b .. " continues it")
end)

t.test("folds as one network", function()
  local base = folder .. "/whole/toy/001"
  local function predict(weights, out)
    run("predict --weights " .. weights .. " --in " .. folder .. "/npy/planted1_1_x.npy", out)
    return seg.array.load(folder .. "/" .. out .. "/planted1_1_x_fractions.npy")
  end
  local one = {}
  for i = 1, 3 do one[i] = predict(base .. "/fold_" .. i, "one" .. i) end
  local all = predict(base, "all")
  t.check(one[1]:distance(one[2]) > 1e-3, "two folds are one network")
  for i = 1, 6 do
    for j = 1, 8 do
      t.near(all:get(i, j), (one[1]:get(i, j) + one[2]:get(i, j) + one[3]:get(i, j)) / 3, 1e-6)
    end
  end
end)

-- Starts a command in the background, waits until `file` exists, sends `signal`; returns the exit
-- code.
local function interrupted(words, out, file, signal)
  local code = t.lines(string.format(
    "%s %s > %s/said 2>&1 & p=$!; n=0; while [ ! -e %s ] && [ $n -lt 600 ]; do sleep 0.02; "
    .. "n=$((n + 1)); done; kill -%s $p; wait $p 2> /dev/null; echo $?", t.path(), line(words, out),
    folder, file, signal))
  return tonumber(code[#code]), t.read(folder .. "/said")
end

local function same_folds(out)
  local a, b = folder .. "/whole/toy/001/", folder .. "/" .. out .. "/toy/001/"
  for i = 1, 3 do
    local file = "fold_" .. i .. "/checkpoint_last.safetensors"
    t.check(t.read(a .. file) == t.read(b .. file), "%s differs", file)
  end
  t.check(t.read(a .. "summary.json") == t.read(b .. "summary.json"), "the summaries differ")
end

t.test("folds that are cut end as the whole", function()
  local base = folder .. "/cut/toy/001"
  same_key("whole", "cut")
  t.check(run("folds --steps 4", "cut"):find("folds --resume " .. base .. " continues", 1, true))
  t.check(not io.open(base .. "/summary.json"), "it says that it is over")
  local before = t.read(base .. "/fold_1/checkpoint_last.safetensors")
  -- the second fold is stopped in training and saves; the third is killed without warning
  local code, said = interrupted("folds --resume auto", "cut",
                                 base .. "/fold_2/checkpoint_last.safetensors", "TERM")
  t.equal(code, 143, said)
  t.check(said:find("--resume " .. base .. " continues", 1, true), "%s", said)
  t.check(t.read(base .. "/fold_1/checkpoint_last.safetensors") ~= before, "fold 1 did not go on")
  local first = t.lines("stat -c %Y.%i " .. base .. "/fold_1/summary.json")[1]
  t.equal(interrupted("folds --resume auto", "cut", base .. "/fold_3/config.txt", "KILL"), 137)
  run("folds --resume " .. base, "cut", "fold_1, 1 of 3: finished before")
  t.equal(t.lines("stat -c %Y.%i " .. base .. "/fold_1/summary.json")[1], first,
          "a finished fold was touched")
  same_folds("cut")
end)

t.test("a series is resumed as what it was", function()
  local base = folder .. "/whole/toy/001"
  -- private, as it contains paths of images
  t.equal(t.lines("stat -c %a " .. base .. "/series.json")[1], "600")
  t.says(line("folds --resume " .. base .. " --lr 0.1", "whole"), 2,
         "--lr: the runs of " .. base .. " began without it")
  t.says(line("repeat --resume " .. base, "whole"), 2, "not the folder of a series of repeat, but "
         .. "of folds")
  t.says(line("folds --resume " .. base .. "/fold_1", "whole"), 2, "it has no series.json")
  t.says(line("folds --fold 2", "bad"), 2, "--fold: folds trains all of them")
  t.says(line("folds --folds false", "bad"), 2, "no set of this recipe is split by kfold; write")
  t.says(line("train --fold 4", "bad"), 2, "--fold 4: kfold has k = 3 folds")
  t.says(line("train --run " .. base .. "/fold_1", "bad"), 2, "this run exists")
  t.says(line("folds --lr nought", "bad"), 2, '--lr takes a number, got "nought"')
  -- a fold that fails ends the series with the fold's exit code
  t.says(line("folds --lr 1e30", "bad"), 5, "fold_1 ended with code 5")
  -- a series whose first run cannot begin leaves no files, and no advice to resume it
  for _, words in ipairs { "folds --k 8", "repeat --folds false --test 7" } do
    local said = t.says(line(words, "left"), 3, "before it began, for the reason above; nothing is "
                        .. "left of this series")
    t.check(not said:find("--resume", 1, true), said)
    t.equal(#t.lines("ls -A " .. folder .. " | grep left"), 0, "folders left by " .. words)
  end
  t.says(line("folds --k 8", "bad"), 3, "nothing is left of this series")
  t.equal(table.concat(t.lines("ls " .. folder .. "/bad/toy"), " "), "001")
end)

t.test("folds beside a test part of their own", function()
  local said = run("folds --test 2 --epochs 1", "held", "of test: mean over folds")
  local s = decode(folder .. "/held/toy/001/summary.json")
  t.equal(s.patients, 5)
  t.check(s.test.dice.n == 3 and s.metrics.dice.n > 0, "%s", said)
end)

t.test("who is on two sides is found", function()
  local function row(case, patient, part)
    return { case = case, patient = patient, part = part, key = case }
  end
  local good = { { row("a", "p", "valid"), row("b", "q", "train") },
                 { row("b", "q", "valid"), row("a", "p", "train") } }
  local cases, patients = folds.check(good, true)
  t.equal(cases.b.fold .. " " .. patients, "2 2")
  t.raises(function()
    folds.check({ good[1], { row("c", "p", "valid"), row("b", "q", "valid") } }, true)
  end, "validated in fold 1 and in fold 2")
  t.raises(function() folds.check({ good[1], { row("a", "p", "train") } }, true) end,
           "case b, in train of fold 1, is in valid of no fold")
  folds.check({ good[1], { row("a", "p", "train") } }, false) -- --quick leaves some out
  t.raises(function()
    folds.check({ { row("a", "p", "valid"), row("c", "p", "train") }, { row("c", "r", "valid") } },
                true)
  end, "case c of fold 1 is in train, and its patient in valid")
end)

t.test("several seeds, and their spread", function()
  t.near(repeats.student(1), 12.7062, 1e-4)
  t.near(repeats.student(2), 4.3027, 1e-4)
  t.near(repeats.student(4), 2.7764, 1e-4)
  t.near(repeats.student(9), 2.2622, 1e-4)
  t.near(repeats.student(30), 2.0423, 1e-4)
  run("repeat --seeds 2 --epochs 1", "seeds", "dice of valid over 2 seeds: mean")
  local base = folder .. "/seeds/toy/001"
  local s = decode(base .. "/summary.json")
  local a, b = decode(base .. "/seed_42/summary.json"), decode(base .. "/seed_43/summary.json")
  a, b = a.valid.metrics.dice.mean, b.valid.metrics.dice.mean
  t.check(a ~= b, "two seeds, one result")
  local m = s.metrics.dice
  t.near(m.mean, (a + b) / 2, 1e-6)
  t.near(m.sd, math.abs(a - b) / math.sqrt(2), 1e-6)
  t.near(m.high - m.mean, 12.7062 * m.sd / math.sqrt(2), 1e-4)
  t.equal(s.same_parts, true)
  t.equal(#t.lines("cat " .. base .. "/seeds.csv"), 3)
  shows(base, "seed", 2, "Student&#39;s t", m.mean)
  -- the split of the data follows the seed here
  t.says(line("repeat --seeds 5,9 --epochs 1 --folds false", "split"), 0, "that of the split")
  t.says(line("repeat --seeds 1", "bad"), 2, "--seeds takes a number of 2 or more")
  t.says(line("repeat --seeds 3,3", "bad"), 2, "--seeds takes")
  t.says(line("repeat --resume " .. base .. " --seeds 7,8", "seeds"), 2, "began with 42,43")
  -- more seeds, later; --json prints the summary
  local code, said = t.program(line("repeat --quiet --json --seeds 3 --resume " .. base, "seeds"))
  t.equal(code, 0, said)
  t.equal(#json.decode(said, "stdout").metrics.dice.by_seed, 3)
end)

t.test("cases of the folds are no names", function()
  for _, out in ipairs { "whole", "seeds" } do
    local hits = t.lines("grep -rlE planted[0-9] " .. folder .. "/" .. out .. "/toy/001 | "
                         .. "grep -v '/cases.csv$'")
    t.equal(#hits, 0, hits[1])
  end
  t.equal(#run_folder.read_cases(folder .. "/whole/toy/001/fold_1"), 11)
end)

remove()
t.finish()
