-- bench.lua -- the command bench: measured time of every layer, of a step and of an inference, on
-- random numbers or the first batch of the data; medians over rounds.

local core = require "seg.core"
local budget = require "seg.train.budget"
local config = require "seg.recipe.config"
local footprint = require "seg.train.footprint"
local opened = require "seg.data.opened"
local recipes = require "seg.recipe.recipe"
local plans = require "seg.inspect.plan"
local show = require "seg.show"
local traces = require "seg.inspect.trace"
local util = require "seg.util"

local M = {}

M.ROUNDS = 5

-- An array (N,1) with `batch` times the number v.
local function constant(batch, v)
  local list = {}
  for i = 1, batch do list[i] = v end
  return core.array { shape = { batch, 1 }, data = list }
end

-- Inputs that keep every operator busy: uniform numbers, 0 or 1 for a target, and the full length
-- for a length.
function M.feeds(r, batch)
  local feeds, steps = {}, 1
  local lengths = core.length_inputs { r.loss }
  for i, input in ipairs(r.inputs) do
    local shape = input.shape
    shape[1] = batch
    steps = math.max(steps, input.w)
    if not lengths[input.name] then
      feeds[input.name] = core.array.random(shape, i, i > 1)
    end
  end
  for name in pairs(lengths) do feeds[name] = constant(batch, steps) end
  return feeds
end

-- The first batch of training if the command line gives data (--data or --phantom): sequences then
-- have their real lengths, and structures their few voxels. Else random numbers, which need no
-- data. -> feeds, the loader of the batch
local function feeds_of(r, v)
  if not v.data and v.phantom == "" then return M.feeds(r, v.batch) end
  opened.fit_numbers(r)
  local d = opened.open(r, r.train)
  return opened.feeds(d.loader:next(), d.names, r), d.loader
end

-- The calls of a step, in order, with median milliseconds over rounds.
function M.calls(session, feeds)
  local calls
  session:time(feeds, true) -- warm-up: the first round allocates memory
  for round = 1, M.ROUNDS do
    local times = session:time(feeds, true)
    calls = calls or times
    for i, c in ipairs(times) do
      calls[i].all = calls[i].all or {}
      calls[i].all[round] = c.ms
    end
  end
  for _, c in ipairs(calls) do c.ms = util.median(c.all) end
  return calls
end

-- Copies a batch into the memory of the device. -> the inputs of a step: the held batch, or the
-- feeds where the device has no queue or no room; whether it is held
local function hold(session, feeds)
  local held = session:facts().ahead > 0 and session:hold(feeds)
  if not held then return feeds, false end
  local given = {}
  for name in pairs(feeds) do given[name] = held end
  return given, true
end

-- Median milliseconds of a whole step, including the update and the copy of the batch; a rate of 0
-- keeps the weights from diverging over the rounds. A device with a queue gets its steps as in
-- training: as many as it may queue, on a batch in its memory (as with --device_dataset); the time
-- is then the mean over these steps. clip: the recipe's maximum norm of the gradient, as clipping
-- is part of its step. -> milliseconds, whether the batch was in the memory of the device
function M.step_ms(session, feeds, clip)
  local given, held = hold(session, feeds)
  local count, all = held and session:facts().ahead or 1, {}
  if held then -- the first step runs call by call, the second is captured as a CUDA graph
    for _ = 1, 2 do session:step(given, { lr = 0, clip = clip }) end
  end
  for i = 1, M.ROUNDS do
    local started = core.sys.clock()
    for _ = 1, count do session:queue(given, { lr = 0, clip = clip }) end
    for _ = 1, count do session:collect(true) end
    all[i] = 1e3 * (core.sys.clock() - started) / count
  end
  return util.median(all), held
end

-- Median milliseconds of an inference: the outputs of a batch with running statistics, without loss
-- and dropout, as predict computes them, until they are in the memory of the device. The batch is
-- held and several inferences are queued as in step_ms. -> milliseconds
function M.infer_ms(r, feeds)
  local session, all = recipes.session(r, "predict"), {}
  local given, held = hold(session, feeds)
  local count = held and session:facts().ahead or 1
  local function run()
    for _ = 2, count do session:forward(given, false, {}) end
    session:forward(given, false) -- waits for all of them
  end
  run() -- warm-up: the first call plans and allocates
  for i = 1, M.ROUNDS do
    local started = core.sys.clock()
    run()
    all[i] = 1e3 * (core.sys.clock() - started) / count
  end
  session:close()
  return util.median(all)
end

-- A session of the recipe after one step, and the bytes that it allocated on its device, as counted
-- by the device or the system: weights, gradients, moments, the arena, and a GPU's upload buffers.
-- The buffers that convert the inputs to channels-last are freed by then.
local function open(r, feeds)
  local before = core.sys.machine().now_bytes
  local session = recipes.session(r, "train")
  local room = (session:room())
  session:step(feeds, { lr = 0 })
  local facts = session:facts()
  if facts.device ~= "cuda" then return session, core.sys.machine().now_bytes - before end
  -- the device counts its arena as free
  return session, room - ((session:room()) - facts.pool_bytes) + facts.param_bytes
end

-- The trace of the device, from the events between its calls: the host launches a step once and
-- sees no calls.
local function trace_device(session, feeds)
  local from, at = core.sys.clock(), 0
  local spans = { forward = {}, backward = {} }
  for _, c in ipairs(session:time(feeds, true)) do
    local side = spans[c.backward and "backward" or "forward"]
    local to = at + 1e-3 * c.ms
    traces.now:span("device", c.name ~= "" and c.name or c.kind, c.kind, from + at, from + to)
    traces.now:count("arena", c.live, from + at)
    side.from, side.to, at = side.from or from + at, from + to, to
  end
  for name, side in pairs(spans) do
    if side.from then traces.now:span("device", name, "run", side.from, side.to) end
  end
end

-- Kernels and copies of a whole step, with the gaps between them, in the row "kernels"; and a step
-- as one launch of a CUDA graph, which took `ms`, in the row "graph". The step is launched call by
-- call behind others that are queued before it: so the GPU does not wait for the host, and a gap is
-- one of the GPU and of the two events around each launch (some microseconds together).
local function trace_kernels(session, feeds, ms)
  local given, options, count = hold(session, feeds), { lr = 0 }, session:facts().ahead
  for _ = 1, count do session:queue(given, options) end
  local from = core.sys.clock()
  local list = session:launch_times(given, options)
  for _ = 1, count + 1 do session:collect(true) end
  local busy = 0
  for _, l in ipairs(list) do
    busy = busy + l.to - l.from
    local layer = (l.name ~= "" and l.name .. ", " or "") .. l.kind
    traces.now:span("kernels", l.launch, layer .. (l.backward and ", backward" or ""),
                    from + 1e-3 * l.from, from + 1e-3 * l.to)
  end
  traces.now:span("graph", "step", "graph", from, from + 1e-3 * ms)
  local all = list[#list].to
  show.line("kernels: %s in %.2f ms, with gaps of %.2f ms in all; as a graph a step takes %.2f ms",
            util.plural(#list, "launch", "launches"), all, all - busy, ms)
end

-- One step for --trace, after the measured ones, because recording takes time.
local function trace_step(session, feeds, ms)
  if not traces.now then return end
  if session:facts().device == "cuda" then
    trace_device(session, feeds)
    trace_kernels(session, feeds, ms)
  end
  session:trace(traces.now)
  session:step(feeds, { lr = 0 })
  session:trace(nil)
  traces.close()
end

-- The command bench. Forward and backward of one layer are one row; its GFLOP/s count three times
-- the forward arithmetic: y, dx, dw. The first layer has no dx, so its number is up to
-- a half too high.
function M.command(r)
  local v = config.ensure()
  footprint.check(r, "train") -- checked before the data are opened, which happens before a session
  local flops, feeds, loader = {}, feeds_of(r, v)
  traces.open()
  local session, measured = open(r, feeds)
  local plan = plans.plan(r, v.batch, true, { session = session })
  for _, row in ipairs(plan.rows) do flops[row.name .. "/" .. row.kind] = row.flops end
  local calls, layers, order = M.calls(session, feeds), {}, {}
  for _, c in ipairs(calls) do
    local key = c.name .. "/" .. c.kind
    if not layers[key] then
      layers[key] = { name = c.name, kind = c.kind, forward = 0, backward = 0 }
      order[#order + 1] = key
    end
    local side = c.backward and "backward" or "forward"
    layers[key][side] = layers[key][side] + c.ms
  end
  local rows, sums = { { "layer", "kind", "forward ms", "backward ms", "GFLOP/s" } }, { 0, 0 }
  for _, key in ipairs(order) do
    local l, f = layers[key], flops[key] or 0
    sums[1], sums[2] = sums[1] + l.forward, sums[2] + l.backward
    rows[#rows + 1] = { l.name ~= "" and l.name or "-", l.kind,
                        string.format("%.2f", l.forward), string.format("%.2f", l.backward),
                        f > 0 and string.format("%.0f", 3 * f / (l.forward + l.backward) / 1e6)
                          or "" }
  end
  rows[#rows + 1] = { "sum", "", string.format("%.1f", sums[1]), string.format("%.1f", sums[2]),
                      "" }
  local ms, held = M.step_ms(session, feeds, r.optim.clip_norm)
  local planned = plan.bytes + plan.param_bytes + plan.upload_bytes
  trace_step(session, feeds, ms)
  local facts = session:facts()
  session:close() -- the next one may need its memory
  local infer_ms = M.infer_ms(r, feeds)
  if loader then loader:close() end
  if config.line.flags.json then
    print(util.json { batch = v.batch, fed = loader and "data" or "random", held = held,
                      recompute = budget.describe(plan) or "off", step_ms = ms,
                      infer_ms = infer_ms, forward_ms = sums[1], backward_ms = sums[2],
                      threads = facts.threads, planned_bytes = planned,
                      measured_bytes = measured })
    return 0
  end
  print(show.table(rows))
  print("device: " .. show.device(facts, v))
  print(string.format("training step, batch %d%s%s, %s%s: %.1f ms (median of %d), "
                      .. "%.2f samples/s", v.batch, loader and " of the data" or "",
                      held and " kept on the device" or "",
                      show.threads(facts), v.precision == "f32" and ""
                      or ", " .. show.precision(facts.device, v.precision),
                      ms, M.ROUNDS, 1e3 * v.batch / ms))
  print(string.format("inference of the same batch: %.2f ms, %.2f samples/s", infer_ms,
                      1e3 * v.batch / infer_ms))
  print(string.format("memory: planned %s for arena%s weights%s, measured %s (%+.1f %%)",
                      util.bytes(planned), plan.upload_bytes > 0 and "," or " and",
                      plan.upload_bytes > 0 and " and uploads" or "", util.bytes(measured),
                      100 * (measured / planned - 1)))
  local recompute = budget.describe(plan)
  if recompute then print("recompute: " .. recompute) end
  return 0
end

return M
