-- advice.lua -- what to do about an epoch that waits for its data.
--
-- A step can only begin when its batch is there. Where that takes a share of the
-- epoch worth having, what was measured says why, and so what would help most.

local util = require "seg.util"

local M = {}

local SHARE = 0.1 -- of an epoch: less is not worth a word
local WORTH_S = 10 -- nor is what the rest of the run would gain
local OPENING_S = 60 -- an opening that is felt

local function mib(bytes)
  return math.ceil(bytes / (1 << 20))
end

-- Why batches come late, the first that fits: what was measured -> what to do, or
-- nil. Volumes that are decoded again and again come before threads: more threads
-- would decode them more often at a time, not less often.
local rules = {
  function(m)
    if m.device == "cuda" and m.resident == "off" then
      return "--resident auto: the GPU keeps the samples and makes the batches"
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
      return "--resident on: the samples take more than half of what is free on the GPU, which "
        .. "auto leaves alone"
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

-- One line for the run, or nil when all is well. m, all of the train set:
--   seconds, wait     of this epoch, and how much of it waited for batches
--   left              epochs to come
--   opening_s         all sets together, until training began
--   kept, count       prepared volumes: in memory, all
--   all_bytes         of all prepared volumes
--   made              how often one was prepared again in this epoch
--   store             is there a file of prepared cases?
--   workers, cores, memory_bytes, device ("cpu", "cuda"), resident (the key)
--   on_device         does the device make the batches?
--   refused_memory    it does not, for want of memory
--   augmented         is the set changed at random?
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

-- What an epoch waited for, in per cent of its time: "wait 25 %, copy 12 %", each of
-- them only from a tenth on; nil where neither is worth a word.
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
