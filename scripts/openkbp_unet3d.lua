-- openkbp_unet3d.lua -- dose of head-and-neck radiotherapy from CT and contours, as
-- the OpenKBP challenge has it.
--
-- Data    --data DIR: the challenge's provided-data, with train-pats,
--         validation-pats and test-pats. Without --data: made-up patients, as the
--         banner says.
-- Model   the challenge's generator, 64 filters: 116,981,249 parameters
--         (32: 29,261,569; 128: 467,794,945). --better 1: what scores better.
-- Result  runs/openkbp_unet3d/NNN/: checkpoints, curves, dose and DVH score.
--
--   segengine scripts/openkbp_unet3d.lua --data provided-data
--   segengine scripts/openkbp_unet3d.lua --data provided-data --preset quick
--   segengine scripts/openkbp_unet3d.lua predict --in provided-data/test-pats --out DIR

local seg = require "seg"
local data, net, nn, optim, metric = seg.data, seg.net, seg.nn, seg.optim, seg.metric

local cfg = seg.config {
  filters = 64, levels = 6,
  size = 128,          -- voxels of each axis
  batch = 2,           -- patients a step
  epochs = 100,
  lr = 2e-4,
  better = false,      -- false: CT and dose as they are, MAE over the whole cube
  -- what --better changes, each to be changed alone:
  ct_clip = 4095,      -- CT is cut there and scaled to 0 .. 1
  region = true,       -- where there may be dose is shown to the network
  dvh = 20.0,          -- weight of the DVH loss beside the MAE where there may be dose
  flip = true,         -- left and right, with the parotids exchanged
  norm = "instance",
  squeeze = 8,         -- reduction of squeeze and excitation; 0: none
  dropout = 0.2,
  coarse = 1,          -- the network works on a grid so many times coarser
  t_max = 0,           -- epochs of a cosine from lr to lr / 100; 0: a constant rate
  ema = 0.0,           -- average of weights
  patients = 12,       -- of the made-up data
  presets = {
    demo = { filters = 8, levels = 4, size = 64, epochs = 12, lr = 1e-3, better = true },
    quick = { filters = 16, levels = 5, epochs = 60, lr = 1e-3, better = true, coarse = 2,
              t_max = 60, ema = 0.99 },
    full = {},
    check = { filters = 2, levels = 4, size = 32, epochs = 1, better = true, patients = 6 },
  },
}

-- Data ------------------------------------------------------------------------

local train, valid, test
if cfg.data then
  train = data.openkbp { root = cfg.data .. "/train-pats" }
  valid = data.openkbp { root = cfg.data .. "/validation-pats" }
  test = data.openkbp { root = cfg.data .. "/test-pats" }
else
  train, valid, test = data.phantom { format = "openkbp", patients = cfg.patients }
    :split { valid = 0.2, test = 0.2 }
end

local function prepare(set)
  if cfg.size ~= 128 then set = set:resize { d = cfg.size, h = cfg.size, w = cfg.size } end
  if not cfg.better then return set end
  return set:clamp { range = { 0, cfg.ct_clip } }:scale { from = { 0, cfg.ct_clip } }
end

train, valid, test = prepare(train), prepare(valid), prepare(test)
-- right and left parotid are structures 3 and 4, and h runs from right to left
if cfg.better and cfg.flip then train = train:augment { flip = { axis = "h", swap = { 3, 4 } } } end
train = train:batches { size = cfg.batch, shuffle = true }
valid, test = valid:batches { size = 1 }, test:batches { size = 1 }

-- Network ---------------------------------------------------------------------

local function input(name, channels)
  return nn.input(name, { c = channels, d = cfg.size, h = cfg.size, w = cfg.size })
end
local ct, structures = input("ct", 1), input("structures", 10)
local possible, truth = input("possible", 1), input("dose", 1)

-- The dose in Gy, never below 0.
local function dose_of(x)
  local o = { filters = cfg.filters, levels = cfg.levels }
  if not cfg.better then return net.pix2pix(x, o) end
  o.norm, o.squeeze, o.dropout = cfg.norm, cfg.squeeze, cfg.dropout
  if cfg.region then x = x .. possible end
  if cfg.coarse == 1 then return 70 * net.pix2pix(x, o) end
  o.smooth = 1 -- the finer grid is smooth by itself
  local low = net.pix2pix(nn.avgpool(x, cfg.coarse), o)
  return 70 * nn.upsample(low, cfg.coarse, { mode = "linear" })
end

local dose = dose_of(ct .. structures)
local predicted = dose * possible

local function loss_of()
  if not cfg.better then return nn.mae(dose, truth) end
  local mae = nn.mae(dose, truth, { mask = possible })
  return cfg.dvh > 0 and mae + cfg.dvh * nn.dvh_loss(predicted, truth, structures) or mae
end

-- Training --------------------------------------------------------------------

seg.recipe {
  inputs = { ct, structures, possible, truth },
  outputs = { dose = predicted },
  loss = loss_of(),
  train = train, valid = valid, test = test,
  optim = optim.adam { lr = cfg.lr, betas = { 0.5, 0.999 }, eps = 1e-7 },
  schedule = cfg.t_max > 0
    and optim.cosine { t_max = cfg.t_max, floor = cfg.lr / 100, clamp = true } or nil,
  ema = cfg.ema > 0 and cfg.ema or nil,
  metrics = { dose_score = metric.dose_score(predicted, truth, { mask = possible }),
              dvh_score = metric.dvh_score(predicted, truth, { structures = structures }) },
  best = { "dose_score", "min" },
  epochs = cfg.epochs,
}
