-- tidy.lua -- post-processing of the class numbers of a case before they are written: removes small
-- or surplus connected components and fills holes.

local show = require "seg.show"
local util = require "seg.util"

local fail = util.fail
local M = {}

-- Options of predict = { } that are steps, and of a class in `each`.
--   keep        "largest", or how many of the largest components stay
--   min_ml      smaller components are removed
--   fill_holes  true, or "slices": each slice by itself
--   connect     26: over faces, edges and corners; 6: over faces
M.known = { keep = util.none, min_ml = util.none, fill_holes = util.none, connect = util.none }

-- Checks the options. An error is raised at the recipe's line; `what` names the options in it.
function M.check(what, o)
  local keep, ml, fill, connect = o.keep, o.min_ml, o.fill_holes, o.connect
  if keep ~= nil and keep ~= "largest" and not (math.type(keep) == "integer" and keep >= 1) then
    fail("usage", '%s: keep must be "largest" or a whole number >= 1, got %s', what, tostring(keep))
  end
  if ml ~= nil and not (math.type(ml) and ml > 0 and ml < math.huge) then
    fail("usage", "%s: min_ml must be a number above 0, got %s", what, tostring(ml))
  end
  if fill ~= nil and type(fill) ~= "boolean" and fill ~= "slices" then
    fail("usage", '%s: fill_holes must be true, false or "slices", got %s', what, tostring(fill))
  end
  if connect ~= nil and connect ~= 6 and connect ~= 26 then
    fail("usage", "%s: connect must be 6 (faces) or 26 (faces, edges and corners), got %s", what,
         tostring(connect))
  end
end

-- Checks each = { NAME or number = { } } in the same way.
function M.check_each(each)
  if each == nil then return end
  if type(each) ~= "table" then
    fail("usage", "seg.recipe: predict: each must be a table of classes, got %s", type(each))
  end
  for key, o in pairs(each) do
    local what = string.format("seg.recipe: predict: each: %s", tostring(key))
    M.check(what, util.options(what, o, M.known))
  end
end

-- The steps of the classes 1, 2, ... of a recipe with these names: the options for all classes,
-- overridden by the options of a class in `each`.
function M.steps(r, names)
  local list, each, found = {}, r.predict.each or {}, {}
  for i, name in ipairs(names) do
    local one = each[name] or each[i] or {}
    if each[name] or each[i] then found[each[name] and name or i] = true end
    local step, words = { class = i }, string.format("%d (%s)", i, name)
    for key in pairs(M.known) do
      step[key] = one[key]
      if step[key] == nil then step[key] = r.predict[key] end
    end
    if step.keep == "largest" then step.keep = 1 end
    if step.keep or step.min_ml or step.fill_holes then
      list[#list + 1] = { step = step, words = words }
    end
  end
  for key in pairs(each) do
    if not found[key] then
      fail("usage", "seg.recipe: predict: each: there is no class %s; %s", tostring(key),
           util.suggest(tostring(key), names))
    end
  end
  return list
end

-- Runs the steps on the class numbers of a case, in place, and prints the changes.
function M.run(labels, steps, key)
  for _, one in ipairs(steps) do
    local done = labels:tidy(one.step)
    if done.voxels_gone + done.voxels_filled > 0 then
      show.aside("%s: class %s: %d of %s gone (%d voxels), %d voxels of holes filled", key,
                 one.words, done.pieces_gone, util.plural(done.pieces, "piece"), done.voxels_gone,
                 done.voxels_filled)
    end
  end
end

return M
