-- state.lua -- what of a run is kept: in checkpoints, so that it can go on, and
-- when a save fails.
--
-- Everything that decides the next number lies in the checkpoint: weights,
-- moments, averages, step count, phase, epoch, place in the epoch, the sums of the
-- epoch so far, the best value, what plateau and stop have seen.

local core = require "seg.core"
local config = require "seg.config"
local likeness = require "seg.likeness"
local ranks = require "seg.ranks"
local reading = require "seg.reading"
local recipes = require "seg.recipe"
local show = require "seg.show"
local util = require "seg.util"

local sys, fail = core.sys, util.fail
local M = {}

local BAD_SAVES = 3 -- saves lost in a row: training would be for nothing
local RETRY_S = 5 -- a full disk or a lost server may come back

-- Where a run begins: in its first phase, of which epoch `first` was the last
-- before. epoch counts over all phases.
function M.new()
  local s = { phase = 1, epoch = 0, batch = 0, seen = 0, loss_sum = 0.0, bad = 0, tally = {} }
  M.begin_phase(s)
  return s
end

-- What begins anew with a phase: swa counts the epochs that were averaged, schedule
-- is what its schedule remembers, ended says that `stop` has ended the phase, round
-- counts the rounds of clusters that are done, clustered says that all are.
function M.begin_phase(s)
  s.first, s.best, s.best_epoch, s.stop_best, s.stop_wait = s.epoch, nil, 0, nil, 0
  s.swa, s.schedule, s.ended = 0, nil, false
  s.round, s.clustered = 0, false
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

-- What is averaged, nil where nothing is: it must not change on the way.
local function average_text(r)
  if r.ema > 0 then return "ema " .. util.number(r.ema) end
  return r.swa and "swa" or nil
end

-- How training reads its files, and ranges over its images, as predict wants them: found when
-- the data of a phase is open.
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

-- What a checkpoint says beside tensors. Nothing of clock, host or path.
function M.metadata(run)
  local s, texts = run.state, data_texts(run)
  local text, outputs = recipes.network(run.recipe)
  return {
    recipe = run.name, recipe_text = run.text, graph = text, outputs = outputs,
    config = config.print(config.values, config.fixed),
    preprocessing = run.recipe.train:prepare_steps(),
    labels = run.recipe.train:labels(), trained_on = texts.origin,
    read = texts.read, training = texts.training,
    epoch = tostring(s.epoch), batch = tostring(s.batch), seen = tostring(s.seen),
    loss_sum = util.number(s.loss_sum), bad = tostring(s.bad),
    best = s.best and util.number(s.best) or "", best_epoch = tostring(s.best_epoch),
    resident = run.resident, left_out = run.left_out, data_sha256 = run.data_sha256,
    phase = run.phases[2] and tostring(s.phase), first = run.phases[2] and tostring(s.first),
    stop = run.recipe.stop and string.format("%d %s", s.stop_wait,
                                             s.stop_best and util.number(s.stop_best) or "-"),
    ended = s.ended and "1" or nil, round = s.round > 0 and tostring(s.round) or nil,
    clustered = s.clustered and "1" or nil, swa = run.recipe.swa and tostring(s.swa),
    schedule = s.schedule and print_table(s.schedule),
    tally = next(s.tally) and print_table(s.tally) or nil,
    average = average_text(run.recipe), ranks = ranks.text(),
  }
end

-- The state of the loop, out of a checkpoint's metadata.
function M.restore(run, meta)
  local s = run.state
  s.epoch, s.batch = math.tointeger(tonumber(meta.epoch)), math.tointeger(tonumber(meta.batch))
  s.seen, s.bad = math.tointeger(tonumber(meta.seen)), math.tointeger(tonumber(meta.bad))
  s.loss_sum = tonumber(meta.loss_sum) + 0.0
  s.best, s.best_epoch = tonumber(meta.best), math.tointeger(tonumber(meta.best_epoch))
  if not (s.epoch and s.batch and s.seen and s.bad and s.best_epoch) then
    fail("data", "the checkpoint does not say where its training stood; only its weights can "
         .. "be used")
  end
  s.phase, s.first = math.tointeger(tonumber(meta.phase or 1)),
                     math.tointeger(tonumber(meta.first or 0))
  if meta.stop then
    local wait, best = meta.stop:match("^(%d+) (%S+)$")
    s.stop_wait, s.stop_best = math.tointeger(tonumber(wait)), tonumber(best)
  end
  s.tally = read_table(meta.tally or "")
  s.round, s.clustered = math.tointeger(tonumber(meta.round or 0)), meta.clustered == "1"
  s.ended, s.swa = meta.ended == "1", math.tointeger(tonumber(meta.swa or 0))
  if meta.schedule and s.schedule then s.schedule = read_table(meta.schedule) end
end

-- A save into the run's folder, of all that training needs or of the weights alone.
-- One that fails leaves the file before it. It is tried once more after a
-- while; then training goes on, and the third loss in a row ends the run. Of several
-- processes, which have the same, the first writes.
function M.save(run, name, weights)
  if not ranks.writes() then return end
  local path = run.folder .. "/" .. name .. ".safetensors"
  local function try()
    return pcall(core.checkpoint.save, path, run.session, not weights, M.metadata(run))
  end
  local ok, why = try()
  -- weights that are not finite are so in a while too, and all that comes of them
  if not ok and sys.kind(tostring(why)) == "diverged" then error(why, 0) end
  if not ok and run.saved then
    show.warn("%s; trying again in %d s", why, RETRY_S)
    sys.sleep(RETRY_S)
    ok, why = try()
  end
  if ok then
    run.saved, run.lost = true, 0
    return
  end
  run.lost = run.lost + 1
  -- the first save shows whether the folder can be written at all
  if not run.saved or run.lost >= BAD_SAVES then error(why, 0) end
  show.warn("%s; training goes on, the checkpoint before it is intact", why)
end

-- The numbered checkpoints beyond the newest keep_last go.
function M.save_numbered(run)
  if not ranks.writes() then return end
  M.save(run, string.format("checkpoint_%04d", run.state.epoch))
  local list = {}
  for _, name in ipairs(sys.list(run.folder)) do
    if name:match("^checkpoint_%d+%.safetensors$") then list[#list + 1] = name end
  end
  -- by number: of ten thousand epochs and more the names sort otherwise
  table.sort(list, function(a, b) return tonumber(a:match("%d+")) < tonumber(b:match("%d+")) end)
  for i = 1, #list - run.values.keep_last do sys.remove(run.folder .. "/" .. list[i]) end
end

-- Room for the checkpoints of the run in `folder`, before any work is lost for
-- want of it: the best of each phase, the last, the numbered, and one that is being written,
-- which is all that a run that is resumed may lack.
function M.check_disk(run, folder, resume)
  local v = run.values
  local files = resume and 1 or 2 + #run.phases + math.min(v.keep_last, run.epochs // v.save_every)
  local wanted = files * run.session:facts().param_bytes
  local free = sys.disk_free(folder)
  if free < wanted then
    fail("failure", "%s: %s free, checkpoints want %s; free some or choose another --out",
         folder, util.bytes(free), util.bytes(wanted))
  end
end

-- The best weights into the session; the epoch they are of. A file that was
-- lost or damaged since costs the best weights, not the run.
function M.load_best(run)
  ranks.barrier() -- the first has written it
  local path = run.folder .. "/checkpoint_best.safetensors"
  local ok, why = core.checkpoint.verify(path)
  if not ok then
    show.warn("%s; the last weights are tested instead", why)
    return run.state.epoch
  end
  core.checkpoint.load(path, run.session, false)
  return run.state.best_epoch
end

return M
