-- functions.lua -- functions of a recipe that run as data steps: change and vary.
--
-- Steps are text, in checkpoints and in cache keys, so a function appears there as two numbers: a
-- hash of its source without comments and line breaks, and a hash of its constants. Loader threads
-- run it in their own Lua states (lua/bind/sandbox.c), so it must not use anything outside itself.

local core = require "seg.core"
local util = require "seg.util"

local fail = util.fail
local M = {}

-- Source text ---------------------------------------------------------------

-- The names, numbers, strings and operators of a Lua text, each { text, from, to, line }, without
-- blanks and comments.
local function tokens(text)
  local list, at, line = {}, 1, 1
  local function long(from) -- the end of [[ ]] or [=[ ]=] at `from`, if there is one
    local level = text:match("^%[(=*)%[", from)
    if not level then return nil end
    local _, to = text:find("]" .. level .. "]", from + 2 + #level, true)
    return to or #text
  end
  local function quoted(from) -- the end of the string with its opening quote at `from`
    local quote, to = text:sub(from, from), from + 1
    while to < #text and text:sub(to, to) ~= quote do
      to = to + (text:sub(to, to) == "\\" and 2 or 1)
    end
    return to
  end
  while at <= #text do
    local to, word = at, true
    if text:find("^%s", at) then
      word = false
    elseif text:find("^%-%-", at) then
      to, word = long(at + 2) or (text:find("\n", at, true) or #text + 1) - 1, false
    else
      to = long(at) or text:find("^[\"']", at) and quoted(at)
        or select(2, text:find("^[%a_][%w_]*", at))
        or select(2, text:find("^%.?%d[%w.]*", at)) or to
    end
    if word then list[#list + 1] = { text = text:sub(at, to), from = at, to = to, line = line } end
    line = line + select(2, text:sub(at, to):gsub("\n", ""))
    at = to + 1
  end
  return list
end

-- The index of the end of the function that begins with the word function at list[i].
local function end_of(list, i)
  local depth = 0
  for k = i, #list do
    local word = list[k].text
    if word == "function" or word == "do" or word == "if" then
      depth = depth + 1
    elseif word == "end" then
      depth = depth - 1
      if depth == 0 then return k end
    end
  end
end

-- The bytecode of a function without names and lines, and the byte positions that depend on how it
-- reaches its globals: at the top level, or through an enclosing function. These bytes differ
-- between two places with the same text. nil for a text that does not compile alone. line: the line
-- of its first word.
local function program_of(text, line)
  local before, dumps = ("\n"):rep(line - 1), {}
  for i, around in ipairs { "return function", "local _, _ENV = nil, _ENV return function" } do
    local make = load(before .. around .. text, "=text", "t")
    if not make then return nil end
    dumps[i] = string.dump(make(), true)
  end
  local places = {}
  for i = 1, #dumps[1] do
    if dumps[1]:byte(i) ~= dumps[2]:byte(i) then places[#places + 1] = i end
  end
  return dumps[1], places
end

-- Whether a and b are equal except for the bytes at `places`, which are sorted.
local function same(a, b, places)
  if #a ~= #b then return false end
  local from = 1
  for _, place in ipairs(places) do
    if a:sub(from, place - 1) ~= b:sub(from, place - 1) then return false end
    from = place + 1
  end
  return a:sub(from) == b:sub(from)
end

-- The source text of f, found by its lines in the script; raises if it is not found. A candidate is
-- accepted if it compiles to the same bytecode: with several functions on one line, or a local
-- <const> outside, the lines are ambiguous.
local function text_of(what, f, info, where)
  local source = info.source
  if source:sub(1, 1) == "@" then source = util.read_file(source:sub(2)) end
  local list, program, found, words = tokens(source), string.dump(f, true), 0, nil
  for i, token in ipairs(list) do
    local to = token.text == "function" and end_of(list, i)
    if to and list[to].line == info.lastlinedefined then
      local from = i + 1
      while list[from].text ~= "(" do from = from + 1 end -- after a name
      if list[from].line == info.linedefined then
        found = found + 1
        local text = source:sub(list[from].from, list[to].to)
        local candidate, places = program_of(text, info.linedefined)
        if candidate and same(program, candidate, places) then
          local here = {}
          for k = from, to do here[#here + 1] = list[k].text end
          here = table.concat(here, " ")
          -- its steps would have the hash of the other
          if words and words ~= here then
            fail("usage", "%s: at %s there are two functions with the same bytecode and different "
                 .. "text; fix: write them on lines of their own", what, where)
          end
          words = here
        end
      end
    end
  end
  if words then return words end
  if found == 0 then
    fail("usage", "%s: the text of the function is not at %s any more; fix: start again, and leave "
         .. "the script as it is until the data are open", what, where)
  end
  fail("usage", "%s: the function at %s uses a local <const> from outside itself; fix: declare it "
       .. "inside, or pass it as a constant: %s", what, where, M.example(what))
end

-- Constants -------------------------------------------------------------------

-- v as Lua text that evaluates to v; keys are sorted.
local function literal(what, v, path, depth)
  local kind = type(v)
  if kind == "number" or kind == "string" or kind == "boolean" then
    return string.format("%q", v)
  end
  if kind ~= "table" then
    fail("usage", "%s: constant %s is a %s; constants are numbers, texts, truth values and tables "
         .. "of these", what, path, kind)
  end
  if depth > 8 then
    fail("usage", "%s: constant %s: tables in tables, more than 8 deep; fix: fewer, and none that "
         .. "is part of itself", what, path)
  end
  local parts = {}
  for _, key in ipairs(util.sorted_keys(v)) do
    local at = path .. "." .. tostring(key)
    if type(key) ~= "string" and math.type(key) ~= "integer" then
      fail("usage", "%s: constant %s: a key is a %s, wanted names or whole numbers", what, path,
           math.type(key) or type(key))
    end
    parts[#parts + 1] = string.format("[%q]=%s", key, literal(what, v[key], at, depth + 1))
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

-- Functions -------------------------------------------------------------------

-- An example of a call with constants, for errors.
function M.example(what)
  return what == "vary" and "vary = { function(case, rng, constants) ... end, k = 3 }"
    or "change(function(case, constants) ... end, { k = 3 })"
end

-- 48 bits of the hash of a text, as a number that a step can hold, never 0.
local function hash(text)
  return tonumber(core.keyed_hash("segengine-steps:", text):sub(1, 12), 16) | 1
end

local known = {} -- functions that this script has made steps of, in order

-- Raises if f uses a variable from outside itself.
local function check_inside(what, f, where)
  for i = 1, math.huge do
    local name, value = debug.getupvalue(f, i)
    if not name then break end
    if name ~= "_ENV" then
      fail("usage", "%s: the function at %s uses \"%s\" from outside itself, but runs by itself, "
           .. "in threads without access to the script; fix: declare it inside, or pass numbers "
           .. "and texts as constants: %s", what, where, name, M.example(what))
    end
    if value ~= _G then
      fail("usage", "%s: the function at %s has globals of its own; fix: a function without a "
           .. "local _ENV", what, where)
    end
  end
end

-- The attributes of a step `what` ("change" or "vary") that calls f with these constants. The
-- function is remembered for the pipelines that will call it.
function M.step(what, f, constants)
  if type(f) ~= "function" then
    fail("usage", "%s: wanted a function, got %s; as in %s", what, type(f), M.example(what))
  end
  if constants ~= nil and type(constants) ~= "table" then
    fail("usage", "%s: constants must be a table, got %s; as in %s", what, type(constants),
         M.example(what))
  end
  local info = debug.getinfo(f, "S")
  if info.what == "C" or info.source:sub(1, 1) == "=" then
    fail("usage", "%s: the function must be written in the script, not built into the program",
         what)
  end
  local one = { what = what, where = info.short_src .. ":" .. info.linedefined }
  check_inside(what, f, one.where)
  one.code = hash(text_of(what, f, info, one.where))
  one.constants = constants and next(constants) ~= nil and literal(what, constants, what, 1) or nil
  one.with = one.constants and hash(one.constants) or 0
  one.bytecode = string.dump(f)
  known[#known + 1] = one
  return { code = one.code, with = one.with }
end

-- The functions that the steps in a text name. Raises if the text is from weights that were trained
-- with a function that this script does not have.
function M.of(text)
  local list = {}
  for what, code, with in ("\n" .. text):gmatch("\n(%l+) code=(%d+) with=(%d+)") do
    local found, near
    for _, one in ipairs(known) do
      if one.what == what then
        local same_text = one.code == tonumber(code)
        if same_text and one.with == tonumber(with) then found = one end
        -- the closest function, which the error names
        if not near or same_text then near = { one, same_text } end
      end
    end
    if not found and not near then
      fail("usage", "the weights were trained with a function of %s, which this script does not "
           .. "have; fix: restore the function in the script, or train again", what)
    elseif not found then
      fail("usage", "%s of %s at %s %s not %s that the weights were trained with; fix: restore the "
           .. "script, or train again", near[2] and "the constants" or
           "the function", what, near[1].where, near[2] and "are" or "is",
           near[2] and "those" or "the one")
    end
    list[#list + 1] = found
  end
  return list
end

return M
