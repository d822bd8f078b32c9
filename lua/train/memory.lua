-- memory.lua -- text after an out-of-memory error: the memory of the plan, and changes that need
-- less. Every number is planned, none is guessed; a change that is not enough by itself is marked.

local core = require "seg.core"
local batches = require "seg.train.batch"
local budget = require "seg.train.budget"
local config = require "seg.recipe.config"
local footprint = require "seg.train.footprint"
local optim = require "seg.recipe.optim"
local recipes = require "seg.recipe.recipe"
local util = require "seg.util"

local M = {}

-- All bytes: weights and arena, and with `rest` also batches and program.
local function need(n, rest) return n.param + n.arena + (rest and n.rest or 0) end

-- The needs of the recipe with changes (footprint.of), nil if the network does not allow them. If
-- `auto` recomputes values when memory is short, every plan is the smallest one.
local function replan(r, batch, train, change)
  change = change or {}
  local how = config.values.recompute
  change.batch = batch
  change.recompute = change.recompute or train and how == "auto" and "least" or nil
  return (footprint.of(r, train and "train" or "evaluate", change))
end

-- A smaller batch: halved until it is small enough.
local function smaller_batch(r, train, now, short, rest)
  local batch, n = config.values.batch, nil
  while batch > 1 and (not n or need(now, rest) - need(n, rest) < short) do
    batch = batch // 2
    n = replan(r, batch, train)
    if not n then return nil end
  end
  if not n then return nil end
  local times = math.ceil(config.values.batch / batch) * r.accumulate
  local keep = train and string.format(" (accumulate = %d in seg.recipe keeps the step)", times)
    or ""
  return { string.format("--batch %d%s", batch, keep), need(now, rest) - need(n, rest) }
end

-- The largest batch that fits, as --batch auto finds it. o: as in M.lines.
local function auto_batch(r, train, now, o)
  if not o.early or o.room <= 0 then return nil end
  local room = budget.whole(footprint.device(), false)
  local machine = not o.device and footprint.room() or nil
  local batch = room and batches.most(r, math.min(room, o.room), train, machine)
  if not batch or batch >= config.values.batch then return nil end
  local n, rest = replan(r, batch, train), o.rest and true or false
  return n and { string.format("--batch auto (%d)", batch), need(now, rest) - need(n, rest) } or nil
end

-- Recomputation of values in the backward pass: the most that it can free. nil if it is on already.
local function computed_again(r, train, now, rest)
  if not train or config.values.recompute == "auto" then return nil end
  local n = replan(r, config.values.batch, true, { recompute = "least" })
  local frees = n and need(now, rest) - need(n, rest) or 0
  return frees > 0 and { string.format(
    "--recompute auto (up to %.0f %% of a forward run more)",
    100 * n.plan.recompute_flops / math.max(n.plan.flops, 1)), frees } or nil
end

-- A batch of 1 with recomputation, if neither alone is enough.
local function least_of_both(r, train, now, short, rest)
  if not train or config.values.recompute == "auto" or config.values.batch == 1 then return nil end
  local n = replan(r, 1, true, { recompute = "least" })
  local frees = n and need(now, rest) - need(n, rest) or 0
  return frees >= short and { "--batch 1 --recompute auto", frees } or nil
end

-- Convolutions in 16 bits, if the device has them: their operands are copies of half the size. A
-- GPU of compute capability 7.5 has f16 only.
local function half_precision(r, train, now, rest)
  local v = config.values
  if v.precision ~= "f32" and v.precision ~= "tf32" then return nil end
  for _, precision in ipairs { "bf16", "f16" } do
    local n = replan(r, v.batch, train, { precision = precision })
    local frees = n and need(now, rest) - need(n, rest) or 0
    if frees > 0 then return { "--precision " .. precision, frees } end
  end
end

-- The key of the recipe that sets the size of its images: a number of its config that equals both
-- extents of the first input. If several keys do, for example a number of channels, the key "size"
-- is taken.
local function size_key(shape)
  local found, count = nil, 0
  for _, key in ipairs(util.sorted_keys(config.values)) do
    if config.values[key] == shape[#shape] and config.values[key] == shape[#shape - 1]
      and not config.is_reserved(key) then
      if key == "size" then return key end
      found, count = key, count + 1
    end
  end
  return count == 1 and found or nil
end

-- Smaller images that the network accepts: the largest size that is enough, else the smallest.
local function smaller_images(r, train, now, short, rest)
  local shape, found = r.inputs[1].shape, nil
  if #shape < 4 then return nil end
  for _, scale in ipairs { 0.75, 0.5, 0.25 } do
    local n = replan(r, config.values.batch, train, { scale = scale })
    if n and need(n, rest) < need(now, rest) then
      local extents = {}
      for i = 3, #shape do extents[#extents + 1] = math.ceil(shape[i] * scale) end
      local key = size_key(shape)
      found = { key and string.format("--%s %d", key, extents[#extents])
                  or "images of " .. table.concat(extents, "x") .. " in the recipe",
                need(now, rest) - need(n, rest) }
      if found[2] >= short then break end
    end
  end
  return found
end

-- Bytes that must become free before the program can continue; 0 if the free memory is unknown.
-- Weights are allocated first, then gradients and moments, some of which may exist already; when
-- the arena or a later block is refused, the earlier ones are allocated.
local function shortage(now, o)
  if o.room <= 0 then return 0 end
  if o.early then return o.wanted + (o.rest or 0) - o.room end
  local plan = now.plan
  local to_come = (o.wanted == plan.weight_bytes or o.wanted == now.param) and need(now)
    or o.wanted == plan.gradient_bytes and need(now) - plan.weight_bytes or o.wanted
  return to_come - o.room
end

-- An optimiser with fewer moments.
local function fewer_moments(r, train, now, rest)
  if not train or r.optim.kind == "sgd" then return nil end
  local n = replan(r, config.values.batch, true, { optim = optim.sgd { lr = r.optim.lr } })
  local frees = n and need(now, rest) - need(n, rest) or 0
  return frees > 0 and { "optim.sgd in the recipe, for " .. r.optim.kind, frees } or nil
end

-- The lines after the error. o: wanted, room (bytes; 0: unknown), device (true: the memory of a
-- GPU), command; early: nothing is allocated yet, and rest bytes (nil: none) are needed from the
-- same memory in addition.
function M.lines(r, o)
  local v = config.values
  local train = o.command ~= "evaluate" and o.command ~= "predict"
  local rest = o.rest and true or false
  local now = replan(r, v.batch, train)
    or footprint.of(r, train and "train" or "evaluate", { recompute = "off" })
  local out, plan = {}, now.plan
  local function row(text, bytes, what)
    out[#out + 1] = string.format("  %-34s %10s%s", text, util.bytes(bytes), what or "")
  end
  out[1] = string.format("%s, batch %d%s, takes at most", train and "training"
                         or "evaluation", v.batch,
                         plan.recompute_calls > 0 and ", values computed again" or "")
  row("values", plan.peak_values)
  row("gradients of values", plan.peak_gradients)
  row("workspace of kernels", plan.peak_workspace)
  row("gaps between them", plan.bytes - plan.peak_values - plan.peak_gradients
      - plan.peak_workspace)
  if now.arena > plan.bytes then row("more of evaluation", now.arena - plan.bytes) end
  row(train and "weights, gradients, optimiser" or "weights", now.param)
  if rest then row("batches made ahead, program", now.rest) end
  -- the same comparison that failed; early it includes batches and program
  row("together", need(now, rest), string.format("; needed at once: %s%s",
      util.bytes(o.wanted + (o.early and o.rest or 0)),
      o.room > 0 and ", free: " .. util.bytes(o.room) or ""))
  if o.device then
    out[#out + 1] = "  samples kept there (--device_dataset) and places for uploads come on top"
  end
  local list = {}
  local function add(remedy) list[#list + 1] = remedy end
  local short = shortage(now, o)
  add(auto_batch(r, train, now, o))
  add(smaller_batch(r, train, now, short, rest))
  add(computed_again(r, train, now, rest))
  add(half_precision(r, train, now, rest))
  add(smaller_images(r, train, now, short, rest))
  add(fewer_moments(r, train, now, rest))
  local enough = false
  for _, e in ipairs(list) do enough = enough or e[2] >= short end
  if not enough then add(least_of_both(r, train, now, short, rest)) end
  if o.device then
    add { "--device cpu: the memory of the machine", need(now), elsewhere = true }
  elseif v.cache_mb > 0 and v.vram == "" and not rest then
    -- volumes in the cache are part of the memory of this process
    local kept = math.min(v.cache_mb << 20, core.sys.machine().now_bytes)
    add { "--cache_mb 0: volumes are read again", kept, " at most" }
  end
  out[#out + 1] = "options that need less"
  for _, e in ipairs(list) do
    out[#out + 1] = string.format("  %-58s frees %s%s%s", e[1], util.bytes(e[2]), e[3] or "",
                                  e[2] < short and not e.elsewhere and ", still too much" or "")
  end
  if o.early and o.room > 0 and now.param + (o.rest or 0) > o.room then
    out[#out + 1] = string.format("  a smaller network: its weights alone take %s",
                                  util.bytes(now.param))
  end
  return out
end

-- Called by the program after such an error; prints nothing without a recipe.
function M.explain(wanted, room, device)
  local r = recipes.current
  if not r or not config.values then return end
  local known = footprint.refused or {}
  local lines = M.lines(r, { wanted = wanted, room = room, device = device,
                             early = known.early, rest = known.rest,
                             command = known.command or config.line.command })
  core.sys.eprint(table.concat(lines, "\n") .. "\n")
end

return M
