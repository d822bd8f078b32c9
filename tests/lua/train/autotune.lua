-- autotune.lua -- --autotune on a CPU: what it chooses of what it measured, and that a run keeps
-- it. What a GPU has to choose is tests/emu/autotune.lua's.

local t = dofile("tests/support/harness.lua")
local core = require "seg.core"
local autotune = require "seg.train.autotune"
local folder, remove = t.folder()

local line = "scripts/brain_unet.lua"
local numbers = " --preset check --base 16 --epochs 2 --autotune"
local place = " --phantom " .. folder .. "/phantom --out " .. folder .. "/"

local function config(name)
  return t.read(folder .. "/" .. name .. "/brain_unet/001/config.txt")
end

t.test("a layer has to win what is no noise", function()
  local with = { a = 10, b = 10, c = 10, d = 0.1 }
  local without = { a = 9, b = 9.8, c = 20, d = 0.05 }
  t.equal(table.concat(autotune.faster({ "a", "b", "c", "d" }, with, without), " "), "a d")
  t.equal(#autotune.faster({}, with, without), 0)
  t.equal(#autotune.faster({ "a", "c" }, with, with), 0)
end)

t.test("of tiles the fastest, where one wins more than noise", function()
  local function ms(forward, backward) return { forward = forward, backward = backward } end
  local own = ms({ a = 10, b = 10, c = 1 }, { a = 5, b = 5 })
  local with = { x = ms({ a = 9, b = 9.8, c = 0.9 }, { a = 4, b = 5 }),
                 y = ms({ a = 8, b = 9.9, c = 1.1 }, { a = 4.5, b = 4 }) }
  local text, count = autotune.tiles({ "a", "b", "c" }, own, with)
  t.equal(text, "a=y/x,b=-/y,c=x/-") -- c has no way back
  t.equal(count, 3)
  text, count = autotune.tiles({ "a", "b" }, own, { x = own })
  t.equal(text .. count, "0")
end)

t.test("a run measures once, and keeps what it found", function()
  local said = t.says(line .. numbers .. place .. "whole", 0, "autotune: ")
  local count, rest = said:match("autotune: (%d+) convolutions measured, ([^\n]*)")
  t.check(count, said)
  -- what is faster depends on the machine, not what is written down
  local direct = config("whole"):match("\ndirect = ([^\n]*)\n")
  t.check(direct, config("whole"))
  if rest:find("none", 1, true) or rest:find("not worth it", 1, true) then t.equal(direct, "")
  else t.check(direct ~= "" and rest:find(": " .. direct, 1, true), said) end
  said = t.says(line .. " --resume " .. folder .. "/whole/brain_unet/001 --epochs 3", 0, "done: ")
  t.check(not said:find(" measured", 1, true), said)
  t.check(said:find("autotune: a run that is resumed keeps what it has", 1, true), said)
  t.equal(config("whole"):match("\ndirect = ([^\n]*)\n"), direct)
  -- the same bits as of a run that is told so
  t.says(line .. numbers:gsub(" %-%-autotune", "") .. " --direct '" .. direct .. "'" .. place
         .. "told", 0, "done: ")
  t.says(line .. " --resume " .. folder .. "/told/brain_unet/001 --epochs 3", 0, "done: ")
  local last = "/brain_unet/001/checkpoint_last.safetensors"
  t.equal(core.checkpoint.meta(folder .. "/whole" .. last).config,
          core.checkpoint.meta(folder .. "/told" .. last).config)
  t.equal(t.read(folder .. "/whole" .. last), t.read(folder .. "/told" .. last), "checkpoint")
end)

t.test("what leaves nothing to choose", function()
  local bench = line .. " bench --preset check --autotune"
  -- so few channels are not for Winograd's method
  t.says(bench .. " --base 1", 0, "autotune: no convolution of this network has a choice")
  t.says(bench .. " --base 16 --direct enc1.conv2", 0,
         "autotune: enc1.conv2 is kept as --direct says")
  t.says(bench .. " --base 16", 0, " convolutions measured, ")
  t.says(bench .. " --base 16 --winograd false", 2,
         "--autotune: --winograd false has chosen for all layers")
  local said = t.says(bench .. " --device ref", 0, "autotune: nothing to choose on ref in f32")
  t.check(said:find("device: ref, plain loops in double, 1 thread\n", 1, true), said)
  t.check(said:find("batch 4, 1 thread: ", 1, true), said)
  for _, command in ipairs { "plan", "check", "evaluate" } do
    t.says(line .. " " .. command .. " --preset check --autotune", 2,
           "--autotune is not for " .. command .. ", but for train and bench")
  end
end)

t.test("ranks choose together", function()
  t.says(line .. numbers .. " --ranks 2 --steps 2" .. place .. "ranks", 0, "autotune: ")
  t.check(config("ranks"):find("\ndirect = ", 1, true))
  local said = t.says(line .. " bench --preset check --base 16 --autotune --ranks 2", 0,
                      " convolutions measured, ")
  t.check(said:find("2 ranks of ", 1, true), said)
end)

remove()
t.finish()
