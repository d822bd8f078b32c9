-- clusters.lua -- learning without labels: losses computed here, second views, and the rounds of
-- seg.clusters.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local nn = seg.nn

local serial = 0
local function name(what)
  serial = serial + 1
  return what .. serial
end

local function step_of(loss, outputs, device)
  return seg.step { loss = loss, outputs = outputs, device = device, seed = 3,
                    optim = seg.optim.sgd { lr = 0 } }
end

-- Losses ----------------------------------------------------------------------

t.test("contrastive is the cross entropy of finding the partner", function()
  local tau, c = 0.5, 4
  for _, device in ipairs { "ref", "cpu" } do
    local x = nn.input(name "x", { c = 5 })
    local a, b = nn.linear(x, c), nn.linear(x, c)
    local s = step_of(nn.contrastive(a, b, { temperature = tau }), { a = a, b = b }, device)
    for _, n in ipairs { 6, 3, 1 } do
      local loss, out = s:run { [x.name] = core.array.random({ n, 5 }, 7, false) }
      local function unit(v, i)
        local mean, square, list = 0, 0, {}
        for k = 1, c do mean = mean + v:get(i, k) / c end
        for k = 1, c do square = square + (v:get(i, k) - mean) ^ 2 / c end
        for k = 1, c do list[k] = (v:get(i, k) - mean) / math.sqrt(square + 1e-5) end
        return list
      end
      local want = 0
      for i = 1, n do
        local left = unit(out.a, i)
        local function score(j)
          local right, sum = unit(out.b, j), 0
          for k = 1, c do sum = sum + left[k] * right[k] end
          return sum / (c * tau)
        end
        local sum = math.exp(score(i))
        for j = 1, n do sum = sum + math.exp(score(j)) end
        want = want + (math.log(sum) - score(i)) / n
      end
      t.near(loss, want, 1e-5, device .. " of " .. n)
    end
  end
end)

t.test("statistics is the distance of the batch's mean and deviation", function()
  local x = nn.input(name "x", { c = 2, w = 4 })
  local length = nn.input(name "n", { c = 1 })
  local e = nn.linear(nn.global_pool(x, { mode = "max" }), 3)
  local s = step_of(nn.statistics(e, x, { lengths = length }), { e = e }, "ref")
  local n, own = 5, { 4, 2, 3, 1, 4 }
  local feed, lengths = core.array.random({ n, 2, 4 }, 5, false), core.array.zeros { n, 1 }
  for i = 1, n do lengths:set(own[i], i, 1) end
  local loss, out = s:run { [x.name] = feed, [length.name] = lengths }
  -- mean, and standard deviation over the batch, of n rows, each averaged over columns
  local function both(get, columns)
    local mean, deviation = 0, 0
    for k = 1, columns do
      local m, square = 0, 0
      for i = 1, n do m = m + get(i, k) / n end
      for i = 1, n do square = square + (get(i, k) - m) ^ 2 / n end
      mean, deviation = mean + m / columns, deviation + square / math.sqrt(square + 1e-5) / columns
    end
    return mean, deviation
  end
  local m1, d1 = both(function(i, k) return out.e:get(i, k) end, 3)
  local m2, d2 = both(function(i, k)
    local sum = 0
    for p = 1, own[i] do sum = sum + feed:get(i, k, p) / own[i] end
    return sum
  end, 2)
  t.near(loss, (m1 - m2) ^ 2 + (d1 - d2) ^ 2, 1e-6)
end)

-- Compares gradients with finite differences of the loss, for one element of each parameter.
local function check_gradients(loss_of)
  local x = nn.input(name "g", { c = 5, w = 3 })
  local s = step_of(nn.scope(name "s", function() return loss_of(x) end), {}, "ref")
  local feeds, checked = { [x.name] = core.array.random({ 6, 5, 3 }, 9, false) }, 0
  s:run(feeds)
  for parameter, g in pairs(s:gradients()) do
    local w = s:get(parameter)
    local was, d = w:get(1, 2), 1e-3
    local function at(value)
      w:set(value, 1, 2)
      s:set(parameter, w)
      return (s:run(feeds))
    end
    t.near(g:get(1, 2), (at(was + d) - at(was - d)) / (2 * d), 2e-4, parameter)
    at(was)
    checked = checked + 1
  end
  t.check(checked > 0, "no parameter was looked at")
end

t.test("gradients of contrastive and statistics are those of differences", function()
  local function vector(x) return nn.linear(nn.global_pool(x), 4, { bias = false }) end
  check_gradients(function(x) return nn.contrastive(vector(x), vector(x)) end)
  check_gradients(function(x) return nn.statistics(vector(x), x) end)
end)

t.test("steps are masked in training, in runs of span, and the mean stays", function()
  local x = nn.input(name "h", { c = 3, w = 24 })
  local y = nn.mask_steps(x, { steps = 0.25, span = 4 })
  local s = step_of(nn.mse(nn.linear(y, 3), x), { y = y }, "cpu")
  local ones = core.array.zeros { 200, 3, 24 }
  for i = 1, 200 do for c = 1, 3 do for w = 1, 24 do ones:set(1, i, c, w) end end end
  local _, out = s:run { [x.name] = ones }
  local masked, sum = 0, 0
  for i = 1, 200 do
    for w = 1, 24 do
      local v = out.y:get(i, 1, w)
      t.check(v == 0 or math.abs(v - 4 / 3) < 1e-6, "a value of %g", v)
      t.equal(out.y:get(i, 3, w), v, "another channel")
      t.equal(out.y:get(i, 1, w - (w - 1) % 4), v, "the start of its run")
      masked, sum = masked + (v == 0 and 1 or 0), sum + v
    end
  end
  t.near(masked / 4800, 0.25, 0.05)
  t.near(sum / 4800, 1, 0.07)
  local m = seg.model { outputs = {
    y = nn.mask_steps(x, { steps = 0.5, channels = 0.5, numbers = 0.5 }) } }
  t.equal((m:run { [x.name] = ones }.y:distance(ones)), 0, "in evaluation")
end)

t.test("a decoder is as long as its sequence, and 0 beyond its lengths", function()
  local x, n = nn.input(name "d", { c = 2, w = 6 }), nn.input(name "n", { c = 1 })
  local y = seg.net.lstm_decoder(nn.global_pool(x), { like = x, lengths = n, hidden = 3, out = 5,
                                                      name = name "decoder" })
  local m = seg.model { outputs = { y = y } }
  local out = m:run { [x.name] = core.array.random({ 2, 2, 6 }, 1, false),
                      [n.name] = seg.array { shape = { 2, 1 }, data = { 6, 4 } } }.y
  t.equal(table.concat(out.shape, "x"), "2x5x6")
  t.check(out:get(2, 1, 4) ~= 0 and out:get(2, 1, 5) == 0 and out:get(1, 1, 6) ~= 0)
end)

t.test("mistakes are named", function()
  local x, v = nn.input(name "e", { c = 4, w = 6 }), nn.input(name "e", { c = 4 })
  t.raises(function() nn.contrastive(x, v) end, "nn.contrastive: needs a vector for each sample")
  t.raises(function() nn.contrastive(v, nn.input(name "e", { c = 3 })) end, "got 4 and 3")
  t.raises(function() nn.contrastive(v, v, { temperature = 0 }) end, "temperature must be a number")
  t.raises(function() nn.statistics(x, x) end, "nn.statistics: needs a vector")
  t.raises(function() nn.mask_steps(x, { steps = 0.1, span = 4 }) end, "divides w = 6, got 4")
  t.raises(function() nn.mask_steps(v) end, "must be a sequence")
  for _, share in ipairs { "steps", "channels", "numbers" } do
    t.raises(function() nn.mask_steps(x, { [share] = 1.5 }) end,
             "nn.mask_steps: " .. share .. " must be a number from 0 to below 1, got 1.5")
  end
  t.raises(function() nn.statistics(v, v) end, "nn.statistics: the second operand must be a seq")
  t.raises(function() seg.net.lstm_decoder(x, { like = x }) end, "needs a vector (N,C)")
  local function with(o)
    o.embedding, o.k = o.embedding or v, o.k or 3
    o.classifier = o.classifier or function(y) return nn.linear(y, 3) end
    return function() nn.scope(name "c", function() seg.clusters(o) end) end
  end
  t.raises(with { embedding = x }, "embedding must be a vector")
  t.raises(with { classifier = 3 }, "classifier must be a function")
  t.raises(with { classifier = function() end }, "must give 3 numbers for 3 clusters, got nil")
  t.raises(with { k = 1 }, "k must be a whole number >= 2")
  t.raises(with { k = 4 }, "must give 4 numbers for 4 clusters")
  t.raises(with { enough = "all" }, "enough must be a number")
  t.raises(with { truth = nn.linear(v, 1) }, "truth must be an input")
  t.raises(with { starst = 3 }, 'did you mean "starts"')
  -- and two phases may each have clusters, in a scope
  with {}()
  with {}()
end)

-- Runs ------------------------------------------------------------------------

local folder, remove = t.folder()
local text = [[
local seg = require "seg"
local metric, nn, optim = seg.metric, seg.nn, seg.optim
local cfg = seg.config { rounds = 4, enough = 2.0, valid = false, ema = 0.0, k = 3, epochs = 2,
                         batch = 12, learn_epochs = 15, folds = 0, frozen = "",
                         presets = { demo = {}, full = {}, check = {} } }
local train, _, test = seg.data.phantom { format = "sequences", speakers = 3, takes = 4,
                                          classes = 3, features = 8 }
  :split { test = 1, folds = cfg.folds, seed = 1 }
local function batches(set, shuffle)
  return set:batches { size = cfg.batch, shuffle = shuffle, bucket = "length",
                                    multiple = 16, twice = { sequence = "other" } }
end
train = batches(train:normalize {}:augment { noise = { p = 1 } }, true)
test = test and batches(test:normalize {})
local x, other = nn.input("sequence", { c = 8, w = 128 }), nn.input("other", { c = 8, w = 128 })
local length, label = nn.input("length", { c = 1 }), nn.input("label", { c = 1 })
local function encode(v)
  return nn.scope("encoder", function()
    return seg.net.cnn_lstm(v, { lengths = length, features = { 4 }, hidden = 4, project = 6,
                                 out = 6 })
  end, { share = true })
end
local clusters, logits = seg.clusters {
  embedding = encode(x), k = cfg.k, truth = label, rounds = cfg.rounds, enough = cfg.enough,
  learn_epochs = cfg.learn_epochs, learn_lr = 1e-2, tune_epochs = 2,
  classifier = function(v) return seg.net.mlp(v, { hidden = { 4 }, out = cfg.k }) end }
seg.recipe {
  inputs = { x, length, label, other }, outputs = { label = nn.softmax(logits) },
  loss = nn.contrastive(encode(x), encode(other)), clusters = clusters,
  train = train, test = test, valid = cfg.valid and test or nil, ema = cfg.ema,
  frozen = cfg.frozen ~= "" and { cfg.frozen } or {},
  metrics = { accuracy = metric.groups(logits, label) }, optim = optim.adam { lr = 1e-3 },
}
]]
local script = t.write(folder .. "/rounds.lua", text)
local line = script .. " --phantom " .. folder .. "/phantom --device cpu --workers 1 "

t.test("second views are of the same samples, changed by draws of their own", function()
  t.says(line:gsub("%.lua", ".lua export", 1) .. "--reference " .. folder
         .. "/steps --steps 2", 0, "")
  for _, step in ipairs { "0001", "0002" } do
    local a = seg.array.load(folder .. "/steps/step_" .. step .. "_sequence.npy")
    local b = seg.array.load(folder .. "/steps/step_" .. step .. "_other.npy")
    t.equal(table.concat(a.shape, "x"), table.concat(b.shape, "x"))
    local distance, power = a:distance(b)
    -- two draws of noise of 0.05, compared with numbers of sd 1
    t.check(distance > 1e-4 * power and distance < 0.05 * power, "%g of %g", distance, power)
  end
end)

local function state_of(run)
  return t.read(run .. "/rounds.csv") .. t.read(run .. "/checkpoint_last.safetensors")
end

t.test("the doctor knows what a second view is of", function()
  local said = t.says(line:gsub("%.lua", ".lua doctor", 1):gsub("^(%S+) doctor", "doctor data %1"),
                      0, "samples fit the inputs")
  t.check(not said:find("no field for the input", 1, true), said)
end)

t.test("rounds are as many as allowed, or end when the classifier knows enough", function()
  local said = t.says(line .. "--out " .. folder .. "/whole", 0, "round 4 of 4: silhouette")
  t.check(not said:find("round 4 of 4[^\n]*; tuning") and said:find("round 3 of 4[^\n]*; tuning"))
  local rows = t.lines("cat " .. folder .. "/whole/rounds/001/rounds.csv")
  t.equal(#rows, 5)
  t.equal(rows[1], "round,silhouette,classifier,accuracy")
  t.says(line .. "--enough 0 --out " .. folder .. "/one", 0, "round 1 of 4")
  t.equal(#t.lines("cat " .. folder .. "/one/rounds/001/rounds.csv"), 2)
  -- evaluate measures the values with which the run ended
  local _, again = t.program(line:gsub("%.lua", ".lua evaluate", 1) .. "--json --weights " .. folder
                             .. "/whole/rounds/001")
  local value = said:match("accuracy of all cases: ([%d.]+)")
  t.near(tonumber(again:match('"mean": ([%d.e-]+)')), tonumber(value), 1e-4, again)
end)

t.test("a run that is told to stop in a round begins it anew, and ends with the same", function()
  local run = folder .. "/cut/rounds/001"
  local lines = t.lines("sh -c '" .. t.path() .. " " .. line .. "--out " .. folder .. "/cut & "
    .. "p=$!; until [ -s " .. run .. "/rounds.csv ] || ! kill -0 $p; "
    .. "do sleep 0.02; done; kill -TERM $p; "
    .. "wait $p; echo code $?' 2>&1")
  local code = tonumber(lines[#lines]:match("code (%d+)"))
  t.check(code == 143 or code == 0, "code %s", tostring(code))
  if code == 0 then t.skip("it was done before it was told to stop") end
  t.says(line .. "--out " .. folder .. "/cut --resume " .. run, 0, "resumed at epoch 3")
  t.check(state_of(run) == state_of(folder .. "/whole/rounds/001"), "other rounds or weights")
end)

t.test("a recipe with clusters that cannot be is refused", function()
  t.says(line .. "--valid", 2, "clusters take the last weights of a phase; leave out valid")
  t.says(line .. "--ema 0.9", 2, "leave out ema")
  t.says(line .. "--frozen encoder.cnn", 2, "clusters tune the whole encoder; leave out frozen")
  -- before any training
  local said = t.says(line .. "--ranks 2 --out " .. folder .. "/ranks", 2,
                      "the rounds run in one process; leave out --ranks")
  t.check(not said:find("epoch 1/", 1, true), said)
  said = t.says(line:gsub("%.lua", ".lua folds", 1) .. "--folds 3 --out " .. folder .. "/folds", 2,
                "folds: the recipe has no valid set with these numbers")
  t.check(not said:find("epoch 1/", 1, true), said)
  t.says(line .. "--k 20 --out " .. folder .. "/many", 3, "leave none to test the classifier")
  local bad = t.write(folder .. "/bad.lua", (text:gsub('"other" } }', '"length" } }', 1)))
  t.says(bad .. " --phantom " .. folder .. "/phantom --out " .. folder .. "/bad", 2,
         "the set has a field of that name")
end)

remove()
t.finish()
