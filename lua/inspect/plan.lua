-- plan.lua -- the command plan: memory, parameters and arithmetic of a recipe, exact, before
-- anything is opened.

local core = require "seg.core"
local budget = require "seg.train.budget"
local config = require "seg.recipe.config"
local recipes = require "seg.recipe.recipe"
local gpus = require "seg.inspect.gpus"
local scaling = require "seg.inspect.scaling"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

-- The shapes of the inputs for a batch; the axes of images are multiplied by `scale`.
local function extents(r, batch, scale)
  local inputs = {}
  for _, input in ipairs(r.inputs) do
    local shape = input.shape
    shape[1] = batch
    for i = 3, #shape do shape[i] = math.ceil(shape[i] * (scale or 1)) end
    inputs[input.name] = shape
  end
  return inputs
end

-- The plan of one step of this recipe: training, or evaluation. change: another `scale` of the
-- images, `device`, `capability` of a GPU that need not be present, `optim` or `precision`;
-- recompute: "off"; "given": within the bytes of --recompute, if it is a number, and unlimited for
-- `auto`; "least": the smallest memory; nil: as --recompute says, `auto` with the memory that is
-- free at present, or that `session` has.
function M.plan(r, batch, train, change)
  change = change or {}
  local v, inputs = config.ensure(), extents(r, batch, change.scale)
  local function planned(bytes, near)
    return core.plan { roots = recipes.roots(r), step_roots = recipes.step_roots(r),
                       loss = r.loss, inputs = inputs,
                       device = change.device or v.device, capability = change.capability,
                       precision = change.precision or v.precision,
                       threads = v.threads, winograd = v.winograd, tiles = v.tiles,
                       optim = train and (change.optim or r.optim) or nil,
                       frozen = train and r.frozen or nil, budget = bytes, least = near,
                       average = train and recipes.averages(r), plain = not v.fuse }
  end
  local how = change.recompute
  if how == "least" then return planned(1, true) end
  if not train or how == "off" or (how == "given" and v.recompute == "auto") then
    return planned()
  end
  local plan = planned()
  local bytes, near = budget.arena(v.device, plan.param_bytes, change.session)
  return bytes and bytes < plan.bytes and planned(bytes, near) or plan
end

-- The table of layers; arithmetic of one sample, memory of the batch.
local function rows_text(plan, batch)
  local rows = { { "layer", "kind", "shape", "parameters", "MFLOP", "value", "extra" } }
  if plan.recompute_calls > 0 then rows[1][8] = "again" end
  for _, row in ipairs(plan.rows) do
    rows[#rows + 1] = {
      row.name ~= "" and row.name or "-", row.kind, row.shape,
      row.params > 0 and util.thousands(row.params) or "",
      row.flops > 0 and string.format("%.1f", row.flops / batch / 1e6) or "",
      util.bytes(row.value_bytes), row.extra_bytes > 0 and util.bytes(row.extra_bytes) or "",
      row.again and "again" or nil }
  end
  return show.table(rows)
end

-- Launches ----------------------------------------------------------------------

-- The launches of one training step on a GPU, each with its least time in microseconds (a call
-- whose launches report no bytes is counted at its first launch); and the sums, with the memory of
-- the step, whose arena depends on the kernels of that GPU.
local function launches(r, gpu)
  local v = config.ensure()
  local plan = M.plan(r, v.batch, true, { capability = gpu.capability })
  local bytes = budget.arena(v.device, plan.param_bytes)
  local list, arena = core.launches { roots = recipes.roots(r), step_roots = recipes.step_roots(r),
                               loss = r.loss, device = "cuda",
                               inputs = extents(r, v.batch), optim = r.optim, frozen = r.frozen,
                               precision = v.precision, winograd = v.winograd,
                               tiles = v.tiles, budget = bytes, plain = not v.fuse,
                               capability = gpu.capability }
  local sum = { nodes = #list, kernels = 0, bytes = 0.0, flops = 0.0, floor_us = 0.0,
                arena_bytes = arena, param_bytes = plan.param_bytes,
                upload_bytes = plan.upload_bytes }
  for _, l in ipairs(list) do
    -- the name in the source, without template arguments
    l.launch = l.launch:gsub("^%(", ""):gsub("%)$", ""):gsub("<.*", "")
    l.floor_us = gpus.floor_us(gpu, l.bytes, l.flops, v.precision)
    sum.kernels = sum.kernels + (l.grid and 1 or 0)
    for _, key in ipairs { "bytes", "flops", "floor_us" } do sum[key] = sum[key] + l[key] end
  end
  return list, sum
end

-- { 64, 2, 1 } as 64x2; empty for nil.
local function extent_text(e)
  if not e then return "" end
  return (table.concat(e, "x"):gsub("x1$", ""):gsub("x1$", ""))
end

local function launches_text(list)
  local rows = { { "layer", "call", "launch", "grid", "block", "shared", "MB", "GFLOP",
                   "floor us" } }
  local function number(fmt, v) return v > 0 and string.format(fmt, v) or "" end
  for _, l in ipairs(list) do
    rows[#rows + 1] = {
      l.name ~= "" and l.name or "-", l.kind .. (l.backward and " back" or ""), l.launch,
      extent_text(l.grid), extent_text(l.block), number("%d", l.shared),
      number("%.2f", l.bytes / 1e6), number("%.2f", l.flops / 1e9), number("%.1f", l.floor_us) }
  end
  return show.table(rows)
end

-- plan --gpu MODEL: the launches of one training step.
local function launch_plan(r, name)
  local v, gpu = config.ensure(), gpus.find(name)
  if not budget.on_gpu(v.device) then
    util.refuse("--gpu: the device %s launches no kernels; use --device cuda", v.device)
  end
  if not core.build:find("CUDA yes", 1, true) then
    util.refuse("--gpu: this program was built without CUDA, and its launches depend on the "
                .. "kernels; build it where nvcc is")
  end
  local list, sum = launches(r, gpu)
  if config.line.flags.json then
    sum.gpu, sum.batch, sum.precision, sum.launches = gpu.name, v.batch, v.precision, list
    print(util.json(sum))
    return 0
  end
  print(launches_text(list))
  print()
  print(string.format("one training step, batch %d, %s: %d nodes (%d kernels), %.2f GB, "
                      .. "%.1f GFLOP", v.batch, v.precision, sum.nodes, sum.kernels,
                      sum.bytes / 1e9, sum.flops / 1e9))
  print(string.format("floor on %s (%d GB/s, %g TFLOP/s): %.2f ms, %.0f samples/s", gpu.text,
                      gpu.bandwidth, gpus.rate(gpu, v.precision), sum.floor_us / 1e3,
                      1e6 * v.batch / sum.floor_us))
  print(string.format("memory: %s (arena %s, weights with gradients and optimiser state %s), and "
                      .. "%s for uploads", util.bytes(sum.arena_bytes + sum.param_bytes),
                      util.bytes(sum.arena_bytes), util.bytes(sum.param_bytes),
                      util.bytes(sum.upload_bytes)))
  print("bytes: each launch reads each operand once and writes each result once")
  return 0
end

-- plan --ranks N: the data that ranks exchange in a step. -> text above the table, table, values
-- for --json; nothing for a single process
local function exchange(r, ranks)
  if ranks == 1 then return end
  local v, ms = config.ensure(), tonumber(config.line.flags.step_ms)
  if config.line.flags.step_ms and not (ms and ms > 0) then
    util.refuse("--step_ms %s: need milliseconds above 0, as bench prints",
                config.line.flags.step_ms)
  end
  -- a shard of the batch has the same layers
  local plan = M.plan(r, v.batch, true, { recompute = "off" })
  return scaling.describe(scaling.of_plan(plan, v), ranks, ms)
end

-- The convolutions of a plan with their shapes, for tests/gpu/sweep.c.
local function convolutions(plan)
  local list = {}
  for _, row in ipairs(plan.rows) do
    local one = row.convolution
    if one then
      one.name, list[#list + 1] = row.name, one
    end
  end
  return list
end

-- The command plan. FLOPs count a multiplication and an addition as two.
function M.command(r)
  local v = config.ensure()
  if config.line.flags.gpu then return launch_plan(r, config.line.flags.gpu) end
  local train, eval = M.plan(r, v.batch, true), M.plan(r, v.batch, false)
  local said, links, exchanged = exchange(r, v.ranks)
  if config.line.flags.json then
    local list = convolutions(train)
    train.rows, eval.rows = nil, nil -- the JSON has only the sums
    print(util.json { batch = v.batch, train = train, evaluate = eval, exchange = exchanged,
                      convolutions = list })
    return 0
  end
  print(rows_text(train, v.batch))
  print()
  print(string.format("parameters   %s trained + %s running statistics = %s",
                      util.thousands(train.trained), util.thousands(train.running),
                      util.thousands(train.trained + train.running)))
  print(string.format("arithmetic   %.2f GFLOP forward a sample (matrix products)",
                      train.flops / v.batch / 1e9))
  print(string.format("batch        %d", v.batch))
  if v.precision ~= "f32" then
    print("precision    " .. show.precision(v.device, v.precision))
  end
  for _, p in ipairs { { "training", train }, { "evaluation", eval } } do
    print(string.format("%-12s arena %s bytes (%s; %s without sharing), %d calls", p[1],
                        util.thousands(p[2].bytes), util.bytes(p[2].bytes),
                        util.bytes(p[2].naive_bytes), p[2].calls)
          .. (p[2].microbatched > 0
              and string.format(", %d of them for a few samples at a time", p[2].microbatched)
              or ""))
  end
  if train.activation_bytes > 0 then
    print(string.format("kept         %s bytes (%s) of the forward run until the way back",
                        util.thousands(train.activation_bytes), util.bytes(train.activation_bytes)))
  end
  local recompute = budget.describe(train)
  if recompute then print("recompute    " .. recompute) end
  print(string.format("weights      %s bytes with gradients and optimiser state%s",
                      util.thousands(train.param_bytes),
                      recipes.averages(r) and ", and their average" or ""))
  if train.upload_bytes > 0 then
    print(string.format("uploads      %s bytes on the device, for one batch",
                        util.thousands(train.upload_bytes)))
  end
  local limit, all = budget.limit(), math.max(train.bytes, eval.bytes) + train.param_bytes
  if limit then
    print(string.format("vram         %s for arena and weights, %s given%s", util.bytes(all),
                        util.bytes(limit), all > limit and ": not enough" or ""))
  end
  if said then print(string.format("%-12s %s\n\n%s", v.ranks .. " ranks", said, links)) end
  return 0
end

return M
