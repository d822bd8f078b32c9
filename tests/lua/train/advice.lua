-- advice.lua -- the advice for the measured times of an epoch.

local t = dofile("tests/support/harness.lua")
local advice = require "seg.train.advice"

local folder, remove = t.folder()

local GB = 1 << 30

-- The advice for an epoch that waits half of its time although all options are good, but for the
-- changes in `o`.
local function remedy(o)
  local m = { seconds = 20, wait = 10, left = 30, opening_s = 5, kept = 40, count = 40,
              all_bytes = 3 * GB, made = 0, store = false, workers = 8, cores = 8,
              memory_bytes = 64 * GB, device = "cpu", device_dataset = "auto", on_device = false,
              refused_memory = false, augmented = true }
  for k, v in pairs(o) do m[k] = v end
  return advice.remedy(m)
end

local function says(o, part)
  local text = remedy(o)
  t.check(text and text:find(part, 1, true), 'it says "%s", want "%s"', tostring(text), part)
end

t.test("the remedy is that of the cause", function()
  local half = "50 % of the epoch waited for data; "
  says({ made = 25, kept = 15 }, half .. "--cache_mb 3072: 15 of 40 volumes are kept in memory, "
       .. "the others were prepared again, 25 times in this epoch; all take 3.0 GiB")
  says({ made = 25, kept = 15, all_bytes = 40 * GB }, half .. "--cache_file auto: 25 volumes were "
       .. "prepared again, and all of them (40.0 GiB) are more than half of the memory")
  says({ made = 25, kept = 15, all_bytes = 40 * GB, store = true }, half .. "smaller volumes: all "
       .. "of them take 40.0 GiB")
  says({ made = 25, kept = 15, all_bytes = 40 * GB, store = true, workers = 4 }, "--workers 8: 4 "
       .. "threads make batches, and there are 8 cores")
  says({ workers = 1 }, half .. "--workers 8: 1 thread makes batches")
  says({ workers = 0 }, half .. "--workers 8: batches are made between the steps")
  -- repeated decoding is advised on before threads
  says({ made = 25, workers = 1 }, "--cache_mb 3072")
  says({ device = "cuda", device_dataset = "off", made = 25, workers = 1 },
       "--device_dataset auto: the GPU")
  says({ device = "cuda", refused_memory = true },
       "--device_dataset on: the samples take more than half")
  says({ device = "cuda", refused_memory = true, workers = 2 }, "--workers 8")
  says({ device = "cuda" }, half .. "fewer random changes")
  says({ augmented = false }, half .. "smaller samples")
end)

t.test("nothing is said of what is not worth it", function()
  t.equal(remedy { wait = 2 }, nil)
  t.equal(remedy { wait = 1.9, workers = 0 }, nil)
  says({ wait = 2.1, workers = 0 }, "10 % of the epoch") -- 10.5
  t.equal(remedy { left = 0 }, nil)
  t.equal(remedy { seconds = 0.02, wait = 0.01 }, nil)
  t.equal(remedy { on_device = true, device = "cuda" }, nil)
end)

t.test("a long opening is said where a file would spare it", function()
  says({ wait = 1, opening_s = 200 }, "opening the data took 3 min 20 s; --cache_file auto")
  t.equal(remedy { wait = 1, opening_s = 200, store = true }, nil)
  t.equal(remedy { wait = 1, opening_s = 50, left = 1 }, nil)
  t.equal(remedy { wait = 1, opening_s = 200, left = 1000 }, nil)
  -- only one line: waiting is worse
  says({ opening_s = 200, workers = 0 }, "--workers 8")
end)

t.test("what an epoch waited for, where it is worth a word", function()
  t.equal(advice.waits(20, 5, 2), "wait 25 %, copy 10 %")
  t.equal(advice.waits(20, 5, 1), "wait 25 %")
  t.equal(advice.waits(20, 1.9, 2), "copy 10 %")
  t.equal(advice.waits(20, 1.9, 1.9), nil)
  t.equal(advice.waits(1, 1.01, 0), "wait 101 %")
  t.equal(advice.waits(0, 0, 0), nil)
end)

-- The terminal gets as much as fits, the log everything.
t.test("the line of an epoch fits into 80 columns", function()
  local epoch_line = require "seg.train.epoch_line"
  local show = require "seg.show"
  local pipeline = { facts = function() return { rank = 3 } end, item = function() return 1, 1 end }
  local run = { epochs = 120, recipe = { metrics = { dice = {}, iou = {} } },
                data = { valid = { pipeline = pipeline } } }
  local row = { epoch = 16, lr = 0.000146, train_loss = 0.93481, valid_loss = 0.93362,
                valid_dice = 0.92041, valid_slice_dice = 0.75331, valid_iou = 0.85,
                valid_slice_iou = 0.61, seconds = 70, valid_s = 12.25, save_s = 0, wait_s = 10,
                copy_s = 0 }
  local o = { losses = {}, bad = 0, best = true, alone = 1, transport = "" }
  local texts = epoch_line.texts(run, row, o)
  t.equal(texts[1], "epoch 16/120  lr 0.000146  loss 0.9348  valid 0.9336  "
          .. "dice 0.9204 (slices 0.7533)  iou 0.8500 (slices 0.6100)  "
          .. "1 min 10 s (wait 14 %) + 12.2 s  best")
  t.equal(show.fitting(texts, nil), texts[1])
  t.equal(show.fitting(texts, 92), "epoch 16/120  loss 0.9348  valid 0.9336  dice 0.9204  "
          .. "iou 0.8500  1 min 10 s + 12.2 s  best")
  t.equal(show.fitting(texts, 110), "epoch 16/120  loss 0.9348  valid 0.9336  dice 0.9204  "
          .. "iou 0.8500  1 min 10 s (wait 14 %) + 12.2 s  best")
  -- of two metrics the one that decides
  run.recipe.best = { "iou", "max" }
  t.equal(show.fitting(texts, 80), "epoch 16/120  loss 0.9348  valid 0.9336  dice 0.9204  "
          .. "1 min 10 s + 12.2 s  best")
  texts = epoch_line.texts(run, row, o)
  t.equal(show.fitting(texts, 80), "epoch 16/120  loss 0.9348  valid 0.9336  iou 0.8500  "
          .. "1 min 10 s + 12.2 s  best")
end)

t.test("a run says where its time went, and the remedy once", function()
  local function run(more)
    return t.says(string.format("scripts/brain_unet.lua --preset check --phantom %s/phantom --out "
                                .. "%s/runs --epochs 20000 --steps 13 %s", folder, folder, more), 0,
                  "stopped after 13 steps")
  end
  local text = run "--workers 0 --cache_mb 0"
  t.check(text:find("epoch 2/20000[^\n]*%(wait %d+ %%"), "%s", text)
  local _, notes = text:gsub("note: %d+ %% of the epoch waited for data; %-%-cache_mb 1: 0 of 4 "
                             .. "volumes are kept in memory, the others were prepared again, ", "")
  t.equal(notes, 1, text)
  local rows = t.read(folder .. "/runs/brain_unet/001/metrics.csv")
  local of, names = {}, rows:match("^[^\n]*"):gmatch("[^,]+")
  for value in rows:match("\n(1,[^\n]*)"):gmatch("[^,]+") do of[names()] = tonumber(value) end
  local seconds, wait, copy = of.seconds, of.wait_s, of.copy_s
  t.check(wait > 0 and copy > 0 and wait + copy < seconds, "%s", rows)
end)

remove()
t.finish()
