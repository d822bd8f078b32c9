-- inspect_run.lua -- inspect of the folder of a run, and of a folder of runs.

local core = require "seg.core"
local run_facts = require "seg.report.run_facts"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

-- The result at the end of a finished run: "test dice 0.9123 (n 6)", or nil.
local function result_of(f)
  local part, of = run_facts.result(f)
  local list = {}
  for _, name in ipairs(part and util.sorted_keys(of.metrics) or {}) do
    local m = of.metrics[name]
    list[#list + 1] = string.format("%s %s (n %d)", name, util.fixed(tonumber(m.mean) or 0 / 0),
                                    m.n or 0)
  end
  return part and part .. " " .. table.concat(list, ", ")
end

-- The progress of a run: the facts of run_facts.lua, with `best` and `result` as text.
local function facts(path)
  local f = run_facts.read(path)
  local best = f.best
  return { recipe = f.recipe, kind = f.kind, kind_text = f.kind_text, epoch = f.epoch,
           epochs = f.epochs, result = result_of(f),
           finished = util.exists(path .. "/summary.json"), running = f.state == "running",
           best = best and string.format("%s%.6g, epoch %s", best.name and best.name .. " " or "",
                                         best.value, best.epoch or "?") }
end

local function one(path)
  local f = facts(path)
  print(string.format("run of %s, %s", f.recipe or "a recipe", f.finished and "finished"
                      or f.running and "running"
                      or "not finished: --resume " .. path .. " continues it"))
  print("kind        " .. f.kind_text)
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

-- Describes a folder of a run or of runs. Returns false for any other folder.
function M.folder(path)
  if run_facts.is_run(path) then
    one(path)
    return true
  end
  local found = run_facts.below(path)
  if #found == 0 then return false end
  local rows = { { "run", "recipe", "kind", "epochs", "best", "result" } }
  for i, name in ipairs(found) do
    local f = facts(path .. "/" .. name)
    rows[i + 1] = { name, f.recipe or "?", f.kind, f.epoch .. " of " .. f.epochs, f.best or "-",
                    f.result or f.finished and "-" or f.running and "running" or "not finished" }
  end
  print(show.table(rows))
  print(string.format("%d run%s; inspect one of them for its settings and files", #found,
                      #found == 1 and "" or "s"))
  return true
end

return M
