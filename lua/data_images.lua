-- data_images.lua -- data sets of photographs: folders of images, 300W-LP, BIWI.
--
-- Each function gives fields, what lists the cases when the data is first wanted,
-- names of classes or columns, and those of each field of numbers; data.lua makes
-- a set of them.

local core = require "seg.core"
local util = require "seg.util"

local fail = util.fail
local M = {}

local ENDINGS = { png = true, jpg = true, jpeg = true, bmp = true, tif = true, tiff = true }

-- Is a file an image by its name?
function M.is_image(path)
  return ENDINGS[(path:match("%.(%w+)$") or ""):lower()] or false
end

-- A pattern with * as one of Lua, and whether it speaks of whole paths.
local function lua_pattern(glob)
  local p = glob:gsub("[%^%$%(%)%%%.%[%]%+%-%?]", "%%%0"):gsub("%*", "([^/]*)")
  return "^" .. p .. "$", glob:find("/", 1, true) ~= nil
end

-- What the stars of a pattern match in a path, and for names the folder: the
-- key of a case; nil when it does not match.
local function key_of(path, pattern, whole)
  local stem = path:gsub("%.%w+$", "")
  local folder, name = stem:match("^(.*/)([^/]*)$")
  local parts = table.pack((whole and stem or name or stem):match(pattern))
  if parts[1] == nil then return nil end
  return (whole and "" or folder or "") .. table.concat(parts, "_")
end

-- {key = path} of the files that a pattern matches; two of one key are an error.
local function matches(what, files, glob, but)
  local pattern, whole = lua_pattern(glob)
  local found, order = {}, {}
  for _, path in ipairs(files) do
    local key = not (but and but[path]) and key_of(path, pattern, whole)
    if key and found[key] then
      fail("data", "%s: %s and %s are both the %s of %s", what, found[key], path, glob, key)
    end
    if key then found[key], order[#order + 1] = path, key end
  end
  return found, order
end

-- How a patient is found: "file", "folder" (the first below root) or a pattern
-- with the patient in brackets, matched with the path below root.
local function patient_of(rule, key, path)
  if rule == "file" then return key end
  local patient = path:match(rule == "folder" and "^([^/]+)/" or rule)
  if not patient then
    fail("data", 'data.images: %s: patient = "%s" finds no patient in it', path, rule)
  end
  return patient
end

-- The ten first of a list, for a message.
local function some(list)
  return table.concat(list, ", ", 1, math.min(#list, 10)) .. (#list > 10 and ", ..." or "")
end

-- Images with masks of their own, or with the name of their folder as class.
function M.images(o)
  local fields = { { name = "image", read = "image", rank = 2, alpha = o.alpha, exif = o.exif } }
  if o.mask then
    fields[2] = { name = "mask", kind = "label", read = "image", rank = 2 }
  elseif o.classes then
    fields[2] = { name = "class", kind = "numbers" }
  end
  return fields, function(root)
    local files = util.files_below(root, M.is_image)
    local masks, is_mask, cases, lone = {}, {}, {}, {}
    if o.mask then
      masks = matches("data.images", files, o.mask)
      for _, path in pairs(masks) do is_mask[path] = true end
    end
    local images, order = matches("data.images", files, o.image, is_mask)
    local class = {}
    for i, name in ipairs(o.classes or {}) do class[name] = i - 1 end
    for _, key in ipairs(order) do
      local path = images[key]
      local case = { key = key, patient = patient_of(o.patient, key, path),
                     image = root .. "/" .. path }
      if o.mask then
        if not masks[key] then lone[#lone + 1] = path end
        case.mask = masks[key] and root .. "/" .. masks[key]
        masks[key] = nil
      elseif o.classes then
        local folder = path:match("([^/]+)/[^/]*$") or ""
        case.class = class[folder]
        if not case.class then
          fail("data", 'data.images: %s lies in "%s", which is none of the classes %s', path,
               folder, table.concat(o.classes, ", "))
        end
      end
      cases[#cases + 1] = case
    end
    for _, path in pairs(masks) do lone[#lone + 1] = path end
    if #lone > 0 then
      table.sort(lone)
      fail("data", "data.images: %d files without a partner (%s, %s): %s", #lone, o.image, o.mask,
           some(lone))
    end
    if #cases == 0 then
      fail("data", '%s: none of %d images is "%s"', root, #files, o.image)
    end
    return cases
  end, o.classes
end

local POSE_FIELDS = { { name = "image", read = "image", rank = 2 },
                      { name = "pose", kind = "numbers", count = 3 } }
local ANGLES = { "yaw", "pitch", "roll" }

-- 300W-LP and AFLW2000: a .jpg with a .mat beside it. Pose_Para is pitch, yaw,
-- roll in radians; the face is cut by its landmarks pt2d, `margin` k of their
-- extents, as Ruiz et al. (CVPR Workshops 2018) do.
function M.w300lp(o)
  return POSE_FIELDS, function(root)
    local cases = {}
    for _, path in ipairs(util.files_below(root, M.is_image)) do
      local stem = path:gsub("%.%w+$", "")
      local mat = root .. "/" .. stem .. ".mat"
      if (o.flips or not path:find("_Flip/", 1, true)) and core.sys.stat(mat) then
        local pose = core.array.load(mat, "Pose_Para"):reshape { 7 }
        local points = core.array.load(mat, "pt2d")
        local angle = {} -- yaw, pitch, roll in degrees
        for i, from in ipairs { 2, 1, 3 } do angle[i] = math.deg(pose:get(from)) end
        local lo, hi = {}, {}
        for axis = 1, 2 do
          for i = 1, points.shape[2] do
            local v = points:get(axis, i)
            lo[axis] = math.min(lo[axis] or v, v)
            hi[axis] = math.max(hi[axis] or v, v)
          end
        end
        local w, h, k = hi[1] - lo[1], hi[2] - lo[2], o.margin
        local far = math.max(math.abs(angle[1]), math.abs(angle[2]), math.abs(angle[3]))
        if far <= o.most_degrees then
          -- several views were made of one photograph: NAME_0, NAME_1, ...
          local who = stem:gsub("_Flip/", "/"):gsub("_%d+$", "")
          cases[#cases + 1] = {
            key = stem, patient = who, pose = angle,
            image = { root .. "/" .. path,
                      box = { lo[1] - 0.6 * k * w, lo[2] - 2 * k * h,
                              w * (1 + 1.2 * k), h * (1 + 2.6 * k) } } }
        end
      end
    end
    if #cases == 0 then fail("data", "%s: no photograph with a .mat beside it", root) end
    return cases
  end, ANGLES, { pose = ANGLES }
end

-- BIWI: folders NN of frame_XXXXX_rgb.png and _pose.txt. A sequence is a
-- patient; `same` = { ["12"] = "07" } says which show one person.
function M.biwi(o)
  return POSE_FIELDS, function(root)
    local cases, sign = {}, o.pitch == "biwi" and -1 or 1
    for _, path in ipairs(util.files_below(root, M.is_image)) do
      local folder, frame = path:match("^([^/]+)/(frame_%d+)_rgb%.%w+$")
      if frame then
        local p = core.data.biwi_pose(root .. "/" .. folder .. "/" .. frame .. "_pose.txt")
        cases[#cases + 1] = { key = folder .. "/" .. frame,
                              patient = o.same[folder] or folder, image = root .. "/" .. path,
                              pose = { p.yaw, sign * p.pitch, p.roll } }
      end
    end
    if #cases == 0 then fail("data", "%s: no NN/frame_XXXXX_rgb.png", root) end
    return cases
  end, ANGLES, { pose = ANGLES }
end

return M
