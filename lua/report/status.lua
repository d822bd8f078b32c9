-- status.lua -- segengine status: the state of a run, from its files alone.
--
--   segengine status [RUN | FOLDER OF RUNS] [--json]
--
-- It locks nothing that the run needs and may be called any number of times, also from another
-- machine with the same file system.

local core = require "seg.core"
local run_facts = require "seg.report.run_facts"
local series_facts = require "seg.report.series_facts"
local util = require "seg.util"
local words = require "seg.args"

local M = {}

-- Finds the run: the given one, or the run below the given folder that wrote last.
local function find(path)
  if not util.exists(path) then
    util.refuse("status: there is no folder %s; give the folder of a run, or of runs", path)
  end
  if run_facts.is_run(path) then return path end
  path = path:gsub("(.)/+$", "%1")
  local newest, at
  for _, name in ipairs(core.sys.stat(path).kind == "folder" and run_facts.below(path) or {}) do
    local log = core.sys.stat(path .. "/" .. name .. "/log.txt")
    local when = log and log.mtime or 0
    if not at or when > at or (when == at and name > newest) then newest, at = name, when end
  end
  if not newest then
    util.refuse("status: no run in %s; give the folder of a run, or of runs", path)
  end
  return path .. "/" .. newest
end

-- The series of a run, in two lines; s may be nil.
local function series_lines(s)
  if not s then return {} end
  local again = s.state == "stopped"
    and string.format("; SCRIPT.lua %s --resume %s continues it", s.kind, s.path) or ""
  return { string.format("series     %s, %s: %s%s", s.path, s.kind, s.state, again),
           string.format("runs       %d begun, %d of them finished; the last:", #s.members,
                         s.finished) }
end

-- The record that `--json` prints; s: the series of the run, or nil.
local function facts_of(f, s)
  local part, of = run_facts.result(f)
  local result
  for name, m in pairs(of and of.metrics or {}) do
    result = result or { part = part }
    result[name] = m.mean
  end
  return { run = f.path, recipe = f.recipe, kind = f.kind, state = f.state, pid = f.pid,
           epoch = f.epoch, epochs = f.epochs, loss = f.loss, valid_loss = f.valid_loss,
           best = f.best and f.best.value, best_of = f.best and f.best.name,
           best_epoch = f.best and f.best.epoch, result = result,
           batch = f.progress and f.progress.batch, batches = f.progress and f.progress.batches,
           epoch_left_s = f.progress and f.progress.left_s,
           epoch_s = f.epoch_s, left_s = f.state == "running" and f.left_s or nil,
           updated = f.updated, series = s and { path = s.path, kind = s.kind, state = s.state,
                                                 begun = #s.members, finished = s.finished } }
end

local advice = { stopped = "--resume %s continues it", killed = "--resume %s continues it",
                 failed = "log.txt there says more; --resume %s continues it",
                 diverged = "log.txt and report.html there say where; replay.safetensors does it "
                   .. "again" }

-- The position of the run in its epoch, in words; nil if unknown.
local function now_text(f)
  local p = f.progress
  if not p then return nil end
  if p.part == "validate" then return "validation" end
  return string.format("batch %d of %d%s", p.batch, p.batches, p.left_s
    and ", " .. util.duration(p.left_s) .. " of training left in it" or "")
end

local function lines_of(f)
  local out = {}
  local function add(label, fmt, ...)
    out[#out + 1] = string.format("%-10s " .. fmt, label, ...)
  end
  add("run", "%s", f.path)
  add("state", "%s%s", f.state, f.pid and f.pid > 0 and ", process " .. f.pid or "")
  add("kind", "%s%s", f.kind_text, f.kind ~= "training"
      and "; its weights are taken only by name (--weights)" or "")
  add("epoch", "%d of %d", f.epoch, f.epochs)
  local now = now_text(f)
  if now then add("now", "epoch %d, %s", f.epoch + 1, now) end
  if f.loss then
    add("loss", "%s%s", util.fixed(f.loss), f.valid_loss and ", valid " .. util.fixed(f.valid_loss)
        or "")
  end
  if f.best then add("best", "%s", run_facts.best_text(f)) end
  if f.epoch_s then add("pace", "%s an epoch", util.duration(f.epoch_s)) end
  if f.state == "running" and f.left_s and f.epoch < f.epochs then
    add("ends", "in about %s", util.duration(f.left_s))
  end
  local part, of = run_facts.result(f)
  for _, name in ipairs(part and f.state == "finished" and util.sorted_keys(of.metrics) or {}) do
    local m = of.metrics[name]
    add(part, "%s %s%s, n %s", name, util.fixed(tonumber(m.mean) or 0 / 0),
        m.low and string.format(" (%.4f .. %.4f)", m.low, m.high) or "", m.n or "?")
  end
  add("written", "%s ago", util.duration(math.max(0, os.time() - f.updated)))
  if advice[f.state] then add("next", advice[f.state], f.path) end
  return out
end

-- Runs the command with args, "status" and its words. -> exit code
function M.command(args)
  local o, given = words.parse(args, { json = false }, "a RUN and --json", true)
  if #given > 1 then util.refuse('status takes one RUN, got "%s" as well', given[2]) end
  local f = run_facts.read(find(given[1] or "runs"))
  local s = series_facts.of(f.path)
  if o.json then
    print(util.json(facts_of(f, s)))
  else
    for _, line in ipairs(series_lines(s)) do print(line) end
    for _, line in ipairs(lines_of(f)) do print(line) end
  end
  return 0
end

return M
