-- epoch_steps.lua -- how long an epoch is, how often it is validated, and lr_scale.

local t = dofile("tests/support/harness.lua")
local folder, remove = t.folder()
local device = os.getenv "SEG_TEST_DEVICE" or "cpu"
local places = " --phantom " .. folder .. "/phantom --device " .. device

local BASE = [[
local seg = require "seg"
local data, nn, optim, metric = seg.data, seg.nn, seg.optim, seg.metric
local cfg = seg.config { batch = 4, epochs = 4, lr = 1e-2 }
local function prepare(set) return set:normalize {}:slices { axis = "axial" } end
local train, valid = data.phantom { patients = 6, size = 16, slices = 5 }:split { valid = 2,
                                                                                 seed = 1 }
train = prepare(train):augment { flip = true, noise = true }
local image = nn.input("image", { c = 1, h = 16, w = 16 })
local truth = nn.input("mask", { c = 1, h = 16, w = 16 })
local logits = nn.conv(nn.relu(nn.batch_norm(nn.conv(image, 4, 3))), 1, 1, { name = "head" })
local r = {
  inputs = { image, truth }, outputs = { mask = nn.sigmoid(logits) },
  loss = nn.bce_dice(logits, truth), train = train:batches { size = cfg.batch, shuffle = true },
  valid = prepare(valid):batches { size = 4 }, optim = optim.adamw { lr = cfg.lr },
  metrics = { dice = metric.dice(logits, truth) },
}
]]

local count = 0
local function script(lines, base)
  count = count + 1
  os.execute("mkdir -p " .. folder .. "/" .. count)
  return t.write(folder .. "/" .. count .. "/r.lua", (base or BASE) .. lines .. "\nseg.recipe(r)\n")
end

local function train(path, options)
  local out = path:match("^(.*)/") .. "/out"
  local code, said = t.program(path .. places .. " --out " .. out .. " " .. (options or ""))
  t.equal(code, 0, said:sub(-400))
  return out .. "/r/001", said
end

local function rows(run)
  local list, head = {}, nil
  for line in t.read(run .. "/metrics.csv"):gmatch("[^\n]+") do
    local cells, row = {}, {}
    for cell in (line .. ","):gmatch("([^,]*),") do cells[#cells + 1] = cell end
    for i, name in ipairs(head or {}) do row[name] = tonumber(cells[i]) end
    if head then list[#list + 1] = row end
    head = head or cells
  end
  return list
end

-- The tensors of the last checkpoint.
local function tensors(run)
  local bytes = t.read(run .. "/checkpoint_last.safetensors")
  return bytes:sub(9 + string.unpack("<I8", bytes))
end

t.test("an epoch of n steps draws the batches of the passes one after another", function()
  -- 20 samples are 5 batches: 4 passes are 20 steps, in epochs of 5, 4 or 10
  local passes = train(script "")
  for steps, epochs in pairs { [5] = 4, [4] = 5, [10] = 2 } do
    local run = train(script("r.steps_per_epoch = " .. steps), "--epochs " .. epochs)
    t.equal(rows(run)[1].step, steps)
    t.equal(#rows(run), epochs)
    t.check(tensors(run) == tensors(passes), "the weights after 20 steps of " .. steps)
  end
end)

t.test("with accumulation an epoch has n updates", function()
  local run, said = train(script "r.steps_per_epoch, r.accumulate = 3, 2")
  for i, row in ipairs(rows(run)) do t.equal(row.step, 3 * i) end
  t.check(said:find("epoch 1/4: 6 batches", 1, true), said)
end)

t.test("such a run resumes with the same bytes, in the middle of a pass", function()
  local path = script [[r.steps_per_epoch, r.valid_every, r.schedule = 3, 2, optim.cosine {
  by = "step" } ]]
  local whole = t.read(train(path) .. "/checkpoint_last.safetensors")
  for steps = 1, 11, 5 do
    os.execute("rm -r " .. path:match("^(.*)/") .. "/out")
    train(path, "--steps " .. steps)
    local run = train(path, "--resume auto --steps 0")
    t.check(t.read(run .. "/checkpoint_last.safetensors") == whole, "cut after step " .. steps)
  end
end)

t.test("a phase goes on with passes of its own", function()
  local run = train(script [[r.phases = { { epochs = 1 }, { epochs = 2, steps_per_epoch = 7 } }]])
  local list = rows(run)
  t.equal(list[1].step, 5)
  t.equal(list[3].step, 19)
end)

t.test("every n-th epoch is validated, and the last", function()
  local list = rows(train(script "r.valid_every = 3", "--epochs 5"))
  for i, row in ipairs(list) do
    local validated = i == 3 or i == 5
    t.equal(row.valid_loss ~= nil, validated, "epoch " .. i)
    t.equal(row.valid_dice ~= nil, validated, "epoch " .. i)
    t.check(row.train_loss and row.train_dice, "epoch " .. i)
  end
  local every = rows(train(script "", "--epochs 5"))
  t.equal(list[3].valid_loss, every[3].valid_loss)
  t.equal(list[5].valid_loss, every[5].valid_loss)
end)

t.test("stop and plateau count the validated epochs", function()
  local run = train(script [[
r.valid_every, r.stop = 2, { patience = 2, min_delta = 1e3 }
r.schedule = optim.plateau { patience = 0, threshold = 0.9, factor = 0.5 }]], "--epochs 20")
  local list = rows(run)
  t.equal(#list, 6, "the first value, and two without improvement")
  for i, lr in ipairs { 1e-2, 1e-2, 1e-2, 1e-2, 5e-3, 5e-3 } do
    t.near(list[i].lr, lr, 1e-12, "epoch " .. i)
  end
  list = rows(train(script [[
r.valid_every, r.stop = 9, { patience = 2, min_delta = 1e3, monitor = "train_loss" }]],
                    "--epochs 20"))
  t.equal(#list, 3, "the training loss is of every epoch")
end)

t.test("lr_scale multiplies the rate by the samples of a step over a reference", function()
  local path = script [[r.lr_scale = "batch"]]
  local run, said = train(path, "--epochs 1")
  t.near(rows(run)[1].lr, 1e-2, 1e-15)
  t.check(not said:find("lr_scale", 1, true), said)
  run, said = train(script [[r.lr_scale = "batch"]], "--epochs 1 --batch 10")
  t.near(rows(run)[1].lr, 2.5e-2, 1e-15)
  t.check(said:find("lr_scale: the rate is 0.025 = 0.01 x 10 / 4,", 1, true), said)
  run = train(script [[r.lr_scale, r.accumulate = { batch = 16 }, 2]], "--epochs 1")
  t.near(rows(run)[1].lr, 5e-3, 1e-15)
  run = train(script [[r.lr_scale, r.schedule = { batch = 2 }, optim.cosine { floor = 1e-3 }]])
  t.near(rows(run)[3].lr, 1e-3 + (2e-2 - 1e-3) * 0.5, 1e-12)
end)

t.test("wrong values are refused when the recipe is read", function()
  for line, want in pairs {
    ["r.steps_per_epoch = 0"] = "steps_per_epoch must be a whole number >= 1, got 0",
    ["r.steps_per_epoch = 0/0"] = "steps_per_epoch must be a whole number >= 1, got",
    ["r.steps_per_epoch = 1 << 40"] = "steps_per_epoch must be at most",
    ["r.steps_per_epoch = '5'"] = "steps_per_epoch must be a whole number >= 1, got 5",
    ["r.valid_every = -2"] = "valid_every must be a whole number >= 1, got -2",
    ["r.valid_every = 1.5"] = "valid_every must be a whole number >= 1, got 1.5",
    ["r.lr_scale = 2"] = 'lr_scale must be "batch" or { batch = N }, got 2',
    ["r.lr_scale = 'bach'"] = 'lr_scale must be "batch" or { batch = N }, got bach',
    ["r.lr_scale = {}"] = "lr_scale: batch must be a whole number from 1 to",
    ["r.lr_scale = { batch = 0 }"] = "lr_scale: batch must be a whole number from 1 to",
    ["r.lr_scale = { bath = 8 }"] = 'unknown option "bath"; did you mean "batch"',
    ["r.lr_scale = { batch = 1e999 }"] = "got inf",
  } do t.says(script(line) .. " plan", 2, want) end
  local undeclared = BASE:gsub("batch = 4, ", "", 1)
  t.says(script('r.lr_scale = "batch"', undeclared) .. " plan", 2, "which this script does not")
  local auto = BASE:gsub("batch = 4, ", 'batch = "auto", ', 1)
  t.says(script('r.lr_scale = "batch"', auto) .. " plan --batch 4", 2, 'which is "auto"')
end)

remove()
t.finish()
