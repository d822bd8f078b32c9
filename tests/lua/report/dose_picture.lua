-- dose_picture.lua -- a slice of a dose and its histograms: the right voxels, the right
-- colours, the right percents.

local t = dofile("tests/support/harness.lua")
local core = require "seg.core"
local seg = require "seg"
local dose = require "seg.report.dose"
local base = require "seg.evaluate.metric_base"
local opened = require "seg.data.opened"
local picture = require "seg.report.picture"
local recipes = require "seg.recipe.recipe"
local nn, metric = seg.nn, seg.metric
local folder, remove = t.folder()

local SIZE = 32

-- A synthetic patient with a predicted dose of half the true one.
local function input(name, c)
  return nn.input(name, { c = c, d = SIZE, h = SIZE, w = SIZE })
end
local ct, truth, structures = input("ct", 1), input("dose", 1), input("structures", 10)
local output = truth * 0.5
local set = seg.data.phantom { format = "openkbp", patients = 1, root = folder }
  :resize { d = SIZE, h = SIZE, w = SIZE }
local recipe = {
  inputs = { ct, truth, structures }, outputs = { dose = output }, predict = {},
  loss = nn.mae(output, truth), train = set,
  metrics = { dvh = metric.dvh_score(output, truth, { structures = structures }) },
}
base.settle(recipe)
seg.config { device = "cpu" }
local d = opened.open(recipe, set)
local run = { folder = folder .. "/run", names = d.names, recipe = recipe,
              hash = function() return "ab12" end,
              session = recipes.session(recipe, "evaluate") }

-- Rows of a CSV file as { column = number }.
local function rows_of(path)
  local names, rows = nil, {}
  for line in t.read(path):gmatch("[^\n]+") do
    local cells = {}
    for cell in line:gmatch("[^,]+") do cells[#cells + 1] = cell end
    if not names then
      names = cells
    else
      local row = {}
      for i, name in ipairs(names) do row[name] = tonumber(cells[i]) end
      rows[#rows + 1] = row
    end
  end
  return rows, names
end

-- The red values of pixels: f(x, y), both from 0.
local function reds(path)
  local image <close> = core.data.read_image(path)
  local slice = image:slice(1)
  return function(x, y) return slice:get(y + 1, x + 1) end, slice.shape
end

t.test("histograms of half the dose are those of the dose, half as far", function()
  core.sys.mkdir(run.folder)
  picture.overlays(run, d, { 1 }, "test")
  local base_name = folder .. "/run/overlays/test_ab12"
  local rows, names = rows_of(base_name .. "_dvh.csv")
  t.equal(table.concat(names, " ", 1, 3), "dose_gy RightParotid_truth RightParotid_predicted")
  t.equal(names[#names], "PTV70_predicted")
  for k, row in ipairs(rows) do
    t.equal(row.dose_gy, (k - 1) / 2)
    local twice = rows[2 * k - 1]
    for _, name in ipairs(names) do
      local structure = name:match("^(.*)_predicted$")
      if structure and twice then
        t.equal(row[name], twice[structure .. "_truth"], name)
      elseif structure then
        t.equal(row[name], 0, name)
      end
    end
  end
  t.equal(rows[#rows].PTV70_truth, 0, "the last row is beyond the dose")
  -- percentages of one structure, counted here
  local masks <close> = core.measure.prepared(d.pipeline, 1, "structures")
  local ptv70 <close>, values = masks:channel(10), {}
  local doses <close> = core.measure.prepared(d.pipeline, 1, "dose")
  for z = 1, SIZE do
    local a, b = ptv70:slice(z), doses:slice(z)
    for y = 1, SIZE do
      for x = 1, SIZE do
        if a:get(y, x) >= 0.5 then values[#values + 1] = b:get(y, x) end
      end
    end
  end
  for _, row in ipairs(rows) do
    local n = 0
    for _, v in ipairs(values) do n = n + (v >= row.dose_gy and 1 or 0) end
    t.near(row.PTV70_truth, 100 * n / #values, 6e-4, "PTV70 at " .. row.dose_gy)
  end
  local svg = t.read(base_name .. "_dvh.svg")
  for _, part in ipairs { ">PTV70<", ">RightParotid<", ">truth<", ">prediction<", ">dose, Gy<",
                          "stroke-dasharray=\"7.0 6.0\"", "#d55e00" } do
    t.check(svg:find(part, 1, true), "%s is missing", part)
  end
  t.check(#t.read(base_name .. "_dvh.png") > 1000)
  local _, shape = reds(base_name .. ".png")
  t.check(shape[2] > 3 * 300, "three panels")
end)

t.test("the slice is axial, through the middle of the hottest target", function()
  local m = dose.metric(run.recipe)
  local masks = core.measure.prepared(d.pipeline, 1, "structures")
  local doses = core.measure.prepared(d.pipeline, 1, "dose")
  local volumes = { [m.structures] = masks, [m.target] = doses, [m.output] = doses }
  local case = {
    volume = function(_, node) return volumes[node] end, undo = function() end,
    -- the first target has the highest dose
    dvh = function(_, _, _, _, k) return { mean = k == 8 and 80 or 60 } end,
  }
  local v = dose.view(case, m, doses)
  -- the axes of OpenKBP: d to posterior, h to the left, w to inferior
  local area, all, sum, middle = {}, 0, 0, nil
  local ptv56 = masks:channel(8)
  for d_ = 1, SIZE do
    local slice = ptv56:slice(d_)
    for w = 1, SIZE do
      for h = 1, SIZE do
        if slice:get(h, w) > 0.5 then area[w], all = (area[w] or 0) + 1, all + 1 end
      end
    end
  end
  for w = SIZE, 1, -1 do -- from inferior to superior
    sum = sum + (area[w] or 0)
    if not middle and 2 * sum >= all then middle = w end
  end
  t.check(all > 0, "a target")
  t.equal(v.slice, SIZE - middle + 1)
  t.equal(v.slices, SIZE)
  t.equal(#v.targets, 3)
  t.check(v.most > 60, v.most)
  -- the voxel with the highest dose of that slice is in the picture, which is cropped
  local most = 0
  for d_ = 1, SIZE do
    for h = 1, SIZE do most = math.max(most, (doses:slice(d_):get(h, middle))) end
  end
  local _, shown = core.picture.window(v.truth, 1, 0, 1)
  t.near(shown, most, 1e-5)
end)

t.test("colours are those of the doses, outlines those of the targets", function()
  local function plane(value, from, to)
    local a = core.array.zeros { 40, 40 }
    for y = from or 1, to or 40 do
      for x = from or 1, to or 40 do a:set(value, y, x) end
    end
    return a
  end
  local path = folder .. "/colours.png"
  dose.draw(path, { image = plane(0), truth = plane(40), found = plane(80), difference = plane(0),
                    targets = { plane(1, 11, 30) }, most = 79, slice = 1, slices = 1 }, "x")
  local red = reds(path)
  -- panels of 400 pixels from 12, 424 and 424 + 400 + 12 + 76, their upper edge at 34
  t.near(red(12 + 20, 54), 0.65 * 0x21, 1, "40 of 80 Gy")
  t.near(red(424 + 20, 54), 0.65 * 0xfd, 1, "80 of 80 Gy")
  t.equal(red(912 + 20, 54), 0, "no difference hides nothing")
  for _, left in ipairs { 12, 424, 912 } do
    t.check(red(left + 100, 34 + 200) > 250, "the outline at %d", left)
  end
end)

t.test("without structures there is no picture of a dose", function()
  local other = { folder = folder .. "/other", names = d.names, recipe = {
    inputs = recipe.inputs, outputs = recipe.outputs,
    metrics = { mae = metric.mae(output, truth) } } }
  t.equal(dose.metric(other.recipe), nil)
  picture.overlays(other, d, { 1 }, "test")
  t.equal(core.sys.stat(folder .. "/other/overlays"), nil)
end)

remove()
t.finish()
