-- hooks.lua -- functions of a recipe that training calls with a table `at`:
--
--   on_batch   before each training step
--   on_valid   after the validation of an epoch
--   on_epoch   after an epoch and its validation, before its checkpoint
--   on_save    after the checkpoint of an epoch is on the disk
--
-- The commands on_finish, on_nan and on_stall of commands.lua are programs of the shell instead.
--
-- A call is a transaction: if a hook fails, the run is saved at the step or epoch at hand with
-- at.state as it was before the call, and ends; a resumed run repeats the call. So at.state is
-- written to text at every call (hook_state.lua). A device runs some steps behind this program.
-- on_batch is called before its step is queued, so that the rate it sets is the rate of that step
-- however far the device is behind; only a hook that asks for a loss waits for the device.

local core = require "seg.core"
local epoch_steps = require "seg.train.epoch_steps"
local hook_state = require "seg.train.hook_state"
local ranks = require "seg.train.ranks"
local show = require "seg.show"
local user_function = require "seg.user_function"
local util = require "seg.util"

local fail, place, error_text = util.fail, user_function.place, user_function.error_text
local M = {}

-- The state of hooks in a new run: their table and its text; the numbers that a resumed run needs
-- (next_lr: the rate of the next epoch if a hook set it; lr: that of the last step; loss: of the
-- last step; ended: a hook ends the training with this epoch); the columns that they have added.
function M.new() return { state = {}, text = "", numbers = {}, columns = {} } end

-- The metadata of a checkpoint; nothing of a run without hooks.
function M.metadata(h)
  local numbers = { numbers = h.numbers, columns = h.columns }
  local some = next(h.numbers) ~= nil or h.columns[1] ~= nil
  return h.text ~= "" and h.text or nil, some and hook_state.write(numbers) or nil
end

-- The reverse.
function M.restore(text, numbers)
  local h = M.new()
  h.text, h.state = text or "", hook_state.read(text or "")
  if numbers then
    local t = hook_state.read(numbers)
    h.numbers, h.columns = t.numbers or {}, t.columns or {}
  end
  return h
end

-- What a hook gets ------------------------------------------------------------

local function check_open(call, what)
  if not call.open then
    fail("usage", "%s: this table is valid during its call of %s only", what, call.hook)
  end
end

-- The methods of `at` by name, each for the hooks that have it.
local methods = {}

local function method(name, hooks, f)
  methods[name] = { hooks = hooks, f = f }
end

local STEPS = { on_batch = true, on_epoch = true, on_valid = true }
local EPOCHS = { on_epoch = true, on_valid = true }

local REASON = 200 -- bytes

-- at:stop(reason): ends the training, or the phase, after this step or epoch.
method("stop", STEPS, function(call, reason)
  if reason ~= nil and type(reason) ~= "string" then
    fail("usage", "at:stop: the reason must be a text, got %s", type(reason))
  elseif reason and (#reason > REASON or reason:find "%c") then
    fail("usage", "at:stop: the reason must be one line of at most %d bytes, got %d bytes%s",
         REASON, #reason, reason:find "%c" and " with a control character" or "")
  end
  call.stop = reason or ""
end)

-- at:loss(): the loss of the step before, nil before the first; waits for it.
method("loss", { on_batch = true }, function(call)
  local ok, why = pcall(call.drain)
  if not ok then
    call.broken = why -- not a failure of the hook
    error(why, 0)
  end
  return call.run.state.hooks.numbers.loss
end)

-- at:column(name, value): a cell of metrics.csv in the row of this epoch.
method("column", EPOCHS, function(call, name, value)
  if type(name) ~= "string" or not name:match("^%a[%w_]*$") or #name > 64 then
    fail("usage", "at:column: the name must be letters, digits and _, got %s", tostring(name))
  end
  if math.type(value) == nil then
    fail("usage", "at:column: %s must be a number, got %s", name, type(value))
  end
  local own = false
  for _, c in ipairs(call.run.state.hooks.columns) do own = own or c == name end
  local columns = call.run.csv.columns
  for _, c in ipairs(not own and type(columns) == "table" and columns or {}) do
    if c == name then
      fail("usage", "at:column: metrics.csv has a column %s of its own; choose another name", name)
    end
  end
  call.cells[name] = value
end)

-- Parameters as arrays in PyTorch's order; they wait for the steps under way.
method("parameters", STEPS, function(call)
  local out = {}
  for _, p in ipairs(call.run.session:params()) do out[p.name] = p end
  return out
end)

local function check_name(what, name)
  if type(name) ~= "string" then
    fail("usage", "at:%s: the name of a parameter must be a text, got %s", what, type(name))
  end
end

method("get", STEPS, function(call, name)
  check_name("get", name)
  return call.run.session:get(name)
end)

method("set", STEPS, function(call, name, array)
  check_name("set", name)
  if type(array) ~= "userdata" or getmetatable(array).__name ~= "seg.array" then
    fail("usage", "at:set: the value of %s must be a seg.array, got %s", name, type(array))
  end
  call.run.session:set(name, "value", array)
end)

-- The methods and facts of a call, for messages.
local function known(call)
  local list = util.sorted_keys(call.facts)
  for name, m in pairs(methods) do
    if m.hooks[call.hook] then list[#list + 1] = name end
  end
  if call.hook ~= "on_save" then list[#list + 1] = "state" end
  table.sort(list)
  return list
end

-- Sets at.KEY.
local function assign(call, key, value)
  check_open(call, "at." .. tostring(key))
  if key == "lr" and call.facts.lr and call.hook ~= "on_valid" then
    if math.type(value) == nil or not (value >= 0 and value < math.huge) then
      fail("usage", "at.lr must be a number >= 0, got %s", tostring(value))
    end
    call.lr, call.facts.lr = value, value
  elseif key == "state" and call.hook ~= "on_save" then
    if type(value) ~= "table" then
      fail("usage", "at.state must be a table, got %s", type(value))
    end
    call.run.state.hooks.state = value
  else
    fail("usage", "at.%s cannot be set%s; what a hook keeps goes into at.state", tostring(key),
         call.facts.lr and call.hook ~= "on_valid" and ", only at.lr" or "")
  end
end

-- The value of at.KEY.
local function value_of(call, key)
  check_open(call, "at." .. tostring(key))
  if key == "state" and call.hook ~= "on_save" then return call.run.state.hooks.state end
  local v, m = call.facts[key], methods[key]
  if v ~= nil then return v end
  if m and m.hooks[call.hook] then
    return function(at, ...)
      check_open(call, "at:" .. key)
      if at ~= call.at then fail("usage", "at.%s(...): write a colon, at:%s(...)", key, key) end
      return m.f(call, ...)
    end
  end
  -- facts that this call lacks, such as a loss before the first, are nil
  if call.absent[key] then return nil end
  return fail("usage", "%s has no at.%s; %s", call.hook, tostring(key),
              util.suggest(tostring(key), known(call)))
end

-- The table for one call, with facts by name; absent: names of facts that may be nil.
local function table_of(call)
  call.at = setmetatable({}, {
    __index = function(_, key) return value_of(call, key) end,
    __newindex = function(_, key, value) assign(call, key, value) end,
    __pairs = function()
      local copy = {}
      for k, v in pairs(call.facts) do copy[k] = v end
      return next, copy, nil
    end,
    __metatable = false,
  })
  return call.at
end

-- Calls -----------------------------------------------------------------------

-- Calls the hook f as `call` = {run=, hook=, facts=, absent=, cells=, drain=}. -> nil, or why it
-- failed
local function invoke(f, call)
  local h = call.run.state.hooks
  call.open = true
  local ok, got = pcall(f, table_of(call))
  call.open = false
  if call.broken then error(call.broken, 0) end
  if not ok then return error_text(f, got) end
  if got ~= nil then
    return string.format("%s: %s returned a %s, wanted nothing: a hook acts by at.lr, at.state and "
                         .. "the methods of at", place(f), call.hook, type(got))
  end
  if call.hook == "on_save" then return end
  local text, why = hook_state.write(h.state)
  if not text then return place(f) .. ": " .. why end
  h.text = text
end

-- All ranks must go on alike: the failure of any, and whether any stops; raises if they set
-- different rates. All ranks call it together.
local function agree(call, why)
  if ranks.count == 1 then return why end
  local texts = ranks.gather(string.pack("<s4s4s4", why or "", call.stop or "\0",
                                         call.lr and util.number(call.lr) or ""))
  for k, text in ipairs(texts) do
    local failed, stop, lr = string.unpack("<s4s4s4", text)
    local _, _, own = string.unpack("<s4s4s4", texts[ranks.rank + 1])
    if failed ~= "" and not why then why = string.format("rank %d: %s", k - 1, failed) end
    if stop ~= "\0" then call.stop = call.stop or stop end
    if lr ~= own then
      why = why or string.format("%s set the rate %s on rank %d and %s on rank %d: it must depend "
                                 .. "on the run alone", call.hook, lr, k - 1, own, ranks.rank)
    end
  end
  return why
end

-- Notes that a hook failed: training ends at the next safe place, where the run is saved.
local function note_failure(run, hook, why)
  run.hook_failed = run.hook_failed or string.format("%s (%s)", why, hook)
end

-- Calls the hook `hook` of the recipe. -> whether it did not fail
local function run_hook(run, hook, call)
  local h, before = run.state.hooks, run.state.hooks.text
  call.run, call.hook = run, hook
  local why = agree(call, invoke(run.recipe[hook], call))
  if not why then return true end
  h.text = before -- it may have succeeded on this rank
  note_failure(run, hook, why)
  return false
end

-- Facts that hooks of steps and epochs get, at the end of batch `number` (from 1) of an epoch.
-- step: of all steps of the phase, from 1; steps that are left out count.
local function facts_of(run, number)
  local s, batches, parts = run.state, epoch_steps.count(run), run.recipe.accumulate
  return { epoch = s.epoch + 1, epochs = run.epochs, phase = s.phase, run = run.folder,
           batches = batches,
           step = (s.epoch - s.first) * math.ceil(batches / parts) + math.ceil(number / parts) }
end

-- What at:stop ends.
local function whole_of(run) return run.phases[2] and "phase" or "training" end

-- Calls on_batch before the step that begins with batch `number` (from 0), with the rate `lr`.
-- drain(): waits for the results of all steps under way. -> the rate of the step; nil: it failed
function M.batch(run, number, lr, drain)
  if not run.recipe.on_batch then return lr end
  local facts = facts_of(run, number + 1)
  facts.batch, facts.lr = number + 1, lr
  local call = { facts = facts, absent = {}, drain = drain }
  if not run_hook(run, "on_batch", call) then return nil end
  local numbers = run.state.hooks.numbers
  if call.stop then
    numbers.ended = 1
    show.line("on_batch ends the %s in epoch %d, after this step, of batch %d%s", whole_of(run),
              facts.epoch, facts.batch, call.stop ~= "" and ": " .. call.stop or "")
  end
  numbers.lr = call.lr and call.lr ~= lr and call.lr or nil
  return call.lr or lr
end

-- Values of metrics by name: columns of `row` that begin with `prefix`, without it.
local function named(row, prefix, names)
  local out = {}
  for name in pairs(names) do out[name] = row[prefix .. name] end
  return out
end

-- The facts of `hook`, on_valid or on_epoch; arguments as of M.epoch.
local function epoch_facts(run, hook, row, result, tallied)
  local facts = facts_of(run, run.state.batch)
  facts.lr, facts.train_loss, facts.seconds = row.lr, row.train_loss, row.seconds
  facts.valid_loss = row.valid_loss
  facts.best, facts.best_epoch = run.state.best, run.state.best and run.state.best_epoch
  facts.train = named(tallied, "", tallied)
  facts.metrics = result and named(row, "valid_", result.metrics) or {}
  if hook == "on_epoch" then return facts end
  facts.cases = {}
  for name, m in pairs(result.metrics) do
    facts.cases[name] = table.move(m.list, 1, #m.list, 1, {})
  end
  return facts
end

-- Adds the cells of the hooks to the row, and their names to the columns of the run.
local function add_cells(run, row, cells)
  local columns = run.state.hooks.columns
  for _, name in ipairs(util.sorted_keys(cells)) do
    row[name] = cells[name]
    local there = false
    for _, c in ipairs(columns) do there = there or c == name end
    if not there then columns[#columns + 1] = name end
  end
  if ranks.writes() then run.csv:widen(columns) end
end

-- Calls on_valid and on_epoch after the epoch whose row of metrics.csv is `row`. result: of its
-- validation (pass.run), or nil; tallied: metrics of the training batches by name. Adds the columns
-- of the hooks to the row. -> whether none failed, and whether one ends the training
function M.epoch(run, row, result, tallied)
  local r, h, before = run.recipe, run.state.hooks, run.state.hooks.text
  if not r.on_epoch and not r.on_valid then return true, false end
  local stopped, next_lr, cells = nil, nil, {}
  for _, hook in ipairs { "on_valid", "on_epoch" } do
    if r[hook] and (hook == "on_epoch" or result) then
      local call = { facts = epoch_facts(run, hook, row, result, tallied), cells = cells,
                     absent = { valid_loss = true, best = true, best_epoch = true } }
      if not run_hook(run, hook, call) then
        h.text = before -- a resumed run calls both again
        return false, false
      end
      stopped, next_lr = stopped or call.stop and { hook, call.stop }, call.lr
    end
  end
  add_cells(run, row, cells)
  h.numbers.next_lr = next_lr
  if stopped then
    show.line("%s ends the %s after epoch %d%s", stopped[1], whole_of(run), row.epoch,
              stopped[2] ~= "" and ": " .. stopped[2] or "")
  end
  return true, stopped ~= nil
end

-- Calls on_save for the checkpoint of an epoch, which is on the disk under these paths. When that
-- is depends on the disk, so it gets no state.
function M.saved(run, epoch, paths)
  local f = run.recipe and run.recipe.on_save
  if not f then return end
  local facts = { epoch = epoch, epochs = run.epochs, run = run.folder,
                  files = table.move(paths, 1, #paths, 1, {}) }
  local call = { run = run, hook = "on_save", facts = facts, absent = {} }
  local why = invoke(f, call)
  if why then note_failure(run, "on_save", why) end
end

-- Raises the failure of a hook, if there is one, after the run was saved.
function M.raise(run)
  local s = run.state
  if not run.hook_failed then return end
  core.sys.raise("failure", string.format(
    "%s; saved at epoch %d, batch %d; correct the function and continue with --resume %s",
    run.hook_failed, s.epoch + 1, s.batch + 1, run.folder), true)
end

return M
