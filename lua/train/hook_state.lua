-- hook_state.lua -- the table at.state of a recipe's hooks as text, for checkpoints.
--
--   { best = 0.5, seen = { 3, 4 } }   "{best=0x1p-1,seen={3,4}}" with keys written like values
--
-- Integers, floats (hexadecimal: the same bits), texts, booleans and tables of these, with texts or
-- numbers as keys. The text is ASCII and the same for equal tables. It is read by this file alone,
-- never run: a checkpoint may come from anybody.

local util = require "seg.util"

local fail = util.fail
local M = {}

local DEPTH = 32 -- tables in tables
local BYTES = 1 << 20 -- of the text: it is copied at every call and is part of every checkpoint

-- A text in quotes, in ASCII.
local function quoted(s)
  return '"' .. s:gsub('[%c"\\\x80-\xff]', function(c)
    return string.format("\\%02x", c:byte())
  end) .. '"'
end

local special = { [math.huge] = "inf", [-math.huge] = "-inf" }

local function number(v)
  if math.type(v) == "integer" then return string.format("%d", v) end
  return v ~= v and "nan" or special[v] or string.format("%a", v)
end

-- Numbers before texts, each in order.
local function before(a, b)
  if type(a) ~= type(b) then return type(a) == "number" end
  return a < b
end

local write_table

-- Appends the text of a value to `out`. where: its name for an error; seen: the tables so far.
local function write(v, where, out, seen, depth)
  local kind = type(v)
  if kind == "number" then
    out[#out + 1] = number(v)
  elseif kind == "string" then
    out[#out + 1] = quoted(v)
  elseif kind == "boolean" then
    out[#out + 1] = tostring(v)
  elseif kind == "table" then
    write_table(v, where, out, seen, depth)
  else
    error { why = string.format("%s is a %s, which a checkpoint cannot hold; it holds numbers, "
                                .. "texts, booleans and tables of these", where, kind) }
  end
end

function write_table(t, where, out, seen, depth)
  local function refuse(why) error { why = where .. why } end
  if depth > DEPTH then refuse(string.format(" is nested deeper than %d tables", DEPTH)) end
  if getmetatable(t) ~= nil then
    refuse " is a table with a metatable, which a checkpoint cannot hold"
  end
  if seen[t] then
    refuse(" is the same table as " .. seen[t] .. "; a resumed run would have two of them")
  end
  seen[t] = where
  local keys = {}
  for k in next, t do
    if type(k) ~= "string" and type(k) ~= "number" then
      refuse(" has a " .. type(k) .. " as a key, wanted texts or numbers")
    end
    keys[#keys + 1] = k
  end
  table.sort(keys, before)
  out[#out + 1] = "{"
  for i, k in ipairs(keys) do
    local name = type(k) == "string" and where .. "." .. k or string.format("%s[%s]", where, k)
    write(k, "", out, seen, depth)
    out[#out + 1] = "="
    write(rawget(t, k), name, out, seen, depth + 1)
    out[#out + 1] = i < #keys and "," or nil
  end
  out[#out + 1] = "}"
end

-- The text of a table, "" of an empty one; or nil and what cannot be saved.
function M.write(t)
  local out = {}
  local ok, why = pcall(write_table, t, "at.state", out, {}, 1)
  if not ok then return nil, type(why) == "table" and why.why or tostring(why) end
  local text = table.concat(out)
  if #text > BYTES then
    return nil, string.format("at.state takes %s in a checkpoint, wanted at most %s: keep large "
                              .. "data in a file", util.bytes(#text), util.bytes(BYTES))
  end
  return text == "{}" and "" or text
end

local words = { ["true"] = true, ["false"] = false, inf = math.huge, ["-inf"] = -math.huge,
                nan = 0 / 0 }

local function damaged()
  fail("data", "the checkpoint's state of hooks cannot be read: the file is damaged or was not "
       .. "written by this program; resume from another checkpoint of the run")
end

local read_table

-- The value that begins at `at` of the text, and the position after it.
local function read(text, at, depth)
  local first = text:sub(at, at)
  if first == "{" then return read_table(text, at + 1, depth + 1) end
  if first == '"' then
    local close = text:find('"', at + 1, true)
    if not close then damaged() end
    local plain = text:sub(at + 1, close - 1):gsub("\\(%x%x)", function(hex)
      return string.char(tonumber(hex, 16))
    end)
    return plain, close + 1
  end
  local word = text:match("^[%w.+-]+", at)
  if not word then damaged() end
  local v = words[word]
  if v == nil then v = tonumber(word) end
  if v == nil then damaged() end
  return v, at + #word
end

function read_table(text, at, depth)
  local t = {}
  if depth > DEPTH then damaged() end
  if text:sub(at, at) == "}" then return t, at + 1 end
  while true do
    local k, v
    k, at = read(text, at, depth)
    if type(k) ~= "string" and not (type(k) == "number" and k == k)
      or text:sub(at, at) ~= "=" then damaged() end
    v, at = read(text, at + 1, depth)
    t[k] = v
    local mark = text:sub(at, at)
    at = at + 1
    if mark == "}" then return t, at end
    if mark ~= "," then damaged() end
  end
end

-- The table of a text of M.write.
function M.read(text)
  if text == "" then return {} end
  local t, at = read(text, 1, 0)
  if type(t) ~= "table" or at ~= #text + 1 then damaged() end
  return t
end

return M
