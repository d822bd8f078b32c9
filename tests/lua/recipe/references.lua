-- references.lua -- the recipes of scripts/ and their PyTorch references (tests/pytorch/): the same
-- steps within the limits of tests/pytorch/reference.py, and the own training of the references on
-- exported arrays.

local t = dofile("tests/support/harness.lua")
local folder, remove = t.folder()

local python = os.getenv("PYTHON") or "/usr/bin/python3"
local torch = os.execute(python .. " -c 'import numpy, torch' 2> /dev/null")

-- Rows: a recipe with options of its export, steps; file: the file of the reference if its name
-- differs, and options; train: options of the reference's own training, omitted for variants that
-- share it; says: the end of its output.
local recipes = {
  { "brain_unet", steps = 20,
    train = "--base 4 --batch 4 --epochs 2", says = '"dice_mean": %d' },
  { "nfbs_unet", steps = 10,
    train = "--features 4,8 --batch 4 --epochs 2", says = '"dice_mean": %d' },
  { "hippocampus_unet3d", "--folds 3", steps = 8, file = "hippocampus.py",
    train = "--base 4 --patch 16,16,16 --batch 2 --epochs 1", says = '"posterior": %d' },
  { "headpose_cnn", steps = 10, file = "headpose.py",
    train = "--features 4,8 --batch 4 --epochs 2", says = '"mae": %d' },
  { "openkbp_unet3d", "--dropout 0 --coarse 2", steps = 8,
    file = "openkbp.py --better --coarse 2",
    train = "--filters 2 --levels 4 --epochs 1 --t_max 1 --ema 0.9",
    says = '"test_dose_score": %d' },
  { "openkbp_unet3d", "--dropout 0 --better false --levels 5", steps = 8, file = "openkbp.py" },
  { "sequence_cnn_lstm", "--learn supervised --dropout 0,0,0 --valid 1", steps = 10,
    file = "sequence.py --learn supervised",
    train = "--features 4,6 --hidden 4 --mlp 6 --batch 6 --epochs 1", says = '"accuracy": %d' },
  { "sequence_cnn_lstm", "--learn contrastive --dropout 0,0,0", steps = 10,
    file = "sequence.py --learn contrastive",
    train = "--features 4,6 --hidden 4 --mlp 6 --batch 6 --epochs 1 --speed 0.2 --timemask 4",
    says = '"part": "train", "accuracy": %d' },
  { "sequence_cnn_lstm", "--learn statistics --dropout 0,0,0", steps = 10,
    file = "sequence.py --learn statistics" },
}

-- The last line that the reference prints, a JSON object, whether it succeeded, and its output.
local function run(command)
  local log = folder .. "/reference.txt"
  local ok = os.execute("PYTHONDONTWRITEBYTECODE=1 " .. python .. " tests/pytorch/" .. command
                        .. " --threads 1 > " .. log .. " 2>&1")
  local said = t.read(log)
  return said:match("([^\n]*)\n*$"), ok, said
end

local function file_of(row)
  return row.file or row[1] .. ".py"
end

local function export(row, what)
  local place = folder .. "/" .. what:match("%a+")
  os.execute("rm -rf " .. place)
  t.says(string.format("scripts/%s.lua export %s --preset check --out %s/runs --quiet --%s",
                       row[1], row[2] or "", folder, what:gsub("%a+", "%0 " .. place, 1)),
         0, "")
  return place
end

local function same_steps(row)
  if not torch then t.skip("no PyTorch in " .. python .. " (sh vendor/fetch ci)") end
  local place = export(row, "reference --steps " .. row.steps)
  local line, ok, said = run(file_of(row):gsub("%.py", "%0 " .. place, 1))
  t.check(ok and line:find('"steps": ' .. row.steps .. ', "ok": true', 1, true), said)
  return place
end

for _, row in ipairs(recipes) do
  t.test(row[1] .. " " .. (row[2] or "") .. ": the same steps", function() same_steps(row) end)
  if row.train then
    t.test(row[1] .. " " .. (row[2] or "") .. ": the PyTorch reference trains by itself", function()
      if not torch then t.skip("no PyTorch in " .. python .. " (sh vendor/fetch ci)") end
      local place = export(row, "arrays")
      local line, ok, said = run(file_of(row) .. " --train " .. place .. " " .. row.train)
      t.check(ok and line:find(row.says), said)
    end)
  end
end

t.test("a loss that is off by a hundredth is seen; steps are timed", function()
  local row = { "nfbs_unet", steps = 2 }
  local place = same_steps(row)
  local timed, timed_ok, all = run("nfbs_unet.py --clock " .. place)
  t.check(timed_ok and timed:find('"step_ms": [%d.]+, "steps": 1'), all)
  local losses, n = t.read(place .. "/loss.csv"):gsub("([%d.]+)\n$", function(v)
    return string.format("%.9g\n", 1.01 * tonumber(v))
  end)
  t.equal(n, 1)
  t.write(place .. "/loss.csv", losses)
  local line, ok, said = run("nfbs_unet.py " .. place)
  t.check(not ok and line:find('"steps": 2, "ok": false', 1, true), said)
end)

remove()
t.finish()
