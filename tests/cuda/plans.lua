-- plans.lua -- the kernel of each launch of one training step, for all recipes, as
-- `plan --gpu` prints it for an H200, in bf16 for an A100 and in f16 for a T4; compared with
-- tests/cuda/plans.txt.
--
--   PROGRAM=build/emu/plain/segengine build/emu/plain/segengine tests/cuda/plans.lua [--write]
--
-- A change of plans.txt shows the layers that get another kernel; --write writes it.

local t = dofile("tests/support/harness.lua")
local core = require "seg.core"
local json = require "seg.json"
local PATH <const> = "tests/cuda/plans.txt"

-- Layer, call and kernel of each launch, one a line.
local function launches(recipe, gpu, precision)
  local text = t.says("scripts/" .. recipe .. ".lua plan --json --device cuda --gpu " .. gpu
                      .. " --precision " .. precision, 0, '"launches"')
  local out = {}
  for _, l in ipairs(json.decode(text:match("{.*}")).launches) do
    out[#out + 1] = ("  %-20s %-18s %s"):format(l.name ~= "" and l.name or "-",
                                              l.kind .. (l.backward and " back" or ""), l.launch)
  end
  return table.concat(out, "\n") .. "\n"
end

-- the recipes of systems: scripts with a preset check
local parts = {}
for _, name in ipairs(core.sys.list("scripts")) do
  local recipe = name:match("^(.*)%.lua$")
  if recipe and t.read("scripts/" .. name):find("check = {", 1, true) then
    -- a Hopper GPU, and in 16 bits, where kernels depend on the GPU, others
    for _, on in ipairs { { "bf16", "h200" }, { "f32", "h200" }, { "tf32", "h200" },
                          { "bf16", "a100", " a100" }, { "f16", "t4", " t4" } } do
      parts[#parts + 1] = { recipe .. " " .. on[1] .. (on[3] or ""), recipe, on[1], on[2] }
    end
  end
end

if arg and arg[1] == "--write" then
  local file = assert(io.open(PATH, "w"))
  for _, part in ipairs(parts) do
    file:write(part[1], "\n", launches(part[2], part[4], part[3]), "\n")
  end
  file:close()
  return
end

local golden = t.read(PATH)
for _, part in ipairs(parts) do
  t.test("kernels of " .. part[1], function()
    local from = golden:find(part[1] .. "\n", 1, true)
    t.check(from, "%s has no %s: run this file with --write", PATH, part[1])
    local want = golden:sub(from + #part[1] + 1):match("^(.-\n)\n")
    local got = launches(part[2], part[4], part[3])
    local w, line = want:gmatch("[^\n]+"), 0
    for l in got:gmatch("[^\n]+") do
      line = line + 1
      t.equal(l, w(), "launch " .. line)
    end
    t.equal(w(), nil, "launch " .. line + 1)
  end)
end

-- What `plan --json` of the brain U-Net says on an emulated GPU of this compute capability.
local function planned(capability, options)
  local code, text = t.program("scripts/brain_unet.lua plan --json --device cuda --precision bf16 "
                               .. options, "EMU_CC=" .. capability .. " ")
  t.equal(code, 0, text)
  return json.decode(text:match("{.*}"))
end

t.test("the arena is that of the GPU's kernels", function()
  local hopper, other = planned(80, "--gpu h200").arena_bytes, planned(90, "--gpu a100").arena_bytes
  t.check(hopper ~= other, "both take %d bytes", hopper)
  -- before a GPU is opened, the first one of the machine counts
  t.equal(planned(90, "").train.bytes, hopper, "on a machine with an H200")
  t.equal(planned(80, "").train.bytes, other, "on a machine with an A100")
end)

t.test("the kernels do not depend on the GPU's name", function()
  -- but on its compute capability: 7.5, 9.0 or another
  local hopper = launches("brain_unet", "h200", "bf16")
  local other = launches("brain_unet", "a100", "bf16")
  t.check(hopper ~= other, "an A100 has the kernels of Hopper")
  t.equal(launches("brain_unet", "h100", "bf16"), hopper, "h100")
  for _, gpu in ipairs { "4090", "3090", "4060" } do
    t.equal(launches("brain_unet", gpu, "bf16"), other, gpu)
  end
  local turing = launches("brain_unet", "t4", "f16")
  t.check(turing ~= launches("brain_unet", "a100", "f16"), "a T4 has the kernels of an A100")
  t.equal(launches("brain_unet", "rtx2080", "f16"), turing, "rtx2080")
  t.equal(launches("brain_unet", "t4", "f32"), launches("brain_unet", "h200", "f32"), "f32")
end)
t.finish()
