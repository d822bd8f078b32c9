-- networks.lua -- the networks of the speed table; the PyTorch ones with the same names are in
-- tests/pytorch/networks.py.
--
--   local one = dofile("tests/bench/networks.lua").unet(batch)
--   one.inputs    {name = array}: a batch of random numbers, the same at every call
--   one.loss, one.output, one.optim    of training, of inference
--
-- A step draws no random numbers, so that both programs compute the same.

local seg = require "seg"
local core = require "seg.core"
local nn, net, optim = seg.nn, seg.net, seg.optim
local M = {}

-- Uniform numbers of (batch, ...); `binary`: 0 or 1.
local function numbers(seed, binary, ...)
  return core.array.random({ ... }, seed, binary)
end

-- A U-Net with batch norm, BCE + Dice.
local function unet(features, bias, decay)
  return function(batch, size)
    local image = nn.input("image", { c = 1, h = size, w = size })
    local truth = nn.input("mask", { c = 1, h = size, w = size })
    local logits = net.unet(image, { features = features, out = 1, bias = bias })
    return {
      inputs = { image = numbers(1, false, batch, 1, size, size),
                 mask = numbers(2, true, batch, 1, size, size) },
      loss = nn.bce_dice(logits, truth), output = logits,
      optim = optim.adamw { lr = 1e-3, decay = decay },
    }
  end
end

-- The networks of scripts/brain_unet.lua and scripts/nfbs_unet.lua.
M.unet = unet({ 32, 64, 128, 256 }, false, 1e-4)
M.nfbs = unet({ 32, 64, 128, 256, 512 }, true, 0)

-- The generator of scripts/openkbp_unet3d.lua with 32 filters, the report's loss.
function M.generator(batch, size)
  local x = nn.input("image", { c = 11, d = size, h = size, w = size })
  local truth = nn.input("dose", { c = 1, d = size, h = size, w = size })
  local dose = net.pix2pix(x, { filters = 32, levels = 6, dropout = 0 })
  return {
    inputs = { image = numbers(1, false, batch, 11, size, size, size),
               dose = numbers(2, false, batch, 1, size, size, size) },
    loss = nn.mae(dose, truth), output = dose,
    optim = optim.adam { lr = 2e-4, beta1 = 0.5, eps = 1e-7 },
  }
end

-- The backbone of scripts/headpose_cnn.lua --net resnet18 with three angles.
function M.resnet18(batch, size)
  local x = nn.input("image", { c = 3, h = size, w = size })
  local truth = nn.input("pose", { c = 3 })
  local pose = net.resnet(x, { depth = 18, out = 3 })
  return {
    inputs = { image = numbers(1, false, batch, 3, size, size),
               pose = numbers(2, false, batch, 3) },
    loss = nn.mae(pose, truth), output = pose, optim = optim.adamw { lr = 1e-3, decay = 1e-4 },
  }
end

-- Encoder and classifier of scripts/sequence_cnn_lstm.lua with the report's sizes; a sequence has a
-- length of three fifths of `size` to `size` steps.
function M.cnn_lstm(batch, size)
  local x = nn.input("sequence", { c = 1024, w = size })
  local length, label = nn.input("length", { c = 1 }), nn.input("label", { c = 1 })
  local vector = nn.scope("encoder", function()
    return net.cnn_lstm(x, { lengths = length, dropout = 0, lstm_dropout = 0,
                             project_dropout = 0 })
  end)
  local logits = nn.scope("classifier", function()
    return net.mlp(vector, { hidden = { 256, 128 }, out = 5, dropout = 0 })
  end)
  local lengths, labels = {}, {}
  for i = 1, batch do
    lengths[i], labels[i] = size - (i - 1) * 7 % (2 * size // 5), (i - 1) % 5
  end
  return {
    inputs = { sequence = numbers(1, false, batch, 1024, size),
               length = core.array { shape = { batch, 1 }, data = lengths },
               label = core.array { shape = { batch, 1 }, data = labels } },
    loss = nn.cross_entropy(logits, label), output = logits,
    optim = optim.adamw { lr = 1e-4, decay = 0 },
  }
end

return M
