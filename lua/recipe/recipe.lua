-- recipe.lua -- the declaration of a script: network, data, loss, optimiser.

local core = require "seg.core"
local budget = require "seg.train.budget"
local config = require "seg.recipe.config"
local group = require "seg.recipe.group"
local loss_parts = require "seg.evaluate.loss_parts"
local metrics = require "seg.evaluate.metric_base"
local optim = require "seg.recipe.optim"
local tidy = require "seg.predict.tidy"
local transfer = require "seg.train.transfer"
local ranks = require "seg.train.ranks"
local util = require "seg.util"
local early_stopping = require "seg.train.early_stopping"

local none, fail = util.none, util.fail
local M = {}

-- The one recipe of this script, nil until it is declared.
M.current = nil

-- Fields and their defaults; check() lists the required ones.
local known = {
  inputs = none, outputs = none, loss = none, train = none, valid = none, test = none,
  optim = none, schedule = none, metrics = {}, best = none, epochs = none, predict = {},
  accumulate = 1, frozen = {}, ema = 0, swa = none, stop = none, init = none, phases = none,
  loss_parts = none, clusters = none, steps_per_epoch = none, valid_every = 1, lr_scale = none,
  on_batch = none, on_epoch = none, on_valid = none, on_save = none,
}

-- Fields that a phase may override; all others are the recipe's.
local known_phase = { name = none, from = "last" }
for _, field in ipairs { "inputs", "outputs", "loss", "train", "valid", "test", "optim",
                         "schedule", "metrics", "best", "epochs", "accumulate", "frozen", "ema",
                         "swa", "stop", "init", "loss_parts", "clusters", "steps_per_epoch",
                         "valid_every", "lr_scale", "on_batch", "on_epoch", "on_valid",
                         "on_save" } do
  known_phase[field] = none
end

-- Options of predict: image: patterns of the images of --in; names: of the segments of a SEG;
-- threshold: the probability from which a voxel belongs to the only class; temperature: the divisor
-- of its logits (each may be "valid": chosen on that set when training ends); fractions: also write
-- the probabilities; output, as: which output, and its meaning; overlap: of windows; tta:
-- mirrorings to average over; each and the options of tidy.lua: post-processing of a class and of
-- all classes.
local known_predict = { image = none, names = none, threshold = none, temperature = none,
                        fractions = none, as = none, output = none, overlap = none, tta = none,
                        each = none }
for key, default in pairs(tidy.known) do known_predict[key] = default end

-- The meanings of an output in predict: results.lua.
local meanings = { labels = true, values = true, dose = true, numbers = true, classes = true }

local is_node = util.is_node

-- Checks the outputs. predict and seg_run use their names.
local function check_outputs(r)
  if type(r.outputs) ~= "table" or next(r.outputs) == nil then
    fail("usage", "seg.recipe: outputs must be a table name = node")
  end
  for name, node in pairs(r.outputs) do
    if type(name) ~= "string" or not is_node(node) then
      fail("usage", "seg.recipe: output %s must be a node, got %s", tostring(name), type(node))
    end
    if node.kind == "softmax" and node.c == 1 then
      fail("usage", 'seg.recipe: output "%s": a softmax of one channel is 1 everywhere; write '
           .. "nn.sigmoid, or give the network a channel for each class, the background too", name)
    end
  end
end

-- Checks that every input of the graph is in r.inputs, because only those are fed.
local function check_inputs(r)
  local fed, list, nodes = {}, {}, { r.loss }
  for i, node in ipairs(r.inputs) do fed[node.name], list[i] = true, node.name end
  for _, node in pairs(r.outputs) do nodes[#nodes + 1] = node end
  for _, node in ipairs(metrics.nodes(r, true)) do nodes[#nodes + 1] = node end
  for name in ("\n" .. core.graph_text(nodes)):gmatch("\ninput (%S+) ") do
    if not fed[name] then
      fail("usage", 'seg.recipe: inputs lacks "%s", from which the loss, an output or a metric is '
           .. 'computed; it has %s', name, table.concat(list, ", "))
    end
  end
end

-- Checks of the fields. -> whether it is valid, a text for the invalid value
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
      local made = is_node(m) or type(m) == "table" and type(m.kind) == "string" and m.way
      if type(name) ~= "string" or not made then
        return false, string.format("%s = a %s%s", tostring(name), type(m), type(m) == "function"
          and "; metric.case(prediction, truth, f) calls a function with a case" or "")
      end
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
  metrics = "a table name = metric of seg.metric, or a node", best = 'a pair as {"dice", "max"}',
  predict = "a table", frozen = "a list of names of layers or parameters",
}

-- Whether v is a string, or a list of strings that is not empty.
local function are_names(v)
  for _, name in ipairs(type(v) == "table" and v or { v }) do
    if type(name) ~= "string" then return false end
  end
  return type(v) == "string" or type(v) == "table" and #v > 0
end

-- Checks seg.recipe { predict = o }.
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
  for what, most in pairs { threshold = 1, temperature = math.huge } do
    local v = o[what]
    if v ~= nil and v ~= "valid" and not (math.type(v) and v > 0 and v < most) then
      fail("usage", "seg.recipe: predict: %s must be a number %s, got %s (or \"valid\": chosen on "
           .. "that set)", what, most == 1 and "between 0 and 1" or "above 0", tostring(v))
    end
  end
  if o.as ~= nil and not meanings[o.as] then
    fail("usage", "seg.recipe: predict: as is %s; %s", tostring(o.as),
         util.suggest(tostring(o.as), util.sorted_keys(meanings)))
  end
  if o.overlap ~= nil and not (math.type(o.overlap) and o.overlap >= 0 and o.overlap <= 0.9) then
    fail("usage", "seg.recipe: predict: overlap must be a number from 0 to 0.9, got %s",
         tostring(o.overlap))
  end
  if o.tta ~= nil and not are_names(o.tta) then
    fail("usage", 'seg.recipe: predict: tta must be "flips" or a list of axes, got %s',
         tostring(o.tta))
  end
  tidy.check("seg.recipe: predict", o)
  tidy.check_each(o.each)
end

-- Checks the output that predict uses. The list of names, if given, has one name for each class of
-- its maps (of several channels the first is the background), or one for each of its numbers.
local function check_output(r)
  local name = r.predict.output
  if name ~= nil and not r.outputs[name] then
    fail("usage", 'seg.recipe: predict: output = "%s" is not an output; %s', tostring(name),
         util.suggest(tostring(name), util.sorted_keys(r.outputs)))
  end
  name = name or util.sorted_keys(r.outputs)[1]
  local node, as = r.outputs[name], r.predict.as
  local names = type(r.predict.names) == "table" and #r.predict.names or 0
  local maps = node.rank > 0
  local wanted_names = maps and math.max(node.c - 1, 1) or node.c
  if names > 0 and as ~= "values" and as ~= "dose" and names ~= wanted_names then
    fail("usage", 'seg.recipe: predict: names must be a list of %s, as output "%s" has %s%s, '
         .. "got %d", util.plural(wanted_names, "name"), name, util.plural(node.c, "channel"),
         maps and node.c > 1 and ", of which the first is the background" or "", names)
  end
end

M.check_predict = check_predict

-- Checks each field with the table above, and the two numbers.
local function check_fields(r)
  for _, field in ipairs(util.sorted_keys(checks)) do
    local v = r[field]
    local fits, got = false, tostring(v)
    if type(v) == "table" then fits, got = checks[field](v) end
    if v ~= nil and not fits then
      fail("usage", "seg.recipe: %s must be %s, got %s", field, wanted[field],
           got or "another table")
    end
  end
  for _, field in ipairs { "epochs", "accumulate", "steps_per_epoch", "valid_every" } do
    local v = r[field]
    if v ~= nil and (math.type(v) ~= "integer" or v < 1) then
      fail("usage", "seg.recipe: %s must be a whole number >= 1, got %s", field, tostring(v))
    elseif v and v > config.MOST_EPOCHS then
      fail("usage", "seg.recipe: %s must be at most %d, got %d", field,
           config.MOST_EPOCHS, v)
    end
  end
end

local gives = { [0] = "numbers", "sequences", "pictures", "whole volumes" }

-- The fix for an input with another rank than the samples of a field of `rank`. parts: "slices",
-- "patches" or nil.
local function rank_fix(input, rank, shown, parts, assumed)
  if input.rank == 0 then return '; numbers of a case are a field with kind = "numbers"' end
  if rank ~= 3 then return "" end
  if assumed then
    return string.format("; give the number of axes of its arrays without channels: rank = %d in "
                         .. 'field "%s"', input.rank, input.name)
  end
  if parts == "slices" then return "; leave out :slices" end
  if parts == "patches" then
    return shown == 2 and "; leave out d = 1 of :patches"
      or input.rank == 2 and "; patches of 2-D have d = 1" or ""
  end
  return input.rank == 2 and '; add :slices { axis = "axial" } to its steps' or ""
end

-- Checks that inputs have as many axes as the samples: whole volumes, slices or patches of volumes,
-- or the fields of a list of cases. This is known before anything is opened.
local function check_ranks(r)
  for _, part in ipairs { "train", "valid", "test" } do
    local set = r[part]
    local steps, ranked = set and rawget(set, "steps"), set and set.source and set.source.ranks
    local assumed = steps and set.source and set.source.assumed or {}
    local parts = steps and (util.step(steps, "slices") and "slices"
                             or util.step(steps, "patches") and "patches")
    for _, input in ipairs(steps and r.inputs or {}) do
      local rank = ranked and ranked[input.name] or not ranked and 3
      local shown = rank and core.data.part_rank(steps, rank)
      if rank and input.rank ~= shown then
        fail("usage", 'seg.recipe: input "%s" is %d-D, but the %s set gives %s%s', input.name,
             input.rank, part, parts == "slices" and rank == 3 and "slices" or gives[shown],
             rank_fix(input, rank, shown, parts, assumed[input.name]))
      end
    end
  end
end

local HOOKS = { "on_batch", "on_epoch", "on_valid", "on_save" }

-- Checks the hooks (train/hooks.lua, which other recipes do not load).
local function check_hooks(r)
  for _, name in ipairs(HOOKS) do
    local f = r[name]
    if f ~= nil and type(f) ~= "function" then
      fail("usage", "seg.recipe: %s must be a function of a table, got %s%s", name, type(f),
           type(f) == "string"
           and "; commands of the shell are --on_finish, --on_nan and --on_stall" or "")
    end
  end
  if r.on_valid and not r.valid then
    fail("usage", "seg.recipe: on_valid is called after validation, and the recipe has no valid "
         .. "set; use on_epoch, or give one")
  end
end

-- The metrics of a recipe, with metric.mean for each node.
local function made_metrics(list)
  local out = {}
  for name, m in pairs(list) do
    out[name] = is_node(m) and require("seg.evaluate.metric_own").mean(m) or m
  end
  return out
end

-- Checks `lr_scale`: "batch", or { batch = of the given rate }. It becomes the table.
local function check_lr_scale(r)
  local o = r.lr_scale
  if o == nil then return end
  if o == "batch" then
    local batch = config.own_batch
    if math.type(batch) ~= "integer" then
      fail("usage", 'seg.recipe: lr_scale = "batch" compares with the batch of seg.config, which '
           .. "%s; write lr_scale = { batch = N }, with the batch for which the rate was chosen",
           batch and 'is "auto"' or "this script does not declare")
    end
    o = { batch = batch }
  elseif type(o) ~= "table" then
    fail("usage", 'seg.recipe: lr_scale must be "batch" or { batch = N }, got %s', tostring(o))
  end
  o = util.options("seg.recipe: lr_scale", o, { batch = none })
  if math.type(o.batch) ~= "integer" or o.batch < 1 or o.batch > 1 << 30 then
    fail("usage", "seg.recipe: lr_scale: batch must be a whole number from 1 to %d, got %s",
         1 << 30, tostring(o.batch))
  end
  r.lr_scale = o
end

-- Checks `clusters`. The rounds begin after the epochs with the last weights, so options that
-- choose or average weights have no effect.
local function check_clusters(r)
  local c = r.clusters
  if c == nil then return end
  if type(c) ~= "table" or c.kind ~= "clusters" then
    fail("usage", "seg.recipe: clusters must be a seg.clusters { ... }, got %s", type(c))
  end
  for field, has in pairs { valid = r.valid ~= nil, ema = r.ema > 0, swa = r.swa ~= nil } do
    if has then
      fail("usage", "seg.recipe: clusters take the last weights of a phase; leave out %s there%s",
           field, field == "valid" and " (valid = false in a phase); test measures them" or "")
    end
  end
  if #r.frozen > 0 then
    fail("usage", "seg.recipe: clusters tune the whole encoder; leave out frozen there")
  end
end

-- Checks and completes a recipe, or the recipe of a phase.
local function check(r)
  for _, part in ipairs { "valid", "test" } do
    -- a part of a split with a share of 0
    if type(r[part]) == "table" and r[part].source and r[part].none then r[part] = nil end
  end
  for _, field in ipairs { "inputs", "outputs", "loss", "train", "optim" } do
    if r[field] == nil then fail("usage", "seg.recipe: %s is missing", field) end
  end
  check_fields(r)
  r.metrics, r.valid_every = made_metrics(r.metrics), r.valid_every or 1
  check_predict(r.predict)
  check_outputs(r)
  check_output(r)
  check_ranks(r)
  if not is_node(r.loss) or r.loss.rank ~= -2 then
    fail("usage", "seg.recipe: loss must be a loss node (one number); seg.mean(node) makes one")
  end
  r.schedule = r.schedule or optim.constant
  if r.epochs == nil then
    r.epochs, config.unread.epochs = config.ensure().epochs, nil
  end
  if r.best and r.best[1] ~= "loss" and not r.metrics[r.best[1]] then
    fail("usage", 'seg.recipe: best = "%s" is not a metric; %s', tostring(r.best[1]),
         util.suggest(r.best[1], util.sorted_keys(r.metrics)))
  end
  loss_parts.check(r)
  metrics.settle(r)
  check_inputs(r)
  if r.schedule.monitor then
    r.schedule_watch = early_stopping.find(r.schedule.name, r,
                                           table.unpack(r.schedule.monitor, 1, 2))
  end
  if r.stop then r.stop = early_stopping.check_stop(r) end
  check_hooks(r)
  check_lr_scale(r)
  transfer.check(r.init)
  check_clusters(r)
  -- required here, because average.lua requires evaluate, which requires this file
  require("seg.train.average").check(r)
  return r
end

-- The phases of recipe `r`: whole recipes, with the fields of the phase in place of the recipe's;
-- false in a phase removes a field of the recipe.
local function read_phases(r, list)
  if type(list) ~= "table" or #list == 0 then
    fail("usage", "seg.recipe: phases must be a list of tables, got %s", type(list))
  end
  local phases = {}
  for i, o in ipairs(list) do
    local phase = {}
    for k, v in pairs(r) do phase[k] = v end
    for k, v in pairs(util.options("seg.recipe: phases[" .. i .. "]", o, known_phase)) do
      if v then phase[k] = v else phase[k] = nil end
    end
    if i == 1 and o.from then
      fail("usage", "seg.recipe: phases[1]: there is no phase before it; leave from out")
    end
    if phase.from ~= "last" and phase.from ~= "best" then
      fail("usage", "seg.recipe: phases[%d]: from: %s", i,
           util.suggest(tostring(phase.from), { "best", "last" }))
    end
    if i > 1 and phase.from == "best" and not phases[i - 1].valid then
      fail("usage", 'seg.recipe: phases[%d]: from = "best", but the phase before has no valid set '
           .. 'to choose the best', i)
    end
    if not phase.valid then phase.on_valid = o.on_valid or nil end
    -- weights of a file are for the first phase, unless the phase names its own
    if i > 1 then phase.init = o.init end
    phases[i] = check(phase)
  end
  return phases
end

-- seg.recipe{...}: declares the recipe; the program then runs the command. Commands other than
-- train use the last phase.
function M.recipe(o)
  if M.current then fail("usage", "seg.recipe was called before; a script declares one recipe") end
  local r = util.options("seg.recipe", o, known)
  local list = r.phases
  r.phases = nil
  local phases = list and read_phases(r, list) or { check(r) }
  r = phases[#phases]
  r.phases = phases
  M.current = r
  return r
end

-- The samples of a step.
local function step_size(r) return r.train:batch_size() * r.accumulate end

-- The learning rate that the schedule begins with: that of the optimiser, with lr_scale times
-- samples of a step / samples of a step for which it was chosen (Goyal et al. 2017).
function M.lr(r)
  if not r.lr_scale then return r.optim.lr end
  return r.optim.lr * (step_size(r) / r.lr_scale.batch)
end

-- What lr_scale does, as a sentence; nil if it does nothing.
function M.lr_note(r)
  local is, was = M.lr(r), r.optim.lr
  if is == was then return nil end
  return string.format("lr_scale: the rate is %s = %s x %d / %d, samples of a step / those it was "
                       .. "chosen for; this suits SGD with a warmup, and is often too much for "
                       .. "Adam: lr_range measures it", util.number(is), util.number(was),
                       step_size(r), r.lr_scale.batch)
end

-- The learning rate of the update that batch `number` (from 0) of the `batches` of an epoch (from
-- 1) belongs to. It depends only on the position, so that a skipped step delays nothing, and on the
-- memory of the schedule.
function M.rate(r, epoch, number, batches, state)
  local each = math.ceil(batches / r.accumulate)
  if r.swa and r.swa.lr and epoch >= r.swa.from then return r.swa.lr end
  return r.schedule.rate(M.lr(r), epoch, r.epochs, {
    step = (epoch - 1) * each + number // r.accumulate + 1, steps = r.epochs * each,
    state = state })
end

-- The outputs sorted by name, and the names.
local function output_nodes(r)
  local list, names = {}, util.sorted_keys(r.outputs)
  for i, name in ipairs(names) do list[i] = r.outputs[name] end
  return list, names
end
M.outputs = output_nodes

-- All nodes that are read: outputs, metrics and the loss. purpose: as in M.session.
function M.roots(r, purpose)
  local list = output_nodes(r)
  for _, node in ipairs(metrics.nodes(r, purpose == "evaluate")) do list[#list + 1] = node end
  list[#list + 1] = r.loss
  return list
end

-- The nodes that a training step computes: the loss, and the counts of train/tally.lua.
function M.step_roots(r)
  local list = { r.loss }
  for _, name in ipairs(metrics.counted(r)) do
    list[#list + 1] = r.metrics[name].node
    list[#list + 1] = r.metrics[name].area
  end
  for _, part in ipairs(loss_parts.of(r)) do list[#list + 1] = part.node end
  return list
end

-- The network of the outputs alone, as text for the C library.
function M.network(r)
  local nodes, names = output_nodes(r)
  return core.graph_text(nodes), table.concat(names, ",")
end

-- Whether training keeps an average of the weights.
function M.averages(r)
  return r.ema > 0 or r.swa ~= nil
end

-- A session of this recipe for a purpose: "train" has the optimiser, "evaluate" loss and metrics,
-- "predict" only the outputs, so that it needs no targets. device, precision: override --device and
-- --precision; draws: dropout in evaluation too; alone: without the other ranks; plain: no
-- operators are fused, whatever --fuse says.
function M.session(r, purpose, device, precision, draws, alone, plain)
  local v = config.ensure()
  local predict = purpose == "predict"
  if not predict then require("seg.train.footprint").check(r, purpose, device, precision) end
  local session = core.session {
    roots = predict and output_nodes(r) or M.roots(r, purpose),
    step_roots = purpose == "train" and M.step_roots(r) or nil,
    loss = not predict and r.loss or nil,
    device = device or v.device, precision = precision or v.precision,
    winograd = v.winograd, tiles = v.tiles,
    threads = ranks.threads(v.threads), seed = v.seed, draws = draws or false,
    ranks = purpose == "train" and not alone and ranks.count > 1,
    local_batch_norm = not v.sync_norm, allreduce = v.allreduce, plain = plain or not v.fuse,
    optim = purpose == "train" and r.optim or nil,
    frozen = purpose == "train" and r.frozen or nil, limit = budget.limit(),
    average = purpose == "train" and M.averages(r) }
  if purpose == "train" then budget.give(session) end
  if purpose == "train" then group.apply(session, r.optim) end
  return session
end

return M
