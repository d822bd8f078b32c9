-- gallery.lua -- pictures of each augmentation: a sheet for each row of steps.def with the
-- unchanged sample and eight draws, and the outline of the mask.
--
--     segengine tests/lua/gallery.lua [FOLDER]        (make gallery)
--
-- As a test it checks that every row has a sheet, and changes the sample.

local t = dofile("tests/support/harness.lua")
local core = require "seg.core"
local seg = require "seg"
local data = seg.data
local scratch, remove = t.folder()
local folder = arg and arg[1] or scratch .. "/gallery"
core.sys.mkdir(folder)

local PANELS, GAP, HEAD = 9, 8, 34
local INK, PAPER, MASK = 0xd7dbe0, 0x16181c, 0x35e06a

-- Strong enough to be visible, in every draw.
local rows = {
  flip = { axis = "hw", p = 0.7 },
  affine = { p = 1, rotate = { -30, 30 }, scale = { 0.8, 1.2 }, shear = { -15, 15 } },
  elastic = { p = 1, spacing = 12, amplitude = { 3, 4.8 } },
  timeshift = { p = 1, most = 20 },
  jitter = { brightness = 0.4, contrast = 0.4, saturation = 0.6, hue = 0.2 },
  bias = { p = 1, by = 0.5 },
  contrast = { range = { 0.4, 1.8 } },
  brightness = { by = 0.8 },
  gamma = { p = 1, range = { 0.4, 2.5 } },
  blur = { p = 1, sigma = { 0.5, 2.5 } },
  lowres = { p = 1, factor = { 0.15, 0.6 } },
  rician = { p = 1, sigma = 0.25 },
  noise = { p = 1, sigma = 0.3 },
  cutout = { p = 1, boxes = 2, size = { 0.1, 0.35 } },
  timemask = { p = 1, spans = 3, most = 12, fill = "mean" },
  bands = { p = 1, stretch = 0.3, shift = 4, tilt = 0.5, most = 6 },
  vary = function(sample, rng) -- darker towards one side
    local x, most = sample.image, rng:uniform(0.3, 1)
    local low = x:min()
    for h = 1, x.h do
      for w = 1, x.w do
        x:set(1, h, w, low + (x:get(1, h, w) - low) * (1 - most * w / x.w))
      end
    end
  end,
}

-- Slices of a synthetic head with a mask.
local function heads()
  return data.phantom { format = "nifti", patients = 1, size = 96, slices = 12,
                        root = scratch .. "/phantom" }:normalize {}:slices {}
end

-- 60 steps of 24 numbers, then padding.
local function sequences()
  local a = seg.array { shape = { 60, 24 } }
  for w = 1, 60 do
    for c = 1, 24 do a:set(math.sin(0.2 * w + 0.3 * c) + 1.5 * math.cos(0.05 * w * c), w, c) end
  end
  seg.array.save(scratch .. "/s.npy", a)
  return data.cases {
    fields = { { name = "x", read = "npy", rank = 1 }, { name = "length", kind = "length" } },
    cases = { { key = "s", patient = "p", x = scratch .. "/s.npy" } },
  }:fit { w = 72, at = "start" }
end

-- A colour wheel.
local function colours()
  local n = 48
  local a = seg.array { shape = { n, n, 3 } }
  for y = 1, n do
    for x = 1, n do
      local u, v = (x - 0.5) / n * 2 - 1, (y - 0.5) / n * 2 - 1
      local angle, far = math.atan(v, u), math.sqrt(u * u + v * v)
      for c = 1, 3 do
        local wave = 0.5 + 0.5 * math.cos(angle - 2 * math.pi * (c - 1) / 3)
        a:set(far < 0.9 and 0.45 + 0.8 * math.min(far, 1) * (wave - 0.45) or 0.3, y, x, c)
      end
    end
  end
  seg.array.save(scratch .. "/c.npy", a)
  return data.cases {
    fields = { { name = "x", read = "npy", rank = 2 } },
    cases = { { key = "c", patient = "p", x = scratch .. "/c.npy" } },
  }
end

-- The arrays of the fields of sample `number`, for `count` epochs from 0; `augmented`: with
-- augmentation.
local function draws(set, number, augmented, count)
  local out = {}
  local pipeline = set:pipeline { threads = 0, seed = 5 }
  local loader = core.data.loader(pipeline, { batch = 1, augment = augmented })
  for epoch = 0, count - 1 do
    loader:seek(epoch, number - 1)
    local fields = loader:next().fields
    out[#out + 1] = { fields[1]:array(), fields[2] and fields[2]:array() }
  end
  loader:close()
  return out
end

-- Draws plane (1, 3, h, w) in colour, pixel by pixel, as the canvas has no such call.
local function paint(p, x, y, zoom, a)
  for i = 1, a.shape[3] do
    for k = 1, a.shape[4] do
      local rgb = 0
      for c = 1, 3 do
        rgb = rgb * 256 + math.floor(255 * math.max(0, math.min(1, a:get(1, c, i, k))) + 0.5)
      end
      p:rect(x + (k - 1) * zoom, y + (i - 1) * zoom, zoom, zoom, rgb)
    end
  end
end

local function draw_sheet(name, list, masks)
  local shape = list[1][1].shape
  local h, w = shape[#shape - 1], shape[#shape]
  local colour = #shape == 4 and shape[2] == 3
  local zoom = math.max(1, 200 // w)
  local p = core.picture.canvas(PANELS * (w * zoom + GAP) + GAP, h * zoom + HEAD + GAP, PAPER)
  local lo, hi = core.picture.window(list[1][1], 1, 0.005, 0.995)
  for i, fields in ipairs(list) do
    local x = GAP + (i - 1) * (w * zoom + GAP)
    p:text(x, 10, 1.6, INK, i == 1 and name or "draw " .. i - 1)
    if colour then
      paint(p, x, HEAD, zoom, fields[1])
    else
      p:gray(x, HEAD, zoom, fields[1], 1, lo, hi)
    end
    if masks then p:contour(x, HEAD, zoom, fields[2], 1, 0.5, 1.5, MASK) end
  end
  p:save(string.format("%s/%s.png", folder, name))
  p:close()
end

-- Do two arrays differ?
local function differ(a, b)
  local x, y, z = a:stats()
  local u, v, w = b:stats()
  return x ~= u or y ~= v or z ~= w
end

for _, row in ipairs(core.data.steps()) do
  if row.phase == "sample" then
    t.test("a sheet of " .. row.name, function()
      t.check(rows[row.name], "no sheet is described")
      local time, rgb = row.name:match "^time", row.name == "jitter"
      local set = time and sequences() or rgb and colours() or heads()
      local number = (time or rgb) and 1 or 6
      local list = draws(set, number, false, 1)
      local changed = draws(set:augment { [row.name] = rows[row.name] }, number, true, PANELS - 1)
      local count = 0
      for i, fields in ipairs(changed) do
        list[i + 1] = fields
        if differ(fields[1], list[1][1]) then count = count + 1 end
      end
      t.check(count >= 3 or row.name == "flip", "%d of 8 draws change the image", count)
      draw_sheet(row.name, list, not (time or rgb))
      t.equal(t.read(string.format("%s/%s.png", folder, row.name)):sub(1, 4), "\137PNG")
    end)
  end
end

remove()
t.finish()
