-- gpu_usage.lua -- what a run costs its GPU: use, power, memory, temperature and energy by
-- epoch, as the driver counts them (nvml.h). Training does not wait for it and nothing
-- that is computed knows of it.

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

-- Columns of metrics.csv: what of a reading is in each, and what becomes of those of
-- several GPUs. Use in percent of the time, mean power, most memory in use on a board in
-- MiB, highest temperature, energy; over training, validation and saving of the epoch.
local columns = {
  { "gpu_use", "use", function(list) return #list > 0 and total(list) / #list or nil end },
  { "gpu_w", "watts", total },
  { "gpu_mb", "bytes", function(list) return #list > 0 and most(list) / (1 << 20) or nil end },
  { "gpu_c", "celsius", most },
  { "gpu_j", "joules", total },
}

-- Begins to look at the GPU of the run's session; a run without one, or without the
-- driver's library, has none and is none the worse.
function M.open(run)
  run.gauge = core.gauge(run.session) or nil
end

-- The columns of a run behind those of `list`: of one that has a gauge, or had one before
-- it was resumed.
function M.columns(run, list)
  local path = run.folder .. "/metrics.csv"
  local head = util.exists(path) and util.read_file(path):match("^[^\n]*") or ""
  if run.gauge or ("," .. head .. ","):find(",gpu_use,", 1, true) then
    for _, c in ipairs(columns) do list[#list + 1] = c[1] end
  end
  return list
end

-- The reading of this rank as text, behind the words that tell its GPU from others: ranks
-- that share one must not count it twice.
local function text_of(run)
  if not run.gauge then return "" end
  local machine = util.first_line "/proc/sys/kernel/random/boot_id" or "-"
  local reading, words = run.gauge:read(), { machine .. run.gauge:address() }
  for i, c in ipairs(columns) do
    local v = reading[c[2]]
    words[i + 1] = v and string.format("%.17g", v) or "-"
  end
  return table.concat(words, " ")
end

-- What the GPUs of all ranks did in an epoch, into its row. Of all ranks at once.
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

-- The mean of what there is of a column, and how many epochs have it.
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

-- What all epochs came to: { joules = of those that were counted, epochs = how many they
-- are, joules_per_epoch =, joules_per_sample = of training, use =, watts =, celsius =,
-- mb = }; nil when nothing was counted.
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

-- 1234 J as people read it.
local function energy(joules)
  if joules < 1000 then return string.format("%.3g J", joules) end
  if joules < 3.6e6 then return string.format("%.3g kJ", joules / 1000) end
  return string.format("%.4g kWh", joules / 3.6e6)
end

-- That summary as a sentence.
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
