-- best.lua -- the best weights of a run: the table, summary.json and the report show the weights
-- that were measured, also when saving the best failed or its file was damaged since.

local t = dofile("tests/support/harness.lua")
local json = require "seg.json"
local core = require "seg.core"

local folder, remove = t.folder()
local golden = t.read("tests/golden/training.lua")
local places = " --phantom " .. folder .. "/phantom --device cpu --threads 1 --workers 0"

-- Six epochs with the best one third: the loss of later ones is raised.
local recipe = golden:gsub("ema = 0%.9", "ema = 0.5") .. [[
local pass = require "seg.train.pass"
local run, epoch = pass.run, 0
pass.run = function(...)
  local result = run(...)
  if select(6, ...) == "validate" then
    epoch = epoch + 1
    if epoch > 3 then result.loss = result.loss + epoch end
  end
  return result
end
]]

-- Prepended to a script: writes of the best fail from number `from` on, `count` times; and nothing
-- waits for the disk.
local FAULT = [[
local core = require "seg.core"
local snapshot, n = core.checkpoint.snapshot, 0
core.sys.sleep = function() end
core.checkpoint.snapshot = function()
  local real, failed, s = snapshot(), nil, {}
  function s:take(...) real:take(...) end
  function s:write(paths)
    local path = table.concat(type(paths) == "table" and paths or { paths }, " ")
    failed = false
    if path:find("checkpoint_best", 1, true) then
      n = n + 1
      failed = n >= %d and n < %d + %d
    end
    if not failed then real:write(paths) end
  end
  function s:done() return failed or real:done() end
  function s:wait()
    if failed then core.sys.raise("failure", "cannot write: no space left on device", true) end
    real:wait()
  end
  function s:close() real:close() end
  return s
end
]]

-- Runs the script with this text prepended; returns its folder, its summary.json, its output.
local count = 0
local function train(before, options)
  count = count + 1
  local script = t.write(folder .. "/training.lua", (before or "") .. recipe)
  local out = folder .. "/r" .. count
  local said = t.says(script .. " --variant ema --epochs 6" .. places .. " --out " .. out .. " "
                      .. (options or ""), 0, "")
  local run = out .. "/training/001"
  local path = run .. "/summary.json"
  return run, core.sys.stat(path) and json.decode(t.read(path), path), said
end

local function meta(run, name) return core.checkpoint.meta(run .. "/" .. name .. ".safetensors") end

-- The validation loss of the weights in a file, by the command `evaluate`.
local function evaluated(run, name)
  local _, said = t.program(folder .. "/training.lua evaluate --json --split valid --variant ema "
                            .. "--quiet --weights " .. run .. "/" .. name .. ".safetensors"
                            .. places)
  return tonumber(said:match('"loss": ([%d.e-]+)'))
end

-- Checks that the table, summary.json, the report and the file agree on these weights.
local function check_tested(run, summary, said, name, epoch)
  t.equal(summary.weights.file, name .. ".safetensors")
  t.equal(summary.weights.epoch, epoch)
  t.equal(summary.weights.average, "ema 0.5")
  t.equal(tonumber(meta(run, name).epoch), epoch, "epoch of the file")
  local words = string.format("weights of epoch %d, their average ema 0.5", epoch)
  t.check(not said or said:find("valid set, " .. words, 1, true), said)
  t.check(t.read(run .. "/report.html"):find("valid, " .. words .. " (" .. name, 1, true), words)
  if said then t.near(evaluated(run, name), summary.valid.loss, 1e-12, "loss of " .. name) end
end

local whole, summary

t.test("the best is tested and said to be", function()
  local said
  whole, summary, said = train()
  t.equal(summary.best_epoch, 3)
  check_tested(whole, summary, said, "checkpoint_best", 3)
end)

t.test("a best that could not be saved is saved after the next epoch", function()
  local run, sum, said = train(FAULT:format(3, 3, 2))
  t.check(said:find("trying again", 1, true) and said:find("held in memory", 1, true), said)
  t.check(said:find("checkpoint_best.safetensors has the weights of epoch 3 now", 1, true), said)
  t.equal(sum.best, summary.best)
  t.equal(sum.valid.loss, summary.valid.loss)
  check_tested(run, sum, said, "checkpoint_best", 3)
end)

-- The same when the disk stays full to the end.
t.test("a best that is lost is not what is said", function()
  local run, sum, said = train(FAULT:format(3, 3, 99), "--quiet")
  t.check(said:find("the best weights, of epoch 3, are lost", 1, true), said)
  t.check(said:find("holds the weights of epoch 2, which are taken; those of epoch 3, the best "
                    .. "(loss ", 1, true), said)
  t.equal(sum.best_epoch, 2)
  t.near(sum.best, sum.valid.loss, 1e-12)
  check_tested(run, sum, nil, "checkpoint_best", 2)
  local report = t.read(run .. "/report.html")
  t.check(report:find("those of epoch 3, the best", 1, true), "the report has the warning")
end)

-- Changes some bytes of a file.
local function damage(path)
  local f = assert(io.open(path, "r+b"))
  f:seek("set", core.sys.stat(path).size - 100)
  f:write(("\0"):rep(64))
  f:close()
end

t.test("a best that was damaged before a resume gives way to the best of the rest", function()
  local run = train(nil, "--until_epoch 4")
  damage(run .. "/checkpoint_best.safetensors")
  local said = t.says(folder .. "/training.lua --variant ema --epochs 6 --until_epoch 0 --quiet "
                      .. "--resume " .. run .. places, 0, "the best so far, are lost")
  t.check(said:find("is damaged", 1, true), said)
  local sum = json.decode(t.read(run .. "/summary.json"), "summary.json")
  t.check(sum.best_epoch == 5 or sum.best_epoch == 6, "best_epoch is " .. sum.best_epoch)
  check_tested(run, sum, nil, "checkpoint_best", sum.best_epoch)
end)

t.test("without a best the last is tested, by its average", function()
  os.remove(whole .. "/summary.json")
  damage(whole .. "/checkpoint_best.safetensors")
  local said = t.says(folder .. "/training.lua --variant ema --epochs 6 --resume " .. whole
                      .. places, 0, "the best so far, are lost")
  local sum = json.decode(t.read(whole .. "/summary.json"), "summary.json")
  t.equal(sum.best, nil)
  check_tested(whole, sum, said, "checkpoint_last", 6)
end)

remove()
t.finish()
