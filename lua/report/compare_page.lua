-- compare_page.lua -- the page of `segengine compare`: curves in one chart, differences, results,
-- cases.

local page = require "seg.report.page"
local picture = require "seg.report.picture"
local run_facts = require "seg.report.run_facts"
local sheet = require "seg.report.sheet"
local util = require "seg.util"

local text = page.text
local M = {}

local STYLE = page.SECTIONS .. [[
h1 { font-size: 1.9rem; letter-spacing: -.01em; } .legend span { margin-right: 1.2rem; }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .4em;
  border-radius: 2px; vertical-align: -.05em; }
td { overflow-wrap: anywhere; } summary { cursor: pointer; font-weight: 600; }
]]

local palette = { "blue", "red", "green", "violet", "amber", "teal" }

-- The name of the colour of run i.
function M.color_of(i) return palette[(i - 1) % #palette + 1] end

-- The sort key of a column: losses, metrics by name, the learning rate.
local function rank(name)
  return name:match("loss$") and "1" .. name or name == "lr" and "3" or "2" .. name
end

-- One panel for each column of metrics.csv with values in any run, a curve a run. c.runs: results
-- of run_facts.read, each with its `label`.
function M.panels(c)
  local wanted, list, seen = {}, {}, {}
  for _, f in ipairs(c.runs) do
    for _, name in ipairs(f.columns) do
      local of_interest = name == "train_loss" or name == "lr"
        or name:match("^valid_") and name ~= "valid_s" and not name:match("^valid_slice_")
      if of_interest and not seen[name] then wanted[#wanted + 1], seen[name] = name, true end
    end
  end
  table.sort(wanted, function(a, b) return rank(a) < rank(b) end)
  for _, name in ipairs(wanted) do
    local panel = { title = name:gsub("_", " "), height = name == "lr" and 90 or 190, curves = {},
                    epochs = 0, zero = name == "lr" }
    for i, f in ipairs(c.runs) do
      local values = {}
      for k, row in ipairs(f.rows) do values[k] = tonumber(row[name]) or false end
      panel.epochs = math.max(panel.epochs, #values)
      panel.curves[#panel.curves + 1] = { name = f.label, values = values,
                                          color = sheet.colors[M.color_of(i)],
                                          dash = i > #palette and 5 or nil }
    end
    list[#list + 1] = panel
  end
  return list
end

-- The differences of all cases around 0, their mean and its interval.
local function dots(p)
  local most, values, titles = 1e-9, {}, {}
  for i, case in ipairs(p.cases) do
    most, values[i] = math.max(most, math.abs(case.difference)), case.difference
    titles[i] = string.format("%s %+.4f", case.case, case.difference)
  end
  return page.dots { values = values, titles = titles, lo = -most, hi = most, mean = p.mean,
                     low = p.low, high = p.high, zero = true, format = "%+.3g",
                     about = "difference of each case" }
end

-- One metric of two runs, case by case.
local function pair(p, a, b, compare)
  local rows = {}
  for i, case in ipairs(p.cases) do
    rows[i] = { { html = "<code>" .. text(case.case) .. "</code>" }, util.fixed(case.first),
                util.fixed(case.other), string.format("%+.4f", case.difference) }
  end
  return table.concat {
    string.format("<h3>%s of %s: %s &minus; %s</h3><p>%s, higher in %d of %d; %s</p>",
                  text(p.metric), text(p.part), text(b.label), text(a.label),
                  text(compare.interval(p, "%+.4f")), p.higher, p.n, compare.verdict(p)),
    #p.cases > 1 and dots(p) or "", "<details><summary>" .. util.plural(p.n, "case")
      .. "</summary>", page.table({ "case", a.label, b.label, "difference" }, rows, 2),
    "</details>" }
end

-- The page for a result of compare.lua.
function M.html(c)
  local compare = require "seg.report.compare"
  local out, labels, head = { page.open("Comparison of runs", STYLE) }, {}, { "" }
  local function add(body) out[#out + 1] = body end
  for i, f in ipairs(c.runs) do
    labels[i] = string.format('<span><i style="background:var(--%s)"></i>%s</span>',
                              M.color_of(i), text(f.label))
    head[i + 1] = f.label
  end
  add("<h1>Comparison of runs</h1>")
  add('<p class="legend">' .. table.concat(labels) .. "</p>")
  local rows = {}
  for i, f in ipairs(c.runs) do
    rows[i] = { f.label, f.name, f.state, f.epoch .. " of " .. f.epochs,
                run_facts.best_text(f) or "-",
                f.epoch_s and util.duration(f.epoch_s) or "-" }
  end
  add(page.table({ "", "run", "state", "epochs", "best", "an epoch" }, rows))
  if #c.results > 0 then
    rows = {}
    for i, r in ipairs(c.results) do
      rows[i] = { r.name .. ", " .. r.part }
      for k, m in ipairs(r.runs) do rows[i][k + 1] = compare.interval(m) end
    end
    add("<h2>Results</h2><p class=\"soft\">mean over cases, 95 % interval</p>"
        .. page.table(head, rows, 2))
  end
  local shared = false
  for i = 2, #c.runs do
    for _, p in ipairs(c.paired[i]) do
      if not shared then add("<h2>Case by case</h2>") end
      shared = true
      add(pair(p, c.runs[1], c.runs[i], compare))
    end
  end
  add("<h2>What differs</h2>")
  add(#c.differences > 0 and page.table(head, c.differences) or "<p>nothing</p>")
  for i = 2, #c.runs do
    if #c.recipes[i] > 0 then
      add(string.format("<details><summary>the recipe of %s (+) compared with the recipe of %s "
                        .. "(-)</summary><pre>%s</pre></details>", text(c.runs[i].label),
                        text(c.runs[1].label),
                        page.lines(table.concat(c.recipes[i], "\n"))))
    end
  end
  add("<h2>Curves</h2>")
  local list = M.panels(c)
  if #list > 0 then add(picture.sheet(list, "curves of the runs by epoch")) end
  add("<footer>Research use only, not a medical device.</footer>")
  add(page.close())
  return table.concat(out, "\n")
end

return M
