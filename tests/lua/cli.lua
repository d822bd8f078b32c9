-- cli.lua -- the program from the outside: exit codes, messages, files.

local t = dofile("tests/support/harness.lua")
local folder, remove = t.folder()

local says = t.says

local function write(name, text)
  return t.write(folder .. "/" .. name, text)
end

local brain = "scripts/brain_unet.lua --preset check --phantom " .. folder .. "/phantom"
  .. " --out " .. folder .. "/runs"

t.test("help, version, operators", function()
  says("--version", 0, "research use only, not a medical device")
  says("--help", 0, "segengine SCRIPT.lua [COMMAND]")
  says("", 2, "segengine SCRIPT.lua [COMMAND]")
  says("ops", 0, "bce_dice")
  says("check --op relu", 0, "68 cases: all within their bounds")
  says("check --op relu --json", 0, '"failures": 0')
  says("check --op relu --share 1/4", 0, " cases: all within their bounds")
  says("check --share 5/4", 2, "--share 5/4: want I/N, share I of N of the cases of each operator")
  says("check --share half", 2, "--share half: want I/N")
  says("check --op rellu", 2, '--op: there is no operator "rellu"; did you mean "relu"?')
  says("check --devise cpu", 2, 'did you mean "device"?')
  says("check --device cpu:1 --op relu", 2, "only cuda takes a number")
  -- also without CUDA: the number is the mistake
  for _, number in ipairs { "-1", "x", "256", "" } do
    says("check --op relu --device cuda:" .. number, 2, 'the number after cuda: must be 0 to 255, '
         .. 'got "' .. number .. '"')
  end
  says("check --op relu --device ref", 2, "--device ref: ref is the reference for all devices")
  says(brain .. " check --device ref", 2, "--device ref: ref is the reference for all devices")
  says("check --op", 2, "--op needs a value")
  local text = says(brain .. " check", 0, "losses of all steps, relative")
  t.check(text:find("worst error: 0%.%d+ of its bound"), "the nodes come first: " .. text)
  says("doctor", 0, "processor")
end)

t.test("a reader that has seen enough is no failure", function()
  local shell = io.popen("(" .. t.path() .. " ops 2>&1; echo code $? >" .. folder
    .. "/code) | head -n 1", "r")
  t.check(shell:read("a"):find("operator", 1, true), "one line")
  shell:close()
  t.equal(t.read(folder .. "/code"), "code 0\n")
end)

t.test("help of a recipe, and of a command alone", function()
  local text = says("scripts/brain_unet.lua --help", 0, "options of this recipe")
  t.equal(says("scripts/brain_unet.lua train -h", 0, "options of this recipe"), text)
  for _, line in ipairs {
    "  --size          256          pixels, both axes\n",
    "  --clamp         false        stay at the floor after t_max\n",
    "  --lr            0.001        learning rate\n",
    "  --patients 28 --slices 24    of the synthetic data\n", -- of both, as one line has both
    "  --batch         16           slices a step\n",
    "  --epochs        120          passes over the training set\n",
    "  --preset demo   --base 16 --epochs 20 --size 96",
    "  --preset full   the defaults\n",
    "\nof every recipe\n  --data           folder or file with the images\n",
    "  --weights        FILE: a checkpoint",
    "\nof predict\n  --in             PATH: file or folder of new images\n",
  } do
    t.check(text:find(line, 1, true), "%s\n%s", line, text)
  end
  -- a key of all recipes that this recipe lists too is printed once
  local _, times = text:gsub("\n  %-%-epochs", "")
  t.equal(times, 1, "times that --epochs is listed")
  says(write("nocfg.lua", 'require "seg".recipe {}\n') .. " --help", 0, "of every recipe")
  says(write("noisy.lua", "error('on purpose')\n") .. " --help", 1, "noisy.lua:1: on purpose")
  -- a script that is not a recipe has arguments of its own
  says(write("own.lua", "print('mine', ...)\n") .. " --help", 0, "mine\t--help")
  local whole = says("--help", 0, "segengine inspect PATH")
  t.equal(says("help", 0, "segengine"), whole)
  t.equal(says("train --help", 0, "segengine"), whole)
  says("train", 2, "train is a command of a recipe: segengine SCRIPT.lua train")
  t.equal(says("inspect --help", 0, ""), "segengine inspect PATH      any image, series, array, "
    .. "checkpoint, run or folder\n")
  t.equal(says("ops -h", 0, ""), "segengine ops               the operator table\n")
end)

-- A mistake on the command line: the message begins with the given text, not with the line of the
-- recipe that happened to read it.
local function refuses(arguments, code, message)
  local text = says(arguments, code, message)
  t.check(("\n" .. text):find("\nsegengine: " .. message, 1, true), text)
end

t.test("mistakes on the command line", function()
  says("nothing", 2, 'there is no script or command "nothing"')
  says("inspct x", 2, 'did you mean "inspect"')
  says("trian", 2, 'did you mean "train"')
  says("--hepl", 2, 'did you mean "--help"')
  for _, case in ipairs {
    { "--device cuda a.lua plan", "--device", "a.lua --device cuda plan" },
    { "--device=cuda search a.lua", "--device=cuda", "a.lua --device=cuda search" },
    { "--quiet --op relu check", "--quiet", "check --quiet --op relu" },
    { "--epochs 3", "--epochs", "SCRIPT.lua --epochs 3" },
  } do
    says(case[1], 2, case[2] .. ": options come after the script: segengine " .. case[3] .. "\n")
  end
  refuses(brain .. " tran", 2, 'command "tran" is not known; did you mean "train"')
  refuses(brain .. " --epocs 3", 2, '--epocs: unknown option; did you mean "epochs"')
  refuses(brain .. " --set epocs=3", 2, '--epocs: unknown option; did you mean "epochs"')
  refuses(brain .. " --prest demo", 2, '--prest: unknown option; did you mean "preset"')
  refuses(brain .. " --epochs many", 2, '--epochs takes a whole number, got "many"')
  refuses(brain .. " --epochs 0", 2, "--epochs must be from 1 to 1000000, got 0")
  refuses(brain .. " --epochs", 2, "--epochs needs a value")
  refuses(brain .. " --image --mask MASK", 2, "--image needs a value")
  refuses(brain .. " --weights --quiet", 2, "--weights needs a value: FILE")
  refuses(brain .. " --lr x", 2, '--lr takes a number, got "x"')
  refuses(brain .. " --clamp=perhaps", 2, '--clamp takes true or false, got "perhaps"')
  refuses(brain .. " --preset big", 2, '--preset "big" is not one of this recipe')
  refuses(brain .. " --set lr", 2, "--set takes KEY=VALUE")
  refuses(brain .. " --quiet=false", 2, '--quiet takes no value, got "false"')
  refuses(brain .. " --save-every 0", 2, "--save_every must be at least 1")
  refuses(brain .. " --device tpu", 2, 'device "tpu" is not known')
  refuses(brain .. " --device cuda", 4, 'device "cuda": ')
  says(brain .. " --device cuda", 4, "use --device cpu")
  says("check --device cuda", 4, 'device "cuda": ')
  refuses(brain .. " plan --allreduce pigeon", 2,
          '--allreduce is "pigeon", wanted one of auto, host, nccl')
  refuses(brain .. " --precision f16", 2, "precision f16 is not available on device cpu")
  local f17 = '--precision is "f17", wanted one of bf16, f16, f32, tf32'
  refuses(brain .. " --precision f17", 2, f17)
  refuses("check --precision f17", 2, f17)
  refuses(brain .. " plan --precision f16", 2, "precision f16 is not available on device cpu")
  refuses(brain .. " check --precision f16", 2, "precision f16 is not available on device cpu")
  refuses("check --precision f16", 2, "precision f16 is not available on device cpu")
  says("check --op linear --precision f32 --device cpu", 0, "linear              f32 ")
  says("check --op linear --precision bf16 --device cpu", 0, "linear              bf16 ")
  refuses(brain .. " --resume " .. folder .. "/none", 2, "--resume " .. folder .. "/none: there is "
          .. "no such run")
  refuses(brain .. " --resume " .. folder, 3, "--resume " .. folder .. ": this is not the folder")
  refuses(brain .. " predict", 2, "predict needs --in PATH")
  for _, case in ipairs {
    { "train --in x", "--in is not for train, but for predict" }, { "--split test", "--split is" },
    { "train --safetensors x", "--safetensors is not for train, but for export" },
    { "predict --resume auto", "--resume is not for predict" }, { "--json", "--json is not for" },
    { "plan --weights x", "--weights is not for plan, but for train, evaluate, predict, export" },
    { "--full", "--full is not for train, but for check" },
    { "--resume auto --weights x", "--resume and --weights: a resumed run" },
    { "export --reference x --weights x", "--weights: export writes trained weights with" },
  } do refuses(brain .. " " .. case[1], 2, case[2]) end
end)

t.test("mistakes of a recipe's config carry its line", function()
  local head = 'local seg = require "seg"\n'
  for i, case in ipairs {
    { "seg.config { epochs = 0 }", "seg.config: epochs must be from 1 to 1000000, got 0" },
    { "seg.config { seed = 'x' }", "seg.config: seed must be a whole number, got x" },
    { "seg.config { precision = 'half' }", 'seg.config: precision is "half", wanted one of bf16' },
    { "seg.config { allreduce = 'pigeon' }",
      'seg.config: allreduce is "pigeon", wanted one of auto' },
    { "seg.config { presets = { demo = { nosuch = 1 } } }",
      'seg.config: preset demo: unknown key "nosuch"' },
    { "seg.config { presets = { demo = 1 } }", "seg.config: preset demo must be a table" },
    { "seg.config { presets = 1 }", "seg.config: presets must be name = {...}" },
  } do
    local name = "config" .. i .. ".lua"
    says(write(name, head .. case[1] .. "\n"), 2, name .. ":2: " .. case[2])
  end
end)

t.test("values come out of the line as they should", function()
  local script = write("values.lua", 'local seg = require "seg"\nlocal c = seg.config { list = '
    .. "{ 1 }, on = false, share = 0.5, name = 'a', data = nil }\nprint(table.concat(c.list, ' '),"
    .. " c.on, c.share, c.name)\n")
  says(script, 0, "1\tfalse\t0.5\ta")
  says(script .. " --on --list 1,2.5 --share=2 --name=b=c", 0, "1 2.5\ttrue\t2.0\tb=c")
  says(script .. " --on false --name -x --set list=3", 0, "3\tfalse\t0.5\t-x")
end)

t.test("numbers of a list survive a config.txt to the last bit", function()
  local config = require "seg.recipe.config"
  local list = { 1 / 3, 2, 3.0, 1e-7, "x" }
  local line = config.print { list = list }
  local back = {}
  for part in line:match("= (.*)\n"):gmatch("[^,]+") do back[#back + 1] = tonumber(part) or part end
  for i, v in ipairs(list) do
    t.equal(back[i], v)
    t.equal(math.type(back[i]), math.type(v))
  end
end)

t.test("modules of the user are the user's", function()
  write("util.lua", "return { mine = true }\n")
  write("finds.lua", 'print(require("util").mine, require("seg.util").mine)\n')
  local _, said = t.program("finds.lua", "cd " .. folder .. " && ")
  t.equal(said, "true\tnil\n")
end)

t.test("inspect: weights of another program", function()
  local head = '{"a.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}'
  local path = write("foreign.safetensors", string.pack("<I8", #head) .. head .. ("\0"):rep(16))
  local text = says("inspect " .. path, 0, "1 tensors, 4 elements; no checksums")
  t.check(text:find("a.weight", 1, true), text)
end)

t.test("inspect: archives of arrays", function()
  local corpus = "tests/fuzz/corpus/"
  local npz, mat = folder .. "/x.npz", folder .. "/kinds.mat"
  os.execute("cp " .. corpus .. "npz/deflated " .. npz .. "; tail -c +2 " .. corpus
    .. "mat/kinds > " .. mat)
  local text = says("inspect " .. npz, 0, "\n3 arrays\n")
  t.check(text:find("\na +int16 +2x3 *\n"), text)
  t.check(text:find("\ns +float64 +one number *\n"), text)
  text = says("inspect " .. mat, 0, "\n5 arrays\n")
  t.check(text:find("\nz +complex double +1x1 +not read\n"), text)
  t.check(text:find("\nl +logical +1x2 *\n"), text)
  -- a folder: one line a file, damaged ones by name
  os.execute("mkdir " .. folder .. "/arrays && mv " .. npz .. " " .. mat .. " " .. folder
    .. "/arrays && cp " .. corpus .. "npz/cut " .. folder .. "/arrays/cut.npz")
  text = says("inspect " .. folder .. "/arrays", 3, "2 .npz files, 1 .mat file")
  t.check(text:find("x.npz +3 arrays: a, f, s\n"), text)
  t.check(text:find("kinds.mat +5 arrays: t, s, z, c_, l\n"), text)
  t.check(text:find("cut.npz +damaged: [^\n]+cut.npz: npz: no end record"), text)
  says("inspect " .. folder .. "/arrays/cut.npz", 3, "npz: no end record: the file was cut")
  -- a member that is not an array, among others
  os.execute("cp " .. corpus .. "npz/text " .. folder .. "/text.npz")
  text = says("inspect " .. folder .. "/text.npz", 3, "refused: not .npy")
  t.check(text:find("\nreadme.txt +%? +%- +refused"), text)
end)

t.test("a script without a recipe is a script", function()
  local script = write("plain.lua", "print('hello', arg[0] ~= nil, arg[1], ...)\n")
  says(script .. " --anything goes", 0, "hello\ttrue\t--anything\t--anything\tgoes")
  says(write("syntax.lua", "x = = 1\n"), 2, "syntax.lua:1:")
  says(write("fails.lua", "\nerror('on purpose')\n"), 1, "fails.lua:2: on purpose")
  says(write("first.lua", "#!/usr/bin/env segengine\nerror('on purpose')\n"), 1, "first.lua:2: on")
end)

t.test("a recipe's mistakes carry its line", function()
  local head = 'local seg = require "seg"\nlocal nn, optim = seg.nn, seg.optim\n'
  says(write("shape.lua", head .. 'local x = nn.input("x", {c=1, h=8, w=8})\n'
    .. "local y = nn.maxpool(x, 3) .. x\n"), 2, "shape.lua:4: concat:")
  says(write("key.lua", head .. "seg.recipe { input = {} }\n"), 2,
       'key.lua:3: seg.recipe: unknown option "input"; did you mean "inputs"')
  says(write("config.lua", head .. "local c = seg.config { a = 1 }\nprint(c.b)\n"), 2,
       'config.lua:4: the config has no key "b"')
end)

-- In a folder of its own, where it writes files and reads them.
t.test("the arrays and models that docs/reference.md shows", function()
  local section = "## Arrays and models in a script.-```lua\n(.-)```"
  local text = t.read("docs/reference.md"):match(section)
  write("face.lua", text)
  local code, said = t.program("face.lua", "cd " .. folder .. " && ")
  t.equal(code, 0, said)
  t.check(said:find("array 1x1x4", 1, true), said)
end)

-- The recipe that docs/guide.md shows.
local mine = t.read("docs/guide.md"):match("```lua\n(%-%- mine%.lua.-)```")

t.test("check of a recipe without a preset for the steps", function()
  local line = write("mine.lua", mine) .. " check --size 16 --base 2"
  local text = says(line, 0, "worst error: ")
  t.check(text:find("training steps are not compared: this recipe has no preset check; fix: "
                    .. "presets = { check = { %.%.%. } } in seg.config"), text)
  -- no preset is suggested that the recipe lacks
  local code, said = t.program(line:gsub("check", "train", 1) .. " --data " .. folder)
  t.check(code ~= 0 and said:find("\nseed 42, 30 epochs, batch 8, adamw 0.001\n", 1, true), said)
  refuses(line .. " --preset check", 2, '--preset "check" is not one of this recipe; it has none')
end)

t.test("slices for a network of 2-D", function()
  local small = " plan --size 16 --base 2"
  says(write("mine.lua", mine) .. small, 0, "parameters")
  local whole = mine:gsub(':slices { axis = "axial" }', "")
  says(write("whole.lua", whole) .. small, 2, 'seg.recipe: input "image" is 2-D, but the train '
       .. 'set gives whole volumes; add :slices { axis = "axial" } to its steps')
  local deep = mine:gsub("c = 1, h = cfg.size", "c = 1, d = 8, h = cfg.size")
  says(write("deep.lua", deep) .. small, 2, 'seg.recipe: input "image" is 3-D, but the train set '
       .. "gives slices; leave out :slices")
end)

t.test("plan: exact numbers, nothing opened", function()
  local text = says("scripts/brain_unet.lua plan --data /nowhere", 0, "7,762,465 trained")
  t.check(text:find("24.07 GFLOP forward a sample", 1, true), text)
  says("scripts/nfbs_unet.lua plan", 0, "31,105,953 trained")
  says("scripts/nfbs_unet.lua plan --features 32,64,128,256", 0, "7,765,409 trained")
  says("scripts/nfbs_unet.lua plan --size 100", 2, "divisible by the network's total stride")
end)

t.test("plan --gpu: what a step launches, without a GPU", function()
  local plan = "scripts/brain_unet.lua plan --data /nowhere --device cuda --gpu "
  says(plan .. "h2000", 2,
       '--gpu "h2000" is not known; use h200, h100, a100, 4090, 3090, 4060, t4 or rtx2080')
  says("--help", 0, "a step on h200, h100, a100, 4090, 3090, 4060, t4 or rtx2080\n")
  -- no H200 moves 4.8 GB or does 67 GFLOP in less: the bound uses peak rates
  local gpus = require "seg.inspect.gpus"
  t.equal(gpus.floor_us(gpus.find "h200", 4.8e9, 67e9, "f32"), 1000.0)
  says("scripts/brain_unet.lua plan --device cpu --gpu h200", 2,
       "--gpu: the device cpu launches no kernels; use --device cuda")
  says("scripts/brain_unet.lua evaluate --gpu h200", 2, "--gpu is not for evaluate, but for plan")
  if not require("seg.core").build:find("CUDA yes", 1, true) then
    says(plan .. "h200", 2, "--gpu: this program was built without CUDA")
    return
  end
  -- forward 385.1 GFLOP; backward twice that, less the image's gradient
  local text = says(plan .. "h200", 0, "1154.6 GFLOP")
  t.check(text:find("igemm_f32_kernel", 1, true)
          and text:find("optim_update_kernel", 1, true), text)
  t.check(text:find("enc4.conv2 +conv back"), text)
  says(plan .. "h200 --precision bf16", 0, "conv_first_kernel")
  -- the launches have the memory of the plan, whatever GPU this machine has
  local code, numbers = t.program("scripts/brain_unet.lua plan --data /nowhere --device cuda "
                                  .. "--precision bf16 --json", "SEG_HOPPER=0 ")
  t.equal(code, 0, numbers)
  local arena, params = numbers:match('"train": {.-"bytes": (%d+).-"param_bytes": (%d+)')
  local said = "memory: " .. require("seg.util").bytes(arena + params)
  says(plan .. "a100 --precision bf16", 0, said)
  numbers = says(plan .. "a100 --precision bf16 --json", 0, '\n  "arena_bytes": ' .. arena)
  t.check(numbers:find('\n  "param_bytes": ' .. params, 1, true), numbers)
  -- a machine without a GPU has all precisions
  says("scripts/brain_unet.lua plan --data /nowhere --device cuda --precision bf16", 0,
       "precision    bf16\n")
  -- --gpu plans for a GPU without --device, too
  for _, precision in ipairs { "tf32", "f16" } do
    says("scripts/brain_unet.lua plan --gpu H200 --batch 1 --size 32 --precision " .. precision, 0,
         "floor on H200")
  end
  says("scripts/brain_unet.lua plan --gpu 4090 --batch 1 --size 32", 0, "floor on RTX 4090")
  says("scripts/brain_unet.lua plan --gpu t4 --batch 1 --size 32 --precision f16", 0,
       "floor on T4 (320 GB/s, 65 TFLOP/s)")
  for _, precision in ipairs { "bf16", "tf32" } do
    says("scripts/brain_unet.lua plan --gpu rtx2080 --precision " .. precision, 2,
         "precision " .. precision .. " is not available on this GPU: the tensor cores of compute "
         .. "capability 7.5")
  end
  -- a slower GPU has a higher bound
  local function floor(gpu)
    local json = says(plan .. gpu .. " --json", 0, '"gpu": "' .. gpu .. '"')
    t.check(json:find('\n  "nodes": %d+,'), json)
    return tonumber(json:match('\n  "floor_us": ([%d.]+),'))
  end
  t.check(floor("4060") > 4 * floor("h200"), "the floor of a slower GPU is higher")
end)

t.test("train, evaluate, predict on synthetic patients", function()
  says(brain .. " --epochs 1", 0, "dice per case (whole volume)")
  says(brain .. " evaluate --split valid", 0, "dice per case")
  says(brain .. " evaluate --split valid --json", 0, '"metrics"')
  -- of the training part, without augmentation: the same numbers each time
  local text = says(brain .. " evaluate --split train --json", 0, '"metrics"')
  local _, cases = text:gsub('"%x%x%x%x%x%x%x%x%x%x": {', "")
  t.equal(cases, 4, "cases of the training part")
  t.equal(says(brain .. " evaluate --split train --json", 0, "{"), text)
  refuses(brain .. " evaluate --split some", 2, "--split some: use train, valid, test or all")
  refuses(brain .. " evaluate --weights " .. folder .. "/none", 3, "--weights " .. folder
          .. "/none: there is no such file or folder")
  local run = folder .. "/runs/brain_unet/001/"
  for _, name in ipairs { "config.txt", "recipe.lua", "log.txt", "metrics.csv", "summary.json",
                          "cases.csv", "checkpoint_last.safetensors", "checkpoint_best.safetensors",
                          "progress.png", "progress.svg" } do
    local f = io.open(run .. name)
    t.check(f, "no " .. name)
    f:close()
  end
  says("inspect " .. run .. "checkpoint_best.safetensors", 0, "checksums are right")
  says(write("other.lua", 'local seg = require "seg"\n'
    .. 'local x = seg.nn.input("image", {c=1,h=8,w=8})\n'
    .. 'seg.model { outputs = { y = seg.nn.conv(x, 1, 1) } }:load("' .. run
    .. 'checkpoint_best.safetensors")\n'), 3, "conv1.weight")
end)

-- The name of a set that was not split from another.
t.test("a set that is no part of another has a name in what is said of it", function()
  local script = write("unsplit.lua", [[
local seg = require "seg"
seg.config { device_dataset = "off" }
local made = { set = seg.data.nifti { root = "." }, names = {} }
local session = { facts = function() return { device = "cuda" } end }
require("seg.data.opened").keep(session, { inputs = {} }, made, true, true)
]])
  says(script, 0, "the set: the host makes the batches now, not the device")
end)

t.test("a schedule that climbs again is a note, said once", function()
  local text = says(brain .. " --epochs 3 --steps 1 --t_max 1 --out " .. folder .. "/note", 0,
                    "t_max = 3 (--t_max 3) lets it fall to the end, clamp = true (--clamp)")
  local _, times = text:gsub("climbs again", "")
  t.equal(times, 1, "times")
  t.check(not text:find("warning: cosine", 1, true), text)
  -- its own epochs count: presets print no warning, and a shorter run warns that its rate ends high
  text = says(brain .. " --preset full --size 32 --base 4 --batch 4 --steps 1 --out " .. folder
              .. "/note", 0, "120 epochs")
  t.check(not text:find("note: cosine", 1, true), text)
  says(brain .. " --preset quick --size 32 --base 4 --batch 4 --epochs 6 --steps 1 --out "
       .. folder .. "/note", 0, "note: cosine: t_max 25 is longer than 6 epochs, so the rate "
       .. "ends at 0.000905 of 0.001; t_max = 6 (--t_max 6) lets it fall to the end")
end)

-- The check preset has one patient in test.
t.test("one case has neither spread nor interval", function()
  local text = says(brain .. " evaluate", 0, "n 1; per slice")
  t.check(not text:find("sd 0", 1, true) and not text:find("interval", 1, true), text)
end)

t.test("an option that changes nothing is said to", function()
  local dose = "scripts/openkbp_unet3d.lua plan --preset check --dvh 3 "
  says(dose .. "--better false", 0, "warning: --dvh changes nothing here")
  t.check(not says(dose, 0, "parameters"):find("warning", 1, true))
  says("scripts/openkbp_unet3d.lua plan --preset check --data x --patients 3", 0,
       "warning: --patients changes nothing here")
  -- a script that reads every option
  local script = t.write(folder .. "/all.lua", [[
local seg = require "seg"
local cfg, all = seg.config { width = 2 }, 0
for _, v in pairs(cfg) do all = all + (v == 3 and 1 or 0) end
local x = seg.nn.input("x", { c = 1, h = 4, w = 4 })
local y = seg.nn.relu(x)
seg.recipe { inputs = { x }, outputs = { y = y }, loss = seg.nn.mae(y, x),
             train = seg.data.npy { root = ".", rank = 2, patient = "file" }:batches { size = 1 },
             optim = seg.optim.adam { lr = 1e-3 }, epochs = 1 }
]])
  t.check(not says(script .. " plan --width 3", 0, "relu"):find("warning", 1, true))
end)

remove()
t.finish()
