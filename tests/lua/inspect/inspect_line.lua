-- inspect_line.lua -- the line that inspect suggests for a folder opens its contents.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local folder, remove = t.folder()

local count = 0
-- A new folder, filled by shell commands with the synthetic patients in $P.
local function make(commands, source)
  count = count + 1
  local path = string.format("%s/%02d", folder, count)
  t.check(os.execute(string.format("P='%s'; mkdir -p %s && cd %s && { %s\n}", source or "", path,
                                   path, commands)), commands)
  return path
end

-- The lines that inspect suggests for a folder, and the data sets that they open.
local function lines_of(path)
  local text, lines, sets = t.says("inspect " .. path, 0, "\ndata."), {}, {}
  for got in text:gmatch("\n(data%.[^\n]*)") do
    lines[#lines + 1] = got
    sets[#sets + 1] = assert(load("local data = ... return " .. got))(seg.data)
  end
  return lines, sets
end

-- inspect must suggest this line, or these, for the folder ($ROOT), and each must open so many
-- cases.
local function proposes(path, want, cases)
  want = type(want) == "table" and want or { want }
  local lines, sets = lines_of(path)
  t.equal(table.concat(lines, "\n"), (table.concat(want, "\n"):gsub("$ROOT", path)))
  for _, set in ipairs(sets) do
    t.equal(#set:dataset():cases(), cases, "cases")
    set:pipeline {}:close()
  end
end

-- Synthetic patients in the format; the folder with their files.
local function phantom(format, size)
  local root = folder .. "/" .. format .. (size or "")
  seg.data.phantom { format = format, patients = 3, size = size or 24, slices = 4,
                     root = root }:dataset()
  return t.lines("echo " .. root .. "/*")[1]
end

t.test("NIfTI", function()
  local source = phantom "nifti"
  local all = "for f in $(find $P -name '*_T1w.nii.gz'); do n=$(basename $f _T1w.nii.gz); "
    .. "m=$(dirname $f)/${n}_T1w_brainmask.nii.gz; "
  proposes(make(all .. "cp $f $m .; done", source),
           'data.nifti { root = "$ROOT", image = "*_ses-NFB3_T1w", '
           .. 'mask = "*_ses-NFB3_T1w_brainmask" }', 3)
  -- names without a patient; the common endings
  proposes(make("i=0; " .. all .. "i=$((i + 1)); cp $f a${i}_${i}b_T1w.nii.gz; "
                .. "cp $m a${i}_${i}b_T1w_brainmask.nii.gz; done", source),
           'data.nifti { root = "$ROOT", image = "*_T1w", mask = "*_T1w_brainmask", '
           .. 'patient = "file" }  -- if every file is another person', 3)
  proposes(make("i=0; " .. all .. "i=$((i + 1)); cp $f sub-0${i}_T1w.nii.gz; "
                .. "cp $f sub-0${i}_T2w.nii.gz; cp $m sub-0${i}_lesion_seg.nii.gz; done", source),
           'data.nifti { root = "$ROOT", image = { "*_T1w", "*_T2w" }, mask = "*_lesion_seg" }', 3)
  proposes(make("mkdir images labels; i=0; " .. all .. "i=$((i + 1)); cp $f images/case_$i.nii.gz; "
                .. "cp $m labels/case_$i.nii.gz; done", source),
           'data.nifti { root = "$ROOT", image = "images/*", mask = "labels/*", patient = "file" }'
           .. '  -- if every file is another person', 3)
  -- only the contents tell images and masks apart
  proposes(make("i=0; " .. all .. "i=$((i + 1)); mkdir p$i; cp $f p$i/x_one.nii.gz; "
                .. "cp $m p$i/x_two.nii.gz; done", source),
           'data.nifti { root = "$ROOT", image = "*_one", mask = "*_two" }', 3)
  proposes(make("mkdir imagesTr labelsTr; i=0; " .. all .. "i=$((i + 1)); "
                .. "cp $f imagesTr/h_${i}_0000.nii.gz; cp $m labelsTr/h_$i.nii.gz; done; "
                .. "echo '{\"channel_names\":{\"0\":\"T1\"},\"labels\":{\"b\":1}}' "
                .. "> dataset.json", source),
           'data.nnunet { root = "$ROOT", patient = "file" }'
           .. "  -- if every case is another person", 3)
end)

t.test("NIfTI: images with masks of their own, on grids of their own", function()
  local source, other = phantom "nifti", phantom("nifti", 16)
  local function copy(from, as)
    return "i=0; for f in $(find " .. from .. " -name '*_T1w.nii.gz' | sort); do i=$((i + 1)); "
      .. "n=$(basename $f _T1w.nii.gz); m=$(dirname $f)/${n}_T1w_brainmask.nii.gz; mkdir -p M$i; "
      .. "cp $f M$i/sub-M${i}_ses-${i}_" .. as .. ".nii.gz; "
      .. "cp $m M$i/sub-M${i}_ses-${i}_" .. as .. "_brainmask.nii.gz; done; "
  end
  local both = copy(source, "T1w") .. copy(other, "FLAIR")
  proposes(make(both), {
    'data.nifti { root = "$ROOT", image = "*_FLAIR", mask = "*_FLAIR_brainmask" }',
    'data.nifti { root = "$ROOT", image = "*_T1w", mask = "*_T1w_brainmask" }' }, 3)
  -- one image has masks, which lie on its grid only
  proposes(make(both .. "rm */*_FLAIR_brainmask*"),
           'data.nifti { root = "$ROOT", image = "*_T1w", mask = "*_T1w_brainmask" }', 3)
  -- a line that fails is not suggested
  local text = t.says("inspect " .. make(both .. "for f in $(find . -name '*.gz'); do "
                      .. "head -c 900 $f > x; mv x $f; done"), 3, "no line of a recipe opens this")
  t.check(not text:find("\ndata.", 1, true), text)
end)

t.test("NIfTI: damaged files, masks that do not fit, nnU-Net without dataset.json", function()
  local function volume(path, depth, masks)
    local voxels = {}
    for i = 1, 16 * depth do voxels[i] = masks and i % 3 or i * 7919 % 1009 end
    t.nifti(path, { 4, 4, depth }, voxels)
  end
  local root = make("mkdir imagesTr labelsTr")
  for i = 1, 3 do
    volume(root .. "/imagesTr/c_" .. i .. ".nii", 4)
    volume(root .. "/labelsTr/c_" .. i .. ".nii", i == 1 and 3 or 4, true)
  end
  local text = t.says("inspect " .. root, 0, 'image = "imagesTr/*", patient = "file" }')
  t.check(text:find('-- mask = "labelsTr/*" is not in the line, as it does not fit: c_1: mask: ', 1,
                    true), text)
  -- the first case is damaged: the line leaves it out
  volume(root .. "/labelsTr/c_1.nii", 4, true)
  t.write(root .. "/imagesTr/c_1.nii", t.read(root .. "/imagesTr/c_1.nii"):sub(1, 400))
  t.says("inspect " .. root, 3, 'image = "imagesTr/*", mask = "labelsTr/*", labels = { 1, 2 }, '
         .. 'patient = "file", skip_bad = true }')
  for i = 1, 3 do
    os.rename(root .. "/imagesTr/c_" .. i .. ".nii", root .. "/imagesTr/c_" .. i .. "_0000.nii")
    volume(root .. "/imagesTr/c_" .. i .. "_0000.nii", 4)
    volume(root .. "/imagesTr/c_" .. i .. "_0001.nii", 4)
  end
  text = t.says("inspect " .. root, 0, 'image = { "imagesTr/*_0000", "imagesTr/*_0001" }, mask = '
                .. '"labelsTr/*", labels = { 1, 2 }, patient = "file" }')
  t.check(not text:find("skip_bad", 1, true), text)
end)

t.test("DICOM", function()
  local source = phantom "dicom"
  proposes(make("cp -r $P/* .", source),
           'data.dicom { root = "$ROOT", image = "FLAIR", mask = "MASK" }', 3)
  proposes(make("cp -r $P/* .; rm -r $(ls -d */MASK | head -n 1)", source),
           'data.dicom { root = "$ROOT", image = "FLAIR", mask = "MASK", skip_unmatched = true }'
           .. "  -- MASK is in 2 of 3 studies", 2)
  t.needs("dcmodify", "test")
  -- one PatientID for all, as after anonymisation: no split can separate the patients
  local one = make("cp -r $P/* .; find . -type f -exec dcmodify -nb -q -m '(0010,0020)=ANON' {} +",
                   source)
  t.says("inspect " .. one, 0, "all 3 studies are of one patient (PatientID ANON); if they "
         .. 'are of several people, each in a folder, add patient = "folder" to the line')
  t.check(not t.says("inspect " .. source, 0, "FLAIR"):find("of one patient", 1, true))
  -- a mask that is recognized by its voxels only; its values are not class numbers
  local change = "find . -path '*/MASK/*' -type f -exec dcmodify -nb -q "
    .. "-m '(0008,103e)=OTHER' {} +; for d in */MASK; do mv $d ${d%MASK}x; done"
  proposes(make("cp -r $P/* .; " .. change, source),
           'data.dicom { root = "$ROOT", image = "FLAIR", mask = "OTHER" }', 3)
  -- every study has a second image
  local second = "n=0; for d in */FLAIR; do n=$((n + 1)); e=${d%FLAIR}T1; cp -r $d $e; "
    .. "find $e -type f -exec dcmodify -nb -q -gin -m '(0008,103e)=T1' "
    .. "-m \"(0020,000e)=1.2.3.$n\" {} +; done"
  proposes(make("cp -r $P/* .; " .. second, source),
           'data.dicom { root = "$ROOT", image = { "FLAIR", "T1" }, mask = "MASK" }', 3)
  -- one study only: the image cannot be a channel of all cases
  proposes(make("cp -r $P/* .; " .. second .. "; rm -r $(ls -d */T1 | head -n 2)", source),
           'data.dicom { root = "$ROOT", image = "FLAIR", mask = "MASK" }', 3)
end)

-- A grey PNG of 8 x 8 by Python; values as an expression of i.
local PNG = [[
import sys, zlib, struct
def chunk(k, d): return struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d))
value = compile(sys.argv[2], "value", "eval")
rows = [b"\0" + bytes(eval(value) for i in range(8 * r, 8 * r + 8)) for r in range(8)]
head = struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)
open(sys.argv[1], "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
    + chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b""))
]]

t.test("images", function()
  t.needs("python3", "test")
  local png = "python3 " .. t.write(folder .. "/png.py", PNG)
  local photo, mask = " 'i * 3 % 251'; ", " '255 * (i % 8 > 4)'; "
  proposes(make("for p in a b; do mkdir $p; for i in 1 2; do " .. png .. " $p/${p}_$i.png" .. photo
                .. png .. " $p/${p}_${i}_mask.png" .. mask .. "done; done"),
           'data.images { root = "$ROOT", image = "*", mask = "*_mask", labels = { 255 }, '
           .. 'patient = "folder" }  -- if each folder is another person', 4)
  -- some masks lack a class
  proposes(make("mkdir images masks; for i in 1 2 3; do " .. png .. " images/$i.png" .. photo
                .. png .. " masks/$i.png \"128 * (i % 8 > 4) + 127 * ($i > 2 and i > 9)\"; done"),
           'data.images { root = "$ROOT", image = "images/*", mask = "masks/*", '
           .. 'labels = { 127, 128, 255 }, patient = "file" }  -- if every file is another person',
           3)
  proposes(make("for p in cat dog; do mkdir $p; for i in 1 2 3; do " .. png .. " $p/$p$i.png"
                .. photo .. "done; done"),
           'data.images { root = "$ROOT", classes = { "cat", "dog" }, patient = "file" }'
           .. "  -- if every file is another person", 6)
  proposes(make("echo 'file,yaw,who' > t.csv; for i in 1 2; do " .. png .. " $i.png" .. photo
                .. "echo $i.png,$i,x >> t.csv; done"),
           'data.csv { root = "$ROOT", table = "t.csv", patient = "file", fields = { '
           .. '{ name = "image", read = "image", rank = 2, column = "file" }, '
           .. '{ name = "numbers", kind = "numbers", '
           .. 'columns = { "yaw" } } } }  -- if every row is another person', 2)
end)

t.test("arrays and OpenKBP", function()
  local function save(name, shape, of)
    local a = seg.array { shape = shape }
    if of then
      local flat = a:reshape { a.count }
      for i = 1, a.count do flat:set(of(i), i) end
      a = flat:reshape(shape)
    end
    seg.array.save(name, a)
  end
  local path = make("mkdir -p pats/pt_1; true")
  for i = 1, 2 do save(path .. "/s" .. i .. ".npy", { 5, 2 }, function(k) return k + i end) end
  proposes(path, 'data.npy { root = "$ROOT", rank = 2, patient = "file" }'
           .. "  -- if every file is another person", 2)
  -- sequences of different lengths
  local sequences = make("true")
  for i = 1, 3 do
    save(sequences .. "/s" .. i .. ".npy", { 4 + i, 2 }, function(k) return k * i end)
  end
  proposes(sequences, 'data.npy { root = "$ROOT", rank = 1, length = true, patient = "file" }'
           .. "  -- if every file is another person", 3)
  -- masks, recognized by name or by contents
  for _, name in ipairs { { "_x", "_mask" }, { "_a", "_b" } } do
    local pairs_of = make("mkdir p q")
    for i = 1, 4 do
      local at = pairs_of .. (i > 2 and "/p/n" or "/q/m") .. i
      save(at .. name[1] .. ".npy", { 3, 6, 5, 2 }, function(k) return k * i % 97 / 7 end)
      save(at .. name[2] .. ".npy", { 3, 6, 5 }, function(k) return k % 3 * 2 end)
    end
    proposes(pairs_of, 'data.npy { root = "$ROOT", image = "*' .. name[1] .. '", mask = "*'
             .. name[2] .. '", labels = { 2, 4 }, rank = 3, patient = "folder" }'
             .. "  -- if each folder is another person", 4)
  end
  local classes = make("mkdir cat dog")
  for i = 1, 4 do
    save(classes .. (i > 2 and "/cat/" or "/dog/") .. i .. ".npy", { 6, 5 },
         function(k) return k * i end)
  end
  proposes(classes, 'data.npy { root = "$ROOT", classes = { "cat", "dog" }, rank = 2, '
           .. 'patient = "file" }  -- if every file is another person', 4)
  local rows = { "path,label,Speaker,take,pan_deg,frames" }
  local function table_of(shape)
    local at = make("true")
    for i = 1, 4 do
      local name = "s" .. i .. ".npy"
      seg.array.save(at .. "/" .. name, seg.array { shape = shape(i) })
      rows[i + 1] = string.format("%s,%d,%s,%d,%d,%d", name, i % 3, i < 3 and "ann" or "bo", i,
                                  5 * i, 9 + i)
    end
    return at
  end
  local at = table_of(function(i) return { 9 + i, 4 } end)
  -- a table: the patient, the target, and a column that is neither
  t.write(at .. "/labels.csv", table.concat(rows, "\n") .. "\n")
  proposes(at, 'data.csv { root = "$ROOT", table = "labels.csv", patient = "Speaker", fields = { '
           .. '{ name = "x", read = "npy", rank = 1, column = "path" }, { name = "label", kind = '
           .. '"numbers", columns = { "label" } }, { name = "numbers", kind = "numbers", columns = '
           .. '{ "pan_deg" } }, { name = "length", kind = "length" } } }  -- left out: take, '
           .. "frames; add what is to be learnt", 4)
  t.write(path .. "/pats/pt_1/ct.csv", ",data\n0,1000.0\n")
  t.write(path .. "/pats/pt_1/dose.csv", ",data\n16514,70.25\n")
  t.write(path .. "/pats/pt_1/possible_dose_mask.csv", ",data\n16513,\n16514,\n")
  t.write(path .. "/pats/pt_1/voxel_dimensions.csv", "4.0\n4.0\n2.5\n")
  proposes(path .. "/pats", 'data.openkbp { root = "$ROOT" }', 1)
  -- the folder above, without other contents
  os.execute("cd " .. path .. " && mkdir kbp && cp -r pats kbp/test-pats && "
             .. "mv pats kbp/train-pats")
  proposes(path .. "/kbp", { 'data.openkbp { root = "$ROOT/test-pats" }',
                             'data.openkbp { root = "$ROOT/train-pats" }' }, 1)
end)

-- Every line for real data opens, and some cases of it load.
for _, name in ipairs { "ch2", "dicom-pgbm", "fsdd-logmel", "headpose-prima", "hippocampus-msd",
                        "japanese-vowels", "lgg-dicom", "provided-data",
                        "provided-data/train-pats", "skullstrip-ms" } do
  t.test("real data: " .. name, function()
    local path = t.lines("pwd")[1] .. "/datasets/" .. name
    if not t.lines("ls -d " .. path .. " 2>/dev/null")[1] then
      t.skip("datasets/" .. name .. " is not here")
    end
    for i, set in ipairs((select(2, lines_of(path)))) do
      local ds, some = set:dataset(), {}
      local all = #ds:cases()
      for k = 1, math.min(4, all) do some[k] = 1 + (k - 1) * all // math.min(4, all) end
      local survey = core.data.survey(core.data.pick(ds, some), "", {})
      for k = 1, #some do
        for _, field in ipairs(survey:case(k).fields) do
          t.check(not field.fault, "line %d: %s", i, field.fault)
        end
      end
    end
  end)
end

remove()
t.finish()
