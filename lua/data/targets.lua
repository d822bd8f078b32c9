-- targets.lua -- checks that the ground truth of a data set fits the losses and metrics.
--
-- A network trains without an error on meaningless targets: a class 2 for a single output channel
-- that can only be 0 or 1, or a class that no step leaves. The use of a target in the graph and the
-- classes and numbers of a data set are known before the first step; they are compared here.

local core = require "seg.core"
local operands = require "seg.recipe.loss_operands"
local recipes = require "seg.recipe.recipe"
local util = require "seg.util"

local M = {}

-- Binary losses, channel by channel.
local BINARY = { bce = true, focal = true }
-- Losses and counts of classes; operators in neither table compare numbers of any kind. Losses made
-- of nodes say themselves what they take (loss_operands.lua).
local CLASSES = { cross_entropy = true, dice_loss = true, bce_dice = true, tversky = true,
                  overlap = true }

-- The values that a use accepts: the highest class, and whether fractions between 0 and it are
-- valid as well; nil: any number. A loss with a mask accepts any number, because voxels outside the
-- mask do not count.
local function takes(use)
  local binary = BINARY[use.op] or use.binary
  if use.masked or not (binary or CLASSES[use.op] or use.classes) then return nil end
  local shares = binary or (use.op ~= "cross_entropy"
                                    and (use.channels == 1 or use.truths > 1))
  return shares and 1 or use.channels - 1, shares
end

local function range(most) return most == 1 and "0 and 1" or "0.." .. most end

local function name_of(use) return use.op == "overlap" and "the metric" or use.op end

-- The numbers of an attribute of a step in the text of steps: { 1, 3 }, or nil.
local function numbers_of(steps, step, attribute)
  local line = util.step(steps, step)
  local text = line and (" " .. line):match(" " .. attribute .. "=(%S+)")
  local list = {}
  for number in (text or ""):gmatch("[^,]+") do list[#list + 1] = tonumber(number) end
  return text and list
end

-- The first field of a kind: its index and name, or nil.
local function first(ds, kind)
  for i, k in ipairs(ds:kinds()) do
    if k == kind then return i, ds:fields()[i] end
  end
end

-- Whether the set has a function of the recipe among its steps; the classes are then known only
-- from the samples.
local function has_function(set) return util.step(set.steps, "change") ~= nil end

-- Checks the classes of a field of class numbers against the outputs.
local function check_classes(uses, ds, set, name, add)
  if has_function(set) then return end
  local values, selected = ds:labels(), numbers_of(set.steps, "select", "labels")
  local classes = selected and 1 or #values
  for _, class in ipairs(selected or {}) do
    if class > #values then
      add { found = string.format('select takes class %d, but "%s" has classes %s', class, name,
                                  range(#values)),
            fix = "the number of a class: the place of its value in labels" }
    end
  end
  for _, use in ipairs(uses) do
    local most = use.input == name and use.truths == 1 and takes(use)
    if most and classes > most and use.ignore ~= classes then
      local one = {}
      for i = 1, classes do one[i] = i end
      add { found = string.format('"%s" has classes %s, but %s takes %s: the output has %s', name,
                                  range(classes), name_of(use), range(most),
                                  util.plural(use.channels, "channel")),
            fix = string.format("%d channels with cross_entropy or dice_loss, or %s", classes + 1,
                                most == 1 and ":select { labels = { " .. table.concat(one, ", ")
                                .. " } }, which makes one class of them"
                                or "fewer values in labels") }
      return -- the other faults follow from this one
    end
  end
end

-- Checks the numbers that stand for classes.
local function check_numbers(uses, ds, set, field, name, add)
  if has_function(set) then return end
  for _, use in ipairs(uses) do
    local most, shares = takes(use)
    for i = 1, use.input == name and most and #ds:cases() or 0 do
      for _, v in ipairs(ds:numbers(i, field)) do
        local fits = v >= 0 and v <= most and (shares or v == v // 1)
        if not fits and v ~= use.ignore then
          add { case = i, found = string.format('"%s" is %s, but %s takes %s: the output has %s',
                                                name, util.number(v), name_of(use),
                                                shares and "0 to 1" or "classes " .. range(most),
                                                util.plural(use.channels, "channel")),
                fix = not shares and v == v // 1 and v > most
                  and string.format("%d channels or more, one for each class from 0", v // 1 + 1)
                  or "classes from 0 without gaps, or a loss of numbers as mse" }
          return -- one case is enough
        end
      end
    end
  end
end

-- The name of a map with several channels that the recipe uses, which a flip may exchange; nil
-- without.
local function map_of(recipe, ds)
  for i, kind in ipairs(ds:kinds()) do
    for _, input in ipairs(kind == "value" and recipe.inputs or {}) do
      if input.name == ds:fields()[i] and input.c > 1 then return input.name end
    end
  end
end

-- Checks that the classes and numbers that a flip exchanges exist.
local function check_flip(recipe, ds, set, add)
  local swap = set.augmented and numbers_of(set.steps, "flip", "swap")
  local negate = set.augmented and numbers_of(set.steps, "flip", "negate")
  local _, label = first(ds, "label")
  local number, pose = first(ds, "numbers")
  local classes = numbers_of(set.steps, "select", "labels") and 1 or #ds:labels()
  local map = label and map_of(recipe, ds)
  if swap and swap[1] and map then
    add { found = string.format('flip swaps classes of "%s", but not the channels of "%s"', label,
                                map),
          fix = "flip without swap, or a recipe without " .. map }
    return
  end
  for _, class in ipairs(swap or {}) do
    if not label then
      -- the flip itself checks the number of channels
      if map_of(recipe, ds) then break end
      add { found = "flip swaps classes, but no field has class numbers",
            fix = "leave swap out, or a mask" }
      break
    elseif class > classes and not has_function(set) then
      add { found = string.format('flip swaps class %d, but "%s" has classes %s', class, label,
                                  range(classes)),
            fix = "numbers of classes in swap: the place of their value in labels" }
      break
    end
  end
  if negate and not number then
    add { found = "flip negates numbers, but the data set has no field of them",
          fix = "leave negate out, or a field of kind numbers" }
  elseif negate then
    local count = #ds:numbers(1, number)
    for _, k in ipairs(negate) do
      if k > count then
        add { found = string.format('flip negates number %d, but "%s" has %d', k, pose, count),
              fix = "numbers from 1 in negate; 0: all" }
        break
      end
    end
  end
end

-- The uses of inputs by losses and metrics, losses first, because their faults say more. nil
-- without a loss.
local function uses_of(recipe)
  if not recipe.loss then return nil end
  local list, metrics = {}, {}
  local roots = recipes.roots(recipe)
  for _, use in ipairs(core.targets(roots)) do
    table.insert(use.op == "overlap" and metrics or list, use)
  end
  for _, use in ipairs(operands.uses) do
    if core.needs(roots, use.node) then table.insert(list, use) end
  end
  return table.move(metrics, 1, #metrics, #list + 1, list)
end

-- All faults: { { found=, fix=, case= (its index, or nil) }, ... }. A recipe without a loss is for
-- prediction and has no ground truth.
function M.faults(recipe, set, ds)
  local list, uses = {}, uses_of(recipe)
  if not uses then return list end
  local function add(fault) list[#list + 1] = fault end
  for i, kind in ipairs(ds:kinds()) do
    local name = ds:fields()[i]
    if kind == "label" then check_classes(uses, ds, set, name, add) end
    if kind == "numbers" then check_numbers(uses, ds, set, i, name, add) end
  end
  check_flip(recipe, ds, set, add)
  return list
end

-- Raises the first fault.
function M.check(recipe, set, ds)
  local fault = M.faults(recipe, set, ds)[1]
  if fault then
    local case = fault.case and ds:cases()[fault.case].key .. ": " or ""
    util.fail(fault.case and "data" or "usage", "%sthe %s set: %s; fix: %s", case,
              set.part or "given", fault.found, fault.fix)
  end
end

-- Raises if the prepared ground truth of an opened set is 0 in all samples, or has classes that no
-- loss accepts, which only a function of the recipe can have made.
function M.check_samples(recipe, d)
  local cases, slices, foreground = #d.pipeline:cases(), 0, 0 -- without cases that are left out
  local _, name = first(d.set:dataset(), "label")
  local used, most = false, nil
  for _, input in ipairs(recipe.inputs) do used = used or input.name == name end
  if not used then return end
  for _, use in ipairs(uses_of(recipe) or {}) do
    local highest = use.input == name and use.truths == 1 and not use.ignore and takes(use)
    most = highest and math.min(most or highest, highest) or most
  end
  for i = 1, cases do
    local facts = d.pipeline:facts(i)
    if most and facts.highest > most then
      util.fail("data", '%s: after the steps "%s" has class %d, but losses and metrics take %s; '
                .. "fix: a channel for each class, or other steps", facts.key, name, facts.highest,
                range(most))
    end
    slices, foreground = slices + facts.slices, foreground + facts.foreground_slices
  end
  if foreground == 0 then
    local selected = numbers_of(d.set.steps, "select", "labels")
    util.fail("data", 'the %s set: "%s" is 0 everywhere, in all %d slices of %d cases%s; fix: '
              .. "other labels, or another split", d.set.part or "given", name, slices, cases,
              selected and ", after select took " .. table.concat(selected, ", ") or "")
  end
end

return M
