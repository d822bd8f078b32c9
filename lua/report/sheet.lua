-- sheet.lua -- a drawing sheet for curves, written as SVG or PNG.
--
-- Both kinds have line(points, width, color, dash), rect, dot and text(x, y, size, color, text,
-- anchor) with the baseline at y, in units of SVG pixels, so that one function draws both. dash:
-- nil for a solid line, a number for dots at this distance, {on, off} for dashes.

local core = require "seg.core"

local M = {}

M.colors = { blue = 0x2563c9, red = 0xd0342c, green = 0x2c9a4b, deep = 0x14532d,
             violet = 0x7a4fb5, ink = 0x24292f, soft = 0x6b7280, grid = 0xe3e6ea,
             paper = 0xffffff, amber = 0xb26a00, teal = 0x0f766e }
local PAPER = M.colors.paper

-- SVG -------------------------------------------------------------------------

local Svg = {}
Svg.__index = Svg

-- The CSS variable of a page's style for each colour, which adapts to dark mode.
local variable = {}
for name, color in pairs(M.colors) do variable[color] = "var(--" .. name .. ")" end

local function hex(color) return string.format("#%06x", color) end

-- A sheet of w x h inside a page, in the page's colours and background.
function M.inner_svg(w, h, about)
  local s = setmetatable({ out = {}, paint = function(color)
    return variable[color] or hex(color)
  end }, Svg)
  s:add('<svg class="chart" viewBox="0 0 %d %d" role="img" aria-label="%s" '
        .. 'font-family="Helvetica,Arial,sans-serif">', w, h, about)
  return s
end

-- A white sheet of w x h.
local function svg(w, h)
  local s = setmetatable({ out = {}, paint = hex }, Svg)
  s:add('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" '
        .. 'font-family="Helvetica,Arial,sans-serif">', w, h, w, h)
  s:rect(0, 0, w, h, PAPER)
  return s
end

-- Adds one element.
function Svg:add(fmt, ...)
  self.out[#self.out + 1] = string.format(fmt, ...)
end

function Svg:rect(x, y, w, h, color)
  self:add('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>', x, y, w, h,
           self.paint(color))
end

function Svg:dot(x, y, radius, color)
  self:add('<circle cx="%.2f" cy="%.2f" r="%.2f" fill="%s"/>', x, y, radius, self.paint(color))
end

-- The lengths of a dash and of the following gap. Line caps are round, so a dash of no length is a
-- dot.
local function pattern(dash)
  if type(dash) == "number" then return 0.1, dash end
  return dash[1], dash[2]
end

function Svg:line(points, width, color, dash)
  local at = {}
  for i, p in ipairs(points) do at[i] = string.format("%.2f,%.2f", p[1], p[2]) end
  self:add('<polyline points="%s" fill="none" stroke="%s" stroke-width="%.2f"%s '
           .. 'stroke-linejoin="round" stroke-linecap="round"/>', table.concat(at, " "),
           self.paint(color), width,
           dash and string.format(' stroke-dasharray="%.1f %.1f"', pattern(dash)) or "")
end

local escapes = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;" }

function Svg:text(x, y, size, color, text, anchor)
  self:add('<text x="%.1f" y="%.1f" font-size="%.1f" fill="%s" text-anchor="%s">%s</text>',
           x, y, size, self.paint(color), anchor or "start", (text:gsub("[&<>]", escapes)))
end

function Svg:source()
  return table.concat(self.out, "\n") .. "\n</svg>\n"
end

function Svg:save(path)
  core.sys.write(path, self:source())
end

-- PNG -------------------------------------------------------------------------

local Png = {}
Png.__index = Png

-- The same sheet, `scale` pixels a unit.
local function png(w, h, scale)
  local function pixels(n) return math.floor(n * scale) end
  return setmetatable({ scale = scale, canvas = core.picture.canvas(pixels(w), pixels(h), PAPER) },
                      Png)
end

function Png:rect(x, y, w, h, color)
  local k = self.scale
  self.canvas:rect(x * k, y * k, w * k, h * k, color)
end

function Png:dot(x, y, radius, color)
  local k = self.scale
  self.canvas:line(x * k, y * k, x * k, y * k, 2 * radius * k, color)
end

-- Splits a dashed path into its dashes, corners included, and calls stroke(points) for each.
local function walk_strokes(points, on, off, stroke)
  local drawn, left, part = true, on, { points[1] }
  for i = 2, #points do
    local x, y, x1, y1 = points[i - 1][1], points[i - 1][2], points[i][1], points[i][2]
    local long = math.sqrt((x1 - x) ^ 2 + (y1 - y) ^ 2)
    while left <= long do
      x, y = x + left / long * (x1 - x), y + left / long * (y1 - y)
      long = long - left
      if drawn then
        part[#part + 1] = { x, y }
        stroke(part)
      end
      drawn, part = not drawn, { { x, y } }
      left = drawn and on or off
    end
    left = left - long
    if drawn then part[#part + 1] = { x1, y1 } end
  end
  if drawn and #part > 1 then stroke(part) end
end

function Png:line(points, width, color, dash)
  local k = self.scale
  local function stroke(part)
    for i = 2, #part do
      local a, b = part[i - 1], part[i]
      self.canvas:line(a[1] * k, a[2] * k, b[1] * k, b[2] * k, width * k, color)
    end
  end
  if not dash then return stroke(points) end
  local on, off = pattern(dash)
  walk_strokes(points, on, off, stroke)
end

-- The font has capitals of 7 dots; 0.1 of the size gives the height of SVG's capitals.
function Png:text(x, y, size, color, text, anchor)
  local dot = size * self.scale * 0.1
  local width = core.picture.text_width(dot, text)
  x = x * self.scale - (anchor == "middle" and width / 2 or anchor == "end" and width or 0)
  self.canvas:text(x, y * self.scale - 7 * dot, dot, color, text)
end

function Png:save(path)
  self.canvas:save(path)
end

-- A sheet of w x h of each kind, by the file extension.
function M.sheets(w, h) return { svg = svg(w, h), png = png(w, h, 1.5) } end

-- Axes ------------------------------------------------------------------------

-- Round numbers in lo .. hi: multiples of 1, 2 or 5 times a power of ten, the finest step with at
-- most `most` numbers.
function M.ticks(lo, hi, most, whole)
  local step = 10.0 ^ math.floor(math.log((hi - lo) / most, 10))
  local k = 1
  while (hi - lo) / (step * k) > most do k = k == 1 and 2 or k == 2 and 5 or 10 end
  step = step * k
  if whole then step = math.max(step, 1) end
  local list = {}
  for i = math.ceil(lo / step - 1e-6), math.floor(hi / step + 1e-6) do
    list[#list + 1] = i * step
  end
  return list, step
end

-- The text of a tick: as many digits as the step needs, 1e-5 for very small numbers.
function M.tick_text(v, step, hi)
  if v == 0 then return "0" end
  if hi < 0.01 or hi >= 1e5 then return (string.format("%.3g", v):gsub("e([+-])0+", "e%1")) end
  local digits = math.max(0, -math.floor(math.log(step, 10) + 1e-6))
  return string.format("%." .. digits .. "f", v)
end

return M
