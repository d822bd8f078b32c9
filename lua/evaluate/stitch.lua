-- stitch.lua -- stitches the outputs for the slices or patches of a case on its prepared grid, in
-- the order of the batches.
--
-- Stitching is the same as in `predict` (stitch.h): slices are placed, patches are blended, a value
-- that is not finite is an error. A target that is an input is not stitched: the prepared case has
-- it.

local core = require "seg.core"
local util = require "seg.util"

local measure = core.measure
local M = {}

-- A case ------------------------------------------------------------------------

-- item: the index of the case; parts: { [node id] = prediction }; volumes: stitched when needed;
-- used: for each slice whether the set has it, nil if it has all; threshold: for metrics without
-- their own; cropped: from pass.cropped.
local Case = {}
Case.__index = Case

-- The volume of a node (f32): the field for an input, else the stitched output.
function Case:volume(node)
  local id = core.node_id(node)
  if not self.volumes[id] then
    self.volumes[id] = node.kind == "input"
      and measure.prepared(self.pipeline, self.item, node.name) or (self.parts[id]:restore())
  end
  return self.volumes[id]
end

-- The numbers of a node for the case as an array (C,D,H,W), without D of pictures.
function Case:array(node) return self:volume(node):array(self.pipeline:facts(self.item).rank) end

-- The edges of a voxel in mm by axis, as many as the array has: { d, h, w }.
function Case:spacing(node)
  local whd, out = measure.spacing(self:volume(node)), {}
  local rank = self.pipeline:facts(self.item).rank
  for axis = 1, rank do out[axis] = whd[rank + 1 - axis] end
  return out
end

-- The arguments of core.measure for a metric.
function Case:measured(m)
  return { prediction = self:volume(m.output), truth = self:volume(m.target),
           mask = m.mask and self:volume(m.mask) or nil, used = self.used,
           threshold = not m.fixed and self.threshold or m.threshold }
end

-- Returns the results of `make`, computed once for metrics with the same operands.
function Case:once(what, m, make)
  local key = string.format("%s %d %d %d %g", what, core.node_id(m.output),
                            core.node_id(m.target), m.mask and core.node_id(m.mask) or -1,
                            self:measured(m).threshold)
  self.made[key] = self.made[key] or table.pack(make())
  return table.unpack(self.made[key])
end

-- Counts (both, predicted, true of each class) and the number of voxels, with the ground truth
-- outside the prepared grid counted as missed: cropped = voxels of each class from 1, or nil. With
-- several classes these voxels count as predicted background.
function M.with_missed(sums, all, cropped)
  if not cropped then return sums, all end
  local out = table.move(sums, 1, #sums, 1, {})
  for k = 0, #out // 3 - 1 do
    -- with one channel the only class is class 1
    local missed = cropped[#out == 3 and 1 or k] or 0
    out[3 * k + 3], all = out[3 * k + 3] + missed, all + missed
    if #out > 3 then out[2] = out[2] + missed end
  end
  return out, all
end

-- measure.overlap for a metric, including the cropped ground truth; and the number of voxels.
function Case:overlap(m)
  return self:once("overlap", m, function()
    local sums, all = measure.overlap(self:measured(m))
    return M.with_missed(sums, all, self.cropped)
  end)
end

-- measure.surface for a class from 1 of a metric.
function Case:surface(m, class, tolerance)
  return self:once(string.format("surface %d %g", class, tolerance), m, function()
    return measure.surface(self:measured(m), class, tolerance)
  end)
end

-- The volume of a voxel in ml.
function Case:voxel_ml(m)
  return (select(2, measure.spacing(self:volume(m.output))))
end

-- measure.dvh of a dose in structure number k; the dose is set to 0 outside the mask.
function Case:dvh(dose, structures, mask, k)
  return measure.dvh({ prediction = self:volume(dose), truth = self:volume(structures),
                       mask = mask and self:volume(mask) or nil, used = self.used }, k)
end

-- measure.dvh_curve with the same arguments, at `points` numbers from `first` on.
function Case:dvh_curve(dose, structures, mask, k, first, step, points)
  return measure.dvh_curve({ prediction = self:volume(dose), truth = self:volume(structures),
                             mask = mask and self:volume(mask) or nil, used = self.used }, k,
                           first, step, points)
end

-- M.undo of the field of `target`.
function Case:undo(target) return M.undo(self.pipeline, target) end

-- The standard deviations of a standardised field; nil if it is not standardised.
function Case:scale(target)
  local undo = self:undo(target)
  return undo and undo.sd
end

-- Frees the volumes: one may be a gigabyte, and the next case is already loading.
function Case:close()
  for _, v in pairs(self.volumes) do v:close() end
  for _, p in pairs(self.parts) do p:close() end
end

-- Mean and sd of the standardize step of the field behind `target`, each a list; nil without.
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

-- nodes: the nodes to stitch; threshold: of a case, or nil.
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

-- For each slice whether the case has it; nil if it has all.
local function used_slices(case)
  local facts, list = case.pipeline:facts(case.item), {}
  if case.slices == 0 or case.slices == facts.depth then return nil end
  for slice = 1, facts.depth do list[slice] = case.seen[slice] or false end
  return list
end

-- Adds a sample: sample i of a batch is sample `number` of the pipeline; values[k] is the array of
-- nodes[k] for the batch. -> the case, after its last sample; the caller closes it
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

-- Drops a case: nothing is measured of it.
function Stitcher:drop(item)
  if self.open[item] then self.open[item]:close() end
  self.open[item] = nil
end

-- The unfinished cases: drop_last left some of their samples out. A case of slices is measured on
-- the slices that it has; patches must cover a case.
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
