-- features.lua -- docs/features.md names options, functions, files and tests that are
-- there; and what of its rows no other test shows.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"

local folder, remove = t.folder()

-- The rows of the table: id, and the cells behind it.
local rows, wanted = {}, {}
for line in t.read("docs/features.md"):gmatch("[^\n]+") do
  local id, rest = line:match("^| (%d%.%d%d) |(.*)|$")
  if id then
    local row = { id = id }
    for cell in (rest .. "|"):gmatch("(.-)|") do row[#row + 1] = cell:match("^%s*(.-)%s*$") end
    rows[#rows + 1] = row
  end
end

t.test("all rows are there, once, in order", function()
  for section, last in pairs { [0] = 58, [1] = 21, [2] = 32, [3] = 22, [4] = 24 } do
    for i = 1, last do wanted[#wanted + 1] = string.format("%d.%02d", section, i) end
  end
  table.sort(wanted)
  for i, id in ipairs(wanted) do
    t.equal(rows[i] and rows[i].id, id, "row " .. i)
    t.equal(#rows[i], 4, "cells of row " .. id)
  end
  t.equal(#rows, #wanted, "rows")
end)

-- What the program, its types and its pages say of themselves.
local help, types, pages = {}, "", ""
for _, line in ipairs { "--help", "scripts/brain_unet.lua --help",
                        "scripts/nfbs_unet.lua --help" } do
  help[#help + 1] = select(2, t.program(line))
end
help = table.concat(help, "\n")
for _, name in ipairs(t.lines("ls lua/types/*.d.lua data/steps/steps.def")) do
  types = types .. t.read(name)
end
for _, name in ipairs { "recipes", "runs", "data", "experiments" } do
  pages = pages .. t.read("docs/" .. name .. ".md")
end

local function exists(path)
  local f = io.open(path)
  if f then f:close() end
  return f ~= nil
end

-- Is `code`, as it stands in the column "how", something that there is?
local function known(code)
  local key = code:match("^%-%-([%w_]+)$")
  if key then return help:find("\n  --" .. key .. " ", 1, true) end
  local command = code:match("^SCRIPT ([%w_]+)$") or code:match("^segengine (%l+)")
  if command then return help:find("\n  " .. command .. " ", 1, true)
    or help:find("\nsegengine " .. command, 1, true) end
  local field = code:match("^([%w_]+) =$")
  if field then
    return types:find("@field " .. field .. "%f[^%w_]") or pages:find("%f[%w_]" .. field .. " = ")
  end
  local method = code:match("^:(%l+)$")
  if method then return types:find("function set:" .. method .. "(", 1, true) end
  local room, name = code:match("^(%l+)%.([%w_]+)$")
  if room == "seg" then return seg[name] end
  if type(rawget(seg, room or "")) == "table" then return seg[room][name] end
  local target = code:match("^make (.*)$")
  if target then return t.read("Makefile"):find("\n" .. target .. ":", 1, true) end
  if code == "segengine SCRIPT.lua" then return true end
  if code:match("^scripts/") then return exists(code) end
  return pages:find(code, 1, true) -- files of a run
end

t.test("every option, function and file of the table exists", function()
  local seen, missing = 0, {}
  for _, row in ipairs(rows) do
    for code in row[2]:gmatch("`([^`]+)`") do
      local ok, found = pcall(known, code)
      seen = seen + 1
      if not (ok and found) then missing[#missing + 1] = row.id .. ": " .. code end
    end
  end
  t.equal(table.concat(missing, "; "), "", "what is not there")
  t.check(seen > 150, "%d were found in the table", seen)
  -- and what is not there is seen
  for _, code in ipairs { "--nosuch", "SCRIPT fly", "nosuch =", ":nosuch", "nn.nosuch",
                          "make nosuch", "scripts/nosuch.lua", "nosuch.csv" } do
    local ok, found = pcall(known, code)
    t.check(not (ok and found), "%s is taken for something", code)
  end
end)

-- Does the file at `path` have a test called `text`? As it stands there: of C the
-- name in TEST(), of others the text.
local function has_test(path, text)
  if not exists(path) then return false end
  if path:match("%.c$") and not path:match("^tests/bench/") then
    return t.read(path):find("\nTEST(" .. text .. ")", 1, true) ~= nil
  end
  return t.read(path):find(text, 1, true) ~= nil
end

t.test("every test of the table exists", function()
  local seen, missing = 0, {}
  for _, row in ipairs(rows) do
    for path, text in row[3]:gmatch("`(tests/[^`]+)`: ([^;]+)") do
      text = text:match('^"(.-)"%s*$') or text:match("^(.-)%s*$")
      seen = seen + 1
      -- a ';' parts tests here, so a title is named up to its own
      if not has_test(path, text) then
        missing[#missing + 1] = string.format("%s: %s %s", row.id, path, text)
      end
    end
  end
  t.equal(table.concat(missing, "\n"), "", "tests that are not there")
  t.check(seen > 130, "%d were found in the table", seen)
  t.check(not has_test("tests/cpu/thread_pool.c", "pool_nosuch"),
          "a test that is not there is seen")
  t.check(not has_test("tests/nosuch.c", "x"), "a file that is not there is seen")
end)

t.test("a row has a test, points elsewhere or says why not", function()
  for _, row in ipairs(rows) do
    local text = table.concat(row, " ")
    t.check(row[3] ~= "" or text:find("see %d%.%d%d") or text:find("**not there", 1, true)
            or text:find("of one recipe", 1, true) or text:find("needs a GPU", 1, true),
            "%s says nothing", row.id)
    for id in text:gmatch("see (%d%.%d%d)") do
      t.check(table.concat(wanted, " "):find(id, 1, true), "%s: there is no %s", row.id, id)
    end
  end
end)

t.test("images of any size make a batch", function()
  local cases = {}
  for i, extents in ipairs { { 5, 7 }, { 9, 4 }, { 6, 6 } } do
    local path = string.format("%s/%d.npy", folder, i)
    seg.array.save(path, seg.array.random({ extents[1], extents[2] }, i))
    cases[i] = { key = "a" .. i, patient = "p" .. i, image = path }
  end
  local set = seg.data.cases { fields = { { name = "image", read = "npy", rank = 2 } },
                               cases = cases }
  local batch = t.first_batch(set:resize { h = 6, w = 8 }:batches { size = 3 })
  t.equal(table.concat(batch.image.shape, "x"), "3x1x6x8")
end)

t.test("a volume is read once, whatever is asked of it", function()
  local set = seg.data.phantom { format = "nifti", patients = 4, size = 16, slices = 6,
                                 root = folder .. "/once" }
  set = set:normalize {}:slices { axis = "axial" }:batches { size = 4, shuffle = true }
  -- how often two epochs prepare one of the four cases again
  local function again(bytes)
    local pipeline = set:pipeline { cache_bytes = bytes }
    local loader, opened = set:loader(pipeline, { workers = 2 }), pipeline:cache().made
    local batches = loader:batches()
    for _ = 1, 2 * batches do loader:next() end
    local made = pipeline:cache().made - opened
    loader:close()
    return made
  end
  t.equal(again(1 << 26), 0, "with a cache")
  t.check(again(1) > 4, "without one they are, many times")
end)

local brain = "scripts/brain_unet.lua --preset check --quiet --phantom " .. folder
  .. "/phantom --out " .. folder .. "/"

t.test("every third checkpoint, and the newest two of them", function()
  t.says(brain .. "kept --epochs 10 --save_every 3 --keep_last 2", 0, "")
  local list = t.lines("ls " .. folder .. "/kept/brain_unet/001 | grep safetensors")
  t.equal(table.concat(list, " "), "checkpoint_0006.safetensors checkpoint_0009.safetensors "
          .. "checkpoint_best.safetensors checkpoint_last.safetensors")
end)

t.test("a run outlives the terminal that it was started in", function()
  -- its code when SIGHUP comes in the middle, started behind these words
  local function code(before, name)
    return t.lines(string.format("sh -c '%s exec %s %s%s --epochs 12' > %s/said 2>&1 & p=$!; "
      .. "until [ -s %s/%s/brain_unet/001/metrics.csv ]; do sleep 0.02; done; kill -HUP $p; "
      .. "wait $p; echo $?",
      before, t.path(), brain, name, folder, folder, name))[1]
  end
  t.equal(code("", "told"), "129")
  t.equal(code('trap "" HUP;', "deaf"), "0", "its code below nohup")
end)

remove()
t.finish()
