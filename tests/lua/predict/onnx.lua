-- onnx.lua -- networks as ONNX files: other programs compute the same results.
--
-- Every operator that a prediction may contain is written in each of its ranks, with extents that
-- reveal a swapped axis. onnx_peer.py checks the files and runs them; without it the form of the
-- files and the refusals are tested.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local nn, op, array = seg.nn, seg.op, seg.array
local folder, remove = t.folder()
local PYTHON = os.getenv("SEG_PYTHON") or "/usr/bin/python3"

-- Networks --------------------------------------------------------------------

local axes = { [0] = {}, { "w" }, { "h", "w" }, { "d", "h", "w" } }
local extents = { [0] = {}, { 10 }, { 8, 10 }, { 6, 8, 10 } }
local inputs, params = 0, 0

-- An input of this rank; no two extents are alike.
local function input(rank, c, size)
  local o = { c = c }
  for i, axis in ipairs(axes[rank]) do o[axis] = (size or extents[rank])[i] end
  inputs = inputs + 1
  return nn.input("x" .. inputs, o)
end

-- A list for the spatial axes of a rank: first, second, third.
local function each(rank, a, b, c)
  local list = {}
  for i = 1, rank do list[i] = ({ a, b, c })[i] end
  return list
end

local function free(shape, value)
  params = params + 1
  return core.param("free" .. params, shape, #shape - 2 < 0 and -1 or #shape - 2,
                    { init = "normal", value = value or 1 })
end

-- The length of each sample of x, computed from its numbers: from 0 to more than its extent.
local function length_of(x)
  return nn.flatten(op.slice(x, { w = 1, c = 1 })) * 9 + 4
end

-- name -> f(x, rank), x with 6 channels; `from`, `to`: ranks that have it; `cv`: OpenCV 4.6 runs it
-- in 2-D.
local forms = {
  conv = { cv = true, from = 1, function(x) return nn.conv(x, 4, 3) end },
  conv_strided = { cv = true, from = 1, function(x, rank)
    return nn.conv(x, 4, each(rank, 3, 2, 3), { stride = each(rank, 2, 1, 2),
                                                pad = each(rank, 1, 0, 2) })
  end },
  conv_dilated = { cv = true, from = 1, function(x)
    return nn.conv(x, 5, 3, { dilation = 2, bias = false })
  end },
  conv_groups = { cv = true, from = 1, function(x) return nn.conv(x, 4, 3, { groups = 2 }) end },
  conv_same = { cv = true, from = 1, function(x)
    return nn.conv(x, 4, 4, { stride = 2, pad = "same" })
  end },
  conv_one = { to = 0, function(x) return nn.conv(x, 4, 1) end },
  upconv = { cv = true, from = 1, function(x) return nn.upconv(x, 4, 2) end },
  upconv_wide = { cv = true, from = 1, function(x, rank)
    return nn.upconv(x, 4, each(rank, 3, 4, 3), { out_pad = each(rank, 1, 0, 1) })
  end },
  upconv_groups = { from = 1, function(x)
    return nn.upconv(x, 4, 3, { groups = 2, dilation = 2, stride = 1, bias = false })
  end },
  linear = { cv = true, function(x) return nn.linear(x, 5) end },
  linear_bare = { cv = true, function(x) return nn.linear(x, 5, { bias = false }) end },
  maxpool = { cv = true, from = 1, function(x, rank)
    return nn.maxpool(x, each(rank, 3, 2, 2), { stride = each(rank, 2, 2, 1),
                                                pad = each(rank, 1, 0, 1) })
  end },
  avgpool = { cv = true, from = 1, function(x) return nn.avgpool(x, 2) end },
  avgpool_all = { cv = true, from = 1, function(x)
    return nn.avgpool(x, 3, { stride = 2, pad = 1, count = "all" })
  end },
  avgpool_valid = { cv = true, from = 1, function(x)
    return nn.avgpool(x, 3, { stride = 2, pad = 1, count = "valid" })
  end },
  global_mean = { cv = true, function(x) return nn.global_pool(x) end },
  global_max = { cv = true, function(x) return nn.global_pool(x, { mode = "max" }) end },
  nearest = { cv = true, from = 1, function(x, rank)
    return nn.upsample(x, each(rank, 2, 3, 2))
  end },
  bilinear = { cv = true, from = 1, function(x, rank)
    return nn.upsample(x, each(rank, 3, 2, 2), { mode = "linear" })
  end },
  aligned = { from = 1, function(x, rank)
    return nn.upsample(x, each(rank, 2, 3, 2), { mode = "linear", align_corners = true })
  end },
  batch_norm = { cv = true, function(x) return nn.batch_norm(x, { eps = 1e-3 }) end },
  batch_norm_bare = { cv = true, function(x) return nn.batch_norm(x, { affine = false }) end },
  instance_norm = { cv = true, function(x) return nn.instance_norm(x) end },
  instance_norm_bare = { cv = true, function(x)
    return nn.instance_norm(x, { affine = false })
  end },
  group_norm = { function(x) return nn.group_norm(x, { groups = 3, eps = 1e-4 }) end },
  group_norm_bare = { function(x) return nn.group_norm(x, { groups = 2, affine = false }) end },
  layer_norm = { function(x) return nn.layer_norm(x) end },
  layer_norm_bare = { function(x) return nn.layer_norm(x, { affine = false }) end },
  add = { cv = true, function(x) return x + nn.relu(x) end },
  sub = { cv = true, function(x) return nn.relu(x) - x end },
  mul = { cv = true, function(x) return x * nn.sigmoid(x) end },
  div = { cv = true, function(x) return x / (nn.sigmoid(x) + 1) end },
  scale = { cv = true, function(x) return 3 - x * 0.5 end },
  gate = { from = 1, function(x)
    return x * nn.sigmoid(nn.linear(nn.global_pool(x), 6))
  end },
  gate_first = { from = 1, function(x)
    return nn.sigmoid(nn.linear(nn.global_pool(x), 6)) * x
  end },
  one_channel = { from = 1, function(x) return nn.conv(x, 1, 1) * x end },
  free_vector = { function(x) return x * free { 6 } end },
  free_map = { from = 1, function(x, rank)
    return x + free { 1, 6, table.unpack(extents[rank]) }
  end },
  computed_bias = { function(x)
    return op.linear(x, core.param("given" .. inputs, { 3, 6 }, 0, { init = "normal", value = 1 }),
                     nn.tanh(free { 3 }))
  end },
  mixed_ranks = { from = 1, to = 1, function(x)
    return op.concat(nn.global_pool(x), nn.maxpool(x, 10))
  end },
  concat = { cv = true, function(x) return nn.relu(x) .. x .. nn.tanh(x) end },
  slice = { cv = true, from = 1, function(x, rank)
    local box = { c = { 2, 3 } }
    for i, axis in ipairs(axes[rank]) do box[axis] = { i + 1, 3 } end
    return nn.slice(x, box)
  end },
  slice_tail = { cv = true, from = 1, function(x) return op.slice(x, { w0 = 4, c0 = 1 }) end },
  slice_all = { function(x) return op.slice(x, {}) end },
  pad = { cv = true, from = 1, function(x, rank)
    local border = {}
    for i, axis in ipairs(axes[rank]) do border[axis] = { i, 3 - i } end
    return nn.pad(x, border, { value = 0.5 })
  end },
  flatten = { cv = true, function(x) return nn.linear(nn.flatten(x), 3) end },
  reshape = { function(x) return seg.reshape(x, { c = 2, h = 3, w = -1 }) end },
  reshape_to_one = { function(x) return seg.reshape(x, { c = -1 }) end },
  reshape_last = { function(x)
    return seg.reshape(x, { c = -1, w = 2, channels_last = true })
  end },
  permute = { function(x, rank)
    local order = { "c", table.unpack(axes[rank]) }
    return seg.permute(x, { order[#order], table.unpack(order, 1, #order - 1) })
  end },
  flip = { function(x, rank) return seg.flip(x, { axes = { "c", table.unpack(axes[rank]) } }) end },
  flip_none = { function(x) return op.flip(x, {}) end },
  roll = { function(x, rank)
    local shift = { c = 4 }
    for i, axis in ipairs(axes[rank]) do shift[axis] = 3 * i - 20 end
    return seg.roll(x, shift)
  end },
  repeats = { function(x, rank)
    local times = { c = 2 }
    for i, axis in ipairs(axes[rank]) do times[axis] = i end
    return seg.repeats(x, times)
  end },
  cumsum = { function(x) return seg.cumsum(x, { axis = "c" }) end },
  cumsum_reverse = { from = 1, function(x, rank)
    return seg.cumsum(x, { axis = axes[rank][1], reverse = true })
  end },
  cumsum_of_one = { to = 1, function(x) return op.cumsum(x, { axis = 0 }) end },
  matmul = { from = 1, function(x) return seg.matmul(x, nn.tanh(x), { transpose_b = true }) end },
  matmul_transposed = { from = 1, function(x)
    return seg.matmul(x, nn.tanh(x), { transpose_a = true })
  end },
  matmul_learnt = { function(x) return seg.matmul(x, free { 1, 5, 6 }) end },
  stack = { to = 2, function(x) return seg.stack({ x, nn.tanh(x) }, { axis = "w" }) end },
  softmax_axis = { from = 1, function(x, rank)
    return seg.softmax(x, { axis = axes[rank][1] })
  end },
  relu = { cv = true, function(x) return nn.relu(x) end },
  leaky_relu = { cv = true, function(x) return nn.leaky_relu(x, 0.2) end },
  sigmoid = { cv = true, function(x) return nn.sigmoid(x) end },
  tanh = { cv = true, function(x) return nn.tanh(x) end },
  gelu = { function(x) return nn.gelu(x) end },
  silu = { cv = true, function(x) return nn.silu(x) end },
  softmax = { cv = true, function(x) return nn.softmax(x) end },
  exp = { function(x) return seg.exp(x) end },
  log = { function(x) return seg.log(seg.abs(x) + 0.1) end },
  log1p = { function(x) return seg.log1p(seg.abs(x)) end },
  sqrt = { function(x) return seg.sqrt(seg.abs(x)) end },
  rsqrt = { function(x) return seg.rsqrt(seg.abs(x) + 0.1) end },
  sine = { function(x) return seg.sin(3 * x) + seg.cos(x) end },
  erf = { function(x) return seg.erf(x) end },
  power = { function(x) return x ^ 2 + seg.abs(x) ^ 1.5 end },
  clamp = { function(x) return seg.clamp(x, -0.5, 0.7) + seg.stop(x) end },
  whole = { function(x) return seg.sign(x) + seg.floor(5 * x) + seg.round(7 * x) end },
  max = { function(x) return seg.max(x, seg.sin(x)) + seg.max(x, 0.3) end },
  min = { function(x) return seg.min(x, seg.sin(x)) + seg.min(0.3, x) end },
  pow = { function(x) return (seg.abs(x) + 0.1) ^ x + 2 ^ x end },
  mod = { function(x) return x % 0.7 + 3 % (x * x + 0.2) + x // 0.3 end },
  where = { function(x)
    return seg.where(seg.gt(x, 0.2), seg.log(x), seg.where(seg.le(x, seg.sin(x)), x, -1))
  end },
  comparison = { function(x)
    return seg.gt(x, 0.2) + 2 * seg.ge(x, 0.5) + 4 * seg.eq(seg.floor(x), -1)
      + 8 * seg.lt(x, 0) + 16 * seg.ne(seg.floor(x), 0)
  end },
  ratio = { function(x) return 1 / (x * x + 1) end },
  sum = { function(x) return seg.sum(x, { axes = { "c" } }) end },
  sum_along_w = { from = 1, function(x) return seg.sum(x, { axes = { "w" } }) end },
  mean_kept = { from = 1, function(x)
    return x - seg.mean(x, { axes = { "w", "c" }, keep = true })
  end },
  largest = { function(x)
    return seg.max(x, { axes = { "c" }, keep = true }) - seg.min(x, { axes = { "c" }, keep = true })
  end },
  sorted = { function(x)
    local values, index = seg.sort(x, { axis = "c", descending = true })
    return values + 0.1 * index
  end },
  sorted_positions = { from = 2, function(x)
    return (seg.top_k(seg.sort(x, { axis = { "h", "w" } }), 4, { axis = "w" }))
  end },
  sorted_all = { from = 1, function(x, rank)
    return seg.argsort(x, { axis = { "c", axes[rank][rank] } })
  end },
  gather = { from = 1, function(x)
    local index = seg.argsort(op.slice(x, { c = 1, w = 5 }), { axis = "w" })
    return seg.gather(x, index + 0.3, { axis = "w" })
  end },
  gather_learnt = { from = 2, function(x, rank)
    local learnt = free(rank == 2 and { 1, 1, 3, 4 } or { 1, 1, 1, 3, 4 })
    return seg.gather(learnt, seg.floor(seg.sigmoid(x) * 11), { axis = { "h", "w" } })
  end },
  argmax = { function(x) return seg.argmax(x, { axes = { "c" } }) end },
  argmax_of_all = { from = 1, function(x, rank)
    return seg.argmax(x, { axes = { "c", table.unpack(axes[rank]) } })
      + seg.argmin(x, { axes = { "c", axes[rank][rank] }, keep = true })
  end },
  argmax_dropped = { from = 2, function(x) return seg.argmax(x, { axes = { "h" } }) end },
  one_hot = { function(x) return seg.one_hot(seg.argmax(x, { axes = { "c" } }) + 0.2, 7) end },
  embedding = { function(x)
    return nn.embedding(seg.argmax(x, { axes = { "c" } }), { count = 6, size = 3 })
  end },
  random = { function(x)
    return x + seg.normal(x, { mean = 0.5 }) * seg.uniform(x, { low = 1, high = 2 })
  end },
  log_softmax = { function(x) return x - seg.logsumexp(x, { axes = { "c" }, keep = true }) end },
  variance = { from = 2, function(x) return seg.var(x, { axes = { "h" } }) end },
  mask_length = { from = 1, to = 1, function(x) return nn.mask_length(x, length_of(x)) end },
  mean_of_length = { from = 1, to = 1, function(x) return op.global_avgpool(x, length_of(x)) end },
  most_of_length = { from = 1, to = 1, function(x)
    return op.global_maxpool(x - 3, length_of(x))
  end },
  last_of_length = { from = 1, to = 1, function(x) return op.last_step(x, length_of(x)) end },
  last_step = { function(x) return op.last_step(x) end },
  lstm = { from = 1, to = 1, function(x) return nn.lstm(x, 5) end },
  lstm_both_ways = { from = 1, to = 1, function(x)
    return nn.lstm(x, 3, { layers = 2, bidirectional = true, bias = false })
  end },
  lstm_of_length = { from = 1, to = 1, function(x)
    return nn.lstm(x, 5, { layers = 2, bidirectional = true, lengths = length_of(x) })
  end },
  lstm_alone = { from = 1, to = 1, function(x)
    local z = nn.tanh(nn.conv(x, 8, 1))
    return op.lstm(z, free { 8, 2 }, free { 8 }, { reverse = true })
  end },
  lstm_shares = { from = 1, to = 1, function(x)
    local z = nn.linear(x, 8)
    return op.lstm(z, free { 8, 2 }) .. z
  end },
  attention = { function(x) return nn.attention(x, { heads = 2 }) end },
  attention_of_length = { from = 1, to = 1, function(x)
    return nn.attention(x, { heads = 3, lengths = length_of(x) })
  end },
  dropout = { function(x) return nn.spatial_dropout(nn.dropout(x, 0.3), 0.2) end },
}

-- A U-Net of two levels, for any even extents.
local function unet(x, f, norm)
  local skip = nn.relu(norm(nn.conv(x, f, 3)))
  local low = nn.relu(norm(nn.conv(nn.maxpool(skip, 2), 2 * f, 3)))
  return nn.conv(nn.relu(norm(nn.conv(nn.upconv(low, f, 2) .. skip, f, 3))), 3, 1)
end

-- Numbers that differ at every position, some of them negative.
local function waves(shape, phase)
  local a = array.zeros(shape)
  local at = {}
  for i = 1, #shape do at[i] = 1 end
  local n = 0
  local function fill(axis)
    for i = 1, shape[axis] do
      at[axis] = i
      if axis == #shape then
        n = n + 1
        a:set(math.sin(0.37 * n + phase) * 1.5, table.unpack(at))
      else
        fill(axis + 1)
      end
    end
  end
  fill(1)
  return a
end

-- A model of one input; its running statistics differ from their initial values.
local function model_of(x, outputs)
  local m = seg.model { inputs = { x }, outputs = outputs, threads = 1, seed = 3 }
  for name, p in pairs(m:parameters()) do
    if not p.trained then
      local v = waves(p.shape, 1)
      for i = 1, p.shape[1] do v:set(math.abs(v:get(i)) + 0.25, i) end
      m:set(name, v)
    end
  end
  return m
end

-- Files for onnx_peer.py: NAME.onnx, NAME_x.npy and NAME_y.npy of one output.
local cases = {}
local function give(name, m, x, y, o)
  o = o or {}
  local shape = { 2, table.unpack(o.shape or { table.unpack(x.shape, 2) }) }
  local value = waves(shape, 0.1)
  local out = m:run { [x.name] = value }[y]
  array.save(folder .. "/" .. name .. "_x.npy", value)
  array.save(folder .. "/" .. name .. "_y.npy", out)
  m:onnx(folder .. "/" .. name .. ".onnx", { any_size = o.any_size })
  cases[#cases + 1] = name .. " " .. x.name .. " " .. y .. (o.cv and " cv" or "")
  return out
end

-- The form of the file --------------------------------------------------------

-- The fields of a protocol buffer, { number, value } in order; messages as texts.
local function fields(text)
  local list, at = {}, 1
  local function varint()
    local v, shift = 0, 0
    repeat
      local byte = text:byte(at)
      if not byte then error("a message ends inside a number", 2) end
      v, shift, at = v | (byte & 127) << shift, shift + 7, at + 1
    until byte < 128
    return v
  end
  while at <= #text do
    local key = varint()
    local value
    if key & 7 == 0 then
      value = varint()
    elseif key & 7 == 5 then
      value, at = string.unpack("<f", text, at)
    else
      t.equal(key & 7, 2, "kind of field")
      local n = varint()
      if at + n - 1 > #text then error("a message is longer than what it is in", 2) end
      value, at = text:sub(at, at + n - 1), at + n
    end
    list[#list + 1] = { key >> 3, value }
  end
  return list
end

local function of(message, number)
  local list = {}
  for _, f in ipairs(fields(message)) do
    if f[1] == number then list[#list + 1] = f[2] end
  end
  return list
end

t.test("every value is made before it is used, and once", function()
  local x = input(2, 2)
  local m = model_of(x, { y = unet(x, 4, function(v) return nn.group_norm(v, { groups = 2 }) end) })
  local path = folder .. "/form.onnx"
  local facts = m:onnx(path)
  local bytes = t.read(path)
  t.equal(#bytes, facts.bytes, "bytes")
  t.equal(of(bytes, 1)[1], 7, "version of the form")
  t.equal(of(of(bytes, 8)[1], 2)[1], 13, "version of the operators")
  t.equal(facts.opset, 13)
  local graph, made, numbers = of(bytes, 7)[1], {}, 0
  local function make(name)
    t.check(not made[name], name .. " is made twice")
    made[name] = true
  end
  t.equal(of(of(graph, 11)[1], 1)[1], x.name, "input")
  make(x.name)
  for _, tensor in ipairs(of(graph, 5)) do
    local count = 1
    for _, extent in ipairs(of(tensor, 1)) do count = count * extent end
    t.equal(#of(tensor, 9)[1], count * (of(tensor, 2)[1] == 1 and 4 or 8), "bytes of a tensor")
    make(of(tensor, 8)[1])
    numbers = numbers + count
  end
  t.equal(numbers, facts.numbers)
  local nodes = of(graph, 1)
  t.equal(#nodes, facts.nodes)
  for _, node in ipairs(nodes) do
    for _, name in ipairs(of(node, 1)) do t.check(name == "" or made[name], "no " .. name) end
    for _, name in ipairs(of(node, 2)) do make(name) end
  end
  t.equal(of(of(graph, 12)[1], 1)[1], "y")
  t.check(made.y, "the output")
  -- parameters that are stored with additional axes of extent 1 have a suffix
  for name in pairs(m:parameters()) do t.check(made[name] or made[name .. "/2"], name) end
  m:onnx(folder .. "/again.onnx")
  t.check(t.read(folder .. "/again.onnx") == bytes, "the same bytes again")
end)

t.test("what has no form is refused by its name and line", function()
  local x, truth = input(2, 1), input(2, 1)
  local y = nn.conv(x, 1, 3)
  local function refused(outputs, part, o)
    local m = seg.model { outputs = outputs }
    t.raises(function() m:onnx(folder .. "/no.onnx", o) end, part)
    t.check(not io.open(folder .. "/no.onnx"), "a file all the same")
  end
  refused({ loss = nn.bce(y, truth) }, "bce compares with the ground truth and is not part of a "
          .. "prediction")
  refused({ counts = nn.overlap(y, truth) }, "overlap compares with the ground truth")
  refused({ loss = nn.mse(y, truth) }, "tests/lua/predict/onnx.lua:")
  refused({ [x.name] = y }, "output \"" .. x.name .. "\" has the name of an input")
  refused({ [x.name] = x }, "is an unchanged input")
  for _, head in ipairs { nn.linear(nn.flatten(y), 2), y + free { 1, 1, 8, 10 } } do
    refused({ head = head }, "takes images of one size only", { any_size = true })
  end
  refused({ y = nn.upconv(x, 1, 1, { stride = 1, out_pad = 2 }) }, "a smaller out_pad")
  t.raises(function() seg.model { outputs = { y = y } }:onnx("no.onnx", { size = 1 }) end, "size")
  -- weights that are not finite are not exported
  local m = seg.model { outputs = { y = y } }
  local bias = array.zeros { 1 }
  bias:set(0 / 0, 1)
  for name, p in pairs(m:parameters()) do if #p.shape == 1 then m:set(name, bias) end end
  t.raises(function() m:onnx(folder .. "/no.onnx") end, "is not finite in f32")
end)

t.test("every row has a form, or compares with the truth", function()
  local compares = { overlap = true }
  for _, name in ipairs { "bce", "dice_loss", "bce_dice", "cross_entropy", "focal", "tversky",
                          "mae", "mse", "huber", "mean", "dvh_loss" } do compares[name] = true end
  for _, row in ipairs(core.ops()) do
    t.check(row.onnx ~= (compares[row.name] or false), row.name)
  end
end)

-- By other programs -----------------------------------------------------------

t.test("one file a form", function()
  local count = 0
  for name, form in pairs(forms) do
    for rank = form.from or 0, form.to or 3 do
      local x = input(rank, 6)
      local m = model_of(x, { y = form[1](x, rank) })
      give(string.format("%s_%dd", name, rank), m, x, "y", { cv = form.cv and rank == 2 })
      count = count + 1
    end
  end
  t.check(count > 150, count)
end)

t.test("whole networks of seg.net", function()
  local net = seg.net
  local function network(name, rank, size, build)
    local x = input(rank, 2, size)
    give(name, model_of(x, { y = nn.scope(name, function() return (build(x)) end) }), x, "y")
  end
  network("nnunet", 3, { 8, 16, 16 }, function(x)
    return net.nnunet(x, { base = 2, limit = 3, spacing_mm = { 1, 1, 3 } })
  end)
  network("mednext", 2, { 8, 12 }, function(x)
    return net.mednext(x, { filters = 2, blocks = { 1, 1, 1 }, expansions = { 2, 3, 2 } })
  end)
  network("vit", 2, { 8, 12 }, function(x)
    return net.vit(x, { patch = 4, layers = 2, heads = 2, width = 8, out = 3 })
  end)
  network("unetr", 3, { 4, 8, 12 }, function(x)
    return net.unetr(x, { layers = 2, heads = 2, width = 8, features = 2, skips = { 1 } })
  end)
end)

t.test("sigmoid and softmax behind outputs, which have one already or not", function()
  local x = input(2, 2)
  local one, three = nn.conv(x, 1, 3), nn.conv(x, 3, 3)
  local outputs = { a = one, b = three, c = nn.sigmoid(one), d = nn.softmax(three) }
  local m = model_of(x, outputs)
  local facts = m:onnx(folder .. "/both.onnx", { probabilities = true })
  t.equal(facts.probabilities, 2)
  local value = waves({ 2, 2, 8, 10 }, 0.1)
  local out = m:run { [x.name] = value }
  for i, y in ipairs { "a", "b", "c", "d" } do
    array.save(folder .. "/both" .. i .. "_x.npy", value)
    array.save(folder .. "/both" .. i .. "_y.npy", out[({ "c", "d", "c", "d" })[i]])
    t.check(os.execute(string.format("cp %s/both.onnx %s/both%d.onnx", folder, folder, i)), "cp")
    cases[#cases + 1] = string.format("both%d %s %s", i, x.name, y)
  end
  t.equal(m:onnx(folder .. "/plain.onnx").probabilities, 0)
end)

t.test("one value under two names, and a network that changes nothing", function()
  local x = input(1, 2)
  local y = nn.relu(nn.conv(x, 2, 3))
  local m = model_of(x, { first = y, second = y, third = nn.dropout(x, 0.5) })
  give("twice1", m, x, "first")
  give("twice2", m, x, "second")
  give("twice3", m, x, "third")
end)

t.test("images of other extents", function()
  local function group(v) return nn.group_norm(v, { groups = 2 }) end
  for rank = 1, 3 do
    local other = { { 24 }, { 12, 20 }, { 4, 12, 20 } }
    for name, norm in pairs { batch = nn.batch_norm, group = group } do
      local x = input(rank, 2)
      local m = model_of(x, { y = unet(x, 4, norm) })
      give(string.format("any_%s_%dd", name, rank), m, x, "y",
           { any_size = true, shape = { 2, table.unpack(other[rank]) } })
    end
  end
end)

t.test("elements that move in images of other sizes", function()
  local x = input(2, 6)
  local y = seg.transpose(seg.roll(seg.flip(x, { axes = { "h" } }), { h = -3, w = 2 }), "h", "c")
  y = seg.softmax(seg.repeats(seg.cumsum(y, { axis = "w" }), { c = 2 }), { axis = "w" })
  y = seg.matmul(seg.transpose(y, "h", "c"), seg.repeats(x, { h = 2 }), { transpose_a = true })
  local wide = nn.tanh(seg.reshape(y, { c = 3, h = -1, w = 12 }))
  y = seg.concat({ y, seg.reshape(wide, { c = 6, h = -1, w = 6 }) }, { axis = "h" })
  give("any_moves", model_of(x, { y = y }), x, "y", { any_size = true, shape = { 6, 13, 9 } })
  local m = model_of(x, { y = seg.roll(x, { w = 11 }) })
  t.raises(function() m:onnx(folder .. "/no.onnx", { any_size = true }) end,
           "roll: 11 places are not fewer than the extent 10 along w")
end)

t.test("sorted and chosen in images of other extents", function()
  for rank = 1, 3 do
    local other, all = { { 24 }, { 12, 7 }, { 4, 12, 7 } }, { axis = axes[rank] }
    for name, f in pairs {
      sort = function(x) return (seg.sort(x, all)) end,
      order = function(x) return seg.argsort(x, { axis = "w", descending = true }) end,
      one_for_all = function(x)
        return seg.gather(x, seg.argsort(op.slice(x, { c = 1 }), all), all)
      end,
      most = function(x) return seg.argmax(x, { axes = axes[rank], keep = true }) end,
      vectors = function(x)
        return nn.embedding(seg.argmax(x, { axes = { "c" } }), { count = 5, size = 4 })
          + seg.one_hot(seg.argmax(x, { axes = { "c" } }), 4) * seg.uniform(x)
      end,
    } do
      local x = input(rank, 4)
      give(string.format("any_%s_%dd", name, rank), model_of(x, { y = f(x) }), x, "y",
           { any_size = true, shape = { 4, table.unpack(other[rank]) } })
    end
  end
end)

t.test("sequences of other lengths than declared", function()
  for name, f in pairs {
    lstm = function(x)
      return nn.lstm(x, 4, { bidirectional = true, lengths = length_of(x) })
    end,
    last = function(x) return op.last_step(x, length_of(x)) end,
    mean = function(x) return op.global_avgpool(x, length_of(x)) end,
    most = function(x) return op.global_maxpool(x, length_of(x)) end,
    end_of = function(x) return op.last_step(x) end,
    attention = function(x) return nn.attention(x, { heads = 3, lengths = length_of(x) }) end,
  } do
    local x = input(1, 6)
    give("any_" .. name, model_of(x, { y = f(x) }), x, "y", { any_size = true, shape = { 6, 23 } })
  end
  for rank = 2, 3 do
    local x = input(rank, 4)
    local shape = rank == 2 and { 4, 3, 5 } or { 4, 2, 3, 5 }
    local m = model_of(x, { y = nn.attention(x, { heads = 2 }) })
    give("any_attention_" .. rank .. "d", m, x, "y", { any_size = true, shape = shape })
  end
end)

t.test("networks ready to use", function()
  local net = seg.net
  local small = { features = { 4, 8 }, norm = "instance", act = "leaky_relu" }
  local made = {
    unet_2d = { 2, function(x) return net.unet(x, small) end, { 8, 12 } },
    unet_3d = { 3, function(x)
      return net.unet(x, { features = { 8, 16 }, residual = true, squeeze = 2, gates = true,
                           heads = 2, down = "conv", up = "linear", norm = "group", out = 3 })
    end, { 4, 8, 12 } },
    unet_1d = { 1, function(x) return net.unet(x, { features = { 4 }, deep = 0 }) end },
    odd = { 2, function(x) return net.unet(x, { features = { 4, 8 }, pad = true }) end, { 9, 11 } },
    pix2pix_3d = { 3, function(x) return net.pix2pix(x, { filters = 4, levels = 3 }) end,
                   { 8, 16, 8 } },
    resnet_2d = { 2, function(x) return net.resnet(x, { base = 4, out = 3 }) end, { 40, 48 } },
    pose_cnn_2d = { 2, function(x) return net.pose_cnn(x, { features = { 4, 8 } }) end,
                    { 32, 24 } },
    cnn_lstm = { 1, function(x)
      return net.cnn_lstm(x, { features = { 4, 6 }, hidden = 5, project = 7, out = 3,
                               lengths = length_of(x) })
    end, { 24 } },
    mlp = { 0, function(x) return net.mlp(x, { hidden = { 8, 8 }, out = 3 }) end },
  }
  for name, row in pairs(made) do
    local x = input(row[1], 6, row[3])
    nn.scope(name, function() give(name, model_of(x, { y = (row[2](x)) }), x, "y") end)
  end
end)

-- The recipes of scripts/, trained for a moment; the file must give the results of seg.open with
-- the same weights.
local function recipe(name, size)
  local line = string.format("scripts/%s.lua --preset check --out %s/runs --phantom %s/made", name,
                             folder, folder)
  t.says(line .. " --steps 2", 0, "stopped after 2 steps")
  local run = folder .. "/runs/" .. name .. "/001"
  local file = folder .. "/" .. name .. ".onnx"
  local text = t.says(line:gsub("%.lua", ".lua export", 1) .. " --onnx " .. file .. " --weights "
                      .. run, 0, "opset 13")
  t.check(text:find(string.format("output mask (batch,1,%d,%d)", size, size), 1, true), text)
  local m = seg.open(run .. "/checkpoint_last.safetensors", { threads = 1 })
  local value = waves({ 3, 1, size, size }, 0.3)
  array.save(folder .. "/" .. name .. "_x.npy", value)
  array.save(folder .. "/" .. name .. "_y.npy", m:run { image = value }.mask)
  cases[#cases + 1] = name .. " image mask cv"
  local bytes = t.read(file)
  for _, part in ipairs { "preprocessing", "resize d=0 h=32 w=32", "segments",
                          "research use only" } do
    t.check(bytes:find(part, 1, true), "the file does not say " .. part)
  end
  t.check(not bytes:find(folder, 1, true), "the file has a path")
end

t.test("brain_unet and nfbs_unet", function()
  recipe("brain_unet", 32)
  recipe("nfbs_unet", 32)
end)

t.test("the command refuses what goes together with nothing", function()
  local bare = "scripts/brain_unet.lua --preset check export --out " .. folder .. "/runs "
  local line = bare .. "--weights " .. folder .. "/runs/brain_unet/001 "
  t.says(line .. "--probabilities --safetensors x", 2, "--probabilities needs --onnx FILE")
  t.says(bare .. "--any_size --reference x", 2, "--any_size needs --onnx FILE")
  t.says(bare, 2, "export needs --bundle FILE, --onnx FILE")
  local text = t.says(line .. "--probabilities --any_size --onnx " .. folder .. "/p.onnx", 0,
                      "output mask (batch,1,any,any)")
  t.check(text:find("the outputs end in a sigmoid or softmax as they are", 1, true), text)
end)

t.test("checked and run by others", function()
  t.write(folder .. "/cases.txt", table.concat(cases, "\n") .. "\n")
  t.needs(PYTHON, "test")
  local said = t.lines(PYTHON .. " tests/lua/predict/onnx_peer.py " .. folder
                       .. " 2>&1; echo code $?")
  local code = said[#said]:match("^code (%d+)$")
  if code == "77" then t.skip(said[#said - 1]) end
  print("  " .. (said[#said - 1] or ""))
  t.check(code == "0", table.concat(said, "\n"))
end)

remove()
t.finish()
