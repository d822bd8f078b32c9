-- loops.lua -- training loops of a script: set:epoch has the batches of a run, steps and models
-- follow each other, and several optimisers take turns.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local nn, optim, data = seg.nn, seg.optim, seg.data

local device = os.getenv "SEG_TEST_DEVICE" or "cpu"
local folder, remove = t.folder()

local serial = 0
-- A name that no other test has: the graph of a script is one.
local function name(text)
  serial = serial + 1
  return text .. serial
end

local function ones(n, c, w, value)
  local list = {}
  for i = 1, n * c * w do list[i] = value or 1 end
  return seg.array { shape = { n, c, w }, data = list }
end

-- The numbers of an array, as text of their bits.
local function bits(a)
  local flat, out = a:reshape { a.count }, {}
  for i = 1, a.count do out[i] = string.format("%a", flat:get(i)) end
  return table.concat(out, " ")
end

-- A set and a network of both a recipe and a loop.
local SETUP = [[
local seg = require "seg"
local data, nn, optim = seg.data, seg.nn, seg.optim
local cfg = seg.config { batch = 4, epochs = 2, lr = 1e-2 }
local train = data.phantom { patients = 4, size = 16, slices = 5 }
  :normalize {}:slices { axis = "axial" }:augment { flip = true, noise = true }
  :batches { size = cfg.batch, shuffle = true }
local image = nn.input("image", { c = 1, h = 16, w = 16 })
local truth = nn.input("mask", { c = 1, h = 16, w = 16 })
local logits = nn.conv(nn.relu(nn.batch_norm(nn.conv(image, 4, 3))), 1, 1, { name = "head" })
local loss, adamw = nn.bce_dice(logits, truth), optim.adamw { lr = cfg.lr }
local schedule = optim.cosine { warmup = 1 }
]]

t.test("a loop over set:epoch trains to the bits of a run", function()
  local run = t.write(folder .. "/run.lua", SETUP .. [[
seg.recipe { inputs = { image, truth }, outputs = { mask = nn.sigmoid(logits) }, loss = loss,
             train = train, optim = adamw, schedule = schedule }]])
  local loop = t.write(folder .. "/loop.lua", SETUP .. [[
local step = seg.step { loss = loss, optim = adamw, seed = cfg.seed, device = cfg.device }
for epoch = 1, cfg.epochs do
  for batch, number, batches in train:epoch(epoch) do
    batch.lr = schedule.rate(cfg.lr, epoch, cfg.epochs, {
      step = (epoch - 1) * batches + number, steps = cfg.epochs * batches })
    print(epoch, number, batches, batch.image.shape[1], (step:run(batch)))
  end
end
step:save(os.getenv "OUT")]])
  local places = " --device " .. device .. " --phantom " .. folder .. "/phantom"
  t.says(run .. places .. " --device_dataset off --out " .. folder .. "/runs", 0, "done: ")
  for workers = 0, 3, 3 do
    local code, said = t.program(string.format("%s%s --workers %d", loop, places, workers),
                                 "export OUT=" .. folder .. "/loop.safetensors; ")
    t.equal(code, 0, said)
    t.check(said:find("2\t5\t5\t4\t", 1, true), said)
    t.check(#core.checkpoint.tensors(folder .. "/loop.safetensors") > 6)
    local function tensors(file)
      local bytes = t.read(file)
      return bytes:sub(9 + string.unpack("<I8", bytes))
    end
    t.check(tensors(folder .. "/loop.safetensors")
            == tensors(folder .. "/runs/run/001/checkpoint_last.safetensors"), said)
  end
end)

-- 10 slices in batches of 4
local function slices()
  return data.phantom { patients = 2, size = 16, slices = 5, root = folder .. "/phantom" }
    :normalize {}:slices { axis = "axial" }:batches { size = 4 }
end

t.test("the batches are arrays by field, and stay", function()
  local set, seen, first = slices(), {}, nil
  for batch, number, batches in set:epoch(1) do
    seen[#seen + 1] = string.format("%d/%d:%d", number, batches, batch.image.shape[1])
    first = first or batch
    t.equal(#batch.mask.shape, 4)
  end
  t.equal(table.concat(seen, " "), "1/3:4 2/3:4 3/3:2")
  local again = t.first_batch(slices())
  t.equal(bits(first.image), bits(again.image))
end)

t.test("a loop may be left, and begins again anywhere", function()
  local set = data.phantom { patients = 2, size = 16, slices = 5, root = folder .. "/phantom" }
    :normalize {}:slices { axis = "axial" }:augment { noise = true }
    :batches { size = 4, shuffle = true }
  local function of(epoch)
    local list = {}
    for batch in set:epoch(epoch) do list[#list + 1] = bits(batch.image) end
    return table.concat(list, ";")
  end
  local one, two = of(1), of(2)
  set:epoch(1)()
  t.check(of(2) == two and of(1) == one and one ~= two)
  t.raises(function()
    for _ in set:epoch(1) do set:epoch(2)() end
  end, "another loop over this set has begun")
end)

t.test("wrong epochs are refused", function()
  local set = slices()
  for _, number in ipairs { 0, -1, 1.5, 0 / 0, "1", math.huge, 1 << 40 } do
    t.raises(function() set:epoch(number) end, "wanted the number of an epoch")
  end
  t.raises(function() set:epoch() end, "got nil")
  t.raises(function() set.epoch(1) end, "write a colon")
  local standardized = data.phantom { patients = 2, size = 16, slices = 5,
                                      root = folder .. "/phantom" }
    :standardize { field = "image" }:slices { axis = "axial" }:batches { size = 4 }
  t.raises(function() standardized:epoch(1) end, "not known yet")
  local count = 0
  for _ in standardized:fitted():epoch(1) do count = count + 1 end
  t.equal(count, 3)
end)

t.test("a model follows a step: copies, moving averages, some of the names", function()
  local x, y = nn.input(name "fx", { c = 2, w = 4 }), nn.input(name "fy", { c = 2, w = 4 })
  local scope, logits = name "f", nil
  nn.scope(scope, function()
    logits = nn.conv(nn.batch_norm(nn.conv(x, 2, 1, { name = "a" })), 2, 1, { name = "b" })
  end)
  local step = seg.step { loss = nn.mse(logits, y), optim = optim.sgd { lr = 0.5 }, seed = 1,
                          device = device }
  local teacher = seg.model { outputs = { y = logits }, seed = 2, device = device }
  local a, b = scope .. ".a.weight", scope .. ".b.weight"
  local before, feeds = teacher:get(a), { [x.name] = ones(1, 2, 4), [y.name] = ones(1, 2, 4, 3) }
  t.check(bits(before) ~= bits(step:get(a)))
  t.equal(teacher:follow(step, 0, "%.b%."), 2, "weight and bias")
  t.equal(bits(teacher:get(a)), bits(before), "not matched")
  t.equal(bits(teacher:get(b)), bits(step:get(b)))
  t.equal(teacher:follow(step), 8, "with the statistics of the norm")
  t.equal(bits(teacher:get(a)), bits(step:get(a)))
  local was = teacher:get(a)
  step:run(feeds)
  teacher:follow(step, 0.75)
  local now, new = teacher:get(a), step:get(a)
  for i = 1, 2 do
    for k = 1, 2 do
      t.near(now:get(i, k, 1), 0.75 * was:get(i, k, 1) + 0.25 * new:get(i, k, 1), 1e-7)
    end
  end
  t.check(bits(teacher:get(scope .. ".norm1.running_mean")) ~= bits(ones(1, 2, 1, 0)),
          "the running statistics follow too")
  local still = bits(teacher:get(a))
  teacher:follow(step, 1)
  t.equal(bits(teacher:get(a)), still, "decay 1 keeps everything")
end)

t.test("follow refuses what it cannot do", function()
  local x, y = nn.input(name "rx", { c = 1, w = 2 }), nn.input(name "ry", { c = 1, w = 2 })
  local scope = name "r"
  local z = nn.scope(scope, function() return nn.conv(x, 1, 1, { name = "a" }) end)
  local other = nn.scope(name "r", function() return nn.conv(x, 1, 1, { name = "a" }) end)
  local step = seg.step { loss = nn.mse(z, y), optim = optim.sgd { lr = 0.5 }, device = device }
  local model = seg.model { outputs = { y = other }, device = device }
  t.raises(function() model:follow(step) end, "the networks share no parameter; nn.scope with")
  t.raises(function() step:follow(step, 0, "none") end, "share no parameter that none matches")
  for _, decay in ipairs { -0.1, 1.1, 0 / 0, "0.5", true } do
    t.raises(function() step:follow(step, decay) end, "decay must be a number from 0 to 1")
  end
  t.raises(function() step:follow(step, 0, "[") end, "match must be a Lua pattern")
  for _, v in ipairs { 3, "x", {}, print } do
    t.raises(function() step:follow(v) end, "wanted a result of seg.step or seg.model")
  end
  t.raises(function() step:follow(nil) end, "got nil")
  for _, lr in ipairs { -1, 0 / 0, 1 / 0, "x" } do
    t.raises(function() step:run { lr = lr } end, "lr must be a number >= 0")
  end
  for _, norm in ipairs { -1, 0 / 0, "x" } do
    t.raises(function() step:clip(norm) end, "the norm must be a number >= 0")
  end
  t.raises(function() step:clip(nil) end, "got nil")
end)

t.test("rate and clipping may change with every call", function()
  local x, y = nn.input(name "cx", { c = 1, w = 4 }), nn.input(name "cy", { c = 1, w = 4 })
  local scope = name "c"
  local z = nn.scope(scope, function() return nn.conv(x, 1, 1, { name = "a" }) end)
  local s = seg.step { loss = nn.mse(z, y), optim = optim.sgd { lr = 0.5 }, device = device }
  local key = scope .. ".a.bias"
  local function moved(lr)
    local was = s:get(key):get(1)
    s:run { [x.name] = ones(1, 1, 4), [y.name] = ones(1, 1, 4, 100), lr = lr }
    return s:get(key):get(1) - was, -s:gradients()[key]:get(1)
  end
  local by, grad = moved()
  t.near(by, 0.5 * grad, 1e-4 * math.abs(grad))
  s:clip(1)
  by, grad = moved(0.25)
  t.near(by, 0.25 * grad / s.grad_norm, 1e-4)
  s:clip(0)
  t.equal((moved(0)), 0.0)
  by, grad = moved(0.125)
  t.near(by, 0.125 * grad, 1e-4 * math.abs(grad))
end)

t.test("several runs make one update by their mean gradient", function()
  local x, y = nn.input(name "ax", { c = 1, w = 2 }), nn.input(name "ay", { c = 1, w = 2 })
  local scope = name "a"
  local z = nn.scope(scope, function() return nn.conv(x, 1, 1, { name = "a" }) end)
  local function step(o)
    o.loss, o.optim, o.device = nn.mse(z, y), optim.sgd { lr = 0.1 }, device
    return seg.step(o)
  end
  local key, parts, whole = scope .. ".a.weight", step { accumulate = 2 }, step {}
  for round = 1, 3 do
    local start = parts:get(key):get(1, 1, 1)
    parts:run { [x.name] = ones(1, 1, 2, round), [y.name] = ones(1, 1, 2, 5) }
    t.equal(parts:get(key):get(1, 1, 1), start, "no update yet")
    t.equal(parts.applied, false)
    parts:run { [x.name] = ones(1, 1, 2, -1), [y.name] = ones(1, 1, 2, 3) }
    t.equal(parts.applied, true)
    whole:run { [x.name] = seg.array { shape = { 2, 1, 2 }, data = { round, round, -1, -1 } },
                [y.name] = seg.array { shape = { 2, 1, 2 }, data = { 5, 5, 3, 3 } } }
    t.near(parts:get(key):get(1, 1, 1), whole:get(key):get(1, 1, 1), 1e-6)
  end
  -- a checkpoint is of a whole number of updates, and a resumed step begins one
  local file = folder .. "/parts.safetensors"
  local function batch(v) return { [x.name] = ones(1, 1, 2, v), [y.name] = ones(1, 1, 2, 5) } end
  parts:save(file)
  parts:run(batch(2))
  t.raises(function() parts:save(file) end, "1 of 2 runs of an update are done")
  parts:resume(file)
  parts:run(batch(1))
  t.equal(parts.applied, false)
  parts:run(batch(-1))
  t.equal(parts.applied, true)
  for _, n in ipairs { 0, 1.5, -1, "2", 1 << 30 } do
    t.raises(function() step { accumulate = n } end, "accumulate must be a whole number from 1")
  end
end)

-- A generator and a discriminator: play(rounds) trains them in turn.
local function gan()
  local z, real = nn.input(name "gz", { c = 2, w = 1 }), nn.input(name "gr", { c = 1, w = 1 })
  local G, D, shared = name "G", name "D", { share = true }
  local fake = nn.scope(G, function() return nn.conv(z, 1, 1, { name = "a" }) end)
  local function judge(v)
    return nn.scope(D, function()
      return nn.conv(nn.relu(nn.conv(v, 8, 1, { name = "a" })), 1, 1, { name = "b" })
    end, shared)
  end
  local on_real, on_fake = judge(real), judge(seg.stop(fake))
  local judged = judge(fake)
  return function(rounds)
    local d = seg.step { loss = nn.bce(on_real, on_real * 0 + 1) + nn.bce(on_fake, on_fake * 0),
                         optim = optim.adam { lr = 0.05 }, frozen = { G }, seed = 3,
                         device = device }
    local g = seg.step { loss = nn.bce(judged, judged * 0 + 1), optim = optim.adam { lr = 0.02 },
                         frozen = { D }, outputs = { fake = fake }, seed = 4, device = device }
    local list, start = {}, g:get(D .. ".a.weight")
    for i = 1, rounds do
      local noise = core.array.random({ 16, 2, 1 }, i, false)
      d:follow(g, 0, "^" .. G)
      d:run { [z.name] = noise, [real.name] = ones(16, 1, 1, 4) }
      g:follow(d, 0, "^" .. D)
      local before = g:get(D .. ".a.weight")
      local _, out = g:run { [z.name] = noise }
      t.equal(bits(g:get(D .. ".a.weight")), bits(before), "the frozen discriminator")
      list[i] = select(3, out.fake:stats())
    end
    t.check(bits(start) ~= bits(g:get(D .. ".a.weight")))
    return list, bits(g:get(G .. ".a.weight"))
  end
end

t.test("a generator and a discriminator take turns, the same bits every time", function()
  local play = gan()
  local list, last = play(60)
  local again, same = play(60)
  t.check(list[60] > list[1] + 1, "the mean of the fakes moves to that of the real ones: %g, %g",
          list[1], list[60])
  for i = 1, 60 do t.equal(again[i], list[i]) end
  t.equal(same, last)
end)

t.test("a student learns from the outputs of its teacher", function()
  local x = nn.input(name "sx", { c = 2, w = 4 })
  local soft = nn.input(name "ss", { c = 1, w = 4 })
  local teach = nn.scope(name "T", function() return nn.sigmoid(nn.conv(x, 1, 1)) end)
  local learn = nn.scope(name "S", function() return nn.conv(x, 1, 1) end)
  local teacher = seg.model { outputs = { p = teach }, seed = 5, device = device }
  local student = seg.step { loss = nn.bce(learn, soft), optim = optim.adam { lr = 0.1 }, seed = 6,
                             device = device }
  local first, last
  for i = 1, 40 do
    local batch = core.array.random({ 8, 2, 4 }, i % 4, false)
    last = student:run { [x.name] = batch, [soft.name] = teacher:run { [x.name] = batch }.p }
    first = first or last
  end
  t.check(last < first, "%g, %g", first, last)
end)

remove()
t.finish()
