-- sources.lua -- data sets of known layouts: tables of labels, nnU-Net, OpenKBP.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local json = require "seg.json"
local data = seg.data

local folder, remove = t.folder()
os.execute(("mkdir -p %s/clips %s/nn/imagesTr %s/nn/labelsTr"):gsub("%%s", folder))

local keys, first_batch = t.keys, t.first_batch

-- A NIfTI-1 file of int16 with `channels` volumes of w x h x d; voxel i of channel
-- c (both from 0) is 100 c + i.
local function write_channels(path, channels, w, h, d)
  local head = string.pack("<i4c36I2I2I2I2I2I2I2I2", 348, "", 4, w, h, d, channels, 1, 1, 1)
  head = head .. string.rep("\0", 70 - #head) .. string.pack("<I2I2", 4, 16)
  head = head .. string.rep("\0", 76 - #head) .. string.pack("<ffffffff", 1, 1, 1, 1, 1, 1, 1, 1)
    .. string.pack("<ff", 352, 1)
  head = head .. string.rep("\0", 254 - #head) .. string.pack("<I2", 1)
  head = head .. string.rep("\0", 280 - #head)
  for row = 0, 2 do
    for k = 0, 3 do head = head .. string.pack("<f", k == row and 1 or 0) end
  end
  head = head .. string.rep("\0", 344 - #head) .. "n+1\0" .. "\0\0\0\0"
  local voxels = {}
  for c = 0, channels - 1 do
    for i = 0, w * h * d - 1 do voxels[#voxels + 1] = string.pack("<i2", 100 * c + i) end
  end
  t.write(path, head .. table.concat(voxels))
end

t.test("a reader without a file of its own names the one that its folder is for", function()
  local root, dicom = folder .. "/kinds", folder .. "/kinds_dicom"
  os.execute("mkdir -p " .. root .. "/empty")
  data.phantom { patients = 2, size = 16, slices = 4, root = dicom }:dataset()
  local function open(reader, path, more)
    local o = { root = path, image = "*", patient = "file" }
    for k, v in pairs(more or {}) do o[k] = v end
    return function() data[reader](o):dataset() end
  end
  for _, reader in ipairs { "dicom", "nifti", "npy", "images" } do
    t.raises(open(reader, root .. "/empty", reader == "npy" and { rank = 2 } or nil),
             "; fix: the folder with the files; `segengine inspect ")
  end
  t.raises(open("nifti", dicom), "no NIfTI files (.nii, .nii.gz); fix: data.dicom in the recipe, "
           .. "which reads the 16 DICOM files here; `segengine inspect " .. dicom .. "`")
  t.raises(open("images", dicom), "no images; fix: data.dicom in the recipe, which reads the 16 D")
  write_channels(root .. "/a.nii", 1, 2, 2, 2)
  write_channels(root .. "/b.nii", 1, 2, 2, 2)
  t.write(root .. "/a.png", "")
  t.raises(open("dicom", root), "3 other files); fix: data.nifti in the recipe, which reads the "
           .. "2 NIfTI files here")
  t.raises(open("npy", root, { rank = 2 }), "no .npy files; fix: data.nifti in the recipe")
end)

t.test("a fourth axis of NIfTI as channels", function()
  os.execute("mkdir -p " .. folder .. "/four")
  for i = 1, 2 do write_channels(folder .. "/four/case" .. i .. ".nii", 2, 4, 3, 2) end
  local function open(channels)
    return data.nifti { root = folder .. "/four", image = "case*", patient = "file",
                        channels = channels }
  end
  t.raises(function() first_batch(open()) end, "fix: channels = true in data.nifti of "
           .. "the recipe when they are channels")
  local image = first_batch(open(true)).image
  t.equal(table.concat(image.shape, "x"), "1x2x2x3x4")
  t.equal(image:get(1, 1, 2, 3, 4), 23)
  t.equal(image:get(1, 2, 2, 3, 4), 123)
  local cases = {}
  for i = 1, 2 do
    cases[i] = { key = "k" .. i, patient = "p" .. i, x = folder .. "/four/case" .. i .. ".nii" }
  end
  local x = first_batch(data.cases { fields = { { name = "x", channels = true } },
                                     cases = cases }).x
  t.equal(x:get(1, 2, 1, 1, 1), 100)
  t.says("inspect " .. folder .. "/four/case1.nii", 0, ", 2 channels")
  t.says("inspect " .. folder .. "/four", 0, 'image = "*", channels = true')
end)

t.test("a hole in a list of cases leaves nobody out", function()
  local function open(cases)
    return function() keys(data.cases { fields = { { name = "x" } }, cases = cases }) end
  end
  local function case(i)
    return { key = "k" .. i, patient = "p" .. i, x = folder .. "/four/case1.nii" }
  end
  t.raises(open { case(1), nil, case(3), case(4) }, "cases: there is no case 2, but 2 more come "
           .. "after it or have a name")
  t.raises(open { case(1), last = case(2) }, "there is no case 2, but 1 more come")
  open { case(1), case(2) } ()
end)

t.test("a table of labels names cases", function()
  local rows = { "path,speaker,digit,angle a,angle b" }
  for i = 1, 4 do
    local a = seg.array { shape = { 3, 2 } }
    for w = 1, 3 do
      for c = 1, 2 do a:set(100 * i + 10 * w + c, w, c) end
    end
    seg.array.save(string.format("%s/clips/%d.npy", folder, i), a)
    rows[#rows + 1] = string.format('clips/%d.npy,"s %d",%d,%.1f,-%d', i, (i + 1) // 2, i % 3,
                                    i / 2, i)
  end
  t.write(folder .. "/labels.csv", table.concat(rows, "\r\n") .. "\r\n")
  local function table_of(o)
    local all = { root = folder, table = "labels.csv", patient = "speaker",
                  fields = { { name = "x", read = "npy", rank = 1, column = "path" },
                             { name = "digit", kind = "numbers", column = "digit" },
                             { name = "angles", kind = "numbers",
                               columns = { "angle b", "angle a" } },
                             { name = "length", kind = "length" } } }
    for k, v in pairs(o or {}) do all[k] = v end
    return data.csv(all)
  end
  local set = table_of()
  t.equal(keys(set), "clips/1.npy/s 1 clips/2.npy/s 1 clips/3.npy/s 2 clips/4.npy/s 2")
  local batch = first_batch(set:batches { size = 4 })
  for i = 1, 4 do
    t.equal(batch.x:get(i, 2, 3), 100 * i + 32)
    t.equal(batch.digit:get(i, 1), i % 3)
    t.equal(batch.angles:get(i, 1), -i)
    t.equal(batch.angles:get(i, 2), i / 2)
    t.equal(batch.length:get(i, 1), 3)
  end
  t.equal(keys(table_of { where = function(row) return row:number("digit") > 0 end,
                          patient = "file" }),
          "clips/1.npy/clips/1.npy clips/2.npy/clips/2.npy clips/4.npy/clips/4.npy")
  t.equal(keys(table_of { where = function(row) return row.speaker == "s 2" end }),
          "clips/3.npy/s 2 clips/4.npy/s 2")
  t.raises(function() keys(table_of { patient = "speeker" }) end, 'speaker')
  t.raises(function() keys(table_of { table = "lables.csv" }) end, "lables.csv")
  t.raises(function() table_of { patient = false } end, 'patient must be the column')
  t.raises(function() data.csv { root = folder, patient = "p" } end, "table must be a file")
  t.raises(function() table_of { fields = { { name = "x", read = "npy" } } } end,
           "field x needs column = the column of its files")
  t.raises(function() keys(table_of { root = false }) end, "root must be a folder")
  t.raises(function() data.csv { root = folder, table = "labels.csv", patient = "file" } end,
           "data.csv: fields must be a list of fields, got nil")
  t.raises(function() table_of { fields = { 3 } } end, "a field must be a table, got number")
  t.raises(function()
    table_of { fields = { { name = "x", kind = "numbers", columns = "digit" } } }
  end, "field x: columns must be a list, got string")
  t.raises(function() table_of { fields = { { name = "n", kind = "length" } } } end,
           "no field has a column")
  t.raises(function()
    keys(table_of { fields = { { name = "n", kind = "length" },
                               { name = "x", read = "npy", rank = 1, column = "path" } } })
  end, "n: the first field must be read from files")
  t.raises(function()
    keys(table_of { fields = { { name = "x", read = "npy", rank = 1, column = "path" },
                               { name = "n", kind = "numbers", column = "speaker" } } })
  end, 'labels.csv: csv: row 2, column "speaker"')
  t.write(folder .. "/out.csv", "path,p\n../x.npy,1\n")
  t.raises(function()
    keys(data.csv { root = folder, table = "out.csv", patient = "p",
                    fields = { { name = "x", read = "npy", rank = 1, column = "path" } } })
  end, 'out.csv: csv: row 2, column "path"')
end)

-- Volumes of the phantom with nnU-Net's names.
local function nnunet()
  local base = folder .. "/phantom"
  data.phantom { format = "nifti", patients = 3, size = 32, slices = 8, root = base }:dataset()
  local copies, n = {}, 0
  for _, path in ipairs(t.lines("find " .. base .. " -name '*_T1w.nii.gz' | LC_ALL=C sort")) do
    n = n + 1
    local mask = path:gsub("_T1w", "_T1w_brainmask")
    copies[#copies + 1] = string.format(
      "cp %s %s/nn/imagesTr/c_%02d_0000.nii.gz && cp %s %s/nn/imagesTr/c_%02d_0001.nii.gz && "
      .. "cp %s %s/nn/labelsTr/c_%02d.nii.gz", path, folder, n, path, folder, n, mask, folder, n)
  end
  os.execute(table.concat(copies, " && "))
  return n
end

local good = [[{ "channel_names": {"0": "T1", "1": "T1 \u00e9"},
  "labels": {"background": 0, "brain": 1}, "numTraining": 3, "file_ending": ".nii.gz" }]]

t.test("a folder of nnU-Net is read as it is", function()
  t.equal(nnunet(), 3)
  local name = t.write(folder .. "/nn/dataset.json", good)
  local set = data.nnunet { root = folder .. "/nn", patient = "file" }
  t.equal(keys(set), "c_01/c_01 c_02/c_02 c_03/c_03")
  t.equal(set:labels(), "1")
  local batch = first_batch(set:fit { d = 4, h = 8, w = 8 }:batches { size = 1 })
  t.equal(table.concat(batch.image.shape, " "), "1 2 4 8 8")
  t.equal(batch.image:get(1, 1, 2, 3, 4), batch.image:get(1, 2, 2, 3, 4))
  t.equal(table.concat(batch.mask.shape, " "), "1 1 4 8 8")
  t.equal(keys(data.nnunet { root = folder .. "/nn", patient = "^c_0(%d)", masks = false }),
          "c_01/1 c_02/2 c_03/3")
  t.raises(function() data.nnunet { root = "x" } end, 'patient must be "file"')
  t.raises(function() keys(data.nnunet { root = folder .. "/nn", patient = "^(%a+)$" }) end,
           'c_01: the pattern "^(%a+)$" finds no patient in it')
  t.raises(function() keys(data.nnunet { root = folder, patient = "file" }) end,
           'dataset.json: this file is missing, and a folder of nnU-Net has it; fix: root = the '
             .. 'folder with the file, or for pairs of NIfTI without it data.nifti')
  -- as version 1 wrote it
  local old = good:gsub('"channel_names"', '"modality"')
  t.write(name, (old:gsub('"background": 0, "brain": 1', '"0": "background", "1": "brain"')))
  t.equal(data.nnunet { root = folder .. "/nn", patient = "file" }:labels(), "1")
  t.write(name, good)
  for _, row in ipairs {
    { '"labels": {"background": 0, "brain": 1}', '"labels": {"a": [1, 2]}',
      'label "a" is the region [1, 2]' },
    { '"channel_names"', '"channels"', "channel_names is missing" },
    { '"1": "T1', '"2": "T1', 'channel_names has no "1"' },
    { '"file_ending": ".nii.gz"', '"file_ending": ".mha"',
      'file_ending is ".mha", and NIfTI is read' },
    { '"numTraining": 3', '"numTraining": 03', "json: line 2, byte" },
  } do
    local from, to = good:find(row[1], 1, true)
    t.write(name, good:sub(1, from - 1) .. row[2] .. good:sub(to + 1))
    t.raises(function() keys(data.nnunet { root = folder .. "/nn", patient = "file" }) end, row[3])
  end
  t.write(name, good)
  os.remove(folder .. "/nn/labelsTr/c_02.nii.gz")
  t.raises(function() keys(data.nnunet { root = folder .. "/nn", patient = "file" }) end,
           "dataset.json: nnunet: 1 file of 1 case is not there: " .. folder
           .. "/nn/labelsTr/c_02.nii.gz; fix: fetch them, or skip_bad = true in data.nnunet "
           .. "of the recipe leaves their cases out")
  t.equal(keys(data.nnunet { root = folder .. "/nn", patient = "file", skip_bad = true }),
          "c_01/c_01 c_02/c_02 c_03/c_03")
end)

t.test("JSON is read strictly", function()
  local v = json.decode(' {"a": [1, -2.5e3, true, null, "x\\n\\u00e9\\ud83d\\ude00"], '
                        .. '"b": {}} ', "f")
  t.equal(v.a[2], -2500)
  t.equal(v.a[3], true)
  t.equal(v.a[4], "x\n\u{e9}\u{1F600}") -- null is nothing
  t.equal(next(v.b), nil)
  t.equal(math.type(v.a[1]), "integer")
  for _, row in ipairs {
    { "", "not a number" }, { "{", "expected a name in quotes" }, { '{"a" 1}', 'expected ":"' },
    { '{"a":1,"a":2}', '"a" twice' }, { "[1 2]", 'expected "," or "]"' }, { "[1,]",
                                       "not a number" },
    { '"x', "a text without its end" }, { '"\t"', "a control character" }, { "01", "not a number" },
    { "1.", "not a number" }, { "nul", "not a number" }, { "[] x", "text after the end" },
    { '"\\ud800"', "half of a character" }, { '"\\q"', "a backslash" }, { "+1", "not a number" },
    { ("["):rep(100), "nested too deeply" }, { "0x10", "text after the end" },
  } do
    t.raises(function() json.decode(row[1], "f") end, row[2])
    t.raises(function() json.decode(row[1], "f") end, "f: json: line 1, byte ")
  end
  -- any damage is an error or other JSON, never a crash
  for i = 1, #good do
    for _, c in ipairs { "", '"', "{", "}", "\\", "9", ",", "\n" } do
      local ok, why = pcall(json.decode, good:sub(1, i - 1) .. c .. good:sub(i + 1), "f")
      t.check(ok or tostring(why):find("f: json: line %d+, byte %d+: "), "byte %d: %s", i,
              tostring(why))
    end
  end
end)

t.test("a pipe in place of a file is refused and not waited for", function()
  local odd = folder .. "/odd"
  os.execute(string.format("mkdir -p %s && mkfifo %s/dataset.json %s/labels.csv", odd, odd, odd))
  t.raises(function() keys(data.nnunet { root = odd, patient = "file" }) end,
           odd .. "/dataset.json is not a regular file")
  t.raises(function()
    keys(data.csv { root = odd, table = "labels.csv", patient = "file",
                    fields = { { name = "x", read = "npy", rank = 1, column = "path" } } })
  end, odd .. "/labels.csv is not a regular file")
  os.execute("rm -r " .. odd)
end)

t.test("patients of OpenKBP are volumes of four kinds", function()
  local function put(name, text) t.write(folder .. "/pt_7/" .. name .. ".csv", text) end
  os.execute("mkdir -p " .. folder .. "/pt_7")
  put("ct", ",data\n0,1000.0\n16514,4095.0\n")
  put("dose", ",data\n16514,70.25\n")
  put("possible_dose_mask", ",data\n16513,\n16514,\n")
  put("voxel_dimensions", "3.906\n4.0\n2.5\n")
  put("Brainstem", ",data\n1,\n")
  put("PTV70", ",data\n16514,\n")
  local set = data.openkbp { root = folder }
  t.equal(keys(set), "pt_7/pt_7")
  local b = first_batch(set:batches { size = 1 })
  -- 16514 = 2 + 128 * (1 + 128 * 1)
  t.equal(b.ct:get(1, 1, 2, 2, 3), 4095)
  t.equal(b.dose:get(1, 1, 2, 2, 3), 70.25)
  t.equal(b.possible:get(1, 1, 2, 2, 2), 1)
  t.equal(table.concat(b.structures.shape, " "), "1 10 128 128 128")
  t.equal(b.structures:get(1, 1, 1, 1, 2), 1)
  t.equal(b.structures:get(1, 10, 2, 2, 3), 1)
  local lo, hi, mean = b.structures:stats()
  t.equal(lo, 0)
  t.equal(hi, 1)
  t.near(mean * 10 * 128 ^ 3, 2, 1e-6)
  -- all of the nine beams pass the target, one passes the voxel behind it
  local beams = first_batch(data.openkbp { root = folder, beams = true }:batches { size = 1 }).beams
  t.equal(table.concat(beams.shape, " "), "1 1 128 128 128")
  t.near(beams:get(1, 1, 2, 2, 3), 70, 1e-4)
  t.near(beams:get(1, 1, 101, 2, 3), 70 / 9, 1e-4)
  -- a whole patient takes almost no memory
  t.check(set:pipeline {}:report():find("all: 0.0 MiB", 1, true), set:pipeline {}:report())
  t.raises(function() keys(data.openkbp { root = folder .. "/nn" }) end, "no folder is called pt_N")
  os.remove(folder .. "/pt_7/dose.csv")
  t.raises(function() set:pipeline {} end, "pt_7: dose: ")
  t.equal(#data.openkbp { root = folder, dose = false }:dataset():fields(), 3)
end)

-- An image of w x h pixels as a .bmp: pixel(x, y) -> red, green, blue, or one grey value.
local function bmp(path, w, h, pixel)
  local rows, palette = {}, {}
  local grey = select("#", pixel(0, 0)) == 1
  for i = 0, grey and 255 or -1 do palette[i + 1] = string.char(i, i, i, 0) end
  for y = h - 1, 0, -1 do
    local row = {}
    for x = 0, w - 1 do
      local r, g, b = pixel(x, y)
      row[x + 1] = grey and string.char(r) or string.char(b, g, r)
    end
    local bytes = table.concat(row)
    rows[#rows + 1] = bytes .. ("\0"):rep(-#bytes % 4)
  end
  local colours, pixels = table.concat(palette), table.concat(rows)
  os.execute("mkdir -p '" .. path:match("(.*)/") .. "'")
  t.write(path, "BM" .. string.pack(
    "<I4I4I4I4i4i4I2I2I4I4i4i4I4I4", 54 + #colours + #pixels, 0, 54 + #colours, 40, w, h, 1,
    grey and 8 or 24, 0, #pixels, 2835, 2835, #palette, 0) .. colours .. pixels)
end

local function colours(x, y) return 10 * x, 20 * y, 200 end
local function disc(x, y)
  return (x - 4) ^ 2 + (y - 3) ^ 2 < 6 and 255 or 0
end

t.test("folders of images with masks or classes", function()
  local base = folder .. "/photos"
  for i = 1, 4 do
    local who = string.format("%s/TCGA_%d/", base, (i + 1) // 2)
    bmp(who .. "s_" .. i .. ".bmp", 9, 7, colours)
    bmp(who .. "s_" .. i .. "_mask.bmp", 9, 7, disc)
  end
  local function images(o)
    local all = { root = base, image = "s_*", mask = "s_*_mask", labels = { 255 },
                  patient = "folder" }
    for k, v in pairs(o or {}) do all[k] = v or nil end
    return data.images(all)
  end
  local set = images()
  t.equal(keys(set), "TCGA_1/1/TCGA_1 TCGA_1/2/TCGA_1 TCGA_2/3/TCGA_2 TCGA_2/4/TCGA_2")
  local b = first_batch(set:batches { size = 2 })
  t.equal(table.concat(b.image.shape, " "), "2 3 7 9")
  t.equal(b.image:get(1, 1, 3, 5), 40)
  t.equal(b.image:get(1, 2, 3, 5), 40)
  t.equal(b.image:get(1, 3, 3, 5), 200)
  t.equal(b.mask:get(1, 1, 4, 5), 1)
  t.equal(b.mask:get(1, 1, 1, 1), 0)
  -- pictures of 8 bits stay whole numbers
  b = first_batch(set:resize { h = 5, w = 4, method = "smooth" }:batches { size = 2 })
  for y = 1, 5 do
    for x = 1, 4 do
      t.equal(b.image:get(1, 1, y, x) % 1, 0)
      t.check(b.mask:get(1, 1, y, x) % 1 == 0, "a label between two")
    end
  end
  t.equal(#images { exif = "ignore", alpha = "drop" }:dataset():cases(), 4)
  -- a file that macOS adds is not a picture
  bmp(base .. "/TCGA_2/._s_3.bmp", 1, 1, disc)
  t.equal(keys(images { image = "*", mask = false, labels = false }):match("%._s"), nil)
  t.equal(keys(images { patient = "^TCGA_(%d)" }), "TCGA_1/1/1 TCGA_1/2/1 TCGA_2/3/2 TCGA_2/4/2")
  t.raises(function() data.images { root = base } end, 'patient must be "folder", "file"')
  t.raises(function() keys(images { patient = "^(%a+)/" }) end, "finds no patient in it")
  t.raises(function() keys(images { image = "x_*" }) end,
           'none of 8 images is "x_*"')
  t.raises(function() keys(images { image = "x_*", mask = false }) end, 'none of 8 images is "x_*"')
  os.remove(base .. "/TCGA_2/s_4_mask.bmp")
  t.raises(function() keys(images()) end,
           "1 file without a partner: no mask (s_*_mask) for TCGA_2/s_4.bmp")
  bmp(base .. "/TCGA_2/s_4_mask.bmp", 9, 7, colours)
  t.raises(function() images():pipeline {} end, "3 channels, class numbers need 1")
  os.execute("rm " .. base .. "/*/*_mask.bmp")
  local classes = { root = base, image = "s_?", patient = "file", classes = { "TCGA_1" } }
  t.raises(function() keys(data.images(classes)) end, 'none of 4 images is "s_?"')
  classes.image = "s_*"
  t.raises(function() keys(data.images(classes)) end,
           'TCGA_2/s_3.bmp lies in "TCGA_2", which is not one of the classes TCGA_1')
  classes.classes = { "TCGA_2", "TCGA_1" }
  b = first_batch(data.images(classes):batches { size = 2 })
  t.equal(b.class:get(1, 1), 1)
end)

t.test("folders of arrays with masks, classes or lengths", function()
  local base = folder .. "/arrays"
  local function save(name, shape, of)
    os.execute("mkdir -p '" .. (base .. "/" .. name):match("(.*)/") .. "'")
    local flat = seg.array.zeros { #shape == 2 and shape[1] * shape[2]
                                   or shape[1] * shape[2] * shape[3] }
    for i = 1, flat.count do flat:set(of(i), i) end
    seg.array.save(base .. "/" .. name .. ".npy", flat:reshape(shape))
  end
  for i = 1, 4 do
    local who = string.format("pair/p%d/s_%d", (i + 1) // 2, i)
    save(who .. "_x", { 2, 6, 5 }, function(k) return k + 0.25 * i end)
    save(who .. "_y", { 6, 5 }, function(k) return k % 4 == 0 and 7 or 0 end)
    save(string.format("class/%s/%d", i > 2 and "cat" or "dog", i), { 6, 5 },
         function(k) return k * i end)
    save("word/w" .. i, { 3 + i, 2 }, function(k) return 10 * i + k end)
  end
  local function pairs_of(o)
    local all = { root = base .. "/pair", image = "s_*_x", mask = "s_*_y", labels = { 7 },
                  axes = "chw", patient = "folder" }
    for k, v in pairs(o or {}) do all[k] = v or nil end
    return data.npy(all)
  end
  t.equal(keys(pairs_of()), "p1/1/p1 p1/2/p1 p2/3/p2 p2/4/p2")
  t.equal(keys(pairs_of { patient = "s_(%d)" }), "p1/1/1 p1/2/2 p2/3/3 p2/4/4")
  local b = first_batch(pairs_of():batches { size = 2 })
  t.equal(table.concat(b.image.shape, " "), "2 2 6 5")
  t.equal(table.concat(b.mask.shape, " "), "2 1 6 5")
  for h = 1, 6 do
    for w = 1, 5 do
      local k = 5 * (h - 1) + w
      t.equal(b.image:get(2, 2, h, w), 30 + k + 0.5)
      t.equal(b.mask:get(2, 1, h, w), k % 4 == 0 and 1 or 0)
    end
  end
  t.raises(function() data.npy { root = base } end, 'data.npy: patient must be "folder", "file"')
  t.raises(function() pairs_of { classes = { "a" } } end,
           "data.npy: classes must be a list of folders, without a mask")
  t.raises(function() keys(pairs_of { mask = "s_*_z" }) end,
           'npy files is "s_*_z"')
  t.raises(function() keys(pairs_of { image = "x_*", mask = false }) end,
           'none of 8 .npy files is "x_*"')
  t.raises(function() keys(pairs_of { patient = "(%a+)_z" }) end,
           'data.npy: p1/s_1_x.npy: patient = "(%a+)_z" finds no patient in it')
  local ok, why = pcall(keys, pairs_of { root = false }) -- a command line error: no script line
  t.check(not ok and tostring(why):find("--data is missing: data.npy", 1, true), tostring(why))
  t.raises(function() pairs_of { axes = false, rank = 2 }:pipeline {} end,
           "s_1_y.npy: the grids differ")
  t.raises(function() keys(pairs_of { axes = 5 }) end, "axes must be")
  t.raises(function() keys(pairs_of { axes = "chw", rank = 3 }) end,
           'image: axes "chw": dhw are needed')
  t.raises(function() pairs_of { labels = false }:pipeline {} end,
           "p1/1: mask: " .. base .. "/pair/p1/s_1_y.npy: value 7 in 7 voxels, wanted 0, 1")
  -- folders are classes, in the order of the list
  b = first_batch(data.npy { root = base .. "/class", rank = 2, patient = "file",
                             classes = { "dog", "cat" } }:batches { size = 4 })
  for i = 1, 4 do -- cat/3, cat/4, dog/1, dog/2
    t.equal(b.class:get(i, 1), i < 3 and 1 or 0)
    t.equal(b.image:get(i, 1, 1, 2), 2 * (i < 3 and i + 2 or i - 2))
  end
  -- sequences have a length
  b = first_batch(data.npy { root = base .. "/word", rank = 1, length = true, patient = "^w(%d)" }
    :fit { w = 7, at = "start" }:batches { size = 4 })
  for i = 1, 4 do
    t.equal(b.length:get(i, 1), 3 + i)
    t.equal(b.image:get(i, 2, 2), 10 * i + 4)
  end
  -- rank and number of inputs are known without opening a file
  t.equal(data.npy { rank = 1, patient = "file" }.source.ranks.image, 1)
  t.equal(pairs_of().source.ranks.mask, 2)
end)

t.test("synthetic sequences are cases of speakers", function()
  local function phantom(o)
    o.format, o.root = "sequences", folder .. "/spoken"
    return data.phantom(o)
  end
  local set = phantom { speakers = 4, takes = 2, classes = 3, features = 8 }
  local cases = set:dataset():cases()
  t.equal(#cases, 4 * 2 * 3)
  t.equal(cases[1].patient, "PHANTOM_001")
  t.equal(cases[1].key, "features/PHANTOM_001/0_PHANTOM_001_0.npy")
  -- one fold a speaker: leave one speaker out
  local train, valid = set:kfold { k = 4, fold = 2 }
  t.equal(#train:dataset():cases() .. " " .. #valid:dataset():cases(), "18 6")
  local b = first_batch(valid:normalize {}:batches { size = 6, bucket = "length" })
  t.equal(table.concat(b.sequence.shape, "x", 1, 2), "6x8")
  t.equal(table.concat(b.label.shape, "x"), "6x1")
  local labels, longest = {}, 0
  for i = 1, 6 do
    labels[i] = string.format("%g", b.label:get(i, 1))
    longest = math.max(longest, b.length:get(i, 1))
  end
  table.sort(labels)
  t.equal(table.concat(labels, " "), "0 0 1 1 2 2")
  t.equal(b.sequence.shape[3], longest)
  for _, case in ipairs {
    { { classes = 1 }, "classes must be from 2 to 10, got 1" },
    { { features = 4 }, "features must be from 8 to 1024, got 4" },
    { { speakers = 0 }, "speakers must be from 1 to 999, got 0" },
    { { takes = 1.5 }, "takes must be" },
    { { noise = 2 }, "noise must be from 0 to 1, got 2" },
    { { patients = 3 }, "patients" },
    { { size = 16 }, "size" },
  } do t.raises(function() phantom(case[1]) end, case[2]) end
end)

t.test("a part of a picture is taken", function()
  t.write(folder .. "/photos/faces.csv", "path,who,x,y,w,h\nTCGA_1/s_1.bmp,a,2,1,4,3\n"
          .. "TCGA_1/s_2.bmp,b,-2,5,4,3\n")
  local function faces(box)
    return data.csv { root = folder .. "/photos", table = "faces.csv", patient = "who",
                      fields = { { name = "image", read = "image", rank = 2, column = "path",
                                   box = box } } }
  end
  local b = first_batch(faces(function(row)
    return row:number "x", row:number "y", row:number "w", row:number "h"
  end):batches { size = 2 })
  t.equal(table.concat(b.image.shape, " "), "2 3 3 4")
  for y = 1, 3 do
    for x = 1, 4 do
      t.equal(b.image:get(1, 1, y, x), 10 * (x + 1))
      t.equal(b.image:get(1, 2, y, x), 20 * y)
      -- the other box extends beyond its picture, where the pixels are black
      t.equal(b.image:get(2, 1, y, x), x > 2 and y < 3 and 10 * (x - 3) or 0)
      t.equal(b.image:get(2, 3, y, x), x > 2 and y < 3 and 200 or 0)
    end
  end
  t.raises(function() keys(faces(function() return 0, 0, 0, 5 end)) end,
           "box {0, 0, 0, 5}: wanted x, y, width and height in pixels")
  t.raises(function() keys(faces(function() return 0, 0, 0 / 0, 5 end)) end, "box must be a number")
end)

t.test("BIWI frames have a pose", function()
  local base = folder .. "/biwi"
  for i, where in ipairs { "01/frame_00003", "01/frame_00004", "02/frame_00003" } do
    bmp(base .. "/" .. where .. "_rgb.bmp", 8, 6, colours)
    local c, s = math.cos(i / 10), math.sin(i / 10)
    t.write(base .. "/" .. where .. "_pose.txt", string.format(
      "%.9f %.9f 0 \n%.9f %.9f 0 \n0 0 1 \n\n10.5 20 900 \n", c, -s, s, c))
  end
  local set = data.biwi { root = base, same = { ["02"] = "01" } }
  t.equal(keys(set), "01/frame_00003/01 01/frame_00004/01 02/frame_00003/01")
  local b = first_batch(set:batches { size = 3 })
  for i = 1, 3 do
    t.near(b.pose:get(i, 3), math.deg(i / 10), 1e-5)
    t.near(b.pose:get(i, 1), 0, 1e-6)
  end
  t.raises(function() data.biwi { root = base, pitch = "up" } end,
           'pitch must be "300wlp" or "biwi"')
  t.raises(function() keys(data.biwi { root = folder .. "/photos" }) end,
           "no NN/frame_XXXXX_rgb.png")
end)

remove()
t.finish()
