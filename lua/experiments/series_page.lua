-- series_page.lua -- the page of a cross-validation or of several seeds: the runs' curves in one
-- chart, the result of each, mean and interval.
--
-- Cases do not appear; runs are named by their fold or seed.

local core = require "seg.core"
local compare_page = require "seg.report.compare_page"
local page = require "seg.report.page"
local picture = require "seg.report.picture"
local run_facts = require "seg.report.run_facts"
local sheet = require "seg.report.sheet"
local util = require "seg.util"

local text = page.text
local M = {}

-- The results of a series by a metric, in the words of its kind: values of the runs, the mean with
-- an interval, and a text about both.
local function seeds_of(m)
  return { values = m.by_seed, mean = m.mean, sd = m.sd, low = m.low, high = m.high,
           of = "mean over seeds, 95 % interval by Student's t" }
end

local function folds_of(m, patients)
  return { values = m.by_fold, mean = m.over_folds.mean, sd = m.over_folds.sd,
           low = m.low, high = m.high, whole = m.n > 0 and m.mean,
           of = m.n > 0 and string.format("mean over %s, each by the network that did not "
                                          .. "train with it, 95 %% interval by bootstrap over %s",
                                          util.plural(m.n, "case"),
                                          util.plural(patients, "patient"))
             or "mean over folds" }
end

-- The runs on the axis of a metric, in the colours of their curves; the mean and its interval.
-- labels: of the runs.
local function dots(v, labels)
  local titles, colors = {}, {}
  for i, x in ipairs(v.values) do
    titles[i] = labels[i] .. ": " .. util.fixed(x)
    colors[i] = compare_page.color_of(i)
  end
  return page.dots { values = v.values, titles = titles, colors = colors,
                     mean = v.whole or v.mean, low = v.low, high = v.high, format = "%.4g",
                     about = "the runs, their mean and its interval" }
end

-- A table with a row for each run, then the combined result.
local function result_table(runs, labels, names, results)
  local head, rows = { "", "epochs", "best epoch", table.unpack(names) }, {}
  for i, run in ipairs(runs) do
    rows[i] = { labels[i], tostring(run.epochs or "-"), tostring(run.best_epoch or "-") }
    for k, name in ipairs(names) do
      rows[i][k + 3] = util.fixed(results[name].values[i])
    end
  end
  for _, what in ipairs { "mean", "sd" } do
    local row = { what, "", "" }
    for k, name in ipairs(names) do
      row[k + 3] = results[name][what] and util.fixed(results[name][what]) or "-"
    end
    rows[#rows + 1] = row
  end
  return page.table(head, rows, 2)
end

-- Adds to each panel the mean of its curves, for epochs in which all runs have a value.
local function add_means(panels, count)
  for _, panel in ipairs(panels) do
    local values, some = {}, false
    for e = 1, panel.epochs do
      local sum, n = 0, 0
      for _, curve in ipairs(panel.curves) do
        if curve.values[e] then sum, n = sum + curve.values[e], n + 1 end
      end
      values[e] = n == count and n > 1 and sum / n
      some = some or values[e]
    end
    if some then
      panel.curves[#panel.curves + 1] = { name = "mean", values = values, width = 2.5,
                                          color = sheet.colors.ink }
    end
  end
  return panels
end

-- The page of a series in `folder` with the summary `s`.
function M.html(folder, s)
  local runs, labels, facts, results = s.runs, {}, {}, {}
  for i, run in ipairs(runs) do
    labels[i] = (run.run:gsub("_", " "))
    facts[i] = run_facts.read(folder .. "/" .. run.run)
    facts[i].label = labels[i]
  end
  local names = util.sorted_keys(s.metrics)
  for _, name in ipairs(names) do
    results[name] = s.kind == "folds" and folds_of(s.metrics[name], s.patients)
      or seeds_of(s.metrics[name])
  end
  local title = s.kind == "folds" and string.format("%d folds of %s", #runs, s.recipe)
    or string.format("%d seeds of %s", #runs, s.recipe)
  local out = { page.open(title, page.SECTIONS), "<h1>" .. text(title) .. "</h1>" }
  local function add(fmt, ...) out[#out + 1] = string.format(fmt, ...) end
  if s.kind == "folds" then
    local cases = #util.sorted_keys(s.cases)
    add('<p class="soft">%s of %s, each validated in one fold, no patient in two</p>',
        util.plural(cases, "case"), util.plural(s.patients, "patient"))
  else
    add('<p class="soft">measured on %s; %s</p>', text(s.part or "nothing"),
        s.same_parts and "the same cases in every run"
          or '<span class="warning">the seeds have other cases in their parts</span>')
  end
  for _, name in ipairs(names) do
    local v = results[name]
    local centre = v.whole or v.mean
    add("<h3>%s %s</h3>", text(name), centre and util.fixed(centre) or "-")
    add('<p class="soft">%s%s</p>', text(v.of),
        v.low and string.format(": %s to %s", util.fixed(v.low), util.fixed(v.high)) or "")
    out[#out + 1] = dots(v, labels)
  end
  add("<h2>each run</h2>%s", result_table(runs, labels, names, results))
  out[#out + 1] = "<h2>curves</h2>"
  local panels = add_means(compare_page.panels { runs = facts }, #runs)
  if #panels > 0 then out[#out + 1] = picture.sheet(panels, "curves of the runs by epoch") end
  add("<footer>%s Research use only, not a medical device.</footer>", s.kind == "folds"
      and "The spread over folds has no interval: their training sets overlap. Each fold's best "
          .. "epoch was chosen on the cases that it was then measured on."
      or "The interval is about other seeds, not about other patients.")
  out[#out + 1] = page.close()
  return table.concat(out, "\n")
end

-- Writes series.html of a finished series.
function M.write(folder, s)
  core.sys.write(folder .. "/series.html", M.html(folder, s))
end

return M
