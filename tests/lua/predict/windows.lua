-- windows.lua -- whole volumes predicted in overlapping windows: the same bytes for any batch size
-- and thread count, within the planned memory.

local t = dofile("tests/support/harness.lua")
local folder, remove = t.folder()

-- SEG_SOAK=1: a volume as large as a body, 512 x 512 x 300.
local soak = os.getenv("SEG_SOAK")
-- sanitizers use additional memory
local sanitizers = (os.getenv("SAN") or "") ~= ""
local W, H, D = 160, 144, 120
if soak then W, H, D = 512, 512, 300 end

-- A NIfTI of int16 with slices that all differ.
local function write_volume(path)
  local head = string.pack("<i4 c10 c18 i4 i2 c1 B", 348, "", "", 0, 0, "", 0)
  head = head .. string.pack("<i2i2i2i2i2i2i2i2", 3, W, H, D, 1, 1, 1, 1)
  head = head .. string.pack("<fff i2i2i2i2", 0, 0, 0, 0, 4, 16, 0)
  head = head .. string.pack("<ffffffff", 1, 1, 1, 2, 0, 0, 0, 0)
  head = head .. string.pack("<fff i2 BB", 352, 1, 0, 0, 0, 2)
  head = head .. string.pack("<ffff i4i4 c80 c24 i2i2", 0, 0, 0, 0, 0, 0, "", "", 0, 1)
  head = head .. string.pack("<ffffff", 0, 0, 0, 0, 0, 0)
  head = head .. string.pack("<ffff ffff ffff c16 c4", 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2, 0, "",
                             "n+1\0") .. ("\0"):rep(4)
  local row, seed = {}, 1
  for i = 1, 4 * W do
    seed = (seed * 1103515245 + 12345) & 0x7fffffff
    row[i] = string.pack("<i2", (seed >> 16) % 500 + i % W)
  end
  row = table.concat(row)
  local f = io.open(path, "wb")
  f:write(head)
  for d = 1, D do
    local lines = {}
    for h = 1, H do
      local at = (h * 7 + d * 13) % (3 * W) * 2
      lines[h] = row:sub(at + 1, at + 2 * W)
    end
    f:write(table.concat(lines))
  end
  f:close()
end

local script = t.write(folder .. "/body.lua", [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { workers = 1, batch = 2, fractions = false }
local cases = seg.data.phantom { format = "nifti", patients = 3, size = 64, slices = 40, seed = 2,
                                 root = "]] .. folder .. [[/p" }
local train, valid = cases:split { valid = 1, seed = 1 }
local function prepare(set)
  return set:normalize {}:patches { d = 24, h = 64, w = 64, count = 1, at = "random" }
end
local x = nn.input("image", { c = 1, d = 24, h = 64, w = 64 })
local y = nn.input("mask", { c = 1, d = 24, h = 64, w = 64 })
local z = nn.conv(nn.relu(nn.conv(x, 4, 3)), 5, 1)
seg.recipe { inputs = { x, y }, outputs = { organs = nn.softmax(z) },
  loss = nn.cross_entropy(z, y), train = prepare(train):batches { size = 2 },
  valid = prepare(valid):batches { size = 2 }, optim = seg.optim.adamw { lr = 1e-2 }, epochs = 1,
  predict = { fractions = cfg.fractions, overlap = 0.25 } }
]])

local image = folder .. "/volume.nii"
local runs = " --out " .. folder .. "/runs"

local function predict(name, more)
  local text = t.says(script .. " predict --weights " .. folder .. "/runs/body/001 --in " .. image
                      .. " --out " .. folder .. "/" .. name .. " " .. more, 0, "memory: took")
  return t.read(folder .. "/" .. name .. "/volume.nii.gz"), text
end

-- The planned and the used memory, in bytes.
local function memory(text)
  return tonumber(text:match("at most [^(]*%((%d+) bytes%)")),
         tonumber(text:match("took at most [^(]*%((%d+) bytes%)"))
end

local first, first_planned

t.test("inside the planned memory", function()
  t.says(script .. runs, 0, "done:")
  write_volume(image)
  local text
  first, text = predict("a", "--batch 1 --threads 1 --workers 0")
  local planned, took = memory(text)
  first_planned = planned
  local reading = text:match("reading took ([%d.]+ %a+)")
  if soak then print(text) end
  t.check(planned and took, "%s", text)
  t.check(took <= planned or sanitizers, "took %d of %d planned (reading %s)", took, planned,
          reading)
  local labels = require("seg.core").data.read_nifti(folder .. "/a/volume.nii.gz")
  t.check(#labels:values() > 2, "only %d labels", #labels:values())
  -- the plan is at most twice the used memory
  t.check(took > 0.5 * planned, "took %d of %d planned", took, planned)
  -- the scores of all classes of the volume were never in memory together with the input
  local scores = 5 * 4 * W * H * D
  t.check(took < scores + 4 * W * H * D or sanitizers, "took %d, scores of the volume are %d",
          took, scores)
  local count = 1
  for _, e in ipairs { { W, 64 }, { H, 64 }, { D, 24 } } do
    count = count * (1 + math.ceil((e[1] - e[2]) / (e[2] * 0.75)))
  end
  t.check(text:find(count .. " windows of 24x64x64, batch 1", 1, true), "%s", text)
end)

t.test("the same bytes for any batch, thread and worker", function()
  t.check(predict("b", "--batch 3 --threads 2 --workers 2") == first, "batch 3")
  if soak then return end
  t.check(predict("c", "--batch 8 --threads 1 --workers 1") == first, "batch 8")
  local other, text = predict("d", "--overlap 0.5")
  t.check(other ~= first, "overlap 0.5 makes no difference")
  t.check(text:find("144 windows", 1, true), "%s", text)
  t.says(script .. " predict --weights " .. folder .. "/runs/body/001 --in " .. image .. " --out "
         .. folder .. "/e --overlap 1", 2, '--overlap takes a number from 0 to 0.9, got "1"')
end)

t.test("too little memory: the ways out are those of this call", function()
  if sanitizers then t.skip("sanitizers want all addresses") end
  local function refused(more)
    for kib = 150000, 70000, -4000 do
      local line = " predict --weights " .. folder .. "/runs/body/001 --in " .. image .. " --out "
        .. folder .. "/little --threads 1 --workers 0 " .. more
      local code, text = t.program(script .. line, "ulimit -v " .. kib .. "; ")
      local fix = text:match("volume: no memory: predict needs [^;]+ are free; fix: ([^\n]*)\n")
      if fix then
        t.equal(code, 1, text)
        return fix
      end
    end
    t.check(false, "no limit was refused by the plan")
  end
  t.equal(refused "--batch 1", "more memory")
  t.equal(refused "--batch 8 --tta w,h", "--batch 4, or without --tta, or more memory")
end)

t.test("a second case is planned as the first was", function()
  if soak then return end
  local two = folder .. "/two"
  t.check(os.execute("mkdir " .. two))
  for i = 1, 2 do t.check(os.execute("cp " .. image .. " " .. two .. "/v" .. i .. "_T1w.nii")) end
  local text = t.says(script .. " predict --weights " .. folder .. "/runs/body/001 --in " .. two
                      .. " --out " .. folder .. "/of_two --batch 8", 0, "memory: took")
  local one, all = text:match("at most ([%d.]+) MiB %("), text:match("of ([%d.]+) MiB planned")
  t.check(one and tonumber(all) < 1.2 * tonumber(one), "%s", text)
end)

t.test("what is asked for beside the labels is planned too", function()
  if soak then return end
  for _, more in ipairs { "--fractions", "--tta w --overlap 0", "--mc 2 --overlap 0" } do
    local _, text = predict("m", more .. " --batch 1")
    local planned, took = memory(text)
    t.check(took <= planned or sanitizers, "%s: took %d of %d planned", more, took, planned)
    if more == "--fractions" then
      t.check(planned > first_planned + 4 * 5 * W * H * D, "planned %d, labels alone %d", planned,
              first_planned)
    end
  end
end)

remove()
t.finish()
