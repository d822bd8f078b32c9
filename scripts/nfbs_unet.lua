-- nfbs_unet.lua -- 2-D U-Net that strips the skull from T1-weighted MRI (NIfTI).
--
-- Data    --data DIR: a folder in the layout of NFBS,
--         A000xxxxx/sub-A000xxxxx_ses-NFB3_T1w.nii.gz and ..._T1w_brainmask.nii.gz,
--         or any other layout by --image and --mask patterns (* pairs them).
--         --nonzero: every nonzero voxel of the mask file is brain.
--         With a single subject (--slabs): slabs of its slices are held out.
--         Without --data: synthetic heads; the banner says so.
-- Model   five levels and a bottom of twice the last: 31,105,953 parameters
--         with --features 32,64,128,256,512, 7,765,409 with 32,64,128,256.
--
--   segengine scripts/nfbs_unet.lua --data DIR
--   segengine scripts/nfbs_unet.lua predict --in head.nii.gz --out DIR

local seg = require "seg"
local data, nn, optim, metric = seg.data, seg.nn, seg.optim, seg.metric

local cfg = seg.config {
  image = "*_T1w",     -- names of the images, without .nii.gz, * for any text
  mask = "*_T1w_brainmask", -- names of their masks
  features = { 32, 64, 128, 256, 512 }, -- channels of each level
  size = 256,          -- pixels, both axes
  axis = "axial",      -- plane of the slices
  middle = 0.8,        -- share of the slices that is used
  batch = 8,           -- slices a step
  epochs = 30,
  lr = 1e-4,           -- learning rate
  decay = 1e-4,        -- weight decay, added to the gradient
  clip_norm = 1.0,     -- maximum norm of the gradient; 0: no clipping
  plateau = 5,         -- epochs without a better Dice that halve the rate; 0: never
  patience = 10,       -- epochs without a better Dice that end training; 0: never
  nonzero = false,     -- nonzero voxels are the mask
  slabs = false,       -- a single subject: hold out slabs of slices
  valid = 0.15, test = 0.2, -- shares, or numbers of patients; 0: none
  folds = 0,           -- cross-validation with so many folds, in place of valid and test
  split_seed = 42,     -- seed of the split into train, valid and test
  patients = 12, slices = 48, -- of the synthetic data
  presets = {
    demo = { size = 96, features = { 16, 32, 64, 128 }, epochs = 6, patients = 8, slices = 24,
             lr = 1e-3 },
    quick = { size = 128, features = { 32, 64, 128, 256 }, epochs = 10, lr = 5e-4 },
    full = {},
    check = { size = 32, features = { 4, 8, 16 }, batch = 4, epochs = 1, patients = 6,
              slices = 8 },
  },
}

-- Data ------------------------------------------------------------------------

local cases
if cfg.data then
  cases = data.nifti { root = cfg.data, image = cfg.image, mask = cfg.mask,
                       labels = cfg.nonzero and "nonzero" or nil,
                       patient = cfg.slabs and "file" or nil }
else
  cases = data.phantom { format = "nifti", patients = cfg.patients, size = cfg.size,
                         slices = cfg.slices }
end

local function prepare(set)
  local edge = (1 - cfg.middle) / 2
  return set:resize { h = cfg.size, w = cfg.size }
    :normalize { method = "minmax", per = "slice" }
    :slices { axis = cfg.axis, range = { edge, 1 - edge } }
end

local train, valid, test
if cfg.slabs then
  train, valid, test = cases:slabs { valid = { 0.35, 0.45 }, test = { 0.55, 0.7 }, gap = 0.02 }
else
  train, valid, test = cases:split { valid = cfg.valid, test = cfg.test, folds = cfg.folds,
                                     seed = cfg.split_seed }
end

train = prepare(train)
  :augment { flip = { axis = "w" }, contrast = { range = { 0.8, 1.2 } },
             gamma = { range = { 0.8, 1.25 }, p = 0.5 }, noise = { sigma = 0.02, p = 0.3 } }
  :batches { size = cfg.batch, shuffle = true }
valid = (cfg.valid > 0 or cfg.slabs or cfg.folds > 0) and prepare(valid)
  :batches { size = cfg.batch } or nil
test = test and prepare(test):batches { size = cfg.batch }

-- Network ---------------------------------------------------------------------

local function block(name, x, f)
  return nn.scope(name, function()
    for _ = 1, 2 do x = nn.relu(nn.batch_norm(nn.conv(x, f, 3))) end
    return x
  end)
end

local function unet(x, features, level)
  local f = features[level]
  if not f then return block("bottom", x, 2 * features[level - 1]) end
  local skip = block("enc" .. level, x, f)
  local low = unet(nn.maxpool(skip, 2), features, level + 1)
  local up = nn.upconv(low, f, 2, { name = "up" .. level })
  return block("dec" .. level, up .. skip, f)
end

local image = nn.input("image", { c = 1, h = cfg.size, w = cfg.size })
local truth = nn.input("mask", { c = 1, h = cfg.size, w = cfg.size })
local logits = nn.conv(unet(image, cfg.features, 1), 1, 1, { name = "head" })

-- Training --------------------------------------------------------------------

seg.recipe {
  inputs = { image, truth },
  outputs = { mask = nn.sigmoid(logits) },
  loss = nn.bce_dice(logits, truth, { bce = 0.5, dice = 0.5 }),
  train = train, valid = valid, test = test,
  optim = optim.adam { lr = cfg.lr, decay = cfg.decay, clip_norm = cfg.clip_norm },
  schedule = valid and cfg.plateau ~= 0
    and optim.plateau { factor = 0.5, patience = cfg.plateau } or nil,
  stop = valid and cfg.patience ~= 0 and { patience = cfg.patience } or nil,
  metrics = { dice = metric.dice(logits, truth), iou = metric.iou(logits, truth) },
  best = { "dice", "max" },
  epochs = cfg.epochs,
  predict = { image = cfg.image, names = { "brain" } },
}
