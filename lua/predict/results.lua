-- results.lua -- writes predictions: files in the format of the input, and the table of results.
--
-- The meaning of an output is one of
--   labels   class numbers, from the probabilities of classes
--   values   the numbers of the output, a map in any unit
--   dose     a map in Gy
--   numbers  numbers of the case, such as angles
--   classes  the probabilities of classes of the whole case

local core = require "seg.core"
local overlay = require "seg.predict.overlay"
local tidy = require "seg.predict.tidy"
local util = require "seg.util"

local sys, fail = core.sys, util.fail
local M = {}

M.meanings = { "labels", "values", "dose", "numbers", "classes" }

-- The meaning of the output: predict = { as = }, else derived from its shape and the data.
function M.meaning(r, node)
  local made = r.train.source.made or {}
  local as = r.predict.as
  if not as and node.rank == 0 then
    local classes = made.options and made.options.classes or node.kind == "softmax"
    as = classes and "classes" or "numbers"
  elseif not as then
    as = made.kind == "openkbp" and "dose" or "labels"
  end
  local of_case = as == "numbers" or as == "classes"
  if of_case ~= (node.rank == 0) then
    fail("usage", 'seg.recipe: predict: as = "%s" needs an output %s, this output is %s', as,
         of_case and "of a case, without h and w" or "with h and w",
         node.rank == 0 and "numbers of a case" or node.rank .. "-D")
  end
  return as
end

-- Names of files --------------------------------------------------------------

-- The key of a case as a file name that no other case has. Keys come from paths and headers and may
-- hold any bytes.
local function file_name(key, endings, used)
  local name = util.plain_name(key):gsub("^%.+", "")
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

-- The files that must not be overwritten, by id of sys.stat: every file at or below --in, and the
-- weights, through whatever path or link.
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

-- Returns the result path of each case without its extension, and how many of the files already
-- exist. Refuses to overwrite an input, before anything is predicted. more: files that belong to no
-- case; zip: the file of --zip, or nil.
function M.plan_files(out, cases, endings, inputs, more, zip)
  local base, used, there, ids = {}, {}, 0, nil
  local function refuse_input(option, path, stat)
    ids = ids or protected(inputs)
    if ids[stat.id] then
      util.refuse("%s: the result would be written over %s, which is an input (%s); give "
                  .. "another folder", option, ids[stat.id], path)
    end
  end
  local function check(path)
    local stat = sys.stat(path)
    if not stat then return end
    refuse_input("--out " .. out, path, stat)
    there = there + 1
  end
  if zip then
    -- with this extension the archive cannot be one of the results that go into it
    if not zip:find("[^/]%.zip$") then
      util.refuse("--zip %s: give the name of a file, NAME.zip", zip)
    end
    local stat = sys.stat(zip)
    if stat then refuse_input("--zip " .. zip, zip, stat) end
  end
  for i, case in ipairs(cases) do
    base[i] = out .. "/" .. file_name(case.key, endings, used)
    for _, ending in ipairs(endings) do check(base[i] .. ending) end
  end
  for _, name in ipairs(more) do check(out .. "/" .. name) end
  return base, there
end

-- Maps ---------------------------------------------------------------------------

-- Whether maps of float numbers are .npy arrays for this kind of input; else they are NIfTI.
local function as_arrays(kind) return kind == "images" or kind == "npy" end

-- The file endings of a map of `channels` float channels that is called `suffix`. first: the number
-- of the first file of several, 0 where channels are classes.
local function map_endings(kind, suffix, channels, first)
  if as_arrays(kind) then return { suffix .. ".npy" } end
  if channels == 1 then return { suffix .. ".nii.gz" } end
  local list = {}
  for i = 1, channels do
    list[i] = string.format("%s_%d.nii.gz", suffix, (first or 1) + i - 1)
  end
  return list
end

-- Writes a volume of floats to the files of map_endings.
local function write_map(w, volume, place, suffix, first)
  local base, channels = w.base[place], volume:channels()
  local endings = map_endings(w.kind, suffix, channels, first)
  if as_arrays(w.kind) then
    volume:write_npy(base .. endings[1], w.rank)
    return
  end
  for i = 1, channels do
    local one = channels == 1 and volume or volume:channel(i)
    one:write_nifti(base .. endings[i], w.ds, place)
    if one ~= volume then one:close() end
  end
end

-- Writes the probabilities of a case: one SEG, or a map for each segment. Of several channels the
-- first is the background, which is not written.
local function write_fractions(w, volume, place)
  local c = volume:channels()
  if w.kind == "dicom" then
    volume:write_seg(w.base[place] .. "_fractions.dcm", w.ds, place, w.names, { fractions = true })
    return
  end
  local segments = c > 1 and volume:channel(2, c - 1) or volume
  if as_arrays(w.kind) then
    write_map(w, segments, place, "_fractions")
  else
    for i = 1, segments:channels() do
      local one = segments:channel(i)
      one:write_nifti(string.format("%s_fraction_%d.nii.gz", w.base[place], i), w.ds, place)
      one:close()
    end
  end
  if segments ~= volume then segments:close() end
end

-- Writes the class numbers of a case, in the format of its input.
local function write_labels(w, labels, place)
  local written = w.values and labels:relabel(w.values) or labels
  local path = w.base[place] .. w.endings[1]
  -- DICOM first, because it may refuse the case: then no file of the case exists
  if w.kind == "dicom" then labels:write_seg(w.base[place] .. ".dcm", w.ds, place, w.names) end
  if w.kind == "images" then
    written:write_png(path)
  elseif w.kind == "npy" then
    written:write_npy(path, w.rank)
  else
    written:write_nifti(path, w.ds, place)
  end
  if written ~= labels then written:close() end
  return path
end

-- Writes the numbers of a map. A dose for OpenKBP is the file of the challenge; for DICOM an RT
-- dose is written in addition to the NIfTI.
local function write_values(w, volume, place)
  if w.as == "dose" and w.kind == "openkbp" then
    local path = w.base[place] .. ".csv"
    volume:write_openkbp(path)
    return path
  end
  if w.as == "dose" and w.kind == "dicom" then
    volume:write_dose(w.base[place] .. ".dcm", w.ds, place)
  end
  write_map(w, volume, place, "")
  return w.base[place] .. map_endings(w.kind, "", volume:channels())[1]
end

-- The endings of the files of a case; the table names the first.
function M.endings(w, r)
  local list, c = {}, w.node.c
  local function add(endings) table.move(endings, 1, #endings, #list + 1, list) end
  if w.as == "labels" then
    add { w.kind == "images" and ".png" or w.kind == "npy" and ".npy" or ".nii.gz" }
    if w.kind == "dicom" then add { ".dcm" } end
    if r.predict.fractions and w.kind == "dicom" then
      add { "_fractions.dcm" }
    elseif r.predict.fractions and as_arrays(w.kind) then
      add { "_fractions.npy" }
    elseif r.predict.fractions then
      for i = 1, math.max(c - 1, 1) do add { "_fraction_" .. i .. ".nii.gz" } end
    end
  else
    add(w.as == "dose" and w.kind == "openkbp" and { ".csv" } or map_endings(w.kind, "", c))
    if w.as == "dose" and w.kind == "dicom" then add { ".dcm" } end
  end
  if w.draws > 0 then
    if w.as == "labels" then
      add(map_endings(w.kind, "_mean", c, 0))
      add(map_endings(w.kind, "_entropy", 1))
    end
    add(map_endings(w.kind, "_variance", 1))
  end
  if w.overlays then add { "_overlay.png" } end
  return list
end

-- Writes the maps of Monte-Carlo dropout: for classes the mean and its entropy, and always the
-- variance over the draws.
local function write_draws(w, mean, variance, entropy, place)
  if entropy then
    write_map(w, mean, place, "_mean", 0)
    write_map(w, entropy, place, "_entropy")
  end
  write_map(w, variance, place, "_variance")
end

-- Prepares the output of maps. Sets open, done and writing, which windows.run calls, and `rows`,
-- the table of results. w: { ds =, cases =, base =, kind = of --in, as =, names = of segments,
-- values = the class values of the files or nil, draws = of Monte-Carlo dropout or 0, overlays =,
-- rank = of an array, node = }.
function M.maps(r, w)
  local c, labels_wanted, o = w.node.c, w.as == "labels", r.predict
  local values_wanted = not labels_wanted or o.fractions or w.draws > 0
  local steps = labels_wanted and tidy.steps(r, w.names) or {}
  w.rows = { labels_wanted and { "case", "voxels", "ml", "file" }
             or { "case", "lowest", "mean", "highest", "file" } }
  -- with several classes each class has a column too
  local classes = labels_wanted and c > 2 and c - 1 or 0
  for i = 1, classes do table.insert(w.rows[1], 3 + i, w.names[i] .. "_ml") end

  function w.open(pipeline, item)
    return core.data.prediction(pipeline, item, c + (w.draws > 0 and 1 or 0), {
      classes = labels_wanted and c or 0, threshold = o.threshold or 0.5,
      labels = labels_wanted, values = values_wanted, entropy = labels_wanted and w.draws > 0 })
  end

  -- Bytes that writing the files of a case with so many voxels takes: the file is in memory as a
  -- whole, and its source may be a copy. reading: bytes that opening the image took; an overlay
  -- opens the image once more.
  function w.writing(voxels, reading)
    local bytes = voxels * (w.values and 2 or 1)
    if values_wanted then bytes = math.max(bytes, 4 * voxels * (c + 2)) end
    return bytes + (w.overlays and reading + 6 * voxels + overlay.CANVAS or 0)
  end

  -- Writes the labels, and the probabilities and the maps of the draws if asked for.
  local function done_labels(place, labels, values, variance, entropy)
    local case = w.cases[place]
    tidy.run(labels, steps, case.key)
    local file = write_labels(w, labels, place)
    if o.fractions then
      if o.temperature and c == 1 and w.draws == 0 then values:temper(o.temperature) end
      write_fractions(w, values, place)
    end
    if variance then write_draws(w, values, variance, entropy, place) end
    local voxels, ml, of = labels:count(classes)
    local row = { case.key, voxels, string.format("%.2f", ml) }
    for _, n in ipairs(of) do
      row[#row + 1] = string.format("%.2f", n > 0 and ml / voxels * n or 0)
    end
    row[#row + 1] = file
    w.rows[#w.rows + 1] = row
  end

  local function done_values(place, values, variance)
    local file, s = write_values(w, values, place), values:stats()
    if variance then write_draws(w, nil, variance, nil, place) end
    w.rows[#w.rows + 1] = { w.cases[place].key, string.format("%.4g", s.min),
                            string.format("%.4g", s.mean), string.format("%.4g", s.max), file }
  end

  function w.done(place, sink)
    local values, labels, entropy = sink:restore()
    local variance
    sink:close()
    if values and w.draws > 0 then
      local all = values
      values, variance = all:channel(1, c), all:channel(c + 1)
      all:close()
    end
    if labels then
      done_labels(place, labels, values, variance, entropy)
    else
      done_values(place, values, variance)
    end
    if w.overlays then
      overlay.write(w.base[place] .. "_overlay.png", w.ds, place, labels or values, w.names)
    end
    -- a volume may be a gigabyte, and the next case is already loading
    for _, v in ipairs { values or false, labels or false, entropy or false, variance or false } do
      if v then v:close() end
    end
  end
  return w
end

-- Numbers of cases -----------------------------------------------------------------

-- mean and sd of the standardize step of a field in the text of steps.
local function standardized(steps, field)
  for line in steps:gmatch("standardize ([^\n]*)") do
    if (" " .. line .. " "):find(" field=" .. field .. " ", 1, true) then
      local function list(key)
        local out = {}
        for n in ((" " .. line):match(" " .. key .. "=(%S+)") or ""):gmatch("[^,]+") do
          out[#out + 1] = tonumber(n)
        end
        return out
      end
      return list("mean"), list("sd")
    end
  end
end

-- The field of numbers that is the target of the output: the field of the same name, else the only
-- field with as many numbers.
local function target_of(r, output, node)
  local numbers, found = r.train.source.numbers or {}, nil
  if numbers[output] and #numbers[output] == node.c then return output, numbers[output] end
  for field, names in pairs(numbers) do
    if #names == node.c then
      if found then return nil end
      found = field
    end
  end
  return found, found and numbers[found]
end

-- The column names of an output of a case, and the mean and sd that undo the standardisation of its
-- target (nil: no standardisation), and the name of the target field.
local function columns_of(r, output, node, as, steps)
  local names, given = {}, r.predict.names
  local made = r.train.source.made or {}
  local field, known = target_of(r, output, node)
  if as == "classes" then known = made.options and made.options.classes end
  for i = 1, node.c do
    names[i] = given and given[i] or known and known[i] or node.c == 1 and output
      -- classes are numbered from 0, as cross_entropy counts them
      or as == "classes" and tostring(i - 1) or string.format("%s_%d", output, i)
  end
  local mean, sd
  if as == "numbers" and field then mean, sd = standardized(steps, field) end
  if mean and #mean ~= node.c then mean, sd = nil, nil end
  return names, mean, sd, field
end

local COLUMNS = 6 -- columns of classes, at most, in a printed table

-- The table to print: without the columns of classes if there are too many.
function M.shown(w)
  local more = w.as == "labels" and w.node.c - 1 or 0
  if more <= COLUMNS then return w.rows end
  local rows = {}
  for i, row in ipairs(w.rows) do
    rows[i] = table.move(row, 4 + more, #row, 4, { row[1], row[2], row[3] })
  end
  return rows
end

-- The rows of the table for --json: each column by its name, numbers as numbers. -> { [key of a
-- case] = { column = value } }
function M.by_case(rows)
  local out = {}
  for i = 2, #rows do
    local values = {}
    for k = 2, #rows[1] do
      local cell = rows[i][k]
      local column = rows[1][k]
      if column ~= "file" then
        -- a class may be called "007"
        values[column] = column ~= "class" and tonumber(cell) or cell
      end
    end
    out[rows[i][1]] = values
  end
  return out
end

local function csv_cell(text)
  return text:find('[",\n\r]') and '"' .. text:gsub('"', '""') .. '"' or text
end

-- Prepares the output of numbers of cases: predictions.csv, a row a case. Several samples of a case
-- are averaged. steps: the text of the data steps.
function M.numbers(r, w, steps)
  local node, classes = w.node, w.as == "classes"
  local names, mean, sd, field = columns_of(r, w.output, node, w.as, steps)
  local head, probable = { "case" }, node.kind == "softmax" or node.kind == "sigmoid"
  if mean then
    require("seg.show").line('%s: the standardisation of "%s" is undone', w.output, field)
  end
  if classes then head[2] = "class" end
  for i, name in ipairs(names) do
    head[#head + 1] = classes and (probable and "p_" or "score_") .. name or name
    if w.draws > 0 then head[#head + 1] = "sd_" .. names[i] end
  end
  w.rows = { head }
  local found = {}

  function w.open()
    local sink = { sum = {}, n = 0 }
    -- w.width numbers of a sample: the outputs, then their variances
    function sink:put(_, out, i)
      self.n = self.n + 1
      for c = 1, out.shape[2] do self.sum[c] = (self.sum[c] or 0) + out:get(i, c) end
    end
    return sink
  end

  function w.done(place, sink)
    local row, best = { w.cases[place].key }, 1
    for c = 1, node.c do
      local v, variance = sink.sum[c] / sink.n, (sink.sum[node.c + c] or 0) / sink.n
      if sink.sum[c] > sink.sum[best] then best = c end
      if mean then v, variance = v * sd[c] + mean[c], variance * sd[c] ^ 2 end
      if v ~= v or v == math.huge or v == -math.huge then
        fail("diverged", "output %s: %s: the prediction is not finite; look at the image, and at "
             .. "how the weights were trained", w.output, row[1])
      end
      row[#row + 1] = string.format("%.6g", v)
      if w.draws > 0 then row[#row + 1] = string.format("%.6g", math.sqrt(variance)) end
    end
    if classes then
      if node.c == 1 then
        local is = sink.sum[1] / sink.n > (r.predict.threshold or 0.5)
        best = is and names[1] or "not " .. names[1]
      else
        best = names[best]
      end
      table.insert(row, 2, best)
    end
    found[place] = row
  end

  -- bucketing reorders the sequences by length; the table has the order of the cases
  function w.collect()
    for place = 1, #w.cases do
      -- a case that failed has no row
      if found[place] then w.rows[#w.rows + 1] = found[place] end
    end
  end

  function w.finish(path)
    local lines = {}
    for i, row in ipairs(w.rows) do
      local cells = {}
      for k, cell in ipairs(row) do cells[k] = csv_cell(cell) end
      lines[i] = table.concat(cells, ",")
    end
    sys.write(path, table.concat(lines, "\n") .. "\n")
  end
  return w
end

return M
