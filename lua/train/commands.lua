-- commands.lua -- user commands that run on events of a run.
--
-- on_finish, on_nan and on_stall are shell commands. Each runs at most once per start and gets the
-- facts as JSON on its standard input; its output goes to stderr, up to a limit. A command that
-- fails causes a warning, a command that takes too long is killed with a warning; neither ends the
-- run.

local core = require "seg.core"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

local PATIENCE_S = 60 -- time limit of a command

-- The facts about the state of a run that every command gets.
function M.facts(run, event)
  local s, best = run.state, run.recipe.best
  return { event = event, recipe = run.name, run = run.folder, epoch = s.epoch, batch = s.batch,
           epochs = run.epochs, best = s.best, best_epoch = s.best and s.best_epoch,
           best_of = s.best and best and best[1] or nil }
end

-- Runs the command of `key` with these facts, if the run has one.
function M.tell(run, key, facts)
  local command = run.values[key]
  run.commands_run = run.commands_run or {}
  if command == "" or run.commands_run[key] then return end
  run.commands_run[key] = true
  local ok, why = core.tell(command, util.json(facts) .. "\n", PATIENCE_S)
  if not ok then show.warn("--%s: the command %s", key, why) end
end

-- Watches the progress of a run: runs its command on_stall if no batch is finished for stall_s
-- seconds. -> { say = f(): updates the facts for the command; close = f }
function M.watch(run)
  local v = run.values
  if v.on_stall == "" then return { say = function() end, close = function() end } end
  local watch = core.watch(v.stall_s, v.on_stall)
  show.on_progress = function() watch:beat() end
  return {
    say = function()
      local facts, idle = M.facts(run, "stall"), watch:fired()
      facts.stall_s = v.stall_s
      if idle then show.warn("no step for %.0f s; --on_stall was run", idle) end
      watch:beat(util.json(facts) .. "\n")
    end,
    close = function()
      show.on_progress = nil
      watch:close()
    end,
  }
end

return M
