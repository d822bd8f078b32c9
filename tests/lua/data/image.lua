-- image.lua -- inspect of photographs and mask images, and reading them.

local t = dofile("tests/support/harness.lua")
local core = require "seg.core"
local folder, remove = t.folder()
local says = t.says

-- Writes an input of the fuzz corpus without its first byte, the options; its path.
local function seed(name, as)
  return t.write(folder .. "/" .. as, t.read("tests/fuzz/corpus/" .. name):sub(2))
end

t.test("inspect: extents, channels, bits, range", function()
  local text = says("inspect " .. seed("png/c6", "c.png"), 0,
                    "png, 7 x 5 pixels, 3 channels, 8 bits\nU8, 105 voxels, ")
  t.check(text:find(" %.%. %d+, mean "), text)
  says("inspect " .. seed("png/p4", "p.png"), 0, "png, 7 x 5 pixels, 3 channels, 4 bits, palette")
  says("inspect " .. seed("png/w", "w.png"), 0, "png, 7 x 5 pixels, 1 channel, 16 bits\nF32, ")
  says("inspect " .. seed("bmp/b", "b.bmp"), 0, "bmp, 7 x 5 pixels, 1 channel, 1 bit, palette\nU8")
  says("inspect " .. seed("jpeg/gp30", "g.jpg"), 0, "jpeg, 16 x 16 pixels, 1 channel, 8 bits\nU8")
  -- the content counts, not the name
  says("inspect " .. seed("jpeg/gp30", "really.png"), 0, "jpeg, 16 x 16 pixels, 1 channel")
  says("inspect " .. seed("jpeg/gp30", "nameless"), 0, "jpeg, 16 x 16 pixels, 1 channel")
end)

t.test("inspect: what a recipe refuses is shown all the same", function()
  local text = says("inspect " .. seed("png/alpha", "a.png"), 0, "3 channels, 8 bits, alpha\nU8, ")
  t.check(text:find("as it is, a recipe refuses it: " .. folder
                    .. "/a.png: png: an alpha channel", 1, true), text)
  text = says("inspect " .. seed("jpeg/turned", "t.jpg"), 0, "8 bits, orientation 6\nU8, ")
  t.check(text:find('fix: exif = "apply" turns it', 1, true), text)
end)

t.test("inspect: TIFF", function()
  if not core.build:find("TIFF yes", 1, true) then
    says("inspect " .. seed("tiff/f", "f.tif"), 3, "built without libtiff")
    t.skip("built without libtiff")
  end
  says("inspect " .. seed("tiff/f", "f.tif"), 0, "1 channel, 32 bits (float)\nF32, ")
  says("inspect " .. seed("tiff/pages", "p.tif"), 0, "8 bits, 3 pages\nU8, ")
end)

t.test("inspect: damage, and what is not read", function()
  local cut = t.write(folder .. "/cut.jpg", t.read(folder .. "/g.jpg"):sub(1, -9))
  says("inspect " .. cut, 3, "/cut.jpg: jpeg: file ends inside the scan that begins at byte")
  says("inspect " .. t.write(folder .. "/x.png", "hello"), 3, "/x.png: image: not PNG, JPEG, BMP")
  says("inspect " .. t.write(folder .. "/x.gif", "GIF89a"), 3, "/x.gif: image: GIF is not read")
  says("inspect " .. t.write(folder .. "/x.doc", "hello"), 3, "is not a file that segengine reads")
  -- formats of other programs are named, by extensions in either case
  says("inspect " .. t.write(folder .. "/x.MGZ", "hello"), 3,
       "x.MGZ: an image of FreeSurfer, which is not read; fix: mri_convert IN OUT.nii.gz")
end)

t.test("inspect: a folder of them", function()
  local text = says("inspect " .. folder, 3, " image files\n")
  for _, part in ipairs { "c.png       png, 7 x 5 pixels, 3 channels, 8 bits\n",
                          "cut.jpg     damaged: " .. folder .. "/cut.jpg: jpeg: " } do
    t.check(text:find(part, 1, true), "%s\n%s", part, text)
  end
end)

t.test("reading with options", function()
  local labels = core.data.read_image(seed("png/label", "m.png"), { label = true })
  t.check(labels:stats().max <= 9, "indices of a palette")
  local data = core.data
  t.raises(function() data.read_image(folder .. "/c.png", { labels = true }) end, '"label"')
  t.raises(function() data.read_image(folder .. "/c.png", { exif = "turn" }) end,
           'exif is "turn", need "refuse", "apply" or "ignore"')
  t.raises(function() data.read_image(folder .. "/c.png", { alpha = "keep" }) end,
           'alpha is "keep", need "refuse", "drop"')
  t.raises(function() data.read_image(folder .. "/none.png") end, "/none.png: image: ")
  t.equal(data.image_probe(folder .. "/w.png").bits, 16)
  t.equal((data.image_format(folder .. "/x.gif")), "GIF")
  t.equal(data.image_format(folder .. "/none.png"), nil)
end)

remove()
t.finish()
