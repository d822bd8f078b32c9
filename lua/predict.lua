-- predict.lua -- trained weights at work on images of which nothing is known.
--
-- What happens to an image before the network is in the checkpoint, the same
-- text that training ran, so prediction cannot prepare differently. A result
-- lies on the input's own grid.

local core = require "seg.core"
local config = require "seg.config"
local data = require "seg.data"
local opened = require "seg.opened"
local show = require "seg.show"
local util = require "seg.util"
local weights = require "seg.weights"

local sys, fail = core.sys, util.fail
local M = {}

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
  local d = opened.open(image, set:in_order(v.batch))
  local pipeline, loader = d.pipeline, d.loader
  local output = util.sorted_keys(r.outputs)[1]
  local node, samples = r.outputs[output], pipeline:samples()
  local open, current, started, seen = nil, nil, sys.clock(), 0
  local batches = loader:batches()
  for _ = 1, batches do
    local batch = loader:next()
    session:forward(opened.feeds(batch, d.names, image), false)
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

-- What the recipe says of a threshold or a temperature; "valid", or where it says nothing,
-- what was chosen on that set, which stands in the weights.
local function calibrated(r, meta, what, otherwise)
  local said, kept = r.predict[what], tonumber(meta[what])
  if said and said ~= "valid" then return said end
  if said and not kept then
    show.warn("these weights have no %s that was chosen on valid (evaluate --calibrate does it): "
              .. "%g is used", what, otherwise)
  end
  return kept or otherwise
end

-- predict: a file for every case of --in, and a table of what was found.
function M.command(r, name)
  local flags, out = config.line.flags, config.ensure().out
  if not flags["in"] then fail("usage", "predict wants --in PATH: an image, or a folder") end
  if not is_given("out") then fail("usage", "predict wants --out DIR: where the results go") end
  local session, meta, path = weights.open(r, name, "predict")
  if not meta.preprocessing then
    fail("data", "these weights do not say how images are prepared; use a checkpoint of train")
  end
  local set, kind = open_input(flags["in"], r.predict.image, r.train.source)
  local ds, rows = set:dataset(), { { "case", "voxels", "ml", "file" } }
  local cases = ds:cases()
  if meta.trained_on == util.MADE_UP and not flags.weights
    and not is_phantom(flags["in"], cases) then
    fail("usage", "the newest weights, %s, were trained on made-up patients; train on real ones "
         .. "with --data DIR, or name the weights that you mean with --weights FILE", path)
  end
  local output = util.sorted_keys(r.outputs)[1]
  local node = r.outputs[output]
  local names = segment_names(r, output, node.c, kind)
  local endings = file_endings(r, kind, math.max(node.c - 1, 1))
  local threshold = calibrated(r, meta, "threshold", 0.5)
  local temperature = calibrated(r, meta, "temperature", 1)
  local base, there = plan_files(out, cases, endings, { flags["in"], path })
  sys.mkdir(out)
  -- which slices to learn from was a choice of training
  local steps = core.data.predict_steps(meta.preprocessing)
  predict_set(session, r, set, steps, function(item, prediction)
    local volume = prediction:restore()
    local labels = volume:labels(threshold)
    local values = file_labels(meta, node)
    local written = values and labels:relabel(values) or labels
    written:write_nifti(base[item] .. ".nii.gz", ds, item)
    if kind == "dicom" then
      labels:write_seg(base[item] .. ".dcm", ds, item, names)
    end
    if r.predict.fractions then
      if temperature and node.c == 1 then volume:temper(temperature) end
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

return M
