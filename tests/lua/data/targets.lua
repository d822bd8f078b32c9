-- targets.lua -- a target that losses and metrics cannot take, or that is empty, is an error before
-- the first step, in training and in `doctor data`.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"

local folder, remove = t.folder()

-- 6 pictures with masks of the classes 0, 1, 2, and a digit of 0 .. 9 each.
for i = 1, 6 do
  local x, y = seg.array { shape = { 8, 8 } }, seg.array { shape = { 8, 8 } }
  for r = 1, 8 do
    for c = 1, 8 do
      x:set((r * 31 + c * 17 + i * 7) % 97, r, c)
      y:set(r < 4 and 0 or c < 5 and 1 or 2, r, c)
    end
  end
  seg.array.save(string.format("%s/x%d.npy", folder, i), x)
  seg.array.save(string.format("%s/y%d.npy", folder, i), y)
end

local SCRIPT = [[
local seg = require "seg"
local nn, metric = seg.nn, seg.metric
local cases = {}
for i = 1, 6 do
  local at = "FOLDER/"
  cases[i] = { key = "c" .. i, patient = "p" .. i, x = at .. "x" .. i .. ".npy",
               mask = at .. "y" .. i .. ".npy", digit = DIGIT }
end
local all = seg.data.cases { labels = LABELS, cases = cases, fields = {
  { name = "x", read = "npy", rank = 2 }, { name = "mask", kind = "LABEL", read = "npy", rank = 2 },
  NUMBERS } }
local train, valid, test = all:split { valid = { "p6" }, test = { "p1" },
                                       train = { "p2", "p3", "p4", "p5" } }
local function prepare(set) return set:normalize {}STEPS end
train = prepare(train)AUGMENT:batches { size = 2, shuffle = true }
valid, test = prepare(valid):batches { size = 2 }, prepare(test):batches { size = 2 }
local x, truth = nn.input("x", { c = 1, h = 8, w = 8 }), nn.input("mask", { c = 1, h = 8, w = 8 })
local digit = nn.input("digit", { c = 1 })
local y, z = nn.conv(x, CHANNELS, 3), nn.linear(nn.global_pool(nn.conv(x, 4, 3)), DIGITS)
seg.recipe { inputs = { INPUTS }, outputs = { out = y, digit = z }, loss = LOSS,
             metrics = METRICS, train = train, valid = valid, test = test, epochs = 1,
             optim = seg.optim.sgd { lr = 0.01 } }
]]

local DEFAULT = { FOLDER = folder, LABELS = "{ 1, 2 }", LABEL = "label", STEPS = "", AUGMENT = "",
                  CHANNELS = 3, DIGITS = 10, INPUTS = "x, truth",
                  NUMBERS = '{ name = "digit", kind = "numbers" }',
                  LOSS = "nn.cross_entropy(y, truth)", METRICS = "{}",
                  DIGIT = "({ 0, 1, 2, 3, 9, 5 })[i]" }

local function script(o)
  local text = SCRIPT:gsub("%u%u%u%u+", function(word) return o[word] or DEFAULT[word] end)
  return t.write(folder .. "/r.lua", text)
end

local NO_NUMBERS = '{ name = "digit", kind = "value", read = "npy", rank = 2 }'

-- Training and doctor must both fail with these texts in their output.
local function refused(o, code, ...)
  local path = script(o)
  local text = t.says(path .. " --out " .. folder .. "/runs", code, (...))
  t.check(not text:find("epoch 1/1", 1, true), text)
  local looked = t.says("doctor data " .. path .. " --out " .. folder .. "/runs", 3, "error")
  for _, part in ipairs { ... } do
    t.check(text:find(part, 1, true), "training: no %s:\n%s", part, text)
    t.check(looked:find(part, 1, true), "doctor: no %s:\n%s", part, looked)
  end
  return text, looked
end

local function trains(o)
  local path = script(o)
  t.says("doctor data " .. path .. " --out " .. folder .. "/runs", 0, "ok       targets")
  return t.says(path .. " --out " .. folder .. "/runs", 0, "epoch 1/1")
end

t.test("classes that the output has no channel for", function()
  trains {}
  local one = ":select { labels = { 1, 2 } }"
  for _, loss in ipairs { "bce", "bce_dice", "dice_loss", "focal", "tversky" } do
    refused({ CHANNELS = 1, LOSS = "nn." .. loss .. "(y, truth)" }, 2,
            '"mask" has classes 0..2, but ' .. loss .. " takes 0 and 1: the output has 1 channel",
            "3 channels with cross_entropy or dice_loss", one)
    trains { CHANNELS = 1, LOSS = "nn." .. loss .. "(y, truth)", STEPS = one }
  end
  refused({ CHANNELS = 2 }, 2,
          '"mask" has classes 0..2, but cross_entropy takes 0 and 1: the output has 2 channels')
  refused({ CHANNELS = 2, LOSS = "nn.dice_loss(y, truth)" }, 2, "dice_loss takes 0 and 1")
  for loss, options in pairs {
    softmax_focal = "", topk_cross_entropy = "", generalized_dice = "", focal_tversky = "",
    cldice = "", lovasz_softmax = "", cross_entropy = ", { class_weights = { 1, 2 } }",
    dice_loss = ", { per = 'sample', class_weights = { 1, 2 } }",
    tversky = ", { per = 'sample', class_weights = { 1, 2 } }",
  } do
    local call = "nn." .. loss .. "(y, truth" .. options .. ")"
    refused({ CHANNELS = 2, LOSS = call }, 2, loss .. " takes 0 and 1: the output has 2 channels")
    -- a loss that the recipe does not use
    trains { LOSS = "(function() local _ = nn." .. loss .. "(nn.conv(x, 2, 1), truth" .. options
             .. ") return nn.cross_entropy(y, truth) end)()" }
  end
  refused({ CHANNELS = 1, LOSS = "nn.lovasz_hinge(y, truth)" }, 2, "lovasz_hinge takes 0 and 1")
  trains { CHANNELS = 2, LOSS = "nn.softmax_focal(y, truth, { ignore = 2 })" }
  refused({ LOSS = "nn.mse(y, nn.conv(truth, 3, 1))", CHANNELS = 3, METRICS =
            "{ dice = metric.dice(nn.conv(x, 1, 1), truth) }" }, 2, "the metric takes 0 and 1")
  -- the class number that is ignored
  trains { CHANNELS = 2, LOSS = "nn.cross_entropy(y, truth, { ignore = 2 })" }
  -- class numbers outside of a mask
  trains { CHANNELS = 1, LOSS = "nn.bce(y, truth, { mask = x * 0 + 1 })" }
  -- regression of class numbers is allowed
  trains { CHANNELS = 1, LOSS = "nn.mse(y, truth)" }
end)

t.test("numbers that stand for classes", function()
  local o = { INPUTS = "x, digit", LOSS = "nn.cross_entropy(z, digit)" }
  trains(o)
  o.DIGITS = 9
  local text = refused(o, 3, '"digit" is 9, but cross_entropy takes classes 0..8: the output has 9 '
                       .. "channels", "fix: 10 channels or more", "c5")
  t.check(text:find("c5: the train set", 1, true), text)
  o.DIGITS, o.LOSS = 1, "nn.bce(z, digit)"
  refused(o, 3, '"digit" is 2, but bce takes 0 to 1: the output has 1 channel')
  o.LOSS = "nn.cross_entropy(nn.linear(z, 10), digit / 2)" -- computed: known to the loss alone
  t.says(script(o) .. " --out " .. folder .. "/runs", 3, "want a class number from 0 to 9")
end)

t.test("a truth that is empty after the steps", function()
  refused({ STEPS = ":select { labels = { 7 } }", CHANNELS = 1, LOSS = "nn.bce(y, truth)" }, 2,
          'select takes class 7, but "mask" has classes 0..2')
  refused({ STEPS = ":select { labels = { 3 } }", CHANNELS = 1, LOSS = "nn.bce(y, truth)",
            LABELS = "{ 1, 2, 3 }" }, 3, " is 0 everywhere")
end)

t.test("a function of the recipe says what the classes are", function()
  local function change(class)
    return { STEPS = ":change(function(case) case.mask:fill(" .. class .. ") end)", CHANNELS = 1,
             LOSS = "nn.bce(y, truth)" }
  end
  t.says(script(change(1)) .. " --out " .. folder .. "/runs", 0, "epoch 1/1")
  t.says(script(change(2)) .. " --out " .. folder .. "/runs", 3,
         'c2: after the steps "mask" has class 2, but losses and metrics take 0 and 1')
  t.says(script(change(0)) .. " --out " .. folder .. "/runs", 3, '"mask" is 0 everywhere')
end)

t.test("a metric that measures nothing has no value, and is never best", function()
  local text = t.says(script { METRICS = "{ dice = metric.dice(y, truth, { mask = x * 0 }) }, "
                      .. 'best = { "dice", "max" }' } .. " --out " .. folder .. "/runs", 0,
                      "dice - (pictures -)")
  t.check(not text:find("best\n", 1, true) and not text:find("nan", 1, true), text)
end)

t.test("flips that change what is not there", function()
  local function flip(what) return ":augment { flip = { axis = 'w', " .. what .. " } }" end
  trains { AUGMENT = flip "swap = { 1, 2 }" }
  refused({ AUGMENT = flip "swap = { 1, 3 }" }, 2,
          'flip swaps class 3, but "mask" has classes 0..2')
  refused({ AUGMENT = flip "swap = { 1, 2 }", STEPS = ":select { labels = { 1, 2 } }" }, 2,
          'flip swaps class 2, but "mask" has classes 0 and 1')
  trains { AUGMENT = flip "negate = { 1 }" }
  refused({ AUGMENT = flip "negate = { 2 }" }, 2, 'flip negates number 2, but "digit" has 1')
  refused({ AUGMENT = flip "negate = { 1 }", NUMBERS = NO_NUMBERS, DIGIT = 'at .. "x1.npy"' }, 2,
          "flip negates numbers, but the data set has no field of them")
  refused({ AUGMENT = flip "swap = { 1, 2 }", NUMBERS = NO_NUMBERS, DIGIT = 'at .. "x1.npy"',
            LABEL = "value", LOSS = "nn.mse(nn.conv(x, 1, 1), truth)" }, 2,
          "flip swaps classes, but no field has class numbers")
  local far = { STEPS = ":signed_distance {}", AUGMENT = flip "p = 0.5",
                INPUTS = 'x, truth, nn.input("distance", { c = 2, h = 8, w = 8 })' }
  trains(far)
  far.AUGMENT = flip "swap = { 1, 2 }"
  refused(far, 2, 'flip swaps classes of "mask", but not the channels of "distance"')
end)

t.test("random changes are tried before training", function()
  local jitter = ":augment { jitter = true }"
  local function looks(o, code, part)
    return t.says("doctor data " .. script(o) .. " --out " .. folder .. "/runs", code, part)
  end
  looks({ AUGMENT = jitter }, 3, "jitter: an image has 1 channel, wanted 3")
  -- also when it is applied once in a hundred samples
  looks({ AUGMENT = ":augment { jitter = { p = 0.01 } }" }, 3, "1 error")
  local text = looks({ AUGMENT = ":augment { noise = true, flip = true }" }, 0, "0 errors")
  t.check(text:find("ok +changes +4 cases in train"), text)
  looks({ AUGMENT = ":standardize {}:augment { noise = true }" }, 0, "0 errors")
  text = looks({}, 0, "0 errors")
  t.check(text:find("ok +changes +none"), text)
end)

remove()
t.finish()
