-- report.lua -- report.html of a run: one page with its results.
--
-- Curves and pictures come first, then tables; texts are folded at the end. The page is
-- self-contained (page.lua) and may be sent to others: cases are hashes, and no path is in it.
-- record.lua collects the content; this file formats it.

local outlines = require "seg.report.outlines"
local page = require "seg.report.page"
local picture = require "seg.report.picture"
local util = require "seg.util"

local text = page.text
local M = {}

local STYLE = page.SECTIONS .. [[
header h1 { font-size: 1.9rem; letter-spacing: -.01em; margin: .1rem 0 .4rem; }
header h1 span { color: var(--soft); font-weight: 400; }
h2 { margin-top: 2.75rem; }
.pill { display: inline-block; padding: .05rem .6rem; border: 1px solid currentColor;
  border-radius: 1rem; font-size: .85rem; font-weight: 600; }
.cards { display: grid; gap: .75rem; margin: 1.25rem 0;
  grid-template-columns: repeat(var(--wide), minmax(min-content, 1fr)); }
@media (max-width: 64rem) { .cards {
  grid-template-columns: repeat(var(--half), minmax(min-content, 1fr)); } }
@media (max-width: 40rem) { .cards { grid-template-columns: repeat(2, minmax(min-content, 1fr)); }
  .cards .card:last-child:nth-child(odd) { grid-column: span 2; } }
.card { background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: .7rem .9rem; }
.card b { display: block; font-size: 1.4rem; white-space: nowrap; font-weight: 600;
  font-variant-numeric: tabular-nums; line-height: 1.3; } .card small { color: var(--soft); }
nav { font-size: .9rem; } nav a { margin-right: 1rem; color: var(--soft); }
.notes { border-left: 3px solid var(--warning); padding: .2rem 0 .2rem .9rem; margin: 1rem 0; }
.notes p { overflow-wrap: anywhere; }
.samples { border-collapse: separate; border-spacing: .4rem; table-layout: fixed; }
.samples td, .samples th { padding: 0; border: 0; text-align: center; font-weight: 400; }
.samples th:first-child { width: 6.5rem; text-align: right; padding-right: .5rem;
  vertical-align: middle; }
.samples img { display: block; width: 100%; max-width: 9rem; border-radius: 4px; margin: 0 auto;
  background: #000; }
.legend i.line { background: none; border: 2px solid; }
.legend span { margin-right: 1.2rem; } .legend i { display: inline-block; width: .8em; height: .8em;
  margin-right: .4em; border-radius: 2px; vertical-align: -.05em; }
.split { display: flex; height: 1.6rem; border-radius: 5px; overflow: hidden; margin: .5rem 0; }
.split i { display: block; min-width: 1px; }
.small td { overflow-wrap: anywhere; } .pictures { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); }
.settings { display: grid; gap: 0 2rem; margin: 0;
  grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); }
.settings div { display: flex; justify-content: space-between; gap: 1rem; padding: .25rem 0;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
.settings dt { color: var(--soft); } .settings dd { margin: 0; text-align: right; }
.split + .wide + svg { margin-top: 1.5rem; }
details { margin: .5rem 0; } summary { cursor: pointer; font-weight: 600; }
pre { line-height: 1.5; tab-size: 2; }
table { font-size: .92em; } .small table { font-size: .82em; }
@media print { nav { display: none; } .card b { font-size: 1.2rem; }
  .pictures { grid-template-columns: 1fr 1fr; } .card { background: none; }
  pre { white-space: pre-wrap; }
  details::details-content { content-visibility: visible; height: auto; } }
]]

-- "0.9123", "-" for an absent value.
local function fixed(v)
  return type(v) == "number" and util.fixed(v) or "-"
end

local function section(id, title, body)
  if not body or body == "" then return "" end
  return string.format('<section id="%s">\n<h2>%s</h2>\n%s\n</section>\n', id, title, body)
end

-- Header -----------------------------------------------------------------------

local pills = { running = "valid", finished = "ok", stopped = "warning", diverged = "error",
                failed = "error" }

local function card(label, value, note)
  return string.format('<div class="card"><small>%s</small><b>%s</b><small>%s</small></div>',
                       text(label), text(value), text(note or ""))
end

local function header(v)
  local cards, r = {}, v.result
  if v.best and v.best.value then
    cards[#cards + 1] = card("best " .. v.best.name .. " (valid)", fixed(v.best.value),
                             "epoch " .. v.best.epoch)
  end
  -- whether there is an accuracy, which equals the diagonal of a confusion matrix
  local accuracy = false
  for _, m in pairs(r and r.metrics or {}) do accuracy = accuracy or m.kind == "accuracy" end
  for _, name in ipairs(r and util.sorted_keys(r.metrics) or {}) do
    local m = r.metrics[name]
    if #cards < 4 and not (accuracy and m.kind == "confusion") then
      local interval = m.low and string.format("95 %%: %.3f .. %.3f", m.low, m.high)
      cards[#cards + 1] = card(r.part .. " " .. name, fixed(m.mean), interval
                               or util.plural(m.n or 0, "case"))
    end
  end
  cards[#cards + 1] = card("train loss", fixed(v.loss), "epoch " .. v.epoch)
  cards[#cards + 1] = card("time", util.duration(v.seconds), v.device)
  cards[#cards + 1] = card("parameters", util.thousands(v.parameters), v.optimiser)
  local out = {
    "<header>",
    string.format("<h1>%s <span>/ %s</span></h1>", text(v.recipe), text(v.number)),
    string.format('<p><span class="pill %s" style="background:none">%s</span> &nbsp;epoch %d of %d'
                  .. ' &middot; %s</p>', pills[v.state] or "", text(v.state), v.epoch, v.epochs,
                  text(v.written)),
    v.reason and '<p class="error">' .. text(v.reason) .. "</p>" or "",
    -- the number in a row, chosen so that no card is alone in a row
    string.format('<div class="cards" style="--wide:%d;--half:%d">', #cards > 6
                  and (#cards + 1) // 2 or #cards, #cards > 3 and (#cards + 1) // 2 or #cards)
      .. table.concat(cards) .. "</div>" }
  return table.concat(out, "\n")
end

local function warnings(v)
  if #v.warnings == 0 then return "" end
  local out = { '<div class="notes">' }
  local from = math.max(1, #v.warnings - 19) -- the newest 20
  if from > 1 then
    out[2] = string.format('<p class="soft">%d more in log.txt</p>', from - 1)
  end
  for i = from, #v.warnings do out[#out + 1] = "<p>" .. text(v.warnings[i]) .. "</p>" end
  out[#out + 1] = "</div>"
  return table.concat(out, "\n")
end

-- Pictures ----------------------------------------------------------------------

-- The legend of the classes.
local function legend(names)
  local out = { '<p class="legend soft">' }
  for _, l in ipairs(outlines.legend(names)) do
    local color = l.color and string.format("#%06x", l.color)
    local box = not color and ""
      or l.line and string.format('<i class="line" style="border-color:%s"></i>', color)
      or string.format('<i style="background:%s"></i>', color)
    out[#out + 1] = "<span>" .. box .. text(l.name) .. "</span>"
  end
  return table.concat(out) .. "</p>"
end

-- Cases by epochs: v.samples = { { case =, pictures = { { epoch =, html = }, ... } } }.
local function samples(v)
  local epochs, seen = {}, {}
  for _, row in ipairs(v.samples) do
    for _, p in ipairs(row.pictures) do
      if not seen[p.epoch] then epochs[#epochs + 1], seen[p.epoch] = p.epoch, true end
    end
  end
  if #epochs == 0 then return nil end
  table.sort(epochs)
  local out = { v.classes and legend(v.classes) .. '<p class="soft">cases of valid, the slice '
                  .. "with most to find</p>"
                or '<p class="soft">image, truth and prediction of cases of valid</p>',
                '<div class="wide"><table class="samples"><thead><tr><th></th>' }
  for _, e in ipairs(epochs) do out[#out + 1] = "<th class=\"soft\">epoch " .. e .. "</th>" end
  out[#out + 1] = "</tr></thead><tbody>"
  for _, row in ipairs(v.samples) do
    local by = {}
    for _, p in ipairs(row.pictures) do by[p.epoch] = p.html end
    out[#out + 1] = "<tr><th><code>" .. text(row.case) .. "</code></th>"
    for _, e in ipairs(epochs) do out[#out + 1] = "<td>" .. (by[e] or "") .. "</td>" end
    out[#out + 1] = "</tr>"
  end
  out[#out + 1] = "</tbody></table></div>"
  return table.concat(out, "\n")
end

-- A chart of the values of all cases, their mean and its interval.
local function dots(name, values, m)
  local lo, hi = math.huge, -math.huge
  for _, x in ipairs(values) do lo, hi = math.min(lo, x), math.max(hi, x) end
  if lo >= 0 and hi <= 1 then lo, hi = 0, 1 end -- fractions
  if not (hi > lo) then return "" end
  return "<h3>" .. text(name) .. " by case</h3>" .. page.dots {
    values = values, lo = lo, hi = hi, mean = type(m.mean) == "number" and m.mean or nil,
    low = m.low, high = m.high, about = name .. " of each case" }
end

-- The metric that sorts a result, and its cases, worst first.
local function by_worst(r)
  local best, list = r.best or {}, {}
  local main = r.metrics[best[1]] and best[1] or util.sorted_keys(r.metrics)[1]
  local function key(case)
    local x = r.cases[case][main] or -math.huge
    return best[1] == main and best[2] == "min" and -x or x
  end
  for case in pairs(r.cases) do list[#list + 1] = case end
  table.sort(list, function(a, b) return key(a) == key(b) and a < b or key(a) < key(b) end)
  return list, main
end

-- The confusion matrix of the first metric that has one: a row for each true class.
local function matrix(r)
  for _, name in ipairs(util.sorted_keys(r.metrics)) do
    local m = r.metrics[name]
    if m.matrix and m.matrix_names then
      local head, rows = { "true \\ taken for" }, {}
      for t, label in ipairs(m.matrix_names) do
        head[t + 1], rows[t] = label, { label }
        for p, count in ipairs(m.matrix[t] or {}) do
          rows[t][p + 1] = { html = tostring(count), class = p == t and "number ok" or "number" }
        end
      end
      return "<h3>Confusion matrix</h3>" .. page.table(head, rows, 2)
    end
  end
  return ""
end

-- The misclassified cases, the most confident first.
local function wrong_cases(list)
  if #list == 0 then return "<h3>Wrong cases</h3><p>none</p>" end
  local rows = {}
  for i, w in ipairs(list) do
    rows[i] = { { html = "<code>" .. text(w.case) .. "</code>" }, w.truth, w.taken,
                string.format("%.2f", w.probability) }
  end
  local shown = page.table({ "case", "true", "taken for", "probability of it" }, rows, 4)
  if #list > 40 then
    shown = string.format("<details><summary>all %d</summary>", #list) .. shown .. "</details>"
  end
  return "<h3>Wrong cases, those of which the network was surest first</h3>" .. shown
end

-- A part measured by case: the numbers of each metric, then all cases, worst first. r = { part=,
-- epoch=, weights = { average=, file= } or nil, metrics=, cases = { hash = { metric = value } },
-- best = {name, "max"|"min"}, wrong = misclassified cases }.
local function cases(r)
  if not r or not next(r.metrics) then return nil end
  local names, rows = util.sorted_keys(r.metrics), {}
  for _, name in ipairs(names) do
    local m = r.metrics[name]
    rows[#rows + 1] = { name, fixed(m.mean), fixed(m.median), fixed(m.sd), m.low
                        and fixed(m.low) .. " .. " .. fixed(m.high) or "-", m.n or "-",
                        fixed(m.per_slice), m.empty or "" }
  end
  local w = r.weights or {}
  local out = { string.format('<p class="soft">%s, weights of epoch %d%s%s</p>', text(r.part),
                              r.epoch, w.average and ", their average " .. text(w.average) or "",
                              w.file and " (" .. text(w.file) .. ")" or ""),
                page.table({ "metric", "mean", "median", "sd", "95 % interval", "n", "per slice",
                             "rule" }, rows, 2) }
  out[#out + 1] = matrix(r)
  if r.wrong then
    out[#out + 1] = wrong_cases(r.wrong)
    return table.concat(out, "\n")
  end
  local list, main = by_worst(r)
  rows = {}
  local values = {}
  for i, case in ipairs(list) do
    rows[i] = { { html = "<code>" .. text(case) .. "</code>" } }
    for _, name in ipairs(names) do rows[i][#rows[i] + 1] = fixed(r.cases[case][name]) end
    values[#values + 1] = r.cases[case][main]
  end
  if #list > 1 then out[#out + 1] = dots(main, values, r.metrics[main]) end
  local folded = #list > 40 -- a long list is only needed to look up a case
  if folded then
    out[#out + 1] = string.format("<details><summary>all %d cases, worst first</summary>", #list)
  end
  out[#out + 1] = page.table({ "case, worst first", table.unpack(names) }, rows, 2)
  out[#out + 1] = folded and "</details>" or ""
  return table.concat(out, "\n")
end

-- The pictures of cases, worst first.
local function overlays(v)
  local order = {}
  for i, case in ipairs(v.result and by_worst(v.result) or {}) do order[case] = i end
  local function place(case) return order[case] or math.huge end
  if #v.overlays == 0 then return "" end
  table.sort(v.overlays, function(a, b)
    local p, q = place(a.case), place(b.case)
    return p < q or p == q and (a.case < b.case or a.case == b.case and a.kind < b.kind)
  end)
  local out = { '<div class="pictures">' }
  for _, o in ipairs(v.overlays) do out[#out + 1] = "<figure>" .. o.html .. "</figure>" end
  out[#out + 1] = "</div>"
  local title = v.result and v.result.wrong and "Wrong ones of which the network was surest"
    or "Worst two, middle and best case"
  return "<h3>" .. title .. "</h3>" .. table.concat(out, "\n")
end

-- Numbers -----------------------------------------------------------------------

-- Rows of { part, cases, patients, samples, ... } and the steps below.
local function data(v)
  local out = { page.table(v.data.head, v.data.rows, 2) }
  if v.data.left_out then
    out[#out + 1] = '<p class="warning">left out: ' .. text(v.data.left_out)
      .. " (left_out.csv in the run's folder says why)</p>"
  end
  out[#out + 1] = "<h3>Steps</h3><pre>" .. page.lines(v.data.steps) .. "</pre>"
  return table.concat(out, "\n")
end

local shades = { wait = "--red", copy = "--valid", compute = "--blue", update = "--violet",
                 validate = "--green", save = "--soft" }

-- v.time = { { name, seconds, text }, ... }: as one bar, then a table.
local function time(v)
  local all, bar, rows = 0, {}, {}
  for _, t in ipairs(v.time) do all = all + t[2] end
  if all <= 0 then return nil end
  for _, t in ipairs(v.time) do
    local share, shade = 100 * t[2] / all, shades[t[1]]
    bar[#bar + 1] = string.format('<i style="width:%.2f%%;background:var(%s)" title="%s"></i>',
                                  share, shade, t[1])
    rows[#rows + 1] = { { html = string.format(
      '<span class="legend"><i style="background:var(%s)"></i></span>%s', shade, t[1]) },
      t[3], util.duration(t[2]), string.format("%.1f %%", share) }
  end
  local panels = {}
  if v.rate then panels[1] = v.rate end
  if v.gpu_use then panels[#panels + 1] = v.gpu_use end
  local chart = #panels > 0 and picture.sheet(panels, "samples a second by epoch") or ""
  if v.gpu then chart = '<p>GPU: ' .. text(v.gpu) .. "</p>" .. chart end
  return '<div class="split">' .. table.concat(bar) .. "</div>"
    .. page.table({ "", "", "time", "share" }, rows, 3) .. chart
end

-- v.memory = { { name, planned, measured }, ... } in bytes, nil for unknown.
local function memory(v)
  local rows = {}
  local function bytes(n) return n and util.bytes(n) or "" end
  for i, m in ipairs(v.memory) do
    local off = m[2] and m[3] and m[2] > 0 and string.format("%+.1f %%", 100 * (m[3] / m[2] - 1))
    rows[i] = { m[1], bytes(m[2]), bytes(m[3]), off or "" }
  end
  return page.table({ "", "planned", "measured", "difference" }, rows, 2)
end

local function network(v)
  local n, rows = v.network, {}
  for i, row in ipairs(n.rows) do
    rows[i] = { row.name ~= "" and row.name or "-", row.kind, row.shape,
                row.params > 0 and util.thousands(row.params) or "",
                row.flops > 0 and string.format("%.1f", row.flops / n.batch / 1e6) or "",
                util.bytes(row.value_bytes) }
  end
  return string.format('<p class="soft">%s trained + %s running statistics; %.2f GFLOP forward a '
                       .. "sample; values of a batch of %d</p>", util.thousands(n.trained),
                       util.thousands(n.running), n.flops / n.batch / 1e9, n.batch)
    .. '<details class="small"><summary>' .. util.plural(#rows, "layer") .. "</summary>"
    .. page.table({ "layer", "kind", "shape", "parameters", "MFLOP", "value" }, rows, 4)
    .. "</details>"
end

-- Names and short values, next to each other.
local function settings(list)
  local out = { '<dl class="settings">' }
  for i, p in ipairs(list) do
    out[i + 1] = string.format("<div><dt>%s</dt><dd>%s</dd></div>", text(p[1]), text(p[2]))
  end
  return table.concat(out, "\n") .. "</dl>"
end

-- Names and long values, as a table.
local function pairs_table(list)
  local rows = {}
  for i, p in ipairs(list) do
    rows[i] = { { html = "<code>" .. text(p[1]) .. "</code>" }, tostring(p[2]) }
  end
  return '<div class="small">' .. page.table({ "", "" }, rows) .. "</div>"
end

local links = { { "curves", "Curves" }, { "samples", "Samples" }, { "cases", "Cases" },
                { "data", "Data" }, { "time", "Time" }, { "memory", "Memory" },
                { "network", "Network" }, { "settings", "Settings" }, { "recipe", "Recipe" } }

-- The page of a run; record.lua describes v.
function M.html(v)
  local bodies = {
    curves = v.curves, samples = samples(v),
    cases = (cases(v.result or v.valid) or "") .. overlays(v),
    data = data(v), time = time(v), memory = memory(v), network = network(v),
    settings = settings(v.settings) .. "<h3>Program</h3>" .. pairs_table(v.program),
    recipe = "<details><summary>" .. text(v.recipe) .. ".lua</summary><pre>" .. page.lines(v.text)
      .. "</pre></details>" }
  local out = { page.open(v.recipe .. " / " .. v.number, STYLE), header(v) }
  local nav = {}
  for _, link in ipairs(links) do
    if bodies[link[1]] and bodies[link[1]] ~= "" then
      nav[#nav + 1] = string.format('<a href="#%s">%s</a>', link[1], link[2])
    end
  end
  out[#out + 1] = "<nav>" .. table.concat(nav, "\n") .. "</nav>\n</header>"
  out[#out + 1] = warnings(v)
  for _, link in ipairs(links) do
    out[#out + 1] = section(link[1], link[2], bodies[link[1]])
  end
  out[#out + 1] = "<footer>Research use only, not a medical device. Pictures are of patients, who "
    .. "appear as a hash. segengine " .. text(v.version) .. "</footer>"
  out[#out + 1] = page.close()
  return table.concat(out, "\n")
end

return M
