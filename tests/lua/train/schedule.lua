-- schedule.lua -- schedules compared with PyTorch's, and their errors.

local t = dofile("tests/support/harness.lua")
local optim = require("seg").optim
local golden = dofile("tests/golden/schedule_golden.lua")

local LR, STEPS = 0.125, 100

-- The metric for plateau after step i, from 0: as in schedule_golden.py.
local function watched(i) return 1 / (1 + math.min(i, 40)) + (i * 37) % 64 / 640 end

-- The rates of all steps: 100 epochs of one update each, or one epoch of 100
-- updates.
local function rates(s, by_step, told, mode)
  local out, state = {}, s.start and s.start()
  for i = 1, STEPS do
    local at = { step = i, steps = STEPS, state = state }
    out[i] = s.rate(LR, by_step and 1 or i, by_step and 1 or STEPS, at)
    if told then s.observe(state, told(i - 1), mode, LR) end
  end
  return out
end

local rows = {
  cosine = { optim.cosine {} },
  cosine_floor = { optim.cosine { t_max = 50, floor = 0.01 } },
  step = { optim.step { every = 30, gamma = 0.5 } },
  multistep = { optim.step { at = { 10, 50, 55 } } },
  exponential = { optim.exponential { gamma = 0.95 } },
  poly = { optim.poly { power = 0.9 } },
  warmup = { optim.warmup(20) },
  warm_cosine = { optim.chain { { epochs = 10, optim.warmup(10) }, optim.cosine {} } },
  chain = { optim.chain { { epochs = 10, optim.warmup(10) },
                          { epochs = 60, optim.step { every = 20, gamma = 0.5 } },
                          optim.exponential { gamma = 0.9 } } },
  product = { optim.product { optim.warmup(20), optim.exponential { gamma = 0.98 },
                              optim.step { every = 40, gamma = 0.5 } } },
  onecycle = { optim.onecycle {} },
  onecycle_linear = { optim.onecycle { rise = 0.4, anneal = "linear", div = 10,
                                       final_div = 100 } },
  onecycle_three = { optim.onecycle { rise = 0.25, three_phase = true } },
  plateau = { optim.plateau { factor = 0.5, patience = 3 }, watched, "min" },
  plateau_absolute = { optim.plateau { factor = 0.25, patience = 5, threshold = 0.02,
                                       relative = false, cooldown = 4, floor = 0.001 },
                       watched, "min" },
  plateau_max = { optim.plateau { patience = 2, cooldown = 1 },
                  function(i) return 1 - watched(i) end, "max" },
}

for name, want in pairs(golden) do
  t.test(name .. " gives PyTorch's rates", function()
    local row = rows[name]
    local got = rates(row[1], false, row[2], row[3])
    for i = 1, STEPS do t.near(got[i], want[i], 1e-6 * math.max(want[i], 1e-3), "step " .. i) end
  end)
end

t.test("every schedule has rates to compare with", function()
  for name in pairs(rows) do t.check(golden[name], name) end
end)

t.test("by = step counts updates, whatever an epoch has of them", function()
  for name, s in pairs {
    cosine = optim.cosine { by = "step" },
    step = optim.step { every = 30, gamma = 0.5, by = "step" },
    poly = optim.poly { by = "step" }, warmup = optim.warmup(20, { by = "step" }),
    onecycle = optim.onecycle {} } do
    local got = rates(s, true)
    for i = 1, STEPS do t.near(got[i], golden[name][i], 1e-7, name .. " step " .. i) end
  end
end)

t.test("a warm-up of epochs rises with every update", function()
  local s = optim.cosine { warmup = 2 }
  -- 10 epochs of 5 updates: update 1 has a tenth, update 10 all of its epoch's rate
  t.near(s.rate(1, 1, 10, { step = 1, steps = 50 }), 0.1, 1e-15)
  t.near(s.rate(1, 1, 10, { step = 5, steps = 50 }), 0.5, 1e-15)
  local second = (1 + math.cos(math.pi / 10)) / 2
  t.near(s.rate(1, 2, 10, { step = 10, steps = 50 }), second, 1e-15)
  t.near(s.rate(1, 2, 10), second, 1e-15)
end)

t.test("cosine stays at the floor with clamp, and climbs without", function()
  local at = { step = 81, steps = 100 }
  t.near(optim.cosine { t_max = 40, floor = 0.5, clamp = true }.rate(1, 81, 100, at), 0.5, 1e-15)
  t.near(optim.cosine { t_max = 40 }.rate(1, 81, 100, at), 1, 1e-15)
end)

t.test("a value that is no number is not better", function()
  local s = optim.plateau { patience = 0, factor = 0.5 }
  local state = s.start()
  s.observe(state, 1, "min", 0.5)
  t.equal(s.rate(0.5, 2, 9, { step = 2, steps = 9, state = state }), 0.5)
  s.observe(state, 0 / 0, "min", 0.5)
  t.equal(s.rate(0.5, 3, 9, { step = 3, steps = 9, state = state }), 0.25)
end)

t.test("mistakes name what is near", function()
  t.raises(function() return optim.cosin {} end, 'did you mean "cosine"')
  t.raises(function() optim.onecycle { anneal = "cosin" } end, 'did you mean "cosine"')
  t.raises(function() optim.cosine { by = "stpe" } end, 'did you mean "step"')
  t.raises(function() optim.plateau { patence = 3 } end, 'did you mean "patience"')
  t.raises(function() optim.plateau { factor = 1 } end, "factor must be below 1")
  t.raises(function() optim.plateau { mode = "maxx" } end, 'did you mean "max"')
  t.raises(function() optim.chain { optim.warmup(3), optim.cosine {} } end, "give its length")
  t.raises(function() optim.chain { { epochs = 3, optim.cosine {} } } end, "lasts to the end")
  t.raises(function() optim.chain { optim.plateau {} } end, "plateau depends on measured values")
  t.raises(function() optim.chain { 3 } end, "must be a schedule, got number")
  t.raises(function() optim.step { at = { 3, "x" } } end, "at must be a list")
  t.raises(function() optim.product { 3 } end, "must be a schedule, got number")
  t.raises(function() optim.step { at = 3 } end, "at must be a list")
  t.raises(function() optim.onecycle { rise = 2 } end, "rise must be at most 1")
end)

t.finish()
