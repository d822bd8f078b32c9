-- commands_told.lua -- commands of a user that run on events: one that takes too long is ended with
-- all its child processes, and its output is limited.

local t = dofile("tests/support/harness.lua")
local core = require "seg.core"

local folder, remove = t.folder()

-- Runs a command with a limit of so many seconds; returns the program's messages.
local function tell(command, seconds)
  local script = t.write(folder .. "/tell.lua", string.format(
    'print(require("seg.core").tell(%q, "facts", %g))\n', command, seconds))
  return select(2, t.program(script))
end

-- Does a process with this command line run?
local function runs(line) return t.lines("pgrep -f '^" .. line .. "$'")[1] ~= nil end

t.test("what is told is read, and how it ended is said", function()
  local ok = core.tell("cat > " .. folder .. "/facts", "some facts", 10)
  t.check(ok and t.read(folder .. "/facts") == "some facts")
  t.check(core.tell("true", ("x"):rep(1 << 20), 10), "one that does not read")
  local _, why = core.tell("exit 7", "", 10)
  t.equal(why, "ended with code 7")
  _, why = core.tell("kill -9 $$", "", 10)
  t.equal(why, "ended by signal 9")
end)

t.test("one that takes too long is ended with its children", function()
  -- the numbers identify the processes: foreground, background, and one of another shell
  local started = core.sys.clock()
  local ok, why = core.tell("sleep 61.4011 & sh -c 'sleep 61.4012; true'; sleep 61.4013", "", 0.3)
  t.check(not ok and why:find("took more than 0 s and was ended, with its", 1, true), why)
  t.check(core.sys.clock() - started < 10, "at once")
  for i = 1, 3 do t.check(not runs("sleep 61%.401" .. i), "sleep 61.401" .. i) end
  -- and when it ignores SIGTERM
  started = core.sys.clock()
  core.tell("trap '' TERM; sleep 61.4014; sleep 61.4015", "", 0.1)
  t.check(core.sys.clock() - started < 20)
  t.check(not runs("sleep 61.4014") and not runs("sleep 61.4015"))
end)

t.test("what it prints has a limit", function()
  local said = tell("yes", 0.5)
  t.check(#said > 1 << 20 and #said < (1 << 20) + 400, "bytes: " .. #said)
  t.check(said:find("more bytes of the output of this command are left out", 1, true))
  said = tell("head -c 5000000 /dev/zero | tr '\\0' x; echo; exit 3", 60)
  t.check(said:find("3951425 more bytes", 1, true) and said:find("ended with code 3", 1, true),
          said:sub(-200))
end)

t.test("one that is left in the background goes on without a voice", function()
  t.check(core.tell("(sleep 0.3; touch " .. folder .. "/later) > /dev/null 2>&1 &", "", 30))
  for _ = 1, 100 do
    if core.sys.stat(folder .. "/later") then break end
    core.sys.sleep(0.1)
  end
  t.check(core.sys.stat(folder .. "/later"), "it is done")
end)

remove()
t.finish()
