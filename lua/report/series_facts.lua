-- series_facts.lua -- facts about a series of runs (folds, seeds, a search) from its folder. Only
-- reads files, like run_facts.lua.

local core = require "seg.core"
local json = require "seg.json"
local run_facts = require "seg.report.run_facts"
local run_folder = require "seg.report.run"
local util = require "seg.util"

local M = {}

-- The series in a folder: { path=, kind = "folds", "repeat" or "search", name = "brain_unet/001",
-- state = "finished", "running" or "stopped", members = names of its runs, finished = number of
-- finished ones }; nil if it is no series, or damaged.
function M.read(path)
  path = util.by_name(path)
  local file = path .. "/series.json"
  local ok, was = pcall(function()
    local was = json.decode(util.read_file(file), file)
    json.check(was, { kind = "string", recipe = "string?" }, file)
    return was
  end)
  if not ok then return nil end
  local s = { path = path, kind = was.kind, members = run_facts.below(path), finished = 0,
              name = (was.recipe or "a recipe") .. "/" .. path:match("([^/]+)$") }
  for _, name in ipairs(s.members) do
    if run_folder.finished(path .. "/" .. name) then s.finished = s.finished + 1 end
  end
  s.state = run_folder.finished(path) and "finished"
    or core.checkpoint.holder(path) and "running" or "stopped"
  return s
end

-- The series that a run is part of, or nil.
function M.of(run)
  local parent = util.by_name(run):match("^(.+)/[^/]+$")
  return parent and util.exists(parent .. "/series.json") and M.read(parent) or nil
end

-- A finished cross-validation in the form of run_facts.read, to compare it with runs: every case of
-- `valid`, measured by the network that was not trained on it. Epochs and times are those of its
-- folds and are left out.
function M.as_run(s)
  local summary = run_facts.summary(s.path)
  local first = run_facts.read(s.path .. "/" .. s.members[1])
  first.config.fold, first.config.run = nil, nil
  local m, folders = first.manifest, {}
  if m then m.data = nil end -- it differs in each fold
  for i, name in ipairs(s.members) do folders[i] = s.path .. "/" .. name end
  return { path = s.path, recipe = first.recipe, name = s.name, config = first.config,
           text = first.text, rows = {}, columns = {}, state = s.state, epoch = first.epoch,
           epochs = first.epochs, manifest = m, folders = folders,
           summary = { valid = { metrics = summary.metrics, cases = summary.cases } } }
end

return M
