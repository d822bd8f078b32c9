-- compare.lua -- segengine compare: the differences between runs, and their effect on the results.
--
--   segengine compare RUN RUN ... [--html FILE] [--json]
--
-- Three answers: the differences in recipe, options, data and program; the final results next to
-- each other; and for the cases that two runs share the paired difference with its confidence
-- interval. It says more than two means with their intervals, because the difficulty of a case
-- cancels. Cases are equal if their images are, whatever their names. A RUN may be a
-- cross-validation, with the cases of all folds.

local core = require "seg.core"
local metric = require "seg.evaluate.metric"
local run_facts = require "seg.report.run_facts"
local run_folder = require "seg.report.run"
local series_facts = require "seg.report.series_facts"
local show = require "seg.show"
local util = require "seg.util"
local words = require "seg.args"

local M = {}

-- Options in config.txt that are locations or limits, not settings.
local hidden = { data = true, out = true, phantom = true, cache_file = true, on_finish = true,
                 on_nan = true, on_stall = true, steps = true }

-- Reads a folder to compare, a run or all folds together; raises for any other folder.
local function read_one(path)
  if util.exists(path) and run_facts.is_run(path) then return run_facts.read(path) end
  local s = util.exists(path) and series_facts.read(path)
  if not s then
    util.refuse("compare: %s is not the folder of a run (it has no config.txt and recipe.lua)",
                path)
  elseif s.kind ~= "folds" then
    util.refuse("compare: %s is a series (%s); give runs of it, as %s/%s, or a cross-validation "
                .. "(folds)", path, s.kind, s.path, s.members[1] or "NAME")
  elseif s.state ~= "finished" then
    util.refuse("compare: the folds of %s are not all done (%d of its runs are)", path, s.finished)
  end
  return series_facts.as_run(s)
end

-- Reads the runs and gives each a unique label: its number if all are of one recipe.
local function read_runs(paths)
  local list, recipes, labels = {}, {}, {}
  for i, path in ipairs(paths) do
    list[i] = read_one(path)
    recipes[list[i].recipe] = true
  end
  local one = next(recipes, (next(recipes))) == nil
  for _, f in ipairs(list) do
    local label = one and f.name:match("[^/]+$") or f.name
    labels[label] = (labels[label] or 0) + 1
    f.label = labels[label] > 1 and label .. "#" .. labels[label] or label
  end
  return list
end

-- Differences ---------------------------------------------------------------------

-- The lines of `a` that `b` lacks and the reverse, in order: "- x", "+ y". By the longest common
-- subsequence.
function M.diff(a, b)
  local x, y, long = {}, {}, {}
  for line in (a .. "\n"):gmatch("(.-)\n") do x[#x + 1] = line end
  for line in (b .. "\n"):gmatch("(.-)\n") do y[#y + 1] = line end
  for i = #x + 1, 1, -1 do
    long[i] = {}
    for j = #y + 1, 1, -1 do
      long[i][j] = (i > #x or j > #y) and 0 or x[i] == y[j] and long[i + 1][j + 1] + 1
        or math.max(long[i + 1][j], long[i][j + 1])
    end
  end
  local out, i, j = {}, 1, 1
  while i <= #x or j <= #y do
    if i <= #x and j <= #y and x[i] == y[j] then
      i, j = i + 1, j + 1
    elseif j > #y or (i <= #x and long[i + 1][j] >= long[i][j + 1]) then
      out[#out + 1], i = "- " .. x[i], i + 1
    else
      out[#out + 1], j = "+ " .. y[j], j + 1
    end
  end
  return out
end

local function short(hash) return hash and tostring(hash):sub(1, 12) or nil end

-- The compared properties: { name, function of the run }.
local function questions(runs)
  local list = {
    { "recipe", function(f)
      local lines = M.diff(runs[1].text, f.text)
      return #lines == 0 and "as the first" or util.plural(#lines, "line differs", "lines differ")
    end, first = "the first" },
  }
  local function add(what, f)
    list[#list + 1] = { what, function(run) return run.manifest and f(run.manifest) or nil end }
  end
  add("network", function(m)
    return m.network and string.format("%s parameters, %s", util.thousands(m.network.parameters),
                                       short(m.network.sha256))
  end)
  add("preparation", function(m) return short(m.preparation) end)
  for _, part in ipairs { "train", "valid", "test" } do
    add("images of " .. part, function(m)
      local p = m.data and m.data[part]
      return p and util.plural(p.cases, "case") .. ", " .. short(p.sha256)
    end)
  end
  add("program", function(m) return m.program.version .. ", " .. short(m.program.sha256) end)
  add("device", function(m)
    local s = m.sessions[#m.sessions]
    return s.device .. ", " .. s.isa
  end)
  local keys = {}
  for _, f in ipairs(runs) do for key in pairs(f.config) do keys[key] = true end end
  for _, key in ipairs(util.sorted_keys(keys)) do
    if not hidden[key] then
      list[#list + 1] = { "--" .. key, function(f) return f.config[key] end }
    end
  end
  return list
end

-- { { name, value of each run }, ... } of the properties that differ; "-" for a run without the
-- property.
local function differences(runs)
  local out = {}
  for _, q in ipairs(questions(runs)) do
    local row, same = { q[1] }, true
    for i, f in ipairs(runs) do
      row[i + 1] = i == 1 and q.first or q[2](f) or "-"
      same = same and (q[2](f) or "-") == (q[2](runs[1]) or "-")
    end
    if not same then out[#out + 1] = row end
  end
  return out
end

-- The results -----------------------------------------------------------------------

-- The values of the cases of a part by the identity of the image: { id = { case=, metric = value }
-- }.
local function cases_of(f, part)
  local id, out = {}, {}
  for _, folder in ipairs(f.folders or { f.path }) do
    for _, row in ipairs(run_folder.read_cases(folder)) do
      if row.part == part then
        id[row.case] = row.image and row.image ~= "" and row.image or row.key
      end
    end
  end
  for case, values in pairs(f.summary[part].cases or {}) do
    out[id[case] or case] = { case = case, values = values }
  end
  return out
end

-- The final metrics of the runs: { { name, part, { mean=, low=, high=, n= } or false of each run },
-- ... }.
local function results(runs)
  local names, out = {}, {}
  for _, f in ipairs(runs) do
    local part, of = run_facts.result(f)
    f.part = part
    for name in pairs(of and of.metrics or {}) do names[name .. "\0" .. part] = { name, part } end
  end
  for _, key in ipairs(util.sorted_keys(names)) do
    local name, part = table.unpack(names[key])
    local row = { name = name, part = part, runs = {} }
    for i, f in ipairs(runs) do
      row.runs[i] = f.part == part and f.summary[part].metrics[name] or false
    end
    out[#out + 1] = row
  end
  return out
end

-- Compares run i with the first, metric by metric, over the cases that both measured in the same
-- part: { metric=, part=, n=, mean=, low=, high=, higher=, cases = { {case=, first=, other=,
-- difference=}, ... } }, sorted by difference.
local function paired(runs, i)
  local a, b, out = runs[1], runs[i], {}
  if not a.part or a.part ~= b.part then return out end
  local in_a, in_b = cases_of(a, a.part), cases_of(b, b.part)
  for _, name in ipairs(util.sorted_keys(a.summary[a.part].metrics)) do
    local list, rows, higher = {}, {}, 0
    for _, id in ipairs(util.sorted_keys(in_a)) do
      local x, y = in_a[id].values[name], in_b[id] and in_b[id].values[name]
      if math.type(x) and math.type(y) then
        list[#list + 1] = y - x
        rows[#rows + 1] = { case = in_a[id].case, first = x, other = y, difference = y - x }
        if y > x then higher = higher + 1 end
      end
    end
    if #list > 0 then
      table.sort(rows, function(p, q)
        return p.difference == q.difference and p.case < q.case or p.difference < q.difference
      end)
      local s = metric.summary(list)
      out[#out + 1] = { metric = name, part = a.part, n = s.n, mean = s.mean, low = s.low,
                        high = s.high, higher = higher, cases = rows }
    end
  end
  return out
end

-- The command -------------------------------------------------------------------------

-- "0.9123 (0.8801 .. 0.9345)"
function M.interval(m, format)
  if not m or not m.mean then return "-" end
  format = format or "%.4f"
  local text = string.format(format, m.mean)
  return m.low and string.format("%s (" .. format .. " .. " .. format .. ")", text, m.low, m.high)
    or text
end

-- A sentence about a paired difference.
function M.verdict(p)
  if not p.low then return "too few cases to tell" end
  if p.low <= 0 and p.high >= 0 then return "the interval holds 0: no difference is shown" end
  return p.mean > 0 and "the interval is above 0" or "the interval is below 0"
end

local function print_text(c)
  local rows = { { "run", "state", "epochs", "best", "an epoch" } }
  for i, f in ipairs(c.runs) do
    rows[i + 1] = { f.label .. "  " .. f.path, f.state, f.epoch .. " of " .. f.epochs,
                    run_facts.best_text(f) or "-",
                    f.epoch_s and util.duration(f.epoch_s) or "-" }
  end
  print(show.table(rows))
  local head = { "" }
  for i, f in ipairs(c.runs) do head[i + 1] = f.label end
  print("\nwhat differs")
  print(#c.differences > 0 and show.table { head, table.unpack(c.differences) } or "nothing")
  for i, lines in pairs(c.recipes) do
    if #lines > 0 and #lines <= 12 then
      print(string.format("\nthe recipe of %s (+) compared with the recipe of %s (-)",
                          c.runs[i].label,
                          c.runs[1].label))
      print(table.concat(lines, "\n"))
    end
  end
  if #c.results == 0 then
    print("\nno results yet: a run measures its test set when it is done")
    return
  end
  rows = { head }
  for _, r in ipairs(c.results) do
    local row = { r.name .. ", " .. r.part }
    for i, m in ipairs(r.runs) do row[i + 1] = M.interval(m) end
    rows[#rows + 1] = row
  end
  print("\nresults: mean over cases, 95 % interval")
  print(show.table(rows))
  rows = { { "difference", "cases", "mean", "higher in", "" } }
  for i, list in pairs(c.paired) do
    for _, p in ipairs(list) do
      rows[#rows + 1] = { string.format("%s, %s - %s", p.metric, c.runs[i].label, c.runs[1].label),
                          p.n, M.interval(p, "%+.4f"), string.format("%d of %d", p.higher, p.n),
                          M.verdict(p) }
    end
  end
  print("\ncase by case, of the cases that both have")
  print(#rows > 1 and show.table(rows) or "they share none")
end

-- The record that `--json` prints.
local function as_json(c)
  local out = { runs = {}, differences = {}, results = {}, paired = {} }
  for i, f in ipairs(c.runs) do
    out.runs[i] = { run = f.path, label = f.label, state = f.state, epoch = f.epoch,
                    best = f.best and f.best.value, best_of = f.best and f.best.name }
  end
  for i, row in ipairs(c.differences) do
    out.differences[i] = { what = row[1], runs = { table.unpack(row, 2) } }
  end
  for i, r in ipairs(c.results) do
    out.results[i] = { metric = r.name, part = r.part, runs = {} }
    for k, m in ipairs(r.runs) do out.results[i].runs[k] = m or {} end
  end
  for i, list in pairs(c.paired) do
    for _, p in ipairs(list) do
      p.run, p.against = c.runs[i].label, c.runs[1].label
      out.paired[#out.paired + 1] = p
    end
  end
  return util.json(out)
end

-- Runs the command with args, "compare" and its words. -> exit code
function M.command(args)
  local o, paths = words.parse(args, { html = "FILE", json = false },
                               "RUN RUN ..., --html FILE and --json", true)
  if #paths < 2 then util.refuse("compare needs two runs or more, got %d", #paths) end
  local c = { runs = read_runs(paths), paired = {}, recipes = {} }
  c.differences, c.results = differences(c.runs), results(c.runs)
  for i = 2, #c.runs do
    c.paired[i], c.recipes[i] = paired(c.runs, i), M.diff(c.runs[1].text, c.runs[i].text)
  end
  if o.html then
    core.sys.write(o.html, require("seg.report.compare_page").html(c))
    show.line("page: %s", o.html)
  end
  if o.json then print(as_json(c)) else print_text(c) end
  return 0
end

return M
