-- inspect.lua -- inspect of folders without images, of runs, of prepared cases, and of one slice of
-- a series.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local folder, remove = t.folder()

local function phantom(patients)
  local root = folder .. "/phantom"
  seg.data.phantom { patients = patients, size = 16, slices = 8, root = root }:dataset()
  return t.lines("ls -d " .. root .. "/*")[1]
end

t.test("folders without images say what they hold", function()
  local empty = folder .. "/empty"
  os.execute("mkdir -p " .. empty .. "/below")
  local text = t.says("inspect " .. empty, 3, empty .. ": is empty")
  t.check(not text:find("DICOM", 1, true), text)
  t.write(empty .. "/below/notes.txt", "nothing")
  t.write(empty .. "/below/more.txt", "nothing")
  t.write(empty .. "/README", "nothing")
  t.says("inspect " .. empty, 3, "3 files (2 .txt, 1 without an ending), none of them an image or "
         .. "table that segengine reads")
end)

t.test("files that are right but no image of one number a voxel are not called damaged", function()
  local root = folder .. "/mixed"
  os.execute("mkdir -p " .. root)
  t.nifti(root .. "/IMAGE.NII", { 2, 2, 1 }, { 1, 2, 3, 4 })
  t.nifti(root .. "/warp.nii", { 2, 2, 1 }, { 1, 2, 3, 4 }, nil, nil, 1007)
  t.nifti(root .. "/nowhere.nii", { 2, 2, 1 }, { 1, 2, 3, 4 }, nil, { 0, 0 })
  t.write(root .. "/cut.nii", t.read(root .. "/warp.nii"):sub(1, 300))
  local text = t.says("inspect " .. root, 3, "4 NIfTI files")
  for _, line in ipairs { "IMAGE.NII +2x2x1, 1x1x1 mm", "warp.nii +not read: .*intent code 1007",
                          "nowhere.nii +not read: .*no orientation", "cut.nii +damaged: " } do
    t.check(text:find(line), "%s in %s", line, text)
  end
  t.says("inspect " .. root .. "/IMAGE.NII", 0, "2x2x1, 1x1x1 mm")
  -- both files of a pair open the whole image
  local whole = t.read(root .. "/IMAGE.NII")
  t.write(root .. "/pair.hdr", whole:sub(1, 108) .. string.pack("<f", 0) .. whole:sub(113, 344)
          .. "ni1\0")
  t.write(root .. "/pair.img", whole:sub(353))
  for _, ending in ipairs { "hdr", "img" } do
    t.says("inspect " .. root .. "/pair." .. ending, 0, "F32, 4 voxels, 1 .. 4")
  end
  os.remove(root .. "/pair.hdr")
  t.says("inspect " .. root .. "/pair.img", 3, "the image of a pair whose header (.hdr next to it) "
         .. "is missing, which is not read; fix: put both files there")
end)

-- Truncated files with complete headers: found without decompressing uncompressed files.
t.test("files that were cut are damaged though their headers are whole", function()
  local root = folder .. "/cut"
  os.execute("mkdir -p " .. root .. "/whole")
  local voxels = {}
  for i = 1, 512 do voxels[i] = i * 7919 % 1009 end
  t.nifti(root .. "/whole/a.nii", { 8, 8, 8 }, voxels)
  os.execute("gzip -c " .. root .. "/whole/a.nii > " .. root .. "/whole/b.nii.gz")
  -- with several gzip members the size at the end is that of the last one only
  local whole = t.read(root .. "/whole/a.nii")
  for i, part in ipairs { whole:sub(1, 1000), whole:sub(1001) } do
    t.write(root .. "/part", part)
    os.execute("gzip -c " .. root .. "/part " .. (i == 1 and "> " or ">> ") .. root
               .. "/whole/members.nii.gz")
  end
  os.remove(root .. "/part")
  seg.array.save(root .. "/whole/c.npy", seg.array { shape = { 16, 16 } })
  os.execute("cp docs/images/hippocampus_worst.png " .. root .. "/whole/d.png")
  t.says("inspect " .. root .. "/whole", 0, "3 NIfTI files")
  for _, path in ipairs(t.lines("ls " .. root .. "/whole/*")) do
    local bytes = t.read(path)
    t.write(path:gsub("/whole/", "/cut_"), bytes:sub(1, #bytes - 40))
  end
  t.write(root .. "/cut_longer.nii", whole .. "more")
  local text = t.says("inspect " .. root, 3, "skip_bad = true }")
  for _, line in ipairs(t.lines("ls " .. root .. "/cut_*")) do
    local name = line:match("[^/]+$"):gsub("%p", "%%%0")
    t.check(text:find("\n" .. name .. " +damaged: ") or text:find("^" .. name .. " +damaged: "),
            "%s in %s", name, text)
  end
end)

t.test("one blank slice of a series is a fact and no error", function()
  local root = phantom(1)
  local blank, slices = 0, t.lines("ls " .. root .. "/*/MASK/*")
  for _, path in ipairs(slices) do
    local text = t.says("inspect " .. path, 0, "MASK")
    if text:find(path .. ": all 256 voxels are 0: a slice without content; one in a volume is "
                 .. "fine", 1, true) then
      blank = blank + 1
    end
  end
  t.check(blank > 1 and blank < #slices, "%d of %d are blank", blank, #slices)
end)

t.test("runs and prepared cases", function()
  local function train(more, code)
    return t.says("scripts/brain_unet.lua --phantom " .. folder .. "/made --preset check --out "
                  .. folder .. "/runs --quiet " .. more, code or 0, "")
  end
  train("--epochs 2 --cache_file " .. folder .. "/prepared.cases")
  train("--steps 1")
  local run = folder .. "/runs/brain_unet/001"
  local text = t.says("inspect " .. run, 0, "\nepochs      2 of 2\n")
  local best = text:match("\nbest +dice (%S+), epoch %d\n")
  t.check(best, text)
  local mean, n = text:match("\nresult +test dice (%d%.%d+) %(n (%d+)%)[,\n]")
  t.check(mean, text)
  t.check(t.read(run .. "/summary.json"):find('"mean": 0%.%d+'), "no summary")
  t.equal(t.lines("grep -c ',test,' " .. run .. "/cases.csv")[1], n)
  for _, path in ipairs { folder .. "/runs", folder .. "/runs/brain_unet" } do
    text = t.says("inspect " .. path, 0, "2 runs; inspect one of them")
    t.check(text:find("001 +brain_unet +training +2 of 2 +dice %d.%d+, epoch %d +test dice "), text)
    t.check(text:find("dice " .. best .. ", epoch", 1, true), text)
    t.check(text:find("test dice " .. mean, 1, true), text)
    t.check(text:find("002 +brain_unet +training +0 of %d+ +%- +not finished"), text)
    t.check(not text:find("data.images", 1, true), text)
  end
  -- a bundle is recognized by its contents, as the tutorial names it tumours.bundle
  local bundle = folder .. "/tumours.bundle"
  t.says("scripts/brain_unet.lua export --preset check --phantom " .. folder .. "/made --out "
         .. folder .. "/runs --weights " .. run .. " --bundle " .. bundle, 0, "")
  t.says("inspect " .. bundle, 0, "\nreads       dicom FLAIR, for image\n")
  t.says("inspect " .. run .. "/checkpoint_best.safetensors", 0, "\nrecipe      brain_unet\n")
  local cases = tonumber(t.lines("wc -l < " .. run .. "/cases.csv")[1]) - 1
  text = t.says("inspect " .. folder .. "/prepared.cases", 0,
                "prepared cases of --cache_file: " .. cases .. ", ")
  t.check(not text:find("another version", 1, true), text)
  -- inspect changes nothing, even when the next run would begin the file anew
  local bytes = t.read(folder .. "/prepared.cases")
  local old = bytes:sub(1, 12) .. "\99" .. bytes:sub(14)
  t.write(folder .. "/prepared.cases", old)
  t.says("inspect " .. folder .. "/prepared.cases", 0, "of another version of segengine, or dam")
  t.check(t.read(folder .. "/prepared.cases") == old, "inspect wrote to it")
end)

remove()
t.finish()
