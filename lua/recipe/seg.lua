-- seg.lua -- the module that recipes require.

local core = require "seg.core"
local clusters = require "seg.train.clusters"
local config = require "seg.recipe.config"
local data = require "seg.data.data"
local elementwise = require "seg.recipe.elementwise"
local group = require "seg.recipe.group"
local indices = require "seg.recipe.indices"
local metric = require "seg.evaluate.metric"
local net = require "seg.recipe.net"
local nn = require "seg.recipe.nn"
local optim = require "seg.recipe.optim"
local random = require "seg.recipe.random"
local recipe = require "seg.recipe.recipe"
local search = require "seg.experiments.search"
local shapes = require "seg.recipe.shapes"
local transfer = require "seg.train.transfer"
local util = require "seg.util"

local options, none, fail = util.options, util.none, util.fail

local seg = {
  nn = nn, net = net, op = core.op, data = data, optim = optim, metric = metric,
  config = config.config, pick = config.pick, numbers = config.numbers, recipe = recipe.recipe,
  clusters = clusters.clusters, search = search.search,
  array = core.array, version = core.version,
}

for _, functions in ipairs { elementwise, shapes, indices, random } do
  for name, f in pairs(functions) do seg[name] = f end
end

-- Low-level interface for tests, notebooks and comparisons --------------------

-- The nodes of a table name -> node in the order of their names, so that the session does not
-- depend on the iteration order of a table.
local function names_of(nodes)
  local list = {}
  for _, name in ipairs(util.sorted_keys(nodes)) do list[#list + 1] = nodes[name] end
  return list
end

-- {name = array} of the session's last run.
local function read_all(session, nodes)
  local out = {}
  for name, node in pairs(nodes) do out[name] = session:read(node) end
  return out
end

-- Checks that the argument of a method is a string.
local function check_text(what, v)
  if type(v) ~= "string" then fail("usage", "%s must be a text, got %s", what, type(v)) end
  return v
end

-- Loads weights from a file; o.rename maps the names in the file to names of this network.
local function load_weights(self, path, o)
  check_text("load: the path", path)
  o = options("load", o, { rename = none })
  if not o.rename then return core.checkpoint.load(path, self.session, false) end
  local map = {}
  for _, t in ipairs(transfer.sources(path)) do map[t.from] = o.rename(t.name) end
  return core.checkpoint.import(path, self.session, map)
end

local Model = { load = load_weights }
Model.__index = Model

-- Checks `fuse` of the options `o` of function `what`. -> the option `plain` of a session
local function plain_of(what, o)
  if type(o.fuse) ~= "boolean" then
    fail("usage", "%s: fuse must be true or false, got %s", what, tostring(o.fuse))
  end
  return not o.fuse
end

-- seg.model{inputs=, outputs={name=node}, device=, threads=, precision=, winograd=, seed=, fuse=};
-- winograd = false: convolutions are direct sums; fuse = false: each operator runs by itself
function seg.model(o)
  o = options("seg.model", o, { inputs = none, outputs = none, device = "cpu", threads = 0,
                                precision = "f32", winograd = true, seed = 0, fuse = true })
  if type(o.outputs) ~= "table" then fail("usage", "seg.model: outputs must be name = node") end
  local session = core.session { roots = names_of(o.outputs), device = o.device,
                                 precision = o.precision, winograd = o.winograd,
                                 threads = o.threads, seed = o.seed,
                                 plain = plain_of("seg.model", o) }
  return setmetatable({ session = session, outputs = o.outputs }, Model)
end

-- Saves weights and running statistics; seg_open can run the file too.
function Model:save(path)
  check_text("save: the path", path)
  local nodes, names = {}, util.sorted_keys(self.outputs)
  for i, name in ipairs(names) do nodes[i] = self.outputs[name] end
  core.checkpoint.save(path, self.session, false, {
    graph = core.graph_text(nodes), outputs = table.concat(names, ",") })
end

-- Saves the network with its weights as ONNX: { probabilities=, any_size= } like the options of
-- `export --onnx`. -> {nodes=, numbers=, bytes=, probabilities=, opset=}
function Model:onnx(path, o)
  check_text("onnx: the path", path)
  o = options("onnx", o, { probabilities = false, any_size = false })
  local names = util.sorted_keys(self.outputs)
  return core.checkpoint.onnx(path, self.session, names_of(self.outputs), names, o, {})
end

-- Runs the evaluation plan: {input name = array} -> {output name = array}
function Model:run(inputs)
  self.session:forward(inputs, false)
  return read_all(self.session, self.outputs)
end

-- {name = {shape=, trained=}} of all parameters
function Model:parameters()
  local out = {}
  for _, p in ipairs(self.session:params()) do out[p.name] = p end
  return out
end

-- One parameter as an array in PyTorch's order; set() takes the same.
function Model:get(name)
  return self.session:get(check_text("get: the name of a parameter", name))
end

function Model:set(name, array)
  self.session:set(check_text("set: the name of a parameter", name), "value", array)
end

local Step -- below

-- other:follow(step, decay = 0, match = nil): parameters and running statistics with names that
-- both have (and that the Lua pattern `match` finds) become decay times themselves plus 1 - decay
-- times those of `from`, a step or a model: an exponential moving average; 0 copies them. Computed
-- in double on the host. -> their number
function Model:follow(from, decay, match)
  local kind = getmetatable(from)
  if kind ~= Model and kind ~= Step then
    fail("usage", "follow: wanted a result of seg.step or seg.model, got %s", type(from))
  end
  decay = decay or 0
  if math.type(decay) == nil or not (decay >= 0 and decay <= 1) then
    fail("usage", "follow: decay must be a number from 0 to 1, got %s", tostring(decay))
  end
  if match ~= nil and (type(match) ~= "string" or not pcall(string.find, "", match)) then
    fail("usage", "follow: match must be a Lua pattern of names of parameters, got %s",
         tostring(match))
  end
  local there, count = from:parameters(), 0
  for _, p in ipairs(self.session:params()) do
    if there[p.name] and (not match or p.name:find(match)) then
      self.session:blend(p.name, from.session, decay)
      count = count + 1
    end
  end
  if count == 0 then
    fail("usage", "follow: the networks share no parameter%s; nn.scope with share = true, or equal "
         .. "names, make parameters the same", match and " that " .. match .. " matches" or "")
  end
  return count
end

-- Opens the network in a checkpoint, or in a file of Model:save: m:run{name = array} -> {name =
-- array}; m:inputs() and m:outputs() -> {name = shape of one sample}.
function seg.open(path, o)
  o = options("seg.open", o, { device = "cpu", threads = 0 })
  return core.open(check_text("seg.open: the path", path), o.device, o.threads)
end

Step = { load = load_weights, parameters = Model.parameters, get = Model.get, set = Model.set,
         follow = Model.follow }
Step.__index = Step

-- Checks `norm`, a limit for the norm of all gradients.
local function check_norm(what, norm)
  if math.type(norm) == nil or not (norm >= 0) then
    fail("usage", "%s must be a number >= 0, got %s", what, tostring(norm))
  end
  return norm
end

-- seg.step{loss=, optim=, outputs=, frozen=, clip_norm=, accumulate=, device=, precision=,
-- winograd=, seed=, recompute=, fuse=}; accumulate: runs in one update; recompute: the limit of the
-- arena, as "2G"; values beyond it are recomputed; fuse = false: each operator runs by itself
function seg.step(o)
  o = options("seg.step", o, { loss = none, optim = none, outputs = {}, clip_norm = 0,
                               frozen = {}, device = "cpu", threads = 0, precision = "f32",
                               winograd = true, seed = 0, recompute = none, fuse = true,
                               accumulate = 1 })
  if type(o.optim) ~= "table" or type(o.optim.lr) ~= "number" then
    fail("usage", "seg.step: optim must be an optimiser of seg.optim, got %s", type(o.optim))
  end
  if type(o.outputs) ~= "table" then fail("usage", "seg.step: outputs must be name = node") end
  if o.loss == nil then fail("usage", "seg.step: loss is missing") end
  check_norm("seg.step: clip_norm", o.clip_norm)
  if math.type(o.accumulate) ~= "integer" or o.accumulate < 1 or o.accumulate > 1 << 20 then
    fail("usage", "seg.step: accumulate must be a whole number from 1 to %d, got %s", 1 << 20,
         tostring(o.accumulate))
  end
  local session = core.session { roots = names_of(o.outputs), loss = o.loss, device = o.device,
                                 precision = o.precision, winograd = o.winograd,
                                 threads = o.threads, seed = o.seed,
                                 optim = o.optim, frozen = o.frozen,
                                 plain = plain_of("seg.step", o) }
  if o.recompute ~= nil then
    local bytes = util.bytes_of(o.recompute)
    if not bytes then
      fail("usage", 'seg.step: recompute must be an amount of memory, as "2G", got %s',
           tostring(o.recompute))
    end
    session:budget(bytes)
  end
  group.apply(session, o.optim)
  local clip = o.clip_norm > 0 and o.clip_norm or o.optim.clip_norm
  return setmetatable({ session = session, outputs = o.outputs, lr = o.optim.lr,
                        clip_norm = clip, parts = o.accumulate, part = 0 }, Step)
end

-- Clips the gradients of the next runs to this norm of all together; 0: no clipping.
function Step:clip(norm)
  self.clip_norm = check_norm("clip: the norm", norm)
end

-- Runs one forward in training mode, backward, clipping and update; with `accumulate` every n-th
-- run updates, by the mean gradient of n. `lr` among the inputs overrides the optimiser's rate for
-- this call. -> loss before the update, {output name = array} of that forward
function Step:run(inputs)
  if type(inputs) ~= "table" then
    fail("usage", "run: inputs must be a table name -> array, got %s", type(inputs))
  end
  local feeds, lr = {}, self.lr
  for k, v in pairs(inputs) do
    if k == "lr" then lr = v else feeds[k] = v end
  end
  if math.type(lr) == nil or not (lr >= 0 and lr < math.huge) then
    fail("usage", "run: lr must be a number >= 0, got %s", tostring(lr))
  end
  local loss, norm, applied = self.session:step(feeds, {
    lr = lr, clip = self.clip_norm, parts = self.parts, first = self.part == 0,
    last = self.part == self.parts - 1 })
  self.part = (self.part + 1) % self.parts
  self.grad_norm, self.applied = norm, applied
  return loss, read_all(self.session, self.outputs)
end

-- Gradients of the last run, in user order, before clipping and decay.
function Step:gradients()
  local out = {}
  for _, p in ipairs(self.session:params()) do
    if p.trained then out[p.name] = self.session:get(p.name, "grad") end
  end
  return out
end

-- Saves a full checkpoint: weights, moments, step count. Between the runs of an update the
-- gradients so far would be missing.
function Step:save(path)
  if self.part ~= 0 then
    fail("usage", "save: %d of %d runs of an update are done, and a checkpoint does not hold their "
         .. "gradients; save after the last (step.applied)", self.part, self.parts)
  end
  core.checkpoint.save(check_text("save: the path", path), self.session, true, {})
end

-- Loads a full checkpoint of Step:save.
function Step:resume(path)
  core.checkpoint.load(check_text("resume: the path", path), self.session, true)
  self.part = 0
end

-- at the end, when every name is defined
for name, t in pairs { nn = nn, net = net, ["seg.op"] = core.op, data = data, optim = optim,
                       metric = metric, seg = seg, ["seg.array"] = core.array } do
  util.closed(name, t)
end

return seg
