-- losses.lua -- the losses made of nodes: values and gradients against PyTorch, extreme logits,
-- empty masks and absent classes, options and operands that are wrong.
--
-- tests/golden/losses.py made the numbers; inputs follow from numbers() here and there.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local util = require "seg.util"
local nn, array, optim = seg.nn, seg.array, seg.optim

local FILE = "tests/golden/losses.npz"
local IGNORE = 255

-- The number i (from 0) of a list, in [0, 1).
local function number(seed, i) return (i * i * 4391 + i * 7919 + seed * 4409) % 10007 / 10007 end

-- An array of this shape with f(i) for the element i from 0 in the order of PyTorch.
local function filled(shape, f)
  local a, index, i = array.zeros(shape), {}, 0
  local function walk(axis)
    for k = 1, shape[axis] do
      index[axis] = k
      if axis < #shape then
        walk(axis + 1)
      else
        local at = table.pack(f(i), table.unpack(index))
        a:set(table.unpack(at))
        i = i + 1
      end
    end
  end
  walk(1)
  return a
end

-- The elements of `a` in the order of PyTorch.
local function list_of(a)
  local list, index, shape = {}, {}, a.shape
  local function walk(axis)
    for k = 1, shape[axis] do
      index[axis] = k
      if axis < #shape then walk(axis + 1) else list[#list + 1] = a:get(table.unpack(index)) end
    end
  end
  walk(1)
  return list
end

local made = 0
local EXTENTS = { [2] = { "c" }, [3] = { "c", "w" }, [4] = { "c", "h", "w" },
                  [5] = { "c", "d", "h", "w" } }

local function input(shape)
  made = made + 1
  local o = {}
  for i, axis in ipairs(EXTENTS[#shape]) do o[axis] = shape[i + 1] end
  return nn.input("in" .. made, o)
end

-- A batch of inputs for a loss, and logits whose gradient is a parameter's: x + sum over samples n
-- of (1 for sample n, else 0) p[n].
local Batch = {}
Batch.__index = Batch

function Batch:add(a)
  local node = input(a.shape)
  self.arrays[node.name] = a
  return node
end

local function new_batch(shape, logit)
  local b = setmetatable({ shape = shape, arrays = {}, params = {} }, Batch)
  local x = b:add(filled(shape, logit))
  local own = { 1 }
  for i = 2, #shape do own[i] = shape[i] end
  local flag = { shape[1] }
  for i = 2, #shape do flag[i] = 1 end
  for n = 1, shape[1] do
    b.params[n] = "p" .. made .. "_" .. n
    local one = b:add(filled(flag, function(i) return i == n - 1 and 1 or 0 end))
    x = x + one * nn.param(b.params[n], own)
  end
  b.x = x
  return b
end

-- The loss, and its gradient by the logits as a list. The plan is used again for the same loss.
function Batch:run(loss, device)
  local step = self.step
  if self.loss ~= loss then
    step = seg.step { loss = loss, optim = optim.sgd { lr = 0 }, device = device, threads = 1 }
    for name, a in pairs(self.weights or {}) do step:set(name, a) end
    self.step, self.loss = step, loss
  end
  local value, all = step:run(self.arrays), {}
  local grads = step:gradients()
  for _, name in ipairs(self.params) do
    for _, v in ipairs(list_of(grads[name])) do all[#all + 1] = v end
  end
  return value, all
end

local function logit(i) return 6 * number(1, i) - 3 end

-- Targets as in losses.py.
local function flat(shape, channels)
  local own = { table.unpack(shape) }
  own[2] = channels
  return own
end

local function classes(b, c, ignore, keep)
  return b:add(filled(flat(b.shape, 1), function(i)
    if ignore and number(3, i) < 0.2 then return IGNORE end
    local k = number(2, i) * c // 1
    return keep and k >= keep and 0 or k
  end))
end

local function bits(b, ignore)
  return b:add(filled(b.shape, function(i)
    if ignore and number(3, i) < 0.2 then return IGNORE end
    return number(2, i) * 2 // 1
  end))
end

local function image(b) return b:add(filled(b.shape, function(i) return number(4, i) end)) end

-- The signed distance to the boundary of the positions where truth[i] == class, in mm, by trying
-- all pairs of positions; below 0 inside, 0 without a boundary.
local function distances(b, truth, list)
  local shape = flat(b.shape, #list)
  local space = { 1, 1, 1 }
  for i = 3, #shape do space[i - 2 + 5 - #shape] = shape[i] end
  local mm, count = { 2.5, 1, 0.75 }, space[1] * space[2] * space[3]
  local function place(p) return { p // (space[2] * space[3]), p // space[3] % space[2],
                                   p % space[3] } end
  return b:add(filled(shape, function(i)
    local n, k, p = i // (#list * count), i // count % #list + 1, i % count
    local inside, least = truth[n * count + p + 1] == list[k], nil
    local from = place(p)
    for q = 0, count - 1 do
      if (truth[n * count + q + 1] == list[k]) ~= inside then
        local to, square = place(q), 0
        for axis = 1, 3 do square = square + (mm[axis] * (from[axis] - to[axis])) ^ 2 end
        least = math.min(least or square, square)
      end
    end
    return least and (inside and -1 or 1) * math.sqrt(least) or 0
  end))
end

local W3 = { 0.5, 1, 2.5 }

-- The losses of losses.py by the name of a row without "_2d", "_3d".
local losses = {
  ce_weights = function(b)
    return nn.cross_entropy(b.x, classes(b, 3, true), { class_weights = W3, ignore = IGNORE })
  end,
  ce_smoothing = function(b)
    return nn.cross_entropy(b.x, classes(b, 3, true), { label_smoothing = 0.1, ignore = IGNORE })
  end,
  ce_both = function(b)
    return nn.cross_entropy(b.x, classes(b, 3, true), { class_weights = W3, label_smoothing = 0.3,
                                                        ignore = IGNORE })
  end,
  softmax_focal = function(b)
    return nn.softmax_focal(b.x, classes(b, 3, true), { ignore = IGNORE })
  end,
  softmax_focal_half = function(b)
    return nn.softmax_focal(b.x, classes(b, 3, true), { ignore = IGNORE, gamma = 0.5,
                                                        class_weights = W3 })
  end,
  bce_weights = function(b)
    return nn.bce(b.x, bits(b, true), { class_weights = { 1, 3 }, ignore = IGNORE })
  end,
  focal_weights = function(b)
    return nn.focal(b.x, bits(b, true), { class_weights = { 1, 3 }, ignore = IGNORE })
  end,
  dice_weights = function(b)
    return nn.dice_loss(b.x, classes(b, 3, true), { class_weights = W3, ignore = IGNORE,
                                                    per = "sample" })
  end,
  dice_ignore = function(b)
    return nn.dice_loss(b.x, bits(b, true), { ignore = IGNORE, per = "sample" })
  end,
  tversky_weights = function(b)
    return nn.tversky(b.x, classes(b, 3, true), { class_weights = W3, ignore = IGNORE,
                                                  per = "sample", alpha = 0.3, beta = 0.7 })
  end,
  bce_dice_weights = function(b)
    return nn.bce_dice(b.x, bits(b, true), { class_weights = { 1, 3 }, ignore = IGNORE,
                                             per = "sample", dice = 0.5 })
  end,
  generalized_dice = function(b)
    return nn.generalized_dice(b.x, classes(b, 3, true), { ignore = IGNORE })
  end,
  generalized_dice_one = function(b) return nn.generalized_dice(b.x, bits(b)) end,
  generalized_dice_absent = function(b)
    return nn.generalized_dice(b.x, classes(b, 3, false, 2))
  end,
  focal_tversky = function(b)
    return nn.focal_tversky(b.x, classes(b, 3), { class_weights = W3 })
  end,
  focal_tversky_skip = function(b)
    return nn.focal_tversky(b.x, classes(b, 3, false, 2), { empty = "skip" })
  end,
  cldice = function(b) return nn.cldice(b.x, classes(b, 3)) end,
  cldice_one = function(b) return nn.cldice(b.x, bits(b), { steps = 2 }) end,
  boundary = function(b)
    local truth = classes(b, 3)
    return nn.boundary_loss(b.x, distances(b, list_of(b.arrays[truth.name]), { 1, 2 }))
  end,
  boundary_one = function(b)
    local truth = bits(b)
    return nn.boundary_loss(b.x, distances(b, list_of(b.arrays[truth.name]), { 1 }))
  end,
  hausdorff = function(b)
    local truth = classes(b, 3)
    return nn.hausdorff_loss(b.x, truth,
                             distances(b, list_of(b.arrays[truth.name]), { 1, 2 }))
  end,
  hausdorff_one = function(b)
    local truth = bits(b)
    return nn.hausdorff_loss(b.x, truth, distances(b, list_of(b.arrays[truth.name]), { 1 }),
                             { alpha = 1.5 })
  end,
  variation = function(b) return nn.total_variation(b.x) end,
  variation_isotropic = function(b) return nn.total_variation(b.x, { isotropic = true }) end,
  topk = function(b)
    return nn.topk_cross_entropy(b.x, classes(b, 3, true), { ignore = IGNORE })
  end,
  topk_weights = function(b)
    return nn.topk_cross_entropy(b.x, classes(b, 3, true), { ignore = IGNORE, share = 0.3,
                                                             class_weights = W3 })
  end,
  lovasz_softmax = function(b) return nn.lovasz_softmax(b.x, classes(b, 3)) end,
  lovasz_softmax_ignore = function(b)
    return nn.lovasz_softmax(b.x, classes(b, 3, true), { ignore = IGNORE, class_weights = W3 })
  end,
  lovasz_softmax_absent = function(b)
    return nn.lovasz_softmax(b.x, classes(b, 3, false, 2))
  end,
  lovasz_softmax_one = function(b)
    return nn.lovasz_softmax(b.x, bits(b, true), { ignore = IGNORE })
  end,
  lovasz_hinge = function(b) return nn.lovasz_hinge(b.x, bits(b, true), { ignore = IGNORE }) end,
  lovasz_hinge_empty = function(b) return nn.lovasz_hinge(b.x, bits(b) * 0) end,
  kl = function(b)
    local half = b.x.c // 2
    return nn.gaussian_kl(nn.slice(b.x, { c = { 1, half } }),
                          nn.slice(b.x, { c = { half + 1, half } }))
  end,
  kl_each = function(b)
    return nn.gaussian_kl(nn.slice(b.x, { c = { 1, 2 } }), nn.slice(b.x, { c = { 3, 2 } }),
                          { per = "element" })
  end,
  ssim_2d = function(b) return nn.ssim_loss(b.x, image(b), { range = 6 }) end,
  ssim_3d = function(b)
    return nn.ssim_loss(b.x, image(b), { range = 2, window = 5, sigma = 1 })
  end,
}

-- The numbers of losses.py as an array.
local function weights(seed, shape, add)
  return filled(shape, function(i) return number(seed, i) + add end)
end

function losses.perceptual(b)
  local name = "perceptual" .. made
  b.weights = { [name .. ".conv1.weight"] = weights(5, { 3, 2, 3, 3 }, -0.5),
                [name .. ".conv2.weight"] = weights(6, { 2, 3, 3, 3 }, -0.5),
                [name .. ".norm1.running_mean"] = weights(7, { 3 }, 0),
                [name .. ".norm1.running_var"] = weights(8, { 3 }, 0) }
  return nn.perceptual_loss(b.x, image(b), function(v)
    v = nn.relu(nn.batch_norm(nn.conv(v, 3, 3, { bias = false })))
    return { v, nn.conv(nn.dropout(v, 0.5), 2, 3, { bias = false }) }
  end, { weights = { 0.5, 2 }, distance = "mae", name = name })
end

local bounds = { cpu = 1e-5, ref = 1e-6 }

local function compare(name, device)
  local want = array.load(FILE, name .. ".grad")
  local b = new_batch(want.shape, logit)
  local loss, grad = b:run((losses[name] or losses[name:gsub("_[23]d$", "")])(b), device)
  local value = array.load(FILE, name .. ".loss"):get(1)
  t.near(loss, value, bounds[device] * math.max(1, math.abs(value)), name)
  local largest = 0
  want = list_of(want)
  for _, v in ipairs(want) do largest = math.max(largest, math.abs(v)) end
  t.equal(#grad, #want, "count of gradients")
  for i, v in ipairs(want) do
    t.near(grad[i], v, bounds[device] * largest, name .. ": gradient " .. i)
  end
end

-- Rows without a pair in 2-D and 3-D.
local SINGLE = { kl_each = true, perceptual = true, ssim_2d = true, ssim_3d = true }

for _, device in ipairs { "ref", "cpu" } do
  for _, name in ipairs(util.sorted_keys(losses)) do
    for _, space in ipairs(SINGLE[name] and { "" } or { "_2d", "_3d" }) do
      t.test(name .. space .. " on " .. device, function() compare(name .. space, device) end)
    end
  end
end

-- Losses of a prediction and a target of class numbers (C channels) or bits, as f(x, target, o).
local of_classes = {
  cross_entropy = function(x, y, o) return nn.cross_entropy(x, y, o) end,
  weighted_cross_entropy = function(x, y, o)
    o.class_weights, o.label_smoothing = W3, 0.1
    return nn.cross_entropy(x, y, o)
  end,
  softmax_focal = function(x, y, o)
    o.gamma = 0.5
    return nn.softmax_focal(x, y, o)
  end,
  weighted_softmax_focal = function(x, y, o)
    o.class_weights = W3
    return nn.softmax_focal(x, y, o)
  end,
}
of_classes.topk_cross_entropy = function(x, y, o)
  o.share = 0.5
  return nn.topk_cross_entropy(x, y, o)
end
local of_regions = { -- targets also of one channel
  lovasz_softmax = function(x, y, o)
    o.empty = "count"
    return nn.lovasz_softmax(x, y, o)
  end,
  lovasz_softmax_skip = function(x, y, o)
    o.class_weights, o.background = x.c == 3 and W3 or nil, false
    return nn.lovasz_softmax(x, y, o)
  end,
  dice_loss = function(x, y, o)
    o.per, o.class_weights = "sample", x.c == 3 and W3 or nil
    return nn.dice_loss(x, y, o)
  end,
  tversky = function(x, y, o)
    o.per, o.class_weights = "sample", x.c == 3 and W3 or nil
    return nn.tversky(x, y, o)
  end,
  generalized_dice = function(x, y, o) return nn.generalized_dice(x, y, o) end,
  focal_tversky = function(x, y, o) return nn.focal_tversky(x, y, o) end,
  focal_tversky_skip = function(x, y, o)
    o.empty = "skip"
    return nn.focal_tversky(x, y, o)
  end,
  cldice = function(x, y, o) return nn.cldice(x, y, o) end,
  hausdorff_loss = function(x, y, o) return nn.hausdorff_loss(x, y, (y * 0 + 3) .. y, o) end,
}
local of_any = {}
for name, f in pairs(of_classes) do of_any[name] = { f = f, channels = { 3 } } end
for name, f in pairs(of_regions) do
  of_any[name] = { f = f, channels = name == "hausdorff_loss" and { 3 } or { 1, 3 } }
end
of_any.bce = { f = nn.bce, channels = { 1 } }
of_any.bce_dice = { f = nn.bce_dice, channels = { 1 } }
of_any.lovasz_hinge = { f = nn.lovasz_hinge, channels = { 1 } }
of_any.focal = { f = nn.focal, channels = { 1 } }

local function each_loss(f)
  for _, name in ipairs(util.sorted_keys(of_any)) do
    for _, c in ipairs(of_any[name].channels) do f(name, of_any[name].f, c) end
  end
end

local function check_finite(what, value, grad)
  t.check(value == value and math.abs(value) < math.huge, "%s: the loss is %s", what, value)
  for i, v in ipairs(grad) do
    t.check(v == v and math.abs(v) < math.huge, "%s: gradient %d is %s", what, i, v)
  end
end

t.test("extreme logits, absent and full classes, empty masks are finite", function()
  local targets = {
    background = function() return 0 end,
    foreground = function() return 1 end,
    both = function(i) return i % 2 end,
    ignored = function() return IGNORE end,
  }
  local function extreme(i) return i * i * 7 % 3 < 1 and 80 or -80 end
  each_loss(function(name, f, c)
    local b = new_batch({ 2, c, 4, 5 }, extreme)
    local y = b:add(filled({ 2, 1, 4, 5 }, targets.both))
    for _, masked in ipairs { false, true } do
      local loss = f(b.x, y, { ignore = IGNORE, mask = masked and y * 0 or nil })
      for kind, target in pairs(targets) do
        b.arrays[y.name] = filled({ 2, 1, 4, 5 }, target)
        check_finite(name .. " of " .. kind, b:run(loss, "cpu"))
      end
    end
  end)
  for name, f in pairs {
    boundary_loss = function(b, y) return nn.boundary_loss(b.x, y) end,
    ssim_loss = function(b, y) return nn.ssim_loss(b.x, y, { range = 160, window = 3 }) end,
    ssim_loss_0 = function(b, y) return nn.ssim_loss(b.x * 0, y * 0, { window = 3 }) end,
    total_variation = function(b) return nn.total_variation(b.x, { isotropic = true }) end,
    total_variation_0 = function(b) return nn.total_variation(b.x * 0, { isotropic = true }) end,
    gaussian_kl = function(b) return nn.gaussian_kl(b.x, b.x) end,
  } do
    local b = new_batch({ 2, 1, 4, 5 }, extreme)
    check_finite(name, b:run(f(b, b:add(filled({ 2, 1, 4, 5 }, targets.both))), "cpu"))
  end
end)

t.test("ignored elements are those of a mask", function()
  each_loss(function(name, f, c)
    local b = new_batch({ 2, c, 4, 5 }, logit)
    local function target(instead)
      return b:add(filled({ 2, 1, 4, 5 }, function(i)
        return i % 4 == 0 and instead or number(2, i) * math.max(c, 2) // 1
      end))
    end
    local counts = b:add(filled({ 2, 1, 4, 5 }, function(i) return i % 4 == 0 and 0 or 1 end))
    local value, grad = b:run(f(b.x, target(IGNORE), { ignore = IGNORE }), "ref")
    local same_value, same_grad = b:run(f(b.x, target(0), { mask = counts }), "ref")
    t.near(value, same_value, 1e-9, name)
    for i, v in ipairs(grad) do t.near(v, same_grad[i], 1e-9, name .. ": gradient") end
    -- and together with another mask
    local other = b:add(filled({ 2, 1, 4, 5 }, function(i) return i % 3 == 0 and 0 or 1 end))
    value = b:run(f(b.x, target(IGNORE), { ignore = IGNORE, mask = other }), "ref")
    t.near(value, b:run(f(b.x, target(0), { mask = counts * other }), "ref"), 1e-9, name)
    t.check(math.abs(value - same_value) > 1e-6, "%s: the mask changes nothing", name)
  end)
end)

-- The loss of a channel alone is that with a mask of this channel.
t.test("class weights of maps of distances weigh channels", function()
  local b = new_batch({ 2, 3, 4, 5 }, logit)
  local y = classes(b, 3)
  local map = distances(b, list_of(b.arrays[y.name]), { 1, 2 })
  local one = b:add(filled({ 2, 1, 4, 5 }, function() return 1 end))
  local none = one * 0
  for name, f in pairs {
    boundary_loss = function(o) return nn.boundary_loss(b.x, map, o) end,
    hausdorff_loss = function(o) return nn.hausdorff_loss(b.x, y, map, o) end,
  } do
    local first = b:run(f { mask = one .. none }, "ref")
    local second = b:run(f { mask = none .. one }, "ref")
    t.near(b:run(f { class_weights = { 7, 1, 3 } }, "ref"), (first + 3 * second) / 4, 1e-5, name)
  end
end)

t.test("the smallest share of positions is one of each sample", function()
  local b = new_batch({ 3, 2, 4, 5 }, logit)
  local y = classes(b, 2)
  local first, second = nn.slice(b.x, { c = { 1, 1 } }), nn.slice(b.x, { c = { 2, 1 } })
  local each = seg.logsumexp(b.x, { axes = { "c" }, keep = true }) - seg.where(y, second, first)
  t.near(b:run(nn.topk_cross_entropy(b.x, y, { share = 1e-6 }), "ref"),
         b:run(seg.mean(seg.max(each, { axes = { "h", "w" } })), "ref"), 1e-6)
end)

t.test("overlap losses of a batch are the mean of those of its samples", function()
  local b = new_batch({ 3, 3, 4, 5 }, logit)
  local y = classes(b, 3)
  for name, f in pairs(of_regions) do
    local loss = f(b.x, y, {})
    local batch, sum = b:run(loss, "ref"), 0
    for n = 1, 3 do
      local one = {} -- the batch with sample n alone
      for key, a in pairs(b.arrays) do
        local own = { 1, table.unpack(a.shape, 2) }
        local list, size = list_of(a), 1
        for _, extent in ipairs(own) do size = size * extent end
        one[key] = filled(own, function(i) return list[(n - 1) * size + i + 1] end)
      end
      sum = sum + b.step:run(one)
    end
    t.near(batch, sum / 3, 1e-6, name)
  end
end)

t.test("weights of an element are factors", function()
  for name, f in pairs { cross_entropy = of_classes.weighted_cross_entropy,
                         softmax_focal = of_classes.weighted_softmax_focal } do
    local b = new_batch({ 2, 3, 4, 5 }, logit)
    local y = classes(b, 3)
    local one = b:run(f(b.x, y, {}), "ref")
    b = new_batch({ 2, 3, 4, 5 }, logit)
    y = classes(b, 3)
    t.near(b:run(f(b.x, y, { weight = y * 0 + 2 }), "ref"), 2 * one, 1e-6, name)
  end
end)

t.test("no gradient flows to target, mask and weight", function()
  each_loss(function(name, f, c)
    local b = new_batch({ 2, c, 4, 5 }, logit)
    local y = b:add(filled({ 2, 1, 4, 5 }, function(i) return number(2, i) * 2 // 1 end))
    local o, learnt = {}, "learnt" .. name .. c
    local p = nn.param(learnt, { 1 }, { init = 1 })
    o.mask = p * (y * 0 + 1)
    if not name:find "cldice" and not name:find "lovasz" then o.weight = p * (y + 1) end
    local loss = f(b.x, y * p, o) + 0 * seg.mean(p)
    b:run(loss, "ref")
    t.equal(b.step:gradients()[learnt]:get(1), 0, name)
  end)
end)

t.test("many classes, vectors and sequences", function()
  for _, shape in ipairs { { 4, 40 }, { 2, 40, 7 }, { 2, 3, 9 }, { 4, 2 } } do
    local b = new_batch(shape, logit)
    local y, equal = classes(b, shape[2]), {}
    for i = 1, shape[2] do equal[i] = 2 end
    local want, grad = b:run(nn.cross_entropy(b.x, y), "ref")
    for name, loss in pairs {
      softmax_focal = nn.softmax_focal(b.x, y, { gamma = 0, class_weights = equal }),
      cross_entropy = nn.cross_entropy(b.x, y, { class_weights = equal }),
      topk = #shape > 2 and nn.topk_cross_entropy(b.x, y, { share = 1 }) or nil,
    } do
      local got, own = b:run(loss, "ref")
      t.near(got, want, 1e-6, name)
      for i, v in ipairs(grad) do t.near(own[i], v, 1e-7, name .. ": gradient") end
    end
    local per_sample = nn.dice_loss(b.x, y, { per = "sample" })
    t.near(b:run(nn.dice_loss(b.x, y, { per = "sample", class_weights = equal }), "ref"),
           b:run(per_sample, "ref"), 1e-6, "dice_loss")
    check_finite("generalized_dice", b:run(nn.generalized_dice(b.x, y), "cpu"))
  end
end)

t.test("class weights count up to a factor, equal ones not at all", function()
  local function run(weights_of)
    local b = new_batch({ 2, 3, 4, 5 }, logit)
    local y = classes(b, 3)
    return (b:run(nn.dice_loss(b.x, y, { per = "sample", class_weights = weights_of }), "ref"))
  end
  t.near(run { 1, 1, 1 }, run(nil), 1e-6)
  t.near(run { 1, 2, 5 }, run { 10, 20, 50 }, 1e-6)
  t.check(math.abs(run { 1, 2, 5 } - run(nil)) > 1e-4, "weights change nothing")
end)

t.test("a frozen network is neither trained nor changed", function()
  local b = new_batch({ 2, 2, 5, 6 }, logit)
  local loss = losses.perceptual(b)
  local step = seg.step { loss = loss, optim = optim.sgd { lr = 1 } }
  local names, before = {}, {}
  for name in pairs(step:parameters()) do
    if name:find("perceptual", 1, true) then names[#names + 1] = name end
  end
  t.equal(#names, 6, "parameters: two convolutions, one norm")
  for _, name in ipairs(names) do before[name] = step:get(name) end
  step:run(b.arrays)
  for _, name in ipairs(names) do
    t.check(not step:gradients()[name], "%s has a gradient", name)
    t.equal(step:get(name):distance(before[name]), 0, name)
  end
  t.raises(function()
    nn.scope("frozen_once", function() return 1 end, { frozen = true })
    nn.scope("frozen_once", function() return 1 end, { share = true })
  end, 'nn.scope: "frozen_once" was entered with frozen = true before')
  t.raises(function() nn.scope("frozen_text", function() return 1 end, { frozen = "yes" }) end,
           "frozen must be true or false, got yes")
end)

t.test("dropout in a frozen scope does nothing", function()
  local x, names = input { 2, 4, 6 }, { "attention", "lstm", "dropout", "spatial_dropout" }
  local function layers(p)
    return {
      attention = nn.attention(x, { dropout = p }),
      lstm = nn.lstm(x, 3, { layers = 2, dropout = p }),
      dropout = nn.dropout(x, p), spatial_dropout = nn.spatial_dropout(x, p),
    }
  end
  local outputs, loss = {}, nil
  for _, frozen in ipairs { true, false } do
    local o, scope = { frozen = frozen, share = true }, "dropout" .. tostring(frozen)
    local with = nn.scope(scope, function() return layers(0.5) end, o)
    local without = nn.scope(scope, function() return layers(0) end, o)
    for _, name in ipairs(names) do
      outputs[name .. tostring(frozen)] = nn.mse(with[name], without[name])
      loss = (loss or 0) + seg.mean(with[name] * nn.param("one" .. name .. tostring(frozen), { 1 }))
    end
  end
  local step = seg.step { loss = loss, outputs = outputs, optim = optim.sgd { lr = 0 } }
  local _, found = step:run { [x.name] = filled({ 2, 4, 6 }, function(i) return number(1, i) end) }
  for _, name in ipairs(names) do
    t.equal(found[name .. "true"]:get(), 0, name .. ", frozen")
    t.check(found[name .. "false"]:get() > 1e-4, "%s drops nothing out", name)
  end
end)

-- Kendall's sum for L1 = 2 (regression), L2 = 3 (classification), s = 0.5: value and d/ds.
t.test("losses weighted by learnt uncertainties", function()
  local one = input { 1, 1, 2 }
  local loss = nn.uncertainty_loss({ seg.mean(one * 2), seg.mean(one * 3) },
                                   { kinds = { "regression", "classification" }, init = 0.5,
                                     name = "tasks" })
  local step = seg.step { loss = loss, optim = optim.sgd { lr = 1 }, device = "ref" }
  local value = step:run { [one.name] = filled({ 2, 1, 2 }, function() return 1 end) }
  local e = math.exp(-0.5)
  t.near(value, 0.5 * e * 2 + e * 3 + 0.5, 1e-9)
  t.near(step:gradients()["tasks.log_variance1"]:get(1), 0.5 - 0.5 * e * 2, 1e-7)
  t.near(step:gradients()["tasks.log_variance2"]:get(1), 0.5 - e * 3, 1e-7)
end)

local RECIPE = [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { batch = 5, epochs = 1 }
local cases = seg.data.phantom { root = "FOLDER", patients = 8, size = 16, slices = 3 }
local train, valid = cases:split { valid = 0.25, seed = 1 }
local function prepare(set)
  return set:signed_distance {}:normalize {}:slices {}:batches { size = cfg.batch }
end
local x, t, d = nn.input("image", { c = 1, h = 16, w = 16 }),
                nn.input("mask", { c = 1, h = 16, w = 16 }),
                nn.input("distance", { c = 1, h = 16, w = 16 })
local y, one = nn.conv(nn.relu(nn.conv(x, 8, 3)), 2, 3), nn.conv(x, 1, 3)
local some, weights = seg.where(seg.gt(x, 0.5), 255, t), { 1, 7 }
local o = { ignore = 255, class_weights = weights }
local function mixed(more)
  for k, v in pairs(o) do more[k] = v end
  return more
end
seg.recipe {
  inputs = { x, t, d }, outputs = { out = nn.softmax(y) },
  loss = nn.uncertainty_loss {
    nn.cross_entropy(y, some, mixed { label_smoothing = 0.1 }) + nn.topk_cross_entropy(y, some, o),
    nn.softmax_focal(y, some, o) + nn.lovasz_softmax(y, some, o),
    nn.generalized_dice(y, t) + nn.focal_tversky(y, t, { empty = "skip" }) + nn.cldice(y, t),
    nn.bce(one, some, { ignore = 255 }) + 0.01 * nn.boundary_loss(one, d)
      + 0.001 * nn.hausdorff_loss(one, t, d, { mask = seg.gt(x, 0) }),
    nn.ssim_loss(one, x, { range = 6 }) + nn.perceptual_loss(one, x, function(v)
      return nn.relu(nn.conv(v, 4, 3))
    end),
  },
  train = prepare(train), valid = prepare(valid), optim = seg.optim.sgd { lr = 0.05 },
}
]]

t.test("two ranks train to the losses of one process", function()
  local folder, remove = t.folder()
  local path = t.write(folder .. "/all.lua", (RECIPE:gsub("FOLDER", folder .. "/phantom")))
  local function run(ranks, more)
    local out = folder .. "/runs" .. ranks
    t.says(path .. " --ranks " .. ranks .. " --workers 1 --threads 1 --out " .. out .. more, 0,
           "done:")
    local list = {}
    for line in io.lines(out .. "/all/001/metrics.csv") do
      local train, valid = line:match "^%d+,%d+,[^,]+,([^,]+),([^,]+)"
      list[#list + 1] = tonumber(train)
      list[#list + 1] = tonumber(valid)
    end
    return list
  end
  -- 18 slices: the last batch has 3; with 17 a batch it has 1, and a rank without a sample
  for _, more in ipairs { "", " --batch 17" } do
    local want, got = run(1, more), run(2, more)
    t.equal(#got, 2)
    for i, v in ipairs(want) do t.near(got[i], v, 1e-5 * v, "loss " .. i) end
    os.execute("rm -r " .. folder .. "/runs1 " .. folder .. "/runs2")
  end
  remove()
end)

t.test("wrong operands and options are named", function()
  local x, y = input { 1, 3, 8, 8 }, input { 1, 1, 8, 8 }
  local z, one, other = nn.conv(x, 3, 1), nn.conv(x, 1, 1), input { 1, 1, 8, 9 }
  local vector, map, full = input { 1, 3 }, input { 1, 2, 8, 8 }, input { 1, 3, 8, 8 }
  local function refused(part, f, ...)
    local args = table.pack(...)
    t.raises(function() return f(table.unpack(args, 1, args.n)) end, part)
  end
  local inf, nan = math.huge, 0 / 0

  -- class weights
  refused("nn.cross_entropy: class_weights must be a list of 3 numbers, one for each channel of "
          .. "the prediction, got 2 numbers", nn.cross_entropy, z, y, { class_weights = { 1, 2 } })
  refused("got number", nn.cross_entropy, z, y, { class_weights = 2 })
  refused("nn.bce: class_weights must be a list of 3", nn.bce, z, full, { class_weights = y })
  for _, v in ipairs { -1, inf, nan, "1", false } do
    refused("class_weights[2] must be a finite number from 0 to 1e+30, got " .. tostring(v),
            nn.cross_entropy, z, y, { class_weights = { 1, v, 1 } })
  end
  refused("class_weights are all 0", nn.softmax_focal, z, y, { class_weights = { 0, 0, 0 } })
  refused("class_weights need several channels", nn.dice_loss, one, y, { class_weights = { 1 } })
  refused('nn.dice_loss: class_weights go with per = "sample"', nn.dice_loss, z, y,
          { class_weights = W3 })
  refused('unknown option "class_weights"', nn.mse, z, full, { class_weights = W3 })
  refused('unknown option "ignore"', nn.mse, z, full, { ignore = 1 })

  -- numbers
  for _, v in ipairs { -0.1, 1.5, inf, nan, "0.1" } do
    refused("label_smoothing must be a finite number from 0 to 1, got " .. tostring(v),
            nn.cross_entropy, z, y, { label_smoothing = v })
    refused("gamma must be a finite number from 0.1 to 10", nn.focal_tversky, z, y,
            { gamma = type(v) == "number" and v * 20 or v })
  end
  for _, f in ipairs { nn.dice_loss, nn.focal, nn.generalized_dice, nn.softmax_focal } do
    for _, v in ipairs { inf, nan, "255", 1e300 } do
      refused("ignore must be a finite number", f, z, f == nn.focal and full or y, { ignore = v })
    end
    refused("mask must be a node of the network, got number", f, z, y, { mask = 1 })
    refused("weight must be a node of the network, got string", f, z, y, { weight = "y" })
  end
  for _, v in ipairs { 0, -1, inf, nan, "1" } do
    refused("eps must be a finite number above 0, got " .. tostring(v), nn.generalized_dice, z, y,
            { eps = v })
  end
  for _, v in ipairs { 0, 1.5, 101, inf, nan, "3" } do
    refused("steps must be a whole number from 1 to 100, got " .. tostring(v), nn.cldice, z, y,
            { steps = v })
  end
  refused('empty must be "count" or "skip", got one', nn.cldice, z, y, { empty = "one" })
  refused("background must be true or false, got 1", nn.focal_tversky, z, y, { background = 1 })
  local half = input { 1, 1, 4, 8 }
  for _, f in ipairs { nn.cross_entropy, nn.generalized_dice, nn.cldice, nn.lovasz_softmax,
                       nn.topk_cross_entropy, nn.softmax_focal } do
    refused("mask must have the extents of the prediction, conv", f, z, y, { mask = half })
  end
  refused("weight must have the extents of the prediction", nn.bce, z, full, { weight = half })
  for _, v in ipairs { "0.5", -1, nan, inf } do
    local o = { per = "sample", class_weights = W3, alpha = v }
    refused("nn.tversky: alpha must be a finite number from 0", nn.tversky, z, y, o)
    o.alpha, o.dice = nil, v
    refused("nn.bce_dice: dice must be a finite number from 0", nn.bce_dice, z, full, o)
  end
  refused("nn.cross_entropy: ignore must be a finite number", nn.cross_entropy, z, y,
          { class_weights = W3, ignore = "255" })
  refused("nn.cross_entropy: the target must have the positions of the prediction",
          nn.cross_entropy, z, full, { class_weights = W3 })
  refused("alpha must be a finite number from 0.1 to 4", nn.hausdorff_loss, z, y, map,
          { alpha = 0 })

  -- operands
  refused("takes logits and does the softmax itself", nn.softmax_focal, nn.softmax(z), y)
  refused("they are swapped", nn.generalized_dice, x, one)
  refused("two or more classes", nn.softmax_focal, one, y)
  refused("nn.softmax_focal: the target must have the positions of the prediction",
          nn.softmax_focal, z, other)
  refused("and 1 channel, got", nn.softmax_focal, z, full)
  refused("1 channel or 3, got", nn.focal_tversky, z, map)
  for _, f in ipairs { nn.generalized_dice, nn.focal_tversky, nn.cldice, nn.softmax_focal,
                       nn.boundary_loss, nn.hausdorff_loss, nn.ssim_loss, nn.perceptual_loss,
                       nn.gaussian_kl } do
    refused("must be a node of the network", f, z)
    refused("must be a node of the network", f, nil, y)
    refused("must be a node of the network", f, z, 3)
  end
  refused("the prediction must have positions", nn.cldice, nn.linear(vector, 3), input { 1, 1 })
  refused("map of signed distances must have the positions", nn.boundary_loss, z, y)
  refused("map of signed distances must be a node", nn.hausdorff_loss, z, y, "map")

  -- sorted positions
  for _, v in ipairs { 0, 1.1, inf, nan, "0.1" } do
    refused("share must be a finite number from 1e-06 to 1, got " .. tostring(v),
            nn.topk_cross_entropy, z, y, { share = v })
  end
  for _, f in ipairs { nn.lovasz_softmax, nn.lovasz_hinge } do
    local own = f == nn.lovasz_hinge and full or y
    refused('empty must be "count" or "skip", got 1', f, z, own, { empty = 1 })
    refused("ignore must be a finite number", f, z, own, { ignore = nan })
    refused("class_weights must be a list of 3", f, z, own, { class_weights = { 1 } })
    refused("mask must be a node", f, z, own, { mask = {} })
    refused("the prediction must have positions", f, nn.linear(vector, 3), vector)
  end
  refused("background must be true or false", nn.lovasz_softmax, z, y, { background = 0 })
  refused("and 3 channels, got", nn.lovasz_hinge, z, y)
  refused("two or more classes", nn.topk_cross_entropy, one, y)

  -- images
  refused("nn.ssim_loss: window is 11, but the image has 8 positions along h", nn.ssim_loss, z,
          full)
  refused("window must be odd, got 4", nn.ssim_loss, z, full, { window = 4 })
  refused("window must be a whole number", nn.ssim_loss, z, full, { window = 2.5 })
  refused("range must be a finite number", nn.ssim_loss, z, full, { range = 0 })
  refused("the prediction must be an image", nn.ssim_loss, nn.linear(vector, 3), vector)
  refused("axis h must have 2 positions", nn.total_variation, input { 1, 1, 1, 4 })
  refused("isotropic must be true", nn.total_variation, z, { isotropic = 1 })

  -- sums and networks
  local loss = seg.mean(z)
  refused("needs a list of two losses", nn.uncertainty_loss, loss)
  refused("needs a list of two losses or more, { a, b }, got 1 losses", nn.uncertainty_loss,
          { loss })
  refused("loss 2 must be a loss, one number, got", nn.uncertainty_loss, { loss, z })
  refused("kinds must be a list of 2", nn.uncertainty_loss, { loss, loss }, { kinds = {} })
  refused('kinds[1] must be "classification" or "regression", got mse', nn.uncertainty_loss,
          { loss, loss }, { kinds = { "mse", "regression" } })
  refused("init must be a finite number", nn.uncertainty_loss, { loss, loss }, { init = nan })
  refused("needs a function of an image", nn.perceptual_loss, z, full, z)
  refused("must return a node or a list", nn.perceptual_loss, z, full, function() return 1 end,
          { name = "wrong1" })
  refused('distance must be "mse" or "mae"', nn.perceptual_loss, z, full,
          function(v) return v end, { distance = "huber" })
  refused("weights must be a list of 1 numbers", nn.perceptual_loss, z, full,
          function(v) return v end, { weights = { 1, 2 }, name = "wrong2" })
  refused("must have the positions of the prediction", nn.gaussian_kl, z, y)
  refused('per must be "sample" or "element", got batch', nn.gaussian_kl, z, z, { per = "batch" })
end)

t.finish()
