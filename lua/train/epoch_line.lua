-- epoch_line.lua -- the summary line of an epoch.

local advice = require "seg.train.advice"
local loss_parts = require "seg.evaluate.loss_parts"
local opened = require "seg.data.opened"
local ranks = require "seg.train.ranks"
local util = require "seg.util"

local M = {}

-- The metrics on valid, with their values by sample if `each` is true. one: only the metric that
-- decides the best epoch, else the first metric.
local function metric_parts(run, row, each, one)
  local parts, r = {}, run.recipe
  local names = util.sorted_keys(r.metrics)
  local main = r.best and r.metrics[r.best[1]] and r.best[1] or names[1]
  for _, name in ipairs(names) do
    local value, by_sample = row["valid_" .. name], row["valid_slice_" .. name]
    if value and (not one or name == main) then
      local _, samples = opened.sample_name(run.data.valid.pipeline)
      parts[#parts + 1] = string.format("%s %s%s", name, util.fixed(value), each and by_sample
        and string.format(" (%s %s)", samples, util.fixed(by_sample)) or "")
    end
  end
  return parts
end

-- The line of an epoch from its row of metrics.csv, in versions from the longest to the shortest; a
-- terminal prints the first that fits its width. o: losses = { train =, valid = } by part; bad =
-- number of cases of valid that do not count; best = whether the epoch is the best so far; alone =
-- the share of the epoch in which ranks did not wait for each other; transport = that of the
-- all-reduce.
function M.texts(run, row, o)
  local validation = row.valid_s >= 0.05 and " + " .. util.duration(row.valid_s) or ""
  local saving = row.save_s >= 0.05 and " + " .. util.duration(row.save_s) .. " saving" or ""
  local function line(brief)
    local function made_of(values)
      local text = not brief.parts and values and loss_parts.text(run.recipe, values)
      return text and " (" .. text .. ")" or ""
    end
    local parts = { string.format("epoch %d/%d", row.epoch, run.epochs) }
    if not brief.lr then parts[2] = string.format("lr %.3g", row.lr) end
    parts[#parts + 1] = "loss " .. util.fixed(row.train_loss) .. made_of(o.losses.train)
    if row.valid_loss then
      local left_out = o.bad > 0 and string.format(" (%d left out)", o.bad) or ""
      parts[#parts + 1] = "valid " .. util.fixed(row.valid_loss) .. made_of(o.losses.valid)
        .. left_out
    end
    table.move(metric_parts(run, row, not brief.each, brief.others), 1, 99, #parts + 1, parts)
    local waits = not brief.waits and advice.waits(row.seconds, row.wait_s, row.copy_s)
    parts[#parts + 1] = util.duration(row.seconds) .. (waits and " (" .. waits .. ")" or "")
      .. validation .. saving
    if ranks.count > 1 and not brief.ranks then
      -- with NCCL the GPUs wait for each other inside a step, which is not measured
      local known = not o.transport:match("^NCCL")
      parts[#parts + 1] = string.format("%d ranks%s", ranks.count, known and
        string.format(", efficiency %.0f %%", 100 * o.alone) or "")
    end
    return table.concat(parts, "  ") .. (o.best and "  best" or "")
  end
  local texts, brief = { line {} }, {}
  for _, what in ipairs { "parts", "each", "ranks", "lr", "waits", "others" } do
    brief[what] = true
    texts[#texts + 1] = line(brief)
  end
  return texts
end

return M
