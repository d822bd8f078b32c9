-- openkbp_recipe.lua -- scripts/openkbp_unet3d.lua: counts of the report, made-up patients
-- from training to files of the challenge.

local t = dofile("tests/harness.lua")

local folder, remove = t.folder()
local script = "scripts/openkbp_unet3d.lua"
local made_up = " --phantom " .. folder .. "/phantom --out " .. folder .. "/runs"

t.test("the generator has as many parameters as the challenge's", function()
  for filters, count in pairs { [32] = "29,261,569", [64] = "116,981,249",
                                [128] = "467,794,945" } do
    t.says(script .. " plan --preset full --data nowhere --filters " .. filters, 0, " = " .. count)
  end
  t.says(script .. " plan --data nowhere", 0, " = 116,981,249")
end)

t.test("20 steps of the demo learn", function()
  local said = t.says(script .. " --preset demo --filters 4 --patients 6 --steps 20" .. made_up, 0,
                      "stopped after 20 steps")
  local scores = {}
  for score in said:gmatch("dose_score ([%d.]+)") do scores[#scores + 1] = tonumber(score) end
  t.check(#scores >= 2 and scores[#scores] < scores[1], said)
end)

t.test("every node, and steps, on the processor", function()
  t.says(script .. " check --preset check" .. made_up, 0, "dvh_loss1")
  -- the network of the preset quick, whose grid is coarser
  t.says(script .. " check --preset check --coarse 2 --steps_only" .. made_up, 0, "losses of all")
end)

t.test("scores at the end, and files of the challenge", function()
  local said = t.says(script .. " --preset check --quiet" .. made_up, 0, "dose_score")
  t.check(said:find("dvh_score", 1, true), said)
  local patients = t.lines("ls -d " .. folder .. "/phantom/dose-6-*/pt_*")
  t.equal(#patients, 6, "patients")
  for _, tta in ipairs { "", " --tta h" } do
    local out = folder .. "/dose" .. #tta
    t.says(script .. " predict --in " .. patients[1] .. " --out " .. out .. tta
           .. " --weights " .. folder .. "/runs/openkbp_unet3d/002", 0, "pt_")
    local text = t.read(t.lines("ls " .. out .. "/*.csv")[1])
    t.check(text:find("^,data\n%d+,[%d.]+\n"), text:sub(1, 40))
  end
end)

remove()
t.finish()
