-- inspect_line.lua -- proposes the line of a recipe that opens a folder.
--
-- Files are matched by their headers, or by usual names of files. It is a proposal: errors appear
-- when a recipe opens it, or in `segengine doctor data`.

local core = require "seg.core"
local columns = require "seg.inspect.inspect_columns"
local paste = require "seg.inspect.paste"
local util = require "seg.util"

local quote, line, first_that_opens = paste.quote, paste.line, paste.first_that_opens
local M = {}

local MASK_WORDS = { "mask", "seg", "label", "roi", "annotation", "truth", "_gt$", "^gt/" }

local function named_mask(name)
  local lower = name:lower()
  for _, word in ipairs(MASK_WORDS) do
    if lower:find(word) then return true end
  end
  return false
end

-- The option labels for a mask with these values; nil if it needs none: 0 and 1, or no labels.
local function labels_of(values)
  local list = {}
  for _, v in ipairs(values or {}) do
    if v ~= 0 then list[#list + 1] = string.format("%d", v) end
  end
  if #list == 0 or (#list == 1 and list[1] == "1") then return nil end
  return "{ " .. table.concat(list, ", ") .. " }"
end

-- The values of a volume if they may be labels: few whole numbers with 0 among them.
local function label_values(load)
  local ok, v = pcall(load)
  local values = ok and v:values() or nil
  local zero = false
  local list, seen = {}, {}
  for _, x in ipairs(values or {}) do
    local whole = math.tointeger(core.data.label_value(x))
    if not whole or whole < 0 or whole > 65535 then return nil end
    zero = zero or whole == 0
    if not seen[whole] then seen[whole], list[#list + 1] = true, whole end
  end
  return zero and #list > 1 and list or nil
end

-- DICOM -----------------------------------------------------------------------

-- The modalities that occur at most once in every study.
local function single_modalities(list)
  local single, seen = {}, {}
  for _, s in ipairs(list) do
    local id = table.concat({ s.patient, s.study, s.modality }, "\0")
    if single[s.modality] == nil then single[s.modality] = s.modality ~= "" end
    if seen[id] then single[s.modality] = false end
    seen[id] = true
  end
  return single
end

-- Groups series by name: { name=, kind=, studies = {uid = {series}}, count= }.
local function by_name(list)
  local all, order, studies, count = {}, {}, {}, 0
  local single = single_modalities(list)
  for i, s in ipairs(list) do
    local folder = s.folder:match("([^/]+)/*$")
    -- a folder named by a UID has another name in each study
    if folder and folder:match("^%d+%.[%d.]+$") and single[s.modality] then folder = s.modality end
    local name = s.description ~= "" and s.description or folder or s.series
    local id = s.kind .. "\0" .. name
    if not all[id] then
      all[id] = { name = name, kind = s.kind, modality = s.modality, studies = {}, count = 0 }
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
local LOADED = 8 -- most series or files that are loaded to see whether they are a mask

-- Any series of a group.
local function first_of(e)
  local _, series = next(e.studies)
  return series[1]
end

-- Modalities of projections and pictures, which are not read as volumes.
local PICTURES = {}
for word in ("CR DX MG IO PX RG RF XA US IVUS ES XC GM SM OP"):gmatch("%S+") do
  PICTURES[word] = true
end
local AS_PICTURES = "dcm2pnm +on2 makes PNGs of them, which data.images reads"

-- A sentence about the series of a list that are not read as volumes; nil if all are.
function M.pictures(list)
  local count, names, all = {}, {}, 0
  for _, s in ipairs(list) do
    if PICTURES[s.modality] and s.kind ~= "dose" then
      if not count[s.modality] then names[#names + 1] = s.modality end
      count[s.modality], all = (count[s.modality] or 0) + 1, all + 1
    end
  end
  if all == 0 then return nil end
  for i, name in ipairs(names) do names[i] = count[name] .. " " .. name end
  return string.format("%s (%s): projections or pictures, unless they have a place in the patient; "
                       .. "%s", util.plural(all, "series", "series"), table.concat(names, ", "),
                       AS_PICTURES)
end

-- A sentence if several studies have one PatientID, because anonymisation may give many people the
-- same; nil otherwise.
function M.one_patient(list)
  local seen, studies = {}, 0
  for _, s in ipairs(list) do
    if s.patient ~= list[1].patient then return nil end
    if not seen[s.study] then seen[s.study], studies = true, studies + 1 end
  end
  if studies < 2 then return nil end
  return string.format('all %d studies are of one patient%s; if they are of several people, each '
                       .. 'in a folder, add patient = "folder" to the line', studies,
                       list[1].patient ~= "" and " (PatientID " .. list[1].patient .. ")" or "")
end

-- Whether the series of two groups have equal extents in each study of `a`.
local function alike(a, b)
  for study, series in pairs(a.studies) do
    local other = b.studies[study]
    if not other or #other ~= 1 or #series ~= 1 or other[1].size ~= series[1].size then
      return false
    end
  end
  return true
end

-- The group that most studies have; nil for an empty list.
local function commonest(list)
  local best
  for _, e in ipairs(list) do
    if not best or e.count > best.count then best = e end
  end
  return best
end

-- Finds the mask: by its kind or name, else by its voxels: a series with the extents of another and
-- few whole numbers. -> group, its values, names of its regions
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
  if mask and MASKS[mask.kind] then
    local numbers, names = {}, {}
    -- the error of a damaged one is printed when the proposed line fails
    local ok, _, segments = pcall(scan.segments, scan, first_of(mask).number)
    local times = {}
    for _, g in ipairs(ok and segments or {}) do times[g.label] = (times[g.label] or 0) + 1 end
    for i, g in ipairs(ok and segments or {}) do
      numbers[i] = g.number
      -- regions without a unique name are given by their numbers
      names[i] = times[g.label] > 1 and "#" .. g.number or g.label
    end
    return mask, numbers, names
  elseif mask then
    return mask, look(mask)
  end
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

-- The line for the series of a scan; nil if there is no image among them, or nil and the reason why
-- no line opens them. bad: a file in the folder is damaged.
function M.dicom(path, scan, list, bad)
  paste.skip_bad = bad or false
  local order = by_name(list)
  local mask, values, regions = find_mask(order, scan)
  local images, doses, studies = {}, {}, {}
  for _, e in ipairs(order) do
    local image = e.kind == "image" or e.kind == "multi-frame"
    if image and e ~= mask and not named_mask(e.name) and not PICTURES[e.modality] then
      images[#images + 1] = e
    end
    if e.kind == "dose" then doses[#doses + 1] = e end
    for study in pairs(image and e ~= mask and e.studies or {}) do studies[study] = true end
  end
  local first, total = commonest(images), 0
  if not first then return nil end
  for _ in pairs(studies) do total = total + 1 end
  -- images that every study has, with equal extents, are channels; a localizer is excluded by its
  -- fewer slices
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
  local labels = mask and labels_of(values)
  if mask then
    options[2] = { "mask", quote(mask.name) }
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
  local remark = #lacks > 0 and table.concat(lacks, ", ") or nil
  local tried = { line("dicom", path, options, remark) }
  -- series of one study with different grids cannot be channels; overlapping regions cannot be
  -- labels
  options[1] = { "image", quote(first.name) }
  tried[2] = line("dicom", path, options, remark)
  if labels and regions then
    options[3] = { "segments", quote(regions) } -- several fields, like the labels
    table.insert(options, 4, { "fractions", "true" })
    tried[3] = line("dicom", path, options, remark)
  end
  return first_that_opens(tried)
end

-- Files -----------------------------------------------------------------------

local function split_path(path)
  local below, name = path:match("^(.*)/([^/]*)$")
  name = name or path
  return below or "", (name:gsub("%.[nN][iI][iI]%.[gG][zZ]$", ""):gsub("%.%w+$", ""))
end

-- The common suffix of each file name: of the suffixes that begin at a "_" and contain letters, the
-- suffix that most files share, then the longest.
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

-- The groups of a folder in the layout of nnU-Net, imagesTr/CASE_0000 (and the further channels)
-- and labelsTr/CASE; nil for any other.
local function of_nnunet(files)
  local groups, channels, masks = {}, {}, {}
  for _, path in ipairs(files) do
    local channel = path:match("^imagesTr/[^/]+_(%d%d%d%d)%.[^/]+$")
    if path:find("^imagesTr/") and not channel then return nil end
    if channel then
      channels[channel] = channels[channel] or {}
      table.insert(channels[channel], path)
    elseif path:find("^labelsTr/[^/]+$") then
      masks[#masks + 1] = path
    end
  end
  if not next(channels) or #masks == 0 then return nil end
  local function add(pattern, list)
    groups[#groups + 1] = { pattern = pattern, count = #list, first = list[1], files = list,
                            folder = pattern:match("^[^/]+"), ending = "" }
  end
  for _, channel in ipairs(util.sorted_keys(channels)) do
    add("imagesTr/*_" .. channel, channels[channel])
  end
  add("labelsTr/*", masks)
  return groups
end

-- Groups files by pattern: { pattern=, count=, first=path, files= }, or by folder if folders
-- distinguish them; and the folders.
local function patterns(files)
  local known = of_nnunet(files)
  if known then return known, { imagesTr = #files, labelsTr = #files }, true end
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
  -- each group in its own folder: names alone would not pair
  local by_folder = #order > 1
  for k, g in ipairs(order) do
    by_folder = by_folder and g.one and g.folder ~= "" and (k == 1 or g.folder ~= order[1].folder)
  end
  for _, g in ipairs(order) do
    g.pattern = (by_folder and g.folder .. "/*" or "*") .. g.ending
  end
  return order, folders, by_folder
end

-- The label values in files of a pattern, over several masks, because not every mask has every
-- class. nil if one of them is no mask.
local function values_of(g, root, read)
  local seen, list = {}, {}
  local looked = math.min(LOADED, #g.files)
  for k = 1, looked do
    local path = root .. "/" .. g.files[1 + (k - 1) * #g.files // looked]
    local values = label_values(function() return read(path) end)
    -- an empty mask is valid too
    if not values and k == 1 then return nil end
    for _, v in ipairs(values or {}) do
      if not seen[v] then seen[v], list[#list + 1] = true, v end
    end
  end
  table.sort(list)
  return list
end

-- Finds the pattern of the mask: by name, else by the values in its files. -> mask or nil, its
-- values, the patterns of images
local function mask_and_images(order, root, read)
  local mask, values
  for _, g in ipairs(order) do
    if #order > 1 and named_mask(g.pattern) and (not mask or g.count > mask.count) then mask = g end
  end
  for _, g in ipairs(order) do
    if (#order == 2 and not mask) or g == mask then
      local v = values_of(g, root, read)
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

-- Masks with the name of their image plus a suffix, a_T1w and a_T1w_brainmask: { { image pattern,
-- mask pattern, files of masks }, ... }. The masks of several images share a suffix and are
-- distinguished by the part before it.
local function named_pairs(order)
  local found = {}
  for _, image in ipairs(order) do
    for _, mask in ipairs(order) do
      local own = {}
      if image ~= mask and image.ending ~= "" and not named_mask(image.pattern)
         and named_mask(mask.pattern) then
        local all = mask.ending:sub(1, #image.ending + 1) == image.ending .. "_"
        for _, path in ipairs(mask.files) do
          local _, stem = split_path(path)
          local rest = stem:sub(1, -#mask.ending - 1)
          if all or rest:sub(-#image.ending) == image.ending then own[#own + 1] = path end
        end
        if #own == image.count then
          found[#found + 1] = { image = image.pattern, files = own,
                                mask = all and mask.pattern
                                  or "*" .. image.ending .. mask.ending }
        end
      end
    end
  end
  return found
end

-- A line for each image with its mask; else all images as channels, or one of them if their grids
-- differ.
local function nifti(path, files)
  local order, _, by_folder = patterns(files)
  -- whether patient = "auto" finds the patients
  local known, four = not by_folder, false
  for i, file in ipairs(files) do
    if i <= LOADED then
      local ok, said = pcall(core.data.nifti_text, path .. "/" .. file)
      four = four or ok and said:find(" channels$") ~= nil
    end
    known = known and (file:match("/?sub%-%w+[^/]*$") or file:find("/", 1, true)) and true
  end
  local function text(images, mask, values, more)
    local options = { { "image", quote(images) } }
    if mask then options[2] = { "mask", quote(mask) } end
    local labels = labels_of(values)
    if labels then options[#options + 1] = { "labels", labels } end
    if four then options[#options + 1] = { "channels", "true" } end
    if not known then options[#options + 1] = { "patient", '"file"' } end
    for _, option in ipairs(more or {}) do options[#options + 1] = option end
    return line("nifti", path, options, not known and EACH or nil)
  end
  local paired, lines = named_pairs(order), {}
  for _, p in ipairs(#paired > 1 and paired or {}) do
    lines[#lines + 1] = first_that_opens {
      text(p.image, p.mask, values_of({ files = p.files }, path, core.data.read_nifti)) }
  end
  if #lines > 0 then return table.concat(lines, "\n") end
  local mask, values, images = mask_and_images(order, path, core.data.read_nifti)
  if #images == 0 then return nil end
  local tried, leave = {}, { { "skip_unmatched", "true" } }
  local name = mask and mask.pattern
  tried[1] = text(images, name, values)
  for _, one in ipairs(#images > 1 and images or {}) do
    tried[#tried + 1] = text(one, name, values)
  end
  if mask then tried[#tried + 1] = text(images, name, values, leave) end
  local with = #tried
  for _, one in ipairs(images) do tried[#tried + 1] = text(one) end
  local found, why = first_that_opens(tried)
  for i = with + 1, mask and found and #tried or 0 do
    -- a remark names a mask that is left out of the line
    if tried[i] == found then
      return string.format("%s\n-- mask = %s is not in the line, as it does not fit: %s", found,
                           quote(name), util.without_fix(why))
    end
  end
  return found, not found and why or nil
end

-- The line of a folder of nnU-Net, or the reason why it does not open; nothing if its files are not
-- named as in nnU-Net, for example in the Decathlon.
local function nnunet(path)
  local text, why = first_that_opens {
    line("nnunet", path, { { "patient", '"file"' } }, "if every case is another person") }
  local others = why and (why:find("no file is called CASE_0000", 1, true)
                          or not util.exists(path .. "/imagesTr")
                          and not why:find('"dataset"', 1, true))
  return text, not others and why or nil
end

-- Options that photographs may need.
local LENIENT = { { "alpha", '"drop"' }, { "exif", '"apply"' } }

-- The line of files with masks, or of folders as classes. read(file) loads a file, to test whether
-- it can be a mask. more(images, mask or nil) -> further options, for two patterns. nil: there is
-- no image among the files.
local function folder_line(kind, path, files, read, more)
  local order, folders, by_folder = patterns(files)
  local mask, values, images = mask_and_images(order, path, read)
  if #images == 0 then return nil end
  local names, options = util.sorted_keys(folders), {}
  local several = not by_folder and #names > 1 and not folders[""]
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
  local remark = folder and "if each folder is another person" or EACH
  local tried = { line(kind, path, options, remark) }
  for i, option in ipairs(kind == "images" and LENIENT or {}) do
    options[#options + 1] = option
    tried[i + 1] = line(kind, path, options, remark)
  end
  return first_that_opens(tried)
end

local function images_line(path, files)
  return folder_line("images", path, files, function(file)
    return core.data.read_image(file, { label = true, alpha = "drop", exif = "ignore",
                                        trailing = true, page = 1 })
  end)
end

local LOOKED_AT = 50 -- most headers of arrays that are compared

local function array_shape(file)
  local ok, list = pcall(core.array.list, file)
  return ok and list[1].shape or {}
end

-- The rank of arrays, and whether they are sequences: arrays with two axes of which only the first
-- differs between files are (time, features).
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
  local table_rank, of_length = array_rank(path, files)
  local with_table, why = columns.table(path, 'name = "x", read = "npy", rank = ' .. table_rank,
                                        of_length and '{ name = "length", kind = "length" }')
  if with_table or why then return with_table, why end
  return folder_line("npy", path, files, core.array.load, function(image, mask)
    local rank, sequences = array_rank(path, image.files)
    -- a mask has no channels
    local axes = mask and #array_shape(path .. "/" .. mask.first) or 0
    if axes > 0 and axes < 4 then rank, sequences = axes, sequences and axes == 1 end
    return { { "rank", tostring(rank) }, sequences and { "length", "true" } or nil }
  end)
end

-- The line for files of one kind (NIfTI, .npy or image, by `kind_of`) below a folder; nil if there
-- is nothing to propose, or nil and the reason why no line opens it. bad: a file or folder there is
-- damaged.
function M.files(path, found, kind_of, bad)
  paste.skip_bad = bad or false
  local of = {}
  for _, name in ipairs(found) do
    local kind = kind_of(name)
    of[kind] = of[kind] or {}
    table.insert(of[kind], name)
  end
  if util.exists(path .. "/dataset.json") then
    local text, why = nnunet(path)
    if text or why then return text, why end
  end
  if of.NIfTI and #of.NIfTI > 1 then return nifti(path, of.NIfTI) end
  if of[".npy"] then return arrays(path, of[".npy"]) end
  if of.image and #of.image > 1 then
    local with_table, why = columns.table(path, 'name = "image", read = "image", rank = 2')
    if with_table or why then return with_table, why end
    return images_line(path, of.image)
  end
end

-- The line for a folder of patients of OpenKBP.
function M.openkbp(path)
  return line("openkbp", path, {})
end

return M
