-- weights.lua -- finds and loads the trained weights for a command.

local bundle = require "seg.predict.bundle"
local core = require "seg.core"
local config = require "seg.recipe.config"
local recipes = require "seg.recipe.recipe"
local run_folder = require "seg.report.run"
local run_kind = require "seg.report.run_kind"
local same_network = require "seg.predict.same_network"
local show = require "seg.show"
local util = require "seg.util"

local fail = util.fail
local M = {}

-- The runs in a folder that is not a run itself. Trials, diverged and unfinished runs are left out;
-- in the folder of a series, whose runs are trials, only diverged and unfinished runs are. ->
-- paths, { { name, why }, ... } left out
local function runs_in(place)
  local list, passed = {}, {}
  local series = util.exists(place .. "/series.json")
  for _, name in ipairs(core.sys.list(place)) do
    local folder = place .. "/" .. name
    if run_folder.has_weights(folder) then
      local k = run_kind.read(folder)
      local why = not (series and k.trial and k.finished) and run_kind.why_not(k)
      if why then passed[#passed + 1] = { name, why } else list[#list + 1] = folder end
    end
  end
  if #list == 0 and #passed > 0 then
    util.refuse("--weights %s: no run there is a finished training, only %s; name the run that "
                .. "you mean, as --weights %s/%s", place, run_folder.passed_text(passed), place,
                passed[#passed][1])
  end
  return list, passed
end

-- The places that --weights names, separated by commas. A folder that is no run stands for the runs
-- in it, such as the folds of a cross-validation. -> paths, lines about runs that are left out
function M.places(given)
  local list, lines = {}, {}
  for place in (given .. ","):gmatch("([^,]*),") do
    -- with an empty B, "A,$B" would average fewer networks than the user meant
    if place == "" then
      util.refuse('--weights "%s": a name between commas is empty; give files or folders of runs',
                  given)
    end
    local stat, inside, passed = core.sys.stat(place), {}, {}
    if stat and stat.kind == "folder" and not run_folder.has_weights(place) then
      inside, passed = runs_in((place:gsub("(.)/+$", "%1")))
    end
    if #passed > 0 then
      lines[#lines + 1] = string.format("--weights %s: passed over: %s", place,
                                        run_folder.passed_text(passed))
    end
    table.move(#inside > 0 and inside or { place }, 1, math.max(#inside, 1), #list + 1, list)
  end
  return list, lines
end

-- Finds the weights: --weights, else the newest finished training. -> path, a note about it, lines
-- about other runs. For predict --out is the folder of results, so runs are looked for in their
-- default folder.
local function find_weights(given, name, purpose)
  if given then return run_folder.weights(given) end
  local out = purpose == "predict" and config.runs or config.ensure().out
  local path, note, lines = run_folder.choose(out, name)
  if not path then
    fail("usage", "no trained weights below %s/%s; train first, or give --weights FILE", out, name)
  end
  return path, note, lines
end

-- Raises unless the weights were trained with the network that this command runs. predict uses one
-- output, other commands all. A recipe in phases is compared by the phase of the weights.
local function check_network(r, meta, path, purpose)
  local phase = r.phases and r.phases[math.tointeger(tonumber(meta.phase)) or #r.phases] or r
  local text, outputs = recipes.network(phase)
  local only = purpose == "predict" and (r.predict.output or outputs:match("^[^,]*")) or nil
  same_network.check(path, meta, text, outputs, only)
end

-- Opens a session with these weights. -> session, metadata of the file, its path
local function open(r, given, name, purpose, draws)
  local path, note, lines = find_weights(given, name, purpose)
  local session = recipes.session(r, purpose, nil, nil, draws)
  local meta = bundle.fill(run_folder.load(path, session), path)
  check_network(r, meta, path, purpose)
  show.line("weights: %s%s%s%s%s", path, meta.epoch and " (epoch " .. meta.epoch .. ")" or "",
            meta.trained_on and ", trained on " .. meta.trained_on or "", note,
            run_folder.about(path, meta))
  for _, line in ipairs(lines or {}) do show.line("%s", line) end
  return session, meta, path
end

function M.open(r, name, purpose)
  return open(r, config.line.flags.weights, name, purpose)
end

-- Metadata that the members of an ensemble must share, with the words for a difference: members may
-- differ in their weights alone.
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

-- Opens all weights that --weights names, each in its own session: the networks of an ensemble.
-- draws: keep dropout. -> { session, ... }, metadata of the first file, { path, ... }
function M.members(r, name, purpose, draws)
  local given = config.line.flags.weights
  local sessions, paths, first = {}, {}, nil
  local places, lines = { false }, {}
  if given then places, lines = M.places(given) end
  for _, line in ipairs(lines) do show.line("%s", line) end
  for i, place in ipairs(places) do
    local session, meta, path = open(r, place or nil, name, purpose, draws)
    first = first or meta
    for _, row in ipairs(alike) do
      local a, b = first[row[1]] or "", meta[row[1]] or ""
      if a ~= b then
        local was, is = differing(a, b)
        fail("data", "--weights: %s and %s %s, so their predictions cannot be averaged: %s in the "
             .. "first, %s in the other", paths[1], path, row[2], was:sub(1, 200), is:sub(1, 200))
      end
    end
    sessions[i], paths[i] = session, path
  end
  return sessions, first, paths
end

return M
