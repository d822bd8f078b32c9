-- config.lua -- the options of a run: defaults, presets, the command line.
--
-- Later sources override earlier ones: defaults of the recipe; its preset; the saved config of a
-- resumed run or of the weights; the command line from left to right. A value has the type of its
-- default. An unknown key is an error that suggests the nearest known one.

local aliases = require "seg.aliases"
local core = require "seg.core"
local json = require "seg.json"
local synonyms = require "seg.synonyms"
local util = require "seg.util"

local fail, refuse = util.fail, util.refuse
local M = {}

M.MOST_EPOCHS = 1000000 -- the schedule is evaluated for each epoch before the run

-- Keys that every recipe has: default and help. `type` if the default is nil. free: may change when
-- a run is resumed, and is not saved in checkpoints (required for paths). lo, hi: range of numbers;
-- among: allowed words; auto: may be "auto", and the program chooses; bytes: an amount of memory,
-- or one of the words. group: section of the help, default: options of all recipes.
M.reserved = {
  { "data", nil, type = "string", help = "folder or file with the images", free = true },
  { "out", "runs", help = "where runs are kept", free = true },
  { "phantom", "", help = "folder of the synthetic data; empty: below --out", free = true },
  { "seed", 42, lo = 0, help = "of weights, order and augmentation" },
  { "device", "auto", group = "machine", help = "cpu, ref, cuda, cuda:N or auto", free = true },
  { "threads", 0, group = "machine", lo = 0, hi = 1024, free = true,
    help = "compute threads; 0: the cores, less one when more than four" },
  { "pin", false, group = "machine", free = true,
    help = "compute threads stay on a core each; false: where the system puts them" },
  { "workers", 2, group = "machine", lo = 0, hi = 256, free = true,
    help = "loader threads; any number gives the same batches" },
  { "ranks", 1, group = "ranks", lo = 1, hi = 1024, free = true,
    help = "train: so many processes on this machine share each batch" },
  { "devices", "", group = "ranks", free = true,
    help = "train: numbers of GPUs with commas between: a process for each, as --ranks" },
  { "allreduce", "auto", group = "ranks", among = { auto = true, nccl = true, host = true },
    free = true,
    help = "ranks on GPUs: how gradients are summed over ranks: nccl, host or auto" },
  { "sync_norm", true, group = "ranks", free = true,
    help = "ranks: batch norm over the whole batch; false: over the shard of a rank" },
  { "nice", 0, group = "machine", lo = 0, hi = 19, free = true,
    help = "give way to other programs: the priority that nice(1) sets" },
  { "idle_workers", false, group = "machine", free = true,
    help = "loader threads take only idle processor time (SCHED_IDLE)" },
  { "precision", "f32", among = core.precisions_known,
    help = core.precision_names .. ": precision of the products of convolutions" },
  { "winograd", true, help = "3x3 convolutions in fewer multiplications; false: direct sums" },
  { "tiles", "", help = "layers=FORWARD/DATA, with commas between: tiles of products on a GPU" },
  { "autotune", false, group = "machine", free = true,
    help = "train, bench: measure which tiles are fastest on this GPU, and keep them as --tiles" },
  { "epochs", 1, lo = 1, hi = M.MOST_EPOCHS, help = "passes over the training set", free = true },
  { "batch", 1, type = "integer", lo = 1, hi = 1 << 20, auto = true,
    help = "samples a step; auto: as many as memory holds" },
  { "steps", 0, group = "train", lo = 0,
    help = "stop after this number of steps in all; 0: never", free = true },
  { "until_epoch", 0, group = "train", lo = 0,
    help = "stop when this number of epochs is done; 0: never", free = true },
  { "fold", 0, lo = 0, help = "the fold of kfold that validates; 0: as in the script" },
  { "save_every", 10, group = "train", lo = 1,
    help = "epochs between numbered checkpoints", free = true },
  { "keep_last", 5, group = "train", lo = 0,
    help = "numbered checkpoints that are kept", free = true },
  { "cache_mb", 4096, group = "machine", lo = 0, hi = 1 << 30,
    help = "prepared volumes kept in memory, in MiB", free = true },
  { "prefetch_mb", 256, group = "machine", lo = 0, hi = 1 << 30, free = true,
    help = "MiB of batches prepared ahead, at most; one is always prepared" },
  { "cache_file", "", group = "machine", free = true,
    help = "keep prepared volumes in this file for the next run; auto: below --out" },
  { "overfit", 0, group = "train", lo = 0, hi = 1 << 20,
    help = "train and validate on this number of samples, to test that the "
      .. "network can fit; 0: all" },
  { "quick", false, group = "train", help = "5 epochs of a few cases: does everything work?" },
  { "grad_norms", false, group = "train",
    help = "norms of weights and gradients in grad_norms.csv, each epoch", free = true },
  { "on_finish", "", group = "train",
    help = "COMMAND to run at the end of a run, with the result as JSON on its "
      .. "stdin", free = true },
  { "on_nan", "", group = "train",
    help = "COMMAND to run at the first step that is not finite", free = true },
  { "on_stall", "", group = "train",
    help = "COMMAND to run when no step ends for --stall_s seconds", free = true },
  { "stall_s", 600, group = "train", lo = 1,
    help = "seconds without a step until --on_stall", free = true },
  { "device_dataset", "auto", group = "machine", among = { on = true, off = true, auto = true },
    free = true,
    help = "keep the data on the GPU: on, off, or auto if it fits in half of the free memory" },
  { "recompute", "auto", group = "machine", among = { off = true, auto = true }, bytes = true,
    free = true,
    help = "recompute values in the backward pass to save memory: off, auto if memory is short, or "
      .. "to stay within an amount, as 2G" },
  { "fuse", true, group = "machine", free = true,
    help = "fuse operators, such as an activation into the layer before it, or the elementwise "
      .. "operators of a loss into one call; false: one call per operator" },
  { "vram", "", group = "machine", among = { [""] = true }, bytes = true, free = true,
    help = "memory that the network may take on the device, as 15G; empty: what is free" },
}

-- The parsed command line; cli.lua fills it before the script calls seg.config. options: list of
-- {key, text}, text nil for a key without a value; flags: preset, resume, weights, ... by name;
-- names: all flags, for suggestions; spelled: the spelling on the command line by the key's name.
M.line = { options = {}, flags = {}, names = {}, spelled = {} }

local QUICK_EPOCHS = 5

-- The final values, the name of the preset (nil: the recipe has no preset of that name), all
-- presets of the recipe by name, the keys that it declares, and `given`: the keys on the command
-- line.
M.values, M.preset, M.presets, M.declared, M.given = nil, nil, {}, {}, {}

-- The batch that the script declares, itself or in the preset; nil: it declares none.
M.own_batch = nil

-- Values that the program has replaced by its choice for this machine, as they were asked for, by
-- key. A resumed run, perhaps on another machine, chooses again.
M.asked = {}

-- Notes about saved keys that were not read, printed by the command; and the lines of the saved
-- config with keys of the recipe that the script no longer declares.
M.notes, M.undeclared = {}, {}

-- Keys on the command line that only the recipe can use, until it reads them: a key that is left
-- after the declaration has no effect. The program itself reads all other reserved keys.
M.unread = {}
local read_by_recipes = { data = true, batch = true, epochs = true }

-- Whether every recipe has this key.
function M.is_reserved(key)
  for _, r in ipairs(M.reserved) do
    if r[1] == key then return true end
  end
  return false
end

-- Whether key may be "auto".
function M.may_be_auto(key)
  for _, r in ipairs(M.reserved) do
    if r[1] == key then return r.auto or false end
  end
  return false
end

local function kind_of(key, default)
  for _, r in ipairs(M.reserved) do
    if r[1] == key and r.type then return r.type end
  end
  return math.type(default) or type(default)
end

-- The type of a key of this config: "integer", "float", "boolean", ...
function M.kind(key)
  return kind_of(key, M.values[key])
end

-- Converts text to the type of the default; text nil is the value of a switch. A text that does not
-- convert is an error of the command line, or of the file that `from` names.
local function convert(key, text, default, from)
  local kind = kind_of(key, default)
  if text == "auto" and M.may_be_auto(key) then return text end
  local function wrong(fmt, ...) refuse((from or "") .. fmt, ...) end
  if text == nil then
    if kind == "boolean" then return true end
    wrong("--%s needs a value", key)
  end
  if kind == "string" then return text end
  if kind == "integer" then
    local v = math.tointeger(tonumber(text))
    if v then return v end
    wrong('--%s takes a whole number, got "%s"', key, text)
  elseif kind == "float" then
    local v = tonumber(text)
    if v and v == v then return v + 0.0 end
    wrong('--%s takes a number, got "%s"', key, text)
  elseif kind == "boolean" then
    if text == "true" then return true end
    if text == "false" then return false end
    wrong('--%s takes true or false, got "%s"', key, text)
  elseif kind == "table" then
    local list = {}
    for part in (text .. ","):gmatch("([^,]*),") do
      list[#list + 1] = tonumber(part) or part
    end
    return list
  end
  wrong("--%s cannot be set here", key)
end

-- Raises an error for an unknown option: suggests similar ones, and names the command that lists
-- all (there are about a hundred).
local function refuse_unknown(key)
  if key == "image" then -- not one of the recipe's keys here, so the option of predict
    refuse("--image is not for %s, but for predict; leave it out, or give that command",
           M.line.command or "this script")
  end
  local names = util.sorted_keys(M.declared)
  for _, name in ipairs(M.line.names) do names[#names + 1] = name end
  table.sort(names)
  local hint = aliases.hint(key, true) or synonyms.hint(key, names)
  refuse("--%s: unknown option%s (segengine %s --help lists all)", M.line.spelled[key] or key,
         hint and "; " .. hint or "", M.line.script or "SCRIPT.lua")
end

-- A list as text that reads back to the same bits: a float keeps its point, because the elements of
-- a list have no default that gives their type.
local function list_text(list)
  local out = {}
  for i, v in ipairs(list) do
    out[i] = type(v) == "number" and util.number(v) or tostring(v)
    if math.type(v) == "float" and out[i]:match("^-?%d+$") then out[i] = out[i] .. ".0" end
  end
  return table.concat(out, ",")
end

-- A string as the value in a line of a config: unchanged, but quoted as JSON if it has control
-- characters (a command of several lines) or begins with a quote; and the reverse.
local function quoted(text)
  return (text:find '^"' or text:find "%c") and util.json(text) or text
end

local function unquoted(text)
  local ok, v = pcall(json.decode, text, "a value")
  return ok and type(v) == "string" and v or text
end

-- One line a key, sorted: the form of config.txt, which resume reads.
function M.print(values, keep)
  local rows = {}
  for _, k in ipairs(util.sorted_keys(values)) do
    local v = values[k]
    if not keep or keep(k) then
      if type(v) == "table" then v = list_text(v)
      elseif type(v) == "number" then v = util.number(v) end
      rows[#rows + 1] = k .. " = " .. quoted(tostring(v))
    end
  end
  return table.concat(rows, "\n") .. "\n"
end

-- The text of config.txt: the values that a resumed run begins with.
function M.text()
  local values = {}
  for k, v in pairs(M.values) do values[k] = v end
  for k, v in pairs(M.asked) do values[k] = v end
  return M.print(values)
end

-- Whether a key is saved in files that may leave the machine, and must stay the same when the run
-- is resumed.
function M.fixed(key)
  for _, r in ipairs(M.reserved) do
    if r[1] == key then return not r.free end
  end
  return true
end

-- Limits of a single call, which neither a resumed run nor a resumed series inherits.
M.of_the_call = { steps = true, until_epoch = true }

local LISTED = 6 -- keys in a message

-- Raises if the saved config of a resumed run has keys that this script does not declare: a run
-- keeps all options that it began with.
function M.check_declared()
  local flags = M.line.flags
  if not flags.resumed or #M.undeclared == 0 then return end
  refuse("%s: the script of the run declares %s in seg.config, and this script does not; fix: "
         .. "declare the same keys again (%s/recipe.lua is the script of the run), or start a new "
         .. "run", flags.saved_from, util.first_of(M.undeclared, LISTED), flags.resumed)
end

-- Reads the saved config (text of aliases.config) of a resumed run, or of weights. A key that this
-- script does not declare belongs to the script of the run if that script contains the word, else
-- to another version of this program.
local function read_saved(flags, values)
  local saved, from = {}, flags.saved_from
  for line in flags.saved_config:gmatch("[^\n]+") do
    local k, v = line:match("^([%w_]+) = (.*)$")
    local _, change = aliases.now(k or "", v)
    if k and M.declared[k] then
      if not M.of_the_call[k] then saved[k] = convert(k, unquoted(v), values[k], from .. ": ") end
    elseif change and flags.resumed then
      refuse("%s", aliases.refusal(from, k, v, change))
    elseif change then
      M.notes[#M.notes + 1] = aliases.note(from, k, v, change)
    elseif k and (flags.saved_script or ""):find("%f[%w_]" .. k .. "%f[^%w_]") then
      M.undeclared[#M.undeclared + 1] = line
    elseif k then
      core.sys.raise("data", string.format(
        '%s: neither this program (%s) nor the script knows the saved key "%s"; fix: use the '
        .. "version of segengine that wrote it%s", from, core.version, k, flags.resumed
        and ", or remove the line if it was added by hand" or ""), true)
    end
  end
  if not flags.resumed and #M.undeclared > 0 then
    M.notes[#M.notes + 1] = string.format(
      "note: %s: this script does not declare %s, and does not read the saved value", from,
      util.first_of(M.undeclared, LISTED))
  end
  return saved
end

-- Checks the values of reserved keys, from the command line if `given` has the key, else from the
-- recipe.
local function check_reserved(values, given)
  for _, r in ipairs(M.reserved) do
    local key, v, kind = r[1], values[r[1]], r.type or math.type(r[2]) or type(r[2])
    local function wrong(fmt, ...)
      if given[key] then refuse("--" .. key .. fmt, ...) end
      fail("usage", "seg.config: " .. key .. fmt, ...)
    end
    local auto = r.auto and v == "auto"
    if not auto and v ~= nil and (math.type(v) or type(v)) ~= kind then
      wrong(" must be %s, got %s", kind == "integer" and "a whole number"
            or kind == "boolean" and "true or false" or "a text", tostring(v))
    end
    if r.lo and not auto and (v < r.lo or v > (r.hi or math.maxinteger)) then
      wrong(" must be %s, got %d", r.hi and string.format("from %d to %d", r.lo, r.hi)
            or "at least " .. r.lo, v)
    end
    if r.bytes and not r.among[v] and not util.bytes_of(v) then
      local words = table.concat(util.sorted_keys(r.among), ", ")
      wrong(' is "%s", wanted %san amount of memory, as 512M, 1.5G or 2 GiB', v,
            words ~= "" and words .. " or " or "")
    elseif r.among and not r.bytes and not r.among[v] then
      wrong(' is "%s", wanted one of %s', v, table.concat(util.sorted_keys(r.among), ", "))
    end
    if v == "" and (key == "data" or key == "out") then wrong(" is empty; give it a folder") end
  end
end

-- The names of the free keys, for messages.
local function free_keys()
  local list = {}
  for _, r in ipairs(M.reserved) do if r.free then list[#list + 1] = r[1] end end
  return table.concat(list, ", ")
end

-- The first key whose value differs from `saved` (text of a checkpoint): key, saved value, current
-- value; nil if all agree.
function M.differs(saved)
  for line in aliases.config(saved):gmatch("[^\n]+") do
    local k, v = line:match("^([%w_]+) = (.*)$")
    if k and M.declared[k] and M.fixed(k) then
      local now = M.print({ [k] = M.values[k] }):match("= (.*)\n$")
      if now ~= v then return k, v, now end
    end
  end
end

local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  return list_text(a) == list_text(b)
end

-- The values of the preset `name`. A preset that was asked for must exist; the default one may be
-- absent.
local function preset_values(name, asked)
  local presets = M.presets
  if type(presets) ~= "table" then fail("usage", "seg.config: presets must be name = {...}") end
  local preset = presets[name]
  if preset == nil then
    if asked then
      refuse('--preset "%s" is not one of this recipe; %s', name, next(presets) == nil
             and "it has none" or util.suggest(name, util.sorted_keys(presets)))
    end
    return {}
  end
  if type(preset) ~= "table" then
    fail("usage", "seg.config: preset %s must be a table {...}, got %s", name, type(preset))
  end
  for _, key in ipairs(util.sorted_keys(preset)) do
    if not M.declared[key] then
      fail("usage", 'seg.config: preset %s: unknown key "%s"; %s', name, tostring(key),
           util.suggest(key, util.sorted_keys(M.declared)))
    end
  end
  return preset
end

-- seg.config{...}: returns the table of values, which raises an error for an unknown key.
function M.config(defaults)
  if M.values then fail("usage", "seg.config was called before; one recipe has one config") end
  defaults = defaults or {}
  if type(defaults) ~= "table" then
    fail("usage", "seg.config: the defaults must be a table {...}, got %s", type(defaults))
  end
  local values, flags = {}, M.line.flags
  M.declared = {}
  for _, r in ipairs(M.reserved) do
    M.declared[r[1]], values[r[1]] = true, r[2]
  end
  for k, v in pairs(defaults) do
    if type(k) ~= "string" then
      fail("usage", "seg.config: keys are names, got a value at [%s]", tostring(k))
    end
    local removed = aliases.hint(k)
    if removed then fail("usage", "seg.config: %s: %s", k, removed) end
    if k ~= "presets" then M.declared[k], values[k] = true, v end
  end

  -- the preset: the one asked for, else `full` with data (or if no data is opened at all) and
  -- `demo` without
  local has_data = M.line.no_data or false
  for _, o in ipairs(M.line.options) do has_data = has_data or o[1] == "data" end
  has_data = has_data or defaults.data ~= nil
    or ("\n" .. (flags.saved_config or "")):find("\ndata = ", 1, true) ~= nil
  M.preset = flags.preset or (has_data and "full" or "demo")
  M.presets = defaults.presets or {}
  for k, v in pairs(preset_values(M.preset, flags.preset)) do values[k] = v end
  if M.presets[M.preset] == nil then M.preset = nil end
  M.own_batch = (defaults.batch or (M.presets[M.preset] or {}).batch) and values.batch

  M.runs = values.out -- the folder of runs, also for commands that use --out differently
  M.notes, M.undeclared = {}, {}
  local saved = flags.saved_config and read_saved(flags, values) or {}
  for k, v in pairs(saved) do values[k] = v end
  local given = {}
  for _, o in ipairs(M.line.options) do
    local key = o[1]
    if key == "image" and M.line.command == "predict" then flags.image = o[2] or "" end
    if not M.declared[key] then
      if key == "image" and flags.image then goto next_option end
      refuse_unknown(key)
    end
    given[key] = true
    local v = convert(key, o[2], values[key] == nil and defaults[key] or values[key])
    -- a value that "auto" chose at the start holds for the whole run
    if flags.resume and v == "auto" and M.may_be_auto(key) then v = saved[key] or v end
    if flags.resume and saved[key] ~= nil and M.fixed(key) and not same(saved[key], v) then
      refuse("--%s %s differs from the run that is resumed, %s (%s); start a new run, or change "
             .. "only %s", key, o[2] or "", flags.resumed, type(saved[key]) == "table"
             and list_text(saved[key]) or saved[key] == "" and '""' or tostring(saved[key]),
             free_keys())
    end
    values[key] = v
    ::next_option::
  end
  check_reserved(values, given)
  if values.quick and not given.epochs and not flags.resume then values.epochs = QUICK_EPOCHS end
  M.values, M.given, M.asked = values, given, {}
  local unread = {}
  for key in pairs(given) do
    unread[key] = read_by_recipes[key] or not M.is_reserved(key) or nil
  end
  if flags.image then unread.image = nil end
  M.unread = unread
  return setmetatable({}, {
    __index = function(_, k)
      unread[k] = nil
      if M.declared[k] then return values[k] end
      fail("usage", 'the config has no key "%s"; %s', tostring(k),
           util.suggest(k, util.sorted_keys(M.declared)))
    end,
    __newindex = function(_, k)
      fail("usage", 'config key "%s" is set; a recipe reads its config and does not change it',
           tostring(k))
    end,
    __pairs = function()
      for key in pairs(unread) do unread[key] = nil end
      return pairs(values)
    end,
  })
end

-- Returns the values of the reserved keys, also for scripts that call seg.recipe without
-- seg.config.
function M.ensure()
  if not M.values then M.config {} end
  return M.values
end

-- seg.pick(key, word, options): returns options[word], where `word` is the value of the config key
-- `key`; an unknown word is an error that lists the known ones.
function M.pick(key, word, choices)
  if type(choices) ~= "table" then
    util.fail("usage", "seg.pick: the choices must be a table, got %s", type(choices))
  end
  local found = choices[word]
  if found == nil then
    util.fail("usage", '%s is "%s", wanted one of %s', tostring(key), tostring(word),
              table.concat(util.sorted_keys(choices), ", "))
  end
  return found
end

-- seg.numbers(key, list, count): returns the numbers of the list in the config key `key`. A list on
-- the command line may have any length; without this check a short one would silently be completed
-- by other defaults than the recipe's.
function M.numbers(key, list, count)
  if type(list) ~= "table" or #list ~= count then
    util.fail("usage", "%s: wanted %d numbers, with commas between on the command line, got %s",
              tostring(key), count, type(list) == "table" and #list or type(list))
  end
  return table.unpack(list)
end

return M
