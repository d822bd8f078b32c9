-- cli.lua -- the command line, in one place.
--
--   segengine SCRIPT.lua [COMMAND] [--key value ...]
--
-- Flags are listed once, in the tables below; the help is made from them.

local core = require "seg.core"
local config = require "seg.config"
local util = require "seg.util"

local fail, refuse = util.fail, util.refuse

-- Commands of a recipe: what they do. weights: their numbers are those that the
-- weights were trained with. no_data: they open none, so the preset
-- without --data is not the one for made-up patients.
local commands = {
  { "train", "train the network (the command when none is given)" },
  { "evaluate", "measure trained weights on a part: --weights FILE --split valid",
    weights = true },
  { "predict", "segment new images: --weights FILE --in PATH --out DIR",
    weights = true },
  { "plan", "memory, parameters and arithmetic; opens no data and no device", no_data = true },
  { "bench", "measured time per layer and step", no_data = true },
  { "export", "write for others: --safetensors FILE, --twin DIR or --arrays DIR",
    weights = true },
}

-- Flags that are not config keys: name, whether a value follows, help.
local flags = {
  { "preset", true, "NAME: numbers of a preset of the recipe (demo, quick, full)" },
  { "set", true, "KEY=VALUE: the same as --KEY VALUE" },
  { "resume", true, "DIR or auto: continue a run" },
  { "weights", true, "FILE: a checkpoint; else the best of the newest run" },
  { "in", true, "PATH: image or folder to segment" },
  { "split", true, "train, valid or test: the part to evaluate (test)" },
  { "safetensors", true, "FILE: where export writes" },
  { "twin", true, "DIR: export initial weights, batches and losses for another framework" },
  { "arrays", true, "DIR: export the prepared samples of all parts for another framework" },
  { "quiet", false, "results only" },
  { "json", false, "results as JSON" },
}

local function usage()
  local out = {
    "segengine " .. core.version .. " -- trains, evaluates and runs medical-image networks",
    "research use only, not a medical device",
    "",
    "segengine SCRIPT.lua [COMMAND] [--key value ...]",
  }
  for _, c in ipairs(commands) do out[#out + 1] = string.format("  %-13s %s", c[1], c[2]) end
  out[#out + 1] = ""
  out[#out + 1] = "segengine check [--device D] [--op NAME]   every operator against the reference"
  out[#out + 1] = "segengine doctor            what this machine offers, and what is missing"
  out[#out + 1] = "segengine inspect PATH      any image, series, array or checkpoint"
  out[#out + 1] = "segengine ops               the operator table"
  out[#out + 1] = "segengine --help | --version"
  out[#out + 1] = ""
  for _, f in ipairs(flags) do out[#out + 1] = string.format("  --%-13s %s", f[1], f[3]) end
  for _, r in ipairs(config.reserved) do
    local default = r[2] == nil and "" or string.format(" (%s)", tostring(r[2]))
    out[#out + 1] = string.format("  --%-13s %s%s", r[1], r.help, default)
  end
  out[#out + 1] = ""
  out[#out + 1] = "Every key of a recipe's seg.config is an option too. Exit codes: 0 ok,"
  out[#out + 1] = "1 failure, 2 usage, 3 data, 4 device, 5 diverged, 130 after Ctrl-C and 143 after"
  out[#out + 1] = "SIGTERM have saved a checkpoint."
  return table.concat(out, "\n")
end

local function known(list, name)
  for _, e in ipairs(list) do if e[1] == name then return e end end
end

local function names(list)
  local out = {}
  for i, e in ipairs(list) do out[i] = e[1] end
  return out
end

-- One option of the line: its name, and what follows a "=" in the same word.
-- nil when the word is no option; a name that cannot be one is refused, with the
-- one that it is closest to.
local function split_option(word)
  local name, value = word:match("^%-%-([%w_]+)=(.*)$")
  name = name or word:match("^%-%-([%w_]+)$")
  if not name and word:sub(1, 1) == "-" then
    local plain = word:match("^%-%-([%w_-]+)")
    refuse('option "%s" is not understood; options are written --name VALUE%s', word,
           plain and plain:find("-", 1, true) and " (--" .. plain:gsub("-", "_") .. ")" or "")
  end
  return name, value
end

-- args[from ...] into config.line; returns the command. `out` is a flag of
-- predict and a config key of all others: both are served by the key. Mistakes
-- are refused without a line of the recipe: they are not there.
local function parse(args, from)
  local line, command, i = config.line, nil, from
  while args[i] do
    local word = args[i]
    local name, value = split_option(word)
    if not name then
      if command and known(commands, word) then
        refuse("%s and %s: one command at a time", command, word)
      elseif not known(commands, word) or command then
        refuse('command "%s" is not known; %s', word, util.suggest(word, names(commands)))
      end
      command = word
    else
      local flag = known(flags, name)
      local takes = not flag or flag[2]
      if value and not takes then refuse('--%s takes no value, got "%s"', name, value) end
      -- a switch of the recipe may stand alone, as --slabs; whether this one
      -- may is known when the recipe has given its defaults
      if takes and not value and args[i + 1] and not args[i + 1]:match("^%-%-%a") then
        i = i + 1
        value = args[i]
      end
      if flag and takes and not value then refuse("--%s wants a value: %s", name, flag[3]) end
      if name == "set" then
        local k, v = value:match("^([%w_]+)=(.*)$")
        if not k then refuse('--set wants KEY=VALUE, got "%s"', value) end
        line.options[#line.options + 1] = { k, v }
      elseif flag then
        line.flags[name] = takes and value or true
      else
        line.options[#line.options + 1] = { name, value }
      end
    end
    i = i + 1
  end
  line.names = names(flags)
  line.no_data = command and known(commands, command).no_data
  return command or "train"
end

-- What seg.config needs to know before the script calls it: the numbers of a
-- run that is resumed, or of the weights that are used, so that the network is
-- the one that was trained. Returns the folder to resume.
local function prepare_saved(script, command)
  local given, run = config.line.flags, require "seg.run"
  local out, name = "runs", util.stem(script)
  for _, o in ipairs(config.line.options) do
    if o[1] == "out" and command ~= "predict" then out = o[2] or out end
  end
  local folder = given.resume and run.resume(given.resume, out, name)
  if folder then
    given.saved_config = util.read_file(folder .. "/config.txt")
  elseif known(commands, command).weights and (command ~= "export" or given.safetensors) then
    local path = given.weights or run.weights(out, name)
    -- a file that cannot be read is named when it is loaded
    local ok, meta = pcall(core.checkpoint.meta, path)
    if ok then given.saved_config = meta.config end
  end
  return folder
end

-- The command of a recipe that the script has declared; the exit code.
local function run_command(command, recipe, script, text, resume)
  local name = util.stem(script)
  if command == "train" then return require("seg.fit").train(recipe, name, text, resume) end
  local module = command == "evaluate" and "predict" or command
  return require("seg." .. module).command(recipe, name, command)
end

-- Run the script args[1]; when it declares a recipe, do what the line says with
-- it. The exit code.
local function run_script(args)
  local script = args[1]
  local text = util.read_file(script)
  local rest = table.move(args, 2, #args, 1, {})
  rest[0] = script
  _G.arg = rest
  -- as lua does: a first line "#!/usr/bin/env segengine" is for the system
  local chunk, why = load((text:gsub("^#[^\n]*", "")), "@" .. script, "t")
  if not chunk then fail("usage", "%s", why) end
  -- options are understood when the script asks for them, so a plain script
  -- may have arguments of its own
  local command, resume
  local original = config.config
  local function with_line(f)
    return function(...)
      if not command then
        command = parse(args, 2)
        resume = prepare_saved(script, command)
      end
      return f(...)
    end
  end
  local seg, recipes = require "seg", require "seg.recipe"
  seg.config = with_line(original)
  seg.recipe = with_line(recipes.recipe)
  chunk(table.unpack(rest))
  if not recipes.current then return 0 end
  return run_command(command, recipes.current, script, text, resume)
end

-- Commands that need no script: args -> exit code.
local standalone = {
  check = function(args) return require("seg.check").command(args) end,
  doctor = function() return require("seg.doctor").command() end,
  inspect = function(args) return require("seg.inspect").command(args[2]) end,
  ops = function() return require("seg.doctor").ops() end,
  ["--help"] = function() print(usage()) return 0 end,
  ["-h"] = function() print(usage()) return 0 end,
  ["--version"] = function()
    print("segengine " .. core.version .. " (" .. core.build .. ")")
    print("research use only, not a medical device")
    return 0
  end,
}

return function(args)
  if not args[1] then
    io.stderr:write(usage(), "\n")
    return 2
  end
  local f = standalone[args[1]]
  if f then
    local takes = args[1] == "inspect" and 2 or 1
    if args[1] ~= "check" and args[takes + 1] then
      fail("usage", '%s takes %s, got "%s" as well', args[1],
           takes == 2 and "one PATH" or "nothing else", args[takes + 1])
    end
    return f(args)
  end
  if not args[1]:match("%.lua$") and not util.exists(args[1]) then
    fail("usage", 'there is no script or command "%s"; %s', args[1],
         util.suggest(args[1], { "check", "doctor", "inspect", "ops", "--help", "--version" }))
  end
  return run_script(args)
end
