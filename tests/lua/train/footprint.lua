-- footprint.lua -- the memory of a run: refused before anything is opened where there is less,
-- never killed by the kernel, and measured against the plan.

local t = dofile("tests/support/harness.lua")
local util = require "seg.util"
local folder, remove = t.folder()

local sanitizers = (os.getenv("SAN") or "") ~= ""
local soak = (os.getenv("SEG_SOAK") or "") ~= ""
local check = "scripts/brain_unet.lua --preset check --winograd false --threads 2"
local phantom = " --phantom " .. folder .. "/phantom"

-- Runs the program in a shell with an address space of so many KiB.
local function limited(kib, arguments)
  if sanitizers then t.skip("sanitizers want all addresses") end
  return t.program(arguments, "ulimit -v " .. kib .. "; ")
end

-- Checks that no files of a run or of its data exist.
local function nothing(out)
  t.check(not util.exists(folder .. "/" .. out), out .. " is there")
  t.check(not util.exists(folder .. "/none"), "data were made")
end

t.test("weights that the machine has not got are refused before they are there", function()
  local started = os.time()
  local code, text = limited(4000000, "scripts/brain_unet.lua --preset full --base 512 --batch 64 "
                             .. "--recompute off --steps 1 --phantom " .. folder .. "/none --out "
                             .. folder .. "/large")
  t.equal(code, 1, text)
  t.check(os.time() - started <= 20, "it took long")
  t.check(text:find("no memory: training needs 192662734592 bytes %(weights, gradients and moments "
                    .. "29%.6 GiB, arena %d+%.%d GiB%) and %d+%.%d MiB of batches and program, "
                    .. "3%.%d GiB of this machine are free; fix: ")
          or text:find("no memory: training needs %d+ bytes %(weights, gradients and moments "
                       .. "29%.6 GiB"), text)
  t.check(text:find("\n  a smaller network: its weights alone take 29.6 GiB", 1, true), text)
  -- a key with as many channels as the image has pixels, by chance, is no advice
  t.check(not text:find("--base", 1, true), text)
  nothing "large"
  -- the same for a step of a script
  local script = t.write(folder .. "/own.lua", [[
    local seg = require "seg"
    local nn = seg.nn
    local x = nn.input("x", { c = 20000 })
    print(pcall(seg.step, { loss = nn.mse(nn.linear(x, 20000), nn.input("y", { c = 20000 })),
                            optim = seg.optim.adamw { lr = 1 } }))
    print(pcall(seg.model, { inputs = { x }, outputs = { y = nn.linear(x, 30000) } }))]])
  code, text = limited(2000000, script)
  t.equal(code, 0, text)
  t.check(text:find("no memory: the weights, gradients and moments need 6400%d+ bytes, %d+ are "
                    .. "free; fix: a smaller network"), text)
end)

t.test("each command is refused before it opens its data", function()
  local big = " --batch 4096 --size 128 --recompute off --phantom " .. folder .. "/none --out "
    .. folder .. "/big"
  for command, says in pairs { [""] = "training needs", [" bench"] = "training needs",
                               [" lr_range"] = "training needs" } do
    local code, text = limited(4000000, check .. command .. big)
    t.equal(code, 1, text)
    t.check(text:find("no memory: " .. says, 1, true), text)
    nothing "big"
  end
  local run = " --out " .. folder .. "/small"
  t.equal(t.program(check .. " --quiet --steps 2" .. phantom .. run), 0)
  local code, text = limited(4000000, check .. " evaluate --split test --batch 65536 --size 128"
                             .. phantom .. run .. " --weights " .. folder
                             .. "/small/brain_unet/001")
  t.equal(code, 1, text)
  t.check(text:find("no memory: evaluation needs", 1, true), text)
end)

t.test("--vram too small for the batch: said at once, and each remedy is enough", function()
  local function run(options, out)
    return t.program(check .. " --batch 16 --recompute off --vram 5M --steps 1 --phantom " .. folder
                     .. "/" .. out .. " --out " .. folder .. "/vram_" .. out .. " " .. options)
  end
  local code, text = run("", "none")
  t.equal(code, 1, text)
  t.check(text:find(", --vram gives 5242880 (5.0 MiB); fix: one of the changes below", 1, true),
          text)
  nothing "vram_none"
  t.check(not text:find("train:", 1, true), "data were opened: " .. text)
  local tried = 0
  for line in text:match("options that need less\n(.*)"):gmatch("[^\n]+") do
    local option = line:match("^  (%-%-%a+ %w+)")
    if option and not line:find("still too much", 1, true) then
      tried = tried + 1
      local done, why = run(option, "phantom")
      t.equal(done, 0, option .. ": " .. why)
    end
  end
  t.check(tried >= 3, text)
  t.check(text:find("  %-%-batch auto %(%d+%) +frees"), text)
  -- the next --resume auto ignores a run without an epoch
  local _, resumed = run("--resume auto --vram 3M", "none")
  t.check(resumed:find("--vram gives 3145728", 1, true) or resumed:find("resume", 1, true), resumed)
end)

t.test("no room for snapshots of checkpoints: training waits for each write", function()
  local words = check .. " --base 32 --size 32 --batch 8 --epochs 2 --out " .. folder
  local function run(kib, name)
    local code, text = limited(kib, words .. "/" .. name .. phantom)
    t.equal(code, 0, text)
    local planned, room = text:match("\nmemory: (%S+ %a+) planned, of (%S+ %a+) that this process")
    return util.bytes_of(planned), util.bytes_of(room), text,
           t.read(folder .. "/" .. name .. "/brain_unet/001/checkpoint_last.safetensors")
  end
  local planned, room, text, weights = run(4000000, "roomy")
  t.check(not text:find("saving: no room", 1, true), text)
  -- two snapshots of 89 MiB are in the plan: one fits
  local less, _, said, same = run(4000000 - (room - planned + (89 << 20)) // 1024, "tight")
  t.check(said:find("saving: no room for snapshots of checkpoints %(177%.%d MiB%), training waits "
                    .. "for each write"), said)
  t.check(planned - less > 150 << 20, "%d and %d are planned", planned, less)
  t.check(weights == same, "other weights")
end)

-- A memory control group below this process's, of version 1 or 2; nil without permission.
local function new_group()
  for _, g in ipairs { { "/sys/fs/cgroup/memory", "memory.limit_in_bytes" },
                       { "/sys/fs/cgroup", "memory.max" } } do
    local path = string.format("%s/segengine_%d", g[1], os.time())
    local made = os.execute("mkdir " .. path .. " 2>/dev/null && test -w " .. path .. "/" .. g[2])
    if made then return path, path .. "/" .. g[2] end
    os.execute("rmdir " .. path .. " 2>/dev/null")
  end
end

t.test("no limit of a control group is found by the kernel", function()
  if sanitizers then t.skip("sanitizers take memory of their own") end
  local group, file = new_group()
  if not group then t.skip("no control group may be made here") end
  local fine, refused = 0, 0
  local most = { 40, 80, 120 }
  if soak then most = { 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 140, 160, 200 } end
  local ok, why = pcall(function()
    t.equal(t.program(check .. " --quiet --steps 1 --size 128" .. phantom .. " --out " .. folder
                      .. "/made"), 0)
    for _, how in ipairs { "off", "auto" } do
      for _, mib in ipairs(most) do
        os.execute(string.format("echo %d > %s", mib << 20, file))
        os.execute("rm -rf " .. folder .. "/group")
        local code, text = t.program(check .. " --size 128 --batch 8 --epochs 1 --recompute " .. how
                                     .. phantom .. " --out " .. folder .. "/group",
                                     "echo $$ > " .. group .. "/cgroup.procs; ")
        t.check(code == 0 or code == 1, "%d MiB, %s: code %s, %s", mib, how, code, text)
        if code == 0 then fine = fine + 1 else refused = refused + 1 end
        t.check(code == 0 or text:find("no memory: ", 1, true), text)
        t.check(code == 0 or not util.exists(folder .. "/group/brain_unet/001"), text)
      end
    end
  end)
  os.execute("rmdir " .. group)
  t.check(ok, why)
  t.check(fine > 0 and refused > 0, "%d fine, %d refused", fine, refused)
end)

-- 20 configurations; the first of them in every test run.
local brain, hippo = "brain_unet --epochs 1 ", "hippocampus_unet3d --epochs 1 "
local configurations = {
  brain .. "--batch 32 --size 64",
  brain .. "--batch 16 --size 64 --precision bf16 --workers 0",
  hippo .. "--batch 8",
  "sequence_cnn_lstm --epochs 1 --batch 64",
  "headpose_cnn --epochs 1 --batch 64",
  brain .. "--batch 64 --size 64 --recompute 60M --threads 1",
  brain .. "--batch 16 --size 128 --workers 4 --cache_mb 0 --threads 4",
  brain .. "--batch 8 --size 128 --workers 0",
  brain .. "--batch 8 --size 64 --base 32 --steps 2",
  brain .. "--batch 1 --size 256 --steps 2",
  brain .. "--batch 4 --size 64 --prefetch_mb 1",
  hippo .. "--batch 2 --size 32,48,32 --base 8",
  hippo .. "--batch 8 --size 32,48,32 --base 8",
  hippo .. "--batch 8 --size 32,48,32 --base 8 --precision bf16",
  hippo .. "--batch 4 --size 32,48,32 --base 16 --steps 2",
  hippo .. "--batch 8 --size 32,48,32 --base 8 --recompute 100M --workers 4",
  "openkbp_unet3d --epochs 1 --workers 1",
  "openkbp_unet3d --epochs 1 --workers 4 --threads 4",
  "nfbs_unet --epochs 1 --batch 32",
  "sequence_cnn_lstm --epochs 1 --batch 256 --workers 4",
}

t.test("planned against measured, training on the CPU", function()
  if sanitizers then t.skip("sanitizers take memory of their own") end
  t.equal(#configurations, 20)
  for i = 1, soak and #configurations or 5 do
    local name, options = configurations[i]:match("^(%S+) (.*)$")
    os.execute("rm -rf " .. folder .. "/measured")
    local code, text = t.program(string.format(
      "scripts/%s.lua --preset check %s --phantom %s/%s --out %s/measured", name, options, folder,
      name, folder))
    t.equal(code, 0, configurations[i] .. ": " .. text)
    local took, planned = text:match("memory: took at most [%d.]+ %a+ %((%d+) bytes%) of (.-) plan")
    t.check(took, text)
    took, planned = tonumber(took), util.bytes_of(planned)
    -- the same number before the first epoch, and one line on the batches of that epoch
    local before = text:match("\nmemory: (%S+ %a+) planned, of %S+ %a+ that this process may")
    t.equal(before and util.bytes_of(before), planned, text)
    t.equal(select(2, text:gsub("\nepoch 1/1: %d+ batch", "")), 1, text)
    if soak then print(configurations[i], took >> 20, planned >> 20) end
    t.check(math.abs(took - planned) <= math.max(0.05 * took, 16 << 20),
            "%s: planned %d, took %d", configurations[i], planned, took)
  end
end)

remove()
t.finish()
