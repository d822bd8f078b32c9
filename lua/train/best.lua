-- best.lua -- the best weights of a run, by the file that has them, and the weights at its end.

local core = require "seg.core"
local ranks = require "seg.train.ranks"
local saving = require "seg.train.saving"
local show = require "seg.show"
local state = require "seg.train.state"
local util = require "seg.util"

local M = {}

local BEST = "checkpoint_best"

local function path_of(run) return run.folder .. "/" .. BEST .. ".safetensors" end

-- Facts about the file of the best weights: { epoch=, value= (nil: absent), average= }; nil and the
-- reason if the file is missing or damaged.
local function read_best(run)
  local path = path_of(run)
  local ok, why = core.checkpoint.verify(path)
  if not ok then return nil, why end
  local meta = core.checkpoint.meta(path)
  local epoch = math.tointeger(tonumber(meta.epoch))
  if not epoch then return nil, path .. ": its epoch is missing" end
  local swa = meta.average == "swa"
  return { epoch = epoch, value = tonumber(meta.best_epoch) == epoch and tonumber(meta.best) or nil,
           -- a run with swa writes its mean without moments, but an epoch with moments
           average = (not swa or meta.contents == "weights") and meta.average or nil }
end

-- Sets the best epoch of the run from its file, because that file is tested, evaluated and
-- exported. A resumed run may find another file than it wrote, or none. Rank 0, which writes the
-- file, decides.
function M.settle(run)
  local s, text = run.state, ""
  if ranks.writes() and s.best then
    local found, why = read_best(run)
    if not found then
      show.warn("%s; the weights of epoch %d, the best so far, are lost: the best of the epochs "
                .. "that are left takes their place, else the last", why, s.best_epoch)
      text = "none"
    elseif found.epoch ~= s.best_epoch then
      show.warn("%s holds the weights of epoch %d; those of epoch %d, the best so far, are lost",
                path_of(run), found.epoch, s.best_epoch)
      text = string.format("%d %s", found.epoch, found.value and util.number(found.value) or "-")
    end
  end
  text = ranks.of_first(text)
  if text == "" then return end
  local epoch, value = text:match("^(%d+) (%S+)$")
  s.best, s.best_epoch = tonumber(value), math.tointeger(tonumber(epoch or 0))
end

-- The file that has the weights of the session; nil if its save failed.
local function file_of(run, name)
  return not run.saving.unsaved[name] and name .. ".safetensors" or nil
end

-- The final weights after the last epoch: the average if there is one.
local function last_weights(run)
  local s, r = run.state, run.recipe
  if r.ema > 0 then
    run.session:swap()
    return { epoch = s.epoch, average = state.average_text(r),
             file = file_of(run, "checkpoint_last") }
  end
  local mean = r.swa and s.swa > 0 -- in the session since average.finish
  return { epoch = s.epoch, average = mean and "swa" or nil,
           file = file_of(run, mean and "swa" or "checkpoint_last") }
end

-- Loads the final weights of a phase or run into the session: the best, else the last. -> { epoch=,
-- average= (text or nil), file= }. The file decides: a lost or damaged file costs the best weights,
-- but not the run.
function M.final_weights(run, best)
  local s = run.state
  saving.finish(run)
  if run.saving.unsaved.checkpoint_last then saving.save(run, { "checkpoint_last" }) end
  ranks.barrier() -- rank 0 has written it
  if not (best and s.best) then return last_weights(run) end
  local found, why = read_best(run)
  if not found then
    show.warn("%s; the weights of epoch %d, the best, are lost: those of the last epoch, %d, are "
              .. "taken instead", why, s.best_epoch, s.epoch)
    s.best, s.best_epoch = nil, 0
    return last_weights(run)
  end
  if found.epoch ~= s.best_epoch then
    show.warn("%s holds the weights of epoch %d, which are taken; those of epoch %d, the best (%s "
              .. "%s), are lost", path_of(run), found.epoch, s.best_epoch,
              run.recipe.best[1], util.fixed(s.best))
    s.best, s.best_epoch = found.value, found.epoch
  end
  core.checkpoint.load(path_of(run), run.session, false)
  return { epoch = found.epoch, average = found.average, file = BEST .. ".safetensors" }
end

return M
