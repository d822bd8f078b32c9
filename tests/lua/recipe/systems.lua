-- systems.lua -- the recipes of docs/systems/README.md: parameter counts of the networks of the
-- reports, the check of every node, and the first steps of each demo; SEG_SOAK=1: whole demos.

local t = dofile("tests/support/harness.lua")
local json = require "seg.json"

local folder, remove = t.folder()

-- Parameters by options added to the preset `full`; running: including the running statistics of
-- batch norm, as Keras counts. less: options for so little synthetic data that 20 steps of the demo
-- are two epochs or more. ends: the metric of the whole demo and its required mean over test cases.
local systems = {
  { "brain_unet", { [""] = 7762465, ["--base 64"] = 31036481, ["--preset later"] = 31036481,
                    ["--gates true"] = 8024069, ["--heads 8"] = 8814113,
                    ["--depth 16 --size 64"] = 22537313 },
    less = " --patients 10", ends = { "dice", 0.90 } },
  { "nfbs_unet", { [""] = 31105953, ["--features 32,64,128,256"] = 7765409 },
    less = " --slices 12", ends = { "dice", 0.90 } },
  { "openkbp_unet3d", { ["--filters 32"] = 29261569, [""] = 116981249,
                        ["--filters 128"] = 467794945 }, running = true,
    less = " --patients 6", ends = { "dose_score", 5 } },
  { "headpose_cnn", { [""] = 1206499, ["--net resnet18 --size 224"] = 14850274 },
    less = " --people 10 --photos 16", ends = { "mae", 2 } },
  { "sequence_cnn_lstm", { [""] = 3904581, ["--learn supervised"] = 3904581,
                           ["--learn contrastive"] = 3904581 },
    ends = { "accuracy", 0.9 } },
  { "hippocampus_unet3d", { [""] = 1401398, ["--base 32"] = 5601382, ["--deep 0"] = 1401299 },
    ends = { "dice", 0.85 } },
}

for _, system in ipairs(systems) do
  local name, counts = system[1], system[2]
  local script = "scripts/" .. name .. ".lua"
  local line = script .. " --phantom " .. folder .. "/phantom --out " .. folder .. "/runs"
  t.test(name .. ": parameters", function()
    for more, count in pairs(counts) do
      local plan = t.says(script .. " plan --json --preset full " .. more, 0, "")
      local trained = tonumber(plan:match('"trained": *(%d+)'))
      local running = system.running and tonumber(plan:match('"running": *(%d+)')) or 0
      t.equal(trained + running, count, name .. " " .. more)
    end
  end)
  t.test(name .. ": check of every node", function()
    t.says(line:gsub("%.lua", ".lua check", 1) .. " --preset check", 0, "losses of all steps")
  end)
  t.test(name .. ": 20 steps of the demo lower the loss", function()
    local said = t.says(line .. " --preset demo --steps 20" .. (system.less or ""), 0,
                        "stopped after 20 steps")
    local first, last = said:match("epoch 1/.- loss ([%d.]+)"), nil
    for loss in said:gmatch("epoch %d+/.- loss ([%d.]+)") do last = loss end
    t.check(said:find("epoch 2/", 1, true), "one epoch shows nothing: %s", said)
    t.check(tonumber(last) < tonumber(first), "%s", said)
  end)
  if os.getenv "SEG_SOAK" then
    t.test(name .. ": the whole demo", function()
      local run = t.says(line .. " --preset demo", 0, "done: "):match "done: (%S+)"
      local test = json.decode(t.read(run .. "/summary.json"), run).test
      local metric, limit = system.ends[1], system.ends[2]
      local m = test.metrics[metric]
      print(string.format("%s: %s %.4f of %d test cases", name, metric, m.mean, m.n))
      t.check(m.better == "max" and m.mean >= limit or m.better == "min" and m.mean <= limit,
              "%s is %g, want %g", metric, m.mean, limit)
    end)
  end
end

t.test("check: its training steps obey the command line", function()
  local function errors(learn)
    local said = t.says("scripts/sequence_cnn_lstm.lua check --preset check --phantom " .. folder
                        .. "/phantom --learn " .. learn, 0, "losses of all steps")
    return said:match "loss of the first step.*"
  end
  t.check(errors "supervised --valid 1" ~= errors "statistics", "two losses with the same errors")
end)

remove()
t.finish()
