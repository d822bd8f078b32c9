-- data_images.lua -- data sets of photographs: folders of images, 300W-LP, BIWI, Pointing'04.
--
-- Each function returns fields, a function that lists the cases when the data is first needed, the
-- names of classes or columns, and the names of each field of numbers; data.lua makes a set of
-- them.

local core = require "seg.core"
local file_kind = require "seg.data.file_kind"
local files = require "seg.data.data_files"
local show = require "seg.show"
local util = require "seg.util"

local fail = util.fail
local M = {}

-- Options for reading a picture, proposed by error messages.
M.options = { "alpha", "exif", "page", "trailing" }

-- A field of pictures with the options of data.images; masks are read as images.
function M.field(name, kind, o)
  local field = { name = name, kind = kind, read = "image" }
  for _, key in ipairs(M.options) do field[key] = o[key] end
  return field
end

-- Images with masks, or with the name of their folder as class.
function M.images(o)
  local fields = { M.field("image", "image", o) }
  if o.mask then
    fields[2] = M.field("mask", "label", o)
  elseif o.classes then
    fields[2] = { name = "class", kind = "numbers" }
  end
  return fields, function(root, unread)
    return files.cases("data.images", root,
                       util.files_below(root, file_kind.is_image, false, unread), o, "images")
  end, o.classes
end

local function pose_fields(o)
  return { M.field("image", "image", o), { name = "pose", kind = "numbers", count = 3 } }
end
local ANGLES = { "yaw", "pitch", "roll" }

-- The factor of pitch: 300W-LP counts upward pitch as positive; programs for BIWI that omit a minus
-- have the opposite sign.
local PITCH = { ["300wlp"] = 1, biwi = -1 }

-- The largest size of the region around a face: a multiple of the face's extents, or mm.
local MOST = { margin = 10, face_mm = 10000 }

-- Raises if `pitch` is no known convention or a size is out of range.
function M.check_pose(what, o)
  if not PITCH[o.pitch] then
    fail("usage", '%s: pitch must be "300wlp" or "biwi", got %s', what, tostring(o.pitch))
  end
  for key, most in pairs(MOST) do
    local v = o[key]
    if v ~= nil and not (math.type(v) and v >= 0 and v <= most) then
      fail("usage", "%s: %s must be a number from 0 to %d, got %s", what, key, most, tostring(v))
    end
  end
end

-- The crop of a photograph around the face, from its landmarks pt2d in a .mat, with a margin of
-- `k` times their extents, as in Ruiz et al. (CVPR Workshops 2018).
--   -> { x, y, width, height }
function M.face_box(mat, k)
  local points = core.array.load(mat, "pt2d")
  local lo, hi, seen = {}, {}, 0
  for i = 1, points.shape[2] do
    -- (-1, -1) is an invisible landmark of AFLW2000
    local there = points:get(1, i) ~= -1 or points:get(2, i) ~= -1
    seen = seen + (there and 1 or 0)
    for axis = 1, there and 2 or 0 do
      local v = points:get(axis, i)
      lo[axis] = math.min(lo[axis] or v, v)
      hi[axis] = math.max(hi[axis] or v, v)
    end
  end
  if seen < 2 or hi[1] <= lo[1] or hi[2] <= lo[2] then
    fail("data", "%s: pt2d: %d of %d landmarks can be seen (the others are -1), too few for the "
         .. "box of a face; fix: move the photograph and its .mat away", mat, seen, points.shape[2])
  end
  local w, h = hi[1] - lo[1], hi[2] - lo[2]
  return { lo[1] - 0.6 * k * w, lo[2] - 2 * k * h, w * (1 + 1.2 * k), h * (1 + 2.6 * k) }
end

-- Yaw, pitch and roll in degrees from Pose_Para of a .mat, which is pitch, yaw, roll in radians;
-- and the largest absolute value.
local function angles_of(mat, pitch)
  local pose, angle, far = core.array.load(mat, "Pose_Para"):reshape { 7 }, {}, 0
  for i, from in ipairs { 2, 1, 3 } do
    local v = math.deg(pose:get(from))
    if v - v ~= 0 then
      fail("data", "%s: Pose_Para: number %d of it is %s, wanted an angle in radians; fix: move "
           .. "the photograph and its .mat away, or fetch them again", mat, from, util.number(v))
    end
    angle[i], far = v, math.max(far, math.abs(v))
  end
  angle[2] = PITCH[pitch] * angle[2]
  return angle, far
end

local function is_image_or_mat(path) return file_kind.is_image(path) or path:find "%.mat$" end

-- 300W-LP and AFLW2000: a .jpg and a .mat of the same name. Files without a partner are counted,
-- because folders of 300W-LP hold other files too; so are samples left out for their angles.
function M.w300lp(o)
  return pose_fields(o), function(root, unread)
    local cases, photographs, mats, used, alone, turned = {}, {}, {}, {}, 0, 0
    for _, path in ipairs(util.files_below(root, is_image_or_mat, false, unread)) do
      if file_kind.is_image(path) then
        photographs[#photographs + 1] = path
      else
        -- these files hold only landmarks
        mats[path:sub(1, -5)] = not path:find("_pts.mat", 1, true)
      end
    end
    for _, path in ipairs(photographs) do
      local stem = path:gsub("%.%w+$", "")
      local mat = root .. "/" .. stem .. ".mat"
      if mats[stem] == nil then
        alone = alone + 1
      elseif o.flips or not path:find("_Flip/", 1, true) then
        local angle, far = angles_of(mat, o.pitch)
        if far <= o.most_degrees then
          -- several views were made of one photograph: NAME_0, NAME_1, ...
          local who = stem:gsub("_Flip/", "/"):gsub("_%d+$", "")
          cases[#cases + 1] = {
            key = stem, patient = who, pose = angle,
            image = { root .. "/" .. path, box = M.face_box(mat, o.margin) } }
        else
          turned = turned + 1
        end
      end
      used[stem] = true
    end
    if #cases == 0 then
      fail("data", "%s: no photograph with a .mat next to it; fix: --data DIR, or root of the "
           .. "recipe, names the folder of 300W-LP or AFLW2000", root)
    end
    local blind = 0
    for stem, wanted in pairs(mats) do
      if wanted and not used[stem] then blind = blind + 1 end
    end
    for _, e in ipairs { { alone, "without a .mat" }, { blind, "missing, whose .mat is there" },
                         { turned, string.format("of angles beyond most_degrees = %g",
                                                 o.most_degrees) } } do
      if e[1] > 0 then
        show.line("note: left out of 300W-LP: %s %s", util.plural(e[1], "photograph"), e[2])
      end
    end
    return cases
  end, ANGLES, { pose = ANGLES }
end

-- The square of `mm` around the head of a _pose.txt of BIWI, in the image of the camera of its
-- folder (rgb.cal): a pinhole model; the neglected distortion is a few pixels at the border. -> {
-- x, y, width, height } in pixels
function M.head_box(pose, mm)
  local x, y, z = table.unpack(core.data.biwi_pose(pose).centre)
  local camera = core.data.biwi_camera((pose:match("^(.*)/") or ".") .. "/rgb.cal")
  if not (z > 0) then
    fail("data", "%s: the head is %g mm in front of the camera, need more than 0; fix: fetch the "
         .. "file again, or move the frame away", pose, z)
  end
  local w, h = mm * camera.focal[1] / z, mm * camera.focal[2] / z
  return { camera.focal[1] * x / z + camera.principal[1] - w / 2,
           camera.focal[2] * y / z + camera.principal[2] - h / 2, w, h }
end

-- The pairs of sequences that show the same person, as a table { ["12"] = "07" }; as text, for
-- example on the command line, "12=07,14=08".
local function pairs_of(same)
  if type(same) == "table" then return same end
  local found = {}
  for word in tostring(same):gmatch "[^,]+" do
    local a, b = word:match "^%s*(%w+)=(%w+)%s*$"
    if not a then
      fail("usage", 'data.biwi: same must be sequences as { ["12"] = "07" } or "12=07,14=08", got '
           .. '"%s"', word)
    end
    found[a] = b
  end
  return found
end

-- Checks the options of data.biwi.
function M.check_biwi(what, o)
  M.check_pose(what, o)
  o.same = pairs_of(o.same)
end

-- Checks the names: a misspelt sequence would silently leave one person in two parts of a split.
local function check_same(root, same, sequences)
  for a, b in pairs(same) do
    for _, name in ipairs { a, b } do
      if not sequences[name] then
        fail("data", '%s: same: there is no sequence "%s"; fix: one of %s', root, tostring(name),
             table.concat(util.sorted_keys(sequences), ", "))
      end
    end
  end
end

-- BIWI: folders NN with frame_XXXXX_rgb.png and _pose.txt. A sequence is a patient; `same` = {
-- ["12"] = "07" }, or "12=07", lists sequences of the same person. face_mm: crops a frame to this
-- size around the head.
function M.biwi(o)
  return pose_fields(o), function(root, unread)
    local cases, sequences = {}, {}
    for _, path in ipairs(util.files_below(root, file_kind.is_image, false, unread)) do
      local folder, frame = path:match("^([^/]+)/(frame_%d+)_rgb%.%w+$")
      if frame then
        sequences[folder] = true
        local txt, image = root .. "/" .. folder .. "/" .. frame .. "_pose.txt", root .. "/" .. path
        local p = core.data.biwi_pose(txt)
        if o.face_mm > 0 then image = { image, box = M.head_box(txt, o.face_mm) } end
        cases[#cases + 1] = { key = folder .. "/" .. frame, patient = o.same[folder] or folder,
                              image = image, pose = { p.yaw, PITCH[o.pitch] * p.pitch, p.roll } }
      end
    end
    if #cases == 0 then
      fail("data", "%s: no NN/frame_XXXXX_rgb.png; fix: --data DIR, or root of the recipe, names "
           .. "the folder of the sequences 01, 02, ...", root)
    end
    check_same(root, o.same, sequences)
    return cases
  end, ANGLES, { pose = ANGLES }
end

-- The square around the face of Pointing'04; its centre and size in pixels follow "Face" in a .txt:
-- the larger of width and height, plus `k` times that on each side. -> { x, y, width, height }
function M.pointed_box(txt, k)
  local x, y, w, h = util.read_file(txt):match("Face%s+(%d+)%s+(%d+)%s+(%d+)%s+(%d+)")
  if not x then
    fail("data", "%s: no Face with four numbers below it: x and y of its middle, width, height; "
         .. "fix: fetch the file again, or move the photograph away", txt)
  end
  local side = (1 + 2 * k) * math.max(tonumber(w), tonumber(h))
  return { tonumber(x) - side / 2, tonumber(y) - side / 2, side, side }
end

-- Pointing'04: personPPSNN+T+P.jpg, T the tilt and P the pan in degrees, with a .txt of the same
-- name. Tilt is positive upward and pan toward the left edge of the picture, like pitch and yaw of
-- 300W-LP; roll was not measured.
function M.pointing04(o)
  local fields, names = pose_fields(o), { "yaw", "pitch" }
  fields[2].count = 2
  return fields, function(root, unread)
    local cases = {}
    for _, path in ipairs(util.files_below(root, file_kind.is_image, false, unread)) do
      local who, tilt, pan = path:match("person(%d%d)%d%d%d([+-]%d+)([+-]%d+)%.%w+$")
      if who then
        local stem = path:gsub("%.%w+$", "")
        cases[#cases + 1] = {
          key = stem, patient = who, pose = { tonumber(pan), PITCH[o.pitch] * tonumber(tilt) },
          image = { root .. "/" .. path,
                    box = M.pointed_box(root .. "/" .. stem .. ".txt", o.margin) } }
      end
    end
    if #cases == 0 then
      fail("data", "%s: no personPPSNN+T+P.jpg; fix: --data DIR, or root of the recipe, names the "
           .. "folder of Pointing'04", root)
    end
    return cases
  end, names, { pose = names }
end

return M
