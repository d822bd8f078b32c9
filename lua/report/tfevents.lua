-- tfevents.lua -- TensorBoard events of a run: folder/tensorboard/.
--
-- An event file is a sequence of records: length (8 bytes), its checksum, an Event message, its
-- checksum (CRC32C, masked as in TFRecord). The messages are protocol buffers; the few fields that
-- are needed are encoded here:
--
--   Event     1 wall_time (double)  2 step  3 file_version  5 Summary  7 SessionLog
--   Summary   1 Value, repeated     Value    1 tag  2 simple_value (float)  4 Image
--   Image     1 height  2 width  3 colorspace  4 encoded_image_string
--   SessionLog 1 status (1: start)
--
-- A step is an epoch. A resumed run truncates its files to the epoch of its checkpoint and
-- continues in a new one, whose SessionLog tells an open TensorBoard to drop the removed events.
-- Cases appear as their hash.

local core = require "seg.core"
local util = require "seg.util"

local sys = core.sys
local M = {}

-- Protocol buffers ------------------------------------------------------------

-- Encodes a whole number >= 0: seven bits a byte, lowest first.
local function varint(n)
  local out = {}
  while n > 127 do
    out[#out + 1] = string.char(n & 127 | 128)
    n = n >> 7
  end
  out[#out + 1] = string.char(n)
  return table.concat(out)
end

-- Encodes a field: its number and wire type, then the value.
local function whole(field, n) return varint(field << 3) .. varint(n) end
local function double(field, v) return varint(field << 3 | 1) .. string.pack("<d", v) end
local function bytes(field, s) return varint(field << 3 | 2) .. varint(#s) .. s end
local function float(field, v) return varint(field << 3 | 5) .. string.pack("<f", v) end

-- An Event with this content (fields 3, 5 or 7) and the current time.
local function event(step, content)
  return double(1, os.time() + 0.0) .. whole(2, step) .. content
end

-- Records ---------------------------------------------------------------------

-- The masked checksum of the file format: rotated, because the CRC of data that contains its own
-- CRC would be a constant.
local function masked(text)
  local crc = core.crc32c(text)
  return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff
end

local function record(data)
  local length = string.pack("<I8", #data)
  return length .. string.pack("<I4", masked(length)) .. data .. string.pack("<I4", masked(data))
end

-- The step of an Event: field 2, which follows the time.
local function step_of(data)
  local step, at, shift = 0, 11, 0
  if data:byte(1) ~= 9 or data:byte(10) ~= 16 then return 0 end
  repeat
    local b = data:byte(at) or 0
    step, at, shift = step | (b & 127) << shift, at + 1, shift + 7
  until b < 128 or shift > 56
  return step
end

-- The records of a file up to the first one that is damaged or truncated: a list of { text=, data=,
-- step= }, and whether it is the whole file.
function M.records(text)
  local list, at = {}, 1
  while at + 12 <= #text do
    local length, check = string.unpack("<I8I4", text, at)
    if check ~= masked(text:sub(at, at + 7)) or length < 0 or length > #text - at - 15 then
      break
    end
    local data = text:sub(at + 12, at + 11 + length)
    if string.unpack("<I4", text, at + 12 + length) ~= masked(data) then break end
    list[#list + 1] = { text = text:sub(at, at + 15 + length), data = data, step = step_of(data) }
    at = at + 16 + length
  end
  return list, at == #text + 1
end

-- Truncates a file to the intact records that are not later than `epoch`.
local function cut(path, epoch)
  local records, all = M.records(util.read_file(path))
  local kept = {}
  for _, r in ipairs(records) do
    if r.step <= epoch then kept[#kept + 1] = r.text end
  end
  if #kept < #records or not all then sys.write(path, table.concat(kept)) end
end

-- The files -------------------------------------------------------------------

local Events = {}
Events.__index = Events

local NAME = "events.out.tfevents.%010d.segengine" -- TensorBoard requires the first part

-- The events of the run in `folder`, which is at the end of `epoch`.
function M.open(folder, epoch)
  local e = setmetatable({ folder = folder .. "/tensorboard", epoch = epoch, number = 1 }, Events)
  for _, name in ipairs(util.exists(e.folder) and sys.list(e.folder) or {}) do
    local number = math.tointeger(tonumber(name:match("^events%.out%.tfevents%.(%d+)%.segengine$")))
    if number then
      cut(e.folder .. "/" .. name, epoch)
      e.number = math.max(e.number, number + 1)
    end
  end
  return e
end

-- Opens the file of this run and writes the first event.
function Events:begin()
  sys.make_new(self.folder)
  local path = self.folder .. "/" .. string.format(NAME, self.number)
  -- a record that a full disk truncated would hide everything after it
  if util.exists(path) then cut(path, math.maxinteger) end
  local why
  self.file, why = io.open(path, "ab")
  if not self.file then util.fail("failure", "cannot write %s", why) end
  if self.file:seek("end") == 0 then
    self.file:write(record(event(0, bytes(3, "brain.Event:2"))))
    if self.epoch > 0 then
      self.file:write(record(event(self.epoch + 1, bytes(7, whole(1, 1)))))
    end
  end
end

-- Writes values of a Summary, one record each, in one call.
function Events:write(step, values)
  if #values == 0 then return end
  if not self.file then self:begin() end
  local list = {}
  for i, v in ipairs(values) do list[i] = record(event(step, bytes(5, bytes(1, v)))) end
  local ok, why = self.file:write(table.concat(list))
  if ok then ok, why = self.file:flush() end
  if not ok then
    self.file:close()
    self.file = nil
    util.fail("failure", "%s: cannot be written: %s", self.folder, tostring(why))
  end
end

-- numbers: tag -> number; values that are not finite are skipped.
function Events:scalars(step, numbers)
  local values = {}
  for _, tag in ipairs(util.sorted_keys(numbers)) do
    local v = numbers[tag]
    if v == v and math.abs(v) < math.huge then
      values[#values + 1] = bytes(1, tag) .. float(2, v)
    end
  end
  self:write(step, values)
end

-- Writes a PNG file under this tag.
function Events:image(step, tag, path)
  local png = util.read_file(path)
  local w, h = string.unpack(">I4I4", png, 17) -- from the first chunk of the PNG
  local image = whole(1, h) .. whole(2, w) .. whole(3, 3) .. bytes(4, png)
  self:write(step, { bytes(1, tag) .. bytes(4, image) })
end

function Events:close()
  if self.file then self.file:close() end
  self.file = nil
end

-- The tag of a column of metrics.csv: "valid_dice" is dice/valid, so that curves of train and valid
-- share a chart.
function M.tag(column)
  local part, rest = column:match("^(%a+)_(.+)$")
  if part == "train" then return rest .. "/train" end
  if part == "valid" and rest:match("^slice_") then return rest:sub(7) .. "/valid_slice" end
  if part == "valid" and rest ~= "s" then return rest .. "/valid" end
  if column == "lr" or column == "step" then return column end
  return "time/" .. column
end

return M
