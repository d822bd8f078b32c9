-- run_facts.lua -- facts about a run from its folder, while it runs or later. Only reads files;
-- facts from missing or damaged files are absent.

local aliases = require "seg.aliases"
local core = require "seg.core"
local epoch_table = require "seg.report.epoch_table"
local json = require "seg.json"
local progress = require "seg.train.progress"
local run_folder = require "seg.report.run"
local run_kind = require "seg.report.run_kind"
local util = require "seg.util"

local M = {}

local RECENT = 5 -- epochs for the estimate of the next one's duration

-- Whether this is the folder of a run.
function M.is_run(path)
  return util.exists(path .. "/config.txt") and util.exists(path .. "/recipe.lua")
end

-- The runs below a folder, as relative paths: below runs/NAME they are NNN, below runs NAME/NNN;
-- the runs of a series are one level deeper.
function M.below(path)
  local found = {}
  local function walk(folder, below, depth)
    -- a folder that cannot be opened is reported by the listing of files
    local ok, names = pcall(core.sys.list, folder)
    for _, name in ipairs(ok and names or {}) do
      local full = folder .. "/" .. name
      local stat = name:sub(1, 1) ~= "." and core.sys.stat(full)
      if stat and stat.kind == "folder" then
        if M.is_run(full) then
          found[#found + 1] = below .. name
        elseif depth < 3 then
          walk(full, below .. name .. "/", depth + 1)
        end
      end
    end
  end
  walk(path, "", 1)
  table.sort(found)
  return found
end

-- The types of the metrics of a part; a series has only cases.
local measured = { cases = { "table", free = true }, free = true,
                   metrics = { { mean = "number?" }, free = true } }
local shape = { valid = measured, test = measured, cases = measured.cases }

-- The content of summary.json, or an empty table if it has other types.
local function checked(summary)
  return pcall(json.check, summary, shape, "summary.json") and summary or {}
end

-- summary.json, or an empty table if it is missing or damaged.
function M.summary(path)
  return checked(run_kind.read_json(path .. "/summary.json") or {})
end

-- The name of the metric of `best`: the column of the validation that has this value in the best
-- epoch. If a metric equals the loss, it is the metric.
local function best_name(rows, names, best, epoch)
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

-- The remaining seconds at the pace of the last epochs, or of the finished part of the epoch; nil
-- if neither is known.
local function left_of(f, path)
  local pace, n, p = 0, 0, f.progress
  for i = math.max(1, #f.rows - RECENT + 1), #f.rows do
    local row = f.rows[i]
    pace = pace + (tonumber(row.seconds) or 0) + (tonumber(row.valid_s) or 0)
      + (tonumber(row.save_s) or 0)
    n = n + 1
  end
  f.epoch_s = n > 0 and pace / n or p and p.epoch_s
  if not f.epoch_s then return nil end
  local after = f.epochs - f.epoch - 1 -- epochs after the current one
  if p and p.left_s then
    -- training of this epoch, then validation and saving as in the last epoch
    local last = f.rows[#f.rows] or {}
    return p.left_s + (tonumber(last.valid_s) or 0) + f.epoch_s * math.max(after, 0)
  end
  local stat = core.sys.stat(path .. "/metrics.csv")
  local since = stat and math.max(0, os.time() - stat.mtime) or 0
  return math.max(0, f.epoch_s * (f.epochs - f.epoch) - math.min(since, f.epoch_s))
end

-- The progress of the current epoch, with its remaining time as of this moment; nil if unknown.
local function progress_of(f, path)
  local p = f.state == "running" and progress.read(path)
  if not p or p.epoch ~= f.epoch + 1 then return nil end
  if p.part ~= "train" then p.left_s = nil end
  p.left_s = p.left_s and math.max(0, p.left_s - p.age)
  return p
end

-- All facts of the run in a folder:
--   path, name ("brain_unet/001"), recipe, config (key -> text), text (the recipe),
--   rows, columns (metrics.csv), summary, manifest, kind = "training", "overfit" or
--   "quick", kind_text = the same in words, state, pid, epoch, epochs, loss,
--   valid_loss, best = {name=, value=, epoch=}, epoch_s, left_s, updated,
--   progress (progress.read, of a running run)
function M.read(path)
  path = util.by_name(path)
  local meta = {}
  for _, name in ipairs { "last", "best" } do
    local ok, got = pcall(core.checkpoint.meta, path .. "/checkpoint_" .. name .. ".safetensors")
    if ok then for k, v in pairs(got) do meta[k] = meta[k] or v end end
  end
  local kind = run_kind.read(path)
  local m = next(kind.manifest) and kind.manifest
  local config = run_folder.values(aliases.config(kind.config))
  local f = { path = path, recipe = meta.recipe, config = config,
              summary = checked(kind.summary), text = util.read_file(path .. "/recipe.lua"),
              manifest = m or nil, state = kind.state, pid = kind.pid, kind = kind.kind,
              kind_text = kind.text }
  f.rows, f.columns = epoch_table.read(path)
  f.recipe = f.recipe or m and m.recipe and m.recipe.name or "a recipe"
  f.name = f.recipe .. "/" .. path:match("([^/]+)$")
  local last = m and m.sessions and m.sessions[#m.sessions] or {}
  f.epoch = math.tointeger(tonumber(meta.epoch)) or #f.rows
  -- a checkpoint is written while the next epoch runs
  if f.state == "running" then f.epoch = math.max(f.epoch, #f.rows) end
  f.epochs = last.epochs or math.tointeger(tonumber(f.config.epochs)) or f.epoch
  local row = f.rows[#f.rows] or {}
  f.loss, f.valid_loss = tonumber(row.train_loss), tonumber(row.valid_loss)
  local best = tonumber(meta.best or "")
  if best then
    f.best = { name = meta.best_of or best_name(f.rows, f.columns, best, meta.best_epoch),
               value = best,
               epoch = math.tointeger(tonumber(meta.best_epoch)) }
  end
  f.progress = progress_of(f, path)
  f.left_s = left_of(f, path)
  local newest = f.progress and f.progress.mtime or 0
  for _, name in ipairs { "log.txt", "metrics.csv", "checkpoint_last.safetensors" } do
    local stat = core.sys.stat(path .. "/" .. name)
    newest = math.max(newest, stat and stat.mtime or 0)
  end
  f.updated = newest
  return f
end

-- "dice 0.9123, epoch 7", or nil.
function M.best_text(f)
  local best = f.best
  return best and string.format("%s%s, epoch %s", best.name and best.name .. " " or "",
                                util.fixed(best.value), best.epoch or "?")
end

-- The part that was measured at the end: "test", else "valid"; nil without one.
function M.result(f)
  for _, part in ipairs { "test", "valid" } do
    local of = f.summary[part]
    if type(of) == "table" and type(of.metrics) == "table" and next(of.metrics) then
      return part, of
    end
  end
end

return M
