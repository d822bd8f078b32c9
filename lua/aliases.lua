-- aliases.lua -- saved names of earlier versions: keys of a config (config.txt of a run, `config`
-- in the metadata of weights, options in series.json) and of `run` in a bundle.
--
-- A name that is renamed or removed gets a row here, and no other code reads it. A saved key
-- that is neither a key of today nor a row of this table is an error (config.lua, bundle.lua).
-- Command lines and recipes use the names of today only; they get a hint.

local M = {}

-- old name = { now = "the name of today" }, or
-- old name = { gone = function(value) ... end, instead = what a user gives today }. gone returns
-- nil where the saved value has no effect on results, so that the key is dropped; else the
-- reason and the effect as texts { why =, effect = }: such a run is not resumed, as its bits
-- would change, and such weights are used with a note.
M.names = {
  -- layers without Winograd, with commas between (0.1)
  direct = {
    instead = "--winograd false for all layers",
    gone = function(value)
      if value == "" then return nil end
      return { why = "this version does not choose Winograd by layer",
               effect = "results differ in rounding" }
    end,
  },
}

-- The name of today of a saved key; nil where it is removed, and then what it changed, or nil.
function M.now(key, value)
  local row = M.names[key]
  if not row then return key end
  if row.now then return row.now end
  return nil, row.gone(value)
end

-- The lines "key = value" of a saved config with the names of today. A removed key that
-- changed results stays, any other removed key is dropped.
function M.config(text)
  local lines = {}
  for line in text:gmatch("[^\n]+") do
    local key, value = line:match("^([%w_]+) = (.*)$")
    local now, change = M.now(key or "", value)
    if key and now then line = now .. " = " .. value end
    if now or change then lines[#lines + 1] = line end
  end
  return #lines > 0 and table.concat(lines, "\n") .. "\n" or ""
end

-- A table of saved values by key with the names of today, and the notes on removed keys that
-- changed results; from: the file.
function M.rows(rows, from)
  local out, notes = {}, {}
  for key, value in pairs(rows) do
    local now, change = M.now(key, value)
    if now then out[now] = value end
    if change then notes[#notes + 1] = M.note(from, key, value, change) end
  end
  table.sort(notes)
  return out, notes
end

-- The note on weights of the file `from` that had a removed key; change: of M.now.
function M.note(from, key, value, change)
  return string.format("note: %s: %s = %s: %s; %s", from, key, tostring(value), change.why,
                       change.effect)
end

-- The refusal of a run that had a removed key and is to be resumed.
function M.refusal(from, key, value, change)
  return string.format("%s: %s = %s: %s, and the run would not go on with the same bits; fix: "
                       .. "resume it with the version of segengine that began it, or start a new "
                       .. "run, with %s", from, key, value, change.why, M.names[key].instead)
end

-- What to say of a name on a command line or in a recipe; nil for a name that never was one.
function M.hint(key)
  local row = M.names[key]
  if not row then return nil end
  return row.now and string.format("it is called %s now", row.now)
    or string.format("it is removed; use %s", row.instead)
end

return M
