-- json.lua -- reads JSON (RFC 8259).
--
-- Objects become tables by name, arrays lists, null nil. A byte order mark at the start is skipped
-- (RFC 8259, 8.1, allows this). Invalid JSON is an error (kind data) with the position in the text.

local util = require "seg.util"

local M = {}

local escapes = { ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n",
                  r = "\r", t = "\t" }
local words = { ["true"] = true, ["false"] = false }

local DEPTH = 64 -- of nesting; a deeper file describes no data set

-- The value of a text; `name` is the prefix of errors.
function M.decode(text, name)
  local at, value = 1, nil

  local function wrong(what)
    local _, line = text:sub(1, at - 1):gsub("\n", "")
    util.fail("data", "%s: json: line %d, byte %d: %s", name, line + 1, at, what)
  end

  local function space()
    at = text:find("[^ \t\r\n]", at) or #text + 1
  end

  -- The character of an escape sequence; its backslash is at `at`.
  local function escaped()
    local c = text:sub(at + 1, at + 1)
    if escapes[c] then
      at = at + 2
      return escapes[c]
    end
    local hex = text:match("^u(%x%x%x%x)", at + 1)
    if not hex then wrong("a backslash before a character that needs none") end
    local code = tonumber(hex, 16)
    at = at + 6
    local low = text:match("^\\u([dD][c-fC-F]%x%x)", at)
    if code >= 0xD800 and code < 0xDC00 and low then
      code = 0x10000 + ((code - 0xD800) << 10) + tonumber(low, 16) - 0xDC00
      at = at + 6
    elseif code >= 0xD800 and code < 0xE000 then
      wrong("half of a character")
    end
    return utf8.char(code)
  end

  local function quoted()
    local parts = {}
    at = at + 1
    while true do
      local stop = text:find('["\\%c]', at)
      if not stop then wrong("a text without its end") end
      parts[#parts + 1] = text:sub(at, stop - 1)
      at = stop
      local c = text:sub(at, at)
      if c == '"' then
        at = at + 1
        return table.concat(parts)
      elseif c ~= "\\" then
        wrong("a control character in a text")
      end
      parts[#parts + 1] = escaped()
    end
  end

  local function number()
    local digits = text:match("^%-?%d+%.?%d*[eE]?[+-]?%d*", at)
    local v = digits and tonumber(digits)
    if not v or digits:match("^%-?0%d") or digits:match("%.$") or digits:match("%.[eE]") then
      wrong("not a number")
    end
    if v - v ~= 0 then wrong("a number that is too large") end
    at = at + #digits
    -- Lua's integer 0 has no sign, its float has
    return digits == "-0" and -0.0 or v
  end

  -- Reads the elements between brackets: each(list) reads one.
  local function several(close, each)
    local list = {}
    at = at + 1
    space()
    if text:sub(at, at) == close then
      at = at + 1
      return list
    end
    while true do
      each(list)
      space()
      local c = text:sub(at, at)
      if c ~= "," and c ~= close then wrong(string.format('expected "," or "%s"', close)) end
      at = at + 1
      if c == close then return list end
      space()
    end
  end

  local function member(depth)
    return function(list)
      if text:sub(at, at) ~= '"' then wrong("expected a name in quotes") end
      local key = quoted()
      space()
      if text:sub(at, at) ~= ":" then wrong('expected ":"') end
      if list[key] ~= nil then wrong(string.format('"%s" twice', key)) end
      at = at + 1
      space()
      list[key] = value(depth + 1)
    end
  end

  function value(depth)
    if depth > DEPTH then wrong("nested too deeply") end
    local c = text:sub(at, at)
    if c == "{" then return several("}", member(depth)) end
    if c == "[" then
      return several("]", function(list) list[#list + 1] = value(depth + 1) end)
    end
    if c == '"' then return quoted() end
    local word = text:match("^%a+", at)
    if word == "null" or words[word] ~= nil then
      at = at + #word
      return words[word]
    end
    return number()
  end

  -- the byte order mark of UTF-8 is skipped; that of UTF-16 is an error
  if text:sub(1, 3) == "\xef\xbb\xbf" then at = 4 end
  if text:find("^\xff\xfe") or text:find("^\xfe\xff") then
    util.fail("data", "%s: json: the text is UTF-16, want UTF-8; fix: save it as UTF-8", name)
  end
  space()
  local v = value(1)
  space()
  if at <= #text then wrong("text after the end") end
  return v
end

-- Raises (kind data) unless v has the shape `shape`; `name` is the prefix of the reason. A shape is
-- "string", "number", "boolean" or "table", followed by "?" if nil is allowed; { shape }: all
-- elements or members; { name = shape }: these members. Other members are allowed if `free` is
-- among the names.
function M.check(v, shape, name)
  local kind, free
  if type(shape) == "string" then
    kind, free = shape:match("^(%l+)(%??)$")
    free = free == "?"
  else
    kind, free = "table", shape.free
  end
  if v == nil and free then return end
  if type(v) ~= kind then
    util.fail("data", "%s is %s, want a %s; it was changed, or another program wrote it", name,
              v == nil and "missing" or "a " .. type(v), kind)
  end
  if type(shape) == "string" then return end
  for key, one in pairs(shape) do
    if key == 1 then
      for k, e in pairs(v) do M.check(e, one, name .. ": " .. tostring(k)) end
    elseif key ~= "free" then
      M.check(v[key], one, name .. ": " .. key)
    end
  end
end

return M
