-- samples.lua -- pictures of the predictions for the same few cases, epoch after epoch.
--
-- They are drawn after epochs 1, 2, 5, 10, 20, 50, ... and the last, so that the number grows with
-- the logarithm of the epochs. Each is a file of its own, samples/<case>_<epoch>.png, which the
-- report and TensorBoard show.

local core = require "seg.core"
local outlines = require "seg.report.outlines"
local picture = require "seg.report.picture"
local util = require "seg.util"

local M = {}

local CASES = 3 -- enough to notice an untypical case
local SIDE = 256 -- pixels of a picture, approximately

-- Whether to draw pictures after this epoch: 1, 2, 5, 10, ... and the last.
function M.wanted(epoch, last)
  local power = 1
  while power * 10 <= epoch do power = power * 10 end
  local first = epoch / power
  return epoch == last or first == 1 or first == 2 or first == 5
end

-- The position of a name in a list; nil if absent.
local function position(list, wanted)
  for i, name in ipairs(list) do
    if name == wanted then return i end
  end
end

-- The position of the target field: "mask", else the last input after the first that is a map like
-- the output. Returns nil if there is no target.
local function truth_field(run)
  local mask = position(run.names, "mask")
  if mask and mask > 1 then return mask, true end
  local inputs = run.recipe.inputs
  for i = #inputs, 2, -1 do
    local place = position(run.names, inputs[i].name)
    if inputs[i].rank >= 2 and place and place > 1 then return place, false end
  end
end

local Samples = {}
Samples.__index = Samples

-- Opens the pictures of a run. Pictures of epochs after `epoch`, from before a resume, are removed.
-- Returns nil for a run without maps to show.
function M.open(run, epoch)
  local part = run.data.valid
  local field, mask = truth_field(run)
  local name = util.sorted_keys(run.recipe.outputs)[1]
  local node = name and run.recipe.outputs[name]
  if not part or not field or node.rank < 2 then return nil end
  local s = setmetatable({ run = run, part = part, field = field, mask = mask, node = node,
                           classes = mask and outlines.names(run.recipe, node, outlines.target(
                             run.recipe, "mask")) or nil,
                           folder = run.folder .. "/samples", list = {} }, Samples)
  for _, file in ipairs(util.exists(s.folder) and core.sys.list(s.folder) or {}) do
    local case, number = file:match("^(%x+)_(%d+)%.png$")
    number = math.tointeger(tonumber(number))
    if number and number > epoch then
      core.sys.remove(s.folder .. "/" .. file)
    elseif number then
      s:note(case, number, s.folder .. "/" .. file)
    end
  end
  return s
end

-- Records a picture of a case.
function Samples:note(case, epoch, path)
  for _, row in ipairs(self.list) do
    if row.case == case then
      row.pictures[#row.pictures + 1] = { epoch = epoch, path = path }
      table.sort(row.pictures, function(a, b) return a.epoch < b.epoch end)
      return
    end
  end
  self.list[#self.list + 1] = { case = case, pictures = { { epoch = epoch, path = path } } }
end

-- Cases spread over the set: the first, the middle, the last.
local function choose(count)
  local wanted, n = {}, math.min(CASES, count)
  for i = 1, n do wanted[1 + (i - 1) * (count - 1) // math.max(n - 1, 1)] = true end
  return wanted
end

-- Draws one picture of plane `f.plane`: the image with ground truth and prediction, or, for maps
-- that are not masks, image, ground truth and prediction next to each other in the window of the
-- ground truth.
local function draw(path, view, mask)
  local shape = view.image.shape
  local h, w = shape[#shape - 1], shape[#shape]
  local zoom = math.max(1, math.min(64, (SIDE + w // 2) // w))
  local p = core.picture.canvas((mask and 1 or 3) * w * zoom, h * zoom, 0)
  local function gray(x, map, plane, lo, hi) p:gray(x * w * zoom, 0, zoom, map, plane, lo, hi) end
  gray(0, view.image, view.plane, core.picture.window(view.image, view.plane, 0.01, 0.995))
  if mask then
    outlines.draw_truth(p, 0, 0, zoom, view.classes)
    outlines.draw_found(p, 0, 0, zoom, view.classes)
  else
    local lo, hi = core.picture.window(view.truth, view.plane, 0, 1)
    gray(1, view.truth, view.plane, lo, hi)
    gray(2, view.found, view.plane, lo, hi)
  end
  p:save(path)
  p:close()
end

-- Draws the cases with the current weights, as of `epoch`. -> the new files as { {case=, path=},
-- ... }.
function Samples:draw(epoch)
  local run, pipeline, new = self.run, self.part.pipeline, {}
  local loader <close> = core.data.loader(pipeline, { batch = 1 })
  self.found = self.found or picture.find_samples(loader, pipeline, choose(#pipeline:cases()),
                                                  self.field)
  core.sys.make_new(self.folder)
  for _, item in ipairs(util.sorted_keys(self.found)) do
    local f, feeds = self.found[item], {}
    loader:seek(0, f.number - 1)
    local batch = loader:next()
    for _, input in ipairs(run.recipe.inputs) do
      feeds[input.name] = batch.fields[position(run.names, input.name)]
    end
    run.session:forward(feeds, false)
    local out, truth = run.session:read(self.node), batch.fields[self.field]:array()
    if outlines.comparable(out, truth) then
      local case = run.hash(pipeline:facts(item).key)
      local path = string.format("%s/%s_%05d.png", self.folder, case, epoch)
      draw(path, { image = batch.fields[1]:array(), plane = f.plane, truth = truth, found = out,
                   classes = self.mask and outlines.classes(out, truth, f.plane, self.node.kind) },
           self.mask)
      self:note(case, epoch, path)
      new[#new + 1] = { case = case, path = path }
    end
  end
  return new
end

return M
