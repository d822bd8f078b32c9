-- hippocampus_unet3d.lua -- 3-D U-Net for the two parts of the hippocampus in MRI (NIfTI).
--
-- Data    --data DIR: a folder in the layout of the Medical Segmentation Decathlon (Task04),
--         imagesTr/NAME.nii.gz and labelsTr/NAME.nii.gz with 1 anterior, 2 posterior.
--         Without --data: synthetic volumes; the banner says so.
-- Model   U-Net with instance norm, 3 levels, 16 .. 128 channels, 1,401,398 parameters;
--         trained on patches with cross entropy and Dice, with deep supervision.
-- Result  runs/hippocampus_unet3d/NNN/: checkpoints, curves, overlays, Dice of each part.
--
--   segengine scripts/hippocampus_unet3d.lua                       (synthetic, minutes)
--   segengine scripts/hippocampus_unet3d.lua folds --data DIR      (a single one: --fold 1)
--   segengine scripts/hippocampus_unet3d.lua predict --in DIR/imagesTs --out DIR \
--       --weights runs/hippocampus_unet3d/NNN --tta w,h,d          (a folder of folds: their mean)

local seg = require "seg"
local data, net, nn, optim, metric = seg.data, seg.net, seg.nn, seg.optim, seg.metric

local cfg = seg.config {
  size = { 40, 56, 40 }, -- voxels of a patch along w, h, d; nnU-Net's
  base = 16,             -- channels at full resolution
  levels = 3,            -- halvings
  deep = 1,              -- coarser outputs with a loss (deep supervision)
  batch = 4,             -- patches a step
  epochs = 60,
  lr = 2e-3,             -- learning rate
  decay = 1e-4,          -- weight decay, decoupled
  ema = 0.99,            -- average of the weights, which is measured
  foreground = 0.33,     -- share of the patches around a labelled voxel
  flip = 0.0,            -- share of mirrored patches; 0, as left and right differ
  folds = 5,             -- cross-validation; 0: valid and test are held out
  valid = 0.15, test = 0.2, -- shares, or numbers of volumes; 0: none
  split_seed = 42,       -- seed of the split into train, valid and test
  patients = 60,         -- of the synthetic data
  presets = {
    demo = { size = { 32, 48, 32 }, base = 8, batch = 2, epochs = 50, folds = 0, patients = 24,
             lr = 4e-3 },
    quick = { epochs = 25 },
    full = {},
    check = { size = { 16, 16, 16 }, base = 4, levels = 2, batch = 2, epochs = 1, folds = 0,
              patients = 6 },
  },
}

-- Data ------------------------------------------------------------------------

local cases
if cfg.data then
  cases = data.nifti { root = cfg.data, image = "imagesTr/*", mask = "labelsTr/*",
                       labels = { 1, 2 }, patient = "file" }
else
  cases = data.phantom { format = "hippocampus", patients = cfg.patients }
end

local w, h, d = seg.numbers("size", cfg.size, 3)
local function prepare(set, at)
  at.w, at.h, at.d = w, h, d
  return set:normalize {}:patches(at)
end

local train, valid, test = cases:split { folds = cfg.folds, valid = cfg.valid, test = cfg.test,
                                         seed = cfg.split_seed }
train = prepare(train, { at = "random", foreground = cfg.foreground })
  :augment {
    flip = cfg.flip ~= 0 and { axis = "dhw", p = cfg.flip },
    affine = { rotate = { -20, 20 }, scale = { 0.85, 1.2 }, shift = 0.05, p = 0.5 },
    contrast = { range = { 0.75, 1.25 }, p = 0.5 },
    gamma = { range = { 0.75, 1.5 }, p = 0.3 },
    noise = { sigma = 0.1, p = 0.2 },
  }
  :batches { size = cfg.batch, shuffle = true }
valid = prepare(valid, { at = "grid" }):batches { size = cfg.batch }
test = test and prepare(test, { at = "grid" }):batches { size = cfg.batch }

-- Network ---------------------------------------------------------------------

local image = nn.input("image", { c = 1, d = d, h = h, w = w })
local truth = nn.input("mask", { c = 1, d = d, h = h, w = w })
local logits, deep = net.unet(image, {
  base = cfg.base, levels = cfg.levels, out = 3, norm = "instance", act = { "leaky_relu", 0.01 },
  deep = cfg.deep,
})

-- Training --------------------------------------------------------------------

local function loss(x, t)
  return nn.cross_entropy(x, t) + nn.dice_loss(x, t, { per = "batch", eps = 1e-5 })
end

seg.recipe {
  inputs = { image, truth },
  outputs = { mask = nn.softmax(logits) },
  loss = net.deep_loss(logits, deep or {}, truth, loss),
  train = train, valid = valid, test = test,
  optim = optim.adamw { lr = cfg.lr, decay = cfg.decay, clip_norm = 12 },
  schedule = optim.poly { power = 0.9 },
  ema = cfg.ema,
  metrics = { dice = metric.dice(logits, truth), hd95 = metric.hd95(logits, truth) },
  best = { "dice", "max" },
  epochs = cfg.epochs,
  predict = { image = "*", names = { "anterior", "posterior" } },
}
