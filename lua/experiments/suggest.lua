-- suggest.lua -- suggests the values of the next trial of a search.
--
-- Pure functions of the space, the seed, the number of the trial and the trials before it, so an
-- interrupted search continues with the same values.
--
-- A space is a list of parameters in the order of their keys:
--   { key=, kind = "real", lo=, hi=, log= }          numbers of a range
--   { key=, kind = "whole", lo=, hi=, step=, log= }  whole numbers lo, lo + step, ..., hi
--   { key=, kind = "list", list = { ... } }          one of several values
-- The position of a number in its range is in 0 .. 1, by the logarithm with log.

local core = require "seg.core"

local M = {}

local ATTEMPTS = 40 -- to find values that were not tried yet
local CANDIDATES = 24 -- that TPE compares, for each parameter
local GOOD, MOST_GOOD = 0.15, 25 -- share and number of trials that count as good
local HALVINGS = 26 -- of an interval: as fine as a draw

-- Parameters --------------------------------------------------------------------

-- The number of values of a parameter; infinite for a range of numbers.
function M.size(p)
  if p.kind == "list" then return #p.list end
  return p.kind == "real" and math.huge or (p.hi - p.lo) // p.step + 1
end

-- The edges of a range. For whole numbers it extends half a step beyond both ends, so that the
-- first and the last value are as likely as the others.
local function edges(p)
  local half = p.kind == "whole" and p.step / 2 or 0
  local lo, hi = p.lo - half, p.hi + half
  if p.log then return math.log(lo), math.log(hi) end
  return lo, hi
end

-- The position of a number in its range.
local function place(p, v)
  local lo, hi = edges(p)
  return ((p.log and math.log(v) or v) - lo) / (hi - lo)
end

-- The number at a position.
local function value(p, at)
  local lo, hi = edges(p)
  local v = lo + at * (hi - lo)
  if p.log then v = math.exp(v) end
  if p.kind == "whole" then
    v = p.lo + p.step * math.floor((v - p.lo) / p.step + 0.5)
    return math.max(p.lo, math.min(v, p.hi))
  end
  return math.max(p.lo, math.min(v, p.hi))
end

-- A value rounded to readable digits: further digits of a random draw carry no information.
local function short(p, v)
  if p.kind ~= "real" then return v end
  local near = tonumber(string.format("%.4g", v)) + 0.0
  return near >= p.lo and near <= p.hi and near or v
end

-- A value as text; a list is joined.
local function text(v)
  return type(v) == "table" and table.concat(v, ",") or tostring(v)
end

-- A key of a trial's values, equal for equal values.
local function text_of(space, values)
  local out = {}
  for i, p in ipairs(space) do out[i] = text(values[p.key]) end
  return table.concat(out, "\0")
end

-- Returns the values pick(parameter, its number, attempt) for all parameters; while an earlier
-- trial had the same values, it tries another attempt. In an exhausted space the values repeat.
local function fresh(space, history, pick)
  local seen, values = {}, nil
  for _, t in ipairs(history) do seen[text_of(space, t.values)] = true end
  for attempt = 0, ATTEMPTS - 1 do
    values = {}
    for i, p in ipairs(space) do values[p.key] = short(p, pick(p, i, attempt)) end
    if not seen[text_of(space, values)] then break end
  end
  return values
end

-- The random draws of a trial for parameter i; they differ between attempts.
local function draws(seed, trial, i, attempt, count)
  return core.random(seed, count, trial, i * ATTEMPTS + attempt)
end

-- Random ------------------------------------------------------------------------

local function uniform(p, u)
  if p.kind == "list" then return p.list[1 + math.floor(u * #p.list)] end
  return value(p, u)
end

-- Values of trial `trial` (from 1), drawn uniformly. history: the trials before it, as { values =
-- }. -> { key = value }
function M.random(space, history, seed, trial)
  return fresh(space, history, function(p, i, attempt)
    return uniform(p, draws(seed, trial, i, attempt, 1)[1])
  end)
end

-- TPE -----------------------------------------------------------------------------
--
-- Tree-structured Parzen estimator (Bergstra, Bardenet, Bengio, Kegl: Algorithms for
-- hyper-parameter optimization, NIPS 2011). The trials are divided into good and other ones; l and
-- g are the densities of their values. The values with the largest l / g are suggested. Each
-- parameter is treated independently.

-- Phi(x), the normal distribution, to 1.5e-7 (Abramowitz and Stegun 7.1.26).
local function normal(x)
  local z = math.abs(x) / math.sqrt(2)
  local t = 1 / (1 + 0.3275911 * z)
  local tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t
                + 0.254829592) * t * math.exp(-z * z)
  return x < 0 and tail / 2 or 1 - tail / 2
end

-- The mass of a normal curve in a .. b, relative to its mass in 0 .. 1.
local function share(c, a, b)
  return (normal((b - c.mu) / c.sigma) - normal((a - c.mu) / c.sigma)) / c.all
end

-- Normal curves around these positions, sorted, each as wide as the distance to its farther
-- neighbour, and a wide prior over the whole range.
local function parzen(places)
  table.sort(places)
  local n, out = #places, { { mu = 0.5, sigma = 1 } }
  for i, mu in ipairs(places) do
    local left, right = mu - (places[i - 1] or 0), (places[i + 1] or 1) - mu
    local sigma = math.max(left, right, 1 / math.min(100, n + 1))
    out[i + 1] = { mu = mu, sigma = math.min(sigma, 1) }
  end
  for _, c in ipairs(out) do
    c.all = 1
    c.all = share(c, 0, 1)
  end
  return out
end

-- The density at a position, or the mass in a whole number's cell.
local function density(curves, p, at)
  local sum = 0
  local half = p.kind == "whole" and 0.5 / M.size(p) or nil
  for _, c in ipairs(curves) do
    local v
    if half then
      v = share(c, math.max(at - half, 0), math.min(at + half, 1))
    else
      local z = (at - c.mu) / c.sigma
      v = math.exp(-z * z / 2) / (c.sigma * math.sqrt(2 * math.pi) * c.all)
    end
    sum = sum + v
  end
  return math.max(sum / #curves, 1e-300)
end

-- The position below which curve c has the share u.
local function quantile(c, u)
  local lo, hi = 0, 1
  for _ = 1, HALVINGS do
    local middle = (lo + hi) / 2
    if share(c, 0, middle) < u then lo = middle else hi = middle end
  end
  return (lo + hi) / 2
end

-- A number drawn from the density of the good trials that maximises the ratio to the others'
-- density.
local function tpe_number(p, good, other, u)
  local l, g, best, most = parzen(good), parzen(other), nil, -math.huge
  for k = 1, CANDIDATES do
    local curve = l[1 + math.floor(u[2 * k - 1] * #l)]
    local v = value(p, quantile(curve, u[2 * k]))
    local at = place(p, v)
    local ratio = math.log(density(l, p, at)) - math.log(density(g, p, at))
    if ratio > most then best, most = v, ratio end
  end
  return best
end

-- The frequency of each value of the list, with one more count spread over all values; as shares.
local function shares(p, places)
  local out, n = {}, #p.list
  for i = 1, n do out[i] = 1 / n end
  for _, i in ipairs(places) do out[i] = out[i] + 1 end
  for i = 1, n do out[i] = out[i] / (#places + 1) end
  return out
end

local function tpe_list(p, good, other, u)
  local l, g, best, most = shares(p, good), shares(p, other), 1, -math.huge
  for k = 1, CANDIDATES do
    local i, left = 1, u[k]
    while i < #p.list and left >= l[i] do i, left = i + 1, left - l[i] end
    if l[i] / g[i] > most then best, most = i, l[i] / g[i] end
  end
  return p.list[best]
end

-- The positions of the values of parameter p in these trials: positions, or indices in its list.
local function places_of(p, trials)
  local out, number = {}, {}
  for i, v in ipairs(p.list or {}) do number[text(v)] = i end
  for k, t in ipairs(trials) do
    local v = t.values[p.key]
    out[k] = p.list and number[text(v)] or place(p, v)
  end
  return out
end

-- The trials from the best to the worst, in a tie the earlier first; failed trials without a score
-- are last.
local function ranked(history)
  local list = {}
  for i, t in ipairs(history) do list[i] = { values = t.values, at = i, score = t.score } end
  table.sort(list, function(a, b)
    local x, y = a.score or math.huge, b.score or math.huge
    return x == y and a.at < b.at or x < y
  end)
  return list
end

-- Values of trial `trial`; history: the trials before it, in order, as { values =, score = number
-- (less is better) or false }. The first `startup` trials are random.
function M.tpe(space, history, seed, trial, startup)
  if #history < startup then return M.random(space, history, seed, trial) end
  local list, good, other = ranked(history), {}, {}
  local count = math.min(math.ceil(GOOD * #list), MOST_GOOD)
  for i, t in ipairs(list) do
    local side = i <= count and t.score and good or other
    side[#side + 1] = t
  end
  return fresh(space, history, function(p, i, attempt)
    local u = draws(seed, trial, i, attempt, 2 * CANDIDATES)
    local choose = p.kind == "list" and tpe_list or tpe_number
    return choose(p, places_of(p, good), places_of(p, other), u)
  end)
end

-- Successive halving ----------------------------------------------------------------
--
-- Jamieson, Talwalkar: Non-stochastic best arm identification and hyperparameter optimization,
-- AISTATS 2016. All trials begin with few epochs; the best 1 / eta of them continue to eta times as
-- many, until few have all epochs.

-- The rounds of `trials` trials up to `epochs`: { { count=, epochs= }, ... }; the first has at
-- least `least` epochs.
function M.rounds(trials, eta, epochs, least)
  local out, count = {}, trials
  local number = 1
  while count // eta >= 1 and epochs // eta ^ number >= least do
    count, number = count // eta, number + 1
  end
  count = trials
  for k = 1, number do
    out[k] = { count = count, epochs = math.floor(epochs // eta ^ (number - k)) }
    count = count // eta
  end
  return out
end

-- The numbers of the `count` best trials of { { trial=, score= }, ... }, sorted; failed trials
-- never continue.
function M.survivors(results, count)
  local list, out = {}, {}
  for _, r in ipairs(results) do if r.score then list[#list + 1] = r end end
  table.sort(list, function(a, b)
    return a.score == b.score and a.trial < b.trial or a.score < b.score
  end)
  for i = 1, math.min(count, #list) do out[i] = list[i].trial end
  table.sort(out)
  return out
end

return M
