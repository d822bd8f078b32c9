-- synthetic.lua -- small data sets and first weights by formulas, for the methods of this folder.
--
-- tests/golden/methods.py has the same formulas, so that both sides start alike. In a project of
-- your own, data come from seg.data and weights from the seed.

local seg = require "seg"
local M = {}

-- An array (N,C,[D],[H],W) with f(i) for element i, from 0 in the order of PyTorch.
function M.array(shape, f)
  local count, list = 1, {}
  for _, extent in ipairs(shape) do count = count * extent end
  for i = 1, count do list[i] = f(i - 1) end
  return seg.array { shape = shape, data = list }
end

-- Numbers between -1 and 1 without a short period; another seed gives other numbers.
function M.wave(shape, seed, factor)
  return M.array(shape, function(i) return (factor or 1) * math.sin(1.7 * i + seed) end)
end

-- n images (n,1,8,8) of a disc under noise, its mask, and the signed distance of each position
-- from the disc's boundary in voxels, negative inside; the first is disc `first` of a series.
function M.discs(n, first)
  local shape = { n, 1, 8, 8 }
  local function distance(i)
    local k, h, w = i // 64 + (first or 0), i // 8 % 8, i % 8
    return math.sqrt((h - 3 - k % 2) ^ 2 + (w - 3 - k % 3) ^ 2) - (1.6 + 0.3 * (k % 4))
  end
  local function mask(i) return distance(i) < 0 and 1 or 0 end
  local function image(i) return mask(i) + 0.5 * math.sin(1.7 * i + (first or 0)) end
  return M.array(shape, image), M.array(shape, mask), M.array(shape, distance)
end

-- The class (n,1) of each of these discs: 0 small, 1 large.
function M.classes(n, first)
  return M.array({ n, 1 }, function(i) return (i + (first or 0)) % 4 // 2 end)
end

-- The discs as a data set of n cases, for a recipe: files below a folder, written when the set is
-- first used.
function M.cases(folder, n)
  local function list()
    assert(os.execute("mkdir -p '" .. folder .. "'"))
    local image, mask = M.discs(n)
    local cases = {}
    for k = 1, n do
      cases[k] = { key = "case" .. k, patient = "case" .. k }
      for name, all in pairs { image = image, mask = mask } do
        cases[k][name] = string.format("%s/%s%d.npy", folder, name, k)
        seg.array.save(cases[k][name], M.array({ 8, 8 }, function(i)
          return all:get(k, 1, i // 8 + 1, i % 8 + 1)
        end))
      end
    end
    return cases
  end
  return seg.data.cases { cases = list, fields = {
    { name = "image", read = "npy", rank = 2 },
    { name = "mask", kind = "value", read = "npy", rank = 2 } } }
end

-- Sets all weights: 0.3 sin(1.7 i + sum of the bytes of the name); norms keep their statistics.
function M.weights(model)
  for name, p in pairs(model:parameters()) do
    local sum = 0
    for _, byte in ipairs { name:byte(1, -1) } do sum = sum + byte end
    if not name:find "running_" then model:set(name, M.wave(p.shape, sum, 0.3)) end
  end
end

-- Prints the loss of a step.
function M.show(step, loss) print(string.format("step %d loss %.9g", step, loss)) end

return M
