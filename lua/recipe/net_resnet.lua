-- net_resnet.lua -- seg.net.resnet, and the head-pose network on top of it.
--
-- He et al. 2016 (arXiv:1512.03385), with the stride of a bottleneck in its middle convolution.
-- Parameters have torchvision's names (conv1, bn1, layer1.0.conv1, layer2.0.downsample.0, fc), so
-- torchvision's weights load without renaming.

local block = require "seg.recipe.net_block"
local nn = require "seg.recipe.nn"
local util = require "seg.util"

local none = util.none
local M = {}

-- Numbers of blocks in the four stages, by depth.
local stages = {
  [18] = { 2, 2, 2, 2 }, [34] = { 3, 4, 6, 3 }, [50] = { 3, 4, 6, 3, wide = 4 },
}

local function conv(x, filters, kernel, s, name, stride)
  return nn.conv(x, filters, kernel, { stride = stride or 1, bias = false, init = s.init,
                                       name = name })
end

-- A residual block: two 3x3 convolutions, or 1x1, 3x3, 1x1 with s.wide times the channels at the
-- end.
local function add_block(x, filters, stride, s)
  local out, y = filters * (s.wide or 1)
  if s.wide then
    y = nn.relu(s.norm(conv(x, filters, 1, s, "conv1"), "bn1"))
    y = nn.relu(s.norm(conv(y, filters, 3, s, "conv2", stride), "bn2"))
    y = s.norm(conv(y, out, 1, s, "conv3"), "bn3")
  else
    y = nn.relu(s.norm(conv(x, filters, 3, s, "conv1", stride), "bn1"))
    y = s.norm(conv(y, filters, 3, s, "conv2"), "bn2")
  end
  if stride ~= 1 or x.c ~= out then
    x = nn.scope("downsample", function()
      return s.norm(conv(x, out, 1, s, "0", stride), "1")
    end)
  end
  return nn.relu(y + x)
end

-- stem "large": a 7x7 convolution and a pool, which reduce the extents to a quarter, for
-- photographs; "small": a 3x3 convolution that keeps the extents, for small pictures.
local function stem(x, base, s, kind)
  if kind == "small" then return nn.relu(s.norm(conv(x, base, 3, s, "conv1"), "bn1")) end
  x = nn.relu(s.norm(conv(x, base, 7, s, "conv1", 2), "bn1"))
  return nn.maxpool(x, 3, { stride = 2, pad = 1 })
end

-- net.resnet(x, {...}) -> (N, out); with out = 0 the features before the last layer: 8 base
-- channels (32 base for depth 50).
M.resnet = block.builder("resnet", {
  depth = 18, out = 1000, base = 64, stem = "large", norm = "batch",
  init = "kaiming_normal_out", -- as in torchvision
}, 1, function(x, o, what)
  local blocks = stages[o.depth]
  if not blocks then
    util.fail("usage", "%s: depth must be 18, 34 or 50, got %s", what, tostring(o.depth))
  end
  local s = { init = o.init, norm = block.norm(what, o.norm), wide = blocks.wide }
  local base = block.whole(what .. ": base", o.base, 1)
  local out = block.whole(what .. ": out", o.out, 0)
  x = stem(x, base, s, block.choice(what .. ": stem", o.stem, { "large", "small" }))
  for stage, count in ipairs(blocks) do
    nn.scope("layer" .. stage, function()
      for i = 1, count do
        local stride = stage > 1 and i == 1 and 2 or 1
        x = nn.scope(tostring(i - 1), function()
          return add_block(x, base << (stage - 1), stride, s)
        end)
      end
    end)
  end
  x = nn.global_pool(x)
  return out > 0 and nn.linear(x, out, { name = "fc" }) or x
end)

-- net.pose_resnet(x, {...}) -> (N, out) angles: a ResNet whose features predict two groups of
-- numbers, the coordinates of face and body landmarks; each group is encoded separately, and both
-- encodings together give the angles. Linear layers are followed by ReLU, batch norm and dropout.
-- dropout: the rates of the first layer, the two groups, their encoders, and the last layer.
M.pose_resnet = block.builder("pose_resnet", {
  depth = 18, out = 3, base = 64, shared = 1024, face = { 768, 1404 }, pose = { 256, 99 },
  face_encoder = { 512, 256 }, pose_encoder = { 128, 64 }, fusion = 256, hidden = 128,
  dropout = { 0.3, 0.2, 0.1, 0.05 }, init = none,
}, 2, function(x, o, what)
  if type(o.dropout) ~= "table" or #o.dropout ~= 4 then
    util.fail("usage", "%s: dropout must be four shares as {0.3, 0.2, 0.1, 0.05}", what)
  end
  local relu, norm = block.act(what, "relu"), block.norm(what, "batch")
  local function linears(name, y, widths, share)
    return nn.scope(name, function()
      return block.linears(y, widths, { norm = norm, act = relu, dropout = share, late = true })
    end)
  end
  -- hidden layers of widths[1 .. n-1], then a linear layer without norm
  local function numbers(name, y, widths)
    widths = block.widths(what .. ": " .. name, widths)
    local last = table.remove(widths)
    return nn.linear(linears(name, y, widths, o.dropout[2]), last, { name = name .. ".out" })
  end
  x = M.resnet(x, { depth = o.depth, base = o.base, out = 0, init = o.init or "kaiming_normal_out",
                    name = "backbone" })
  x = linears("shared", x, { o.shared }, o.dropout[1])
  local face, pose = numbers("face", x, o.face), numbers("pose", x, o.pose)
  face = linears("face_encoder", face, block.widths(what .. ": face_encoder", o.face_encoder),
                 o.dropout[3])
  pose = linears("pose_encoder", pose, block.widths(what .. ": pose_encoder", o.pose_encoder),
                 o.dropout[3])
  x = linears("fusion", face .. pose, { o.fusion }, o.dropout[3])
  x = nn.relu(nn.linear(x, o.hidden, { name = "hidden" }))
  return nn.linear(nn.dropout(x, o.dropout[4]), o.out, { name = "head" })
end)

return M
