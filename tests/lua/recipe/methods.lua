-- methods.lua -- the published methods of tests/lua/methods: each is a program of at most 60 lines,
-- its losses fall, and they are those of the same method in PyTorch.
--
-- tests/golden/methods.py made the numbers of PyTorch.

local t = dofile("tests/support/harness.lua")

local FOLDER, STEPS, LINES = "tests/lua/methods/", 20, 60
local folder, remove = t.folder()
local golden = dofile("tests/golden/methods_golden.lua")

-- Largest share of the first loss that the last one may have; default: 0.95. The two losses of a
-- GAN need not fall.
local falls = { gan = math.huge, tent = 0.99 }

local function lines_of(text) return select(2, text:gsub("\n", "")) end

-- The losses that the program of a method prints, one for each step.
local function losses_of(name)
  local code, said = t.program(FOLDER .. name .. ".lua --quiet --out " .. folder)
  t.equal(code, 0, "exit code (" .. said:sub(-600) .. ")")
  local list = {}
  for step, loss in said:gmatch("step (%d+) loss (%S+)") do
    t.equal(tonumber(step), #list + 1, "number of the step")
    list[#list + 1] = tonumber(loss)
    t.check(list[#list] and math.abs(list[#list]) < math.huge, "step %s: loss %s", step, loss)
  end
  t.equal(#list, STEPS, "count of losses")
  return list
end

local names = {}
for _, file in ipairs(t.lines("ls " .. FOLDER)) do
  local name = file:match "^(.*)%.lua$"
  if name ~= "synthetic" then names[#names + 1] = name end
end

for _, name in ipairs(names) do
  t.test("the method " .. name, function()
    local lines = lines_of(t.read(FOLDER .. name .. ".lua"))
    t.check(lines <= LINES, "%d lines, wanted at most %d", lines, LINES)
    local losses, want = losses_of(name), golden[name]
    t.check(want and #want == STEPS, "tests/golden/methods.py has no " .. name)
    for i, loss in ipairs(losses) do
      t.near(loss, want[i], 1e-4 * math.max(1, math.abs(want[i])), "loss of step " .. i)
    end
    local share = falls[name] or 0.95
    t.check(losses[STEPS] < share * losses[1], "loss %g, at first %g", losses[STEPS], losses[1])
  end)
end

t.test("every golden method has a program, and docs/extend.md lists it", function()
  local listed, page = {}, t.read("docs/extend.md")
  for _, name in ipairs(names) do
    listed[name] = true
    t.check(page:find("`" .. name .. ".lua`", 1, true), "docs/extend.md has no " .. name)
  end
  for name in pairs(golden) do t.check(listed[name], FOLDER .. " has no " .. name) end
end)

remove()
t.finish()
