-- gpu_usage.lua -- use, power, memory, temperature and energy of a run's GPU by epoch, from the
-- driver (nvml.h). Training does not wait for the readings and no result depends on them.

local core = require "seg.core"
local ranks = require "seg.train.ranks"
local util = require "seg.util"

local M = {}

local function total(list)
  local sum
  for _, v in ipairs(list) do sum = (sum or 0) + v end
  return sum
end

local function most(list)
  local highest
  for _, v in ipairs(list) do highest = math.max(highest or v, v) end
  return highest
end

-- Columns of metrics.csv: the field of a reading, and the function that combines several GPUs. Use
-- in percent of the time, mean power, most memory in use on a board in MiB, highest temperature,
-- energy; over training, validation and saving of the epoch.
local columns = {
  { "gpu_use", "use", function(list) return #list > 0 and total(list) / #list or nil end },
  { "gpu_w", "watts", total },
  { "gpu_mb", "bytes", function(list) return #list > 0 and most(list) / (1 << 20) or nil end },
  { "gpu_c", "celsius", most },
  { "gpu_j", "joules", total },
}

-- Starts to monitor the GPU of the run's session. A run without a GPU or without NVML has no
-- monitor and trains as well.
function M.open(run)
  run.gpu_monitor = core.gpu_monitor(run.session) or nil
end

-- Appends the columns of this file to `list` if the run has a monitor, or had one before it was
-- resumed.
function M.columns(run, list)
  local path = run.folder .. "/metrics.csv"
  local head = util.exists(path) and util.read_file(path):match("^[^\n]*") or ""
  if run.gpu_monitor or ("," .. head .. ","):find(",gpu_use,", 1, true) then
    for _, c in ipairs(columns) do list[#list + 1] = c[1] end
  end
  return list
end

-- The reading of this rank as text, after an identifier of its GPU: a GPU that several ranks share
-- must be counted once.
local function text_of(run)
  if not run.gpu_monitor then return "" end
  local machine = util.first_line "/proc/sys/kernel/random/boot_id" or "-"
  local reading, words = run.gpu_monitor:read(), { machine .. run.gpu_monitor:address() }
  for i, c in ipairs(columns) do
    local v = reading[c[2]]
    words[i + 1] = v and string.format("%.17g", v) or "-"
  end
  return table.concat(words, " ")
end

-- Fills the GPU columns of an epoch's row, over all ranks. All ranks call it together.
function M.fill(run, row)
  local seen, lists = {}, {}
  for i = 1, #columns do lists[i] = {} end
  for _, text in ipairs(ranks.gather(text_of(run))) do
    local gpu, rest = text:match("^(%S+) (.*)$")
    local i = 0
    for word in (gpu and not seen[gpu] and rest or ""):gmatch("%S+") do
      i = i + 1
      table.insert(lists[i], tonumber(word))
    end
    if gpu then seen[gpu] = true end
  end
  for i, c in ipairs(columns) do row[c[1]] = c[3](lists[i]) end
end

-- The mean of the values of a column, and the number of epochs that have one.
local function mean(csv, name)
  local sum, n = 0, 0
  for _, v in ipairs(csv:column(name)) do
    if v then sum, n = sum + v, n + 1 end
  end
  return n > 0 and sum / n or nil, n
end

local function highest(csv, name)
  local list = {}
  for _, v in ipairs(csv:column(name)) do list[#list + 1] = v or nil end
  return most(list)
end

-- Summary over all epochs: { joules = of the epochs that were measured, epochs = their number,
-- joules_per_epoch =, joules_per_sample = of training, use =, watts =, celsius =, mb = }; nil if
-- nothing was measured.
function M.summary(csv)
  local joules, epochs = mean(csv, "gpu_j")
  local use = mean(csv, "gpu_use")
  if not joules and not use then return nil end
  local out = { use = use, watts = mean(csv, "gpu_w"), celsius = highest(csv, "gpu_c"),
                mb = highest(csv, "gpu_mb") }
  if joules then
    local samples, rate, seconds = 0, csv:column("samples_per_s"), csv:column("seconds")
    for i, v in ipairs(csv:column("gpu_j")) do
      if v and rate[i] and seconds[i] then samples = samples + rate[i] * seconds[i] end
    end
    out.joules, out.epochs, out.joules_per_epoch = joules * epochs, epochs, joules
    out.joules_per_sample = samples > 0 and joules * epochs / samples or nil
  end
  return out
end

-- 1234 J in a readable unit.
local function energy(joules)
  if joules < 1000 then return string.format("%.3g J", joules) end
  if joules < 3.6e6 then return string.format("%.3g kJ", joules / 1000) end
  return string.format("%.4g kWh", joules / 3.6e6)
end

-- The summary as a sentence.
function M.text(s)
  local list = {}
  local function add(fmt, v) if v then list[#list + 1] = string.format(fmt, v) end end
  if s.joules then
    list[1] = string.format("%s in %s, %s an epoch", energy(s.joules),
                            util.plural(s.epochs, "epoch"), energy(s.joules_per_epoch))
    add("%s a sample", s.joules_per_sample and energy(s.joules_per_sample))
  end
  add("%.0f %% of the time in use", s.use)
  add("%.0f W", s.watts)
  add("at most %.0f C", s.celsius)
  add("at most %.0f MiB by all programs", s.mb)
  return table.concat(list, ", ")
end

return M
