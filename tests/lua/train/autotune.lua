-- autotune.lua -- --autotune without a GPU, and the choice of tiles from times.
-- tests/cuda/training.sh tests it on an emulated GPU.

local t = dofile("tests/support/harness.lua")
local autotune = require "seg.train.autotune"
local folder, remove = t.folder()

local line = "scripts/brain_unet.lua"
local places = " --preset check --epochs 2 --phantom " .. folder .. "/phantom --out " .. folder
  .. "/"

t.test("of tiles the fastest, where one wins more than noise", function()
  local function ms(forward, backward) return { forward = forward, backward = backward } end
  local own = ms({ a = 10, b = 10, c = 1 }, { a = 5, b = 5 })
  local with = { x = ms({ a = 9, b = 9.8, c = 0.9 }, { a = 4, b = 5 }),
                 y = ms({ a = 8, b = 9.9, c = 1.1 }, { a = 4.5, b = 4 }) }
  local text, count = autotune.tiles({ "a", "b", "c" }, own, with)
  t.equal(text, "a=y/x,b=-/y,c=x/-") -- c has no way back
  t.equal(count, 3)
  text, count = autotune.tiles({ "a", "b" }, own, { x = own })
  t.equal(text .. count, "0")
end)

t.test("what leaves nothing to choose", function()
  local refused = "--autotune measures the tiles of matrix products on a GPU, and the device here, "
  local fix = ", has no tiles; leave it out, or give --device cuda"
  t.says(line .. places .. "none --device cpu --autotune", 2, refused .. "cpu" .. fix)
  t.says(line .. places .. "none --device cpu --ranks 2 --autotune", 2, refused .. "cpu" .. fix)
  t.equal(#t.lines("ls -d " .. folder .. "/none 2> /dev/null"), 0, "folders of refused runs")
  local bench = line .. " bench --preset check --autotune"
  t.says(bench .. " --device cpu", 2, refused .. "cpu" .. fix)
  t.says(bench .. " --device ref", 2, refused .. "ref" .. fix)
  t.says(bench .. " --device cpu --precision bf16", 2, refused .. "cpu" .. fix)
  for _, command in ipairs { "plan", "check", "evaluate" } do
    t.says(line .. " " .. command .. " --preset check --autotune", 2,
           "--autotune is not for " .. command .. ", but for train and bench")
  end
end)

t.test("a recipe that says autotune = true runs on a CPU, with a note", function()
  local text, count = t.read(line):gsub("seg%.config {", "%0 autotune = true,")
  t.equal(count, 1)
  local tuned = t.write(folder .. "/brain_unet.lua", text)
  local note = "autotune: nothing to choose on cpu, which has no tiles\n"
  t.says(tuned .. places .. "tuned --device cpu", 0, note)
  t.says(tuned .. " bench --preset check --device cpu", 0, note)
  t.says(tuned .. " plan --preset check", 0, "training")
  local run = folder .. "/tuned/brain_unet/001"
  t.check(("\n" .. t.read(run .. "/config.txt")):find("\nautotune = true\n", 1, true))
  t.says(tuned .. " --resume " .. run .. " --epochs 3", 0,
         "autotune: a resumed run keeps its tiles\n")
  t.says(tuned .. " --resume " .. run .. " --epochs 3 --device cpu --autotune", 2,
         "--autotune measures the tiles of matrix products on a GPU")
end)

remove()
t.finish()
