-- stitch.lua -- what a network makes of the slices or patches of a case, put together
-- on its prepared grid, in the order in which batches come.
--
-- It is what `predict` does (stitch.h): slices stand where they are, patches are blended,
-- a value that is not finite is an error. The truth is not put
-- together when it is an input: it lies in the prepared case.

local core = require "seg.core"
local util = require "seg.util"

local measure = core.measure
local M = {}

-- A case ------------------------------------------------------------------------

-- item: its place; parts: { [node id] = prediction }; volumes, made of them when they
-- are wanted; used: of each slice whether the set has it, nil when it has all;
-- threshold: in place of that of metrics that give none; outside: as pass.outside.
local Case = {}
Case.__index = Case

-- The volume of a node (f32): of an input that of its field, else what was put
-- together.
function Case:volume(node)
  local id = core.node_id(node)
  if not self.volumes[id] then
    self.volumes[id] = node.kind == "input"
      and measure.prepared(self.pipeline, self.item, node.name) or (self.parts[id]:restore())
  end
  return self.volumes[id]
end

-- What core.measure takes for a metric.
function Case:measured(m)
  return { prediction = self:volume(m.output), truth = self:volume(m.target),
           mask = m.mask and self:volume(m.mask) or nil, used = self.used,
           threshold = not m.fixed and self.threshold or m.threshold }
end

-- What `make` gives, made once for the metrics that want the same.
function Case:once(what, m, make)
  local key = string.format("%s %d %d %d %g", what, core.node_id(m.output),
                            core.node_id(m.target), m.mask and core.node_id(m.mask) or -1,
                            self:measured(m).threshold)
  self.made[key] = self.made[key] or table.pack(make())
  return table.unpack(self.made[key])
end

-- Counts (both, predicted, true of each class) and the voxels that count, with what was
-- cut off the prepared grid as missed: outside = what of each class from 1, or nil. Of
-- several classes it is taken for background.
function M.with_missed(sums, all, outside)
  if not outside then return sums, all end
  local out = table.move(sums, 1, #sums, 1, {})
  for k = 0, #out // 3 - 1 do
    -- of one channel class 1 is its only one
    local missed = outside[#out == 3 and 1 or k] or 0
    out[3 * k + 3], all = out[3 * k + 3] + missed, all + missed
    if #out > 3 then out[2] = out[2] + missed end
  end
  return out, all
end

-- measure.overlap of a metric, with what was cut off; how many voxels.
function Case:overlap(m)
  return self:once("overlap", m, function()
    local sums, all = measure.overlap(self:measured(m))
    return M.with_missed(sums, all, self.outside)
  end)
end

-- measure.surface of a metric: of a class from 1.
function Case:surface(m, class, tolerance)
  return self:once(string.format("surface %d %g", class, tolerance), m, function()
    return measure.surface(self:measured(m), class, tolerance)
  end)
end

-- The volume of a voxel in ml.
function Case:voxel_ml(m)
  return (select(2, measure.spacing(self:volume(m.output))))
end

-- measure.dvh of a dose in structure number k, the dose being 0 where a mask is.
function Case:dvh(dose, structures, mask, k)
  return measure.dvh({ prediction = self:volume(dose), truth = self:volume(structures),
                       mask = mask and self:volume(mask) or nil, used = self.used }, k)
end

-- measure.dvh_curve of the same, at `points` numbers from `first` on.
function Case:dvh_curve(dose, structures, mask, k, first, step, points)
  return measure.dvh_curve({ prediction = self:volume(dose), truth = self:volume(structures),
                             mask = mask and self:volume(mask) or nil, used = self.used }, k,
                           first, step, points)
end

-- M.undo of the field of `target`.
function Case:undo(target) return M.undo(self.pipeline, target) end

-- The standard deviations by which a standardized field was divided; nil: it was not.
function Case:scale(target)
  local undo = self:undo(target)
  return undo and undo.sd
end

-- A volume may be a gigabyte, and the next one is on its way.
function Case:close()
  for _, v in pairs(self.volumes) do v:close() end
  for _, p in pairs(self.parts) do p:close() end
end

-- Mean and sd of the standardize step of the field that `target` is an input of, each
-- a list; nil where it has none.
function M.undo(pipeline, target)
  if not target or target.kind ~= "input" then return nil end
  local name = "field=" .. target.name
  for line in pipeline:steps():gmatch("standardize ([^\n]*)") do
    if (" " .. line .. " "):find(" " .. name .. " ", 1, true) then
      local function list(key)
        local out = {}
        for v in ((" " .. line):match(" " .. key .. "=(%S+)") or ""):gmatch("[^,]+") do
          out[#out + 1] = tonumber(v)
        end
        return out
      end
      return { mean = list "mean", sd = list "sd" }
    end
  end
end

-- Cases from batches --------------------------------------------------------------

local Stitcher = {}
Stitcher.__index = Stitcher

-- nodes: those whose values are put together; threshold as of a case, or nil.
function M.new(pipeline, nodes, threshold)
  local left, names = {}, {}
  for number = 1, pipeline:samples() do
    local item = pipeline:item(number)
    left[item] = (left[item] or 0) + 1
  end
  for i, node in ipairs(nodes) do names[i] = node.name ~= "" and node.name or node.kind end
  return setmetatable({ pipeline = pipeline, nodes = nodes, names = names, left = left, open = {},
                        threshold = threshold }, Stitcher)
end

function Stitcher:begin(item)
  local case = setmetatable({ item = item, pipeline = self.pipeline, parts = {}, volumes = {},
                              made = {}, seen = {}, slices = 0, threshold = self.threshold }, Case)
  for _, node in ipairs(self.nodes) do
    case.parts[core.node_id(node)] = core.data.prediction(self.pipeline, item, node.c,
                                                          { grid = "prepared" })
  end
  self.open[item] = case
  return case
end

-- The slices that a case was made of, when they are not all.
local function used_slices(case)
  local facts, list = case.pipeline:facts(case.item), {}
  if case.slices == 0 or case.slices == facts.depth then return nil end
  for slice = 1, facts.depth do list[slice] = case.seen[slice] or false end
  return list
end

-- Sample i of a batch is sample `number` of the pipeline; values[k] is what nodes[k]
-- had of the batch. -> the case, when this was the last of it; to be closed
function Stitcher:put(number, values, i)
  local item, slice = self.pipeline:item(number)
  local case = self.open[item] or self:begin(item)
  if case.last and number < case.last then
    util.fail("usage", "a shuffled set cannot be measured as whole cases; leave shuffle out of "
              .. ":batches for valid and test")
  end
  case.last = number
  for k, node in ipairs(self.nodes) do
    case.parts[core.node_id(node)]:put(number, values[k], i, self.names[k])
  end
  if slice > 0 then case.seen[slice], case.slices = true, case.slices + 1 end
  self.left[item] = self.left[item] - 1
  if self.left[item] > 0 then return nil end
  self.open[item], case.used = nil, used_slices(case)
  return case
end

-- No more of this case: nothing is measured of it.
function Stitcher:drop(item)
  if self.open[item] then self.open[item]:close() end
  self.open[item] = nil
end

-- Cases that were not finished: drop_last left some of their samples out. Of slices
-- they are those that there are; patches must cover a case.
function Stitcher:rest()
  local list = {}
  for _, item in ipairs(util.sorted_keys(self.open)) do
    local case = self.open[item]
    if case.slices == 0 then
      util.fail("usage", "drop_last leaves patches of a case out, so that it cannot be measured as "
                .. "a whole; leave drop_last out of :batches for valid and test")
    end
    case.used = used_slices(case)
    list[#list + 1] = case
  end
  self.open = {}
  return list
end

function Stitcher:close()
  for _, case in pairs(self.open) do case:close() end
  self.open = {}
end

return M
