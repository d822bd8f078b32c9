---@meta
-- segengine_indices.d.lua -- functions of nodes that compute or use indices, for editors: see
-- segengine.d.lua.
-- luacheck: ignore 212 241 631

---@class seg
local seg = {}

-- Indices -----------------------------------------------------------------------
-- An index is a whole number from 0, in a node of numbers. A list of axes counts as one axis of all
-- their elements in PyTorch's order (c, d, h, w; w fastest), of at most 2^24. Indices have no gradient.

---@class seg.sort.options
---@field axis "c"|"d"|"h"|"w"|("c"|"d"|"h"|"w")[] the axis, or several that are sorted as one
---@field descending? boolean = false

---Elements in ascending order along an axis, and the index of each in x. Equal elements keep their
---order; NaN is the largest. The gradient flows through the values.
---@param x seg.node
---@param o seg.sort.options
---@return seg.node values
---@return seg.node indices
function seg.sort(x, o) end

---The indices of seg.sort alone.
---@param x seg.node
---@param o seg.sort.options
---@return seg.node
function seg.argsort(x, o) end

---@class seg.gather.options
---@field axis "c"|"d"|"h"|"w"|("c"|"d"|"h"|"w")[] the axis along which index counts, or several

---Element index[k] of x as element k along an axis. Along it index has any extent, which is that of
---the result; the extents of the other axes are equal or 1. The gradients of an element that is
---chosen several times add up. An index is rounded to the nearest whole number; where it is none of
---x's, or NaN, the result is NaN.
---@param x seg.node
---@param index seg.node
---@param o seg.gather.options
---@return seg.node
function seg.gather(x, index, o) end

---@class seg.top_k.options
---@field axis "c"|"d"|"h"|"w"
---@field largest? boolean = true; false: the smallest

---The k largest elements along an axis, the largest first, and their indices.
---@param x seg.node
---@param k integer
---@param o seg.top_k.options
---@return seg.node values
---@return seg.node indices
function seg.top_k(x, k, o) end
