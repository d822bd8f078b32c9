-- lr_range.lua -- the command lr_range: suggests a learning rate.
--
-- A session trains while its learning rate rises exponentially from step to step. The smoothed loss
-- first stays, then falls, then explodes: a good rate is where it falls most steeply (Smith 2017).
-- The session is discarded; no run is made.

local core = require "seg.core"
local config = require "seg.recipe.config"
local opened = require "seg.data.opened"
local phase = require "seg.train.phase"
local recipes = require "seg.recipe.recipe"
local sheet = require "seg.report.sheet"
local show = require "seg.show"
local util = require "seg.util"

local sys = core.sys
local M = {}

local STEPS = 100 -- default of --steps
local FROM, TO = 1e-7, 10 -- defaults of --from and --to
local BETA = 0.9 -- of the running mean of the loss
local EXPLODED = 4 -- the running mean, relative to its minimum, that ends the test, as in fastai
-- steps; three points have a slope, and smoothing is quadratic in the steps
local LEAST, MOST = 3, 10000
local WIDTH = 0.04 -- sigma of the smoothing, as a share of all steps
local ROWS = 16 -- of the table

-- A learning rate from the command line.
local function rate_of(flag, default)
  local text = config.line.flags[flag]
  if not text then return default end
  local v = tonumber(text)
  if not v or not (v > 0 and v < math.huge) then
    util.refuse('--%s takes a rate above 0, got "%s"', flag, text)
  end
  return v
end

-- Runs one update with this rate over `accumulate` batches. Returns its loss.
local function step(session, r, d, lr)
  local sum = 0
  for part = 1, r.accumulate do
    local loss = session:step(opened.feeds(d.loader:next(), d.names, r), {
      lr = lr, clip = r.optim.clip_norm, first = part == 1, last = part == r.accumulate,
      parts = r.accumulate })
    sum = sum + loss
  end
  return sum / r.accumulate
end

-- A mean over neighbours with Gaussian weights: unlike a running mean it does not lag, so the
-- suggested rate is not too large.
local function smooth(rows, sigma)
  for i, row in ipairs(rows) do
    local sum, weights = 0, 0
    for k, other in ipairs(rows) do
      local w = math.exp(-((i - k) / sigma) ^ 2 / 2)
      sum, weights = sum + w * other.loss, weights + w
    end
    row.smooth = sum / weights
  end
end

-- The losses by rate until they explode: { {lr=, loss=, smooth=}, ... }.
function M.measure(session, r, d, from, to, steps)
  local rows, average, least = {}, 0, math.huge
  local started = sys.clock()
  for i = 1, steps do
    local lr = from * (to / from) ^ ((i - 1) / math.max(steps - 1, 1))
    local loss = step(session, r, d, lr)
    average = BETA * average + (1 - BETA) * loss
    local mean = average / (1 - BETA ^ i)
    -- not (mean < huge) is also true for NaN
    if not (mean < math.huge) or i > 1 and mean > EXPLODED * math.abs(least) then break end
    least = math.min(least, mean)
    rows[i] = { lr = lr, loss = loss }
    show.bar("lr_range", i, steps, started, string.format("lr %.2g  loss %.4f", lr, mean))
    if sys.stopped() then break end
  end
  show.bar_done()
  if not sys.stopped() then smooth(rows, math.max(WIDTH * steps, 1)) end
  return rows
end

-- The rate where the smoothed loss falls most steeply by the logarithm of the rate, and a tenth of
-- the rate of its minimum; nil where the loss does not fall.
function M.suggest(rows)
  local steep, at, least = 0, nil, 1
  for i = 2, #rows - 1 do
    local slope = (rows[i + 1].smooth - rows[i - 1].smooth)
      / math.log(rows[i + 1].lr / rows[i - 1].lr)
    if slope < steep then steep, at = slope, i end
  end
  for i, row in ipairs(rows) do if row.smooth < rows[least].smooth then least = i end end
  return at and rows[at].lr, least > 1 and rows[least].lr / 10 or nil
end

-- Draws the curve as base.svg and base.png.
local function draw(base, title, rows, steepest, tenth)
  local LEFT, TOP, WIDE, HIGH = 74, 56, 802, 300
  local first, last = math.log(rows[1].lr, 10), math.log(rows[#rows].lr, 10)
  local lo, hi = math.huge, -math.huge
  for _, row in ipairs(rows) do lo, hi = math.min(lo, row.smooth), math.max(hi, row.smooth) end
  local air = math.max((hi - lo) * 0.06, 1e-12)
  lo, hi = lo - air, hi + air
  local function place(lr, loss)
    return LEFT + (math.log(lr, 10) - first) / math.max(last - first, 1e-9) * WIDE,
           TOP + (hi - math.max(math.min(loss, hi), lo)) / (hi - lo) * HIGH
  end
  local function curve(key)
    local points = {}
    for i, row in ipairs(rows) do points[i] = { place(row.lr, row[key]) } end
    return points
  end
  for ending, s in pairs(sheet.sheets(900, 410)) do
    local INK, SOFT, GRID = 0x24292f, 0x6b7280, 0xe3e6ea
    s:text(LEFT, 28, 17, INK, title .. ": loss by learning rate")
    local ticks, each = sheet.ticks(lo, hi, 6)
    for _, v in ipairs(ticks) do
      local _, y = place(rows[1].lr, v)
      s:line({ { LEFT, y }, { LEFT + WIDE, y } }, 1, GRID)
      s:text(LEFT - 8, y + 4, 11, SOFT, sheet.tick_text(v, each, hi), "end")
    end
    for power = math.ceil(first), math.floor(last) do
      local x = place(10.0 ^ power, lo)
      s:line({ { x, TOP }, { x, TOP + HIGH } }, 1, GRID)
      s:text(x, TOP + HIGH + 18, 11, SOFT, "1e" .. power, "middle")
    end
    s:line(curve "loss", 1, 0xb6c6e6)
    s:line(curve "smooth", 2.4, 0x2563c9)
    for color, lr in pairs { [0x2c9a4b] = steepest, [0xd0342c] = tenth } do
      local x = place(lr, lo)
      s:line({ { x, TOP }, { x, TOP + HIGH } }, 2, color, 6)
      s:text(x + 6, TOP + (color == 0x2c9a4b and 14 or 30), 12, color,
             string.format("%.2g", lr))
    end
    s:text(LEFT + WIDE / 2, TOP + HIGH + 38, 12, INK,
           "learning rate (green: falls most steeply, red: a tenth of the least loss)", "middle")
    s:save(base .. "." .. ending)
  end
end

local function print_table(rows)
  local list = { { "lr", "loss", "smoothed" } }
  for k = 1, math.min(ROWS, #rows) do
    local row = rows[#rows <= ROWS and k or 1 + (k - 1) * (#rows - 1) // (ROWS - 1)]
    list[#list + 1] = { string.format("%.3g", row.lr), util.fixed(row.loss),
                        util.fixed(row.smooth) }
  end
  print(show.table(list))
end

-- The command lr_range.
function M.command(r, name)
  local v, flags = config.ensure(), config.line.flags
  local from, to = rate_of("from", FROM), rate_of("to", TO)
  local steps = v.steps > 0 and v.steps or STEPS
  if steps < LEAST or steps > MOST then
    util.refuse("--steps %d: lr_range takes %d to %d, to see where the loss falls", steps, LEAST,
                MOST)
  end
  if from >= to then util.refuse("--from %g --to %g: the rate must rise", from, to) end
  local session = recipes.session(r, "train")
  local said = phase.start_weights { state = { phase = 1 }, recipe = r, session = session }
  if said then show.line("weights: %s", said) end
  opened.fit_numbers(r)
  local d = opened.open(r, r.train)
  sys.catch_signals()
  show.line("rates from %g to %g, at most %s", from, to, util.plural(steps, "step"))
  local rows = M.measure(session, r, d, from, to, steps)
  local signal, called = sys.stopped()
  if signal then
    show.line("%s: stopped after %s of %d; nothing is written", called, util.plural(#rows, "step"),
              steps)
    return 128 + signal
  end
  if #rows < LEAST then
    util.fail("diverged", "the loss is not finite or explodes from the first steps on; begin with "
              .. "a lower rate (--from), or look at loss and data")
  end
  local steepest, tenth = M.suggest(rows)
  local base = v.out .. "/" .. name
  sys.mkdir(base)
  draw(base .. "/lr_range", name, rows, steepest, tenth)
  if flags.json then
    print(util.json { rows = rows, steepest = steepest, least_tenth = tenth })
    return 0
  end
  print_table(rows)
  if #rows < steps then
    print(string.format("ended at %.3g, where the loss explodes", rows[#rows].lr))
  end
  if steepest then
    print(string.format("the loss falls most steeply at %.2g%s", steepest, tenth
                        and string.format(", a tenth of where it is least is %.2g", tenth) or ""))
    local lr = math.min(steepest, tenth or steepest)
    print(string.format("suggested: lr = %.2g", lr))
    if r.lr_scale then
      print(string.format("with lr_scale: lr = %.2g in the recipe",
                          lr * r.optim.lr / recipes.lr(r)))
    end
  else
    print("the loss does not fall at any of these rates; try others (--from, --to), more --steps")
  end
  show.line("written: %s/lr_range.svg and .png", base)
  return 0
end

return M
