-- evaluate.lua -- a part through the evaluation plan, measured by case: after every
-- epoch of training, at its end, and as a command of its own.

local core = require "seg.core"
local config = require "seg.config"
local metric = require "seg.metric"
local opened = require "seg.opened"
local ranks = require "seg.ranks"
local run_folder = require "seg.run"
local show = require "seg.show"
local util = require "seg.util"
local weights = require "seg.weights"

local fail = util.fail
local M = {}

-- sums[k] += counts[from, k], k = 1 .. n
local function add(sums, counts, from, n)
  for k = 1, n do sums[k] = (sums[k] or 0) + counts:get(from, k) end
end

-- Every sample of `loader` once, or until a signal: the batches, and of each the
-- values of `nodes`. These are read together at the end, so that nothing waits for
-- a device before.
--   -> { { count=, samples=, values = { array, ... } }, ... }
local function values_of(session, recipe, loader, names, nodes, label)
  local batches, samples = loader:batches()
  local started, seen, list = core.sys.clock(), 0, {}
  session:kept() -- what a pass that failed has left
  loader:seek(0, 0)
  for b = 1, ranks.part(batches) do
    local batch = loader:next()
    session:forward(opened.feeds(batch, names, recipe), false, nodes)
    list[b] = { number = batch.number, count = batch.count, samples = batch.samples, values = {} }
    seen = seen + batch.count
    show.bar(label, seen, samples, started)
    if core.sys.stopped() then break end
  end
  local kept = session:kept()
  for i, v in ipairs(kept) do
    local b, k = (i - 1) // #nodes + 1, (i - 1) % #nodes + 1
    list[b].values[k] = v
  end
  if ranks.count > 1 then return ranks.whole(list) end
  return list, seen
end

-- Run every sample of `loader` once, or until a signal: the mean loss, and for
-- each metric its value by case (of all its slices in the set) and the mean over
-- slices.
--   -> { loss=, metrics = { dice = { cases = {[item]=v}, mean=, slices= } } }
function M.run(session, recipe, pipeline, loader, names, label)
  -- metrics of one node share its counts: node id -> node, sums by case, users
  local by_node, result, loss = {}, { metrics = {} }, 0
  local nodes = { recipe.loss }
  for name, m in pairs(recipe.metrics) do
    local id = core.node_id(m.node)
    if not by_node[id] then
      nodes[#nodes + 1] = m.node
      by_node[id] = { place = #nodes, cases = {}, users = {} }
    end
    by_node[id].users[name] = { m = m, sum = 0, n = 0 }
  end
  local batches, seen = values_of(session, recipe, loader, names, nodes, label)
  for _, batch in ipairs(batches) do
    loss = loss + batch.values[1]:get() * batch.count
    for _, entry in pairs(by_node) do
      local counts = batch.values[entry.place]
      local width = counts.shape[2]
      for i, number in ipairs(batch.samples) do
        local item = pipeline:item(number)
        entry.cases[item] = entry.cases[item] or {}
        add(entry.cases[item], counts, i, width)
        local slice = {}
        add(slice, counts, i, width)
        for _, user in pairs(entry.users) do
          local v = user.m.value(slice)
          if v then user.sum, user.n = user.sum + v, user.n + 1 end
        end
      end
    end
  end
  show.bar_done()
  result.loss = loss / math.max(seen, 1)
  for _, entry in pairs(by_node) do
    for name, user in pairs(entry.users) do
      local values, list = {}, {}
      for item, sums in pairs(entry.cases) do values[item] = user.m.value(sums) end
      for _, item in ipairs(util.sorted_keys(values)) do list[#list + 1] = values[item] end
      result.metrics[name] = { cases = values, mean = util.mean(list), list = list,
                               slices = user.n > 0 and user.sum / user.n or 0 / 0 }
    end
  end
  return result
end

-- The per-case table of a result, worst first by what `best` names, else by the
-- first metric; cases appear as hashes. -> text, numbers of the cases in order
function M.table(recipe, result, pipeline, hash)
  local names = util.sorted_keys(recipe.metrics)
  local main = recipe.best and recipe.metrics[recipe.best[1]] and recipe.best[1] or names[1]
  local items, seen = {}, {}
  for _, name in ipairs(names) do
    for item in pairs(result.metrics[name].cases) do
      if not seen[item] then items[#items + 1], seen[item] = item, true end
    end
  end
  -- a case that has no value stands before the worst
  local function key(item) return result.metrics[main].cases[item] or -1 end
  table.sort(items, function(a, b) return key(a) == key(b) and a < b or key(a) < key(b) end)
  local rows = { { "case", table.unpack(names) } }
  for _, item in ipairs(items) do
    local row = { hash(pipeline:facts(item).key) }
    for _, name in ipairs(names) do
      local v = result.metrics[name].cases[item]
      row[#row + 1] = v and string.format("%.4f", v) or "-"
    end
    rows[#rows + 1] = row
  end
  return show.table(rows), items
end

-- Of what a value by case is: the volume, or the slices or patches of it that
-- the set has. Patches may share voxels, which then count more than once.
local function extent(result, pipeline)
  local used, depth, each, seen = 0, 0, nil, {}
  if pipeline:facts(1).patches then return "of its patches, not of the volume" end
  for _, m in pairs(result.metrics) do
    for item in pairs(m.cases) do seen[item] = true end
  end
  for item in pairs(seen) do
    local f = pipeline:facts(item)
    local text = string.format("of the slices used (%d of %d)", f.slices, f.depth)
    each = (each == nil or each == text) and text
    used, depth = used + f.slices, depth + f.depth
  end
  if used == depth then return "whole volume" end
  return each or string.format("of the slices used (%d of %d in all cases)", used, depth)
end

-- A result as lines for people, one a metric, and as a table for summary.json.
function M.summary(recipe, result, pipeline, hash)
  local lines, json = {}, { loss = result.loss, metrics = {}, cases = {} }
  local of = extent(result, pipeline)
  for _, name in ipairs(util.sorted_keys(recipe.metrics)) do
    local r, m = result.metrics[name], recipe.metrics[name]
    local s = metric.summary(r.list)
    local interval = s.low and string.format(", 95 %% interval %.4f .. %.4f", s.low, s.high) or ""
    local spread = s.sd and string.format(", sd %.4f", s.sd) or "" -- of two cases or more
    lines[#lines + 1] = string.format(
      "%s per case %s: mean %s, median %s%s, n %d%s; per %s %s (%s)", name,
      of == "whole volume" and "(whole volume)" or of, util.fixed(s.mean), util.fixed(s.median),
      spread, s.n, interval, (opened.sample_name(pipeline)), util.fixed(r.slices), m.rule)
    json.metrics[name] = { mean = s.mean, median = s.median, sd = s.sd, n = s.n, low = s.low,
                           high = s.high, per_slice = r.slices, empty = m.rule, of = of }
    for item, v in pairs(r.cases) do
      local case = hash(pipeline:facts(item).key)
      json.cases[case] = json.cases[case] or {}
      json.cases[case][name] = v
    end
  end
  return lines, json
end

-- The command -----------------------------------------------------------------

-- The set that --split names; "all" is every case, unsplit.
local function find_part(r, part)
  if part == "all" then
    local set = r.test or r.valid or r.train
    return set:unsplit() or fail("usage", "--split all: this recipe does not split one set of "
                                 .. "cases into parts; give train, valid or test")
  end
  if part ~= "valid" and part ~= "test" and part ~= "train" then
    util.refuse("--split %s: use train, valid, test or all", part)
  end
  return r[part] or fail("usage", "the recipe has no %s set", part)
end

-- Whether the cases of `d` are those of `part` in the run that the weights are
-- of, whose cases.csv has `rows`. Cases that were trained on are refused: by
-- name and by their voxels. (A case of slabs is in every part.)
local function check_cases(rows, d, part, run, hash)
  local by_key, trained, expected, found = {}, {}, 0, 0
  for _, row in ipairs(rows) do
    local parts = by_key[row.key] or { image = row.image }
    if not by_key[row.key] or part ~= "all" then
      expected = expected + ((part == "all" or row.part == part) and 1 or 0)
    end
    by_key[row.key], parts[row.part] = parts, true
    if row.part == "train" and row.image then trained[row.image] = parts end
  end
  local cases, bad, chosen = #d.pipeline:cases(), {}, 0
  for i = 1, cases do
    local f = d.pipeline:facts(i)
    local parts = by_key[f.key]
    local source = trained[f.image] or (parts and parts.train and parts)
    if source and not source[part] then bad[#bad + 1] = hash(f.key) end
    if parts and (part == "all" or parts[part]) and (parts.image or f.image) == f.image then
      found = found + 1
    end
    if parts and parts.valid and part == "test" and not parts.test then chosen = chosen + 1 end
  end
  if part ~= "train" and #bad > 0 then
    fail("data", "--split %s: %d of %d cases were in train when these weights were made, the first "
         .. "is %s (%s/cases.csv): the value would be too good; leave out --data and what changes "
         .. "the split to evaluate on the parts of that run, give a folder without these "
         .. "patients, or --split train", part, #bad, cases, bad[1], run)
  end
  if chosen > 0 then
    show.warn("%d of %d cases were in valid when these weights were made, which chose the best",
              chosen, cases)
  end
  return found == cases and found == expected
end

-- Where the numbers come from: the config, without paths, as key -> text.
local function config_table()
  local out = {}
  for line in config.print(config.values, config.fixed):gmatch("[^\n]+") do
    local k, v = line:match("^([%w_]+) = (.*)$")
    out[k] = v
  end
  return out
end

-- evaluate: a part through the network in the order of its cases, nothing
-- changed at random, also of train: what was learned, against what is known.
function M.command(r, name)
  local v, flags, part = config.ensure(), config.line.flags, config.line.flags.split or "test"
  local set = find_part(r, part)
  local session, meta, path = weights.open(r, name, "evaluate")
  if flags.saved_data then
    show.line("data: that of the run (%s); --data gives other", v.data or v.phantom)
  end
  local real = meta.trained_on and meta.trained_on ~= util.MADE_UP
  if real and set.source.kind == "phantom" then
    show.warn("these weights were trained on real data and are measured on made-up patients; "
              .. "give --data DIR")
  end
  if meta.preprocessing then set = set:fitted_as(meta.preprocessing) end
  local d = opened.open(r, set:in_order(v.batch))
  -- the hashes of the run the weights are of, when they lie in one
  local run = run_folder.of(path)
  local base = run and run_folder.base(run)
  local hash = run_folder.hasher(base and util.exists(base .. "/.key") and base
                                 or v.out .. "/" .. name)
  local same = run and check_cases(run_folder.read_cases(run), d, part, run, hash)
  local result = M.run(session, r, d.pipeline, d.loader, d.names, part)
  local lines, json = M.summary(r, result, d.pipeline, hash)
  opened.identify(json, part, d, hash)
  json.config, json.epoch = config_table(), meta.epoch
  if flags.json then
    print(util.json(json))
    return 0
  end
  print((M.table(r, result, d.pipeline, hash)))
  for _, line in ipairs(lines) do print(line) end
  -- beside the weights; results on other cases than the run's keep their own file
  local file = string.format("%s/evaluate_%s%s.json", path:match("^(.*)/[^/]*$") or ".", part,
                             same and "" or "_" .. json.data)
  core.sys.write(file, util.json(json) .. "\n")
  show.line("written: %s", file)
  return 0
end

return M
