-- record.lua -- records of a run in addition to its numbers: events, manifest, hooks, the replay of
-- a bad step; and trials on less data.

local t = dofile("tests/support/harness.lua")
local core = require "seg.core"
local json = require "seg.json"
local tfevents = require "seg.report.tfevents"
local util = require "seg.util"
local folder, remove = t.folder()

local brain = "scripts/brain_unet.lua --preset check --phantom " .. folder .. "/phantom"

local function read_json(path) return json.decode(t.read(path), path) end

-- TensorBoard's events ------------------------------------------------------------

-- CRC32C bit by bit, from its definition, and TFRecord's mask: independent of the program.
local function masked_crc(text)
  local crc = 0xffffffff
  for i = 1, #text do
    crc = crc ~ text:byte(i)
    for _ = 1, 8 do crc = crc & 1 == 1 and crc >> 1 ~ 0x82f63b78 or crc >> 1 end
  end
  crc = crc ~ 0xffffffff
  return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff
end

-- The fields of a protocol buffer: number -> list of values; bytes as a string.
local function fields(data)
  local out, at = {}, 1
  local function varint()
    local n, shift = 0, 0
    repeat
      local b = data:byte(at)
      n, at, shift = n | (b & 127) << shift, at + 1, shift + 7
    until b < 128
    return n
  end
  while at <= #data do
    local key = varint()
    local field, wire = key >> 3, key & 7
    local v
    if wire == 0 then v = varint()
    elseif wire == 1 then v, at = string.unpack("<d", data, at)
    elseif wire == 5 then v, at = string.unpack("<f", data, at)
    else
      local n = varint()
      v = data:sub(at, at + n - 1)
      at = at + n
    end
    out[field] = out[field] or {}
    table.insert(out[field], v)
  end
  return out
end

-- All records of a file as { step=, version=, start=, tag=, value=, png= }.
local function events_of(path)
  local text, at, list = t.read(path), 1, {}
  while at <= #text do
    local length, crc, data, data_crc
    length, crc, at = string.unpack("<I8I4", text, at)
    t.equal(crc, masked_crc(string.pack("<I8", length)), "checksum of a length")
    data, data_crc, at = text:sub(at, at + length - 1), string.unpack("<I4", text, at + length)
    t.equal(data_crc, masked_crc(data), "checksum of a record")
    local e = fields(data)
    local row = { step = e[2][1], version = e[3] and e[3][1], start = e[7] and true }
    t.check(e[1][1] > 1.6e9, "a time of day")
    if e[5] then
      local v = fields(fields(e[5][1])[1][1])
      row.tag, row.value = v[1][1], v[2] and v[2][1]
      local image = v[4] and fields(v[4][1])
      if image then row.h, row.w, row.png = image[1][1], image[2][1], image[4][1] end
    end
    list[#list + 1] = row
  end
  return list
end

local function scalars(events)
  local list = {}
  for _, e in ipairs(events) do
    if e.value then list[#list + 1] = string.format("%d %s %g", e.step, e.tag, e.value) end
  end
  return table.concat(list, "\n")
end

t.test("events: what is written can be read, by the definition", function()
  t.equal(masked_crc("123456789"), ((0xe3069283 >> 15 | 0xe3069283 << 17) + 0xa282ead8)
          & 0xffffffff) -- the check value of CRC32C
  local dir = folder .. "/events"
  os.execute("mkdir " .. dir)
  local e = tfevents.open(dir, 0)
  e:scalars(1, { a = 0.5, b = -2, bad = 0 / 0, worse = 1 / 0 })
  e:scalars(300, { a = 1e-3 })
  e:close()
  local path = dir .. "/tensorboard/events.out.tfevents.0000000001.segengine"
  local list = events_of(path)
  t.equal(list[1].version, "brain.Event:2")
  t.equal(scalars(list), "1 a 0.5\n1 b -2\n300 a 0.001")
  -- truncated to epoch 1, with the incomplete record that a kill leaves
  local f = io.open(path, "ab")
  f:write(string.pack("<I8", 40), "torn")
  f:close()
  e = tfevents.open(dir, 1)
  t.equal(scalars(events_of(path)), "1 a 0.5\n1 b -2")
  e:scalars(2, { a = 0.25 })
  e:close()
  list = events_of(dir .. "/tensorboard/events.out.tfevents.0000000002.segengine")
  t.equal(list[2].start, true)
  t.equal(list[2].step, 2) -- TensorBoard discards this step and later ones
  t.equal(scalars(list), "2 a 0.25")
end)

t.test("tags share a chart", function()
  for column, tag in pairs { train_loss = "loss/train", valid_loss = "loss/valid", lr = "lr",
                             valid_dice = "dice/valid", valid_slice_dice = "dice/valid_slice",
                             valid_s = "time/valid_s", seconds = "time/seconds", step = "step" } do
    t.equal(tfevents.tag(column), tag)
  end
end)

-- A run and the same run stopped and resumed: the same events, but for times.
t.test("a run's events, resumed or not", function()
  local function numbers(run)
    local list, png = {}, 0
    for _, name in ipairs(core.sys.list(run .. "/tensorboard")) do
      for _, e in ipairs(events_of(run .. "/tensorboard/" .. name)) do
        if e.value and not e.tag:match("^time/") then
          list[#list + 1] = string.format("%d %s %.9g", e.step, e.tag, e.value)
        elseif e.png then
          png = png + 1
          t.equal(string.pack(">I4I4", e.w, e.h), e.png:sub(17, 24), "size of a picture")
        end
      end
    end
    table.sort(list)
    return table.concat(list, "\n"), png
  end
  local line = brain .. " --quiet --epochs 3 --out " .. folder
  t.says(line .. "/whole", 0, "dice per case")
  t.says(line .. "/cut --steps 8", 0, "")
  local resumed = t.says(line .. "/cut --resume auto --steps 0 --grad_norms", 0, "")
  t.check(not resumed:find("warning", 1, true), resumed)
  local whole, pictures = numbers(folder .. "/whole/brain_unet/001")
  local cut, again = numbers(folder .. "/cut/brain_unet/001")
  t.equal(cut, whole)
  t.equal(again, pictures)
  t.equal(pictures, 3) -- epochs 1 and 2 and the last, of one case
  t.check(whole:find("3 loss/train 1%.%d+") and whole:find("dice/test_at_the_end"), whole)
end)

t.test("a run that goes on with other instructions or another program says so", function()
  local out = folder .. "/moved"
  local line = brain .. " --quiet --epochs 2 --out " .. out
  t.says(line .. " --steps 3", 0, "")
  local run = out .. "/brain_unet/001"
  local path = run .. "/manifest.json"
  local program = read_json(path).program.sha256
  t.write(path, (t.read(path):gsub('"program": "' .. program .. '"', '"program": "c0ffee"')))
  local code, said = t.program(line .. " --steps 0 --resume auto", "SEG_ISA=portable ")
  t.equal(code, 0, said)
  local warning = "resumed with other vector instructions (portable, was " .. core.isa()
    .. "), another program, by its SHA-256 (" .. program .. ", was c0ffee): the last bits of its "
    .. "numbers differ from an uninterrupted run"
  t.check(said:find("warning: " .. warning, 1, true), said)
  t.check(t.read(run .. "/report.html"):find(warning, 1, true), "the report keeps it")
end)

-- Manifest ------------------------------------------------------------------------

t.test("a manifest says what made a run, and names no folder", function()
  local whole = read_json(folder .. "/whole/brain_unet/001/manifest.json")
  local cut = read_json(folder .. "/cut/brain_unet/001/manifest.json")
  local text = t.read("scripts/brain_unet.lua")
  t.equal(whole.recipe.sha256, core.sha256(text))
  if t.lines("command -v sha256sum")[1] then
    t.equal(t.lines("sha256sum scripts/brain_unet.lua")[1]:sub(1, 64), whole.recipe.sha256)
    t.equal(t.lines("sha256sum " .. t.path())[1]:sub(1, 64), whole.program.sha256)
  end
  t.equal(whole.seed, 42)
  t.equal(whole.data.train.cases, 4)
  t.check(whole.data.train.sha256 ~= whole.data.valid.sha256)
  -- the same data, recipe and network: a new folder or a new start does not change the hashes
  for _, key in ipairs { "recipe", "network", "data", "preparation", "program", "config" } do
    t.equal(util.json(whole[key]), util.json(cut[key]), key)
  end
  -- weights record the images of their training
  local meta = core.checkpoint.meta(folder .. "/whole/brain_unet/001/checkpoint_best.safetensors")
  t.equal(meta.data_sha256, string.format("train=%s valid=%s test=%s", whole.data.train.sha256,
                                          whole.data.valid.sha256, whole.data.test.sha256))
  t.equal(#cut.sessions, 2)
  t.equal(cut.sessions[1].state, "stopped")
  t.equal(cut.sessions[2].state, "finished")
  t.equal(cut.sessions[2].from_epoch, 1)
  t.equal(table.concat(whole.sessions[1].command, " "), "train --preset check --quiet --phantom "
          .. "PATH --epochs 3 --out PATH")
  for _, name in ipairs { "whole", "cut" } do
    t.check(not t.read(folder .. "/" .. name .. "/brain_unet/001/manifest.json"):find(folder, 1,
                                                                                      true))
  end
end)

t.test("norms by layer on request, behind the cut only", function()
  local rows = t.lines("cat " .. folder .. "/cut/brain_unet/001/grad_norms.csv")
  t.equal(rows[1], "epoch,parameter,norm,grad_norm")
  t.check(rows[2]:match("^2,enc1%.conv1%.weight,[%d.]+,[%d.e-]+$"), rows[2])
  t.equal(io.open(folder .. "/whole/brain_unet/001/grad_norms.csv"), nil)
  -- with one parameter they are the norms of its numbers
  local x, y = require("seg").nn.input("x", { c = 2 }), require("seg").nn.input("y", { c = 1 })
  local seg = require "seg"
  local loss = seg.nn.mse(seg.nn.linear(x, 1, { bias = false, name = "one" }), y)
  local s = core.session { roots = { loss }, loss = loss, optim = { kind = "sgd" }, device = "cpu" }
  s:set("one.weight", "value", seg.array { shape = { 1, 2 }, data = { 3, 4 } })
  s:step({ x = seg.array { shape = { 1, 2 }, data = { 1, 2 } },
           y = seg.array { shape = { 1, 1 }, data = { 1 } } }, { lr = 0 })
  local n = s:param_norms()[1]
  t.equal(n.name, "one.weight")
  t.near(n.value, 5, 1e-6)
  t.near(n.grad, 20 * math.sqrt(5), 1e-4) -- 2 (11 - 1) (1, 2)
end)

t.test("a run that gets slower", function()
  local drift = require("seg.report.record").drift
  t.equal(drift { 10, 10, 10, 5, 5 }, nil)
  t.equal(drift { 8, 10, 12, 1, 6, 5, 4 }, 0.5) -- of the first three and the last three
end)

-- Hooks, a bad step and its replay ---------------------------------------------------

t.test("commands are told, once; one that fails is a warning", function()
  local out = folder .. "/told"
  local text = t.says(brain .. " --epochs 9 --lr 1e30 --out " .. folder .. "/wild --on_nan 'cat >> "
                      .. out .. ".nan' --on_finish 'cat > " .. out .. ".end; exit 7'", 5,
                      "warning: --on_finish: the command ended with code 7")
  local nan = read_json(out .. ".nan") -- two of them would be no JSON
  t.equal(nan.event, "nan")
  t.equal(nan.batch, 2)
  t.check(nan.first:find("^conv %(enc1%.conv2, scripts/brain_unet%.lua:%d+%)$"), nan.first)
  t.check(nan.ranges:find("infinite of [%d,]+ values; made from 0 %.%. "), nan.ranges)
  t.check(nan.case:match("^%x%x%x%x%x%x%x%x%x%x$") and text:find("in case " .. nan.case, 1, true))
  local ended = read_json(out .. ".end")
  t.equal(ended.event .. " " .. ended.state, "finish diverged")
  local run = folder .. "/wild/brain_unet/001"
  local m = read_json(run .. "/manifest.json")
  t.equal(m.sessions[1].state, "diverged")
  t.check(t.read(run .. "/report.html"):find(">diverged<", 1, true))
end)

t.test("replay does the step again", function()
  local file = folder .. "/wild/brain_unet/001/replay.safetensors"
  local text = t.says("scripts/brain_unet.lua replay " .. file, 0, "epoch 1, batch 2, on cpu")
  t.check(text:find("first not finite: conv (enc1.conv2", 1, true), text)
  t.check(text:find("\nloss +nan +nan\n") and text:find("\n  in case %x+\n"), text)
  -- in double precision the step is finite
  t.says("scripts/brain_unet.lua replay " .. file .. " --device ref", 1, "the step is finite here")
  t.says("scripts/brain_unet.lua replay", 2, "replay needs FILE")
  t.says("scripts/brain_unet.lua replay " .. folder .. "/wild/brain_unet/001/checkpoint_last"
         .. ".safetensors", 3, "this is not a replay file")
  -- commands that read weights ignore the batch in the file
  t.says("scripts/brain_unet.lua export --weights " .. file .. " --safetensors " .. folder
         .. "/plain.safetensors", 0, "")
end)

t.test("replay of a step that has not all inputs", function()
  -- an input crops the prediction, but not the loss
  local dose = "scripts/openkbp_unet3d.lua --preset check --better false "
  t.says(dose .. "--epochs 2 --lr 1e30 --out " .. folder .. "/wild", 5, "replay.safetensors")
  local text = t.says(dose .. "replay " .. folder .. "/wild/openkbp_unet3d/001/replay.safetensors",
                      0, "epoch 1, batch 2, on cpu")
  t.check(text:find("first not finite: conv (x", 1, true), text)
end)

t.test("a run that hangs is told of", function()
  local script = t.write(folder .. "/hangs.lua", [[
local core = require "seg.core"
local watch = core.watch(0.2, "cat > ]] .. folder .. [[/stalled")
watch:beat("first")
watch:beat("second")
core.sys.sleep(0.1)
print("early", watch:fired())
core.sys.sleep(0.6)
print("late", watch:fired() > 0.1, (watch:fired()))
watch:beat("third")
core.sys.sleep(0.5)
watch:close()
print(core.tell("cat > ]] .. folder .. [[/big", ("x"):rep(300000), 20))
print(core.tell("exit 4", ("x"):rep(300000), 20))
print(core.tell("kill -9 $$", "", 20))
print(core.tell("sleep 3", "", 0.2))
]])
  local text = t.says(script, 0, "early\n")
  t.check(text:find("late\ttrue\tnil\n", 1, true), text)
  t.check(text:find("no step for", 1, true), text)
  t.equal(t.read(folder .. "/stalled"), "second") -- run once, with the text of the last beat
  t.equal(#t.read(folder .. "/big"), 300000)
  t.check(text:find("\ntrue\nfalse\tended with code 4\nfalse\tended by signal 9\n", 1, true), text)
  t.check(text:find("false\ttook more than 0 s and was ended", 1, true), text)
end)

t.test("a run that hangs runs its command", function()
  local text = t.read("scripts/brain_unet.lua"):gsub("schedule = schedule,", [[
  schedule = { name = "slow", rate = function(lr, epoch)
    calls = (calls or 0) + 1
    -- every rate is asked for once before the first epoch
    if calls > cfg.epochs and epoch == 2 and not slept then
      slept = true
      require("seg.core").sys.sleep(2.5)
    end
    return lr
  end },]])
  local script = t.write(folder .. "/slow.lua", text)
  local line = script .. " --preset check --epochs 3 --phantom " .. folder .. "/phantom --out "
    .. folder .. "/slow --on_stall 'cat > " .. folder .. "/slow.json' --stall_s "
  local said = t.says(line .. "1", 0, "warning: no step for 1 s; --on_stall was run")
  local told = read_json(folder .. "/slow.json")
  t.equal(told.event .. " " .. told.recipe .. " " .. told.stall_s, "stall slow 1")
  t.check(said:find("dice per case", 1, true), "the run goes on")
  os.remove(folder .. "/slow.json")
  t.says(line .. "60", 0, "dice per case")
  t.equal(io.open(folder .. "/slow.json"), nil)
end)

-- Trials on less data -----------------------------------------------------------------

t.test("overfit: two samples are learned by heart", function()
  t.says(brain .. " --quiet --overfit 2 --epochs 10 --t_max 10 --lr 5e-3 --out " .. folder
         .. "/heart", 0, "dice per case")
  local run = folder .. "/heart/brain_unet/001"
  local last = t.lines("tail -n 1 " .. run .. "/metrics.csv")[1]
  local loss = tonumber(last:match("^10,%d+,[^,]+,([^,]+),"))
  t.check(loss < 0.05, last)
  -- both of the two cases have foreground
  t.equal(read_json(run .. "/manifest.json").config.overfit, "2")
  local cases = read_json(run .. "/summary.json").valid.cases
  t.equal(#util.sorted_keys(cases), 2)
  t.says(brain .. " --resume " .. run .. " --overfit 3", 2, "--overfit 3 differs from the run")
end)

t.test("quick: a few cases, 5 epochs, unless others are given", function()
  local line = "scripts/brain_unet.lua --preset check --patients 20 --quick --out " .. folder
    .. "/quick"
  local text = t.says(line, 0, "quick: 8 cases to train on")
  t.check(text:find("train: 8 cases of 8 patients", 1, true), text)
  t.check(text:find("valid: 2 cases", 1, true) and text:find("test: 2 cases", 1, true), text)
  t.check(text:find("epoch 5/5", 1, true), text)
  t.says(line .. " --epochs 1", 0, "epoch 1/1")
end)

t.test("a loader of some samples gives these", function()
  local seg = require "seg"
  local set = seg.data.phantom { format = "nifti", patients = 2, size = 32, slices = 6,
                                 root = folder .. "/some" }
  local pipeline = set:normalize {}:slices {}:pipeline { threads = 1, seed = 1,
                                                         cache_bytes = 1 << 20 }
  local function numbers(o)
    local loader, list = core.data.loader(pipeline, o), {}
    for _ = 1, (loader:batches()) do
      for _, n in ipairs(loader:next().samples) do list[#list + 1] = n end
    end
    loader:close()
    return table.concat(list, " ")
  end
  t.equal(numbers { batch = 2, only = { 7, 3, 3 } }, "7 3 3")
  local shuffled = numbers { batch = 2, only = { 7, 3, 12, 1 }, shuffle = true, seed = 3 }
  local sorted = {}
  for n in shuffled:gmatch("%d+") do sorted[#sorted + 1] = tonumber(n) end
  table.sort(sorted)
  t.equal(table.concat(sorted, " "), "1 3 7 12")
  t.raises(function() numbers { only = { 13 } } end, "sample 12 of the list: the data set has 12")
  t.raises(function() numbers { only = {} } end, "the list of samples is empty")
end)

remove()
t.finish()
