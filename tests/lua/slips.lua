-- slips.lua -- common mistakes: each error names the line of the mistake, and the correction.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local util = require "seg.util"
local data, optim = seg.data, seg.optim

local folder, remove = t.folder()

-- A recipe for volumes of the phantom, as text; `changes` are pairs {old, new} that are replaced in
-- it.
local plain = [[
local seg = require "seg"
local data, nn, optim, metric = seg.data, seg.nn, seg.optim, seg.metric
local cfg = seg.config { size = 8, patients = 4 }
local cases = data.phantom { format = "nifti", patients = cfg.patients, size = 32, slices = 8 }
local function prepare(set) return set:normalize {}:resize { d = 8, h = 8, w = 8 } end
local train, valid = cases:split { valid = 1, seed = 1 }
train, valid = prepare(train):batches { size = 2 }, prepare(valid):batches { size = 1 }
local x = nn.input("image", { c = 1, d = 8, h = 8, w = 8 })
local truth = nn.input("mask", { c = 1, d = 8, h = 8, w = 8 })
local logits = nn.conv(x, 1, 3)
seg.recipe { inputs = { x, truth }, outputs = { mask = nn.sigmoid(logits) },
  loss = nn.bce(logits, truth), metrics = { dice = metric.dice(logits, truth) },
  train = train, valid = valid, optim = optim.sgd { lr = 0.1 },
  predict = { image = "*_T1w" } }
]]

local count = 0
local function script(...)
  local text = plain
  for _, change in ipairs { ... } do
    local at, to = text:find(change[1], 1, true)
    t.check(at, "nothing to change: %s", change[1])
    text = text:sub(1, at - 1) .. change[2] .. text:sub(to + 1)
  end
  count = count + 1
  return t.write(string.format("%s/r%d.lua", folder, count), text)
end

-- The changed recipe must end with 2 and print this for line `line`.
local function refuses(line, part, ...)
  local path = script(...)
  t.says(path .. " plan", 2, string.format("%s:%d: %s", path:match("[^/]+$"), line, part))
end

t.test("a dot for a colon, and a colon for a dot", function()
  t.says(script() .. " plan", 0, "parameters")
  refuses(5, "set.normalize { ... }: write a colon, set:normalize { ... }",
          { "set:normalize", "set.normalize" })
  refuses(6, "set.split { ... }: write a colon, set:split { ... }",
          { "cases:split", "cases.split" })
  refuses(7, "set.batches { ... }: write a colon, set:batches { ... }",
          { "prepare(train):batches", "prepare(train).batches" })
  refuses(4, "data:phantom { ... }: write a dot, data.phantom { ... }",
          { "data.phantom", "data:phantom" })
  refuses(10, "nn:conv { ... }: write a dot, nn.conv { ... }", { "nn.conv", "nn:conv" })
  refuses(12, "metric:dice { ... }: write a dot, metric.dice { ... }",
          { "metric.dice", "metric:dice" })
  refuses(13, "optim:sgd { ... }: write a dot, optim.sgd { ... }", { "optim.sgd", "optim:sgd" })
  refuses(3, "seg:config { ... }: write a dot, seg.config { ... }",
          { "seg.config", "seg:config" })
  refuses(11, "seg:recipe { ... }: write a dot, seg.recipe { ... }",
          { "seg.recipe", "seg:recipe" })
  -- a method of another set, without any argument, with the wrong one
  local set = data.phantom {}
  for _, f in ipairs { function() set.labels() end, function() set.filter(print) end,
                       function() set.fit { h = 1 } end } do
    t.raises(f, "write a colon, set:")
  end
  t.equal(set.normalize(set, {}).steps, set:normalize({}).steps)
end)

t.test("options of predict are checked", function()
  local at = 'predict = { image = "*_T1w" }'
  refuses(11, 'seg.recipe: predict: unknown option "imgae"; did you mean "image"?',
          { at, 'predict = { imgae = "*" }' })
  refuses(11, 'seg.recipe: predict: unknown option "thresold"; did you mean "threshold"?',
          { at, "predict = { thresold = 0.4 }" })
  refuses(11, 'seg.recipe: predict: unknown option "skip_unmatched"',
          { at, "predict = { skip_unmatched = true }" })
  refuses(11, "seg.recipe: predict: image must be a name or a list of names, got 3",
          { at, "predict = { image = 3 }" })
  refuses(11, "seg.recipe: predict: names must be a list of names, got tumour",
          { at, 'predict = { names = "tumour" }' })
  -- names that a DICOM SEG cannot hold
  for _, row in ipairs {
    { '"a\\\\b"', '"a\\b", has a backslash, which separates values in DICOM; fix: leave it out' },
    { '"a\\nb"', '"a\\x0ab", has a control character (code 10)' },
    { '"a\\0b"', '"a\\x00b", has a control character (code 0)' },
    { '"\\xff\\xfe"', '"\\xff\\xfe", is not UTF-8 at byte 1' },
    { '""', '"", is empty, and a segment of DICOM must have one' },
    { '(" "):rep(3)', '"   ", is blank, and a segment of DICOM must have one' },
    { '("x"):rep(500)', '..., has 500 characters, at most 64 fit into DICOM; fix: shorten it' },
  } do
    local why = row[2]:gsub("^%.%.%.", '"' .. ("x"):rep(40) .. '..."')
    refuses(11, "seg.recipe: predict: names: name of segment 2, " .. why,
            { at, 'predict = { names = { "b\u{fc}", ' .. row[1] .. " } }" })
  end
  refuses(11, "seg.recipe: predict: threshold must be a number between 0 and 1, got 40",
          { at, "predict = { threshold = 40 }" })
  t.says(script { at, 'predict = { image = { "*_T1w", "*_T2w" }, names = { "a" }, '
                  .. "threshold = 0.3 }" } .. " plan", 0, "parameters")
end)

t.test("a field is checked where it is described", function()
  local function cases(field)
    return function()
      data.cases { fields = { { name = "x", read = "npy", rank = 1 }, field }, cases = {} }
    end
  end
  for _, row in ipairs {
    { { name = "label", kind = "number" }, 'field "label": kind must be image, value, label, '
      .. 'numbers or length, got "number"' },
    { { name = "y", rnak = 1 }, 'field: unknown option "rnak"; did you mean "rank"?' },
    { { name = "y", raed = "npy" }, 'field: unknown option "raed"; did you mean "read"?' },
    { { name = "y", read = "png" }, 'there is no reader "png"' },
    { { name = "y", read = "image", rank = 3 }, "y: rank 3, image gives 2" },
    { { name = "y", read = "image", exif = "turn" }, 'exif is "turn", need "refuse"' },
    { { name = "y", read = "npy", axes = "hww" }, 'axes "hww"' },
    { 3, "a field must be a table, got number" },
    { { name = "x" }, 'two fields are called "x"' },
  } do
    t.raises(cases(row[1]), row[2])
    if type(row[1]) == "table" then
      local field = {}
      for k, v in pairs(row[1]) do field[k] = v end
      field.columns, field.name = { "a" }, row[1].name
      t.raises(function()
        data.csv { root = "no", table = "t.csv", patient = "file",
                   fields = { { name = "x", read = "npy", rank = 1, column = "x" }, field } }
      end, row[2])
    end
  end
  for _, open in ipairs { data.images, data.w300lp, data.biwi } do
    open { root = "no", patient = open == data.images and "file" or nil, alpha = "drop",
           exif = "ignore", page = 1, trailing = true }
    t.raises(function()
      open { root = "no", patient = open == data.images and "file" or nil, exif = "turn" }
    end, 'exif is "turn"')
  end
  -- all options of photographs, and the rank given by a reader or by axes
  local set = data.cases { fields = {
    { name = "p", read = "image", alpha = "drop", exif = "apply", page = 2, trailing = true },
    { name = "s", read = "npy", axes = "cw" }, { name = "v", read = "npy" } }, cases = {} }
  t.equal(set.source.ranks.p, 2)
  t.equal(set.source.ranks.s, 1)
  t.equal(set.source.ranks.v, 3)
  t.equal(set.source.assumed.v, true)
  t.equal(set.source.assumed.s, nil)
  local path = t.write(folder .. "/rank.lua", [[
    local seg = require "seg"
    local x = seg.nn.input("x", { c = 1, w = 8 })
    local y = seg.nn.linear(seg.nn.global_pool(x), 1)
    seg.recipe { inputs = { x }, outputs = { y = y }, loss = seg.nn.mse(y, y),
      train = seg.data.cases { fields = { { name = "x", read = "npy" } }, cases = {} },
      optim = seg.optim.sgd { lr = 1 } }]])
  local label = t.read(path):gsub('"x", { c = 1, w = 8 }', '"y", { c = 1 }'):gsub(
    '{ name = "x", read = "npy" }', '%0, { name = "y", kind = "label" }'):gsub(
    "seg.nn.global_pool%(x%)", "x")
  t.says(t.write(folder .. "/label.lua", label) .. " plan", 2,
         'numbers of a case are a field with kind = "numbers"')
  t.says(path .. " plan", 2, 'give the number of axes of its arrays without channels: rank = 1 in '
         .. 'field '
         .. '"x"')
end)

-- A NIfTI-1 file of int16 numbers value(w, h, d), voxels of `mm` millimetres.
local function nifti(path, n, mm, value)
  local voxels = {}
  for d = 0, n - 1 do
    for h = 0, n - 1 do
      for w = 0, n - 1 do voxels[#voxels + 1] = string.pack("<i2", value(w, h, d)) end
    end
  end
  -- sizeof_hdr, dim, datatype 4 of 16 bits, pixdim, vox_offset, xyzt_units mm
  local head = string.pack("<i4", 348) .. ("\0"):rep(36)
    .. string.pack("<i2i2i2i2i2i2i2i2", 3, n, n, n, 1, 1, 1, 1) .. ("\0"):rep(14)
    .. string.pack("<i2i2i2", 4, 16, 0) .. string.pack("<ffffffff", 1, mm, mm, mm, 0, 0, 0, 0)
    .. string.pack("<fff", 352, 1, 0) .. string.pack("<i2i1i1", 0, 0, 2)
  head = head .. ("\0"):rep(252 - #head) .. string.pack("<i2i2", 0, 1) .. ("\0"):rep(24)
    .. string.pack("<ffff", mm, 0, 0, 0) .. string.pack("<ffff", 0, mm, 0, 0)
    .. string.pack("<ffff", 0, 0, mm, 0)
  t.write(path, head .. ("\0"):rep(344 - #head) .. "n+1\0" .. ("\0"):rep(4)
          .. table.concat(voxels))
end

local function ramp(w, h, d) return 100 + 10 * w + 3 * h + d end
local function blob(w) return w < 4 and 1 or 0 end

-- Four patients with two channels, the second on a coarser grid, and a mask; `but` omits files by
-- name.
local function volumes(name, but)
  local base = folder .. "/" .. name
  os.execute("mkdir -p " .. base)
  for i = 1, 4 do
    local s = string.format("%s/sub-%d", base, i)
    nifti(s .. "_a.nii", 8, 1, function(w, h, d) return ramp(w, h, d) + 7 * i end)
    nifti(s .. "_b.nii", 4, 2, function(w, h, d) return 2 * ramp(w, h, d) + i end)
    nifti(s .. "_mask.nii", 8, 1, blob)
  end
  for _, file in ipairs(but or {}) do os.remove(base .. "/" .. file) end
  return base
end

local phantom = plain:match("data%.phantom %b{}")

-- A recipe for both channels of these files; `more`: options of its data set.
local function channels(base, more)
  local from = string.format('data.nifti { root = cfg.data or "%s", image = { "*_a", "*_b" }, '
                             .. 'mask = "*_mask"%s }', base, more)
  return script({ phantom, from }, { "c = 1", "c = 2" }, { '"*_T1w"', '{ "*_a", "*_b" }' })
end

-- The folder of the first run of a script.
local function run_of(path)
  return folder .. "/runs/" .. path:match("([^/]+)%.lua$") .. "/001"
end

t.test("channels on other grids are an option, and predicted as they were trained", function()
  local base = volumes("grids")
  local bare = channels(base, "")
  local runs = " --epochs 1 --out " .. folder .. "/runs"
  t.says(bare .. runs, 3, "_b.nii: the grids differ")
  t.says(bare .. runs, 3, "; fix: resample = true")
  local path = channels(base, ", resample = true")
  t.says(path .. runs, 0, "dice")
  t.says(path .. " predict --in " .. base .. " --out " .. folder .. "/made --weights "
         .. run_of(path), 0, "made/sub-4.nii.gz")
  -- resample_mask is only for masks
  t.says(channels(base, ", resample_mask = true") .. runs, 3, "; fix: resample = true")
end)

t.test("partners that are left out in training are left out in prediction", function()
  local base = volumes("unmatched", { "sub-3_b.nii", "sub-3_mask.nii" })
  local path = channels(base, ", resample = true, skip_unmatched = true")
  t.says(path .. " --epochs 1 --out " .. folder .. "/runs", 0, "dice")
  local said = t.says(path .. " predict --in " .. base .. " --out " .. folder .. "/left --weights "
                      .. run_of(path), 0, "left/sub-4.nii.gz")
  t.check(not said:find("left/sub-3", 1, true), said)
end)

t.test("a pattern finds patients in keys, and in PatientIDs", function()
  local base = volumes("patients")
  local set = data.nifti { root = base, image = "sub-*_a", patient = "^(%d)" }
  t.equal(t.keys(set), "1/1 2/2 3/3 4/4")
  t.equal(t.keys(data.nifti { root = base, image = "*_a", patient = "^(%a+)" }),
          "sub-1/sub sub-2/sub sub-3/sub sub-4/sub")
  t.raises(function() t.keys(data.nifti { root = base, image = "*_a", patient = "^(%d+)" }) end,
           'data.nifti: sub-1: the pattern "^(%d+)" finds no patient in it')
  local dicom = data.phantom { patients = 2, size = 32, slices = 4, root = folder .. "/phantom" }
  t.equal(t.keys(dicom), "PHANTOM_001/PHANTOM_001 PHANTOM_002/PHANTOM_002")
  local at = t.lines("ls -d " .. folder .. "/phantom/flair-2*")[1]
  t.equal(t.keys(data.dicom { root = at, image = "FLAIR", patient = "_0+(%d+)$" }),
          "PHANTOM_001/1 PHANTOM_002/2")
  for _, open in ipairs { data.nifti, data.dicom } do
    t.raises(function() open { root = base, patient = "name" } end,
             'patient must be "auto", "folder", "file" or a pattern')
    t.raises(function() open { root = base, patient = 3 } end, "got 3")
  end
end)

-- A grey or RGB picture as BMP, n pixels along a side: value(x, y).
local function picture(path, n, rgb, value)
  local rows = {}
  for y = n - 1, 0, -1 do
    for x = 0, n - 1 do
      local v = value(x, y)
      rows[#rows + 1] = rgb and string.char(v, 255 - v, v) or string.char(v)
    end
    rows[#rows + 1] = ("\0"):rep(-((rgb and 3 or 1) * n) % 4)
  end
  local palette = {}
  for i = 0, rgb and -1 or 255 do palette[#palette + 1] = string.char(i, i, i, 0) end
  local body, colors = table.concat(rows), table.concat(palette)
  t.write(path, "BM" .. string.pack("<I4I2I2I4", 54 + #colors + #body, 0, 0, 54 + #colors)
          .. string.pack("<I4i4i4I2I2I4I4i4i4I4I4", 40, n, n, 1, rgb and 24 or 8, 0, #body, 0, 0,
                         rgb and 0 or 256, 0) .. colors .. body)
end

t.test("what no step can mend is said so", function()
  local base = volumes("one")
  -- two channels expected, one given: the error is on the line of the input
  local path = channels(base, "")
  local text = t.read(path):gsub('{ "%*_a", "%*_b" }', '"*_a"', 1)
  t.write(path, text)
  t.says(path .. " --out " .. folder .. "/runs", 2, path:match("[^/]+$") .. ":8: the network "
         .. 'expects 2 channels in "image", the train set gives 1; fix: image = { ... } names '
         .. 'them, and '
         .. 'nn.input("image", { c = 1 }) takes them as they are')
  -- grey and RGB
  local photos = folder .. "/photos"
  os.execute("mkdir " .. photos)
  for i = 1, 3 do
    picture(photos .. "/p" .. i .. ".bmp", 8, i == 2, function(x, y) return 16 * x + y end)
  end
  t.raises(function()
    data.images { root = photos, patient = "file" }:pipeline({}):shape("image")
  end, "samples differ in channels: image of p1 has 1 (grey), of p2 3 (RGB) ("
  .. photos .. "/p1.bmp, " .. photos .. "/p2.bmp); fix: save all files in one way")
  -- a mask of another size has no position on the image's grid
  os.execute("mkdir " .. photos .. "/pair")
  picture(photos .. "/pair/a.bmp", 8, false, function(x, y) return x + y end)
  picture(photos .. "/pair/a_mask.bmp", 6, false, function() return 0 end)
  t.raises(function()
    data.images { root = photos .. "/pair", mask = "*_mask", patient = "file" }:pipeline {}
  end, "fix: files of one size: these have no position relative to each other")
end)

t.test("image and mask swapped", function()
  local base = volumes("swapped")
  local asked = "; the image has 2 values: are image and mask swapped?"
  t.raises(function()
    data.nifti { root = base, image = "*_mask", mask = "*_a" }:pipeline {}
  end, asked)
  for i = 1, 4 do
    nifti(string.format("%s/sub-%d_a.nii", base, i), 8, 1, function(w) return w > 3 and 4 or 3 end)
  end
  t.raises(function()
    data.nifti { root = base, image = "*_mask", mask = "*_a" }:pipeline {}
  end, "labels = {3, 4}")
  -- an image with many values is an image
  base = volumes("right")
  local ok, why = pcall(function()
    data.nifti { root = base, image = "*_b", mask = "*_a", resample_mask = true }:pipeline {}
  end)
  t.check(not ok and not why:find("swapped", 1, true), "%s", tostring(why))
end)

t.test("a partner that is missing is named by its kind", function()
  local base = volumes("partners", { "sub-1_mask.nii", "sub-3_a.nii" })
  t.raises(function() t.keys(data.nifti { root = base, image = "*_a", mask = "*_mask" }) end,
           "2 files without a partner: no image (*_a) for sub-3_mask; no mask (*_mask) for sub-1; "
           .. "fix: skip_unmatched = true in data.nifti of the recipe leaves "
           .. "them out")
end)

t.test("one file where a folder is wanted is named", function()
  local file = volumes("alone") .. "/one.nii"
  t.nifti(file, { 2, 2, 2 }, { 1, 2, 3, 4, 5, 6, 7, 8 })
  local fix = " is one file; fix: the folder of all images and masks (--data DIR)"
  t.raises(function()
    local train = data.nifti { root = file, patient = "file" }:split { valid = 1, seed = 1 }
    train:dataset()
  end, "has no patient (1 in all); " .. file .. fix)
  local root = folder .. "/series"
  data.phantom { patients = 1, size = 16, slices = 4, root = root }:dataset()
  local slice = t.lines("find " .. root .. " -path '*FLAIR*' -type f")[1]
  t.raises(function() data.dicom { root = slice, image = "FLAIR", mask = "MASK" }:dataset() end,
           slice .. fix)
end)

t.test("a fix is in words that the script has", function()
  local base = volumes("words")
  local share = '"%s", image = "nosuch_*"'
  local bare = script({ phantom, "data.nifti { root = " .. share:format(base) .. " }" })
  t.says(bare .. " --out " .. folder .. "/runs", 3,
         'a pattern that fits, image = "PATTERN" in data.nifti of the recipe (* is')
  local keyed = script({ phantom, "data.nifti { root = " .. share:format(base) .. " }" },
                       { "size = 8", 'image = "x"' })
  t.says(keyed .. " --out " .. folder .. "/runs", 3, "a pattern that fits, --image PATTERN (*")
  local parts = { "valid = 1, seed", "valid = 0.01, test = 0.01, seed" }
  t.says(script(parts) .. " --out " .. folder .. "/runs", 3, "as valid = 1, test = 1")
  t.says(script(parts, { "size = 8", "valid = 1, test = 2" }) .. " --out " .. folder .. "/runs", 3,
         "as --valid 1 --test 1")
end)

t.test("an input that is not fed, and a softmax of one channel", function()
  local _, line = plain:sub(1, plain:find("seg.recipe", 1, true)):gsub("\n", "")
  t.says(script({ "inputs = { x, truth }", "inputs = { x }" }), 2, string.format(
         '.lua:%d: seg.recipe: inputs lacks "mask", from which the loss, an output or a metric is '
           .. 'computed; it has image', line + 1))
  t.says(script({ "nn.sigmoid(logits)", "nn.softmax(logits)" }), 2,
         'output "mask": a softmax of one channel is 1 everywhere; write nn.sigmoid')
end)

t.test("a schedule that climbs again says what mends it", function()
  local warn = optim.cosine({ t_max = 2 }).warning(0.1, 5)
  t.check(warn:find("t_max = 5 lets it fall to the end, clamp = true keeps it", 1, true), warn)
end)

t.test("numbers and lists that are meant otherwise", function()
  local set = data.phantom {}
  t.raises(function() set:normalize { method = "minmax", clip = { 0.01, 0.99 } } end,
           "normalize: clip = {0.01, 0.99} is in per cent; did you mean {1, 99}?")
  t.raises(function() set:augment { flip = { axis = { "w", "h" } } } end,
           "flip: axis is a list, wanted one of w|h|d|hw|dhw")
  t.raises(function() set:normalize { method = 3 } end,
           "normalize: method is a number, wanted one of zscore|minmax|percentile")
end)

t.test("sets that cannot be joined say why", function()
  local base = volumes("joined")
  local function set(image, o)
    o.root, o.image, o.mask = base, image, "*_mask"
    return data.nifti(o)
  end
  t.raises(function() t.keys(data.concat(set("*_a", {}), set("*_b", { labels = { 2, 3 } }))) end,
           "concat: labels are {1} in one data set and {2, 3} in another")
  t.raises(function()
    t.keys(data.concat(set("*_a", {}), set("*_b", { resample_mask = true })))
  end, "concat: resample_mask is false in one data set and true in another")
end)

t.test("one series in two places", function()
  local at = t.lines("ls -d " .. folder .. "/phantom/flair-2*")[1]
  os.execute("cp -r " .. at .. " " .. folder .. "/copied")
  os.execute("cp -r " .. folder .. "/copied/patient_01/FLAIR " .. folder .. "/copied/again")
  t.raises(function() t.keys(data.dicom { root = folder .. "/copied", image = "FLAIR" }) end,
           "the same series two times: ")
end)

t.test("what is kept is said as it is", function()
  local line = script({ "valid = 1", "valid = 2" }) .. " --out " .. folder .. "/kept --phantom "
    .. folder .. "/phantom --cache_file auto"
  t.says(line, 0, "2 samples, the first")
  local said = t.says(line, 0, "2 of 2 volumes mapped from the file of prepared cases")
  -- spacings that print alike are listed once
  local base = folder .. "/alike"
  os.execute("mkdir " .. base)
  for i = 1, 2 do nifti(base .. "/sub-" .. i .. "_a.nii", 4, 1 + 1e-6 * i, ramp) end
  local report = data.nifti { root = base, image = "*_a" }:pipeline({}):report()
  t.check(report:find("voxels of 1 x 1 x 1 mm", 1, true), report)
  -- two cases have no interval
  t.check(said:find("sd 0.", 1, true) and not said:find("interval", 1, true), said)
  t.check(said:find(", 1 epoch, ", 1, true), said)
end)

t.test("--steps that a run had already trains nothing", function()
  local path = script()
  local run = folder .. "/steps/run"
  local line = path .. " --epochs 3 --phantom " .. folder .. "/phantom"
  t.says(line .. " --run " .. run .. " --steps 1", 0, "stopped after 1 step as requested")
  local last = t.read(run .. "/checkpoint_last.safetensors")
  t.says(line .. " --resume " .. run .. " --steps 1", 0, "stopped after 1 step as requested")
  t.equal(t.read(run .. "/checkpoint_last.safetensors") == last, true, "checkpoint")
end)

t.test("--resume auto takes no run that was given up", function()
  local path = script()
  local line = path .. " --out " .. folder .. "/auto --phantom " .. folder .. "/phantom"
  local base = folder .. "/auto/" .. path:match("([^/]+)%.lua$")
  t.says(line .. " --epochs 2 --steps 1", 0, "stopped after 1 step as requested")
  t.says(line .. " --epochs 1", 0, "done:")
  t.says(line .. " --epochs 1 --resume auto", 0, "--resume auto: a new run: " .. base
         .. "/002 is finished; " .. base .. "/001, older, is not: --resume " .. base
         .. "/001 continues it")
  t.says(line .. " --epochs 2 --steps 1", 0, "stopped after 1 step as requested")
  t.says(line .. " --resume auto --seed 7", 2, "--seed 7 differs from the run that is resumed, "
         .. base .. "/004 (42)")
  t.says(line .. " --epochs 2 --resume auto", 0, "resumed at epoch 1")
end)

t.test("--resume auto says why it begins a new run, and takes one that was named", function()
  local path = script()
  local out = folder .. "/named"
  local line = path .. " --out " .. out .. " --phantom " .. folder .. "/phantom"
  local base = out .. "/" .. path:match("([^/]+)%.lua$")
  t.says(line .. " --epochs 1 --resume auto", 0, "--resume auto: nothing to resume, so a new run: "
         .. "none of " .. base .. " has begun")
  t.says(line .. " --epochs 2 --steps 1 --resume auto", 0, "--resume auto: nothing to resume, so a "
         .. "new run: " .. base .. "/001 is finished; --resume " .. base
         .. "/001 with more --epochs")
  t.says(line .. " --epochs 2 --resume " .. base .. "/002", 0, "done:")
  -- the hint of a finished run is a command that works
  t.says(line .. " --epochs 2 --resume " .. base .. "/001", 0, "resumed at epoch 2")
  t.says(line .. " --epochs 2 --steps 1 --run " .. base .. "/mine", 0, "stopped after 1 step")
  t.says("status " .. base, 0, "run        " .. base .. "/mine")
  os.execute("ln -s 002 " .. base .. "/latest")
  -- a run of another recipe does not count
  t.says("scripts/brain_unet.lua --preset check --epochs 2 --steps 1 --phantom " .. folder
         .. "/phantom --run " .. base .. "/other", 0, "stopped after 1 step")
  local lock = core.checkpoint.lock(base .. "/mine")
  t.says(line .. " --resume auto", 1, base .. "/mine")
  lock:close()
  t.says(line .. " --epochs 2 --resume auto", 0, "run: " .. base .. "/mine")
  t.equal(util.exists(base .. "/003"), false, "a third run")
  -- a newer run is finished while one is at work
  t.says(line .. " --epochs 2 --steps 1", 0, "run: " .. base .. "/003")
  t.says(line .. " --epochs 1", 0, "run: " .. base .. "/004")
  -- all runs may have begun within one second
  for i, name in ipairs { "001", "002", "mine", "003", "004" } do
    os.execute(("touch -d @1700000000.%d %s/%s/recipe.lua"):format(i, base, name))
  end
  lock = core.checkpoint.lock(base .. "/003")
  t.says(line .. " --resume auto", 2, "--resume auto: run " .. base .. "/003 is at work (process ")
  lock:close()
  t.says(line .. " --epochs 1 --resume auto", 0, "a new run: " .. base .. "/004 is finished; "
         .. base .. "/003, older, is not")
end)

remove()
t.finish()
