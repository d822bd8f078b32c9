-- doctor.lua -- `segengine doctor data`: it names every planted fault, reports nothing for good
-- data, and output that leaves the machine names no patient.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"

local folder, remove = t.folder()
local W, H, D = 16, 12, 8

-- Pseudorandom numbers, the same on every machine.
local function noise(seed)
  local state = seed * 7919 + 1
  return function()
    state = (state * 1103515245 + 12345) % 2147483648
    return state // 65536 % 1000
  end
end

-- A NIfTI file of floats: o.size, o.spacing, o.at (origin), o.mirror (w runs the
-- other way), value(w, h, d) from 1.
local function nifti(path, value, o)
  o = o or {}
  local size, mm, at = o.size or { W, H, D }, o.spacing or { 1, 1, 3 }, o.at or { 0, 0, 0 }
  local sign = o.mirror and -1 or 1
  local head = string.pack("<i4", 348) .. ("\0"):rep(36)
    .. string.pack("<i2i2i2i2i2i2i2i2", 3, size[1], size[2], size[3], 1, 1, 1, 1)
    .. ("\0"):rep(14) .. string.pack("<i2i2i2", 16, 32, 0)
    .. string.pack("<ffffffff", 1, mm[1], mm[2], mm[3], 0, 0, 0, 0)
    .. string.pack("<fff", 352, 1, 0) .. ("\0"):rep(3) .. "\2" .. ("\0"):rep(128)
    .. string.pack("<i2i2", 0, 1) .. ("\0"):rep(24)
    .. string.pack("<ffffffffffff", sign * mm[1], 0, 0, at[1], 0, mm[2], 0, at[2], 0, 0, mm[3],
                   at[3]) .. ("\0"):rep(16) .. "n+1\0" .. ("\0"):rep(4)
  local out = {}
  for d = 1, size[3] do
    for h = 1, size[2] do
      for w = 1, size[1] do out[#out + 1] = string.pack("<f", value(w, h, d)) end
    end
  end
  t.write(path, head .. table.concat(out))
end

local function box(w, h, d)
  return w > 4 and w <= 10 and h > 4 and h <= 8 and d > 2 and d <= 6 and 1 or 0
end

-- A folder of 10 patients without fault, then with the faults that change(image, mask) plants:
-- image(number, value, options) and mask(...) write that file anew. `name` gives the names of
-- patients.
local count = 0
local function patients(change, name)
  count = count + 1
  local root = string.format("%s/%02d", folder, count)
  os.execute("mkdir -p " .. root)
  local function path(i, what)
    return string.format("%s/sub-%s%02d_%s.nii", root, name or "", i, what)
  end
  local function image(i, value, o)
    local next_value = noise(o and o.seed or i)
    nifti(path(i, "img"), value or function() return 100 + next_value() end, o)
  end
  local function mask(i, value, o) nifti(path(i, "seg"), value or box, o) end
  for i = 1, 10 do
    image(i)
    mask(i)
  end
  if change then change(image, mask, path) end
  return root
end

local SCRIPT = [[
local seg = require "seg"
local data, nn = seg.data, seg.nn
local cfg = seg.config { channels = 1 }
local all = data.nifti { root = cfg.data, image = "*_img", mask = "*_seg" OPTIONS }
local train, valid, test = all:split { valid = 2, test = 2, seed = 3 }
local function prepare(set) return set:resize { h = 12, w = 16 }:normalize {}:slices {} end
PARTS
local image = nn.input("image", { c = 1, h = 12, w = 16 })
local truth = nn.input("mask", { c = 1, h = 12, w = 16 })
local logits = nn.conv(image, 1, 3)
seg.recipe { inputs = { image, truth }, outputs = { mask = nn.sigmoid(logits) },
             loss = nn.bce(logits, truth), train = train, valid = valid, test = test,
             optim = seg.optim.sgd { lr = 1 } }
]]
local PARTS = "train, valid, test = prepare(train), prepare(valid), prepare(test)"

-- A recipe for these patients.
local function recipe(o)
  o = o or {}
  local text = SCRIPT:gsub("OPTIONS", o.options or ""):gsub("PARTS", (o.parts or PARTS))
  return t.write(folder .. "/look.lua", text)
end

local function doctor(root, o, more)
  return string.format("doctor data %s --data %s --out %s/runs %s", recipe(o), root, folder,
                       more or "")
end

-- The doctor must end with this code and print a line of this level and check with this part.
local function finds(root, o, code, level, check, part)
  local text = t.says(doctor(root, o), code, part)
  for line in text:gmatch("[^\n]+") do
    if line:match("^" .. level .. " +" .. check .. " ") and line:find(part, 1, true) then
      return text
    end
  end
  error(string.format("no line %s %s with %s:\n%s", level, check, part, text), 2)
end

t.test("nothing is said of good data", function()
  local root = patients()
  local text = t.says(doctor(root), 0, "0 errors, 0 warnings")
  for _, name in ipairs { "pairing", "files", "finite", "labels", "grid", "constant", "steps",
                          "inputs", "spacing", "extents", "axes", "slices", "copies", "patients",
                          "intensity", "classes", "empty", "outside", "flips", "splits",
                          "preparation", "normalize" } do
    t.check(text:find("\nok +" .. name .. " ") or text:find("^ok +" .. name .. " "),
            "no row %s:\n%s", name, text)
  end
  t.check(not text:find("\nwarning"), text)
end)

t.test("what has no partner, and the rest is looked at", function()
  local root = patients(function(_, mask, path)
    os.remove(path(3, "seg"))
    mask(5, function() return 0 end)
  end)
  local text = finds(root, nil, 3, "error", "pairing", "1 file without a partner")
  t.check(text:find("fix: skip_unmatched = true in data.nifti of the recipe leaves "
                    .. "it out", 1, true), text)
  t.check(text:find("\nwarning +empty +%l+ +sub%-05 +its truth is empty"), text)
  finds(root, { options = ", skip_unmatched = true" }, 0, "warning", "pairing",
        "1 case left out without a partner")
end)

t.test("every damaged file, not the first alone", function()
  local root = patients(function(_, _, path)
    t.write(path(2, "img"), t.read(path(2, "img")):sub(1, 900))
    t.write(path(7, "seg"), t.read(path(7, "seg")):sub(1, 100))
  end)
  local text = finds(root, nil, 3, "error", "files", "sub-02_img.nii: nifti: ")
  t.check(text:find("sub%-07 +mask: .-sub%-07_seg.nii: "), text)
  t.check(text:find("\n2 errors, 0 warnings"), text)
  -- and when no data can be opened
  text = t.says(doctor(folder .. "/nowhere"), 3, "nowhere: No such file")
  t.check(text:find("\n1 error, 0 warnings") or text:find("1 error,"), text)
  t.says((doctor("x"):gsub("%-%-data x", "")), 2, "--data is missing")
end)

t.test("DICOM: every damaged file, studies that are not complete", function()
  local root = folder .. "/dicom"
  seg.data.phantom { patients = 10, size = 16, slices = 8, root = root }:dataset()
  root = t.lines("ls -d " .. root .. "/*")[1]
  local text = t.read(recipe()):gsub("data.nifti(.-)}", function()
    return 'data.dicom { root = cfg.data, image = "FLAIR", mask = "MASK" }'
  end)
  t.write(folder .. "/dicom.lua", text)
  local command = "doctor data " .. folder .. "/dicom.lua --data " .. root .. " --out " .. folder
    .. "/runs"
  t.says(command, 0, "0 errors, 0 warnings")
  os.execute("rm -r " .. root .. "/patient_03/MASK")
  text = t.says(command, 3, "1 study is not complete")
  t.check(text:find("1 error, 0 warnings", 1, true), text)
  local bad = t.lines("ls " .. root .. "/patient_05/FLAIR/*1.dcm " .. root
                      .. "/patient_07/MASK/*2.dcm")
  for _, path in ipairs(bad) do t.write(path, t.read(path):sub(1, 700)) end
  -- an image that lacks a file is one error, though its mask has no position either
  text = t.says(command, 3, "3 errors")
  for _, path in ipairs(bad) do t.check(text:find(path .. ": dicom: ", 1, true), text) end
end)

t.test("a place that cannot be written is said before cases are read", function()
  local text = t.says("doctor data " .. recipe() .. " --data " .. patients(function() end)
                      .. " --out " .. t.write(folder .. "/file", "text") .. "/below", 1,
                      "fix: give another place with --out, or change its permissions")
  t.check(not text:find("looked at", 1, true), text)
end)

t.test("DICOM: what a reader doubts", function()
  t.needs("dcmodify", "test")
  local root = folder .. "/doubt"
  seg.data.phantom { patients = 10, size = 16, slices = 8, root = root }:dataset()
  -- a mask without its references to slices and without a position
  os.execute("find " .. root .. "/*/patient_02/MASK -type f -exec dcmodify -nb -q -gin "
             .. "-ea '(0008,1140)' -ea '(0020,0032)' -ea '(0020,0037)' {} +")
  local text = t.says("doctor data " .. folder .. "/dicom.lua --data " .. root .. " --json --html "
                      .. folder .. "/page.html --out " .. folder .. "/runs", 0, '"warnings": 1')
  t.check(text:find("its reader warns", 1, true) and not text:find("InstanceNumber"), text)
  t.says("doctor data " .. folder .. "/dicom.lua --data " .. root .. " --out " .. folder .. "/runs",
         0, "patient_02/MASK: dicom: mask paired by InstanceNumber")
end)

t.test("numbers that are none, values that are no labels, other grids", function()
  local root = patients(function(image, mask)
    image(2, function(w, h, d) return w == 3 and h == 2 and d == 1 and 0 / 0 or w * h + d end)
    mask(4, function(w, h, d) return 2 * box(w, h, d) end)
    mask(6, box, { at = { 0, 0, 5 } })
  end)
  finds(root, nil, 3, "error", "finite", "1 of 1536 voxels are not finite")
  finds(root, nil, 3, "error", "labels", "value 2 in 96 voxels, wanted 0, 1")
  local text = finds(root, nil, 3, "error", "grid", "sub-06")
  t.check(text:find("fix: check that the mask belongs to this image; if it does, resample_mask = "
                    .. "true in data.nifti of the recipe", 1, true), text)
end)

t.test("images and slices without contrast, slices that stand there twice", function()
  local root = patients(function(image)
    local next_value = noise(99)
    image(2, function() return 7 end)
    image(3, function(_, _, d) return d == 4 and 5 or next_value() end)
    -- empty ends are padding
    image(4, function(_, _, d) return d == 1 and 0 or next_value() end)
    image(5, function(w, h, d) return (w * 31 + h * 17 + (d == 6 and 2 or d) * 57) % 101 end)
  end)
  finds(root, nil, 3, "error", "constant", "all voxels of image are 7")
  finds(root, nil, 3, "warning", "slices", "1 slice of one value between others")
  local text = finds(root, nil, 3, "warning", "slices", "slices 2 and 6 are the same")
  t.check(not text:find("\nwarning +slices +%l+ +sub%-04"), text)
  -- the error of a step that fails for the same reason is not repeated
  t.check(not text:find("\nerror +steps"), text)
end)

t.test("a geometry unlike the others", function()
  local root = patients(function(image, mask)
    for _, write in ipairs { image, mask } do
      write(2, nil, { spacing = { 1, 1, 9 } })
      write(3, nil, { size = { W, H, 3 * D } })
      write(4, nil, { mirror = true })
    end
  end)
  finds(root, nil, 0, "warning", "spacing", "9 along d, the median is 3")
  finds(root, nil, 0, "warning", "extents", "24 along d, the median is 8")
  local stored = { parts = PARTS:gsub("prepare", "raw") }
  stored.parts = "local function raw(set) return set:resize { h = 12, w = 16 }:normalize {}"
    .. ':slices { axis = "stored" } end\n' .. stored.parts
  finds(root, stored, 0, "warning", "axes", "axes LAS, most have RAS")
end)

t.test("copies and leaks", function()
  local root = patients(function(image) image(2, nil, { seed = 1 }) end)
  local whole = { parts = "train, valid, test = prepare(all), nil, nil" }
  finds(root, whole, 0, "warning", "copies", "sub-02  the same voxels as sub-01")
  local function parts(a, b)
    return { parts = string.format([[
      local function some(pattern)
        return prepare(all:filter(function(case) return case.key:match(pattern) end))
      end
      train, valid, test = some "%s", some "%s", nil]], a, b) }
  end
  finds(root, parts("[13-9]", "2"), 3, "error", "copies", "the same voxels as sub-01 of train")
  local text = finds(root, parts("0[1-6]", "0[5-9]"), 3, "error", "patients",
                     "its patient is in train as well, as sub-06")
  t.check(text:find("\n?error +copies +valid +sub%-06 +the same voxels as sub%-06 of train"), text)
  finds(patients(), { parts = [[
    train, valid, test = all:slabs { valid = { 0, 0.2 }, test = { 0.8, 1 } }
    ]] .. PARTS }, 0, "warning", "patients", "the parts are slabs of the same volumes")
end)

t.test("intensities unlike the others", function()
  local root = patients(function(image)
    local next_value = noise(2)
    image(2, function() return 100 * next_value() end)
  end)
  local text = finds(root, nil, 0, "warning", "intensity", "mean of image 5")
  t.check(text:find("range of image 9"), text)
end)

t.test("classes that are missing or rare, truth that is empty or elsewhere", function()
  local root = patients(function(image, mask)
    for i = 1, 10 do
      mask(i, function(w, h, d)
        return w == 1 and h == 1 and i == 4 and d == 1 and 2 or box(w, h, d)
      end)
    end
    mask(5, function() return 0 end)
    image(6, function(w, h, d) return box(w, h, d) == 1 and 0 or w * h + 20 * d end)
    image(7, function(w, h, d) return box(w, h, d) == 1 and w > 6 and 0 or w * h + 20 * d end)
  end)
  local function with(labels, train)
    return { options = ", labels = " .. labels, parts = [[
      train, valid, test = all:split { train = { ]] .. train .. [[ }, test = { "sub-03", "sub-08" },
                                       valid = { "sub-01", "sub-02" } }
    ]] .. PARTS }
  end
  local most = '"sub-04", "sub-05", "sub-06", "sub-07", "sub-09", "sub-10"'
  finds(root, with("{ 1, 2, 3 }", most), 3, "error", "classes", "class 3 is in no case")
  finds(root, with("{ 2, 1 }", most), 3, "warning", "classes", "class 1 (value 2) is in no case")
  finds(root, with("{ 1, 2 }", most), 3, "warning", "classes",
        "class 2 is 0.011 % of the voxels, in 1 case")
  finds(root, with("{ 1, 2 }", most), 3, "warning", "empty", "its truth is empty")
  finds(root, with("{ 1, 2 }", most), 3, "error", "outside", "100 % of its truth lies where")
  finds(root, with("{ 1, 2 }", most), 3, "warning", "outside", "66.7 % of its truth lies where")
end)

t.test("patches at random to train, of a grid to validate, are one preparation", function()
  local said = t.says("doctor data scripts/hippocampus_unet3d.lua --preset check --phantom "
                      .. folder .. "/tubes --out " .. folder .. "/runs", 0, "preparation")
  t.check(not said:find("prepare all parts", 1, true), said)
end)

t.test("steps that fail, samples that do not fit, parts prepared in other ways", function()
  local root = patients(function(_, mask) mask(3, function() return 0 end) end)
  local crop = PARTS .. "\n" .. [[
    local function crop(set) return set:crop { to = "label" }:normalize {}:slices {} end
    train, valid, test = crop(all), nil, nil]]
  crop = { parts = (crop:gsub("^[^\n]*\n", "")) }
  local text = finds(root, crop, 3, "error", "steps", "crop")
  t.check(text:find("\n?error +inputs +train +%S+ +input image expects 1x12x16, this gives 1x4x6"),
          text)
  local other = { parts = PARTS .. "\nvalid = valid:augment { noise = true }\n"
                  .. "test = all:filter(function(c) return c.key == 'sub-01' end):resize { h = 12, "
                  .. "w = 16 }:normalize { method = 'minmax' }:slices {}" }
  text = finds(root, other, 0, "warning", "preparation", "is changed at random")
  other.parts = PARTS .. "\ntest = all:filter(function(c) return c.key == 'sub-01' end)"
    .. ":crop { to = 'label' }:fit { h = 12, w = 16 }:normalize {}:slices {}"
  finds(root, other, 0, "warning", "preparation", "is cropped to its ground truth")
  t.check(text:find("method=minmax", 1, true) and text:find("in train \"normalize method=zscore", 1,
                                                            true), text)
end)

t.test("parts that are too small", function()
  local root = patients()
  local text = finds(root, { parts = "train, valid, test = all:split { valid = 1, seed = 1 }\n"
                             .. "train, valid, test = prepare(train), prepare(valid), nil" },
                     0, "warning", "splits", "1 case of one patient")
  t.check(text:find("\n *fix: more patients: the result of one says little"), text)
  finds(root, { parts = "train, valid, test = prepare(all), nil, nil" }, 0, "warning", "splits",
        "no valid set")
end)

-- Pictures with a numeric target each.
local function poses(fields, numbers, more)
  for i = 1, 10 do
    local next_value, a = noise(i), seg.array { shape = { 8, 8 } }
    for y = 1, 8 do
      for x = 1, 8 do a:set(next_value(), y, x) end
    end
    seg.array.save(string.format("%s/p%02d.npy", folder, i), a)
  end
  return t.write(folder .. "/poses.lua", (([[
local seg = require "seg"
local nn = seg.nn
local cases = {}
for i = 1, 10 do
  local path = string.format("FOLDER/p%02d.npy", i)
  cases[i] = { key = "k" .. i, patient = "p" .. i, x = path, NUMBERS }
end
local all = seg.data.cases { fields = { { name = "x", read = "npy", rank = 2 }, FIELDS },
                             cases = cases }
local train, valid = all:split { valid = { "p9", "p10" }, train = { "p1", "p2", "p3", "p4", "p5",
                                 "p6", "p7", "p8" } }
train = train:normalize {}MORE
valid = valid:normalize {}
local x = nn.input("x", { c = 1, h = 8, w = 8 })
local y = nn.input("pose", { c = 1 })
local out = nn.linear(nn.global_pool(nn.conv(x, 2, 3)), 1)
seg.recipe { inputs = { x, y }, outputs = { out = out }, loss = nn.mse(out, y), train = train,
             valid = valid, optim = seg.optim.sgd { lr = 1 } }
]]):gsub("%u%u%u%u+", { FOLDER = folder, NUMBERS = numbers, FIELDS = fields, MORE = more or "" })))
end

t.test("numbers of cases, and flips that do not know them", function()
  local function look(code, part, ...)
    return t.says("doctor data " .. poses(...) .. " --out " .. folder .. "/runs", code, part)
  end
  local pose = '{ name = "pose", kind = "numbers" }'
  look(0, "0 errors, 0 warnings", pose, "pose = i % 4")
  look(0, "pose 0 .. 3", pose, "pose = i % 4")
  look(0, "pose is 3 in all cases", pose, "pose = 3")
  look(0, "pose is 9 .. 10, in train 1 .. 8", pose, "pose = i")
  look(3, "a number, got", pose, "pose = i == 4 and 0 / 0 or i % 4")
  local flip = ":augment { flip = { axis = \"w\" } }"
  look(0, "0 errors, 0 warnings", pose, "pose = i % 4", flip)
  local yaw = pose .. ', { name = "yaw_deg", kind = "numbers" }'
  local text = look(0, 'the flip along w swaps left and right, and "yaw_deg" does not', yaw,
                    "pose = i % 4, yaw_deg = i % 4", flip)
  t.check(text:find("\n?warning +flips +train"), text)
  look(0, "0 errors, 0 warnings", yaw, "pose = i % 4, yaw_deg = i % 4",
       ":augment { flip = { axis = \"h\" } }")
  local roll = pose .. ', { name = "HeadRoll", kind = "numbers" }'
  look(0, 'pictures are turned, and "HeadRoll" does not', roll, "pose = i % 4, HeadRoll = i % 4",
       ":augment { affine = true }")
end)

t.test("columns and classes that have sides", function()
  local pose = '{ name = "pose", kind = "numbers" }'
  local script = t.read(poses(pose, "pose = i % 4", ':augment { flip = { axis = "w" } }'))
  local rows = { "path,who,tilt,PAN" }
  for i = 1, 10 do rows[i + 1] = string.format("p%02d.npy,p%d,%d,%d", i, i, i % 3, i % 4) end
  t.write(folder .. "/t.csv", table.concat(rows, "\n") .. "\n")
  script = script:gsub("local all = .-local train", function()
    return string.format([[local all = seg.data.csv { root = "%s", table = "t.csv", patient = "who",
      fields = { { name = "x", read = "npy", rank = 2, column = "path" },
                 { name = "pose", kind = "numbers", columns = { "tilt", "PAN" } } } }
local train]], folder)
  end):gsub('"pose", { c = 1 }', '"pose", { c = 2 }'):gsub(", 1%)\nseg.recipe", ", 2)\nseg.recipe")
  local said = t.says("doctor data " .. t.write(folder .. "/csv.lua", script) .. " --out "
                      .. folder .. "/runs", 0, 'swaps left and right, and "PAN" does not')
  t.check(said:find("fix: negate = { 2 } in the flip", 1, true), said)
  -- outputs and classes with their names
  local root = patients()
  t.says(doctor(root, { parts = PARTS .. '\ntrain = train:augment { flip = { axis = "hw" } }\n'
                        .. "local old = seg.recipe\nseg.recipe = function(o)\n"
                        .. 'o.predict = { names = { "LeftKidney" } }\nreturn old(o) end' }),
         0, 'the flip along w swaps left and right, and "LeftKidney" does not')
  t.says(doctor(root, { parts = PARTS .. '\ntrain = train:augment { flip = { axis = "hw" } }\n'
                        .. "local old = seg.recipe\nseg.recipe = function(o)\n"
                        .. 'o.predict = { names = { "LeftKidney" } }\nreturn old(o) end' }),
         0, "fix: swap = { a, b } in the flip")
end)

t.test("page and JSON name nobody", function()
  local root = patients(function(_, mask, path)
    t.write(path(2, "img"), t.read(path(2, "img")):sub(1, 900))
    mask(4, function(w, h, d) return 2 * box(w, h, d) end)
    mask(5, function() return 0 end)
    os.remove(path(6, "seg"))
    os.execute("cp " .. path(7, "img") .. " " .. path(8, "img"))
  end, "MARKER")
  local html = folder .. "/page.html"
  local text = t.says(doctor(root, nil, "--html " .. html), 3, "sub-MARKER02")
  t.check(text:find("page: " .. html, 1, true), text)
  local page = t.read(html)
  t.check(not page:find("MARKER", 1, true), "the page has a name")
  t.check(not page:find(folder, 1, true), "the page has a path")
  t.check(page:find("image cannot be read", 1, true), page:sub(1, 9000))
  t.equal(t.lines("stat -c %a " .. html)[1], "600")
  t.check(page:find("prefers%-color%-scheme: dark"))
  local json = folder .. "/report.json"
  t.says(doctor(root, nil, "--json --html " .. html .. " 2> /dev/null"), 3, '"errors": 4')
  local _, out = t.program(doctor(root, nil, "--json --html " .. html))
  out = out:match("({.*})")
  t.check(not out:find("MARKER", 1, true), out)
  t.write(json, out)
  if t.lines("command -v python3")[1] then
    t.equal(t.lines("python3 -c 'import json,sys; d = json.load(open(sys.argv[1])); "
                    .. "print(d[\"errors\"], len(d[\"cases\"]), d[\"rows\"][0][\"level\"])' "
                    .. json)[1], "4 9 error")
    t.equal(t.lines("python3 tests/support/page.py " .. html)[1], "bad [], open [], 7 images")
  end
  -- unless names are requested
  t.says(doctor(root, nil, "--names --html " .. html), 3, "sub-MARKER02")
  page = t.read(html)
  t.check(page:find("sub%-MARKER04") and page:find("value 2 in 96 voxels", 1, true), "no names")
  -- by default it is in the folder of runs
  t.says(doctor(root), 3, "page: " .. folder .. "/runs/look/doctor.html")
  t.check(#t.read(folder .. "/runs/look/doctor.html") > 10000)
end)

t.test("a page is small, and a browser has nothing to complain about", function()
  local browser = t.lines("command -v chromium || command -v chromium-browser "
                          .. "|| command -v google-chrome")[1]
  local root, html = patients(), folder .. "/page.html"
  -- pictures of noise in the largest size: a page with 100 of them is smaller than 20 MB
  local large = patients(function(image, mask)
    for i = 1, 10 do
      image(i, nil, { size = { 160, 160, 1 } })
      mask(i, nil, { size = { 160, 160, 1 } })
    end
  end)
  local plain = PARTS:gsub("%b()", "%0:slices {}"):gsub("prepare", "")
  t.says(doctor(large, { parts = plain }, "--html " .. html), 3, "page: ")
  t.check(#t.read(html) > 200000 and #t.read(html) < 2000000, "%d bytes", #t.read(html))
  t.says(doctor(root, nil, "--html " .. html), 0, "page: ")
  if not browser then t.skip("chromium is not installed (sh vendor/fetch ci)") end
  local said = table.concat(t.lines("HOME=" .. folder .. " timeout 100 " .. browser
    .. " --headless --no-sandbox --disable-gpu --enable-logging=stderr --window-size=1200,2400 "
    .. "--screenshot=" .. folder .. "/page.png file://" .. html .. " 2>&1"), "\n")
  t.check(not said:find("CONSOLE", 1, true), said)
  t.check(said:find("page.png", 1, true), said)
end)

t.test("the command line", function()
  local root = patients()
  t.says("doctor data", 2, "doctor data needs a SCRIPT.lua")
  t.says("doctor date", 2, 'doctor takes data SCRIPT.lua or nothing, got "date"')
  t.says("doctor data " .. folder .. "/none.lua", 2, "none.lua")
  t.says(doctor(root, nil, "--weights x"), 2, "--weights is not for doctor")
  t.says(doctor(root, nil, "--nope 3"), 2, "--nope: unknown option")
  t.says(doctor(root, nil, "train"), 2, "doctor and train: one command at a time")
  t.says(recipe() .. " train --html x", 2, "--html is not for train, but for doctor")
  t.write(folder .. "/plain.lua", "print(1)")
  t.says("doctor data " .. folder .. "/plain.lua", 2, "declares no recipe")
end)

remove()
t.finish()
