-- pose.lua -- regression of two angles of a head from pictures.
--
-- Data    --data DIR: labels.csv with the columns path, person, x, y, width, height (the box of
--         the face; outside of the picture it is 0), tilt and pan in degrees.
-- Model   a small CNN. A flip changes the sign of the second angle.
--
--   segengine scripts/examples/pose.lua --data DIR

local seg = require "seg"
local data, metric, net, nn, optim = seg.data, seg.metric, seg.net, seg.nn, seg.optim
local cfg = seg.config { size = 64, base = 16, batch = 16, epochs = 20, lr = 1e-3 }

local cases = data.csv {
  root = cfg.data, table = "labels.csv", patient = "person",
  fields = { { name = "image", read = "image", column = "path", box = function(row)
               return row:number "x", row:number "y", row:number "width", row:number "height"
             end },
             { name = "pose", kind = "numbers", columns = { "tilt", "pan" } } },
}
local function prepare(set) return set:resize { h = cfg.size, w = cfg.size } end
local train, valid, test = cases:split { valid = 0.2, test = 0.2, seed = 42 }
train = prepare(train):augment { flip = { axis = "w", negate = { 2 } }, jitter = { top = 255 } }
  :batches { size = cfg.batch, shuffle = true }
valid = prepare(valid):batches { size = cfg.batch }
test = prepare(test):batches { size = cfg.batch }

local image = nn.input("image", { c = 3, h = cfg.size, w = cfg.size })
local pose = nn.input("pose", { c = 2 })
local widths = { cfg.base, 2 * cfg.base, 4 * cfg.base }
local angles = net.pose_cnn(image / 255, { features = widths, out = 2 }) * 90

seg.recipe {
  inputs = { image, pose }, outputs = { pose = angles },
  loss = nn.mae(angles, pose), best = { "mae", "min" },
  metrics = { mae = metric.mae(angles, pose, { unit = "degrees" }) },
  train = train, valid = valid, test = test,
  optim = optim.adamw { lr = cfg.lr }, schedule = optim.cosine {},
}
