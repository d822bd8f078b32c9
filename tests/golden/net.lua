-- net.lua -- the U-Net of the recipes, for tests that compare it with PyTorch.
--
--   local net = dofile("tests/golden/net.lua")
--   local image, truth, logits = net.unet { features = { 32, 64, 128, 256 }, size = 64 }
--
-- Scopes and layers equal scripts/brain_unet.lua and, with bias = true,
-- scripts/nfbs_unet.lua; the bottom has twice the last number of features. The
-- same network in Python is tests/pytorch/unet_torch.py.

local seg = require "seg"
local nn = seg.nn
local M = {}

local function block(name, x, f, bias)
  return nn.scope(name, function()
    for _ = 1, 2 do x = nn.relu(nn.batch_norm(nn.conv(x, f, 3, { bias = bias }))) end
    return x
  end)
end

local function levels(x, o, level)
  local f = o.features[level]
  if not f then return block("bottom", x, 2 * o.features[level - 1], o.bias) end
  local skip = block("enc" .. level, x, f, o.bias)
  local low = levels(nn.maxpool(skip, 2), o, level + 1)
  local up = nn.upconv(low, f, 2, { name = "up" .. level })
  return block("dec" .. level, up .. skip, f, o.bias)
end

-- {features=, size=, bias=} -> input "image", input "mask", logits
function M.unet(o)
  o.bias = o.bias or false
  local image = nn.input("image", { c = 1, h = o.size, w = o.size })
  local truth = nn.input("mask", { c = 1, h = o.size, w = o.size })
  return image, truth, nn.conv(levels(image, o, 1), 1, 1, { name = "head" })
end

-- Layers of a block by their index in PyTorch's Sequential(conv, norm, relu, ...).
local layer = { ["0"] = "conv1", ["1"] = "norm1", ["3"] = "conv2", ["4"] = "norm2" }

-- Translates a parameter's name of unet_torch.py to segengine's: enc1.3.weight ->
-- enc1.conv2.weight. Returns nil for a parameter without counterpart.
function M.rename(name)
  if name:match("num_batches_tracked$") then return nil end
  return (name:gsub("^(%w+)%.(%d)%.", function(block_name, n)
    return block_name .. "." .. layer[n] .. "."
  end))
end

return M
