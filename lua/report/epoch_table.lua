-- epoch_table.lua -- metrics.csv of a run: one row an epoch under a fixed header.

local core = require "seg.core"
local util = require "seg.util"

local M = {}

-- The cells of a line.
local function cells(line)
  local list = {}
  for cell in (line .. ","):gmatch("([^,]*),") do list[#list + 1] = cell end
  return list
end

-- The rows in the folder of a run as tables of text by column, and the names of the columns; empty
-- if the file is missing or truncated.
function M.read(folder)
  local file, names, rows = folder .. "/metrics.csv", nil, {}
  for line in (util.exists(file) and util.read_file(file) or ""):gmatch("[^\r\n]+") do
    local list = cells(line)
    if names then
      local row = {}
      for i, cell in ipairs(list) do row[names[i] or i] = cell end
      rows[#rows + 1] = row
    else
      names = list
    end
  end
  return rows, names or {}
end

local Csv = {}
Csv.__index = Csv

-- Opens folder/metrics.csv and truncates it to `epochs` rows.
function M.open(folder, columns, epochs)
  local path = folder .. "/metrics.csv"
  local head, rows = table.concat(columns, ","), {}
  if epochs > 0 and util.exists(path) then
    local first = true -- the header; an older program may have written fewer columns
    for line in util.read_file(path):gmatch("[^\n]+") do
      if not first and #rows < epochs then rows[#rows + 1] = line end
      first = false
    end
  end
  local csv = setmetatable({ path = path, head = head, rows = rows, columns = columns }, Csv)
  csv:write()
  return csv
end

-- Adds these columns at the end, as far as they are missing; earlier rows have no cells there.
function Csv:widen(names)
  local have = {}
  for _, name in ipairs(self.columns) do have[name] = true end
  for _, name in ipairs(names) do
    if not have[name] then
      self.columns[#self.columns + 1] = name
      self.head = self.head .. "," .. name
    end
  end
end

-- Rewrites the whole file: it is small, and so it is never incomplete.
function Csv:write()
  core.sys.write(self.path, self.head .. "\n" .. table.concat(self.rows, "\n")
                 .. (#self.rows > 0 and "\n" or ""))
end

-- The cells of a row; `values` by column, nil or NaN for an empty cell.
local function row_text(self, values)
  local list = {}
  for i, name in ipairs(self.columns) do
    local v = values[name]
    list[i] = (v == nil or v ~= v) and "" or util.number(v)
  end
  return table.concat(list, ",")
end

-- Adds the row of an epoch.
function Csv:add(values)
  self.rows[#self.rows + 1] = row_text(self, values)
  self:write()
end

-- Replaces the row of the last epoch, with values that became known later.
function Csv:amend(values)
  self.rows[#self.rows] = row_text(self, values)
  self:write()
end

-- Column `name` as numbers (false for an empty cell), by epoch.
function Csv:column(name)
  local at
  for i, c in ipairs(self.columns) do if c == name then at = i end end
  local out = {}
  for r, line in ipairs(at and self.rows or {}) do
    out[r] = tonumber(cells(line)[at] or "") or false
  end
  return out
end

return M
