-- groups.lua -- clustering by core.measure, and the metric of clusters that were found without
-- labels.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local metric, nn = seg.metric, seg.nn

t.test("points in groups, and which group is which class", function()
  local points = seg.array { shape = { 5, 1 }, data = { 30, 10, 0, 12, 1 } }
  local groups, spread = core.measure.groups(points, { k = 3 })
  t.equal(table.concat(groups, " "), "0 1 2 1 2")
  t.equal(spread, 2.5)
  local s = core.measure.silhouette(points, groups, { k = 3 })
  t.check(math.abs(s - 0.68493) < 1e-5, "silhouette %g", s)
  t.equal(table.concat(core.measure.match { { 0, 5, 1 }, { 4, 5, 0 }, { 0, 0, 1 } }, " "), "2 1 3")
  t.raises(function() core.measure.groups(points, { k = 6 }) end, "6 groups of 5 points")
  t.raises(function() core.measure.groups(points, { K = 2 }) end, "K")
  t.raises(function() core.measure.silhouette(points, { 0, 0, 0, 0, 3 }, { k = 3 }) end, "group")
  t.raises(function() core.measure.match { { 1, 2 }, { 3 } } end, "count")
  t.raises(function() core.measure.match { { 1, math.huge }, { 3, math.huge } } end,
           "count 2 of row 1 must be finite, got inf")
end)

-- Rows of logits of a group, and of a class, as an evaluation gives them.
t.test("metric.groups is accuracy under the best names of groups", function()
  local z, y = nn.input("z", { c = 3 }), nn.input("y", { c = 1 })
  local m, records = metric.groups(z, y), {}
  local group, class = { 0, 0, 1, 1, 2, 2, 2 }, { 2, 2, 0, 1, 1, 1, 0 }
  for i, g in ipairs(group) do
    local logits = { 0, 0, 0 }
    logits[g + 1] = 1
    local _, _, record = m.sample { logits, { class[i] } }
    records[i] = record
  end
  t.equal((m.total(records)), 5 / 7) -- group 0 is class 2, 1 is 0, 2 is 1
  for _, none in ipairs { -1, 0.5 } do
    local _, _, record = m.sample { { 1, 0, 0 }, { none } }
    t.equal(record, nil, "a number that is no class counts nowhere")
  end
  -- more classes than groups: samples of classes without a group are wrong; the assignment chooses
  -- the classes
  local _, _, record = m.sample { { 1, 0, 0 }, { 7 } }
  for _ = 1, 3 do records[#records + 1] = record end
  t.equal((m.total(records)), 6 / 10) -- group 0 is class 7 now, 3 of 5
  t.raises(function() metric.groups(z, nn.input("two", { c = 2 })) end, "number of a class")
end)

t.finish()
