-- schedule.lua -- the learning rate over a run.
--
-- A schedule is {name=, rate=function(lr, epoch, epochs, at)}: lr is the optimiser's learning rate,
-- epoch counts from 1, at = {step=, steps=, state=} is the position in updates, from 1, and their
-- number in the run (or phase). The rate is asked for every update; without `at` for an epoch as a
-- whole. All schedules except plateau depend only on the position, so a resumed run needs no state
-- for them; the memory of plateau is at.state, which observe() updates and the checkpoint keeps.
--
-- Formulas and counting are PyTorch's (torch.optim.lr_scheduler), stepped once an epoch, onecycle
-- and warm-ups once an update; tests/golden/optim_golden.py.

local config = require "seg.recipe.config"
local util = require "seg.util"

local options, none, fail = util.options, util.none, util.fail
local M = {}

-- Checks the options of a schedule: numbers >= `least`, as the formula needs.
local function numbers(what, o, least)
  for _, key in ipairs(util.sorted_keys(least)) do
    local v = o[key]
    if v ~= nil and (math.type(v) == nil or not (v >= least[key] and v < math.huge)) then
      fail("usage", "optim.%s: %s must be a number >= %s, got %s", what, key, least[key],
           tostring(v))
    end
  end
  return o
end

-- Checks that option `key` is one of these words.
local function word(what, o, key, words)
  for _, w in ipairs(words) do if o[key] == w then return end end
  fail("usage", "optim.%s: %s: %s", what, key, util.suggest(tostring(o[key]), words))
end

-- The position in the run, from 0, and the length of the run, both in the unit `by`.
local function place(by, epoch, epochs, at)
  if by == "step" and at then return at.step - 1, at.steps end
  return epoch - 1, epochs
end

-- Linear warm-up over the first `warmup` epochs (updates, by = "step"): update i of n has i / n of
-- the following schedule's rate. Like LinearLR with start_factor 1 / n.
local function warm(rate, warmup, by)
  if warmup == 0 then return rate end
  return function(lr, epoch, epochs, at)
    local share = epoch / warmup
    if at then share = at.step / (by == "step" and warmup or warmup * at.steps / epochs) end
    return rate(lr, epoch, epochs, at) * math.min(share, 1)
  end
end

-- A schedule of rate(lr, i, n): i from 0 of n, in epochs or updates according to `by`.
local function schedule(name, o, rate)
  word(name, o, "by", { "epoch", "step" })
  local function by_place(lr, epoch, epochs, at)
    return rate(lr, place(o.by, epoch, epochs, at))
  end
  return { name = name, rate = warm(by_place, o.warmup, o.by) }
end

local HIGH = 0.2 -- of the first rate; a higher rate at the end causes a warning

-- floor + (lr - floor) (1 + cos(pi i / t_max)) / 2, as CosineAnnealingLR. t_max defaults to the
-- whole run. After t_max the formula rises again, and so does the rate; with clamp = true it stays
-- at the floor.
function M.cosine(o)
  o = options("optim.cosine", o, { t_max = none, floor = 0, warmup = 0, clamp = false,
                                   by = "epoch" })
  numbers("cosine", o, { t_max = 1, floor = 0, warmup = 0 })
  local s = schedule("cosine", o, function(lr, i, n)
    local t_max = o.t_max or n
    if o.clamp and i > t_max then i = t_max end
    return o.floor + (lr - o.floor) * (1 + math.cos(math.pi * i / t_max)) / 2
  end)
  -- A warning if the rate rises again before the end, or is still high there. The script's own
  -- defaults are taken as intended; their combination with options of the command line may not be.
  function s.warning(lr, epochs)
    local t_max, known = o.t_max, config.declared
    local meant = known.t_max and known.epochs and not (config.given.t_max or config.given.epochs
                                                        or config.given.schedule)
    if not t_max or o.clamp and t_max < epochs or o.by == "step" or meant then return nil end
    -- the options of the command line, if the script has them
    local function option(key, text) return known[key] and " (" .. text .. ")" or "" end
    local falls = string.format("t_max = %d%s lets it fall to the end", epochs,
                                option("t_max", "--t_max " .. epochs))
    local last = s.rate(lr, epochs, epochs)
    if t_max > epochs and last > HIGH * lr then
      return string.format("cosine: t_max %d is longer than %d epochs, so the rate ends at %.3g of "
                           .. "%.3g; %s", t_max, epochs, last, lr, falls)
    end
    if epochs - 1 <= t_max then return nil end
    return string.format(
      "cosine: t_max %d is shorter than %d epochs, so the rate climbs again from epoch %d "
      .. "to %.3g at the end; %s, clamp = true%s keeps it at the floor", t_max, epochs, t_max + 2,
      last, falls, option("clamp", "--clamp"))
  end
  return s
end

-- lr * gamma^floor(i / every), as StepLR; `at`: a factor gamma at each of these positions, as
-- MultiStepLR.
function M.step(o)
  o = options("optim.step", o, { every = 30, at = none, gamma = 0.1, warmup = 0, by = "epoch" })
  numbers("step", o, { every = 1, gamma = 0, warmup = 0 })
  local good = o.at == nil or type(o.at) == "table" and #o.at > 0
  for _, v in ipairs(good and o.at or {}) do good = good and math.type(v) ~= nil end
  if not good then
    fail("usage", "optim.step: at must be a list of numbers, got %s", tostring(o.at))
  end
  return schedule("step", o, function(lr, i)
    local times = i // o.every
    if o.at then
      times = 0
      for _, from in ipairs(o.at) do times = times + (i >= from and 1 or 0) end
    end
    return lr * o.gamma ^ times
  end)
end

-- lr * gamma^i, as ExponentialLR.
function M.exponential(o)
  o = options("optim.exponential", o, { gamma = 0.95, warmup = 0, by = "epoch" })
  numbers("exponential", o, { gamma = 0, warmup = 0 })
  return schedule("exponential", o, function(lr, i) return lr * o.gamma ^ i end)
end

-- lr * (1 - i / n)^power, as PolynomialLR over the whole run.
function M.poly(o)
  o = options("optim.poly", o, { power = 0.9, warmup = 0, by = "epoch" })
  numbers("poly", o, { power = 0, warmup = 0 })
  return schedule("poly", o, function(lr, i, n) return lr * math.max(1 - i / n, 0) ^ o.power end)
end

-- A constant rate after a warm-up of so many epochs, or updates with { by = "step" }.
function M.warmup(count, o)
  o = options("optim.warmup", o, { by = "epoch" })
  numbers("warmup", { count = count or false }, { count = 0 })
  o.warmup = count
  return schedule("warmup", o, function(lr) return lr end)
end

-- Rises from lr / div to lr over `rise` of all updates, then falls to lr / div / final_div, each as
-- half a cosine or linear: OneCycleLR without its momentum. three_phase: falls to the first rate in
-- as many updates as the rise took, then to the end.
function M.onecycle(o)
  o = options("optim.onecycle", o, { rise = 0.3, div = 25, final_div = 1e4, anneal = "cosine",
                                     three_phase = false })
  numbers("onecycle", o, { rise = 0, div = 1, final_div = 1 })
  word("onecycle", o, "anneal", { "cosine", "linear" })
  if o.rise > (o.three_phase and 0.5 or 1) then
    fail("usage", "optim.onecycle: rise must be at most %s, got %s",
         o.three_phase and "0.5 with three_phase" or "1", tostring(o.rise))
  end
  local function between(from, to, share)
    if o.anneal == "linear" then return from + (to - from) * share end
    return to + (from - to) / 2 * (1 + math.cos(math.pi * share))
  end
  return { name = "onecycle", rate = function(lr, epoch, epochs, at)
    local i, n = place("step", epoch, epochs, at)
    local top = o.rise * n - 1 -- the position of the highest rate
    local low = lr / o.div
    local legs = { { top, lr }, { n - 1, low / o.final_div } }
    if o.three_phase then table.insert(legs, 2, { 2 * top, low }) end
    local from, rate = 0, low
    for k, leg in ipairs(legs) do
      if i <= leg[1] or k == #legs then
        local share = leg[1] > from and (i - from) / (leg[1] - from) or 1
        return between(rate, leg[2], math.min(share, 1))
      end
      from, rate = leg[1], leg[2]
    end
  end }
end

-- The rate falls by `factor`, down to `floor`, when the value `monitor` has not improved for more
-- than `patience` epochs; then `cooldown` epochs do not count. An improvement is larger than the
-- share `threshold` of the best (relative), or than `threshold` itself. Like ReduceLROnPlateau.
-- monitor and mode default to `best` of the recipe.
function M.plateau(o)
  o = options("optim.plateau", o, { factor = 0.1, patience = 10, threshold = 1e-4,
                                    relative = true, cooldown = 0, floor = 0, warmup = 0,
                                    monitor = none, mode = none, by = "epoch" })
  numbers("plateau", o, { factor = 0, patience = 0, threshold = 0, cooldown = 0, floor = 0,
                          warmup = 0 })
  if o.factor >= 1 then
    fail("usage", "optim.plateau: factor must be below 1, got %s", tostring(o.factor))
  end
  if o.mode ~= nil then word("plateau", o, "mode", { "min", "max" }) end
  return {
    name = "plateau", monitor = { o.monitor, o.mode },
    rate = warm(function(lr, _, _, at) return at and at.state and at.state.lr or lr end, o.warmup,
                o.by),
    start = function() return { bad = 0, cooldown = 0 } end,
    -- after an epoch: `value` by `mode`, and the optimiser's rate
    observe = function(state, value, mode, lr)
      local finite = value - value == 0 -- an infinite value would be the best for ever
      local margin = o.threshold * (o.relative and (state.best or 0) or 1)
      local better = state.best == nil
        or (mode == "max" and value > state.best + margin)
        or (mode == "min" and value < state.best - margin)
      if better and finite then
        state.best, state.bad = value, 0
      else
        state.bad = state.bad + 1
      end
      if state.cooldown > 0 then state.cooldown, state.bad = state.cooldown - 1, 0 end
      if state.bad <= o.patience then return end
      local rate = state.lr or lr
      local lower = math.max(rate * o.factor, o.floor)
      -- PyTorch's eps: a negligible change is not made
      if rate - lower > 1e-8 then state.lr = lower end
      state.cooldown, state.bad = o.cooldown, 0
    end,
  }
end

-- Checks that s is a schedule without memory, as a part of a list.
local function part(what, s)
  if type(s) ~= "table" or type(s.rate) ~= "function" then
    fail("usage", "optim.%s: every part must be a schedule, got %s", what, type(s))
  end
  if s.observe then
    fail("usage", "optim.%s: plateau depends on measured values, not on the epoch, and cannot be a "
         .. "part; give it warmup = N instead", what)
  end
  return s
end

-- Schedules in sequence: { { epochs = 5, a }, { epochs = 10, b }, c }. Each counts from its own
-- first epoch and has the given length; the last lasts to the end. Like SequentialLR.
function M.chain(list)
  local parts = {}
  for i, entry in ipairs(type(list) == "table" and list or {}) do
    local last = i == #list
    if type(entry) ~= "table" then part("chain", entry) end
    local s = part("chain", entry.rate and entry or entry[1])
    local long = entry.epochs
    if last and long ~= nil or not last and (math.type(long) ~= "integer" or long < 1) then
      fail("usage", "optim.chain: part %d: %s", i,
           last and "the last part lasts to the end; leave epochs out"
           or "give its length: { epochs = 5, schedule }")
    end
    parts[i] = { s = s, epochs = long }
  end
  if #parts == 0 then fail("usage", "optim.chain: a list of schedules is missing") end
  return { name = "chain", rate = function(lr, epoch, epochs, at)
    local each = at and at.steps / epochs -- updates an epoch
    local before = 0
    for i, p in ipairs(parts) do
      local long = p.epochs or math.max(epochs - before, 1)
      if i == #parts or epoch <= before + long then
        return p.s.rate(lr, epoch - before, long, at
                        and { step = at.step - before * each, steps = long * each })
      end
      before = before + long
    end
  end }
end

-- The product of several schedules: lr times the factor of each. Like ChainedScheduler.
function M.product(list)
  if type(list) ~= "table" or #list == 0 then
    fail("usage", "optim.product: a list of schedules is missing")
  end
  for _, s in ipairs(list) do part("product", s) end
  return { name = "product", rate = function(lr, epoch, epochs, at)
    local rate = lr
    for _, s in ipairs(list) do
      rate = lr > 0 and rate * (s.rate(lr, epoch, epochs, at) / lr) or 0
    end
    return rate
  end }
end

M.constant = { name = "constant", rate = function(lr) return lr end }

return M
