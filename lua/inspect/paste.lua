-- paste.lua -- makes the text of a recipe line that opens data, and tests it.

local core = require "seg.core"

local M = {}

-- A string or a list of strings as Lua text.
function M.quote(v)
  if type(v) ~= "table" then
    return '"' .. v:gsub('[\\"]', "\\%0"):gsub("%c", "?") .. '"'
  end
  if #v == 1 then return M.quote(v[1]) end
  local list = {}
  for i, e in ipairs(v) do list[i] = M.quote(e) end
  return "{ " .. table.concat(list, ", ") .. " }"
end

-- Whether lines contain skip_bad = true: files of the folder are known to be damaged.
M.skip_bad = false

-- "data.KIND { root = PATH, a = b, ... }  -- remark" of pairs {key, Lua text}.
function M.line(kind, path, pairs_of, remark)
  local list = { "root = " .. M.quote(path) }
  for _, p in ipairs(pairs_of) do list[#list + 1] = p[1] .. " = " .. p[2] end
  if M.skip_bad then list[#list + 1] = "skip_bad = true" end
  return string.format("data.%s { %s }%s", kind, table.concat(list, ", "),
                       remark and "  -- " .. remark or "")
end

local TRIED = 20 -- cases of a set with skip_bad, of which one must load

-- The reason why the fields of a case cannot be loaded or do not fit each other, or nil.
local function fault_of(ds, number)
  local case = core.data.survey(core.data.pick(ds, { number }), "", {}):case(1)
  for _, field in ipairs(case.fields) do
    if field.fault then return field.fault end
  end
end

-- Whether a line opens its data and the fields of its first case fit each other; with skip_bad one
-- of the first cases. -> true, or false and the reason
local function opens(text)
  local chunk = assert(load("local data = ... return " .. text))
  local ok, why = pcall(function()
    local set = chunk(require "seg.data.data")
    set.source.quiet = true -- damaged files were reported already
    local ds, fault = set:dataset(), nil
    for i = 1, set.source.skip_bad and math.min(#ds:cases(), TRIED) or 1 do
      local why = fault_of(ds, i)
      if not why then return end
      fault = fault or why
    end
    error(fault, 0)
  end)
  return ok, not ok and tostring(why) or nil
end

-- The first of several lines that opens, and the reason why the first line does not.
function M.first_that_opens(lines)
  local reason
  for _, text in ipairs(lines) do
    local ok, why = opens(text)
    if ok then return text, reason end
    reason = reason or why
  end
  return nil, reason
end

return M
