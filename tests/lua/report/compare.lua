-- compare.lua -- the commands status and compare.

local t = dofile("tests/support/harness.lua")
local compare = require "seg.report.compare"
local core = require "seg.core"
local json = require "seg.json"
local folder, remove = t.folder()

local brain = "scripts/brain_unet.lua --preset check --phantom " .. folder .. "/phantom --test 2"
  .. " --out " .. folder .. "/runs"
local runs = folder .. "/runs/brain_unet/"

local function status(path)
  return json.decode(t.says("status --json " .. path, 0, "{"), "status")
end

t.test("status of a run that is stopped, finished, newest", function()
  t.says(brain .. " --quiet --epochs 3 --steps 7", 0, "")
  local s = status(runs .. "001")
  t.equal(s.state .. " " .. s.epoch .. " " .. s.epochs, "stopped 1 3")
  t.equal(s.left_s, nil) -- no process runs it
  local text = t.says("status " .. runs .. "001/", 0, "--resume " .. runs .. "001 continues it")
  t.check(text:find("\nepoch +1 of 3\n") and text:find("\nbest +dice 0%.%d+, epoch 1\n"), text)
  -- a folder under another path
  t.equal(status(runs .. "001/.").run, core.sys.real(runs .. "001"))
  -- more epochs than its config.txt says
  t.says(brain .. " --quiet --resume " .. runs .. "001 --epochs 4 --steps 0", 0, "")
  s = status(runs .. "001")
  t.equal(s.state .. " " .. s.epoch .. " " .. s.epochs, "finished 4 4")
  t.equal(s.result.part, "test")
  t.check(s.result.dice >= 0 and s.loss > 0 and s.valid_loss > 0 and s.best_of == "dice")
  t.says(brain .. " --quiet --epochs 1 --lr 1e30", 5, "")
  t.equal(status(folder .. "/runs").run, runs .. "002")
  t.equal(status(runs).state, "diverged")
  t.equal(status(runs).run, runs .. "002")
end)

-- This process holds the lock and records its progress within an epoch.
t.test("status inside an epoch: batch, time left of the epoch and of the run", function()
  local progress = require "seg.train.progress"
  local run = { folder = runs .. "001", progress = { at = -100 } }
  local lock = core.checkpoint.lock(run.folder)
  local s = status(run.folder)
  t.equal(s.state, "running")
  t.equal(s.batch, nil)
  -- 20 of 80 samples in 10 s: 30 s are left
  progress.note(run, "train", s.epoch + 1, 5, 20, 20, 80, core.sys.clock() - 10)
  local was = s.epoch_s
  s = status(run.folder)
  t.equal(s.batch .. " of " .. s.batches, "5 of 20")
  t.near(s.epoch_left_s, 30, 2.5)
  local rows = require("seg.report.epoch_table").read(run.folder)
  local validation = tonumber(rows[#rows].valid_s)
  t.near(s.left_s, s.epoch_left_s + validation
         + was * math.max(s.epochs - s.epoch - 1, 0), 0.1)
  t.says("status " .. run.folder, 0, "now        epoch " .. s.epoch + 1 .. ", batch 5 of 20, ")
  -- written again only after a while, or when the part changes
  progress.note(run, "train", s.epoch + 1, 6, 20, 24, 80, core.sys.clock() - 12)
  t.equal(status(run.folder).batch, 5)
  progress.note(run, "validate", s.epoch + 1, 20, 20, 1, 1, core.sys.clock())
  t.says("status " .. run.folder, 0, "now        epoch " .. s.epoch + 1 .. ", validation\n")
  -- progress of another epoch, and a truncated file: not shown
  t.write(run.folder .. "/progress.json", '{"epoch":99, "batch":1, "batches":2, "part":"train"}')
  t.equal(status(run.folder).batch, nil)
  t.write(run.folder .. "/progress.json", '{"epoch": 2, "bat')
  t.equal(status(run.folder).batch, nil)
  progress.clear(run)
  t.equal(io.open(run.folder .. "/progress.json"), nil)
  -- a folder that was removed is not made again
  local gone = { folder = folder .. "/gone", progress = { at = -100 } }
  progress.note(gone, "train", 1, 1, 2, 1, 2, core.sys.clock())
  t.equal(core.sys.stat(gone.folder), nil)
  lock:close()
end)

t.test("status of a run that works, and of one that was killed", function()
  local out = folder .. "/live"
  local script = t.write(folder .. "/live.sh", string.format([[
%s scripts/brain_unet.lua --preset check --quiet --phantom %s/phantom --epochs 5000 --out %s &
pid=$!
for i in $(seq 120); do
    [ -s %s/brain_unet/001/report.html ] && break
    sleep 0.25
done
%s status %s --json
%s inspect %s/brain_unet/001 | head -1
echo "pid $pid"
kill -9 $pid
wait $pid 2> /dev/null
%s status %s
]], t.path(), folder, out, out, t.path(), out, t.path(), out, t.path(), out))
  local text = table.concat(t.lines("sh " .. script .. " 2>&1"), "\n")
  local live = json.decode(text:match("^.-\n(%b{})") or text:match("^(%b{})"), "live")
  t.equal(live.state, "running")
  t.equal(live.pid, tonumber(text:match("pid (%d+)")))
  t.check(live.left_s > 0 and live.epoch >= 1, text)
  t.check(text:find("run of brain_unet, running\n", 1, true), text)
  t.check(text:find("\nstate +killed\n"), text)
  t.check(text:find("continues it", 1, true), text)
end)

t.test("status and compare refuse what is no run", function()
  t.says("status " .. folder .. "/none", 2, "status: there is no folder")
  t.says("status " .. folder .. "/phantom", 2, "status: no run in")
  t.says("status a b", 2, 'status takes one RUN, got "b" as well')
  t.says("status --jsn", 2, 'did you mean "json"?')
  t.says("compare " .. runs .. "001", 2, "compare needs two runs or more, got 1")
  t.says("compare " .. runs .. "001 " .. folder, 2, "is not the folder of a run")
  t.says("compare a b --html", 2, "--html needs a value: FILE")
end)

t.test("of many rows the first are shown, and where the others are", function()
  local show, rows = require "seg.show", { { "case", "dice" } }
  for i = 1, 60 do rows[i + 1] = { "c" .. i, "0.5" } end
  t.equal(select(2, show.first(rows, "all.csv"):gsub("\n", "")), 60)
  rows[62] = { "c61", "0.5" }
  local text = show.first(rows, "all.csv")
  t.equal(select(2, text:gsub("\n", "")), 21)
  t.check(text:find("\nc20 +0%.5\n%.%.%. the first 20 of 61; all are in all%.csv$"), text)
end)

t.test("lines of two texts that differ", function()
  t.equal(table.concat(compare.diff("a\nb\nc", "a\nb\nc"), "|"), "")
  t.equal(table.concat(compare.diff("a\nb\nc", "a\nx\nc\nd"), "|"), "- b|+ x|+ d")
  t.equal(table.concat(compare.diff("", "a"), "|"), "- |+ a")
end)

t.test("compare: what differs, results, cases", function()
  local text = t.read("scripts/brain_unet.lua"):gsub("1.1 }, p = 0.3 }", "1.1 }, p = 0.4 }")
  local other = t.write(folder .. "/brain_unet.lua", text)
  t.says(brain:gsub("scripts/brain_unet.lua", other) .. " --quiet --epochs 4 --base 8", 0, "")
  local page = folder .. "/compare.html"
  local a, b = runs .. "001", runs .. "003"
  local said = t.says("compare " .. a .. " " .. b .. " --html " .. page, 0, "what differs")
  for _, part in ipairs { "\nrecipe +the first +2 lines differ\n", "\n%-%-base +4 +8\n",
                          "\n%- +gamma = .- p = 0%.3", "\n%+ +gamma = .- p = 0%.4",
                          "\ndice, test +0%.%d+ +0%.%d+\n", "\ndice, 003 %- 001 +2 +[+-]0%.%d+ +",
                          "too few cases to tell" } do
    t.check(said:find(part), "%s in %s", part, said)
  end
  -- equal in both runs, and so not shown
  t.check(not said:find("images of", 1, true) and not said:find("--seed", 1, true), said)
  t.check(not said:find(folder .. "/phantom", 1, true), said)
  local c = json.decode(t.says("compare " .. a .. " " .. b .. " --json", 0, "{"), "compare")
  local one, two = {}, {}
  for k, path in pairs { [1] = a, [2] = b } do
    local s = json.decode(t.read(path .. "/summary.json"), "summary")
    for case, values in pairs(s.test.cases) do ({ one, two })[k][case] = values.dice end
  end
  local p = c.paired[1]
  t.equal(p.metric .. " " .. p.part .. " " .. p.n .. " " .. p.run .. " " .. p.against,
          "dice test 2 003 001")
  local mean = 0
  for _, case in ipairs(p.cases) do
    t.near(case.difference, two[case.case] - one[case.case], 1e-12)
    mean = mean + case.difference / 2
  end
  t.near(p.mean, mean, 1e-12)
  -- the page is complete and names no folder
  local html = t.read(page)
  t.check(not html:find(folder, 1, true) and html:find("<svg", 1, true), "page")
  local judged = t.lines("command -v python3 > /dev/null && "
                         .. "python3 tests/support/page.py " .. page)[1]
  if judged then t.equal(judged, "bad [], open [], 0 images") end
  -- compared with itself a run has no differences, nor have its cases
  said = t.says("compare " .. a .. " " .. a, 0, "what differs\nnothing\n")
  t.check(said:find("0 of 2", 1, true), said)
end)

t.test("cases are the same when their images are", function()
  -- the same patients under other hashes: another folder of runs, another secret
  local elsewhere = brain:gsub("/runs$", "/elsewhere")
  t.says(elsewhere .. " --quiet --epochs 1", 0, "")
  local b = folder .. "/elsewhere/brain_unet/001"
  t.check(t.read(runs .. ".key") ~= t.read(b .. "/../.key"), "two secrets")
  local c = json.decode(t.says("compare " .. runs .. "001 " .. b .. " --json", 0, "{"), "compare")
  t.equal(c.paired[1].n, 2)
  t.equal(c.runs[1].label .. " " .. c.runs[2].label, "001 001#2")
end)

t.test("intervals and verdicts", function()
  t.equal(compare.interval { mean = 0.5, low = 0.25, high = 0.75 }, "0.5000 (0.2500 .. 0.7500)")
  t.equal(compare.interval({ mean = 0.5 }, "%+.2f"), "+0.50")
  t.equal(compare.interval(false), "-")
  t.equal(compare.verdict { mean = 1, low = -1, high = 2 },
          "the interval holds 0: no difference is shown")
  t.equal(compare.verdict { mean = -1, low = -2, high = -0.5 }, "the interval is below 0")
end)

-- A run of an earlier version: no manifest, fewer columns.
t.test("a run without a manifest", function()
  core.sys.remove(runs .. "001/manifest.json")
  t.equal(status(runs .. "001").state, "finished")
  local said = t.says("compare " .. runs .. "001 " .. runs .. "003", 0, "--base")
  t.check(said:find("\nnetwork +%- +%d"), said)
end)

remove()
t.finish()
