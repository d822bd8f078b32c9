-- data.lua -- where images come from and what happens to them on the way.
--
-- A set is a description: a source (files, made-up patients), which part of
-- it, and steps. Nothing is opened before it is needed, so `plan` works
-- without data. Steps run in C on worker threads; each is checked on the
-- recipe's line when it is written.
--
--   local cases = data.dicom { root = cfg.data, image = "FLAIR", mask = "MASK" }
--   local train, valid, test = cases:split { valid = 0.15, test = 0.2, seed = 42 }
--   train = train:fit { h = 256, w = 256 }:normalize {}:slices {}
--     :augment { flip = { axis = "w" } }:batches { size = 16, shuffle = true }

local core = require "seg.core"
local config = require "seg.config"
local show = require "seg.show"
local util = require "seg.util"

local options, none, fail = util.options, util.none, util.fail
local M = {}

-- What trained_on in a file of weights says of the phantom's patients.
M.MADE_UP = "made-up patients"

-- `part` is train, valid or test once it is split; `augmented` once it is to be
-- changed at random; `whole` opens what was split.
local Set = { part = false, augmented = false, whole = false }

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

-- `open` gives the core data set when it is first wanted.
local function new_set(source, open)
  return setmetatable({ source = source, open = open, steps = "", batch = {} }, Set)
end

local function copy(set)
  local out = {}
  for k, v in pairs(set) do out[k] = v end
  return setmetatable(out, Set)
end

-- The opened core data set; opened once, shared by all sets made from it.
function Set:dataset()
  return self.open()
end

local function once(f)
  local value
  return function()
    if value == nil then value = f() end
    return value
  end
end

-- Sources ---------------------------------------------------------------------

local common = { root = none, image = none, mask = none, labels = none, patient = "auto",
                 resample_mask = false, skip_unmatched = false }

local function source(kind, more, open)
  local known = {}
  for k, v in pairs(common) do known[k] = v end
  for k, v in pairs(more) do known[k] = v end
  M[kind] = function(o)
    o = options("data." .. kind, o, known)
    local root = o.root
    if root ~= nil and type(root) ~= "string" then
      fail("usage", "data.%s: root must be the folder (or file) with the images, got %s", kind,
           tostring(root))
    end
    o.root = nil
    local where = { kind = kind, root = root, options = o }
    return new_set(where, once(function()
      -- plan opens nothing and predict brings images of its own, so root =
      -- cfg.data is nil there
      if not root then
        util.refuse("--data is missing: data.%s has no folder to open (its root is nil); give "
                    .. "--data DIR, or root = DIR in the recipe", kind)
      end
      return open(root, o)
    end))
  end
end

-- DICOM series: image = series description, folder name or UID (a list: as
-- channels); mask = the same for a mask series, a SEG or a structure set;
-- dose = the same for an RT dose, which becomes a field of its own.
source("dicom", { segments = none, fractions = false, partial = false, dose = none,
                  resample_dose = false, assume_hu = false, resample_tilt = false,
                  assume_implicit_le = false }, core.data.open_dicom)

-- NIfTI files: patterns with * for image and mask, paired by what the star
-- matches. form = "sform" or "qform" takes one of two that disagree;
-- assume_spacing = true accepts files that do not say where they are.
source("nifti", { form = "both", assume_spacing = false }, core.data.open_nifti)

-- Made-up heads, written once as files that scanners write and then read like
-- any others: format "dicom" is FLAIR with a tumour (mask 1: tumour with its
-- oedema), "nifti" T1 with the brain as mask in the layout of NFBS. The data set
-- is a folder below `root` (by default <out>/phantom) named by its numbers, as
-- flair-28x256x24-aedfc4fe; it is made when it is not there.
function M.phantom(o)
  o = options("data.phantom", o, { format = "dicom", patients = 28, size = 256, slices = 24,
                                   seed = 42, noise = 0.03, root = none })
  local root = o.root
  if root ~= nil and type(root) ~= "string" then
    fail("usage", "data.phantom: root must be a folder, got %s", type(root))
  end
  o.root = nil
  local name = core.data.phantom_name(o) -- checks the rest, on the recipe's line
  return new_set({ kind = "phantom", root = root, options = o }, once(function()
    local started, how = core.sys.clock(), { threads = core.default_threads() }
    for k, v in pairs(o) do how[k] = v end
    local v = config.ensure()
    local base = root or v.phantom ~= "" and v.phantom or v.out .. "/phantom"
    local folder = base .. "/" .. name
    if core.data.phantom_write(folder, how) then
      show.line("made-up patients: wrote %d to %s (%s)", o.patients, folder,
                util.duration(core.sys.clock() - started))
    else
      show.line("made-up patients: %s", folder)
    end
    if o.format == "nifti" then
      return core.data.open_nifti(folder, { image = "*_T1w", mask = "*_T1w_brainmask" })
    end
    return core.data.open_dicom(folder, { image = "FLAIR", mask = "MASK" })
  end))
end

-- Parts -----------------------------------------------------------------------

-- Sets of the three parts of a core split, made when the first is wanted.
local function parts(set, split)
  local made = once(function() return table.pack(split(set:dataset())) end)
  local out = {}
  for i, name in ipairs { "train", "valid", "test" } do
    out[i] = copy(set)
    out[i].part = name
    out[i].whole = set.whole or set.open
    out[i].open = function()
      local ds = made()[i]
      if not ds then fail("data", "the split leaves nothing for %s", name) end
      return ds
    end
  end
  return table.unpack(out)
end

-- By patient, drawn from the seed: a share below 1 (test of all, then valid of
-- the rest), a whole number of patients, or a list of names for each part.
function Set:split(o)
  o = options("split", o, { seed = 0, train = none, valid = none, test = none })
  return parts(self, function(ds) return core.data.split(ds, o) end)
end

-- For one subject: valid and test get slices between two fractions of each
-- volume, train the rest without `gap` of them on either side.
function Set:slabs(o)
  o = options("slabs", o, { valid = none, test = none, gap = 0.02 })
  return parts(self, function(ds) return core.data.slabs(ds, o) end)
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

-- Random changes of training samples, in the order of steps.def.
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
      if v then out.steps = core.data.add_step(out.steps, row.name, v == true and {} or v) end
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

function Set:batches(o)
  local out = copy(self)
  out.batch = options("batches", o, { size = 1, shuffle = false, drop_last = false })
  return out
end

-- Opening ---------------------------------------------------------------------

-- The core pipeline of this set: every case prepared once, in threads.
function Set:pipeline(o)
  return core.data.pipeline(self:dataset(), self.steps, {
    threads = o.threads, cache_bytes = o.cache_bytes, seed = o.seed })
end

function Set:loader(pipeline, o)
  return core.data.loader(pipeline, {
    batch = self.batch.size or 1, shuffle = self.batch.shuffle or false,
    drop_last = self.batch.drop_last or false, augment = self.augmented or false,
    workers = o.workers, prefetch = o.prefetch, seed = o.seed, ids = o.ids })
end

-- The same samples as they are, one after the other: neither changed at random
-- nor shuffled.
function Set:in_order(size)
  local out = copy(self)
  out.augmented, out.batch = false, { size = size }
  return out
end

-- All cases of what was split into this part and others, or nil when nothing
-- was.
function Set:unsplit()
  if not self.whole then return nil end
  local out = copy(self)
  out.open, out.part = self.whole, "all"
  return out
end

-- The steps before augmentation: what a checkpoint keeps, for prediction.
function Set:prepare_steps()
  return core.data.prepare_steps(self.steps)
end

-- The values that stand in the files of the truth for the classes 1, 2, ... of
-- the network, as "2,1"; nil where class numbers are all there is. A select
-- step makes one class of what it lists.
function Set:labels()
  local labels = self.source.options.labels
  if type(labels) ~= "table" then return nil end
  local list, selected = {}, self.steps:match("select labels=([%d,]+)")
  for i, v in ipairs(labels) do list[i] = string.format("%d", v) end
  if selected then list = { list[tonumber(selected)] } end -- of several: no number
  return #list > 0 and table.concat(list, ",") or nil
end

-- Where these images come from, in words that name neither patient nor path:
-- a pattern says what is asked for, not whose it is; a UID says too much.
function Set:origin()
  if self.source.kind == "phantom" then return M.MADE_UP end
  local image = self.source.options.image
  if type(image) == "table" then image = table.concat(image, ", ") end
  if type(image) ~= "string" or image:match("^[%d., ]+$") then return "real data" end
  return "real data, image " .. image
end

return M
