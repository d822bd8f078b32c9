-- picture.lua -- curves and overlays as files, and made-up patients from Lua.

local t = dofile("tests/harness.lua")
local core = require "seg.core"
local picture = require "seg.picture"
local seg = require "seg"
local folder, remove = t.folder()

-- What lua/report/run.lua gives: column(name) -> numbers or false by epoch.
local function csv(columns)
  return { column = function(_, name) return columns[name] or {} end }
end

local function png_size(path)
  local text = t.read(path)
  t.equal(text:sub(1, 8), "\137PNG\r\n\26\n")
  return string.unpack(">I4I4", text, 17)
end

local recipe = { metrics = { dice = {} }, best = { "dice", "max" }, epochs = 9 }

t.test("progress draws every curve", function()
  picture.progress(folder, csv { train_loss = { 3, 2, 1 }, valid_loss = { 3, false, 2 },
                                 valid_dice = { 0.1, 0.5, 0.4 }, lr = { 1e-3, 1e-3, 1e-4 } },
                   recipe)
  local svg = t.read(folder .. "/progress.svg")
  for _, part in ipairs { "epoch 3 of 9", ">loss<", ">train<", ">valid<", ">valid dice<",
                          ">mean of 5<", ">learning rate<", "best 0.5000, epoch 2",
                          "</svg>" } do
    t.check(svg:find(part, 1, true), "%s is missing", part)
  end
  local w, h = png_size(folder .. "/progress.png")
  t.equal(w, 1350)
  t.check(h > 800)
end)

t.test("progress of one epoch, of nothing finite, without metrics", function()
  picture.progress(folder, csv { train_loss = { 1 }, valid_loss = { false }, lr = { 0 } },
                   { metrics = {}, epochs = 1 })
  t.check(not t.read(folder .. "/progress.svg"):find(">valid", 1, true))
  picture.progress(folder, csv { train_loss = { 0 / 0, 1 / 0 }, lr = { 1e-3, 1e-3 } }, recipe)
  local svg = t.read(folder .. "/progress.svg")
  t.check(not svg:find("nan", 1, true) and not svg:find("inf", 1, true))
  os.remove(folder .. "/progress.svg")
  picture.progress(folder, csv { train_loss = {} }, recipe)
  t.equal(core.sys.stat(folder .. "/progress.svg"), nil)
end)

t.test("a canvas refuses what it cannot draw", function()
  local p = core.picture.canvas(10, 10, 0)
  t.raises(function() core.picture.canvas(0, 10, 0) end, "width must be from 1")
  t.raises(function() p:line(0, 0, 1, 1, 1, 0x1000000) end, "color must be from 0")
  t.raises(function() p:gray(0, 0, 1, core.array.zeros { 5 }, 1, 0, 1) end, "2 axes or more")
  t.raises(function() p:gray(0, 0, 1, core.array.zeros { 2, 3, 4 }, 3, 0, 1) end,
           "plane must be from 1 to 2")
  t.raises(function() p:save(folder .. "/none/x.png") end, "none")
end)

t.test("overlap counts what Dice is made of", function()
  local a = core.array { shape = { 2, 2 }, data = { 1, 1, 0, 0 } }
  local b = core.array { shape = { 1, 1, 2, 2 }, data = { 1, 0.4, 0.6, 0 } }
  local in_a, in_b, both = core.picture.overlap(a, 1, b, 1)
  t.equal(in_a .. " " .. in_b .. " " .. both, "2 2 1")
end)

t.test("overlays of the worst, middle and best case", function()
  local set = seg.data.phantom { format = "nifti", patients = 4, size = 32, slices = 6,
                                 root = folder }
  local pipeline = set:normalize {}:slices {}:pipeline { threads = 1, seed = 1,
                                                         cache_bytes = 1 << 20 }
  local x = seg.nn.input("image", { c = 1, h = 32, w = 32 })
  local output = seg.nn.sigmoid(x)
  local function hash(key) return key:match("A%d+") end
  local run = { folder = folder, names = { "image", "mask" }, hash = hash,
                session = core.session { roots = { output }, device = "cpu", threads = 1,
                                         seed = 0 },
                recipe = { inputs = { x }, outputs = { mask = output }, metrics = { dice = {} },
                           best = { "dice", "max" } } }
  local result = { metrics = { dice = { cases = { 0.5, 0.6, 0.7, 0.8 } } } }
  picture.overlays(run, { pipeline = pipeline }, { 1, 2, 3, 4 }, "test", result)
  local names = core.sys.list(folder .. "/overlays")
  t.equal(#names, 3) -- worst, second worst (also the middle), best
  local w = png_size(folder .. "/overlays/" .. names[1])
  t.equal(w, 3 * 320 + 4 * 12)
  -- without a mask there is nothing to compare with
  run.names, run.folder = { "image" }, folder .. "/other"
  picture.overlays(run, { pipeline = pipeline }, { 1 }, "test")
  t.equal(core.sys.stat(folder .. "/other/overlays"), nil)
end)

t.test("made-up patients: options are checked, folders told apart", function()
  t.raises(function() seg.data.phantom { size = 4 } end, "size must be from 16")
  t.raises(function() seg.data.phantom { format = "png" } end, 'format must be "dicom"')
  t.raises(function() seg.data.phantom { patient = 4 } end, 'unknown option "patient"')
  t.raises(function() seg.data.phantom { root = 5 } end, "root must be a folder")
  local function name(o) return core.data.phantom_name(o) end
  t.check(name { seed = 1 } ~= name { seed = 2 })
  t.equal(name { threads = 1 }, name { threads = 2 })
end)

remove()
t.finish()
