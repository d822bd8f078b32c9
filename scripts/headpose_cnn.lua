-- headpose_cnn.lua -- head pose angles from a photograph of a face.
--
-- Data    --data DIR --layout 300wlp: photographs with a .mat each, as in 300W-LP and
--         AFLW2000; biwi: folders of frames with _pose.txt; pointing04: photographs
--         named after tilt and pan (no roll). A person is in one part of the split; a
--         sequence of BIWI counts as a person unless --same 12=07,... joins two.
--         Without --data: rendered heads of synthetic people; the banner says so.
-- Model   --net small: 1,206,499 parameters; resnet18: 14,850,274.
-- Result  runs/headpose_cnn/NNN/: mean error of each angle and of the rotation.
--
--   segengine scripts/headpose_cnn.lua                     (rendered, minutes)
--   segengine scripts/headpose_cnn.lua --data DIR --layout biwi
--   segengine scripts/headpose_cnn.lua folds --data DIR --layout pointing04 --folds 5
--   segengine scripts/headpose_cnn.lua evaluate --data AFLW2000 --split all

local seg = require "seg"
local data, metric, net, nn, optim = seg.data, seg.metric, seg.net, seg.nn, seg.optim

local cfg = seg.config {
  layout = "300wlp",   -- or biwi, pointing04
  pitch = "300wlp",    -- its sign: positive looks up; "biwi": positive looks down
  margin = 0.35,       -- 300wlp, pointing04: margin of the crop around the face
  face_mm = 300,       -- biwi: size of the crop around the head; 0: whole frames
  same = "",           -- biwi: sequences of the same person, as 12=07,14=08
  net = "small",       -- or resnet18
  features = { 32, 64, 128, 256 }, -- channels of the small network
  size = 112,          -- pixels of the face, both axes
  whiten = false,      -- normalise each colour of a photograph to mean 0, sd 1
  loss = "mae",        -- or mse, huber: of standardised angles
  batch = 64,          -- faces a step
  epochs = 50,
  lr = 1e-3,           -- learning rate
  decay = 1e-4,        -- weight decay, decoupled
  dropout = 0.0,       -- before the last layer
  ema = 0.0,           -- average of weights
  jitter = { 0.2, 0.2, 0.2, 0.1 }, -- brightness, contrast, saturation, hue
  turn = 0,            -- degrees of rotation, each way; only without roll
  zoom = 0.0, shift = 0.0, -- shares of the face, each way
  cutout = 0.0,        -- probability of a grey box on the face
  valid = 0.05, test = 0.2, -- shares, or numbers of people; 0: none
  folds = 0,           -- cross-validation instead
  split_seed = 42,     -- seed of the split into train, valid and test
  start = "",          -- a run with pretrained convolutions, for example on rendered heads
  people = 100, photos = 30, -- of the synthetic data
  presets = {
    demo = { size = 64, features = { 16, 32, 64, 128 }, batch = 32, epochs = 30, lr = 2e-3,
             ema = 0.99, valid = 0.1 },
    quick = { size = 64, features = { 16, 32, 64, 128 }, batch = 32, epochs = 40, ema = 0.995,
              valid = 0.1, margin = 0.4, whiten = true, zoom = 0.15, shift = 0.08, dropout = 0.3,
              jitter = { 0.4, 0.4, 0.4, 0.1 }, cutout = 0.3 },
    full = {},
    check = { size = 32, features = { 4, 8 }, batch = 4, epochs = 1, people = 6, photos = 4,
              valid = 0.2 },
  },
}

-- Data ------------------------------------------------------------------------

local open = seg.pick("layout", cfg.layout, {
  ["300wlp"] = function(o) return data.w300lp(o) end,
  pointing04 = function(o) return data.pointing04(o) end,
  biwi = function(o)
    return data.biwi { root = o.root, pitch = o.pitch, same = cfg.same, face_mm = cfg.face_mm }
  end,
})
local cases
if cfg.data or cfg.layout ~= "300wlp" then
  cases = open { root = cfg.data, pitch = cfg.pitch, margin = cfg.margin }
else
  cases = data.phantom { format = "faces", people = cfg.people, photos = cfg.photos,
                         pitch = cfg.pitch, margin = cfg.margin }
end
local rolls = cfg.layout ~= "pointing04"
local names, form = { "yaw", "pitch", rolls and "roll" or nil }, rolls and "euler" or "yaw pitch"
assert(not rolls or cfg.turn == 0, "--turn: a turned face has another roll than its label; 0 here")

local function prepare(set)
  return set:resize { h = cfg.size, w = cfg.size, method = "smooth" }
    :standardize { field = "pose" }
end

local train, valid, test = cases:split { folds = cfg.folds, valid = cfg.valid, test = cfg.test,
                                         seed = cfg.split_seed }
local j = { seg.numbers("jitter", cfg.jitter, 4) }
train = prepare(train)
  :augment {
    -- mirroring changes the sign of yaw and roll
    flip = { axis = "w", negate = rolls and { 1, 3 } or { 1 } },
    affine = { rotate = { -cfg.turn, cfg.turn }, scale = { 1 - cfg.zoom, 1 + cfg.zoom },
               shift = cfg.shift, p = 1 },
    jitter = { brightness = j[1], contrast = j[2], saturation = j[3], hue = j[4], top = 255 },
    cutout = { size = { 0.1, 0.4 }, p = cfg.cutout },
  }
  :batches { size = cfg.batch, shuffle = true }
valid = prepare(valid):batches { size = cfg.batch }
test = test and prepare(test):batches { size = cfg.batch }

-- Network ---------------------------------------------------------------------

local image = nn.input("image", { c = 3, h = cfg.size, w = cfg.size })
local truth = nn.input("pose", { c = #names })
local pose = seg.pick("net", cfg.net, {
  small = function(x)
    return net.pose_cnn(x, { features = cfg.features, out = #names, dropout = cfg.dropout })
  end,
  resnet18 = function(x) return net.pose_resnet(x, { out = #names }) end,
})(cfg.whiten and nn.instance_norm(image, { affine = false }) or image / 255)

-- Training --------------------------------------------------------------------

local loss = seg.pick("loss", cfg.loss, { mae = nn.mae, mse = nn.mse, huber = nn.huber })

seg.recipe {
  inputs = { image, truth },
  outputs = { pose = pose },
  loss = loss(pose, truth),
  train = train, valid = valid, test = test,
  optim = optim.adamw { lr = cfg.lr, decay = cfg.decay },
  schedule = optim.cosine {},
  ema = cfg.ema,
  init = cfg.start ~= "" and { weights = cfg.start,
                               match = cfg.net == "small" and "^stage" or "^backbone" } or nil,
  metrics = { mae = metric.mae(pose, truth, { unit = "degrees", names = names }),
              geodesic = metric.geodesic(pose, truth, { form = form }) },
  best = { "mae", "min" },
  epochs = cfg.epochs,
}
