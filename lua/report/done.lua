-- done.lua -- the last lines of a command that made a folder: its page, the next command, and the
-- folder, which scripts find after "done:".

local config = require "seg.recipe.config"
local show = require "seg.show"

local M = {}

-- Quotes a word for a shell.
function M.quoted(word)
  if word:match("^[%w_./:,=+@%%-]+$") then return word end
  return "'" .. word:gsub("'", "'\\''") .. "'"
end

-- The command that predicts new images with the weights of a run; nil if it makes no sense: the run
-- is part of a series, or a trial on a few samples, or its recipe has no output.
local function next_command(run)
  local line, v = config.line, run.values
  if line.flags.run or v.overfit > 0 or v.quick or not line.script
     or not next(run.recipe.outputs) then
    return nil
  end
  return string.format("segengine %s predict --weights %s --in NEW --out RESULTS",
                       M.quoted(line.script), M.quoted(run.folder))
end

-- Prints the lines for a folder and its page; then_command: a command, or nil.
function M.say(folder, page, then_command)
  show.line("report: %s/%s", folder, page)
  if then_command then show.line("next: %s", then_command) end
  show.line("done: %s", folder)
end

-- Prints the lines for a finished run.
function M.run(run)
  M.say(run.folder, "report.html", next_command(run))
end

return M
