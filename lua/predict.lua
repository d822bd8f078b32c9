-- predict.lua -- trained weights at work: predict and evaluate.
--
-- What happens to an image before the network is in the checkpoint, the same
-- text that training ran, so prediction cannot prepare differently. A result
-- lies on the input's own grid.

local core = require "seg.core"
local config = require "seg.config"
local data = require "seg.data"
local evaluate = require "seg.evaluate"
local recipes = require "seg.recipe"
local run_folder = require "seg.run"
local show = require "seg.show"
local util = require "seg.util"

local sys, fail = core.sys, util.fail
local M = {}

-- The weights that are meant: --weights, else the best of the newest run. Where
-- --out means the results, runs are looked for where they are by default.
local function find_weights(name, purpose)
  local given = config.line.flags.weights
  local out = purpose == "predict" and config.runs or config.ensure().out
  if given then
    if not util.exists(given) then fail("data", "--weights %s: there is no such file", given) end
    return given
  end
  return run_folder.weights(out, name) or
    fail("usage", "no trained weights below %s/%s; train first, or give --weights FILE", out, name)
end

-- A session with these weights, what the file says beside them, and its path.
function M.open_weights(r, name, purpose)
  local path = find_weights(name, purpose)
  local session = recipes.session(r, purpose)
  local meta, note = core.checkpoint.load(path, session, false)
  if note ~= "" then show.warn("%s", note) end
  show.line("weights: %s%s", path, meta.epoch and " (epoch " .. meta.epoch .. ")" or "")
  return session, meta, path
end

local function is_nifti(path)
  return path:match("%.nii$") or path:match("%.nii%.gz$") or path:match("%.hdr$")
end

-- Images to predict: a NIfTI file or a folder with NIfTI files, else DICOM.
-- -> set, "nifti" or "dicom"
local function open_input(path, image)
  local stat = sys.stat(path)
  if not stat then fail("data", "--in %s: there is no such file or folder", path) end
  local function holds_nifti(folder)
    for _, f in ipairs(sys.list(folder)) do
      if is_nifti(f) then return true end
      local below = sys.stat(folder .. "/" .. f)
      if below and below.kind == "folder" and holds_nifti(folder .. "/" .. f) then return true end
    end
    return false
  end
  if stat.kind == "file" and is_nifti(path) then
    return data.nifti { root = path, patient = "file" }, "nifti"
  end
  if stat.kind == "folder" and holds_nifti(path) then
    return data.nifti { root = path, image = image or "*", patient = "file" }, "nifti"
  end
  return data.dicom { root = path, image = image }, "dicom"
end

-- A case's key as a file name that no other case has; keys come from paths and
-- headers, where anything may stand.
local function file_name(key, used)
  local name = key:gsub("[^%w._-]", "_"):gsub("^%.+", "")
  if name == "" then name = "case" end
  local n, try = 1, name
  while used[try] do
    n = n + 1
    try = name .. "_" .. n
  end
  used[try] = true
  return try
end

-- Names of the segments: of the recipe, else numbers.
local function segment_names(r, output, channels)
  local names = r.predict.names
  if type(names) == "table" and #names > 0 then return names end
  local list = {}
  for i = 1, channels == 1 and 1 or channels - 1 do
    list[i] = channels == 1 and output or output .. "_" .. i
  end
  return list
end

-- All samples of one set through the network; `done` gets each finished case.
local function predict_set(session, r, set, steps, done)
  local v = config.ensure()
  set.steps = steps
  local image = { inputs = { r.inputs[1] } } -- what a prediction knows
  local d = evaluate.open(image, set:in_order(v.batch))
  local pipeline, loader = d.pipeline, d.loader
  local output = util.sorted_keys(r.outputs)[1]
  local node, samples = r.outputs[output], pipeline:samples()
  local open, current, started, seen = nil, nil, sys.clock(), 0
  local batches = loader:batches()
  for _ = 1, batches do
    local batch = loader:next()
    session:forward(evaluate.feeds(batch, d.names, image), false)
    local out = session:read(node)
    for i, number in ipairs(batch.samples) do
      local item, slice = pipeline:item(number)
      if item ~= current then
        if open then done(current, open, output) end
        open, current = core.data.prediction(pipeline, item, node.c), item
      end
      open:put(slice, out, i)
    end
    seen = seen + batch.count
    show.bar("predict", seen, samples, started)
  end
  show.bar_done()
  if open then done(current, open, output) end
end

-- predict: a file for every case of --in, and a table of what was found.
local function predict(r, name)
  local flags, v = config.line.flags, config.ensure()
  if not flags["in"] then fail("usage", "predict wants --in PATH: an image, or a folder") end
  local out = v.out
  local given = false
  for _, o in ipairs(config.line.options) do given = given or o[1] == "out" end
  if not given then fail("usage", "predict wants --out DIR: where the results go") end
  local session, meta = M.open_weights(r, name, "predict")
  if not meta.preprocessing then
    fail("data", "these weights do not say how images are prepared; use a checkpoint of train")
  end
  sys.mkdir(out)
  local set, kind = open_input(flags["in"], r.predict.image)
  local ds, used, rows = set:dataset(), {}, { { "case", "voxels", "ml", "file" } }
  local cases = ds:cases()
  predict_set(session, r, set, meta.preprocessing, function(item, prediction, output)
    local volume = prediction:restore()
    local labels = volume:labels(r.predict.threshold or 0.5)
    local base = out .. "/" .. file_name(cases[item].key, used)
    labels:write_nifti(base .. ".nii.gz", ds, item)
    if kind == "dicom" then
      labels:write_seg(base .. ".dcm", ds, item, segment_names(r, output, r.outputs[output].c))
    end
    local voxels, ml = labels:count()
    rows[#rows + 1] = { cases[item].key, voxels, string.format("%.2f", ml), base .. ".nii.gz" }
    -- a volume may be a gigabyte, and the next one is on its way
    prediction:close()
    volume:close()
    labels:close()
  end)
  print(show.table(rows))
  return 0
end

-- evaluate: a part through the network in the order of its cases, nothing
-- changed at random, also of train: what was learned, against what is known.
local function evaluate_part(r, name)
  local v, part = config.ensure(), config.line.flags.split or "test"
  if part ~= "valid" and part ~= "test" and part ~= "train" then
    fail("usage", '--split %s: use train, valid or test', part)
  end
  local set = r[part]
  if not set then fail("usage", "the recipe has no %s set", part) end
  local session, _, path = M.open_weights(r, name, "evaluate")
  local d = evaluate.open(r, set:in_order(v.batch))
  local pipeline = d.pipeline
  local result = evaluate.run(session, r, pipeline, d.loader, d.names, part)
  -- the hashes of the run the weights are of, when they lie in one
  local base = run_folder.base(run_folder.base(path))
  local hash = run_folder.hasher(util.exists(base .. "/.key") and base or v.out .. "/" .. name)
  local lines, json = evaluate.summary(r, result, pipeline, hash)
  if config.line.flags.json then
    print(util.json(json))
    return 0
  end
  print((evaluate.table(r, result, pipeline, hash)))
  for _, line in ipairs(lines) do print(line) end
  local target = path:match("^(.*)/[^/]*$")
  if target then
    sys.write(string.format("%s/evaluate_%s.json", target, part), util.json(json) .. "\n")
  end
  return 0
end

function M.command(r, name, command)
  if command == "predict" then return predict(r, name) end
  return evaluate_part(r, name)
end

return M
