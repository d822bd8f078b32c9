-- attack_runs.lua -- failures around runs: results without a value, damaged files of a series and
-- damaged bundles, empty or impossible arguments. One clear line and the right code, and nothing is
-- lost.

local seg = require "seg"
local json = require "seg.json"
local util = require "seg.util"
local t = dofile("tests/support/harness.lua")
local folder, remove = t.folder()

-- Seven patients with masks; with `full`, masks of class 1 everywhere.
local function make(name, full)
  os.execute("mkdir -p " .. folder .. "/" .. name)
  for p = 1, 7 do
    local x, y = seg.array.zeros { 6, 8 }, seg.array.zeros { 6, 8 }
    for i = 1, 6 do
      for j = 1, 8 do
        x:set((i * 7 + j * p * 3) % 11 / 5 - 1 + (i * j * p) % 7 / 7, i, j)
        y:set((full or (i * 7 + j * p * 3) % 11 > 5) and 1 or 0, i, j)
      end
    end
    seg.array.save(string.format("%s/%s/p%d_x.npy", folder, name, p), x)
    seg.array.save(string.format("%s/%s/p%d_y.npy", folder, name, p), y)
  end
end
make "some"
make("full", true)

local script = t.write(folder .. "/toy.lua", [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { batch = 2, lr = 0.05, epochs = 1, test = 0, folds = false, own = false,
                         note = "", ch = 2 }
local cases = seg.data.npy { root = cfg.data, image = "*_x", mask = "*_y", rank = 2,
                             patient = "^(p%d)" }
local train, valid, test
if cfg.test > 0 then cases, _, test = cases:split { test = cfg.test, seed = 1 } end
if cfg.folds then train, valid = cases:kfold { k = 2, seed = 3 }
else train, valid = cases:split { valid = 2, seed = 4 } end
local x = nn.input("image", { c = 1, h = 6, w = 8 })
local y = nn.input("mask", { c = 1, h = 6, w = 8 })
local z = nn.conv(nn.relu(nn.conv(x, cfg.ch, 3)), 1, 1)
seg.recipe { inputs = { x, y }, outputs = { mask = nn.sigmoid(z) }, loss = nn.bce_dice(z, y),
  metrics = { dice = seg.metric.dice(z, y), auc = seg.metric.auc(z, y) },
  best = { "dice", "max" }, train = train:batches { size = cfg.batch, shuffle = true },
  valid = valid:batches { size = 2 }, test = test and test:batches { size = 2 },
  optim = seg.optim.adam { lr = cfg.lr }, epochs = cfg.epochs }
seg.search { space = { lr = { 1e-4, 1, log = true }, ch = { 2, 4 } }, trials = 3 }
]])

local function line(words, out, data)
  return string.format("%s %s --data %s/%s --out %s/%s --workers 1", script, words, folder,
                       data or "some", folder, out)
end

local function says(words, code, part, out, data)
  return t.says(line(words, out or "runs", data), code, part)
end

local function decode(path) return json.decode(t.read(path), path) end

t.test("a metric that is of no case is a gap in a series, not its end", function()
  local said = says("repeat --seeds 2", 0, "auc of valid: of no seed", "gap", "full")
  t.check(said:find("dice of valid over 2 seeds", 1, true), "%s", said)
  local rows = t.lines("cat " .. folder .. "/gap/toy/001/seeds.csv")
  t.equal(rows[1], "seed,auc,dice")
  t.check(rows[2]:find("^42,,0%."), "%s", rows[2])
  said = says("folds --folds --test 2", 0, "auc: of no single case", "gap", "full")
  t.check(said:find("dice of test: mean over folds", 1, true), "%s", said)
  t.check(not said:find("auc of test", 1, true), "%s", said)
  t.equal(decode(folder .. "/gap/toy/002/summary.json").test.auc, nil)
end)

t.test("one sample, learned by heart", function()
  says("--overfit 1", 0, "overfit: 1 samples, to train (50 times an epoch)", "heart")
end)

t.test("lr_range without a slope, or told to stop", function()
  says("lr_range --steps 2", 2, "--steps 2: lr_range takes 3 to 10000")
  -- so wide that its steps take longer than the signal
  local code = t.lines(string.format(
    "%s %s > %s/said 2>&1 & p=$!; n=0; "
    .. "while ! grep -q 'at most 10000 steps' %s/said && [ $n -lt 500 ]; do sleep 0.02; "
    .. "n=$((n + 1)); done; kill -TERM $p; wait $p; echo $?", t.path(),
    line("lr_range --ch 128 --from 1e-9 --to 1e-8 --steps 10000", "runs"), folder, folder))
  local said = t.read(folder .. "/said")
  t.equal(code[#code], "143", said)
  t.check(said:find("SIGTERM: stopped after ", 1, true), "%s", said)
  t.check(not said:find("explodes", 1, true), "%s", said)
end)

t.test("words of the line that are empty", function()
  for _, flag in ipairs { "weights", "resume", "run" } do
    says("--" .. flag .. " ''", 2, "--" .. flag .. " is empty; it needs ")
  end
  says("export --onnx ''", 2, "--onnx is empty")
  says("predict --weights a,,b --in x", 2, "a name between commas is empty")
  says("predict --weights a, --in x", 2, "a name between commas is empty")
  says("replay " .. folder .. "/none", 3, "replay " .. folder .. "/none: there is no such file")
  says("--ranks 3 --batch 3 --overfit 2", 2, "--batch 2 (of 3, as there are no more samples)")
end)

t.test("a text of several lines is what it was when a run goes on", function()
  says("--note 'one\ntwo = \"2\"\nbatch = 7' --on_finish 'echo first\necho second' --steps 1", 0,
       "second", "lines")
  local run = folder .. "/lines/toy/001"
  says("--resume " .. run, 0, "first\nsecond", "lines")
  t.check(t.read(run .. "/config.txt"):find('\nnote = "one\\ntwo = \\"2\\"\\nbatch = 7"\n', 1,
                                            true), "config.txt has it otherwise")
  says("--resume " .. run .. " --note one", 2, "--note one differs", "lines")
end)

t.test("a bundle names images as its script does, and masks beside them are none", function()
  says("", 0, "done:", "bundle")
  local run, file = folder .. "/bundle/toy/001", folder .. "/b.safetensors"
  says("export --weights " .. run .. " --bundle " .. file, 0, "run it with", "bundle")
  t.says(string.format("predict --bundle %s --in %s/some --out %s/by_bundle", file, folder, folder),
         0, "p7")
  t.says(string.format("%s predict --weights %s --in %s/some --out %s/by_script", script, run,
                       folder, folder), 0, "p7")
  t.equal(#t.lines("ls " .. folder .. "/by_bundle"), 7)
  t.equal(#t.lines(string.format("diff -r %s/by_bundle %s/by_script", folder, folder)), 0)
end)

-- The bundle with other metadata and without checksums, as another program may write it.
local function rewritten(change)
  local text = t.read(folder .. "/b.safetensors")
  local bytes = string.unpack("<I8", text)
  local head = json.decode(text:sub(9, 8 + bytes), "head")
  local meta = head.__metadata__
  for key in pairs(meta) do if key:find("^crc32c") or key == "format" then meta[key] = nil end end
  local b = json.decode(meta.bundle, "bundle")
  change(b)
  meta.bundle = util.json(b)
  local out = util.json(head)
  out = out .. (" "):rep(-#out % 8)
  return t.write(folder .. "/changed.safetensors",
                 string.pack("<I8", #out) .. out .. text:sub(9 + bytes))
end

t.test("rows of a bundle that cannot be are refused by the name of the file", function()
  local function try(change, code, part)
    t.says(string.format("predict --bundle %s --in %s/some/p1_x.npy --out %s/changed",
                         rewritten(change), folder, folder), code, part)
  end
  try(function() end, 0, "p1")
  for _, case in ipairs {
    { function(b) b.read = {} end, "read: kind is missing" },
    { function(b) b.read.options.odd = true end, 'read: options: "odd" is not known to this' },
    { function(b) b.read.made = {} end, "read: made: kind is missing" },
    { function(b) b.read.made.kind = "x" end, 'read: made: kind is "x", which this program' },
    { function(b) b.read.made.options = 5 end, "read: made: options is a number, want a table" },
    { function(b) b.read.made.options.odd = 5 end, 'read: made: options: "odd" is not known' },
    { function(b) b.read.made.options.rank = 9 end, "read: made: options: rank is 9, want 1, 2" },
    { function(b) b.prepare = { a = 1 } end, "prepare is a table with names, want a list" },
    { function(b) b.run.batch = 0 end, "run: batch is 0, want 1 or more" },
  } do
    try(case[1], 3, "changed.safetensors: bundle: " .. case[2])
  end
end)

remove()
t.finish()
