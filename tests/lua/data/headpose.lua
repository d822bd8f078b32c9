-- headpose.lua -- head pose angles: the readers of photographs with angles, the effect of a flip on
-- angles, and the recipe headpose_cnn.lua.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local data = seg.data

local folder, remove = t.folder()
local recipe = "scripts/headpose_cnn.lua"

-- Writes a file below `folder`, with its parent folder.
local function write(path, text)
  os.execute("mkdir -p '" .. folder .. "/" .. path:match("(.*)/") .. "'")
  t.write(folder .. "/" .. path, text)
end

-- A picture of w x h pixels as BMP: red is the column, green the row; blue, or 0.
local function picture(path, w, h, blue)
  local rows = {}
  for y = h - 1, 0, -1 do
    local row = {}
    for x = 0, w - 1 do row[x + 1] = string.char(blue or 0, y, x) end
    rows[#rows + 1] = table.concat(row) .. ("\0"):rep(-3 * w % 4)
  end
  local body = table.concat(rows)
  write(path, "BM" .. string.pack("<I4I2I2I4", 54 + #body, 0, 0, 54)
        .. string.pack("<I4i4i4I2I2I4I4i4i4I4I4", 40, w, h, 1, 24, 0, #body, 0, 0, 0, 0) .. body)
end

local base, pictures = folder .. "/pointing", 0
for _, person in ipairs { "01", "02", "03" } do
  for _, angles in ipairs { "+15-30", "-60+90", "+0+0" } do
    local name = "pointing/Person" .. person .. "/person" .. person .. "100" .. angles
    pictures = pictures + 1
    picture(name .. ".bmp", 40, 30, pictures)
    write(name .. ".txt", "x.jpg\n\nFace\n20\n15\n10\n8\n")
  end
end

t.test("Pointing'04: angles from names, the face from the text beside", function()
  local set = data.pointing04 { root = base, margin = 0 }
  t.equal(t.keys(set):match("^%S+"), "Person01/person01100+0+0/01")
  local b = t.first_batch(set:filter(function(case)
    return case.key:find("+15-30", 1, true)
  end):batches { size = 1 })
  t.equal(b.pose.shape[2], 2)
  t.equal(b.pose:get(1, 1), -30, "yaw")
  t.equal(b.pose:get(1, 2), 15, "pitch")
  -- 10 x 10 pixels about (20, 15)
  t.equal(table.concat(b.image.shape, "x"), "1x3x10x10")
  t.equal(b.image:get(1, 1, 1, 1), 15, "first column")
  t.equal(b.image:get(1, 2, 1, 1), 10, "first row")
  local down = t.first_batch(data.pointing04 { root = base, pitch = "biwi" }
                             :filter(function(case) return case.key:find("+15-30", 1, true) end)
                             :batches { size = 1 })
  t.equal(down.pose:get(1, 2), -15, "pitch that is positive looking down")
  t.raises(function() data.pointing04 { root = base, pitch = "up" } end, "pitch must be")
  t.raises(function() t.keys(data.pointing04 { root = "tests/golden" }) end,
           "no personPPSNN+T+P.jpg")
  write("faceless/person01100+0+0.txt", "nothing\n")
  picture("faceless/person01100+0+0.bmp", 8, 8)
  t.raises(function() t.keys(data.pointing04 { root = folder .. "/faceless" }) end,
           "no Face with four numbers below it")
end)

t.test("BIWI: the head as its camera saw it", function()
  picture("biwi/01/frame_00003_rgb.bmp", 64, 48)
  write("biwi/01/frame_00003_pose.txt", "1 0 0 \n0 1 0 \n0 0 1 \n\n100 -50 1000 \n")
  write("biwi/01/rgb.cal", "100 0 32 \n0 100 24 \n0 0 1 \n\n0 0 0 0 \n\n1 0 0 \n0 1 0 \n0 0 1 \n\n"
        .. "0 0 0 \n\n64 48 \n")
  local set = data.biwi { root = folder .. "/biwi", face_mm = 120 }
  local b = t.first_batch(set:batches { size = 1 })
  -- the middle is at column 42, row 19, and 120 mm are 12 pixels
  t.equal(table.concat(b.image.shape, "x"), "1x3x12x12")
  t.equal(b.image:get(1, 1, 1, 1), 36, "first column")
  t.equal(b.image:get(1, 2, 1, 1), 13, "first row")
  write("biwi/01/frame_00003_pose.txt", "1 0 0 \n0 1 0 \n0 0 1 \n\n100 -50 0 \n")
  t.raises(function() t.keys(data.biwi { root = folder .. "/biwi", face_mm = 120 }) end,
           "in front of the camera")
end)

t.test("BIWI: sequences that show one person", function()
  for _, sequence in ipairs { "07", "12" } do
    picture("same/" .. sequence .. "/frame_00003_rgb.bmp", 8, 8)
    write("same/" .. sequence .. "/frame_00003_pose.txt", "1 0 0 \n0 1 0 \n0 0 1 \n\n0 0 900 \n")
  end
  local function keys(same) return t.keys(data.biwi { root = folder .. "/same", same = same }) end
  local together = "07/frame_00003/07 12/frame_00003/07"
  t.equal(keys { ["12"] = "07" }, together)
  t.equal(keys "12=07", together)
  t.equal(keys "", "07/frame_00003/07 12/frame_00003/12")
  t.raises(function() keys "12:07" end, 'same must be sequences as { ["12"] = "07" } or')
  t.raises(function() keys "12=7" end, 'same: there is no sequence "7"; fix: one of 07, 12')
  t.raises(function() keys { ["13"] = "07" } end, 'there is no sequence "13"')
end)

t.test("rendered heads are read as photographs are", function()
  local function poses(o)
    o.format, o.people, o.photos, o.size, o.root = "faces", 1, 3, 32, folder .. "/heads"
    return t.first_batch(data.phantom(o):resize { h = 8, w = 8 }:batches { size = 3 })
  end
  local up, down = poses {}, poses { pitch = "biwi", margin = 0 }
  for i = 1, 3 do
    t.equal(down.pose:get(i, 2), -up.pose:get(i, 2), "pitch")
    t.equal(down.pose:get(i, 1), up.pose:get(i, 1), "yaw")
  end
  t.check((up.image:distance(down.image)) > 0, "the same part of the picture")
  t.raises(function() poses { pitch = "up" } end, "pitch must be")
end)

t.test("how much is taken around a face is from nothing to a lot", function()
  for _, name in ipairs { "w300lp", "pointing04" } do
    for _, v in ipairs { -0.1, 11, 0 / 0, "wide" } do
      t.raises(function() data[name] { root = folder, margin = v } end,
               "margin must be a number from 0 to 10")
    end
  end
  t.raises(function() data.biwi { root = folder, face_mm = -1 } end, "face_mm must be a number")
end)

-- A MATLAB 5 file with landmarks as in 300W-LP and AFLW2000: pt2d, 2 rows.
local function landmarks(path, points)
  local function element(kind, bytes)
    return string.pack("<I4I4", kind, #bytes) .. bytes .. ("\0"):rep(-#bytes % 8)
  end
  local numbers = {}
  for i, p in ipairs(points) do numbers[i] = string.pack("<dd", p[1], p[2]) end
  write(path, ("x"):rep(116) .. ("\0"):rep(8) .. "\0\1IM" .. element(14, element(
    6, string.pack("<I4I4", 6, 0)) .. element(5, string.pack("<i4i4", 2, #points))
    .. element(1, "pt2d") .. element(9, table.concat(numbers))))
  return folder .. "/" .. path
end

t.test("landmarks that cannot be seen do not widen the face", function()
  local box = require("seg.data.data_images").face_box
  local some = landmarks("marks/some.mat", { { -1, -1 }, { 100, 50 }, { 140, 110 }, { -1, -1 },
                                             { 120, 70 } })
  local got = box(some, 0)
  t.equal(table.concat(got, " "), "100.0 50.0 40.0 60.0")
  -- at the border of the picture one coordinate of a landmark may be -1
  got = box(landmarks("marks/border.mat", { { -1, 50 }, { 9, 60 } }), 0)
  t.equal(table.concat(got, " "), "-1.0 50.0 10.0 10.0")
  for _, points in ipairs { { { -1, -1 }, { -1, -1 } }, { { -1, -1 }, { 7, 8 } } } do
    local none = landmarks("marks/none.mat", points)
    t.raises(function() box(none, 0.35) end, none .. ": pt2d: " .. #points - (points[2][1] < 0 and 2
             or 1) .. " of 2 landmarks can be seen (the others are -1)")
  end
end)

-- T6: a mirrored face has the opposite yaw in degrees, also after standardization.
t.test("a flip negates the angles that standardized numbers stand for", function()
  local set = data.w300lp { root = folder .. "/none" }
  t.check(set, "described without files")
  local cases = {}
  for i = 1, 4 do
    picture("flip/" .. i .. ".bmp", 4, 4)
    cases[i] = { key = tostring(i), patient = tostring(i), pose = { 10 * i, i, -i },
                 image = folder .. "/flip/" .. i .. ".bmp" }
  end
  local mean, sd = { 25, 2, 0 }, { 10, 1, 2 }
  local b = t.first_batch(data.cases {
    fields = { { name = "image", read = "image" }, { name = "pose", kind = "numbers", count = 3 } },
    cases = cases,
  }:standardize { field = "pose", mean = mean, sd = sd }
    :augment { flip = { axis = "w", p = 1, negate = { 1, 3 } } }:batches { size = 4 })
  for i = 1, 4 do
    local want = { -10 * i, i, i }
    for k = 1, 3 do
      t.near(b.pose:get(i, k) * sd[k] + mean[k], want[k], 1e-4, "angle " .. k .. " of case " .. i)
    end
    t.equal(b.image:get(i, 1, 1, 1), 3, "the picture is mirrored")
  end
end)

t.test("a network or a layout that there is not", function()
  t.says(recipe .. " plan --net vgg", 2, 'net is "vgg", wanted one of resnet18, small')
  t.says(recipe .. " plan --layout aflw", 2,
         'layout is "aflw", wanted one of 300wlp, biwi, pointing04')
end)

t.test("what would train on wrong angles, or nothing, is refused", function()
  t.says(recipe .. " plan --turn 8", 1, "--turn: a turned face has another roll than its label")
  t.says(recipe .. " plan --turn 8 --layout pointing04", 0, "parameters")
  t.says(recipe .. " --preset check --layout biwi", 2,
         "--data is missing: data.biwi has no folder to open")
  t.says(recipe .. " --preset check --data " .. folder .. "/nowhere", 3,
         "nowhere: there is no such folder")
end)

t.test("the doctor tries changes on standardized angles", function()
  local said = t.says("doctor data " .. recipe .. " --preset check --phantom " .. folder
                      .. "/phantom --out " .. folder .. "/doctor", 0, "0 errors")
  t.check(said:find("4 cases in train", 1, true), said)
end)

t.test("the convolutions of another run, of both networks", function()
  local line = recipe .. " --preset check --phantom " .. folder .. "/phantom --steps 1 --net "
  for _, net in ipairs { "small", "resnet18" } do
    local run = folder .. "/" .. net
    t.says(line .. net .. " --run " .. run, 0, "stopped after 1 step")
    t.says(line .. net .. " --run " .. run .. "_on --start " .. run, 0, "stopped after 1 step")
  end
end)

t.test("lists of numbers are whole", function()
  t.says(recipe .. " plan --jitter 0.4", 2,
         "jitter: wanted 4 numbers, with commas between on the command line, got 1")
  local sequences = "scripts/sequence_cnn_lstm.lua plan --preset check "
  t.says(sequences .. "--dropout 0.5", 2, "dropout: wanted 3 numbers")
  t.says(sequences .. "--bands 0.1,1,0.2,2,1", 2, "bands: wanted 4 numbers")
  t.says("scripts/hippocampus_unet3d.lua plan --size 40", 2, "size: wanted 3 numbers")
end)

t.test("by person, in all folds", function()
  local said = t.says(recipe .. " folds --preset check --epochs 1 --folds 3 --data " .. base
                      .. " --layout pointing04 --out " .. folder .. "/folds", 0,
                      "each validated in one of 3 folds, no patient in two")
  t.check(said:find("9 cases of 3 patients", 1, true), said)
end)

remove()
t.finish()
