-- leftovers.lua -- what the scan of a folder left out, in lines.

local util = require "seg.util"

local M = {}

-- Whether the system does not let this user read a file or folder, which may be whole: by the
-- words of the error.
function M.is_locked(why)
  return why:find(": Permission denied", 1, true) ~= nil
end

-- What to do about such a file or folder.
M.unlock = "read access for this user (chmod or chown, by its owner)"

-- Calls say(damaged, text) for every file of ds:left_out() that is damaged, for the first
-- `most` of each kind that is no image, and for how many more there are of a kind. Studies
-- that are not taken for what they lack were asked for so, by skip_unmatched.
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
