-- inspect_columns.lua -- the line of a recipe for files that a table lists.
--
-- The patient and the targets of a row are found by the names of columns. Other columns of numbers,
-- such as counts, are not taken as targets: they are named in a remark.

local core = require "seg.core"
local paste = require "seg.inspect.paste"
local util = require "seg.util"

local quote, line, first_that_opens = paste.quote, paste.line, paste.first_that_opens
local M = {}

-- Usual names of columns. A patient column is the unit of splits; a target column is learnt: class
-- numbers, each as its own field, and measures together in one field.
local PATIENTS = { "patient", "subject", "person", "participant", "speaker", "identity", "pid",
                   "sid", "who", "id" }
local CLASSES = { label = true, class = true, category = true, target = true, diagnosis = true,
                  digit = true, y = true }
local MEASURES = { yaw = true, pitch = true, roll = true, pan = true, tilt = true, angle = true,
                   age = true, score = true, dose = true, volume = true }
local UNITS = { "_deg$", "_degrees$", "_rad$", "_mm$", "_gy$", "_ml$" }

-- The rank of a column as a patient column, 1 is best; nil if it is none.
local function patient_rank(t, name)
  local lower = name:lower():gsub("[%s%-]", "_")
  for rank, word in ipairs(PATIENTS) do
    if lower == word or lower == word .. "_id" or lower == word .. "id" then
      local seen, distinct = {}, 0
      for row = 1, t:rows() do
        local v = t:text(row, name)
        if not seen[v] then seen[v], distinct = true, distinct + 1 end
      end
      -- one value for all rows is useless, and a different value in each row is only a row number
      return distinct > 1 and distinct < t:rows() and rank or nil
    end
  end
end

local function is_measure(name)
  local lower = name:lower()
  for _, unit in ipairs(UNITS) do
    if lower:find(unit) then return true end
  end
  return MEASURES[lower] or false
end

-- Finds a table next to files; its first row must name one of them.
--   name, path = column of the files, patient = column or nil,
--   classes, measures, rest = names of columns of numbers
-- nil if there is none.
local function find_table(path)
  for _, name in ipairs(util.names_in(path)) do
    local ok, t = false, nil
    if name:lower():match("%.csv$") then
      ok, t = pcall(core.data.table_open, path .. "/" .. name, ",")
    end
    local found = { name = name, classes = {}, measures = {}, rest = {} }
    local best
    for _, c in ipairs(ok and t:rows() > 0 and t:columns() or {}) do
      local first, rank = t:text(1, c.name), patient_rank(t, c.name)
      local of = c.numbers ~= t:rows() and {} or CLASSES[c.name:lower()] and c.whole
                 and found.classes or is_measure(c.name) and found.measures or found.rest
      if not found.path and first ~= "" and first:sub(1, 1) ~= "/"
         and util.exists(path .. "/" .. first) then
        found.path = c.name
      else
        of[#of + 1] = c.name
        if rank and (not best or rank < best) then found.patient, best = c.name, rank end
      end
    end
    if found.path then return found end
  end
end

-- A list of names without its brackets.
local function names_of(list)
  return (quote({ "", table.unpack(list) }):gsub('^{ "", ', ""):gsub(" }$", ""))
end

-- The line for a table and its files. field: the field of the files, as Lua text, to which the
-- column is added.
function M.table(path, field, more)
  local t = find_table(path)
  if not t then return nil end
  local fields = { string.format("{ %s, column = %s }", field, quote(t.path)) }
  for _, name in ipairs(t.classes) do
    if name ~= t.patient then
      fields[#fields + 1] = string.format('{ name = %s, kind = "numbers", columns = { %s } }',
                                          quote(name), quote(name))
    end
  end
  if #t.measures > 0 then
    fields[#fields + 1] = string.format('{ name = "numbers", kind = "numbers", columns = { %s } }',
                                        names_of(t.measures))
  end
  if more then fields[#fields + 1] = more end
  local rest, remarks = {}, {}
  for _, name in ipairs(t.rest) do
    if name ~= t.patient then rest[#rest + 1] = name end
  end
  if not t.patient then remarks[1] = "if every row is another person" end
  if #rest > 0 then
    remarks[#remarks + 1] = "left out: " .. table.concat(rest, ", "):gsub("%c", "?")
                            .. "; add what is to be learnt"
  end
  return first_that_opens { line("csv", path, {
    { "table", quote(t.name) }, { "patient", t.patient and quote(t.patient) or '"file"' },
    { "fields", "{ " .. table.concat(fields, ", ") .. " }" } },
    #remarks > 0 and table.concat(remarks, "; ") or nil) }
end

return M
