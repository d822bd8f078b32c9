---@meta
-- segengine_shapes.d.lua -- functions that move elements of nodes, for editors: see
-- segengine.d.lua.
-- luacheck: ignore 212 241 631

---@class seg
local seg = {}

-- Order and extents, matrices -------------------------------------------------
-- Axes are c, d, h, w of a sample, in the order (N,C,[D],[H],W) of shapes; the batch does not move.

---@class seg.reshape.options
---@field c integer channels; -1, for one axis at most: what remains
---@field d? integer extents of the new spatial axes: w, or h and w, or d, h and w
---@field h? integer
---@field w? integer
---@field channels_last? boolean = false; the elements keep the order (D,H,W,C), TensorFlow's, instead of (C,D,H,W)

---The elements of each sample with other extents and as many spatial axes as are given. They keep
---the order (C,D,H,W) of shapes, so the result is that of `view` and `reshape` in PyTorch. Tensors
---lie in memory with the channels last: where the channels change, elements move.
---@param x seg.node
---@param o seg.reshape.options
---@return seg.node
function seg.reshape(x, o) end

---Axes in another order: `seg.permute(x, { "w", "c", "h" })` of (N,C,H,W) is (N,W,C,H), as
---`x.permute(0, 3, 1, 2)` in PyTorch. Afterwards the axes are named by their places: c, h and w.
---@param x seg.node
---@param axes ("c"|"d"|"h"|"w")[] all axes of x; the first one becomes c
---@return seg.node
function seg.permute(x, axes) end

---Two axes in each other's place: `seg.transpose(x, "w", "c")`.
---@param x seg.node
---@param a "c"|"d"|"h"|"w"
---@param b "c"|"d"|"h"|"w"
---@return seg.node
function seg.transpose(x, a, b) end

---@class seg.flip.options
---@field axes ("c"|"d"|"h"|"w")[] the axes along which the last element comes first

---The elements in reverse order along axes.
---@param x seg.node
---@param o seg.flip.options
---@return seg.node
function seg.flip(x, o) end

---@class seg.by_axis
---@field c? integer a number for each axis that is given
---@field d? integer
---@field h? integer
---@field w? integer

---Elements move along axes, `seg.roll(x, { h = 3, w = -1 })` by 3 and -1 places; those beyond the end
---come in at the start. Any whole numbers.
---@param x seg.node
---@param o seg.by_axis
---@return seg.node
function seg.roll(x, o) end

---The whole tensor several times along axes, `seg.repeats(x, { w = 2 })` twice along w, as `x.repeat`
---in PyTorch.
---@param x seg.node
---@param o seg.by_axis
---@return seg.node
function seg.repeats(x, o) end

---@class seg.cumsum.options
---@field axis "c"|"d"|"h"|"w"
---@field reverse? boolean = false; sums up to the last element instead of from the first one

---Running sums: each element is the sum of all elements up to it along the axis.
---@param x seg.node
---@param o seg.cumsum.options
---@return seg.node
function seg.cumsum(x, o) end

---@class seg.split.options
---@field axis "c"|"d"|"h"|"w"
---@field sizes? integer[] extents of the parts; together that of the axis
---@field parts? integer or the number of equal parts

---The parts of x along an axis, one result each: `local q, k, v = seg.split(x, { axis = "c", parts =
---3 })`.
---@param x seg.node
---@param o seg.split.options
---@return seg.node ...
function seg.split(x, o) end

---@class seg.concat.options
---@field axis? "c"|"d"|"h"|"w" = "c"

---Any number of nodes one after the other along an axis. Along channels it is `a .. b`; another axis
---takes the place of the channels before and returns after.
---@param nodes seg.node[]
---@param o? seg.concat.options
---@return seg.node
function seg.concat(nodes, o) end

---@class seg.stack.options
---@field axis "c"|"d"|"h"|"w" the new axis, named as in the result

---Nodes of equal extents side by side along a new axis; the other axes keep their order: of (N,C,W)
---and axis "w" the result is (N,C,H,W), whose h is the old w.
---@param nodes seg.node[]
---@param o seg.stack.options
---@return seg.node
function seg.stack(nodes, o) end

---@class seg.matmul.options
---@field transpose_a? boolean = false; exchanges rows and columns of a
---@field transpose_b? boolean = false

---Products of matrices with rows along w and columns along c, one for each sample, d and h: `a.c` and
---`b.w` are equal. Where n, d or h of an operand is 1, its matrix multiplies all of the other. Without
---spatial axes (N,C) is one row. In f32 in every precision.
---@param a seg.node
---@param b seg.node
---@param o? seg.matmul.options
---@return seg.node
function seg.matmul(a, b, o) end

---@class seg.softmax.options
---@field axis? "c"|"d"|"h"|"w" = "c"

---exp(x) over its sum along an axis.
---@param x seg.node
---@param o? seg.softmax.options
---@return seg.node
function seg.softmax(x, o) end

---@class seg.standardise.options
---@field axes ("c"|"d"|"h"|"w")[]
---@field eps? number = 1e-5; added to the variance

---(x - mean) / sqrt(variance + eps) over axes of each sample. Norms with parameters are `nn.group_norm`
---and its like; `seg.norm` is a root of a sum of squares.
---@param x seg.node
---@param o seg.standardise.options
---@return seg.node
function seg.standardise(x, o) end
