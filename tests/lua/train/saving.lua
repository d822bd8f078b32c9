-- saving.lua -- which checkpoint is written when: a disk that is slow, full or gone, played by
-- snapshots that end when the test says so.

local t = dofile("tests/support/harness.lua")
local core = require "seg.core"
local saving = require "seg.train.saving"
local show = require "seg.show"
local state = require "seg.train.state"

local folder, remove = t.folder()

local events, made, slept -- writes in their order; snapshots; pauses
state.metadata = function(run) return { epoch = run.state.epoch } end
state.check_folder = function() end
show.line = function(...) events[#events + 1] = string.format(...) end
show.warn = function(...) events[#events + 1] = "warning: " .. string.format(...) end
core.sys.sleep = function() slept = slept + 1 end

-- The names of files, without folder and ending.
local function short(paths)
  local list = {}
  for i, path in ipairs(type(paths) == "table" and paths or { paths }) do
    list[i] = path:match("checkpoint_(%w+)%.safetensors$") or path:match("(%w+)%.safetensors$")
  end
  return table.concat(list, " ")
end

-- Errors of the next writes: false for one that succeeds.
local errors

local function raise(kind) core.sys.raise(kind, "the disk says " .. kind, true) end

-- A write takes until `slow` is false or somebody waits for it.
local slow
core.checkpoint.snapshot = function()
  local s = { number = made + 1 }
  made = made + 1
  function s:take(_, full, meta) self.epoch, self.full = meta.epoch, full end
  function s:write(paths)
    self.names, self.ended = short(paths), not slow
    events[#events + 1] = string.format("%s of %d", self.names, self.epoch)
  end
  function s:done() return self.ended end
  function s:wait()
    if not self.ended then events[#events + 1] = "waits" end
    self.ended = true
    local kind = table.remove(errors, 1)
    if kind then raise(kind) end
  end
  function s:close() self.closed = true end
  return s
end
core.checkpoint.save = function(paths, _, _, meta)
  events[#events + 1] = string.format("in place %s of %d", short(paths), meta.epoch)
  local kind = table.remove(errors, 1)
  if kind then raise(kind) end
end

local function new(o)
  events, made, slept, errors, slow = {}, 0, 0, {}, false
  local run = { folder = folder, values = { save_every = 100, keep_last = 3 }, session = {},
                state = { epoch = 0, batch = 0, best_epoch = 0 }, saving = saving.new() }
  for k, v in pairs(o or {}) do run.values[k] = v end
  saving.save(run, { "checkpoint_last" })
  events = {}
  return run
end

-- Ends the next epoch; best: it is the best so far.
local function epoch(run, best)
  run.state.epoch = run.state.epoch + 1
  if best then run.state.best_epoch = run.state.epoch end
  saving.epoch(run)
end

local function happened(...)
  t.equal(table.concat(events, "; "), table.concat({ ... }, "; "), "the order of events")
  events = {}
end

t.test("numbered, best, last: one file, written once, and then said to be saved", function()
  local run = new { save_every = 2 }
  epoch(run)
  happened("last of 1")
  saving.poll(run)
  happened("saved epoch 1")
  epoch(run, true)
  saving.poll(run)
  happened("0002 best last of 2", "saved epoch 2")
  epoch(run, true)
  saving.join(run)
  happened("best last of 3", "saved epoch 3")
  t.equal(made, 2, "snapshots")
end)

t.test("a last checkpoint that waits is replaced by a newer one", function()
  local run = new()
  slow = true
  for _ = 1, 4 do epoch(run) end
  happened("last of 1")
  saving.poll(run)
  happened()
  run.saving.under_way.source.ended = true
  saving.poll(run)
  happened("saved epoch 1", "last of 4")
  saving.join(run)
  happened("waits", "saved epoch 4")
  t.equal(made, 2, "snapshots")
end)

t.test("a best or numbered one that waits is never skipped: training waits", function()
  local run = new { save_every = 3 }
  slow = true
  epoch(run)
  epoch(run, true)
  happened("last of 1")
  epoch(run)
  happened("waits", "saved epoch 1", "best last of 2")
  epoch(run)
  happened("waits", "saved epoch 2", "0003 last of 3")
  epoch(run)
  happened() -- replaces that of epoch 4
  saving.finish(run)
  happened("waits", "saved epoch 3", "last of 5", "waits", "saved epoch 5")
  t.equal(made, 2, "snapshots")
end)

t.test("the last may replace one that waits although it is the best itself", function()
  local run = new()
  slow = true
  epoch(run)
  epoch(run)
  epoch(run, true)
  saving.join(run)
  happened("last of 1", "waits", "saved epoch 1", "best last of 3", "waits", "saved epoch 3")
end)

t.test("a save in between waits for those under way", function()
  local run = new()
  slow = true
  epoch(run)
  epoch(run)
  run.state.batch = 3
  saving.save(run, { "checkpoint_last" }) -- replaces the one that waits
  happened("last of 1", "waits", "saved epoch 1", "in place last of 2")
  epoch(run)
  epoch(run)
  saving.save(run, { "swa" }, true)
  happened("last of 3", "waits", "saved epoch 3", "last of 4", "waits", "saved epoch 4",
           "in place swa of 4")
end)

t.test("a write that fails once", function()
  local run = new()
  errors = { "failure" }
  epoch(run)
  happened("last of 1")
  saving.poll(run)
  happened("warning: the disk says failure; trying again in 5 s", "last of 1", "saved epoch 1")
  t.equal(slept, 1, "pauses")
  t.equal(run.saving.lost, 0)
end)

t.test("three in a row end the run", function()
  local run = new()
  local lost = "warning: the disk says failure; training continues, the previous checkpoint is "
    .. "intact"
  errors = { "failure", "failure", "failure", "failure", "failure", "failure" }
  for _ = 1, 2 do
    epoch(run)
    saving.poll(run)
  end
  happened("last of 1", "warning: the disk says failure; trying again in 5 s", "last of 1", lost,
           "last of 2", "warning: the disk says failure; trying again in 5 s", "last of 2", lost)
  t.equal(run.saving.unsaved.checkpoint_last, true)
  epoch(run)
  local ok, why = pcall(saving.poll, run)
  t.check(not ok and tostring(why):find("the disk says failure", 1, true), why)
  t.equal(core.sys.kind(tostring(why)), "failure")
end)

t.test("the first of all ends it at once, and so do weights that are not finite", function()
  local run = new()
  run.saving = saving.new()
  errors = { "failure" }
  local ok = pcall(saving.save, run, { "checkpoint_last" })
  t.check(not ok and slept == 0)
  run = new()
  errors = { "diverged" }
  epoch(run)
  local fine, why = pcall(saving.poll, run)
  t.check(not fine and slept == 0)
  t.equal(core.sys.kind(tostring(why)), "diverged")
end)

t.test("the best weights that cannot be written wait in memory", function()
  local run = new()
  errors = { "failure", "failure", "failure" }
  epoch(run, true)
  saving.poll(run)
  t.equal(events[#events], "the best weights, of epoch 1, are held in memory until they can be "
          .. "written")
  events = {}
  epoch(run) -- fails for the best
  happened("best of 1", "last of 2")
  saving.poll(run)
  happened("saved epoch 2")
  epoch(run)
  happened("best of 1", "checkpoint_best.safetensors has the weights of epoch 1 now", "last of 3")
  t.check(not run.saving.best)
  saving.join(run)
  t.check(made <= 3, "%d snapshots", made)
end)

t.test("of better ones nothing waits", function()
  local run = new()
  errors = { "failure", "failure" }
  slow = true
  epoch(run, true)
  epoch(run, true)
  saving.join(run)
  t.check(not run.saving.best, "the first waits")
  t.check(table.concat(events, "\n"):find("best last of 2\nwaits\nsaved epoch 2", 1, true),
          table.concat(events, "\n"))
  -- one that waits, and then a better one
  errors = { "failure", "failure" }
  epoch(run, true)
  saving.join(run)
  t.equal(run.saving.best.epoch, 3)
  epoch(run, true)
  t.check(not run.saving.best, "an older best waits")
  saving.join(run)
  t.equal(events[#events], "saved epoch 4")
end)

t.test("at the end the last try of the best is reported", function()
  local run = new()
  errors = { "failure", "failure", "failure" }
  epoch(run, true)
  saving.finish(run)
  t.equal(events[#events], "warning: the best weights, of epoch 1, are lost: the disk says failure")
  t.equal(run.saving.unsaved.checkpoint_best, true)
end)

t.test("without memory for a snapshot training waits", function()
  local run = new()
  local snapshot = core.checkpoint.snapshot
  core.checkpoint.snapshot = function()
    local s = snapshot()
    s.take = function() raise("failure") end
    return s
  end
  epoch(run, true)
  core.checkpoint.snapshot = snapshot
  happened("warning: the disk says failure; training waits while checkpoints are written",
           "in place best last of 1", "saved epoch 1")
  t.equal(run.saving.made, 0)
  epoch(run)
  happened("in place last of 2", "saved epoch 2")
  errors = { "failure", "failure" }
  epoch(run, true) -- the weights are still in the session
  t.equal(events[#events], "the best weights, of epoch 3, are held in memory until they can be "
          .. "written")
end)

t.test("a resumed run writes what the killed one lacks", function()
  local run = new { save_every = 2 }
  local function file(name) return folder .. "/checkpoint_" .. name .. ".safetensors" end
  run.state.epoch, run.state.best_epoch = 4, 4
  saving.complete(run, file "0004")
  happened("in place 0004 best last of 4")
  t.write(file "0004", "")
  t.write(file "last", "")
  saving.complete(run, file "last")
  happened("in place best of 4")
  t.write(file "best", "")
  saving.complete(run, file "last")
  happened()
  saving.complete(run, file "best")
  happened("in place 0004 best last of 4")
  run.state.batch = 3
  saving.complete(run, file "last")
  happened()
  -- of the numbered ones the newest stay
  run.state.batch = 0
  for _, name in ipairs { "0001", "0002", "0003" } do t.write(file(name), "") end
  saving.complete(run, file "last")
  local left = table.concat(core.sys.list(folder), " ")
  t.equal((left:gsub("checkpoint_(%w+)%.safetensors", "%1")), "0002 0003 0004 best last")
end)

t.test("another session frees the memory", function()
  local run = new()
  epoch(run)
  saving.join(run)
  local spare = run.saving.spare[1]
  saving.release(run)
  t.check(spare.closed and run.saving.made == 0)
end)

remove()
t.finish()
