-- run_kind.lua -- what kind of run lies in a folder and how it ended: whether its weights
-- are those of a training, or of a trial that says nothing about other data.
--
-- A run records its kind in manifest.json when it starts and in summary.json when it is
-- over; config.txt tells it of runs from before that record. A preset is no kind: it is
-- numbers that a recipe gives a name, and the program cannot know which of them their
-- author meant as a trial; what is said of weights names the preset.

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

-- A run is over when its test is: summary.json is written last.
function M.finished(folder)
  return util.exists(folder .. "/summary.json")
end

-- The table in a JSON file of a run; nil where it is missing or damaged.
function M.read_json(path)
  if not util.exists(path) then return nil end
  local ok, v = pcall(function() return json.decode(util.read_file(path), path) end)
  return ok and type(v) == "table" and v or nil
end

-- The kind that the lines "key = value" of a config say, and the N of --overfit.
function M.of_text(text)
  text = aliases.config(text)
  local over = math.tointeger(tonumber(("\n" .. text):match("\noverfit = (%d+)") or 0)) or 0
  local quick = ("\n" .. text):find("\nquick = true", 1, true) ~= nil
  return M.of_values { overfit = over, quick = quick }, over
end

-- The kind of the run that the options {key, text or nil} of a command line ask for.
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

-- How a run stands: "running" while a process holds its lock, else how its last start
-- ended: "finished", "stopped", "diverged", "failed"; a start that never said so was
-- "killed". m: its manifest; finished: as M.finished says. -> state, the process of one
-- that is running
local function state_of(folder, m, finished)
  local pid = core.checkpoint.holder(folder)
  if pid then return "running", pid end
  local last = type(m.sessions) == "table" and m.sessions[#m.sessions]
  if type(last) ~= "table" then return finished and "finished" or "stopped" end
  return last.state == "running" and "killed" or last.state
end

-- What of the run in a folder is known:
--   kind      "training", "overfit", "quick"; of a series "folds", "repeat", "search"
--   text      the same in words; trial, series: true where it is one
--   state, pid   as state_of says; finished: summary.json is there
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

-- What weights whose metadata has this config are of, in words; nil: of a training, or
-- nobody knows.
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

-- Why the weights of a run are not taken unless it is named; nil: they are.
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

-- Column `name` of the row of an epoch in metrics.csv, a number or nil; epoch nil: of the
-- first row, and behind it of the last.
function M.column(folder, name, epoch)
  local first, last
  for _, row in ipairs((epoch_table.read(folder))) do
    local value = tonumber(row[name] or "")
    if epoch and tonumber(row.epoch) == epoch then return value end
    first, last = first or value, value
  end
  if not epoch then return first, last end
end

-- The best that a run reached: value, what it is of ("dice") or nil, "max" or "min".
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

-- Why a run that is finished has most likely learned nothing, as at a rate at which it
-- diverges without a value that is not finite; nil: nothing says so.
function M.doubt(folder, k)
  local value, name, better = M.best(k)
  if value then
    if value == 0 and better == "max" then
      return string.format("it has learned nothing: its best %s is 0", name or "value")
    end
    return nil
  end
  local first, last = M.column(folder, "train_loss")
  -- no validation: the last weights count. Losses of two phases cannot be compared
  if first and last and first > 0 and (last > 2 * first or last ~= last)
    and not M.column(folder, "phase") then
    return string.format("it diverged: its training loss went from %s to %s", util.fixed(first),
                         util.fixed(last))
  end
end

return M
