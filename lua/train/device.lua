-- device.lua -- the device of a command: what --device auto stands for.
--
-- It is the GPU if there is one and it passes its self-check (engine/check/self_check.h), else the
-- CPU. The choice is made once, before a command opens a device; from then on config.values.device
-- names the device.

local core = require "seg.core"
local config = require "seg.recipe.config"
local show = require "seg.show"

local M = {}

-- Why --device auto is the CPU; "" for a GPU, and for a device that was given.
M.why = ""

-- What auto stands for on a machine where this process may use GPU `number`: the device, why it is
-- the CPU ("" for a GPU), and a warning for the user or "".
function M.find(precision, number)
  local gpu = core.device_due(precision, number)
  if gpu then
    show.line("GPU: a self-check of some seconds, once with this program and driver (%s)", gpu)
  end
  return core.auto_device(precision, number)
end

-- Sets the device of the config, which a resumed run chooses again.
function M.set(device, why)
  local v = config.ensure()
  config.asked.device = v.device
  v.device, M.why = device, why or ""
end

-- Chooses the device of a command that opens one.
function M.choose()
  local v = config.ensure()
  if v.device ~= "auto" then return end
  local device, why, warning = M.find(v.precision)
  if warning ~= "" then show.warn("%s", warning) end
  M.set(device, why)
end

-- The same for a command that opens none: a GPU that is there, or one that is asked about, without
-- its self-check.
function M.choose_unopened(asked)
  if config.ensure().device ~= "auto" then return end
  M.set((asked or core.gpu()) and "cuda" or "cpu")
end

-- " (GPU: why)", a note after the name of the device; "" if there is nothing to say.
function M.note()
  return M.why ~= "" and " (GPU: " .. M.why .. ")" or ""
end

return M
