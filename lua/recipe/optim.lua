-- optim.lua -- optimisers, and the names of the schedules in a recipe.
--
-- An optimiser is {kind=, lr=, clip_norm=, groups=, decay_on=, ...numbers of its row}; the rows are
-- in engine/graph/optim.def.

local group = require "seg.recipe.group"
local schedule = require "seg.recipe.schedule"
local util = require "seg.util"

local options, none, fail = util.options, util.none, util.fail
local M = {}

local function optimiser(kind, known)
  known.lr, known.clip_norm = none, 0
  known.groups, known.decay_on = none, "all"
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
    group.check("optim." .. kind, o)
    local other = { nesterov = true, groups = true, decay_on = true }
    for k, v in pairs(o) do
      if not other[k] and not (math.type(v) and v >= 0 and v < math.huge) then
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
-- Rectified Adam: the rate is reduced while the variance estimate is uncertain (Liu et al. 2020);
-- `decay` as in adam.
optimiser("radam", { beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0, betas = none })
optimiser("sgd", { momentum = 0, nesterov = false, decay = 0 })

for name, f in pairs(schedule) do M[name] = f end

return M
