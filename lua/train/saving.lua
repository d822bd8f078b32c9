-- saving.lua -- writes the checkpoints of a run, mostly while it trains, and handles failed writes.
--
-- The checkpoints of an epoch are one file under up to three names, in this order: numbered, best,
-- last. So the rename of checkpoint_last commits the epoch. A snapshot of the state is written by a
-- thread, one at a time, and a second one may wait. If it is only checkpoint_last, a later epoch
-- replaces it; otherwise training waits. What is written when the run is asked to end, and what is
-- not of an epoch, is on the disk when the call returns.

local core = require "seg.core"
local hooks = require "seg.train.hooks"
local ranks = require "seg.train.ranks"
local show = require "seg.show"
local state = require "seg.train.state"
local util = require "seg.util"

local sys = core.sys
local M = {}

local BAD_SAVES = 3 -- failed saves in a row that end the run, because the training would be lost
local RETRY_S = 5 -- a full disk or a lost server may come back
local LAST, BEST = "checkpoint_last", "checkpoint_best"

-- Saving in a run.
--   under_way, waiting   { names=, epoch=, source=, weights=, of_epoch= } or nil
--   spare, made, most    free snapshots; the number of all; its bound: one is written, one waits
--   in_place             true without memory for snapshots
--   written, lost        true after the first save; failed saves in a row
--   unsaved              names whose last save failed
--   best                 the best weights that could not be written, { source=, epoch= }, or nil
function M.new() return { spare = {}, made = 0, most = 2, lost = 0, unsaved = {} } end

local function path_of(run, name) return run.folder .. "/" .. name .. ".safetensors" end

local function numbered(epoch) return string.format("checkpoint_%04d", epoch) end

-- The names of the checkpoint of the current state, in the order of their writing.
local function names_of(run)
  local s, names = run.state, {}
  if s.epoch > 0 and s.batch == 0 then
    if s.epoch % run.values.save_every == 0 then names[1] = numbered(s.epoch) end
    if s.best_epoch == s.epoch then names[#names + 1] = BEST end
  end
  names[#names + 1] = LAST
  return names
end

local function has_best(names)
  for _, name in ipairs(names) do if name == BEST then return true end end
  return false
end

local function has_numbered(names) return names[1]:match("^checkpoint_%d+$") ~= nil end

-- Sources -----------------------------------------------------------------------

-- Writes from the session, which waits meanwhile; with the methods of a snapshot.
local InPlace = {}
InPlace.__index = InPlace

local function in_place(run, weights)
  return setmetatable({ session = run.session, full = not weights, meta = state.metadata(run) },
                      InPlace)
end

function InPlace:write(paths)
  self.ok, self.why = pcall(core.checkpoint.save, paths, self.session, self.full, self.meta)
end

function InPlace.done() return true end

function InPlace:wait() if not self.ok then error(self.why, 0) end end

-- A snapshot of the current state. Each takes its turn, so that the memory of all is soon in use.
local function take(run, weights)
  local w = run.saving
  local snapshot
  if w.made < w.most or not w.spare[1] then
    snapshot, w.made = core.checkpoint.snapshot(), w.made + 1
  else
    snapshot = table.remove(w.spare, 1)
  end
  local ok, why = pcall(snapshot.take, snapshot, run.session, not weights, state.metadata(run))
  if ok then return snapshot end
  w.made = w.made - 1
  snapshot:close()
  error(why, 0)
end

-- Takes back the source of a job that is over.
local function free(run, source)
  local w = run.saving
  if getmetatable(source) == InPlace then return end
  if #w.spare < w.most then
    w.spare[#w.spare + 1] = source
  else
    w.made = w.made - 1
    source:close()
  end
end

-- Frees the memory of snapshots, for the session of another phase.
function M.release(run)
  local w = run.saving
  for _, snapshot in ipairs(w.spare) do snapshot:close() end
  w.made, w.spare = w.made - #w.spare, {}
end

-- The best weights that wait ------------------------------------------------------

local function forget_best(run)
  local w = run.saving
  if w.best then free(run, w.best.source) end
  w.best = nil
end

-- After a failed write: the best weights exist in this epoch only, so they are kept in memory, and
-- write_best writes them later.
local function keep_best(run, job)
  local w, source = run.saving, job.source
  if not has_best(job.names) or w.waiting and has_best(w.waiting.names) then
    return free(run, source)
  end
  if getmetatable(source) == InPlace then
    local ok, got = pcall(take, run, job.weights)
    if not ok then
      show.warn("the best weights, of epoch %d, are lost: %s", job.epoch, got)
      return
    end
    source = got
  end
  forget_best(run)
  w.best = { source = source, epoch = job.epoch }
  show.line("the best weights, of epoch %d, are held in memory until they can be written",
            job.epoch)
end

-- Writes the best weights that wait in memory. last: there will be no other try, so a failure is
-- reported.
local function write_best(run, last)
  local w = run.saving
  if not w.best then return end
  state.check_folder(run, true)
  local source, epoch = w.best.source, w.best.epoch
  local ok, why = pcall(function()
    source:write(path_of(run, BEST))
    source:wait()
  end)
  if ok then
    show.line("checkpoint_best.safetensors has the weights of epoch %d now", epoch)
  elseif last then
    show.warn("the best weights, of epoch %d, are lost: %s", epoch, why)
  end
  if ok or last then forget_best(run) end
end

-- Writing ------------------------------------------------------------------------

local function paths_of(run, names)
  local paths = {}
  for i, name in ipairs(names) do paths[i] = path_of(run, name) end
  return paths
end

-- Removes all but the newest keep_last numbered checkpoints.
local function prune(run)
  local list = {}
  for _, file in ipairs(sys.list(run.folder)) do
    if file:match("^checkpoint_%d+%.safetensors$") then list[#list + 1] = file end
  end
  -- by number: from epoch 10000 on the names sort differently
  table.sort(list, function(a, b) return tonumber(a:match("%d+")) < tonumber(b:match("%d+")) end)
  for i = 1, #list - run.values.keep_last do sys.remove(run.folder .. "/" .. list[i]) end
end

local function start(run, job)
  state.check_folder(run, true)
  run.saving.under_way = job
  job.source:write(paths_of(run, job.names))
end

-- Waits for the end of a write. A failed one leaves the earlier files. It is tried once more after
-- a while; then training continues, and the third failure in a row ends the run.
local function settle(run, job)
  local w, source = run.saving, job.source
  local ok, why = pcall(source.wait, source)
  -- weights that are not finite stay so, and a second try cannot help
  if not ok and sys.kind(tostring(why)) == "diverged" then error(why, 0) end
  if not ok then state.check_folder(run, true) end
  if not ok and w.written then
    show.warn("%s; trying again in %d s", why, RETRY_S)
    sys.sleep(RETRY_S)
    source:write(paths_of(run, job.names))
    ok, why = pcall(source.wait, source)
    if not ok then state.check_folder(run, true) end
  end
  for _, name in ipairs(job.names) do w.unsaved[name] = not ok or nil end
  if ok then
    w.written, w.lost = true, 0
    free(run, source)
    if not job.of_epoch then return end
    show.line("saved epoch %d", job.epoch)
    if has_numbered(job.names) then prune(run) end
    hooks.saved(run, job.epoch, paths_of(run, job.names))
    return
  end
  w.lost = w.lost + 1
  -- the first save shows whether the folder can be written at all
  if not w.written or w.lost >= BAD_SAVES then error(why, 0) end
  show.warn("%s; training continues, the previous checkpoint is intact", why)
  keep_best(run, job)
end

-- Waits for the write under way, and starts the one that waits.
local function turn(run)
  local w = run.saving
  local job = w.under_way
  w.under_way = nil
  settle(run, job)
  job, w.waiting = w.waiting, nil
  if job then start(run, job) end
end

-- Handles the end of a write, if it has ended; does not wait. Called between any two steps.
function M.poll(run)
  local w = run.saving
  while w.under_way and w.under_way.source:done() do turn(run) end
end

-- Waits until nothing is left to write.
function M.join(run)
  while run.saving.under_way do turn(run) end
end

-- The same at an end of the run: the best weights that could not be written are tried once more.
function M.finish(run)
  M.join(run)
  write_best(run, true)
end

-- Drops a write that waits if it is of checkpoint_last only, which a newer one replaces.
local function replace_waiting(run)
  local w = run.saving
  if not w.waiting or w.waiting.names[2] then return end
  free(run, w.waiting.source)
  w.waiting = nil
end

-- Saves the current state under these names, the whole training state or only the weights, and
-- waits. Of several ranks, which have the same state, rank 0 writes.
function M.save(run, names, weights)
  if not ranks.writes() then return end
  if names[#names] == LAST then replace_waiting(run) end
  M.join(run)
  if has_best(names) then forget_best(run) end
  start(run, { names = names, epoch = run.state.epoch, weights = weights,
               source = in_place(run, weights) })
  M.join(run)
end

-- Saves the state after an epoch; it is written while training continues.
function M.epoch(run)
  if not ranks.writes() then return end
  local w, source = run.saving, nil
  local job = { names = names_of(run), epoch = run.state.epoch, of_epoch = true }
  M.poll(run)
  if has_best(job.names) then
    forget_best(run) -- the earlier weights are no longer the best
  elseif w.best then
    M.join(run)
    write_best(run)
  end
  replace_waiting(run)
  if w.waiting then turn(run) end
  if not w.in_place then
    local ok, got = pcall(take, run)
    if ok then
      source = got
    else
      w.in_place = true
      show.warn("%s; training waits while checkpoints are written", got)
    end
  end
  job.source = source or in_place(run)
  if not source then M.join(run) end
  if w.under_way then w.waiting = job else start(run, job) end
  if not source then M.join(run) end
end

-- Writes the checkpoints of the current state that the folder lacks: of a new run the first one, of
-- one that was killed before checkpoint_last committed an epoch those of the epoch. newest: the
-- file that the run was resumed from, or nil.
function M.complete(run, newest)
  if not ranks.writes() then return end
  local committed, names = newest and newest:find(LAST, 1, true), {}
  local all = names_of(run)
  for _, name in ipairs(all) do
    if not committed or not util.exists(path_of(run, name)) then names[#names + 1] = name end
  end
  if names[1] then M.save(run, names) end
  if has_numbered(all) then prune(run) end
end

return M
