-- optim.lua -- optimisers and learning-rate schedules: tables and pure
-- functions, no hidden state.
--
-- An optimiser is {kind=, lr=, clip_norm=, ...numbers of its row}. A schedule
-- is {name=, rate=function(lr, epoch, epochs)}: the rate of an epoch counted
-- from 1; it may look at `epoch` only, so a resumed run needs no state.

local config = require "seg.config"
local util = require "seg.util"

local options, none, fail = util.options, util.none, util.fail
local M = {}

-- Optimisers ------------------------------------------------------------------

local function optimiser(kind, known)
  known.lr, known.clip_norm = none, 0
  M[kind] = function(o)
    o = options("optim." .. kind, o, known)
    if type(o.lr) ~= "number" or not (o.lr >= 0 and o.lr < math.huge) then
      fail("usage", "optim.%s: lr must be a number >= 0, got %s", kind, tostring(o.lr))
    end
    if o.betas ~= nil and (type(o.betas) ~= "table" or #o.betas ~= 2) then
      fail("usage", "optim.%s: betas must be two numbers {b1, b2}", kind)
    end
    if o.betas then
      o.beta1, o.beta2, o.betas = o.betas[1], o.betas[2], nil
    end
    for k, v in pairs(o) do
      if k ~= "nesterov" and not (math.type(v) and v >= 0 and v < math.huge) then
        fail("usage", "optim.%s: %s must be a number >= 0, got %s", kind, k, tostring(v))
      end
    end
    if o.nesterov ~= nil then o.nesterov = o.nesterov and 1 or 0 end
    o.kind = kind
    return o
  end
end

-- Decoupled weight decay (Loshchilov & Hutter 2019).
optimiser("adamw", { beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0.01, betas = none })
-- `decay` is added to the gradient (L2).
optimiser("adam", { beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0, betas = none })
optimiser("sgd", { momentum = 0, nesterov = false, decay = 0 })

-- Schedules -------------------------------------------------------------------

-- Options of a schedule: numbers >= `least`, as the formula needs them.
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

-- Linear from near 0 over the first `warmup` epochs, times what follows.
local function warm(rate, warmup)
  return function(lr, epoch, epochs)
    local share = warmup > 0 and math.min(epoch / warmup, 1) or 1
    return rate(lr, epoch, epochs) * share
  end
end

-- floor + (lr - floor) (1 + cos(pi (epoch-1) / t_max)) / 2, as PyTorch's
-- CosineAnnealingLR stepped once an epoch. t_max defaults to all epochs. Past
-- t_max the formula climbs again (which trains on at a rising rate: clamp=true
-- stays at the floor).
function M.cosine(o)
  o = options("optim.cosine", o, { t_max = none, floor = 0, warmup = 0, clamp = false })
  numbers("cosine", o, { t_max = 1, floor = 0, warmup = 0 })
  local function rate(lr, epoch, epochs)
    local t_max, at = o.t_max or epochs, epoch - 1
    if o.clamp and at > t_max then at = t_max end
    return o.floor + (lr - o.floor) * (1 + math.cos(math.pi * at / t_max)) / 2
  end
  return {
    name = "cosine",
    rate = warm(rate, o.warmup),
    -- a sentence when the rate rises again before the end
    warning = function(lr, epochs)
      if not o.t_max or o.clamp or epochs - 1 <= o.t_max then return nil end
      -- the options of the command line, where the script has them
      local function option(key, text) return config.declared[key] and " (" .. text .. ")" or "" end
      return string.format(
        "cosine: t_max %d is shorter than %d epochs, so the rate climbs again from epoch %d "
        .. "to %.3g at the end; t_max = %d%s lets it fall to the end, clamp = true%s keeps it at "
        .. "the floor", o.t_max, epochs, o.t_max + 2, rate(lr, epochs, epochs), epochs,
        option("t_max", "--t_max " .. epochs), option("clamp", "--clamp"))
    end,
  }
end

-- lr * gamma^floor((epoch-1) / every)
function M.step(o)
  o = options("optim.step", o, { every = 30, gamma = 0.1, warmup = 0 })
  numbers("step", o, { every = 1, gamma = 0, warmup = 0 })
  return { name = "step", rate = warm(function(lr, epoch)
    return lr * o.gamma ^ ((epoch - 1) // o.every)
  end, o.warmup) }
end

-- lr * (1 - (epoch-1) / epochs)^power
function M.poly(o)
  o = options("optim.poly", o, { power = 0.9, warmup = 0 })
  numbers("poly", o, { power = 0, warmup = 0 })
  return { name = "poly", rate = warm(function(lr, epoch, epochs)
    return lr * (1 - (epoch - 1) / epochs) ^ o.power
  end, o.warmup) }
end

-- The same rate throughout, after a warm-up of so many epochs.
function M.warmup(epochs)
  numbers("warmup", { epochs = epochs or false }, { epochs = 0 })
  return { name = "warmup", rate = warm(function(lr) return lr end, epochs) }
end

M.constant = { name = "constant", rate = function(lr) return lr end }

return M
