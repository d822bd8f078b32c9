-- data_images.lua -- data sets of photographs: folders of images, 300W-LP, BIWI.
--
-- Each function gives fields, what lists the cases when the data is first wanted,
-- names of classes or columns, and those of each field of numbers; data.lua makes
-- a set of them.

local core = require "seg.core"
local files = require "seg.data_files"
local util = require "seg.util"

local fail = util.fail
local M = {}

local ENDINGS = { png = true, jpg = true, jpeg = true, bmp = true, tif = true, tiff = true }

-- Is a file an image by its name?
function M.is_image(path)
  return ENDINGS[(path:match("%.(%w+)$") or ""):lower()] or false
end

-- A field of pictures, read as the options of data.images say: masks as images.
local function pictures(name, kind, o)
  return { name = name, kind = kind, read = "image", alpha = o.alpha, exif = o.exif,
           page = o.page, trailing = o.trailing }
end

-- Images with masks of their own, or with the name of their folder as class.
function M.images(o)
  local fields = { pictures("image", "image", o) }
  if o.mask then
    fields[2] = pictures("mask", "label", o)
  elseif o.classes then
    fields[2] = { name = "class", kind = "numbers" }
  end
  return fields, function(root)
    return files.cases("data.images", root, util.files_below(root, M.is_image), o, "images")
  end, o.classes
end

local function pose_fields(o)
  return { pictures("image", "image", o), { name = "pose", kind = "numbers", count = 3 } }
end
local ANGLES = { "yaw", "pitch", "roll" }

-- The part of a photograph that shows the face, by its landmarks pt2d in a .mat:
-- `margin` k of their extents, as Ruiz et al. (CVPR Workshops 2018) do.
--   -> { x, y, width, height }
function M.face_box(mat, k)
  local points = core.array.load(mat, "pt2d")
  local lo, hi = {}, {}
  for axis = 1, 2 do
    for i = 1, points.shape[2] do
      local v = points:get(axis, i)
      lo[axis] = math.min(lo[axis] or v, v)
      hi[axis] = math.max(hi[axis] or v, v)
    end
  end
  local w, h = hi[1] - lo[1], hi[2] - lo[2]
  return { lo[1] - 0.6 * k * w, lo[2] - 2 * k * h, w * (1 + 1.2 * k), h * (1 + 2.6 * k) }
end

-- 300W-LP and AFLW2000: a .jpg with a .mat beside it. Pose_Para is pitch, yaw,
-- roll in radians.
function M.w300lp(o)
  return pose_fields(o), function(root)
    local cases = {}
    for _, path in ipairs(util.files_below(root, M.is_image)) do
      local stem = path:gsub("%.%w+$", "")
      local mat = root .. "/" .. stem .. ".mat"
      if (o.flips or not path:find("_Flip/", 1, true)) and core.sys.stat(mat) then
        local pose = core.array.load(mat, "Pose_Para"):reshape { 7 }
        local angle = {} -- yaw, pitch, roll in degrees
        for i, from in ipairs { 2, 1, 3 } do angle[i] = math.deg(pose:get(from)) end
        local far = math.max(math.abs(angle[1]), math.abs(angle[2]), math.abs(angle[3]))
        if far <= o.most_degrees then
          -- several views were made of one photograph: NAME_0, NAME_1, ...
          local who = stem:gsub("_Flip/", "/"):gsub("_%d+$", "")
          cases[#cases + 1] = {
            key = stem, patient = who, pose = angle,
            image = { root .. "/" .. path, box = M.face_box(mat, o.margin) } }
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
  return pose_fields(o), function(root)
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
