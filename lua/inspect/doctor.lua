-- doctor.lua -- the commands doctor (checks of this machine) and ops (the operator table).

local core = require "seg.core"
local clocks = require "seg.inspect.clocks"
local util = require "seg.util"

local sys = core.sys
local M = {}

-- Each check: name, function -> ok, text. ok = false makes the exit code 1; nil is a remark; a
-- check without text prints no row.
local checks = {
  { "program", function() return true, "segengine " .. core.version .. ", " .. core.build end },
  { "processor", function()
    local m = sys.machine()
    local some = m.cores < m.all_cores
      and string.format(" (%d of them for this process)", m.cores) or ""
    local isa, pairs = core.isa()
    return true, string.format("%d cores%s, %s; kernels: %s; bf16 by %s", m.all_cores, some, m.cpu,
                               isa, pairs or "f32")
  end },
  { "clocks", function() return clocks.look "" end },
  { "threads", function()
    local m = sys.machine()
    local n = core.default_threads()
    return true, string.format("%d by default%s", n, n < m.cores
      and " (one core is left to others)" or "")
  end },
  { "memory", function()
    local m = sys.machine()
    local room = core.room "cpu" or m.memory_bytes
    -- the demo needs less; the full brain recipe about 1.4 GiB
    return m.memory_bytes > 2 << 30 and room > 1 << 30,
           string.format("%s in all, %s left to this process", util.bytes(m.memory_bytes),
                         util.bytes(room))
  end },
  { "disk", function()
    local free = sys.disk_free(".")
    return free > 1 << 30, util.bytes(free) .. " free in this folder"
  end },
  { "DICOM", function()
    local ok, why = core.data.dicom_ready()
    return ok or nil, ok and "reads and writes series and SEG" or why
  end },
  { "GPU", function()
    local ok, why = core.gpu()
    return ok or nil, ok and why or "none: " .. why .. "; training runs on the CPU"
  end },
  { "driver", function()
    local text, why = core.gpu_driver()
    if text == "" then return end -- no driver, no row
    return text and true, text or why
  end },
}

-- The command doctor. The exit code is 1 if a check fails.
function M.command()
  local good, rows = true, {}
  for _, check in ipairs(checks) do
    local ok, text = check[2]()
    good = good and ok ~= false
    if text then rows[#rows + 1] = { check[1], ok == nil and "-" or ok and "ok" or "NO", text } end
    -- the other GPUs that --devices can name
    for number = 1, check[1] == "GPU" and ok and math.huge or 0 do
      local there, what = core.gpu(number)
      if not there then break end
      rows[#rows + 1] = { "GPU " .. number, "ok", what }
    end
  end
  for _, row in ipairs(rows) do print(string.format("%-10s %-3s %s", row[1], row[2], row[3])) end
  return good and 0 or 1
end

-- The command ops; prints the operator table of ops.def.
function M.ops()
  local rows = { { "operator", "operands", "gradient", "bound", "attributes" } }
  for _, o in ipairs(core.ops()) do
    rows[#rows + 1] = { o.name, o.operands, o.grad and "yes" or "no", o.bound,
                        table.concat(o.attributes, " ") }
  end
  -- the last column, attributes, is left-aligned; trailing blanks are cut
  for _, row in ipairs(rows) do
    print((string.format("%-17s %8s  %-8s  %-5s  %s", table.unpack(row)):gsub("%s+$", "")))
  end
  return 0
end

return M
