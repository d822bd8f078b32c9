-- classes.lua -- classification of pictures.
--
-- Data    --data DIR: a folder of pictures for each class, here `cat` and `dog`. The number of
--         the folder, from 0, is the field `class`.
-- Model   a small ResNet-18.
--
--   segengine scripts/examples/classes.lua --data DIR

local seg = require "seg"
local data, metric, net, nn, optim = seg.data, seg.metric, seg.net, seg.nn, seg.optim
local cfg = seg.config { size = 64, base = 16, batch = 16, epochs = 20, lr = 1e-3 }

local names = { "cat", "dog" }
local cases = data.images { root = cfg.data, classes = names, patient = "file" }
local function prepare(set) return set:resize { h = cfg.size, w = cfg.size } end
local train, valid, test = cases:split { valid = 0.2, test = 0.2, seed = 42 }
train = prepare(train):augment { flip = { axis = "w" }, jitter = { top = 255 } }
  :batches { size = cfg.batch, shuffle = true }
valid = prepare(valid):batches { size = cfg.batch }
test = prepare(test):batches { size = cfg.batch }

local image = nn.input("image", { c = 3, h = cfg.size, w = cfg.size })
local class = nn.input("class", { c = 1 })
local logits = net.resnet(image / 255, { base = cfg.base, out = #names, stem = "small" })

seg.recipe {
  inputs = { image, class }, outputs = { class = nn.softmax(logits) },
  loss = nn.cross_entropy(logits, class), best = { "auc", "max" },
  metrics = { accuracy = metric.accuracy(logits, class), auc = metric.auc(logits, class),
              confusion = metric.confusion(logits, class, { names = names }) },
  train = train, valid = valid, test = test,
  optim = optim.adamw { lr = cfg.lr }, schedule = optim.cosine {},
}
