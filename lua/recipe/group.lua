-- group.lua -- parameter groups of an optimiser with their own learning rate and decay.
--
--   groups = { { match = "bias$", decay = 0 }, { match = "^enc", lr_scale = 0.1 } }
--
-- `match` is a Lua pattern for names of parameters; the first group that matches counts. lr_scale
-- is a factor on the learning rate of every step. It may be a function of the pattern's captures,
-- to set it by layer:
--
--   { match = "^enc(%d+)", lr_scale = function(n) return 0.8 ^ (5 - n) end }
--
-- decay_on = "weights" excludes parameters with one axis from decay: biases, and scale and shift of
-- norms; an explicit decay of a group takes precedence.

local util = require "seg.util"

local fail = util.fail
local M = {}

local known = { match = util.none, lr_scale = util.none, decay = util.none }

local function is_number(v) return math.type(v) and v >= 0 and v < math.huge end

-- Checks the options of an optimiser that concern groups.
function M.check(what, o)
  if o.decay_on ~= "all" and o.decay_on ~= "weights" then
    fail("usage", "%s: decay_on: %s", what,
         util.suggest(tostring(o.decay_on), { "all", "weights" }))
  end
  if o.groups ~= nil and type(o.groups) ~= "table" then
    fail("usage", "%s: groups must be a list of { match = pattern, ... }, got %s", what,
         type(o.groups))
  end
  for i, g in ipairs(o.groups or {}) do
    local where = string.format("%s: groups[%d]", what, i)
    g = util.options(where, g, known)
    if type(g.match) ~= "string" or not pcall(string.find, "", g.match) then
      fail("usage", "%s: match must be a Lua pattern, got %s", where, tostring(g.match))
    end
    if g.lr_scale == nil and g.decay == nil then
      fail("usage", "%s: give lr_scale or decay; a group needs one of the two", where)
    end
    if g.decay ~= nil and not is_number(g.decay) then
      fail("usage", "%s: decay must be a number >= 0, got %s", where, tostring(g.decay))
    end
    if g.lr_scale ~= nil and type(g.lr_scale) ~= "function" and not is_number(g.lr_scale) then
      fail("usage", "%s: lr_scale must be a number >= 0 or a function, got %s", where,
           tostring(g.lr_scale))
    end
  end
end

-- Raises the error for a pattern that matches no name, with similar names, or parts of names
-- between dots.
local function refuse(i, pattern, names)
  local parts, list = {}, {}
  for _, name in ipairs(names) do
    for from in name:gmatch("()[^.]+") do
      for to in name:gmatch("[^.]()%f[.\0]") do
        if to > from then parts[name:sub(from, to - 1)] = true end
      end
    end
  end
  for part in pairs(parts) do list[#list + 1] = part end
  table.sort(list)
  local plain = pattern:gsub("%%%.", "."):gsub("[%^%$%%%[%]%(%)%*%+%?]", "")
  local near = util.nearest(plain, list)
  fail("usage", 'groups[%d]: no trained parameter matches "%s"; %sthe names are %s', i, pattern,
       near and 'did you mean "' .. near .. '"? ' or "",
       util.first_of(names, 8))
end

-- The first group that matches a name, and the captures of its pattern.
local function find(groups, name)
  for i, g in ipairs(groups) do
    local found = table.pack(name:match(g.match))
    if found[1] then return i, found end
  end
end

-- Sets the groups of an optimiser in a session, before its first step.
function M.apply(session, o)
  local groups, used, names = o.groups or {}, {}, {}
  for _, p in ipairs(session:params()) do
    if p.trained then
      names[#names + 1] = p.name
      local i, found = find(groups, p.name)
      local g = i and groups[i] or {}
      local scale, decay = g.lr_scale or 1, g.decay
      if type(scale) == "function" then
        scale = scale(table.unpack(found, 1, found.n))
        if not is_number(scale) then
          fail("usage", "groups[%d]: lr_scale of %s is %s, wanted a number >= 0", i, p.name,
               tostring(scale))
        end
      end
      if not decay and o.decay_on == "weights" and #p.shape < 2 then decay = 0 end
      if i then used[i] = true end
      session:group(p.name, scale, decay)
    end
  end
  for i, g in ipairs(groups) do
    local other
    for _, name in ipairs(names) do other = other or name:find(g.match) and name end
    if not other then refuse(i, g.match, names) end
    if not used[i] then
      fail("usage", 'groups[%d]: every parameter that "%s" matches, such as %s, belongs to an '
           .. 'earlier group', i,
           g.match, other)
    end
  end
end

return M
