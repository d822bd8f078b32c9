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

-- The weights that are meant: --weights, else those of the newest run, and what
-- there is to say of them. Where --out means the results, runs are looked for
-- where they are by default.
local function find_weights(name, purpose)
  local given = config.line.flags.weights
  local out = purpose == "predict" and config.runs or config.ensure().out
  local path, note = run_folder.weights(given, out, name)
  if not path then
    fail("usage", "no trained weights below %s/%s; train first, or give --weights FILE", out, name)
  end
  return path, note
end

-- A session with these weights, what the file says beside them, and its path.
function M.open_weights(r, name, purpose)
  local path, about = find_weights(name, purpose)
  local session = recipes.session(r, purpose)
  local meta = run_folder.load(path, session)
  show.line("weights: %s%s%s%s", path, meta.epoch and " (epoch " .. meta.epoch .. ")" or "",
            meta.trained_on and ", trained on " .. meta.trained_on or "", about)
  return session, meta, path
end

local is_nifti = core.data.nifti_is_name

-- Whether a file that `test` accepts lies in a folder or below it.
local function holds(folder, test)
  for _, name in ipairs(sys.list(folder)) do
    local path = folder .. "/" .. name
    local stat = sys.stat(path)
    if stat and stat.kind == "folder" then
      if holds(path, test) then return true end
    elseif test(path) then
      return true
    end
  end
  return false
end

-- Options of a data set that say how its files are read, by what --in holds.
local reading = {
  nifti = { "form", "assume_spacing", "channels", "resample", "skip_unmatched" },
  dicom = { "assume_hu", "resample_tilt", "assume_implicit_le", "resample", "skip_unmatched" },
}

-- The options of a data set of --in: these, and as training read its files.
local function read_as(kind, source, o)
  for _, key in ipairs(reading[kind]) do o[key] = source.options[key] end
  return o
end

-- Images to predict: a NIfTI file or a folder with NIfTI files, else DICOM. Of
-- a folder with both, as it is when results lie beside their images, the
-- format that the recipe was trained on. -> set, "nifti" or "dicom"
local function open_input(path, image, source)
  local stat = sys.stat(path)
  if not stat then fail("data", "--in %s: there is no such file or folder", path) end
  local trained = source.kind == "phantom" and source.options.format or source.kind
  if stat.kind == "file" and is_nifti(path) then
    return data.nifti(read_as("nifti", source, { root = path, patient = "file" })), "nifti"
  end
  if stat.kind == "folder" and holds(path, is_nifti)
    and not (trained == "dicom" and holds(path, core.data.dicom_is_file)) then
    return data.nifti(read_as("nifti", source, { root = path, image = image or "*",
                                                 patient = "file" })), "nifti"
  end
  return data.dicom(read_as("dicom", source, { root = path, image = image })), "dicom"
end

-- A case's key as the beginning of names of files that no other case has; keys
-- come from paths and headers, where anything may stand.
local function file_name(key, endings, used)
  local name = key:gsub("[^%w._-]", "_"):gsub("^%.+", "")
  if name == "" then name = "case" end
  local n, try = 1, name
  local function taken()
    for _, ending in ipairs(endings) do
      if used[try .. ending] then return true end
    end
  end
  while taken() do
    n = n + 1
    try = name .. "_" .. n
  end
  for _, ending in ipairs(endings) do used[try .. ending] = true end
  return try
end

-- Names of the segments: of the recipe, else of its output, with numbers. A name
-- that no SEG can hold is said before anything is predicted.
local function segment_names(r, output, channels, kind)
  local names = r.predict.names
  if type(names) == "table" and #names > 0 then return names end
  local list = {}
  for i = 1, channels == 1 and 1 or channels - 1 do
    list[i] = channels == 1 and output or output .. "_" .. i
    local fits, why = core.data.segment_name(list[i], i)
    if kind == "dicom" and not fits then
      fail("usage", "seg.recipe: outputs: %s, or give predict = { names = { ... } }", why)
    end
  end
  return list
end

-- What the files of a case end in: labels, and with predict = { fractions = true }
-- the probabilities of each segment.
local function file_endings(r, kind, segments)
  local endings = kind == "dicom" and { ".nii.gz", ".dcm" } or { ".nii.gz" }
  if not r.predict.fractions then return endings end
  if kind == "dicom" then
    endings[#endings + 1] = "_fractions.dcm"
    return endings
  end
  for i = 1, segments do endings[#endings + 1] = "_fraction_" .. i .. ".nii.gz" end
  return endings
end

-- The probabilities of a case: one SEG, or a NIfTI for each segment. Of several
-- channels the first is the background.
local function write_fractions(volume, base, kind, ds, item, names, channels)
  if kind == "dicom" then
    volume:write_seg(base .. "_fractions.dcm", ds, item, names, { fractions = true })
    return
  end
  local first = channels > 1 and 1 or 0
  for i = 1, channels - first do
    local one = volume:channel(first + i)
    one:write_nifti(base .. "_fraction_" .. i .. ".nii.gz", ds, item)
    one:close()
  end
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
      local item = pipeline:item(number)
      if item ~= current then
        if open then done(current, open) end
        open, current = core.data.prediction(pipeline, item, node.c), item
      end
      open:put(number, out, i, output)
    end
    seen = seen + batch.count
    show.bar("predict", seen, samples, started)
  end
  show.bar_done()
  if open then done(current, open) end
end

-- What may not be written to, by id of sys.stat: every file at or below --in,
-- and the weights, whatever the path or link that leads there.
local function protected(paths)
  local ids = {}
  local function add(path)
    local stat = sys.stat(path)
    if not stat or ids[stat.id] then return end -- a link may lead back
    ids[stat.id] = path
    if stat.kind ~= "folder" then return end
    for _, name in ipairs(sys.list(path)) do add(path .. "/" .. name) end
  end
  for _, path in ipairs(paths) do add(path) end
  return ids
end

-- Where the results of each case go, the path without its ending, and how many
-- of the files are there already. Refuses to write an input, before anything is
-- predicted.
local function plan_files(out, cases, endings, inputs)
  local base, used, there, ids = {}, {}, 0, nil
  for i, case in ipairs(cases) do
    base[i] = out .. "/" .. file_name(case.key, endings, used)
    for _, ending in ipairs(endings) do
      local stat = sys.stat(base[i] .. ending)
      if stat then
        ids = ids or protected(inputs)
        if ids[stat.id] then
          util.refuse("--out %s: the result would be written over %s, which is an input (%s); give "
                      .. "another folder", out, ids[stat.id], base[i] .. ending)
        end
        there = there + 1
      end
    end
  end
  return base, there
end

-- Whether these images are of data.phantom: patients called PHANTOM, or a folder
-- named as it names them.
local function is_phantom(path, cases)
  return cases[1].patient:match("^PHANTOM_%d+$")
    or ("/" .. path .. "/"):match("/%a[%w]*%-%d+x%d+x%d+%-%x%x%x%x%x%x%x%x/")
end

-- The files' own values of the classes of `node`, nil for the class numbers: of
-- weights that do not say, or that make other classes than the files have.
local function file_labels(meta, node)
  local list = {}
  for v in (meta.labels or ""):gmatch("[^,]+") do list[#list + 1] = math.tointeger(tonumber(v)) end
  return #list == math.max(node.c - 1, 1) and list or nil
end

-- Whether --KEY stands on the command line.
local function is_given(key)
  for _, o in ipairs(config.line.options) do
    if o[1] == key then return true end
  end
  return false
end

-- predict: a file for every case of --in, and a table of what was found.
local function predict(r, name)
  local flags, out = config.line.flags, config.ensure().out
  if not flags["in"] then fail("usage", "predict wants --in PATH: an image, or a folder") end
  if not is_given("out") then fail("usage", "predict wants --out DIR: where the results go") end
  local session, meta, weights = M.open_weights(r, name, "predict")
  if not meta.preprocessing then
    fail("data", "these weights do not say how images are prepared; use a checkpoint of train")
  end
  local set, kind = open_input(flags["in"], r.predict.image, r.train.source)
  local ds, rows = set:dataset(), { { "case", "voxels", "ml", "file" } }
  local cases = ds:cases()
  if meta.trained_on == util.MADE_UP and not flags.weights
    and not is_phantom(flags["in"], cases) then
    fail("usage", "the newest weights, %s, were trained on made-up patients; train on real ones "
         .. "with --data DIR, or name the weights that you mean with --weights FILE", weights)
  end
  local output = util.sorted_keys(r.outputs)[1]
  local node = r.outputs[output]
  local names = segment_names(r, output, node.c, kind)
  local endings = file_endings(r, kind, math.max(node.c - 1, 1))
  local base, there = plan_files(out, cases, endings, { flags["in"], weights })
  sys.mkdir(out)
  -- which slices to learn from was a choice of training
  local steps = core.data.predict_steps(meta.preprocessing)
  predict_set(session, r, set, steps, function(item, prediction)
    local volume = prediction:restore()
    local labels = volume:labels(r.predict.threshold or 0.5)
    local values = file_labels(meta, node)
    local written = values and labels:relabel(values) or labels
    written:write_nifti(base[item] .. ".nii.gz", ds, item)
    if kind == "dicom" then
      labels:write_seg(base[item] .. ".dcm", ds, item, names)
    end
    if r.predict.fractions then
      write_fractions(volume, base[item], kind, ds, item, names, node.c)
    end
    local voxels, ml = labels:count()
    rows[#rows + 1] = { cases[item].key, voxels, string.format("%.2f", ml),
                        base[item] .. ".nii.gz" }
    -- a volume may be a gigabyte, and the next one is on its way
    prediction:close()
    volume:close()
    written:close()
    labels:close()
  end)
  print(show.table(rows))
  if there > 0 then
    show.line("%s: %d file%s of before %s replaced", out, there, there == 1 and "" or "s",
              there == 1 and "was" or "were")
  end
  return 0
end

-- The set that --split names; "all" is every case, unsplit.
local function find_part(r, part)
  if part == "all" then
    local set = r.test or r.valid or r.train
    return set:unsplit() or fail("usage", "--split all: this recipe does not split one set of "
                                 .. "cases into parts; give train, valid or test")
  end
  if part ~= "valid" and part ~= "test" and part ~= "train" then
    util.refuse("--split %s: use train, valid, test or all", part)
  end
  return r[part] or fail("usage", "the recipe has no %s set", part)
end

-- Whether the cases of `d` are those of `part` in the run that the weights are
-- of, whose cases.csv has `rows`. Cases that were trained on are refused: by
-- name and by their voxels. (A case of slabs is in every part.)
local function check_cases(rows, d, part, run, hash)
  local by_key, trained, expected, found = {}, {}, 0, 0
  for _, row in ipairs(rows) do
    local parts = by_key[row.key] or { image = row.image }
    if not by_key[row.key] or part ~= "all" then
      expected = expected + ((part == "all" or row.part == part) and 1 or 0)
    end
    by_key[row.key], parts[row.part] = parts, true
    if row.part == "train" and row.image then trained[row.image] = parts end
  end
  local cases, bad, chosen = #d.pipeline:cases(), {}, 0
  for i = 1, cases do
    local f = d.pipeline:facts(i)
    local parts = by_key[f.key]
    local source = trained[f.image] or (parts and parts.train and parts)
    if source and not source[part] then bad[#bad + 1] = hash(f.key) end
    if parts and (part == "all" or parts[part]) and (parts.image or f.image) == f.image then
      found = found + 1
    end
    if parts and parts.valid and part == "test" and not parts.test then chosen = chosen + 1 end
  end
  if part ~= "train" and #bad > 0 then
    fail("data", "--split %s: %d of %d cases were in train when these weights were made, the first "
         .. "is %s (%s/cases.csv): the value would be too good; leave out --data and what changes "
         .. "the split to evaluate on the parts of that run, give a folder without these "
         .. "patients, or --split train", part, #bad, cases, bad[1], run)
  end
  if chosen > 0 then
    show.warn("%d of %d cases were in valid when these weights were made, which chose the best",
              chosen, cases)
  end
  return found == cases and found == expected
end

-- Where the numbers come from: the config, without paths, as key -> text.
local function config_table()
  local out = {}
  for line in config.print(config.values, config.fixed):gmatch("[^\n]+") do
    local k, v = line:match("^([%w_]+) = (.*)$")
    out[k] = v
  end
  return out
end

-- evaluate: a part through the network in the order of its cases, nothing
-- changed at random, also of train: what was learned, against what is known.
local function evaluate_part(r, name)
  local v, flags, part = config.ensure(), config.line.flags, config.line.flags.split or "test"
  local set = find_part(r, part)
  local session, meta, path = M.open_weights(r, name, "evaluate")
  if flags.saved_data then
    show.line("data: that of the run (%s); --data gives other", v.data or v.phantom)
  end
  local real = meta.trained_on and meta.trained_on ~= util.MADE_UP
  if real and set.source.kind == "phantom" then
    show.warn("these weights were trained on real data and are measured on made-up patients; "
              .. "give --data DIR")
  end
  if meta.preprocessing then set = set:fitted_as(meta.preprocessing) end
  local d = evaluate.open(r, set:in_order(v.batch))
  -- the hashes of the run the weights are of, when they lie in one
  local run = run_folder.of(path)
  local base = run and run_folder.base(run)
  local hash = run_folder.hasher(base and util.exists(base .. "/.key") and base
                                 or v.out .. "/" .. name)
  local same = run and check_cases(run_folder.read_cases(run), d, part, run, hash)
  local result = evaluate.run(session, r, d.pipeline, d.loader, d.names, part)
  local lines, json = evaluate.summary(r, result, d.pipeline, hash)
  evaluate.identify(json, part, d, hash)
  json.config, json.epoch = config_table(), meta.epoch
  if flags.json then
    print(util.json(json))
    return 0
  end
  print((evaluate.table(r, result, d.pipeline, hash)))
  for _, line in ipairs(lines) do print(line) end
  -- beside the weights; results on other cases than the run's keep their own file
  local file = string.format("%s/evaluate_%s%s.json", path:match("^(.*)/[^/]*$") or ".", part,
                             same and "" or "_" .. json.data)
  sys.write(file, util.json(json) .. "\n")
  show.line("written: %s", file)
  return 0
end

function M.command(r, name, command)
  if command == "predict" then return predict(r, name) end
  return evaluate_part(r, name)
end

return M
