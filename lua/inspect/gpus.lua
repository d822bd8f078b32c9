-- gpus.lua -- the GPUs that `plan --gpu` knows, and a lower bound for the time of a call on them.
--
-- capability: compute capability, 90 for 9.0. bandwidth: of the memory in GB/s. Rates in TFLOP/s
-- without sparsity: f32 of the CUDA cores, tf32 and half (bf16, f16) of the tensor cores with
-- float32 sums; a GPU of 7.5 has f16 only. All are peaks of the vendor's data sheets at boost
-- clock. Achieved rates are lower (published for an H200: 4.3 of 4.8 TB/s and 790 of 989 TFLOP/s),
-- so the bound is below any measured time.

local util = require "seg.util"

local M = {}

M.models = {
  { name = "h200", text = "H200", capability = 90,
    bandwidth = 4800, f32 = 67, tf32 = 495, half = 990 },
  { name = "h100", text = "H100 SXM", capability = 90,
    bandwidth = 3350, f32 = 67, tf32 = 495, half = 990 },
  { name = "a100", text = "A100 40 GB", capability = 80,
    bandwidth = 1555, f32 = 19.5, tf32 = 156, half = 312 },
  { name = "4090", text = "RTX 4090", capability = 89,
    bandwidth = 1008, f32 = 82.6, tf32 = 82.6, half = 165.2 },
  { name = "3090", text = "RTX 3090", capability = 86,
    bandwidth = 936, f32 = 35.6, tf32 = 35.6, half = 71.2 },
  { name = "4060", text = "RTX 4060", capability = 89,
    bandwidth = 272, f32 = 15.1, tf32 = 15.1, half = 30.2 },
  { name = "t4", text = "T4", capability = 75,
    bandwidth = 320, f32 = 8.1, half = 65 },
  { name = "rtx2080", text = "RTX 2080", capability = 75,
    bandwidth = 448, f32 = 10.6, half = 42.4 },
}

-- The names of all GPUs: "h200, h100 or a100".
function M.names()
  local names = {}
  for i, m in ipairs(M.models) do names[i] = m.name end
  return (table.concat(names, ", "):gsub(", (%w+)$", " or %1"))
end

-- The model called `name`, in any case; raises an error with the known names.
function M.find(name)
  for _, m in ipairs(M.models) do
    if m.name == name:lower() then return m end
  end
  util.refuse('--gpu "%s" is not known; use %s', name, M.names())
end

-- The peak TFLOP/s of convolutions and linear layers at a precision.
function M.rate(gpu, precision)
  return precision == "f32" and gpu.f32 or precision == "tf32" and gpu.tf32 or gpu.half
end

-- The least microseconds for so many bytes and FLOPs: the longer of the two times, because a GPU
-- overlaps them.
function M.floor_us(gpu, bytes, flops, precision)
  return math.max(bytes / gpu.bandwidth / 1e3, flops / M.rate(gpu, precision) / 1e6)
end

return M
