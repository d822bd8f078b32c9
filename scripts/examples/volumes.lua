-- volumes.lua -- a 3-D U-Net on patches of NIfTI volumes.
--
-- Data    --data DIR: volumes and masks, named by --image and --mask.
-- Model   U-Net with instance norm; the logits of the second level have a loss, too. In
--         training four patches of each volume, a third of them on foreground; in validation,
--         test and `predict` a grid of patches that covers the volume.
--
--   segengine scripts/examples/volumes.lua --data DIR

local seg = require "seg"
local data, net, nn, optim, metric = seg.data, seg.net, seg.nn, seg.optim, seg.metric
local cfg = seg.config { image = "*_T1w", mask = "*_T1w_brainmask", size = 64, base = 16,
                         levels = 3, batch = 2, epochs = 100, lr = 1e-3 }

local cases = data.nifti { root = cfg.data, image = cfg.image, mask = cfg.mask }
local box = { d = cfg.size, h = cfg.size, w = cfg.size }
local function prepare(set, at) -- at: options of `patches` without the extents
  for key, extent in pairs(box) do at[key] = extent end
  return set:normalize {}:patches(at)
end
local train, valid, test = cases:split { valid = 0.15, test = 0.2, seed = 42 }
train = prepare(train, { count = 4, foreground = 0.33 })
  :augment { flip = { axis = "w" }, affine = true, noise = true }
  :batches { size = cfg.batch, shuffle = true }
valid = prepare(valid, { at = "grid" }):batches { size = cfg.batch }
test = prepare(test, { at = "grid" }):batches { size = cfg.batch }

local image = nn.input("image", { c = 1, d = cfg.size, h = cfg.size, w = cfg.size })
local truth = nn.input("mask", { c = 1, d = cfg.size, h = cfg.size, w = cfg.size })
local logits, deep = net.unet(image, { base = cfg.base, levels = cfg.levels, norm = "instance",
                                       act = { "leaky_relu", 0.01 }, deep = 1 })

seg.recipe {
  inputs = { image, truth }, outputs = { mask = nn.sigmoid(logits) },
  loss = net.deep_loss(logits, deep, truth, nn.bce_dice),
  metrics = { dice = metric.dice(logits, truth) }, best = { "dice", "max" },
  train = train, valid = valid, test = test,
  optim = optim.adamw { lr = cfg.lr }, schedule = optim.cosine {},
  predict = { image = cfg.image },
}
