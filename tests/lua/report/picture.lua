-- picture.lua -- curves and overlays as files, and synthetic patients from Lua.

local t = dofile("tests/support/harness.lua")
local core = require "seg.core"
local picture = require "seg.report.picture"
local seg = require "seg"
local folder, remove = t.folder()

-- A stand-in for lua/report/run.lua: column(name) -> numbers or false by epoch.
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

-- Maps of 1 x 3 pixels: the outlines of each class.
t.test("one outline a class, whatever the channels are", function()
  local outlines = require "seg.report.outlines"
  local function array(shape, data) return core.array { shape = shape, data = data } end
  local function shown(classes)
    local list = {}
    for c, class in ipairs(classes) do
      local found, truth, row = class.found, class.truth, {}
      for x = 1, 3 do
        -- plane number k of an array: all axes before the last two count planes
        local function at(a, k)
          local shape = a.shape
          if #shape == 2 then return a:get(1, x) end
          local d = shape[3]
          if #shape == 5 then return a:get(1, (k - 1) // d + 1, (k - 1) % d + 1, 1, x) end
          return a:get(1, k, 1, x)
        end
        row[x] = string.format("%d%d", at(found, class.found_plane) > 0.5 and 1 or 0,
                               at(truth, class.truth_plane) > 0.5 and 1 or 0)
      end
      list[c] = table.concat(row, " ")
    end
    return table.concat(list, ", ")
  end
  -- predicted and true at each pixel
  t.equal(shown(outlines.classes(array({ 1, 1, 1, 3 }, { 0.9, 0.2, 0.6 }),
                                 array({ 1, 1, 1, 3 }, { 1, 1, 0 }), 1, "sigmoid")), "11 01 10")
  local softmax = array({ 1, 3, 1, 3 }, { 0.8, 0.1, 0.2, 0.1, 0.7, 0.2, 0.1, 0.2, 0.6 })
  t.equal(shown(outlines.classes(softmax, array({ 1, 1, 1, 3 }, { 2, 1, 1 }), 1, "softmax")),
          "00 11 01, 01 00 10")
  -- a target with one channel a class, the first the background
  t.equal(shown(outlines.classes(softmax, array({ 1, 3, 1, 3 }, { 0, 0, 0, 0, 1, 1, 1, 0, 0 }), 1,
                                 "softmax")), "00 11 01, 01 00 10")
  -- structures that may overlap
  t.equal(shown(outlines.classes(array({ 1, 2, 1, 3 }, { 0.9, 0.9, 0, 0.9, 0, 0.9 }),
                                 array({ 1, 2, 1, 3 }, { 1, 0, 0, 1, 1, 1 }), 1, "sigmoid")),
          "11 10 00, 11 01 11")
  -- the second plane of volumes of two planes
  local two = { 1, 2, 2, 1, 3 }
  t.equal(shown(outlines.classes(array(two, { 0, 0, 0, 0.9, 0.9, 0, 0, 0, 0, 0, 0.9, 0.9 }),
                                 array(two, { 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1 }), 2,
                                 "sigmoid")), "11 10 00, 00 10 11")
end)

-- Lightness and hue differ for every pair: the colours can be told apart by people who lack one of
-- the three cones, in the model of Vienot, Brettel and Mollon (1999).
t.test("colours of classes are told apart without red or green", function()
  local outlines = require "seg.report.outlines"
  local function linear(color, shift)
    local v = (color >> shift & 255) / 255
    return v <= 0.04045 and v / 12.92 or ((v + 0.055) / 1.055) ^ 2.4
  end
  local function seen(color) -- without M cones red and green are one number
    local r, g, b = linear(color, 16), linear(color, 8), linear(color, 0)
    return { (0.29275 * r + 0.70725 * g) ^ (1 / 2.2), math.max(0, -0.02234 * r + 0.02234 * g + b)
             ^ (1 / 2.2) }
  end
  for i = 1, 6 do
    for k = i + 1, 6 do
      local a, b = seen(outlines.colors[i]), seen(outlines.colors[k])
      t.check(math.abs(a[1] - b[1]) + math.abs(a[2] - b[2]) > 0.12, "colours %d and %d", i, k)
    end
  end
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

t.test("synthetic patients: options are checked, folders told apart", function()
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
