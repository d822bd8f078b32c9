-- sequences.lua -- classification of sequences of different lengths.
--
-- Data    --data DIR: labels.csv with the columns path and speaker (from 0); an array .npy
--         (time, features) for each row. `fit` pads all to one length; the network gets the
--         true length as an input, so that the padding has no influence.
-- Model   CNN and bidirectional LSTM.
--
--   segengine scripts/examples/sequences.lua --data DIR

local seg = require "seg"
local data, metric, net, nn, optim = seg.data, seg.metric, seg.net, seg.nn, seg.optim
local cfg = seg.config { steps_long = 32, features = 12, classes = 9, base = 32, batch = 16,
                         epochs = 20, lr = 1e-3 }

local cases = data.csv {
  root = cfg.data, table = "labels.csv", patient = "file",
  fields = { { name = "x", read = "npy", rank = 1, column = "path" },
             { name = "speaker", kind = "numbers", column = "speaker" }, -- from 0
             { name = "length", kind = "length" } },
}
local function prepare(set) return set:fit { w = cfg.steps_long, at = "start" } end
local train, valid, test = cases:split { valid = 0.2, test = 0.2, seed = 42 }
train = prepare(train):augment { timeshift = { most = 2 }, noise = true, timemask = { most = 4 } }
  :batches { size = cfg.batch, shuffle = true }
valid = prepare(valid):batches { size = cfg.batch }
test = prepare(test):batches { size = cfg.batch }

local x = nn.input("x", { c = cfg.features, w = cfg.steps_long })
local length, speaker = nn.input("length", { c = 1 }), nn.input("speaker", { c = 1 })
local logits = net.cnn_lstm(x, { lengths = length, features = { cfg.base }, hidden = cfg.base,
                                 project = 2 * cfg.base, out = cfg.classes })

seg.recipe {
  inputs = { x, length, speaker }, outputs = { speaker = nn.softmax(logits) },
  loss = nn.cross_entropy(logits, speaker), best = { "accuracy", "max" },
  metrics = { accuracy = metric.accuracy(logits, speaker) },
  train = train, valid = valid, test = test,
  optim = optim.adamw { lr = cfg.lr }, schedule = optim.cosine {},
}
