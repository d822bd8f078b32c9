-- not_finite.lua -- finds samples for which a network gives NaN or infinite values in validation or
-- test, and the first layer with such a value.
--
-- The loss is a mean over a batch, so one such sample makes it NaN for the whole batch. Each sample
-- of the batch is then run alone. Finite samples count as usual; the others do not count, and
-- neither do their cases, as `predict` gives no result for them either.

local core = require "seg.core"
local opened = require "seg.data.opened"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

local DIVERGED = 5 -- the exit code for values that are not finite

-- The result of session:blame as text: "3 of 4096 values, 2 NaN and 1 infinite; the others -1.5 ..
-- 3e+38; made from -2 .. 9e+37".
function M.ranges(found)
  local kinds = {}
  if found.nan > 0 then kinds[1] = found.nan .. " NaN" end
  if found.inf > 0 then kinds[#kinds + 1] = found.inf .. " infinite" end
  local text = string.format("%s of %s values", table.concat(kinds, " and "),
                             util.thousands(found.count))
  if found.lo then text = string.format("%s; the others %.4g .. %.4g", text, found.lo, found.hi) end
  if found.from_lo then
    text = string.format("%s; made from %.4g .. %.4g", text, found.from_lo, found.from_hi)
  end
  return text
end

-- Whether all values that the network computes are finite. Inputs are not checked: a NaN in a
-- target may mean that there is no ground truth.
local function finite(nodes, values)
  for k, node in ipairs(nodes) do
    if node.kind ~= "input" and not values[k]:finite() then return false end
  end
  return true
end

-- The batch options of a recipe's first set.
local function batch_options(recipe)
  for _, part in ipairs { "valid", "test", "train" } do
    local set = rawget(recipe, part)
    if set and set.batch then return set.batch end
  end
  return {}
end

-- A loader whose next batch is sample `number` of the pipeline alone. A loader with buckets, which
-- pads samples, has its own order, so the sample is searched there.
local function loader_at(pipeline, number, o)
  if not o.bucket then return core.data.loader(pipeline, { batch = 1, only = { number } }) end
  local options = { batch = 1, bucket = o.bucket, multiple = o.multiple, ids = true }
  local ids, at = core.data.loader(pipeline, options), nil
  for _ = 1, (ids:batches()) do
    local batch = ids:next()
    if batch.samples[1] == number then at = batch.number end
  end
  ids:close()
  options.ids = false
  local loader = core.data.loader(pipeline, options)
  loader:seek(0, at)
  return loader
end

-- Sample `number` of the pipeline alone, as inputs of the network; and the loader, which the caller
-- closes. Without augmentation the second view of a sample is the sample itself.
local function alone(pipeline, number, names, recipe)
  local o = batch_options(recipe)
  local loader = loader_at(pipeline, number, o)
  local batch = loader:next()
  local place = {}
  for i, name in ipairs(names) do place[name] = i end
  for name, second in pairs(o.twice or {}) do
    local to = place[second]
    if to then batch.fields[to] = batch.fields[place[name]] end
  end
  return opened.feeds(batch, names, recipe), loader
end

-- Checks a batch of an evaluation: { samples=, values= in the order of `nodes`, the loss first }.
-- Sets batch.loss, the sum over the samples that count; batch.counted, their number; and batch.bad,
-- the first value that is not finite, as text, by the position of the sample; nil if all are
-- finite.
function M.judge(batch, session, recipe, pipeline, nodes, names)
  local loss = batch.values[1]:get()
  batch.loss, batch.counted = loss * batch.count, batch.count
  if finite(nodes, batch.values) then return end
  batch.loss, batch.counted, batch.bad = 0.0, 0, {}
  for i, number in ipairs(batch.samples) do
    local feeds, loader = alone(pipeline, number, names, recipe)
    session:forward(feeds, false, nodes)
    local values = session:kept()
    if finite(nodes, values) then
      batch.loss, batch.counted = batch.loss + values[1]:get(), batch.counted + 1
    else
      local what, found = session:blame(feeds, false)
      local _, slice = pipeline:item(number)
      -- only the file name of the script, because the text goes into summary.json
      what = (what or "the loss"):gsub("([%(%s])[^,(]*/([^/]*:%d+%))", "%1%2")
      batch.bad[i] = string.format("%s%s%s", what, found
                                   and ", " .. M.ranges(found) or "",
                                   slice > 0 and ", in slice " .. slice or "")
    end
    loader:close()
  end
  if not next(batch.bad) then batch.bad = nil end
end

-- Reports the cases of a result (pass.run) that did not count: lines with the hashes of the cases,
-- and the same for summary.json; nil if all counted.
function M.report(result, pipeline, hash)
  local lines, json, items = {}, {}, {}
  for item in pairs(result.bad) do items[#items + 1] = item end
  table.sort(items)
  for _, item in ipairs(items) do
    local case = hash(pipeline:facts(item).key)
    json[#json + 1] = { case = case, first = result.bad[item] }
    lines[#lines + 1] = string.format(
      "case %s: the prediction is not finite, first %s; the case does not count: look at its "
      .. "values, and at how the weights were trained", case, result.bad[item])
  end
  if #lines > 0 then return lines, json end
end

-- Warns of the cases of `part` that did not count. -> the exit code for the result
function M.say(part, result, pipeline, hash)
  local lines = M.report(result, pipeline, hash)
  for _, line in ipairs(lines or {}) do show.warn("%s: %s", part, line) end
  return lines and DIVERGED or 0
end

-- The same for the validation after an epoch of a run; each case is reported once.
function M.say_epoch(run, result)
  local s, reported = run.state, run.reported_bad
  local lines, json = M.report(result, run.data.valid.pipeline, run.hash)
  s.not_finite = math.max(s.not_finite, json and #json or 0)
  for i, line in ipairs(lines or {}) do
    if not reported[json[i].case] then show.warn("epoch %d, valid: %s", s.epoch + 1, line) end
    reported[json[i].case] = true
  end
end

-- The exit code of a finished run; prints why if it had such cases.
function M.exit_code(run)
  if run.state.not_finite == 0 and not run.bad then return 0 end
  show.warn("values of validation or test were not finite, in cases that are named above and in "
            .. "%s/log.txt, and did not count: exit code %d", run.folder, DIVERGED)
  return DIVERGED
end

-- Whether a finished run had such cases, by its summary.json.
function M.of_summary(summary)
  return summary.valid_not_finite ~= nil or (summary.valid or {}).not_finite ~= nil
    or (summary.test or {}).not_finite ~= nil
end

return M
