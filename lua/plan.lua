-- plan.lua -- the plan command: memory, parameters and arithmetic of a recipe,
-- exact, before anything is opened.

local core = require "seg.core"
local config = require "seg.config"
local recipes = require "seg.recipe"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

-- The plan of one step of this recipe: training, or evaluation.
function M.plan(r, batch, train)
  local v = config.ensure()
  local inputs = {}
  for _, input in ipairs(r.inputs) do
    local shape = input.shape
    shape[1] = batch
    inputs[input.name] = shape
  end
  return core.plan { roots = recipes.roots(r), loss = r.loss, inputs = inputs, device = v.device,
                     precision = v.precision, threads = v.threads, optim = train and r.optim or nil,
                     frozen = train and r.frozen or nil }
end

-- The table of layers; arithmetic is a sample's, memory the batch's.
local function rows_text(plan, batch)
  local rows = { { "layer", "kind", "shape", "parameters", "MFLOP", "value", "extra" } }
  for _, row in ipairs(plan.rows) do
    rows[#rows + 1] = {
      row.name ~= "" and row.name or "-", row.kind, row.shape,
      row.params > 0 and util.thousands(row.params) or "",
      row.flops > 0 and string.format("%.1f", row.flops / batch / 1e6) or "",
      util.bytes(row.value_bytes), row.extra_bytes > 0 and util.bytes(row.extra_bytes) or "" }
  end
  return show.table(rows)
end

-- plan: the command. FLOPs count a multiplication and an addition as two.
function M.command(r)
  local v = config.ensure()
  local train, eval = M.plan(r, v.batch, true), M.plan(r, v.batch, false)
  if config.line.flags.json then
    train.rows, eval.rows = nil, nil -- the sums only
    print(util.json { batch = v.batch, train = train, evaluate = eval })
    return 0
  end
  print(rows_text(train, v.batch))
  print()
  print(string.format("parameters   %s trained + %s running statistics = %s",
                      util.thousands(train.trained), util.thousands(train.running),
                      util.thousands(train.trained + train.running)))
  print(string.format("arithmetic   %.2f GFLOP forward a sample (convolutions and linear layers)",
                      train.flops / v.batch / 1e9))
  print(string.format("batch        %d", v.batch))
  for _, p in ipairs { { "training", train }, { "evaluation", eval } } do
    print(string.format("%-12s arena %s bytes (%s; %s without sharing), %d calls", p[1],
                        util.thousands(p[2].bytes), util.bytes(p[2].bytes),
                        util.bytes(p[2].naive_bytes), p[2].calls))
  end
  print(string.format("weights      %s bytes with gradients and optimiser state",
                      util.thousands(train.param_bytes)))
  return 0
end

return M
