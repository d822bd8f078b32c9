-- run_kind.lua -- trials, runs that diverged and runs that are not finished: their weights are used
-- only when named, and commands print which weights they use.

local t = dofile("tests/support/harness.lua")
local core = require "seg.core"
local files = require "seg.report.run"
local kinds = require "seg.report.run_kind"
local folder, remove = t.folder()

local script = t.write(folder .. "/tiny.lua", ([[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { lr = 0.1, epochs = 2, batch = 2,
                         presets = { quick = { epochs = 1 }, demo = {} } }
local x = nn.input("image", { c = 1, h = 16, w = 16 })
local m = nn.input("mask", { c = 1, h = 16, w = 16 })
local y = nn.conv(nn.relu(nn.conv(x, 4, 3)), 1, 3)
local cases = seg.data.phantom { patients = 6, size = 16, slices = 4, format = "nifti",
                                 root = "ROOT" }
local train, test, valid = cases:split { test = 1, valid = 1, seed = 1 }
local function ready(set) return set:normalize {}:slices {} end
seg.recipe { inputs = { x, m }, outputs = { y = nn.sigmoid(y) }, loss = nn.bce_dice(y, m),
  metrics = { dice = seg.metric.dice(y, m) }, best = { "dice", "max" },
  train = ready(train):batches { size = cfg.batch, shuffle = true },
  valid = ready(valid):batches { size = 4 }, test = ready(test):batches { size = 4 },
  optim = seg.optim.adamw { lr = cfg.lr } }
]]):gsub("ROOT", folder .. "/phantom"))
local line = script .. " --threads 1 --workers 0 --out " .. folder .. "/runs"
local base = folder .. "/runs/tiny"
local evaluate = script .. " evaluate --out " .. folder .. "/runs"

-- A copy of run 001 with changed texts in its files, as an earlier version or another end of the
-- run would leave them.
local function copy(number, changes)
  local to = string.format("%s/%03d", base, number)
  t.check(os.execute("cp -r " .. base .. "/001 " .. to), to)
  for file, change in pairs(changes) do
    if change then
      t.write(to .. "/" .. file, (t.read(to .. "/" .. file):gsub(change[1], change[2])))
    else
      os.remove(to .. "/" .. file)
    end
  end
  return to
end

local function gone(number) os.execute(string.format("rm -rf %s/%03d", base, number)) end

t.test("only trials: an error that names them and the option", function()
  t.says(line .. " --overfit 2 --epochs 1", 0, "done:")
  local said = t.says(evaluate, 2, "no finished training below " .. base .. ", only 001 (a trial "
    .. "with --overfit 2); train to the end, or name the weights that you mean, as --weights "
    .. base .. "/001")
  t.check(not said:find("tiny.lua:", 1, true), "a line of the recipe is not to blame: " .. said)
  said = t.says(evaluate .. " --weights " .. base .. "/001", 0, "run 001: a trial with --overfit 2")
  t.check(said:find("preset demo, which says nothing about other data", 1, true), said)
  t.check(said:find("%(epoch 1%)[^\n]*; valid dice %d%.%d%d%d%d; run 001"), said)
  -- the file alone is enough to know it
  os.execute("cp " .. base .. "/001/checkpoint_last.safetensors " .. folder .. "/alone.safetensors")
  t.says(evaluate .. " --weights " .. folder .. "/alone.safetensors", 0, "a trial with --overfit 2")
  gone(1)
end)

t.test("a finished training is said with epoch, value and kind", function()
  t.says(line, 0, "done:")
  local meta = core.checkpoint.meta(base .. "/001/checkpoint_best.safetensors")
  t.equal(meta.best_of, "dice")
  local want = string.format("weights: %s/001/checkpoint_best.safetensors (epoch %s), trained on "
    .. "synthetic patients; valid dice %.4f; run 001: a finished training, preset demo\n", base,
    meta.best_epoch, tonumber(meta.best))
  local said = t.says(evaluate, 0, want)
  t.check(not said:find("passed over", 1, true), said)
  t.says(evaluate .. " --weights " .. base .. "/001/.", 0, "run 001: a finished training")
  -- the last epoch has a metric of its own
  local last = base .. "/001/checkpoint_last.safetensors"
  said = t.says(evaluate .. " --weights " .. last, 0, "(epoch 2)")
  t.near(tonumber(said:match("valid dice ([%d.]+)")), kinds.column(base .. "/001", "valid_dice", 2),
         5e-5)
end)

t.test("what is passed over, and why", function()
  t.says(line .. " --quick --epochs 1", 0, "done:")
  t.says(line .. " --steps 1", 0, "stopped after 1 step")
  t.says(line .. " --until_epoch 1", 0, "stopped after epoch 1")
  -- a rate at which no step is finite
  t.says(line .. " --lr 1e38", 5, "segengine: ")
  local want = "passed over: newer runs 005 (diverged), 004 (not finished: stopped by "
    .. "--until_epoch 1), 003 (not finished: stopped by --steps 1), 002 (a trial with --quick); "
    .. "--weights " .. base .. "/005 takes that one"
  local said = t.says(evaluate, 0, want)
  t.check(said:find("weights: " .. base .. "/001/", 1, true), said)
  t.says(script .. " export --safetensors " .. folder .. "/w.safetensors --out " .. folder
         .. "/runs", 0, want)
  -- a folder of runs stands for its finished trainings
  local members = require("seg.predict.weights").places(base)
  t.equal(table.concat(members, " "), base .. "/001")
  -- and status shows the kind of a run
  t.says("status " .. base .. "/002", 0, "kind       a trial with --quick; its weights are taken "
         .. "only by name")
  t.check(t.says("status --json " .. base .. "/002", 0, "quick"):find('"kind": "quick"', 1, true))
  t.says("inspect " .. base .. "/002", 0, "kind        a trial with --quick")
  said = t.says("inspect " .. base, 0, "5 runs")
  t.check(said:find("001 +tiny +training +2 of 2") and said:find("002 +tiny +quick"), said)
  for i = 2, 5 do gone(i) end
end)

t.test("runs from before the record, killed and failed ones, series", function()
  local no_record = { ["manifest.json"] = { '"kind": "training",', "" },
                      ["summary.json"] = { '"kind": "training",', "" } }
  no_record["config.txt"] = { "overfit = 0", "overfit = 3" }
  copy(2, no_record)
  no_record["config.txt"] = { "quick = false", "quick = true" }
  copy(3, no_record)
  copy(4, { ["manifest.json"] = { '"state": "finished"', '"state": "running"' },
            ["summary.json"] = false })
  copy(5, { ["manifest.json"] = { '"state": "finished"', '"state": "failed"' },
            ["summary.json"] = false })
  copy(6, { ["manifest.json"] = false, ["summary.json"] = false })
  os.execute("mkdir " .. base .. "/007 && cp -r " .. base .. "/001 " .. base .. "/007/fold_1")
  t.write(base .. "/007/series.json", '{ "kind": "folds", "k": 2 }')
  t.says(evaluate, 0, "passed over: newer runs 007 (a series of folds), 006 (not finished), "
         .. "005 (not finished: an error ended it), 004 (not finished: it was killed), "
         .. "003 (a trial with --quick), 002 (a trial with --overfit 3); ")
  t.equal(kinds.read(base .. "/006").kind, "training")
  for i = 2, 7 do gone(i) end
end)

t.test("a finished run that learned nothing", function()
  local nothing = { ["summary.json"] = { '"best": [%d.e-]+', '"best": 0' } }
  copy(2, nothing)
  t.says(evaluate, 0, "passed over: newer run 002 (it has learned nothing: its best dice is 0)")
  os.execute("mv " .. base .. "/001 " .. folder .. "/kept")
  -- there is no better run: this one is used, with a warning
  local said = t.says(evaluate, 0, "weights: " .. base .. "/002/")
  t.check(said:find("warning: run 002: it has learned nothing: its best dice is 0; no other run",
                    1, true), said)
  gone(2)
  os.execute("mv " .. folder .. "/kept " .. base .. "/001")
  -- without a best metric the loss shows that it diverged
  local to = copy(2, { ["summary.json"] = { '"best[_%l]*": [^\n]*\n', "" } })
  t.write(to .. "/metrics.csv", "epoch,train_loss\n1,0.5\n2,40\n")
  t.says(evaluate, 0, "002 (it diverged: its training loss went from 0.5000 to 40.0000)")
  t.write(to .. "/metrics.csv", "epoch,train_loss\n1,0.5\n2,0.4\n")
  t.says(evaluate, 0, "weights: " .. base .. "/002/")
  gone(2)
end)

t.test("an older run that is better on the same cases is said", function()
  copy(2, { ["summary.json"] = { '"best": [%d.e-]+', '"best": 1e-9' } })
  t.says(evaluate, 0, "note: run 001 has a better dice on the same cases of valid (")
  local other = t.read(base .. "/002/manifest.json"):gsub('("valid": {.-"sha256": ")%x+', "%10000")
  t.write(base .. "/002/manifest.json", other)
  local said = t.says(evaluate, 0, "weights: " .. base .. "/002/")
  t.check(not said:find("note: run", 1, true), "other cases: " .. said)
  gone(2)
end)

t.test("--resume auto goes on with no trial, and a trial with no training", function()
  t.says(line .. " --overfit 2 --epochs 2 --steps 1", 0, "stopped after 1 step")
  local said = t.says(line .. " --resume auto --epochs 1", 0, "--resume auto: passed over: 002 (a "
    .. "trial with --overfit 2); --resume " .. base .. "/002 continues it")
  t.check(said:find("run: " .. base .. "/003", 1, true), said)
  t.says(line .. " --overfit 2 --resume auto --epochs 1", 0, "resumed at epoch 1")
  -- a finished trial does not keep --resume auto from the training before it
  t.says(line .. " --steps 1", 0, "run: " .. base .. "/004")
  t.says(line .. " --quick --epochs 1", 0, "done:")
  t.says(line .. " --resume auto", 0, "run: " .. base .. "/004")
end)

t.test("runs of one reason stand together, and old ones are counted", function()
  t.equal(files.passed_text { { "3", "a" }, { "2", "b" }, { "1", "a" } }, "3 and 1 (a), 2 (b)")
  local many = {}
  for i = 1, 9 do many[i] = { tostring(i), "a" } end
  t.check(files.passed_text(many):find("6 (a), 3 older ones", 1, true), files.passed_text(many))
end)

remove()
t.finish()
