-- run.lua -- the folder of one run: runs/<recipe>/<NNN>/.
--
-- A run always gets a new number; resuming continues a folder. Files that may leave the machine
-- name no patient: cases appear as a keyed hash, and the table from hash to case stays in cases.csv
-- (mode 600).

local aliases = require "seg.aliases"
local core = require "seg.core"
local config = require "seg.recipe.config"
local run_kind = require "seg.report.run_kind"
local show = require "seg.show"
local transfer = require "seg.train.transfer"
local util = require "seg.util"

local sys, fail = core.sys, util.fail
local M = {}

-- The numbers of the runs in a folder, in order; empty if the folder does not exist.
local function numbers(folder)
  local list = {}
  if not util.exists(folder) then return list end
  for _, name in ipairs(sys.list(folder)) do
    if name:match("^%d+$") then list[#list + 1] = math.tointeger(tonumber(name)) end
  end
  table.sort(list)
  return list
end

-- A new folder below out/recipe; two processes never get the same.
function M.new(out, recipe)
  local base = out .. "/" .. recipe
  sys.mkdir(base)
  local list = numbers(base)
  local n = (list[#list] or 0) + 1
  while not sys.make_new(string.format("%s/%03d", base, n)) do n = n + 1 end
  return string.format("%s/%03d", base, n)
end

-- The folder that --run names, for a new run, or nil. A folder without a checkpoint, of a run that
-- was killed before its first one, counts as new.
function M.given(folder)
  if not folder then return nil end
  folder = util.by_name(folder)
  if util.exists(folder) and core.checkpoint.newest(folder) then
    util.refuse("--run %s: this run exists; --resume %s continues it", folder, folder)
  end
  sys.mkdir(folder)
  return folder
end

M.finished = run_kind.finished

-- Whether this is the folder of a run of the recipe under a name given by --run.
local function is_named(folder, recipe)
  if not util.exists(folder .. "/config.txt") then return false end
  local m, path = run_kind.read_json(folder .. "/manifest.json") or {},
                  core.checkpoint.newest(folder)
  local of = type(m.recipe) == "table" and m.recipe.name
  local ok, meta = pcall(core.checkpoint.meta, path)
  of = of or ok and meta.recipe
  return of == nil or of == false or of == recipe
end

-- The folders of all runs of this recipe, from the oldest. A run named by --run is placed after the
-- numbers that existed when it began; a link to a number is skipped.
local function all_of(out, recipe)
  local base, list, seen, begun = out .. "/" .. recipe, {}, {}, {}
  local function began(folder)
    local script = sys.stat(folder .. "/recipe.lua")
    return script and script.mtime_ns or math.huge
  end
  for _, n in ipairs(numbers(base)) do
    local folder = string.format("%s/%03d", base, n)
    local stat = sys.stat(folder)
    list[#list + 1] = { folder = folder, place = n, time = 0 }
    if stat then seen[stat.id] = true end
    begun[#begun + 1] = { n = n, time = began(folder) }
  end
  for _, name in ipairs(util.exists(base) and sys.list(base) or {}) do
    local folder = base .. "/" .. name
    local stat = not name:match("^%d+$") and name:sub(1, 1) ~= "." and sys.stat(folder)
    if stat and stat.kind == "folder" and not seen[stat.id] and is_named(folder, recipe) then
      local e = { folder = folder, place = 0, time = began(folder) }
      for _, b in ipairs(begun) do if b.time <= e.time then e.place = math.max(e.place, b.n) end end
      list[#list + 1], seen[stat.id] = e, true
    end
  end
  table.sort(list, function(a, b)
    if a.place ~= b.place then return a.place < b.place end
    if a.time ~= b.time then return a.time < b.time end
    return a.folder < b.folder
  end)
  for i, e in ipairs(list) do list[i] = e.folder end
  return list
end

-- The newest folder of this recipe that `wanted` accepts, and its position among all; or nil.
function M.newest(out, recipe, wanted)
  local list = all_of(out, recipe)
  for i = #list, 1, -1 do
    if wanted(list[i]) then return list[i], i end
  end
end

-- The weights in the folder of a run, the best or else the last, and a note about them; nil if it
-- has neither.
local function weights_in(folder)
  local best = folder .. "/checkpoint_best.safetensors"
  local last = folder .. "/checkpoint_last.safetensors"
  if util.exists(best) then return best, "" end
  if util.exists(last) then return last, " (the run has no best checkpoint: this is its last)" end
end

-- Whether this is the folder of a run with weights.
function M.has_weights(folder)
  return weights_in((folder:gsub("(.)/+$", "%1"))) ~= nil
end

-- Finds the weights for `given`, a file or the folder of a run; what: the option, for errors. -> a
-- file, a note about it
function M.weights(given, what)
  what = what or "--weights"
  local stat = sys.stat(given)
  -- reported without a line of the recipe: the path comes from the command line
  if not stat then
    sys.raise("data", what .. " " .. given .. ": there is no such file or folder", true)
  end
  if stat.kind ~= "folder" then return given, "" end
  local path, note = weights_in(util.by_name(given))
  if path then return path, note end
  util.refuse("%s %s: this folder has neither checkpoint_best.safetensors nor "
              .. "checkpoint_last.safetensors; give the folder of a run, or a file", what, given)
end

local SAID = 6 -- skipped runs that a line names

-- { { run, why }, ... } as "003 and 002 (a trial with --quick), 001 (diverged)": runs are grouped
-- by reason.
function M.passed_text(passed)
  local groups, by = {}, {}
  for i = 1, math.min(#passed, SAID) do
    local name, why = passed[i][1], passed[i][2]
    if not by[why] then
      by[why] = { names = {}, why = why }
      groups[#groups + 1] = by[why]
    end
    table.insert(by[why].names, name)
  end
  for i, g in ipairs(groups) do
    groups[i] = string.format("%s (%s)", table.concat(g.names, " and "), g.why)
  end
  if #passed > SAID then groups[#groups + 1] = #passed - SAID .. " older ones" end
  return table.concat(groups, ", ")
end

-- The runs of a recipe from the newest: the facts of run_kind.read for each that has weights or is
-- a series, with its folder and name ("003").
local function kinds_below(out, recipe)
  local base, list = out .. "/" .. recipe, {}
  local all = numbers(base)
  for i = #all, 1, -1 do
    local folder = string.format("%s/%03d", base, all[i])
    local has = weights_in(folder)
    if has or util.exists(folder .. "/series.json") then
      local k = run_kind.read(folder)
      k.folder, k.name, k.has = folder, folder:match("[^/]+$"), has ~= nil
      list[#list + 1] = k
    end
  end
  return list
end

-- A run with a better value of the same metric on the same cases of valid.
local function better_one(list, chosen)
  local function valid(k)
    local data = type(k.manifest.data) == "table" and k.manifest.data.valid
    return type(data) == "table" and data.sha256
  end
  local value, name, better = run_kind.best(chosen)
  local best, at = value, nil
  for _, k in ipairs(value and name and valid(chosen) and list or {}) do
    local v, of = run_kind.best(k)
    if v and of == name and valid(k) == valid(chosen) and not run_kind.why_not(k)
      and (better == "min" and v < best or better == "max" and v > best) then
      best, at = v, k
    end
  end
  return at and string.format("note: run %s has a better %s on the same cases of valid (%s, this "
                              .. "one %s); --weights %s takes it", at.name, name, util.fixed(best),
                              util.fixed(value), at.folder)
end

-- Chooses the weights for a command that names none: those of the newest finished training of this
-- recipe. Trials, series, and diverged or unfinished runs must be named. A finished run that
-- learned nothing is chosen only if there is no other, the newest first. -> a file, a note about
-- it, lines about other runs; nil: no run has weights
function M.choose(out, recipe)
  local list, passed, doubtful = kinds_below(out, recipe), {}, nil
  local function passed_line(count)
    if count == 0 then return nil end
    local newer = table.move(passed, 1, count, 1, {})
    return string.format("passed over: newer %s %s; --weights %s/%s/%s takes %s",
                         count == 1 and "run" or "runs", M.passed_text(newer), out, recipe,
                         newer[1][1], count == 1 and "it" or "that one")
  end
  for _, k in ipairs(list) do
    local why = run_kind.why_not(k)
    local doubt = not why and run_kind.doubt(k.folder, k)
    if not why and not doubt then
      local path, note = weights_in(k.folder)
      local lines = { passed_line(#passed) }
      lines[#lines + 1] = better_one(list, k)
      return path, note, lines
    end
    passed[#passed + 1] = { k.name, why or doubt }
    if doubt then doubtful = doubtful or { k = k, why = doubt, newer = #passed - 1 } end
  end
  if doubtful then
    local path, note = weights_in(doubtful.k.folder)
    return path, note, { string.format("warning: run %s: %s; no other run of %s is finished and "
                                       .. "no trial", doubtful.k.name, doubtful.why, recipe),
                         passed_line(doubtful.newer) }
  end
  if #list == 0 then return nil end
  util.refuse("no finished training below %s/%s, only %s; train to the end, or name the weights "
              .. "that you mean, as --weights %s", out, recipe, M.passed_text(passed),
              list[1].folder)
end

-- The folder of the run that a file of weights is in; nil if the folder is no run.
function M.of(path)
  local folder = util.by_name(path:match("^(.+)/[^/]*$") or ".")
  return util.exists(folder .. "/config.txt") and folder or nil
end

-- The result of the weights in a file and the kind of their run, as text after the path: "; valid
-- dice 0.9123; run 003: a finished training, preset full". meta: of the file.
function M.about(path, meta)
  local parts, name, value = {}, meta.best_of, nil
  local folder = M.of(path)
  if meta.epoch and meta.epoch == meta.best_epoch then value = tonumber(meta.best or "") end
  -- the last epoch is not the best one
  if not value and folder and name and tonumber(meta.epoch or "") then
    value = run_kind.column(folder, "valid_" .. name, tonumber(meta.epoch))
  end
  if value then parts[1] = string.format("valid %s %s", name or "measure", util.fixed(value)) end
  local k = folder and run_kind.read(folder)
  if k then
    local preset = type(k.manifest.preset) == "string" and ", preset " .. k.manifest.preset or ""
    local why = run_kind.why_not(k)
    parts[#parts + 1] = string.format("run %s: %s%s%s", folder:match("[^/]+$"), k.trial and k.text
                                      or why and "a training, " .. why or "a finished training",
                                      preset, k.trial and ", which says nothing about other data"
                                      or "")
  else
    parts[#parts + 1] = run_kind.trial_of(meta)
  end
  return #parts > 0 and "; " .. table.concat(parts, "; ") or ""
end

-- The lines of a run's config.txt with the location of its images, which a checkpoint does not hold
-- because it may leave the machine.
function M.data_lines(folder)
  local lines = {}
  for line in aliases.config(util.read_file(folder .. "/config.txt")):gmatch("[^\n]+") do
    if line:match("^data = .") or line:match("^phantom = .") then lines[#lines + 1] = line end
  end
  return #lines > 0 and table.concat(lines, "\n") .. "\n" or ""
end

-- The possible reasons for weights that do not fit: the options that differed in their run, and the
-- script of that run.
local function misfit(path)
  local ok, meta = pcall(core.checkpoint.meta, path)
  local others, hint = {}, ""
  for line in (ok and meta.config or ""):gmatch("[^\n]+") do
    local key, was, is = config.differs(line)
    if key and not config.is_reserved(key) then
      others[#others + 1] = string.format("%s %s (here %s)", key, was, is)
    end
  end
  if #others > 0 then
    hint = "; they were trained with other options: " .. util.first_of(others, 4)
  end
  local folder = M.of(path)
  local script = folder and folder .. "/recipe.lua"
  return hint .. "; fix: " .. (script and util.exists(script) and "the script of that training, "
    .. script or ok and meta.recipe and "the script of that training, " .. meta.recipe .. ".lua"
    or "the script of that training")
    .. (#others > 0 and ", or these options" or "")
end

-- Loads the weights of a file into a session and prints its warning. -> metadata of the file.
-- listed: if they do not fit, all names are listed, for a training that may rename them; else a
-- few.
function M.load(path, session, listed)
  local ok, meta, warning = pcall(core.checkpoint.load, path, session, false)
  if not ok then
    local phrase = "does not fit this network: "
    local at, last = meta:find(phrase, 1, true)
    if not at then error(meta, 0) end
    if listed then transfer.explain(path, session) end
    sys.raise("data", meta:sub(1, last) .. transfer.in_short(path, session) .. misfit(path), true)
  end
  if warning ~= "" then show.warn("%s", warning) end
  return meta
end

-- The run for --resume auto: the newest unfinished run that has a checkpoint or is running, unless
-- a newer run is finished; older ones were given up. Runs of another kind than the command line
-- asks for do not count: a training does not continue a trial. -> the folder, or nil for a new run;
-- lines about the choice
local function resume_auto(out, recipe)
  local kind, passed, lines = run_kind.of_line(config.line.options), {}, {}
  local function say(fmt, ...) lines[#lines + 1] = string.format("--resume auto: " .. fmt, ...) end
  local function same_kind(f) return run_kind.read(f).kind == kind end
  local function runs(f) return core.checkpoint.holder(f) and same_kind(f) end
  local unfinished = function(f)
    if M.finished(f) or not (core.checkpoint.newest(f) or runs(f)) then return false end
    if same_kind(f) then return true end
    passed[#passed + 1] = { f:match("[^/]+$"), run_kind.read(f).text }
    return false
  end
  local finished, at = M.newest(out, recipe, function(f) return M.finished(f) and same_kind(f) end)
  local found, found_at = M.newest(out, recipe, unfinished)
  if #passed > 0 then
    say("passed over: %s; --resume %s continues it", M.passed_text(passed),
        out .. "/" .. recipe .. "/" .. passed[1][1])
  end
  if found and not (finished and at > found_at) then return found, lines end
  local running = M.newest(out, recipe, runs)
  if running then
    util.refuse("--resume auto: run %s is at work (process %d), and there is no other run to "
                .. "resume; fix: wait for it, or leave out --resume for a second run at the same "
                .. "time",
                running, core.checkpoint.holder(running) or 0)
  end
  if found then
    say("a new run: %s is finished; %s, older, is not: --resume %s continues it", finished,
        found, found)
  elseif finished then
    say("nothing to resume, so a new run: %s is finished; --resume %s with more --epochs continues "
        .. "it", finished, finished)
  else
    say("nothing to resume, so a new run: none of %s/%s has begun and is not finished", out,
        recipe)
  end
  return nil, lines
end

-- The folder for --resume: a path, or `auto`; nil: start a new run. Then lines about the choice.
function M.resume(text, out, recipe)
  if text ~= "auto" then
    if not util.exists(text) then
      util.refuse("--resume %s: there is no such run; use --resume auto or a folder below %s",
                  text, out .. "/" .. recipe)
    end
    local folder = util.by_name(text)
    if not util.exists(folder .. "/config.txt") then
      sys.raise("data", string.format("--resume %s: this is not the folder of a run (it has no "
                .. "config.txt); give the folder that holds checkpoint_last.safetensors", text),
                true)
    end
    return folder, {}
  end
  return resume_auto(out, recipe)
end

-- Returns a function that hashes a case anonymously: the first 10 digits of a hash keyed with a
-- secret that stays in this folder of runs. base: the folder above the runs.
function M.hasher(base)
  local path = base .. "/.key"
  if not util.exists(path) then
    sys.mkdir(base)
    sys.write(path, core.entropy(), true)
  end
  local secret = util.read_file(path)
  if #secret ~= 16 then fail("data", "%s: must hold 16 bytes, got %d", path, #secret) end
  return function(key) return core.keyed_hash(secret, key):sub(1, 10) end
end

-- The folder above a run's folder.
function M.base(folder)
  return folder:match("^(.+)/[^/]*$") or (folder:sub(1, 1) == "/" and "/" or ".")
end

-- The field of a CSV text that begins at `at`, quoted or not, and the start of the next one; keys
-- of cases may hold any text, including line breaks.
local function csv_field(text, at)
  if text:sub(at, at) ~= '"' then
    local field, next_at = text:match("^([^,\n]*)()", at)
    return field, next_at
  end
  local to = at + 1
  while text:sub(to, to) ~= '"' or text:sub(to + 1, to + 1) == '"' do
    if to > #text then return text:sub(at + 1), to end
    to = to + (text:sub(to, to) == '"' and 2 or 1)
  end
  return text:sub(at + 1, to - 1):gsub('""', '"'), to + 1
end

local case_columns = { "case", "key", "patient", "part", "image" }

-- The rows of a run's cases.csv as given to write_cases, in order; empty if the file is missing.
-- Older runs have no column `image`.
function M.read_cases(folder)
  local rows, path = {}, folder .. "/cases.csv"
  if not util.exists(path) then return rows end
  local text = util.read_file(path)
  local at = (text:find("\n", 1, true) or #text) + 1
  while at <= #text do
    local row, i = {}, 0
    repeat
      i = i + 1
      row[case_columns[i] or i], at = csv_field(text, at)
      local more = text:sub(at, at) == ","
      at = at + 1
    until not more
    if row.part then rows[#rows + 1] = row end -- else the row was not written by this program
  end
  return rows
end

-- Writes a table that only the owner may read.
local function write_private(path, columns, rows)
  local lines = { table.concat(columns, ",") }
  for _, row in ipairs(rows) do
    local cells = {}
    for i, name in ipairs(columns) do
      local quoted = name == "key" or name == "patient" or name == "reason"
      cells[i] = quoted and '"' .. row[name]:gsub('"', '""') .. '"' or row[name]
    end
    lines[#lines + 1] = table.concat(cells, ",")
  end
  sys.write(path, table.concat(lines, "\n") .. "\n", true)
end

-- cases.csv: the identity of each case. `image` is a hash of the image's voxels, the same under any
-- name.
function M.write_cases(folder, rows)
  write_private(folder .. "/cases.csv", case_columns, rows)
end

-- left_out.csv: the cases that skip_bad left out, and why.
function M.write_left_out(folder, rows)
  write_private(folder .. "/left_out.csv", { "case", "key", "patient", "part", "reason" }, rows)
end

-- The lines "key = value" of a config.txt as a table of texts.
function M.values(text)
  local out = {}
  for line in text:gmatch("[^\n]+") do
    local k, v = line:match("^([%w_]+) = (.*)$")
    if k then out[k] = v end
  end
  return out
end

return M
