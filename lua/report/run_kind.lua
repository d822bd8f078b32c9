-- run_kind.lua -- the kind of a run in a folder and how it ended: whether its weights are from a
-- training, or from a trial that says nothing about other data.
--
-- A run records its kind in manifest.json at the start and in summary.json at the end; for older
-- runs it follows from config.txt. A preset is no kind: it is a named set of options of a recipe,
-- and the program cannot know which presets are meant as trials; texts about weights name the
-- preset.

local aliases = require "seg.aliases"
local core = require "seg.core"
local epoch_table = require "seg.report.epoch_table"
local json = require "seg.json"
local util = require "seg.util"

local M = {}

-- The kind of a run with these values of the config: "overfit", "quick", "training".
function M.of_values(v)
  return v.overfit > 0 and "overfit" or v.quick and "quick" or "training"
end

-- Whether a run is finished: summary.json is written last, after the test.
function M.finished(folder)
  return util.exists(folder .. "/summary.json")
end

-- The table in a JSON file of a run; nil if it is missing or damaged.
function M.read_json(path)
  if not util.exists(path) then return nil end
  local ok, v = pcall(function() return json.decode(util.read_file(path), path) end)
  return ok and type(v) == "table" and v or nil
end

-- The kind according to the lines "key = value" of a config, and the N of --overfit.
function M.of_text(text)
  text = aliases.config(text)
  local over = math.tointeger(tonumber(("\n" .. text):match("\noverfit = (%d+)") or 0)) or 0
  local quick = ("\n" .. text):find("\nquick = true", 1, true) ~= nil
  return M.of_values { overfit = over, quick = quick }, over
end

-- The kind of run for the options {key, text or nil} of a command line.
function M.of_line(options)
  local v = { overfit = 0, quick = false }
  for _, o in ipairs(options) do
    if o[1] == "overfit" then v.overfit = tonumber(o[2]) or 0 end
    if o[1] == "quick" then v.quick = o[2] ~= "false" end
  end
  return M.of_values(v)
end

-- A kind in words.
local function words(kind, over)
  if kind == "training" then return "a training" end
  if kind == "overfit" or kind == "quick" then
    return string.format("a trial with --%s%s", kind, over > 0 and " " .. over or "")
  end
  return "a series of " .. (kind == "folds" and kind or kind .. " runs")
end

-- The state of a run: "running" while a process holds its lock, else the end of its last start:
-- "finished", "stopped", "diverged", "failed", or "killed" if no end was recorded. m: its manifest;
-- finished: the result of M.finished. -> state, process id of a running one
local function state_of(folder, m, finished)
  local pid = core.checkpoint.holder(folder)
  if pid then return "running", pid end
  local last = type(m.sessions) == "table" and m.sessions[#m.sessions]
  if type(last) ~= "table" then return finished and "finished" or "stopped" end
  return last.state == "running" and "killed" or last.state
end

-- The facts about the run in a folder:
--   kind      "training", "overfit", "quick"; of a series "folds", "repeat", "search"
--   text      the same in words; trial, series: true for such a run
--   state, pid   results of state_of; finished: summary.json exists
--   manifest, summary   the files, or {}; config: the text of the file, or ""
function M.read(folder)
  local config = folder .. "/config.txt"
  local m, finished = M.read_json(folder .. "/manifest.json") or {}, M.finished(folder)
  local text = util.exists(config) and util.read_file(config) or ""
  local kind, over = M.of_text(text)
  local series = M.read_json(folder .. "/series.json")
  kind = series and tostring(series.kind) or type(m.kind) == "string" and m.kind or kind
  local state, pid = state_of(folder, m, finished)
  return { kind = kind, text = words(kind, over), series = series ~= nil,
           trial = kind == "overfit" or kind == "quick", state = state, pid = pid,
           finished = finished, manifest = m, config = text,
           summary = M.read_json(folder .. "/summary.json") or {} }
end

-- The kind of the run of weights with this metadata, in words; nil for a training, or if unknown.
function M.trial_of(meta)
  local kind, over = M.of_text(meta.config or "")
  return kind ~= "training" and words(kind, over) or nil
end

-- The N of --steps or --until_epoch of the last start: "--steps 100", or nil.
local function limit_of(last)
  local list = type(last.command) == "table" and last.command or {}
  for i, word in ipairs(list) do
    if (word == "--steps" or word == "--until_epoch") and (tonumber(list[i + 1]) or 0) > 0 then
      return word .. " " .. list[i + 1]
    end
  end
end

-- The reason why the weights of a run are used only if it is named; nil if there is none.
function M.why_not(k)
  if k.series or k.trial then return k.text end
  if k.finished then return nil end
  local sessions = type(k.manifest.sessions) == "table" and k.manifest.sessions or {}
  local last = type(sessions[#sessions]) == "table" and sessions[#sessions] or {}
  if k.state == "running" then return "not finished: it is running" end
  if k.state == "diverged" then return "diverged" end
  if k.state == "failed" then return "not finished: an error ended it" end
  if k.state == "killed" then return "not finished: it was killed" end
  local limit = limit_of(last)
  if limit then return "not finished: stopped by " .. limit end
  if math.type(last.to_epoch) and math.type(last.epochs) then
    return string.format("not finished: stopped after epoch %d of %d", last.to_epoch, last.epochs)
  end
  return "not finished"
end

-- Column `name` of an epoch's row in metrics.csv, a number or nil; with epoch nil the values of the
-- first and of the last row.
function M.column(folder, name, epoch)
  local first, last
  for _, row in ipairs((epoch_table.read(folder))) do
    local value = tonumber(row[name] or "")
    if epoch and tonumber(row.epoch) == epoch then return value end
    first, last = first or value, value
  end
  if not epoch then return first, last end
end

-- The best result of a run: value, its name ("dice") or nil, "max" or "min".
function M.best(k)
  local s = k.summary
  local value, name = tonumber(s.best), type(s.best_of) == "string" and s.best_of or nil
  local better = name == "loss" and "min" or nil
  for _, part in ipairs { "valid", "test" } do
    local metrics = type(s[part]) == "table" and s[part].metrics
    for of, m in pairs(type(metrics) == "table" and metrics or {}) do
      if type(m) == "table" and (of == name or not name) then better = better or m.better end
    end
  end
  return value, name, better
end

-- The reason why a finished run has probably learned nothing, for example with a learning rate that
-- diverges to finite values; nil if there is no sign of it.
function M.doubt(folder, k)
  local value, name, better = M.best(k)
  if value then
    if value == 0 and better == "max" then
      return string.format("it has learned nothing: its best %s is 0", name or "value")
    end
    return nil
  end
  local first, last = M.column(folder, "train_loss")
  -- without validation the last weights are used. Losses of different phases cannot be compared
  if first and last and first > 0 and (last > 2 * first or last ~= last)
    and not M.column(folder, "phase") then
    return string.format("it diverged: its training loss went from %s to %s", util.fixed(first),
                         util.fixed(last))
  end
end

return M
