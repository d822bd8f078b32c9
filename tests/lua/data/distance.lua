-- distance.lua -- the field of signed distances: values, a training with it, a prediction without
-- it, refusals.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local folder, remove = t.folder()

local RECIPE = [[
local seg = require "seg"
local data, nn, optim = seg.data, seg.nn, seg.optim
local cfg = seg.config { batch = 2, epochs = 1 }
local function prepare(set)
  return set:signed_distance {}:normalize {}:slices {}
end
local cases = data.phantom { root = %q, patients = 4, size = 16, slices = 3 }
local train, valid = cases:split { valid = 0.25, seed = 1 }
local image, truth = nn.input("image", { c = 1, h = 16, w = 16 }),
                     nn.input("mask", { c = 1, h = 16, w = 16 })
local distance = nn.input("distance", { c = 1, h = 16, w = 16 })
local logits = nn.conv(image, 1, 3)
seg.recipe {
  inputs = { image, truth, distance }, outputs = { mask = nn.sigmoid(logits) },
  loss = nn.dice_loss(logits, truth) + 0.01 * nn.boundary_loss(logits, distance)
    + 0.001 * nn.hausdorff_loss(logits, truth, distance),
  train = prepare(train):augment { affine = true, flip = true }
    :batches { size = cfg.batch, shuffle = true },
  valid = prepare(valid):batches { size = cfg.batch },
  optim = optim.sgd { lr = 0.01 },
}
]]

t.test("distances are in mm, negative inside and positive outside", function()
  local set = seg.data.phantom { root = folder .. "/phantom", patients = 4, size = 16, slices = 3 }
  local batch = t.first_batch(set:signed_distance { name = "far" }:batches { size = 4 })
  local mask, far = batch.mask, batch.far
  t.equal(table.concat(far.shape, "x"), table.concat(mask.shape, "x"))
  local inside, outside = 0, 0
  for n = 1, mask.shape[1] do
    for d = 1, 3 do
      for h = 1, 16 do
        for w = 1, 16 do
          local m, v = mask:get(n, 1, d, h, w), far:get(n, 1, d, h, w)
          t.check(m == 1 and v < 0 or m == 0 and v > 0, "mask %g, distance %g", m, v)
          inside, outside = inside + m, outside + 1 - m
        end
      end
    end
  end
  t.check(inside > 0 and outside > 0, "%d voxels inside, %d outside", inside, outside)
end)

t.test("a recipe trains with distances and predicts without them", function()
  local path = t.write(folder .. "/boundary.lua", RECIPE:format(folder .. "/phantom"))
  local line = path .. " --epochs 1 --workers 1 --out " .. folder .. "/runs"
  t.says(line, 0, "done:")
  t.says(line .. " --epochs 2 --cache_file auto", 0, "done:")
  t.says(line .. " --epochs 2 --cache_file auto", 0, "done:")
  local input = t.lines("find " .. folder .. "/phantom -type d -links 2 | sort")[1]
  t.says(path .. " predict --weights " .. folder .. "/runs/boundary/001 --in " .. input .. " --out "
         .. folder .. "/found", 0, "PHANTOM_001.nii.gz")
end)

t.test("other fields and names are refused", function()
  local set = seg.data.phantom { root = folder .. "/phantom", patients = 4, size = 16, slices = 3 }
  t.raises(function() set:signed_distance { of = "image" }:dataset() end,
           '"image" holds no class numbers')
  t.raises(function() set:signed_distance { of = "lesion" }:dataset() end,
           '"lesion" is no field of the data set')
  t.raises(function() set:signed_distance {}:signed_distance {}:dataset() end,
           'the name "distance" is that of a field already')
  t.raises(function() set:signed_distance { of = 1 } end,
           "signed_distance: of must be the name of a field, got number")
  t.raises(function() set:signed_distance { field = "mask" } end, 'unknown option "field"')
end)

remove()
t.finish()
