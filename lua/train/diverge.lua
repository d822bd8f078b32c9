-- diverge.lua -- handles a training step whose loss or gradient is not finite.
--
-- Such a step is not applied: weights, moments and running statistics stay. The first layer with a
-- value that is not finite is searched at once. Everything needed to repeat the step is saved in
-- replay.safetensors for the command replay. The third such step in a row ends the run.

local core = require "seg.core"
local commands = require "seg.train.commands"
local epoch_steps = require "seg.train.epoch_steps"
local not_finite = require "seg.train.not_finite"
local opened = require "seg.data.opened"
local ranks = require "seg.train.ranks"
local recipes = require "seg.recipe.recipe"
local show = require "seg.show"
local state = require "seg.train.state"
local util = require "seg.util"

local fail = util.fail
local M = {}

M.BAD_STEPS = 3 -- steps in a row that are not finite end the run

-- The cases of a batch as hashes, in the order of its samples.
local function cases_of(run, part)
  local pipeline, list = run.data.train.pipeline, {}
  for i, n in ipairs(part.samples) do
    list[i] = run.hash(pipeline:facts((pipeline:item(n))).key)
  end
  return list
end

-- The first gradient of a parameter that is not finite, searched from the loss backward; nil if all
-- are finite.
local function bad_gradient(session)
  local list = session:param_norms()
  for i = #list, 1, -1 do
    local norm = list[i].grad
    if norm ~= norm or norm == math.huge then return "the gradient of " .. list[i].name end
  end
end

-- Finds the layer in which a batch becomes not finite. -> text, facts about the value. If batches
-- are queued ahead, the device already holds the inputs of a later one, so the batch is made again.
local function blame(run, part)
  local session, loader = run.session, run.data.train.loader
  if run.ahead == 0 then return session:blame() end
  epoch_steps.seek(run, part.number)
  local what, found = session:blame(opened.feeds(loader:next(), run.names, run.recipe))
  epoch_steps.seek(run, run.queued)
  return what, found
end

-- Saves everything that decides the step in one file: a checkpoint of the state before it, and the
-- batch, which the session still has; only inputs that the step uses.
local function save_replay(run, part, facts)
  local arrays, meta = {}, state.metadata(run)
  local needed = core.needed_inputs(recipes.step_roots(run.recipe))
  for _, input in ipairs(run.recipe.inputs) do
    if needed[input.name] then arrays[input.name] = run.session:read(input) end
  end
  for key, value in pairs(facts) do meta["replay." .. key] = tostring(value) end
  meta["replay.cases"] = table.concat(cases_of(run, part), " ")
  local path = run.folder .. "/replay.safetensors"
  core.checkpoint.save(path, run.session, true, meta, arrays)
  return path
end

-- Combines the findings of all ranks: the finding of the lowest rank that has one, and the cases of
-- all ranks. A missing finding is nil.
local function first_rank(what, ranges, case, cases)
  if ranks.count == 1 then return what, ranges, case, cases end
  local all = {}
  local texts = ranks.gather(string.pack("<s4s4s4s4", what or "", ranges or "", case or "", cases))
  for k = #texts, 1, -1 do
    local w, r, c, list = string.unpack("<s4s4s4s4", texts[k])
    if w ~= "" then what, ranges, case = w, r ~= "" and r or nil, c ~= "" and c or nil end
    table.insert(all, 1, list)
  end
  return what, ranges, case, table.concat(all, " ")
end

-- Handles a step with a loss or a gradient norm that is not finite. `part` is the record of its
-- last batch from fit.lua: number, samples, lr.
function M.bad_step(run, part, loss, norm)
  local s = run.state
  s.bad = s.bad + 1
  local what, found = blame(run, part)
  local case = found and found.sample and cases_of(run, part)[found.sample]
  local list, ranges = table.concat(cases_of(run, part), " "), found and not_finite.ranges(found)
  what, ranges, case, list = first_rank(what, ranges, case, list)
  what = what or (run.ahead == 0 and bad_gradient(run.session)) or "the gradient"
  local later = run.queued > part.number + 1 and " (with the weights of a later step)" or ""
  local where = string.format("epoch %d, batch %d", s.epoch + 1, part.number + 1)
  show.warn("%s: loss %s, gradient norm %s; first not finite: %s%s%s; step left out (cases %s)",
            where, util.number(loss), util.number(norm), what, later,
            ranges and ", " .. ranges .. (case and ", in case " .. case or "") or "", list)
  local facts = { epoch = s.epoch + 1, batch = part.number + 1, loss = util.number(loss),
                  grad_norm = util.number(norm), first = what, case = case or "", lr =
                  util.number(part.lr), clip = util.number(run.recipe.optim.clip_norm or 0),
                  ranges = ranges or "" }
  -- Of several in a row the first is the most informative; if batches are queued ahead, its weights
  -- are gone.
  if s.bad == 1 and run.ahead == 0 and ranks.count == 1 then
    local ok, said = pcall(save_replay, run, part, facts)
    if ok then
      show.line("%s: to repeat the step: replay %s", where, said)
    else
      show.warn("no replay file: %s", said)
    end
  end
  run.record:bad_step(string.format("%s: %s is not finite", where, what))
  local told = commands.facts(run, "nan")
  for key, value in pairs(facts) do told[key] = value end
  if ranks.writes() then commands.tell(run, "on_nan", told) end
  if s.bad >= M.BAD_STEPS then
    fail("diverged", "%d steps in a row gave a loss or gradient that is not finite, first in %s; "
         .. "lower the learning rate or clip gradients (clip_norm), and look at the cases "
         .. "named above; the last good state is in %s", s.bad, what, run.folder)
  end
end

return M
