-- recipe.lua -- what a script declares: network, data, loss, optimiser.

local core = require "seg.core"
local budget = require "seg.budget"
local config = require "seg.config"
local optim = require "seg.optim"
local util = require "seg.util"

local none, fail = util.none, util.fail
local M = {}

-- The one recipe of this script, nil until it is declared.
M.current = nil

-- Fields and their defaults; the first five without one must be given.
local known = {
  inputs = none, outputs = none, loss = none, train = none, valid = none, test = none,
  optim = none, schedule = none, metrics = {}, best = none, epochs = none, predict = {},
  accumulate = 1, frozen = {},
}

-- What a prediction takes: the images of --in, names of the segments of a SEG,
-- the probability from which a voxel belongs to the only class, and whether the
-- output itself is written too.
local known_predict = { image = none, names = none, threshold = none, fractions = none }

local is_node = util.is_node

-- Outputs have names, under which predict and seg_run know them.
local function check_outputs(r)
  if type(r.outputs) ~= "table" or next(r.outputs) == nil then
    fail("usage", "seg.recipe: outputs must be a table name = node")
  end
  for name, node in pairs(r.outputs) do
    if type(name) ~= "string" or not is_node(node) then
      fail("usage", "seg.recipe: output %s must be a node, got %s", tostring(name), type(node))
    end
  end
end

-- Each field that is given is what it is called; `got` is what it is instead.
local checks = {
  inputs = function(v)
    for _, node in ipairs(v) do if not is_node(node) then return false end end
    return v[1] ~= nil
  end,
  train = function(v) return type(v.loader) == "function" end,
  optim = function(v) return type(v.kind) == "string" and type(v.lr) == "number" end,
  schedule = function(v) return type(v.rate) == "function" end,
  metrics = function(v)
    for name, m in pairs(v) do
      if type(name) ~= "string" or type(m) ~= "table" or not is_node(m.node) then return false end
    end
    return true
  end,
  best = function(v) return type(v[1]) == "string" and (v[2] == "max" or v[2] == "min") end,
  predict = function() return true end,
  frozen = function(v)
    for _, name in ipairs(v) do if type(name) ~= "string" then return false end end
    return #v > 0 or next(v) == nil
  end,
}
checks.valid, checks.test = checks.train, checks.train

local wanted = {
  inputs = "a list of input nodes", train = "a data set", valid = "a data set",
  test = "a data set", optim = "an optimiser of seg.optim", schedule = "a schedule of seg.optim",
  metrics = "a table name = metric of seg.metric", best = 'a pair as {"dice", "max"}',
  predict = "a table", frozen = "a list of names of layers or parameters",
}

-- A text, or a list of texts that is not empty.
local function are_names(v)
  for _, name in ipairs(type(v) == "table" and v or { v }) do
    if type(name) ~= "string" then return false end
  end
  return type(v) == "string" or type(v) == "table" and #v > 0
end

local function check_predict(o)
  o = util.options("seg.recipe: predict", o, known_predict)
  if o.image ~= nil and not are_names(o.image) then
    fail("usage", "seg.recipe: predict: image must be a name or a list of names, got %s",
         tostring(o.image))
  end
  if o.names ~= nil and not (type(o.names) == "table" and (#o.names == 0 or are_names(o.names)))
  then
    fail("usage", "seg.recipe: predict: names must be a list of names, got %s", tostring(o.names))
  end
  for number, name in ipairs(o.names or {}) do
    local fits, why = core.data.segment_name(name, number)
    if not fits then fail("usage", "seg.recipe: predict: names: %s", why) end
  end
  if o.fractions ~= nil and type(o.fractions) ~= "boolean" then
    fail("usage", "seg.recipe: predict: fractions must be true or false, got %s",
         tostring(o.fractions))
  end
  if o.threshold ~= nil and not (math.type(o.threshold) and o.threshold > 0 and o.threshold < 1)
  then
    fail("usage", "seg.recipe: predict: threshold must be a number between 0 and 1, got %s",
         tostring(o.threshold))
  end
end

-- What the table above says of each field, and the two numbers.
local function check_fields(r)
  for _, field in ipairs(util.sorted_keys(checks)) do
    local v = r[field]
    if v ~= nil and (type(v) ~= "table" or not checks[field](v)) then
      fail("usage", "seg.recipe: %s must be %s, got %s", field, wanted[field],
           type(v) == "table" and "another table" or tostring(v))
    end
  end
  for _, field in ipairs { "epochs", "accumulate" } do
    local v = r[field]
    if v ~= nil and (math.type(v) ~= "integer" or v < 1) then
      fail("usage", "seg.recipe: %s must be a whole number >= 1, got %s", field, tostring(v))
    end
  end
end

local gives = { [0] = "numbers", "sequences", "pictures", "whole volumes" }

-- What to do about an input of other axes than the samples of `parts` ("slices",
-- "patches" or nil) of a field of `rank` have.
local function rank_fix(input, rank, shown, parts, assumed)
  if input.rank == 0 then return '; numbers of a case are a field with kind = "numbers"' end
  if rank ~= 3 then return "" end
  if assumed then
    return string.format("; say how many axes its arrays have beside channels: rank = %d in field "
                         .. '"%s"', input.rank, input.name)
  end
  if parts == "slices" then return "; leave out :slices" end
  if parts == "patches" then
    return shown == 2 and "; leave out d = 1 of :patches"
      or input.rank == 2 and "; patches of 2-D have d = 1" or ""
  end
  return input.rank == 2 and '; add :slices { axis = "axial" } to its steps' or ""
end

-- Samples are whole volumes, or slices or patches of them, or what the fields of a
-- list of cases are: inputs must have as many axes. Known before anything is
-- opened.
local function check_ranks(r)
  for _, part in ipairs { "train", "valid", "test" } do
    local set = r[part]
    local steps, ranks = set and rawget(set, "steps"), set and set.source and set.source.ranks
    local assumed = steps and set.source and set.source.assumed or {}
    local parts = steps and (util.step(steps, "slices") and "slices"
                             or util.step(steps, "patches") and "patches")
    for _, input in ipairs(steps and r.inputs or {}) do
      local rank = ranks and ranks[input.name] or not ranks and 3
      local shown = rank and core.data.part_rank(steps, rank)
      if rank and input.rank ~= shown then
        fail("usage", 'seg.recipe: input "%s" is %d-D, but the %s set gives %s%s', input.name,
             input.rank, part, parts == "slices" and rank == 3 and "slices" or gives[shown],
             rank_fix(input, rank, shown, parts, assumed[input.name]))
      end
    end
  end
end

-- seg.recipe{...}: declares; the program then does what the command says.
function M.recipe(o)
  if M.current then fail("usage", "seg.recipe was called before; a script declares one recipe") end
  local r = util.options("seg.recipe", o, known)
  for _, field in ipairs { "inputs", "outputs", "loss", "train", "optim" } do
    if r[field] == nil then fail("usage", "seg.recipe: %s is missing", field) end
  end
  check_fields(r)
  check_predict(r.predict)
  check_outputs(r)
  check_ranks(r)
  if not is_node(r.loss) or r.loss.rank ~= -2 then
    fail("usage", "seg.recipe: loss must be a loss node (one number)")
  end
  r.schedule = r.schedule or optim.constant
  r.epochs = r.epochs or config.ensure().epochs
  if r.best and r.best[1] ~= "loss" and not r.metrics[r.best[1]] then
    fail("usage", 'seg.recipe: best = "%s" is no metric; %s', tostring(r.best[1]),
         util.suggest(r.best[1], util.sorted_keys(r.metrics)))
  end
  M.current = r
  return r
end

-- The outputs in the order of their names.
local function output_nodes(r)
  local list, names = {}, util.sorted_keys(r.outputs)
  for i, name in ipairs(names) do list[i] = r.outputs[name] end
  return list, names
end

-- All nodes whose values are read: outputs, metrics and the loss.
function M.roots(r)
  local list = output_nodes(r)
  for _, name in ipairs(util.sorted_keys(r.metrics)) do list[#list + 1] = r.metrics[name].node end
  list[#list + 1] = r.loss
  return list
end

-- The network of the outputs alone, as text that the embedding library reads.
function M.network(r)
  local nodes, names = output_nodes(r)
  return core.graph_text(nodes), table.concat(names, ",")
end

-- A session of this recipe for a purpose: "train" has the optimiser,
-- "evaluate" loss and metrics, "predict" the outputs alone, so that it wants
-- no truth. `device` and `precision`: others than --device and --precision.
function M.session(r, purpose, device, precision)
  local v = config.ensure()
  local predict = purpose == "predict"
  local session = core.session {
    roots = predict and output_nodes(r) or M.roots(r), loss = not predict and r.loss or nil,
    device = device or v.device, precision = precision or v.precision, threads = v.threads,
    seed = v.seed,
    optim = purpose == "train" and r.optim or nil,
    frozen = purpose == "train" and r.frozen or nil, limit = budget.limit() }
  if purpose == "train" then budget.give(session) end
  return session
end

return M
