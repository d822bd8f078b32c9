-- mixed_folder.lua -- a folder of fifty files, good, damaged and foreign, in inspect, doctor data
-- and predict: good files are processed, the others are named with reasons.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local json = require "seg.json"
local folder, remove = t.folder()

local function shell(command) t.check(os.execute(command), command) end

-- A small network on data of this kind, trained for one epoch.
local function recipe(kind, options)
  local script = t.write(folder .. "/" .. kind .. ".lua", (([[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { epochs = 1, batch = 2, gain = 1.0, which = "y" }
local x = nn.input("image", { c = 1, h = 16, w = 16 })
local m = nn.input("mask", { c = 1, h = 16, w = 16 })
local h = nn.conv(x, 1, 3)
local far = h * cfg.gain * cfg.gain -- beyond the range of a float where the gain is 1e38
local y, none = h, h + (far - far)
local cases = seg.data.KIND { root = cfg.data, OPTIONS }
local train, test, valid = cases:split { test = 1, valid = 1, seed = 1 }
local function ready(set) return set:normalize {}:slices {} end
seg.recipe { inputs = { x, m },
  outputs = { y = nn.sigmoid(y), none = cfg.gain ~= 1 and nn.sigmoid(none) or nil },
  loss = nn.bce_dice(y, m), predict = { output = cfg.which },
  train = ready(train):batches { size = cfg.batch }, valid = ready(valid):batches { size = 2 },
  optim = seg.optim.sgd { lr = 0.01 } }
]]):gsub("KIND", kind):gsub("OPTIONS", options)))
  local data = folder .. "/data_" .. kind
  seg.data.phantom { patients = 4, size = 16, slices = 4, format = kind, root = data }:dataset()
  data = t.lines("ls -d " .. data .. "/*")[1]
  t.says(script .. " --threads 1 --data " .. data .. " --out " .. folder .. "/runs", 0, "done:")
  return script, data
end

local nifti, heads = recipe("nifti", 'image = "*_T1w", mask = "*_T1w_brainmask"')
local dicom, series = recipe("dicom", 'image = "FLAIR", mask = "MASK", skip_bad = true')

-- Fifty files and more.
local mixed = folder .. "/mixed"
shell("mkdir -p " .. mixed .. "/more && cp " .. heads .. "/*/*_T1w.nii.gz " .. mixed)
local good = t.lines("ls " .. mixed .. "/*_T1w.nii.gz")
t.equal(#good, 4)
local whole = t.read(good[1])
t.write(mixed .. "/cut_T1w.nii.gz", whole:sub(1, 200))
t.write(mixed .. "/empty_T1w.nii.gz", "")
t.write(mixed .. "/page_T1w.nii.gz", "<html>404 not found</html>")
t.write(mixed .. "/._cut_T1w.nii.gz", "\0\5\22\7")
for i = 1, 4 do
  shell(string.format("cp -r %s/patient_%02d/FLAIR %s/p%d", series, i, mixed, i))
end
-- a truncated slice, a missing one, and a good one among files with other names
local slices = t.lines("ls " .. mixed .. "/p3/*")
t.write(slices[2], t.read(slices[2]):sub(1, 700))
t.write(t.lines("ls " .. mixed .. "/p4/*")[4], "")
t.write(mixed .. "/p1/report.dcm", "<html>the report is gone</html>")
t.write(mixed .. "/p2/empty.dcm", "")
t.write(mixed .. "/p2/._IM0001.dcm", "\0\5\22\7")
local pixels = seg.array { shape = { 8, 8 } }
seg.array.save(mixed .. "/more/table.npy", pixels)
t.write(mixed .. "/more/damaged.npy", "no array")
t.write(mixed .. "/more/photo.png", "\137PNG\r\n\26\n and no more")
for i = 1, 20 do t.write(string.format("%s/more/note_%02d.txt", mixed, i), "text") end
shell("ln -s . " .. mixed .. "/loop && ln -s nowhere " .. mixed .. "/dangling")
t.check(#t.lines("find " .. mixed .. " -type f") >= 50, "fifty files")

local function has(text, part)
  t.check(text:find(part, 1, true), part .. " is missing in " .. text)
end

t.test("inspect lists what is good and what is damaged", function()
  local said = t.says("inspect " .. mixed, 3, "DICOM series as well")
  local _, lines = said:gsub("_T1w%.nii%.gz +16x16x4, ", "")
  t.equal(lines, 4, "NIfTI files that are read")
  has(said, "empty_T1w.nii.gz: nifti: file is empty")
  has(said, "page_T1w.nii.gz: nifti: named .gz but neither gzip data nor NIfTI")
  has(said, "damaged.npy: npy: ")
  has(said, "damaged: " .. slices[2] .. ": dicom: file ends inside")
  has(said, "/p4/IM0004.dcm: dicom: file is empty")
  has(said, "left out: " .. mixed .. "/p1/report.dcm: dicom: not DICOM")
  has(said, "left out: " .. mixed .. "/p2/empty.dcm: dicom: file is empty")
  t.check(not said:find("/._", 1, true), "a file of AppleDouble: " .. said)
  -- a folder with only that series
  said = t.says("inspect " .. mixed .. "/p3", 3, "(a file of it is damaged)")
  has(said, "damaged: " .. slices[2])
end)

local LOCKED = "cannot open folder: Permission denied; fix: read access for this user (chmod or "
               .. "chown, by its owner)"

t.test("a folder that may not be read is named, and the others are done", function()
  local user = t.lines("id -u")[1] == "0" and "setpriv --reuid 65534 --clear-groups " or ""
  if user ~= "" and #t.lines("command -v setpriv") == 0 then t.skip "setpriv is not here" end
  local function says(arguments, code, part)
    local got, text = t.program(arguments, user)
    t.equal(got, code, "exit code of " .. arguments .. " (" .. text:sub(-300) .. ")")
    has(text, part)
    return text
  end
  local function runs(script, out)
    shell("mkdir -p " .. folder .. "/" .. out .. " && chmod 777 " .. folder .. "/" .. out)
    return script .. " --threads 1 --out " .. folder .. "/" .. out
  end
  for _, case in ipairs { { nifti, heads, "nifti" }, { dicom, series, "dicom" } } do
    local script, root, kind = case[1], folder .. "/locked_" .. case[3], case[3]
    shell(string.format("cp -r %s %s && chmod -R a+rX %s %s/runs", case[2], root, root, folder))
    local shut = t.lines("ls -d " .. root .. "/*/")[2]:gsub("/$", "")
    -- its names can be listed, but its files cannot be opened
    local closed = root .. "/no_search"
    shell(string.format("chmod 000 %s && mkdir %s && chmod 644 %s", shut, closed, closed))
    local said = says("inspect " .. root, 3, shut .. ": " .. LOCKED)
    has(said, closed .. ": " .. LOCKED)
    has(said, "not readable: ")
    has(said, "skip_bad = true }")
    t.check(not said:find("damaged", 1, true), said)
    said = says("doctor data " .. runs(script, "shut") .. " --data " .. root, 3,
                shut .. ": cannot open folder: Permission denied")
    has(said, "fix: read access for this user (chmod or chown, by its owner)")
    t.check(not said:find("fetch it again", 1, true), said)
    said = says(script .. " predict --weights $(ls -d " .. folder .. "/runs/" .. kind
                .. "/*/ | tail -1) --in " .. root .. " --out " .. folder .. "/shut", 3,
                "not predicted:\n")
    has(said, shut .. ": " .. LOCKED)
    -- a data set is refused; with skip_bad the folder is listed
    local text = t.read(script)
    for _, skip in ipairs { false, true } do
      local other = text:gsub(", skip_bad = true", "")
      other = skip and other:gsub("mask = (%b\"\") }", "mask = %1, skip_bad = true }") or other
      t.write(folder .. "/other.lua", other)
      says(runs(folder .. "/other.lua", "shut") .. " --data " .. root,
           skip and 0 or 3, skip and "left out: " .. shut .. ": " .. LOCKED or LOCKED)
    end
    says("inspect " .. shut, 3, LOCKED)
    shell("chmod -R 755 " .. shut .. " " .. closed)
  end
  -- files in a list of Lua, and one alone
  local pictures = folder .. "/pictures"
  shell("mkdir -p " .. pictures .. "/a " .. pictures .. "/b")
  for _, name in ipairs { "a/1", "a/2", "b/3" } do
    seg.array.save(pictures .. "/" .. name .. ".npy", pixels)
  end
  shell("chmod 000 " .. pictures .. "/b " .. pictures .. "/a/2.npy")
  local said = says("inspect " .. pictures, 3, pictures .. "/b: " .. LOCKED)
  has(said, 'data.npy { root = "' .. pictures .. '", rank = 2, patient = "file", '
            .. "skip_bad = true }")
  says("inspect " .. pictures .. "/a/2.npy", 3, "/a/2.npy: Permission denied; fix: read access")
  shell("chmod -R 755 " .. pictures)
end)

t.test("what a scan left out is always said in one order", function()
  local list, said = {}, {}
  for i, kind in ipairs { "no image", "damaged", "foreign", "no image", "damaged", "foreign",
                          "no image", "damaged" } do
    list[i] = { kind = kind, why = tostring(i) }
  end
  require("seg.data.leftovers").each(list, 1, function(damaged, text)
    said[#said + 1] = (damaged and "damaged " or "") .. text
  end)
  t.equal(table.concat(said, ", "), "1, damaged 2, 3, damaged 5, damaged 8, 1 more of these, "
          .. "2 more of these")
end)

t.test("doctor data has a row for each file at fault, and looks at the others", function()
  -- the images with masks of their own
  shell("mkdir " .. heads .. "/Z1")
  for _, bad in ipairs { "cut", "empty", "page" } do
    local mask = t.lines("ls " .. heads .. "/*/*brainmask.nii.gz")[1]
    local to = heads .. "/Z1/" .. bad
    shell(string.format("cp %s/%s_T1w.nii.gz %s_T1w.nii.gz && cp %s %s_T1w_brainmask.nii.gz", mixed,
                        bad, to, mask, to))
  end
  local said = t.says("doctor data " .. nifti .. " --data " .. heads .. " --out " .. folder
                      .. "/runs", 3, "cut_T1w.nii.gz: nifti: gzip data ends early")
  has(said, "empty_T1w.nii.gz: nifti: file is empty")
  has(said, "page_T1w.nii.gz: nifti: named .gz")
  shell("cp -r " .. series .. " " .. folder .. "/damaged")
  local path = folder .. "/damaged/patient_02/FLAIR"
  local last = t.lines("ls " .. path .. "/*")[4]
  t.write(last, t.read(last):sub(1, 700))
  t.write(path .. "/page.dcm", "<html></html>")
  said = t.says("doctor data " .. dicom .. " --data " .. folder .. "/damaged --out " .. folder
                .. "/runs", 3, last .. ": dicom: file ends inside")
  has(said, "note: left out: " .. path .. "/page.dcm: dicom: not DICOM")
  has(said, "3 cases, each with image, mask")
  -- and training continues with the other cases
  said = t.says(dicom .. " --threads 1 --data " .. folder .. "/damaged --out " .. folder
                .. "/again", 0, "done:")
  has(said, "1 left out, as it cannot be read")
end)

t.test("predict: NIfTI files, and what is at fault below the table", function()
  local out = folder .. "/out_nifti"
  local line = nifti .. " predict --weights " .. folder .. "/runs/nifti/001 --in " .. mixed
    .. " --out " .. out
  -- results of an earlier call for a case that fails are removed
  shell("mkdir " .. out .. " && cp " .. good[1] .. " " .. out .. "/cut.nii.gz")
  local said = t.says(line, 3, "4 of 7 cases predicted")
  t.says(line .. " --quiet", 3, "4 of 7 cases predicted")
  has(said, "not predicted:\n  cut: image: " .. mixed .. "/cut_T1w.nii.gz: nifti: gzip data "
      .. "ends early, at byte 200")
  has(said, "\n  empty: image: ")
  has(said, "\n  page: image: ")
  has(said, "warning: empty: not predicted: image: ")
  has(said, "note: --in: 4 folders with DICOM left out, as NIfTI is read here: p1, p2, p3, ...")
  has(said, "note: --in: 2 .npy files left out, as NIfTI is read here: more/damaged.npy, more/tab")
  has(said, "note: --in: 1 image left out, as NIfTI is read here: more/photo.png")
  t.equal(#t.lines("ls " .. out), 4, "files")
  for _, path in ipairs(t.lines("ls " .. out .. "/*")) do
    t.equal(tostring(core.data.read_nifti(path)):match("^%d+x%d+x%d+"), "16x16x4")
  end
  -- machine-readable
  local text = select(2, t.program(line .. " --quiet --json"))
  local v = json.decode(text:match "%b{}", "json") -- after warnings
  t.equal(v.exit_code, 3)
  t.check(text:find('"left_out": [', 1, true), "a list: " .. text)
  t.equal(#v.cases, 7)
  local by = {}
  for _, case in ipairs(v.cases) do by[case.case] = case end
  t.equal(by.cut.error.kind, "data")
  t.check(by.cut.error.text:find("ends early", 1, true) and not by.cut.outputs, text)
  local name = good[1]:match("([^/]+)_T1w%.nii%.gz$")
  t.equal(by[name].outputs[1], out .. "/" .. name .. ".nii.gz")
  t.equal(by[name].error, nil)
  t.equal(math.type(by[name].values.voxels), "integer")
  local left = {}
  for _, l in ipairs(v.left_out) do left[l.path] = l.kind .. " " .. l.text end
  t.equal(left[mixed .. "/more/photo.png"], "foreign " .. mixed .. "/more/photo.png: image, and "
          .. "NIfTI is read here")
  t.check(left[mixed .. "/p4"], "a folder with DICOM in " .. text)
  -- a file that is named directly is an error as before
  t.says(line:gsub("%-%-in %S+", "--in " .. mixed .. "/cut_T1w.nii.gz"), 3, "ends early")
  text = select(2, t.program(line:gsub("%-%-in %S+", "--in " .. mixed .. "/none")
                             .. " --quiet --json 2>/dev/null"))
  v = json.decode(text:match("^%b{}"), "json")
  t.equal(v.error.kind, "data")
  t.check(v.error.text:find("no such file", 1, true), text)
end)

t.test("predict: a value that is not finite wins over a file that is damaged", function()
  local said = t.says(nifti .. " predict --gain 1e38 --which none --weights " .. folder
                      .. "/runs/nifti/001 --in " .. mixed .. " --out " .. folder .. "/out_not", 5,
                      "not predicted:")
  has(said, "cut: image: ")
end)

t.test("predict: DICOM series, of which two lack a file", function()
  local out = folder .. "/out_dicom"
  local said = t.says(dicom .. " predict --weights " .. folder .. "/runs/dicom/001 --in " .. mixed
                      .. " --out " .. out, 3, "2 of 4 cases predicted")
  has(said, "\n  PHANTOM_003: image: " .. slices[2] .. ": dicom: file ends inside")
  has(said, "\n  PHANTOM_004: image: " .. mixed .. "/p4/IM0004.dcm: dicom: file is empty")
  has(said, "note: left out: " .. mixed .. "/p1/report.dcm: dicom: not DICOM")
  t.equal(table.concat(t.lines("ls " .. out .. " | grep nii"), " "),
          "PHANTOM_001.nii.gz PHANTOM_002.nii.gz")
  has(said, "note: --in: 7 NIfTI files left out, as DICOM is read here: ")
end)

t.test("predict says what the weights read, and what it was given instead", function()
  local place = folder .. "/given"
  shell("mkdir -p " .. place .. "/none " .. place .. "/texts")
  t.write(place .. "/texts/notes.txt", "text")
  t.write(place .. "/texts/shot.png", "\137PNG\r\n\26\n")
  for script, reads in pairs { [nifti] = "NIfTI, and take DICOM",
                               [dicom] = "DICOM, and take NIfTI" } do
    local name = script == nifti and "nifti" or "dicom"
    for input, said in pairs {
      none = "none is empty; fix: give the folder",
      texts = "texts: neither NIfTI nor DICOM images in it, and the weights need " .. reads
        .. "; there are notes.txt, shot.png; fix: give the folder with the images",
      ["texts/notes.txt"] = "notes.txt: this is neither NIfTI nor DICOM, and the weights need "
        .. reads .. "; fix: give such a file",
      ["texts/shot.png"] = "shot.png: this is a picture, and the weights need " .. reads } do
      t.says(script .. " predict --weights " .. folder .. "/runs/" .. name .. "/001 --in " .. place
             .. "/" .. input .. " --out " .. folder .. "/given_out", 3, said)
    end
  end
end)

t.test("predict names studies and files that are not called as in training", function()
  local some = folder .. "/some"
  shell(string.format("mkdir %s && cp -r %s/patient_01 %s/patient_02 %s", some, series, series,
                      some))
  shell("rm -r " .. some .. "/patient_02/FLAIR && cp " .. good[1] .. " " .. some .. "/a_T1w.nii.gz")
  shell("cp " .. good[1] .. " " .. some .. "/b_T2w.nii.gz")
  local out = " --out " .. folder .. "/some_out --json"
  local line = dicom .. " predict --weights " .. folder .. "/runs/dicom/001 --in " .. some .. out
  local mask = some .. "/patient_02/MASK"
  local said = t.says(line, 0, "--in: 1 study or patient left out, without the images that "
                      .. "training took: " .. mask)
  has(said, '"text": "' .. mask .. ": not all requested series were found; there are: MASK")
  said = t.says(nifti .. " predict --weights " .. folder .. "/runs/nifti/001 --in " .. some .. out,
                0, '--in: 1 of 2 NIfTI files are named as in training ("*_T1w"), left out: '
                .. "b_T2w.nii.gz; --image PATTERN takes others")
  has(said, '"path": "' .. some .. '/b_T2w.nii.gz"')
end)

remove()
t.finish()
