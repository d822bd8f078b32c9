-- sequence_cnn_lstm.lua -- classification of feature sequences, with labels or without.
--
-- Data    --data DIR: labels.csv with the columns path and label (from 0), and the column
--         that --by names; arrays .npy (steps, channels) of any length. Without --data:
--         synthetic speech; the banner says so.
-- Model   CNN and bidirectional LSTM, 3,738,944 parameters, and a classifier, 165,637.
--         --learn supervised: with the labels; contrastive, denoise, statistics: without,
--         then rounds of k-means, a classifier of the clusters, and fine-tuning.
-- Result  runs/sequence_cnn_lstm/NNN/: accuracy; of clusters under the best assignment.
--
--   segengine scripts/sequence_cnn_lstm.lua                     (synthetic, without labels)
--   segengine scripts/sequence_cnn_lstm.lua folds --data fsdd-logmel --preset quick --folds 4

local seg = require "seg"
local data, metric, net, nn, optim = seg.data, seg.metric, seg.net, seg.nn, seg.optim

local cfg = seg.config {
  learn = "statistics",  -- or contrastive, denoise, supervised
  classes = 5,           -- of labels, or number of clusters
  channels = 1024,       -- of a step of a sequence
  longest = 500,         -- steps of a sequence
  cut = true,            -- cut longer sequences; false: an error
  by = "speaker",        -- the column of the units that a split keeps together; "file": none
  features = { 64, 128, 256 }, -- channels of the convolutions
  hidden = 256,          -- of the LSTM, each way
  project = 512, embed = 512, -- of the two layers after it
  mlp = { 256, 128 },    -- of the classifier
  dropout = { 0.2, 0.3, 0.4 }, -- of CNN, LSTM, classifier
  batch = 64,            -- sequences a step
  multiple = 32,         -- their steps are padded to a multiple of this
  epochs = 15,
  lr = 1e-4,             -- learning rate
  learn_lr = 1e-4,       -- of the classifier of clusters
  decay = 0.0,           -- weight decay, decoupled
  ema = 0.0,             -- average of weights
  level = 0.0,           -- ends this far below the loudest step (dB) are cut off; 0: none
  norm = "none",         -- to mean 0, sd 1: a "sequence", its "channel", a "speaker"'s channel
  noise = 0.005,         -- sigma of the added noise
  timemask = 20,         -- maximum steps of a masked run
  speed = 0.0,           -- relative change of the speed, each way
  bands = { 0, 0, 0, 0 }, -- see bands of :augment
  folds = 0,             -- cross-validation, in place of both
  valid = 0.15, test = 0.2, -- shares, or numbers of speakers
  speakers = 8, takes = 12, -- of the synthetic data
  presets = {
    demo = { learn = "contrastive", classes = 4, channels = 16, longest = 128, cut = false,
             features = { 32, 48 }, hidden = 48, project = 64, embed = 64, mlp = { 32, 16 },
             dropout = { 0.1, 0.1, 0.4 }, batch = 48, multiple = 16, epochs = 10, lr = 2e-3,
             learn_lr = 1e-2, norm = "channel", noise = 0.05, timemask = 8, speed = 0.3,
             bands = { 0.1, 1, 0.2, 2 } },
    quick = { learn = "supervised", classes = 10, channels = 40, longest = 144, cut = false,
              features = { 64, 96 }, hidden = 64, project = 128, embed = 128, mlp = { 64 },
              dropout = { 0.3, 0.4, 0.4 }, batch = 64, multiple = 8, epochs = 15, lr = 2e-3,
              decay = 0.01, ema = 0.98, level = 30, norm = "speaker", noise = 0.4, timemask = 12,
              speed = 0.3, bands = { 0.1, 1, 0.5, 8 } },
    full = {},
    check = { learn = "contrastive", classes = 3, channels = 8, longest = 128, cut = false,
              features = { 4, 6 }, hidden = 4, project = 8, embed = 8, mlp = { 6 }, batch = 6,
              multiple = 16, epochs = 1, norm = "channel", speakers = 3, takes = 3, test = 1 },
  },
}

-- Data ------------------------------------------------------------------------

local labels = cfg.learn == "supervised"
local cases = cfg.data
  and data.csv { root = cfg.data, table = "labels.csv", patient = cfg.by, fields = {
    { name = "sequence", read = "npy", rank = 1, column = "path" },
    { name = "label", kind = "numbers", column = "label" }, { name = "length", kind = "length" } } }
  or data.phantom { format = "sequences", speakers = cfg.speakers, takes = cfg.takes,
                    classes = cfg.classes, features = cfg.channels }

local norm = seg.pick("norm", cfg.norm, { none = false, channel = {},
  sequence = { together = true }, speaker = { per = "patient" } })
local function prepare(set)
  if cfg.level ~= 0 then set = set:crop { within = cfg.level, margin = 1 } end
  if norm then set = set:normalize(norm) end
  return cfg.cut and set:fit { w = cfg.longest, at = "start" } or set
end
local function batches(set, shuffle)
  return set:batches { size = cfg.batch, shuffle = shuffle, bucket = "length",
    multiple = cfg.multiple, twice = cfg.learn == "contrastive" and { sequence = "other" } or nil }
end
local train, valid, test = cases:split { folds = cfg.folds, valid = labels and cfg.valid or 0,
                                         test = cfg.test, seed = 42 }
local b = { seg.numbers("bands", cfg.bands, 4) }
train = batches(prepare(train):augment {
  affine = { rotate = { 0, 0 }, scale = { 1 - cfg.speed, 1 + cfg.speed },
             shift = cfg.speed / 2, p = 1 },
  timemask = { most = cfg.timemask, p = 1 }, noise = { sigma = cfg.noise, p = 1 },
  bands = { stretch = b[1], shift = b[2], tilt = b[3], most = b[4], p = 1 } }, true)
valid = labels and batches(prepare(valid)) or nil
test = test and batches(prepare(test))

-- Network ---------------------------------------------------------------------

local x = nn.input("sequence", { c = cfg.channels, w = cfg.longest })
local length, label = nn.input("length", { c = 1 }), nn.input("label", { c = 1 })
local drop = { seg.numbers("dropout", cfg.dropout, 3) }
local function encode(sequence)
  return nn.scope("encoder", function()
    return net.cnn_lstm(sequence, {
      lengths = length, features = cfg.features, hidden = cfg.hidden, project = cfg.project,
      out = cfg.embed, dropout = drop[1], lstm_dropout = drop[2], project_dropout = drop[2] })
  end, { share = true })
end
local vector = encode(x)
local clusters, logits = seg.clusters {
  embedding = vector, k = cfg.classes, truth = label, learn_lr = cfg.learn_lr,
  classifier = function(v)
    return net.mlp(v, { hidden = cfg.mlp, out = cfg.classes, dropout = drop[3] }) end }

-- Training --------------------------------------------------------------------

local inputs = { x, length, label }
local loss = seg.pick("learn", cfg.learn, {
  supervised = function() return nn.cross_entropy(logits, label) end,
  statistics = function() return nn.statistics(vector, x, { lengths = length }) end,
  denoise = function()
    local masked = encode(nn.mask_steps(x, { steps = 0.3, span = 4 }))
    return nn.mse(net.lstm_decoder(masked, { like = x, lengths = length, name = "decoder" }), x)
  end,
  contrastive = function()
    inputs[4] = nn.input("other", { c = cfg.channels, w = cfg.longest }) -- the second view
    return nn.contrastive(vector, encode(inputs[4]), { temperature = 0.2 })
  end,
})()

seg.recipe {
  inputs = inputs, outputs = { label = nn.softmax(logits), vector = vector }, loss = loss,
  train = train, valid = valid, test = test, clusters = not labels and clusters or nil,
  metrics = { accuracy = (labels and metric.accuracy or metric.groups)(logits, label) },
  best = labels and { "accuracy", "max" } or nil,
  optim = optim.adamw { lr = cfg.lr, decay = cfg.decay, clip_norm = 1 }, ema = cfg.ema,
  schedule = labels and optim.cosine {} or nil, epochs = cfg.epochs, predict = { output = "label" },
}
