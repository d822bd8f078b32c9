-- sandbox.lua -- the globals of a function that runs as a data step, in its own Lua state
-- (sandbox.c).
--
-- The result of such a function must depend only on its arguments. So it has no access to the
-- outside, no random numbers except rng, and no state between calls; and pairs has the same order
-- in every state, while Lua's own order depends on memory addresses.

local next, type, error, getmetatable = next, type, error, getmetatable
local setmetatable, sort, concat, raw = setmetatable, table.sort, table.concat, string.format
local pack, unpack, pcall, gmatch = table.pack, table.unpack, pcall, string.gmatch

-- Types of values that Lua's own tostring prints with their addresses.
local placed = { table = true, userdata = true, thread = true }
placed["function"] = true

-- tostring(v), but only the type for values that have an address.
local _tostring = tostring
local function tostring(v)
  local kind = type(v)
  return placed[kind] and kind or _tostring(v)
end

-- string.format with this tostring. %p is refused.
local function format(text, ...)
  local list, at = pack(...), 0
  if type(text) == "string" then
    for kind in gmatch(text, "%%[-+ #0-9.]*(.)") do
      if kind == "p" then error("format: %p would give an address, other in every run", 2) end
      if kind ~= "%" then
        at = at + 1
        if kind == "s" and placed[type(list[at])] then list[at] = tostring(list[at]) end
      end
    end
  end
  local ok, made = pcall(raw, text, unpack(list, 1, list.n))
  if not ok then error(made, 2) end -- reported at the line of the function
  return made
end

local function less(a, b) return a < b end

-- A stable table.sort. Lua's own uses the clock to choose pivots in long tables. This is a merge
-- sort: sorted runs of length `run` are merged in pairs from `from` into `to`.
local function stable(t, before)
  if type(t) ~= "table" then error("sort: table expected, got " .. type(t), 2) end
  if before ~= nil and type(before) ~= "function" then
    error("sort: function expected, got " .. type(before), 2)
  end
  local n, first = #t, type(t[1])
  for i = 1, before and 0 or n > 1 and n or 0 do
    local kind = type(t[i])
    if kind ~= first then error("sort: attempt to compare " .. kind .. " with " .. first, 2) end
    if kind ~= "number" and kind ~= "string" then
      error("sort: attempt to compare two " .. kind .. " values", 2)
    end
  end
  before = before or less
  local from, to, run = {}, {}, 1
  for i = 1, n do from[i] = t[i] end
  while run < n do
    for low = 1, n, 2 * run do
      local i, j = low, low + run
      local middle, last = j, low + 2 * run
      for k = low, (last <= n and last - 1 or n) do
        -- takes the right element first only if it is strictly smaller
        if i < middle and (j >= last or j > n or not before(from[j], from[i])) then
          to[k], i = from[i], i + 1
        else
          to[k], j = from[j], j + 1
        end
      end
    end
    from, to, run = to, from, 2 * run
  end
  for i = 1, n do t[i] = from[i] end
end

-- A read-only view of t; reading a missing name raises the error text missing(key).
local function closed(t, missing)
  setmetatable(t, { __index = function(_, key) error(missing(key), 2) end })
  return setmetatable({}, {
    __index = t,
    __newindex = function(_, key)
      error(string.format("%s is set outside of the function: the next case could depend on this "
                          .. "one; fix: local %s", tostring(key), tostring(key)), 2)
    end,
  })
end

-- Orders keys by type, then by value.
local function before(a, b)
  local x, y = type(a), type(b)
  if x ~= y then return x < y end
  if x == "boolean" then return a and not b end
  return a < b
end

-- pairs(t) in the order of keys.
local function ordered(t)
  local meta = getmetatable(t)
  if meta and meta.__pairs then return meta.__pairs(t) end
  local keys, at = {}, 0
  for key in next, t do
    local kind = type(key)
    if kind ~= "string" and kind ~= "number" and kind ~= "boolean" then
      error("pairs: a key is a " .. kind .. ", which has no order", 2)
    end
    keys[#keys + 1] = key
  end
  sort(keys, before)
  return function()
    at = at + 1
    local key = keys[at]
    if key ~= nil then return key, t[key] end
  end
end

local own = { string = { format = format }, table = { sort = stable } }
local env, names = { pairs = ordered, tostring = tostring }, { "pairs", "tostring" }
for _, name in ipairs { "assert", "error", "ipairs", "pcall", "rawequal", "rawlen", "select",
                        "tonumber", "type" } do
  env[name], names[#names + 1] = _G[name], name
end
for _, name in ipairs { "math", "string", "table", "utf8" } do
  local library = {}
  for key, value in next, _G[name] do library[key] = value end
  for key, value in next, own[name] or {} do library[key] = value end
  library.random, library.randomseed, library.dump = nil, nil, nil
  -- methods such as ("x"):rep are looked up there
  if name == "string" then getmetatable("").__index = library end
  env[name] = closed(library, function(key)
    if name == "math" and (key == "random" or key == "randomseed") then
      return "math." .. key .. " would give other numbers in every run; fix: rng:uniform(lo, hi), "
        .. "rng:normal(mean, sd) or rng:int(lo, hi) of a function of vary"
    end
    return string.format("there is no %s.%s", name, tostring(key))
  end)
  names[#names + 1] = name
end
sort(names)
local known = concat(names, ", ")
local globals = closed(env, function(key)
  return string.format("there is no global %s: the function runs by itself, in threads without "
                       .. "access to the script; it has its arguments and %s; fix: a local inside "
                       .. "it, or a constant", tostring(key), known)
end)

-- A case: read-only access to fields by name, iterated in their order.
local function case_of(fields, order)
  return setmetatable({}, {
    __index = fields,
    __newindex = function(_, key)
      error(string.format("case.%s is not assigned; its methods change a field, as "
                          .. "case.%s:fill(0)", tostring(key), tostring(key)), 2)
    end,
    __pairs = function()
      local at = 0
      return function()
        at = at + 1
        if order[at] then return order[at], fields[order[at]] end
      end
    end,
  })
end

return globals, case_of
