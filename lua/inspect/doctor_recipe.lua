-- doctor_recipe.lua -- the checks of `segengine doctor data` on the numbers of cases and on the
-- recipe: flips, splits, steps. Returns all checks, the checks of doctor_checks.lua first.

local core = require "seg.core"
local checks = require "seg.inspect.doctor_checks"
local functions = require "seg.data.functions"
local targets = require "seg.data.targets"

local check, step, some, plural = checks.add, checks.step, checks.some, checks.plural
local parts_of = checks.parts_of

-- Numbers ---------------------------------------------------------------------

-- The range of the numbers of each field by part: { {lo=, hi=, count=} of each part }.
local function ranges(context)
  local fields, order = {}, {}
  checks.each_number(context, function(case, name, v)
    if not fields[name] then
      fields[name] = {}
      order[#order + 1] = name
    end
    local r = fields[name][case.part.name] or { lo = v, hi = v, count = 0 }
    r.lo, r.hi, r.count = math.min(r.lo, v), math.max(r.hi, v), r.count + 1
    fields[name][case.part.name] = r
  end)
  return fields, order
end

check("numbers", function(context, add)
  local fields, order = ranges(context)
  local fine = {}
  for _, name in ipairs(order) do
    local train = fields[name].train
    if train then
      fine[#fine + 1] = string.format("%s %.6g .. %.6g", name, train.lo, train.hi)
      if train.lo == train.hi and train.count > 1 then
        add("warning", { part = "train", fix = "leave it out, or look how it was read",
                         found = string.format("%s is %.6g in all cases", name, train.lo) })
      end
      for _, part in ipairs { "valid", "test" } do
        local r = fields[name][part]
        local room = 0.1 * (train.hi - train.lo)
        if r and (r.lo < train.lo - room or r.hi > train.hi + room) then
          add("warning", { part = part, fix = "another split, or more cases to learn from",
                           found = string.format("%s is %.6g .. %.6g, in train %.6g .. %.6g", name,
                                                 r.lo, r.hi, train.lo, train.hi) })
        end
      end
    end
  end
  return #fine > 0 and some(fine)
end)

-- The recipe ------------------------------------------------------------------

check("targets", function(context, add)
  local seen = {}
  for _, part in ipairs(context.parts) do
    for _, fault in ipairs(targets.faults(context.recipe, part.set, part.ds)) do
      -- parts of one split have the same classes
      if not seen[fault.found] then
        add("error", { part = part.name, case = part.cases[fault.case], found = fault.found,
                       fix = fault.fix })
      end
      seen[fault.found] = true
    end
  end
  return #context.parts > 0 and "losses and metrics take them"
end)

local SIDES = { yaw = true, roll = true, pan = true, left = true, right = true, azimuth = true,
                side = true, laterality = true, lateral = true }

-- Splits a name into words, "LeftParotid", "pan_deg" -> left parotid, pan deg, and returns the
-- first word that names a side.
local function sided(name)
  local words = tostring(name):gsub("(%l)(%u)", "%1 %2"):lower()
  for word in words:gmatch("%a+") do
    if SIDES[word] then return word end
  end
end

-- All names with a meaning: of fields, columns, outputs, classes.
local function all_names(context)
  local set, list = context.recipe.train, {}
  local function add(v)
    for _, name in pairs(type(v) == "table" and v or { v }) do list[#list + 1] = name end
  end
  for _, part in ipairs(context.parts) do add(part.ds:fields()) end
  for name in pairs(context.recipe.outputs) do add(name) end
  add(context.recipe.predict.names)
  add(set.source.options.segments)
  add(set.source.options.mask)
  local names = set.source.names
  if type(names) == "function" then
    local ok, v = pcall(names)
    names = ok and v or nil
  end
  add(names)
  table.sort(list, function(a, b) return tostring(a) < tostring(b) end)
  return list
end

-- The axis of samples that runs from left to right, nil if none does.
local function side_axis(context)
  local set, first = context.recipe.train, checks.with_grid(context)[1]
  local rank = first and first.fields[1].rank
  local plane = (step(set, "slices") or ""):match("axis=(%a+)")
    or (step(set, "orient") or ""):match("plane=(%a+)")
  if rank == 2 then return "w" end
  if rank ~= 3 then return nil end
  if plane == "sagittal" then return "d" end
  if plane and plane ~= "stored" then return "w" end
  return ({ "w", "h", "d" })[first.axes:find("[LR]")]
end

-- The fix that makes the ground truth of a mirrored image right, if a flip can: the numbers of the
-- first field of numbers change sign, classes are swapped.
local function flip_fix(context, name)
  local set, ds = context.recipe.train, context.parts[1].ds
  local fields, numbers, label = ds:fields(), nil, false
  for i, kind in ipairs(ds:kinds()) do
    if kind == "numbers" and not numbers then numbers = fields[i] end
    label = label or kind == "label"
    if fields[i] == name and kind ~= "numbers" then return "" end
  end
  local called = (rawget(set.source, "numbers") or {})[numbers] or { numbers }
  local negate, known = {}, false
  for k, what in ipairs(called) do
    if sided(what) then negate[#negate + 1] = k end
    known = known or what == name
  end
  if known then
    return string.format("negate = { %s } in the flip, which changes their sign; or ",
                         table.concat(negate, ", "))
  end
  return label and "swap = { a, b } in the flip, with the numbers of the two classes; or " or ""
end

check("flips", function(context, add)
  local set = context.recipe.train
  local flip, affine = step(set, "flip"), step(set, "affine")
  local axis, names = side_axis(context), all_names(context)
  local aware = flip and (flip:find("negate", 1, true) or flip:find("swap", 1, true))
  if flip and axis and flip:match("axis=(%a+)"):find(axis, 1, true) and not aware then
    local said = {}
    for _, name in ipairs(names) do
      if sided(name) and not said[name] then
        said[name] = true
        add("warning", { part = "train", fix = flip_fix(context, name)
                                               .. "leave the flip out, or along another axis",
                         found = string.format('the flip along %s swaps left and right, and "%s" '
                                               .. 'does not change', axis, name) })
      end
    end
  end
  local turned = affine and affine:match("rotate=(%S+)")
  for _, name in ipairs(turned and turned ~= "0,0" and names or {}) do
    if sided(name) == "roll" then
      add("warning", { part = "train", fix = "affine = { rotate = { 0, 0 } }",
                       found = string.format('pictures are turned, and "%s" does not change',
                                             name) })
    end
  end
  return flip and "nothing named after a side is mirrored" or "none"
end)

local TRIED, SAMPLES = 4, 4 -- cases, and samples of each, that are augmented as a test

-- The steps with the numbers of standardize: for fields of numbers from all cases, which is cheap
-- and impossible with one case; for images from the case of `ds` alone.
local function fit_steps(part, ds, steps, how)
  local kinds = {}
  for i, name in ipairs(part.ds:fields()) do kinds[name] = part.ds:kinds()[i] end
  steps = steps:gsub("standardize [^\n]*\n?", function(line)
    local of_numbers = kinds[(" " .. line):match " field=(%S+)"] == "numbers"
    return of_numbers and core.data.fit_steps(part.ds, line, how) or nil
  end)
  return (core.data.fit_steps(ds, steps, how))
end

-- Draws samples of one case with every augmentation applied. -> the error, or nil
local function try_changes(part, case)
  local steps = part.set.steps:gsub(" p=%S+", " p=1")
  local ok, why = pcall(function()
    local ds, how = core.data.pick(part.ds, { case.number }), { functions = functions.of(steps) }
    if part.set:standardizes() then steps = fit_steps(part, ds, steps, how) end
    local pipeline = core.data.pipeline(ds, steps, how)
    local loader = core.data.loader(pipeline, { batch = 1, augment = true })
    local batches = loader:batches()
    for _ = 1, math.min(batches, SAMPLES) do loader:next() end
    loader:close()
    pipeline:close()
  end)
  return not ok and tostring(why) or nil
end

-- Whether a case was loaded and went through the steps.
local function is_whole(case)
  local whole = not case.fault
  for _, field in ipairs(case.fields) do whole = whole and not field.fault end
  return whole
end

check("changes", function(context, add)
  local fine = {}
  for _, part in ipairs(context.parts) do
    local cases = {}
    for _, case in ipairs(part.set.augmented and part.cases or {}) do
      if is_whole(case) then cases[#cases + 1] = case end
    end
    local tried = math.min(TRIED, #cases)
    for k = 1, tried do -- spread over all cases
      local case = cases[1 + (k - 1) * #cases // tried]
      local why = try_changes(part, case)
      if why then
        local said, fix = parts_of(why, case.key)
        add("error", { case = case, said = said, found = "a random change fails on it",
                       said_fix = fix, fix = "another change, or other steps before it" })
        break -- the other cases have the same error
      end
    end
    if tried > 0 then
      fine[#fine + 1] = string.format("%s in %s", plural(tried, "case"), part.name)
    end
  end
  return #fine == 0 and "none" or table.concat(fine, ", ")
end)

check("splits", function(context, add)
  local fine = {}
  for _, part in ipairs(context.parts) do
    local cases, patients = #part.cases, part.ds:patients()
    if cases == 1 or patients == 1 then
      add("warning", { part = part.name, found = plural(cases, "case") .. " of one patient",
                       fix = part.name == "train" and "more patients"
                         or "more patients: the result of one says little" })
    end
    fine[#fine + 1] = string.format("%s %d", part.name, cases)
  end
  if not context.recipe.valid then
    add("warning", { found = "no valid set: nothing says which weights are best",
                     fix = "valid = a part of :split" })
  end
  return #fine > 0 and "cases: " .. table.concat(fine, ", ")
end)

-- The preprocessing steps, without the choice of slices or patches, which differs between parts.
local function preparation(set)
  local steps = set:prepare_steps():gsub(" keep=%S+", ""):gsub(" range=%S+\n", "\n")
  return (steps:gsub("(patches d=%d+ h=%d+ w=%d+)[^\n]*", "%1"))
end

-- The first line that differs, of each text.
local function first_difference(a, b)
  local x, y = {}, {}
  for line in a:gmatch("[^\n]+") do x[#x + 1] = line end
  for line in b:gmatch("[^\n]+") do y[#y + 1] = line end
  for i = 1, math.max(#x, #y) do
    if x[i] ~= y[i] then return x[i] or "nothing", y[i] or "nothing" end
  end
end

check("preparation", function(context, add)
  local train = preparation(context.recipe.train)
  for _, name in ipairs { "valid", "test" } do
    local set = context.recipe[name]
    if set and preparation(set) ~= train then
      local a, b = first_difference(preparation(set), train)
      add("warning", { part = name, fix = "prepare all parts by one function",
                       found = string.format('"%s", in train "%s"', a, b) })
    end
    if set and (step(set, "crop") or ""):find("to=label", 1, true) then
      add("warning", { part = name, fix = 'crop { to = "image" } there, or patches',
                       found = "is cropped to its ground truth, which a new image does not have: "
                         .. "the result is too good" })
    end
    if set and set.augmented then
      add("warning", { part = name, fix = "augment train alone",
                       found = "is changed at random: its result is not that of its files" })
    end
  end
  return "all parts alike"
end)

-- Steps that use numbers of other cases use only the training cases, so nothing of a test part can
-- leak.
check("normalize", function(context)
  local train, said = context.recipe.train, {}
  local how = step(train, "normalize")
  if how then
    said[1] = string.format("%s, of each %s by itself", how:match("method=(%S+)"),
                            how:match("per=(%S+)"))
  end
  if step(train, "scale") then said[#said + 1] = "scale, the same for all" end
  if step(train, "standardize") then
    said[#said + 1] = "standardize, with numbers of the training cases alone"
  end
  return #said > 0 and table.concat(said, "; ") or "none"
end)

return checks
