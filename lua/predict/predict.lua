-- predict.lua -- runs trained weights on new images.
--
-- The checkpoint holds the steps that prepare an image, the same text that training ran, so
-- prediction cannot prepare images differently. A result has the grid of its input.

local core = require "seg.core"
local calibrate = require "seg.evaluate.calibrate"
local config = require "seg.recipe.config"
local incoming = require "seg.predict.incoming"
local likeness = require "seg.data.likeness"
local recipes = require "seg.recipe.recipe"
local results = require "seg.predict.results"
local show = require "seg.show"
local util = require "seg.util"
local weights = require "seg.predict.weights"
local windows = require "seg.predict.windows"

local sys, fail = core.sys, util.fail
local M = {}

-- Names of the segments: from the recipe, else the name of the output with numbers. A name that a
-- DICOM SEG cannot hold is an error before anything is predicted.
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

-- Whether the images are from data.phantom: patients called PHANTOM, or a folder named as it names
-- its folders.
local function is_phantom(path, cases)
  return cases[1].patient:match("^PHANTOM_%d+$")
    or ("/" .. path .. "/"):match("/%a[%w]*%-%d[%dx]*%-%x%x%x%x%x%x%x%x/")
end

-- The class values of the training files for the classes of `node`. Returns nil (class numbers are
-- written) if the weights do not hold the values or the number of classes differs.
local function file_labels(meta, node)
  local list = {}
  for v in (meta.labels or ""):gmatch("[^,]+") do list[#list + 1] = math.tointeger(tonumber(v)) end
  return #list == math.max(node.c - 1, 1) and list or nil
end

-- Whether --KEY was given.
local function is_given(key)
  for _, o in ipairs(config.line.options) do
    if o[1] == key then return true end
  end
  return false
end

-- A flag as a number within lo .. hi, nil when it is not given.
local function number_flag(name, lo, hi, whole)
  local text = config.line.flags[name]
  if not text then return nil end
  local v = tonumber(text)
  if not v or v < lo or v > hi or whole and not math.tointeger(v) then
    util.refuse('--%s takes a %snumber from %g to %g, got "%s"', name, whole and "whole " or "", lo,
                hi, text)
  end
  return whole and math.tointeger(v) or v
end

-- An attribute of a step in the text of steps as a list, {} without it.
local function attribute(line, key)
  local list = {}
  for v in ((" " .. line):match(" " .. key .. "=(%S+)") or ""):gmatch("[^,]+") do
    list[#list + 1] = tonumber(v) or v
  end
  return list
end

-- The ways in which images are mirrored for test-time augmentation, each a string of axes, ""
-- first; and how an odd number of axes changes the output (swapped and negated channels), as in
-- training. tta = "flips" uses the axes of training's flip step.
local function mirrors(r, node, rank)
  local asked = config.line.flags.tta or r.predict.tta
  local flip = util.step(r.train.steps, "flip")
  local axes, all = {}, { [1] = "w", [2] = "wh", [3] = "whd" }
  if not asked then return { "" }, {}, {}, {} end
  if asked == "flips" then
    if not flip then
      fail("usage", "tta: training has no flip, so the axes of a harmless flip are not known; name "
           .. "them: --tta w,h")
    end
    for axis in (attribute(flip, "axis")[1] or "w"):gmatch(".") do axes[#axes + 1] = axis end
  else
    local list = type(asked) == "table" and asked or { asked }
    for axis in table.concat(list, ","):gmatch("[^,]+") do
      if not (all[rank] or ""):find(axis, 1, true) or #axis ~= 1 then
        util.refuse('tta: "%s" is not an axis of the images; use flips, or axes of %s with commas',
                    axis,
                    (all[rank] or "none"):gsub("(.)(.)", "%1, %2"))
      end
      axes[#axes + 1] = axis
    end
  end
  local list = { "" }
  for _, axis in ipairs(axes) do
    for i = 1, #list do list[#list + 1] = list[i] .. axis end
  end
  local swap, negate = attribute(flip or "", "swap"), attribute(flip or "", "negate")
  if node.rank > 0 then negate = {} end
  if negate[1] == 0 then
    for c = 1, node.c do negate[c] = c end
  end
  -- with one output channel nothing is swapped; the pairs are channels of the input
  if node.c == 1 then return list, {}, negate, swap end
  for i, class in ipairs(swap) do swap[i] = class + 1 end -- classes count from 0
  return list, swap, negate, {}
end

-- The inputs of the recipe that the output needs; a prediction has no ground truth.
local function needed(r, node, output)
  local names, list = core.needed_inputs { node }, {}
  for _, input in ipairs(r.inputs) do
    if names[input.name] then list[#list + 1] = input end
  end
  if not list[1] then fail("usage", "output %s needs no input of the recipe", output) end
  return list
end

-- The fields that a data set of new files must have for these inputs, by name. A sequence's length
-- comes with its image.
local function wanted(inputs)
  local out = {}
  for _, input in ipairs(inputs) do out[input.name] = input end
  return out
end

-- Opens the data set of --in with the steps of the weights.
local function open_set(r, inputs, meta, draws, path)
  local flags, v = config.line.flags, config.ensure()
  local set, kind, source = incoming.open(flags["in"], r, wanted(inputs), meta, path)
  local overlap = number_flag("overlap", 0, 0.9) or r.predict.overlap
  -- training's choice of slices to learn from does not apply
  set.steps = core.data.predict_steps(meta.preprocessing, overlap)
  set.batch = { bucket = r.train.batch.bucket, multiple = r.train.batch.multiple }
  -- with Monte-Carlo draws a batch is one sample, so its draws depend on no other sample
  return set:in_order(draws > 0 and 1 or v.batch), kind, source
end

-- Compares new images with the training images. Warnings are printed as each case is opened and
-- kept for the table. kept: the entry of the weights, nil for older weights. -> the function that
-- windows.run calls with (case, core.data.seen)
local function compare(w, kept, source)
  w.differs, w.warnings = {}, {} -- by the key of a case: "name, spacing", and the full texts
  return function(case, seen)
    if not kept then return end
    local words, texts = likeness.warn(case.key, kept, source, seen)
    if words then w.differs[case.key], w.warnings[case.key] = table.concat(words, ", "), texts end
    local unsaid = likeness.unsaid(kept, source, seen)
    if unsaid and not w.said_unsaid then
      w.said_unsaid = true
      show.line("note: NIfTI has neither modality nor series description: only spacing and "
                .. "intensities are compared with the training images (%s)", unsaid)
    end
  end
end

-- Adds the column "differs" before the last column of the table if any case has differences.
local function add_differs(w)
  if next(w.differs) == nil then return end
  for i, row in ipairs(w.rows) do
    table.insert(row, w.finish and #row + 1 or #row, i == 1 and "differs"
                 or w.differs[row[1]] or "-")
  end
end

-- Writes one archive with the results of all cases: the files that the table names, but not their
-- companion files.
local function write_zip(w, path, table_path)
  local files = {}
  for i = 2, #w.rows do files[i - 1] = w.rows[i][#w.rows[i]] end
  if w.finish then files = { table_path } end
  sys.mkdir(path:match("^(.*)/") or ".")
  core.data.zip(path, files)
  show.line("%s: %s", path, util.plural(#files, "file"))
end

-- The record that --json prints: a list of the cases, in their order.
--   case, outputs = files, values = the columns of the table, warnings, error = { kind=,
--   text= } of a case that failed; left_out: files that were no case, with the reason
local function json_of(w, out, code)
  local values, cases, left_out = results.by_case(w.rows), util.list {}, util.list {}
  for place, case in ipairs(w.cases) do
    local e, outputs = w.failures[place], {}
    for i, ending in ipairs(w.endings) do outputs[i] = w.base[place] .. ending end
    cases[place] = { case = case.key, outputs = not e and #outputs > 0 and outputs or nil,
                     values = not e and values[case.key] or nil,
                     warnings = w.warnings[case.key],
                     error = e and { kind = e.kind, text = e.why } }
  end
  for i, l in ipairs(w.left_out) do left_out[i] = { kind = l.kind, path = l.path, text = l.why } end
  return { output = w.output, out = out, table = w.finish and out .. "/predictions.csv" or nil,
           cases = cases, left_out = left_out, exit_code = code }
end

-- An error of a case without the name of the case, which errors of the data begin with.
local function unnamed(key, why)
  return why:sub(1, #key + 2) == key .. ": " and why:sub(#key + 3) or why
end

-- Prints the cases that failed and the damaged files that are no case, below the table. -> exit
-- code
local function say_failed(w)
  local lines, code, said = {}, 0, {}
  for place, case in ipairs(w.cases) do
    local e = w.failures[place]
    if e then
      lines[#lines + 1], said[e.why] = case.key .. ": " .. unnamed(case.key, e.why), true
      code = (e.kind == "diverged" or code == 5) and 5 or 3
    end
  end
  for _, l in ipairs(w.left_out) do
    -- a damaged slice whose series failed for it is already in the list
    local told = l.kind ~= "damaged"
    for why in pairs(said) do told = told or why:find(l.why, 1, true) ~= nil end
    if not told then
      lines[#lines + 1] = l.why
      code = math.max(code, 3)
    end
  end
  for i, line in ipairs(lines) do lines[i] = line:gsub("%c", "?") end -- names may hold any bytes
  if #lines > 0 and not config.line.flags.json then
    print("not predicted:\n  " .. table.concat(lines, "\n  "))
    -- a result like the lines above, so --quiet keeps it
    print(string.format("%d of %s predicted", #w.rows - 1, util.plural(#w.cases, "case")))
  end
  return code
end

-- Prints the table of results and the number of older files that were replaced. -> exit code
local function finish(w, out, there)
  local file, json = out .. "/predictions.csv", config.line.flags.json
  if w.collect then w.collect() end
  add_differs(w)
  if w.finish then w.finish(file) end
  if not json and #w.rows > 1 then
    print(w.finish and show.first(w.rows, file) or show.table(results.shown(w)))
  end
  if config.line.flags.zip then write_zip(w, config.line.flags.zip, file) end
  if there > 0 then
    show.line("%s: %s from an earlier command %s replaced%s", out, util.plural(there, "file"),
              there == 1 and "was" or "were", next(w.failures) and " or removed" or "")
  end
  local code = say_failed(w)
  if json then print(util.json(json_of(w, out, code))) end
  return code
end

-- Makes a failing case of a folder a note in the table, so that the other cases still run.
local function tolerate(each, w)
  local done, finished = each.done, {}
  each.finished = finished
  function each.done(place, sink)
    done(place, sink)
    finished[place] = true
  end
  function each.failed(place, why, kind)
    w.first = w.first or { why = why, kind = kind }
    w.failures[place] = { why = why, kind = kind }
    -- results of an earlier call must not stand for a case that failed in this one
    for _, ending in ipairs(w.endings) do sys.remove(w.base[place] .. ending) end
    local key = w.cases[place].key
    show.aside("warning: %s: not predicted: %s", key, unnamed(key, why))
  end
end

-- Raises an error that ends a prediction of several cases, such as a full disk or Ctrl-C, with the
-- number of cases that are done: their results are complete.
local function ended_early(w, out, why)
  local text, done = tostring(why), w.finish and 0 or #w.rows - 1
  if #w.cases == 1 then error(why, 0) end
  local full = text:find("disk full", 1, true) or text:find("No space left", 1, true)
  local fix = text:match("; fix: .*$")
    or full and "; fix: make room there, or give a place with more with --out" or ""
  sys.raise(sys.kind(text), string.format(
    "%s; %d of %d cases done%s%s", util.without_fix(text), done, #w.cases,
    done > 0 and ", their results are in " .. out .. "; the rest is not" or "", fix), true)
end

local function predict(r, name)
  local flags, out = config.line.flags, config.ensure().out
  if not flags["in"] then fail("usage", "predict needs --in PATH: an image, or a folder") end
  if not is_given("out") then fail("usage", "predict needs --out DIR: where the results go") end
  local draws = number_flag("mc", 1, 10000, true) or 0
  local members, meta, paths = weights.members(r, name, "predict", draws > 0)
  if not meta.preprocessing then
    fail("data", "these weights do not record the preprocessing of images; use a checkpoint of "
         .. "train")
  end
  calibrate.settle(r.predict, meta)
  local output = r.predict.output or util.sorted_keys(r.outputs)[1]
  local node = r.outputs[output]
  local inputs = needed(r, node, output)
  local set, kind, source = open_set(r, inputs, meta, draws, paths[1])
  local ds = set:dataset()
  local cases = ds:cases()
  if meta.trained_on == util.SYNTHETIC and not flags.weights
    and not is_phantom(flags["in"], cases) then
    fail("usage", "the newest weights, %s, were trained on synthetic patients; train on real ones "
         .. "with --data DIR, or name the weights that you mean with --weights FILE", paths[1])
  end
  local w = { ds = ds, cases = cases, kind = kind, output = output, node = node, draws = draws,
              failures = {}, left_out = set.source.left_out or {},
              as = results.meaning(r, node), overlays = flags.overlays or false,
              rank = set.source.ranks and set.source.ranks[inputs[1].name] or 3,
              names = segment_names(r, output, node.c, kind), values = file_labels(meta, node) }
  local of_case = node.rank == 0
  if of_case and w.overlays then
    util.refuse("--overlays: numbers of a case have no picture; leave it out")
  end
  local list = { flags["in"] }
  table.move(paths, 1, #paths, 2, list)
  w.endings = of_case and {} or results.endings(w, r)
  local base, there = results.plan_files(out, cases, w.endings, list,
                                         of_case and { "predictions.csv" } or {}, flags.zip)
  w.base = base
  sys.mkdir(out)
  local each = of_case and results.numbers(r, w, meta.preprocessing) or results.maps(r, w)
  if sys.stat(flags["in"]).kind == "folder" then tolerate(each, w) end
  local text = recipes.network(r)
  local function has(operator) return text:find(operator, 1, true) end
  if draws > 0
    and not (has "dropout" or has "attention" or has "\nnormal " or has "\nuniform ") then
    show.warn("--mc: the network has no dropout, so all draws are the same")
  end
  local flips, swap, negate, exchange = mirrors(r, node, inputs[1].rank)
  local work = { members = members, node = node, output = output, inputs = inputs,
                 roots = recipes.outputs(r), flips = flips, swap = swap, negate = negate,
                 exchange = exchange, draws = draws,
                 seen = compare(w, likeness.parse(meta.training, paths[1]), source),
                 variances = draws == 0 and "" or of_case and "each" or "mean" }
  local ok, why = pcall(windows.run, work, set, each)
  if not ok then ended_early(w, out, why) end
  -- if every case fails for the same reason, the recipe may be wrong
  if w.first and w.first.kind == "usage" and #w.rows == 1 and not next(each.finished) then
    sys.raise("usage", w.first.why, true)
  end
  return finish(w, out, there)
end

-- The command predict: a file for every case of --in, and a table of the results. With --json an
-- error that ends it is printed in the JSON too.
function M.command(r, name)
  if not config.line.flags.json then return predict(r, name) end
  local ok, code = pcall(predict, r, name)
  if ok then return code end
  local kind, text = sys.kind(tostring(code)), tostring(code)
  print(util.json { cases = util.list {}, error = { kind = kind, text = text } })
  error(code, 0)
end

return M
