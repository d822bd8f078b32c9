-- advice.lua -- advice for a run that spends much of an epoch waiting for data.
--
-- A step starts when its batch is ready. If waiting takes a large share of the epoch, the
-- measurements show the cause and so the most effective remedy.

local util = require "seg.util"

local M = {}

local SHARE = 0.1 -- of an epoch; a smaller wait is not reported
local WORTH_S = 10 -- nor is a gain smaller than this over the rest of the run
local OPENING_S = 60 -- a shorter opening of the data is not reported

local function mib(bytes)
  return math.ceil(bytes / (1 << 20))
end

-- Rules for late batches, tried in order: measurements -> advice, or nil. Repeated decoding of
-- volumes comes before the number of threads, because more threads would decode as often.
local rules = {
  function(m)
    if m.device == "cuda" and m.device_dataset == "off" then
      return "--device_dataset auto: the GPU keeps the samples and makes the batches"
    end
  end,
  function(m)
    if m.made > 0 and m.all_bytes <= m.memory_bytes // 2 then
      return string.format("--cache_mb %d: %d of %d volumes are kept in memory, the others were "
                           .. "prepared again, %d times in this epoch; all take %s",
                           mib(m.all_bytes), m.kept, m.count, m.made, util.bytes(m.all_bytes))
    end
  end,
  function(m)
    if m.made > 0 and not m.store then
      return string.format("--cache_file auto: %d volumes were prepared again, and all of them "
                           .. "(%s) are more than half of the memory; a file keeps them prepared",
                           m.made, util.bytes(m.all_bytes))
    end
  end,
  function(m)
    if m.workers < m.cores then
      return string.format("--workers %d: %s, and there are %d cores", m.cores,
                           m.workers == 0 and "batches are made between the steps"
                           or m.workers == 1 and "1 thread makes batches"
                           or m.workers .. " threads make batches", m.cores)
    end
  end,
  function(m)
    if m.device == "cuda" and not m.on_device and m.refused_memory then
      return "--device_dataset on: the samples take more than half of the free memory of the GPU, "
        .. "so auto does not keep them"
    end
  end,
  function(m)
    if m.made > 0 then
      return string.format("smaller volumes: all of them take %s; crop, resample or resize them as "
                           .. "far as the network allows", util.bytes(m.all_bytes))
    end
  end,
  function(m)
    if m.augmented and not m.on_device then
      return "fewer random changes: every core makes batches, of volumes that are kept in memory; "
        .. "elastic, affine and blur cost most"
    end
  end,
  function(m)
    if not m.on_device then
      return "smaller samples: every core makes batches, of volumes that are kept in memory"
    end
  end,
}

-- One line of advice for the run, or nil if nothing is slow. m, all of the train set:
--   seconds, wait     duration of this epoch, and its share of waiting for batches
--   left              epochs that remain
--   opening_s         seconds of opening all sets, until training began
--   kept, count       prepared volumes: in memory, in total
--   all_bytes         of all prepared volumes
--   made              how often a volume was prepared again in this epoch
--   store             whether there is a file of prepared cases
--   workers, cores, memory_bytes, device ("cpu", "cuda"), device_dataset (the key)
--   on_device         whether the device makes the batches
--   refused_memory    it does not, because its memory is too small
--   augmented         whether the set has random augmentation
function M.remedy(m)
  if m.wait > SHARE * m.seconds and m.wait * m.left > WORTH_S then
    for _, rule in ipairs(rules) do
      local text = rule(m)
      if text then
        return string.format("%.0f %% of the epoch waited for data; %s", 100 * m.wait / m.seconds,
                             text)
      end
    end
  end
  if m.opening_s > OPENING_S and m.opening_s > SHARE * m.seconds * (m.left + 1) and not m.store then
    return string.format("opening the data took %s; --cache_file auto: the next run takes prepared "
                         .. "volumes from a file", util.duration(m.opening_s))
  end
  return nil
end

-- The waiting times of an epoch as a percentage of its duration: "wait 25 %, copy 12 %". A share
-- below a tenth is omitted; nil if both are.
function M.waits(seconds, wait, copy)
  local parts = {}
  local function add(what, s)
    if s >= SHARE * seconds and s > 0 then
      parts[#parts + 1] = string.format("%s %d %%", what, math.floor(100 * s / seconds + 0.5))
    end
  end
  add("wait", wait)
  add("copy", copy)
  return parts[1] and table.concat(parts, ", ") or nil
end

return M
