-- clocks.lua -- doctor's report on governor and clocks of the processor, for synthetic machines in
-- folders.

local t = dofile("tests/support/harness.lua")
local clocks = require "seg.inspect.clocks"

local folder, remove = t.folder()
local made = 0

-- A machine: files below /sys/devices/system/cpu, by name; "*" is each of 4 cores, unless a core
-- has a file of its own.
local function machine(files)
  made = made + 1
  local root, all = folder .. "/" .. made .. "/sys/devices/system/cpu/", {}
  for name, text in pairs(files) do
    for i = 0, name:find("*", 1, true) and 3 or -1 do
      local one = name:gsub("%*", "cpu" .. i)
      all[one] = files[one] or text
    end
    if not name:find("*", 1, true) then all[name] = text end
  end
  for name, text in pairs(all) do
    os.execute("mkdir -p " .. (root .. name):match("^(.*)/"))
    t.write(root .. name, text .. "\n")
  end
  return folder .. "/" .. made
end

local fast = { ["*/cpufreq/scaling_governor"] = "performance",
               ["*/cpufreq/scaling_driver"] = "acpi-cpufreq",
               ["*/cpufreq/cpuinfo_min_freq"] = "1500000",
               ["*/cpufreq/cpuinfo_max_freq"] = "3500000",
               ["*/cpufreq/scaling_max_freq"] = "3500000", ["cpufreq/boost"] = "1",
               ["*/thermal_throttle/core_throttle_count"] = "0" }

-- The fast machine with some files changed.
local function but(changes)
  local files = {}
  for k, v in pairs(fast) do files[k] = v end
  for k, v in pairs(changes) do files[k] = v end
  return machine(files)
end

-- Checks the verdict (true, false, or nil: a note) and that the text contains `part`.
local function says(root, good, part)
  local ok, text = clocks.look(root)
  t.equal(ok, good, text)
  t.check(text:find(part, 1, true), '"%s" lacks "%s"', text, part)
  return text
end

t.test("a machine that runs as fast as it can", function()
  t.equal(says(machine(fast), true, "performance"), "performance, 1500 to 3500 MHz")
  says(but { ["*/cpufreq/scaling_governor"] = "schedutil" }, true, "schedutil, 1500")
end)

t.test("what slows it down, and what helps", function()
  local slow = { ["*/cpufreq/scaling_governor"] = "powersave" }
  says(but(slow), nil, "lowest clock; as root: cpupower frequency-set -g performance")
  -- with this driver powersave is the governor that follows the load
  slow["*/cpufreq/scaling_driver"] = "intel_pstate"
  says(but(slow), true, "powersave, 1500 to 3500 MHz")
  slow["*/cpufreq/energy_performance_preference"] = "balance_power"
  says(but(slow), nil, "its preference is balance_power")
  says(but { ["*/cpufreq/scaling_max_freq"] = "2000000" }, nil,
       "limited to 2000 of 3500 MHz; as root: cpupower frequency-set -u 3500MHz")
  says(but { ["cpufreq/boost"] = "0" }, nil, "turbo is off")
  says(but { ["intel_pstate/no_turbo"] = "1" }, nil, "turbo is off")
  says(but { ["cpu2/thermal_throttle/core_throttle_count"] = "12" }, nil, "heat 12 times")
  local text = says(but { ["cpu1/cpufreq/scaling_governor"] = "powersave",
                          ["cpufreq/boost"] = "0" }, nil, "performance (3 cores)")
  t.check(text:find("powersave (1 core)", 1, true) and text:find("turbo"), "%s", text)
end)

t.test("a virtual machine has no clocks", function()
  says(folder .. "/none", nil, "not known here")
  says(machine { ["*/topology/core_id"] = "0" }, nil, "not known here")
  t.says("doctor", 0, "\nclocks ")
end)

remove()
t.finish()
