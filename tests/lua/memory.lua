-- memory.lua -- the messages when memory is not enough.

local t = dofile("tests/support/harness.lua")
local folder, remove = t.folder()

-- The bytes of a text "WHAT 5.5 GiB".
local function bytes(text, what)
  local number, unit = text:match(what .. "%s+([%d.]+) (%a+)")
  t.check(number, what .. " is missing: " .. text)
  return tonumber(number) * ({ B = 1, KiB = 1 << 10, MiB = 1 << 20, GiB = 1 << 30 })[unit]
end

t.test("an arena that the machine has not got", function()
  if (os.getenv("SAN") or "") ~= "" then t.skip("sanitizers want all addresses") end
  local code, text = t.program("scripts/brain_unet.lua --preset demo --batch 256 "
                               .. "--recompute off --phantom "
                               .. folder .. "/phantom --out " .. folder .. "/runs",
                               "ulimit -v 3000000; ")
  t.equal(code, 1, text)
  t.check(text:find("no memory: training needs %d+ bytes"), text)
  local sum = 0
  for _, what in ipairs { "values", "gradients of values", "workspace of kernels",
                          "gaps between them", "weights, gradients, optimiser",
                          "batches made ahead, program" } do
    sum = sum + bytes(text, "  " .. what)
  end
  -- each part is rounded to a tenth
  t.check(math.abs(sum / bytes(text, "  together") - 1) < 0.05, text)
  t.check(text:find("%-%-batch 128 %(accumulate = 2 in seg.recipe keeps the step%)%s+frees"), text)
  t.check(text:find("%-%-size 48%s+frees"), text)
  t.check(text:find("optim.sgd in the recipe, for adamw%s+frees 7.4 MiB"), text)
  t.check(text:find("%-%-recompute auto %(up to %d+ %% of a forward run more%)%s+frees 1%.%d GiB"),
          text)
end)

t.test("DCMTK without memory for its dictionary", function()
  if (os.getenv("SAN") or "") ~= "" then t.skip("sanitizers want all addresses") end
  if not require("seg.core").data.dicom_ready() then t.skip "built without DICOM" end
  local script = t.write(folder .. "/dictionary.lua", [[
    local function write(name)
      return require("seg").data.phantom { patients = 3, size = 16, slices = 2, root = "]]
    .. folder .. [[/dictionary/" .. name }:dataset()
    end
    -- the mask of the third patient is compressed, so DCMTK writes it;
    -- a lock that the first call left when it had no memory must not block the second
    pcall(write, "first")
    print(#write("second"):cases() .. " cases")]])
  local refused, starts = false, false
  -- from the limit at which the program barely starts: each run prints one error line, or succeeds
  for kib = 56000, 140000, 1000 do
    os.execute("rm -rf '" .. folder .. "/dictionary'")
    local code, text = t.program(script, "ulimit -c 0; ulimit -v " .. kib .. "; timeout 60 ")
    -- the memory may be enough for the first call and not for the second
    text = text:gsub("synthetic patients: wrote [^\n]*\n", "")
    local line = text:match("^segengine: [^\n]*\n$")
    -- 127: not even the libraries fit; 134, 139: nor what their constructors allocate before main,
    -- which that of CUDA does not check
    starts = starts or code ~= 127 and code ~= 139
      and not (code == 134 and text:find "^terminate called")
    if starts then
      t.check(code == 0 and text:find "3 cases\n$" or code == 1 and line and line:find "memory",
              kib .. " KiB: code " .. tostring(code) .. ": " .. text)
    end
    if line and line:find "dicom: no memory to write it; fix: " then refused = true end
  end
  t.check(refused, "no limit met the dictionary")
end)

t.test("the same for a GPU: each remedy is a plan", function()
  local recipe = t.write(folder .. "/recipe.lua", [[
    local seg = require "seg"
    local nn, config = seg.nn, require "seg.recipe.config"
    local cfg = seg.config { size = 64, batch = 12, recompute = "off", presets = { demo = {} } }
    local image = nn.input("image", { c = 1, h = cfg.size, w = cfg.size })
    local truth = nn.input("mask", { c = 1, h = cfg.size, w = cfg.size })
    local x = nn.maxpool(nn.relu(nn.conv(image, 8, 3)), 4)
    local logits = nn.conv(nn.upsample(x, 4), 1, 1)
    local set = seg.data.phantom { patients = 4, size = 64, slices = 2 }
    local r = { inputs = { image, truth }, outputs = { mask = logits },
                loss = nn.bce(logits, truth), train = set:slices { axis = "axial" },
                optim = seg.optim.adamw { lr = 1e-3 }, accumulate = 3 }
    r = require("seg.recipe.recipe").recipe(r)
    local memory, plans = require "seg.train.memory", require "seg.inspect.plan"
    local function need(batch, train, change)
      local p = plans.plan(r, batch, train, change)
      return p.bytes + p.param_bytes
    end
    local now = need(12, true)
    local function say(o) print(table.concat(memory.lines(r, o), "\n")) end
    say { wanted = now, room = 0, device = true, command = "train" }
    print("batch 6 " .. now - need(6, true))
    print("size 48 " .. now - need(12, true, { scale = 0.75 }))
    print("--")
    -- the free memory decides how small the suggested batch is
    say { wanted = now, room = need(2, true), device = true, command = "train" }
    print("--")
    say { wanted = now, room = 0, device = true, command = "predict" }
    print("--")
    -- one byte less than the smallest batch needs
    say { wanted = now, room = need(1, true) - 1, device = true, command = "train" }
    print("--")
    -- a buffer for uploads, allocated last: little is missing
    say { wanted = 4096, room = 1024, device = true, command = "train" }
    print("--")
    -- the first allocation: the later ones count too
    local weights = plans.plan(r, 12, true).weight_bytes
    say { wanted = weights, room = need(3, true), device = true, command = "train" }
    print("--")
    print("least " .. now - need(12, true, { recompute = "least" }))
    print("--")
    config.values.recompute = "auto"
    say { wanted = now, room = 0, device = true, command = "train" }
    print("--")
    config.values.batch, config.values.recompute = 1, "off"
    say { wanted = now, room = 0, device = false, command = "train" }
    -- early: the other memory was part of the comparison
    say { wanted = 3 << 20, rest = 17 << 20, room = 18 << 20, early = true, device = false,
          command = "train" }
    os.exit(0)
  ]])
  local text = t.says(recipe, 0, "training, batch 12, takes at most")
  local util = require "seg.util"
  local train, fits, predict, none, late, first, least, auto, one =
    text:match("^" .. ("(.-)\n%-%-\n"):rep(8) .. "(.*)$")
  local said = { ["batch 6"] = "batch 6 %(accumulate = 6 .-%)", ["size 48"] = "size 48" }
  for what, key in pairs(said) do
    local frees = util.bytes(tonumber(train:match("\n" .. what .. " (%d+)")))
    t.check(train:find("%-%-" .. key .. "%s+frees " .. frees), what .. ": " .. train)
  end
  -- halved three times: 3 would need more than 2
  t.check(fits:find("%-%-batch 1 %(accumulate = 36 [^\n]*frees %S+ %a+\n"), fits)
  t.check(one:find("; needed at once: 20.0 MiB, free: 18.0 MiB\n", 1, true), one)
  t.check(fits:find("for adamw%s+frees %S+ %a+, still too much"), fits)
  t.check(train:find("(--device_dataset) and places for uploads come on top", 1, true), train)
  t.check(not train:find("still too much", 1, true), "nothing is known of what is free: " .. train)
  t.check(none:find("--batch 1 [^\n]*, still too much"), none)
  t.check(none:find("--size 16 [^\n]*frees"), "smaller until it is enough: " .. none)
  t.check(late:find("--batch 6 [^\n]*frees %S+ %a+\n"), late)
  t.check(not first:find("--batch 6", 1, true) and first:find("--batch %d [^\n]*frees %S+ %a+\n"),
          first)
  t.check(predict:find("evaluation, batch 12", 1, true), predict)
  t.check(not predict:find("accumulate", 1, true), predict)
  t.check(predict:find("--device cpu: the memory of the machine", 1, true), predict)
  t.check(not predict:find("optim.sgd", 1, true), predict)
  t.check(not one:find("--batch", 1, true) and one:find("--cache_mb 0", 1, true), one)
  -- cached volumes are part of the program's memory; they may be less than --cache_mb allows
  t.check(one:find("--cache_mb 0[^\n]+ frees [%d.]+ MiB at most"), one)
  local frees = util.bytes(tonumber(least:match("least (%d+)")))
  t.check(train:find("--recompute auto (up to ", 1, true) and
          train:find("of a forward run more%)%s+frees " .. frees), train)
  t.check(not auto:find("--recompute", 1, true), "it is done already: " .. auto)
  t.check(auto:find("batch 12, values computed again, takes", 1, true), auto)
end)

t.test("without a recipe there is nothing to plan", function()
  local script = t.write(folder .. "/plain.lua",
    'require("seg.train.memory").explain(1, 0, false) print("said nothing")')
  t.equal(t.says(script, 0, "said nothing"), "said nothing\n")
end)

remove()
t.finish()
