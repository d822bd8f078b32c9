-- doctor_checks.lua -- the checks of `segengine doctor data` on files and voxels; the checks of
-- numbers and of the recipe are in doctor_recipe.lua.
--
-- A check has a name and run(context, add). It calls add(level, row) for each finding, with level
-- "error" (training would fail or learn from wrong data) or "warning" (worth a look), and returns
-- the text for the case without findings. context and rows are described in doctor_data.lua.
-- `found` names no case: as a function it gets a function that names other cases.

local leftovers = require "seg.data.leftovers"
local sets = require "seg.data.set"
local util = require "seg.util"

local checks = {}

local function check(name, run)
  checks[#checks + 1] = { name = name, run = run }
end

-- "a, b and 3 more"
local function some(list)
  local n = #list
  if n <= 8 then return table.concat(list, ", ") end
  return table.concat(list, ", ", 1, 8) .. " and " .. n - 8 .. " more"
end

local plural = util.plural

-- The attributes of a step of a set as text; nil without the step.
local function step(set, name) return util.step(set.steps, name) end

-- The text of a reader without the key in front, and its advice separately.
local function parts_of(text, key)
  if key and text:sub(1, #key + 2) == key .. ": " then text = text:sub(#key + 3) end
  local what, fix = text:match("^(.-); fix: (.*)$")
  return what or text, fix
end

-- Faults ----------------------------------------------------------------------

-- Kinds of faults of a case, by words of the reader's error: the name of the check, a text that
-- names no case or path, and the fix. The last kind takes all other faults.
local kinds = {
  { "finite", { "not finite" }, "holds numbers that are not finite",
    "mend the file, or leave the case out" },
  { "labels", { ", wanted 0", "values 0 and 255", "declared label" },
    "holds values that are not declared labels", "list the values of the classes in labels" },
  { "grid", { "resample_mask", "fix: resample = true", "the grids differ in",
              "cover different regions" }, "lies on another grid than the image",
    "check that they belong together; if they do, resample_mask = true, of channels resample = "
    .. "true" },
  { "constant", { "voxels are ", "voxels of the series are" }, "has one value everywhere",
    "look at the file, or leave the case out" },
  { "files", {}, "cannot be read", "fetch the file again, or leave the case out" },
}

local function kind_of(text)
  for _, kind in ipairs(kinds) do
    for _, part in ipairs(kind[2]) do
      if text:find(part, 1, true) then return kind[1], kind end
    end
  end
  return "files", kinds[#kinds]
end

-- Adds a row for every field of this kind of fault. A mask is loaded on the grid of its image, so a
-- fault of the image is reported once.
local function add_faults(context, add, wanted)
  for _, case in ipairs(context.all) do
    local seen = {}
    for _, field in ipairs(case.fields) do
      local name, kind = kind_of(field.fault or "")
      local what = parts_of(field.fault or "", case.key):gsub("^%S+: ", "")
      local twice = seen[what]
      seen[what] = true
      if field.fault and name == wanted and not twice then
        local said, fix = parts_of(sets.advised(case.part.set.source, field.fault), case.key)
        add("error", { case = case, said = said, found = field.name .. " " .. kind[3],
                       said_fix = fix,
                       fix = leftovers.is_locked(field.fault) and leftovers.unlock or kind[4] })
      end
    end
  end
end

-- Whether an error of opening concerns cases without a partner.
local function lacks_partner(o)
  return o.unmatched or o.why:find("without a partner", 1, true)
end

check("pairing", function(context, add)
  local seen, cases, fields = {}, 0, "no fields"
  for _, o in ipairs(context.opened) do
    -- parts of one split have the same error
    if lacks_partner(o) and not seen[o.why] then
      seen[o.why] = true
      local said, fix = parts_of(o.why)
      add("error", { said = said, found = "cases lack an image or a mask"
                                          .. (o.unmatched and "; they were left out here" or ""),
                     said_fix = fix, fix = "complete the data, or skip_unmatched = true" })
    end
  end
  for _, part in ipairs(context.parts) do
    local skipped = part.ds:skipped()
    if skipped > 0 and #context.opened == 0 and not seen[part.set.source] then
      seen[part.set.source] = true
      add("warning", { found = plural(skipped, "case") .. " left out without a partner "
                               .. "(skip_unmatched)",
                       fix = "complete the data, if they belong to it" })
    end
    cases, fields = cases + #part.cases, table.concat(part.ds:fields(), ", ")
  end
  return cases > 0 and string.format("%s, each with %s", plural(cases, "case"), fields)
end)

check("files", function(context, add)
  local seen = {}
  for _, o in ipairs(context.opened) do
    if not lacks_partner(o) and not seen[o.why] then
      seen[o.why] = true
      for _, why in ipairs(o.files or {}) do
        local said, fix = parts_of(why)
        local locked = leftovers.is_locked(why)
        add("error", { said = said, said_fix = fix,
                       found = locked and "a file or folder cannot be opened"
                               or "a file is damaged",
                       fix = locked and leftovers.unlock or "fetch it again" })
      end
      local said, fix = parts_of(o.why)
      local number = o.why:find("must be a number", 1, true)
      if #(o.files or {}) == 0 then
        add("error", { said = said, part = o.part,
                       found = number and "a number of a case is not a number or not finite"
                               or "the set cannot be opened",
                       said_fix = fix or false, fix = "as the message on stdout says" })
      end
    end
  end
  add_faults(context, add, "files")
  return #context.all > 0 and "all can be read"
end)

for _, kind in ipairs(kinds) do
  if kind[1] ~= "files" and kind[1] ~= "constant" then
    check(kind[1], function(context, add)
      add_faults(context, add, kind[1])
      local fine = { finite = "all numbers are finite", labels = "only declared values",
                     grid = "the fields of each case share one" }
      return #context.all > 0 and fine[kind[1]]
    end)
  end
end

-- Whether the loaded image has a single value.
local function is_constant(case)
  local f = case.fields[1]
  return case.size and f.kind ~= "label" and f.lo == f.hi
end

check("constant", function(context, add)
  add_faults(context, add, "constant")
  for _, case in ipairs(context.all) do
    if is_constant(case) then
      add("error", { case = case, found = string.format("all voxels of %s are %.6g",
                                                        case.fields[1].name, case.fields[1].lo),
                     fix = "look at the file, or leave the case out" })
    end
  end
  return #context.all > 0 and "every image has contrast"
end)

check("steps", function(context, add)
  for _, case in ipairs(context.all) do
    if case.fault and not is_constant(case) then
      local said, fix = parts_of(case.fault, case.key)
      add("error", { case = case, said = said, found = "a step of the recipe fails on it",
                     said_fix = fix, fix = "look at the file, or change the step" })
    end
  end
  return #context.all > 0 and "they run on every case"
end)

check("readers", function(context, add)
  for _, case in ipairs(context.all) do
    for line in (case.notes or ""):gmatch("[^\n]+") do
      add("warning", { case = case, said = line, found = "its reader warns",
                       fix = "look at the picture: does its truth fit the image?" })
    end
  end
  return #context.all > 0 and "no warnings"
end)

-- Whether the shape from a case fits the shape of an input. With buckets any length up to its w
-- fits.
local function fits(set, input, got)
  local want = input.shape
  if #got ~= #want - 1 then return false end
  for i = 1, #got do
    local shorter = set.batch.bucket and input.rank >= 1 and i == #got and got[i] < want[i + 1]
    if got[i] ~= want[i + 1] and not shorter then return false end
  end
  return true
end

check("inputs", function(context, add)
  for _, part in ipairs(context.parts) do
    for _, input in ipairs(context.recipe.inputs) do
      local want, other, has = table.concat(input.shape, "x", 2), {}, false
      local name = part.set:field_of(input.name)
      for _, case in ipairs(part.cases) do
        for _, field in ipairs(case.fields) do
          has = has or field.name == name
          local got = field.name == name and field.shape
          if got and not fits(part.set, input, got) then
            other[#other + 1] = case
            if #other == 1 then
              add("error", { case = case, fix = "a fit or resize step, or another input",
                             found = string.format("input %s expects %s, this gives %s", input.name,
                                                   want, table.concat(got, "x")) })
            end
          end
        end
      end
      if not has then
        add("error", { part = part.name, found = "no field for the input " .. input.name,
                       fix = "name it as the field is called" })
      elseif #other > 1 then
        add("error", { part = part.name, fix = "a fit or resize step, or another input",
                       found = string.format("and %d more do not fit input %s", #other - 1,
                                             input.name) })
      end
    end
  end
  return #context.parts > 0 and "samples fit the inputs"
end)

-- Geometry --------------------------------------------------------------------

-- Cases with a grid; a case of slabs only once.
local function with_grid(context)
  local list, seen = {}, {}
  for _, case in ipairs(context.all) do
    if case.size and not (case.slabs and seen[case.key]) then
      list[#list + 1], seen[case.key] = case, true
    end
  end
  return list
end

local AXES = { "w", "h", "d" }

-- Adds cases with a number along an axis that is `most` times the median or more away from it.
local function add_far(context, add, what, most, fix)
  local list = with_grid(context)
  local middle = {}
  for axis = 1, 3 do
    local values = {}
    for i, case in ipairs(list) do values[i] = case[what][axis] end
    middle[axis] = util.median(values)
  end
  for _, case in ipairs(#list >= 4 and list or {}) do
    local far = {}
    for axis = 1, 3 do
      local v, m = case[what][axis], middle[axis]
      if v > most * m or v * most < m then
        far[#far + 1] = string.format("%.4g along %s, the median is %.4g", v, AXES[axis], m)
      end
    end
    if #far > 0 then
      add("warning", { case = case, found = table.concat(far, "; "), fix = fix })
    end
  end
  return #list > 0 and string.format("median %.4g x %.4g x %.4g", table.unpack(middle))
end

check("spacing", function(context, add)
  local set = context.recipe.train
  local mm = (step(set, "resample") or ""):match("spacing_mm=(%S+)")
  if mm and not ("," .. mm .. ","):find(",0,", 1, true) then
    return "resampled to " .. mm:gsub(",", " x ") .. " mm"
  end
  return add_far(context, add, "spacing", 1.5,
                 "check the header; a resample step brings all to one spacing")
end)

check("extents", function(context, add)
  local first = context.all[1]
  -- sequences and photographs have any size
  local rank = first and first.fields[1].rank or 0
  if rank == 1 or (rank == 2 and step(context.recipe.train, "resize")) then
    return "any size is brought to one"
  end
  return add_far(context, add, "size", 2, "look whether it is cut off or of another protocol")
end)

check("axes", function(context, add)
  local list, count, usual = with_grid(context), {}, nil
  local set = context.recipe.train
  local sliced = step(set, "slices")
  if step(set, "orient") or (sliced and not sliced:find("axis=stored", 1, true)) then
    return #list > 0 and "all are turned to one view"
  end
  for _, case in ipairs(list) do
    count[case.axes] = (count[case.axes] or 0) + 1
    if not usual or count[case.axes] > count[usual] then usual = case.axes end
  end
  for _, case in ipairs(list) do
    if case.axes ~= usual then
      add("warning", { case = case, found = "axes " .. case.axes .. ", most have " .. usual,
                       fix = 'an orient step, as :orient { plane = "axial" }' })
    end
  end
  return usual and "axes " .. usual
end)

-- Voxels ----------------------------------------------------------------------

check("slices", function(context, add)
  local list = with_grid(context)
  for _, case in ipairs(list) do
    if case.gaps > 0 and not is_constant(case) then
      add("warning", { case = case, fix = "look whether slices were lost",
                       found = string.format("%s of one value between others",
                                             plural(case.gaps, "slice")) })
    end
    if case.twice > 0 then
      add("warning", { case = case, fix = "look whether a slice was stored twice",
                       found = string.format("slices %d and %d are the same%s", case.pair[1],
                                             case.pair[2], case.twice > 1 and ", and "
                                             .. plural(case.twice - 1, "more pair") or "") })
    end
  end
  return #list > 0 and "none is empty between others or a duplicate"
end)

-- Two cases with equal voxels: an error if they are in different parts, else a warning.
check("copies", function(context, add)
  local first = {}
  for _, case in ipairs(context.all) do
    local duplicate = case.image and not is_constant(case) and first[case.image]
    -- slabs: the same case, recognised by its key
    if duplicate and not (case.slabs and duplicate.key == case.key) then
      local two = duplicate.part ~= case.part
      add(two and "error" or "warning",
          { case = case, fix = two and "one of them only: it is trained on and measured with"
                             or "remove one, if they are the same image",
            found = function(name)
              return string.format("the same voxels as %s%s", name(duplicate),
                                   two and " of " .. duplicate.part.name or "")
            end })
    elseif case.image and not duplicate then
      first[case.image] = case
    end
  end
  return #context.all > 0 and "no image appears twice"
end)

check("patients", function(context, add)
  local first, slabs, patients = {}, false, 0
  for _, case in ipairs(context.all) do
    local other = first[case.patient]
    if case.slabs then
      slabs = true
    elseif other and other.part ~= case.part then
      add("error", { case = case, fix = "split by patient, as :split does",
                     found = function(name)
                       return string.format("its patient is in %s as well, as %s", other.part.name,
                                            name(other))
                     end })
    end
    if not other then first[case.patient], patients = case, patients + 1 end
  end
  if slabs then
    add("warning", { found = "the parts are slabs of the same volumes: a result says nothing of "
                             .. "other patients", fix = "more patients, split by patient" })
  end
  return patients > 0 and plural(patients, "patient") .. ", each on one side"
end)

-- A function that returns the distance of v from the median in standard deviations of a normal
-- distribution with the same median deviation. A small share of the median is the least spread, so
-- that values next to equal ones are not infinitely far.
local function robust(values)
  local m, off = util.median(values), {}
  for i, v in ipairs(values) do off[i] = math.abs(v - m) end
  local spread = math.max(1.4826 * util.median(off), 0.02 * math.abs(m), 1e-12)
  return function(v) return (v - m) / spread end, m
end

local FAR = 8 -- robust standard deviations

check("intensity", function(context, add)
  local list = {}
  for _, case in ipairs(with_grid(context)) do
    if case.fields[1].kind ~= "label" and not is_constant(case) then list[#list + 1] = case end
  end
  local numbers = {
    { "mean", function(f) return f.mean end },
    { "range", function(f) return f.hi - f.lo end },
  }
  for _, n in ipairs(#list >= 5 and numbers or {}) do
    local name, of = n[1], n[2]
    local values = {}
    for i, case in ipairs(list) do values[i] = of(case.fields[1]) end
    local z, median = robust(values)
    for i, case in ipairs(list) do
      if math.abs(z(values[i])) > FAR then
        add("warning", { case = case, fix = "look whether unit, window or scanner are the same",
                         found = string.format("%s of %s %.4g, the median is %.4g (%.0f robust sd)",
                                               name, case.fields[1].name, values[i], median,
                                               math.abs(z(values[i]))) })
      end
    end
  end
  return #list > 0 and "mean and range are alike"
end)

-- Ground truth ----------------------------------------------------------------

-- The voxels of each class and the number of cases that have it, in a part; of the classes that the
-- recipe uses.
local function classes_of(part)
  local labels, chosen = part.ds:labels(), step(part.set, "select")
  local list = {}
  for k, value in ipairs(labels) do
    if not chosen or ("," .. chosen:match("=(.*)$") .. ","):find("," .. k .. ",", 1, true) then
      list[#list + 1] = { k = k, value = value, voxels = 0, cases = 0 }
    end
  end
  local all = 0
  for _, case in ipairs(part.cases) do
    for _, n in pairs(case.voxels) do all = all + n end
    for _, c in ipairs(list) do
      local n = case.voxels[c.k] or 0
      c.voxels, c.cases = c.voxels + n, c.cases + (n > 0 and 1 or 0)
    end
  end
  return list, all
end

local function class_name(c)
  return c.value == c.k and "class " .. c.k or string.format("class %d (value %d)", c.k, c.value)
end

local RARE = 1e-5 -- share of voxels below which a class is hard to learn

check("classes", function(context, add)
  local fine = {}
  for _, part in ipairs(context.parts) do
    local list, all = classes_of(part)
    for _, c in ipairs(all > 0 and list or {}) do
      local share = c.voxels / all
      if c.voxels == 0 then
        local train = part.name == "train"
        add(train and "error" or "warning",
            { part = part.name, found = class_name(c) .. " is in no case",
              fix = train and "it cannot be learnt: leave it out of labels, or another split"
                or "its result says nothing: another split" })
      elseif part.name == "train" and (share < RARE or (c.cases == 1 and #part.cases > 3)) then
        add("warning", { part = part.name, fix = "more cases that have it, or a loss for rare "
                                                 .. "classes",
                         found = string.format("%s is %.2g %% of the voxels, in %s", class_name(c),
                                               100 * share, plural(c.cases, "case")) })
      end
      fine[#fine + 1] = string.format("%s %s %.3g %%", part.name, class_name(c), 100 * share)
    end
  end
  return #fine > 0 and some(fine)
end)

-- Adds parts without foreground after the steps.
local function add_empty_parts(context, add)
  for _, part in ipairs(context.parts) do
    local seen, left, before = 0, 0, 0
    for _, case in ipairs(part.cases) do
      if case.left >= 0 then
        seen, left, before = seen + 1, left + case.left, before + case.foreground
      end
    end
    if seen > 0 and seen == #part.cases and left == 0 then
      local chosen = step(part.set, "select")
      add("error", { part = part.name, found = before == 0 and "every truth is 0 everywhere"
                     or "every truth is 0 everywhere after the steps"
                     .. (chosen and ", select " .. chosen or ""),
                     fix = "other labels, or another split" })
    end
  end
end

check("empty", function(context, add)
  local masks = 0
  add_empty_parts(context, add)
  for _, case in ipairs(context.all) do
    if next(case.voxels) ~= nil then
      masks = masks + 1
      if case.foreground == 0 then
        add("warning", { case = case, found = "its truth is empty",
                         fix = "right for a healthy one; else find its mask" })
      end
    end
  end
  return masks > 0 and "every truth has something"
end)

check("outside", function(context, add)
  local masks = 0
  for _, case in ipairs(context.all) do
    if case.foreground > 0 and not is_constant(case) then
      masks = masks + 1
      local share = case.outside / case.foreground
      if share > 0.5 then
        add(share == 1 and "error" or "warning",
            { case = case, found = string.format("%.3g %% of its truth lies where the image is "
                                                 .. "empty", 100 * share),
              fix = "look at the picture: is it the mask of this image?" })
      end
    end
  end
  return masks > 0 and "truth lies where the image has content"
end)

-- Calls f(case, name, number) for the numbers of all cases; the name of a field with several
-- numbers is "pose[2]".
local function each_number(context, f)
  for _, case in ipairs(context.all) do
    for _, field in ipairs(case.fields) do
      for k, v in ipairs(field.numbers or {}) do
        f(case, #field.numbers > 1 and field.name .. "[" .. k .. "]" or field.name, v)
      end
    end
  end
end

-- used by doctor_recipe.lua, which adds the other checks, and by doctor_page.lua
checks.add, checks.step, checks.some, checks.plural = check, step, some, plural
checks.parts_of, checks.classes_of, checks.class_name = parts_of, classes_of, class_name
checks.with_grid, checks.each_number = with_grid, each_number

return checks
