-- training.lua -- a small recipe with the choice of optimiser, schedule and phases
-- on the command line, for tests of training and of resuming.

local seg = require "seg"
local data, nn, optim, metric = seg.data, seg.nn, seg.optim, seg.metric

local cfg = seg.config {
  variant = "plain", size = 16, batch = 4, epochs = 4, lr = 1e-2, norm = true, augment = true,
  presets = { demo = {}, full = {}, check = {} },
}

local cases = data.phantom { patients = 6, size = cfg.size, slices = 5 }
local function prepare(set)
  return set:resize { h = cfg.size, w = cfg.size }:normalize {}:slices { axis = "axial" }
end
local train, valid = cases:split { valid = 2, seed = 1 }
train = prepare(train)
if cfg.augment then train = train:augment { flip = true, noise = true } end
train = train:batches { size = cfg.batch, shuffle = true }
valid = prepare(valid):batches { size = cfg.batch }

local image = nn.input("image", { c = 1, h = cfg.size, w = cfg.size })
local truth = nn.input("mask", { c = 1, h = cfg.size, w = cfg.size })
local function block(x, f)
  x = nn.conv(x, f, 3)
  return nn.relu(cfg.norm and nn.batch_norm(x) or x)
end
local encoded = nn.scope("enc", function() return block(block(image, 4), 4) end)
local logits = nn.conv(nn.dropout(encoded, cfg.norm and 0.1 or 0), 1, 1, { name = "head" })
local restored = nn.conv(encoded, 1, 1, { name = "restore" })
local loss = nn.bce_dice(logits, truth)

local r = {
  inputs = { image, truth }, outputs = { mask = nn.sigmoid(logits) }, loss = loss,
  train = train, valid = valid, optim = optim.adamw { lr = cfg.lr },
  metrics = { dice = metric.dice(logits, truth) }, best = { "loss", "min" },
}

local variants = {
  plain = {},
  ema = { ema = 0.9 },
  ema_parts = { ema = 0.9, accumulate = 2, schedule = optim.onecycle {} },
  parts = { accumulate = 4 },
  plateau = { optim = optim.sgd { lr = cfg.lr, momentum = 0.9 },
              schedule = optim.plateau { patience = 0, threshold = 0.5, factor = 0.5, warmup = 1 },
              stop = { patience = 3, min_delta = 0.2 } },
  swa = { swa = { from = 3, lr = 1e-3 }, optim = optim.radam { lr = cfg.lr } },
  groups = { schedule = optim.cosine { warmup = 1, by = "epoch" },
             optim = optim.adamw { lr = cfg.lr, decay_on = "weights",
                                   groups = { { match = "^enc", lr_scale = 0.1 } } } },
  supervised = { loss = (loss + 0.5 * nn.bce_dice(restored, truth)) / 1.5 },
  phases = {
    phases = {
      { name = "encoder", epochs = 6, loss = nn.mse(restored, image), metrics = {},
        inputs = { image }, outputs = { image = restored }, test = false,
        stop = { patience = 1, min_delta = 1e3 } }, -- which ends it after two
      { name = "head", epochs = 1, frozen = { "enc" }, optim = optim.sgd { lr = cfg.lr },
        from = "best" },
      { name = "all", epochs = 2, ema = 0.8, schedule = optim.onecycle {} },
    },
  },
}
local chosen = variants[cfg.variant] or error("no variant " .. cfg.variant)
for k, v in pairs(chosen) do r[k] = v end
seg.recipe(r)
