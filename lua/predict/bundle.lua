-- bundle.lua -- a bundle: one file with a trained network and everything that a prediction needs.
--
-- A bundle is a safetensors file of weights. Its metadata holds the graph of the outputs (`graph`)
-- and a JSON text (`bundle`): how to read files, the steps that prepare an image, and how to write
-- a result, one row each. Nothing in it is a program: `recipe_text` is for people and is never run.
-- docs/export.md lists the rows. A row that this program does not know is an error and is never
-- skipped; so is another version.
--
-- A bundle is given to other people, so nothing in it names a patient, a date or a path. Only the
-- options listed below are copied from the recipe's data set, and the recipe text is cleaned of
-- names, dates and paths.

local aliases = require "seg.aliases"
local core = require "seg.core"
local calibrate = require "seg.evaluate.calibrate"
local config = require "seg.recipe.config"
local incoming = require "seg.predict.incoming"
local json = require "seg.json"
local likeness = require "seg.data.likeness"
local reading = require "seg.data.reading"
local recipes = require "seg.recipe.recipe"
local util = require "seg.util"

local fail = util.fail
local M = {}

local VERSION = 1

-- The entries of a bundle, in the order of the documentation: type, and whether the entry is
-- required.
local entries = {
  version = { "number", true }, network = { "string", true }, inputs = { "table", true },
  output = { "string", true }, read = { "table", true }, prepare = { "table", true },
  flip = { "table", false }, predict = { "table", true }, run = { "table", true },
  labels = { "string", false }, trained_on = { "string", false },
  intended_use = { "string", false }, training = { "table", false },
}

-- The same for the rows of two of the entries.
local inner = {
  read = { kind = { "string", true }, options = { "table", true }, made = { "table", false },
           numbers = { "table", false } },
  run = { batch = { "integer", false }, precision = { "string", false },
          bucket = { "boolean", false }, multiple = { "integer", false },
          winograd = { "boolean", false } },
}

-- Steps -----------------------------------------------------------------------

-- An attribute of a step as JSON: a boolean, a number or a list of numbers if it converts back to
-- the same text, else a string.
local function value_of(word)
  if word == "true" or word == "false" then return word == "true" end
  local list = {}
  for part in (word .. ","):gmatch("([^,]*),") do
    local number = tonumber(part)
    if not number or util.number(number) ~= part then return word end
    list[#list + 1] = number
  end
  return #list == 1 and list[1] or list
end

local function word_of(value)
  if type(value) == "table" then
    local words = {}
    for i, v in ipairs(value) do words[i] = word_of(v) end
    return table.concat(words, ",")
  end
  return type(value) == "number" and util.number(value) or tostring(value)
end

-- The text of steps as rows: { step = "resize", h = 256, w = 256, ... }.
local function rows_of(steps)
  local rows = {}
  for line in steps:gmatch("[^\n]+") do
    local name, rest = line:match("^(%l[%w_]*)(.*)$")
    local row = { step = name }
    for key, word in rest:gmatch("([%w_]+)=(%S+)") do row[key] = value_of(word) end
    rows[#rows + 1] = row
  end
  return rows
end

-- The text of rows, in the form that the engine prints. Raises on a step that the engine does not
-- know. random: the rows are augmentation, which the engine's form omits.
local function steps_of(rows, path, random)
  local lines = {}
  if next(rows) ~= nil and #rows == 0 then
    fail("data", "%s: bundle: prepare is a table with names, want a list of steps", path)
  end
  for i, row in ipairs(rows) do
    if type(row) ~= "table" or type(row.step) ~= "string" then
      fail("data", "%s: bundle: prepare: row %d has no step", path, i)
    end
    local words = { row.step }
    for _, key in ipairs(util.sorted_keys(row)) do
      if key ~= "step" then words[#words + 1] = key .. "=" .. word_of(row[key]) end
    end
    lines[i] = table.concat(words, " "):gsub("%c", " ")
  end
  local written = table.concat(lines, "\n") .. "\n"
  local ok, text = pcall(core.data.prepare_steps, written)
  if ok then return random and written or text end
  fail("data", "%s: bundle: prepare: %s; fix: the version of segengine that wrote it, or a later "
       .. "one", path, (util.without_fix(text):gsub("^.-steps: line", "row")))
end

-- The data set ----------------------------------------------------------------

-- How training read its files: from the metadata of the weights, or from the script if older
-- weights have no such entry.
local function read_of(r, meta, path)
  local kept = reading.parse(meta.read, path)
  local read = reading.of(reading.merged(kept, r.train.source))
  for _, name in ipairs { "image", "mask", "table" } do
    -- the patterns in the weights were already stripped of patient names
    if kept then read.options[name] = kept.options[name] or read.options[name] end
    if kept and kept.made and read.made then
      read.made.options[name] = kept.made.options[name] or read.made.options[name]
    end
  end
  for _, o in ipairs { read.options, read.made and read.made.options or {} } do
    for _, field in ipairs(o.fields or {}) do
      if field.boxed then
        fail("usage", 'export --bundle: field "%s" is cropped by a function of the script (box), '
             .. 'and a bundle runs without the script; fix: predict with the script',
             tostring(field.name))
      end
    end
  end
  return read
end

-- Returns a deep copy of v. Raises an error that names a value that JSON cannot hold.
local function plain(v, what)
  local kind = type(v)
  if kind == "function" or kind == "userdata" or kind == "thread" then
    fail("usage", "export --bundle: %s is a %s; a bundle runs without the script and holds texts, "
         .. "numbers, truth values and tables of these only", what, kind)
  end
  if kind ~= "table" then return v end
  local out = {}
  for key, one in pairs(v) do out[key] = plain(one, what .. "." .. tostring(key)) end
  return out
end

-- predict = { } of a recipe. The image patterns in `read` (how training read its files) take
-- precedence: a pattern that was stripped of parts that may name a patient would match more files
-- than training did.
local function predict_of(r, read)
  local out, patterns = plain(r.predict, "predict"), reading.patterns(r.predict.image)
  local known = read.options.image or read.made and read.made.options.image
  out.image = not known and reading.one_or_list(patterns) or nil
  return out
end

-- Patterns of text in a recipe that may reveal a path, an identifier or a date.
local identifying = {
  -- absolute, below home, or below the current folder; a division has no blank in front
  { "%f[^%s\"'=(%[]~?%.?%.?/[%w_.][^%s\"'%])]*", "path" },
  { "%f[%w]%a:\\[^%s\"']*", "path" },
  { "%f[%d]%d+%.%d+%.%d+%.%d+[%d.]*", "UID" },
  { "%f[%w][12][90]%d%d%-?[01]%d%-?[0-3]%d%f[%W]", "date" },
}

-- Whether the folders in a pattern of names are more specific than generic folder names.
local function names_folder(pattern)
  local folders = pattern:match("^(.*/)[^/]*$") .. "*"
  return reading.pattern(folders) ~= folders
end

-- Returns the text of a recipe with `names` (of cases and patients) and all matches of the table
-- `identifying` replaced. -> text, number of replacements
function M.clean(text, names)
  local count = 0
  local function redact(what)
    count = count + 1
    return "(" .. what .. " left out)"
  end
  for _, quote in ipairs { '"', "'" } do
    text = text:gsub(quote .. "([^" .. quote .. "\n]*)" .. quote, function(body)
      local what = names[body] and "case"
        or body:find("/", 1, true) and (not body:find("*", 1, true) and "path"
          -- a pattern of names is no path on this machine, but its folders may be
          or names_folder(body) and "pattern")
      return what and quote .. redact(what) .. quote
    end)
  end
  for _, kind in ipairs(identifying) do
    text = text:gsub(kind[1], function() return redact(kind[2]) end)
  end
  for _, name in ipairs(util.sorted_keys(names)) do
    -- shorter names are words and numbers that occur in any text
    if #name >= 4 then
      text = text:gsub("%f[%w]" .. name:gsub("%W", "%%%0") .. "%f[%W]",
                       function() return redact("case") end)
    end
  end
  return text, count
end

-- The lines of a config from which M.clean removes nothing.
function M.clean_config(text, names)
  local lines = {}
  for line in text:gmatch("[^\n]+") do
    local key, value = line:match("^([%w_]+) = (.*)$")
    -- a string in a config has no quotes, but M.clean looks for names between quotes
    local _, count = M.clean('"' .. (value or "") .. '" ' .. line, names)
    if key and count == 0 then lines[#lines + 1] = line end
  end
  return table.concat(lines, "\n") .. "\n"
end

-- Writing ---------------------------------------------------------------------

-- The text under `bundle` for recipe r; `meta` is the metadata of its weights at `path`.
function M.text(r, name, meta, path)
  local steps = meta.preprocessing
  if not steps then
    fail("data", "these weights do not record the preprocessing of images; use a checkpoint of "
         .. "train")
  end
  if ("\n" .. steps):find("\nchange ", 1, true) then
    fail("usage", "export --bundle: the data set calls a function of the script (change), and a "
         .. "bundle runs without the script; fix: steps of the program instead, or predict with "
         .. "the script")
  end
  local v, inputs, batch = config.ensure(), {}, r.train.batch
  local nodes, names = recipes.outputs(r)
  local network = core.graph_text(nodes)
  for _, input in ipairs(r.inputs) do
    -- the target is an input of the recipe too, but the network does not need it
    if ("\n" .. network):find("\ninput " .. input.name .. " ", 1, true) then
      inputs[#inputs + 1] = input.name
    end
  end
  calibrate.settle(r.predict, meta)
  -- axes along which images may be mirrored, and the channels and classes that this exchanges
  local flip = util.step(r.train.steps, "flip")
  local read = read_of(r, meta, path)
  return util.json {
    version = VERSION, network = name, inputs = inputs, output = r.predict.output or names[1],
    read = read, training = likeness.parse(meta.training, path),
    prepare = rows_of(steps),
    flip = flip and rows_of("flip " .. flip)[1], predict = predict_of(r, read),
    run = { batch = v.batch, precision = v.precision, bucket = batch.bucket,
            -- written only if false, because older programs reject `winograd` as an unknown row
            multiple = batch.multiple, winograd = v.winograd and nil },
    labels = meta.labels, trained_on = meta.trained_on,
    intended_use = "research use only, not a medical device",
  }
end

-- Reading ---------------------------------------------------------------------

-- Raises unless `rows` has the entries that `known` lists and no others; `what` names the table.
local function check_rows(rows, known, what)
  for key in pairs(rows) do
    if not known[key] then
      fail("data", '%s: it has rows "%s", which this program (%s) does not know; fix: the version '
           .. "of segengine that wrote it, or a later one", what, tostring(key), core.version)
    end
  end
  for _, key in ipairs(util.sorted_keys(known)) do
    local kind, must = known[key][1], known[key][2]
    local is = kind == "integer" and math.type(rows[key]) or type(rows[key])
    if (rows[key] ~= nil or must) and is ~= kind then
      fail("data", "%s: %s is %s, want a %s", what, key, rows[key] == nil and "missing" or "a "
           .. is, kind == "integer" and "whole number" or kind)
    end
  end
end

-- Checks the data set of a bundle: its kind must be one that this program reads, and its options
-- must be known.
local function check_reading(read, path)
  local function check_options(o, where)
    for _, key in ipairs(util.sorted_keys(o)) do
      if not (reading.knows(key) or key == "boxed") then
        fail("data", '%s: options: "%s" is not known to this program; fix: the version of '
             .. "segengine that wrote it, or a later one", where, tostring(key))
      end
    end
    if o.rank ~= nil and not (o.rank == 1 or o.rank == 2 or o.rank == 3) then
      fail("data", "%s: options: rank is %s, want 1, 2 or 3", where, word_of(o.rank))
    end
    for _, field in ipairs(type(o.fields) == "table" and o.fields or {}) do
      if type(field) ~= "table" then fail("data", "%s: a field is a %s", where, type(field)) end
      check_options(field, where)
    end
  end
  check_options(read.options, path .. ": bundle: read")
  if not read.made then return end
  local where = path .. ": bundle: read: made"
  check_rows(read.made, { kind = { "string", true }, options = { "table", true } }, where)
  if not incoming.knows(read.made.kind) then
    fail("data", '%s: kind is "%s", which this program does not support; fix: the version of '
         .. "segengine that wrote it, or a later one", where, read.made.kind)
  end
  check_options(read.made.options, where)
end

-- Decodes and checks the rows in the metadata of a file.
local function decode(meta, path)
  local b = json.decode(meta.bundle, path .. ": bundle")
  if type(b) ~= "table" or b.version == nil then
    fail("data", "%s: bundle: its version is missing", path)
  end
  if b.version ~= VERSION then
    fail("data", "%s: bundle: its version is %s, this program (%s) reads version %d; fix: the "
         .. "version of segengine that wrote it, or a later one", path, word_of(b.version),
         core.version, VERSION)
  end
  check_rows(b, entries, path .. ": bundle")
  b.trained_on = aliases.trained_on_now(b.trained_on)
  b.run, b.notes = aliases.rows(b.run, path .. ": bundle: run")
  for _, key in ipairs(util.sorted_keys(inner)) do
    check_rows(b[key], inner[key], path .. ": bundle: " .. key)
  end
  check_reading(b.read, path)
  if b.run.batch and b.run.batch < 1 then
    fail("data", "%s: bundle: run: batch is %d, want 1 or more", path, b.run.batch)
  end
  return b
end

-- Returns metadata with current texts, filled from its bundle if it has one, in the form of the
-- metadata of weights that a script predicts with.
function M.fill(meta, path)
  meta.trained_on = aliases.trained_on_now(meta.trained_on)
  if not meta.bundle then return meta end
  local b = decode(meta, path)
  meta.preprocessing, meta.labels = steps_of(b.prepare, path), b.labels
  meta.trained_on = b.trained_on
  meta.read, meta.training = util.json(b.read), b.training and util.json(b.training)
  return meta
end

-- A summary of a bundle to print: { { word, text }, ... }.
function M.about(meta, path)
  local b = decode(meta, path)
  local read = b.read.made or b.read
  local images = reading.list(read.options.image)
  local out = { { "bundle", b.network .. (b.trained_on and ", trained on " .. b.trained_on or "") },
                { "reads", read.kind .. (images and " " .. table.concat(images, ", ") or "")
                  .. ", for " .. table.concat(b.inputs, ", ") } }
  -- where training draws patches at random, predict covers the whole image
  local steps = core.data.predict_steps(steps_of(b.prepare, path), b.predict.overlap)
  for line in steps:gmatch("[^\n]+") do
    out[#out + 1] = { #out == 2 and "prepares" or "", line }
  end
  for _, key in ipairs(util.sorted_keys(b.predict)) do
    local v = b.predict[key]
    local text = type(v) == "table" and util.json(v):gsub("%s+", " ") or word_of(v)
    out[#out + 1] = { "predict", key .. " = " .. text }
  end
  out[#out + 1] = { "run it", "segengine predict --bundle " .. path .. " --in PATH --out DIR" }
  return out
end

-- A table by class, with numeric keys where a class is given by number: JSON keys are strings.
local function by_number(each)
  if type(each) ~= "table" then return each end
  local out = {}
  for key, o in pairs(each) do out[math.tointeger(tonumber(key)) or key] = o end
  return out
end

-- The metadata of a file that should be a bundle. A file of another kind is named in the error by
-- its kind, not by a misreading of its first bytes.
local function meta_of(path)
  local wanted = "the file that SCRIPT.lua export --bundle FILE wrote"
  local stat = core.sys.stat(path)
  if not stat then
    util.refuse("--bundle %s: there is no such file; fix: give %s", path, wanted)
  elseif stat.kind == "folder" then
    util.refuse("--bundle %s is a folder, not a bundle; fix: give %s", path, wanted)
  end
  local ok, meta = pcall(core.checkpoint.meta, path)
  if ok then return meta end
  local why = tostring(meta)
  if why:find("not safetensors", 1, true) then
    util.fail("data", "%s is not a bundle: it is %s; fix: %s", path,
              path:find("%.lua$") and "a script"
              or "not a safetensors file", path:find("%.lua$") and "segengine " .. path
              .. " predict --weights FILE, or give the file that its export --bundle wrote"
              or "give " .. wanted)
  end
  error(meta, 0)
end

-- Opens the network of a bundle with the fields of a recipe that predict.lua uses. -> recipe, name
function M.open(path)
  local meta = meta_of(path)
  if not meta.bundle then
    fail("data", "%s: holds weights, but is not a bundle; fix: predict with its script, as "
         .. "segengine SCRIPT.lua predict --weights FILE, or make one: SCRIPT.lua export --bundle "
         .. "FILE", path)
  end
  local b = decode(meta, path)
  local steps = steps_of(b.prepare, path) -- checked before any data is opened
  local flip = b.flip and steps_of({ b.flip }, path, true) or ""
  config.config { batch = b.run.batch, precision = b.run.precision, winograd = b.run.winograd }
  config.notes = b.notes
  local parsed, roots, inputs = pcall(core.graph_parse, meta.graph or "")
  if not parsed then fail("data", "%s: bundle: %s", path, roots) end
  local outputs, i = {}, 0
  for name in (meta.outputs or ""):gmatch("[^,]+") do
    i = i + 1
    outputs[name] = roots[i]
  end
  local by_name, list = {}, {}
  for _, node in ipairs(inputs) do by_name[node.name] = node end
  for k, name in ipairs(b.inputs) do
    list[k] = by_name[name]
    if not list[k] then
      fail("data", '%s: bundle: its network has no input "%s"', path, tostring(name))
    end
  end
  if not list[1] or #list ~= #inputs or not outputs[b.output] or i ~= #roots then
    fail("data", '%s: bundle: its network has other inputs, or no output "%s"', path, b.output)
  end
  b.predict.each = by_number(b.predict.each)
  local ok, why = pcall(recipes.check_predict, b.predict)
  if not ok then
    fail("data", "%s: bundle: %s; fix: the version of segengine that wrote it, or a later one",
         path, (util.without_fix(why):gsub("^.-seg%.recipe: ", "")))
  end
  local source = { kind = b.read.kind, options = b.read.options, made = b.read.made,
                   numbers = b.read.numbers }
  return { inputs = list, outputs = outputs, predict = b.predict, metrics = {},
           train = { source = source, steps = steps .. flip,
                     batch = { bucket = b.run.bucket, multiple = b.run.multiple } } }, b.network
end

return M
