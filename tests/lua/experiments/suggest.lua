-- suggest.lua -- the values that a search tries: within their ranges, the same for the same seed
-- and trials, and TPE finds a planted optimum faster than random search.

local suggest = require "seg.experiments.suggest"
local t = dofile("tests/support/harness.lua")

local space = {
  { key = "base", kind = "whole", lo = 8, hi = 64, step = 8 },
  { key = "drop", kind = "real", lo = 0.0, hi = 0.6 },
  { key = "kind", kind = "list", list = { "a", "b", "c", "d" } },
  { key = "lr", kind = "real", lo = 1e-5, hi = 1e-1, log = true },
}

-- A toy function with its optimum, 0, at lr 1e-3, drop 0.2, base 32, kind "c".
local function toy(v)
  return (math.log(v.lr, 10) + 3) ^ 2 + ((v.drop - 0.2) / 0.3) ^ 2 + ((v.base - 32) / 24) ^ 2
    + (v.kind == "c" and 0 or v.kind == "b" and 0.5 or 1)
end

-- A search of `count` trials: its history and least score.
local function search(method, seed, count, f, of)
  local history, least = {}, math.huge
  for trial = 1, count do
    local values = suggest[method](of or space, history, seed, trial, 10)
    local score = (f or toy)(values)
    history[trial] = { values = values, score = score }
    if score then least = math.min(least, score) end
  end
  return history, least
end

local function line(v) return string.format("%d %.17g %s %.17g", v.base, v.drop, v.kind, v.lr) end

t.test("values lie in their ranges", function()
  for _, method in ipairs { "random", "tpe" } do
    for _, h in ipairs((search(method, 3, 60))) do
      local v = h.values
      t.check(v.lr >= 1e-5 and v.lr <= 1e-1, "lr %g", v.lr)
      t.check(v.drop >= 0 and v.drop <= 0.6, "drop %g", v.drop)
      t.check(math.type(v.base) == "integer" and v.base % 8 == 0 and v.base >= 8 and v.base <= 64,
              "base %s", v.base)
      t.check(v.kind:match("^[abcd]$"), "kind %s", v.kind)
    end
  end
end)

t.test("random draws are even, a logarithmic range by its logarithm", function()
  local low, first, last, kinds = 0, 0, 0, {}
  for trial = 1, 2000 do
    local v = suggest.random(space, {}, 1, trial)
    if v.lr < 1e-3 then low = low + 1 end
    if v.base == 8 then first = first + 1 end
    if v.base == 64 then last = last + 1 end
    kinds[v.kind] = (kinds[v.kind] or 0) + 1
  end
  -- five standard deviations of a binomial
  t.near(low, 1000, 5 * math.sqrt(500), "lr below the middle")
  t.near(first, 250, 5 * math.sqrt(219), "base 8")
  t.near(last, 250, 5 * math.sqrt(219), "base 64")
  for _, k in ipairs { "a", "b", "c", "d" } do t.near(kinds[k], 500, 5 * math.sqrt(375), k) end
end)

t.test("a suggestion follows from the seed and the trials before it", function()
  for _, method in ipairs { "random", "tpe" } do
    local one, other = search(method, 5, 25), search(method, 6, 25)
    local differ = 0
    for k = 1, 25 do
      local before = table.move(one, 1, k - 1, 1, {})
      t.equal(line(suggest[method](space, before, 5, k, 10)), line(one[k].values), method)
      if line(other[k].values) ~= line(one[k].values) then differ = differ + 1 end
    end
    t.equal(differ, 25, "trials of another seed that differ")
  end
end)

t.test("TPE finds what is planted, sooner than chance", function()
  local better, seeds, sum = 0, 40, { tpe = 0, random = 0 }
  for seed = 1, seeds do
    local _, tpe = search("tpe", seed, 50)
    local _, random = search("random", seed, 50)
    sum.tpe, sum.random = sum.tpe + tpe, sum.random + random
    if tpe < random then better = better + 1 end
  end
  print(string.format("  50 trials, 40 seeds: TPE %.3f, random %.3f in the mean; TPE less in %d",
                      sum.tpe / seeds, sum.random / seeds, better))
  -- 30 of 40 or more have a probability of 0.001 by chance
  t.check(better >= 30, "TPE is better in %d of %d only", better, seeds)
  t.check(sum.tpe < 0.7 * sum.random, "%g against %g", sum.tpe, sum.random)
end)

t.test("trials that failed are avoided", function()
  -- all trials with kind "c" fail, so the optimum cannot be reached
  local function f(v) return v.kind ~= "c" and toy(v) or false end
  local late = { tpe = 0, random = 0 }
  for seed = 1, 10 do
    for method in pairs(late) do
      for k, h in ipairs((search(method, seed, 40, f))) do
        if k > 20 and not h.score then late[method] = late[method] + 1 end
      end
    end
  end
  t.check(late.tpe < 0.6 * late.random, "failed: %d, by chance %d", late.tpe, late.random)
  -- and a search with failures only continues
  local history = search("tpe", 1, 15, function() return false end)
  t.equal(#history, 15)
end)

t.test("nothing is tried twice while there is something else", function()
  local small = { { key = "a", kind = "list", list = { 1, 2, 3 } },
                  { key = "b", kind = "whole", lo = 0, hi = 3, step = 1 } }
  for _, method in ipairs { "random", "tpe" } do
    local seen, n = {}, 0
    local history = search(method, 2, 9, function(v) return v.a + v.b end, small)
    for _, h in ipairs(history) do
      local id = h.values.a .. " " .. h.values.b
      if not seen[id] then seen[id], n = true, n + 1 end
    end
    t.equal(n, 9, method)
  end
end)

t.test("rounds of successive halving", function()
  local function text(...)
    local out = {}
    for i, r in ipairs(suggest.rounds(...)) do out[i] = r.count .. "x" .. r.epochs end
    return table.concat(out, " ")
  end
  t.equal(text(27, 3, 27, 1), "27x1 9x3 3x9 1x27")
  t.equal(text(27, 3, 27, 3), "27x3 9x9 3x27")
  t.equal(text(8, 2, 20, 1), "8x2 4x5 2x10 1x20")
  t.equal(text(16, 4, 2, 1), "16x2")
  local results = {}
  for i, score in ipairs { 3, false, 1, 1, 2 } do results[i] = { trial = i, score = score } end
  t.equal(table.concat(suggest.survivors(results, 3), " "), "3 4 5")
  t.equal(table.concat(suggest.survivors(results, 1), " "), "3")
  t.equal(table.concat(suggest.survivors(results, 9), " "), "1 3 4 5")
end)

t.finish()
