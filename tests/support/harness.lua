-- harness.lua -- the test framework for Lua: runs tests in order, prints one closing line.
--
--   local t = dofile("tests/support/harness.lua")
--   t.test("the subject of the test", function() t.equal(1 + 1, 2) end)
--   t.finish()

local M = { passed = 0, failed = 0, skipped = 0 }

local SKIP = {}

-- Run f; a failed check is reported with its line and ends this test.
function M.test(name, f)
  local ok, why = xpcall(f, function(e)
    return e == SKIP and e or tostring(e) .. "\n" .. debug.traceback("", 2)
  end)
  if ok then
    M.passed = M.passed + 1
  elseif why == SKIP then
    M.skipped = M.skipped + 1
    print("skipped " .. name .. ": " .. M.reason)
  else
    M.failed = M.failed + 1
    print("  FAILED " .. name .. ": " .. why)
  end
end

function M.skip(reason)
  M.reason = reason
  error(SKIP, 0)
end

-- Skips the test when a tool is not installed; tier: its tier in vendor/packages.txt.
function M.needs(tool, tier)
  if os.execute("command -v " .. tool .. " > /dev/null") then return end
  M.skip(tool .. " is not installed (sh vendor/fetch " .. tier .. ")")
end

-- fmt without arguments may be any text: the output of a program may contain per cents.
function M.check(ok, fmt, ...)
  if ok then return end
  error(select("#", ...) > 0 and string.format(fmt, ...) or fmt or "check failed", 2)
end

function M.equal(got, want, what)
  if got ~= want then
    error(string.format("%s is %s, want %s", what or "value", tostring(got), tostring(want)), 2)
  end
end

-- |got - want| <= tolerance; NaN on either side fails.
function M.near(got, want, tolerance, what)
  local off = math.abs(got - want)
  if off ~= off or off > tolerance then
    error(string.format("%s is %.17g, want %.17g +- %g", what or "value", got, want, tolerance), 2)
  end
end

-- f must raise, and the message must contain `part` (plain text) and begin with this script's name
-- and a line.
function M.raises(f, part)
  local ok, why = pcall(f)
  if ok then error('no error, want one with "' .. part .. '"', 2) end
  why = tostring(why)
  if not why:find(part, 1, true) then
    error(string.format('error is "%s", want "%s" in it', why, part), 2)
  end
  if not why:match("^[%w_./]+%.lua:%d+: ") then
    error(string.format('error "%s" does not begin with script and line', why), 2)
  end
end

-- Writes a file with this text; returns its path.
function M.write(path, text)
  local f = assert(io.open(path, "w"))
  f:write(text)
  f:close()
  return path
end

-- The bytes of a file.
function M.read(path)
  local f = assert(io.open(path, "rb"))
  local text = f:read("a")
  f:close()
  return text
end

-- The output lines of a shell command.
function M.lines(command)
  local pipe, out = io.popen(command), {}
  for line in pipe:lines() do out[#out + 1] = line end
  pipe:close()
  return out
end

-- Runs the program, which must end with this code and print this part (plain text); no message may
-- begin with a line of an embedded module. Returns its output.
function M.says(arguments, code, part)
  local got, text = M.program(arguments)
  M.equal(got, code, "exit code of " .. arguments .. " (" .. text:sub(-300) .. ")")
  if not text:find(part, 1, true) then
    error(string.format('"%s" says "%s", want "%s"', arguments, text, part), 2)
  end
  if text:find("segengine: [", 1, true) then error("no line of ours: " .. text, 2) end
  return text
end

function M.finish()
  print(string.format("%d passed, %d failed, %d skipped", M.passed, M.failed, M.skipped))
  if M.failed > 0 then os.exit(1) end
end

-- Makes a scratch folder below the temporary folder; returns it and a function that removes it.
function M.folder()
  local name = os.tmpname()
  os.remove(name)
  os.execute("mkdir -p '" .. name .. "'")
  return name, function() os.execute("rm -rf '" .. name .. "'") end
end

-- The cases of a data set, as "key/patient key/patient".
function M.keys(set)
  local list = {}
  for i, case in ipairs(set:dataset():cases()) do list[i] = case.key .. "/" .. case.patient end
  return table.concat(list, " ")
end

-- The first batch of a data set as arrays by field name.
function M.first_batch(set)
  local loader, out = set:loader(set:pipeline {}, {}), {}
  local batch = loader:next()
  for i, name in ipairs(set:dataset():fields()) do out[name] = batch.fields[i]:array() end
  loader:close()
  return out
end

-- The absolute path of the program under test.
function M.path()
  local program = os.getenv("PROGRAM") or "./segengine"
  return program:match("^/") and program or M.lines("pwd")[1] .. "/" .. program
end

-- Writes a NIfTI-1 file of size = { w, h, d } voxels, float32 in file order, with the rows of the
-- sform (RAS, mm); nil: 1 mm from the origin. `codes`: of qform, which has no rotation, and of
-- sform. intent: a code of nifti1.h.
function M.nifti(path, size, voxels, rows, codes, intent)
  rows, codes = rows or { 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0 }, codes or { 0, 1 }
  local head = {
    string.pack("<i4", 348), ("\0"):rep(36),
    string.pack("<i2i2i2i2i2i2i2i2", 3, size[1], size[2], size[3], 1, 1, 1, 1), ("\0"):rep(12),
    string.pack("<i2i2i2i2", intent or 0, 16, 32, 0),
    string.pack("<ffffffff", 1, 1, 1, 1, 1, 1, 1, 1), string.pack("<fff", 352, 1, 0),
    ("\0"):rep(3), "\2", ("\0"):rep(128), string.pack("<i2i2", codes[1], codes[2]),
    ("\0"):rep(24), string.pack("<ffffffffffff", table.unpack(rows)), ("\0"):rep(16), "n+1\0",
    ("\0"):rep(4), string.pack("<" .. ("f"):rep(#voxels), table.unpack(voxels)) }
  return M.write(path, table.concat(head))
end

-- Runs the program with arguments, after other shell commands such as "cd X && "; returns exit
-- code, stdout and stderr together.
function M.program(arguments, before)
  local pipe = io.popen((before or "") .. M.path() .. " " .. arguments .. " 2>&1; echo code $?")
  local text = pipe:read("a")
  pipe:close()
  local code = math.tointeger(tonumber(text:match("code (%d+)\n$")))
  return code, (text:gsub("code %d+\n$", ""))
end

return M
