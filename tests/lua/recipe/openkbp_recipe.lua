-- openkbp_recipe.lua -- scripts/openkbp_unet3d.lua: synthetic patients from training to result
-- files of the challenge.

local t = dofile("tests/support/harness.lua")

local folder, remove = t.folder()
local script = "scripts/openkbp_unet3d.lua"
local synthetic = " --phantom " .. folder .. "/phantom --out " .. folder .. "/runs"

t.test("steps on the coarser grid of the preset quick", function()
  t.says(script .. " check --preset check --coarse 2 --steps_only" .. synthetic, 0, "losses of all")
end)

-- The number of input channels, from the weights of the first layer: 2 filters of 4^3.
local function channels(options)
  local said = t.says(script .. " plan --preset check" .. options, 0, "x1.conv1")
  local parameters = said:match("x1%.conv1%s+conv%s+%S+%s+%S+%s+([%d,]+)")
  return tonumber((parameters:gsub(",", ""))) // (2 * 4 ^ 3)
end

t.test("what the network sees is chosen", function()
  t.equal(channels "", 14) -- CT, ten structures, where there may be dose, prescription, beams
  t.equal(channels " --beams false", 13)
  t.equal(channels " --better false", 11)
end)

t.test("scores at the end, and files of the challenge", function()
  local said = t.says(script .. " --preset check --quiet" .. synthetic, 0, "dose_score")
  t.check(said:find("dvh_score", 1, true), said)
  -- a slice of each test patient, and histograms in three files
  local run = folder .. "/runs/openkbp_unet3d/001"
  local pictures = t.lines("ls " .. run .. "/overlays")
  t.check(#pictures > 0, "no pictures")
  t.equal(#pictures, 4 * #t.lines("sed 1d " .. run .. "/cases_test.csv"), "files of overlays/")
  local _, count = t.read(run .. "/report.html"):gsub('alt="dose%-volume histograms of case', "")
  t.equal(count, #pictures // 4, "histograms in the report")
  local patients = t.lines("ls -d " .. folder .. "/phantom/dose-6-*/pt_*")
  t.equal(#patients, 6, "patients")
  for _, tta in ipairs { "", " --tta h" } do
    local out = folder .. "/dose" .. #tta
    t.says(script .. " predict --in " .. patients[1] .. " --out " .. out .. tta
           .. " --weights " .. folder .. "/runs/openkbp_unet3d/001", 0, "pt_")
    local text = t.read(t.lines("ls " .. out .. "/*.csv")[1])
    t.check(text:find("^,data\n%d+,[%d.]+\n"), text:sub(1, 40))
  end
end)

remove()
t.finish()
