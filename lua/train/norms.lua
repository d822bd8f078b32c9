-- norms.lua -- grad_norms.csv: how large weights and gradients are, layer by layer.
--
-- When a loss does not move, this says where: a layer whose gradient is 0 is cut
-- off, one whose gradient dwarfs the others wants clipping or a smaller rate. A row
-- is a parameter after an epoch, its gradient that of the epoch's last step.

local core = require "seg.core"
local util = require "seg.util"

local M = {}

local HEAD = "epoch,parameter,norm,grad_norm"

local Norms = {}
Norms.__index = Norms

-- The file of a run that stands at the end of `epoch`; later rows go.
function M.open(folder, epoch)
  local n = setmetatable({ path = folder .. "/grad_norms.csv", rows = { HEAD } }, Norms)
  for line in (util.exists(n.path) and util.read_file(n.path) or ""):gmatch("[^\n]+") do
    local of = tonumber(line:match("^(%d+),"))
    if of and of <= epoch then n.rows[#n.rows + 1] = line end
  end
  return n
end

-- The rows of an epoch that is over.
function Norms:add(epoch, session)
  for _, p in ipairs(session:param_norms()) do
    self.rows[#self.rows + 1] = string.format("%d,%s,%s,%s", epoch, p.name, util.number(p.value),
                                              util.number(p.grad))
  end
  core.sys.write(self.path, table.concat(self.rows, "\n") .. "\n")
end

return M
