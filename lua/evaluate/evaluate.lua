-- evaluate.lua -- runs a part through the evaluation plan and measures it by case: after every
-- epoch of training, at its end, and as a command.

local core = require "seg.core"
local calibrate = require "seg.evaluate.calibrate"
local config = require "seg.recipe.config"
local likeness = require "seg.data.likeness"
local metric = require "seg.evaluate.metric"
local not_finite = require "seg.train.not_finite"
local opened = require "seg.data.opened"
local pass = require "seg.train.pass"
local picture = require "seg.report.picture"
local reading = require "seg.data.reading"
local run_folder = require "seg.report.run"
local show = require "seg.show"
local util = require "seg.util"
local weights = require "seg.predict.weights"
local wrong = require "seg.report.misclassified"

local fail = util.fail
local M = { run = pass.run }

-- The metric that ranks cases: the metric of `best`, else the first; nil without any.
function M.main(recipe)
  local names = util.sorted_keys(recipe.metrics)
  local best = recipe.best and recipe.best[1]
  return recipe.metrics[best] and best or names[1]
end

-- The indices of the cases that have any value, worst first by the main metric, then in order.
local function worst_first(recipe, result, names)
  local items, seen, main = {}, {}, M.main(recipe)
  for _, name in ipairs(names) do
    for item in pairs(result.metrics[name].cases) do
      if not seen[item] then items[#items + 1], seen[item] = item, true end
    end
  end
  if not main then return items end
  local down = (recipe.metrics[main].better or "max") == "min"
  local values = result.metrics[main] and result.metrics[main].cases or {}
  -- a case without a value comes before the worst
  local function key(item)
    return values[item] and (down and -values[item] or values[item]) or -math.huge
  end
  -- among misclassified cases the most confident come first
  local sure = {}
  for _, e in ipairs(wrong.list(recipe, result) or {}) do sure[e.item] = e.p end
  table.sort(items, function(a, b)
    local p, q = sure[a] or 0, sure[b] or 0
    if key(a) ~= key(b) then return key(a) < key(b) end
    return p == q and a < b or p > q
  end)
  return items
end

-- The names of the measured metrics.
local function measured(result) return util.sorted_keys(result.metrics) end

-- The misclassified cases as rows of a table; nil if the metrics by case are more than right or
-- wrong.
local function wrong_rows(recipe, result, pipeline, hash)
  local list = wrong.list(recipe, result)
  for name, r in pairs(list and result.metrics or {}) do
    if next(r.cases) and not recipe.metrics[name].confusion then return nil end
  end
  if not list then return nil end
  local rows = { { "case", "true", "taken for", "probability" } }
  for i, e in ipairs(list) do
    rows[i + 1] = { hash(pipeline:facts(e.item).key), e.truth, e.taken, string.format("%.2f", e.p) }
  end
  return rows
end

-- The table of a result by case, worst first; for classification the misclassified cases. Cases
-- appear as hashes. file: the table of all cases. -> text (nil: no values by case), indices of the
-- cases in order
function M.table(recipe, result, pipeline, hash, file)
  local names = measured(result)
  local items, by_case = worst_first(recipe, result, names), { "case" }
  for _, name in ipairs(names) do
    if next(result.metrics[name].cases) then by_case[#by_case + 1] = name end
  end
  local rows = wrong_rows(recipe, result, pipeline, hash)
  if rows then
    local text = #rows > 1 and show.first(rows, file) or "every case was taken for what it is"
    return #items > 0 and text or nil, items
  end
  rows = { by_case }
  for _, item in ipairs(items) do
    local row = { hash(pipeline:facts(item).key) }
    for i = 2, #by_case do
      local v = result.metrics[by_case[i]].cases[item]
      row[i] = v and string.format("%.4f", v) or "-"
    end
    rows[#rows + 1] = row
  end
  return #items > 0 and show.first(rows, file) or nil, items
end

-- The table with a column for each class, as CSV, in the same order.
function M.csv(recipe, result, pipeline, hash)
  local columns, names = {}, measured(result)
  for _, name in ipairs(names) do
    local r = result.metrics[name]
    if next(r.cases) then columns[#columns + 1] = { name, r.cases } end
    for _, class in ipairs(r.classes) do
      if next(class.cases) then
        columns[#columns + 1] = { name .. "_" .. util.plain_name(class.name), class.cases }
      end
    end
  end
  local head = { "case" }
  for _, c in ipairs(columns) do head[#head + 1] = c[1] end
  local lines = { table.concat(head, ",") }
  for _, item in ipairs(worst_first(recipe, result, names)) do
    local cells = { hash(pipeline:facts(item).key) }
    for _, c in ipairs(columns) do
      local v = c[2][item]
      cells[#cells + 1] = v and util.number(v) or ""
    end
    lines[#lines + 1] = table.concat(cells, ",")
  end
  return table.concat(lines, "\n") .. "\n"
end

-- A text about the extent that a value by case refers to: the volume, or only the slices or patches
-- in the set. Random patches may overlap, and shared voxels count more than once.
local function extent(result, pipeline)
  local used, depth, each, seen = 0, 0, nil, {}
  if pipeline:facts(1).drawn then return "of its patches, not of the volume" end
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

-- Mean, spread and interval of a metric, and of its classes.
local function statistics(r)
  if r.total then return { mean = r.mean, n = r.n, low = r.low, high = r.high } end
  return metric.summary(r.list, r.owners)
end

-- The values by class (number, structure) in a line, nil if there are none.
local function class_line(r, m)
  local parts = {}
  for _, class in ipairs(r.classes) do
    local n = #class.list > 0 and string.format(" (n %d)", #class.list) or ""
    local shown = n ~= "" or class.mean == class.mean -- else the class has no value
    parts[#parts + 1] = shown and class.name .. " " .. util.fixed(class.mean) .. n or nil
  end
  return #parts > 0 and "  by " .. (m.word or "class") .. ": " .. table.concat(parts, ", ") or nil
end

-- A confusion matrix as lines: a row for each true class.
local function matrix_lines(r)
  local rows = { { "true \\ taken for", table.unpack(r.names) } }
  for t, counts in ipairs(r.matrix) do rows[t + 1] = { r.names[t], table.unpack(counts) } end
  for _, row in ipairs(rows) do
    for i, cell in ipairs(row) do row[i] = tostring(cell) end
  end
  return show.table(rows)
end

-- One metric in a line.
local function metric_line(name, m, r, s, of, pipeline)
  local interval = s.low and string.format(", 95 %% interval %.4f .. %.4f", s.low, s.high) or ""
  local unit = m.unit and m.unit ~= "" and string.format(" [%s]", m.unit) or ""
  if r.total then
    return string.format("%s%s of all cases: %s, n %d%s (%s)", name, unit, util.fixed(s.mean), s.n,
                         interval, m.rule)
  end
  local spread = s.sd and string.format(", sd %.4f", s.sd) or "" -- for two cases or more
  local each = r.slices and string.format("; per %s %s", (opened.sample_name(pipeline)),
                                          util.fixed(r.slices)) or ""
  -- numbers of a sample have no volume
  local flat = m.way == "numbers" or (m.logits and m.logits.rank == 0)
  local what = flat and "" or of == "whole volume" and " (whole volume)" or " " .. of
  local left = #pipeline:cases() - s.n
  local out = left > 0 and string.format(" (%d left out)", left) or ""
  return string.format("%s%s per case%s: mean %s, median %s%s, n %d%s%s%s (%s)", name, unit, what,
                       util.fixed(s.mean), util.fixed(s.median), spread, s.n, out, interval, each,
                       m.rule)
end

-- A result as lines to print, one a metric, and as a table for summary.json.
function M.summary(recipe, result, pipeline, hash)
  local json = { loss = result.loss, metrics = {}, cases = {},
                 not_finite = select(2, not_finite.report(result, pipeline, hash)) }
  local of = extent(result, pipeline)
  local has_total = false -- a matrix is printed once
  for _, r in pairs(result.metrics) do has_total = has_total or r.total and r.matrix ~= nil end
  local lines = { string.format("loss %s, mean of %s", util.fixed(result.loss),
                                util.plural(result.seen, opened.sample_name(pipeline))) }
  for _, name in ipairs(measured(result)) do
    local r, m = result.metrics[name], recipe.metrics[name]
    local s = statistics(r)
    lines[#lines + 1] = metric_line(name, m, r, s, of, pipeline)
    lines[#lines + 1] = class_line(r, m)
    if r.matrix and (r.total or not has_total) then lines[#lines + 1] = matrix_lines(r) end
    local out = { mean = s.mean, median = s.median, sd = s.sd, n = s.n, low = s.low,
                  high = s.high, per_slice = r.slices, empty = m.rule, of = of, kind = m.kind,
                  better = m.better, unit = m.unit, matrix = r.matrix,
                  matrix_names = r.matrix and r.names }
    for _, class in ipairs(r.classes) do
      out.classes = out.classes or {}
      local c = #class.list > 0 and metric.summary(class.list, class.owners) or { n = 0 }
      c.mean = class.mean
      out.classes[class.name] = c
    end
    json.metrics[name] = out
    for item, v in pairs(r.cases) do
      local case = hash(pipeline:facts(item).key)
      json.cases[case] = json.cases[case] or {}
      json.cases[case][name] = v
    end
  end
  local rows = wrong_rows(recipe, result, pipeline, hash)
  for i = 2, rows and #rows or 0 do
    json.wrong = json.wrong or {}
    json.wrong[i - 1] = { case = rows[i][1], truth = rows[i][2], taken = rows[i][3],
                          probability = tonumber(rows[i][4]) }
  end
  json.classified = rows ~= nil or nil
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
  return r[part] or fail("usage", "the recipe has no %s set; fix: --split %s, or train with one%s",
                         part, r.valid and part ~= "valid" and "valid" or "train",
                         part ~= "train" and ", as by --" .. part .. " 0.2 where it has that option"
                         or "")
end

-- Whether the cases of `d` are the cases of `part` in the run of the weights; `rows` are from its
-- cases.csv. Cases that were trained on are refused, by name and by their voxels. (A case of slabs
-- is in every part.)
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

-- The threshold stored in the weights, or chosen by --calibrate; and a line about it. nil: the
-- recipe or the metrics have their own.
local function find_threshold(r, session, meta, path, rows)
  local own = r.predict.threshold and r.predict.threshold ~= "valid"
  if config.line.flags.calibrate then
    calibrate.check(r)
    local valid = r.valid:on_grid()
    if meta.preprocessing then valid = valid:fitted_as(meta.preprocessing) end
    local d = opened.open(r, valid:in_order(config.ensure().batch))
    if rows then check_cases(rows.list, d, "valid", rows.run, rows.hash) end
    local threshold, said = calibrate.keep(session, r, d, path)
    if own then said = said .. string.format("\nthe recipe says %g", r.predict.threshold) end
    return not own and threshold or nil, said
  end
  local kept = not own and tonumber(meta.threshold) or nil
  return kept, kept and string.format("threshold %g, chosen on valid", kept)
end

-- Draws the `count` worst cases into a folder next to the weights.
local function draw_worst(r, session, d, items, part, result, folder, hash, count)
  picture.overlays({ folder = folder, recipe = r, session = session, names = d.names, hash = hash },
                   d, items, part, result, count)
  show.line("written: %s/overlays", folder)
end

-- The number of --pictures, 0 without it.
local function picture_count()
  local given = config.line.flags.pictures
  local count = math.tointeger(tonumber(given or 0))
  if not count or count < 0 then
    util.refuse("--pictures takes the number of worst cases to draw, got %s", given)
  end
  return count
end

-- The differences of a part's images from the training images, printed case by case, and as { hash
-- = text }; nil if there are none, or if the weights (meta, of file `path`) hold no data about
-- them. The reading options of the script are compared with those of training.
local function compare(meta, path, set, pipeline, hash)
  local kept, read = likeness.parse(meta.training, path), reading.parse(meta.read, path)
  local out
  if read then
    local source, other = reading.merged(read, set.source)
    for _, text in ipairs(reading.unlike(source, set.source, other)) do
      show.warn("%s: the part is read differently from the training files", text)
    end
  end
  for i = 1, kept and #pipeline:cases() or 0 do
    local case = hash(pipeline:facts(i).key)
    local words, texts = likeness.warn(case, kept, read or set.source,
                                       core.data.seen(pipeline, i))
    if words then
      out = out or {}
      out[case] = table.concat(texts, "; ")
    end
  end
  return out
end

-- The command evaluate: runs a part through the network in the order of its cases, without
-- augmentation, also for train.
function M.command(r, name)
  local v, flags, part = config.ensure(), config.line.flags, config.line.flags.split or "test"
  local set, pictures = find_part(r, part):on_grid(), picture_count()
  local session, meta, path = weights.open(r, name, "evaluate")
  if flags.saved_data then
    show.line("data: that of the run (%s); --data gives other", v.data or v.phantom)
  end
  local real = meta.trained_on and meta.trained_on ~= util.SYNTHETIC
  if real and set.source.synthetic then
    show.warn("these weights were trained on real data and are measured on synthetic patients; "
              .. "give --data DIR")
  end
  if meta.preprocessing then set = set:fitted_as(meta.preprocessing) end
  -- with the hash key of the weights' run, if they belong to one
  local run = run_folder.of(path)
  local folder = run and run_folder.base(run)
  local hash = run_folder.hasher(folder and util.exists(folder .. "/.key") and folder
                                 or v.out .. "/" .. name)
  local rows = run and run_folder.read_cases(run)
  local threshold, said = find_threshold(r, session, meta, path,
                                         rows and { list = rows, run = run, hash = hash })
  local d = opened.open(r, set:in_order(v.batch))
  local same = rows and check_cases(rows, d, part, run, hash)
  -- for synthetic data the warning above is enough
  local differs = not (real and set.source.synthetic)
    and compare(meta, path, set, d.pipeline, hash) or nil
  local cropped, beyond = pass.cropped(r, d.pipeline)
  local result = pass.run(session, r, d.pipeline, d.loader, d.names, part, {
    interval = true, threshold = threshold, cropped = cropped })
  local lines, json = M.summary(r, result, d.pipeline, hash)
  opened.identify(json, part, d, hash)
  -- the config without paths documents the origin of the numbers
  json.config = run_folder.values(config.print(config.values, config.fixed))
  json.epoch, json.threshold, json.beyond = meta.epoch, threshold, beyond
  json.differs = differs
  local code = not_finite.say(part, result, d.pipeline, hash)
  if flags.json then
    print(util.json(json))
    return code
  end
  -- next to the weights; results on other cases than the run's get their own file name
  local output = path:match("^(.*)/[^/]*$") or "."
  local file = string.format("%s/evaluate_%s%s", output, part, same and "" or "_" .. json.data)
  local text, items = M.table(r, result, d.pipeline, hash, file .. ".csv")
  if text then print(text) end
  if said then print(said) end
  if beyond then print(beyond) end
  for _, line in ipairs(lines) do print(line) end
  core.sys.write(file .. ".json", util.json(json) .. "\n")
  show.line("written: %s.json", file)
  if text then
    core.sys.write(file .. ".csv", M.csv(r, result, d.pipeline, hash))
    show.line("written: %s.csv", file)
  end
  if pictures > 0 then
    draw_worst(r, session, d, items, part, result, output, hash, pictures)
  end
  return code
end

return M
