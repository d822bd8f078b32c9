-- data.lua -- where images come from. What happens to them on the way is in
-- set.lua.
--
--   local cases = data.dicom { root = cfg.data, image = "FLAIR", mask = "MASK" }
--   local train, valid, test = cases:split { valid = 0.15, test = 0.2, seed = 42 }
--   train = train:fit { h = 256, w = 256 }:normalize {}:slices {}
--     :augment { flip = { axis = "w" } }:batches { size = 16, shuffle = true }

local core = require "seg.core"
local config = require "seg.config"
local show = require "seg.show"
local set = require "seg.set"
local util = require "seg.util"

local options, none, fail = util.options, util.none, util.fail
local new_set = set.new
local M = { concat = set.concat }

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
    return new_set(where, function()
      -- plan opens nothing and predict brings images of its own, so root =
      -- cfg.data is nil there
      if not root then
        util.refuse("--data is missing: data.%s has no folder to open (its root is nil); give "
                    .. "--data DIR, or root = DIR in the recipe", kind)
      end
      return open(root, o)
    end)
  end
end

-- DICOM series: image = series description, folder name or UID (a list: as
-- channels); mask = the same for a mask series or a SEG.
source("dicom", { segments = none, partial = false, assume_hu = false, resample_tilt = false,
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
  return new_set({ kind = "phantom", root = root, options = o }, function()
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
  end)
end

-- Cases named one by one: fields = { { name = "image", read = "npy", rank = 1 },
-- { name = "pose", kind = "numbers", count = 3 } }; cases = { { key =, patient =,
-- image = path or paths, pose = numbers }, ... }, or a function that returns
-- them and is called when the data is first wanted.
function M.cases(o)
  o = options("data.cases", o, { fields = none, cases = none, labels = none,
                                 resample_mask = false })
  if type(o.cases) ~= "table" and type(o.cases) ~= "function" then
    fail("usage", "data.cases: cases must be a list of cases or a function that returns one, got "
         .. "%s", type(o.cases))
  end
  local ranks = {} -- of each field, for the check of a recipe's inputs
  for _, field in ipairs(type(o.fields) == "table" and o.fields or {}) do
    if type(field) == "table" and field.name then
      local nowhere = field.kind == "numbers" or field.kind == "length"
      ranks[field.name] = nowhere and 0 or field.rank or 3
    end
  end
  return new_set({ kind = "cases", options = { labels = o.labels }, ranks = ranks }, function()
    local list = o.cases
    if type(list) == "function" then list = list() end
    return core.data.open_list { fields = o.fields, cases = list, labels = o.labels,
                                 resample_mask = o.resample_mask }
  end)
end

return M
