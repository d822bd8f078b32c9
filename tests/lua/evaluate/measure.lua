-- measure.lua -- tests of `segengine measure`: equal grids with other axes, labels that are nearly
-- whole, errors.

local t = dofile("tests/support/harness.lua")
local json = require "seg.json"
local folder, remove = t.folder()

local LAS = { -1, 0, 0, 3, 0, 1, 0, 0, 0, 0, 1, 0 } -- the same voxels with w reversed

local function put(name, voxels, rows)
  return t.nifti(folder .. "/" .. name .. ".nii", { 4, 2, 1 }, voxels, rows)
end

local function measure(found, truth)
  local code, text = t.program(string.format("measure --json %s %s", found, truth))
  t.equal(code, 0, text)
  return json.decode(text, "measure")
end

t.test("a mask that is stored the other way round is moved", function()
  local truth = put("truth", { 1, 1, 0, 0, 2, 2, 2, 0 })
  -- one voxel of label 1 is missing, and one of label 2 too many
  local found = put("found", { 1, 0, 0, 0, 2, 2, 2, 2 })
  local flipped = put("flipped", { 0, 0, 0, 1, 2, 2, 2, 2 }, LAS)
  for _, path in ipairs { found, flipped } do
    local m = measure(path, truth)
    t.near(m["1"].dice, 2 / 3, 1e-12)
    t.near(m["2"].dice, 6 / 7, 1e-12)
    t.near(m["1"].sensitivity, 1 / 2, 1e-12)
    t.near(m["2"].precision, 3 / 4, 1e-12)
    t.near(m["1"].hd95_mm, 0.95, 1e-12) -- between 0 and 1
  end
  -- the same numbers at another position are another grid
  local shifted = put("shifted", { 1, 0, 0, 0, 2, 2, 2, 2 }, { 1, 0, 0, 9, 0, 1, 0, 0, 0, 0, 1, 0 })
  t.says("measure " .. shifted .. " " .. truth, 3, "lie on different grids")
end)

t.test("labels that are nearly whole are these labels", function()
  local truth = put("truth", { 1, 1, 0, 0, 2, 2, 2, 0 })
  local near = put("near", { 0.9999, 0.9999999, 1e-4, 0, 2.0005, 1.9999, 2, 0 })
  local m = measure(near, truth)
  t.equal(m["1"].dice, 1)
  t.equal(m["2"].dice, 1)
  t.equal(m["0.9999"], nil)
end)

remove()
t.finish()
