---@meta
-- segengine_indices.d.lua -- functions of nodes that compute or use indices, and random numbers,
-- for editors: see segengine.d.lua.
-- luacheck: ignore 212 241 631

---@class seg
local seg = {}

-- Indices -----------------------------------------------------------------------

---An index is a whole number from 0, stored as a float; it has no gradient. Several axes count as one axis
---with all their elements, at most 2^24, in PyTorch's order (c, d, h, w; w fastest).

---@class seg.order
---@field axis "c"|"d"|"h"|"w"|("c"|"d"|"h"|"w")[] the axis, or several that are sorted as one
---@field descending? boolean = false

---Elements in ascending order along an axis, and the index of each in x. Equal elements keep their
---order; NaN is the largest. The gradient flows through the values.
---@param x seg.node
---@param o seg.order
---@return seg.node values
---@return seg.node indices
function seg.sort(x, o) end

---The indices of seg.sort alone.
---@param x seg.node
---@param o seg.order
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

---The index of the largest element over axes, which count as one: the first of several. NaN is the
---largest. With `keep = true` it is an index for seg.gather.
---@param x seg.node
---@param o seg.axes
---@return seg.node
function seg.argmax(x, o) end

---The index of the smallest element over axes; NaN counts as the smallest.
---@param x seg.node
---@param o seg.axes
---@return seg.node
function seg.argmin(x, o) end

---Class numbers as a channel for each class: 1 in the channel of the number, else 0. A number is rounded;
---one that is no class has zeros alone. index has one channel.
---@param index seg.node
---@param classes integer
---@return seg.node
function seg.one_hot(index, classes) end

-- Random numbers ------------------------------------------------------------------

---Each element has a new number in every training step, the same one on every device and with any
---number of threads, ranks and stops. In evaluation it is the mean of its distribution, as dropout is
---off there, so that results do not depend on chance; `predict --mc N` draws. The numbers have no
---gradient: that of `mean + std * seg.normal(mean)` flows to mean and std.

---@class seg.normal.options
---@field mean? number = 0
---@field std? number = 1; standard deviation

---Normal numbers with the extents of `like`.
---@param like seg.node
---@param o? seg.normal.options
---@return seg.node
function seg.normal(like, o) end

---@class seg.uniform.options
---@field low? number = 0
---@field high? number = 1

---Numbers from low to below high with the extents of `like`; rounding may give high.
---@param like seg.node
---@param o? seg.uniform.options
---@return seg.node
function seg.uniform(like, o) end
