-- grad_norms.lua -- grad_norms.csv: the norms of weights and gradients, layer by layer.
--
-- When a loss does not fall, the norms show where: a layer with gradient 0 is cut off; a layer with
-- a gradient much larger than the others needs clipping or a smaller learning rate. A row is a
-- parameter after an epoch, with its gradient in the epoch's last step.

local core = require "seg.core"
local util = require "seg.util"

local M = {}

local HEAD = "epoch,parameter,norm,grad_norm"

local Norms = {}
Norms.__index = Norms

-- Opens the file of a run at the end of `epoch`; rows of later epochs are dropped.
function M.open(folder, epoch)
  local n = setmetatable({ path = folder .. "/grad_norms.csv", rows = { HEAD } }, Norms)
  for line in (util.exists(n.path) and util.read_file(n.path) or ""):gmatch("[^\n]+") do
    local of = tonumber(line:match("^(%d+),"))
    if of and of <= epoch then n.rows[#n.rows + 1] = line end
  end
  return n
end

-- Adds the rows of a finished epoch.
function Norms:add(epoch, session)
  for _, p in ipairs(session:param_norms()) do
    self.rows[#self.rows + 1] = string.format("%d,%s,%s,%s", epoch, p.name, util.number(p.value),
                                              util.number(p.grad))
  end
  core.sys.write(self.path, table.concat(self.rows, "\n") .. "\n")
end

return M
