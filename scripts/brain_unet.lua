-- brain_unet.lua -- 2-D U-Net for brain tumours on axial FLAIR slices (DICOM).
--
-- Data    --data DIR: any folder below which each patient has an image series
--         (--image, by description or folder name) and a mask series or SEG
--         (--mask). Without --data: made-up patients, as the banner says.
-- Model   U-Net, 4 levels, 32 .. 512 channels, 7,762,465 parameters.
-- Result  runs/brain_unet/NNN/: checkpoints, curves, overlays, test Dice.
--
--   segengine scripts/brain_unet.lua                       (phantom, minutes)
--   segengine scripts/brain_unet.lua --data DIR --image FLAIR --mask MASK
--   segengine scripts/brain_unet.lua predict --in DIR --out DIR

local seg = require "seg"
local data, nn, optim, metric = seg.data, seg.nn, seg.optim, seg.metric

-- Every entry can be set on the command line; a typo is an error.
local cfg = seg.config {
  image = "FLAIR", mask = "MASK",
  size = 256,          -- pixels, both axes
  base = 32,           -- channels at full resolution
  batch = 16,          -- slices a step
  epochs = 120,
  lr = 1e-3, decay = 1e-4,
  t_max = 90,          -- epochs of the cosine; a note says what a short one does
  clamp = false,       -- stay at the floor after t_max
  dropout = 0.0,       -- of whole channels, after each block
  dice_per = "batch", dice_eps = 1.0,
  valid = 0.15, test = 0.2, -- shares, or numbers of patients; valid 0: none
  split_seed = 42,
  patients = 28, slices = 24, -- of the made-up data
  presets = {
    demo = { size = 96, base = 16, epochs = 20, t_max = 20, slices = 20 },
    quick = { size = 128, epochs = 25, t_max = 25 },
    full = {},
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

local function prepare(set)
  return set:resize { h = cfg.size, w = cfg.size }
    :normalize { method = "zscore", clip = { 0.5, 99.5 } }
    :slices { axis = "axial" }
end

local train, valid, test =
  cases:split { valid = cfg.valid, test = cfg.test, seed = cfg.split_seed }

train = prepare(train)
  :augment {
    flip = { axis = "w", p = 0.5 },
    contrast = { range = { 0.9, 1.1 } },
    brightness = { by = 0.1 },
    gamma = { range = { 0.9, 1.1 }, p = 0.3 },
    noise = { sigma = 0.05, p = 0.3 },
  }
  :batches { size = cfg.batch, shuffle = true }
valid = cfg.valid > 0 and prepare(valid):batches { size = cfg.batch } or nil
test = prepare(test):batches { size = cfg.batch }

-- Network ---------------------------------------------------------------------

local function block(name, x, f)
  return nn.scope(name, function()
    for _ = 1, 2 do
      x = nn.relu(nn.batch_norm(nn.conv(x, f, 3, { bias = false })))
    end
    return nn.spatial_dropout(x, cfg.dropout)
  end)
end

local function unet(x, f, level, depth)
  if level > depth then return block("bottom", x, f) end
  local skip = block("enc" .. level, x, f)
  local low = unet(nn.maxpool(skip, 2), 2 * f, level + 1, depth)
  local up = nn.upconv(low, f, 2, { name = "up" .. level })
  return block("dec" .. level, up .. skip, f)
end

local image = nn.input("image", { c = 1, h = cfg.size, w = cfg.size })
local truth = nn.input("mask", { c = 1, h = cfg.size, w = cfg.size })
local logits = nn.conv(unet(image, cfg.base, 1, 4), 1, 1, { name = "head" })

-- Training --------------------------------------------------------------------

seg.recipe {
  inputs = { image, truth },
  outputs = { mask = nn.sigmoid(logits) },
  loss = nn.bce_dice(logits, truth, { per = cfg.dice_per, eps = cfg.dice_eps }),
  train = train, valid = valid, test = test,
  optim = optim.adamw { lr = cfg.lr, decay = cfg.decay },
  schedule = optim.cosine { t_max = cfg.t_max, clamp = cfg.clamp },
  metrics = { dice = metric.dice(logits, truth), iou = metric.iou(logits, truth) },
  best = { "dice", "max" },
  epochs = cfg.epochs,
  predict = { image = cfg.image, names = { "tumour" } },
}
