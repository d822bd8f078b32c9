-- trace.lua -- `--trace FILE`: the file is in the Trace Event Format, its times are nested and add
-- up, and it names no patient.

local t = dofile("tests/support/harness.lua")
local json = require "seg.json"

local folder, remove = t.folder()
local script = "scripts/brain_unet.lua "

-- The events of a file: { rows = spans by name of the row, counts = values by name of the counter,
-- names = number of spans by name }.
local function load(path)
  local out = { rows = {}, counts = {}, names = {}, text = t.read(path) }
  local row = {}
  local file = json.decode(out.text, path)
  t.equal(file.displayTimeUnit, "ms")
  for _, e in ipairs(file.traceEvents) do
    t.equal(e.pid, 1)
    if e.ph == "M" and e.name == "thread_name" then
      row[e.tid] = {}
      out.rows[e.args.name] = row[e.tid]
    elseif e.ph == "X" then
      table.insert(row[e.tid], { name = e.name, from = e.ts, to = e.ts + e.dur, ms = e.dur / 1000,
                                 kind = e.cat, number = (e.args or {}).number })
      out.names[e.name] = (out.names[e.name] or 0) + 1
    elseif e.ph == "C" then
      out.counts[e.name] = out.counts[e.name] or {}
      table.insert(out.counts[e.name], e.args.bytes)
    else
      t.equal(e.name, "process_name")
    end
  end
  return out
end

-- Checks that spans of a row are nested or disjoint; returns spans without a parent. Each span gets
-- `inside`, its children. Times are rounded to a nanosecond, 0.001 of their unit.
local function nest(spans, what)
  local open, top = {}, {}
  for i, s in ipairs(spans) do
    t.check(i == 1 or spans[i - 1].from <= s.from + 1e-3, "%s: not by time", what)
    while #open > 0 and open[#open].to <= s.from + 5e-4 do table.remove(open) end
    local parent = open[#open]
    t.check(not parent or s.to <= parent.to + 2e-3, "%s: %s ends behind %s", what, s.name,
            parent and parent.name)
    s.inside = {}
    table.insert(parent and parent.inside or top, s)
    open[#open + 1] = s
  end
  return top
end

local function named(list, name)
  local out = {}
  for _, s in ipairs(list) do if s.name == name then out[#out + 1] = s end end
  return out
end

local function sum(list)
  local ms = 0
  for _, s in ipairs(list) do ms = ms + s.ms end
  return ms
end

t.test("a step of bench", function()
  local path = folder .. "/step.json"
  local code, said = t.program(script .. "bench --preset check --threads 2 --trace " .. path)
  t.equal(code, 0, said)
  t.check(said:find("events, to be opened in ui.perfetto.dev", 1, true), "%s", said)
  local trace = load(path)
  local top = nest(trace.rows.main, "main")
  nest(trace.rows["thread 1"] or {}, "thread 1") -- absent if it started after all work was done
  local step = named(top, "step")
  t.equal(#step, 1, "steps")
  step = step[1]
  local forward, backward = named(step.inside, "forward")[1], named(step.inside, "backward")[1]
  local update = named(step.inside, "update")[1]
  t.check(forward and backward and update and forward.to <= backward.from
          and backward.to <= update.from, "forward, backward, update")
  t.check(sum(step.inside) <= step.ms and sum(step.inside) > 0.5 * step.ms,
          "%g of %g ms", sum(step.inside), step.ms)
  for _, run in ipairs { forward, backward } do
    t.check(sum(run.inside) <= run.ms and sum(run.inside) > 0.5 * run.ms, "%s: %g of %g ms",
            run.name, sum(run.inside), run.ms)
    t.equal(#named(run.inside, "enc1.conv1"), 1, run.name)
  end
  -- each kernel call has its memory, at most the memory of the plan
  local _, plan = t.program(script .. "plan --preset check --json")
  local bytes, calls = json.decode(plan, "plan").train, #forward.inside + #backward.inside
  local arena, most = trace.counts.arena, 0
  t.equal(#arena, calls, "counts")
  t.equal(calls, bytes.calls, "calls")
  for _, n in ipairs(arena) do most = math.max(most, n) end
  t.check(most <= bytes.bytes and most > 0.9 * bytes.bytes, "%d of %d bytes", most, bytes.bytes)
end)

t.test("a run of training", function()
  local path = folder .. "/run.json"
  local code, said = t.program(script .. "train --preset check --epochs 2 --workers 2 --quiet "
                               .. "--phantom " .. folder .. "/data --out " .. folder
                               .. "/runs --trace " .. path)
  t.equal(code, 0, said)
  local trace = load(path)
  local top = nest(trace.rows.main, "main")
  local epochs = named(top, "epoch")
  t.equal(#epochs, 2, "epochs")
  local rows = t.lines("cat " .. folder .. "/runs/brain_unet/001/metrics.csv")
  local steps = math.tointeger(tonumber(rows[3]:match("^%d+,(%d+)")))
  t.equal(trace.names.step, steps, "steps")
  for _, epoch in ipairs(epochs) do
    local train, valid = named(epoch.inside, "train"), named(epoch.inside, "validate")
    t.check(#train == 1 and #valid == 1 and #named(epoch.inside, "checkpoint") == 1
            and #named(epoch.inside, "report") == 1, "parts")
    t.equal(#named(train[1].inside, "step"), steps / 2, "steps of an epoch")
    t.equal(#named(train[1].inside, "wait for a batch"), steps / 2, "waits")
    -- on a busy machine there may be time between two spans
    t.check(sum(epoch.inside) <= epoch.ms and sum(epoch.inside) > 0.5 * epoch.ms,
            "%g of %g ms", sum(epoch.inside), epoch.ms)
  end
  -- batches that training waits for are made on other rows
  local samples = 0
  for i = 1, 2 do
    local row = trace.rows["loader " .. i] or {}
    nest(row, "loader " .. i)
    samples = samples + #named(row, "sample")
  end
  t.check(samples >= 2 * steps, "%d samples in %d steps", samples, steps)
  t.check(not trace.text:find("PHANTOM", 1, true), "it names a patient")
end)

t.test("the same weights, traced or not", function()
  local code = t.program(script .. "train --preset check --epochs 2 --workers 2 --quiet --phantom "
                         .. folder .. "/data --out " .. folder .. "/plain")
  t.equal(code, 0)
  local name = "/brain_unet/001/checkpoint_last.safetensors"
  local a, b = t.read(folder .. "/runs" .. name), t.read(folder .. "/plain" .. name)
  t.check(a == b, "other bytes")
end)

t.test("where it cannot be written", function()
  t.says(script .. "bench --preset check --trace " .. folder, 2, "that is a folder")
  t.says(script .. "plan --trace x", 2, "--trace is not for plan, but for bench, train")
end)

remove()
t.finish()
