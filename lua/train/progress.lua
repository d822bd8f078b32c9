-- progress.lua -- how far the epoch of a run is, in a small file beside its numbers,
-- for `segengine status`.
--
-- progress.json is written anew every few seconds at most, and only where the run's
-- folder is still there; it is not forced to the disk, as nothing depends on it.
-- It goes when the epoch is over, so a run of short epochs never has it.

local core = require "seg.core"
local json = require "seg.json"
local ranks = require "seg.train.ranks"
local util = require "seg.util"

local M = {}

local EVERY_S = 2
local FILE = "/progress.json"

-- What the file says: the epoch that is under way (from 1), its batches that are done
-- and all of them, seconds that its training takes and that are left of it, what is
-- worked at.
local shape = { epoch = "number", batch = "number", batches = "number", epoch_s = "number?",
                left_s = "number?", part = "string" }

-- Say that epoch `epoch` has `batch` of `batches` behind it; done of total: samples since
-- `started` (of core.sys.clock). part: "train", "validate". Of a few seconds the first
-- call writes; a change of part does at once, when the file is there.
function M.note(run, part, epoch, batch, batches, done, total, started)
  local now = core.sys.clock()
  local p = run.progress
  if not p then
    p = { at = now }
    run.progress = p
    -- that of a start which was killed
    if ranks.writes() then os.remove(run.folder .. FILE) end
  end
  local due = now - p.at >= EVERY_S or p.written and p.part ~= part
  if not due or not ranks.writes() then return end
  p.at, p.part, p.written = now, part, true
  local pace = done > 0 and (now - started) / done
  -- io.open makes no folder: a run whose folder was removed gets none again
  local f = io.open(run.folder .. FILE, "w")
  if not f then return end
  f:write(util.json { epoch = epoch, batch = batch, batches = batches, part = part,
                      epoch_s = pace and pace * total or nil,
                      left_s = pace and pace * (total - done) or nil }, "\n")
  f:close()
end

-- The epoch is over, or the run ends here.
function M.clear(run)
  if run.progress and run.progress.written then os.remove(run.folder .. FILE) end
  run.progress = nil
end

-- What the file in the folder of a run says, with `age`, the seconds since then; nil when
-- there is none, or one that is just being written.
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
