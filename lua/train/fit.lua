-- fit.lua -- the training loop, meant to be read.
--
-- The learning rate is a function of the position in the run; the order of the samples and every
-- random augmentation are functions of (seed, epoch, sample); the rest of the state is in the
-- checkpoint (state.lua). So a run that is killed at any point and resumed ends with the same
-- bytes.

local core = require "seg.core"
local aliases = require "seg.aliases"
local advice = require "seg.train.advice"
local average = require "seg.train.average"
local best_weights = require "seg.train.best"
local budget = require "seg.train.budget"
local calibrate = require "seg.evaluate.calibrate"
local clusters = require "seg.train.clusters"
local config = require "seg.recipe.config"
local devices = require "seg.train.device"
local diverge = require "seg.train.diverge"
local done = require "seg.report.done"
local epoch_line = require "seg.train.epoch_line"
local epoch_steps = require "seg.train.epoch_steps"
local epoch_table = require "seg.report.epoch_table"
local evaluate = require "seg.evaluate.evaluate"
local footprint = require "seg.train.footprint"
local gpu_usage = require "seg.train.gpu_usage"
local hooks = require "seg.train.hooks"
local loss_parts = require "seg.evaluate.loss_parts"
local metric_own = require "seg.evaluate.metric_own"
local metrics = require "seg.evaluate.metric_base"
local not_finite = require "seg.train.not_finite"
local opened = require "seg.data.opened"
local pass = require "seg.train.pass"
local phase = require "seg.train.phase"
local picture = require "seg.report.picture"
local plans = require "seg.inspect.plan"
local progress = require "seg.train.progress"
local ranks = require "seg.train.ranks"
local recipes = require "seg.recipe.recipe"
local record = require "seg.report.record"
local resuming = require "seg.train.resume"
local run_folder = require "seg.report.run"
local run_kind = require "seg.report.run_kind"
local saving = require "seg.train.saving"
local show = require "seg.show"
local state = require "seg.train.state"
local tally = require "seg.train.tally"
local traces = require "seg.inspect.trace"
local util = require "seg.util"
local early_stopping = require "seg.train.early_stopping"

local sys, fail = core.sys, util.fail
local M = {}

-- Calls f for curves and pictures. They are worth less than the training, so an error is printed as
-- a warning and the run continues.
local function try(f, ...)
  if not ranks.writes() then return end
  local ok, why = pcall(f, ...)
  if not ok then show.warn("%s", why) end
end

-- One epoch -------------------------------------------------------------------

-- The learning rate of the update that batch `number` of the epoch's `batches` belongs to, unless
-- on_batch sets another.
local function rate(run, number, batches)
  local s = run.state
  local given = s.hooks.numbers.next_lr -- by on_epoch, for all steps of this epoch
  if given then return given end
  return recipes.rate(run.recipe, s.epoch - s.first + 1, number, batches, s.schedule)
end

-- Queues batch `number` of the epoch, which has `batches`. -> the record of the batch for
-- collect(), nil if on_batch failed. drain: as in hooks.batch
local function queue(run, number, batches, drain)
  local r, group = run.recipe, number % run.recipe.accumulate
  local last = group == r.accumulate - 1 or number == batches - 1
  if group == 0 then run.lr = hooks.batch(run, number, rate(run, number, batches), drain) end
  local lr = run.lr
  if not lr then return nil end
  local batch = run.data.train.loader:next()
  run.session:shard(batch.first, batch.idle)
  run.session:queue(opened.feeds(batch, run.names, r), {
    lr = lr, clip = r.optim.clip_norm, first = group == 0, last = last,
    keep = run.tally.nodes,
    -- the last group of an epoch may be short; its mean is over the batches that it has
    parts = math.min(r.accumulate, batches - (number - group)) })
  run.queued = number + 1
  return { number = number, count = batch.whole or batch.count,
           own = batch.idle and 0 or batch.count, samples = batch.samples, last = last, lr = lr }
end

-- Collects the result of the oldest batch in `parts`. Returns false if it is not ready and `wait`
-- is false.
local function collect(run, parts, wait)
  local s = run.state
  local loss, norm, applied, overflow = run.session:collect(wait)
  if not loss then return false end
  local part = table.remove(parts, 1)
  if run.recipe.on_batch then s.hooks.numbers.loss = loss end
  -- with accumulation only the last batch reports whether the step was applied
  local counts = (applied or not part.last) and loss == loss and math.abs(loss) < math.huge
  run.tally:part(part.own, counts)
  if counts then
    s.loss_sum = s.loss_sum + loss * part.count
    s.seen = s.seen + part.count
  end
  if applied then
    s.bad = 0
  elseif part.last and not overflow then
    diverge.bad_step(run, part, loss, norm)
  end
  s.batch = part.number + 1
  return true
end

-- Whether the steps done and the steps under way reach --steps.
local function has_steps(run, under_way)
  return run.values.steps > 0
    and run.session:facts().count + under_way >= run.values.steps
end

-- Trains from the current position to the end of the epoch. A device with a queue runs a few
-- batches ahead of the collected results. Returns false if a signal or a limit stopped it, at the
-- end of a step.
local function train_epoch(run)
  local s, r, part = run.state, run.recipe, run.data.train
  local batches, samples = epoch_steps.count(run)
  local label = string.format("epoch %d/%d", s.epoch + 1, run.epochs)
  local started, seen_before = sys.clock(), s.seen
  local facts = run.session:facts()
  -- a terminal shows a progress bar, but a log would be empty until the epoch ends
  if not run.batches_printed and not sys.terminal() then
    show.line("%s: %s", label, util.plural(batches, "batch", "batches"))
  end
  run.batches_printed = true
  run.spent = ranks.spent()
  run.copied, run.updated, run.made = facts.copy_s, facts.update_s, part.pipeline:cache().made
  local parts, steps = {}, 0 -- batches under way; steps among them
  local function limit(under_way) return has_steps(run, under_way) end
  -- whether on_batch ends the training with the steps so far, `number` batches
  local function ended(number) return s.hooks.numbers.ended and number % r.accumulate == 0 end
  local function drain()
    while #parts > 0 do collect(run, parts, true) end
    steps = 0
  end
  run.session:kept() -- discards values left by an evaluation
  run.tally = tally.new(r)
  epoch_steps.seek(run, s.batch)
  run.queued = s.batch
  local cut = false
  while s.batch < batches and not cut and not (#parts == 0 and ended(s.batch)) do
    local between = #parts == 0 or parts[#parts].last
    local stop = between and #parts > 0 and (run.hook_failed or ranks.stopped() or limit(steps))
      or ended(run.queued)
    if run.queued < batches and not stop then
      local queued = queue(run, run.queued, batches, drain)
      parts[#parts + 1] = queued
      stop = not queued
      if queued and queued.last then steps = steps + 1 end
    end
    while #parts > 0 do
      local was_last, must = parts[1].last, stop or #parts > run.ahead or run.queued == batches
      -- the number of finished batches differs between ranks, but they must collect in step
      if ranks.count > 1 and not must then break end
      if not collect(run, parts, must) then break end
      if was_last then steps = steps - 1 end
    end
    saving.poll(run)
    show.bar(label, s.seen - seen_before, samples - seen_before, started,
             string.format("loss %.4f", s.loss_sum / math.max(s.seen, 1)))
    progress.note(run, "train", s.epoch + 1, s.batch, batches, s.seen - seen_before,
                  samples - seen_before, started)
    local whole = s.batch % r.accumulate == 0 or s.batch == batches
    cut = #parts == 0 and whole and (run.hook_failed or ranks.stopped() or limit(0))
  end
  show.bar_done()
  run.tally:fold(run.session, s.tally)
  return not cut, cut and limit(0)
end

-- The metrics of all phases, by name.
local function all_metrics(phases)
  local all = {}
  for _, r in ipairs(phases) do for name, m in pairs(r.metrics) do all[name] = m end end
  return all
end

-- Prints advice once a run, when an epoch waits for its data.
local function advise(run, row)
  local v, d, machine = run.values, run.data.train, sys.machine()
  local cache = d.pipeline:cache()
  local text = not run.advised and advice.remedy {
    seconds = row.seconds, wait = row.wait_s, left = run.epochs - row.epoch,
    opening_s = run.opening_s, kept = cache.kept, count = cache.count,
    all_bytes = cache.all_bytes, made = cache.made - run.made, store = v.cache_file ~= "",
    workers = v.workers, cores = machine.cores,
    -- memory that the process uses, and that it could still use within its limits
    memory_bytes = math.min(machine.memory_bytes, machine.now_bytes + (core.room "cpu" or 0)),
    device = run.session:facts().device, device_dataset = v.device_dataset, on_device = d.on_device,
    refused_memory = d.refused_memory, augmented = d.set.augmented }
  if text then
    run.advised = true
    show.line("note: %s", text)
  end
end

-- Prints a note once a run, when samples with an empty ground truth make up most of the loss on
-- valid.
local function say_parts(run)
  local result = run.data.valid and run.result
  local text = result and not run.told_parts
    and loss_parts.note(run.recipe, result.parts, result.empty)
  if text then
    run.told_parts = true
    show.line("note: %s", text)
  end
end

-- Updates the state from the finished epoch: averages, the memory of the schedule, early stopping.
-- Schedule and early stopping do not count an epoch without validation if they watch a value of it.
local function look_back(run, values, validated)
  local s, r = run.state, run.recipe
  local epoch = s.epoch - s.first
  average.epoch(run, epoch)
  local function seen(watch) return validated or watch.name == "train_loss" end
  if r.schedule.observe and seen(r.schedule_watch) then
    local w = r.schedule_watch
    r.schedule.observe(s.schedule, values[w.name], w.mode, recipes.lr(r))
  end
  if r.stop and seen(r.stop.watch) and early_stopping.stop(s, r.stop, values)
    and epoch < r.epochs then
    s.ended = true
    show.line("%s has not become better for %s: the %s ends after epoch %d", r.stop.watch.name,
              util.plural(r.stop.patience, "epoch"), run.phases[2] and "phase" or "training",
              s.epoch)
  end
end

-- Whether the epoch at hand is validated: every valid_every epochs of a phase, and the last.
local function is_validated(run)
  local s, r = run.state, run.recipe
  local epoch = s.epoch - s.first + 1
  return run.data.valid and (epoch % r.valid_every == 0 or epoch == r.epochs
                             or s.hooks.numbers.ended) and true or false
end

-- Validates with the average, if there is one. -> result; nil: a function of the recipe failed
local function validate(run)
  local d = run.data.valid
  local ok, result = pcall(average.with, run, function()
    return pass.run(run.session, run.recipe, d.pipeline, d.loader, run.names, "validate",
                    { metrics = metrics.by_epoch(run.recipe) })
  end)
  if ok then return result end
  if not metric_own.failed(result) then error(result, 0) end
  run.hook_failed = result
end

-- The row of metrics.csv for the training part of an epoch that began at `started`. -> row, facts
-- for its line (epoch_line.texts)
local function training_row(run, started)
  local s = run.state
  local batches = epoch_steps.count(run)
  local lr = s.hooks.numbers.lr or rate(run, s.batch - 1, batches)
  local row = { epoch = s.epoch + 1, step = run.session:facts().count, lr = lr,
                train_loss = s.seen > 0 and s.loss_sum / s.seen or 0 / 0,
                phase = run.phases[2] and s.phase }
  local tallied = {} -- the same names without "train_"
  for name, value in pairs(run.tally:columns(s.tally)) do
    row[name], tallied[name:sub(7)] = value, value
  end
  local seconds = sys.clock() - started
  traces.mark("train", started, started + seconds)
  local alone = 1 - (ranks.spent() - run.spent) / seconds
  local _, _, waited = run.data.train.loader:stats()
  row.seconds, row.samples_per_s = seconds, s.seen / seconds
  row.wait_s, run.waited = waited - run.waited, waited
  local facts = run.session:facts()
  row.copy_s, row.update_s = facts.copy_s - run.copied, facts.update_s - run.updated
  return row, { losses = { train = tallied }, alone = alone, transport = facts.transport }
end

-- Validates after an epoch; fills in the row, and `values` with the loss and each metric by name.
-- -> false if a signal or the failure of a function of the recipe stopped it
local function validate_epoch(run, started, row, values)
  local batches = epoch_steps.count(run)
  progress.note(run, "validate", row.epoch, batches, batches, 1, 1, started)
  local result = validate(run)
  if not result or ranks.stopped() then return false end
  run.result, run.result_epoch = result, row.epoch
  not_finite.say_epoch(run, result)
  row.valid_loss, values.loss = result.loss, result.loss
  for name, m in pairs(result.metrics) do
    row["valid_" .. name], row["valid_slice_" .. name] = m.mean, m.slices
    values[name] = m.mean
  end
  for name, v in pairs(result.parts) do row["valid_" .. name] = v end
  return true
end

-- Writes the row, then the checkpoint, then the row again with the time that this took.
local function save_epoch(run, row)
  try(run.csv.add, run.csv, row)
  local saved = sys.clock()
  saving.epoch(run)
  row.save_s = sys.clock() - saved
  gpu_usage.fill(run, row)
  traces.mark("checkpoint", saved)
  try(run.csv.amend, run.csv, row)
end

-- Draws the curves, and writes the record and the report.
local function report_epoch(run, row)
  local reporting = sys.clock()
  run.curves = { metrics = all_metrics(run.phases), best = run.recipe.best, epochs = run.epochs }
  try(picture.progress, run.folder, run.csv, run.curves)
  run.record:epoch(row)
  state.check_folder(run, true)
  traces.mark("report", reporting)
end

-- Ends an epoch: validates, logs and saves. Returns false if a signal or the failure of a function
-- of the recipe stopped it; the epoch then has not ended.
local function end_epoch(run, started)
  state.check_folder(run, true)
  local s, r = run.state, run.recipe
  local row, facts = training_row(run, started)
  local values, validated = { train_loss = row.train_loss }, is_validated(run)
  if validated and not validate_epoch(run, started, row, values) then return false end
  row.valid_s = sys.clock() - started - row.seconds
  if validated then traces.mark("validate", started + row.seconds) end
  local fine, stops = hooks.epoch(run, row, validated and run.result, facts.losses.train)
  if not fine then return false end
  s.epoch, s.batch, s.seen, s.loss_sum, s.tally = s.epoch + 1, 0, 0, 0.0, {}
  progress.clear(run)
  -- without a validation set no epoch is the best
  local value = values[r.best[1]] or 0 / 0
  facts.bad = row.valid_loss and #util.sorted_keys(run.result.bad) or 0
  facts.best = early_stopping.take_best(s, value, facts.bad, r.best[2])
  look_back(run, values, validated)
  s.ended, s.hooks.numbers.ended = s.ended or stops or s.hooks.numbers.ended ~= nil, nil
  ranks.same("other weights", ranks.count > 1 and tostring(run.session:digest()) or "",
             "machines that compute differently cannot train together: set one SEG_ISA for all; "
             .. "a hook must set the same arrays on all ranks")
  save_epoch(run, row)
  facts.losses.valid = row.valid_loss and run.result.parts
  show.fit(epoch_line.texts(run, row, facts))
  advise(run, row)
  say_parts(run)
  report_epoch(run, row)
  traces.mark("epoch", started)
  return true
end

-- The run ---------------------------------------------------------------------

-- The header of metrics.csv; the same for every epoch of a run.
local function csv_columns(phases)
  local c = { "epoch", "step", "lr", "train_loss", "valid_loss" }
  local all = all_metrics(phases)
  for _, name in ipairs(metrics.by_epoch { metrics = all }) do
    c[#c + 1] = "valid_" .. name
    if all[name].node then c[#c + 1] = "valid_slice_" .. name end
  end
  for _, name in ipairs { "seconds", "valid_s", "wait_s", "samples_per_s", "copy_s",
                          "update_s", "save_s" } do
    c[#c + 1] = name
  end
  if phases[2] then c[#c + 1] = "phase" end
  -- newer columns follow the older ones
  for _, name in ipairs(metrics.by_epoch { metrics = all }) do
    if all[name].node then c[#c + 1] = "train_" .. name end
  end
  local seen = {}
  for _, r in ipairs(phases) do
    for _, part in ipairs(loss_parts.of(r)) do
      for _, column in ipairs { "train_" .. part.name, "valid_" .. part.name } do
        if not seen[column] then c[#c + 1], seen[column] = column, true end
      end
    end
  end
  return c
end

-- Prints the settings of the run before it starts.
local function banner(run, weights)
  local facts = run.session:facts()
  local v, r = run.values, run.recipe
  show.line("segengine %s", core.version)
  for _, line in ipairs(config.line.flags.resume_said or {}) do show.line("%s", line) end
  show.line("device: %s%s", show.device(facts, v), devices.note())
  show.line("network: %s parameters, %s of weights and optimiser state",
            util.thousands(facts.trained), util.bytes(facts.param_bytes))
  show.line("%sseed %d, %s, batch %d, %s %s",
            config.preset and "preset " .. config.preset .. ", " or "", v.seed,
            util.plural(run.epochs, "epoch"), v.batch, r.optim.kind, util.number(recipes.lr(r)))
  if run.phases[2] then phase.describe(run) end
  local scaled = recipes.lr_note(r)
  if scaled then show.line("note: %s", scaled) end
  if weights then show.line("weights: %s", weights) end
  local share = math.ceil(r.train:batch_size() / ranks.count)
  local recompute = budget.describe(plans.plan(r, share, true, { session = run.session }))
  if recompute then show.line("recompute: %s", recompute) end
  local warning = r.schedule.warning and r.schedule.warning(recipes.lr(r), r.epochs)
  if warning then show.line("note: %s", warning) end
  if ranks.count > 1 then
    show.line("ranks: %d by %s, batch norm over %s%s", ranks.count, ranks.via,
              v.sync_norm and "the whole batch" or "the share of each",
              facts.transport ~= "" and ", all-reduce by " .. facts.transport or "")
  end
end

-- Checks that a step fits the memory of a GPU, before data is opened. The memory of this machine
-- was checked before the session was opened (footprint.lua). Sequences may all be shorter than
-- their input, so their plan says nothing yet.
local function check_room(run)
  local r, device = run.recipe, run.session:facts().device
  if device ~= "cuda" or r.inputs[1].rank < 2 then return end
  local share = math.ceil(r.train:batch_size() / ranks.count)
  local ok, plan = pcall(plans.plan, r, share, true, { session = run.session })
  if ok then run.session:want(plan.bytes) end
end

-- Checks, before the first epoch, that every learning rate of a phase is a number. The number of
-- updates of an epoch is not known yet.
local function check_schedule(r)
  for epoch = 1, r.epochs do
    local lr = r.schedule.rate(recipes.lr(r), epoch, r.epochs, {
      step = epoch, steps = r.epochs, state = r.schedule.start and r.schedule.start() })
    if math.type(lr) == nil or not (lr >= 0 and lr < math.huge) then
      fail("usage", "schedule %s: the rate of epoch %d is %s, wanted a number >= 0",
           tostring(r.schedule.name), epoch, tostring(lr))
    end
  end
end

-- For predict = { threshold = "valid" } chooses the best threshold on valid, and likewise a
-- temperature, and stores it in the file of these weights. -> threshold, a line about it
local function choose_threshold(run, weights)
  if not calibrate.wanted(run.recipe) then return nil end
  return calibrate.keep(run.session, run.recipe, run.data.valid,
                        weights.file and run.folder .. "/" .. weights.file, true)
end

-- Waits until all is written, and raises the failure of a hook.
local function finish_saving(run)
  saving.finish(run)
  hooks.raise(run)
end

-- Tests the best weights: table, summary.json, pictures. Returns false if a signal stopped it.
local function final_test(run)
  local part, weights = run.data.test and "test" or run.data.valid and "valid", nil
  local s = run.state
  finish_saving(run)
  local summary = { recipe = run.name, kind = run_kind.of_values(run.values), epochs = s.epoch,
                    stopped_early = s.ended or nil, seed = run.values.seed,
                    left_out = run.left_out }
  if part then
    local d = run.data[part]
    weights = best_weights.final_weights(run, true)
    local threshold, said = choose_threshold(run, weights)
    local cropped, beyond = pass.cropped(run.recipe, d.pipeline)
    local result = pass.run(run.session, run.recipe, d.pipeline, d.loader, run.names, part,
                            { interval = true, threshold = threshold, cropped = cropped })
    if ranks.stopped() then return false end
    run.bad = next(result.bad) ~= nil
    if not ranks.writes() then return true end -- the rest is output for people
    local file = string.format("%s/cases_%s.csv", run.folder, part)
    local text, items = evaluate.table(run.recipe, result, d.pipeline, run.hash, file)
    local lines, json = evaluate.summary(run.recipe, result, d.pipeline, run.hash)
    show.line("%s set, weights of epoch %d%s (cases are named in cases.csv):", part, weights.epoch,
              weights.average and ", their average " .. weights.average or "")
    for _, line in ipairs { text or false, said or false, beyond or false, table.unpack(lines) } do
      if line then show.result(line) end
    end
    not_finite.say(part, result, d.pipeline, run.hash)
    json.threshold, json.beyond, summary.weights = threshold, beyond, weights
    summary[part] = opened.identify(json, part, d, run.hash)
    if text then
      sys.write(file, evaluate.csv(run.recipe, result, d.pipeline, run.hash))
      try(picture.overlays, run, d, items, part, result)
    end
  end
  if not ranks.writes() then return true end
  state.check_folder(run, true)
  -- the facts of the files, which final_weights has checked
  summary.best, summary.best_epoch = s.best, s.best_epoch
  summary.best_of = s.best and run.recipe.best[1]
  summary.valid_not_finite = s.not_finite > 0 and s.not_finite or nil
  summary.gpu = gpu_usage.summary(run.csv)
  run.record:finish(summary, part, weights)
  run.record:close("finished")
  -- summary.json marks the run as finished, so it is written last: a run killed before resumes and
  -- writes the report too
  sys.write(run.folder .. "/summary.json", util.json(summary) .. "\n")
  return true
end

-- Ends a run that has done its --steps. -> exit code
local function with_steps(run)
  finish_saving(run)
  footprint.report(run)
  show.line("stopped after %s as requested; continue with --resume %s",
            util.plural(run.session:facts().count, "step"), run.folder)
  return 0
end

-- Trains the remaining epochs of the phase, and its average. Returns the exit code if a signal or a
-- limit stopped it.
local function train_phase(run)
  local s = run.state
  local told = run.values.until_epoch
  while not s.ended and s.epoch - s.first < run.recipe.epochs do
    -- checked before an epoch: a resumed run that has reached the limit does nothing
    if told > 0 and s.epoch >= told then
      finish_saving(run)
      show.line("stopped after epoch %d as requested; continue with --resume %s", s.epoch,
                run.folder)
      return 0
    end
    if has_steps(run, 0) then return with_steps(run) end
    local started = sys.clock()
    local whole, limit = train_epoch(run)
    if not whole or not end_epoch(run, started) then
      progress.clear(run)
      saving.save(run, { "checkpoint_last" })
      finish_saving(run)
      if limit then return with_steps(run) end
      local signal, called = ranks.stopped()
      show.line("%s: saved at epoch %d, batch %d; continue with --resume %s", called, s.epoch + 1,
                s.batch + 1, run.folder)
      return 128 + signal
    end
  end
  if average.finish(run) then return nil end
  show.line("the average is not done; --resume %s completes it", run.folder)
  return 128 + ranks.stopped()
end

-- Opens the run's folder, its lock and its hash function. Only rank 0 makes the folder; its path is
-- broadcast to the other ranks.
local function open_folder(run, resume)
  if ranks.writes() then
    run.folder = resume or run_folder.given(config.line.flags.run)
      or run_folder.new(run.values.out, run.name)
    run.lock = run.lock or core.checkpoint.lock(run.folder)
  end
  run.folder = ranks.of_first(run.folder or "")
  show.on_look = run.lock and function() state.check_folder(run) end
  -- the first rank makes the key of the hashes
  ranks.in_turn(function() run.hash = run_folder.hasher(run_folder.base(run.folder)) end)
end

-- Replaces an object whose methods only write.
local mute = setmetatable({}, { __index = function() return function() end end })

-- Runs the training from opening the data to the test. -> exit code
local function work(run, resume)
  local v = run.values
  for _, p in ipairs(run.phases) do
    p.best = p.best or { "loss", "min" }
    check_schedule(p)
  end
  clusters.check(run)
  local newest, said, meta = nil, nil, {}
  if resume then
    run.lock, run.folder = ranks.writes() and core.checkpoint.lock(resume), resume
    newest, said = core.checkpoint.newest(resume)
    if not newest then fail("data", "%s", said) end
    meta = aliases.rows(core.checkpoint.meta(newest), newest)
    resuming.find_phase(run, meta)
    local r = run.recipe
    -- the fitted numbers of the original run; other steps are refused below
    local same, train = pcall(r.train.fitted_as, r.train, meta.preprocessing)
    local was = r.train
    for _, p in ipairs(run.phases) do
      if same and rawequal(p.train, was) then p.train = train end
    end
    resuming.check_same(run, meta)
  end
  phase.enter(run)
  banner(run, phase.start_weights(run, resume ~= nil))
  check_room(run)
  state.check_disk(run, resume or v.out, resume)
  local opening, before = sys.clock(), sys.machine().rss_bytes
  -- rank 0 goes first and makes the cache files, which the other ranks then read
  local made = v.cache_file ~= "" or not v.data
  if made then ranks.in_turn(function() phase.open_data(run) end) else phase.open_data(run) end
  run.opening_s = sys.clock() - opening
  local machine = sys.machine()
  -- peak memory of preparing cases, beyond the memory that stays in use
  run.opening_bytes = machine.rss_bytes > before and machine.rss_bytes - machine.now_bytes or 0
  phase.begin(run, meta)
  clusters.check_data(run)
  footprint.settle(run)
  -- a run that cannot begin leaves no folder behind
  open_folder(run, resume)
  local sets = phase.sets(run)
  local rows = resuming.case_rows(sets, run.hash)
  local bad
  bad, run.left_out = resuming.left_out(sets, run.hash)
  if resume then resuming.check_cases(run, rows) end
  resuming.same_everywhere(run, rows)
  if ranks.writes() then show.open_log(run.folder .. "/log.txt") end
  show.line("run: %s", run.folder)
  for _, b in ipairs(bad) do
    show.warn("%s: case %s is left out, left_out.csv says why", b.part, b.case)
  end
  if resume then
    if said ~= "" then show.warn("%s", (said:gsub("\n+$", ""))) end
    state.restore(run, core.checkpoint.load(newest, run.session, true))
    show.line("resumed at epoch %d, batch %d", run.state.epoch + 1, run.state.batch + 1)
    resuming.say_epochs(run)
    try(phase.put_aside, run)
  elseif ranks.writes() then
    sys.write(run.folder .. "/config.txt", config.text())
    sys.write(run.folder .. "/recipe.lua", run.text)
  end
  run.csv, run.record = mute, mute
  gpu_usage.open(run)
  if ranks.writes() then
    run_folder.write_cases(run.folder, rows)
    if bad[1] then run_folder.write_left_out(run.folder, bad) end
    run.csv = epoch_table.open(run.folder, gpu_usage.columns(run, csv_columns(run.phases)),
                               run.state.epoch)
    run.csv:widen(run.state.hooks.columns)
    run.record = record.open(run)
  end
  -- a folder that cannot be written fails here, before the first epoch
  saving.complete(run, newest)
  if resume then best_weights.settle(run) end
  sys.catch_signals()

  repeat
    local code = train_phase(run) or clusters.finish(run)
    if code then return code end
    local more = phase.next(run)
    if more then footprint.settle(run) end
  until not more
  -- a signal after the end changes nothing: with the exit code for "unfinished" the user would
  -- start the run again
  if not final_test(run) then
    local signal, called = ranks.stopped()
    show.line("%s: training is done, the test is not; --resume %s completes it", called, run.folder)
    return 128 + signal
  end
  footprint.report(run)
  done.run(run)
  return not_finite.exit_code(run)
end

-- Runs work() under --trace; the trace is written also if the run fails.
local function traced(run, resume)
  traces.open()
  local ok, code = pcall(work, run, resume)
  try(traces.close)
  if not ok then error(code, 0) end
  return code
end

-- The command train. `resume` is a folder or nil. -> exit code
function M.train(r, name, text, resume)
  local run = { phases = r.phases, recipe = r.phases[1], name = name, text = text,
                values = config.ensure(), waited = 0, reported_bad = {}, state = state.new(),
                saving = saving.new() }
  if not ranks.writes() then return work(run, resume) end
  return record.ended(run, pcall(traced, run, resume))
end

return M
