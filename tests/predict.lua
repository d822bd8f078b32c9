-- predict.lua -- what comes out lies where what went in lay, and is the same
-- as what training measured.

local t = dofile("tests/harness.lua")
local folder, remove = t.folder()

local function run(arguments)
  local code, text = t.program(arguments)
  if code ~= 0 then error(arguments .. ": exit code " .. code .. ": " .. text, 2) end
  return text
end

-- The lines of a command's output.
local function lines(command)
  local pipe, out = io.popen(command), {}
  for line in pipe:lines() do out[#out + 1] = line end
  pipe:close()
  return out
end

local function recipe(name, command, more)
  return string.format("scripts/%s.lua %s --preset check --phantom %s/phantom --out %s/%s", name,
                       command, folder, folder, more or "runs")
end

-- Size, spacing, axes and origin as inspect prints them.
local function geometry(path)
  return run("inspect " .. path):match("^[^\n]+")
end

t.test("NIfTI in, NIfTI out on the same grid", function()
  run(recipe("nfbs_unet", "train"))
  local images = lines("find " .. folder .. "/phantom -name '*_T1w.nii.gz' | sort")
  t.check(#images > 2, "phantom images")
  for i, image in ipairs { images[1], images[2] } do
    local out = folder .. "/one" .. i
    run("scripts/nfbs_unet.lua predict --preset check --weights " .. folder
      .. "/runs/nfbs_unet/001/checkpoint_best.safetensors --in " .. image .. " --out " .. out)
    local made = lines("ls " .. out .. "/*.nii.gz")
    t.equal(#made, 1, "files made")
    t.equal(geometry(made[1]), geometry(image), "grid of the prediction")
  end
end)

t.test("DICOM in, SEG and NIfTI out for each patient", function()
  run(recipe("brain_unet", "train"))
  local data = lines("ls -d " .. folder .. "/phantom/flair-*")[1]
  local out = folder .. "/dicom"
  run("scripts/brain_unet.lua predict --preset check --image FLAIR --weights " .. folder
    .. "/runs/brain_unet/001/checkpoint_best.safetensors --in " .. data .. " --out " .. out)
  t.equal(#lines("ls " .. out .. "/*.nii.gz"), 6, "NIfTI files")
  t.equal(#lines("ls " .. out .. "/*.dcm"), 6, "SEG files")
  local text = run("inspect " .. lines("ls " .. out .. "/*.dcm")[1])
  t.check(text:find("SEG", 1, true), text)
  if #lines("command -v dciodvfy") == 0 then t.skip("dciodvfy (dicom3tools) is missing") end
  for _, seg in ipairs(lines("ls " .. out .. "/*.dcm")) do
    for _, line in ipairs(lines("dciodvfy " .. seg .. " 2>&1")) do
      t.check(not line:match("^Error"), "%s: %s", seg, line)
    end
  end
end)

t.test("evaluate gives what training measured", function()
  local summary = io.open(folder .. "/runs/brain_unet/001/summary.json"):read("a")
  local measured = summary:match('"test".-"dice": {.-"mean": ([%d.e-]+)')
  local text = run(recipe("brain_unet", "evaluate") .. " --split test --json")
  t.equal(text:match('"dice": {.-"mean": ([%d.e-]+)'), measured, "dice of the test set")
end)

t.test("weights know the numbers they were trained with", function()
  local weights = " --weights " .. folder .. "/runs/brain_unet/001/checkpoint_best.safetensors"
  local data = lines("ls -d " .. folder .. "/phantom/flair-*")[1]
  -- no preset, no --base, no --size: the network is that of the weights
  run("scripts/brain_unet.lua predict --in " .. data .. " --out " .. folder .. "/known" .. weights)
  t.equal(#lines("ls " .. folder .. "/known/*.dcm"), 6, "SEG files")
end)

t.test("weights of another network are refused with both lists", function()
  local code, text = t.program("scripts/brain_unet.lua predict --preset check --base 8 --weights "
    .. folder .. "/runs/brain_unet/001/checkpoint_best.safetensors --in x --out " .. folder .. "/y")
  t.equal(code, 3, "exit code")
  local part = "bottom.conv1.weight (64,32,3,3) instead of (128,64,3,3)"
  t.check(text:find(part, 1, true), text)
end)

remove()
t.finish()
