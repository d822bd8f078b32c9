-- record.lua -- the records of a run in progress besides its numbers: report, TensorBoard events,
-- pictures of samples, manifest.
--
-- The records are worth less than the training that they show: an error here is printed and the run
-- continues. Everything that a report needs about earlier epochs is in the run's folder, so a
-- resumed run has a complete report.

local core = require "seg.core"
local average = require "seg.train.average"
local commands = require "seg.train.commands"
local config = require "seg.recipe.config"
local evaluate = require "seg.evaluate.evaluate"
local gpu_usage = require "seg.train.gpu_usage"
local manifest = require "seg.report.manifest"
local grad_norms = require "seg.train.grad_norms"
local opened = require "seg.data.opened"
local page = require "seg.report.page"
local picture = require "seg.report.picture"
local plans = require "seg.inspect.plan"
local recipes = require "seg.recipe.recipe"
local report = require "seg.report.report"
local samples = require "seg.train.samples"
local saving = require "seg.train.saving"
local sheet = require "seg.report.sheet"
local show = require "seg.show"
local tfevents = require "seg.report.tfevents"
local util = require "seg.util"

local sys = core.sys
local M = {}

local FIRST, LAST = 3, 3 -- epochs to compare for the speed
local SLOWER = 0.7 -- of the first speed: a lower one causes a warning
local LONG_S = 5 -- shorter epochs are not compared
local REST = 50 -- the report is rewritten after this many times its own duration

local Record = {}
Record.__index = Record

-- Calls f(...) and prints an error as a warning.
local function try(f, ...)
  local ok, why = pcall(f, ...)
  if not ok then show.warn("%s", why) end
  return ok and why or nil
end

-- Opens the records of a run with open folder, data, session and metrics.csv.
function M.open(run)
  local rec = setmetatable({ run = run, state = "running", pictures = {}, next_at = 0,
                             from = run.state.epoch, recipe = run.recipe }, Record)
  rec.manifest = try(manifest.open, run)
  if rec.manifest then
    try(rec.manifest.write, rec.manifest)
    -- in the log, and so in the report
    local changed = try(rec.manifest.changed, rec.manifest)
    if type(changed) == "string" then
      show.warn("resumed with %s: the last bits of its numbers differ from an uninterrupted run",
                changed)
    end
  end
  rec.events = try(tfevents.open, run.folder, run.state.epoch)
  rec.samples = try(samples.open, run, run.state.epoch)
  rec.norms = run.values.grad_norms and try(grad_norms.open, run.folder, run.state.epoch) or nil
  rec.watch = commands.watch(run)
  rec.watch.say()
  return rec
end

-- Constant facts -----------------------------------------------------------------

-- Counts for each part: a row of the report. Slices are counted for volumes, foreground for masks.
local function data_facts(run)
  local rows, head = {}, { "part", "cases", "patients", "samples" }
  local volumes = run.data.train.pipeline:facts(1).rank == 3
  local masks = false
  for _, name in ipairs(run.names) do masks = masks or name == "mask" end
  if volumes then head[#head + 1] = "slices used" end
  if masks then head[#head + 1] = "with something to find" end
  head[#head + 1] = "left out"
  for _, part in ipairs { "train", "valid", "test" } do
    local d = run.data[part]
    if d then
      local p, patients, count = d.pipeline, {}, 0
      local used, truth, depth = 0, 0, 0
      for i, case in ipairs(p:cases()) do
        local f = p:facts(i)
        if not patients[case.patient] then patients[case.patient], count = true, count + 1 end
        used, truth, depth = used + f.slices, truth + f.foreground_slices, depth + f.depth
      end
      local row = { part, #p:cases(), count, util.plural(p:samples(), opened.sample_name(p)) }
      if volumes then row[#row + 1] = string.format("%d of %d", used, depth) end
      if masks then row[#row + 1] = truth end
      row[#row + 1] = #p:bad()
      rows[#rows + 1] = row
    end
  end
  return { head = head, rows = rows, steps = run.recipe.train.steps, left_out = run.left_out }
end

-- Keys with paths or commands as values.
local hidden = { data = true, out = true, phantom = true, cache_file = true, on_finish = true,
                 on_nan = true, on_stall = true }

local function settings_of(run)
  local list = { { "preset", config.preset or "none" } }
  for line in config.print(run.values, function(key) return not hidden[key] end):gmatch("[^\n]+") do
    list[#list + 1] = { line:match("^([%w_]+) = (.*)$") }
  end
  return list
end

local function program_of(rec)
  local m = rec.manifest and rec.manifest.facts
  if not m then return {} end
  local s = m.sessions[#m.sessions]
  local list = { { "program", m.program.version .. " (" .. m.program.build .. ")" },
                 { "sha256 of it", m.program.sha256 },
                 { "device", string.format("%s, %s, %s", s.device, s.isa,
                                           util.plural(s.threads, "thread")) },
                 { "command", table.concat(s.command, " ") }, { "recipe", m.recipe.sha256 } }
  for _, part in ipairs { "train", "valid", "test" } do
    if m.data[part] then list[#list + 1] = { "images of " .. part, m.data[part].sha256 } end
  end
  for i, start in ipairs(m.sessions) do
    list[#list + 1] = { "start " .. i, string.format("%s, from epoch %d: %s", start.started,
                                                     start.from_epoch + 1, start.state) }
  end
  return list
end

-- The facts that are the same in every report of this start.
function Record:facts()
  local run = self.run
  local v, r, f = run.values, run.recipe, run.session:facts()
  local train, eval = plans.plan(r, v.batch, true), plans.plan(r, v.batch, false)
  train.batch = v.batch
  return { recipe = run.name, number = run.folder:match("([^/]+)/*$"), text = run.text,
           epochs = run.epochs, version = core.version, parameters = f.trained,
           data = data_facts(run), network = train, arena = math.max(train.bytes, eval.bytes),
           param_bytes = train.param_bytes,
           optimiser = string.format("%s, %s", r.optim.kind, util.number(recipes.lr(r))),
           settings = settings_of(run), classes = self.samples and self.samples.classes,
           device = show.processor(f) }
end

-- Facts that change --------------------------------------------------------------

-- An <img> of a file, cached because a picture does not change.
function Record:picture(path, about)
  self.pictures[path] = self.pictures[path] or page.picture(util.read_file(path), about)
  return self.pictures[path]
end

local function sum(list)
  local total = 0
  for _, x in ipairs(list) do total = total + (x or 0) end
  return total
end

-- The time of all epochs by activity.
local function time_rows(csv)
  local seconds, wait = sum(csv:column("seconds")), sum(csv:column("wait_s"))
  local copy, update = sum(csv:column("copy_s")), sum(csv:column("update_s"))
  local rows = {
    { "wait", wait, "for batches" }, { "copy", copy, "of batches to where they are used" },
    { "compute", math.max(0, seconds - wait - copy - update), "forward and backward" },
    { "update", update, "gradient norm, clipping, optimiser" },
    { "validate", sum(csv:column("valid_s")), "of the validation set" },
    { "save", sum(csv:column("save_s")), "of checkpoints" } }
  local all = 0
  for _, row in ipairs(rows) do all = all + row[2] end
  return rows, all
end

local function memory_rows(fixed, run)
  local f, v = run.session:facts(), run.values
  local rows = { { "values, gradients of them, workspace", fixed.arena, f.pool_bytes },
                 { "weights, gradients, optimiser", fixed.param_bytes, f.param_bytes } }
  local cache = 0
  for _, part in ipairs { "train", "valid", "test" } do
    cache = cache + (run.data[part] and run.data[part].pipeline:cache().all_bytes or 0)
  end
  rows[3] = { "prepared volumes, as far as --cache_mb holds them",
              math.min(cache, 3 * (v.cache_mb << 20)) }
  rows[4] = { "this program, at its fullest", nil, sys.machine().rss_bytes }
  return rows
end

-- The warnings of all starts, without the path of the run. Other paths are reduced to the file
-- name, because a report may leave the machine.
local function warnings_of(folder)
  local list, path = {}, folder .. "/log.txt"
  local plain = folder:gsub("%p", "%%%0")
  for line in (util.exists(path) and util.read_file(path) or ""):gmatch("[^\n]+") do
    local said = line:match("^warning: (.*)")
    if said then
      said = said:gsub(plain, "the run's folder")
      list[#list + 1] = (" " .. said):gsub([=[([%s(="'])/[^%s,;:()"']*/]=], "%1"):sub(2)
    end
  end
  return list
end

-- The validation of the last epoch by case, in the form of the test in summary.json.
function Record:validated()
  local run, result = self.run, self.run.result
  if not result or not next(run.recipe.metrics) then return nil end
  local _, json = evaluate.summary(run.recipe, result, run.data.valid.pipeline, run.hash)
  return { part = "valid", epoch = run.result_epoch, metrics = json.metrics, cases = json.cases,
           wrong = json.classified and (json.wrong or {}), best = run.recipe.best }
end

-- Everything that the page shows.
function Record:view()
  local run, v = self.run, {}
  local s, r, csv = run.state, run.recipe, run.csv
  self.fixed = self.fixed or self:facts()
  for key, value in pairs(self.fixed) do v[key] = value end
  local losses = csv:column("train_loss")
  v.state, v.reason, v.epoch, v.loss = self.state, self.reason, #losses, losses[#losses]
  v.written = "written " .. os.date("!%Y-%m-%d %H:%M UTC")
  v.best = s.best and { name = r.best[1], value = s.best, epoch = s.best_epoch }
  v.result, v.valid = self.result, not self.result and self:validated() or nil
  v.curves, v.warnings = picture.curves(csv, run.curves or r), warnings_of(run.folder)
  v.program = program_of(self)
  v.time, v.seconds = time_rows(csv)
  local rate = csv:column("samples_per_s")
  v.rate = #rate > 1 and { title = "samples a second", height = 90, zero = true, epochs = #rate,
                           curves = { { name = "train", values = rate,
                                        color = sheet.colors.blue } } }
  local gpu = gpu_usage.summary(csv)
  v.gpu = gpu and gpu_usage.text(gpu)
  v.gpu_use = gpu and gpu.use and #rate > 1
    and { title = "use of the GPU, percent", height = 90, zero = true, epochs = #rate,
          curves = { { name = "GPU", values = csv:column "gpu_use",
                       color = sheet.colors.green } } }
  v.memory, v.samples, v.overlays = memory_rows(self.fixed, run), {}, {}
  for i, row in ipairs(self.samples and self.samples.list or {}) do
    local list = {}
    for k, p in ipairs(row.pictures) do
      local about = string.format("case %s, epoch %d", row.case, p.epoch)
      list[k] = { epoch = p.epoch, html = self:picture(p.path, about) }
    end
    v.samples[i] = { case = row.case, pictures = list }
  end
  local folder = run.folder .. "/overlays"
  for _, name in ipairs(self.result and util.exists(folder) and sys.list(folder) or {}) do
    local part, case, kind = name:match("^(%a+)_(%x+)(_?%a*)%.png$")
    if part == self.result.part then
      local about = (kind == "_dvh" and "dose-volume histograms of case " or "case ") .. case
      v.overlays[#v.overlays + 1] = { case = case, kind = kind,
                                      html = self:picture(folder .. "/" .. name, about) }
    end
  end
  return v
end

-- Rewrites the page if `now` is set or enough time has passed, so that many short epochs do not
-- spend their time on it.
function Record:report(now)
  local started = sys.clock()
  if not now and started < self.next_at then return end
  try(function() sys.write(self.run.folder .. "/report.html", report.html(self:view())) end)
  self.next_at = sys.clock() + REST * (sys.clock() - started)
end

-- Events -------------------------------------------------------------------------

function Record:draw_samples(epoch)
  for _, new in ipairs(self.samples:draw(epoch)) do
    if self.events then self.events:image(epoch, "samples/" .. new.case, new.path) end
  end
end

-- Adapts to another phase, which has other outputs, data and session.
function Record:follow_phase(epoch)
  if self.recipe == self.run.recipe then return end
  self.recipe, self.fixed = self.run.recipe, nil
  self.samples = try(samples.open, self.run, epoch)
end

-- Called after an epoch; `row` is its row of metrics.csv.
function Record:epoch(row)
  self:follow_phase(row.epoch)
  local numbers = {}
  for _, column in ipairs(self.run.csv.columns) do
    if row[column] and column ~= "epoch" then numbers[tfevents.tag(column)] = row[column] end
  end
  if self.events then try(self.events.scalars, self.events, row.epoch, numbers) end
  if self.samples and samples.wanted(row.epoch, self.run.epochs) then
    average.with(self.run, function() try(self.draw_samples, self, row.epoch) end)
  end
  if self.norms then try(self.norms.add, self.norms, row.epoch, self.run.session) end
  self.watch.say()
  self:watch_speed(row)
  self:report()
end

-- The ratio of the speed of the last epochs to that of the first ones: medians of samples a second,
-- because the first epoch warms up. nil: too few epochs.
function M.drift(rates)
  local first, last = {}, {}
  if #rates < FIRST + LAST then return nil end
  table.move(rates, 1, FIRST, 1, first)
  table.move(rates, #rates - LAST + 1, #rates, 1, last)
  return util.median(last) / util.median(first)
end

-- Warns once if the machine gets slower; very short epochs are not compared.
function Record:watch_speed(row)
  local rates = {}
  for i, rate in ipairs(self.run.csv:column("samples_per_s")) do
    -- earlier starts may have run on another machine
    if i > self.from then rates[#rates + 1] = rate or nil end
  end
  local ratio = M.drift(rates)
  if ratio and ratio < SLOWER and row.seconds > LONG_S and not self.slow then
    self.slow = true
    show.warn("training is slower than it was: %.0f %% of the samples a second of the first %d "
              .. "epochs; another program, a hot processor, or data that moved?", 100 * ratio,
              FIRST)
  end
end

-- Records a step that was not finite; `text` says which and where.
function Record:bad_step(text)
  self.reason = text
end

-- Records the end of training and test. summary: of summary.json, with the test of `part` by
-- `weights` (see state.final_weights), which are in the session.
function Record:finish(summary, part, weights)
  local json, numbers, epoch = part and summary[part], {}, weights and weights.epoch
  self.state = "finished"
  if not json or not json.metrics then return end
  self.result = { part = part, epoch = epoch, weights = weights, metrics = json.metrics,
                  cases = json.cases, wrong = json.classified and (json.wrong or {}),
                  best = self.run.recipe.best }
  for name, m in pairs(json.metrics) do numbers[name .. "/" .. part .. "_at_the_end"] = m.mean end
  if self.events then try(self.events.scalars, self.events, epoch, numbers) end
  local drawn = false
  for _, row in ipairs(self.samples and self.samples.list or {}) do
    for _, p in ipairs(row.pictures) do drawn = drawn or p.epoch == epoch end
  end
  if self.samples and not drawn then try(self.draw_samples, self, epoch) end
end

-- Records the end of this start of the run, in this state.
function Record:close(state)
  if self.closed == state then return end
  self.state, self.closed = state, state
  if state ~= "diverged" and state ~= "failed" then self.reason = nil end
  if self.manifest and not self.run.gone then
    try(self.manifest.ended, self.manifest, state, self.run.state.epoch)
  end
  if not self.run.gone then self:report(true) end
  if self.events then try(self.events.close, self.events) end
  self.watch.close()
end

-- Records how the command ended: `code` is its exit code or, if `ok` is false, the error. Also for
-- a run that ended before it had a record.
local function note_end(run, ok, code)
  local rec, kind = run.record, not ok and sys.kind(tostring(code)) or nil
  show.on_look = nil
  -- a signal while data is opened ends the command by an error, but is no failure
  local stopped = not ok and kind == "failure" and sys.stopped()
  -- the checkpoint of an epoch that was shown
  if not ok and not run.gone then pcall(saving.join, run) end
  local state = not ok and (kind == "diverged" and kind or stopped and "stopped" or "failed")
    or rec and rec.state == "finished" and "finished" or "stopped"
  if rec then
    if state == "failed" then rec.reason = "an error of kind " .. kind .. " ended it" end
    try(rec.close, rec, state)
  end
  -- a mistake on the command line is read by the user at once
  if kind == "usage" then return end
  local facts = commands.facts(run, "finish")
  facts.state, facts.kind, facts.reason = state, kind, rec and rec.reason
  facts.code = ok and code or stopped and 128 + stopped or nil
  try(commands.tell, run, "on_finish", facts)
end

-- Ends the command: raises its error again, or returns its exit code.
function M.ended(run, ok, code)
  local kind = not ok and sys.kind(tostring(code))
  note_end(run, ok, code)
  if ok then return code end
  -- only the kind of the last error is known, and the calls above may have raised another
  if sys.kind(tostring(code)) ~= kind then sys.raise(kind, tostring(code), true) end
  error(code, 0)
end

return M
