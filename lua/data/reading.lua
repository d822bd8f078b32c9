-- reading.lua -- how a data set reads its files and finds its images. A checkpoint keeps this, so
-- that predict, evaluate and export read like training, whichever branch of the script runs.
--
-- Kept are the options that the readers declare, except options about ground truth, patients and
-- locations of files. The record is given away with the weights, so it names no patient, no folder
-- of this machine and no UID.

local util = require "seg.util"

local fail = util.fail
local M = {}

-- Options of each reader with their defaults, by the name of the reader.
local declared = {}

-- Declares the options of a reader: name = default (util.none: no default).
function M.declare(kind, options)
  declared[kind] = options
end

-- Options that do not affect how an image is read: of ground truth, patients and locations. The
-- pattern of masks is kept, because it tells which files are not images; every option that is not
-- in this list is kept.
local not_of_images = {}
for word in ([[root masks images labels patient cases where skip_bad same segments dose fractions
partial resample_mask resample_dose box same_grid flips most_degrees pitch count beams
contour_tolerance]])
  :gmatch("%S+") do not_of_images[word] = true end

-- Options in files written by earlier versions.
local earlier = { format = true, name = true, fields = true, image = true, mask = true }

-- Whether this version knows an option of this name.
function M.knows(key)
  if earlier[key] then return true end
  for _, options in pairs(declared) do
    if options[key] ~= nil then return not not_of_images[key] end
  end
  return false
end

-- Whether the reader `kind` has an option of this name that affects how an image is read; the
-- options that choose images are handled separately.
function M.takes(kind, key)
  return (declared[kind] or {})[key] ~= nil and not not_of_images[key] and key ~= "image"
    and key ~= "mask" and key ~= "name" and key ~= "kind" and key ~= "read"
end

-- Whether the reader `kind` takes an option of this name.
function M.has(kind, key) return (declared[kind] or {})[key] ~= nil end

-- A string, or a list of strings, as a list; nil for anything else.
function M.list(v)
  if type(v) == "string" then return { v } end
  return type(v) == "table" and #v > 0 and v or nil
end

-- Words in names of images -------------------------------------------------------

-- Kinds of images by the words that names of files and series use; the first match counts. The
-- patterns match whole words in lower case.
local kinds = {
  { "^brainmask$", "a mask" }, { "^masks?$", "a mask" }, { "^segm?$", "a mask" },
  { "^segmentation$", "a mask" }, { "^labels?$", "a mask" }, { "^dseg$", "a mask" },
  { "^roi$", "a mask" }, { "^labelst[rs]$", "a mask" }, { "^brainmasks$", "a mask" },
  { "^flair$", "FLAIR" }, { "^t2f$", "FLAIR" }, { "^t2flair$", "FLAIR" },
  { "^t1c[e]?$", "T1 with contrast" }, { "^t1gd$", "T1 with contrast" },
  { "^t1post$", "T1 with contrast" }, { "^t1pre$", "T1" }, { "^t1[wn]?$", "T1" },
  { "^mprage$", "T1" }, { "^t2star$", "T2*" }, { "^t2s$", "T2*" }, { "^t2w?$", "T2" },
  { "^pdw?$", "PD" }, { "^dwi$", "DWI" }, { "^adc$", "ADC" }, { "^swi$", "SWI" },
  { "^bold$", "BOLD" }, { "^cta?$", "CT" }, { "^cbct$", "CT" }, { "^pet$", "PET" },
  { "^mra$", "MRA" },
}

-- Other words in names of files, folders and series that identify no person.
local plain = {}
for word in ([[acq acquisition anat ax axial bold brain case cases ce channel contrast cor coronal
csv dir dyn echo enhanced fat frame gd gre head hr image images imagestr imagests imagesval img imgs
inv inversion iso isotropic left lesion lung mr mri native neck ni nonfs part patient perf phase
post pre prostate raw right rec recovery rgb run sag sagittal sample scan scans se series ses
session slab slice slices space spin sub subject supp task test train training tra tse tumor tumour
turbo valid validation vol volume weighted with without]]):gmatch("%S+") do plain[word] = true end

local function kind_of_word(word)
  for _, row in ipairs(kinds) do
    if word:find(row[1]) then return row[2] end
  end
end

-- The kinds of images that a name mentions: { FLAIR = true }.
function M.kinds(name)
  local found, words = {}, {}
  for word in name:lower():gmatch("[%w\128-\255]+") do
    words[word] = true
    local kind = kind_of_word(word)
    if kind then found[kind] = true end
  end
  -- "T2 FLAIR" is one kind; "T1 post-contrast" differs from T1
  if found.FLAIR then found.T2 = nil end
  if found.T1 and (words.post or words.gd or words.ce) then
    found.T1, found["T1 with contrast"] = nil, true
  end
  -- the mask of a FLAIR is no FLAIR
  return found["a mask"] and { ["a mask"] = true } or found
end

-- Patterns without patient names -------------------------------------------------

-- The patients of a data set as one text in lower case, for comparison with patterns. cases: {key=,
-- patient=}; names: PatientName of some cases, or nil.
function M.people(cases, names)
  local seen, list, first = {}, {}, nil
  for _, case in ipairs(cases) do
    for _, text in ipairs { case.patient, names and names[case.key] or "" } do
      text = text:lower()
      if text ~= "" and not seen[text] then seen[text], list[#list + 1] = true, text end
    end
    first = first or case.patient
  end
  local several = false
  for _, case in ipairs(cases) do several = several or case.patient ~= first end
  return { text = table.concat(list, "\n"), several = several }
end

-- Whether a word of a pattern may be kept: a usual word of images or folders; in the name of a file
-- or series also a word that all cases of several patients share, if it is part of no patient's
-- name.
local function may_stay(word, people, folder)
  local small = word:lower()
  if plain[small] or kind_of_word(small) then return true end
  if folder or not people or not people.several or #small > 5 and small:match("^%d+$") then
    return false
  end
  return #small < 3 and not small:match("^%d+$") or not people.text:find(small, 1, true)
end

-- A pattern, name or description in which words that may name a patient or a folder are replaced by
-- *. "PROJECT/sub-*/anat/*_T1w" becomes "*/sub-*/anat/*_T1w". nil for a UID.
function M.pattern(text, people)
  if text:match("^[%d., ]+$") then return nil end
  local parts, out = {}, {}
  for part in (text:gsub("\\", "/") .. "/"):gmatch("([^/]*)/") do
    if part ~= "" then parts[#parts + 1] = part end
  end
  for i, part in ipairs(parts) do
    out[i] = part:gsub("[%w\128-\255]+", function(word)
      return not may_stay(word, people, i < #parts) and "*" or nil
    end):gsub("[%*^@]+", "*")
  end
  return table.concat(out, "/")
end

-- Patterns of images as a list; nil without any, or if one of them would be empty.
function M.patterns(v, people)
  local list = {}
  for _, one in ipairs(type(v) == "table" and v or { v }) do
    if type(one) ~= "string" then return nil end
    list[#list + 1] = M.pattern(one, people)
  end
  return #list > 0 and #list == (type(v) == "table" and #v or 1) and list or nil
end

-- The record in a checkpoint -----------------------------------------------------

-- A value that identifies no patient, or nil: UIDs and paths are dropped.
local function harmless(v)
  if type(v) == "number" or type(v) == "boolean" then return v end
  if type(v) == "string" and not v:match("^[%d. ]+$") and not v:match("^[~/\\]")
    and not v:match("^%a:[/\\]") then
    return v:match("([^/]*)$")
  end
  if type(v) ~= "table" then return nil end
  local list = {}
  for _, one in ipairs(v) do list[#list + 1] = harmless(one) end
  return #list == #v and #list > 0 and list or nil
end
M.harmless = harmless

-- A list of one name as a string, of several as the list.
function M.one_or_list(list)
  return list and (#list == 1 and list[1] or list) or nil
end

local function options_of(o, people)
  local out = {}
  for _, key in ipairs(util.sorted_keys(o)) do
    if key == "image" or key == "mask" then
      -- in openkbp and in lists of cases these options may have another meaning
      local patterns = (type(o[key]) == "string" or type(o[key]) == "table")
        and M.patterns(o[key], people)
      out[key] = M.one_or_list(patterns or nil)
    elseif key == "fields" and type(o.fields) == "table" then
      out.fields = {}
      for i, field in ipairs(o.fields) do
        out.fields[i] = options_of(field, people)
        out.fields[i].name = field.name
        -- a function is not kept, only the fact that there was one
        out.fields[i].boxed = field.box ~= nil or nil
      end
    elseif key == "table" then
      -- a file like it is found by its whole name, so a name with * is useless
      local name = harmless(o.table)
      out.table = name and M.pattern(name, people) == name and name or nil
    elseif M.knows(key) then
      out[key] = harmless(o[key])
    end
  end
  return out
end

-- The record of the source of a set: { kind =, options =, made =, numbers = }.
function M.of(source, people)
  local out = { kind = source.kind, options = options_of(source.options, people) }
  if source.made then
    out.made = { kind = source.made.kind, options = options_of(source.made.options, people) }
  end
  for field, names in pairs(source.numbers or {}) do
    out.numbers = out.numbers or {}
    out.numbers[field] = harmless(names)
  end
  return out
end

-- The script and the checkpoint ---------------------------------------------------

local function is_default(kind, key, v)
  local default = (declared[kind] or {})[key]
  if default == nil and declared.field then default = declared.field[key] end
  return v == nil or v == false or v == default
end

local function text_of(v)
  if type(v) ~= "table" then return tostring(v) end
  local list = {}
  for i, one in ipairs(v) do list[i] = text_of(one) end
  return table.concat(list, ",")
end

-- The options of the script, completed by options of training that the script does not set. ->
-- options; appends to `other` the options that the two set differently
local function merge(kind, kept, o, other)
  local out = {}
  for key, v in pairs(o) do out[key] = v end
  for _, key in ipairs(util.sorted_keys(kept)) do
    local was, is = kept[key], o[key]
    if key == "fields" then
      for i, field in ipairs(type(is) == "table" and is or {}) do
        local same = was[i] and was[i].name == field.name and was[i]
        if i == 1 then out.fields = {} end
        out.fields[i] = same and merge("field", same, field, other) or field
        out.fields[i].boxed = nil
      end
    elseif is_default(kind, key, is) then
      out[key] = was
    elseif key ~= "image" and key ~= "mask" and key ~= "name" and type(is) ~= "function"
      and text_of(is) ~= text_of(was) then
      other[#other + 1] = string.format("%s = %s, training %s", key, text_of(is), text_of(was))
    end
  end
  return out
end

-- The source for reading new files: the record of the weights (kept, nil for older weights),
-- completed by the script. A script that reads synthetic data or another kind of source is ignored.
-- -> source, { differences of the script, ... }
function M.merged(kept, source)
  if not kept then return source, {} end
  local made, was = source.made, kept.made
  if source.synthetic or source.kind ~= kept.kind or (made and made.kind) ~= (was and was.kind) then
    return { kind = kept.kind, options = kept.options, made = was, numbers = kept.numbers,
             ranks = source.ranks }, {}
  end
  local other, out = {}, {}
  for key, v in pairs(source) do out[key] = v end
  out.options = merge(kept.kind, kept.options, source.options, was and {} or other)
  if was then out.made = { kind = was.kind, options = merge(was.kind, was.options, made.options,
                                                            other) } end
  out.numbers = source.numbers or kept.numbers
  return out, other
end

-- The options by which a source is read differently from the merged one, as texts; other: the
-- differences found by M.merged.
function M.unlike(merged, source, other)
  local list = table.move(other, 1, #other, 1, {})
  local function compare(kind, a, b)
    for _, key in ipairs(util.sorted_keys(a)) do
      if M.takes(kind, key) and is_default(kind, key, b[key]) and not is_default(kind, key, a[key])
      then
        list[#list + 1] = string.format("%s = %s, training %s", key, text_of(b[key]),
                                        text_of(a[key]))
      end
    end
  end
  if merged.kind ~= source.kind or source.synthetic then return list end
  if merged.made and source.made then
    compare(merged.made.kind, merged.made.options, source.made.options)
  elseif not merged.made then
    compare(merged.kind, merged.options, source.options)
  end
  return list
end

-- The source record of a file of weights, from its bundle or its entry `read`; nil without.
function M.parse(text, path)
  if not text then return nil end
  local read = require("seg.json").decode(text, path .. ": read")
  if type(read) ~= "table" or type(read.kind) ~= "string" or type(read.options) ~= "table" then
    fail("data", "%s: read: want how files were read (kind and options); fix: the version of "
         .. "segengine that wrote it", path)
  end
  return read
end

return M
