-- run.lua -- the folder of one run: runs/<recipe>/<NNN>/.
--
-- A run always gets a new number; resuming continues a folder. Files that may
-- leave the machine name no patient: cases appear as a keyed hash, and the
-- table from hash to case stays in cases.csv (mode 600).

local core = require "seg.core"
local util = require "seg.util"

local sys, fail = core.sys, util.fail
local M = {}

-- The numbers of the runs in a folder, in order; none when it is not there.
local function numbers(folder)
  local list = {}
  if not util.exists(folder) then return list end
  for _, name in ipairs(sys.list(folder)) do
    if name:match("^%d+$") then list[#list + 1] = math.tointeger(tonumber(name)) end
  end
  table.sort(list)
  return list
end

-- A new folder below out/recipe; two programs never get the same.
function M.new(out, recipe)
  local base = out .. "/" .. recipe
  sys.mkdir(base)
  local list = numbers(base)
  local n = (list[#list] or 0) + 1
  while not sys.make_new(string.format("%s/%03d", base, n)) do n = n + 1 end
  return string.format("%s/%03d", base, n)
end

-- A run is over when its test is: summary.json is written last.
function M.finished(folder)
  return util.exists(folder .. "/summary.json")
end

-- The newest folder of this recipe that `wanted` accepts, or nil.
function M.newest(out, recipe, wanted)
  local base = out .. "/" .. recipe
  local list = numbers(base)
  for i = #list, 1, -1 do
    local folder = string.format("%s/%03d", base, list[i])
    if wanted(folder) then return folder end
  end
end

-- The best weights of the newest run of this recipe, or nil. A run without a
-- validation set has no best: the last weights of a finished one count.
function M.weights(out, recipe)
  for _, file in ipairs { "/checkpoint_best.safetensors", "/checkpoint_last.safetensors" } do
    local folder = M.newest(out, recipe, function(f)
      return util.exists(f .. file) and (M.finished(f) or file:find("best"))
    end)
    if folder then return folder .. file end
  end
end

-- The folder that --resume means: its own path, or `auto`: the newest run that
-- has a checkpoint and is not finished. nil: start anew.
function M.resume(text, out, recipe)
  if text ~= "auto" then
    if not util.exists(text) then
      util.refuse("--resume %s: there is no such run; use --resume auto or a folder below %s",
                  text, out .. "/" .. recipe)
    end
    local folder = text:gsub("(.)/+$", "%1")
    if not util.exists(folder .. "/config.txt") then
      sys.raise("data", string.format("--resume %s: this is not the folder of a run (it has no "
                .. "config.txt); give the folder that holds checkpoint_last.safetensors", text),
                true)
    end
    return folder
  end
  return M.newest(out, recipe, function(folder)
    return not M.finished(folder) and core.checkpoint.newest(folder) ~= nil
  end)
end

-- A text for a case that says nothing about the patient: the first 10 digits
-- of a hash keyed with a secret that never leaves this folder of runs.
-- `base` is the folder above the runs.
function M.hasher(base)
  local path = base .. "/.key"
  if not util.exists(path) then
    sys.mkdir(base)
    sys.write(path, core.entropy(), true)
  end
  local secret = util.read_file(path)
  if #secret ~= 16 then fail("data", "%s: must hold 16 bytes, got %d", path, #secret) end
  return function(key) return core.keyed_hash(secret, key):sub(1, 10) end
end

-- The folder above that of a run.
function M.base(folder)
  return folder:match("^(.+)/[^/]*$") or (folder:sub(1, 1) == "/" and "/" or ".")
end

-- The parts of the cases of a run, by hash, as write_cases left them.
function M.read_cases(folder)
  local parts, path = {}, folder .. "/cases.csv"
  if not util.exists(path) then return parts end
  for case, part in util.read_file(path):gmatch('(%x+),".-",(%a+)\n') do parts[case] = part end
  return parts
end

-- cases.csv: which case is which, for the eyes of this machine only.
function M.write_cases(folder, rows)
  local lines = { "case,key,patient,part" }
  for _, r in ipairs(rows) do
    local function quote(s) return '"' .. s:gsub('"', '""') .. '"' end
    lines[#lines + 1] = table.concat({ r.case, quote(r.key), quote(r.patient), r.part }, ",")
  end
  sys.write(folder .. "/cases.csv", table.concat(lines, "\n") .. "\n", true)
end

-- metrics.csv: one row an epoch under a stable head -------------------------

local Csv = {}
Csv.__index = Csv

-- Opens folder/metrics.csv and cuts it back to `epochs` rows.
function M.csv(folder, columns, epochs)
  local path = folder .. "/metrics.csv"
  local head, rows = table.concat(columns, ","), {}
  if epochs > 0 and util.exists(path) then
    for line in util.read_file(path):gmatch("[^\n]+") do
      if line ~= head and #rows < epochs then rows[#rows + 1] = line end
    end
  end
  local csv = setmetatable({ path = path, head = head, rows = rows, columns = columns }, Csv)
  csv:write()
  return csv
end

-- The whole file anew: it is small, and so it is never there in part.
function Csv:write()
  sys.write(self.path, self.head .. "\n" .. table.concat(self.rows, "\n")
            .. (#self.rows > 0 and "\n" or ""))
end

-- One epoch more; `values` by column, nil for an empty cell.
function Csv:add(values)
  local cells = {}
  for i, name in ipairs(self.columns) do
    local v = values[name]
    cells[i] = v == nil and "" or util.number(v)
  end
  self.rows[#self.rows + 1] = table.concat(cells, ",")
  self:write()
end

-- Column `name` as numbers (nil where a cell is empty), by epoch.
function Csv:column(name)
  local at
  for i, c in ipairs(self.columns) do if c == name then at = i end end
  local out = {}
  for r, line in ipairs(self.rows) do
    local i = 0
    for cell in (line .. ","):gmatch("([^,]*),") do
      i = i + 1
      if i == at then out[r] = tonumber(cell) or false end
    end
  end
  return out
end

return M
