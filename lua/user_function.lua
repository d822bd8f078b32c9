-- user_function.lua -- functions that a recipe gives to training: hooks, functions of metric.case.

local M = {}

-- The place of a function, "script.lua:12".
function M.place(f)
  local info = debug.getinfo(f, "S")
  return string.format("%s:%d", info.short_src, info.linedefined)
end

local LONG = 600 -- bytes of a message

-- The text of the error `why` that f raised, with its place. Control characters are escaped: a
-- terminal would obey them, and a message ends at a zero.
function M.error_text(f, why)
  if type(why) ~= "string" then
    why = string.format("an error that is a %s, not a text", type(why))
  end
  if not why:match("^[^\n]-:%d+: ") then why = M.place(f) .. ": " .. why end
  return (why:sub(1, LONG):gsub("[^\n\t\x20-\x7e\x80-\xff]", function(c)
    return string.format("\\x%02x", c:byte())
  end))
end

return M
