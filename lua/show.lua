-- show.lua -- what a person sees while a run works.
--
-- stdout carries results, stderr everything here. A bar only on a terminal;
-- else one plain line an epoch. No colours; with --quiet only warnings.

local core = require "seg.core"
local config = require "seg.recipe.config"
local util = require "seg.util"

local M = {}
local log_file
local early = {} -- lines said before the run has a folder
local bar_shown, last_drawn = false, 0

-- Take the bar away, so that a line can be written in its place.
local function erase()
  if bar_shown then
    core.sys.eprint("\r\27[K")
    bar_shown = false
  end
end

-- Text without what a terminal obeys, which a name of a file may hold; lines stay.
local function disarmed(text) return (text:gsub("[^%C\n\t]", "?")) end

-- Of several processes that do the same one speaks: the others say nothing, warnings
-- neither.
M.silent = false

-- A line to the run's log and, unless `hidden`, to stderr; there it is `short`, when given.
local function say(text, hidden, short)
  text = disarmed(text)
  if log_file then
    log_file:write(text, "\n")
    log_file:flush()
  else
    early[#early + 1] = text
  end
  if hidden or M.silent then return end
  erase()
  core.sys.eprint((short and disarmed(short) or text) .. "\n")
end

-- A line to stderr and to the run's log.
function M.line(fmt, ...)
  say(select("#", ...) > 0 and string.format(fmt, ...) or fmt, config.line.flags.quiet)
end

-- The first of `texts`, which become shorter, that fits into `columns`, else the last.
function M.fitting(texts, columns)
  for _, text in ipairs(texts) do
    if not columns or #text <= columns then return text end
  end
  return texts[#texts]
end

-- A line that a terminal gets as short as it has to be, and the log in full. texts: from
-- the full one to the shortest.
function M.fit(texts)
  say(texts[1], config.line.flags.quiet, M.fitting(texts, core.sys.terminal()))
end

-- A result: to stdout, and to the run's log, where it stands with what led to it.
function M.result(text)
  if log_file then
    log_file:write(disarmed(text), "\n")
    log_file:flush()
  end
  erase()
  print(text)
end

-- A line that is worth a look; nothing that ends a run, so that --quiet does not hide it.
function M.warn(fmt, ...)
  say("warning: " .. (select("#", ...) > 0 and string.format(fmt, ...) or fmt))
end

-- A line to stderr that names a patient or a path, and so is not for the log.
function M.aside(fmt, ...)
  if config.line.flags.quiet then return end
  erase()
  core.sys.eprint(disarmed(string.format(fmt, ...)) .. "\n")
end

-- From now on lines go to this file too, those said before first.
function M.open_log(path)
  local why
  log_file, why = io.open(path, "a")
  if not log_file then util.fail("failure", "cannot write %s", why) end
  for _, text in ipairs(early) do log_file:write(text, "\n") end
  early = {}
end

-- Called whenever work goes on: hooks.lua watches over it. nil: nobody does.
M.on_progress = nil

-- Called as often, and may raise: the folder of a run is looked at (state.lua). nil: none.
M.on_look = nil

-- done of total as a bar and the time that is left at this rate; at most 10
-- times a second, and only on a terminal.
function M.bar(label, done, total, started, extra)
  if M.on_progress then M.on_progress() end
  if M.on_look then M.on_look() end
  local columns = core.sys.terminal()
  local now = core.sys.clock()
  if not columns or config.line.flags.quiet or (now - last_drawn < 0.1 and done < total) then
    return
  end
  last_drawn = now
  local elapsed = now - started
  local left = done > 0 and util.duration(elapsed / done * (total - done)) or "?"
  local tail = string.format(" %d/%d  %s left  %s", done, total, left, extra or "")
  local width = math.max(math.min(30, columns - #label - #tail - 4), 4)
  local filled = math.floor(width * done / total)
  local text = string.format("%s |%s%s|%s", label, string.rep("#", filled),
                             string.rep(" ", width - filled), tail)
  core.sys.eprint("\r" .. text:sub(1, columns - 1) .. "\27[K")
  bar_shown = true
end

function M.bar_done()
  erase()
end

-- "bf16 (AMX tiles)": a precision on a device, for people. On the CPU with what
-- multiplies in it.
function M.precision(device, precision)
  if device ~= "cpu" or precision ~= "bf16" then return precision end
  local _, pairs = core.isa()
  return string.format("bf16 (%s)", pairs or "multiplied as f32")
end

-- "2 threads"; of ref, whose loops go by themselves, one.
function M.threads(facts)
  return util.plural(facts.device == "ref" and 1 or facts.threads, "thread")
end

-- "GPU", "CPU, 2 threads": what a session computes on, by its facts.
function M.processor(facts)
  if facts.device == "cuda" then return "GPU" end
  return (facts.device == "ref" and "ref, plain loops in double, " or "CPU, ") .. M.threads(facts)
end

-- "CPU, 2 threads, convolutions without Winograd": where a session computes (its facts) and how
-- the config `v` has it do so, as far as that is not what everybody gets.
function M.device(facts, v)
  if facts.device == "cuda" then
    return v.precision == "f32" and "GPU" or "GPU, convolutions in " .. v.precision
  end
  local text = { M.processor(facts) }
  local function add(said) text[#text + 1] = said end
  if v.precision ~= "f32" then add("convolutions in " .. M.precision(facts.device, v.precision)) end
  if not v.winograd then add("convolutions without Winograd") end
  if not v.fuse then add("each layer by itself") end
  if v.pin then add("a core for each thread") end
  if v.nice > 0 then add("nice " .. v.nice) end
  return table.concat(text, ", ")
end

-- Rows of cells as aligned text; the first row is the head.
function M.table(rows)
  local width, out = {}, {}
  -- a name may hold a line break, or what a terminal obeys
  local function plain(cell) return (tostring(cell):gsub("%c", "?")) end
  for _, row in ipairs(rows) do
    for i, cell in ipairs(row) do width[i] = math.max(width[i] or 0, #plain(cell)) end
  end
  for _, row in ipairs(rows) do
    local cells = {}
    for i, cell in ipairs(row) do
      -- names to the left, numbers to the right; paths are longer than the 99
      -- letters that a format can pad to
      local text = plain(cell)
      local blank = string.rep(" ", width[i] - #text)
      cells[i] = i == 1 and text .. blank or blank .. text
    end
    out[#out + 1] = (table.concat(cells, "  "):gsub("%s+$", ""))
  end
  return table.concat(out, "\n")
end

-- Rows for a person: of many, which nobody reads, the first of them, and where all
-- are. file: the table that has them.
local MANY, SHOWN = 60, 20

function M.first(rows, file)
  local count = #rows - 1
  if count <= MANY then return M.table(rows) end
  return string.format("%s\n... the first %d of %d; all are in %s",
                       M.table(table.move(rows, 1, SHOWN + 1, 1, {})), SHOWN, count, file)
end

return M
