-- sequence.lua -- LSTM, attention and pooling over true lengths: compared with PyTorch
-- (tests/golden/sequence.py); padding and the other samples of a batch change nothing.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local nn, data = seg.nn, seg.data

local FILE = "tests/golden/sequence.safetensors"
local LENGTHS = { 7, 4, 1, 6 }

local function golden(name) return seg.array.load("tests/golden/sequence_" .. name .. ".npy") end

-- f(got, want) for each element of two arrays of one shape.
local function each(got, want, f)
  t.equal(table.concat(got.shape, "x"), table.concat(want.shape, "x"), "shape")
  local index = {}
  local function walk(axis)
    for i = 1, want.shape[axis] do
      index[axis] = i
      if axis < #want.shape then
        walk(axis + 1)
      else
        f(got:get(table.unpack(index)), want:get(table.unpack(index)))
      end
    end
  end
  walk(1)
end

local function nmse(got, want)
  local off, power = 0, 0
  each(got, want, function(a, b) off, power = off + (a - b) ^ 2, power + b * b end)
  return off / power
end

local function close(got, want, limit, what)
  local v = nmse(got, want)
  t.check(v <= limit, "%s: NMSE %.3g, at most %g", what, v, limit)
end

local function numbers(list)
  local rows = {}
  for i, v in ipairs(list) do rows[i] = v end
  return seg.array { shape = { #list, 1 }, data = rows }
end

-- The network of sequence.py; `name` is a prefix of its inputs.
local function network(name, w)
  local x, length = nn.input(name .. "x", { c = 5, w = w }), nn.input(name .. "n", { c = 1 })
  local o = { x = x, length = length }
  o.lstm = nn.lstm(nn.linear(x, 4), 3, { layers = 2, bidirectional = true, lengths = length })
  o.attention = nn.attention(o.lstm, { heads = 2, lengths = length })
  local function pool(y, mode) return nn.global_pool(y, { mode = mode, lengths = length }) end
  o.result = nn.linear(pool(o.attention, "mean") .. pool(o.attention, "max")
                       .. pool(o.attention, "last") .. pool(o.lstm, "ends"), 2)
  return o
end

local net = network("", 7)
local feed = { x = golden("x"), n = numbers(LENGTHS) }

-- A function that maps tensor names of a group of the file to parameters below `scope`.
local function group(name, scope)
  return function(n)
    n = n:match("^" .. name:gsub("%.", "%%.") .. "%.(.*)$")
    return n and (scope or "") .. n
  end
end

-- Gradients in the file, by name: read through a model of that shape.
local function gradients(outputs, rename)
  local m, out = seg.model { outputs = outputs }, {}
  m:load(FILE, { rename = rename })
  for n in pairs(m:parameters()) do out[n] = m:get(n) end
  return out
end

-- Runs a step with the loss of sequence.py and compares results and gradients. `part` is a prefix
-- of the names of results, `scope` of the names of parameters.
local function compare(device, limit, o)
  local s = seg.step { loss = o.loss, outputs = o.outputs, device = device,
                       optim = seg.optim.sgd { lr = 0 } }
  s:load(FILE, { rename = group(o.group .. ".init", o.scope) })
  local _, out = s:run(o.inputs)
  for k, v in pairs(out) do close(v, golden((o.part or "") .. k), limit, k) end
  local want = gradients(o.outputs, group(o.group .. ".grad", o.scope))
  for n, g in pairs(s:gradients()) do
    close(g, want[n], limit, "gradient of " .. n)
    want[n] = nil
  end
  t.equal(next(want), nil, "a gradient that is not there")
end

local squares = nn.mse(net.attention, net.attention * 0)
local full_loss = nn.mse(net.result, net.result * 0 + 0.5) + squares
local outputs = { lstm = net.lstm, attention = net.attention, result = net.result }

-- One layer in one direction and attention over all of it, without biases.
local plain = nn.scope("plain", function()
  local y = nn.lstm(nn.input("px", { c = 5, w = 7 }), 4, { bias = false })
  return { lstm = y, attention = nn.attention(y, { bias = false }) }
end)
local plain_loss = nn.mse(plain.attention, plain.attention * 0)

for device, limit in pairs { ref = 1e-13, cpu = 1e-10 } do
  t.test(device .. ": a packed LSTM and masked attention as in PyTorch", function()
    compare(device, limit, { loss = full_loss, outputs = outputs, inputs = feed, group = "full" })
  end)

  t.test(device .. ": one direction without biases as in PyTorch", function()
    compare(device, limit, { loss = plain_loss, outputs = plain, inputs = { px = golden("x") },
                             group = "plain", part = "plain_", scope = "plain." })
  end)
end

-- Some samples of the batch, padded to `w` with a value that must not matter.
local function some(which, w, value)
  local rows, count, x = {}, {}, feed.x
  for _, n in ipairs(which) do
    count[#count + 1] = LENGTHS[n]
    for c = 1, 5 do
      for p = 1, w do rows[#rows + 1] = p <= LENGTHS[n] and x:get(n, c, p) or value end
    end
  end
  return seg.array { shape = { #which, 5, w }, data = rows }, numbers(count)
end

t.test("results depend neither on padding nor on who else is in the batch", function()
  local wide = nn.scope("wide", function() return network("wide_", 11) end)
  local function model(o, name, threads)
    local m = seg.model { device = "cpu", threads = threads, outputs = {
      lstm = o.lstm, attention = o.attention, result = o.result } }
    m:load(FILE, { rename = group("full.init", name) })
    return m
  end
  local whole = model(net, "", 1):run(feed)
  local cases = { { { 2 }, 7, 0 }, { { 4, 3 }, 11, 1e9 }, { { 3, 2, 1, 4, 2 }, 11, -1e38 },
                  { { 1 }, 8, -1 } }
  for _, case in ipairs(cases) do
    local which, w, value = table.unpack(case)
    local x, count = some(which, w, value)
    local m = model(wide, "wide.", 2)
    local got = m:run { wide_x = x, wide_n = count }
    for i, n in ipairs(which) do
      for c = 1, 6 do
        for p = 1, w do
          local own = p <= LENGTHS[n]
          for _, k in ipairs { "lstm", "attention" } do
            t.equal(got[k]:get(i, c, p), own and whole[k]:get(n, c, p) or 0,
                    string.format("%s of sample %d at %d, %d", k, n, c, p))
          end
        end
      end
      for c = 1, 2 do t.equal(got.result:get(i, c), whole.result:get(n, c), "result") end
    end
  end
end)

t.test("a sequence of length 0 is 0 and has no gradient", function()
  local s = seg.step { loss = full_loss, outputs = outputs, device = "cpu",
                       optim = seg.optim.sgd { lr = 0 } }
  s:load(FILE, { rename = group("full.init") })
  local _, out = s:run { x = feed.x, n = numbers { 0, 0, 0, 0 } }
  each(out.lstm, out.lstm, function(v) t.equal(v, 0) end)
  each(out.attention, out.attention, function(v) t.equal(v, 0) end)
  for n, g in pairs(s:gradients()) do
    if n:find("lstm") or n:find("attention") then
      each(g, g, function(v) t.equal(v, 0, n) end)
    end
  end
end)

t.test("lengths behind pools and convolutions", function()
  local n = nn.input("before", { c = 1 })
  local x = nn.input("any", { c = 1, w = 40 })
  local cases = { { 2 }, { 3 }, { 2, { stride = 1 } }, { 3, { stride = 1, pad = 1 } },
                  { 3, { stride = 2, pad = 1 } }, { 3, { stride = 3, dilation = 2, pad = 1 } },
                  { 7, { stride = 3 } } }
  for i, case in ipairs(cases) do
    local kernel, o = case[1], case[2] or {}
    local after = nn.length_after(n, kernel, o)
    -- as many ones as valid positions
    local ones = nn.mask_length(x * 0 + 1, after)
    local m = seg.model { outputs = { y = ones }, device = "cpu" }
    for length = 0, 30 do
      local y = m:run { before = numbers { length },
                        any = seg.array.zeros { 1, 1, 40 } }.y
      local got = 0
      each(y, y, function(v) got = got + v end)
      local span = (o.dilation or 1) * (kernel - 1) + 1
      local room = length + 2 * (o.pad or 0) - span
      local want = math.max(room // (o.stride or kernel) + 1, 0)
      t.equal(got, want, string.format("case %d, length %d", i, length))
    end
  end
end)

t.test("lengths behind several pools and convolutions", function()
  local n, x = nn.input("first", { c = 1 }), nn.input("all", { c = 1, w = 64 })
  local chain = { { 2 }, { 3, { stride = 1, pad = 1 } }, { 2 }, { 3, { stride = 2, pad = 1 } },
                  { 3 } }
  local after, ones = n, {}
  for i, one in ipairs(chain) do
    after = nn.length_after(after, one[1], one[2])
    ones["y" .. i] = nn.mask_length(x * 0 + 1, after)
  end
  local m = seg.model { outputs = ones, device = "cpu" }
  for length = 1, 64 do
    local out = m:run { first = numbers { length }, all = seg.array.zeros { 1, 1, 64 } }
    local want = length
    for i, one in ipairs(chain) do
      local o, got = one[2] or {}, 0
      want = math.max((want + 2 * (o.pad or 0) - one[1]) // (o.stride or one[1]) + 1, 0)
      each(out["y" .. i], out["y" .. i], function(v) got = got + v end)
      t.equal(got, want, string.format("length %d behind %d", length, i))
    end
  end
end)

t.test("dropout of weights and between layers is of training only", function()
  local x = nn.input("dx", { c = 4, w = 9 })
  local y = nn.attention(nn.lstm(x, 4, { layers = 2, dropout = 0.5 }), { dropout = 0.5 })
  local loss = nn.mse(nn.global_pool(y), nn.input("dt", { c = 4 }))
  local s = seg.step { loss = loss, outputs = { y = y }, optim = seg.optim.sgd { lr = 0 },
                       device = "cpu", seed = 3 }
  local noise = {}
  for i = 1, 36 do noise[i] = math.sin(i * 12.9898) end
  local inputs = { dx = seg.array { shape = { 1, 4, 9 }, data = noise },
                   dt = seg.array.zeros { 1, 4 } }
  local _, first = s:run(inputs)
  local _, second = s:run(inputs)
  t.check(nmse(first.y, second.y) > 1e-4, "two steps have the same noise")
  local evaluation = seg.model { outputs = { y = y }, device = "cpu", seed = 3 }
  local a, b = evaluation:run(inputs).y, evaluation:run(inputs).y
  t.equal(nmse(a, b), 0, "two evaluations differ")
end)

t.test("errors name what is wrong", function()
  local x, n = nn.input("ex", { c = 4, w = 9 }), nn.input("en", { c = 1 })
  local image, two = nn.input("ei", { c = 4, h = 3, w = 3 }), nn.input("e2", { c = 2 })
  t.raises(function() nn.lstm(image, 3) end, "nn.lstm: needs a sequence (C,W)")
  t.raises(function() nn.lstm(x, 0) end, "nn.lstm: hidden must be >= 1, got 0")
  t.raises(function() nn.lstm(x, 3, { lengths = two }) end, "must be one number a sample")
  t.raises(function() nn.lstm(x, 3, { length = n }) end, "lengths")
  t.raises(function() nn.attention(x, { heads = 3 }) end,
           "nn.attention: 4 channels do not divide into 3 heads")
  t.raises(function() nn.attention(image, { lengths = n }) end, "this has rank 2")
  t.raises(function() nn.attention(x, { dropout = 1 }) end, "dropout must be from 0 to below 1")
  t.raises(function() nn.global_pool(x, { mode = "first" }) end,
           'mode must be "mean", "max", "last" or "ends", got "first"')
  t.raises(function() nn.mask_length(x) end, "nn.mask_length: lengths must be")
  t.raises(function() nn.global_pool(nn.input("e3", { c = 3, w = 2 }), { mode = "ends" }) end,
           "even number of channels")
end)

-- An image: every position attends to all others.
t.test("attention at a bottleneck keeps the extents", function()
  local image = nn.input("image", { c = 8, h = 3, w = 5 })
  local y = nn.attention(image, { heads = 4 })
  t.equal(table.concat(y.shape, "x"), table.concat(image.shape, "x"))
  t.equal(y.rank, 2)
end)

-- From files to predictions: a network that must know the order of the steps,
-- with the lengths of the data.
t.test("sequences of several lengths are learned from files", function()
  local folder = os.tmpname()
  os.remove(folder)
  require("seg.core").sys.mkdir(folder)
  local cases = {}
  for i = 1, 12 do
    local w, up, rows = 3 + i % 5, i % 2, {}
    for p = 1, w do rows[p] = (up == 1 and p or w + 1 - p) / w end
    local name = string.format("%s/s%02d.npy", folder, i)
    seg.array.save(name, seg.array { shape = { w, 1 }, data = rows })
    cases[i] = { key = "s" .. i, patient = "s" .. i, x = name, up = up }
  end
  local set = data.cases { cases = cases, fields = {
    { name = "x", read = "npy", rank = 1 }, { name = "up", kind = "numbers" },
    { name = "length", kind = "length" } } }
    :fit { w = 7, at = "start" }:batches { size = 12 }
  local loader = set:loader(set:pipeline {}, {})
  local batch, blocks = loader:next(), {}
  for i, name in ipairs(set:dataset():fields()) do blocks[name] = batch.fields[i] end
  local x = nn.input("lx", { c = 1, w = 7 })
  local up, length = nn.input("up", { c = 1 }), nn.input("length", { c = 1 })
  local y = nn.lstm(x, 6, { lengths = length })
  local logit = nn.linear(nn.global_pool(y, { mode = "last", lengths = length }), 1)
  local s = seg.step { loss = nn.bce(logit, up), optim = seg.optim.adam { lr = 0.05 },
                       device = "cpu" }
  local first = s:run { lx = blocks.x, up = blocks.up, length = blocks.length }
  local last
  for _ = 1, 80 do last = s:run { lx = blocks.x, up = blocks.up, length = blocks.length } end
  t.check(last < 0.1 * first, "the loss went from %g to %g", first, last)
  loader:close()
end)

-- Every node at the extents of the whole network, among them LSTMs of 32 steps: with initial
-- weights every kernel is as accurate as float, in any precision of the CPU.
t.test("the check of a recipe with LSTMs passes", function()
  local folder, remove = t.folder()
  for _, precision in ipairs { "f32", "bf16" } do
    local said = t.says("scripts/sequence_cnn_lstm.lua check --threads 1 --precision " .. precision
                        .. " --phantom " .. folder .. "/made --out " .. folder .. "/runs", 0,
                        "cpu against ref: 87 nodes")
    t.check(not said:find("FAILED"), "%s", said)
    t.check(said:find("losses of all steps"), "no steps in: %s", said)
  end
  remove()
end)

-- The command bench feeds full lengths to these inputs.
t.test("inputs that are lengths are known", function()
  local core = require "seg.core"
  local found = core.length_inputs { full_loss, nn.mask_length(
    nn.input("ly", { c = 1, w = 9 }), nn.length_after(nn.input("made", { c = 1 }), 2)) }
  local names = {}
  for n in pairs(found) do names[#names + 1] = n end
  table.sort(names)
  t.equal(table.concat(names, " "), "made n")
end)

t.finish()
