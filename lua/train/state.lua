-- state.lua -- what of a run is kept: in checkpoints, so that it can go on, and
-- when a save fails.
--
-- Everything that decides the next number lies in the checkpoint: weights,
-- moments, averages, step count, phase, epoch, place in the epoch, the sums of the
-- epoch so far, the best value, what plateau and stop have seen.

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

local BAD_SAVES = 3 -- saves lost in a row: training would be for nothing
local RETRY_S = 5 -- a full disk or a lost server may come back
local LOOK_S = 0.5 -- between two looks at the folder of the run

-- Where a run begins: in its first phase, of which epoch `first` was the last
-- before. epoch counts over all phases. not_finite: the most cases of valid that did not
-- count in an epoch, as their values were not finite; best_bad: those of the best epoch.
function M.new()
  local s = { phase = 1, epoch = 0, batch = 0, seen = 0, loss_sum = 0.0, bad = 0, tally = {},
              not_finite = 0 }
  M.begin_phase(s)
  return s
end

-- What begins anew with a phase: swa counts the epochs that were averaged, schedule
-- is what its schedule remembers, ended says that `stop` has ended the phase, round
-- counts the rounds of clusters that are done, clustered says that all are.
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
    best_of = run.recipe.best and run.recipe.best[1],
    resident = run.resident, left_out = run.left_out, data_sha256 = run.data_sha256,
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
  s.not_finite = math.tointeger(tonumber(meta.not_finite or 0))
  s.best_bad = math.tointeger(tonumber(meta.best_bad or 0))
  s.round, s.clustered = math.tointeger(tonumber(meta.round or 0)), meta.clustered == "1"
  s.ended, s.swa = meta.ended == "1", math.tointeger(tonumber(meta.swa or 0))
  if meta.schedule and s.schedule then s.schedule = read_table(meta.schedule) end
end

-- Raises when the folder of the run is no longer there, or no longer the one that was
-- locked: whatever is written from then on is lost, or mixed into the run of another
-- process. Asked between any two steps, so not more often than LOOK_S but where `now`.
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

-- A save into the run's folder, of all that training needs or of the weights alone.
-- One that fails leaves the file before it. It is tried once more after a
-- while; then training goes on, and the third loss in a row ends the run. Of several
-- processes, which have the same, the first writes. -> whether it was written
function M.save(run, name, weights)
  if not ranks.writes() then return true end
  local path = path_of(run, name)
  local function try()
    return pcall(core.checkpoint.save, path, run.session, not weights, M.metadata(run))
  end
  M.check_folder(run, true)
  local ok, why = try()
  -- weights that are not finite are so in a while too, and all that comes of them
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
  show.warn("%s; training goes on, the checkpoint before it is intact", why)
  return false
end

-- Nothing waits to be written any more.
local function forget_kept(run)
  if run.kept then run.kept.file:close() end
  run.kept = nil
end

-- The best weights so far into their file. They exist for this epoch only, so where the
-- save fails they are held in memory, and save_kept writes them later.
function M.save_best(run, weights)
  forget_kept(run) -- those are no longer the best
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

-- The best weights that wait in memory into their file. `last`: there will be no other
-- try, so that a failure is said.
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

-- After an epoch, or where a run goes on from the end of one: the numbered checkpoint of it
-- where one is due, unless it is there; those beyond the newest keep_last go.
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

-- What the file of the best weights holds: { epoch=, value= (nil: it does not say),
-- average= }; nil and why where it is missing or damaged.
local function read_best(run)
  local path = path_of(run, BEST)
  local ok, why = core.checkpoint.verify(path)
  if not ok then return nil, why end
  local meta = core.checkpoint.meta(path)
  local epoch = math.tointeger(tonumber(meta.epoch))
  if not epoch then return nil, path .. ": it does not say of which epoch it is" end
  local swa = meta.average == "swa"
  return { epoch = epoch, value = tonumber(meta.best_epoch) == epoch and tonumber(meta.best) or nil,
           -- of a run with swa the mean is written without moments, an epoch with them
           average = (not swa or meta.contents == "weights") and meta.average or nil }
end

-- The best of the run is what its file holds, as that is what is tested, evaluated and
-- exported; a run that is resumed may find another one there than it had written, or none.
-- Asked of rank 0, which writes it.
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

-- The name of the file that has what the session has; nil where its save failed.
local function file_of(run, name) return not run.unsaved[name] and name .. ".safetensors" or nil end

-- The weights of the last epoch as what counts of them: the average where there is one.
local function last_weights(run)
  local s, r = run.state, run.recipe
  if r.ema > 0 then
    run.session:swap()
    return { epoch = s.epoch, average = average_text(r), file = file_of(run, "checkpoint_last") }
  end
  local mean = r.swa and s.swa > 0 -- which the session has since average.finish
  return { epoch = s.epoch, average = mean and "swa" or nil,
           file = file_of(run, mean and "swa" or "checkpoint_last") }
end

-- The weights that a phase or a run ends with into the session: the best, else the last;
-- what they are: { epoch=, average= (text or nil), file= }. The file is the judge of it:
-- one that was lost or damaged since costs the best weights, not the run.
function M.final_weights(run, best)
  local s = run.state
  M.save_kept(run, true)
  if run.unsaved.checkpoint_last then M.save(run, "checkpoint_last") end
  ranks.barrier() -- the first has written it
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
