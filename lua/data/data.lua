-- data.lua -- the data sources of recipes. set.lua has the operations on them.
--
--   local cases = data.dicom { root = cfg.data, image = "FLAIR", mask = "MASK" }
--   local train, valid, test = cases:split { valid = 0.15, test = 0.2, seed = 42 }
--   train = train:fit { h = 256, w = 256 }:normalize {}:slices {}
--     :augment { flip = { axis = "w" } }:batches { size = 16, shuffle = true }

local core = require "seg.core"
local config = require "seg.recipe.config"
local file_kind = require "seg.data.file_kind"
local files = require "seg.data.data_files"
local images = require "seg.data.data_images"
local leftovers = require "seg.data.leftovers"
local nnunet = require "seg.data.data_nnunet"
local reading = require "seg.data.reading"
local show = require "seg.show"
local set = require "seg.data.set"
local util = require "seg.util"

local options, none, fail = util.options, util.none, util.fail
local new_set = set.new
local M = { concat = set.concat }

local common = { root = none, image = none, mask = none, labels = none, patient = "auto",
                 resample = false, resample_mask = false, skip_unmatched = false, skip_bad = false }

local known_rules = { auto = true, folder = true, file = true }

-- Checks `patient` of data.nifti and data.dicom: one of the known rules, or a pattern that is
-- matched in `whose`, a text about a case.
local function check_patient(what, rule, whose)
  if known_rules[rule] or type(rule) == "string" and rule:find("%(") then return end
  fail("usage", '%s: patient must be "auto", "folder", "file" or a pattern with the patient in '
       .. 'brackets, which is looked for in the %s, as "^(%%a+_%%d+)", got %s', what, whose,
       type(rule) == "string" and '"' .. rule .. '"' or tostring(rule))
end

-- The patient that a pattern captures in a text of a case, or an error.
local function match_patient(what, rule, text)
  local patient = text:match(rule)
  if patient == nil then
    fail("data", '%s: %s: the pattern "%s" finds no patient in it; fix: patient = a pattern that '
         .. "matches every one", what, text, rule)
  end
  return tostring(patient)
end

-- Opens a data set and takes its patients from a pattern: matched in the keys of cases (the text of
-- the stars) for NIfTI, in the PatientID for DICOM.
local function open_patients(kind, root, o, open)
  if known_rules[o.patient] then return open(root, o) end
  local how, keys, patients = {}, {}, {}
  for k, v in pairs(o) do how[k] = v end
  how.patient = kind == "dicom" and "auto" or "file"
  local ds = open(root, how)
  for i, case in ipairs(ds:cases()) do
    keys[i] = case.key
    patients[i] = match_patient("data." .. kind, o.patient, case.patient)
  end
  return core.data.rename(ds, keys, patients)
end

local NAMED = 5 -- files of a kind named when they are left out

-- Prints the files that a data set left out when it was opened, with names, not to the log: all
-- damaged files, and the first few that are no images.
local function say_left_out(list)
  leftovers.each(list, NAMED, function(damaged, text)
    show.aside("%s: left out: %s", damaged and "warning" or "note", text)
  end)
end

-- Raises if a set without a folder is opened: root = cfg.data is nil in plan, which opens nothing,
-- and in predict, which brings its own images.
local function check_given(what, root)
  if not root then
    util.refuse("--data is missing: %s has no folder to open (its root is nil); give --data DIR, "
                .. "or root = DIR in the recipe", what)
  end
end

-- The words in a reader's error that say that the folder has none of its files.
local NONE = { dicom = "no DICOM image here (0 DICOM files without", nifti = "no NIfTI files" }

-- Opens a data set. If the folder has no file of this kind, the error names the reader for the
-- files that it has.
local function open_or_say(kind, open, root, o)
  local ok, ds = pcall(open, root, o)
  if ok then return ds end
  local why = tostring(ds)
  if not why:find(NONE[kind], 1, true) then error(ds, 0) end
  core.sys.raise(core.sys.kind(why), why .. "; fix: " .. file_kind.fix(root, kind), true)
end

local function source(kind, more, open)
  local known = {}
  for k, v in pairs(common) do known[k] = v end
  for k, v in pairs(more) do known[k] = v end
  reading.declare(kind, known)
  M[kind] = function(o)
    o = options("data." .. kind, o, known)
    local root = o.root
    if root ~= nil and type(root) ~= "string" and type(root) ~= "function" then
      fail("usage", "data.%s: root must be the folder (or file) with the images, got %s", kind,
           tostring(root))
    end
    local where = { kind = kind, root = root, options = o, skip_bad = o.skip_bad }
    o.root, o.skip_bad = nil, nil -- the rest are options of the reader
    o.skip_damaged = where.skip_bad
    check_patient("data." .. kind, o.patient, kind == "dicom" and "PatientID"
                  or "part of the name that * stands for")
    return new_set(where, function()
      check_given("data." .. kind, root)
      if type(root) == "function" then
        root = root()
        where.root = root
      end
      return open_patients(kind, root, o, function(folder, how)
        local ds = set.of_folder(where, "no study has the", function()
          return open_or_say(kind, open, folder, how)
        end)
        where.left_out = ds:left_out()
        if not where.quiet then say_left_out(where.left_out) end
        return ds
      end)
    end)
  end
end

-- DICOM series: image = series description, folder name, UID or else Modality (a list: channels);
-- mask = the same for a mask series, a SEG or a structure set; dose = the same for an RT dose,
-- which becomes its own field. position_tolerance = 0.05 accepts a regular grid if rounded
-- positions deviate from it by at most this share of the slice distance (default 0.02).
source("dicom", { segments = none, fractions = false, partial = false, dose = none,
                  resample_dose = false, assume_hu = false, resample_tilt = false,
                  assume_implicit_le = false, contour_tolerance = 0, position_tolerance = none },
       core.data.open_dicom)

-- NIfTI files: patterns with * for image and mask, paired by the text that the star matches. form =
-- "sform" or "qform" chooses if the two disagree; "sform_or_qform" or "qform_or_sform" takes the
-- one that is present, the first if both are. assume_spacing = true accepts files without a
-- position. channels = true reads the fourth axis of images as channels.
source("nifti", { form = "both", assume_spacing = false, channels = false }, function(root, o)
  local ds, passed = core.data.open_nifti(root, o)
  util.say_passed_over(root, passed)
  return ds
end)

-- Cases listed one by one: fields = { { name = "image", read = "npy", rank = 1 }, { name = "pose",
-- kind = "numbers", count = 3 } }; cases = { { key =, patient =, image = path or paths, pose =
-- numbers }, ... }, or a function that returns the list and is called when the data is first
-- needed. skip_bad = true, as in every file source, leaves out cases that cannot be read and names
-- them.
local of_cases = { fields = none, cases = none, labels = none, resample = false,
                   resample_mask = false, skip_bad = false }
reading.declare("cases", of_cases)
local of_field = { column = none, columns = none, box = none } -- and the options of core.data
for key in pairs(core.data.field_options()) do of_field[key] = none end
reading.declare("field", of_field)

function M.cases(o)
  o = options("data.cases", o, of_cases)
  if type(o.cases) ~= "table" and type(o.cases) ~= "function" then
    fail("usage", "data.cases: cases must be a list of cases or a function that returns one, got "
         .. "%s", type(o.cases))
  end
  local how = { fields = o.fields, labels = o.labels, resample = o.resample,
                resample_mask = o.resample_mask }
  -- a mistake in a field is found here, not when files are opened; ranks are used to check the
  -- inputs of the recipe
  local ranks, assumed = core.data.check_list(how)
  local options_of = { labels = o.labels, resample = o.resample }
  for key, v in pairs(o.fields[1]) do -- predict reads the image with the same options
    if key ~= "name" and key ~= "kind" and key ~= "read" then options_of[key] = v end
  end
  return new_set({ kind = "cases", options = options_of, ranks = ranks, assumed = assumed,
                   skip_bad = o.skip_bad, made = { kind = "cases", options = o } }, function()
    how.cases = o.cases
    if type(how.cases) == "function" then how.cases = how.cases() end
    return core.data.open_list(how)
  end)
end

-- Adds to a set: `names`, the names of its columns, channels or classes, or a function that returns
-- them (`doctor data` looks for left and right in them); `numbers`, the names of each field of
-- numbers, in order; kind, made_of: the function of this file that made the set and its options, so
-- that new files are read in the same way.
local function named(one, kind, made_of, names, numbers)
  one.source.names, one.source.numbers = names, numbers or {}
  one.source.made = { kind = kind, options = made_of }
  return one
end

-- The folder of a source, which may be given by a function; raises if it does not exist.
local function check_root(what, root)
  if type(root) == "function" then root = root() end
  if root ~= nil and type(root) ~= "string" then
    fail("usage", "%s: root must be a folder, got %s", what, type(root))
  end
  check_given(what, root)
  if not util.exists(root) then
    fail("data", "%s: %s: there is no such folder; fix: --data DIR, or root of the recipe, names "
         .. "it", what, root)
  end
  return root
end

-- The rule that finds the patient of a file: "file" (each file is a patient), or a Lua pattern with
-- a capture, matched in the key. `what` is the start of errors.
local function patient_rule(what, rule)
  if rule == "file" then return function(key) return key end end
  if type(rule) ~= "string" or not rule:find("%(") then
    fail("usage", '%s: patient must be "file" (each case is another person) or a pattern with the '
         .. 'patient in brackets, as "^(%%a+_%%d+)", got %s', what, tostring(rule))
  end
  return function(key) return match_patient(what, rule, key) end
end

-- A table of labels: a row is a case. fields: as in data.cases; a field read from files has
-- `column` (the path, below root), a picture also box(row) -> x, y, width, height of the crop,
-- numbers have `columns` (or `column`). key: the column with the names of cases, default: the
-- column of the first field; patient: the column of patients, or "file". where(row) selects rows;
-- row.NAME is the text and row:number(NAME) the number of a column.
local of_csv = { root = none, table = none, separator = ",", key = none, patient = none,
                 fields = none, where = none, labels = none, resample = false,
                 resample_mask = false, skip_bad = false }
reading.declare("csv", of_csv)

function M.csv(o)
  o = options("data.csv", o, of_csv)
  if type(o.table) ~= "string" then
    fail("usage", 'data.csv: table must be a file below root, as "labels.csv", got %s',
         type(o.table))
  end
  if type(o.patient) ~= "string" then
    fail("usage", 'data.csv: patient must be the column with the patients, or "file" (each row is '
         .. "another person), got %s", type(o.patient))
  end
  if type(o.fields) ~= "table" then
    fail("usage", "data.csv: fields must be a list of fields, got %s", type(o.fields))
  end
  local fields, columns, boxes, names, numbers = {}, {}, {}, {}, {}
  for i, field in ipairs(o.fields) do
    if type(field) ~= "table" then
      fail("usage", "data.csv: a field must be a table, got %s", type(field))
    end
    fields[i], columns[i] = {}, field.columns or { field.column }
    if type(columns[i]) ~= "table" then
      fail("usage", "data.csv: field %s: columns must be a list, got %s",
           tostring(field.name or i), type(columns[i]))
    end
    for k, v in pairs(field) do
      if k == "box" then
        boxes[i] = v
      elseif k ~= "column" and k ~= "columns" then
        fields[i][k] = v
      end
    end
    if fields[i].kind == "numbers" then
      fields[i].count = #columns[i]
      numbers[fields[i].name or i] = columns[i]
    end
    if fields[i].kind ~= "length" and #columns[i] == 0 then
      fail("usage", "data.csv: field %s needs column = the column of its %s",
           tostring(fields[i].name or i), fields[i].kind == "numbers" and "numbers" or "files")
    end
    table.move(columns[i], 1, #columns[i], #names + 1, names)
  end
  local key = o.key or names[1]
  if not key then
    fail("usage", "data.csv: no field has a column; fix: key = the column with the names of the "
         .. "cases")
  end
  local function cases()
    local root = check_root("data.csv", o.root)
    local t = core.data.table_open(root .. "/" .. o.table, o.separator)
    local list = {}
    for row = 1, t:rows() do
      local view = setmetatable({ number = function(_, name) return t:number(row, name) end },
                                { __index = function(_, name) return t:text(row, name) end })
      if not o.where or o.where(view) then
        local case = { key = t:text(row, key) }
        case.patient = o.patient == "file" and case.key or t:text(row, o.patient)
        for i, field in ipairs(fields) do
          local v = {}
          for k, column in ipairs(columns[i]) do
            v[k] = field.kind == "numbers" and t:number(row, column) or t:path(row, column, root)
          end
          if boxes[i] then v.box = table.pack(boxes[i](view)) end
          if field.kind ~= "length" then case[field.name] = v end
        end
        list[#list + 1] = case
      end
    end
    return list
  end
  return named(M.cases { fields = fields, cases = cases, labels = o.labels,
                         resample = o.resample, resample_mask = o.resample_mask,
                         skip_bad = o.skip_bad }, "csv", o, names, numbers)
end

-- A folder of nnU-Net: dataset.json, imagesTr (or `images`), labelsTr. The classes are those of
-- dataset.json; ignore labels and regions are refused.
local of_nnunet = { root = none, images = "imagesTr", masks = "labelsTr", patient = none,
                    resample = false, resample_mask = false, form = "both",
                    assume_spacing = false, skip_bad = false }
reading.declare("nnunet", of_nnunet)

function M.nnunet(o)
  o = options("data.nnunet", o, of_nnunet)
  local patient = patient_rule("data.nnunet", o.patient)
  local description
  local function describe()
    description = description or nnunet.describe(check_root("data.nnunet", o.root))
    return description
  end
  local function cases()
    local list = nnunet.cases(check_root("data.nnunet", o.root), describe(), o)
    for _, case in ipairs(list) do case.patient = patient(case.key) end
    return list
  end
  local function field(name, kind)
    return { name = name, kind = kind, form = o.form, assume_spacing = o.assume_spacing }
  end
  local how = { fields = { field("image", "image"), o.masks and field("mask", "label") or nil },
                resample = o.resample, resample_mask = o.resample_mask }
  local function labels() return describe().labels end
  local options_of = { labels = labels, resample = o.resample, form = o.form,
                       assume_spacing = o.assume_spacing }
  local all = new_set({ kind = "nnunet", root = o.root, options = options_of,
                        skip_bad = o.skip_bad,
                        ranks = core.data.check_list(how) }, function()
    how.cases, how.labels = cases(), labels()
    return core.data.open_list(how)
  end)
  return named(all, "nnunet", o, function() return describe().names end)
end

-- Patients of OpenKBP, folders pt_N below root: ct, structures (10 channels, in the order of
-- data.md), dose (if `dose`), possible (the mask of voxels that may have dose) and, if `beams`, the
-- paths of the beams of a plan, 128 x 128 x 128.
function M.openkbp(o)
  o = options("data.openkbp", o, { root = none, dose = true, beams = false, skip_bad = false })
  local fields = { { name = "ct", read = "openkbp_ct" },
                   { name = "structures", kind = "value", read = "openkbp_structures" },
                   { name = "possible", kind = "value", read = "openkbp_possible" },
                   o.dose and { name = "dose", kind = "value", read = "openkbp_dose" } or nil }
  if o.beams then
    fields[#fields + 1] = { name = "beams", kind = "value", read = "openkbp_beams" }
  end
  return named(M.cases { fields = fields, skip_bad = o.skip_bad, cases = function()
    local root, list, others = check_root("data.openkbp", o.root), {}, 0
    for _, name in ipairs(core.sys.list(root)) do
      if name:match("^pt_%d+$") then
        local case = { key = name, patient = name }
        for _, field in ipairs(fields) do case[field.name] = root .. "/" .. name end
        list[#list + 1] = case
      elseif name:sub(1, 1) ~= "." and (core.sys.stat(root .. "/" .. name) or {}).kind == "folder"
      then
        others = others + 1
      end
    end
    if #list == 0 then
      fail("data", "%s: no folder is called pt_N; fix: give train-pats, validation-pats or "
           .. "test-pats", root)
    end
    if others > 0 then
      show.line("note: left out of OpenKBP: %s not called pt_N", util.plural(others, "folder"))
    end
    return list
  end }, "openkbp", o, { "LeftParotid", "RightParotid" })
end

-- Folders of files ------------------------------------------------------------

-- Makes a source with cases that `describe` lists below root when they are first needed. With
-- skip_bad, or source.lenient, folders that cannot be opened are left out and named.
local function folder_of(what, known, describe, check)
  known.skip_bad = false
  reading.declare(what, known)
  M[what] = function(o)
    o = options("data." .. what, o, known)
    if check then check("data." .. what, o) end
    local fields, cases, names, numbers = describe(o)
    local all
    all = M.cases { fields = fields, labels = o.labels, skip_bad = o.skip_bad, cases = function()
      local unread = (o.skip_bad or all.source.lenient) and {} or nil
      local ok, list = pcall(cases, check_root("data." .. what, o.root), unread)
      all.source.left_out = unread
      if not all.source.quiet then say_left_out(unread or {}) end
      if not ok then error(list, 0) end
      return list
    end }
    return named(all, what, o, names, numbers)
  end
end

-- A source of pictures, with the options that its error messages propose.
local function photographs(what, known, describe, check)
  for _, key in ipairs(images.options) do known[key] = none end
  folder_of(what, known, describe, check)
end

-- image and mask: patterns with *, as in data.nifti; classes = { names of folders }.
photographs("images", { root = none, image = "*", mask = none, classes = none, patient = none,
                        labels = none }, images.images, files.check)

-- The same for arrays: rank and axes as in data.cases; length = true: adds a field with the lengths
-- of sequences.
folder_of("npy", { root = none, image = "*", mask = none, classes = none, patient = none,
                   labels = none, rank = none, axes = none, length = false }, files.npy,
          files.check)

-- pose = { yaw, pitch, roll } in degrees; Pointing'04 has no roll.
photographs("w300lp", { root = none, flips = false, margin = 0.35, most_degrees = 99,
                        pitch = "300wlp" }, images.w300lp, images.check_pose)
photographs("biwi", { root = none, pitch = "300wlp", same = {}, face_mm = 0 }, images.biwi,
            images.check_biwi)
photographs("pointing04", { root = none, margin = 0.15, pitch = "300wlp" }, images.pointing04,
            images.check_pose)

-- Synthetic data --------------------------------------------------------------

-- The reader for the phantom files of each format: the reader of real files.
local readers = {
  dicom = function(root) return M.dicom { root = root, image = "FLAIR", mask = "MASK" } end,
  nifti = function(root)
    return M.nifti { root = root, image = "*_T1w", mask = "*_T1w_brainmask" }
  end,
  faces = function(root, o)
    return M.w300lp { root = root, margin = o.margin, pitch = o.pitch }
  end,
  openkbp = function(root, o) return M.openkbp { root = root, beams = o.beams } end,
  hippocampus = function(root)
    return M.nifti { root = root, image = "imagesTr/*", mask = "labelsTr/*", labels = { 1, 2 },
                     patient = "file" }
  end,
  sequences = function(root)
    return M.csv { root = root, table = "labels.csv", patient = "speaker", fields = {
      { name = "sequence", read = "npy", rank = 1, column = "path" },
      { name = "label", kind = "numbers", column = "label" },
      { name = "length", kind = "length" } } }
  end,
}

-- Options of data.phantom that are passed to the reader, by format.
local for_reading = { faces = { margin = none, pitch = none }, openkbp = { beams = false } }

-- Synthetic data, written once as files of its format and then read like any others:
--   dicom        FLAIR with a tumour (mask 1: tumour with its oedema)
--   nifti        T1 with the brain as mask, in the layout of NFBS
--   openkbp      necks with the dose of a plan, in the layout of OpenKBP; `beams` too
--   hippocampus  small volumes with the two parts of one, in the layout of the Decathlon
--   sequences    syllables of speakers, whose order is the class, as .npy and a table
-- The data set is a folder below `root` (default <out>/phantom) named by its options, for example
-- flair-28x256x24-aedfc4fe; it is written if it does not exist.
function M.phantom(o)
  local format = type(o) == "table" and o.format or "dicom"
  local known, units = { root = none, seed = 42 }, nil
  known.format = format
  for _, form in ipairs(core.data.phantom_forms()) do
    if form.format == format then
      units, known.noise = form[1].name, form.noise
      for _, number in ipairs(form) do known[number.name] = number.default end
    end
  end
  local how = {}
  for key, default in pairs(for_reading[format] or {}) do known[key] = default end
  -- raises an error that lists the formats
  if not units then core.data.phantom_name { format = tostring(format) } end
  o = options("data.phantom", o, known)
  local root = o.root
  if root ~= nil and type(root) ~= "string" then
    fail("usage", "data.phantom: root must be a folder, got %s", type(root))
  end
  o.root = nil
  -- the other options concern the files that are written
  for key in pairs(for_reading[format] or {}) do
    how[key], o[key] = o[key], nil
  end
  local name = core.data.phantom_name(o) -- checks the other options, on the recipe's line
  local all = readers[format](function()
    local started, write = core.sys.clock(), { threads = core.default_threads() }
    for k, v in pairs(o) do write[k] = v end
    local v = config.ensure()
    local base = root or v.phantom ~= "" and v.phantom or v.out .. "/phantom"
    local folder = base .. "/" .. name
    if core.data.phantom_write(folder, write) then
      show.line("synthetic %s: wrote %d to %s (%s)", units, o[units], folder,
                util.duration(core.sys.clock() - started))
    else
      show.line("synthetic %s: %s", units, folder)
    end
    return folder
  end, how)
  all.source.synthetic = true
  return all
end

return M
