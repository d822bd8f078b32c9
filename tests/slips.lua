-- slips.lua -- mistakes that everyone makes once: each is answered on the line
-- where it was made, with what was meant.

local t = dofile("tests/harness.lua")
local seg = require "seg"
local data, nn, optim, metric = seg.data, seg.nn, seg.optim, seg.metric

local folder, remove = t.folder()

-- A recipe for volumes of the phantom, as text; of `changes` each {what, instead}
-- is made in it.
local plain = [[
local seg = require "seg"
local data, nn, optim, metric = seg.data, seg.nn, seg.optim, seg.metric
local cfg = seg.config { size = 8, patients = 4 }
local cases = data.phantom { format = "nifti", patients = cfg.patients, size = 32, slices = 8 }
local function prepare(set) return set:normalize {}:resize { d = 8, h = 8, w = 8 } end
local train, valid = cases:split { valid = 1, seed = 1 }
train, valid = prepare(train):batches { size = 2 }, prepare(valid):batches { size = 1 }
local x = nn.input("image", { c = 1, d = 8, h = 8, w = 8 })
local truth = nn.input("mask", { c = 1, d = 8, h = 8, w = 8 })
local logits = nn.conv(x, 1, 3)
seg.recipe { inputs = { x, truth }, outputs = { mask = nn.sigmoid(logits) },
  loss = nn.bce(logits, truth), metrics = { dice = metric.dice(logits, truth) },
  train = train, valid = valid, optim = optim.sgd { lr = 0.1 },
  predict = { image = "*_T1w" } }
]]

local count = 0
local function script(...)
  local text = plain
  for _, change in ipairs { ... } do
    local at, to = text:find(change[1], 1, true)
    t.check(at, "nothing to change: %s", change[1])
    text = text:sub(1, at - 1) .. change[2] .. text:sub(to + 1)
  end
  count = count + 1
  return t.write(string.format("%s/r%d.lua", folder, count), text)
end

-- The recipe so changed ends with 2 and says this on line `line` of it.
local function refuses(line, part, ...)
  local path = script(...)
  t.says(path .. " plan", 2, string.format("%s:%d: %s", path:match("[^/]+$"), line, part))
end

t.test("a dot for a colon, and a colon for a dot", function()
  t.says(script() .. " plan", 0, "parameters")
  refuses(5, "set.normalize { ... }: write a colon, set:normalize { ... }",
          { "set:normalize", "set.normalize" })
  refuses(6, "set.split { ... }: write a colon, set:split { ... }",
          { "cases:split", "cases.split" })
  refuses(7, "set.batches { ... }: write a colon, set:batches { ... }",
          { "prepare(train):batches", "prepare(train).batches" })
  refuses(4, "data:phantom { ... }: write a dot, data.phantom { ... }",
          { "data.phantom", "data:phantom" })
  refuses(10, "nn:conv { ... }: write a dot, nn.conv { ... }", { "nn.conv", "nn:conv" })
  refuses(12, "metric:dice { ... }: write a dot, metric.dice { ... }",
          { "metric.dice", "metric:dice" })
  refuses(13, "optim:sgd { ... }: write a dot, optim.sgd { ... }", { "optim.sgd", "optim:sgd" })
  refuses(3, "seg:config { ... }: write a dot, seg.config { ... }",
          { "seg.config", "seg:config" })
  refuses(11, "seg:recipe { ... }: write a dot, seg.recipe { ... }",
          { "seg.recipe", "seg:recipe" })
  -- a method of another set, without any argument, with the wrong one
  local set = data.phantom {}
  for _, f in ipairs { function() set.labels() end, function() set.filter(print) end,
                       function() set.fit { h = 1 } end } do
    t.raises(f, "write a colon, set:")
  end
  t.equal(set.normalize(set, {}).steps, set:normalize({}).steps)
end)

t.test("options of predict are checked", function()
  local at = 'predict = { image = "*_T1w" }'
  refuses(11, 'seg.recipe: predict: unknown option "imgae"; did you mean "image"?',
          { at, 'predict = { imgae = "*" }' })
  refuses(11, 'seg.recipe: predict: unknown option "thresold"; did you mean "threshold"?',
          { at, "predict = { thresold = 0.4 }" })
  refuses(11, 'seg.recipe: predict: unknown option "skip_unmatched"',
          { at, "predict = { skip_unmatched = true }" })
  refuses(11, "seg.recipe: predict: image must be a name or a list of names, got 3",
          { at, "predict = { image = 3 }" })
  refuses(11, "seg.recipe: predict: names must be a list of names, got tumour",
          { at, 'predict = { names = "tumour" }' })
  refuses(11, "seg.recipe: predict: threshold must be a number between 0 and 1, got 40",
          { at, "predict = { threshold = 40 }" })
  t.says(script { at, 'predict = { image = { "*_T1w", "*_T2w" }, names = { "a" }, '
                  .. "threshold = 0.3 }" } .. " plan", 0, "parameters")
end)

t.test("a field is checked where it is described", function()
  local function cases(field)
    return function()
      data.cases { fields = { { name = "x", read = "npy", rank = 1 }, field }, cases = {} }
    end
  end
  for _, row in ipairs {
    { { name = "label", kind = "number" }, 'field "label": kind must be image, value, label, '
      .. 'numbers or length, got "number"' },
    { { name = "y", rnak = 1 }, 'field: unknown option "rnak"; did you mean "rank"?' },
    { { name = "y", raed = "npy" }, 'field: unknown option "raed"; did you mean "read"?' },
    { { name = "y", read = "png" }, 'there is no reader "png"' },
    { { name = "y", read = "image", rank = 3 }, "y: rank 3, image gives 2" },
    { { name = "y", read = "image", exif = "turn" }, 'exif is "turn", need "refuse"' },
    { { name = "y", read = "npy", axes = "hww" }, 'axes "hww"' },
    { 3, "a field must be a table, got number" },
    { { name = "x" }, 'two fields are called "x"' },
  } do
    t.raises(cases(row[1]), row[2])
    if type(row[1]) == "table" then
      local field = {}
      for k, v in pairs(row[1]) do field[k] = v end
      field.columns, field.name = { "a" }, row[1].name
      t.raises(function()
        data.csv { root = "no", table = "t.csv", patient = "file",
                   fields = { { name = "x", read = "npy", rank = 1, column = "x" }, field } }
      end, row[2])
    end
  end
  -- all options of photographs, and the rank that a reader or axes give
  local set = data.cases { fields = {
    { name = "p", read = "image", alpha = "drop", exif = "apply", page = 2, trailing = true },
    { name = "s", read = "npy", axes = "cw" }, { name = "v", read = "npy" } }, cases = {} }
  t.equal(set.source.ranks.p, 2)
  t.equal(set.source.ranks.s, 1)
  t.equal(set.source.ranks.v, 3)
  t.equal(set.source.assumed.v, true)
  t.equal(set.source.assumed.s, nil)
  local path = t.write(folder .. "/rank.lua", [[
    local seg = require "seg"
    local x = seg.nn.input("x", { c = 1, w = 8 })
    local y = seg.nn.linear(seg.nn.global_pool(x), 1)
    seg.recipe { inputs = { x }, outputs = { y = y }, loss = seg.nn.mse(y, y),
      train = seg.data.cases { fields = { { name = "x", read = "npy" } }, cases = {} },
      optim = seg.optim.sgd { lr = 1 } }]])
  t.says(path .. " plan", 2, 'say how many axes its arrays have beside channels: rank = 1 in field '
         .. '"x"')
end)

remove()
t.finish()
