-- search.lua -- seg.search: searches the best options of a recipe.
--
--   seg.search { space = { lr = { 1e-5, 1e-2, log = true }, base = { 16, 32, 64 } },
--                trials = 20, method = "tpe", metric = { "dice", "max" } }
--
-- next to seg.recipe declares the space of `segengine SCRIPT.lua search`: keys of the config and
-- their ranges. Each trial is a run in the folder of the search (series.lua), judged on valid; the
-- test part decides nothing. With objective = f a function is searched, at once.

local config = require "seg.recipe.config"
local core = require "seg.core"
local epoch_table = require "seg.report.epoch_table"
local metrics = require "seg.evaluate.metric_base"
local series = require "seg.experiments.series"
local show = require "seg.show"
local studies = require "seg.experiments.study"
local suggest = require "seg.experiments.suggest"
local util = require "seg.util"

local fail = util.fail
local M = {}

local SHOWN = 10 -- trials in the printed table

-- The search that the script has declared, or nil.
M.current = nil

-- A function ------------------------------------------------------------------------

local function better_word(o) return o.metric[2] == "max" and "highest" or "lowest" end

-- Searches the function o.objective. -> { values=, value=, trial=, trials = { record, ... } };
-- values and value are nil if no trial has a value.
local function of_function(o)
  if o.method == "halving" then
    fail("usage", "seg.search: halving is for a recipe, whose trials have epochs; use tpe or "
         .. "random with an objective")
  end
  o.metric, o.seed = o.metric or { "objective", "min" }, o.seed or 0
  local study = studies.open(o, o.study)
  for trial = 1, studies.trials(o) do
    if not study:find(trial) then
      local values = {}
      for k, v in pairs(study:suggest(trial)) do values[k] = v end
      local ok, value, why = pcall(o.objective, values)
      local number = ok and math.type(value) and value == value and math.abs(value) < math.huge
      study:add { trial = trial, state = number and "done" or "failed",
                  value = number and value or nil,
                  reason = not number and tostring(not ok and value or why or "gave "
                                                   .. tostring(value)) or nil }
    end
  end
  local best = study:best()
  return { trials = study.records, trial = best and best.trial, value = best and best.value,
           values = best and study:suggest(best.trial) }
end

-- seg.search { ... }
function M.search(o)
  o = studies.options(o)
  if o.objective then return of_function(o) end
  if M.current then fail("usage", "seg.search was called before; a script declares one search") end
  M.current = o
end

-- A recipe ------------------------------------------------------------------------

-- Fills in the metric and the seed of a recipe's search if seg.search does not set them.
local function settle(o, r)
  o.metric = o.metric or r.best or { "loss", "min" }
  o.seed = o.seed or config.values.seed
  if not r.valid then fail("usage", "seg.search: the recipe has no valid set to judge by") end
  local names = metrics.by_epoch(r)
  names[#names + 1] = "loss"
  table.sort(names)
  local known = false
  for _, name in ipairs(names) do known = known or name == o.metric[1] end
  if not known then
    fail("usage", 'seg.search: metric "%s" is not measured after each epoch; %s', o.metric[1],
         util.suggest(o.metric[1], names))
  end
  for _, p in ipairs(o.space) do
    if o.method == "halving" and p.key == "epochs" then
      fail("usage", "seg.search: halving gives epochs itself; leave them out of the space")
    end
    for _, given in ipairs(config.line.options) do
      if given[1] == p.key then
        util.refuse("--%s: the search tries values of it; leave it out here or there", p.key)
      end
    end
  end
  if config.values.until_epoch > 0 then
    util.refuse("--until_epoch: trials of a search have all their epochs")
  end
end

-- The best value of the run in `folder`, and its epoch; nil if it has none.
local function value_of(folder, metric)
  local best, at
  for _, row in ipairs((epoch_table.read(folder))) do
    local v, epoch = tonumber(row["valid_" .. metric[1]]), tonumber(row.epoch)
    local finite = v and v == v and math.abs(v) < math.huge
    if finite
      and (not best or metric[2] == "max" and v > best or metric[2] == "min" and v < best) then
      best, at = v, math.tointeger(epoch)
    end
  end
  return best, at
end

-- The reason why a child process failed: its last error message.
local function reason_of(log, code)
  local said
  for line in (util.exists(log) and util.read_file(log) or ""):gmatch("[^\n]+") do
    said = line:match("^segengine: (.*)") or said
  end
  if code > 128 then return "ended by signal " .. code - 128 end
  return said or "ended with code " .. code
end

local function values_text(values)
  local out = {}
  for i, k in ipairs(util.sorted_keys(values)) do out[i] = k .. " " .. values[k] end
  return table.concat(out, ", ")
end

-- The command-line options for these values (texts).
local function words_of(values)
  local list = {}
  for i, k in ipairs(util.sorted_keys(values)) do list[i] = "--" .. k .. "=" .. values[k] end
  return list
end

-- Trains a trial for `epochs` epochs of all and records the result in the study. -> nil, or the
-- exit code if a signal stopped the search
local function try(s, study, trial, round, epochs, all, label)
  if study:find(trial, round) then return nil end
  local o, name = study.o, string.format("trial_%03d", trial)
  local texts, log = studies.texts(study:suggest(trial)), s.folder .. "/" .. name .. ".log"
  show.line("%s: %s", label, values_text(texts))
  local words = words_of(texts)
  if epochs < all then words[#words + 1] = "--until_epoch=" .. epochs end
  local code, folder = series.train(s, name, words, log)
  local signal = series.stopped(code)
  if signal then return series.say_stopped(s, signal) end
  local record = { trial = trial, round = round, epochs = epochs, run = name }
  if code == 0 or series.is_over(s, code, folder) then
    if epochs >= all and not series.is_over(s, code, folder) then return series.say_stopped(s) end
    record.value, record.epoch = value_of(folder, o.metric)
    record.state = record.value and "done" or "failed"
    record.reason = not record.value and "no finite value of " .. o.metric[1] or nil
    core.sys.remove(log)
  else
    record.state = code == 5 and "diverged" or "failed"
    record.reason = reason_of(log, code)
  end
  study:add(record)
  if record.value then
    show.line("  %s %s, epoch %d", o.metric[1], util.fixed(record.value), record.epoch)
  else
    show.line("  %s: %s", record.state, record.reason)
  end
end

-- Runs all trials of random and tpe, one after the other.
local function one_by_one(s, study, epochs)
  local count = studies.trials(study.o)
  for trial = 1, count do
    local code = try(s, study, trial, nil, epochs, epochs,
                     string.format("trial %d of %d", trial, count))
    if code then return code end
  end
end

-- Successive halving: many trials with few epochs; the best of each round resume with more.
local function halve(s, study, epochs)
  local o, sign = study.o, study.o.metric[2] == "max" and -1 or 1
  local rounds = suggest.rounds(studies.trials(o), o.eta, epochs, math.min(o.least, epochs))
  local list = {}
  for trial = 1, rounds[1].count do list[trial] = trial end
  for k, round in ipairs(rounds) do
    if k > 1 then
      local results = {}
      for i, trial in ipairs(list) do
        local r = study:find(trial, k - 1)
        results[i] = { trial = trial, score = r.value and sign * r.value }
      end
      list = suggest.survivors(results, round.count)
    end
    for i, trial in ipairs(list) do
      local code = try(s, study, trial, k, round.epochs, epochs,
                       string.format("round %d of %d, up to epoch %d, trial %d (%d of %d)", k,
                                     #rounds, round.epochs, trial, i, #list))
      if code then return code end
    end
  end
end

-- The last record of each trial, the latest round first, best first.
local function ranked(study)
  local last, list = {}, {}
  for _, r in ipairs(study.records) do last[r.trial] = r end
  for _, r in pairs(last) do list[#list + 1] = r end
  local up = study.o.metric[2] == "max"
  table.sort(list, function(a, b)
    local x, y = a.value or (up and -math.huge or math.huge), b.value or (up and -math.huge
                                                                          or math.huge)
    if (a.round or 1) ~= (b.round or 1) then return (a.round or 1) > (b.round or 1) end
    if x ~= y then return (x > y) == up end
    return a.trial < b.trial
  end)
  return list
end

local function print_table(study, list)
  local keys, rows, bad = {}, {}, 0
  for i, p in ipairs(study.o.space) do keys[i] = p.key end
  rows[1] = { "trial", study.o.metric[1], "epoch", table.unpack(keys) }
  for _, r in ipairs(list) do
    if not r.value then bad = bad + 1 end
    if #rows <= SHOWN and r.value then
      local row = { tostring(r.trial), util.fixed(r.value), tostring(r.epoch or "-") }
      for i, k in ipairs(keys) do row[i + 3] = r.values[k] end
      rows[#rows + 1] = row
    end
  end
  print(show.table(rows))
  if #list - bad > SHOWN then
    print(string.format("and %d more in study.jsonl", #list - bad - SHOWN))
  end
  if bad > 0 then
    print(string.format("%s without a value: study.jsonl says why", util.plural(bad, "trial")))
  end
end

-- The command search.
function M.command(r, name)
  local o, flags = M.current, config.line.flags
  if not o then
    fail("usage", "search: the script declares no search; write seg.search { space = { lr = { "
         .. "1e-5, 1e-2, log = true } } } next to seg.recipe")
  end
  settle(o, r)
  if flags.trials then
    o.trials = math.tointeger(tonumber(flags.trials))
    if not o.trials or o.trials < 1 then
      util.refuse("--trials takes a whole number of 1 or more, got %s", flags.trials)
    end
  end
  local epochs = 0
  for _, p in ipairs(r.phases) do epochs = epochs + p.epochs end
  local s = series.open("search", name, {})
  local study = studies.open(o, s.folder .. "/study.jsonl", { epochs = epochs })
  for _, p in ipairs(o.space) do show.line("  %s", studies.describe(p)) end
  local run = o.method == "halving" and halve or one_by_one
  local code = run(s, study, epochs)
  if code then return code end
  local best, list = study:best(), ranked(study)
  local line = best and series.command(s, words_of(best.values))
  core.sys.write(s.folder .. "/study.html", require("seg.experiments.study_page").html {
    name = name, o = o, records = study.records, list = list, best = best,
    shown = best and "--" .. table.concat(words_of(best.values), " "):sub(3) })
  if not flags.json then print_table(study, list) end
  if not best then
    fail("failure", "no trial has a value; the first: %s (%s/study.jsonl)",
         study.records[1] and study.records[1].reason or "none was tried", s.folder)
  end
  if not flags.json then
    print(string.format("%s %s: trial %d, %s %s (%s)", better_word(o), o.metric[1], best.trial,
                        o.metric[1], util.fixed(best.value), values_text(best.values)))
    print(line)
    print(string.format("its weights: %s/%s; all trials: %s/study.html", s.folder, best.run,
                        s.folder))
  end
  local trials = {}
  for i, t in ipairs(study.records) do
    trials[i] = { trial = t.trial, round = t.round, epochs = t.epochs, state = t.state,
                  value = t.value, epoch = t.epoch, values = t.values }
  end
  return series.finish(s, { kind = "search", recipe = name, method = o.method,
                            metric = { o.metric[1], o.metric[2] }, seed = o.seed,
                            best = { trial = best.trial, run = best.run, value = best.value,
                                     values = best.values }, trials = trials },
                       "study.html")
end

return M
