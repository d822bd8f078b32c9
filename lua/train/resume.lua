-- resume.lua -- checks that a resumed run is the same run. Scripts, data and folders may have
-- changed since; a change that would give other numbers is refused.

local aliases = require "seg.aliases"
local core = require "seg.core"
local config = require "seg.recipe.config"
local ranks = require "seg.train.ranks"
local recipes = require "seg.recipe.recipe"
local run_folder = require "seg.report.run"
local show = require "seg.show"
local state = require "seg.train.state"
local util = require "seg.util"

local fail = util.fail
local M = {}

-- The rows of cases.csv: all cases of the run, of `sets` = { {part=, d=}, ... }. A case that
-- several phases have in one part has one row.
function M.case_rows(sets, hash)
  local rows, seen = {}, {}
  for _, set in ipairs(sets) do
    local pipeline = set.d.pipeline
    for i, c in ipairs(pipeline:cases()) do
      local id = set.part .. " " .. c.key
      if not seen[id] then
        rows[#rows + 1] = { case = hash(c.key), key = c.key, patient = c.patient, part = set.part,
                            image = pipeline:facts(i).image }
      end
      seen[id] = true
    end
  end
  return rows
end

-- The rows of left_out.csv: the cases that skip_bad left out, and their number in each part, as
-- "train 2, test 1"; nil if there are none.
function M.left_out(sets, hash)
  local rows, counts = {}, {}
  for _, set in ipairs(sets) do
    local bad = set.d.pipeline:bad()
    if #bad > 0 then counts[#counts + 1] = set.part .. " " .. #bad end
    for _, b in ipairs(bad) do
      rows[#rows + 1] = { case = hash(b.key), key = b.key, patient = b.patient, part = set.part,
                          reason = b.reason }
    end
  end
  return rows, rows[1] and table.concat(counts, ", ")
end

-- Whether the learning rates of a schedule differ if a run of `was` epochs has `is` epochs. A
-- schedule that depends on its memory (plateau) does not use the number of epochs.
local function spans(r, was, is)
  local function rate(epoch, epochs)
    local ok, lr = pcall(r.schedule.rate, recipes.lr(r), epoch, epochs,
                         { step = epoch, steps = epochs })
    return ok and lr
  end
  for epoch = 1, math.min(was, is) do
    if rate(epoch, was) ~= rate(epoch, is) then return true end
  end
  return false
end

-- Prints a note if the run continues for more epochs than it began with and its schedule spans all
-- epochs: its rates then change.
function M.say_epochs(run)
  local saved = "\n" .. aliases.config(util.read_file(run.folder .. "/config.txt"))
  local was = saved:match("\nepochs = (%d+)\n")
  local is, name = config.values.epochs, run.recipe.schedule.name
  was = tonumber(was)
  if was and was ~= is and spans(run.recipe, was, is) then
    show.line("note: %d epochs, the run began with %d; schedule %s uses the new number", is, was,
              name)
  end
end

-- Finds the phase of a checkpoint: its recipe and its first epoch.
function M.find_phase(run, meta)
  local s = run.state
  s.phase, s.first = math.tointeger(tonumber(meta.phase or 1)),
                     math.tointeger(tonumber(meta.first or 0))
  run.recipe = s.phase and run.phases[s.phase]
  if not run.recipe or (meta.phase ~= nil) ~= (#run.phases > 1) then
    fail("usage", "%s is in phase %s, and this script has %s; start a new run, or restore the "
         .. "script (%s/recipe.lua)", run.folder, meta.phase or "1 of 1",
         util.plural(#run.phases, "phase"), run.folder)
  end
end

-- Checks that the run has the same network, preprocessing, options and cases. Other changes of the
-- script are left to the user.
function M.check_same(run, meta)
  local now, start = state.metadata(run), "start a new run, or restore the script ("
    .. run.folder .. "/recipe.lua)"
  if meta.recipe and meta.recipe ~= now.recipe then
    fail("usage", "%s is a run of %s, not of %s", run.folder, meta.recipe, now.recipe)
  end
  config.check_declared()
  local key, was, is = config.differs(meta.config or "")
  if key then
    fail("usage", "%s is %s, the run that is resumed has %s; %s", key, is, was, start)
  end
  for field, what in pairs { graph = "network", preprocessing = "preparation of the data" } do
    if meta[field] and meta[field] ~= now[field] then
      fail("usage", "the %s of this script differs from the resumed run; %s", what, start)
    end
  end
  local was_average, is_average = meta.average or "none", now.average or "none"
  if was_average ~= is_average then
    fail("usage", "the average of the weights is %s (ema, swa of seg.recipe), the run that is "
         .. "resumed has %s; %s", is_average, was_average, start)
  end
  local was_ranks, is_ranks = meta.ranks or "1", ranks.text() or "1"
  if was_ranks ~= is_ranks then
    local function say(text)
      return (text:gsub(" own_norms", " with norms of their own"))
    end
    if not config.line.flags.other_ranks then
      local count, own = was_ranks:match("^(%d+)(.*)$")
      util.refuse("the run that is resumed had ranks %s, this has %s: sums over ranks are taken in "
                  .. "another order, so the last bits of its numbers would differ from an "
                  .. "uninterrupted run; --ranks %s%s, or --other_ranks to continue anyway",
                  say(was_ranks), say(is_ranks), count, own ~= "" and " --sync_norm false"
                  or " --sync_norm true")
    end
    show.warn("ranks were %s and are %s: the numbers differ from an uninterrupted run",
              say(was_ranks), say(is_ranks))
  end
  if meta.recipe_text and meta.recipe_text ~= now.recipe_text then
    show.warn("the script has changed since the run began; it had %s/recipe.lua", run.folder)
  end
end

-- Checks that all ranks train the same network, with the same options and cases, from the same
-- weights. Each rank reads its own files, possibly on its own machine.
function M.same_everywhere(run, rows)
  if ranks.count == 1 then return end
  local now, cases = state.metadata(run), {}
  for i, row in ipairs(rows) do
    cases[i] = table.concat({ row.part, row.key, row.patient, row.image or "" }, "\0")
  end
  for _, e in ipairs {
    { "another program", core.version .. core.build, "install one version on all machines" },
    { "other numbers", now.config, "give all ranks the same command line" },
    { "another network", now.graph, "give all ranks the same script" },
    { "other preparation of the data", now.preprocessing, "give all ranks the same script" },
    { "other cases", run.hash(table.concat(cases, "\1")), "give all ranks the same data" },
    { "other weights", tostring(run.session:digest()), "give all ranks the same --weights" } } do
    ranks.same(table.unpack(e))
  end
end

-- Checks that the cases are the same: a case that moved between parts would be tested after it was
-- trained on, and so would a renamed file.
function M.check_cases(run, rows)
  -- by key, then part: slabs of slices put one case into all three parts
  local was, gone, found = {}, {}, 0
  for _, row in ipairs(run_folder.read_cases(run.folder)) do
    was[row.key] = was[row.key] or {}
    was[row.key][row.part], gone[row.key] = row.image or "", row.case
  end
  for _, row in ipairs(rows) do
    local parts = was[row.key]
    if parts then found, gone[row.key] = found + 1, nil end
    if parts and not parts[row.part] then
      fail("data", "case %s (%s) was in %s and is in %s now: the data differs from the resumed "
           .. "run; start a new run", row.case, row.key, next(parts), row.part)
    elseif parts and parts[row.part] ~= "" and parts[row.part] ~= row.image then
      fail("data", "case %s (%s) has another image than when the run began; give its file back, or "
           .. "start a new run", row.case, row.key)
    end
  end
  if next(was) == nil then return end
  if found == 0 then
    show.warn("%s/cases.csv names other cases; this run cannot be compared with its data",
              run.folder)
  elseif next(gone) or found < #rows then
    local _, case = next(gone)
    fail("data", "%s: the data differs from the resumed run; cases.csv there lists its cases; "
         .. "start a new run", case and "case " .. case .. " is missing"
         or util.plural(#rows - found, "case is new", "cases are new"))
  end
end

return M
