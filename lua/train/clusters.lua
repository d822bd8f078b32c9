-- clusters.lua -- seg.clusters: classes found without labels, in rounds at the end of a phase.
--
-- A round embeds all training sequences in evaluation mode, finds clusters of the vectors by
-- k-means, and trains a classifier of the clusters. If its accuracy on held-out vectors is high
-- enough, the rounds end. Otherwise the encoder is fine-tuned with the clusters as labels, through
-- a linear head that is then discarded, and the next round begins. (Caron et al., "Deep
-- clustering", ECCV 2018, do the same without this stopping rule.)
--
-- A round is a function of the weights that it begins with, so only the weights and the number of
-- finished rounds are saved: a run that is killed repeats its round and ends with the same bytes.

local base = require "seg.evaluate.metric_base"
local core = require "seg.core"
local diverge = require "seg.train.diverge"
local opened = require "seg.data.opened"
local optim = require "seg.recipe.optim"
local ranks = require "seg.train.ranks"
local recipes = require "seg.recipe.recipe"
local show = require "seg.show"
local saving = require "seg.train.saving"
local util = require "seg.util"

local none, fail = util.none, util.fail
local M = {}

local FIFTH = 5 -- every fifth vector of each cluster is held out to test the classifier

-- Batch size for embedding sequences.
local EMBED_BATCH = 64

-- The sessions of a round ------------------------------------------------------

-- Completes the fields of a recipe that a session needs; o has its outputs or its loss.
local function part_of(o)
  o.outputs, o.metrics, o.predict, o.frozen, o.ema = o.outputs or {}, {}, {}, {}, 0
  return o
end

-- Copies the parameters that both sessions have from one to the other.
local function hand_over(from, to)
  local have = {}
  for _, p in ipairs(from:params()) do have[p.name] = true end
  for _, p in ipairs(to:params()) do
    if have[p.name] then to:set(p.name, "value", from:get(p.name)) end
  end
end

-- One round --------------------------------------------------------------------

-- Embeds all samples. -> vectors (N,C), the row of each sample, and its true class where there is
-- one; nil if a signal stopped it.
local function embed(run, c)
  local r, d = run.recipe, opened.in_order(run.data.train, EMBED_BATCH)
  local session = recipes.session(part_of { outputs = { points = c.embedding } }, "predict")
  hand_over(run.session, session)
  local batches, count = d.loader:batches()
  local points = core.array.zeros { count, c.embedding.c }
  local at, place, truth = 0, {}, {}
  for _ = 1, batches do
    if ranks.stopped() then break end
    local batch = d.loader:next()
    local feeds = opened.feeds(batch, run.names, r)
    session:forward(feeds, false)
    local vectors = session:read(c.embedding)
    local classes = c.truth and feeds[c.truth.name]:array()
    for i, number in ipairs(batch.samples) do
      at = at + 1
      place[number], truth[at] = at, classes and classes:get(i, 1)
      for k = 1, c.embedding.c do points:set(vectors:get(i, k), at, k) end
    end
  end
  session:close()
  d.loader:close()
  if ranks.stopped() then return nil end
  return points, place, truth
end

-- The rows `which` of an array (N,C), and of a list.
local function rows_of(points, list, which)
  local width = points.shape[2]
  local out, of = core.array.zeros { #which, width }, core.array.zeros { #which, 1 }
  for i, row in ipairs(which) do
    for k = 1, width do out:set(points:get(row, k), i, k) end
    of:set(list[row], i, 1)
  end
  return out, of
end

-- Returns a function that takes the results of session:step and raises an error after several steps
-- in a row that are not finite: such steps are not applied, and nothing else would report them.
-- what: the network that learns; rate: the option to lower.
local function watch(round, what, rate)
  local bad = 0
  return function(_, _, applied, overflow)
    bad = (applied or overflow) and 0 or bad + 1
    if bad < diverge.BAD_STEPS then return end
    fail("diverged", "clusters: round %d: %d steps in a row of the %s gave a loss or gradient that "
         .. "is not finite; a lower %s", round, bad, what, rate)
  end
end

-- Raises if a vector is not finite or all vectors are equal.
local function check_vectors(points, round)
  local count, width = points.shape[1], points.shape[2]
  local differ = false
  for i = 1, count do
    for k = 1, width do
      local v = points:get(i, k)
      if v - v ~= 0 then
        fail("diverged", "clusters: round %d: the vector of sequence %d holds %s; the encoder has "
             .. "diverged, a lower lr (or tune_lr) keeps it finite", round, i, util.number(v))
      end
      differ = differ or v ~= points:get(1, k)
    end
  end
  if not differ then
    fail("diverged", "clusters: round %d: the encoder gives all %d sequences the same vector, in "
         .. "which nothing can be found; a lower lr (or tune_lr), or another loss", round, count)
  end
end

-- Trains a new classifier on the clusters of four fifths of the vectors, as one batch in every
-- step. -> its session, its accuracy on the last fifth
local function learn(c, points, found, lr, round)
  local seen, kept, met = {}, {}, {}
  for i, cluster in ipairs(found) do
    met[cluster] = (met[cluster] or 0) + 1
    local list = met[cluster] % FIFTH == 0 and kept or seen
    list[#list + 1] = i
  end
  if #kept == 0 then
    fail("data", "clusters: %s in %d clusters leave none to test the classifier with; more data, "
         .. "or fewer clusters", util.plural(#found, "sequence"), c.k)
  end
  local session = recipes.session(part_of { loss = c.learn_loss, outputs = { logits = c.learned },
    optim = optim.adam { lr = lr } }, "train", nil, nil, nil, true)
  local x, y = rows_of(points, found, seen)
  local watched = watch(round, "classifier", "learn_lr")
  for _ = 1, c.learn_epochs do
    watched(session:step({ [c.points.name] = x, [c.found.name] = y },
                         { lr = lr, clip = c.clip_norm }))
  end
  x, y = rows_of(points, found, kept)
  session:forward({ [c.points.name] = x, [c.found.name] = y }, false)
  local logits, right = session:read(c.learned), 0
  for i = 1, #kept do
    local best = 1
    for k = 2, c.k do if logits:get(i, k) > logits:get(i, best) then best = k end end
    if best - 1 == y:get(i, 1) then right = right + 1 end
  end
  return session, right / #kept
end

-- Fine-tunes the encoder on the clusters. Returns false if a signal stopped it.
local function tune(run, c, round, found, place, lr)
  local r, loader = run.recipe, run.data.train.loader
  local session = recipes.session(part_of { loss = c.tune_loss, optim = optim.adam { lr = lr } },
                                  "train", nil, nil, nil, true)
  hand_over(run.session, session)
  local watched = watch(round, "encoder that is tuned", "tune_lr (or lr)")
  for epoch = 1, c.tune_epochs do
    -- random draws of epochs that no other round uses
    loader:seek(run.state.epoch + (round - 1) * c.tune_epochs + epoch - 1, 0)
    for _ = 1, (loader:batches()) do
      if ranks.stopped() then
        session:close()
        return false
      end
      local batch = loader:next()
      local feeds, labels = opened.feeds(batch, run.names, r), core.array.zeros { batch.count, 1 }
      for i, number in ipairs(batch.samples) do labels:set(found[place[number]], i, 1) end
      feeds[c.found.name] = labels
      watched(session:step(feeds, { lr = lr, clip = c.clip_norm }))
    end
  end
  hand_over(session, run.session)
  session:close()
  return true
end

-- The share of samples whose cluster is their class, for the best assignment of clusters to
-- classes; nil if a sample has no class.
local function agreement(found, truth, k)
  local class = {}
  for i = 1, #found do
    class[i] = math.tointeger(truth[i])
    if not class[i] or class[i] < 0 then return nil end
  end
  return base.agreement(found, class, k)
end

-- The run ----------------------------------------------------------------------

local HEAD = "round,silhouette,classifier,accuracy\n"

-- Writes rounds.csv: the rows of earlier rounds and the row of this one. The file is rewritten,
-- because the run may have been killed after it wrote this row.
local function write_row(run, round, silhouette, known, right)
  local path, lines = run.folder .. "/rounds.csv", {}
  local was = util.exists(path) and util.read_file(path) or HEAD
  for line in was:sub(#HEAD + 1):gmatch("[^\n]+") do
    if tonumber(line:match("^%d+")) < round then lines[#lines + 1] = line .. "\n" end
  end
  lines[#lines + 1] = string.format("%d,%s,%s,%s\n", round, util.number(silhouette),
                                    util.number(known), right and util.number(right) or "")
  core.sys.write(path, HEAD .. table.concat(lines))
end

-- Runs one round. Returns true if another round follows, false if it was the last, nil if a signal
-- stopped it.
local function work(run, c, round)
  local v, lr = run.values, recipes.lr(run.recipe)
  local points, place, truth = embed(run, c)
  if not points then return nil end
  check_vectors(points, round)
  local found = core.measure.groups(points, { k = c.k, starts = c.starts, seed = v.seed })
  local silhouette = core.measure.silhouette(points, found, { k = c.k, seed = v.seed })
  local session, known = learn(c, points, found, c.learn_lr or lr, round)
  local right = c.truth and agreement(found, truth, c.k)
  local last = known >= c.enough or round == c.rounds
  show.line("round %d of %d: silhouette %s, the classifier predicts %s of the held-out sequences "
            .. "correctly%s%s",
            round, c.rounds, util.fixed(silhouette), util.fixed(known),
            right and string.format("; %s of the sequences are in the cluster of their class",
                                    util.fixed(right)) or "", last and "" or "; tuning")
  if last then hand_over(session, run.session) end
  session:close()
  if not last and not tune(run, c, round, found, place, c.tune_lr or lr / 10) then return nil end
  write_row(run, round, silhouette, known, right)
  return not last
end

-- Raises, before anything is trained, if a phase of `run` has clusters and there are several ranks.
function M.check(run)
  for _, r in ipairs(run.phases) do
    if r.clusters and ranks.count > 1 then
      util.refuse("clusters: the rounds run in one process; leave out --ranks and --devices")
    end
  end
end

-- Raises, before `run` trains, if its phase has too few sequences for its clusters.
function M.check_data(run)
  local c, n = run.recipe.clusters, run.data.train.pipeline:samples()
  -- with fewer, no cluster has a fifth vector to test the classifier with
  local least = c and math.max(c.k, FIFTH)
  if c and n < least then
    fail("data", "clusters: %s to train on, %d clusters need %d or more; more data, or fewer "
         .. "clusters", util.plural(n, "sequence"), c.k, least)
  end
end

-- Runs the remaining rounds of the phase. Returns nil when all are done, or the exit code if a
-- signal stopped it.
function M.finish(run)
  local s, c = run.state, run.recipe.clusters
  if not c or s.clustered then return nil end
  opened.renew(run.data.train) -- batches that the session of a round can take
  local more = true
  while more do
    more = work(run, c, s.round + 1)
    if more == nil then
      local signal, called = ranks.stopped()
      show.line("%s: in round %d, which is begun anew with --resume %s", called, s.round + 1,
                run.folder)
      return 128 + signal
    end
    s.round, s.clustered = s.round + 1, not more
    saving.save(run, { "checkpoint_last" })
  end
  return nil
end

-- Description --------------------------------------------------------------------

local described = 0 -- number of seg.clusters calls

-- seg.clusters { ... }: the `clusters` of a recipe or phase. embedding: the vector (N,C) of a
-- sample. classifier: a function from a vector to logits of k classes; it is called twice and must
-- make the same layers. k: number of clusters. starts: restarts of k-means. rounds: the maximum;
-- enough: the accuracy that ends the rounds. learn_epochs, learn_lr: of the classifier (default:
-- the phase's learning rate); tune_epochs, tune_lr: of the encoder (default: a tenth of it).
-- clip_norm: of both. truth: an input with class numbers, for the log only. -> the value for
-- `clusters`; the logits of the embedding, for outputs and metrics
function M.clusters(o)
  local nn = require "seg.recipe.nn"
  local c = util.options("seg.clusters", o, {
    embedding = none, classifier = none, k = none, starts = 10, rounds = 10, enough = 0.85,
    learn_epochs = 15, learn_lr = none, tune_epochs = 5, tune_lr = none, clip_norm = 1,
    truth = none })
  if not util.is_node(c.embedding) or c.embedding.rank ~= 0 then
    fail("usage", "seg.clusters: embedding must be a vector of each sample, (N,C), got %s",
         tostring(c.embedding))
  end
  if type(c.classifier) ~= "function" then
    fail("usage", "seg.clusters: classifier must be a function from a vector to logits, got %s",
         type(c.classifier))
  end
  for _, key in ipairs { "k", "starts", "rounds", "learn_epochs", "tune_epochs" } do
    local least = key == "k" and 2 or 1
    if math.type(c[key]) ~= "integer" or c[key] < least then
      fail("usage", "seg.clusters: %s must be a whole number >= %d, got %s", key, least,
           tostring(c[key]))
    end
  end
  for _, key in ipairs { "enough", "learn_lr", "tune_lr", "clip_norm" } do
    if c[key] ~= nil and not (math.type(c[key]) and c[key] >= 0) then
      fail("usage", "seg.clusters: %s must be a number >= 0, got %s", key, tostring(c[key]))
    end
  end
  if c.truth ~= nil and not (util.is_node(c.truth) and c.truth.kind == "input") then
    fail("usage", "seg.clusters: truth must be an input with class numbers, got %s",
         tostring(c.truth))
  end
  local function classify(x, share)
    return nn.scope("classifier", function() return c.classifier(x) end, { share = share })
  end
  c.logits = classify(c.embedding, false)
  if not util.is_node(c.logits) or c.logits.rank ~= 0 or c.logits.c ~= c.k then
    fail("usage", "seg.clusters: the classifier must give %d numbers for %d clusters, got %s", c.k,
         c.k, tostring(c.logits))
  end
  -- inputs have no scopes, and another phase may have clusters too
  described = described + 1
  c.points = nn.input("clusters" .. described .. "_points", { c = c.embedding.c })
  c.found = nn.input("clusters" .. described .. "_found", { c = 1 })
  c.learned = classify(c.points, true)
  c.learn_loss = nn.cross_entropy(c.learned, c.found)
  c.tune_loss = nn.scope("tuning", function()
    return nn.cross_entropy(nn.linear(c.embedding, c.k, { name = "head" }), c.found)
  end)
  c.kind = "clusters"
  return c, c.logits
end

return M
