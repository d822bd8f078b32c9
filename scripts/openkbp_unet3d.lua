-- openkbp_unet3d.lua -- dose of head-and-neck radiotherapy from CT and contours (OpenKBP).
--
-- Data    --data DIR: the challenge's provided-data, with train-pats, validation-pats
--         and test-pats. Without --data: synthetic patients; the banner says so.
-- Model   the challenge's generator, 64 filters: 116,981,249 parameters
--         (32: 29,261,569; 128: 467,794,945). --better true: changes that score better.
-- Result  runs/openkbp_unet3d/NNN/: checkpoints, curves, dose and DVH score.
--
--   segengine scripts/openkbp_unet3d.lua --data provided-data
--   segengine scripts/openkbp_unet3d.lua --data provided-data --preset quick
--   segengine scripts/openkbp_unet3d.lua predict --in provided-data/test-pats --out DIR

local seg = require "seg"
local data, net, nn, optim, metric = seg.data, seg.net, seg.nn, seg.optim, seg.metric

local cfg = seg.config {
  filters = 64,        -- channels at full resolution
  levels = 6,          -- halvings
  size = 128,          -- voxels of each axis
  batch = 2,           -- patients a step
  epochs = 100,
  lr = 2e-4,           -- learning rate
  better = false,      -- true: the options below; false: CT and dose unscaled, MAE of all voxels
  ct_clip = 4095,      -- CT is cut there and scaled to 0 .. 1
  beams = true,        -- use the paths of the beams: nine a plan, 40 degrees apart
  guess = true,        -- the network learns a correction to a first guess of the dose
  dvh = 20.0,          -- weight of the DVH loss, added to the MAE in the mask of possible dose
  flip = true,         -- mirror left and right, with the parotids exchanged
  norm = "instance",   -- or batch
  squeeze = 8,         -- reduction of squeeze and excitation; 0: none
  dropout = 0.2,       -- of whole channels, in every second step up
  coarse = 1,          -- the network works on a grid so many times coarser
  t_max = 0,           -- epochs of a cosine from lr to lr / 100; 0: a constant rate
  ema = 0.0,           -- average of weights
  patients = 12,       -- of the synthetic data
  presets = {
    demo = { filters = 8, levels = 4, size = 64, epochs = 24, lr = 1e-3, better = true },
    quick = { filters = 16, levels = 5, batch = 1, epochs = 60, t_max = 60, lr = 1e-3,
              ema = 0.99, better = true, coarse = 2 },
    full = {},
    check = { filters = 2, levels = 4, size = 32, epochs = 1, better = true, patients = 6 },
  },
}

-- Data ------------------------------------------------------------------------

local beamed = cfg.better and cfg.beams
local train, valid, test
if cfg.data then
  local function part(name) return data.openkbp { root = cfg.data .. name, beams = beamed } end
  train, valid, test = part "/train-pats", part "/validation-pats", part "/test-pats"
else
  train, valid, test = data.phantom { format = "openkbp", patients = cfg.patients, beams = beamed }
    :split { valid = 0.2, test = 0.2 }
end

local function prepare(set)
  if cfg.size ~= 128 then set = set:resize { d = cfg.size, h = cfg.size, w = cfg.size } end
  if not cfg.better then return set end
  return set:clamp { range = { 0, cfg.ct_clip } }:scale { from = { 0, cfg.ct_clip } }
end

train, valid, test = prepare(train), prepare(valid), prepare(test)
-- structures 3 and 4 are the right and left parotid, and h runs from right to left
if cfg.better and cfg.flip then train = train:augment { flip = { axis = "h", swap = { 3, 4 } } } end
train = train:batches { size = cfg.batch, shuffle = true }
valid, test = valid:batches { size = 1 }, test:batches { size = 1 }

-- Network ---------------------------------------------------------------------

local function input(name, channels)
  return nn.input(name, { c = channels, d = cfg.size, h = cfg.size, w = cfg.size })
end
local ct, structures = input("ct", 1), input("structures", 10)
local possible, truth = input("possible", 1), input("dose", 1)
local beams = beamed and input("beams", 1) or nil

local function seen(x) return cfg.coarse ~= 1 and nn.avgpool(x, cfg.coarse) or x end

-- The dose in Gy and its loss. With --better it may be negative during training.
local function network()
  local o = { filters = cfg.filters, levels = cfg.levels, dropout = cfg.dropout }
  if not cfg.better then
    local dose = net.pix2pix(ct .. structures, o)
    return dose, nn.mae(dose, truth)
  end
  o.norm, o.squeeze, o.final = cfg.norm, cfg.squeeze, "none"
  local parts = seen(structures)
  local function part(k) return nn.slice(parts, { c = { k, 1 } }) end
  local plan = part(8) * 0.8 + part(9) * 0.9 + part(10) -- prescribed dose, as a share of 70 Gy
  local x, guess = seen(ct) .. parts .. seen(possible) .. plan, plan
  if beamed then -- the beams may contribute; 0.8 of their dose is expected
    local reach, elsewhere = seen(beams) / 70, 1 - (part(8) + part(9) + part(10))
    x, guess = x .. reach, plan + 0.8 * (reach * elsewhere)
  end
  local dose = net.pix2pix(x, o)
  dose = 70 * (cfg.guess and dose + guess or dose)
  if cfg.coarse ~= 1 then dose = nn.upsample(dose, cfg.coarse, { mode = "linear" }) end
  local loss = nn.mae(dose, truth, { mask = possible }) -- where dose is possible
  if cfg.dvh > 0 then
    loss = loss + cfg.dvh * nn.dvh_loss(dose * possible, truth, structures)
  end
  return nn.relu(dose), loss
end

local dose, loss = network()
local predicted = dose * possible

-- Training --------------------------------------------------------------------

seg.recipe {
  inputs = { ct, structures, possible, truth, beams },
  outputs = { dose = predicted },
  loss = loss,
  train = train, valid = valid, test = test,
  optim = optim.adam { lr = cfg.lr, betas = { 0.5, 0.999 }, eps = 1e-7 },
  schedule = cfg.t_max ~= 0
    and optim.cosine { t_max = cfg.t_max, floor = cfg.lr / 100, clamp = true } or nil,
  ema = cfg.ema,
  metrics = { dose_score = metric.dose_score(predicted, truth, { mask = possible }),
              dvh_score = metric.dvh_score(predicted, truth, { structures = structures }) },
  best = { "dose_score", "min" },
  epochs = cfg.epochs,
}
