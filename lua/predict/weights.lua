-- weights.lua -- the trained weights that a command is about.

local bundle = require "seg.bundle"
local core = require "seg.core"
local config = require "seg.config"
local recipes = require "seg.recipe"
local run_folder = require "seg.run"
local show = require "seg.show"
local util = require "seg.util"

local fail = util.fail
local M = {}

-- The places that --weights names: between commas, and for a folder that is no run
-- those in it that are runs, as the folds of a cross-validation.
function M.places(given)
  local list = {}
  for place in (given .. ","):gmatch("([^,]*),") do
    -- "A,$B" with nothing in B would be a mean over less than was meant
    if place == "" then
      util.refuse('--weights "%s": a name between commas is empty; give files or folders of runs',
                  given)
    end
    local stat, inside = core.sys.stat(place), {}
    if stat and stat.kind == "folder" and not run_folder.has_weights(place) then
      for _, name in ipairs(core.sys.list(place)) do
        local folder = place:gsub("(.)/+$", "%1") .. "/" .. name
        if run_folder.has_weights(folder) then inside[#inside + 1] = folder end
      end
    end
    table.move(#inside > 0 and inside or { place }, 1, math.max(#inside, 1), #list + 1, list)
  end
  return list
end

-- The weights that are meant: --weights, else those of the newest run, and what
-- there is to say of them. Where --out means the results, runs are looked for
-- where they are by default.
local function find_weights(given, name, purpose)
  local out = purpose == "predict" and config.runs or config.ensure().out
  local path, note = run_folder.weights(given, out, name)
  if not path then
    fail("usage", "no trained weights below %s/%s; train first, or give --weights FILE", out, name)
  end
  return path, note
end

-- A session with these weights, what the file says beside them, and its path.
local function open(r, given, name, purpose, draws)
  local path, about = find_weights(given, name, purpose)
  local session = recipes.session(r, purpose, nil, nil, draws)
  local meta = bundle.fill(run_folder.load(path, session), path)
  show.line("weights: %s%s%s%s", path, meta.epoch and " (epoch " .. meta.epoch .. ")" or "",
            meta.trained_on and ", trained on " .. meta.trained_on or "", about)
  return session, meta, path
end

function M.open(r, name, purpose)
  return open(r, config.line.flags.weights, name, purpose)
end

-- Members of an ensemble must make the same of the same image but for their
-- weights: what the files say, in words for what differs.
local alike = { { "preprocessing", "prepare images otherwise" }, { "labels", "have other labels" },
                { "graph", "have another network" } }

-- The first line in which two texts differ, of each.
local function differing(a, b)
  local lines = {}
  for line in (a .. "\n"):gmatch("([^\n]*)\n") do lines[#lines + 1] = line end
  local i = 0
  for line in (b .. "\n"):gmatch("([^\n]*)\n") do
    i = i + 1
    if lines[i] ~= line then return lines[i] or "nothing", line end
  end
  return lines[i + 1] or "nothing", "nothing"
end

-- All weights that --weights names, each in a session of its own: the networks of
-- an ensemble. draws: with dropout. -> { session, ... }, what the first file says,
-- { path, ... }
function M.members(r, name, purpose, draws)
  local given = config.line.flags.weights
  local sessions, paths, first = {}, {}, nil
  for i, place in ipairs(given and M.places(given) or { false }) do
    local session, meta, path = open(r, place or nil, name, purpose, draws)
    first = first or meta
    for _, row in ipairs(alike) do
      local a, b = first[row[1]] or "", meta[row[1]] or ""
      if a ~= b then
        local was, is = differing(a, b)
        fail("data", "--weights: %s and %s %s, so their predictions have no mean: %s in the first, "
             .. "%s in the other", paths[1], path, row[2], was:sub(1, 200), is:sub(1, 200))
      end
    end
    sessions[i], paths[i] = session, path
  end
  return sessions, first, paths
end

return M
