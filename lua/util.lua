-- util.lua -- helpers for all modules: errors, options, text.

local aliases = require "seg.aliases"
local core = require "seg.core"

local M = {}

-- trained_on in weights that were trained on the phantom.
M.SYNTHETIC = "synthetic patients"

-- Raises an error of a kind ("usage", "data", "device", "diverged", "failure"); the recipe's line
-- is the prefix and the kind decides the exit code.
function M.fail(kind, fmt, ...)
  core.sys.raise(kind, string.format(fmt, ...))
end

-- The same for a mistake on the command line: the recipe's line is irrelevant, so the message
-- begins with the option instead.
function M.refuse(fmt, ...)
  core.sys.raise("usage", string.format(fmt, ...), true)
end

-- The text of an error without its fix, for a caller with a better one.
function M.without_fix(why)
  return (tostring(why):gsub("; fix: .*$", ""))
end

-- Whether v is a node of the network.
function M.is_node(v)
  return type(v) == "userdata" and getmetatable(v).__name == "seg.node"
end

-- Checks the operands of a loss or a metric. Two mistakes would train without an error:
-- probabilities in place of logits, which apply the sigmoid twice, and swapped prediction and
-- target.
function M.check_pair(what, x, target, logits)
  if not M.is_node(target) then
    M.fail("usage", "%s: the target must be a node of the network, got %s", what, type(target))
  end
  if logits and (x.kind == "sigmoid" or x.kind == "softmax") then
    M.fail("usage", "%s takes logits and does the %s itself; leave nn.%s out of its operand (keep "
           .. "it for outputs = {...})", what, x.kind, x.kind)
  end
  if x.kind == "input" and target.kind ~= "input" and target.kind ~= "param" then
    M.fail("usage", '%s: the operands are (prediction, target); the first is the input "%s" and '
           .. "the second is computed, so they are swapped", what, x.name)
  end
end

-- The number of letters to change, add or drop, and of neighbours to swap, to turn a into b
-- (optimal string alignment); row[j] is the distance of a[1..i] to b[1..j].
local function distance(a, b)
  local row, last = {}, nil
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local before = last
    last, row = row, { [0] = i }
    for j = 1, #b do
      local change = last[j - 1] + (a:byte(i) == b:byte(j) and 0 or 1)
      row[j] = math.min(last[j] + 1, row[j - 1] + 1, change)
      if before and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        row[j] = math.min(row[j], before[j - 2] + 1)
      end
    end
  end
  return row[#b]
end

-- The name in the list that is closest to `name`, nil if none is close, and their distance: a third
-- of the letters may differ. A name that begins with `name` is closer than any that differs; case
-- is ignored.
function M.nearest(name, names)
  local best, least = nil, math.max(1, (#name + 1) // 3) + 1
  name = name:lower()
  for _, candidate in ipairs(names) do
    local other = candidate:lower()
    local begins = #name > 2 and other:sub(1, #name) == name
    -- of several such names, the shortest
    local d = begins and 1 - 1 / (1 + #other - #name) or distance(name, other)
    if d < least then best, least = candidate, d end
  end
  return best, least
end

function M.sorted_keys(t)
  local keys = {}
  for k in pairs(t) do keys[#keys + 1] = k end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  return keys
end

-- "did you mean "x"? (known: ...)" for a message about `name`.
function M.suggest(name, names)
  local near = M.nearest(tostring(name), names)
  local known = "known: " .. table.concat(names, ", ")
  return near and string.format('did you mean "%s"? (%s)', near, known) or known
end

-- Wraps function `name` of the public table t so that it refuses the table itself as its first
-- argument, which a colon in place of a dot would pass.
function M.dotted(what, name, t, f)
  return function(...)
    if rawequal((...), t) then
      M.fail("usage", "%s:%s { ... }: write a dot, %s.%s { ... }", what, name, what, name)
    end
    return f(...)
  end
end

-- Makes reading a missing name of a public table an error that lists its names: a misspelt nn.dice
-- is an error, not nil. Functions written in Lua are wrapped by M.dotted; functions written in C
-- check their arguments themselves.
function M.closed(what, t)
  for name, f in pairs(t) do
    if type(f) == "function" and debug.getinfo(f, "S").what ~= "C" then
      t[name] = M.dotted(what, name, t, f)
    end
  end
  local meta = getmetatable(t) or {}
  meta.__index = function(_, key)
    local hint = aliases.hint(what .. "." .. tostring(key))
    M.fail("usage", "%s.%s: there is no such function; %s", what, tostring(key),
           hint or M.suggest(key, M.sorted_keys(t)))
  end
  return setmetatable(t, meta)
end

-- A copy of the options `o` with defaults filled in. `known` maps each key to its default;
-- util.none marks a key without one. An unknown key is an error.
M.none = setmetatable({}, { __tostring = function() return "none" end })

function M.options(what, o, known)
  if o ~= nil and type(o) ~= "table" then
    M.fail("usage", "%s: options must be a table {...}, got %s", what, M.is_node(o)
           and "a node; fix: of several results, as of seg.sort, (f(x)) is the first" or type(o))
  end
  local out = {}
  for k, v in pairs(known) do
    if v ~= M.none then out[k] = v end
  end
  for k, v in pairs(o or {}) do
    if known[k] == nil then
      M.fail("usage", '%s: unknown option "%s"; %s', what, tostring(k),
             M.suggest(k, M.sorted_keys(known)))
    end
    out[k] = v
  end
  return out
end

-- "1 file", "2 files", "2 studies".
function M.plural(n, one, many)
  return string.format("%d %s", n, n == 1 and one or many or one .. "s")
end

-- The first `count` texts of a list, for a message: "a, b, ...".
function M.first_of(list, count)
  return table.concat(list, ", ", 1, math.min(#list, count)) .. (#list > count and ", ..." or "")
end

-- The attributes of a step, as text, in the text of the steps of a set, a step a line; nil without
-- the step.
function M.step(steps, name)
  return ("\n" .. steps):match("\n" .. name .. " ([^\n]*)")
end

-- Whether these steps normalise a case by numbers of all cases of its patient.
function M.per_patient(steps)
  return ("\n" .. steps):find("\nnormalize [^\n]*per=patient") ~= nil
end

-- 12345678 -> "12,345,678"
function M.thousands(n)
  local digits = string.format("%d", n)
  local grouped = digits:reverse():gsub("(%d%d%d)", "%1,"):reverse()
  return (grouped:gsub("^(%-?),", "%1"))
end

-- A number of bytes as text: "731.2 MiB".
function M.bytes(n)
  local unit = { "B", "KiB", "MiB", "GiB", "TiB" }
  local i = 1
  while n >= 1024 and i < #unit do n, i = n / 1024, i + 1 end
  return i == 1 and string.format("%d B", n) or string.format("%.1f %s", n, unit[i])
end

-- The number of bytes in a text: 512M, 1.5G, "2 GiB" (binary units), 15GB (decimal), or a plain
-- number; nil for any other text.
function M.bytes_of(text)
  local number, unit = tostring(text):match("^%s*([%d.]+)%s*(%a*)%s*$")
  local letter, rest = (unit or ""):upper():match("^([KMGT]?)(I?B?)$")
  local power = letter and ({ [""] = 0, K = 1, M = 2, G = 3, T = 4 })[letter]
  if not tonumber(number) or not power or (power == 0 and rest == "IB") or rest == "I" then
    return nil
  end
  local bytes = tonumber(number) * (rest == "B" and 1000 or 1024) ^ power
  return bytes >= 1 and bytes < 2 ^ 62 and math.floor(bytes) or nil
end

-- Seconds as text: "4.2 s", "3 min 05 s", "2 h 10 min".
function M.duration(s)
  if s < 59.95 then return string.format("%.1f s", s) end
  s = math.floor(s + 0.5)
  if s < 3600 then return string.format("%d min %02d s", s // 60, s % 60) end
  return string.format("%d h %02d min", s // 3600, s % 3600 // 60)
end

-- A number as short text that reads back to the same bits.
function M.number(v)
  if math.type(v) == "integer" then return tostring(v) end
  if v ~= v then return "nan" end
  if v == math.huge then return "inf" end
  if v == -math.huge then return "-inf" end
  for digits = 6, 17 do
    local s = string.format("%." .. digits .. "g", v)
    if tonumber(s) == v then return s end
  end
end

-- A measured value with four digits, "-" for NaN.
function M.fixed(v)
  return v == v and string.format("%.4f", v) or "-"
end

local escapes = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

local function json_string(s)
  return '"' .. s:gsub('[%c"\\]', function(c)
    return escapes[c] or string.format("\\u%04x", c:byte())
  end) .. '"'
end

local list_meta = { __name = "a list" }

-- Marks a table as a JSON list, which matters if it is empty.
function M.list(t) return setmetatable(t, list_meta) end

-- A Lua value as JSON; tables with [1] are arrays, keys are sorted. Numbers that JSON does not have
-- (nan, inf) become null.
function M.json(v, indent)
  indent = indent or ""
  local kind = type(v)
  if kind == "string" then return json_string(v) end
  if kind == "number" then
    return (v ~= v or v == math.huge or v == -math.huge) and "null" or M.number(v)
  end
  if kind ~= "table" then return tostring(v) end
  local inner, rows = indent .. "  ", {}
  if getmetatable(v) == list_meta and v[1] == nil then return "[]" end
  if v[1] ~= nil then
    for i, e in ipairs(v) do rows[i] = inner .. M.json(e, inner) end
    return "[\n" .. table.concat(rows, ",\n") .. "\n" .. indent .. "]"
  end
  for _, k in ipairs(M.sorted_keys(v)) do
    rows[#rows + 1] = inner .. json_string(tostring(k)) .. ": " .. M.json(v[k], inner)
  end
  if #rows == 0 then return "{}" end
  return "{\n" .. table.concat(rows, ",\n") .. "\n" .. indent .. "}"
end

-- Opens a file to read. A pipe, which would wait for its writer, only if `any` is set.
function M.open_file(path, any)
  local there = core.sys.stat(path)
  if there and there.kind == "other" and not any then
    M.fail("data", "%s is not a regular file", path)
  end
  local f, why = io.open(path, "rb")
  if not f then M.fail("data", "%s", why) end
  return f
end

function M.read_file(path, any)
  local f = M.open_file(path, any)
  local text, why = f:read("a") -- a folder can be opened, but not read
  f:close()
  if not text then M.fail("data", "%s: %s", path, why) end
  return text
end

-- The first line of a file, nil without one: for files of Linux about the machine.
function M.first_line(path)
  local f = io.open(path)
  local text = f and f:read "l"
  if f then f:close() end
  return text
end

function M.exists(path)
  return core.sys.stat(path) ~= nil
end

-- Whether a data set ignores a file or folder of this name: hidden ones, and those of an operating
-- system or office program ("._1.png", "Thumbs.db", "~$table.csv").
function M.passed_over(name)
  return name:sub(1, 1) == "." or core.sys.of_system(name)
end

local said = {} -- notes; the parts of a set list the same folder

-- Prints that ignored files have names like wanted files: "._1.png" of macOS next to 1.png. names:
-- of the ignored files.
function M.say_passed_over(root, names)
  if #names == 0 then return end
  table.sort(names)
  local text = string.format(
    "note: %s: left out %s of macOS, Windows or an office program, or hidden: %s", root,
    M.plural(#names, "file"), M.first_of(names, 3))
  if not said[text] then require("seg.show").aside("%s", text) end
  said[text] = true
end

-- The names in a folder, sorted, without ignored ones; an ignored name is reported if wanted(name)
-- accepts it without its prefix. `wanted` may be nil: nothing is reported.
function M.names_in(folder, wanted)
  local found, left = {}, {}
  for _, name in ipairs(core.sys.list(folder)) do
    if not M.passed_over(name) then
      found[#found + 1] = name
    elseif wanted and wanted((name:gsub("^[.~][_$]?", ""))) then
      left[#left + 1] = name
    end
  end
  M.say_passed_over(folder, left)
  return found
end

-- The files below a folder for which wanted(path) is true, as relative paths, sorted. Files of
-- passed_over() are left out, with a note on those with names like wanted files, unless `quiet`. A
-- folder that cannot be opened is an error; with `unread`, a list, it is added there in the form of
-- ds:left_out(), and the others are read.
function M.files_below(root, wanted, quiet, unread)
  local found, left = {}, {}
  local above = {} -- parent folders, by id: links may form a cycle
  local function walk(folder, below, depth)
    local at = core.sys.stat(folder)
    if not at or above[at.id] then return end
    local ok, names = pcall(core.sys.list, folder)
    if not ok then
      if depth == 0 or not unread or core.sys.kind(names) ~= "data" then error(names, 0) end
      unread[#unread + 1] = { kind = "damaged", path = folder, why = tostring(names) }
      return
    end
    above[at.id] = true
    for _, name in ipairs(names) do
      local path, over = below .. name, M.passed_over(name)
      local stat = core.sys.stat(root .. "/" .. path)
      local kind = stat and stat.kind
      if kind == "folder" and not over and depth < 16 then
        walk(root .. "/" .. path, path .. "/", depth + 1)
      elseif kind == "file" and over then
        if wanted(below .. name:gsub("^[.~][_$]?", "")) then left[#left + 1] = path end
      elseif kind == "file" and wanted(path) then
        found[#found + 1] = path
      end
    end
    above[at.id] = nil
  end
  walk(root, "", 0)
  if not quiet then M.say_passed_over(root, left) end
  table.sort(found)
  return found
end

-- The path of a folder without trailing slashes; made absolute if it ends in "." or "..", which do
-- not name it.
function M.by_name(path)
  path = path:gsub("(.)/+$", "%1")
  local last = path:match("[^/]*$")
  return (last == "." or last == "..") and core.sys.real(path) or path
end

-- The part after the last slash, without the extension.
function M.stem(path)
  return (path:match("([^/]+)/*$") or path):gsub("%.[^.]*$", "")
end

-- `text` with only letters, digits, '.', '_' and '-', and "_" for each other byte: for names of
-- files and columns. Letters beyond ASCII are kept if the text is UTF-8, so that names that differ
-- in such letters stay distinct; blanks, direction marks and control characters are replaced.
function M.plain_name(text)
  if not utf8.len(text) then return (text:gsub("[^%w._-]", "_")) end
  text = text:gsub(utf8.charpattern, function(letter)
    local code = utf8.codepoint(letter)
    local blank = code >= 0x80 and code <= 0xA0 or code >= 0x2000 and code <= 0x206F
                  or code == 0x3000 or code == 0xFEFF
    return blank and "_" or nil
  end)
  return (text:gsub("[^%w._\x80-\xFF-]", "_"))
end

-- The product of numbers, for example of the extents of an array.
function M.product(list)
  local n = 1
  for _, v in ipairs(list) do n = n * v end
  return n
end

function M.mean(list)
  local sum = 0
  for _, v in ipairs(list) do sum = sum + v end
  return #list > 0 and sum / #list or 0 / 0
end

function M.median(list)
  if #list == 0 then return 0 / 0 end
  local s = table.move(list, 1, #list, 1, {})
  table.sort(s)
  local m = #s // 2
  return #s % 2 == 1 and s[m + 1] or (s[m] + s[m + 1]) / 2
end

return M
