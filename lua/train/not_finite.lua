-- not_finite.lua -- samples of which a network makes NaN or infinite values when it is
-- validated or tested: which they are, and the first layer that is to blame.
--
-- A loss is the mean over a batch, so one such sample spoils that of all. Each sample of
-- such a batch is run alone: those that are finite count as ever, the others do not,
-- and nor does their case, as `predict` gives no result for it.

local core = require "seg.core"
local opened = require "seg.data.opened"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

local DIVERGED = 5 -- the exit code of values that are not finite

-- "3 of 4096 values, 2 NaN and 1 infinite; the others -1.5 .. 3e+38; made from
-- -2 .. 9e+37" of what session:blame found.
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

-- Are all values of the nodes finite that the network computes? Those of its inputs are
-- the data's: a truth may say by NaN that there is none.
local function finite(nodes, values)
  for k, node in ipairs(nodes) do
    if node.kind ~= "input" and not values[k]:finite() then return false end
  end
  return true
end

-- The sets of a recipe that batches may be made as.
local function batch_options(recipe)
  for _, part in ipairs { "valid", "test", "train" } do
    local set = rawget(recipe, part)
    if set and set.batch then return set.batch end
  end
  return {}
end

-- A loader whose next batch is sample `number` of the pipeline alone. One of samples of like
-- length, which pads them, has an order of its own and must be sought.
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

-- Sample `number` of the pipeline alone, as the network is fed it; and the loader, which
-- whoever asks closes. The second view of a sample that is not changed is the sample.
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

-- Look at a batch of an evaluation: { samples=, values= by the places of `nodes`, the loss
-- first }. Sets batch.loss, the sum over the samples that count, batch.counted, how many
-- they are, and batch.bad, nil when all do: by the place of a sample what is not
-- finite, as text.
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
      -- of the script only its name: this stands in summary.json too
      what = (what or "the loss"):gsub("([%(%s])[^,(]*/([^/]*:%d+%))", "%1%2")
      batch.bad[i] = string.format("%s%s%s", what, found
                                   and ", " .. M.ranges(found) or "",
                                   slice > 0 and ", in slice " .. slice or "")
    end
    loader:close()
  end
  if not next(batch.bad) then batch.bad = nil end
end

-- What is said of the cases of a result (pass.run) that did not count: lines with the
-- hashes of the cases, and the same for summary.json; nil where all counted.
function M.report(result, pipeline, hash)
  local lines, json, items = {}, {}, {}
  for item in pairs(result.bad) do items[#items + 1] = item end
  table.sort(items)
  for _, item in ipairs(items) do
    local case = hash(pipeline:facts(item).key)
    json[#json + 1] = { case = case, first = result.bad[item] }
    lines[#lines + 1] = string.format(
      "case %s: the network gives what is not finite, first %s; the case does not count: look at "
      .. "its values, and at how the weights were trained", case, result.bad[item])
  end
  if #lines > 0 then return lines, json end
end

-- Warn of the cases of `part` that did not count. -> the exit code that this asks for
function M.say(part, result, pipeline, hash)
  local lines = M.report(result, pipeline, hash)
  for _, line in ipairs(lines or {}) do show.warn("%s: %s", part, line) end
  return lines and DIVERGED or 0
end

-- The same for the validation after an epoch of a run: each case is said once.
function M.say_epoch(run, result)
  local s, told = run.state, run.told_bad
  local lines, json = M.report(result, run.data.valid.pipeline, run.hash)
  s.not_finite = math.max(s.not_finite, json and #json or 0)
  for i, line in ipairs(lines or {}) do
    if not told[json[i].case] then show.warn("epoch %d, valid: %s", s.epoch + 1, line) end
    told[json[i].case] = true
  end
end

-- The exit code of a run that is over; of one that had such cases it is said why.
function M.exit_code(run)
  if run.state.not_finite == 0 and not run.bad then return 0 end
  show.warn("values of validation or test were not finite, in cases that are named above and in "
            .. "%s/log.txt, and did not count: exit code %d", run.folder, DIVERGED)
  return DIVERGED
end

-- Did a run that is over have such cases, by its summary.json?
function M.of_summary(summary)
  return summary.valid_not_finite ~= nil or (summary.valid or {}).not_finite ~= nil
    or (summary.test or {}).not_finite ~= nil
end

return M
