-- weights.lua -- the trained weights that a command is about.

local bundle = require "seg.bundle"
local config = require "seg.config"
local recipes = require "seg.recipe"
local run_folder = require "seg.run"
local show = require "seg.show"
local util = require "seg.util"

local fail = util.fail
local M = {}

-- The weights that are meant: --weights, else those of the newest run, and what
-- there is to say of them. Where --out means the results, runs are looked for
-- where they are by default.
local function find_weights(name, purpose)
  local given = config.line.flags.weights
  local out = purpose == "predict" and config.runs or config.ensure().out
  local path, note = run_folder.weights(given, out, name)
  if not path then
    fail("usage", "no trained weights below %s/%s; train first, or give --weights FILE", out, name)
  end
  return path, note
end

-- A session with these weights, what the file says beside them, and its path.
function M.open(r, name, purpose)
  local path, about = find_weights(name, purpose)
  local session = recipes.session(r, purpose)
  local meta = bundle.fill(run_folder.load(path, session), path)
  show.line("weights: %s%s%s%s", path, meta.epoch and " (epoch " .. meta.epoch .. ")" or "",
            meta.trained_on and ", trained on " .. meta.trained_on or "", about)
  return session, meta, path
end

return M
