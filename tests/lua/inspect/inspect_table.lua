-- inspect_table.lua -- inspect of tables, OpenKBP and BIWI.

local t = dofile("tests/support/harness.lua")
local folder, remove = t.folder()

local function inspect(name, code, part)
  return t.says("inspect " .. folder .. "/" .. name, code, part)
end

t.test("a table prints its columns", function()
  t.write(folder .. "/labels.csv", "path,yaw,pitch,n,note\n\"a, b.png\",-12.5,3,1,\nc.png,40,,2,\n")
  local text = inspect("labels.csv", 0, "2 rows, 5 columns, separated by commas\n")
  for _, line in ipairs { "\npath +text *\n", "\nyaw +number +-12.5 .. 40 *\n",
                          "\npitch +whole +3 .. 3 +1\n", "\nn +whole +1 .. 2 *\n",
                          "\nnote +empty +2\n" } do
    t.check(text:find(line), "%s\n%s", line, text)
  end
  -- other separators, by the header; decimal commas are not numbers
  t.write(folder .. "/other.csv", "path;yaw\r\nx;1,5\r\n")
  text = inspect("other.csv", 0, "1 rows, 2 columns, separated by semicolons\n")
  t.check(text:find("\nyaw +text *\n"), text)
  t.write(folder .. "/other.tsv", "path\tyaw\nx\t1.5\n")
  inspect("other.tsv", 0, "1 rows, 2 columns, separated by tabs\n")
end)

t.test("a table that is damaged is named", function()
  t.write(folder .. "/ragged.csv", "a,b\n1,2\n3\n")
  inspect("ragged.csv", 3, "ragged.csv: csv: row 3: 1 fields, the header has 2")
  t.write(folder .. "/empty.csv", "")
  inspect("empty.csv", 3, "empty.csv: csv: file is empty")
  inspect("none.csv", 3, "none.csv: there is no such file or folder")
end)

t.test("arrays of one shape beside a table get a line", function()
  local seg = require "seg"
  os.execute("mkdir -p " .. folder .. "/arrays")
  for _, shape in ipairs { { 4, 4 }, { 2, 4, 4 } } do
    for i = 1, 2 do
      seg.array.save(string.format("%s/arrays/%d.npy", folder, i), seg.array { shape = shape })
    end
    t.write(folder .. "/arrays/labels.csv", "path,patient,age\n1.npy,a,61\n2.npy,b,\n")
    -- a column with an empty cell is not numeric
    inspect("arrays", 0, 'data.csv { root = "' .. folder .. '/arrays", table = "labels.csv", '
            .. 'patient = "file", fields = { { name = "x", read = "npy", rank = ' .. #shape
            .. ', column = "path" } } }')
    t.write(folder .. "/arrays/labels.csv", "path,age\n1.npy,61\n2.npy,62\n")
    inspect("arrays", 0, '{ name = "numbers", kind = "numbers", columns = { "age" } } } }')
  end
end)

-- A patient with a few voxels.
local function patient(name)
  local path = folder .. "/pats/" .. name
  os.execute("mkdir -p " .. path)
  t.write(path .. "/ct.csv", ",data\n0,1000.0\n16514,4095.0\n")
  t.write(path .. "/dose.csv", ",data\n16514,70.25\n")
  t.write(path .. "/possible_dose_mask.csv", ",data\n16513,\n16514,\n")
  t.write(path .. "/voxel_dimensions.csv", "4.0\n4.0\n2.5\n")
  t.write(path .. "/PTV70.csv", ",data\n16514,\n")
  return path
end

t.test("an OpenKBP patient prints its grids", function()
  patient("pt_1")
  local text = inspect("pats/pt_1/", 0, "OpenKBP patient, 128x128x128, 4x4x2.5 mm, axes ILP, ")
  for _, line in ipairs { "\nct +2 +0.1 +1000 .. 4095\n", "\ndose +1 +0.0 +70.25 .. 70.25\n",
                          "\npossible_dose_mask +2 +0.1 *\n", "\nLarynx +absent *\n",
                          "\nPTV70 +1 +0.0 *\n" } do
    t.check(text:find(line), "%s\n%s", line, text)
  end
  inspect("pats/pt_1/dose.csv", 0,
          "OpenKBP values, 1 of 128x128x128 voxels, 70.25 .. 70.25, mean 70.25\n")
  inspect("pats/pt_1/PTV70.csv", 0, "OpenKBP mask, 1 of 128x128x128 voxels\n")
end)

t.test("and a folder of patients each of them", function()
  os.remove(patient("pt_2") .. "/dose.csv")
  t.write(patient("pt_3") .. "/ct.csv", ",data\n0,1\n0,2\n")
  local text = inspect("pats", 0, "3 OpenKBP patients\n")
  t.check(text:find("\npt_1 +4x4x2.5 mm +2 +70.25 .. 70.25 +1\n"), text)
  t.check(text:find("\npt_2 +4x4x2.5 mm +2 +absent +1\n"), text)
  t.check(text:find("\npt_3 +damaged *\n"), text)
  t.check(text:find("damaged: " .. folder .. "/pats/pt_3/ct.csv: openkbp: row 3: voxel 0 for the "
                    .. "second time", 1, true), text)
  t.write(folder .. "/pats/pt_1/PTV_70.csv", ",data\n")
  inspect("pats/pt_1", 3, "pt_1: openkbp: PTV_70.csv is not a file of a patient; there are ct, "
          .. "dose")
end)

t.test("the mark that Windows puts in front of UTF-8 is passed over", function()
  local mark = "\u{feff}"
  local path = patient("pt_4")
  for _, name in ipairs { "ct", "dose", "voxel_dimensions" } do
    t.write(path .. "/" .. name .. ".csv", mark .. t.read(path .. "/" .. name .. ".csv"))
  end
  t.write(path .. "/~$ct.csv", "lock of a spreadsheet")
  inspect("pats/pt_4", 0, "128x128x128, 4x4x2.5 mm")
  t.write(folder .. "/frame_00004_pose.txt", mark .. "1 0 0 \n0 0 -1 \n0 1 0 \n\n1 2 3\n")
  inspect("frame_00004_pose.txt", 0, "pitch -90.00, roll 0.00 degrees")
  t.write(folder .. "/script.lua", mark .. "#!/usr/bin/env segengine\nprint(arg[1])")
  t.says(folder .. "/script.lua read", 0, "read\n")
end)

t.test("BIWI frames", function()
  t.write(folder .. "/frame_00003_pose.txt",
          "1 0 0 \n0 0 -1 \n0 1 0 \n\n118.871 56.4157 934.667 \n\n")
  inspect("frame_00003_pose.txt", 0, "BIWI pose: yaw ")
  inspect("frame_00003_pose.txt", 0, ", pitch -90.00, roll 0.00 degrees")
  inspect("frame_00003_pose.txt", 0, "centre of the head 118.9 56.4 934.7 mm\n")
  t.write(folder .. "/depth.cal", "500 0 320\n0 501 240\n0 0 1\n\n0 0 0 0\n\n1 0 0\n0 1 0\n0 0 1\n"
          .. "\n1 2 3\n\n640 480\n")
  inspect("depth.cal", 0, "BIWI camera of 640x480 pixels: focal length 500 501, centre 320 240 ")
  inspect("depth.cal", 0, "4 distortion coefficients, translation 1 2 3 mm\n")
  t.write(folder .. "/frame_00003_depth.bin",
          string.pack("<i4i4i4i4i2i2", 2, 2, 2, 2, 900, 950))
  local text = inspect("frame_00003_depth.bin", 0, "2x2x1, ")
  t.check(text:find("I16, 4 voxels, 0 .. 950, mean 462.5", 1, true), text)
  t.write(folder .. "/cut_depth.bin", string.pack("<i4i4i4", 2, 2, 2))
  inspect("cut_depth.bin", 3, "cut_depth.bin: biwi: file ends inside run 1 at byte 12, 0 of 4 ")
end)

remove()
t.finish()
