-- doctor_page.lua -- the report of `segengine doctor data` as one HTML file.
--
-- The parts that all pages share are in page.lua; here are the charts and the cases.

local checks = require "seg.inspect.doctor_checks"
local page = require "seg.report.page"
local util = require "seg.util"

local M = {}

local PICTURES = 200 -- most pictures on a page; cases with findings come first

local text = page.text

-- Charts ----------------------------------------------------------------------

local W, H, LEFT, FOOT = 320, 130, 8, 18
local BINS = 20

-- A figure with an SVG of W x (H + FOOT) and a caption.
local function figure(title, body, low, high)
  return string.format(
    '<figure><svg viewBox="0 0 %d %d" role="img" aria-label="%s">%s<line class="axis" x1="%d" '
    .. 'y1="%d" x2="%d" y2="%d"/><text x="%d" y="%d">%s</text><text x="%d" y="%d" '
    .. 'text-anchor="end">%s</text></svg><figcaption>%s</figcaption></figure>',
    W, H + FOOT, text(title), body, LEFT, H, W - LEFT, H, LEFT, H + 14, text(low), W - LEFT,
    H + 14, text(high), text(title))
end

-- A histogram of values: { {part, number}, ... }; nil if all are equal, which the caption of
-- another chart says better.
local function histogram(title, values)
  local lo, hi = math.huge, -math.huge
  for _, v in ipairs(values) do lo, hi = math.min(lo, v[2]), math.max(hi, v[2]) end
  if not (hi > lo) then return nil end
  local bins, most = {}, 0
  for i = 1, BINS do bins[i] = { all = 0 } end
  for _, v in ipairs(values) do
    local bin = bins[math.min(BINS, 1 + math.floor((v[2] - lo) / (hi - lo) * BINS))]
    bin[v[1]], bin.all = (bin[v[1]] or 0) + 1, bin.all + 1
    most = math.max(most, bin.all)
  end
  local out, width = {}, (W - 2 * LEFT) / BINS
  for i, bin in ipairs(bins) do
    local y = H
    for _, part in ipairs { "train", "valid", "test" } do
      local n = bin[part] or 0
      local h = n / most * (H - 10)
      if n > 0 then
        y = y - h
        out[#out + 1] = string.format('<rect class="%s" x="%.1f" y="%.1f" width="%.1f" '
          .. 'height="%.1f"><title>%d of %s</title></rect>', part, LEFT + (i - 1) * width, y,
          width - 1, h, n, part)
      end
    end
  end
  return figure(title, table.concat(out), string.format("%.4g", lo), string.format("%.4g", hi))
end

-- The charts: a title and a number of each case, if it has one.
local function series(context)
  local list, order = {}, {}
  local function add(title, case, v)
    if v ~= v or math.abs(v) == math.huge then return end
    if not list[title] then
      list[title] = {}
      order[#order + 1] = title
    end
    table.insert(list[title], { case.part.name, v })
  end
  for _, case in ipairs(checks.with_grid(context)) do
    local f = case.fields[1]
    for axis, name in ipairs { "w", "h", "d" } do
      if f.rank == 3 then add("spacing along " .. name .. ", mm", case, case.spacing[axis]) end
      add("extent along " .. name, case, case.size[axis])
    end
    add("mean of " .. f.name, case, f.mean)
    add("range of " .. f.name, case, f.hi - f.lo)
    if next(case.voxels) then
      add("truth, % of voxels", case,
          100 * case.foreground / math.max(case.size[1] * case.size[2] * case.size[3], 1))
    end
  end
  checks.each_number(context, function(case, name, v) add(name, case, v) end)
  return list, order
end

-- The voxels of each class by part, with their share.
local function class_table(context)
  local rows = {}
  for _, part in ipairs(context.parts) do
    local list, all = checks.classes_of(part)
    for _, c in ipairs(all > 0 and list or {}) do
      rows[#rows + 1] = { part.name, checks.class_name(c), util.thousands(c.voxels),
                          string.format("%.3g %%", 100 * c.voxels / all),
                          string.format("%d of %d", c.cases, #part.cases) }
    end
  end
  if #rows == 0 then return "" end
  return "<h2>Classes</h2>" .. page.table({ "part", "class", "voxels", "share", "cases" }, rows)
end

-- Cases -----------------------------------------------------------------------

local function case_figure(case, e, picture)
  local lines = { string.format("<strong>%s</strong>, %s", text(e.case), e.part) }
  if e.size then
    lines[#lines + 1] = string.format("%dx%dx%d, %.3gx%.3gx%.3g mm", e.size[1], e.size[2],
                                      e.size[3], table.unpack(e.spacing))
    lines[#lines + 1] = string.format("%.4g .. %.4g, mean %.4g", e.min, e.max, e.mean)
  end
  for _, row in ipairs(case.rows) do
    lines[#lines + 1] = string.format('<span class="%s">%s</span>', row.level, row.check)
  end
  local image = picture and page.picture(picture, "a slice of case " .. e.case
                                         .. ", its truth outlined") or ""
  return string.format('<figure class="%s">%s<figcaption>%s</figcaption></figure>', e.level, image,
                       table.concat(lines, "<br>"))
end

-- The cases that get a picture if there are too many: cases with findings, then the others in
-- order.
local function pictured(context, r)
  local list, chosen, n = {}, {}, 0
  for i in ipairs(context.all) do list[i] = i end
  table.sort(list, function(a, b)
    local x, y = r.cases[a].level ~= "ok", r.cases[b].level ~= "ok"
    if x ~= y then return x end
    return a < b
  end)
  for _, i in ipairs(list) do
    if n < PICTURES then chosen[i], n = true, n + 1 end
  end
  return chosen
end

local function row_cells(row)
  return { { html = row.level, class = row.level }, row.check, row.part or "",
           { html = row.case and "<code>" .. text(row.case) .. "</code>" or "" }, row.found,
           row.level ~= "ok" and row.fix or "" }
end

-- The page of a report `r` (doctor_data.lua) and its context.
function M.html(r, context)
  local out = {}
  local function add(fmt, ...)
    out[#out + 1] = select("#", ...) > 0 and string.format(fmt, ...) or fmt
  end
  out[1] = page.open("Data of " .. r.script)
  add("<h1>Data of %s</h1>", text(r.script))
  add('<p><span class="%s">%d error%s</span>, <span class="%s">%d warning%s</span></p>',
      r.errors > 0 and "error" or "ok", r.errors, r.errors == 1 and "" or "s",
      r.warnings > 0 and "warning" or "ok", r.warnings, r.warnings == 1 and "" or "s")
  for _, p in ipairs(r.parts) do
    add('<p><span class="key %s"></span> %s: %d cases of %d patients</p>', p.part, p.part, p.cases,
        p.patients)
  end
  add('<p class="soft">Pictures are of patients: this file belongs where their data is. Research '
      .. "use only, not a medical device. segengine " .. text(r.program) .. "</p>")
  local checked = {}
  for i, row in ipairs(r.rows) do checked[i] = row_cells(row) end
  out[#out + 1] = "<h2>Checks</h2>\n" .. page.table({ "", "check", "part", "case", "found",
                                                     "what to do" }, checked)
  out[#out + 1] = class_table(context)
  local list, order = series(context)
  local charts = {}
  for _, title in ipairs(order) do charts[#charts + 1] = histogram(title, list[title]) end
  if #charts > 0 then
    add('<h2>Cases by number</h2>\n<div class="charts">')
    out[#out + 1] = table.concat(charts, "\n")
    add("</div>")
  end
  local chosen = pictured(context, r)
  if #r.cases > 0 then add('<h2>Cases</h2>\n<div class="grid">') end
  for i, case in ipairs(context.all) do
    local picture = chosen[i] and case.part.survey:png(case.number) or nil
    out[#out + 1] = case_figure(case, r.cases[i], picture)
  end
  if #r.cases > 0 then add("</div>") end
  if #r.cases > PICTURES then
    add('<p class="soft">%d cases have no picture here; those with findings have one first.</p>',
        #r.cases - PICTURES)
  end
  out[#out + 1] = page.close()
  return table.concat(out, "\n")
end

return M
