-- series.lua -- several runs of one recipe, one after the other, as one experiment: the folds of a
-- cross-validation, seeds, trials of a search.
--
-- A series has the folder of a run, runs/<recipe>/<NNN>/, with a folder for each member, which is
-- an ordinary run:
--
--   series.json   its kind, and the options of every member; readable by the owner only
--   recipe.lua    the script at the start
--   summary.json  the results; written last, so it marks the series as finished
--
-- Each member is a process. A finished member is skipped, an unfinished one resumes from its
-- checkpoint: so a series that was stopped or killed at any point ends with the same results.

local aliases = require "seg.aliases"
local config = require "seg.recipe.config"
local core = require "seg.core"
local done = require "seg.report.done"
local json = require "seg.json"
local not_finite = require "seg.train.not_finite"
local run_folder = require "seg.report.run"
local show = require "seg.show"
local util = require "seg.util"

local sys, fail = core.sys, util.fail
local M = {}

local PATIENCE_S = 60 -- waiting time for a member of a killed series, which saves and ends

local UNFIT = 5 -- the exit code of a finished run with cases that were not finite

-- Kinds of errors by exit code; a signal is 128 + its number.
local kinds = { [2] = "usage", [3] = "data", [4] = "device", [5] = "diverged" }

-- The types of the fields in series.json, and further fields of each kind.
local shape = { kind = "string", options = { "string", free = true }, preset = "string?",
                weights = "string?" }
local of_kind = { folds = { k = "number" }, ["repeat"] = { seeds = { "number" } } }

-- Reads series.json of a folder; nil if it is no series.
function M.read(folder)
  local path = folder .. "/series.json"
  if not util.exists(path) then return nil end
  local was = json.decode(util.read_file(path), path)
  json.check(was, shape, path)
  json.check(was, of_kind[was.kind] or {}, path)
  for _, word in ipairs(was.options or {}) do
    if not word:find("^%-%-[%w_]") then
      fail("data", '%s: "%s" is not an option of a run; start anew', path, word)
    end
  end
  return was
end

-- The options {key, value or nil} as words of a command line.
local function words_of(options)
  local list = {}
  for _, o in ipairs(options) do
    if not config.of_the_call[o[1]] then
      list[#list + 1] = "--" .. o[1] .. (o[2] and "=" .. o[2] or "")
    end
  end
  return list
end

-- Resuming ------------------------------------------------------------------------

-- The folder that --resume means for a series of this kind; nil: a new one. Its saved options
-- precede those of the command line, which may only add options that a run may change.
function M.resume(kind, out, name)
  local line = config.line
  local given = line.flags.resume
  if not given then return nil end
  local folder
  if given == "auto" then
    folder = run_folder.newest(out, name, function(f)
      local was = M.read(f)
      return was and was.kind == kind and not run_folder.finished(f)
    end)
    if not folder then
      show.line("--resume auto: nothing to resume, so a new series: no %s of %s/%s is begun and "
                .. "not finished", kind, out, name)
      return nil
    end
  else
    folder = util.by_name(given)
  end
  local was = util.exists(folder) and M.read(folder)
  if not was or was.kind ~= kind then
    util.refuse("--resume %s: this is not the folder of a series of %s%s", folder, kind,
                was and ", but of " .. was.kind or " (it has no series.json)")
  end
  local saved = {}
  for _, word in ipairs(was.options or {}) do
    local key, value = word:match("^%-%-([%w_]+)=(.*)$")
    key = key or word:match("^%-%-([%w_]+)$")
    local now, change = aliases.now(key, value or "true")
    if change then
      util.refuse("%s", aliases.refusal(folder .. "/series.json", key, value, change))
    end
    if now then
      saved[#saved + 1] = { now, value }
      saved[now] = value or "true"
    end
  end
  for _, o in ipairs(line.options) do
    if config.fixed(o[1]) and saved[o[1]] ~= (o[2] or "true") then
      util.refuse("--%s: the runs of %s %s; a series keeps the values that it began with", o[1],
                  folder, saved[o[1]] and "have " .. saved[o[1]] or "began without it")
    end
  end
  for _, o in ipairs(line.options) do
    local at = #saved + 1
    for i, old in ipairs(saved) do if old[1] == o[1] then at = i end end
    saved[at] = o
  end
  line.options, line.flags.preset = saved, was.preset
  line.flags.weights = line.flags.weights or was.weights
  line.series = folder
  return folder
end

-- Opens a new series, or the resumed one. kind: "folds", "repeat", "search". facts: further fields
-- of series.json. -> { folder=, name=, was = the old series.json, or nil }
function M.open(kind, name, facts)
  local v, line = config.ensure(), config.line
  local stat = sys.stat(line.script)
  if not stat or stat.kind ~= "file" then
    util.refuse("%s: each run reads the script again; give it as a file", kind)
  end
  local s = { name = name, kind = kind, folder = line.series, text = util.read_file(line.script) }
  if s.folder then
    s.was = M.read(s.folder)
    s.lock = core.checkpoint.lock(s.folder)
    if util.read_file(s.folder .. "/recipe.lua") ~= s.text then
      show.warn("the script has changed since the series began; it had %s/recipe.lua", s.folder)
    end
  else
    s.above = {} -- new folders above it, the inner first
    for _, path in ipairs { v.out .. "/" .. name, v.out } do
      if not util.exists(path) then s.above[#s.above + 1] = path end
    end
    s.folder = run_folder.new(v.out, name)
    s.lock = core.checkpoint.lock(s.folder)
    sys.write(s.folder .. "/recipe.lua", s.text)
    -- cases have the same hashes in all runs of a recipe
    run_folder.hasher(run_folder.base(s.folder))
    sys.write(s.folder .. "/.key", util.read_file(run_folder.base(s.folder) .. "/.key"), true)
  end
  s.options = words_of(line.options)
  facts.kind, facts.recipe, facts.options = kind, name, s.options
  facts.preset, facts.weights = line.flags.preset, line.flags.weights
  -- readable by the owner only: options contain paths of images
  sys.write(s.folder .. "/series.json", util.json(facts) .. "\n", true)
  show.line("%s: %s", kind, s.folder)
  sys.catch_signals()
  return s
end

-- Members -------------------------------------------------------------------------

-- Waits for a member that a killed series left behind: it ends by itself and locks its folder until
-- then.
local function wait_for(folder)
  local until_s = sys.clock() + PATIENCE_S
  while core.checkpoint.holder(folder) and not sys.stopped() do
    if sys.clock() > until_s then
      fail("failure", "%s: process %d is at work there; end it, or wait until it has", folder,
           core.checkpoint.holder(folder))
    end
    sys.sleep(0.1)
  end
end

-- The signal that stopped this program or, by its exit code, a child that was signalled alone; nil
-- without one.
function M.stopped(code)
  return sys.stopped() or sys.signal_name((code or 0) - 128) and code - 128 or nil
end

-- Trains the member `name` to its end, or resumes it, with these options after the common ones;
-- log: the file for its output, else stderr. -> exit code, its folder
function M.train(s, name, words, log)
  local folder = s.folder .. "/" .. name
  if run_folder.finished(folder) then return 0, folder end
  local list = { config.line.script, "train" }
  for _, word in ipairs(s.options) do list[#list + 1] = word end
  if util.exists(folder) then wait_for(folder) end
  local resume = util.exists(folder) and core.checkpoint.newest(folder) ~= nil
  list[#list + 1] = (resume and "--resume=" or "--run=") .. folder
  local flags = config.line.flags
  if flags.preset then list[#list + 1] = "--preset=" .. flags.preset end
  if flags.weights and not resume then list[#list + 1] = "--weights=" .. flags.weights end
  if flags.quiet then list[#list + 1] = "--quiet" end
  for key in pairs(config.of_the_call) do
    if config.values[key] > 0 then list[#list + 1] = "--" .. key .. "=" .. config.values[key] end
  end
  for _, word in ipairs(words) do list[#list + 1] = word end
  if sys.stopped() then return 128 + sys.stopped(), folder end
  return sys.child(list, log), folder
end

-- Runs another command for a finished member. -> exit code
function M.tell(command, words)
  local list = { config.line.script, command }
  for _, word in ipairs(words) do list[#list + 1] = word end
  return sys.child(list)
end

-- Prints how to resume a stopped series. -> exit code
function M.say_stopped(s, signal)
  show.line("stopped; %s --resume %s continues it", s.kind, s.folder)
  return signal and 128 + signal or 0
end

-- Whether a member that ended with this code is finished. A member with cases that were not finite
-- is, and the series ends with its code.
function M.is_over(s, code, folder)
  local over = (code == 0 or code == UNFIT) and run_folder.finished(folder)
  if over and not_finite.of_summary(M.summary(folder)) then s.code = UNFIT end
  return over
end

-- Removes the folder of a new series if no run has begun, because there is nothing to resume. Files
-- of other programs in it are kept.
local function take_back(s)
  s.lock:close()
  local function empty(folder, names)
    for _, name in ipairs(names) do sys.remove(folder .. "/" .. name) end
    pcall(sys.remove, folder)
  end
  empty(s.folder, { "recipe.lua", ".key", "series.json", ".lock" })
  for _, path in ipairs(s.above) do
    local list = sys.list(path)
    empty(path, #list == 1 and list[1] == ".key" and list or {})
  end
end

-- Trains all members { { name=, words= }, ... } in order. -> nil, or the exit code of a series that
-- ends here: stopped by a signal, or after --steps. A member that fails ends the series.
function M.train_all(s, members)
  for i, m in ipairs(members) do
    local before = run_folder.finished(s.folder .. "/" .. m.name)
    show.line("%s, %d of %d%s", m.name, i, #members, before and ": finished before" or "")
    local code, folder = M.train(s, m.name, m.words)
    local signal = M.stopped(code)
    m.folder = folder
    if signal then return M.say_stopped(s, signal) end
    local over = M.is_over(s, code, folder)
    if code ~= 0 and i == 1 and not s.was and not util.exists(folder) then
      take_back(s)
      sys.raise(kinds[code] or "failure", string.format(
        "%s ended with code %d before it began, for the reason above; nothing is left of this "
        .. "series", m.name, code), true)
    end
    if code ~= 0 and not over then
      sys.raise(kinds[code] or "failure", string.format(
        "%s ended with code %d, for the reason above; %s --resume %s continues it", m.name, code,
        s.kind, s.folder), true)
    end
    if not over then return M.say_stopped(s) end
  end
end

-- Results -------------------------------------------------------------------------

-- The types of the results on a part.
local measured = { cases = { "table", free = true }, free = true,
                   metrics = { { mean = "number?", unit = "string?" }, free = true } }

-- The results in the file `path`, checked.
function M.measured(path)
  local v = json.decode(util.read_file(path), path)
  json.check(v, measured, path)
  return v
end

-- summary.json of a member.
function M.summary(folder)
  local path = folder .. "/summary.json"
  local v = json.decode(util.read_file(path), path)
  json.check(v, { valid = measured, test = measured, best = "number?", best_epoch = "number?",
                  epochs = "number?" }, path)
  return v
end

-- Mean and, for two values or more, standard deviation of a list.
function M.spread(list)
  local mean, sum = util.mean(list), 0
  for _, x in ipairs(list) do sum = sum + (x - mean) ^ 2 end
  return { mean = mean, sd = #list > 1 and math.sqrt(sum / (#list - 1)) or nil, n = #list }
end

-- The command line that trains one run with the options of the series and these words.
function M.command(s, words)
  local list = { "segengine", done.quoted(config.line.script) }
  for _, word in ipairs(s.options) do list[#list + 1] = done.quoted(word) end
  if config.line.flags.preset then
    list[#list + 1] = done.quoted("--preset=" .. config.line.flags.preset)
  end
  for _, word in ipairs(words) do list[#list + 1] = done.quoted(word) end
  return table.concat(list, " ")
end

-- Ends a series: writes its summary, and prints it with --json. page: the file in its folder that
-- shows it. -> exit code
function M.finish(s, summary, page)
  sys.write(s.folder .. "/summary.json", util.json(summary) .. "\n")
  if config.line.flags.json then print(util.json(summary)) end
  done.say(s.folder, page)
  return s.code or 0
end

return M
