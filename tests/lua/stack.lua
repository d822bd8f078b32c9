-- stack.lua -- a .. b .. c through metamethods, while the stack of Lua grows and shrinks. Debian's
-- Lua 5.4.4 loses its place there (settle_stack in lua/bind/bind.h), so that correct scripts failed
-- once in a thousand starts.

local t = dofile("tests/support/harness.lua")
local folder, remove = t.folder()

-- A join of tables with a metamethod that calls `depth` levels down, and the tables.
local joined = [[
local function deep(n) return n == 0 and 0 or 1 + deep(n - 1) end
local word = {}
word.__concat = function(a, b)
  deep(depth)
  return setmetatable({ a[1] .. b[1] }, word)
end
local function w(text) return setmetatable({ text }, word) end
local function join() return (w "a" .. w "b" .. w "c" .. w "d")[1] end
]]

local function runs(name, text)
  t.equal(t.says(t.write(folder .. "/" .. name .. ".lua", text), 0, "abcd"), "abcd\n", name)
end

t.test("the stack grows in a metamethod", function()
  runs("grows", "local depth = 1000\n" .. joined .. "print(join())")
end)

t.test("in a coroutine, resumed or wrapped", function()
  runs("resumed", "local depth = 100\n" .. joined
       .. "print(select(2, coroutine.resume(coroutine.create(join))))")
  runs("wrapped", "local depth = 100\n" .. joined .. "print(coroutine.wrap(join)())")
  -- a coroutine that has begun keeps its stack
  runs("yielded", "local depth = 100\n" .. joined .. [[
local co = coroutine.create(function()
  coroutine.yield()
  return join()
end)
coroutine.resume(co)
print(select(2, coroutine.resume(co)))]])
end)

t.test("the stack shrinks while nodes are joined", function()
  -- a deep call leaves a large stack behind; the next collection shrinks it, whenever it comes, and
  -- joining nodes allocates most
  runs("shrinks", [[
local seg = require "seg"
local x = seg.nn.input("x", { c = 1, w = 4 })
local function deep(n) return n == 0 and 0 or 1 + deep(n - 1) end
collectgarbage("setpause", 0)
for _ = 1, 2000 do
  deep(300)
  assert((x .. x .. x .. x).c == 4)
end
print("abcd")]])
end)

-- ulimit -s: kernels and Lua need more than some systems give, so the program and its threads have
-- stacks of their own (engine/base/thread.h).
t.test("a stack of 128 KiB is enough for every command", function()
  local recipe = "scripts/brain_unet.lua --preset check --quiet --workers 2 --threads 2"
    .. " --phantom " .. folder .. "/phantom"
  local function run(command, before)
    local code, text = t.program(command, before or "ulimit -s 128; ")
    t.equal(code, 0, command .. ": " .. text:sub(-300))
    return text
  end
  local weights = "/brain_unet/001/checkpoint_last.safetensors"
  run(recipe .. " --epochs 1 --out " .. folder .. "/usual", "")
  run(recipe .. " --epochs 1 --out " .. folder .. "/small")
  t.equal(t.read(folder .. "/small" .. weights), t.read(folder .. "/usual" .. weights), "weights")
  local trained = " --weights " .. folder .. "/small/brain_unet/001"
  for _, command in ipairs { recipe .. " evaluate --split test" .. trained, recipe .. " plan",
                             recipe .. " bench", "ops", "doctor",
                             "inspect " .. folder .. "/phantom", "inspect " .. folder .. "/small"
                               .. weights } do
    run(command)
  end
  t.check(run(recipe .. " plan", "ulimit -s 256; "):find("training", 1, true))
  -- the signal reaches the thread that runs it
  local code, text = t.program(t.write(folder .. "/waits.lua", [[
    local core = require "seg.core"
    core.sys.catch_signals()
    for _ = 1, 500 do
      if core.sys.stopped() then print("heard") os.exit(7) end
      core.sys.sleep(0.01)
    end]]), "ulimit -s 128; timeout -s TERM 0.3 ")
  t.check(code == 124 or code == 7, code)
  t.check(text:find("heard", 1, true), text)
end)

remove()
t.finish()
