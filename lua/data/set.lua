-- set.lua -- a data set as a recipe describes it: a source, a part, steps.
--
-- A set is a description: a source (files, synthetic patients), a part of it, and steps. Nothing is
-- opened before it is needed, so `plan` works without data. Steps run in C on loader threads; each
-- is checked when it is added, so that an error names the recipe's line. Every method returns a new
-- set.

local core = require "seg.core"
local config = require "seg.recipe.config"
local functions = require "seg.data.functions"
local reading = require "seg.data.reading"
local util = require "seg.util"

local options, none, fail = util.options, util.none, util.fail
local M = {}

-- `part` is train, valid or test after a split; `augmented` is true if the set has random
-- augmentation; `whole` opens the set before the split; `folds`: the number of folds; `none`: a
-- part of a split that was omitted or 0, which a recipe treats as absent.
local Set = { part = false, augmented = false, whole = false, folds = false, none = false }

function Set.__index(_, key)
  local v = Set[key]
  if v == nil then
    local methods = {}
    for name, f in pairs(Set) do
      if type(f) == "function" and name ~= "__index" then methods[#methods + 1] = name end
    end
    table.sort(methods)
    fail("usage", "set:%s: a data set has no such method; %s", tostring(key),
         util.suggest(key, methods))
  end
  return v
end

local function once(f)
  local value
  return function()
    if value == nil then value = f() end
    return value
  end
end

-- A set of `source` = {kind=, root=, options=, skip_bad=}; `open` returns the core data set and is
-- called once, when it is first needed.
function M.new(source, open)
  open = once(open)
  source.skip_bad = source.skip_bad or false
  if type(source.skip_bad) ~= "boolean" then
    fail("usage", "data.%s: skip_bad must be true or false, got %s", source.kind,
         tostring(source.skip_bad))
  end
  return setmetatable({ source = source, open = open, steps = "", batch = {} }, Set)
end

local function copy(set)
  local out = {}
  for k, v in pairs(set) do out[k] = v end
  return setmetatable(out, Set)
end

-- The values of options that errors propose: a string, a list, true, a number.
local VALUES = { '"[^"]*"', "{[^}]*}", "true%f[%W]", "false%f[%W]", "%d[%d.]*" }

-- The advice of an error with the location of the first option of the reader `kind` added.
local function placed(fix, kind)
  -- a set of a set has the location already
  if fix:find(" of the recipe", 1, true) then return fix end
  local best, last
  for _, value in ipairs(VALUES) do
    local at, to, key = fix:find("%f[%w_]([%a_]+) = " .. value)
    if at and reading.has(kind, key) and (not best or at < best) then best, last = at, to end
  end
  if not best then return fix end
  return fix:sub(1, last) .. " in data." .. kind .. " of the recipe" .. fix:sub(last + 1)
end

-- Rewrites an error of C, which names reader options, for the recipe with this source: `key =
-- value` becomes --key value if the script declares the key, because the user can then give it
-- without editing; else the location in the recipe is added. Classes of nnU-Net are set in
-- dataset.json.
function M.advised(source, text)
  local said, fix = text:match("^(.-; fix: )(.*)$")
  if not said then return text end
  local function option(key, value)
    return config.declared[key] and "--" .. key .. " " .. value or nil
  end
  local kind = source.made and source.made.kind or source.kind
  if kind == "nnunet" then
    fix = fix:gsub("^list the values of the classes, as in labels = .*$",
                   "correct labels in dataset.json, which lists the classes")
    fix = fix:gsub('; if every value except 0 is the object, labels = "nonzero".*$', ", look at "
                   .. "the file")
  end
  fix = fix:gsub('([%a_]+) = "([^"%s]+)"', option):gsub("([%a_]+) = (%w+)", option)
  fix = fix:gsub("(%-%-[%a_]+ %w+), %-%-", "%1 --"):gsub("%(%-%-nonzero where the script has it%)",
                                       config.declared.nonzero and "(--nonzero)" or "")
  return ((said .. placed(fix, kind)):gsub("%s+$", ""))
end

-- Calls f() and rewrites its error with M.advised.
local function with_options(source, f)
  local ok, result = pcall(f)
  if ok then return result end
  local text = type(result) == "string" and M.advised(source, result)
  if not text or text == result then error(result, 0) end
  core.sys.raise(core.sys.kind(result), text, true)
end

-- Calls f(). If the set is a single file and the error contains these words, which means that
-- several files or cases are needed, the error says so.
function M.of_folder(source, words, f)
  local ok, result = pcall(f)
  if ok then return result end
  local stat = type(source.root) == "string" and core.sys.stat(source.root)
  if not stat or stat.kind ~= "file" or not tostring(result):find(words, 1, true) then
    error(result, 0)
  end
  core.sys.raise(core.sys.kind(result), string.format(
    "%s; %s is one file; fix: the folder of all images and masks (--data DIR)",
    util.without_fix(result), source.root), true)
end

-- The core data set; opened once, shared by all sets made from it.
function Set:dataset()
  return with_options(self.source, self.open)
end

-- Cases -----------------------------------------------------------------------

-- A copy of the set with the core data set change(data set).
local function derived(set, change)
  local out = copy(set)
  out.open = once(function() return change(set:dataset()) end)
  return out
end

-- Checks that f, the argument of filter or map, is a function.
local function check_function(what, f)
  if type(f) ~= "function" then
    fail("usage", "%s: wanted a function of a case {key=, patient=}, got %s", what, type(f))
  end
end

-- The cases {key=, patient=} for which keep(case) is true.
function Set:filter(keep)
  check_function("filter", keep)
  return derived(self, function(ds)
    local list = {}
    for i, case in ipairs(ds:cases()) do
      if keep(case) then list[#list + 1] = i end
    end
    if #list == 0 then
      fail("data", "filter leaves none of %s; fix: a function that is true for the cases to keep",
           util.plural(#ds:cases(), "case"))
    end
    return core.data.pick(ds, list)
  end)
end

-- The cases at these positions, in rising order.
function Set:pick(list)
  return derived(self, function(ds) return core.data.pick(ds, list) end)
end

-- The same cases with the key and patient that change(case) returns, a table like its argument; for
-- file names that do not contain the patient.
function Set:map(change)
  check_function("map", change)
  return derived(self, function(ds)
    local keys, patients = {}, {}
    for i, case in ipairs(ds:cases()) do
      local new = change(case)
      if type(new) ~= "table" then
        fail("usage", "map: the function must return a case {key=, patient=}, got %s", type(new))
      end
      keys[i], patients[i] = new.key, new.patient
    end
    return core.data.rename(ds, keys, patients)
  end)
end

-- The same cases with one more field: in mm, the signed distance of each voxel from the boundary of
-- each class of the ground truth (negative inside), a channel for each of classes 1, 2, ....
function Set:signed_distance(o)
  o = util.options("signed_distance", o, { of = "mask", name = "distance" })
  for _, key in ipairs { "of", "name" } do
    if type(o[key]) ~= "string" then
      fail("usage", "signed_distance: %s must be the name of a field, got %s", key, type(o[key]))
    end
  end
  return derived(self, function(ds) return core.data.signed_distance(ds, o.of, o.name) end)
end

-- The cases of several sets with the same fields; the steps of the first.
function M.concat(...)
  local sets = table.pack(...)
  for i = 1, sets.n do
    if getmetatable(sets[i]) ~= Set then
      fail("usage", "data.concat: operand %d must be a data set, got %s", i, type(sets[i]))
    end
    if sets[i].source.skip_bad ~= sets[1].source.skip_bad then
      fail("usage", "data.concat: set %d has another skip_bad than the first; fix: one for all", i)
    end
  end
  if sets.n == 0 then fail("usage", "data.concat: wanted data sets, got nothing") end
  -- an omitted part of a split adds nothing
  local filled = {}
  for _, set in ipairs(sets) do filled[#filled + 1] = not set.none and set or nil end
  if #filled == 0 then return sets[1] end
  return derived(filled[1], function()
    local list = {}
    for i, set in ipairs(filled) do list[i] = set:dataset() end
    return core.data.concat(list)
  end)
end

-- Parts -----------------------------------------------------------------------

local three = { "train", "valid", "test" }

-- Sets of the parts of a core split, which is made when the first is needed. without: the names of
-- parts that are absent.
local function parts(set, names, without, split)
  local made = once(function()
    local ds = set:dataset()
    return M.of_folder(set.source, "has no patient", function() return table.pack(split(ds)) end)
  end)
  local out = {}
  for i, name in ipairs(names) do
    out[i] = copy(set)
    out[i].part = name
    out[i].whole = set.whole or set.open
    out[i].none = set.none or without[name] or false
    out[i].open = function()
      local ds = made()[i]
      if not ds then
        fail("data", "the split has no part for %s, whose share is 0 or left out; fix: give it a "
             .. "share or a number of patients (--%s 1)", name, name)
      end
      return ds
    end
  end
  return table.unpack(out)
end

-- The parts that the options of a split omit or set to 0.
local function left_out(o)
  return { valid = o.valid == nil or o.valid == 0, test = o.test == nil or o.test == 0 }
end

-- Splits by patient, at random from the seed: a share below 1 (test of all, then valid of the
-- rest), a whole number of patients, or a list of names for each part. folds = K above 0: train and
-- valid of kfold { k = K } instead, without a test part.
function Set:split(o)
  o = options("split", o, { seed = 0, train = none, valid = none, test = none, folds = 0 })
  local folds = o.folds
  o.folds = nil
  if math.type(folds) ~= "integer" or folds < 0 or folds == 1 then
    fail("usage", "split: folds must be a whole number, 2 or more, or 0 for none, got %s",
         tostring(folds))
  end
  if folds > 0 then return self:kfold { k = folds, seed = o.seed } end
  return parts(self, three, left_out(o), function(ds) return core.data.split(ds, o) end)
end

-- A copy of the data set with patients renamed by `group`, so that a group stays together in a
-- split. All cases of a patient must be in one group.
local function grouped(ds, group)
  local keys, names, of = {}, {}, {}
  for i, case in ipairs(ds:cases()) do
    local name = group(case)
    if type(name) ~= "string" then
      fail("usage", "kfold: group must return a text for a case, got %s", type(name))
    end
    if (of[case.patient] or name) ~= name then
      fail("usage", 'kfold: group puts a patient into two groups, "%s" and "%s"; fix: one text for '
           .. "all cases of a patient", of[case.patient], name)
    end
    keys[i], names[i], of[case.patient] = case.key, name, name
  end
  return core.data.rename(ds, keys, names)
end

-- Fold `fold` of k of a data set: train, valid.
local function fold_of(ds, o, fold)
  if type(o.group) ~= "function" then return core.data.fold(ds, o.seed, o.k, fold) end
  local out, number = {}, {}
  for i, case in ipairs(ds:cases()) do number[case.key] = i end
  for part, side in ipairs(table.pack(core.data.fold(grouped(ds, o.group), o.seed, o.k, fold))) do
    local list = {}
    for i, case in ipairs(side:cases()) do list[i] = number[case.key] end
    table.sort(list)
    out[part] = core.data.pick(ds, list)
  end
  return table.unpack(out)
end

-- Cross-validation by patient: fold number `fold` of k is valid, the rest train. The same seed
-- gives the same folds, which are disjoint and cover all patients. --fold N selects another one.
-- group: "patient", or a function of a case that returns the unit to keep together, such as a
-- hospital.
function Set:kfold(o)
  o = options("kfold", o, { k = 5, fold = 1, seed = 0, group = "patient" })
  if o.group ~= "patient" and type(o.group) ~= "function" then
    fail("usage", 'kfold: group must be "patient" or a function of a case, got %s',
         tostring(o.group))
  end
  for _, key in ipairs { "k", "fold", "seed" } do
    if math.type(o[key]) ~= "integer" then
      fail("usage", "kfold: %s must be a whole number, got %s", key, tostring(o[key]))
    end
  end
  if o.k < 2 or o.fold < 1 or o.fold > o.k then
    fail("usage", "kfold: fold %d of %d, wanted 1 to k of 2 or more", o.fold, o.k)
  end
  local train, valid = parts(self, { "train", "valid" }, {}, function(ds)
    local fold = config.values and config.values.fold or 0
    if fold > o.k then util.refuse("--fold %d: kfold has k = %d folds", fold, o.k) end
    return fold_of(ds, o, fold > 0 and fold or o.fold)
  end)
  train.folds, valid.folds = o.k, o.k
  return train, valid
end

-- For a single subject: valid and test get the slices between two fractions of each volume, train
-- the rest except `gap` on either side.
function Set:slabs(o)
  o = options("slabs", o, { valid = none, test = none, gap = 0.02 })
  return parts(self, three, left_out(o), function(ds) return core.data.slabs(ds, o) end)
end

-- Steps -----------------------------------------------------------------------

for _, row in ipairs(core.data.steps()) do
  if row.phase ~= "sample" then
    Set[row.name] = function(self, o)
      local out = copy(self)
      out.steps = core.data.add_step(self.steps, row.name, o)
      return out
    end
  end
end

-- Applies f to the fields of every case, once, at the position of this step among the others.
-- f(case, constants) runs in its own Lua states: functions.lua.
function Set:change(f, constants)
  local out = copy(self)
  out.steps = core.data.add_step(self.steps, "change", functions.step("change", f, constants))
  return out
end

-- vary = f or { f, name = constant, ... } as the attributes of its step.
local function vary(v)
  if type(v) ~= "table" then return functions.step("vary", v) end
  local constants = {}
  for key, value in pairs(v) do
    if key ~= 1 then constants[key] = value end
  end
  return functions.step("vary", v[1], constants)
end

-- Random augmentation of training samples, in the order of steps.def.
function Set:augment(o)
  if o ~= nil and type(o) ~= "table" then
    fail("usage", "augment: options must be a table {...}, got %s", type(o))
  end
  local out, left = copy(self), {}
  for k, v in pairs(o or {}) do left[k] = v end
  local names = {}
  for _, row in ipairs(core.data.steps()) do
    if row.phase == "sample" then
      names[#names + 1] = row.name
      local v = left[row.name]
      left[row.name] = nil
      if v then
        local attributes = row.name == "vary" and vary(v) or v == true and {} or v
        out.steps = core.data.add_step(out.steps, row.name, attributes)
      end
    end
  end
  local unknown = next(left)
  if unknown then
    fail("usage", 'augment: unknown change "%s"; %s', tostring(unknown),
         util.suggest(unknown, names))
  end
  out.augmented = true
  return out
end

-- size = "auto": the batch of the config, which batch = "auto" determines. bucket = "length":
-- samples of similar length (along w) share a batch, which is padded to its longest sample, rounded
-- up to a multiple of `multiple`. twice = { x = "other" }: adds an input "other", the field x of
-- the same sample with independent augmentation.
function Set:batches(o)
  local out = copy(self)
  out.batch = options("batches", o, { size = 1, shuffle = false, drop_last = false, bucket = none,
                                      multiple = 1, twice = none })
  local bucket, multiple = out.batch.bucket, out.batch.multiple
  if bucket ~= nil and bucket ~= "length" then
    fail("usage", 'batches: bucket must be "length", got %s', tostring(bucket))
  end
  if type(out.batch.size) == "string" and out.batch.size ~= "auto" then
    fail("usage", 'batches: size must be a whole number or "auto", got "%s"', out.batch.size)
  end
  if out.batch.size == "auto" then config.unread.batch = nil end
  if math.type(multiple) ~= "integer" or multiple < 1 then
    fail("usage", "batches: multiple must be a whole number >= 1, got %s", tostring(multiple))
  end
  if multiple > 1 and not bucket then
    fail("usage", 'batches: multiple needs bucket = "length"; fix: add it, or leave multiple out')
  end
  for name, view in pairs(out.batch.twice or {}) do
    if type(name) ~= "string" or type(view) ~= "string" then
      fail("usage", "batches: twice must name the second view of a field, as { x = \"other\" }")
    end
  end
  return out
end

-- The field that an input of this name is fed from; for a second view its original field.
function Set:field_of(input)
  for name, view in pairs(self.batch.twice or {}) do
    if view == input then return name end
  end
  return input
end

-- Whether the set has a step with numbers computed on the training set.
function Set:standardizes()
  return util.step(self.steps, "standardize") ~= nil
end

-- The same set with the numbers of its standardize steps computed on its cases, and a text about
-- them. The program calls this for the train set of a recipe.
function Set:fitted(o)
  o = o or {}
  local out, said = copy(self), ""
  if self:standardizes() then
    out.steps, said = core.data.fit_steps(self:dataset(), self.steps, {
      threads = o.threads, cache_bytes = o.cache_bytes, store = o.store,
      skip_bad = self.source.skip_bad, functions = functions.of(self.steps) })
  end
  return out, said
end

-- The same set with the standardize numbers of another set, or of the steps of a checkpoint.
function Set:fitted_as(other)
  local out = copy(self)
  if self:standardizes() then
    local steps = getmetatable(other) == Set and other.steps or other
    if type(steps) ~= "string" then
      fail("usage", "fitted_as: wanted a data set, got %s", type(other))
    end
    out.steps = core.data.take_steps(steps, self.steps)
  end
  return out
end

-- Opening ---------------------------------------------------------------------

-- The core pipeline of this set: every case prepared once, in threads.
function Set:pipeline(o)
  local ds = self:dataset()
  return with_options(self.source, function()
    return core.data.pipeline(ds, self.steps, {
      threads = o.threads, cache_bytes = o.cache_bytes, seed = o.seed, store = o.store,
      skip_bad = self.source.skip_bad, functions = functions.of(self.steps) })
  end)
end

-- The batches of epoch `number` (from 1) as arrays by field, for a loop of a script: epoch.lua.
function Set:epoch(number) return require("seg.data.epoch").iterate(self, number) end

-- The number of samples in a batch.
function Set:batch_size()
  local size = self.batch.size or 1
  return size == "auto" and config.ensure().batch or size
end

function Set:loader(pipeline, o)
  return with_options(self.source, function()
    return core.data.loader(pipeline, {
      batch = self:batch_size(), shuffle = self.batch.shuffle or false,
      drop_last = self.batch.drop_last or false, augment = self.augmented or false,
      bucket = self.batch.bucket, multiple = self.batch.multiple, again = o.again,
      workers = o.workers, prefetch = o.prefetch, prefetch_bytes = o.prefetch_bytes, seed = o.seed,
      ids = o.ids, only = o.only, idle = o.idle, rank = o.rank, ranks = o.ranks,
      whole = o.whole, trace = o.trace })
  end)
end

-- The same samples in order, without augmentation and shuffling; by length if bucketed.
function Set:in_order(size)
  local out = copy(self)
  out.augmented = false
  out.batch = { size = size, bucket = self.batch.bucket, multiple = self.batch.multiple,
                twice = self.batch.twice }
  return out
end

-- The same set with patches from a grid that covers every case, as in `predict`, instead of random
-- patches.
function Set:on_grid()
  if not util.step(self.steps, "patches") then return self end
  local out = copy(self)
  out.steps = core.data.predict_steps(self.steps)
  return out
end

-- All cases of the set before the split, or nil if it was not split.
function Set:unsplit()
  if not self.whole then return nil end
  local out = copy(self)
  out.open, out.part = self.whole, "all"
  return out
end

-- The preprocessing steps without augmentation, which a checkpoint keeps for prediction.
function Set:prepare_steps()
  return core.data.prepare_steps(self.steps)
end

-- The values in the files of the ground truth for the classes 1, 2, ... of the network, as "2,1";
-- nil if there are only class numbers. A select step makes one class of the classes that it lists.
function Set:labels()
  local labels = self.source.options.labels
  if type(labels) == "function" then labels = labels() end -- known once it is opened
  if type(labels) ~= "table" then return nil end
  local list, selected = {}, self.steps:match("select labels=([%d,]+)")
  for i, v in ipairs(labels) do list[i] = string.format("%d", v) end
  if selected then list = { list[tonumber(selected)] } end -- several classes have no single value
  return #list > 0 and table.concat(list, ",") or nil
end

-- The patients of a data set (reading.people), by its open function: computed once.
local people_of = setmetatable({}, { __mode = "k" })

-- The patients of this set and of the other parts of its split, for reading.lua. Opens the set.
function Set:people()
  local open = self.whole or self.open
  if not people_of[open] then
    local ds, names = with_options(self.source, open), {}
    local cases = ds:cases()
    for i, case in ipairs(cases) do names[case.key] = core.data.patient_name(ds, i) end
    people_of[open] = reading.people(cases, names)
  end
  return people_of[open]
end

-- The origin of the images, in words that name neither patient nor path: the image pattern, as
-- reading.lua keeps it. people: the patients of the set, nil if it is not opened.
function Set:origin(people)
  if self.source.synthetic then return util.SYNTHETIC end
  local patterns = reading.patterns(self.source.options.image, people)
  return "real data" .. (patterns and ", image " .. table.concat(patterns, ", ") or "")
end

-- At the end, after all methods are defined: a method called with a dot has its options, or
-- nothing, in place of the set.
for name, f in pairs(Set) do
  if type(f) == "function" and name ~= "__index" then
    Set[name] = function(...)
      if getmetatable((...)) ~= Set then
        fail("usage", "set.%s { ... }: write a colon, set:%s { ... }", name, name)
      end
      return f(...)
    end
  end
end

return M
