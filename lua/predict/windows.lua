-- windows.lua -- runs trained networks on the samples of new cases: whole images, slices or
-- windows, in batches, one case after the other.
--
-- Memory does not grow with the number of cases. It grows with the size of a volume only by the
-- input and the result: one volume is open at a time, and the predictions of its windows are
-- stitched slice by slice (data/metrics/stitch.h).

local core = require "seg.core"
local config = require "seg.recipe.config"
local opened = require "seg.data.opened"
local show = require "seg.show"
local util = require "seg.util"

local spread = core.spread
local M = {}

-- Cases that are opened together: one volume, or many small cases, so that batches are full.
local TOGETHER = 256

-- Bytes that the Lua heap, stacks of threads and small blocks may grow by.
local SMALL = 2 << 20

-- Runs one network on one batch. Returns an array (N,C,...), valid until the next call.
local function run_once(work, session, feeds)
  session:forward(feeds, false)
  work.out = session:read(work.node, work.out)
  return work.out
end

-- The inputs of a batch mirrored along `axes`; channels of left and right are exchanged as in
-- training. Inputs that are numbers of a case stay.
local function mirrored(work, feeds, axes)
  if axes == "" then return feeds end
  local out = {}
  for _, input in ipairs(work.inputs) do
    local v = feeds[input.name]
    if input.rank > 0 then
      v = v:array()
      spread.mirror(v, axes)
      for i = 1, #axes % 2 == 1 and input.c > 1 and #work.exchange or 0, 2 do
        spread.exchange(v, work.exchange[i], work.exchange[i + 1])
      end
    end
    out[input.name] = v
  end
  return out
end

-- Undoes the mirroring in the outputs: mirrors them back and exchanges left and right classes, as
-- in training.
local function undo(work, out, axes)
  if axes == "" then return end
  if work.node.rank > 0 then spread.mirror(out, axes) end
  if #axes % 2 == 0 then return end
  for i = 1, #work.swap, 2 do spread.exchange(out, work.swap[i], work.swap[i + 1]) end
  for _, channel in ipairs(work.negate) do spread.negate(out, channel) end
end

-- Runs the networks on a batch. With a single network, no mirroring and no draws returns its
-- output; else the mean over networks, mirrored images and draws, followed by the variance if it is
-- wanted. first: the number of the first dropout draw, which no other batch of the case uses. The
-- result is valid until the next call.
local function forward(work, feeds, first)
  local draws = math.max(work.draws, 1)
  if #work.members * #work.flips * draws == 1 and work.draws == 0 then
    return run_once(work, work.members[1], feeds)
  end
  work.spread = work.spread or spread.new()
  work.spread:clear()
  for _, axes in ipairs(work.flips) do
    local image = mirrored(work, feeds, axes)
    for _, session in ipairs(work.members) do
      for k = 0, draws - 1 do
        if work.draws > 0 then session:draw((first + k) & 0xffffffff) end
        local out = run_once(work, session, image)
        undo(work, out, axes)
        work.spread:add(out)
      end
    end
  end
  work.mean = work.spread:result(work.variances, work.mean)
  return work.mean
end

-- The number of arrays of the size of a batch of outputs that the prediction holds: read buffers
-- and arrays in flight, sums in double, and the mean.
local function arrays(work)
  local alone = #work.members * #work.flips == 1 and work.draws == 0
  return alone and 2 or work.draws > 0 and 8 or 7
end

-- The memory plan ---------------------------------------------------------------

-- Bytes of the inputs of a batch, and their shapes by name.
local function batch_of(work, d, batch)
  local bytes, shapes = 0, {}
  for _, input in ipairs(work.inputs) do
    local shape, count = d.loader:shape(input.name), batch
    for _, n in ipairs(shape) do count = count * n end
    bytes = bytes + 4 * count
    shapes[input.name] = { batch, table.unpack(shape) }
  end
  return bytes, shapes
end

-- Plans the memory of a case before its first window runs, in bytes by purpose. before: bytes of
-- the program at that time; sink: takes the results, its memory is already allocated; writing:
-- bytes that writing takes in addition to the results, after the rest is freed.
function M.plan(work, d, item, before, sink, writing)
  local v, facts = config.ensure(), work.members[1]:facts()
  local batch = math.min(v.batch, (select(2, d.loader:batches())))
  local ring, shapes = batch_of(work, d, batch)
  local plan = core.plan { roots = work.roots, inputs = shapes, device = v.device,
                           threads = v.threads, precision = v.precision,
                           winograd = v.winograd, plain = not v.fuse }
  local out = 4 * work.node.c
  for _, n in ipairs(shapes[work.inputs[1].name]) do out = out * n end
  local members = #work.members
  local p = { batch = batch, device = facts.device, weights = plan.weight_bytes * members,
              activations = plan.bytes * members, input = d.pipeline:facts(item).bytes,
              -- with workers the loader holds two batches ahead, and one is in use
              windows = ring * (v.workers > 0 and 3 or 1) + out * arrays(work),
              reading = core.sys.machine().rss_bytes, writing = writing }
  p.slab, p.results = sink:bytes()
  -- the arena of the case before is reused, or freed for a larger one
  local there, host = 0, 0
  if p.device ~= "cuda" then
    for _, member in ipairs(work.members) do there = there + member:facts().pool_bytes end
    host = math.max(there, p.activations)
  end
  before = before - there + SMALL
  p.running = before + host + p.results + math.max(p.slab + p.windows, writing)
  p.total = math.max(p.reading, p.running)
  p.program = before - p.input - (p.device == "cuda" and 0 or p.weights)
  return p
end

-- Prints the plan in two lines, unless it is the same as for the case before.
local function say_plan(work, name, p, windows)
  if work.said == windows then return end
  work.said = windows
  local b = util.bytes
  show.aside("%s: %s, batch %d%s", name, windows, p.batch,
             p.device == "cuda" and string.format("; on the GPU weights %s, activations %s",
                                                  b(p.weights), b(p.activations)) or "")
  local here = p.device == "cuda" and ""
    or string.format("weights %s, activations %s, ", b(p.weights), b(p.activations))
  show.aside("memory: %sslab %s, input %s, windows %s, results %s, writing %s, program %s; reading "
             .. "took %s; at most %s (%d bytes)", here, b(p.slab), b(p.input), b(p.windows),
             b(p.results), b(p.writing), b(math.max(p.program, 0)), b(p.reading), b(p.total),
             p.total)
end

-- Refuses a case that needs more memory than this machine has, before its first window runs. The
-- error lists only remedies that are left for this call.
local function check_room(work, p, name, now)
  local room = core.room "cpu"
  if not room or p.running - now <= room then return end
  local fixes = {}
  if p.batch > 1 then fixes[#fixes + 1] = string.format("--batch %d", p.batch // 2) end
  if #work.members > 1 then
    fixes[#fixes + 1] = "one of the networks of --weights at a time"
  end
  if #work.flips > 1 then fixes[#fixes + 1] = "without --tta" end
  if work.draws > 0 then fixes[#fixes + 1] = "without --mc" end
  fixes[#fixes + 1] = "more memory"
  core.sys.raise("failure", string.format(
    "%s: no memory: predict needs %s more, %s are free; fix: %s", name, util.bytes(p.running - now),
    util.bytes(room), table.concat(fixes, ", or ")), true)
end

-- "294 windows of 96x128x128": the samples of a case.
local function windows_text(d, work)
  local count = select(2, d.loader:batches())
  local shape = d.loader:shape(work.inputs[1].name)
  local one, many = opened.sample_name(d.pipeline)
  if one == "patch" then one, many = "window", "windows" end
  return string.format("%s of %s", util.plural(count, one, many), table.concat(shape, "x", 2))
end

-- Running ------------------------------------------------------------------------

-- The index of the first dropout mask (--mc) of a sample: its position in its case times --mc, so
-- that a case has the same masks whatever else is predicted.
local function draw_of(work, pipeline, number)
  if work.draws == 0 then return 0 end
  local item, first = pipeline:item(number), number
  if work.item ~= item or work.first > number then
    while first > 1 and pipeline:item(first - 1) == item do first = first - 1 end
    work.item, work.first = item, first
  end
  return (number - work.first) * work.draws
end

-- Predicts the cases whose indices are in `list` in one pipeline. The caller closes the handles in
-- `open` on failure. -> bytes planned, 0 without a plan
local function run_group(work, set, list, each, open)
  -- arrays of the case before use memory until they are collected
  if #list == 1 then collectgarbage() end
  local most, early = 0, core.sys.machine().now_bytes
  local d = opened.open({ inputs = work.inputs }, set:pick(list))
  local pipeline, loader = d.pipeline, d.loader
  open.pipeline, open.loader = pipeline, loader
  local single, cases = #list == 1, pipeline:cases()
  for i, case in ipairs(cases) do work.seen(case, core.data.seen(pipeline, i)) end
  local batches, samples = loader:batches()
  local sink, current, seen, started = nil, nil, 0, core.sys.clock()
  for _ = 1, batches do
    local batch = loader:next()
    local feeds = opened.feeds(batch, d.names, { inputs = work.inputs })
    if single and not sink then
      -- plans the memory before anything runs
      local machine = core.sys.machine()
      local before, reading = machine.now_bytes, math.max(0, machine.rss_bytes - early)
      sink, current = each.open(pipeline, 1), 1
      if sink.bytes then
        local p = M.plan(work, d, 1, before, sink, each.writing(select(3, sink:bytes()), reading))
        say_plan(work, cases[1].key, p, windows_text(d, work))
        check_room(work, p, cases[1].key, machine.now_bytes)
        most = math.max(most, p.total)
      end
    end
    local out = forward(work, feeds, draw_of(work, pipeline, batch.samples[1]))
    for i, number in ipairs(batch.samples) do
      local item = pipeline:item(number)
      if item ~= current then
        if sink then each.done(list[current], sink) end
        sink, current = each.open(pipeline, item), item
      end
      sink:put(number, out, i, work.output)
    end
    seen = seen + batch.count
    show.bar("predict", seen, samples, started)
  end
  show.bar_done()
  loader:close()
  pipeline:close()
  open.pipeline, open.loader = nil, nil
  if sink then each.done(list[current], sink) end
  return most
end

-- Kinds of errors that concern one case: it cannot be read, its output is not finite, or its
-- extents do not fit the network. All other errors end the prediction.
local of_a_case = { data = true, diverged = true, usage = true }

-- Runs a group in which cases may fail: calls each.failed(place, why, kind) for such a case and
-- runs the others. -> bytes planned
local function run_tolerant(work, set, list, each)
  local open, left = {}, {}
  local ok, most = pcall(run_group, work, set, list, each, open)
  if ok then return most end
  local why, kind = tostring(most), core.sys.kind(tostring(most))
  if not of_a_case[kind] or core.sys.stopped() then error(most, 0) end
  show.bar_done()
  if open.loader then open.loader:close() end
  if open.pipeline then open.pipeline:close() end
  for _, place in ipairs(list) do
    if not each.finished[place] then left[#left + 1] = place end
  end
  if #left == 1 then
    each.failed(left[1], why, kind)
    return 0
  end
  -- bisects until a failing case is alone; finished cases are kept
  local middle = #left // 2
  most = run_tolerant(work, set, table.move(left, 1, middle, 1, {}), each)
  return math.max(most, run_tolerant(work, set, table.move(left, middle + 1, #left, 1, {}), each))
end

-- The places of `list` whose files can be read.
local function readable(set, list, each)
  local good, ds = {}, set:dataset()
  for _, place in ipairs(list) do
    local ok, got = pcall(core.data.pipeline, core.data.pick(ds, { place }), "", {})
    local kind = not ok and core.sys.kind(tostring(got))
    if ok then
      got:close()
      good[#good + 1] = place
    elseif kind == "data" then
      each.failed(place, tostring(got), kind)
    else
      error(got, 0)
    end
  end
  return good
end

-- Runs a group whose patients need all their cases together (per-patient steps), so it cannot be
-- bisected: if it does not open, unreadable cases are removed first.
local function run_patients(work, set, list, each)
  local open = {}
  local ok, most = pcall(run_group, work, set, list, each, open)
  if ok then return most end
  local kind = core.sys.kind(tostring(most))
  if open.pipeline or kind ~= "data" or core.sys.stopped() then error(most, 0) end
  show.bar_done()
  list = readable(set, list, each)
  return #list > 0 and run_group(work, set, list, each, {}) or 0
end

-- Runs all cases of a set, a group at a time. work = { members = {session, ...}, node =, output =
-- its name, inputs = {nodes}, roots = all outputs, flips = {axes, ...} with "" first, swap =,
-- negate = channels, draws = of dropout or 0, variances = which variances follow the mean, as in
-- spread.result }. each.open(pipeline, item) makes the sink for the results of a case: a
-- prediction, or an object with put(). each.done(place, sink) is called when a case is complete, in
-- the order of the cases. each.writing(voxels, bytes that opening the case took) -> bytes.
-- each.failed(place, why, kind), if set, is called for a case that cannot be read or is not finite,
-- and the others run; each.finished holds the places that are done. work.seen(case, facts) is
-- called before a case runs, with the facts of core.data.seen.
function M.run(work, set, each)
  local count, rank = #set:dataset():cases(), set.source.ranks
  local volumes = not rank or rank[work.inputs[1].name] == 3
  local together, first, most = volumes and 1 or TOGETHER, 1, 0
  -- some of a patient's cases alone would be normalised by other numbers than all of them
  local patients, list = util.per_patient(set.steps), {}
  if patients then together = count end
  local run = each.failed and (patients and run_patients or run_tolerant) or run_group
  for i = 1, count do list[i] = i end
  while first <= #list do
    local group = table.move(list, first, math.min(first + together - 1, #list), 1, {})
    most = math.max(most, run(work, set, group, each, {}))
    first = first + #group
  end
  local took = core.sys.machine().rss_bytes
  if most > 0 then
    show.line("memory: took at most %s (%d bytes) of %s planned", util.bytes(took), took,
              util.bytes(most))
  end
end

return M
