-- show.lua -- the output for the user while a command runs.
--
-- Results go to stdout, everything in this file to stderr. A progress bar is drawn only on a
-- terminal; else there is one plain line an epoch. No colours; with --quiet only warnings.

local core = require "seg.core"
local config = require "seg.recipe.config"
local util = require "seg.util"

local M = {}
local log_file
local early = {} -- lines printed before the run has a folder
local bar_shown, last_drawn = false, 0

-- Erases the bar, so that a line can be written in its place.
local function erase()
  if bar_shown then
    core.sys.eprint("\r\27[K")
    bar_shown = false
  end
end

-- Replaces control characters, which a file name may contain and a terminal would obey; line breaks
-- stay.
local function disarmed(text) return (text:gsub("[^%C\n\t]", "?")) end

-- Of several ranks only one prints: the others are silent, including warnings.
M.silent = false

-- Writes a line to the run's log and, unless `hidden`, to stderr; there `short` replaces it if
-- given.
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

-- Prints a line to stderr and to the run's log.
function M.line(fmt, ...)
  say(select("#", ...) > 0 and string.format(fmt, ...) or fmt, config.line.flags.quiet)
end

-- The first of `texts`, from long to short, that fits into `columns`, else the last.
function M.fitting(texts, columns)
  for _, text in ipairs(texts) do
    if not columns or #text <= columns then return text end
  end
  return texts[#texts]
end

-- Prints a line that is shortened to the width of a terminal; the log gets the full text. texts:
-- from the full text to the shortest.
function M.fit(texts)
  say(texts[1], config.line.flags.quiet, M.fitting(texts, core.sys.terminal()))
end

-- Prints a result: to stdout, and to the run's log.
function M.result(text)
  if log_file then
    log_file:write(disarmed(text), "\n")
    log_file:flush()
  end
  erase()
  print(text)
end

-- Prints a warning. It does not end a run, but --quiet does not hide it.
function M.warn(fmt, ...)
  say("warning: " .. (select("#", ...) > 0 and string.format(fmt, ...) or fmt))
end

-- Prints a line to stderr that names a patient or a path, and so does not go to the log.
function M.aside(fmt, ...)
  if config.line.flags.quiet then return end
  erase()
  core.sys.eprint(disarmed(string.format(fmt, ...)) .. "\n")
end

-- Opens the log; it gets all further lines, after the lines printed before.
function M.open_log(path)
  local why
  log_file, why = io.open(path, "a")
  if not log_file then util.fail("failure", "cannot write %s", why) end
  for _, text in ipairs(early) do log_file:write(text, "\n") end
  early = {}
end

-- Called at every progress of the work, for the watch of commands.lua; or nil.
M.on_progress = nil

-- Called equally often, and may raise: state.lua checks the folder of the run; or nil.
M.on_look = nil

-- Draws a bar for done of total with the remaining time at this rate; at most 10 times a second,
-- and only on a terminal.
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

-- "bf16 (AMX tiles)": a precision on a device in words; on the CPU with the instructions for its
-- products.
function M.precision(device, precision)
  if device ~= "cpu" or precision ~= "bf16" then return precision end
  local _, pairs = core.isa()
  return string.format("bf16 (%s)", pairs or "multiplied as f32")
end

-- "2 threads"; for ref, whose loops are serial, one.
function M.threads(facts)
  return util.plural(facts.device == "ref" and 1 or facts.threads, "thread")
end

-- "GPU", "CPU, 2 threads": the processor of a session, by its facts.
function M.processor(facts)
  if facts.device == "cuda" then return "GPU" end
  return (facts.device == "ref" and "ref, plain loops in double, " or "CPU, ") .. M.threads(facts)
end

-- "CPU, 2 threads, convolutions without Winograd": the device of a session (by its facts) and the
-- settings of the config `v` that differ from the defaults.
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
  -- a name may contain a line break, or other control characters
  local function plain(cell) return (tostring(cell):gsub("%c", "?")) end
  for _, row in ipairs(rows) do
    for i, cell in ipairs(row) do width[i] = math.max(width[i] or 0, #plain(cell)) end
  end
  for _, row in ipairs(rows) do
    local cells = {}
    for i, cell in ipairs(row) do
      -- names left-aligned, numbers right-aligned; paths may exceed the 99 columns of string.format
      local text = plain(cell)
      local blank = string.rep(" ", width[i] - #text)
      cells[i] = i == 1 and text .. blank or blank .. text
    end
    out[#out + 1] = (table.concat(cells, "  "):gsub("%s+$", ""))
  end
  return table.concat(out, "\n")
end

-- A table to print: of many rows only the first, with the name of the file that has all.
local MANY, SHOWN = 60, 20

function M.first(rows, file)
  local count = #rows - 1
  if count <= MANY then return M.table(rows) end
  return string.format("%s\n... the first %d of %d; all are in %s",
                       M.table(table.move(rows, 1, SHOWN + 1, 1, {})), SHOWN, count, file)
end

return M
