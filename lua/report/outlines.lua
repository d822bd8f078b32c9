-- outlines.lua -- draws ground truth and prediction of a slice over its image, class by class.
--
-- Ground truth is a tinted area, prediction an outline, so that the two can be distinguished
-- without colours too. The colours are those of Okabe and Ito (Color Universal Design, 2008), which
-- are distinguishable with any colour vision; the lighter ones come first, because images are dark.

local core = require "seg.core"
local base = require "seg.evaluate.metric_base"

local M = {}

M.colors = { 0x56b4e9, 0xe69f00, 0xf0e442, 0xcc79a7, 0x009e73, 0xd55e00, 0x0072b2, 0xffffff }

-- With a single class ground truth and prediction have different colours.
M.truth, M.found = M.colors[1], M.colors[2]

local COVER = 0.4 -- opacity of a tint

-- The colour of a class from 1; the colours repeat.
function M.color_of(class) return M.colors[(class - 1) % #M.colors + 1] end

-- The layout of the classes in the channels of an output and its target: the number of classes;
-- whether the channels of the output are independent probabilities; whether the target has class
-- numbers.
local function layout(channels, truth_channels, kind)
  if channels == 1 then return 1, true, false end
  if truth_channels == channels and kind ~= "softmax" then return channels, true, false end
  return channels - 1, false, truth_channels == 1
end

-- The names of the classes drawn for the output `node` with the target `target`.
function M.names(recipe, node, target)
  local count = layout(node.c, target and target.c or 1, node.kind)
  if count == 1 then return { "foreground" } end
  return base.class_names(recipe, { word = "class" }, count, nil, 1)
end

-- A function that reads channel c at row y, column x of plane k of an array (1,C,[D],H,W).
function M.plane(a, k)
  if #a.shape == 5 then return function(c, y, x) return a:get(1, c, k, y, x) end end
  return function(c, y, x) return a:get(1, c, y, x) end
end

-- A map of plane k of class numbers that is 1 where the class is c.
local function where_class(a, k, c)
  local shape = a.shape
  local h, w = shape[#shape - 1], shape[#shape]
  local map, at = core.array.zeros { h, w }, M.plane(a, k)
  for y = 1, h do
    for x = 1, w do
      if at(1, y, x) == c then map:set(1, y, x) end
    end
  end
  return map
end

-- A map for each class from 1 of plane k of an output (1,C,[D],H,W), 1 where its channel is the
-- largest; class 0 is the first channel.
local function largest_maps(out, k)
  local shape, at, maps = out.shape, M.plane(out, k), {}
  local classes, h, w = shape[2], shape[#shape - 1], shape[#shape]
  for c = 1, classes - 1 do maps[c] = core.array.zeros { h, w } end
  for y = 1, h do
    for x = 1, w do
      local best, most = 0, -math.huge
      for c = 1, classes do
        local v = at(c, y, x)
        if v > most then best, most = c - 1, v end
      end
      if best > 0 then maps[best]:set(1, y, x) end
    end
  end
  return maps
end

-- The classes of plane k of an output of `kind` and of its target, both (1,C,[D],H,W): { { truth =,
-- truth_plane =, found =, found_plane = }, ... }, maps with values above 0.5 inside the class.
function M.classes(out, truth, k, kind)
  local depth = #out.shape == 5 and out.shape[3] or 1
  local count, each, numbers = layout(out.shape[2], truth.shape[2], kind)
  local largest, list = not each and largest_maps(out, k) or nil, {}
  for c = 1, count do
    local class = {}
    if each then
      class.found, class.found_plane = out, (c - 1) * depth + k
      class.truth, class.truth_plane = truth, (c - 1) * depth + k
    else
      class.found, class.found_plane = largest[c], 1
      if numbers then
        class.truth, class.truth_plane = where_class(truth, k, c), 1
      else
        class.truth, class.truth_plane = truth, c * depth + k -- after the background
      end
    end
    list[c] = class
  end
  return list
end

-- Draws the ground truth, or the prediction, of such classes at x, y of a canvas.
function M.draw_truth(p, x, y, zoom, classes)
  for c, class in ipairs(classes) do
    local color = #classes == 1 and M.truth or M.color_of(c)
    p:wash(x, y, zoom, class.truth, class.truth_plane, { { 0, color, 0 }, { 1, color, COVER } })
  end
end

function M.draw_found(p, x, y, zoom, classes)
  for c, class in ipairs(classes) do
    p:contour(x, y, zoom, class.found, class.found_plane, 0.5, math.max(1.2, zoom * 0.5),
              #classes == 1 and M.found or M.color_of(c))
  end
end

-- The legend for a page: { { name =, color = 0xrrggbb, line = true for an outline }, ... }.
function M.legend(names)
  if #names == 1 then
    return { { name = "truth", color = M.truth }, { name = "prediction", color = M.found,
                                                    line = true } }
  end
  local list = {}
  for c, name in ipairs(names) do list[c] = { name = name, color = M.color_of(c) } end
  list[#list + 1] = { name = "tinted: truth" }
  list[#list + 1] = { name = "outlined: prediction" }
  return list
end

-- Draws the legend in a picture at x, y, in dots of `dot` pixels. -> its width
function M.write_legend(p, x, y, dot, names)
  local at = x
  for c, name in ipairs(names) do
    p:text(at, y, dot, M.color_of(c), name)
    at = at + core.picture.text_width(dot, name .. "   ")
  end
  return at - x
end

-- The width of the legend in pixels.
function M.legend_width(dot, names)
  return math.ceil(core.picture.text_width(dot, table.concat(names, "   ")))
end

-- The recipe's input `name`, which is the target; nil without one.
function M.target(recipe, name)
  for _, input in ipairs(recipe.inputs) do
    if input.name == name then return input end
  end
end

-- Whether output and target have the same extents.
function M.comparable(out, truth)
  return #out.shape == #truth.shape and out.shape[#out.shape] == truth.shape[#truth.shape]
end

return M
