-- state.lua -- the state of a run in checkpoints, for resuming, and the handling of failed saves.
--
-- The checkpoint holds everything that decides the next number: weights, moments, averages, step
-- count, phase, epoch, position in the epoch, sums of the epoch so far, the best value, and the
-- memory of plateau and stop.

local core = require "seg.core"
local config = require "seg.recipe.config"
local likeness = require "seg.data.likeness"
local ranks = require "seg.train.ranks"
local reading = require "seg.data.reading"
local recipes = require "seg.recipe.recipe"
local show = require "seg.show"
local util = require "seg.util"

local sys, fail = core.sys, util.fail
local M = {}

local BAD_SAVES = 3 -- failed saves in a row that end the run, because the training would be lost
local RETRY_S = 5 -- a full disk or a lost server may come back
local LOOK_S = 0.5 -- between two checks of the run's folder

-- The initial state of a run: in its first phase; `first` is the last epoch before the phase. epoch
-- counts over all phases. not_finite: the largest number of cases of valid in an epoch that did not
-- count because their values were not finite; best_bad: the number in the best epoch.
function M.new()
  local s = { phase = 1, epoch = 0, batch = 0, seen = 0, loss_sum = 0.0, bad = 0, tally = {},
              not_finite = 0 }
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

-- The kind of average, nil without one: a resumed run must have the same.
local function average_text(r)
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
    average = average_text(run.recipe), ranks = ranks.text(),
    not_finite = s.not_finite > 0 and tostring(s.not_finite) or nil,
    best_bad = s.best_bad > 0 and tostring(s.best_bad) or nil,
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

local BEST = "checkpoint_best"

local function path_of(run, name) return run.folder .. "/" .. name .. ".safetensors" end

-- Saves into the run's folder, the whole training state or only the weights. A failed save leaves
-- the earlier file. It is tried once more after a while; then training continues, and the third
-- failure in a row ends the run. Of several ranks, which have the same state, rank 0 writes. ->
-- whether it was written
function M.save(run, name, weights)
  if not ranks.writes() then return true end
  local path = path_of(run, name)
  local function try()
    return pcall(core.checkpoint.save, path, run.session, not weights, M.metadata(run))
  end
  M.check_folder(run, true)
  local ok, why = try()
  -- weights that are not finite stay so, and a second try cannot help
  if not ok and sys.kind(tostring(why)) == "diverged" then error(why, 0) end
  if not ok then M.check_folder(run, true) end
  if not ok and run.saved then
    show.warn("%s; trying again in %d s", why, RETRY_S)
    sys.sleep(RETRY_S)
    ok, why = try()
    if not ok then M.check_folder(run, true) end
  end
  run.unsaved[name] = not ok or nil
  if ok then
    run.saved, run.lost = true, 0
    return true
  end
  run.lost = run.lost + 1
  -- the first save shows whether the folder can be written at all
  if not run.saved or run.lost >= BAD_SAVES then error(why, 0) end
  show.warn("%s; training continues, the previous checkpoint is intact", why)
  return false
end

-- Drops the weights that wait in memory.
local function forget_kept(run)
  if run.kept then run.kept.file:close() end
  run.kept = nil
end

-- Saves the best weights so far. They exist for this epoch only, so if the save fails they are kept
-- in memory, and save_kept writes them later.
function M.save_best(run, weights)
  forget_kept(run) -- the earlier weights are no longer the best
  if M.save(run, BEST, weights) then return end
  local ok, file = pcall(core.checkpoint.keep, run.session, not weights, M.metadata(run))
  if ok then
    run.kept = { file = file, epoch = run.state.epoch }
    show.line("the best weights, of epoch %d, are held in memory until they can be written",
              run.state.epoch)
  else
    show.warn("the best weights, of epoch %d, are lost: %s", run.state.epoch, file)
  end
end

-- Writes the best weights that wait in memory. last: there will be no other try, so a failure is
-- reported.
function M.save_kept(run, last)
  if not run.kept then return end
  M.check_folder(run, true)
  local ok, why = pcall(run.kept.file.save, run.kept.file, path_of(run, BEST))
  if ok then
    show.line("checkpoint_best.safetensors has the weights of epoch %d now", run.kept.epoch)
  elseif last then
    show.warn("the best weights, of epoch %d, are lost: %s", run.kept.epoch, why)
  end
  if ok or last then forget_kept(run) end
end

-- Saves the numbered checkpoint after an epoch, or when a run resumes at the end of one, if it is
-- due and absent. Removes all but the newest keep_last.
function M.save_numbered(run)
  local s = run.state
  if not ranks.writes() or s.epoch == 0 or s.batch > 0 or s.epoch % run.values.save_every ~= 0 then
    return
  end
  local name = string.format("checkpoint_%04d", s.epoch)
  if not (run.resumed_at == s.epoch and util.exists(path_of(run, name))) then M.save(run, name) end
  local list = {}
  for _, file in ipairs(sys.list(run.folder)) do
    if file:match("^checkpoint_%d+%.safetensors$") then list[#list + 1] = file end
  end
  -- by number: from epoch 10000 on the names sort differently
  table.sort(list, function(a, b) return tonumber(a:match("%d+")) < tonumber(b:match("%d+")) end)
  for i = 1, #list - run.values.keep_last do sys.remove(run.folder .. "/" .. list[i]) end
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

-- Facts about the file of the best weights: { epoch=, value= (nil: absent), average= }; nil and the
-- reason if the file is missing or damaged.
local function read_best(run)
  local path = path_of(run, BEST)
  local ok, why = core.checkpoint.verify(path)
  if not ok then return nil, why end
  local meta = core.checkpoint.meta(path)
  local epoch = math.tointeger(tonumber(meta.epoch))
  if not epoch then return nil, path .. ": its epoch is missing" end
  local swa = meta.average == "swa"
  return { epoch = epoch, value = tonumber(meta.best_epoch) == epoch and tonumber(meta.best) or nil,
           -- a run with swa writes its mean without moments, but an epoch with moments
           average = (not swa or meta.contents == "weights") and meta.average or nil }
end

-- Sets the best epoch of the run from its file, because that file is tested, evaluated and
-- exported. A resumed run may find another file than it wrote, or none. Rank 0, which writes the
-- file, decides.
function M.settle_best(run)
  local s, text = run.state, ""
  if ranks.writes() and s.best then
    local found, why = read_best(run)
    if not found then
      show.warn("%s; the weights of epoch %d, the best so far, are lost: the best of the epochs "
                .. "that are left takes their place, else the last", why, s.best_epoch)
      text = "none"
    elseif found.epoch ~= s.best_epoch then
      show.warn("%s holds the weights of epoch %d; those of epoch %d, the best so far, are lost",
                path_of(run, BEST), found.epoch, s.best_epoch)
      text = string.format("%d %s", found.epoch, found.value and util.number(found.value) or "-")
    end
  end
  text = ranks.of_first(text)
  if text == "" then return end
  local epoch, value = text:match("^(%d+) (%S+)$")
  s.best, s.best_epoch = tonumber(value), math.tointeger(tonumber(epoch or 0))
end

-- The file that has the weights of the session; nil if its save failed.
local function file_of(run, name) return not run.unsaved[name] and name .. ".safetensors" or nil end

-- The final weights after the last epoch: the average if there is one.
local function last_weights(run)
  local s, r = run.state, run.recipe
  if r.ema > 0 then
    run.session:swap()
    return { epoch = s.epoch, average = average_text(r), file = file_of(run, "checkpoint_last") }
  end
  local mean = r.swa and s.swa > 0 -- in the session since average.finish
  return { epoch = s.epoch, average = mean and "swa" or nil,
           file = file_of(run, mean and "swa" or "checkpoint_last") }
end

-- Loads the final weights of a phase or run into the session: the best, else the last. -> { epoch=,
-- average= (text or nil), file= }. The file decides: a lost or damaged file costs the best weights,
-- but not the run.
function M.final_weights(run, best)
  local s = run.state
  M.save_kept(run, true)
  if run.unsaved.checkpoint_last then M.save(run, "checkpoint_last") end
  ranks.barrier() -- rank 0 has written it
  if not (best and s.best) then return last_weights(run) end
  local found, why = read_best(run)
  if not found then
    show.warn("%s; the weights of epoch %d, the best, are lost: those of the last epoch, %d, are "
              .. "taken instead", why, s.best_epoch, s.epoch)
    s.best, s.best_epoch = nil, 0
    return last_weights(run)
  end
  if found.epoch ~= s.best_epoch then
    show.warn("%s holds the weights of epoch %d, which are taken; those of epoch %d, the best (%s "
              .. "%s), are lost", path_of(run, BEST), found.epoch, s.best_epoch,
              run.recipe.best[1], util.fixed(s.best))
    s.best, s.best_epoch = found.value, found.epoch
  end
  core.checkpoint.load(path_of(run, BEST), run.session, false)
  return { epoch = found.epoch, average = found.average, file = BEST .. ".safetensors" }
end

return M
