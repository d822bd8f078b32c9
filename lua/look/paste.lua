-- paste.lua -- the text of a line of a recipe that opens data, and whether it does.

local core = require "seg.core"

local M = {}

-- A text or a list of them as Lua.
function M.quote(v)
  if type(v) ~= "table" then
    return '"' .. v:gsub('[\\"]', "\\%0"):gsub("%c", "?") .. '"'
  end
  if #v == 1 then return M.quote(v[1]) end
  local list = {}
  for i, e in ipairs(v) do list[i] = M.quote(e) end
  return "{ " .. table.concat(list, ", ") .. " }"
end

-- "data.KIND { root = PATH, a = b, ... }  -- remark" of pairs {key, text of Lua}.
function M.line(kind, path, pairs_of, remark)
  local list = { "root = " .. M.quote(path) }
  for _, p in ipairs(pairs_of) do list[#list + 1] = p[1] .. " = " .. p[2] end
  return string.format("data.%s { %s }%s", kind, table.concat(list, ", "),
                       remark and "  -- " .. remark or "")
end

-- Whether a line opens what it names, and the fields of its first case fit each
-- other. -> true, or false and why
local function opens(text)
  local chunk = assert(load("local data = ... return " .. text))
  local ok, why = pcall(function()
    local ds = chunk(require "seg.data"):dataset()
    for _, field in ipairs(core.data.survey(core.data.pick(ds, { 1 }), "", {}):case(1).fields) do
      if field.fault then error(field.fault, 0) end
    end
  end)
  return ok, not ok and tostring(why) or nil
end

-- The first of several lines that opens; where none does, why the first does not.
function M.first_that_opens(lines)
  local reason
  for _, text in ipairs(lines) do
    local ok, why = opens(text)
    if ok then return text end
    reason = reason or why
  end
  return nil, reason
end

return M
