-- skip_bad.lua -- a run with cases that cannot be read: an error by default; with skip_bad the
-- cases that are left out are counted, named and recorded.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local folder, remove = t.folder()

for i = 1, 10 do
  local a = seg.array { shape = { 8, 8 } }
  for y = 1, 8 do
    for x = 1, 8 do a:set((7 * i * x + y * y) % 13, y, x) end
  end
  seg.array.save(string.format("%s/secret-%02d.npy", folder, i), a)
end

local function recipe(options)
  return t.write(folder .. "/poses.lua", (([[
local seg = require "seg"
local nn = seg.nn
local cases = {}
for i = 1, 10 do
  cases[i] = { key = "secret_k" .. i, patient = "secret_p" .. i, pose = i % 3,
               x = string.format("FOLDER/secret-%02d.npy", i) }
end
local all = seg.data.cases { fields = { { name = "x", read = "npy", rank = 2 },
                                        { name = "pose", kind = "numbers" } },
                             cases = cases, OPTIONS }
local list = {}
for i = 1, 7 do list[i] = "secret_p" .. i end
local train, valid = all:split { train = list, valid = { "secret_p8", "secret_p9", "secret_p10" } }
train = train:normalize {}:batches { size = 2, shuffle = true }
valid = valid:normalize {}
local x = nn.input("x", { c = 1, h = 8, w = 8 })
local y = nn.input("pose", { c = 1 })
local out = nn.linear(nn.global_pool(nn.conv(x, 2, 3)), 1)
seg.recipe { inputs = { x, y }, outputs = { out = out }, loss = nn.mse(out, y), train = train,
             valid = valid, optim = seg.optim.sgd { lr = 0.01 }, epochs = 2 }
]]):gsub("FOLDER", folder):gsub("OPTIONS", options)))
end

local runs = " --out " .. folder .. "/runs --device cpu --threads 1"
local run = folder .. "/runs/poses/001"
local function damage(i) t.write(string.format("%s/secret-%02d.npy", folder, i), "no array") end

t.test("by default the first bad case ends the run", function()
  damage(3)
  damage(9)
  t.says(recipe "" .. runs, 3, "secret_k3: x: " .. folder .. "/secret-03.npy: npy:")
  t.says(recipe "skip_bad = false" .. runs, 3, "secret_k3: x: ")
  t.says(recipe 'skip_bad = "yes"' .. runs, 2, "skip_bad must be true or false, got yes")
end)

t.test("with skip_bad it is left out, counted and named", function()
  local text = t.says(recipe "skip_bad = true" .. runs, 0, "done:")
  local said = "train: left out: secret_k3: x: " .. folder .. "/secret-03.npy: npy: "
  t.check(text:find(said, 1, true), text)
  t.check(text:find("valid: left out: secret_k9: x: ", 1, true), text)
  t.check(text:find("train: 6 cases of 6 patients", 1, true), text)
  t.check(text:find("; 1 left out, as it cannot be read", 1, true), text)
  local rows = t.read(run .. "/left_out.csv")
  local case = rows:match('\n(%x+),"secret_k3","secret_p3",train,"secret_k3: x: [^\n]+npy: ')
  t.check(case and rows:find('"secret_k9","secret_p9",valid,', 1, true), rows)
  t.equal(t.lines("stat -c %a " .. run .. "/left_out.csv")[1], "600")
  -- the log has only the hash of the case
  local log = t.read(run .. "/log.txt")
  t.check(log:find("warning: train: case " .. case .. " is left out, left_out.csv says why", 1,
                   true), log)
  t.check(not log:find("secret_", 1, true), log)
  local _, cases = t.read(run .. "/cases.csv"):gsub("\n", "")
  t.equal(cases, 1 + 8, "lines of cases.csv")
  local summary = t.read(run .. "/summary.json")
  t.check(summary:find('"left_out": "train 1, valid 1"', 1, true), summary)
  local meta = core.checkpoint.meta(run .. "/checkpoint_last.safetensors")
  t.equal(meta.left_out, "train 1, valid 1")
end)

t.test("numbers of a training set are those of the cases that are there", function()
  local cases = {}
  for i = 1, 10 do
    cases[i] = { key = "k" .. i, patient = "p" .. i,
                 x = string.format("%s/secret-%02d.npy", folder, i) }
  end
  local fields = { { name = "x", read = "npy", rank = 2 } }
  local function said(list, skip)
    local set = seg.data.cases { fields = fields, cases = list, skip_bad = skip }
    local _, text = set:standardize { of = "all" }:fitted {}
    return text
  end
  local text = said(cases, true)
  t.check(text:find("8 cases", 1, true), text)
  table.remove(cases, 9)
  table.remove(cases, 3)
  t.equal(text, said(cases, false))
end)

t.test("a run that goes on has the same cases", function()
  local resume = recipe "skip_bad = true" .. runs .. " --epochs 3 --resume " .. run
  t.says(resume, 0, "resumed at epoch 3")
  -- one more bad case would change the order of samples
  local whole = t.read(folder .. "/secret-05.npy")
  damage(5)
  t.says(resume:gsub("%-%-epochs 3", "--epochs 4"), 3, "is missing")
  local f <close> = assert(io.open(folder .. "/secret-05.npy", "wb"))
  f:write(whole)
end)

t.test("a run that goes on has the same images", function()
  local resume = recipe "skip_bad = true" .. runs .. " --epochs 4 --resume " .. run
  local first, other = folder .. "/secret-01.npy", folder .. "/secret-08.npy"
  local one, eight = t.read(first), t.read(other)
  local cases, log = t.read(run .. "/cases.csv"), t.read(run .. "/log.txt")
  local hash = cases:match('\n(%x+),"secret_k1","secret_p1",train,')
  -- a case of train and one of valid with exchanged contents
  t.write(first, eight)
  t.write(other, one)
  t.says(resume, 3, "case " .. hash .. " (secret_k1) has another image than when the run began")
  t.equal(t.read(run .. "/cases.csv"), cases)
  t.equal(t.read(run .. "/log.txt"), log)
  -- cases.csv of earlier versions had no column for the image
  t.write(run .. "/cases.csv", (cases:gsub(",%x+\n", "\n"):gsub(",image\n", "\n")))
  t.says(resume, 0, "resumed at epoch 3")
  t.write(first, one)
  t.write(other, eight)
end)

t.test("more than half is no bad case but bad data", function()
  for _, i in ipairs { 1, 2, 4, 5 } do damage(i) end
  t.says(recipe "skip_bad = true" .. runs, 3, "skip_bad: 5 of 7 cases cannot be read, more than "
         .. "half; the first: secret_k1: x: ")
end)

t.test("sets that are joined have one rule", function()
  local fields = { { name = "x", read = "npy", rank = 2 } }
  local one = seg.data.cases { fields = fields, cases = {}, skip_bad = true }
  local other = seg.data.cases { fields = fields, cases = {} }
  t.raises(function() seg.data.concat(one, other) end, "set 2 has another skip_bad")
end)

t.test("a truth of class numbers with a case left out", function()
  local source = seg.data.phantom { format = "nifti", patients = 6, size = 16, slices = 4,
                                    root = folder .. "/heads" }
  t.equal(#source:dataset():cases(), 6)
  local root = t.lines("ls -d " .. folder .. "/heads/t1-*")[1]
  t.write(t.lines("find " .. root .. " -name '*_T1w.nii.gz' | sort")[1], "no image")
  local script = t.write(folder .. "/heads.lua", (([[
local seg = require "seg"
local nn = seg.nn
local all = seg.data.nifti { root = "ROOT", image = "*_T1w", mask = "*_T1w_brainmask",
                             skip_bad = true }
local x = nn.input("image", { c = 1, h = 16, w = 16 })
local y = nn.input("mask", { c = 1, h = 16, w = 16 })
local z = nn.conv(x, 1, 3)
seg.recipe { inputs = { x, y }, outputs = { z = z }, loss = nn.bce_dice(z, y), epochs = 1,
             train = all:normalize {}:slices {}:batches { size = 4 },
             optim = seg.optim.sgd { lr = 0.01 } }
]]):gsub("ROOT", root)))
  t.says(script .. runs, 0, "; 1 left out, as it cannot be read")
end)

remove()
t.finish()
