-- overlay.lua -- draws a prediction over its image: one PNG a case.

local core = require "seg.core"
local outlines = require "seg.report.outlines"

local M = {}

local MOST, COLUMNS, SIDE = 9, 3, 320 -- slices of a volume, slices in a row, pixels of a slice

-- Bytes that a picture may take while it is drawn and encoded: about 1500 x 1500 pixels of 3 bytes,
-- twice.
M.CANVAS = 14000000

-- Selects slices of a volume of d slices: evenly spaced between the first and the last slice with a
-- label, or over all slices of an empty volume.
local function choose(labels, d)
  if d == 1 then return { 1 } end
  local low, high = labels:reach()
  if not low then low, high = 1, d end
  local count, list = math.min(MOST, high - low + 1), {}
  for i = 1, count do
    list[i] = low + math.floor((i - 0.5) * (high - low + 1) / count)
  end
  return list
end

-- Writes a PNG of the image of a case with the outlines of its classes, or of a map of numbers with
-- contours at 20, 50 and 80 % of its maximum.
function M.write(path, ds, place, found, names)
  local image = core.data.load_image(ds, place)
  local d, h, w = image:extents()
  local is_labels = found:is_labels()
  local list = choose(found, d)
  local zoom = math.max(1, math.min(64, (SIDE + w // 2) // w))
  local columns = math.min(COLUMNS, #list)
  local rows, gap, head, foot = (#list + columns - 1) // columns, 8, 22, 30
  local pw, ph = w * zoom, h * zoom
  local p = core.picture.canvas(columns * (pw + gap) + gap, rows * (ph + gap + head) + foot,
                                0x16181c)
  local top = not is_labels and found:stats().max or 0
  for i, k in ipairs(list) do
    local x = gap + (i - 1) % columns * (pw + gap)
    local y = head + (i - 1) // columns * (ph + gap + head)
    local slice = image:slice(k)
    local lo, hi = core.picture.window(slice, 1, 0.01, 0.995)
    if d > 1 then p:text(x, y - 14, 1.4, 0xd7dbe0, string.format("slice %d of %d", k, d)) end
    p:gray(x, y, zoom, slice, 1, lo, hi)
    local width = math.max(1.2, zoom * 0.5)
    if is_labels then
      for class = 1, #names do
        p:contour(x, y, zoom, found:slice(k, class), 1, 0.5, width,
                  #names == 1 and outlines.found or outlines.color_of(class))
      end
    elseif top > 0 then
      for level, share in ipairs { 0.2, 0.5, 0.8 } do
        p:contour(x, y, zoom, found:slice(k), 1, share * top, width, outlines.color_of(4 - level))
      end
    end
  end
  local y = rows * (ph + gap + head) + 10
  if is_labels and #names == 1 then
    p:text(gap, y, 1.4, outlines.found, names[1])
  elseif is_labels then
    outlines.write_legend(p, gap, y, 1.4, names)
  end
  p:save(path)
  p:close()
  image:close()
end

return M
