-- incoming.lua -- inputs of a trained network: files like the training data, with or without a
-- table, by the script or from a bundle; and errors on other files.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local folder, remove = t.folder()

local function run(arguments) return t.says(arguments, 0, "") end

-- A table of sequences with the number of a class, as cross_entropy takes it.
t.test("sequences of a table: classes from 0, files alone, a bundle", function()
  local rows, place = { "path,kind" }, folder .. "/seq"
  os.execute("mkdir -p " .. place .. "/up " .. place .. "/down")
  for i = 3, 8 do
    for kind, sign in pairs { up = 1, down = -1 } do
      local a = seg.array.zeros { i, 2 }
      for w = 1, i do a:set(sign * w / 8, w, 1) end
      seg.array.save(string.format("%s/%s/%d.npy", place, kind, i), a)
    end
    rows[#rows + 1] = string.format("up/%d.npy,1", i)
    rows[#rows + 1] = string.format("down/%d.npy,0", i)
  end
  t.write(place .. "/kinds.csv", table.concat(rows, "\n") .. "\n")
  local script = t.write(folder .. "/kinds.lua", [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { workers = 1, batch = 3, epochs = 30 }
local set = seg.data.csv { root = cfg.data, table = "kinds.csv", patient = "file", fields = {
  { name = "x", read = "npy", rank = 1, column = "path" }, { name = "length", kind = "length" },
  { name = "kind", kind = "numbers", column = "kind" } } }:fit { w = 10, at = "start" }
local x, y = nn.input("x", { c = 2, w = 10 }), nn.input("kind", { c = 1 })
local length = nn.input("length", { c = 1 })
local z = nn.linear(nn.global_pool(x, { lengths = length }), 2)
seg.recipe { inputs = { x, y, length }, outputs = { kind = nn.softmax(z) },
  loss = nn.cross_entropy(z, y), train = set:batches { size = 3 },
  optim = seg.optim.adamw { lr = 0.1 }, epochs = cfg.epochs }
]])
  run(script .. " --data " .. place .. " --out " .. folder .. "/runs")
  local weights, bundle = " --weights " .. folder .. "/runs/kinds/001", folder .. "/k.safetensors"
  local function predict(by, path, out)
    run(by .. " --in " .. place .. "/" .. path .. " --out " .. folder .. "/" .. out)
    return t.lines("cat " .. folder .. "/" .. out .. "/predictions.csv")
  end
  local lines = predict(script .. " predict" .. weights, "kinds.csv", "kinds")
  t.equal(lines[1], "case,class,p_0,p_1")
  for i = 2, 13 do
    local key, class = lines[i]:match("^(.-),(.-),")
    t.equal(class, key:find("up", 1, true) and "1" or "0", key)
  end
  -- files of the only field, without a table; the length is derived
  local alone = predict(script .. " predict" .. weights, "up/4.npy", "kinds_alone")
  t.check(table.concat(lines, "|"):find("up/4.npy" .. alone[2]:match(",.*"), 1, true), alone[2])
  t.equal(#predict(script .. " predict" .. weights, "up", "kinds_up"), 7)
  run(script .. " export --bundle " .. bundle .. weights)
  local about = t.says("inspect " .. bundle, 0, "bundle      kinds, trained on real data")
  t.check(about:find("\nreads       csv, for x, length\nprepares    fit d=0 h=0 w=10 at=start\n",
                     1, true), about)
  local by = "predict --bundle " .. bundle
  t.equal(table.concat(predict(by, "", "kinds_bundle"), "|"), table.concat(lines, "|"))
  t.equal(predict(by, "up/4.npy", "kinds_bundle1")[2], alone[2])
end)

t.test("what lies in --in is of one patient where that is what normalizes", function()
  local place, rows = folder .. "/voices", { "path,who,level" }
  os.execute("mkdir -p " .. place .. "/low " .. place .. "/high")
  for i = 1, 3 do
    for kind, offset in pairs { low = 0, high = 40 } do
      local a, path = seg.array.zeros { 5, 1 }, string.format("%s/%d.npy", kind, i)
      for w = 1, 5 do a:set(offset + (w * i) % 7, w, 1) end
      seg.array.save(place .. "/" .. path, a)
      rows[#rows + 1] = string.format("%s,%s,%d", path, kind, i)
    end
  end
  t.write(place .. "/t.csv", table.concat(rows, "\n") .. "\n")
  local script = t.write(folder .. "/voices.lua", [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { workers = 1 }
local set = seg.data.csv { root = cfg.data, table = "t.csv", patient = "who", fields = {
  { name = "x", read = "npy", rank = 1, column = "path" },
  { name = "level", kind = "numbers", column = "level" } } }:normalize { per = "patient" }
local x, y = nn.input("x", { c = 1, w = 5 }), nn.input("level", { c = 1 })
local z = nn.linear(nn.global_pool(x), 1)
seg.recipe { inputs = { x, y }, outputs = { level = z }, loss = nn.mae(z, y),
  train = set:batches { size = 3 }, optim = seg.optim.sgd { lr = 0 }, epochs = 1 }
]])
  run(script .. " --data " .. place .. " --out " .. folder .. "/runs")
  local weights, bundle = " --weights " .. folder .. "/runs/voices/001", folder .. "/v.safetensors"
  run(script .. " export --bundle " .. bundle .. weights)
  local function predict(by, path, out)
    run(by .. " --in " .. place .. "/" .. path .. " --out " .. folder .. "/" .. out)
    local found = {}
    for _, line in ipairs(t.lines("cat " .. folder .. "/" .. out .. "/predictions.csv")) do
      local key, value = line:match("^(%d+),(%S+)$")
      if key then found[#found + 1] = { key = tonumber(key), value = tonumber(value) } end
    end
    table.sort(found, function(a, b) return a.key < b.key end)
    return found
  end
  -- more files than are opened at once, in two orders
  local many = 260
  os.execute("mkdir -p " .. place .. "/up " .. place .. "/down")
  for i = 1, many do
    local a = seg.array.zeros { 5, 1 }
    for w = 1, 5 do a:set(i * i + w, w, 1) end
    seg.array.save(string.format("%s/up/%03d.npy", place, i), a)
    seg.array.save(string.format("%s/down/%03d.npy", place, many + 1 - i), a)
  end
  for i, by in ipairs { script .. " predict" .. weights, "predict --bundle " .. bundle } do
    local up, down = predict(by, "up", "up" .. i), predict(by, "down", "down" .. i)
    t.equal(#up, many)
    for k = 1, many, 37 do t.near(up[k].value, down[many + 1 - k].value, 1e-5) end
    local low, high = predict(by, "low", "low" .. i), predict(by, "high", "high" .. i)
    t.equal(#low, 3)
    -- a constant offset of one voice is removed, differences between its cases stay
    for k = 1, 3 do t.near(low[k].value, high[k].value, 1e-5) end
    t.check(math.abs(low[1].value - low[2].value) > 1e-3, "%g", low[1].value)
  end
  -- an unreadable file is left out, and the other results do not change
  os.execute("cp -r " .. place .. "/low " .. place .. "/cut")
  t.write(place .. "/cut/4.npy", "no array")
  t.says(script .. " predict" .. weights .. " --in " .. place .. "/cut --out " .. folder
         .. "/cut", 3, "4.npy: npy: ")
  t.equal(t.read(folder .. "/cut/predictions.csv"), t.read(folder .. "/low1/predictions.csv"))
end)

t.test("a part of a picture that a function says cannot leave in a bundle", function()
  local rows = { "file,age" }
  os.execute("mkdir -p " .. folder .. "/faces")
  for i = 1, 2 do
    local p = require("seg.core").picture.canvas(16, 16, 0x404040 * i)
    p:save(string.format("%s/faces/%d.png", folder, i))
    p:close()
    rows[#rows + 1] = i .. ".png," .. i
  end
  t.write(folder .. "/faces/t.csv", table.concat(rows, "\n") .. "\n")
  local script = t.write(folder .. "/faces.lua", [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { workers = 1 }
local set = seg.data.csv { root = cfg.data, table = "t.csv", patient = "file", fields = {
  { name = "image", read = "image", column = "file", box = function() return 4, 4, 8, 8 end },
  { name = "age", kind = "numbers", column = "age" } } }
local x, y = nn.input("image", { c = 3, h = 8, w = 8 }), nn.input("age", { c = 1 })
local z = nn.linear(nn.global_pool(x), 1)
seg.recipe { inputs = { x, y }, outputs = { age = z }, loss = nn.mae(z, y),
  train = set:batches { size = 2 }, optim = seg.optim.sgd { lr = 0 }, epochs = 1 }
]])
  run(script .. " --data " .. folder .. "/faces --out " .. folder .. "/runs")
  t.says(script .. " export --bundle " .. folder .. "/f.safetensors --out " .. folder .. "/runs",
         2, 'field "image" is cropped by a function of the script (box)')
end)

t.test("maps of draws are numbered as classes are, the background 0", function()
  local results = require "seg.predict.results"
  local function endings(kind)
    return table.concat(results.endings({ as = "labels", kind = kind, draws = 2,
                                          node = { c = 3 } }, { predict = {} }), " ")
  end
  t.equal(endings "nifti", ".nii.gz _mean_0.nii.gz _mean_1.nii.gz _mean_2.nii.gz _entropy.nii.gz "
          .. "_variance.nii.gz")
  t.equal(endings "npy", ".npy _mean.npy _entropy.npy _variance.npy")
end)

t.test("a picture of the result is within the memory that was planned", function()
  local script = t.write(folder .. "/pictured.lua", [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { workers = 1, batch = 4, epochs = 1 }
local set = seg.data.phantom { format = "nifti", patients = 2, size = 64, slices = 8,
                               root = "]] .. folder .. [[/heads" }:normalize {}:slices {}
local x = nn.input("image", { c = 1, h = 64, w = 64 })
local y = nn.input("mask", { c = 1, h = 64, w = 64 })
local z = nn.conv(x, 1, 3)
seg.recipe { inputs = { x, y }, outputs = { mask = nn.sigmoid(z) }, loss = nn.bce(z, y),
  train = set:batches { size = 4 }, optim = seg.optim.sgd { lr = 0.1 }, epochs = 1,
  predict = { image = "*_T1w" } }
]])
  run(script .. " --out " .. folder .. "/runs")
  local text = run(script .. " predict --weights " .. folder .. "/runs/pictured/001 --overlays"
                   .. " --in " .. folder .. "/heads --out " .. folder .. "/pictures")
  local planned = tonumber(text:match("at most [^(]*%((%d+) bytes%)"))
  local took = tonumber(text:match("took at most [^(]*%((%d+) bytes%)"))
  t.check(planned and took and took <= planned, "%s", text)
  t.check(took > planned / 2, "twice as much was planned: %s", text)
end)

remove()
t.finish()
