-- phase.lua -- the phases of a run. Each has its own loss, data, optimiser and schedule, and begins
-- with the weights of the phase before, matched by name.
--
-- A recipe without phases is a run of one phase. Each phase has its own session: another loss needs
-- other parameters and begins with moments of zero. Steps and epochs are counted over all phases,
-- so that one metrics.csv and one sequence of checkpoints describe the whole run.

local core = require "seg.core"
local average = require "seg.train.average"
local best = require "seg.train.best"
local config = require "seg.recipe.config"
local opened = require "seg.data.opened"
local ranks = require "seg.train.ranks"
local recipes = require "seg.recipe.recipe"
local run_folder = require "seg.report.run"
local saving = require "seg.train.saving"
local show = require "seg.show"
local state = require "seg.train.state"
local targets = require "seg.data.targets"
local traces = require "seg.inspect.trace"
local transfer = require "seg.train.transfer"
local smoke_run = require "seg.train.smoke_run"
local util = require "seg.util"

local sys = core.sys
local M = {}

local parts = { "train", "valid", "test" }

-- Data ------------------------------------------------------------------------

-- Texts about an opened part for show.fit, from long to short: all facts; cases and samples; cases.
local function opened_texts(part, d, took)
  local lines = {}
  for line in d.pipeline:report():gmatch("[^\n]+") do lines[#lines + 1] = line end
  local cases = lines[1]:match("^[^;]*")
  local samples = lines[3] and lines[3]:match("^[^;]*")
  return { string.format("%s: %s; %s (%s)", part, table.concat(lines, "; "), d.loader:report(),
                         took),
           string.format("%s: %s%s (%s)", part, cases, samples and "; " .. samples or "", took),
           string.format("%s: %s (%s)", part, cases, took) }
end

-- Opens pipelines and loaders of the parts that a phase has.
local function open_sets(r)
  local data, sides, names = {}, {}, nil
  smoke_run.sets(r)
  opened.fit_numbers(r)
  for _, part in ipairs(parts) do
    if r[part] then
      local started = sys.clock()
      -- a test is of whole cases
      local d = opened.open(r, part == "test" and r.test:on_grid() or r[part],
                            part == "train")
      if part == "train" then ranks.check_batch(r[part].batch.size or 1) end
      data[part], names, sides[#sides + 1] = d, names or d.names, d.pipeline
      show.fit(opened_texts(part, d, util.duration(sys.clock() - started)))
    end
  end
  core.data.split_leakage(sides)
  smoke_run.samples(r, data)
  return { data = data, names = names }
end

-- Opens the data of every phase before the first, so that an error in the last is not found after
-- days. Phases with the same sets share the opened data.
function M.open_data(run)
  local declared = {}
  run.opened = {}
  for k, r in ipairs(run.phases) do
    declared[k] = { train = r.train, valid = r.valid, test = r.test }
    for j = 1, k - 1 do
      local same = true
      for _, part in ipairs(parts) do
        same = same and rawequal(declared[j][part], declared[k][part])
      end
      if same then
        run.opened[k] = run.opened[j]
        -- with the fitted numbers
        for _, part in ipairs(parts) do r[part] = run.phases[j][part] end
        break
      end
    end
    run.opened[k] = run.opened[k] or open_sets(r)
    for _, part in ipairs(parts) do
      if run.opened[k].data[part] then targets.check_samples(r, run.opened[k].data[part]) end
    end
  end
end

-- The opened parts of all phases, each once: { {part=, d=}, ... }.
function M.sets(run)
  local list, seen = {}, {}
  for _, o in ipairs(run.opened) do
    for _, part in ipairs(parts) do
      local d = o.data[part]
      if d and not seen[d] then
        seen[d] = true
        list[#list + 1] = { part = part, d = d }
      end
    end
  end
  return list
end

-- Keeps the sets that are read in every epoch on the device, if there is room or the resumed run
-- had them there. The test set is not kept, because it is read once. Records whether the host or
-- the device augments, because that decides the last bits of a batch.
local function keep_data(run, meta)
  local made = {}
  for _, part in ipairs { "train", "valid" } do
    local d = run.data[part]
    if d then
      local was = (meta.device_dataset or ""):match(part .. "=(%a+)")
      opened.renew(d) -- the device dataset of an earlier phase belonged to a closed session
      d.on_device = opened.keep(run.session, run.recipe, d, part == "train",
                                was and was == "device")
      if d.set.augmented then
        made[#made + 1] = part .. "=" .. (d.on_device and "device" or "host")
      end
    end
  end
  run.device_dataset = table.concat(made, " ")
end

-- The phase that runs ---------------------------------------------------------

-- The epochs of the run if every remaining phase runs to its limit.
local function epochs_of(run)
  local count = run.state.first
  for k = run.state.phase, #run.phases do count = count + run.phases[k].epochs end
  return count
end

-- Opens the session of the current phase.
function M.enter(run)
  local s = run.state
  local r = run.phases[s.phase]
  run.recipe, run.epochs = r, epochs_of(run)
  run.session = recipes.session(r, "train")
  run.session:trace(traces.now)
  run.ahead = run.session:facts().ahead
end

-- Opens the rest of a phase: the memory of the schedule, the data. meta: of the resumed run, or {}.
function M.begin(run, meta)
  local o = run.opened[run.state.phase]
  run.data, run.names = o.data, o.names
  run.state.schedule = run.recipe.schedule.start and run.recipe.schedule.start()
  keep_data(run, meta)
end

-- Loads the weights of --weights or init. -> a line about them, or nil. Moments, step count and
-- epoch are not loaded.
local function load_weights(run)
  local given, init = config.line.flags.weights, run.recipe.init
  if run.state.phase > 1 then given = nil end
  if init then
    local file = given and run_folder.weights(given)
      or init.weights and run_folder.weights(init.weights, "init: weights")
    local o = { weights = file, match = init.match, rename = init.rename }
    return string.format("%s: %s", o.weights,
                         util.plural(transfer.load(run.session, o), "tensor"))
  end
  if not given then return nil end
  local path, note = run_folder.weights(given)
  local meta = run_folder.load(path, run.session, true)
  return path .. (meta.epoch and " (epoch " .. meta.epoch .. ")" or "") .. note
    .. run_folder.about(path, meta)
end

-- Loads the weights that a new phase starts from into the session and starts their average. A
-- resumed run has its own. -> a line about them, or nil
function M.start_weights(run, resumed)
  local said = not resumed and load_weights(run) or nil
  average.open(run)
  return said
end

-- Renames the file of the best weights of a finished phase, so that it is not taken for the best of
-- the next phase.
function M.put_aside(run)
  local path = run.folder .. "/checkpoint_best.safetensors"
  if not util.exists(path) then return end
  local ok, meta = pcall(core.checkpoint.meta, path)
  local number = ok and math.tointeger(tonumber(meta.phase or 1)) or run.state.phase
  if number < run.state.phase then
    os.rename(path, string.format("%s/phase%d_best.safetensors", run.folder, number))
  end
end

local function describe(run)
  local s, r = run.state, run.recipe
  show.line("phase %d of %d%s: %s from epoch %d, %s %s", s.phase, #run.phases,
            r.name and " (" .. r.name .. ")" or "", util.plural(r.epochs, "epoch"), s.first + 1,
            r.optim.kind, util.number(recipes.lr(r)))
end

-- Moves to the next phase and writes its first checkpoint. Returns false if there is none.
function M.next(run)
  local s, old, kept = run.state, run.session, {}
  local after = run.phases[s.phase + 1]
  if not after then return false end
  best.final_weights(run, after.from == "best")
  saving.release(run)
  for _, p in ipairs(old:params()) do kept[p.name] = old:get(p.name) end
  local count = old:facts().count
  old:close()
  s.phase = s.phase + 1
  state.begin_phase(s)
  M.enter(run)
  local handed, new = 0, 0
  for _, p in ipairs(run.session:params()) do
    if kept[p.name] then
      run.session:set(p.name, "value", kept[p.name])
      handed = handed + 1
    else
      new = new + 1
    end
  end
  run.session:begin_at(count)
  describe(run)
  show.line("weights: %s of the phase before, %d new", util.plural(handed, "tensor"), new)
  local more = M.start_weights(run)
  if more then show.line("weights: %s", more) end
  M.begin(run, {})
  saving.save(run, { "checkpoint_last" })
  if ranks.writes() then M.put_aside(run) end
  return true
end

M.describe = describe

return M
