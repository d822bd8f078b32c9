-- replay.lua -- the command replay: repeats a step that was not finite.
--
--   segengine SCRIPT.lua replay runs/X/001/replay.safetensors [--device ref]
--
-- The file holds the state before the step and its batch (diverge.lua). On the same device the step
-- gives the same bits; another device or other options of the recipe show whether it is still not
-- finite.

local core = require "seg.core"
local config = require "seg.recipe.config"
local not_finite = require "seg.train.not_finite"
local recipes = require "seg.recipe.recipe"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

-- The number of parameters listed: those with a gradient that is not finite, then the largest
-- gradients.
local LISTED = 8

-- Four digits; a NaN is printed without its sign.
local function short(v) return v ~= v and "nan" or string.format("%.4g", v) end

local function print_norms(session)
  local list, rows = session:param_norms(), { { "parameter", "norm", "norm of its gradient" } }
  local function size(e) return e.grad ~= e.grad and math.huge or e.grad end
  table.sort(list, function(a, b)
    return size(a) == size(b) and a.name < b.name or size(a) > size(b)
  end)
  for i = 1, math.min(LISTED, #list) do
    rows[#rows + 1] = { list[i].name, short(list[i].value), short(list[i].grad) }
  end
  print(show.table(rows))
end

-- The command replay. The exit code is 0 if the step is not finite again, 1 if it is finite.
function M.command(r)
  local path = config.line.flags.weights
  if not path then util.refuse("replay needs FILE, a run's replay.safetensors") end
  if not util.exists(path) then
    core.sys.raise("data", "replay " .. path .. ": there is no such file", true)
  end
  local session = recipes.session(r, "train")
  local meta = core.checkpoint.load(path, session, true)
  if not meta["replay.epoch"] then
    util.fail("data", "%s: this is not a replay file; a run writes replay.safetensors when a step "
              .. "is not finite", path)
  end
  local loss, norm, applied = session:step(core.checkpoint.batch(path), {
    lr = tonumber(meta["replay.lr"]), clip = tonumber(meta["replay.clip"]) })
  print(string.format("epoch %s, batch %s, on %s", meta["replay.epoch"], meta["replay.batch"],
                      session:facts().device))
  print(show.table {
    { "", "then", "now" }, { "loss", meta["replay.loss"], util.number(loss) },
    { "gradient norm", meta["replay.grad_norm"], util.number(norm) } })
  if applied then
    print("the step is finite here, but was not in the run")
  else
    local what, found = session:blame()
    local cases = {}
    for case in meta["replay.cases"]:gmatch("%S+") do cases[#cases + 1] = case end
    print("first not finite: " .. (what or "a gradient"))
    if found then
      print("  " .. not_finite.ranges(found))
      if found.sample then print("  in case " .. (cases[found.sample] or "?")) end
    end
  end
  print_norms(session)
  return applied and 1 or 0
end

return M
