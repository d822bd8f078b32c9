-- attack.lua -- a careless or unlucky user: odd numbers, hostile Lua values, damaged runs, data
-- that changes under a run. The program must print one clear line and end with the right code; it
-- must never crash.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local nn, op, data, optim, metric = seg.nn, seg.op, seg.data, seg.optim, seg.metric
local folder, remove = t.folder()

local write, says = t.write, t.says

local function shell(command)
  t.check(os.execute(command), command)
end

local phantom = " --preset check --phantom " .. folder .. "/phantom"
local brain = "scripts/brain_unet.lua" .. phantom .. " --out " .. folder .. "/runs"

t.test("numbers out of range end before anything is opened", function()
  for _, case in ipairs {
    { "--batch 100000000", "--batch must be from 1 to 1048576" },
    { "--batch 0", "--batch must be from 1" }, { "--batch ''", "takes a whole number" },
    { "--threads 100000", "--threads must be from 0 to 1024" },
    { "--workers -1", "--workers must be from 0 to 256" },
    { "--epochs 1000000001", "--epochs must be from 1" },
    { "--epochs 0", "--epochs must be from 1 to 1000000" },
    { "--steps -1", "--steps must be at least 0" },
    { "--save_every 0", "--save_every must be at least 1" },
    { "--keep_last -1", "--keep_last must be at least 0" },
    { "--seed -1", "--seed must be at least 0" },
    { "--cache_mb 9223372036854775807", "--cache_mb must be from 0" },
    { "--device_dataset yes", '--device_dataset is "yes", wanted one of auto, off, on' },
    { "--device_dataset ''", '--device_dataset is ""' },
    { "--lr nan", "--lr takes a number" }, { "--lr -1", "lr must be a number >= 0" },
    { "--lr 1e400", "lr must be a number >= 0" }, { "--t_max 0", "t_max must be a number >= 1" },
    { "--size 0", "size must be from 16" }, { "--size 17", "h = 17 is not a multiple of 16" },
    { "--base 0", "base must be a whole number >= 1" }, { "--out ''", "--out is empty" },
    { "--data ''", "--data is empty" }, { "train plan", "train and plan: one command at a time" },
    { "-x", 'option "-x" is not understood' },
  } do
    local text = says(brain .. " " .. case[1], 2, case[2])
    t.check(not text:find("synthetic patients", 1, true), case[1] .. " opened data")
  end
  says("inspect a b", 2, "inspect takes one PATH")
  says("doctor b", 2, "doctor takes data SCRIPT.lua or nothing, got \"b\"")
  says(folder, 2, "is a folder, not a Lua script; fix: segengine inspect")
end)

t.test("a rate that is no number is said before the first epoch", function()
  local text = t.read("scripts/brain_unet.lua"):gsub("schedule = schedule,",
    "schedule = { name = 'mine', rate = function() return 0 / 0 end },")
  says(write(folder .. "/rate.lua", text) .. phantom .. " --out " .. folder .. "/runs", 2,
       "schedule mine: the rate of epoch 1 is")
end)

t.test("errors of Lua inside our modules carry the recipe's line", function()
  local head = 'local seg = require "seg"\n'
  says(write(folder .. "/inside.lua", head .. "seg.metric.summary(nil)\n"), 1, "inside.lua:2: ")
  says(write(folder .. "/object.lua", "error(setmetatable({}, {__tostring = function() "
    .. "return 'an object' end}))\n"), 1, "segengine: an object")
  says(write(folder .. "/scope.lua", head .. "seg.nn.scope('a', function()\n  local x = nil + 1\n"
    .. "end)\n"), 1, "scope.lua:3: ")
end)

-- Every public function with every hostile value in every argument: an error is fine, and begins
-- with this script and a line; a crash would end this test.
t.test("hostile values", function()
  local cyclic = {}
  cyclic[1], cyclic.c, cyclic.a = cyclic, cyclic, cyclic
  local x = nn.input("hostile", { c = 8, h = 8, w = 8 })
  local sound = nn.input("sound", { c = 2, w = 8 })
  local values = { "", "a\0b", "%s%n", string.rep("x", 1 << 20), 0, -1, 1.5, -0.0, 0 / 0, 1 / 0,
    -1 / 0, 2.0 ^ 53, 1 << 31, math.mininteger, math.maxinteger, true, false, {}, { 0 }, { 0 / 0 },
    { -1, 2 }, cyclic, setmetatable({}, { __index = function() error("from a metatable") end }),
    io.stdout, coroutine.create(print), print, x, sound, { x }, { x = x },
    seg.array.zeros { 2, 2 }, { name = 1 }, { stride = {} }, { share = 1 } }
  local function try(name, f, ...)
    local ok, why = pcall(f, ...)
    why = tostring(why)
    -- C functions that pcall calls directly have no line
    if ok or why:find("from a metatable", 1, true) or why:find("^bad argument") then return end
    t.check(why:match("^[%w_./]+%.lua:%d+: "), "%s: %s", name, why:sub(1, 300))
  end
  local function all(prefix, module)
    for name, f in pairs(module) do
      if type(f) == "function" and name ~= "summary" then
        for i = 0, #values do
          local v = values[i]
          try(prefix .. name, f, v)
          try(prefix .. name, f, x, v)
          try(prefix .. name, f, x, 1, v)
          try(prefix .. name, f, x, 1, 1, v)
          try(prefix .. name, f, x, x, v)
          try(prefix .. name, f, v, v, v, v)
        end
      end
    end
  end
  all("nn.", nn)
  all("op.", op)
  all("optim.", optim)
  all("metric.", metric)
  all("array.", seg.array)
  all("data.", { dicom = data.dicom, nifti = data.nifti, phantom = data.phantom })
  all("seg.", { model = seg.model, step = seg.step, recipe = seg.recipe })
  local set = data.nifti { root = folder }
  for _, step in ipairs { "split", "slabs", "resize", "normalize", "slices", "augment",
                          "batches" } do
    for _, v in ipairs(values) do try("set:" .. step, set[step], set, v) end
  end
end)

t.test("objects with hostile arguments", function()
  local x = nn.input("object", { c = 1, h = 8, w = 8 })
  local target = nn.input("object_truth", { c = 1, h = 8, w = 8 })
  local y = nn.conv(x, 1, 1, { name = "object_layer" })
  local model = seg.model { outputs = { y = y } }
  local step = seg.step { loss = nn.mse(y, target), optim = optim.sgd { lr = 1 } }
  for _, v in ipairs { 0, -1, 0 / 0, true, {}, print, x, seg.array.zeros { 3 } } do
    for _, object in ipairs { model, step } do
      for _, method in ipairs { "load", "get", "set", "run" } do
        local f = object[method]
        local ok, why = pcall(function() f(object, v) end)
        t.check(not ok and tostring(why):match("^tests/lua/attack%.lua:%d+: "), "%s: %s", method,
                tostring(why))
      end
    end
    t.check(not pcall(model.run, model, { object = v }), "an input of the wrong kind")
  end
  -- the same network at other sizes and other numbers of samples
  for n = 1, 4 do
    local a = seg.array.zeros { n, 1, 8 * n, 8 }
    t.equal(table.concat(model:run { object = a }.y.shape, "x"), n .. "x1x" .. 8 * n .. "x8")
    local loss = step:run { object = a, object_truth = a, lr = 0 }
    t.check(loss == loss)
  end
end)

t.test("memory outside of Lua is collected in time", function()
  if (os.getenv("SAN") or "") ~= "" then t.skip "a sanitizer needs the address space" end
  -- 3000 arrays of 4 MiB, one at a time, with 3 GB of memory
  local script = write(folder .. "/arrays.lua", 'local seg = require "seg"\n'
    .. "for _ = 1, 3000 do seg.array.zeros { 1024, 1024 } end\nprint 'enough'\n")
  local _, text = t.program(script, "ulimit -v 3000000; ")
  t.equal(text, "enough\n")
end)

t.test("what is closed is refused", function()
  local core = require "seg.core"
  local set = data.phantom { patients = 2, size = 16, slices = 2, root = folder .. "/closed" }
    :slices {}
  local pipeline = set:pipeline { threads = 1, cache_bytes = 1 << 20, seed = 1 }
  local loader = set:loader(pipeline, { workers = 0, seed = 1 })
  local first = loader:next().fields[1]
  t.check(first:array():get(1, 1, 1, 1), "a block of this batch")
  local second = loader:next().fields[1]
  t.raises(function() first:array() end, "has reused the memory of this block")
  loader:close()
  t.raises(function() second:array() end, "has reused the memory of this block")
  t.raises(function() loader:next() end, "this loader is closed")
  local x = nn.input("closed", { c = 1, h = 16, w = 16 })
  local model = seg.model { outputs = { y = nn.relu(x) } }
  t.raises(function() model:run { closed = second } end, "has reused the memory of this block")
  local prediction = core.data.prediction(pipeline, 1, 1)
  t.raises(function() prediction:put(1, seg.array.zeros { 16, 16 }, 1) end,
           "a prediction of 2 axes, wanted 4")
  local volume = prediction:restore()
  prediction:close()
  t.raises(function() prediction:restore() end, "this prediction is closed")
  volume:close()
  for _, method in ipairs { "stats", "labels", "count", "slice", "write_nifti" } do
    t.raises(function() volume[method](volume, 1) end, "this volume is closed")
  end
end)

t.test("callbacks may yield, raise and leave the scope as it was", function()
  local x = nn.input("yields", { c = 1, w = 8 })
  local go = coroutine.wrap(function()
    return nn.scope("yielding", function()
      coroutine.yield("half")
      return nn.conv(x, 1, 3)
    end)
  end)
  t.equal(go(), "half")
  t.equal(go().name, "yielding.conv1")
  t.raises(function() nn.scope("raising", function() error("on purpose") end) end, "on purpose")
  t.equal(nn.conv(x, 1, 3, { name = "outside" }).name, "outside")
end)

t.test("diverging: code 5, and the checkpoint stays finite", function()
  says(brain .. " --out " .. folder .. "/wild --lr 1e30", 5, "lower the learning rate")
  says("inspect " .. folder .. "/wild/brain_unet/001/checkpoint_last.safetensors", 0,
       "checksums are right")
end)

t.test("diverging with accumulated batches", function()
  local text = t.read("scripts/brain_unet.lua"):gsub("best = {", "accumulate = 2, %0")
  says(write(folder .. "/accumulate.lua", text) .. phantom .. " --epochs 9 --lr 1e30 --batch 2"
       .. " --out " .. folder .. "/wild", 5, "3 steps in a row")
end)

t.test("a run that is resumed must be what it was", function()
  says(brain .. " --epochs 2 --steps 8", 0, "stopped after 8 steps")
  local run = folder .. "/runs/brain_unet/001"
  local copy = folder .. "/copy/brain_unet/001"
  local again = "scripts/brain_unet.lua" .. phantom .. " --out " .. folder .. "/copy --resume "
    .. copy
  local function fresh()
    shell("rm -rf " .. folder .. "/copy && mkdir -p " .. folder .. "/copy/brain_unet && cp -r "
          .. run .. " " .. copy .. " && cp " .. run .. "/../.key " .. copy .. "/..")
  end
  -- the limit of steps held for the first call
  fresh()
  says(again, 0, "done:")
  says(again .. " --lr 0.5", 2, "segengine: --lr 0.5 differs from the run that is resumed")
  local text = t.read("scripts/brain_unet.lua")
  local other = folder .. "/brain_unet.lua"
  local rest = phantom .. " --out " .. folder .. "/copy --resume " .. copy
  fresh()
  write(other, (text:gsub("base = cfg.base,", "%0 act = 'leaky_relu',")))
  says(other .. rest, 2, "the network of this script differs from the resumed run")
  write(other, (text:gsub("99%.5", "99.0")))
  says(other .. rest, 2, "the preparation of the data of this script")
  write(other, text .. "-- a comment\n")
  says(other .. rest, 0, "warning: the script has changed since the run began")
  fresh()
  says("scripts/nfbs_unet.lua" .. rest, 2, "is a run of brain_unet, not of nfbs_unet")
  says(again .. "/checkpoint_last.safetensors", 3, "this is not the folder of a run")
  write(copy .. "/config.txt", "lr = 0.5\n")
  says(again, 2, "lr is 0.5, the run that is resumed has 0.001")
  fresh()
  shell("rm " .. copy .. "/checkpoint_best.safetensors")
  says(again, 0, "the best so far, are lost")
  for _, name in ipairs { "log.txt", "config.txt", "metrics.csv", "cases.csv", "../.key" } do
    fresh()
    shell("rm -f " .. copy .. "/" .. name .. " && mkdir " .. copy .. "/" .. name)
    local code, said = t.program(again)
    t.check(code == 1 or code == 3, "%s: code %d", name, code)
    t.check(said:find("Is a directory", 1, true) and not said:find("segengine: [", 1, true), said)
  end
end)

t.test("a run does not go on with other cases", function()
  local base = folder .. "/data"
  shell("cp -r " .. folder .. "/phantom/flair-6* " .. base)
  local line = "scripts/brain_unet.lua --preset check --out " .. folder .. "/moved --data " .. base
  says(line .. " --epochs 2 --steps 6", 0, "stopped after 6 steps")
  shell("rm -r " .. base .. "/patient_01")
  says(line .. " --resume auto", 3, "start a new run")
end)

t.test("no path in the weights", function()
  local text = t.read(folder .. "/runs/brain_unet/001/checkpoint_last.safetensors")
  t.check(not text:find(folder, 1, true), "the checkpoint names " .. folder)
end)

t.test("links that lead nowhere or back", function()
  shell("mkdir -p " .. folder .. "/links/a && cd " .. folder .. "/links && ln -s .. a/loop"
        .. " && ln -s nothing a/gone && ln -s a/loop b")
  local line = "scripts/nfbs_unet.lua --preset check --out " .. folder .. "/links_runs --data "
    .. folder .. "/links"
  says(line, 3, "no NIfTI files")
  shell("ln -s nothing " .. folder .. "/links/a/b_T1w.nii.gz")
  says(line, 3, "b_T1w.nii.gz: a link that leads nowhere")
end)

remove()
t.finish()
