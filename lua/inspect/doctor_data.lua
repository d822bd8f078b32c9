-- doctor_data.lua -- the command doctor data: finds errors in the data of a recipe before training.
--
-- C loads and counts every case (data/preprocess/survey.h). Here the sets are opened and the
-- findings are written: a table on stdout, JSON, and a page. Each check of doctor_recipe.lua gives
-- rows; a check without a row prints that it found nothing.
--
-- stdout is for the user of this machine and names cases by their key. JSON and page may be given
-- away: cases appear as hashes, and texts of readers, which contain paths and names, are left out
-- unless --names is given.

local core = require "seg.core"
local checks = require "seg.inspect.doctor_recipe"
local config = require "seg.recipe.config"
local functions = require "seg.data.functions"
local page = require "seg.inspect.doctor_page"
local run_folder = require "seg.report.run"
local sets = require "seg.data.set"
local show = require "seg.show"
local util = require "seg.util"
local writable = require "seg.writable"

local M = {}

local PARTS = { "train", "valid", "test" }

-- Opening ---------------------------------------------------------------------

-- Opens the data set of a part. A case without a partner is an error in training; here it becomes a
-- row, and the other cases are checked. -> data set or nil, error
local function open(set)
  local options = set.source.options
  -- a damaged file becomes a row as well
  local kind = set.source.kind
  set.source.lenient = true
  if kind == "dicom" or kind == "nifti" then options.skip_damaged = true end
  local ok, ds = pcall(set.dataset, set)
  if ok then return ds end
  local why = tostring(ds)
  -- a missing --data is a mistake on the command line
  if why:find("--data is missing", 1, true) then error(why, 0) end
  if options.skip_unmatched ~= false then return nil, why end
  options.skip_unmatched = true
  ok, ds = pcall(set.dataset, set)
  if ok then return ds, why, true end
  options.skip_unmatched = false
  return nil, why
end

-- The errors of damaged files that were left out when a set was opened, except files that make a
-- case fail, which are reported with the case.
local function damaged_files(set, cases)
  local found = {}
  for _, l in ipairs(set.source.left_out or {}) do
    local told = l.kind ~= "damaged"
    for _, case in ipairs(cases) do
      for _, field in ipairs(case.fields) do
        told = told or (field.fault or ""):find(l.why, 1, true) ~= nil
      end
    end
    if not told then found[#found + 1] = sets.advised(set.source, l.why) end
  end
  return found
end

-- The context of the checks.
--   parts   { { name=, set=, ds=, cases= }, ... } of the parts that could be opened
--   all     cases of all parts, each with its part; a case of slabs is listed once
--           for every part that has slices of it
--   opened  { { part=, why=, unmatched=, files= } } errors of opening, and of each
--           damaged file if there are several
local function look(recipe)
  local context = { recipe = recipe, parts = {}, all = {}, opened = {} }
  for _, name in ipairs(PARTS) do
    local set = recipe[name]
    if set then
      local ds, why, unmatched = open(set)
      if why then
        local o = { part = name, why = why, unmatched = unmatched }
        context.opened[#context.opened + 1] = o
      end
      if ds then
        local started, part = core.sys.clock(), { name = name, set = set, ds = ds, cases = {} }
        -- without fitted numbers, which need cases known to be good
        local survey = core.data.survey(ds, core.data.fitted_steps(set.steps),
                                        { threads = core.default_threads(),
                                          functions = functions.of(set.steps) })
        part.survey = survey
        for i = 1, #ds:cases() do
          local case = survey:case(i)
          case.part, case.number, case.rows = part, i, {}
          part.cases[i], context.all[#context.all + 1] = case, case
        end
        context.parts[#context.parts + 1] = part
        show.line("%s: %d cases looked at (%s)", name, #part.cases,
                  util.duration(core.sys.clock() - started))
      end
    end
  end
  local seen = {} -- by source, because parts of a split share theirs
  for _, part in ipairs(context.parts) do
    local files = seen[part.set.source] and {} or damaged_files(part.set, context.all)
    seen[part.set.source] = true
    if files[1] then
      context.opened[#context.opened + 1] = { part = part.name, why = files[1], files = files }
    end
  end
  return context
end

-- Rows ------------------------------------------------------------------------

local RANK = { error = 1, warning = 2, ok = 3 }

-- The rows of all checks, errors first. A row: check, level, part (name), case, found, fix, and the
-- private texts of the reader for found and fix: said, said_fix. found may be a function of the
-- function that names cases.
local function judge(context)
  local rows = {}
  for _, check in ipairs(checks) do
    local before = #rows
    local function add(level, row)
      row.check, row.level = check.name, level
      row.part = row.part or row.case and row.case.part.name or nil
      if row.case then table.insert(row.case.rows, row) end
      rows[#rows + 1] = row
    end
    local fine = check.run(context, add)
    if #rows == before and fine then add("ok", { found = fine }) end
  end
  for i, row in ipairs(rows) do row.order = i end
  table.sort(rows, function(a, b)
    if RANK[a.level] ~= RANK[b.level] then return RANK[a.level] < RANK[b.level] end
    return a.order < b.order
  end)
  return rows
end

local function count(rows, level)
  local n = 0
  for _, row in ipairs(rows) do if row.level == level then n = n + 1 end end
  return n
end

-- The finding as text; names: whether the reader may see names.
local function found(row, name, names)
  if names and row.said then return row.said end
  if type(row.found) == "function" then return row.found(name) end
  return row.found
end

-- Output ----------------------------------------------------------------------

local LISTED = 10 -- warnings of one check on stdout; all errors are printed

local function print_rows(rows)
  local function name(case) return case.key end
  local table_rows, shown, width = {}, {}, { 0, 0, 0, 0 }
  for _, row in ipairs(rows) do
    local id = row.check .. row.level
    shown[id] = (shown[id] or 0) + 1
    if row.level ~= "warning" or shown[id] <= LISTED then
      local cells = { row.level, row.check, row.part or "",
                      row.case and row.case.key:gsub("%c", "?") or "" }
      for i, cell in ipairs(cells) do width[i] = math.max(width[i], #cell) end
      local fix = row.said_fix -- false: the reader's text has no fix
      if fix == nil then fix = row.fix end
      table_rows[#table_rows + 1] = { cells, found(row, name, true), fix }
    end
  end
  width[4] = math.min(width[4], 32)
  local indent = (" "):rep(width[1] + width[2] + width[3] + width[4] + 8)
  for _, row in ipairs(table_rows) do
    local line = {}
    for i, cell in ipairs(row[1]) do line[i] = cell .. (" "):rep(width[i] - #cell) end
    print((table.concat(line, "  ") .. "  " .. row[2]))
    if row[3] and row[1][1] ~= "ok" then print(indent .. "fix: " .. row[3]) end
  end
  for _, check in ipairs(checks) do
    local n = shown[check.name .. "warning"] or 0
    if n > LISTED then
      print(string.format("%s: %d more warnings; --json and the page have all of them", check.name,
                          n - LISTED))
    end
  end
end

-- The report as a table of plain values: printed by --json and shown on the page.
local function report(context, rows, script, name, names)
  local out = { script = script, program = core.version, errors = count(rows, "error"),
                warnings = count(rows, "warning"), rows = {}, cases = {}, parts = {} }
  for i, row in ipairs(rows) do
    out.rows[i] = { check = row.check, level = row.level, part = row.part,
                    case = row.case and name(row.case), found = found(row, name, names),
                    fix = names and row.said_fix or row.fix }
  end
  for i, case in ipairs(context.all) do
    local field, level = case.fields[1], "ok"
    for _, row in ipairs(case.rows) do
      if RANK[row.level] < RANK[level] then level = row.level end
    end
    local e = { case = name(case), part = case.part.name, level = level }
    if case.size then
      e.size, e.spacing, e.axes = case.size, case.spacing, case.axes
      e.min, e.max, e.mean, e.sd = field.lo, field.hi, field.mean, field.sd
      if next(case.voxels) then e.foreground, e.marked = case.foreground, case.marked end
    end
    out.cases[i] = e
  end
  for _, part in ipairs(context.parts) do
    out.parts[#out.parts + 1] = { part = part.name, cases = #part.cases,
                                  patients = part.ds:patients(), steps = part.set.steps }
  end
  return out
end

-- The command doctor data. The exit code is 3 if there are errors.
function M.command(recipe, name)
  local flags, v = config.line.flags, config.ensure()
  local base = v.out .. "/" .. name
  writable.check_folder(base, "out") -- before every case is read
  local context = look(recipe)
  local rows = judge(context)
  local hash, names = run_folder.hasher(base), flags.names or false
  local function shown(case) return names and case.key or hash(case.key) end
  local r = report(context, rows, name, shown, names)
  if flags.json then
    print(util.json(r))
  else
    print_rows(rows)
    print(string.format("%d error%s, %d warning%s", r.errors, r.errors == 1 and "" or "s",
                        r.warnings, r.warnings == 1 and "" or "s"))
  end
  local path = flags.html or base .. "/doctor.html"
  -- it holds pictures of patients, so only its owner may read it
  core.sys.write(path, page.html(r, context), true)
  show.line("page: %s", path)
  return r.errors > 0 and 3 or 0
end

return M
