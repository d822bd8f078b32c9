-- inspect_line.lua -- the line of a recipe for what lies in a folder, to paste.
--
-- What belongs together is told by what the headers say, else by the names that
-- people give to files. It is a proposal: what does not fit is said when a recipe
-- opens it, or by `segengine doctor data`.

local core = require "seg.core"
local util = require "seg.util"

local M = {}

local MASK_WORDS = { "mask", "seg", "label", "roi", "annotation", "truth", "_gt$", "^gt/" }

local function named_mask(name)
  local lower = name:lower()
  for _, word in ipairs(MASK_WORDS) do
    if lower:find(word) then return true end
  end
  return false
end

-- A text or a list of them as Lua.
local function quote(v)
  if type(v) ~= "table" then
    return '"' .. v:gsub('[\\"]', "\\%0"):gsub("%c", "?") .. '"'
  end
  if #v == 1 then return quote(v[1]) end
  local list = {}
  for i, e in ipairs(v) do list[i] = quote(e) end
  return "{ " .. table.concat(list, ", ") .. " }"
end

-- "data.KIND { root = PATH, a = b, ... }  -- remark" of pairs {key, text of Lua}.
local function line(kind, path, pairs_of, remark)
  local list = { "root = " .. quote(path) }
  for _, p in ipairs(pairs_of) do list[#list + 1] = p[1] .. " = " .. p[2] end
  return string.format("data.%s { %s }%s", kind, table.concat(list, ", "),
                       remark and "  -- " .. remark or "")
end

-- The option labels for a mask of these values, nil where it needs none: 0 and 1,
-- or no labels at all.
local function labels_of(values)
  local list = {}
  for _, v in ipairs(values or {}) do
    if v ~= 0 then list[#list + 1] = string.format("%d", v) end
  end
  if #list == 0 or (#list == 1 and list[1] == "1") then return nil end
  return "{ " .. table.concat(list, ", ") .. " }"
end

-- The values of a volume that could be labels: few, whole, 0 among them.
local function label_values(load)
  local ok, v = pcall(load)
  local values = ok and v:values() or nil
  local zero = false
  for _, x in ipairs(values or {}) do
    if x ~= x // 1 or x < 0 or x > 65535 then return nil end
    zero = zero or x == 0
  end
  return zero and #values > 1 and values or nil
end

-- DICOM -----------------------------------------------------------------------

-- Series by what they are called: { name=, kind=, studies = {uid = {series}}, count= }.
local function by_name(list)
  local all, order, studies, count = {}, {}, {}, 0
  for i, s in ipairs(list) do
    local folder = s.folder:match("([^/]+)/*$")
    local name = s.description ~= "" and s.description or folder or s.series
    local id = s.kind .. "\0" .. name
    if not all[id] then
      all[id] = { name = name, kind = s.kind, studies = {}, count = 0 }
      order[#order + 1] = all[id]
    end
    local study = s.patient .. "\0" .. s.study
    if not studies[study] then studies[study], count = true, count + 1 end
    local series = all[id].studies[study]
    if not series then
      series = {}
      all[id].studies[study], all[id].count = series, all[id].count + 1
    end
    series[#series + 1] = { number = i, size = string.format("%dx%dx%d", s.cols, s.rows,
                                                             s.frames) }
  end
  table.sort(order, function(a, b) return a.name < b.name end)
  return order, count
end

local MASKS = { SEG = true, ["structure set"] = true }
local LOADED = 8 -- most series that are loaded to see whether they are a mask

-- Any series of a name.
local function first_of(e)
  local _, series = next(e.studies)
  return series[1]
end

-- Do the series of two names have equal extents in each study of `a`?
local function alike(a, b)
  for study, series in pairs(a.studies) do
    local other = b.studies[study]
    if not other or #other ~= 1 or #series ~= 1 or other[1].size ~= series[1].size then
      return false
    end
  end
  return true
end

-- The one that most studies have; nil of none.
local function commonest(list)
  local best
  for _, e in ipairs(list) do
    if not best or e.count > best.count then best = e end
  end
  return best
end

-- The mask that is one by its kind or name, else by its voxels: it has the extents
-- of another series, and few whole numbers.
local function find_mask(order, scan)
  local named, values = {}, {}
  for _, e in ipairs(order) do
    if MASKS[e.kind] or (e.kind ~= "dose" and named_mask(e.name)) then named[#named + 1] = e end
  end
  local function look(e)
    values[e] = label_values(function() return (scan:load(first_of(e).number)) end)
    return values[e]
  end
  local mask = commonest(named)
  if mask then return mask, not MASKS[mask.kind] and look(mask) or nil end
  local loaded, found = 0, {}
  for _, e in ipairs(order) do
    for _, other in ipairs(order) do
      if e.kind == "image" and other ~= e and other.kind == "image" and alike(e, other)
         and loaded < LOADED and values[e] == nil then
        loaded = loaded + 1
        if look(e) then found[#found + 1] = e else values[e] = false end
      end
    end
  end
  mask = commonest(found)
  return mask, mask and values[mask]
end

-- The line for the series of a scan; nil when there is no image among them.
function M.dicom(path, scan, list)
  local order = by_name(list)
  local mask, values = find_mask(order, scan)
  local images, doses, studies = {}, {}, {}
  for _, e in ipairs(order) do
    local image = e.kind == "image" or e.kind == "multi-frame"
    if image and e ~= mask and not named_mask(e.name) then images[#images + 1] = e end
    if e.kind == "dose" then doses[#doses + 1] = e end
    for study in pairs(image and e ~= mask and e.studies or {}) do studies[study] = true end
  end
  local first, total = commonest(images), 0
  if not first then return nil end
  for _ in pairs(studies) do total = total + 1 end
  -- of those that every study has, the ones of the same extents are channels;
  -- a localizer has fewer slices
  local function slices(e) return tonumber(first_of(e).size:match("%d+$")) end
  for _, e in ipairs(images) do
    if e.count == first.count and slices(e) > slices(first) then first = e end
  end
  local names = {}
  for _, e in ipairs(images) do
    local channel = e == first or (e.count == total and first.count == total and alike(first, e))
    if channel then names[#names + 1] = e.name end
  end
  local options, lacks = { { "image", quote(names) } }, {}
  if mask then
    options[2] = { "mask", quote(mask.name) }
    local labels = labels_of(values)
    if labels then options[3] = { "labels", labels } end
  end
  local dose = commonest(doses)
  if dose then
    options[#options + 1] = { "dose", quote(dose.name) }
    options[#options + 1] = { "resample_dose", "true" }
  end
  for _, e in ipairs { first, mask, dose } do
    if e.count < total then
      lacks[#lacks + 1] = string.format("%s is in %d of %d studies", e.name:gsub("%c", "?"),
                                        e.count, total)
    end
  end
  if #lacks > 0 then options[#options + 1] = { "skip_unmatched", "true" } end
  return line("dicom", path, options, #lacks > 0 and table.concat(lacks, ", ") or nil)
end

-- Files -----------------------------------------------------------------------

local function split_path(path)
  local below, name = path:match("^(.*)/([^/]*)$")
  name = name or path
  return below or "", (name:gsub("%.nii%.gz$", ""):gsub("%.%w+$", ""))
end

-- What files of one kind have at the end of their names: of the endings that begin
-- at a "_" and hold letters, the one that most files share, then the longest.
local function endings(stems)
  local count, of = {}, {}
  local function each(stem, f)
    local at = #stem + 1
    while true do
      local from = stem:sub(1, at - 1):match(".*()_")
      if not from or not stem:sub(from, at - 1):find("%a") then return end
      f(stem:sub(from))
      at = from
    end
  end
  for _, stem in ipairs(stems) do
    each(stem, function(e) count[e] = (count[e] or 0) + 1 end)
  end
  for i, stem in ipairs(stems) do
    local best = ""
    each(stem, function(e)
      if count[e] > 1 and (best == "" or count[e] >= count[best]) then best = e end
    end)
    of[i] = best
  end
  return of
end

-- Files as patterns: { pattern=, count=, first=path, files= }, by folder where these
-- tell them apart; and the folders.
local function patterns(files)
  local below, stems = {}, {}
  for i, path in ipairs(files) do below[i], stems[i] = split_path(path) end
  local ending = endings(stems)
  local folders, groups, order = {}, {}, {}
  local same, first = true, ending[1]
  for i in ipairs(files) do
    folders[below[i]] = (folders[below[i]] or 0) + 1
    same = same and ending[i] == first
  end
  -- the same names in several folders: images/7, labels/7
  local twice, seen = false, {}
  for _, stem in ipairs(stems) do
    twice, seen[stem] = twice or seen[stem] or false, true
  end
  for i, path in ipairs(files) do
    local id = same and twice and below[i] or ending[i]
    local g = groups[id]
    if not g then
      g = { count = 0, first = path, folder = below[i], ending = ending[i], one = true, files = {} }
      groups[id], order[#order + 1] = g, g
    end
    g.count, g.one = g.count + 1, g.one and g.folder == below[i]
    g.files[g.count] = path
  end
  -- each in a folder of its own: names alone would not pair
  local apart = #order > 1
  for k, g in ipairs(order) do
    apart = apart and g.one and g.folder ~= "" and (k == 1 or g.folder ~= order[1].folder)
  end
  for _, g in ipairs(order) do
    g.pattern = (apart and g.folder .. "/*" or "*") .. g.ending
  end
  return order, folders, apart
end

-- Which of the patterns is the mask: by name, else by what is in its files.
-- -> mask or nil, its values, the patterns of images
local function mask_and_images(order, root, read)
  local mask, values
  for _, g in ipairs(order) do
    if #order > 1 and named_mask(g.pattern) and (not mask or g.count > mask.count) then mask = g end
  end
  for _, g in ipairs(order) do
    if (#order == 2 and not mask) or g == mask then
      local v = label_values(function() return read(root .. "/" .. g.first) end)
      if v then mask, values = mask or g, v end
    end
  end
  local most, images = 0, {}
  for _, g in ipairs(order) do
    if g ~= mask and not named_mask(g.pattern) then most = math.max(most, g.count) end
  end
  for _, g in ipairs(order) do
    if g ~= mask and not named_mask(g.pattern) and g.count == most then
      images[#images + 1] = g.pattern
    end
  end
  return mask, values, images
end

local EACH = "if every file is another person"

local function nifti(path, files)
  local order, _, apart = patterns(files)
  local mask, values, images = mask_and_images(order, path, core.data.read_nifti)
  if #images == 0 then return nil end
  local options = { { "image", quote(images) } }
  if mask then options[2] = { "mask", quote(mask.pattern) } end
  local labels = labels_of(values)
  if labels then options[#options + 1] = { "labels", labels } end
  -- what patient = "auto" finds by itself
  local known = not apart
  for _, file in ipairs(files) do
    known = known and (file:match("/?sub%-%w+[^/]*$") or file:find("/", 1, true)) and true
  end
  if not known then options[#options + 1] = { "patient", '"file"' } end
  return line("nifti", path, options, not known and EACH or nil)
end

-- The line of files with masks, or in folders that are classes: what `read` gives
-- of a file says whether it can be a mask. more(images, mask or nil) -> further
-- options, of two patterns. nil: there is no image among the files.
local function folder_line(kind, path, files, read, more)
  local order, folders, apart = patterns(files)
  local mask, values, images = mask_and_images(order, path, read)
  if #images == 0 then return nil end
  local names, options = util.sorted_keys(folders), {}
  local several = not apart and #names > 1 and not folders[""]
  if mask then
    options = { { "image", quote(images[1]) }, { "mask", quote(mask.pattern) } }
    local labels = labels_of(values)
    if labels then options[3] = { "labels", labels } end
  elseif several then
    local classes = {}
    for i, name in ipairs(names) do classes[i] = name:match("[^/]+$") end
    options = { { "classes", "{ " .. quote(classes):gsub("^{ ", ""):gsub(" }$", "") .. " }" } }
  end
  for _, g in ipairs(more and order or {}) do
    if g.pattern == images[1] then
      for _, option in ipairs(more(g, mask)) do options[#options + 1] = option end
    end
  end
  local folder = mask and several
  options[#options + 1] = { "patient", folder and '"folder"' or '"file"' }
  return line(kind, path, options, folder and "if each folder is another person" or EACH)
end

local function images_line(path, files)
  return folder_line("images", path, files, function(file)
    return core.data.read_image(file, { label = true, alpha = "drop", exif = "ignore",
                                        trailing = true, page = 1 })
  end)
end

-- A table beside files whose first row names one of them: the column with the
-- paths, those with numbers. nil: there is none.
local function find_table(path)
  for _, name in ipairs(core.sys.list(path)) do
    local ok, t = false, nil
    if name:lower():match("%.csv$") then
      ok, t = pcall(core.data.table_open, path .. "/" .. name, ",")
    end
    local column, numbers = nil, {}
    for _, c in ipairs(ok and t:rows() > 0 and t:columns() or {}) do
      local first = t:text(1, c.name)
      if not column and first ~= "" and first:sub(1, 1) ~= "/"
         and util.exists(path .. "/" .. first) then
        column = c.name
      elseif c.numbers == t:rows() then
        numbers[#numbers + 1] = c.name
      end
    end
    if column then return name, column, numbers end
  end
end

-- Arrays, or images that a table names. `read` and `rank` say how; sequences have
-- a length.
local function table_line(path, read, rank, sequences)
  local name, column, numbers = find_table(path)
  if not name then return nil end
  local fields = string.format('{ { name = "image", read = "%s", rank = %d, column = %s }', read,
                               rank, quote(column))
  if #numbers > 0 then
    local list = quote(numbers):gsub("^{ ", ""):gsub(" }$", "")
    fields = fields .. ', { name = "numbers", kind = "numbers", columns = { ' .. list .. " } }"
  end
  if sequences then fields = fields .. ', { name = "length", kind = "length" }' end
  return line("csv", path, { { "table", quote(name) }, { "patient", '"file"' },
                             { "fields", fields .. " }" } }, "if every row is another person")
end

local LOOKED_AT = 50 -- most headers of arrays that are compared

local function array_shape(file)
  local ok, list = pcall(core.array.list, file)
  return ok and list[1].shape or {}
end

-- The rank of arrays, and whether they are sequences: tables of two axes of which
-- only the first differs from file to file are (time, features).
local function array_rank(path, files)
  local first = array_shape(path .. "/" .. files[1])
  local differ = false
  for i = 2, #first == 2 and math.min(#files, LOOKED_AT) or 1 do
    local shape = array_shape(path .. "/" .. files[i])
    if #shape ~= 2 or shape[2] ~= first[2] then return 2, false end
    differ = differ or shape[1] ~= first[1]
  end
  if differ then return 1, true end
  return math.max(1, math.min(#first, 3)), false
end

local function arrays(path, files)
  local with_table = table_line(path, "npy", array_rank(path, files))
  if with_table then return with_table end
  return folder_line("npy", path, files, core.array.load, function(image, mask)
    local rank, sequences = array_rank(path, image.files)
    -- a mask has no channels
    local axes = mask and #array_shape(path .. "/" .. mask.first) or 0
    if axes > 0 and axes < 4 then rank, sequences = axes, sequences and axes == 1 end
    return { { "rank", tostring(rank) }, sequences and { "length", "true" } or nil }
  end)
end

-- The line for files of one kind (NIfTI, .npy or image, by `kind_of`) below a folder;
-- nil when there is nothing to propose.
function M.files(path, found, kind_of)
  local of = {}
  for _, name in ipairs(found) do
    local kind = kind_of(name)
    of[kind] = of[kind] or {}
    table.insert(of[kind], name)
  end
  if util.exists(path .. "/dataset.json") and util.exists(path .. "/imagesTr") then
    return line("nnunet", path, { { "patient", '"file"' } }, "if every case is another person")
  end
  if of.NIfTI and #of.NIfTI > 1 then return nifti(path, of.NIfTI) end
  if of[".npy"] then return arrays(path, of[".npy"]) end
  if of.image and #of.image > 1 then
    return table_line(path, "image", 2) or images_line(path, of.image)
  end
end

-- The line for a folder of patients of OpenKBP.
function M.openkbp(path)
  return line("openkbp", path, {})
end

return M
