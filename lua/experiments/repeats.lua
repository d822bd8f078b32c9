-- repeats.lua -- the same run with several seeds, to measure the effect of chance.
--
--   segengine SCRIPT.lua repeat --seeds 5 [--key value ...]
--
-- A seed decides the initial weights, the order of the samples, their augmentation and dropout. For
-- each metric's mean over cases the mean and standard deviation over seeds are given, and the 95 %
-- interval of the mean by Student's t: seeds are independent. This interval covers other seeds, not
-- other patients, which the interval of each run covers.

local config = require "seg.recipe.config"
local core = require "seg.core"
local run_facts = require "seg.report.run_facts"
local run_folder = require "seg.report.run"
local series = require "seg.experiments.series"
local series_page = require "seg.experiments.series_page"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

local SEEDS = 5 -- default of --seeds

-- The probability of |t| < x with n degrees of freedom, as a finite sum (Abramowitz and Stegun
-- 26.7.3 and 26.7.4).
local function within(x, n)
  local theta = math.atan(x / math.sqrt(n))
  local sine, cosine = math.sin(theta), math.cos(theta)
  local odd = n % 2 == 1
  local term, sum = odd and cosine or 1, 0
  for k = odd and 3 or 2, n, 2 do
    sum = sum + term
    term = term * cosine ^ 2 * (k - 1) / k
  end
  if odd then return 2 / math.pi * (theta + sine * sum) end
  return sine * sum
end

-- The x with a probability of 0.95 for |t| < x.
function M.student(n)
  local lo, hi = 0, 100
  for _ = 1, 60 do
    local middle = (lo + hi) / 2
    if within(middle, n) < 0.95 then lo = middle else hi = middle end
  end
  return (lo + hi) / 2
end

-- Mean, deviation and interval of the values of several seeds.
function M.summary(list)
  local m = series.spread(list)
  if m.sd then
    local half = M.student(m.n - 1) * m.sd / math.sqrt(m.n)
    m.low, m.high = m.mean - half, m.mean + half
  end
  return m
end

-- The seeds of --seeds: a number of seeds from the config's seed on, or a list. saved: the seeds of
-- a resumed series, which stay first.
local function seeds_of(text, first, saved)
  local list = {}
  local function wrong()
    util.refuse("--seeds takes a number of 2 or more, or seeds with commas between them, got %s",
                text)
  end
  if not text and saved then return saved end
  text = text or tostring(SEEDS)
  if text:find(",", 1, true) then
    local seen = {}
    for word in (text .. ","):gmatch("([^,]*),") do
      local seed = math.tointeger(tonumber(word))
      if not seed or seed < 0 or seen[seed] then wrong() end
      list[#list + 1], seen[seed] = seed, true
    end
  else
    local count = math.tointeger(tonumber(text))
    if not count or count < 2 or count > 10000 then wrong() end
    for i = 1, count do list[i] = first + i - 1 end
  end
  for i, seed in ipairs(saved or {}) do
    if list[i] ~= seed then
      util.refuse("--seeds %s: the series began with %s; give these first", text,
                  table.concat(saved, ","))
    end
  end
  return list
end

-- Whether all runs have the same cases in the same parts; if not, the seed also changed the split.
local function same_parts(members)
  local first
  for _, m in ipairs(members) do
    local list = {}
    for i, row in ipairs(run_folder.read_cases(m.folder)) do list[i] = row.case .. row.part end
    table.sort(list)
    local text = table.concat(list, "\n")
    first = first or text
    if text ~= first then return false end
  end
  return true
end

-- Collects the results of the seeds: part, and by metric the seeds' means with their spread.
local function collect(members)
  local part, metrics, lists = nil, {}, {}
  for i, m in ipairs(members) do
    m.summary = series.summary(m.folder)
    local p, of = run_facts.result { summary = m.summary }
    part = part or p
    for name, v in pairs(p == part and of and of.metrics or {}) do
      lists[name] = lists[name] or { by_seed = {}, of = v }
      lists[name].by_seed[i] = v.mean
    end
  end
  for name, l in pairs(lists) do
    local values = {}
    for i = 1, #members do values[#values + 1] = l.by_seed[i] end
    -- a seed may have no value, for example an AUC with one class only: its position is kept, so
    -- that each value stays with its seed
    local s = M.summary(values)
    for i = 1, #members do l.by_seed[i] = l.by_seed[i] or 0 / 0 end
    s.by_seed, s.better, s.unit, s.kind = l.by_seed, l.of.better, l.of.unit, l.of.kind
    metrics[name] = s
  end
  return part, metrics
end

local function print_table(members, metrics, part)
  local names = util.sorted_keys(metrics)
  local rows = { { "seed", "best epoch", table.unpack(names) } }
  for i, m in ipairs(members) do
    local row = { tostring(m.seed), tostring(m.summary.best_epoch or "-") }
    for k, name in ipairs(names) do
      row[k + 2] = util.fixed(metrics[name].by_seed[i])
    end
    rows[#rows + 1] = row
  end
  print(show.table(rows))
  for _, name in ipairs(names) do
    local m = metrics[name]
    print(m.n == 0 and string.format("%s of %s: of no seed", name, part)
          or string.format("%s of %s over %s: mean %s, sd %s, 95 %% interval of the mean %s .. %s",
                           name, part, util.plural(m.n, "seed"), util.fixed(m.mean),
                           util.fixed(m.sd or 0 / 0), util.fixed(m.low or 0 / 0),
                           util.fixed(m.high or 0 / 0)))
  end
end

-- The command repeat.
function M.command(_, name)
  local v, line = config.ensure(), config.line
  local was = line.series and series.read(line.series)
  local seeds = seeds_of(line.flags.seeds, was and was.seeds[1] or v.seed, was and was.seeds)
  local s = series.open("repeat", name, { seeds = seeds })
  local members = {}
  for i, seed in ipairs(seeds) do
    members[i] = { name = "seed_" .. seed, seed = seed, words = { "--seed=" .. seed } }
  end
  local code = series.train_all(s, members)
  if code then return code end
  local part, metrics = collect(members)
  local same, runs = same_parts(members), {}
  if not same then
    show.warn("the seeds have other cases in train, valid or test: the spread is that of the split "
              .. "too; keep its seed apart from --seed")
  end
  local names = util.sorted_keys(metrics)
  local lines = { table.concat({ "seed", table.unpack(names) }, ",") }
  for i, m in ipairs(members) do
    local cells = { tostring(m.seed) }
    for k, n in ipairs(names) do
      local mean = metrics[n].by_seed[i]
      cells[k + 1] = mean == mean and util.number(mean) or "" -- as in the tables of cases
    end
    lines[i + 1] = table.concat(cells, ",")
    runs[i] = { run = m.name, seed = m.seed, epochs = m.summary.epochs, best = m.summary.best,
                best_epoch = m.summary.best_epoch }
  end
  core.sys.write(s.folder .. "/seeds.csv", table.concat(lines, "\n") .. "\n")
  if not line.flags.json then print_table(members, metrics, part) end
  local summary = { kind = "repeat", recipe = name, seeds = seeds, part = part, metrics = metrics,
                    same_parts = same, runs = runs }
  series_page.write(s.folder, summary)
  return series.finish(s, summary, "series.html")
end

return M
