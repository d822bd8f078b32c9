-- clocks.lua -- the limits of the processor's clock, for `segengine doctor`.
--
-- Read from /sys/devices/system/cpu; a virtual machine does not have these files. Nothing is
-- written, because a machine may be shared. Frequencies are in MHz.

local core = require "seg.core"
local util = require "seg.util"

local M = {}

local NEAR = 0.97 -- of the highest clock; a limit above it is not reported

local line = util.first_line

-- The highest value of a file over all cores, in MHz (the file has kHz); nil without any.
local function highest(cores, name)
  local most
  for _, core_folder in ipairs(cores) do
    local v = tonumber(line(core_folder .. "/" .. name) or "")
    if v and v > (most or 0) then most = v end
  end
  return most and most / 1000
end

-- The values of a file over all cores, the most frequent first; and the text "a (6 cores), b (2
-- cores)".
local function values(cores, name)
  local count = {}
  for _, core_folder in ipairs(cores) do
    local v = line(core_folder .. "/" .. name)
    if v and v ~= "" then count[v] = (count[v] or 0) + 1 end
  end
  local list = util.sorted_keys(count)
  table.sort(list, function(a, b)
    if count[a] ~= count[b] then return count[a] > count[b] end
    return a < b
  end)
  if #list < 2 then return list, list[1] end
  local text = {}
  for i, v in ipairs(list) do
    text[i] = string.format("%s (%s)", v, util.plural(count[v], "core"))
  end
  return list, table.concat(text, ", ")
end

-- Folders of the cores with a readable clock.
local function cores_of(root)
  local base, list = root .. "/sys/devices/system/cpu", {}
  local ok, names = pcall(core.sys.list, base)
  for _, name in ipairs(ok and names or {}) do
    local folder = base .. "/" .. name .. "/cpufreq"
    if name:match("^cpu%d+$") and line(folder .. "/scaling_governor") then
      list[#list + 1] = folder
    end
  end
  return list, base
end

-- Drivers for which the governor "powersave" adapts the clock to the load.
local follows = { intel_pstate = true, ["amd-pstate-epp"] = true, ["amd-pstate"] = true }

-- The settings that keep the clock low, each with its fix; {} if there are none.
local function brakes(cores, base)
  local list, governors = {}, (values(cores, "scaling_governor"))
  local driver = line(cores[1] .. "/scaling_driver") or ""
  local function add(what, remedy) list[#list + 1] = what .. "; as root: " .. remedy end
  for _, name in ipairs(governors) do
    if name == "powersave" and not follows[driver] then
      add("powersave keeps the lowest clock", "cpupower frequency-set -g performance")
    end
  end
  for _, name in ipairs((values(cores, "energy_performance_preference"))) do
    if name == "power" or name == "balance_power" then
      add("its preference is " .. name, "cpupower set -e performance")
    end
  end
  local limit, most = highest(cores, "scaling_max_freq"), highest(cores, "cpuinfo_max_freq")
  if limit and most and limit < NEAR * most then
    add(string.format("limited to %.0f of %.0f MHz", limit, most),
        string.format("cpupower frequency-set -u %.0fMHz", most))
  end
  if line(base .. "/intel_pstate/no_turbo") == "1" then
    add("turbo is off", "echo 0 > /sys/devices/system/cpu/intel_pstate/no_turbo")
  elseif line(base .. "/cpufreq/boost") == "0" then
    add("turbo is off", "echo 1 > /sys/devices/system/cpu/cpufreq/boost")
  end
  return list
end

-- How often cores were throttled for heat since the machine was started.
local function hot(cores)
  local times = 0
  for _, folder in ipairs(cores) do
    local count = line((folder:gsub("cpufreq$", "thermal_throttle/core_throttle_count")))
    times = times + (math.tointeger(tonumber(count or "")) or 0)
  end
  return times
end

-- look(root) -> true if nothing slows the processor down, nil if something does or it is unknown;
-- and a text. The files are below `root`, which is "" except in tests.
function M.look(root)
  local cores, base = cores_of(root)
  if #cores == 0 then return nil, "not known here, as in a virtual machine" end
  local _, text = values(cores, "scaling_governor")
  local least, most = highest(cores, "cpuinfo_min_freq"), highest(cores, "cpuinfo_max_freq")
  if least and most then text = text .. string.format(", %.0f to %.0f MHz", least, most) end
  local list, times = brakes(cores, base), hot(cores)
  if times > 0 then
    list[#list + 1] = string.format("slowed down for its heat %d times since it was started; "
                                    .. "look at its cooling", times)
  end
  if #list == 0 then return true, text end
  return nil, text .. ": " .. table.concat(list, ". ")
end

return M
