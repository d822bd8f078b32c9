-- tally.lua -- training metrics that the device counts during an epoch.
--
-- Metrics of counts (such as Dice) and the parts of the loss are roots of the training plan too, so
-- they cost almost nothing. Their values stay on the device, batch by batch, and are read once, at
-- the end of the epoch or when the run is stopped. Like `valid_slice_<name>` they are means over
-- samples that have a value; but of augmented samples, with dropout, and with weights that change
-- from batch to batch.

local core = require "seg.core"
local loss_parts = require "seg.evaluate.loss_parts"
local base = require "seg.evaluate.metric_base"
local ranks = require "seg.train.ranks"

local M = {}
M.__index = M

-- The nodes to count in a phase with recipe `r`.
function M.new(r)
  local t = setmetatable({ users = {}, nodes = {}, parts = {} }, M)
  local place = {}
  local function add(node)
    if not node then return nil end
    local id = core.node_id(node)
    if not place[id] then
      t.nodes[#t.nodes + 1] = node
      place[id] = #t.nodes
    end
    return place[id]
  end
  for _, name in ipairs(base.counted(r)) do
    local m = r.metrics[name]
    t.users[#t.users + 1] = { name = name, m = m, node = add(m.node), area = add(m.area) }
  end
  for _, part in ipairs(loss_parts.of(r)) do
    t.users[#t.users + 1] = { name = part.name, m = part, node = add(part.node) }
  end
  return t
end

-- Records a batch with `count` samples on this rank; counts: whether it counts.
function M:part(count, counts)
  self.parts[#self.parts + 1] = { count = count, counts = counts }
end

-- The values kept by this process, as text by batch: for each metric the values of the samples that
-- have one.
local function read(self, session)
  local width, values, out = #self.nodes, session:kept(), {}
  for b, part in ipairs(self.parts) do
    local first, text = (b - 1) * width, {}
    for u, user in ipairs(self.users) do
      local found = {}
      local counts, area = values[first + user.node], user.area and values[first + user.area]
      for i = 1, part.counts and part.count or 0 do
        local v = user.m.value(loss_parts.row(counts, i), area and area:get(i, 2) or nil)
        if v then found[#found + 1] = string.pack("<d", v) end
      end
      text[u] = string.pack("<s4", table.concat(found))
    end
    out[b] = table.concat(text)
  end
  return out
end

-- Reads the kept values and adds them to the sums of the epoch, `sums`: "s1" and "n1" of the first
-- metric, and so on. The order of addition is the order of the samples, so that a resumed run and a
-- run with several ranks have the same sums.
function M:fold(session, sums)
  local texts = ranks.gather(table.concat(read(self, session)))
  local at = {}
  for _ = 1, #self.parts do
    for rank, text in ipairs(texts) do
      for u in ipairs(self.users) do
        local values
        values, at[rank] = string.unpack("<s4", text, at[rank])
        for i = 1, #values, 8 do
          sums["s" .. u] = (sums["s" .. u] or 0.0) + string.unpack("<d", values, i)
          sums["n" .. u] = (sums["n" .. u] or 0) + 1
        end
      end
    end
  end
  self.parts = {}
end

-- The means by the name of their column, "train_dice".
function M:columns(sums)
  local out = {}
  for u, user in ipairs(self.users) do
    local n = sums["n" .. u]
    out["train_" .. user.name] = n and sums["s" .. u] / n or 0 / 0
  end
  return out
end

return M
