-- page.lua -- shared parts of the HTML pages of this program: layout, tables, pictures.
--
-- A page is one file. Nothing is fetched and no script runs: styles and pictures are embedded, and
-- a policy in its head forbids everything else. Light and dark mode follow the reader's settings;
-- every colour is a variable. A printed page is light.

local util = require "seg.util"

local M = {}

local escapes = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;",
                  ["'"] = "&#39;" }

-- Escapes text for a page; control characters become blanks.
function M.text(v)
  return (tostring(v):gsub("[&<>\"']", escapes):gsub("%c", " "))
end

-- The same, but line breaks are kept, for <pre>.
function M.lines(v)
  return (tostring(v):gsub("[&<>\"']", escapes):gsub("\r\n?", "\n"):gsub("[^%C\n\t]", " "))
end

local ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local letter = {}
for i = 0, 63 do letter[i] = ALPHABET:sub(i + 1, i + 1) end

-- Encodes bytes in base64 (RFC 4648): three bytes become four letters.
function M.base64(bytes)
  local out = {}
  for i = 1, #bytes, 3 do
    local a, b, c = bytes:byte(i, i + 2)
    local n = a << 16 | (b or 0) << 8 | (c or 0)
    out[#out + 1] = letter[n >> 18] .. letter[n >> 12 & 63] .. (b and letter[n >> 6 & 63] or "=")
      .. (c and letter[n & 63] or "=")
  end
  return table.concat(out)
end

-- An <img> of a PNG with these bytes; about: the text for screen readers.
function M.picture(bytes, about)
  return string.format('<img alt="%s" src="data:image/png;base64,%s">', M.text(about),
                       M.base64(bytes))
end

-- Colours by their use. Train, valid and test are parts of the data; variables with names of
-- colours are for curves (sheet.lua).
local STYLE = [[
:root { color-scheme: light dark; --ink: #24292f; --soft: #5b6470; --paper: #ffffff;
  --panel: #f4f5f7; --line: #d9dde2; --error: #b3261e; --warning: #8a5a00; --ok: #1f7a3d;
  --train: #2563c9; --valid: #b26a00; --test: #7a4fb5; --blue: #2563c9; --red: #d0342c;
  --green: #2c9a4b; --deep: #14532d; --violet: #7a4fb5; --grid: #e3e6ea;
  --amber: #b26a00; --teal: #0f766e; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --soft: #a0a8b3;
  --paper: #15171b; --panel: #1f2329; --line: #363c45; --error: #ff8a80; --warning: #f2b84b;
  --ok: #6fd08c; --train: #7aa7ff; --valid: #f2a65a; --test: #c3a0f5; --blue: #7aa7ff;
  --red: #ff8a80; --green: #6fd08c; --deep: #b7ebc6; --violet: #c3a0f5; --grid: #2b3038;
  --amber: #f2a65a; --teal: #5ec4b6; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; color: var(--ink);
  background: var(--paper); font: 15px/1.45 system-ui, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: .95rem; margin: 1rem 0 .35rem; }
p { margin: .25rem 0; } .soft { color: var(--soft); } a { color: inherit; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem;
  border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; } code, pre { font-family: ui-monospace, monospace; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th.number { white-space: normal; }
.error { color: var(--error); } .warning { color: var(--warning); } .ok { color: var(--ok); }
td.error, td.warning, td.ok { font-weight: 600; }
.grid { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(10.5rem, 1fr)); }
.charts { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(19rem, 1fr)); }
figure { margin: 0; padding: .5rem; background: var(--panel); border: 1px solid var(--line);
  border-radius: 6px; } figure.ok, figure.error, figure.warning { color: inherit; }
figure.error { border-color: var(--error); } figure.warning { border-color: var(--warning); }
figure img { display: block; width: 100%; image-rendering: auto; background: #000; }
figcaption { font-size: .85rem; margin-top: .35rem; overflow-wrap: anywhere; }
footer { margin-top: 3rem; font-size: .85rem; color: var(--soft); }
.dots circle { fill: var(--blue); fill-opacity: .55; } .dots .mean { stroke: var(--ink); }
.dots .range { fill: var(--blue); fill-opacity: .13; } .dots .zero { stroke: var(--soft);
  stroke-dasharray: 3 3; } .dots text { font-size: 11px; fill: var(--soft); }
svg { display: block; width: 100%; height: auto; } figure svg text { fill: var(--soft);
  font-size: 11px; }
.train { fill: var(--train); } .valid { fill: var(--valid); } .test { fill: var(--test); }
.axis { stroke: var(--line); } .key { display: inline-block; width: .8em; height: .8em; }
.key.train { background: var(--train); } .key.valid { background: var(--valid); }
.key.test { background: var(--test); }
@media print { body { max-width: none; padding: 0; font-size: 11px; } h2 { break-after: avoid; }
  figure, tr, .chart { break-inside: avoid; } figure { background: none; }
  .wide { overflow: visible; } th, td { padding: .2rem .4rem; } }
]]

-- The style of a page in sections.
M.SECTIONS = [[
body { max-width: 66rem; padding: 2.5rem 1.5rem 4rem; }
h2 { margin: 2.5rem 0 .75rem; padding-top: .5rem; border-top: 1px solid var(--line); }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
  padding: .8rem 1rem; overflow-x: auto; font-size: 12.5px; }
]]

-- The beginning of a page; more: additional style.
function M.open(title, more)
  return table.concat({
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
    [[<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; ]]
      .. [[style-src 'unsafe-inline'">]],
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    "<title>" .. M.text(title) .. "</title>\n<style>\n" .. STYLE .. (more or "")
      .. "</style>\n</head>\n<body>" }, "\n")
end

function M.close()
  return "</body>\n</html>\n"
end

-- A chart of numbers as dots along one axis. NaN is skipped; returns "" without any number. o:
-- values =, lo =, hi = the ends of the axis (default: of the values), titles = of the dots
-- (default: the values), colors = their names (default: all alike), mean =, low =, high = its
-- interval (nil: none), zero = true for a line at 0, format = of the ends, about = text for screen
-- readers.
function M.dots(o)
  local W, SIDE, lo, hi = 640, 14, o.lo or math.huge, o.hi or -math.huge
  for _, list in ipairs { o.values, { o.mean, o.low, o.high } } do
    for _, x in pairs(list) do
      if x == x then lo, hi = math.min(lo, x), math.max(hi, x) end
    end
  end
  if lo > hi then return "" end
  local function at(x)
    return hi > lo and SIDE + (x - lo) / (hi - lo) * (W - 2 * SIDE) or W / 2
  end
  local out = { string.format('<svg class="dots" viewBox="0 0 %d 46" role="img" aria-label="%s">',
                              W, M.text(o.about)) }
  local function add(fmt, ...) out[#out + 1] = string.format(fmt, ...) end
  local function upright(class, x, top, bottom)
    add('<line class="%s" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>', class, at(x), top, at(x), bottom)
  end
  if o.low then
    add('<rect class="range" x="%.1f" y="4" width="%.1f" height="22"/>', at(o.low),
        math.max(1, at(o.high) - at(o.low)))
  end
  if o.zero then upright("zero", 0, 2, 30) end
  add('<line class="axis" x1="%d" y1="30" x2="%d" y2="30"/>', SIDE, W - SIDE)
  for i, x in ipairs(o.values) do
    local color = o.colors and string.format(' style="fill:var(--%s);fill-opacity:.85"',
                                             o.colors[i]) or ""
    if x == x then
      add('<circle cx="%.1f" cy="15" r="5"%s><title>%s</title></circle>', at(x), color,
          M.text(o.titles and o.titles[i] or util.fixed(x)))
    end
  end
  if o.mean and o.mean == o.mean then upright("mean", o.mean, 3, 27) end
  local ends = o.format or "%.3g"
  add('<text x="%d" y="43">' .. ends .. '</text><text x="%d" y="43" text-anchor="end">' .. ends
      .. "</text></svg>", SIDE, lo, W - SIDE, hi)
  return table.concat(out)
end

-- A cell: text, or { html = } unescaped; `class` may be "" for none.
local function cell(tag, v, class)
  local inside = type(v) == "table" and v.html or M.text(v)
  class = type(v) == "table" and v.class or class
  return string.format("<%s%s>%s</%s>", tag,
                       class and class ~= "" and ' class="' .. class .. '"' or "", inside, tag)
end

-- A table that may be wider than the page. head: texts; rows: lists of cells, a text or { html =,
-- class = }; numbers: the first column of numbers, which are right-aligned (default: none).
function M.table(head, rows, numbers)
  local out = { '<div class="wide"><table><thead><tr>' }
  local function line(tag, cells)
    for i, v in ipairs(cells) do
      out[#out + 1] = cell(tag, v, numbers and i >= numbers and "number")
    end
  end
  line("th", head)
  out[#out + 1] = "</tr></thead><tbody>\n"
  for _, row in ipairs(rows) do
    out[#out + 1] = "<tr>"
    line("td", row)
    out[#out + 1] = "</tr>\n"
  end
  out[#out + 1] = "</tbody></table></div>"
  return table.concat(out)
end

return M
