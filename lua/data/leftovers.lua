-- leftovers.lua -- lines about the files that the scan of a folder left out.

local util = require "seg.util"

local M = {}

-- Whether an error says that this user may not read a file or folder, which may be intact.
function M.is_locked(why)
  return why:find(": Permission denied", 1, true) ~= nil
end

-- The fix for such a file or folder.
M.unlock = "read access for this user (chmod or chown, by its owner)"

-- Calls say(damaged, text) for every damaged file of ds:left_out(), for the first `most` files of
-- each kind that are no images, and once per kind with the number of the rest. Incomplete studies
-- are not mentioned, because skip_unmatched asked to skip them.
function M.each(list, most, say)
  local count = {}
  for _, l in ipairs(list) do
    local damaged = l.kind == "damaged"
    if l.kind == "not taken" then goto next end
    count[l.kind] = (count[l.kind] or 0) + 1
    if damaged or count[l.kind] <= most then say(damaged, l.why) end
    ::next::
  end
  for _, kind in ipairs(util.sorted_keys(count)) do
    if kind ~= "damaged" and count[kind] > most then
      say(false, count[kind] - most .. " more of these")
    end
  end
end

return M
