-- aliases.lua -- saved names of earlier versions: keys of a config (config.txt of a run, `config`
-- in the metadata of weights, options in series.json), of `run` in a bundle, and of the metadata of
-- a checkpoint; and saved texts.
--
-- A name that is renamed or removed gets a row here, and no other code reads it. A saved key that
-- is neither a current key nor a row of this table is an error (config.lua, bundle.lua). Command
-- lines and recipes use only current names; an old name gets a hint.

local M = {}

-- A row with option = true is an option of a command and no key of a config: it has only a hint on
-- the command line. A function is listed with its table, as "nn.name", and has only a hint.
--
-- old name = { now = "the current name" }, or old name = { gone = function(value) ... end, instead
-- = the current replacement }. gone returns nil if the saved value has no effect on results, so
-- that the key is dropped; else the reason and the effect as texts { why =, effect = }: such a run
-- is not resumed, as its bits would change, and such weights are used with a note.
M.names = {
  carry = { now = "allreduce" }, -- the transport of the all-reduce (0.1)
  -- the data set kept on the GPU: an option, and in the metadata of a checkpoint the parts whose
  -- batches the device made (0.1)
  resident = { now = "device_dataset" },
  twin = { now = "reference", option = true }, -- export: steps for a PyTorch reference (0.1)
  ["nn.hide"] = { now = "nn.mask_steps" }, -- masking of time steps (0.1)
  -- layers without Winograd, separated by commas (0.1)
  direct = {
    instead = "--winograd false for all layers",
    gone = function(value)
      if value == "" then return nil end
      return { why = "this version does not choose Winograd by layer",
               effect = "results differ in rounding" }
    end,
  },
}

-- Texts of earlier versions that say what weights were trained on, and their current texts.
M.trained_on = {
  ["made-up patients"] = "synthetic patients", -- (0.1)
}

-- The current text of `trained_on` in the metadata of weights or in a bundle; nil for nil.
function M.trained_on_now(text) return M.trained_on[text] or text end

-- The current name of a saved key; for a removed key nil, and the change that it causes, or nil.
function M.now(key, value)
  local row = M.names[key]
  if not row or row.option then return key end
  if row.now then return row.now end
  return nil, row.gone(value)
end

-- The lines "key = value" of a saved config with current names. A removed key that changed results
-- is kept, any other removed key is dropped.
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

-- A table of saved values by key with current names, and the notes on removed keys that changed
-- results; from: the file.
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

-- The note on weights of the file `from` that had a removed key; change: from M.now.
function M.note(from, key, value, change)
  return string.format("note: %s: %s = %s: %s; %s", from, key, tostring(value), change.why,
                       change.effect)
end

-- The error for resuming a run that had a removed key.
function M.refusal(from, key, value, change)
  return string.format("%s: %s = %s: %s, and the resumed run would have other bits; fix: resume it "
                       .. "with the version of segengine that began it, or start a new run, with "
                       .. "%s", from, key, value, change.why, M.names[key].instead)
end

-- A hint for an old name in a recipe, or with on_line on a command line; nil for a name that never
-- existed there.
function M.hint(key, on_line)
  local row = M.names[key]
  if not row or row.option and not on_line then return nil end
  return row.now and string.format("it is called %s%s now", on_line and "--" or "", row.now)
    or string.format("it is removed; use %s", row.instead)
end

return M
