-- progress.lua -- the progress of the current epoch, in a small file of the run for `segengine
-- status`.
--
-- progress.json is rewritten every few seconds at most, and only while the run's folder exists. It
-- is not synced to disk, because nothing depends on it. It is removed at the end of the epoch, so a
-- run of short epochs never has it.

local core = require "seg.core"
local json = require "seg.json"
local ranks = require "seg.train.ranks"
local util = require "seg.util"

local M = {}

local EVERY_S = 2
local FILE = "/progress.json"

-- The fields of the file: the current epoch (from 1), its finished batches and their total, the
-- seconds of its training and the seconds that are left, and the current activity.
local shape = { epoch = "number", batch = "number", batches = "number", epoch_s = "number?",
                left_s = "number?", part = "string" }

-- Records that `batch` of `batches` of epoch `epoch` are finished; done of total: samples since
-- `started` (of core.sys.clock). part: "train", "validate". Of several calls within a few seconds
-- the first writes; a change of part is written at once, if the file exists.
function M.note(run, part, epoch, batch, batches, done, total, started)
  local now = core.sys.clock()
  local p = run.progress
  if not p then
    p = { at = now }
    run.progress = p
    -- left by an earlier start that was killed
    if ranks.writes() then os.remove(run.folder .. FILE) end
  end
  local due = now - p.at >= EVERY_S or p.written and p.part ~= part
  if not due or not ranks.writes() then return end
  p.at, p.part, p.written = now, part, true
  local pace = done > 0 and (now - started) / done
  -- io.open makes no folder, so a removed run folder is not made again
  local f = io.open(run.folder .. FILE, "w")
  if not f then return end
  f:write(util.json { epoch = epoch, batch = batch, batches = batches, part = part,
                      epoch_s = pace and pace * total or nil,
                      left_s = pace and pace * (total - done) or nil }, "\n")
  f:close()
end

-- Removes the file at the end of an epoch or of the run.
function M.clear(run)
  if run.progress and run.progress.written then os.remove(run.folder .. FILE) end
  run.progress = nil
end

-- The content of the file in a run's folder, with `age`, the seconds since it was written; nil if
-- there is none, or if it is being written.
function M.read(folder)
  local path = folder .. FILE
  local stat = core.sys.stat(path)
  local ok, v = pcall(function()
    local v = json.decode(util.read_file(path), path)
    json.check(v, shape, path)
    return v
  end)
  if not stat or not ok then return nil end
  v.age, v.mtime = math.max(0, os.time() - stat.mtime), stat.mtime
  return v
end

return M
