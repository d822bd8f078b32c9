-- folds.lua -- cross-validation: trains a recipe with kfold once for each fold.
--
--   segengine SCRIPT.lua folds [--key value ...]
--
-- Every case is measured once, by the network that was not trained on it (out of fold). The mean
-- over the cases has a bootstrap interval over patients. The means of the folds have a spread, but
-- no interval: their training sets overlap, so they are not independent, and no unbiased estimate
-- of their variance exists (Bengio and Grandvalet, JMLR 5, 2004).

local config = require "seg.recipe.config"
local core = require "seg.core"
local metric = require "seg.evaluate.metric"
local run_folder = require "seg.report.run"
local series = require "seg.experiments.series"
local series_page = require "seg.experiments.series_page"
local show = require "seg.show"
local util = require "seg.util"

local fail = util.fail
local M = {}

-- The number of folds in the sets of a recipe; refuses a recipe without folds, and one whose folds
-- could not be measured, before the first is trained.
local function count_of(r)
  local k
  for _, p in ipairs(r.phases) do
    for _, set in ipairs { p.train, p.valid } do
      if set.folds then
        if k and k ~= set.folds then
          fail("usage", "folds: sets of %d and of %d folds in one recipe; give kfold one k", k,
               set.folds)
        end
        k = set.folds
      end
    end
  end
  if not k then
    fail("usage", "folds: no set of this recipe is split by kfold; %s",
         config.values.folds == 0 and "give --folds 5"
         or "write train, valid = cases:kfold { k = 5 }")
  end
  if not r.valid then
    fail("usage", "folds: the recipe has no valid set with these numbers, so no fold could be "
         .. "measured; give seg.recipe the valid set of the split too")
  end
  return k
end

-- The cases of all folds by their hash: { fold=, patient=, key= }. A patient in valid of two folds,
-- or of none, would invalidate the result and is refused. all: false if --quick left cases out.
function M.check(folds, all)
  local cases, patients, known = {}, {}, {}
  for i, rows in ipairs(folds) do
    for _, row in ipairs(rows) do
      if row.part == "valid" then
        local before = patients[row.patient]
        if before and before ~= i then
          fail("data", "patient %s is validated in fold %d and in fold %d: the split has changed "
               .. "between them; start anew", row.case, before, i)
        end
        patients[row.patient] = i
        cases[row.case] = { fold = i, patient = row.patient, key = row.key }
      end
      if row.part ~= "test" then known[row.case] = i end
    end
  end
  for i, rows in ipairs(folds) do
    for _, row in ipairs(rows) do
      if row.part == "train" and patients[row.patient] == i then
        fail("data", "case %s of fold %d is in train, and its patient in valid", row.case, i)
      end
    end
  end
  for case, i in pairs(known) do
    if all and not cases[case] then
      fail("data", "case %s, in train of fold %d, is in valid of no fold: the data has changed "
           .. "between them; start anew", case, i)
    end
  end
  return cases, #util.sorted_keys(patients)
end

-- The results of a fold on its own valid part: from the summary of its run or, if that has a test
-- part instead, measured here.
local function valid_of(m, summary)
  if summary.valid then return summary.valid end
  local path = m.folder .. "/evaluate_valid.json"
  if not util.exists(path) then
    local words = { "--weights=" .. m.folder, "--split=valid", "--quiet" }
    local code = series.tell("evaluate", words)
    if code ~= 0 and not util.exists(path) then return nil, code end
  end
  return series.measured(path)
end

-- Collects the results of the folds: for each metric the values of all cases, in the order of their
-- hashes, with their patients; and each fold's mean.
local function collect(folds, cases)
  local out, names = {}, {}
  for _, f in ipairs(folds) do
    for name in pairs(f.valid.metrics or {}) do names[name] = true end
  end
  local order = util.sorted_keys(cases)
  for _, name in ipairs(util.sorted_keys(names)) do
    local values, owners, means, first = {}, {}, {}, nil
    for _, case in ipairs(order) do
      local of = (folds[cases[case].fold].valid.cases or {})[case]
      if of and of[name] ~= nil and not math.type(of[name]) then
        fail("data", "%s of case %s is not a number in the results of its fold", name, case)
      end
      if of and of[name] then
        values[#values + 1], owners[#owners + 1] = of[name], cases[case].patient
        cases[case][name] = of[name]
      end
    end
    for i, f in ipairs(folds) do
      local m = (f.valid.metrics or {})[name]
      first = first or m
      means[i] = m and m.mean or 0 / 0
    end
    local list = {} -- of folds that have a value
    for _, mean in ipairs(means) do if mean == mean then list[#list + 1] = mean end end
    local m = #values > 0 and metric.summary(values, owners) or { n = 0 }
    m.over_folds, m.by_fold = series.spread(list), means
    m.better, m.unit, m.kind, m.empty = first.better, first.unit, first.kind, first.empty
    out[name] = m
  end
  return out
end

-- The cases as rows of cells, by the main metric, worst first.
local function case_rows(cases, metrics, main)
  local names, order = util.sorted_keys(metrics), util.sorted_keys(cases)
  local up = main and (metrics[main].better or "max") == "max"
  local function key(case)
    local v = main and cases[case][main]
    return v and (up and v or -v) or -math.huge
  end
  table.sort(order, function(a, b)
    if key(a) ~= key(b) then return key(a) < key(b) end
    return a < b
  end)
  local rows = { { "case", "fold", table.unpack(names) } }
  for _, case in ipairs(order) do
    local row = { case, tostring(cases[case].fold) }
    for i, name in ipairs(names) do
      row[i + 2] = cases[case][name] and util.number(cases[case][name]) or ""
    end
    rows[#rows + 1] = row
  end
  return rows
end

-- The rows to print; file: the table of all cases.
local function readable(rows, file)
  local out = {}
  for i, row in ipairs(rows) do
    out[i] = {}
    for k, cell in ipairs(row) do
      out[i][k] = i > 1 and k > 2 and (cell == "" and "-" or util.fixed(tonumber(cell))) or cell
    end
  end
  return show.first(out, file)
end

-- A row for each fold.
local function fold_table(folds, metrics)
  local names = util.sorted_keys(metrics)
  local rows = { { "fold", "cases", "best epoch", table.unpack(names) } }
  for i, f in ipairs(folds) do
    local row = { "fold_" .. i, tostring(f.cases), tostring(f.summary.best_epoch or "-") }
    for k, name in ipairs(names) do
      local m = (f.valid.metrics or {})[name]
      row[k + 3] = m and m.mean and util.fixed(m.mean) or "-"
    end
    rows[#rows + 1] = row
  end
  for _, what in ipairs { "mean", "sd" } do
    local row = { what, "", "" }
    for k, name in ipairs(names) do
      local v = metrics[name].over_folds[what]
      row[k + 3] = v and util.fixed(v) or "-"
    end
    rows[#rows + 1] = row
  end
  return show.table(rows)
end

-- A metric over all cases in a line.
local function line_of(name, m, patients)
  local unit = m.unit and m.unit ~= "" and string.format(" [%s]", m.unit) or ""
  if m.n == 0 then return string.format("%s%s: of no single case", name, unit) end
  return string.format("%s%s per case, out of fold: mean %s, median %s%s, n %d%s", name, unit,
    util.fixed(m.mean), util.fixed(m.median), m.sd and ", sd " .. util.fixed(m.sd) or "", m.n,
    m.low and string.format(", 95 %% interval %.4f .. %.4f over %d patients", m.low, m.high,
                            patients) or "")
end

-- The results of the folds on a test part that all of them share.
local function test_of(folds)
  local out = {}
  for name in pairs(folds[1].summary.test and folds[1].summary.test.metrics or {}) do
    local list = {}
    for _, f in ipairs(folds) do
      local mean = f.summary.test.metrics[name].mean
      if mean and mean == mean then list[#list + 1] = mean end
    end
    if list[1] then out[name] = series.spread(list) end
  end
  return next(out) and out or nil
end

-- The command folds.
function M.command(r, name)
  local v, k = config.ensure(), count_of(r)
  if v.overfit > 0 then util.refuse("--overfit validates on its training samples, which folds "
                                    .. "cannot do; leave it out") end
  for _, o in ipairs(config.line.options) do
    if o[1] == "fold" then util.refuse("--fold: folds trains all of them; leave it out") end
  end
  local s = series.open("folds", name, { k = k })
  if s.was and s.was.k ~= k then
    fail("usage", "%s has %s folds, the script has %d; start anew", s.folder, s.was.k, k)
  end
  local members = {}
  for i = 1, k do members[i] = { name = "fold_" .. i, words = { "--fold=" .. i } } end
  local code = series.train_all(s, members)
  if code then return code end
  local folds, rows = {}, {}
  for i, m in ipairs(members) do
    local f = { summary = series.summary(m.folder), cases = 0 }
    local valid, why = valid_of(m, f.summary)
    f.valid = valid
    if not valid then
      local signal = series.stopped(why)
      if signal then return series.say_stopped(s, signal) end
      fail("failure", "%s cannot be measured on its valid part (code %d)", m.name, why)
    end
    rows[i] = run_folder.read_cases(m.folder)
    for _, row in ipairs(rows[i]) do if row.part == "valid" then f.cases = f.cases + 1 end end
    folds[i] = f
  end
  local cases, patients = M.check(rows, not v.quick)
  local metrics = collect(folds, cases)
  local names = util.sorted_keys(metrics)
  local main = r.best and metrics[r.best[1]] and r.best[1] or names[1]
  local list, lines = case_rows(cases, metrics, main), {}
  for i, row in ipairs(list) do lines[i] = table.concat(row, ",") end
  local file = s.folder .. "/cases_valid.csv"
  core.sys.write(file, table.concat(lines, "\n") .. "\n")
  local by_case, by_fold = {}, {}
  for case, of in pairs(cases) do
    by_case[case] = { fold = of.fold }
    for _, n in ipairs(names) do by_case[case][n] = of[n] end
  end
  for i, f in ipairs(folds) do
    by_fold[i] = { run = members[i].name, cases = f.cases, epochs = f.summary.epochs,
                   best = f.summary.best, best_epoch = f.summary.best_epoch, loss = f.valid.loss }
  end
  local test = test_of(folds)
  if not config.line.flags.json then
    if #names > 0 then print(readable(list, file) .. "\n") end
    print(fold_table(folds, metrics))
    print(string.format("\n%s of %s, each validated in one of %d folds, no patient in two",
                        util.plural(#list - 1, "case"), util.plural(patients, "patient"), k))
    for _, n in ipairs(names) do print(line_of(n, metrics[n], patients)) end
    for _, n in ipairs(util.sorted_keys(test or {})) do
      local m = test[n]
      print(string.format("%s of test: mean over folds %s, sd %s%s", n, util.fixed(m.mean),
                          util.fixed(m.sd or 0 / 0),
                          m.n < k and string.format(" (of %d of %d)", m.n, k) or ""))
    end
    print(string.format("all folds as one network: predict --weights %s --in PATH --out DIR",
                        s.folder))
  end
  local summary = { kind = "folds", recipe = name, k = k, part = "valid", patients = patients,
                    metrics = metrics, cases = by_case, runs = by_fold, test = test }
  series_page.write(s.folder, summary)
  return series.finish(s, summary, "series.html")
end

return M
