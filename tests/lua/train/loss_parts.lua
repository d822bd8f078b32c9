-- loss_parts.lua -- the terms of a loss, listed with it: compared with the loss itself, in the
-- columns of a run, and the cases that must not have them.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local nn, metric = seg.nn, seg.metric

local folder, remove = t.folder()

-- Terms of two samples of 4 x 4, the second with an empty target, and their losses.
t.test("parts add up to the loss by sample", function()
  local x = nn.input("x", { c = 1, h = 4, w = 4 })
  local truth = nn.input("truth", { c = 1, h = 4, w = 4 })
  local how = { bce = 0.3, dice = 0.7, pos_weight = 3, per = "sample", eps = 1e-3 }
  local parts = metric.loss_parts(x, truth, how)
  local outputs = { loss = nn.bce_dice(x, truth, how) }
  for _, part in ipairs(parts.list) do outputs[part.name] = part.node end
  local m = seg.model { outputs = outputs, device = "ref" }
  local logits, mask = seg.array.random({ 2, 1, 4, 4 }, 7), seg.array.zeros { 2, 1, 4, 4 }
  for i = 1, 5 do mask:set(1, 1, 1, 1 + i // 4, 1 + i % 4) end
  local out = m:run { x = logits, truth = mask }
  local rows = require "seg.evaluate.loss_parts".row
  local got = {}
  for _, part in ipairs(parts.list) do
    for i = 1, 2 do got[part.name .. i] = part.value(rows(out[part.name], i)) end
  end
  -- each sample counts for one of the two kinds
  t.equal(got.dice_fg2, nil)
  t.equal(got.dice_empty1, nil)
  -- by hand: 1 - eps / (sum p + eps) of the empty one
  local sum = 0
  for h = 1, 4 do for w = 1, 4 do sum = sum + 1 / (1 + math.exp(-logits:get(2, 1, h, w))) end end
  t.near(got.dice_empty2, 1 - 1e-3 / (sum + 1e-3), 1e-6)
  t.near(out.loss:get(), 0.3 * got.bce1 + 0.7 * (got.dice_fg1 + got.dice_empty2) / 2, 1e-6)
end)

t.test("what is no pair of one channel, or is called as a metric, is refused", function()
  local x = nn.input("many", { c = 3, h = 4, w = 4 })
  local truth = nn.input("classes", { c = 1, h = 4, w = 4 })
  t.raises(function() metric.loss_parts(x, truth) end,
           "logits must have one channel, got 3: with several classes")
  t.raises(function() metric.loss_parts(truth, truth, { epz = 1 }) end, 'did you mean "eps"?')
  local text = t.read("scripts/brain_unet.lua")
  local function says(name, from, to, part)
    local a, b = text:find(from, 1, true)
    local path = t.write(folder .. "/" .. name .. ".lua", text:sub(1, a - 1) .. to
                         .. text:sub(b + 1))
    t.says(path .. " plan", 2, part)
  end
  says("named", "iou = metric.iou", "bce = metric.iou", 'a metric is called "bce", as a part')
  says("no", "loss_parts = metric.loss_parts(logits, truth, parts)", "loss_parts = { 1 }",
       "loss_parts must be a result of metric.loss_parts")
end)

local function run(options)
  return t.says("scripts/brain_unet.lua --preset check --phantom " .. folder .. "/phantom --out "
                .. folder .. "/runs --run " .. folder .. "/" .. options, 0, "done:")
end

-- A column of a run's metrics.csv as numbers, "" as NaN.
local function column(name, key)
  local lines, at, out = t.lines("cat " .. folder .. "/" .. name .. "/metrics.csv"), nil, {}
  local k = 0
  for head in lines[1]:gmatch("[^,]+") do
    k = k + 1
    if head == key then at = k end
  end
  t.check(at, "no column %s", key)
  for i = 2, #lines do
    local cells = {}
    for cell in (lines[i] .. ","):gmatch("(.-),") do cells[#cells + 1] = cell end
    out[i - 1] = tonumber(cells[at]) or 0 / 0
  end
  return out
end

t.test("a run has them by epoch, and a resumed run the same", function()
  local said = run("whole --epochs 2")
  t.check(said:find("loss [%d.]+ %(bce [%d.]+ dice_fg [%d.]+ dice_empty [%d.]+%)  valid [%d.]+ "
                    .. "%(bce [%d.]+ dice_fg [%d.]+ dice_empty [%d.]+%)"), said)
  t.says("scripts/brain_unet.lua --preset check --epochs 2 --steps 3 --phantom " .. folder
         .. "/phantom --run " .. folder .. "/cut", 0, "stopped after 3 steps")
  t.says("scripts/brain_unet.lua --phantom " .. folder .. "/phantom --resume " .. folder .. "/cut",
         0, "done:")
  for _, key in ipairs { "bce", "dice_fg", "dice_empty" } do
    for _, part in ipairs { "train_", "valid_" } do
      local whole, cut = column("whole", part .. key), column("cut", part .. key)
      t.equal(#whole, 2)
      for i, v in ipairs(whole) do
        t.check(v > 0, "%s%s is %s", part, key, tostring(v))
        t.equal(cut[i], v, part .. key .. " of epoch " .. i)
      end
    end
  end
end)

remove()
t.finish()
