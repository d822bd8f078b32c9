-- export.lua -- exports weights, networks, bundles and data for other programs.
--
--   export --safetensors FILE [--weights FILE]
--       trained weights and running statistics, the graph, and the steps that
--       prepare an image; nothing of the optimiser, nothing of the patients.
--   export --onnx FILE [--weights FILE] [--probabilities] [--any_size]
--       the network with its trained weights for other runtimes: docs/export.md.
--   export --bundle FILE [--weights FILE]
--       weights, network, and how images are prepared: predict --bundle runs it.
--   export --reference DIR --steps N
--       init.safetensors, the first N batches of the training loader in order
--       (step_0001_<input>.npy, ...) and loss.csv with the learning rate and the
--       loss of each step: another framework repeats the steps and compares.
--   export --arrays DIR
--       every sample of train, valid and test, prepared but not augmented, in
--       order: train_0001_<input>.npy, ... (a batch each) and train_case.npy, the
--       number of each sample's case, for a training in another framework.
--       steps.txt: the data steps, with the numbers of standardize.
--
-- Arrays are (N, C, ...) in float32. Cases are numbered; their names are not exported.

local aliases = require "seg.aliases"
local bundle = require "seg.predict.bundle"
local core = require "seg.core"
local config = require "seg.recipe.config"
local opened = require "seg.data.opened"
local recipes = require "seg.recipe.recipe"
local run_folder = require "seg.report.run"
local show = require "seg.show"
local trained = require "seg.predict.weights"
local util = require "seg.util"

local sys, fail = core.sys, util.fail
local M = {}

local STEPS = 20 -- steps that --reference exports when --steps is not given

-- Writes the inputs of a batch: <base>_<input>.npy.
local function save_batch(r, batch, names, base)
  local feeds = opened.feeds(batch, names, r)
  for _, input in ipairs(r.inputs) do
    core.array.save(string.format("%s_%s.npy", base, input.name), feeds[input.name]:array())
  end
  return feeds
end

-- Reference runs --------------------------------------------------------------

local function reference(r, folder)
  local v = config.ensure()
  local steps = v.steps > 0 and v.steps or STEPS
  if r.accumulate ~= 1 then
    fail("usage", "export --reference: a row of loss.csv is one batch; set accumulate = 1, got %s",
         tostring(r.accumulate))
  end
  if r.frozen[1] then
    fail("usage", "export --reference: the reference trains every parameter; leave frozen out")
  end
  if r.optim.groups or r.optim.decay_on ~= "all" then
    fail("usage", "export --reference: the reference updates all parameters alike; leave groups "
         .. "and decay_on out")
  end
  local session = recipes.session(r, "train")
  opened.fit_numbers(r)
  local d = opened.open(r, r.train)
  sys.mkdir(folder)
  core.checkpoint.save(folder .. "/init.safetensors", session, false, {})
  local rows, batches = { "step,epoch,lr,loss" }, (d.loader:batches())
  local state = r.schedule.start and r.schedule.start()
  for i = 1, steps do
    local batch = d.loader:next()
    local epoch = batch.epoch + 1
    local lr = recipes.rate(r, epoch, (i - 1) % batches, batches, state)
    local feeds = save_batch(r, batch, d.names, string.format("%s/step_%04d", folder, i))
    local loss, _, applied = session:step(feeds, { lr = lr, clip = r.optim.clip_norm })
    if not applied then
      fail("diverged", "step %d gave a loss or gradient that is not finite", i)
    end
    rows[#rows + 1] = string.format("%d,%d,%s,%s", i, epoch, util.number(lr), util.number(loss))
  end
  sys.write(folder .. "/loss.csv", table.concat(rows, "\n") .. "\n")
  show.line("%s: initial weights, %d batches of %d and the losses of these steps", folder, steps,
            v.batch)
end

-- Prepared samples ------------------------------------------------------------

local function export_part(r, part, folder)
  local d = opened.open(r, r[part]:in_order(config.ensure().batch))
  local batches, samples = d.loader:batches()
  -- at: samples so far; last: the highest case number
  local cases, at, last = core.array.zeros { samples }, 0, 0
  for i = 1, batches do
    local batch = d.loader:next()
    save_batch(r, batch, d.names, string.format("%s/%s_%04d", folder, part, i))
    for _, number in ipairs(batch.samples) do
      local case = d.pipeline:item(number)
      at, last = at + 1, math.max(last, case)
      cases:set(case, at)
    end
  end
  core.array.save(string.format("%s/%s_case.npy", folder, part), cases)
  show.line("%s/%s_*.npy: %s of %s", folder, part, util.plural(samples, "sample"),
            util.plural(last, "case"))
end

local function arrays(r, folder)
  sys.mkdir(folder)
  opened.fit_numbers(r)
  sys.write(folder .. "/steps.txt", r.train:prepare_steps())
  for _, part in ipairs { "train", "valid", "test" } do
    if r[part] then export_part(r, part, folder) end
  end
end

-- Weights ---------------------------------------------------------------------

local function weights(r, file, name)
  local session, meta = trained.open(r, name, "evaluate")
  local graph, outputs = recipes.network(r)
  core.checkpoint.save(file, session, false, {
    graph = graph, outputs = outputs, preprocessing = meta.preprocessing, labels = meta.labels,
    trained_on = meta.trained_on, read = meta.read, training = meta.training })
  show.line("%s: %s parameters and running statistics", file,
            util.thousands(session:facts().trained))
end

-- ONNX ------------------------------------------------------------------------

-- A shape as text, "image (batch,1,256,256)".
local function shape_text(name, node, free)
  local shape = node.shape
  for i = 1, #shape do
    shape[i] = i == 1 and "batch" or i > 2 and free and "any" or string.format("%d", shape[i])
  end
  return string.format("%s (%s)", name, table.concat(shape, ","))
end

local function onnx(r, file, name)
  local flags = config.line.flags
  local session, meta = trained.open(r, name, "evaluate")
  local nodes, names = recipes.outputs(r)
  local segments = type(r.predict.names) == "table" and table.concat(r.predict.names, ",") or ""
  local facts = core.checkpoint.onnx(file, session, nodes, names, {
    probabilities = flags.probabilities, any_size = flags.any_size }, {
    preprocessing = meta.preprocessing, labels = meta.labels, trained_on = meta.trained_on,
    segments = segments ~= "" and segments or nil, recipe = name,
    intended_use = "research use only, not a medical device" })
  local out = {}
  for i, node in ipairs(nodes) do out[i] = shape_text(names[i], node, flags.any_size) end
  show.line("%s: ONNX, opset %d: %s, %s numbers (%s); output %s", file, facts.opset,
            util.plural(facts.nodes, "node"), util.thousands(facts.numbers),
            util.bytes(facts.bytes), table.concat(out, ", "))
  if flags.probabilities and facts.probabilities == 0 then
    show.line("--probabilities: the outputs end in a sigmoid or softmax as they are")
  end
end

-- Bundles ---------------------------------------------------------------------

-- The names of the cases and patients of the run that the weights belong to.
local function case_names(path)
  local home, names = run_folder.of(path), {}
  for _, row in ipairs(home and run_folder.read_cases(home) or {}) do
    names[row.key], names[row.patient] = true, true
  end
  names[""] = nil
  return names
end

local function make_bundle(r, file, name)
  local session, meta, path = trained.open(r, name, "evaluate")
  local graph, outputs = recipes.network(r)
  local names = case_names(path)
  local text, left_out = bundle.clean(meta.recipe_text or "", names)
  local saved = meta.config and aliases.config(meta.config)
  core.checkpoint.save(file, session, false, {
    graph = graph, outputs = outputs, bundle = bundle.text(r, name, meta, path), recipe_text = text,
    config = saved and bundle.clean_config(saved, names) })
  show.line("%s: %s parameters and running statistics, and how images are prepared; run it with "
            .. "segengine predict --bundle %s --in PATH --out DIR", file,
            util.thousands(session:facts().trained), file)
  if left_out > 0 then
    show.line("its copy of the script is without %s that may name a person, a day or a place",
              util.plural(left_out, "word"))
  end
end

-- The command export.
function M.command(r, name)
  local flags = config.line.flags
  local done = false
  for _, key in ipairs { "probabilities", "any_size" } do
    if flags[key] and not flags.onnx then
      util.refuse("--%s needs --onnx FILE; leave it out, or give --onnx", key)
    end
  end
  for _, kind in ipairs { { "safetensors", weights }, { "onnx", onnx }, { "bundle", make_bundle },
                          { "reference", reference }, { "arrays", arrays } } do
    if flags[kind[1]] then
      kind[2](r, flags[kind[1]], name)
      done = true
    end
  end
  if not done then
    fail("usage", "export needs --bundle FILE, --onnx FILE, --safetensors FILE, --reference DIR or "
         .. "--arrays DIR")
  end
  return 0
end

return M
