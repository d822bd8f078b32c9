-- cli.lua -- the command line, in one place.
--
--   segengine SCRIPT.lua [COMMAND] [--key value ...]
--
-- Flags are listed once, in the tables below; the help is generated from the tables.

local aliases = require "seg.aliases"
local core = require "seg.core"
local config = require "seg.recipe.config"
local devices = require "seg.train.device"
local gpus = require "seg.inspect.gpus"
local ranks = require "seg.train.ranks"
local show = require "seg.show"
local synonyms = require "seg.synonyms"
local util = require "seg.util"
local writable = require "seg.writable"

local fail, refuse = util.fail, util.refuse
local whole_line -- the arguments of this program

-- Commands of a recipe: name, help. weights: the command uses the config that the weights were
-- trained with. no_data: it opens no data, so without --data the preset is not the one for
-- synthetic patients. word: the flag that the word after the command sets. series: it starts
-- several runs, each a process. module: its command() runs the command; train and bench are started
-- by run_command.
local commands = {
  { "train", "train the network (the command when none is given)" },
  { "folds", "cross-validation: a run for each fold of the recipe's kfold, and all together",
    series = true, module = "seg.experiments.folds" },
  { "repeat", "the same run with several seeds: mean, deviation and interval of the results",
    series = true, module = "seg.experiments.repeats" },
  { "search", "try values of the options in the recipe's seg.search, and rank them",
    series = true, module = "seg.experiments.search" },
  { "evaluate", "metrics of trained weights on a part: --weights FILE --split valid",
    weights = true, module = "seg.evaluate.evaluate" },
  { "predict", "apply the network to new files: --weights FILE --in PATH --out DIR",
    weights = true, module = "seg.predict.predict" },
  { "plan", "memory, parameters and arithmetic; opens no data and no device", no_data = true,
    module = "seg.inspect.plan" },
  { "bench", "measured time per layer and step; --ranks N: of a step of N processes",
    no_data = true },
  { "lr_range", "find a learning rate: the loss while the rate rises",
    module = "seg.train.lr_range" },
  { "check", "compare every node of this network, and training steps, with the reference",
    module = "seg.inspect.check_recipe" },
  { "replay", "repeat a step that was not finite: replay FILE", weights = true,
    word = "weights", module = "seg.train.replay" },
  { "export",
    "write other formats: --bundle, --onnx, --safetensors FILE, --reference, --arrays DIR",
    weights = true, module = "seg.predict.export" },
}

-- Flags that are not config keys: name, whether a value follows, help; `of`: the commands that use
-- it, default all; `group`: section of the help; own: it may also be a key of a recipe.
local flags = {
  { "preset", true, "NAME: numbers of a preset of the recipe (demo, quick, full)" },
  { "set", true, "KEY=VALUE: the same as --KEY VALUE" },
  { "resume", true, "DIR or auto: continue a run", of = "train folds repeat search" },
  { "run", true, "DIR: the folder of the new run, instead of the next number", of = "train" },
  { "seeds", true, "N, or a list with commas: the seeds of repeat (5)", of = "repeat" },
  { "trials", true, "N: number of trials of search, instead of the recipe's", of = "search" },
  { "weights", true,
    "FILE: a checkpoint or a run's folder; else the best of the newest training; train: the start; "
      .. "predict: also several, with commas, or a folder of runs: their mean",
    of = "train evaluate predict export lr_range replay folds repeat search", group = "all" },
  { "trace", true, "FILE: a trace of all threads, for ui.perfetto.dev or chrome://tracing",
    of = "bench train" },
  { "from", true, "RATE: the lowest of lr_range (1e-7)", of = "lr_range" },
  { "to", true, "RATE: the highest of lr_range (10)", of = "lr_range" },
  { "in", true, "PATH: file or folder of new images", of = "predict" },
  { "image", true,
    "PATTERN: the images of --in, instead of the pattern of training", of = "predict",
    own = true },
  { "overlap", true,
    "SHARE: overlap of windows as a share of their extents, 0 to 0.9 (0.5)", of = "predict" },
  { "tta", true, "flips, or axes as w,h: the mean over mirrored images", of = "predict" },
  { "mc", true, "N: Monte Carlo dropout, mean, entropy and variance of N draws", of = "predict" },
  { "zip", true, "FILE.zip: the results also in one archive, as OpenKBP asks for", of = "predict" },
  { "overlays", false,
    "a picture of the image with its result, next to each result", of = "predict" },
  { "split", true, "train, valid, test or all: the part to evaluate (test)", of = "evaluate" },
  { "calibrate", false, "choose threshold and temperature on valid, keep them in the weights",
    of = "evaluate" },
  { "pictures", true, "N: draw the N worst cases (0)", of = "evaluate" },
  { "bundle", true, "FILE: export network, weights and preparation as one file; predict with it",
    of = "export predict" },
  { "onnx", true, "FILE: export the network and its weights for onnxruntime, OpenCV, ...",
    of = "export" },
  { "probabilities", false, "export --onnx: outputs end in a sigmoid or softmax", of = "export" },
  { "any_size", false, "export --onnx: images may have other extents than the recipe's",
    of = "export" },
  { "safetensors", true, "FILE: export the weights, for programs that read safetensors",
    of = "export" },
  { "reference", true, "DIR: export initial weights, batches and losses for a PyTorch reference",
    of = "export" },
  { "arrays", true, "DIR: export the prepared samples of all parts for another framework",
    of = "export" },
  { "step_ms", true, "MS: computing time of a rank in a step, for the times of plan --ranks",
    of = "plan" },
  { "gpu", true, "MODEL: the launch plan of a step on " .. gpus.names(),
    of = "plan" },
  { "full", false, "check: compare every element of large results, not a sample", of = "check" },
  { "html", true, "FILE: the page of doctor data (<out>/<recipe>/doctor.html)",
    of = "doctor" },
  { "names", false, "page and JSON call cases by name, not by hash", of = "doctor" },
  { "steps_only", false, "check: the training steps alone", of = "check" },
  { "other_ranks", false,
    "train --resume: allow another number of ranks, which changes the last bits",
    of = "train", group = "ranks" },
  { "quiet", false, "results and warnings only" },
  { "json", false, "results as JSON",
    of = "evaluate predict plan bench doctor lr_range folds repeat search", group = "all" },
}

-- The help lists the options of a recipe in these groups, in this order.
local groups = {
  { "all", "of every recipe" }, { "train", "of training" }, { "machine", "processor and memory" },
  { "ranks", "several processes" }, { "evaluate", "of evaluate" }, { "predict", "of predict" },
  { "export", "of export" }, { "folds", "of folds, repeat and search" },
  { "look", "of plan, bench, lr_range, check and doctor" },
}
local group_of = { ["repeat"] = "folds", search = "folds", plan = "look", bench = "look",
                   lr_range = "look", check = "look", doctor = "look" }

local function known(list, name)
  for _, e in ipairs(list) do if e[1] == name then return e end end
end

local predict_bundle -- defined below, because it uses parse

-- Commands that need no script: usage, maximum number of arguments, and the function that runs
-- them. -> exit code
local alone = {
  check = {
    text = "segengine check [--device D] [--op NAME] [--precision P] [--share I/N] [--json]\n"
      .. "                            every operator against the reference",
    words = math.huge, run = function(args) return require("seg.inspect.check").command(args) end },
  compare = {
    text = "segengine compare RUN RUN ... [--html FILE] [--json]\n"
      .. "                            how runs differ, and whether their results do",
    words = math.huge,
    run = function(args) return require("seg.report.compare").command(args) end },
  status = {
    text = "segengine status [RUN]      state of a run, or of the newest of runs/; --json",
    words = math.huge, run = function(args) return require("seg.report.status").command(args) end },
  doctor = {
    text = "segengine doctor            features of this machine, and missing packages\n"
      .. "segengine doctor data SCRIPT.lua [--key value ...]\n"
      .. "                            errors and oddities in the data of a recipe",
    words = 0, run = function() return require("seg.inspect.doctor").command() end },
  inspect = {
    text = "segengine inspect PATH      any image, series, array, checkpoint, run or folder",
    words = 1, run = function(args) return require("seg.inspect.inspect").command(args[2]) end },
  measure = {
    text = "segengine measure FOUND TRUTH [--json]\n"
      .. "                            two NIfTI files of labels: Dice, distances, volumes",
    words = math.huge,
    run = function(args) return require("seg.evaluate.measure").command(args) end },
  predict = {
    text = "segengine predict --bundle FILE --in PATH --out DIR\n"
      .. "                            new images, with a bundle of export --bundle",
    words = math.huge, run = function(args) return predict_bundle(args) end },
  search = {
    text = "segengine search SCRIPT.lua [--key value ...]\n"
      .. "                            the same as segengine SCRIPT.lua search",
    words = math.huge, script = "search" },
  ops = {
    text = "segengine ops               the operator table",
    words = 0, run = function() return require("seg.inspect.doctor").ops() end },
}

-- A line for each command of a recipe.
local function command_lines(out)
  for _, c in ipairs(commands) do out[#out + 1] = string.format("  %-13s %s", c[1], c[2]) end
end

-- A line for each flag, and for each reserved key that the recipe does not list itself (own: its
-- defaults, by name).
local function option_lines(out, own)
  local lines = {}
  for _, g in ipairs(groups) do lines[g[1]] = {} end
  local function add(group, name, help)
    local list = lines[group_of[group] or group]
    list[#list + 1] = string.format("  --%-14s %s", name, help)
  end
  for _, r in ipairs(config.reserved) do
    local default = (r[2] == nil or r[2] == "") and "" or string.format(" (%s)", tostring(r[2]))
    if own[r[1]] == nil then add(r.group or "all", r[1], r.help .. default) end
  end
  for _, f in ipairs(flags) do
    add(f.group or f.of and f.of:match "^%S+" or "all", f[1], f[3])
  end
  for _, g in ipairs(groups) do
    out[#out + 1] = "\n" .. g[2]
    table.move(lines[g[1]], 1, #lines[g[1]], #out + 1, out)
  end
end

local function usage()
  local out = {
    "segengine " .. core.version .. " -- trains, evaluates and runs medical-image networks",
    "research use only, not a medical device",
    "",
    "segengine SCRIPT.lua [COMMAND] [--key value ...]",
  }
  command_lines(out)
  out[#out + 1] = ""
  for _, name in ipairs(util.sorted_keys(alone)) do out[#out + 1] = alone[name].text end
  out[#out + 1] = "segengine SCRIPT.lua --help    the options of that recipe"
  out[#out + 1] = "segengine --help | --version"
  option_lines(out, {})
  out[#out + 1] = ""
  out[#out + 1] = "Every key of a recipe's seg.config is an option too. Exit codes: 0 ok,"
  out[#out + 1] = "1 failure, 2 usage, 3 data, 4 device, 5 diverged; 130 Ctrl-C, 138 SIGUSR1, 140"
  out[#out + 1] = "SIGUSR2, 143 SIGTERM, 129 SIGHUP: training has saved a checkpoint."
  return table.concat(out, "\n")
end

-- The keys of a recipe's config as its script writes them: a row for each line of the script, with
-- the keys of that line and the comment after it, which describes all of them. Keys that do not
-- appear in the text come last, without a comment. -> { { keys = {...}, said = }, ... }
local function read_keys(text, defaults)
  local rows, seen = {}, {}
  for line in text:sub(text:find("seg.config", 1, true) or 1):gmatch("[^\n]+") do
    local code, said = line:match("^(.-)%s*%-%-%s*(.*)$")
    local row = { keys = {}, said = said or "" }
    for key in (code or line):gmatch("([%a_][%w_]*)%s*=") do
      if defaults[key] ~= nil and not seen[key] then
        row.keys[#row.keys + 1], seen[key] = key, true
      end
    end
    if #row.keys > 0 then rows[#rows + 1] = row end
  end
  for _, key in ipairs(util.sorted_keys(defaults)) do
    if not seen[key] then rows[#rows + 1] = { keys = { key }, said = "" } end
  end
  return rows
end

-- A row of read_keys as lines of the help. The comment on several keys follows the last key; the
-- others precede it on the line.
local function key_lines(out, row, own)
  local options, reserved = {}, known(config.reserved, row.keys[1])
  for i, key in ipairs(row.keys) do
    local value = config.print({ [key] = own[key] }):match("= (.*)\n$")
    options[i] = string.format("--%-13s %-12s", key, value):gsub("%s+$", "")
  end
  local said = row.said
  if said == "" and #row.keys == 1 and reserved then said = reserved.help end
  if said == "" then
    for _, option in ipairs(options) do out[#out + 1] = "  " .. option end
  elseif #options == 1 then
    out[#out + 1] = string.format("  %-28s %s", options[1], said)
  else
    for i, option in ipairs(options) do options[i] = option:gsub("%s+", " ") end
    out[#out + 1] = string.format("  %-28s %s", table.concat(options, " "), said)
  end
end

-- The help of one recipe: its own keys with their defaults, its presets, and the options of every
-- recipe.
local function recipe_help(script, text, defaults)
  local out = { "segengine " .. script .. " [COMMAND] [--key value ...]" }
  command_lines(out)
  local own = {}
  for k, v in pairs(defaults) do if k ~= "presets" then own[k] = v end end
  local rows = read_keys(text, own)
  if #rows > 0 then out[#out + 1] = "\noptions of this recipe, with their defaults" end
  for _, row in ipairs(rows) do key_lines(out, row, own) end
  local presets = type(defaults.presets) == "table" and defaults.presets or {}
  if next(presets) then out[#out + 1] = "\npresets" end
  for _, name in ipairs(util.sorted_keys(presets)) do
    local values = config.print(presets[name]):gsub(" = ", " "):gsub("([^\n]+)\n", " --%1")
    out[#out + 1] = string.format("  --preset %-6s%s", name,
                                  values:match("^%s*$") and " the defaults" or values)
  end
  option_lines(out, own)
  return table.concat(out, "\n")
end

local function names(list)
  local out = {}
  for i, e in ipairs(list) do out[i] = e[1] end
  return out
end

-- Splits an option: its name, and the value after a "=" in the same word. --batch-size is the same
-- as --batch_size; messages use the spelling of the user. Returns nil if the word is no option; an
-- invalid name is refused, with the name of this program for it if known.
local function split_option(word)
  local name, value = word:match("^%-%-(%w[%w_-]*)=(.*)$")
  name = name or word:match("^%-%-(%w[%w_-]*)$")
  if name then
    local key = name:gsub("-", "_")
    config.line.spelled[key] = name
    return key, value
  end
  if word:sub(1, 1) == "-" then
    local known_names = names(flags)
    for _, r in ipairs(config.reserved) do known_names[#known_names + 1] = r[1] end
    local hint = synonyms.meaning(word:match("^%-(%w+)$") or "", known_names)
    refuse('option "%s" is not understood; options are written --name VALUE%s', word,
           hint and ": " .. hint or "")
  end
end

-- Whether export writes trained weights.
local function exports_weights()
  local given = config.line.flags
  return given.safetensors or given.onnx or given.bundle
end

-- Refuses a flag that this command does not use, because the user expected an effect.
local function check_flags(command)
  local given = config.line.flags
  for _, f in ipairs(flags) do
    if given[f[1]] and f.of and not (" " .. f.of .. " "):find(" " .. command .. " ", 1, true) then
      refuse("--%s is not for %s, but for %s; leave it out, or give that command", f[1], command,
             (f.of:gsub(" ", ", ")))
    end
  end
  if given.resume and given.weights then
    refuse("--resume and --weights: a resumed run continues from its own weights; leave out one of "
           .. "them")
  end
  if command == "export" and given.weights and not exports_weights() then
    refuse("--weights: export writes trained weights with --bundle, --onnx or --safetensors FILE "
           .. "only")
  end
end

-- Refuses the word args[i], which is no command. If a file or folder has this name, it is most
-- likely one of several names into which the shell expanded a pattern for the option `name`.
local function refuse_word(args, i, name)
  local word = args[i]
  if not util.exists(word) then
    refuse('command "%s" is not known; %s', word, util.suggest(word, names(commands)))
  end
  local folder = word:match("^(.+)/[^/]+/?$")
  if not name then
    refuse('"%s" is not a command, but a file or folder; fix: put its option before it, '
           .. "as --data %s", word, folder or word)
  end
  local one = name == "in" or name == "data" or name == "out"
  refuse('"%s" is not a command, but a file or folder; --%s takes one value, and the shell makes '
         .. "several words of a pattern with *; fix: %s", word, config.line.spelled[name] or name,
         one and string.format("give the folder: --%s %s", name, folder or ".")
         or string.format("quote patterns: --%s '%s*'", config.line.spelled[name] or name,
                          folder and folder .. "/" or ""))
end

-- Parses args[from ...] into config.line and returns the command; fixed: the command if the line
-- began with it. `out` is a flag of predict and a config key of all other commands: the key serves
-- both. Errors are reported without a line of the recipe.
local function parse(args, from, fixed)
  local line, command, i = config.line, fixed, from
  local last -- the last option, if it takes a value
  while args[i] do
    local word = args[i]
    local name, value = split_option(word)
    if not name then
      local takes = command and (known(commands, command) or {}).word
      if takes and not line.flags[takes] then
        line.flags[takes] = word
        goto next_word
      end
      if command and known(commands, word) then
        refuse("%s and %s: one command at a time", command, word)
      elseif not known(commands, word) or command then
        refuse_word(args, i, last)
      end
      command = word
    else
      local flag = known(flags, name)
      local takes = not flag or flag[2]
      last = takes and name
      if value and not takes then refuse('--%s takes no value, got "%s"', name, value) end
      -- a switch of the recipe may have no value, as --slabs; whether this option is a switch is
      -- known when the recipe has given its defaults
      if takes and not value and args[i + 1] and not args[i + 1]:match("^%-%-%a") then
        i = i + 1
        value = args[i]
      end
      if flag and takes and not value then refuse("--%s needs a value: %s", name, flag[3]) end
      if name == "set" then
        local k, v = value:match("^([%w_]+)=(.*)$")
        if not k then refuse('--set takes KEY=VALUE, got "%s"', value) end
        line.options[#line.options + 1] = { k, v }
      elseif flag and not flag.own then
        -- from an empty shell variable
        if value == "" then refuse("--%s is empty; it needs %s", name, flag[3]) end
        line.flags[name] = takes and value or true
      else
        line.options[#line.options + 1] = { name, value }
      end
    end
    ::next_word::
    i = i + 1
  end
  line.names = names(flags)
  command = command or "train"
  line.command = command
  line.no_data = (known(commands, command) or {}).no_data
  check_flags(command)
  return command
end

local function say_notes()
  for _, note in ipairs(config.notes) do show.line("%s", note) end
end

-- segengine predict: runs a bundle, which replaces the script. -> exit code
function predict_bundle(args)
  parse(args, 2, "predict")
  local given = config.line.flags
  if not given.bundle then
    fail("usage", "predict is a command of a recipe: segengine SCRIPT.lua predict; without a "
         .. "recipe it needs a bundle: segengine predict --bundle FILE --in PATH --out DIR")
  end
  if given.weights then refuse("--weights: a bundle has its own; leave one of them out") end
  given.weights = given.bundle
  local r, name = require("seg.predict.bundle").open(given.bundle)
  say_notes()
  writable.check("predict", given, config.ensure())
  devices.choose()
  return require("seg.predict.predict").command(r, name)
end

-- Prepares seg.config before the script calls it: the saved config of a resumed run, or of the
-- weights, so that the network is the trained one. Returns the folder to resume.
local function prepare_saved(script, command)
  local given, run = config.line.flags, require "seg.report.run"
  local out, name, has_data = "runs", util.stem(script), false
  for _, o in ipairs(config.line.options) do
    if o[1] == "out" and command ~= "predict" then out = o[2] or out end
    has_data = has_data or o[1] == "data" or o[1] == "phantom"
  end
  local row = known(commands, command) or {}
  if row.series then return require("seg.experiments.series").resume(command, out, name) end
  local folder
  if given.resume then folder, given.resume_said = run.resume(given.resume, out, name) end
  local trained = row.weights
  if folder then
    given.resumed = folder
    given.saved_from = folder .. "/config.txt"
    given.saved_config = aliases.config(util.read_file(given.saved_from))
    local script_of_run = folder .. "/recipe.lua"
    given.saved_script = util.exists(script_of_run) and util.read_file(script_of_run) or ""
  elseif trained and (command ~= "export" or exports_weights()) then
    local place = given.weights and require("seg.predict.weights").places(given.weights)[1]
    -- replay has its file as a word, and reports a missing file itself
    local path = place
    if command ~= "replay" then path = place and run.weights(place) or run.choose(out, name) end
    -- a file that cannot be read is reported when it is loaded
    local ok, meta = pcall(core.checkpoint.meta, path)
    if ok then
      given.saved_config = meta.config and aliases.config(meta.config)
      given.saved_script = meta.recipe_text
    end
    given.saved_from = ok and (meta.recipe or name) ~= name and string.format(
      'weights of the recipe "%s" (%s), not of "%s"', meta.recipe, path, name) or path
    -- a checkpoint holds no path of data, but its run does
    local home = command == "evaluate" and ok and not has_data and run.of(path)
    local lines = home and run.data_lines(home) or ""
    given.saved_config = lines ~= "" and (given.saved_config or "") .. lines or given.saved_config
    given.saved_data = lines ~= ""
  end
  return folder
end

-- Runs the command for the recipe that the script declared. -> exit code
local function run_command(command, recipe, script, text, resume)
  local name = util.stem(script)
  -- before any thread starts: the setting applies to threads started later
  if config.ensure().nice > 0 then core.sys.nice(config.values.nice) end
  if config.values.pin then core.sys.pin(0) end
  -- a series passes the options on to its runs
  local several = (known(commands, command) or {}).series
  -- commands other than train use the config's batch for the network
  if command ~= "train" and not several then config.unread.batch = nil end
  for _, key in ipairs(util.sorted_keys(config.unread)) do
    show.warn("--%s changes nothing here: with these options the recipe does not read it", key)
  end
  say_notes()
  writable.check(command, config.line.flags, config.values, resume)
  if command == "train" then
    return ranks.run(whole_line, function()
      if config.values.batch == "auto" then require("seg.train.batch").choose(recipe, command) end
      require("seg.train.autotune").choose(recipe, resume)
      return require("seg.train.fit").train(recipe, name, text, resume)
    end)
  end
  if command == "bench" then
    return ranks.run(whole_line, function()
      if ranks.count == 1 and config.values.batch == "auto" then
        require("seg.train.batch").choose(recipe, command)
      end
      require("seg.train.autotune").choose(recipe)
      local bench = ranks.count > 1 and "seg.inspect.bench_ranks" or "seg.inspect.bench"
      return require(bench).command(recipe)
    end)
  end
  if config.given.autotune and config.values.autotune and not several then
    refuse("--autotune is not for %s, but for train and bench; leave it out", command)
  end
  if command == "plan" or command == "doctor" then
    devices.choose_unopened(config.line.flags.gpu)
  elseif not several then
    devices.choose()
  end
  if config.values.batch == "auto" and not several then
    require("seg.train.batch").choose(recipe, command)
  end
  local module = command == "doctor" and "seg.inspect.doctor_data"
    or known(commands, command).module
  return require(module).command(recipe, name)
end

-- Whether a word of the line is --help or -h.
local function asks_help(words)
  for _, word in ipairs(words) do
    if word == "--help" or word == "-h" then return true end
  end
  return false
end

-- Whether this script, by its text, may read the arguments after its name. A script that contains
-- neither `arg` nor `...`, and loads no other file, cannot.
local function reads_words(text)
  local code = "\n" .. text:gsub("%-%-%[(=*)%[.-%]%1%]", ""):gsub("%-%-[^\n]*", "")
  if code:find("%f[%w_]arg%f[^%w_]") or code:find("...", 1, true) then return true end
  for _, word in ipairs { "dofile", "loadfile", "searchers" } do
    if code:find(word, 1, true) then return true end
  end
  for module in code:gmatch("%f[%w_]require%f[^%w_]%s*%(?%s*([^%s)]*)") do
    if not module:find("^[\"']seg[\"'.]") then return true end
  end
  return false
end

-- The first of these words that is an option of every recipe, or nil.
local function recipe_option(words)
  for _, word in ipairs(words) do
    local name = word:match("^%-%-([%w_-]+)")
    name = name and name:gsub("-", "_")
    if known(flags, name) or known(config.reserved, name) then return word end
  end
end

-- Reads the text of a script. For a folder or an image the error proposes inspect.
local function read_script(script)
  local stat = core.sys.stat(script)
  if not stat then fail("usage", "there is no script %s", script) end
  if stat.kind == "folder" then
    fail("usage", "%s is a folder, not a Lua script; fix: segengine inspect %s shows its content",
         script, script)
  end
  local text = util.read_file(script, true) -- /dev/stdin too
  -- bytes that no text has: a zero, or the magic of gzip and PNG
  if text:find("\0", 1, true) or text:find("^\x1f\x8b") or text:find("^\x89PNG") then
    fail("usage", "%s is not a Lua script (it is not text); fix: segengine inspect %s shows its "
         .. "content",
         script, script)
  end
  return text
end

-- Runs the script args[1]; if it declares a recipe, runs the command of the line, or `fixed`. ->
-- exit code
local function run_script(args, fixed)
  local script = args[1]
  local text = read_script(script)
  config.line.script = script
  local rest = table.move(args, 2, #args, 1, {})
  rest[0] = script
  _G.arg = rest
  -- as in the lua program: a byte order mark, and a first line "#!..." for the system, are skipped
  local lua = text:gsub("^\xef\xbb\xbf", ""):gsub("^#[^\n]*", "")
  local chunk, why = load(lua, "@" .. script, "t")
  if not chunk and not script:find("%.lua$") and not text:find("[%w_]%s*=") then
    fail("usage", "%s is not a Lua script (%s); fix: segengine inspect %s shows its content",
         script,
         why, script)
  end
  if not chunk then fail("usage", "%s", why) end
  -- options are parsed when the script calls seg.config, so a plain script may have its own
  -- arguments
  local command, resume
  local original = config.config
  local help, helped = asks_help(rest), {}
  local function with_line(f)
    return function(...)
      if help then
        print(recipe_help(script, text, f == original and (...) or {}))
        error(helped)
      end
      if not command then
        command = parse(args, 2, fixed)
        if command == "predict" and config.line.flags.bundle then
          refuse("--bundle: it has its own network and needs no script: segengine predict "
                 .. "--bundle FILE --in PATH --out DIR")
        end
        resume = prepare_saved(script, command)
      end
      return f(...)
    end
  end
  local seg, recipes = require "seg", require "seg.recipe.recipe"
  seg.config = util.dotted("seg", "config", seg, with_line(original))
  seg.recipe = util.dotted("seg", "recipe", seg, with_line(recipes.recipe))
  if help then
    local ok, why_not = pcall(chunk, table.unpack(rest))
    return ok and 0 or why_not == helped and 0 or error(why_not, 0)
  end
  chunk(table.unpack(rest))
  if not recipes.current then
    -- the arguments of a plain script are its own, unless the only one is a command
    local asked = fixed or (command or #rest == 1) and known(commands, rest[1]) and rest[1]
    if asked then
      fail("usage", "%s declares no recipe, so there is nothing to %s; fix: end the script with "
           .. "seg.recipe { ... }", script, asked)
    end
    local word = not command and not reads_words(lua) and recipe_option(rest)
    if word then
      fail("usage", "%s declares no recipe and reads no arguments, so %s did nothing; fix: end the "
           .. "script with seg.recipe { ... }, or read arg in it", script, word)
    end
    return 0
  end
  return run_command(command, recipes.current, script, text, resume)
end

-- Reorders `args`, which begin with an option, so that the script or command comes first: "check
-- --device cpu". nil if they do not begin with an option.
local function script_first(args)
  local name = args[1]:match("^%-%-([%w_]+)")
  if not (known(flags, name) or known(config.reserved, name)) then return nil end
  local line, at = { table.unpack(args) }, nil
  for i, word in ipairs(args) do
    if word:match("%.lua$") then
      at = i
      break
    end
    at = at or alone[word] and i
  end
  table.insert(line, 1, at and table.remove(line, at) or "SCRIPT.lua")
  return table.concat(line, " ")
end

local function print_usage()
  print(usage())
  return 0
end

local function print_version()
  print("segengine " .. core.version .. " (" .. core.build .. ")")
  print("research use only, not a medical device")
  return 0
end

-- Commands that print information about the program.
local about = { help = print_usage, ["--help"] = print_usage, ["-h"] = print_usage,
                ["--version"] = print_version }

return function(args)
  local first = args[1]
  whole_line = args
  if not first then
    io.stderr:write(usage(), "\n")
    return 2
  end
  local help = asks_help { table.unpack(args, 2) }
  local of_script = args[2] == "data" and args[3] and not args[3]:match "^%-"
  if first == "doctor" and args[2] and (of_script or not help) then
    if args[2] ~= "data" then
      fail("usage", 'doctor takes data SCRIPT.lua or nothing, got "%s"', args[2])
    end
    if not args[3] then fail("usage", "doctor data needs a SCRIPT.lua") end
    return run_script({ table.unpack(args, 3) }, "doctor")
  end
  if alone[first] and help then
    print(alone[first].text)
    return 0
  end
  if alone[first] and alone[first].script then
    if not args[2] then fail("usage", "%s needs a SCRIPT.lua", first) end
    return run_script({ table.unpack(args, 2) }, alone[first].script)
  end
  local command = alone[first] or (about[first] and { words = 0, run = about[first] })
  if command then
    if #args > command.words + 1 then
      fail("usage", '%s takes %s, got "%s" as well', first,
           command.words == 1 and "one PATH" or "nothing else", args[command.words + 2])
    end
    return command.run(args)
  end
  if not first:match("%.lua$") and not util.exists(first) then
    if known(commands, first) then
      if help then return print_usage() end
      fail("usage", "%s is a command of a recipe: segengine SCRIPT.lua %s", first, first)
    end
    local meant = script_first(args)
    if meant then
      fail("usage", "%s: options come after the script: segengine %s", first, meant)
    end
    local known_words = { "--help", "--version", table.unpack(util.sorted_keys(alone)) }
    table.move(names(commands), 1, #commands, #known_words + 1, known_words)
    fail("usage", 'there is no script or command "%s"; %s', first,
         util.suggest(first, known_words))
  end
  return run_script(args)
end
