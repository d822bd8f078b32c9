-- data_files.lua -- cases from folders of files: patterns with *, pairs of image and mask, folders
-- as classes, and the patient of a file.

local file_kind = require "seg.data.file_kind"
local util = require "seg.util"

local fail = util.fail
local M = {}

-- Converts a pattern with * to a Lua pattern. -> pattern, whether it matches whole paths
local function lua_pattern(glob)
  local p = glob:gsub("[%^%$%(%)%%%.%[%]%+%-%?]", "%%%0"):gsub("%*", "([^/]*)")
  return "^" .. p .. "$", glob:find("/", 1, true) ~= nil
end

-- The key of a case: the text that the stars of a pattern match in a path, with the folder in front
-- if the pattern matches only names; nil without a match.
local function key_of(path, pattern, whole)
  local stem = path:gsub("%.%w+$", "")
  local folder, name = stem:match("^(.*/)([^/]*)$")
  local parts = table.pack((whole and stem or name or stem):match(pattern))
  if parts[1] == nil then return nil end
  return (whole and "" or folder or "") .. table.concat(parts, "_")
end

-- Whether a pattern matches this path below the root.
function M.matches_pattern(path, glob)
  local pattern, whole = lua_pattern(glob)
  return key_of(path, pattern, whole) ~= nil
end

-- {key = path} of the files that a pattern matches; two files with one key are an error.
local function matches(what, files, glob, but)
  local pattern, whole = lua_pattern(glob)
  local found, order = {}, {}
  for _, path in ipairs(files) do
    local key = not (but and but[path]) and key_of(path, pattern, whole)
    if key and found[key] then
      fail("data", "%s: %s and %s are both the %s of %s; fix: a pattern that one of them does not "
           .. "match, or move one away", what, found[key], path, glob, key)
    end
    if key then found[key], order[#order + 1] = path, key end
  end
  return found, order
end

-- The patient of a file by a rule: "file", "folder" (the first below root) or a pattern with a
-- capture, matched in the path below root.
local function patient_of(what, rule, key, path)
  if rule == "file" then return key end
  local patient = path:match(rule == "folder" and "^([^/]+)/" or rule)
  if not patient then
    fail("data", '%s: %s: patient = "%s" finds no patient in it; fix: %s', what, path, rule,
         rule == "folder" and "a folder for each patient, or a pattern that every path matches"
         or "a pattern that every path matches")
  end
  return patient
end

-- Checks the options of such a set before its folder is read.
function M.check(what, o)
  if type(o.patient) ~= "string" then
    fail("usage", '%s: patient must be "folder", "file" (each file is another person) or '
         .. 'a pattern with the patient in brackets, as "^(TCGA_%%w+_%%w+)", got %s', what,
         type(o.patient))
  end
  if o.classes ~= nil and (type(o.classes) ~= "table" or o.mask) then
    fail("usage", "%s: classes must be a list of folders, without a mask", what)
  end
end

-- The cases of `files`, paths below root: the files that match o.image, each with the mask of the
-- same key (o.mask), or with the position of its folder in o.classes, from 0, as class. `what` and
-- `kind` ("images") appear in errors.
function M.cases(what, root, files, o, kind)
  local masks, is_mask, cases, lacks_mask, lacks_image = {}, {}, {}, {}, {}
  if o.mask then
    masks = matches(what, files, o.mask)
    for _, path in pairs(masks) do is_mask[path] = true end
  end
  local images, order = matches(what, files, o.image, is_mask)
  if #files == 0 then
    fail("data", "%s: no %s; fix: %s", root, kind, file_kind.fix(root, what:match("%.(.*)")))
  end
  for _, row in ipairs { { "image", o.image, images }, { "mask", o.mask, masks } } do
    if row[2] and next(row[3]) == nil then
      fail("data", '%s: none of %s is "%s"; there %s %s; fix: a pattern that fits, %s = "PATTERN" '
           .. "(* is any text)", root,
           util.plural(#files, (kind:gsub("s$", ""))), row[2], #files == 1 and "is" or "are",
           util.first_of(files, 3), row[1])
    end
  end
  local class = {}
  for i, name in ipairs(o.classes or {}) do class[name] = i - 1 end
  for _, key in ipairs(order) do
    local path = images[key]
    local case = { key = key, patient = patient_of(what, o.patient, key, path),
                   image = root .. "/" .. path }
    if o.mask then
      if not masks[key] then lacks_mask[#lacks_mask + 1] = path end
      case.mask = masks[key] and root .. "/" .. masks[key]
      masks[key] = nil
    elseif o.classes then
      local folder = path:match("([^/]+)/[^/]*$") or ""
      case.class = class[folder]
      if not case.class then
        fail("data", '%s: %s lies in "%s", which is not one of the classes %s; fix: add it to '
             .. "classes, or move the folder away", what, path, folder, table.concat(o.classes,
             ", "))
      end
    end
    cases[#cases + 1] = case
  end
  for _, path in pairs(masks) do lacks_image[#lacks_image + 1] = path end
  local missing = {}
  for _, row in ipairs { { "mask", o.mask, lacks_mask }, { "image", o.image, lacks_image } } do
    table.sort(row[3])
    if #row[3] > 0 then
      missing[#missing + 1] = string.format("no %s (%s) for %s", row[1], row[2],
                                            util.first_of(row[3], 10))
    end
  end
  if #missing > 0 then
    fail("data", "%s: %s without a partner: %s; fix: fetch what is missing, or move the files away",
         what, util.plural(#lacks_mask + #lacks_image, "file"), table.concat(missing, "; "))
  end
  return cases
end

-- Arrays: .npy of one shape or several, with masks of class numbers.
function M.npy(o)
  -- other types are refused when the fields are read
  local letters = type(o.axes) == "string" and o.axes:gsub("c", "") or ""
  local rank = o.rank or (letters ~= "" and #letters) or nil
  local fields = { { name = "image", read = "npy", rank = rank, axes = o.axes } }
  if o.mask then
    -- a mask has no channels
    fields[2] = { name = "mask", kind = "label", read = "npy", rank = rank,
                  axes = letters ~= "" and letters or nil }
  elseif o.classes then
    fields[2] = { name = "class", kind = "numbers" }
  end
  if o.length then fields[#fields + 1] = { name = "length", kind = "length" } end
  local function is_array(path) return path:lower():match("%.npy$") ~= nil end
  return fields, function(root, unread)
    return M.cases("data.npy", root, util.files_below(root, is_array, false, unread), o,
                   ".npy files")
  end, o.classes
end

return M
