-- budget.lua -- a memory budget: the recomputed values, the batch that fits, and the measured
-- memory.

local t = dofile("tests/support/harness.lua")
local core = require "seg.core"
local util = require "seg.util"
local folder, remove = t.folder()

-- In so small a network the scratch memory of Winograd's transforms would dominate the arena, which
-- recomputation does not reduce.
local check = "scripts/brain_unet.lua --preset check --winograd false"
local brain = check .. " --quiet"

-- One number of `plan --json` of the brain recipe with these options, as text.
local function planned(options, part, key)
  local text = t.says(brain .. " plan --json " .. options, 0, '"' .. part .. '": {')
  return tonumber(text:match('"' .. part .. '": {.-"' .. key .. '": (%d+)'))
end

-- A run of 3 epochs; returns its last checkpoint and its output.
local function trained(name, options)
  local text = t.says(check .. " --epochs 3 --phantom " .. folder
                      .. "/phantom --out " .. folder .. "/" .. name .. " " .. options, 0, "run: ")
  local path = folder .. "/" .. name .. "/brain_unet/001/"
  return t.read(path .. "checkpoint_last.safetensors"), text, path
end

t.test("amounts of memory", function()
  for text, bytes in pairs { ["512"] = 512, ["2K"] = 2048, ["1.5G"] = 3 << 29, ["2 GiB"] = 2 << 30,
                             ["15GB"] = 15 * 10 ^ 9 // 1, ["1m"] = 1 << 20, ["3T"] = 3 << 40 } do
    t.equal(util.bytes_of(text), bytes, text)
  end
  for _, text in ipairs { "", "G", "0", "0.1", "-2G", "2X", "2GX", "1.2.3", "2iB", "1e3", "2Gi" } do
    t.equal(util.bytes_of(text), nil, "of " .. text)
  end
  t.says(brain .. " plan --recompute lots", 2, '--recompute is "lots", wanted auto, off or an')
  t.says(brain .. " plan --vram 0", 2, '--vram is "0", wanted an amount of memory, as 512M')
  t.says(brain .. " plan --batch some", 2, '--batch takes a whole number, got "some"')
end)

t.test("plan says what is computed again", function()
  local all = planned("--recompute off", "train", "bytes")
  t.equal(planned("--recompute off", "train", "recompute_calls"), 0)
  t.equal(planned("--recompute auto", "train", "bytes"), all, "there is room")
  local budget = all * 7 // 10
  t.check(planned("--recompute " .. budget, "train", "bytes") <= budget)
  t.equal(planned("--recompute " .. budget, "train", "kept_bytes"), all)
  t.equal(planned("--recompute " .. budget, "evaluate", "bytes"),
          planned("--recompute off", "evaluate", "bytes"))
  local text = t.says(brain .. " plan --recompute " .. budget, 0, "extra  again")
  t.check(text:find("\nrecompute    %d+ of %d+ values .- GFLOP %(%d+ %% of a forward run%) and"),
          text)
  t.check(text:find("batch_norm [^\n]*again"), text)
  local refused = t.says(brain .. " plan --recompute 4K", 2, "the arena of a training step takes "
                         .. all)
  local least = refused:match("and at least (%d+) with recompute")
  t.check(planned("--recompute " .. least, "train", "bytes") <= tonumber(least))
end)

t.test("the same bytes, whatever is computed twice", function()
  local want = trained("off", "--recompute off")
  local half = planned("--recompute off", "train", "bytes") * 3 // 5
  local got, text = trained("half", "--recompute " .. half)
  t.check(text:find("\nrecompute: %d+ of %d+ values"), text)
  t.equal(got, want, "checkpoint")
  -- resumed with another setting, in the middle of an epoch and twice
  trained("cut", "--recompute " .. half .. " --steps 4")
  local resume = " --steps 0 --resume " .. folder .. "/cut/brain_unet/001"
  trained("cut", "--recompute off --steps 7" .. resume:gsub("%-%-steps 0", ""))
  t.equal(trained("cut", "--recompute auto" .. resume), want, "checkpoint of the resumed run")
end)

t.test("the numerical face", function()
  local path = t.write(folder .. "/step.lua", [[
    local seg = require "seg"
    local nn, x = seg.nn, seg.nn.input("x", { c = 1, h = 16, w = 16 })
    local y, truth = x, seg.nn.input("t", { c = 4, h = 16, w = 16 })
    for _ = 1, 6 do y = nn.dropout(nn.relu(nn.batch_norm(nn.conv(y, 4, 3))), 0.2) end
    local function trained(recompute)
      local s = seg.step { loss = nn.mse(y, truth), optim = seg.optim.adamw { lr = 0.01 },
                           seed = 3, recompute = recompute }
      local feeds = { x = seg.array.zeros { 2, 1, 16, 16 }, t = seg.array.zeros { 2, 4, 16, 16 } }
      for i = 1, 512 do feeds.x:set(i % 7, 1 + (i - 1) // 256, 1, 1 + i % 16, 1 + i // 3 % 16) end
      for _ = 1, 3 do s:run(feeds) end
      local sum = {}
      for name, g in pairs(s:gradients()) do
        for i = 1, g.shape[1] do
          local at = { i }
          for k = 2, #g.shape do at[k] = 1 end
          sum[#sum + 1] = string.format("%s %d %a", name, i, g:get(table.unpack(at)))
        end
      end
      table.sort(sum)
      return table.concat(sum, "\n")
    end
    local all = trained()
    print(trained("180K") == all, #all > 1000)
    print(pcall(trained, "1K"))
    print(pcall(trained, "few"))
  ]])
  local text = t.says(path, 0, "true\ttrue\n")
  t.check(text:find(" with recompute; the budget is 1024", 1, true), text)
  t.check(text:find('recompute must be an amount of memory, as "2G", got few', 1, true), text)
end)

t.test("a bound on all that a network takes", function()
  local arena, weights = planned("--recompute off", "train", "bytes"),
    planned("--recompute off", "train", "param_bytes")
  local less = weights + arena * 3 // 5
  local text = t.says(brain .. " --recompute off --vram " .. less .. " --phantom " .. folder
                      .. "/phantom --out " .. folder .. "/bound", 1, "--vram gives " .. less)
  -- the advice is the largest batch that fits; the workspace of convolutions depends on the
  -- processor
  for _, remedy in ipairs { "%-%-batch [12] %(accumulate = [24]", "%-%-recompute auto %(up to ",
                            "%-%-size 16", "optim%.sgd in the recipe" } do
    t.check(text:find(remedy .. "[^\n]*frees %d"), remedy .. ": " .. text)
  end
  -- auto stays within the budget, and reports it
  local _, said = trained("vram", "--steps 2 --vram " .. less)
  t.check(said:find("\nrecompute: "), said)
  t.says(brain .. " plan --vram " .. weights, 0, ": not enough")
end)

t.test("batch auto: the largest that fits", function()
  local text = t.says("scripts/brain_unet.lua --preset check plan --batch auto --vram 4M", 0,
                      "of 4.0 MiB (--vram)")
  local batch = tonumber(text:match("batch: (%d+), the most that fits"))
  local function takes(n)
    local options = "--recompute off --batch " .. n
    return math.max(planned(options, "train", "bytes"), planned(options, "evaluate", "bytes"))
      + planned(options, "train", "param_bytes")
  end
  t.check(takes(batch) <= 4 << 20 and takes(batch + 1) > 4 << 20, "batch " .. batch)
  -- with recomputation a larger batch fits
  local more = t.says("scripts/brain_unet.lua --preset check plan --batch auto --vram 4M "
                      .. "--recompute 2M", 0, "the most that fits")
  t.check(tonumber(more:match("batch: (%d+), the")) ~= batch, more)
  t.says(brain .. " plan --batch auto --vram 1K", 1, "--batch auto: a batch of 1 takes")
  local none = t.says(brain .. " evaluate --split test --batch auto --vram 1K --weights "
                      .. folder .. "/off/brain_unet/001", 1, "options that need less")
  t.check(none:find("evaluation, batch 1, takes", 1, true), none)
end)

t.test("batch auto in a script", function()
  local path = t.write(folder .. "/own.lua", [[
    local seg = require "seg"
    local nn = seg.nn
    local cfg = seg.config { batch = "auto", recompute = "1M", vram = "2 MiB",
                             presets = { demo = {}, full = {}, bad = { batch = 0 } } }
    local image = nn.input("image", { c = 1, h = 16, w = 16 })
    local truth = nn.input("mask", { c = 1, h = 16, w = 16 })
    local set = seg.data.phantom { patients = 4, size = 16, slices = 2 }
    local logits = nn.conv(nn.relu(nn.conv(image, 8, 3)), 1, 1)
    seg.recipe { inputs = { image, truth }, outputs = { mask = logits },
                 loss = nn.bce(logits, truth), optim = seg.optim.sgd { lr = 0.1 },
                 train = set:slices { axis = "axial" }:batches { size = cfg.batch } }
    print("batch is " .. cfg.batch)
  ]])
  local text = t.says(path .. " plan", 0, "batch is auto\n")
  t.check(text:find("\nbatch        %d+\n"), text)
  local run = path .. " --epochs 1 --phantom " .. folder .. "/tiny --out " .. folder .. "/own"
  t.says(run, 0, "batch: 8, all samples of the training set")
  t.says(run .. " --batch 3", 0, ", batch 3, sgd")
  t.says(run .. " --preset bad", 2, "batch must be from 1 to 1048576, got 0")
end)

t.test("a run keeps the batch that was found", function()
  local weights = planned("", "train", "param_bytes")
  local room = " --vram " .. weights + planned("--recompute off --batch 6", "train", "bytes")
  local _, text, path = trained("auto", "--batch auto --steps 2" .. room)
  t.check(text:find("batch: 6, the most that fits", 1, true), text)
  t.check(t.read(path .. "config.txt"):find("\nbatch = 6\n", 1, true))
  -- also with more memory at the resume, and the line is the same
  local _, again = trained("auto", "--batch auto --steps 0 --vram 1G --resume " .. path)
  t.check(again:find(", batch 6,", 1, true) and not again:find("the most that", 1, true), again)
  t.says(brain .. " --batch 7 --resume " .. path, 2, "differs from the run that is resumed")
  t.equal((trained("six", "--batch 6")), (trained("auto", "--resume " .. path)))
  -- never more than the number of training samples
  local _, said = trained("all", "--batch auto --steps 1 --vram 1G")
  local count = tonumber(said:match("batch: (%d+), all samples of the training set"))
  t.check(count and t.read(folder .. "/all/brain_unet/001/config.txt")
          :find("\nbatch = " .. count .. "\n", 1, true), said)
end)

t.test("plan against measured in every recipe", function()
  if (os.getenv("SAN") or "") ~= "" then t.skip("sanitizers take memory of their own") end
  local recipes = {}
  for _, name in ipairs(core.sys.list("scripts")) do
    local text = name:find("%.lua$") and t.read("scripts/" .. name) or ""
    if text:find("seg.recipe {", 1, true) then recipes[#recipes + 1] = name end
  end
  t.check(#recipes >= 2)
  for _, name in ipairs(recipes) do
    local script, options, arena, batch = "scripts/" .. name, nil, 0, 40
    local function plan(how)
      return script .. " plan --preset check --json " .. options .. how
    end
    -- enough samples to make the arena large compared with the program's other memory
    while arena < 32 << 20 do
      batch = 2 * batch
      options = "--batch " .. batch .. " --recompute "
      arena = tonumber(t.says(plan "off", 0, '"train"'):match('"train": {.-"bytes": (%d+)'))
    end
    -- three fifths of it, or the least that recomputation allows
    local _, refused = t.program(plan(arena * 3 // 5))
    local least = tonumber(refused:match("and at least (%d+) with recompute")) or arena * 3 // 5
    for _, how in ipairs { "off", least < arena and least or nil } do
      local text = t.says(script .. " bench --preset check --json " .. options .. how, 0, "{")
      local planned_bytes = tonumber(text:match('"planned_bytes": (%d+)'))
      local measured = tonumber(text:match('"measured_bytes": (%d+)'))
      t.check(how == "off" or planned_bytes < arena)
      t.check(math.abs(measured / planned_bytes - 1) <= 0.1, "%s, %s: planned %d, measured %d",
              name, how, planned_bytes, measured)
    end
  end
end)

remove()
t.finish()
