-- trace.lua -- `--trace FILE`: where the time of a step or of a run went, as a file that
-- ui.perfetto.dev and chrome://tracing draw (trace.h).

local core = require "seg.core"
local config = require "seg.recipe.config"
local ranks = require "seg.train.ranks"
local show = require "seg.show"
local util = require "seg.util"

local sys = core.sys
local M = {}

-- M.now: the trace of this process, nil when nobody wants one.

-- Begins one where --trace asks for it; of several ranks the first has it.
function M.open()
  local path = config.line.flags.trace
  if not path or not ranks.writes() then return end
  if util.exists(path) and sys.stat(path).kind ~= "file" then
    util.refuse("--trace %s: that is a folder; give the name of a file", path)
  end
  M.now = core.trace()
end

-- What the main thread has done from one time of sys.clock() to another, or to now;
-- nothing without a trace.
function M.mark(name, from, to)
  if M.now then M.now:span("main", name, "epoch", from, to) end
end

-- The file, and what to say of it; nothing without a trace.
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
