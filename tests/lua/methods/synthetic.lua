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
-- from the disc's boundary in voxels, negative inside.
function M.discs(n)
  local shape = { n, 1, 8, 8 }
  local function distance(i)
    local k, h, w = i // 64, i // 8 % 8, i % 8
    return math.sqrt((h - 3 - k % 2) ^ 2 + (w - 3 - k % 3) ^ 2) - (1.6 + 0.3 * (k % 4))
  end
  local function mask(i) return distance(i) < 0 and 1 or 0 end
  local function image(i) return mask(i) + 0.5 * math.sin(1.7 * i) end
  return M.array(shape, image), M.array(shape, mask), M.array(shape, distance)
end

-- Sets all trained parameters: 0.3 sin(1.7 i + sum of the bytes of the name).
function M.weights(model)
  for name, p in pairs(model:parameters()) do
    local sum = 0
    for _, byte in ipairs { name:byte(1, -1) } do sum = sum + byte end
    if p.trained then model:set(name, M.wave(p.shape, sum, 0.3)) end
  end
end

-- Prints the loss of a step.
function M.show(step, loss) print(string.format("step %d loss %.9g", step, loss)) end

return M
