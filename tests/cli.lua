-- cli.lua -- the program as a user meets it: exit codes, messages, files.

local t = dofile("tests/harness.lua")
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
  says("doctor", 0, "processor")
end)

t.test("a reader that has seen enough is no failure", function()
  local program = os.getenv("PROGRAM") or "./segengine"
  local shell = io.popen("(" .. program .. " ops 2>&1; echo code $? >" .. folder
    .. "/code) | head -n 1", "r")
  t.check(shell:read("a"):find("operator", 1, true), "one line")
  shell:close()
  t.equal(io.open(folder .. "/code"):read("a"), "code 0\n")
end)

t.test("mistakes on the command line", function()
  says("nothing", 2, 'there is no script or command "nothing"')
  says("inspct x", 2, 'did you mean "inspect"')
  says(brain .. " tran", 2, 'command "tran" is not known; did you mean "train"')
  says(brain .. " --epoch 3", 2, 'unknown key "epoch"; did you mean "epochs"')
  says(brain .. " --epochs many", 2, '--epochs wants a whole number, got "many"')
  says(brain .. " --lr x", 2, '--lr wants a number, got "x"')
  says(brain .. " --preset big", 2, '--preset "big" is not one of this recipe')
  says(brain .. " --set lr", 2, "--set wants KEY=VALUE")
  says(brain .. " --device tpu", 2, 'device "tpu" is not known')
  says(brain .. " --device cuda", 4, "cuda")
  says(brain .. " --precision f16", 2, "--precision f16")
  says(brain .. " --resume " .. folder .. "/none", 2, "there is no such run")
  says(brain .. " predict", 2, "predict wants --in PATH")
end)

t.test("a script without a recipe is a script", function()
  local script = write("plain.lua", "print('hello', arg[0] ~= nil, arg[1], ...)\n")
  says(script .. " --anything goes", 0, "hello\ttrue\t--anything\t--anything\tgoes")
  says(write("syntax.lua", "x = = 1\n"), 2, "syntax.lua:1:")
  says(write("fails.lua", "\nerror('on purpose')\n"), 1, "fails.lua:2: on purpose")
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

t.test("plan: exact numbers, nothing opened", function()
  local text = says("scripts/brain_unet.lua plan --data /nowhere", 0, "7,762,465 trained")
  t.check(text:find("24.07 GFLOP forward a sample", 1, true), text)
  says("scripts/nfbs_unet.lua plan", 0, "31,105,953 trained")
  says("scripts/nfbs_unet.lua plan --features 32,64,128,256", 0, "7,765,409 trained")
  says("scripts/brain_unet.lua plan --size 100", 2, "divisible by the network's total stride")
end)

t.test("train, evaluate, predict on made-up patients", function()
  says(brain .. " --epochs 1", 0, "dice per case (whole volume)")
  says(brain .. " evaluate --split valid", 0, "dice per case")
  says(brain .. " evaluate --split valid --json", 0, '"metrics"')
  says(brain .. " evaluate --weights " .. folder .. "/none", 3, "there is no such file")
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

remove()
t.finish()
