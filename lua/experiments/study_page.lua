-- study_page.lua -- the page of a search: its trials in order, each parameter against the result,
-- and all parameters in parallel coordinates.
--
-- Values of the config are shown, so a recipe that searches over paths would show them; the reason
-- of a failed trial is not shown, because it may name files.

local page = require "seg.report.page"
local study = require "seg.experiments.study"
local util = require "seg.util"

local text = page.text
local M = {}

local STYLE = page.SECTIONS .. [[
.trials text { font-size: 11px; fill: var(--soft); } .trials .frame { stroke: var(--line);
  fill: none; } .trials .so { stroke: var(--green); fill: none; stroke-width: 2; }
.trials circle { fill: var(--blue); fill-opacity: .6; } .trials circle.best {
  fill: var(--red); fill-opacity: 1; } .trials .none { stroke: var(--soft); stroke-width: 1.5; }
.trials .thread { fill: none; stroke: var(--blue); stroke-width: 1.2; }
.trials .thread.best { stroke: var(--red); stroke-width: 2.6; stroke-opacity: 1; }
]]

-- The position of the text of a value in its parameter's range, from 0 to 1.
local function place(p, value)
  if p.kind == "list" then
    for i, v in ipairs(p.list) do
      if study.text(v) == value then return (i - 0.5) / #p.list end
    end
    return 0.5
  end
  local v, lo, hi = tonumber(value), p.lo, p.hi
  if p.log then v, lo, hi = math.log(v), math.log(lo), math.log(hi) end
  return (v - lo) / (hi - lo)
end

-- The ends of a parameter's axis, or the values of its list, with their positions.
local function marks(p)
  if p.kind ~= "list" then
    return { { 0, study.text(p.lo) }, { 1, study.text(p.hi) } }
  end
  local out = {}
  for i, v in ipairs(p.list) do out[i] = { (i - 0.5) / #p.list, study.text(v) } end
  return out
end

-- Lowest and highest result, with a margin.
local function extent(list)
  local lo, hi = math.huge, -math.huge
  for _, r in ipairs(list) do
    if r.value then lo, hi = math.min(lo, r.value), math.max(hi, r.value) end
  end
  if lo > hi then return 0, 1 end
  local air = math.max((hi - lo) * 0.06, 1e-9)
  return lo - air, hi + air
end

local function open(w, h, about)
  return { string.format('<svg class="trials" viewBox="0 0 %d %d" role="img" aria-label="%s">', w,
                         h, text(about)) }
end

local function add(out, fmt, ...) out[#out + 1] = string.format(fmt, ...) end

local function close(out)
  out[#out + 1] = "</svg>"
  return table.concat(out, "\n")
end

-- Draws a dot for a result, a cross at the bottom for a trial without one.
local function mark(out, r, x, y, bottom, best)
  local about = string.format("trial %d: %s", r.trial, r.value and util.fixed(r.value) or r.state)
  if r.value then
    add(out, '<circle%s cx="%.1f" cy="%.1f" r="%s"><title>%s</title></circle>',
        best and ' class="best"' or "", x, y, best and "5" or "4", text(about))
  else
    add(out, '<path class="none" d="M%.1f %.1fl6 6m0 -6l-6 6"><title>%s</title></path>', x - 3,
        bottom - 9, text(about))
  end
end

-- Draws the axis of the results, on the left.
local function value_axis(out, lo, hi, left, top, wide, high)
  add(out, '<rect class="frame" x="%d" y="%d" width="%d" height="%d"/>', left, top, wide, high)
  add(out, '<text x="%d" y="%d" text-anchor="end">%.4g</text>', left - 6, top + 9, hi)
  add(out, '<text x="%d" y="%d" text-anchor="end">%.4g</text>', left - 6, top + high, lo)
end

-- Results in the order of the trials, and the best so far as a line.
local function history(s)
  local W, H, LEFT, TOP = 900, 230, 64, 12
  local wide, high, list = W - LEFT - 12, H - TOP - 30, {}
  for _, r in ipairs(s.records) do
    if (r.round or 1) == 1 then list[#list + 1] = r end
  end
  local lo, hi = extent(list)
  local out, points, best = open(W, H, "results in the order of trials"), {}, nil
  local up = s.o.metric[2] == "max"
  value_axis(out, lo, hi, LEFT, TOP, wide, high)
  local function x_of(i) return LEFT + (i - 0.5) / #list * wide end
  local function y_of(v) return TOP + (hi - v) / (hi - lo) * high end
  for i, r in ipairs(list) do
    if r.value and (not best or (r.value > best) == up) then best = r.value end
    if best then points[#points + 1] = string.format("%.1f,%.1f", x_of(i), y_of(best)) end
  end
  add(out, '<polyline class="so" points="%s"/>', table.concat(points, " "))
  for i, r in ipairs(list) do
    mark(out, r, x_of(i), r.value and y_of(r.value) or 0, TOP + high, s.best
         and r.trial == s.best.trial)
  end
  add(out, '<text x="%d" y="%d">trial 1</text>', LEFT, H - 10)
  add(out, '<text x="%d" y="%d" text-anchor="end">trial %d</text>', LEFT + wide, H - 10, #list)
  return close(out)
end

-- A chart of a parameter against the result.
local function scatter(s, p)
  local W, H, LEFT, TOP = 420, 220, 56, 10
  local wide, high = W - LEFT - 12, H - TOP - 26
  local lo, hi = extent(s.list)
  local out = open(W, H, s.o.metric[1] .. " by " .. p.key)
  value_axis(out, lo, hi, LEFT, TOP, wide, high)
  for _, m in ipairs(marks(p)) do
    add(out, '<text x="%.1f" y="%d" text-anchor="%s">%s</text>', LEFT + m[1] * wide, H - 8,
        m[1] == 0 and "start" or m[1] == 1 and "end" or "middle", text(m[2]))
  end
  -- the best last, on top
  for k = #s.list, 1, -1 do
    local r = s.list[k]
    mark(out, r, LEFT + place(p, r.values[p.key]) * wide,
         r.value and TOP + (hi - r.value) / (hi - lo) * high or 0, TOP + high, k == 1)
  end
  return "<figure>" .. close(out) .. "<figcaption>" .. text(study.describe(p))
    .. "</figcaption></figure>"
end

-- Parallel coordinates of all parameters: a line is a trial; the worse it is, the fainter.
local function parallel(s)
  local W, H, TOP, SIDE = 900, 300, 26, 60
  local high, space = H - TOP - 34, s.o.space
  local lo, hi = extent(s.list)
  local out = open(W, H, "parallel coordinates of all parameters and the result")
  local function x_of(i) return SIDE + (i - 1) / math.max(#space, 1) * (W - 2 * SIDE) end
  for i = 1, #space + 1 do
    local p = space[i]
    add(out, '<line class="axis" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>', x_of(i), TOP, x_of(i),
        TOP + high)
    add(out, '<text x="%.1f" y="%d" text-anchor="middle">%s</text>', x_of(i), H - 8,
        text(p and p.key or s.o.metric[1]))
    for _, m in ipairs(p and marks(p) or { { 0, string.format("%.4g", lo) },
                                           { 1, string.format("%.4g", hi) } }) do
      add(out, '<text x="%.1f" y="%.1f">%s</text>', x_of(i) + 4, TOP + (1 - m[1]) * high
          + (m[1] == 0 and 12 or m[1] == 1 and -5 or 4), text(m[2]))
    end
  end
  for k = #s.list, 1, -1 do
    local r, points = s.list[k], {}
    if r.value then
      for i, p in ipairs(space) do
        local down = 1 - place(p, r.values[p.key])
        points[i] = string.format("%.1f,%.1f", x_of(i), TOP + down * high)
      end
      points[#points + 1] = string.format("%.1f,%.1f", x_of(#space + 1),
                                          TOP + (hi - r.value) / (hi - lo) * high)
      add(out, '<polyline class="thread%s" stroke-opacity="%.2f" points="%s">'
          .. "<title>trial %d</title></polyline>", k == 1 and " best" or "",
          0.75 - 0.6 * (k - 1) / #s.list,
          table.concat(points, " "), r.trial)
    end
  end
  return close(out)
end

-- The page of a search. s: { name =, o = its options, records =, list = trials, best first, best =
-- record or nil, shown = its options as words }
function M.html(s)
  local o, keys = s.o, {}
  local out = { page.open("search of " .. s.name, STYLE) }
  add(out, "<h1>search of %s</h1><p class=\"soft\">%s, %d trials, seed %d, by %s (%s) of valid</p>",
      text(s.name), text(o.method), #s.list, o.seed, text(o.metric[1]), text(o.metric[2]))
  if s.best then
    add(out, "<p>best: trial %d, %s %s</p><pre>%s</pre>", s.best.trial, text(o.metric[1]),
        util.fixed(s.best.value), page.lines(s.shown))
  else
    out[#out + 1] = '<p class="error">no trial has a value</p>'
  end
  out[#out + 1] = "<h2>trials in their order</h2>" .. history(s)
  out[#out + 1] = "<h2>each parameter</h2><div class=\"charts\">"
  for i, p in ipairs(o.space) do
    keys[i] = p.key
    out[#out + 1] = scatter(s, p)
  end
  out[#out + 1] = "</div><h2>all together</h2>" .. parallel(s)
  local rows, halving = {}, o.method == "halving"
  for i, r in ipairs(s.list) do
    local row = { tostring(r.trial), r.value and util.fixed(r.value) or { html = text(r.state),
                                                                         class = "error" },
                  halving and tostring(r.epochs) or tostring(r.epoch or "-") }
    for k, key in ipairs(keys) do row[k + 3] = r.values[key] end
    rows[i] = row
  end
  out[#out + 1] = "<h2>trials, best first</h2>"
  out[#out + 1] = page.table({ "trial", o.metric[1], halving and "epochs" or "best epoch",
                               table.unpack(keys) }, rows, 2)
  out[#out + 1] = "<footer>Dots and threads are trials, red the best; crosses have no value. "
    .. "Trials were judged on valid: the best value is too good, the more so the more trials there "
    .. "were. Measure the chosen numbers on cases that decided nothing.</footer>"
  out[#out + 1] = page.close()
  return table.concat(out, "\n")
end

return M
