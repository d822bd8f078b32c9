-- metric.lua -- what is measured on a validation or test set.
--
-- A metric names nodes that the evaluation plan computes for each sample and
-- adds them up by case, so that an overlap of a patient is that of the whole
-- volume (3-D) even when the network sees slices. The rule for empty masks is
-- part of the metric and is printed with it.

local core = require "seg.core"
local nn = require "seg.nn"
local util = require "seg.util"

local options = util.options
local M = {}

-- From counts (both, predicted, true) to a value; nil when the pair says
-- nothing (truth and prediction empty).
local ratios = {
  dice = function(both, p, t) return 2 * both / (p + t) end,
  iou = function(both, p, t) return both / (p + t - both) end,
  sensitivity = function(both, _, t) return t > 0 and both / t or nil end,
  precision = function(both, p) return p > 0 and both / p or 0 end,
}

-- One overlap node serves every metric that asks for the same counts.
local nodes = {}

local function overlap_node(logits, target, o)
  local key = string.format("%d %d %d %g", core.node_id(logits), core.node_id(target),
                            o.mask and core.node_id(o.mask) or -1, o.threshold)
  nodes[key] = nodes[key] or nn.overlap(logits, target, { mask = o.mask, threshold = o.threshold })
  return nodes[key]
end

local function overlap_metric(kind)
  -- metric.dice(logits, target, {threshold=0.5, empty="skip"|"one", mask=}):
  -- `empty` says what a case counts whose truth and prediction are both empty.
  M[kind] = function(logits, target, o)
    o = options("metric." .. kind, o, { threshold = 0.5, empty = "skip", mask = util.none })
    if o.empty ~= "skip" and o.empty ~= "one" then
      util.fail("usage", 'metric.%s: empty must be "skip" or "one", got "%s"', kind,
                tostring(o.empty))
    end
    for _, node in ipairs { logits or false, target or false, o.mask } do
      if not util.is_node(node) then
        util.fail("usage", "metric.%s: logits, target and mask must be nodes of the network, got "
                  .. "%s",
                  kind, node and type(node) or "nothing")
      end
    end
    if type(o.threshold) ~= "number" then
      util.fail("usage", "metric.%s: threshold must be a number, got %s", kind,
                type(o.threshold))
    end
    util.check_pair("metric." .. kind, logits, target, true)
    local first = logits.c > 1 and 1 or 0 -- of several classes 0 is background
    return {
      kind = kind,
      node = overlap_node(logits, target, o),
      rule = o.empty == "skip" and "empty cases left out" or "empty cases count 1",
      -- `sums`: counts of all classes of one case or one slice
      value = function(sums)
        local total, n = 0, 0
        for k = first, #sums // 3 - 1 do
          local both, p, t = sums[3 * k + 1], sums[3 * k + 2], sums[3 * k + 3]
          local v
          if p + t > 0 then
            v = ratios[kind](both, p, t)
          elseif o.empty == "one" then
            v = 1
          end
          if v then total, n = total + v, n + 1 end
        end
        return n > 0 and total / n or nil
      end,
    }
  end
end

for kind in pairs(ratios) do overlap_metric(kind) end

local DRAWS, MOST_FEW = 2000, 4

-- Mean and median of the values of a list (holes are nil: left out). Of two
-- values or more also the standard deviation, of MOST_FEW + 1 or more a 95 %
-- confidence interval of the mean by 2000 bootstrap draws over cases (Efron 1979),
-- the same for the same values; of fewer it would be far too narrow.
function M.summary(values)
  local v = {}
  for _, x in ipairs(values) do v[#v + 1] = x end
  local n, mean = #v, util.mean(v)
  local var = 0
  for _, x in ipairs(v) do var = var + (x - mean) ^ 2 end
  local out = { n = n, mean = mean, median = util.median(v) }
  if n > 1 then
    out.sd = math.sqrt(var / (n - 1))
  end
  if n > MOST_FEW then
    local means = {}
    for b = 1, DRAWS do
      local draws, sum = core.random(b, n), 0
      for i = 1, n do sum = sum + v[1 + math.floor(draws[i] * n)] end
      means[b] = sum / n
    end
    table.sort(means)
    -- 2.5 % of the means lie on either side
    out.low, out.high = means[DRAWS // 40], means[DRAWS - DRAWS // 40 + 1]
  end
  return out
end

return M
