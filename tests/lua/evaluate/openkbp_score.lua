-- openkbp_score.lua -- dose and DVH scores of real plans, compared with scores that numpy computes
-- from the files.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local base = require "seg.evaluate.metric_base"
local pass = require "seg.train.pass"
local recipes = require "seg.recipe.recipe"
local opened = require "seg.data.opened"
local nn, metric = seg.nn, seg.metric

local root = (os.getenv("SEG_DATASETS") or "datasets") .. "/provided-data/test-pats"
local python = "/usr/bin/python3"

t.test("the scores of two plans are those of the challenge", function()
  if not require("seg.util").exists(root) then t.skip("no " .. root) end
  if not os.execute(python .. " -c 'import numpy, pandas' 2> /dev/null") then
    t.skip("python3-pandas is not installed (sh vendor/fetch ci)")
  end
  local wanted, folders = {}, {}
  for _, key in ipairs(t.lines("ls " .. root .. " | head -2")) do
    wanted[key], folders[#folders + 1] = true, root .. "/" .. key
  end
  local set = seg.data.openkbp { root = root }:filter(function(case) return wanted[case.key] end)
  local n = { c = 1, d = 128, h = 128, w = 128 }
  local dose, possible = nn.input("dose", n), nn.input("possible", n)
  local structures = nn.input("structures", { c = 10, d = 128, h = 128, w = 128 })
  local output = (dose * 0.9 + 1.5) * possible
  local r = {
    inputs = { dose, possible, structures }, outputs = { dose = output }, predict = {},
    loss = nn.mae(output, dose), train = set,
    metrics = {
      dose = metric.dose_score(output, dose, { mask = possible }),
      dvh = metric.dvh_score(output, dose, { structures = structures, mask = possible }) },
  }
  base.settle(r)
  seg.config { device = "cpu" }
  local session, d = recipes.session(r, "evaluate"), opened.open(r, set)
  local result = pass.run(session, r, d.pipeline, d.loader, d.names, "score", { interval = true })
  local lines = t.lines(python .. " tests/data/datasets/openkbp_score.py "
                        .. table.concat(folders, " "))
  t.equal(#lines, 3, "lines of numpy")
  for _, line in ipairs(lines) do
    local key, a, b, count = line:match("(%S+) (%S+) (%S+) (%S+)")
    if key == "all" then
      t.near(result.metrics.dose.mean, tonumber(a), 2e-6, "dose score")
      t.near(result.metrics.dvh.mean, tonumber(b), 2e-6, "DVH score")
    else
      for item = 1, 2 do
        if d.pipeline:facts(item).key == key then
          t.near(result.metrics.dose.cases[item], tonumber(a), 2e-6, "dose score of " .. key)
          t.near(result.metrics.dvh.cases[item], tonumber(b) / tonumber(count), 2e-6,
                 "DVH score of " .. key)
        end
      end
    end
  end
  t.equal(result.metrics.dvh.classes[1].name, "Brainstem")
end)

t.finish()
