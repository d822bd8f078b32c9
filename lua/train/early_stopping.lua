-- early_stopping.lua -- early stopping and the best epoch: compares one value of each epoch with
-- the best so far.
--
-- Values have names: "loss" (of valid), "train_loss", and the names of the metrics.

local util = require "seg.util"

local fail = util.fail
local M = {}

local none = util.none

-- The monitored value `name` and its mode, for `what` ("stop", "plateau"); both default to `best`
-- of recipe `r`. A metric may be better when it is larger or smaller, so a metric other than the
-- best needs a mode.
function M.find(what, r, name, mode)
  local best = r.best or { "loss", "min" }
  name = name or best[1]
  if name ~= "loss" and name ~= "train_loss" and not r.metrics[name] then
    local names = util.sorted_keys(r.metrics)
    names[#names + 1], names[#names + 2] = "loss", "train_loss"
    fail("usage", 'seg.recipe: %s: monitor = "%s" is not a metric; %s', what, tostring(name),
         util.suggest(name, names))
  end
  if name ~= "train_loss" and not r.valid then
    fail("usage", 'seg.recipe: %s monitors "%s" of the valid set, and the recipe has none; give '
         .. 'monitor = "train_loss", or a valid set', what, name)
  end
  mode = mode or (name == best[1] and best[2]) or (name:match("loss$") and "min")
  if not mode then
    fail("usage", 'seg.recipe: %s: is a larger "%s" better? give mode = "max" or "min"', what, name)
  end
  return { name = name, mode = mode }
end

-- `stop` of a recipe: { patience = 10, min_delta = 0, monitor =, mode = }, with the monitored value
-- filled in.
function M.check_stop(r)
  local o = util.options("seg.recipe: stop", r.stop, { patience = 10, min_delta = 0,
                                                       monitor = none, mode = none })
  if math.type(o.patience) ~= "integer" or o.patience < 1 then
    fail("usage", "seg.recipe: stop: patience must be a whole number >= 1, got %s",
         tostring(o.patience))
  end
  if not math.type(o.min_delta) or not (o.min_delta >= 0 and o.min_delta < math.huge) then
    fail("usage", "seg.recipe: stop: min_delta must be a number >= 0, got %s",
         tostring(o.min_delta))
  end
  if o.mode ~= nil and o.mode ~= "min" and o.mode ~= "max" then
    fail("usage", "seg.recipe: stop: mode: %s", util.suggest(tostring(o.mode), { "max", "min" }))
  end
  o.watch = M.find("stop", r, o.monitor, o.mode)
  return o
end

-- Whether `value` is better than `best` (nil: none) by more than `delta`. NaN never is, nor is an
-- infinity that no other value could improve on.
function M.better(value, best, mode, delta)
  if value ~= value or value == (mode == "max" and math.huge or -math.huge) then return false end
  return best == nil or (mode == "max" and value > best + (delta or 0))
    or (mode == "min" and value < best - (delta or 0))
end

-- Whether the epoch of `s` is the best so far; `bad` is its number of validation cases without
-- finite values. If so, updates s.best, s.best_epoch and s.best_bad. An epoch with fewer such cases
-- wins, whatever the means: a mean over only the easier cases is not comparable.
function M.take_best(s, value, bad, mode)
  local known = s.best ~= nil and s.best_bad or math.huge
  if bad > known then return false end
  local best = s.best
  if bad < known then best = nil end
  if not M.better(value, best, mode) then return false end
  s.best, s.best_epoch, s.best_bad = value, s.epoch, bad
  return true
end

-- Counts one more epoch with these values by name. Returns true if training should end. The state
-- is in s.stop_best and s.stop_wait.
function M.stop(s, stop, values)
  local value = values[stop.watch.name]
  if M.better(value, s.stop_best, stop.watch.mode, stop.min_delta) then
    s.stop_best, s.stop_wait = value, 0
  else
    s.stop_wait = s.stop_wait + 1
  end
  return s.stop_wait >= stop.patience
end

return M
