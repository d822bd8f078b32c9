-- epoch.lua -- the batches of a set as arrays, for a training loop of a script:
--
--   for batch, number, batches in train:epoch(n) do ... batch.image, batch.mask ... end
--
-- They are the batches of epoch n of a training run with the same set, --seed and --batch, made
-- ahead by --workers threads. Every batch has arrays of its own, which stay when the next is made.

local opened = require "seg.data.opened"
local util = require "seg.util"

local fail = util.fail
local M = {}

local MOST = 1 << 31 -- epochs

-- Opened sets, by set: { names=, loader=, turn = how many loops have begun }.
local all = setmetatable({}, { __mode = "k" })

-- The set, opened at its first loop: its cases are prepared once.
local function open(set)
  if set:batch_size() == "auto" then
    fail("usage", 'set:epoch: the batch is "auto", which needs a recipe; give a number of samples, '
         .. "as :batches { size = 16 } or --batch 16")
  end
  if not all[set] then
    all[set] = opened.open_alone(set)
    all[set].turn = 0
  end
  return all[set]
end

-- The iterator of set:epoch(number).
function M.iterate(set, number)
  if math.type(number) ~= "integer" or number < 1 or number > MOST then
    fail("usage", "set:epoch: wanted the number of an epoch, a whole number from 1, got %s",
         tostring(number))
  end
  local d = open(set)
  d.turn = d.turn + 1
  local turn, at, batches = d.turn, 0, (d.loader:batches())
  d.loader:seek(number - 1, 0)
  return function()
    if d.turn ~= turn then
      fail("usage", "set:epoch: another loop over this set has begun inside of this one, and a set "
           .. "makes one sequence of batches at a time; end the inner loop first, or describe the "
           .. "set twice")
    end
    if at == batches then return nil end
    at = at + 1
    local batch, arrays = d.loader:next(), {}
    for i, name in ipairs(d.names) do arrays[name] = batch.fields[i]:array() end
    return arrays, at, batches
  end
end

return M
