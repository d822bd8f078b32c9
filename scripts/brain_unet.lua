-- brain_unet.lua -- 2-D U-Net for brain tumours on axial FLAIR slices (DICOM).
--
-- Data    --data DIR: any folder below which each patient has an image series
--         (--image, by description or folder name) and a mask series or SEG
--         (--mask). Without --data: synthetic patients; the banner says so.
-- Model   U-Net, 4 levels, 32 .. 512 channels, 7,762,465 parameters; --base 64: 31,036,481.
-- Result  runs/brain_unet/NNN/: checkpoints, curves, overlays, test Dice; in metrics.csv the
--         loss by its parts, for slices with a tumour and without.
--
--   segengine scripts/brain_unet.lua                       (phantom, minutes)
--   segengine scripts/brain_unet.lua --data DIR --image FLAIR --mask MASK
--   segengine scripts/brain_unet.lua folds --data DIR --folds 4
--   segengine scripts/brain_unet.lua --data DIR --preset later      (the report's second form)
--   segengine scripts/brain_unet.lua predict --in DIR --out DIR     (--mc 20, --tta flips)

local seg = require "seg"
local data, net, nn, optim, metric = seg.data, seg.net, seg.nn, seg.optim, seg.metric

-- Every entry can be set on the command line; a typo is an error.
local cfg = seg.config {
  image = "FLAIR",     -- series of the image: description or folder, * for any text
  mask = "MASK",       -- series of its mask, SEG or structure set
  size = 256,          -- pixels, both axes
  depth = 0,           -- 3-D: slices of a block, a multiple of 4; 0: slices one by one
  base = 32,           -- channels at full resolution
  gates = false,       -- attention gates on the skips
  heads = 0,           -- heads of a self-attention at the bottom; 0: none
  dropout = 0.0,       -- of whole channels, after each block; --mc samples it
  batch = 16,          -- slices a step
  epochs = 120,
  optim = "adamw",     -- or radam, adam, sgd
  lr = 1e-3,           -- learning rate
  decay = 1e-4,        -- weight decay
  schedule = "cosine", -- or onecycle, plateau, poly, step, constant
  t_max = 90,          -- epochs of the cosine; a note warns if it is too short
  clamp = false,       -- stay at the floor after t_max
  patience = 0,        -- epochs without a better Dice that end training; 0: none
  bce = 1.0, dice = 1.0, -- weights of both losses
  pos_weight = 1.0,    -- of tumour in BCE
  dice_per = "batch",  -- or sample: of each slice alone
  dice_eps = 1.0,      -- added to numerator and denominator of Dice
  dice_empty = "count", -- or skip: slices without a tumour do not count in Dice by sample
  rotate = 0.0,        -- degrees, each way, in half of the slices
  elastic = 0.0,       -- pixels of the displacement of control points, in half of the slices
  noise = 0.05,        -- sigma, in 30 % of the slices
  valid = 0.15, test = 0.2, -- shares, or numbers of patients; 0: none
  folds = 0,           -- cross-validation with so many folds, in place of both
  split_seed = 42,     -- seed of the split into train, valid and test
  patients = 28, slices = 24, -- of the synthetic data
  presets = {
    demo = { size = 96, base = 16, epochs = 20, t_max = 20, slices = 20 },
    quick = { size = 128, epochs = 25, t_max = 25 },
    full = {},
    later = { base = 64, batch = 32, optim = "radam", patience = 50, bce = 0.3, dice = 0.7,
              pos_weight = 30.0, dice_per = "sample", dice_empty = "skip" },
    check = { size = 32, base = 4, batch = 4, epochs = 1, t_max = 1, patients = 6, slices = 6 },
  },
}

-- Data ------------------------------------------------------------------------

local cases
if cfg.data then
  cases = data.dicom { root = cfg.data, image = cfg.image, mask = cfg.mask }
else
  cases = data.phantom { patients = cfg.patients, size = cfg.size, slices = cfg.slices }
end

local function prepare(set, at)
  set = set:resize { h = cfg.size, w = cfg.size }
    :normalize { method = "zscore", clip = { 0.5, 99.5 } }
  if cfg.depth == 0 then return set:slices { axis = "axial" } end
  return set:patches { d = cfg.depth, h = cfg.size, w = cfg.size, at = at, foreground = 0.33 }
end

local train, valid, test = cases:split { valid = cfg.valid, test = cfg.test, folds = cfg.folds,
                                         seed = cfg.split_seed }
train = prepare(train, "random")
  :augment {
    flip = { axis = "w", p = 0.5 },
    affine = cfg.rotate ~= 0 and { rotate = { -cfg.rotate, cfg.rotate }, p = 0.5 },
    elastic = cfg.elastic ~= 0 and { amplitude = { 0, cfg.elastic }, p = 0.5 },
    contrast = { range = { 0.9, 1.1 } },
    brightness = { by = 0.1 },
    gamma = { range = { 0.9, 1.1 }, p = 0.3 },
    noise = cfg.noise ~= 0 and { sigma = cfg.noise, p = 0.3 },
  }
  :batches { size = cfg.batch, shuffle = true }
valid = prepare(valid, "grid"):batches { size = cfg.batch }
test = test and prepare(test, "grid"):batches { size = cfg.batch }

-- Network ---------------------------------------------------------------------

local shape = { c = 1, h = cfg.size, w = cfg.size, d = cfg.depth > 0 and cfg.depth or nil }
local image, truth = nn.input("image", shape), nn.input("mask", shape)
local logits = net.unet(image, {
  base = cfg.base, dropout = cfg.dropout, gates = cfg.gates, heads = cfg.heads,
  -- slices are thick: the first two levels halve only h and w
  factors = cfg.depth > 0 and { { 1, 2, 2 }, { 1, 2, 2 }, 2, 2 } or 2,
})

-- Training --------------------------------------------------------------------

local parts = { bce = cfg.bce, dice = cfg.dice, pos_weight = cfg.pos_weight,
                per = cfg.dice_per, eps = cfg.dice_eps, empty = cfg.dice_empty }
local schedule = seg.pick("schedule", cfg.schedule, {
  cosine = function() return optim.cosine { t_max = cfg.t_max, clamp = cfg.clamp } end,
  constant = function() return optim.constant end, onecycle = optim.onecycle,
  plateau = optim.plateau, poly = optim.poly, step = optim.step }) {}

seg.recipe {
  inputs = { image, truth },
  outputs = { mask = nn.sigmoid(logits) },
  loss = nn.bce_dice(logits, truth, parts),
  loss_parts = metric.loss_parts(logits, truth, parts),
  train = train, valid = valid, test = test,
  optim = seg.pick("optim", cfg.optim, { adamw = optim.adamw, radam = optim.radam,
    adam = optim.adam, sgd = optim.sgd }) { lr = cfg.lr, decay = cfg.decay },
  schedule = schedule,
  stop = cfg.patience ~= 0 and { patience = cfg.patience, min_delta = 1e-4 } or nil,
  metrics = { dice = metric.dice(logits, truth), iou = metric.iou(logits, truth) },
  best = { "dice", "max" },
  epochs = cfg.epochs,
  predict = { image = cfg.image, names = { "tumour" } },
}
