-- sandbox.lua -- the globals of a function that runs as a data step, in a state
-- of its own (sandbox.c).
--
-- What a function does must be decided by its arguments. So there is nothing to
-- reach the outside with, no random numbers but those of rng, nothing that stays
-- from one call to the next, and pairs has an order that is the same in every
-- state: Lua's own depends on where a state lies in memory.

local next, type, error, getmetatable = next, type, error, getmetatable
local setmetatable, sort, tostring, concat = setmetatable, table.sort, tostring, table.concat

-- A view of t that cannot be changed, in which a name that is missing is an error
-- that missing(key) words.
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

-- Keys by type, then by value.
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

local env, names = { pairs = ordered }, { "pairs" }
for _, name in ipairs { "assert", "error", "ipairs", "pcall", "rawequal", "rawlen", "select",
                        "tonumber", "tostring", "type" } do
  env[name], names[#names + 1] = _G[name], name
end
for _, name in ipairs { "math", "string", "table", "utf8" } do
  local library = {}
  for key, value in next, _G[name] do library[key] = value end
  library.random, library.randomseed, library.dump = nil, nil, nil
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
  return string.format("there is no global %s: the function runs by itself, in threads that have "
                       .. "nothing of the script; it has its arguments and %s; fix: a local "
                       .. "inside it, or a constant", tostring(key), known)
end)

-- Fields by name, in their order, as a case that keeps its fields.
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
