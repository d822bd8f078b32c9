-- state.lua -- the state of a run in checkpoints, for resuming.
--
-- The checkpoint holds everything that decides the next number: weights, moments, averages, step
-- count, phase, epoch, position in the epoch, sums of the epoch so far, the best value, the memory
-- of plateau and stop, and the state of hooks.

local core = require "seg.core"
local config = require "seg.recipe.config"
local hooks = require "seg.train.hooks"
local likeness = require "seg.data.likeness"
local ranks = require "seg.train.ranks"
local reading = require "seg.data.reading"
local recipes = require "seg.recipe.recipe"
local util = require "seg.util"

local sys, fail = core.sys, util.fail
local M = {}

local LOOK_S = 0.5 -- between two checks of the run's folder

-- The initial state of a run: in its first phase; `first` is the last epoch before the phase. epoch
-- counts over all phases. not_finite: the largest number of cases of valid in an epoch that did not
-- count because their values were not finite; best_bad: the number in the best epoch.
function M.new()
  local s = { phase = 1, epoch = 0, batch = 0, seen = 0, loss_sum = 0.0, bad = 0, tally = {},
              not_finite = 0, hooks = hooks.new() }
  M.begin_phase(s)
  return s
end

-- The state that begins anew with a phase: swa counts the averaged epochs, schedule is the memory
-- of its schedule, ended is true after `stop` has ended the phase, round counts the finished rounds
-- of clusters, clustered is true after the last.
function M.begin_phase(s)
  s.first, s.best, s.best_epoch, s.best_bad = s.epoch, nil, 0, 0
  s.stop_best, s.stop_wait = nil, 0
  s.swa, s.schedule, s.ended = 0, nil, false
  s.round, s.clustered = 0, false
  s.hooks.numbers = {}
end

-- {bad = 1, best = 0.5} as "bad=1 best=0.5", and back.
local function print_table(t)
  local out = {}
  for i, k in ipairs(util.sorted_keys(t)) do out[i] = k .. "=" .. util.number(t[k]) end
  return table.concat(out, " ")
end

local function read_table(text)
  local t = {}
  for k, v in text:gmatch("(%S+)=(%S+)") do t[k] = tonumber(v) end
  return t
end

-- The kind of average of a recipe, nil without one: a resumed run must have the same.
function M.average_text(r)
  if r.ema > 0 then return "ema " .. util.number(r.ema) end
  return r.swa and "swa" or nil
end

-- How training reads its files, and the statistics of its images, as text for predict; computed
-- when the data of a phase are open.
local function data_texts(run)
  local d = run.data and run.data.train
  if not d then return {} end
  if not d.texts then
    local set = run.recipe.train
    local people = set:people()
    d.texts = { read = util.json(reading.of(set.source, people)), origin = set:origin(people),
                training = util.json(likeness.describe(d.pipeline)) }
  end
  return d.texts
end

-- The metadata of a checkpoint. It holds no time, host or path.
function M.metadata(run)
  local s, texts = run.state, data_texts(run)
  local text, outputs = recipes.network(run.recipe)
  local hook_state, hook_numbers = hooks.metadata(s.hooks)
  return {
    recipe = run.name, recipe_text = run.text, graph = text, outputs = outputs,
    config = config.print(config.values, config.fixed),
    preprocessing = run.recipe.train:prepare_steps(),
    labels = run.recipe.train:labels(), trained_on = texts.origin,
    read = texts.read, training = texts.training,
    epoch = tostring(s.epoch), batch = tostring(s.batch), seen = tostring(s.seen),
    loss_sum = util.number(s.loss_sum), bad = tostring(s.bad),
    best = s.best and util.number(s.best) or "", best_epoch = tostring(s.best_epoch),
    best_of = run.recipe.best and run.recipe.best[1],
    device_dataset = run.device_dataset, left_out = run.left_out, data_sha256 = run.data_sha256,
    phase = run.phases[2] and tostring(s.phase), first = run.phases[2] and tostring(s.first),
    stop = run.recipe.stop and string.format("%d %s", s.stop_wait,
                                             s.stop_best and util.number(s.stop_best) or "-"),
    ended = s.ended and "1" or nil, round = s.round > 0 and tostring(s.round) or nil,
    clustered = s.clustered and "1" or nil, swa = run.recipe.swa and tostring(s.swa),
    schedule = s.schedule and print_table(s.schedule),
    tally = next(s.tally) and print_table(s.tally) or nil,
    average = M.average_text(run.recipe), ranks = ranks.text(),
    not_finite = s.not_finite > 0 and tostring(s.not_finite) or nil,
    best_bad = s.best_bad > 0 and tostring(s.best_bad) or nil,
    hook_state = hook_state, hook_numbers = hook_numbers,
  }
end

-- Restores the state of the loop from a checkpoint's metadata.
function M.restore(run, meta)
  local s = run.state
  s.epoch, s.batch = math.tointeger(tonumber(meta.epoch)), math.tointeger(tonumber(meta.batch))
  s.seen, s.bad = math.tointeger(tonumber(meta.seen)), math.tointeger(tonumber(meta.bad))
  s.loss_sum = tonumber(meta.loss_sum) + 0.0
  s.best, s.best_epoch = tonumber(meta.best), math.tointeger(tonumber(meta.best_epoch))
  if not (s.epoch and s.batch and s.seen and s.bad and s.best_epoch) then
    fail("data", "the checkpoint has no state of its training; only its weights can be used")
  end
  s.phase, s.first = math.tointeger(tonumber(meta.phase or 1)),
                     math.tointeger(tonumber(meta.first or 0))
  if meta.stop then
    local wait, best = meta.stop:match("^(%d+) (%S+)$")
    s.stop_wait, s.stop_best = math.tointeger(tonumber(wait)), tonumber(best)
  end
  s.tally = read_table(meta.tally or "")
  s.not_finite = math.tointeger(tonumber(meta.not_finite or 0))
  s.best_bad = math.tointeger(tonumber(meta.best_bad or 0))
  s.round, s.clustered = math.tointeger(tonumber(meta.round or 0)), meta.clustered == "1"
  s.ended, s.swa = meta.ended == "1", math.tointeger(tonumber(meta.swa or 0))
  s.hooks = hooks.restore(meta.hook_state, meta.hook_numbers)
  if meta.schedule and s.schedule then s.schedule = read_table(meta.schedule) end
end

-- Raises if the folder of the run is gone, or is no longer the one that was locked: later writes
-- would be lost or mixed into the run of another process. Called between any two steps, so it
-- checks at most every LOOK_S unless `now`.
function M.check_folder(run, now)
  if not run.lock or (not now and sys.clock() < (run.look_at or 0)) then return end
  run.look_at = sys.clock() + LOOK_S
  if run.lock:there(run.folder) then return end
  run.gone = true
  fail("failure", "%s: the folder of this run, or its .lock, was removed or replaced while it "
       .. "trained (epoch %d): nothing of it can be kept, so it ends here; fix: train again, and "
       .. "leave the folder alone until the run is over", run.folder, run.state.epoch + 1)
end

-- Checks that the disk has room for the checkpoints of the run in `folder`, before work is lost:
-- the best of each phase, the last, the numbered ones, and one that is being written; a resumed run
-- needs only the last of these.
function M.check_disk(run, folder, resume)
  local v = run.values
  local files = resume and 1 or 2 + #run.phases + math.min(v.keep_last, run.epochs // v.save_every)
  local wanted = files * run.session:facts().param_bytes
  local free = sys.disk_free(folder)
  if free < wanted then
    fail("failure", "%s: %s free, checkpoints need %s; free some or choose another --out",
         folder, util.bytes(free), util.bytes(wanted))
  end
end

return M
