-- check_recipe.lua -- the command check of a recipe: compares a device with the reference on this
-- network, at its extents.
--
-- There are two parts. First every node alone, at batch 1 (a batch norm of vectors: 16), with
-- random operands and with parameters as initialised: forward and backward on the device against
-- `ref`; of convolutions 2,048 elements of each result and 256 of each gradient (--full: all). Then
-- training: the first steps of the preset `check` on both devices, from the same weights and on the
-- same batches. If the device fuses operators, the steps also run unfused and must give the same
-- bits. The preset is another, smaller network, so it runs in another process; a recipe without it
-- is checked only by its nodes.

local core = require "seg.core"
local check = require "seg.inspect.check"
local config = require "seg.recipe.config"
local footprint = require "seg.train.footprint"
local opened = require "seg.data.opened"
local plans = require "seg.inspect.plan"
local recipes = require "seg.recipe.recipe"

local M = {}

local STEPS = 20
-- PyTorch in float32 has as large errors against float64: docs/numerics.md
local FIRST_LOSS, LOSSES, GRADIENTS = 1e-5, 1e-3, 1e-6

-- The bounds for a precision with fewer bits, from its rounding unit. The mean square error of
-- gradients is proportional to the unit itself: in about that share of elements relu and maxpool
-- choose differently. The bound is wide; the check of nodes is the sharp one.
local function bounds(device, precision)
  if precision == "f32" then return FIRST_LOSS, LOSSES, GRADIENTS end
  local unit = core.precisions(device, precision)[1].unit
  return unit, 16 * unit, 4 * unit
end

-- Checks every node that loss, outputs and metrics need. -> failures
local function check_nodes(r, device, precision)
  local list, failures, worst, blur = core.nodes(recipes.roots(r)), 0, 0, 0
  print(string.format("%s against ref: %d nodes, batch 1, convolutions in %s", device, #list,
                      precision))
  for _, n in ipairs(list) do
    local found = core.check_node(device, n.number, config.line.flags.full or false, precision)
    failures, worst = failures + found.failures, math.max(worst, found.worst)
    blur = math.max(blur, found.blur)
    print(string.format("  %-13s %-22s %-30s %-8.2g %s", n.op, n.name, n.where, found.worst,
                        found.failures == 0 and "ok" or "FAILED"))
    check.print_failures(found)
  end
  print(string.format("worst error: %.2g of its bound", worst))
  check.print_blur(blur)
  return failures
end

-- Whether the device fuses operators of this network: nil: none; "bits": some, and no bit changes;
-- "rounding": also deferred norms (engine/plan/plan_deferred_norm.c), which change rounding.
-- Planned at batch 2, because a batch norm of vectors has no variance in one sample.
local function fuses(r, device, precision)
  if not config.ensure().fuse then return nil end
  local how
  local plan = plans.plan(r, 2, true,
                          { device = device, recompute = "off", precision = precision })
  for _, row in ipairs(plan.rows) do
    local ops = table.concat(row.ops, " ")
    if ops:find("[vr] batch_norm") then return "rounding" end -- conv, upconv, linear
    if #row.ops > 1 then how = "bits" end
  end
  return how
end

-- The error of the gradients between two sessions: sum (got - want)^2 / sum want^2, over all
-- parameters.
local function gradient_error(got, want)
  local errors, total = 0, 0
  for _, p in ipairs(want:params()) do
    if p.trained then
      local a, b = got:get(p.name, "grad"), want:get(p.name, "grad")
      local e, t = a:distance(b)
      errors, total = errors + e, total + t
    end
  end
  return errors / math.max(total, 1e-300)
end

-- Prints whether `got` is at most `most`; a NaN fails. -> failures
local function judge(what, got, most)
  local ok = got <= most
  print(string.format("  %-34s %-9.2g at most %-7.0e %s", what, got, most, ok and "ok" or "FAILED"))
  return ok and 0 or 1
end

-- The largest difference between the parameters of two sessions.
local function weights_difference(a, b)
  local worst = 0
  for _, p in ipairs(a:params()) do
    local off = a:get(p.name):distance(b:get(p.name))
    if off ~= off or off > worst then worst = off end
  end
  return worst
end

-- Compares the first training steps on both devices. -> failures
local function check_steps(r, device, precision)
  -- two sessions exist at the same time; ref computes in double
  footprint.check(r, "train", device, precision)
  footprint.check(r, "train", "ref", "f32")
  opened.fit_numbers(r)
  local d = opened.open(r, r.train)
  local got = recipes.session(r, "train", device, precision)
  local want = recipes.session(r, "train", "ref", "f32")
  local fused = fuses(r, device, precision)
  local plain = fused
    and recipes.session(r, "train", device, precision, false, false, true)
  local first_loss, all_losses, gradients = bounds(device, precision)
  local failures, worst, differing, moved = 0, 0, 0, 0
  print(string.format("%s against ref: %d training steps%s", device, STEPS,
                      config.preset and " of the preset " .. config.preset or ""))
  if config.preset ~= "check" then
    print("ref computes by plain loops in double: of a network of full size a step takes minutes")
  end
  io.stdout:flush()
  for i = 1, STEPS do
    local feeds = opened.feeds(d.loader:next(), d.names, r)
    local rate = { lr = r.optim.lr, clip = r.optim.clip_norm }
    local a, b = got:step(feeds, rate), want:step(feeds, rate)
    if plain then
      local c = plain:step(feeds, rate)
      if c ~= a then differing = differing + 1 end
      local by = math.abs(c - a) / math.max(math.abs(a), 1e-30)
      if by ~= by or by > moved then moved = by end
    end
    local off = math.abs(a - b) / math.max(math.abs(b), 1e-30)
    if i == 1 then
      failures = judge("loss of the first step, relative", off, first_loss)
        + judge("gradients of it, mean square", gradient_error(got, want), gradients)
    end
    -- a NaN is kept: max() and comparisons would drop it
    if off ~= off or off > worst then worst = off end
  end
  if fused == "rounding" then
    failures = failures + judge("what --fuse false moves losses by", moved, all_losses)
  elseif plain then
    failures = failures + judge("losses that --fuse false changes", differing, 0)
      + judge("weights likewise, squares", weights_difference(got, plain), 0)
  end
  return failures + judge("losses of all steps, relative", worst, all_losses)
end

-- Runs the command. -> exit code
function M.command(r)
  local v, flags = config.ensure(), config.line.flags
  check.refuse_ref(v.device)
  local device = v.device
  core.open_device(device)
  if flags.steps_only then return check_steps(r, device, v.precision) == 0 and 0 or 1 end
  local failures = check_nodes(r, device, v.precision)
  if not config.presets.check then
    print("training steps are not compared: this recipe has no preset check; fix: presets = { "
          .. "check = { ... } } in seg.config, small numbers for a data.phantom without --data")
    return failures == 0 and 0 or 1
  end
  -- this network is the preset, with all options of the command line
  if config.preset == "check" then
    return failures + check_steps(r, device, v.precision) == 0 and 0 or 1
  end
  io.stdout:flush()
  local line = { arg[0], "check", "--preset", "check", "--device", device, "--out", v.out,
                 "--precision", v.precision, "--winograd", tostring(v.winograd),
                 "--tiles", v.tiles, "--steps_only", "--quiet" }
  if v.phantom ~= "" then table.move({ "--phantom", v.phantom }, 1, 2, #line + 1, line) end
  local code = core.sys.again(line)
  return failures == 0 and code or 1
end

return M
