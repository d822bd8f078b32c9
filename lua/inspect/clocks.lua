-- clocks.lua -- how fast the processor is allowed to run, for `segengine doctor`.
--
-- What Linux says below /sys/devices/system/cpu; a virtual machine has none of it. Only
-- read: a machine belongs to more people than the one who asks. Frequencies are in MHz.

local core = require "seg.core"
local util = require "seg.util"

local M = {}

local NEAR = 0.97 -- of the highest clock: no limit worth a word

local line = util.first_line

-- The highest of a file's numbers over all cores, kHz there, and how many have one.
local function highest(cores, name)
  local most
  for _, core_folder in ipairs(cores) do
    local v = tonumber(line(core_folder .. "/" .. name) or "")
    if v and v > (most or 0) then most = v end
  end
  return most and most / 1000
end

-- Values of a file over all cores, the most frequent first; "a (6 cores), b (2 cores)".
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

-- Folders of the cores that have a clock that can be asked for.
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

-- Drivers under which the governor "powersave" follows the load, as others do.
local follows = { intel_pstate = true, ["amd-pstate-epp"] = true, ["amd-pstate"] = true }

-- What keeps the clock low, each with what lifts it; {} when nothing does.
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

-- How often cores were slowed down for their heat since the machine was started.
local function hot(cores)
  local times = 0
  for _, folder in ipairs(cores) do
    local count = line((folder:gsub("cpufreq$", "thermal_throttle/core_throttle_count")))
    times = times + (math.tointeger(tonumber(count or "")) or 0)
  end
  return times
end

-- look(root) -> true when nothing slows the processor down, nil when something does or
-- nobody can say; and a text. The files are below `root`, "" but in tests.
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
