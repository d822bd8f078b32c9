-- trace.lua -- `--trace FILE`: a timeline of a step or a run, as a file for ui.perfetto.dev and
-- chrome://tracing (trace.h).

local core = require "seg.core"
local config = require "seg.recipe.config"
local ranks = require "seg.train.ranks"
local show = require "seg.show"
local util = require "seg.util"

local sys = core.sys
local M = {}

-- M.now: the trace of this process, nil without --trace.

-- Starts a trace if --trace asks for it; with several ranks only rank 0 has one.
function M.open()
  local path = config.line.flags.trace
  if not path or not ranks.writes() then return end
  if util.exists(path) and sys.stat(path).kind ~= "file" then
    util.refuse("--trace %s: that is a folder; give the name of a file", path)
  end
  M.now = core.trace()
end

-- Records an interval of the main thread between two times of sys.clock(), or until now; does
-- nothing without a trace.
function M.mark(name, from, to)
  if M.now then M.now:span("main", name, "epoch", from, to) end
end

-- Writes the file and prints its name; does nothing without a trace.
function M.close()
  local trace, path = M.now, config.line.flags.trace
  if not trace then return end
  M.now = nil
  local kept, lost = trace:write(path)
  show.line("%s: %s, to be opened in ui.perfetto.dev or chrome://tracing", path,
            util.plural(kept, "event"))
  if lost > 0 then
    show.line("%s: the %s that came later had no room; --steps N ends a run sooner", path,
              util.plural(lost, "event"))
  end
end

return M
