-- memory.lua -- behind an error for want of memory: what the plan takes, and
-- what would take less. Every number is planned, none is guessed; a change that is
-- not enough by itself says so.

local core = require "seg.core"
local config = require "seg.config"
local optim = require "seg.optim"
local plans = require "seg.plan"
local recipes = require "seg.recipe"
local util = require "seg.util"

local M = {}

-- All bytes that a plan and its parameters take.
local function need(plan) return plan.bytes + plan.param_bytes end

-- The plan of the recipe with changes, nil where the network cannot be so. Where
-- `auto` computes values twice when memory is short, every plan is the least.
local function replan(r, batch, train, change)
  change = change or {}
  local how = config.values.recompute
  change.recompute = change.recompute or train and how == "auto" and "least" or nil
  local ok, plan = pcall(plans.plan, r, batch, train, change)
  return ok and plan or nil
end

-- A smaller batch: half, and half again until that is enough.
local function smaller_batch(r, train, now, short)
  local batch, plan = config.values.batch, nil
  while batch > 1 and (not plan or need(now) - need(plan) < short) do
    batch = batch // 2
    plan = replan(r, batch, train)
    if not plan then return nil end
  end
  if not plan then return nil end
  local times = math.ceil(config.values.batch / batch) * r.accumulate
  local keep = train and string.format(" (accumulate = %d in seg.recipe keeps the step)", times)
    or ""
  return { string.format("--batch %d%s", batch, keep), need(now) - need(plan) }
end

-- Values computed again on the way back: what that can free at most. Not where it
-- is done already.
local function computed_again(r, train, now)
  if not train or config.values.recompute == "auto" then return nil end
  local plan = replan(r, config.values.batch, true, { recompute = "least" })
  local frees = plan and need(now) - need(plan) or 0
  return frees > 0 and { string.format(
    "--recompute auto (up to %.0f %% of a forward run more)",
    100 * plan.again_flops / math.max(plan.flops, 1)), frees } or nil
end

-- Convolutions in 16 bits, where the device has them: their operands are kept as
-- copies of half the size.
local function half_precision(r, train, now)
  local v = config.values
  if v.precision ~= "f32" and v.precision ~= "tf32" then return nil end
  local plan = replan(r, v.batch, train, { precision = "bf16" })
  local frees = plan and need(now) - need(plan) or 0
  return frees > 0 and { "--precision bf16", frees } or nil
end

-- The key of the recipe that is the size of its images: a number of its config
-- that is both extents of the first input.
local function size_key(shape)
  for _, key in ipairs(util.sorted_keys(config.values)) do
    if config.values[key] == shape[#shape] and config.values[key] == shape[#shape - 1]
      and not config.is_reserved(key) then
      return key
    end
  end
end

-- Smaller images that the network can take: the largest that are enough, else
-- the smallest.
local function smaller_images(r, train, now, short)
  local shape, found = r.inputs[1].shape, nil
  if #shape < 4 then return nil end
  for _, scale in ipairs { 0.75, 0.5, 0.25 } do
    local plan = replan(r, config.values.batch, train, { scale = scale })
    if plan and need(plan) < need(now) then
      local extents = {}
      for i = 3, #shape do extents[#extents + 1] = math.ceil(shape[i] * scale) end
      local key = size_key(shape)
      found = { key and string.format("--%s %d", key, extents[#extents])
                  or "images of " .. table.concat(extents, "x") .. " in the recipe",
                need(now) - need(plan) }
      if found[2] >= short then break end
    end
  end
  return found
end

-- Bytes that must become free before it goes on; 0 when it is not known what is
-- free. Weights are asked for first, then gradients and moments, of which any may
-- be there already; when the arena or anything later is refused, the rest has its
-- place.
local function shortage(now, o)
  if o.room <= 0 then return 0 end
  local to_come = o.wanted == now.weight_bytes and need(now)
    or o.wanted == now.gradient_bytes and need(now) - now.weight_bytes or o.wanted
  return to_come - o.room
end

-- An optimiser with fewer moments.
local function fewer_moments(r, train, now)
  if not train or r.optim.kind == "sgd" then return nil end
  local plan = replan(r, config.values.batch, true, { optim = optim.sgd { lr = r.optim.lr } })
  local frees = plan and need(now) - need(plan) or 0
  return frees > 0 and { "optim.sgd in the recipe, for " .. r.optim.kind, frees } or nil
end

-- The lines behind the error. o: wanted, room (bytes; 0: unknown), device (true: a
-- GPU's memory), command.
function M.lines(r, o)
  local v = config.values
  local train = o.command ~= "evaluate" and o.command ~= "predict"
  local now = replan(r, v.batch, train) or plans.plan(r, v.batch, train, { recompute = "off" })
  local out = {}
  local function row(text, bytes, what)
    out[#out + 1] = string.format("  %-34s %10s%s", text, util.bytes(bytes), what or "")
  end
  out[1] = string.format("%s, batch %d%s, takes at its fullest", train and "training"
                         or "evaluation", v.batch,
                         now.again_calls > 0 and ", values computed again" or "")
  row("values", now.peak_values)
  row("gradients of values", now.peak_gradients)
  row("workspace of kernels", now.peak_workspace)
  row("gaps between them", now.bytes - now.peak_values - now.peak_gradients - now.peak_workspace)
  row(train and "weights, gradients, optimiser" or "weights", now.param_bytes)
  row("together", need(now), string.format("; wanted at once: %s%s", util.bytes(o.wanted),
      o.room > 0 and ", free: " .. util.bytes(o.room) or ""))
  if o.device then
    out[#out + 1] = "  samples kept there (--resident) and places for uploads come on top"
  end
  local list = {}
  local function add(remedy) list[#list + 1] = remedy end
  local short = shortage(now, o)
  add(smaller_batch(r, train, now, short))
  add(computed_again(r, train, now))
  add(half_precision(r, train, now))
  add(smaller_images(r, train, now, short))
  add(fewer_moments(r, train, now))
  if o.device then
    add { "--device cpu: the memory of the machine", need(now), elsewhere = true }
  elseif v.cache_mb > 0 and v.vram == "" then
    add { "--cache_mb 0: volumes are read again", v.cache_mb << 20, " at most" }
  end
  out[#out + 1] = "what would take less"
  for _, e in ipairs(list) do
    out[#out + 1] = string.format("  %-58s frees %s%s%s", e[1], util.bytes(e[2]), e[3] or "",
                                  e[2] < short and not e.elsewhere and ", still too much" or "")
  end
  return out
end

-- Called by the program after such an error; nothing to say without a recipe.
function M.explain(wanted, room, device)
  local r = recipes.current
  if not r or not config.values then return end
  local lines = M.lines(r, { wanted = wanted, room = room, device = device,
                             command = config.line.command })
  core.sys.eprint(table.concat(lines, "\n") .. "\n")
end

return M
