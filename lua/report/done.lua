-- done.lua -- the last lines of a command that made something: where its page is, what to
-- type next, and its folder, which scripts look for behind "done:".

local config = require "seg.recipe.config"
local show = require "seg.show"

local M = {}

-- A word as a shell takes it for one.
function M.quoted(word)
  if word:match("^[%w_./:,=+@%%-]+$") then return word end
  return "'" .. word:gsub("'", "'\\''") .. "'"
end

-- The command that segments, or measures, new images with the weights of a run; nil where
-- there is none to name: the run is part of a series, or a trial on a few samples, or
-- its recipe has no output.
local function next_command(run)
  local line, v = config.line, run.values
  if line.flags.run or v.overfit > 0 or v.quick or not line.script
     or not next(run.recipe.outputs) then
    return nil
  end
  return string.format("segengine %s predict --weights %s --in NEW --out RESULTS",
                       M.quoted(line.script), M.quoted(run.folder))
end

-- Of a folder and the file in it that shows it; then: a command, or nil.
function M.say(folder, page, then_command)
  show.line("report: %s/%s", folder, page)
  if then_command then show.line("next: %s", then_command) end
  show.line("done: %s", folder)
end

-- Of a run that is finished.
function M.run(run)
  M.say(run.folder, "report.html", next_command(run))
end

return M
