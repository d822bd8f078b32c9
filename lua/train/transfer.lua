-- transfer.lua -- loads the weights of a file into a network that differs from the network they
-- were trained in.
--
--   init = { weights = FILE, match = "^enc", rename = { { "^encoder%.", "enc." } } }
--
-- The names of the file are renamed first: by a function, or by pairs of a Lua pattern and its
-- replacement, applied in order. Then file and network must have the same names that `match`, with
-- the same shapes; mismatches are listed for both sides. Without `match` this concerns every name.

local core = require "seg.core"
local show = require "seg.show"
local util = require "seg.util"

local fail = util.fail
local M = {}

local LINE = 96 -- characters in a line of names

-- Checks `init` of a recipe.
function M.check(o)
  if o == nil then return end
  util.options("seg.recipe: init", o, { weights = util.none, match = util.none,
                                        rename = util.none })
  if o.weights ~= nil and type(o.weights) ~= "string" then
    fail("usage", "seg.recipe: init: weights must be a path, got %s", type(o.weights))
  end
  if o.match ~= nil and (type(o.match) ~= "string" or not pcall(string.find, "", o.match)) then
    fail("usage", "seg.recipe: init: match must be a Lua pattern, got %s", tostring(o.match))
  end
  for i, pair in ipairs(type(o.rename) == "table" and o.rename or {}) do
    if type(pair) ~= "table" or type(pair[1]) ~= "string" or type(pair[2]) ~= "string"
      or not pcall(string.gsub, "", pair[1], pair[2]) then
      fail("usage", "seg.recipe: init: rename[%d] must be a pattern and what replaces it", i)
    end
  end
  if o.rename ~= nil and type(o.rename) ~= "table" and type(o.rename) ~= "function" then
    fail("usage", "seg.recipe: init: rename must be a function or a list of pairs, got %s",
         type(o.rename))
  end
end

-- The weights in a file: { {name = of the parameter, from = name in the file, shape =}, ... }.
-- Moments are skipped; if a run kept an EMA, the EMA is taken.
function M.sources(path)
  local all, list, ema = core.checkpoint.tensors(path), {}, false
  for _, t in ipairs(all) do ema = ema or t.name:match("^ema%.") end
  for _, t in ipairs(all) do
    local name = t.name
    if ema then
      name = name:match("^ema%.(.*)")
    elseif name:match("^optim%.") or name:match("^swa%.") then
      name = nil
    end
    if name and not name:match("%.num_batches_tracked$") then
      list[#list + 1] = { name = name, from = t.name, shape = t.shape }
    end
  end
  return list
end

local function rename(name, how)
  if type(how) == "function" then return how(name) end
  for _, pair in ipairs(how or {}) do name = name:gsub(pair[1], pair[2]) end
  return name
end

local function shape_text(shape) return "(" .. table.concat(shape, ",") .. ")" end

-- Prints names, as many in a line as fit.
local function say(head, names)
  if #names == 0 then return end
  show.line("%s (%d):", head, #names)
  local line = " "
  for i, name in ipairs(names) do
    if #line + #name + 2 > LINE and line ~= " " then
      show.line("%s", line)
      line = " "
    end
    line = line .. " " .. name .. (i < #names and "," or "")
  end
  show.line("%s", line)
end

-- Compares a file with a network: the map from names in the file to names in the network, and the
-- lists of mismatches.
local function compare(sources, params, o)
  local here, wanted, map, taken = {}, {}, {}, {}
  for _, p in ipairs(params) do
    here[p.name] = p
    if not o.match or p.name:find(o.match) then wanted[#wanted + 1] = p.name end
  end
  local bad = { missing = {}, unknown = {}, shapes = {} }
  for _, t in ipairs(sources) do
    local name = rename(t.name, o.rename)
    if name and (not o.match or name:find(o.match)) then
      local p = here[name]
      if not p then
        bad.unknown[#bad.unknown + 1] = name
      elseif taken[name] then
        fail("data", "%s and %s of %s are both renamed to %s", taken[name], t.name, o.weights, name)
      elseif shape_text(p.shape) ~= shape_text(t.shape) then
        bad.shapes[#bad.shapes + 1] = string.format("%s %s instead of %s", name,
                                                    shape_text(t.shape), shape_text(p.shape))
      else
        map[t.from] = name
      end
      taken[name] = t.name
    end
  end
  for _, name in ipairs(wanted) do
    if not taken[name] then bad.missing[#bad.missing + 1] = name end
  end
  return map, bad
end

-- Prints the mismatches between the file `path` and the network of `session`.
function M.explain(path, session, o)
  local _, bad = compare(M.sources(path), session:params(), o or {})
  say("in the network, not in " .. path, bad.missing)
  say("in " .. path .. ", not in the network", bad.unknown)
  say("of another shape in " .. path, bad.shapes)
  return bad
end

local FEW = 5 -- names of a kind in one sentence

-- The same in words, with the first names of each kind: for an error.
function M.in_short(path, session)
  local _, bad = compare(M.sources(path), session:params(), {})
  local parts = {}
  for _, kind in ipairs { { "missing", bad.missing }, { "unknown", bad.unknown },
                          { "of another shape", bad.shapes } } do
    table.sort(kind[2])
    if kind[2][1] then
      parts[#parts + 1] = string.format("%d %s: %s", #kind[2], kind[1],
                                        util.first_of(kind[2], FEW))
    end
  end
  return table.concat(parts, "; ")
end

-- Loads the weights of o.weights into `session`. -> number of tensors
function M.load(session, o)
  if not o.weights then
    fail("usage", "init: no file of weights; give init = { weights = FILE }, or --weights FILE")
  end
  local map, bad = compare(M.sources(o.weights), session:params(), o)
  local count = 0
  for _ in pairs(map) do count = count + 1 end
  if #bad.missing + #bad.unknown + #bad.shapes > 0 or count == 0 then
    M.explain(o.weights, session, o)
    local near = o.match and " of what matches " .. o.match or ""
    fail("data", "init: %s does not fit%s: %d missing, %d unknown, %d of another shape, %d fit; "
         .. "the names are listed above: choose them with match, or give them other names with "
         .. "rename", o.weights, near, #bad.missing, #bad.unknown, #bad.shapes, count)
  end
  core.checkpoint.import(o.weights, session, map, true)
  return count
end

return M
