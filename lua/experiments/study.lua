-- study.lua -- the state of a search: its space, its trials, and their file.
--
-- The file has a JSON value a line: first a description of the search, then a trial, or a round of
-- one, as each ends. It is replaced as a whole (written aside, flushed and renamed), so it is never
-- incomplete. It contains no time and no machine: a search that was killed at any point and resumed
-- ends with the same bytes as an uninterrupted one. When the file is read, the values of each trial
-- are suggested again and must be the same.

local config = require "seg.recipe.config"
local core = require "seg.core"
local json = require "seg.json"
local suggest = require "seg.experiments.suggest"
local util = require "seg.util"

local fail = util.fail
local M = {}

local methods = { "halving", "random", "tpe" }

-- The space ------------------------------------------------------------------------

-- Reads one parameter of what = "seg.search: space.KEY". kind: type of the config's value, or nil.
local function parameter(what, key, v, kind)
  if type(v) ~= "table" then
    fail("usage", "%s must be { lo, hi } or a list of values, got %s", what, tostring(v))
  end
  local function wrong(fmt, ...) fail("usage", what .. fmt, ...) end
  local range = not v.list and #v == 2 and math.type(v[1]) and math.type(v[2])
  local o = { list = true, log = range, step = range }
  for name in pairs(v) do
    if math.type(name) ~= "integer" and not o[name] then
      wrong(": %s is not an option here; { lo, hi, log = true }, { lo, hi, step = 8 } or { list = "
            .. "{ ... } }", tostring(name))
    end
  end
  if range then
    local lo, hi, step = v[1], v[2], v.step or 1
    local whole = math.type(lo) == "integer" and math.type(hi) == "integer" and kind ~= "float"
    if kind and kind ~= "integer" and kind ~= "float" then
      wrong(" is a range, but --%s is %s; give it a list of values", key, kind)
    end
    if kind == "integer" and not whole then wrong(": --%s is a whole number", key) end
    if not (lo < hi) or hi - lo == math.huge then
      wrong(": the range is from %s to %s, wanted lo < hi", tostring(lo), tostring(hi))
    end
    if v.log and not (lo > 0) then wrong(": log needs a range above 0, got %s", tostring(lo)) end
    if v.step and (not whole or v.log or math.type(step) ~= "integer" or step < 1) then
      wrong(": step needs whole numbers and no log")
    end
    if whole then hi = lo + (hi - lo) // step * step else lo, hi = lo + 0.0, hi + 0.0 end
    return { key = key, kind = whole and "whole" or "real", lo = lo, hi = hi, step = step,
             log = v.log or nil }
  end
  local list = v.list or v
  if type(list) ~= "table" or #list < 2 then wrong(" needs two values or more") end
  for _, e in ipairs(list) do
    local is = math.type(e) or type(e)
    local fits = not kind and is ~= "table" or is == kind or kind == "float" and is == "integer"
    if not fits then
      wrong(": %s cannot be --%s, which is %s", tostring(e), key, kind or "no list")
    end
  end
  return { key = key, kind = "list", list = list }
end

-- Reserved keys that affect training results, and so may be searched.
local searched = { batch = true, precision = true, epochs = true }

-- The parameters in the table `space` of seg.search, in the order of the keys. free: the keys need
-- not be in the config.
function M.space(space, free)
  if type(space) ~= "table" or next(space) == nil then
    fail("usage", "seg.search: space must be a table key = { lo, hi } or key = { values }")
  end
  local list = {}
  for i, key in ipairs(util.sorted_keys(space)) do
    local what = "seg.search: space." .. tostring(key)
    if not free then
      if not config.declared[key] then
        fail("usage", '%s: the config has no such key; %s', what,
             util.suggest(tostring(key), util.sorted_keys(config.declared)))
      end
      if config.is_reserved(key) and not searched[key] then
        fail("usage", "%s: --%s does not change the training, or only by chance", what, key)
      end
    end
    list[i] = parameter(what, key, space[key], not free and config.kind(key) or nil)
  end
  return list
end

-- A value as text, as the command line takes it.
function M.text(v)
  return config.print({ v = v }):match("= (.*)\n$")
end

-- A parameter in words: "lr 1e-05 .. 0.01 (log)".
function M.describe(p)
  if p.kind == "list" then
    local out = {}
    for i, v in ipairs(p.list) do out[i] = M.text(v) end
    return p.key .. " one of " .. table.concat(out, ", ")
  end
  return string.format("%s %s .. %s%s%s", p.key, M.text(p.lo), M.text(p.hi),
                       p.log and " (log)" or "", p.kind == "whole" and p.step > 1
                       and " in steps of " .. p.step or "")
end

-- The options ------------------------------------------------------------------------

local known = { space = util.none, trials = 20, method = "tpe", metric = util.none,
                seed = util.none, startup = 10, eta = 3, least = 1, objective = util.none,
                study = util.none }

-- Checks the options of seg.search; space becomes a list of parameters.
function M.options(o)
  o = util.options("seg.search", o, known)
  local one = false
  for _, name in ipairs(methods) do one = one or name == o.method end
  if not one then
    fail("usage", "seg.search: method: %s", util.suggest(tostring(o.method), methods))
  end
  for key, least in pairs { trials = 1, startup = 1, eta = 2, least = 1 } do
    if math.type(o[key]) ~= "integer" or o[key] < least then
      fail("usage", "seg.search: %s must be a whole number >= %d, got %s", key, least,
           tostring(o[key]))
    end
  end
  if o.seed ~= nil and (math.type(o.seed) ~= "integer" or o.seed < 0) then
    fail("usage", "seg.search: seed must be a whole number >= 0, got %s", tostring(o.seed))
  end
  local m = o.metric
  if m ~= nil and not (type(m) == "table" and type(m[1]) == "string"
                       and (m[2] == "min" or m[2] == "max")) then
    fail("usage", 'seg.search: metric must be a pair as {"dice", "max"}')
  end
  if o.objective ~= nil and type(o.objective) ~= "function" then
    fail("usage", "seg.search: objective must be a function of the values, got %s",
         type(o.objective))
  end
  if o.study ~= nil and (not o.objective or type(o.study) ~= "string") then
    fail("usage", "seg.search: study is the file of a search with an objective; the file of a "
         .. "recipe is in its folder")
  end
  o.space = M.space(o.space, o.objective ~= nil)
  return o
end

-- The number of trials: at most the number of points in the space.
function M.trials(o)
  local points = 1
  for _, p in ipairs(o.space) do points = points * suggest.size(p) end
  return points < o.trials and math.tointeger(points) or o.trials
end

-- The file ------------------------------------------------------------------------

local Study = {}
Study.__index = Study

local function one_line(v) return (util.json(v):gsub("\n *", "")) end

-- The study of options `o` (with metric and seed), in the file `path` or, with nil, in memory.
-- what: further facts that must be the same when it is resumed.
function M.open(o, path, what)
  local head = { method = o.method, seed = o.seed, metric = o.metric[1], mode = o.metric[2] }
  for i, p in ipairs(o.space) do head[string.format("space_%02d", i)] = M.describe(p) end
  if o.method == "tpe" then head.startup = o.startup end
  if o.method == "halving" then head.eta, head.least, head.trials = o.eta, o.least, o.trials end
  for k, v in pairs(what or {}) do head[k] = v end
  local s = setmetatable({ o = o, path = path, records = {}, values = {}, head = head }, Study)
  if path and util.exists(path) then s:read() end
  s:write()
  return s
end

-- Writes all records; readable by the owner only, because reasons may name files.
function Study:write()
  if not self.path then return end
  local lines = { one_line(self.head) }
  for i, r in ipairs(self.records) do lines[i + 1] = one_line(r) end
  core.sys.write(self.path, table.concat(lines, "\n") .. "\n", true)
end

-- The trials of the first round, from which TPE suggests.
function Study:history()
  local list, sign = {}, self.o.metric[2] == "max" and -1 or 1
  for _, r in ipairs(self.records) do
    if (r.round or 1) == 1 then
      list[r.trial] = { values = self.values[r.trial],
                        score = r.value and sign * r.value or false }
    end
  end
  return list
end

-- The values of a trial: a function of the seed and the trials before it.
function Study:suggest(trial)
  if not self.values[trial] then
    local o, before = self.o, {}
    for i, t in ipairs(self:history()) do if i < trial then before[i] = t end end
    if o.method == "tpe" then
      self.values[trial] = suggest.tpe(o.space, before, o.seed, trial, o.startup)
    else
      self.values[trial] = suggest.random(o.space, before, o.seed, trial)
    end
  end
  return self.values[trial]
end

-- Values as texts by their keys.
function M.texts(values)
  local out = {}
  for k, v in pairs(values) do out[k] = M.text(v) end
  return out
end

-- The fields of a record and their types.
local fields = { trial = "whole number", round = "whole number", epochs = "whole number",
                 epoch = "whole number", value = "number", state = "string", reason = "string",
                 run = "string", values = "table" }

-- The fault of r, the next record of a file, which a user may have edited; nil if there is none.
-- Trials begin in order; later rounds contain only trials that began.
function Study:wrong(r)
  if type(r) ~= "table" then return "is not a table" end
  for _, k in ipairs { "trial", "state", "values" } do
    if r[k] == nil then return "has no " .. k end
  end
  for k, v in pairs(r) do
    if not fields[k] then
      return string.format('has "%s", which this program does not know', tostring(k))
    end
    local is = fields[k] == "whole number" and math.type(v) == "integer" and fields[k] or type(v)
    if is ~= fields[k] then
      return string.format("has %s %s, wanted a %s", k, tostring(v), fields[k])
    end
  end
  local begun = 0
  for _, other in ipairs(self.records) do
    if (other.round or 1) == 1 then begun = math.max(begun, other.trial) end
  end
  if (r.round or 1) == 1 and r.trial ~= begun + 1 then
    return string.format("is of trial %d, wanted %d", r.trial, begun + 1)
  end
  if (r.round or 1) ~= 1 and (r.round < 1 or r.trial < 1 or r.trial > begun
                              or self:find(r.trial, r.round)) then
    return string.format("is of trial %d in round %d, which cannot be", r.trial, r.round)
  end
end

-- Reads the trials of the file; refuses a file of another search, or a damaged one.
function Study:read()
  local number = 0
  for line in util.read_file(self.path):gmatch("[^\n]+") do
    number = number + 1
    local r = json.decode(line, string.format("%s: line %d", self.path, number))
    if number == 1 then
      local keys = {}
      for k in pairs(type(r) == "table" and r or { r }) do
        if type(k) ~= "string" then
          fail("data", "%s: line 1 does not describe the search; start anew", self.path)
        end
        keys[k] = true
      end
      for k in pairs(self.head) do keys[k] = true end
      for _, k in ipairs(util.sorted_keys(keys)) do
        if r[k] ~= self.head[k] then
          util.refuse("%s: the search is another one: %s is %s, in the file %s; start anew, or "
                      .. "restore it", self.path, k:gsub("_%d+$", ""),
                      tostring(self.head[k] or "not there"), tostring(r[k] or "not there"))
        end
      end
    else
      local wrong = self:wrong(r)
      if wrong then
        fail("data", "%s: line %d %s; start anew", self.path, number, wrong)
      end
      for k, v in pairs(M.texts(self:suggest(r.trial))) do
        if r.values[k] ~= v then
          fail("data", "%s: line %d: %s of trial %d is %s, and this search tries %s there; start "
               .. "anew", self.path, number, k, r.trial, tostring(r.values[k]), v)
        end
      end
      self.records[#self.records + 1] = r
    end
  end
end

-- The record of a trial in a round; nil if it has not ended.
function Study:find(trial, round)
  for _, r in ipairs(self.records) do
    if r.trial == trial and (r.round or 1) == (round or 1) then return r end
  end
end

-- Adds the record of a trial: r = { trial=, round=, epochs=, state=, value=, epoch=, reason= }.
function Study:add(r)
  r.values = M.texts(self:suggest(r.trial))
  self.records[#self.records + 1] = r
  self:write()
  return r
end

-- The best record: of the last round that has values, in a tie the first; nil without one.
function Study:best()
  local best, up = nil, self.o.metric[2] == "max"
  for _, r in ipairs(self.records) do
    if r.value then
      local later = best and (r.round or 1) - (best.round or 1) or 1
      local better = best and (up and r.value > best.value or not up and r.value < best.value)
      if later > 0 or later == 0 and better then best = r end
    end
  end
  return best
end

return M
