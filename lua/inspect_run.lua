-- inspect_run.lua -- what `inspect` says of the folder of a run, and of one with runs.

local core = require "seg.core"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

local function is_run(path)
  return util.exists(path .. "/config.txt") and util.exists(path .. "/recipe.lua")
end

-- The rows of metrics.csv as tables of text; none where it is missing or cut.
local function metrics_of(path)
  local file, names, rows = path .. "/metrics.csv", nil, {}
  for line in (util.exists(file) and util.read_file(file) or ""):gmatch("[^\r\n]+") do
    local row, i = {}, 0
    for cell in (line .. ","):gmatch("([^,]*),") do
      i = i + 1
      row[names and names[i] or i] = cell
    end
    if names then rows[#rows + 1] = row else names = row end
  end
  return rows, names or {}
end

-- What `best` was measured by: the column of the validation that has this value in
-- the best epoch. A metric that equals the loss is the one that was asked for.
local function best_name(path, best, epoch)
  local rows, names = metrics_of(path)
  local found
  for _, row in ipairs(rows) do
    for _, name in ipairs(row.epoch == epoch and names or {}) do
      local what, v = name:match("^valid_(.*)"), tonumber(row[name])
      -- the file has fewer digits than the checkpoint
      if what and v and math.abs(v - best) <= 1e-5 * math.abs(best)
         and (not found or found == "loss") then
        found = what
      end
    end
  end
  return found
end

-- The result at the end of a finished run: "test dice 0.9123 (n 6)", or nil.
local function result_of(path)
  local file = path .. "/summary.json"
  local ok, summary = pcall(function()
    return require("seg.json").decode(util.read_file(file), file)
  end)
  for _, part in ipairs { "test", "valid" } do
    local of, list = ok and summary[part], {}
    local metrics = type(of) == "table" and of.metrics or {}
    for _, name in ipairs(util.sorted_keys(metrics)) do
      local m = metrics[name]
      list[#list + 1] = string.format("%s %s (n %d)", name, util.fixed(tonumber(m.mean) or 0 / 0),
                                      m.n or 0)
    end
    if #list > 0 then return part .. " " .. table.concat(list, ", ") end
  end
end

-- How far a run came.
--   recipe, epoch, epochs, finished, best = "dice 0.93, epoch 7", result
local function facts(path)
  local meta, config = {}, "\n" .. util.read_file(path .. "/config.txt")
  for _, name in ipairs { "last", "best" } do
    local ok, got = pcall(core.checkpoint.meta, path .. "/checkpoint_" .. name .. ".safetensors")
    if ok then for k, v in pairs(got) do meta[k] = meta[k] or v end end
  end
  local best, value = nil, tonumber(meta.best or "")
  if value then
    local name = best_name(path, value, meta.best_epoch)
    best = string.format("%s%.6g, epoch %s", name and name .. " " or "", value,
                         meta.best_epoch or "?")
  end
  return { recipe = meta.recipe, epoch = meta.epoch or "0",
           epochs = config:match("\nepochs = (%d+)") or "?", best = best,
           finished = util.exists(path .. "/summary.json"), result = result_of(path) }
end

local function one(path)
  local f = facts(path)
  print(string.format("run of %s, %s", f.recipe or "a recipe", f.finished and "finished"
                      or "not finished: --resume " .. path .. " continues it"))
  print(string.format("epochs      %s of %s", f.epoch, f.epochs))
  if f.best then print("best        " .. f.best) end
  if f.result then print("result      " .. f.result) end
  local files = {}
  for _, name in ipairs(core.sys.list(path)) do
    if name:sub(1, 1) ~= "." then files[#files + 1] = name end
  end
  print("files       " .. table.concat(files, ", "))
  print("\n" .. util.read_file(path .. "/config.txt"):gsub("\n$", ""))
end

-- Runs below a folder, by their paths below it: runs/NAME has them as NNN, runs as
-- NAME/NNN.
local function runs_below(path)
  local found = {}
  local function walk(folder, below, depth)
    for _, name in ipairs(core.sys.list(folder)) do
      local full = folder .. "/" .. name
      local stat = name:sub(1, 1) ~= "." and core.sys.stat(full)
      if stat and stat.kind == "folder" then
        if is_run(full) then
          found[#found + 1] = below .. name
        elseif depth < 2 then
          walk(full, below .. name .. "/", depth + 1)
        end
      end
    end
  end
  walk(path, "", 1)
  table.sort(found)
  return found
end

-- Describe a folder of this kind; false when it is none.
function M.folder(path)
  if is_run(path) then
    one(path)
    return true
  end
  local found = runs_below(path)
  if #found == 0 then return false end
  local rows = { { "run", "recipe", "epochs", "best", "result" } }
  for i, name in ipairs(found) do
    local f = facts(path .. "/" .. name)
    rows[i + 1] = { name, f.recipe or "?", f.epoch .. " of " .. f.epochs, f.best or "-",
                    f.result or f.finished and "-" or "not finished" }
  end
  print(show.table(rows))
  print(string.format("%d run%s; inspect one of them for its settings and files", #found,
                      #found == 1 and "" or "s"))
  return true
end

return M
