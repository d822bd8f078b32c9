-- average.lua -- averages of the weights over many steps (EMA) or epochs (SWA).
--
--   ema = 0.999         after every update: average <- d average + (1 - d) weights,
--                       d = min(ema, (1 + t) / (10 + t)) at update t
--   swa = { from = 15 } the mean of the weights after each epoch from this one on
--
-- With ema the average is validated, tested and used for prediction, while training continues with
-- the weights. Both averages include the running statistics of norms. An average of the statistics
-- is wrong for the averaged weights of swa, so they are computed again over the training set before
-- the average is validated, once, at the end.

local evaluate = require "seg.evaluate.evaluate"
local opened = require "seg.data.opened"
local ranks = require "seg.train.ranks"
local show = require "seg.show"
local saving = require "seg.train.saving"
local util = require "seg.util"
local early_stopping = require "seg.train.early_stopping"

local fail = util.fail
local M = {}

-- Checks the fields ema and swa of a recipe; `from` becomes an epoch number.
function M.check(r)
  if math.type(r.ema) == nil or not (r.ema >= 0 and r.ema < 1) then
    fail("usage", "seg.recipe: ema must be a number from 0 (none) to below 1, got %s",
         tostring(r.ema))
  end
  if r.swa == nil then return end
  local o = util.options("seg.recipe: swa", r.swa, { from = 0.75, lr = util.none })
  if r.ema > 0 then
    fail("usage", "seg.recipe: ema and swa both average the weights; give one of them")
  end
  if math.type(o.from) == nil or not (o.from > 0 and o.from <= r.epochs)
    or o.from >= 1 and o.from % 1 ~= 0 then
    fail("usage", "seg.recipe: swa: from must be a share below 1 of the epochs, or the number of "
         .. "one of %d, got %s", r.epochs, tostring(o.from))
  end
  if o.lr ~= nil and (math.type(o.lr) == nil or not (o.lr >= 0 and o.lr < math.huge)) then
    fail("usage", "seg.recipe: swa: lr must be a number >= 0, got %s", tostring(o.lr))
  end
  if o.from < 1 then o.from = math.floor(o.from * r.epochs) + 1 end
  r.swa = o
end

-- Starts the average of the session with its current weights.
function M.open(run)
  local r = run.recipe
  if r.ema > 0 or r.swa then run.session:ema(r.ema) end
end

-- Returns the result of f(), called with the average in place of the weights if there is an ema.
function M.with(run, f)
  if run.recipe.ema == 0 then return f() end
  run.session:swap()
  local ok, result = pcall(f)
  -- after a failed device the swap fails too, and its error says less
  local back, why = pcall(run.session.swap, run.session)
  if not ok then error(result, 0) end
  if not back then error(why, 0) end
  return result
end

-- Adds the weights to the mean after epoch `epoch` of the phase.
function M.epoch(run, epoch)
  local s, swa = run.state, run.recipe.swa
  if not swa or epoch < swa.from then return end
  run.session:average(s.swa)
  s.swa = s.swa + 1
end

-- Computes the statistics of norms again over one epoch of batches. Returns false if a signal
-- stopped it.
local function norms(run)
  local loader, any = run.data.train.loader, false
  for _, p in ipairs(run.session:params()) do any = any or not p.trained end
  if not any then return true end
  run.session:update_bn("begin")
  loader:seek(run.state.epoch, 0)
  for _ = 1, (loader:batches()) do
    local batch = loader:next()
    run.session:shard(batch.first, batch.idle)
    run.session:forward(opened.feeds(batch, run.names, run.recipe), true)
    run.session:update_bn("add")
    if ranks.stopped() then return false end
  end
  run.session:update_bn("end")
  return true
end

-- Ends a phase with swa: the mean becomes the weights and is validated. It is the best if it is
-- better than all epochs or if there is no validation. Writes swa.safetensors. A run that is killed
-- here repeats this step. Returns false if a signal stopped it.
function M.finish(run)
  local s, r = run.state, run.recipe
  if not r.swa then return true end
  if s.swa == 0 then
    show.warn("swa: training ended before epoch %d, from which on weights are averaged", r.swa.from)
    return true
  end
  run.session:swap()
  if not norms(run) then return false end
  local best, text = true, ""
  if run.data.valid then
    local d = run.data.valid
    local result = evaluate.run(run.session, r, d.pipeline, d.loader, run.names, "validate")
    if ranks.stopped() then return false end
    local value = r.best[1] == "loss" and result.loss or result.metrics[r.best[1]].mean
    local bad = #util.sorted_keys(result.bad or {})
    best = early_stopping.take_best(s, value, bad, r.best[2])
    text = string.format(", valid %s %s", r.best[1], util.fixed(value))
  end
  show.line("swa: mean of %s%s%s", util.plural(s.swa, "epoch"), text, best and "  best" or "")
  saving.save(run, { "swa", best and "checkpoint_best" or nil }, true)
  return true
end

return M
