---@meta
-- segengine_functions.d.lua -- functions of nodes, for editors: see segengine.d.lua.
-- luacheck: ignore 212 241 631

---@class seg
local seg = {}

-- Functions of elements -------------------------------------------------------
-- The gradient of sign, floor, round and the comparisons is 0.

---e to the power of each element.
---@param x seg.node
---@return seg.node
function seg.exp(x) end

---Natural logarithm; of 0 minus infinity, below NaN.
---@param x seg.node
---@return seg.node
function seg.log(x) end

---log(1 + x), exact for small x.
---@param x seg.node
---@return seg.node
function seg.log1p(x) end

---Square root; its gradient at 0 is infinite.
---@param x seg.node
---@return seg.node
function seg.sqrt(x) end

---1 / sqrt(x).
---@param x seg.node
---@return seg.node
function seg.rsqrt(x) end

---Absolute value; gradient 0 at 0.
---@param x seg.node
---@return seg.node
function seg.abs(x) end

---Minus 1, 0 or 1.
---@param x seg.node
---@return seg.node
function seg.sign(x) end

---Sine of an angle in radians.
---@param x seg.node
---@return seg.node
function seg.sin(x) end

---Cosine of an angle in radians.
---@param x seg.node
---@return seg.node
function seg.cos(x) end

---Hyperbolic tangent.
---@param x seg.node
---@return seg.node
function seg.tanh(x) end

---1 / (1 + exp(-x)).
---@param x seg.node
---@return seg.node
function seg.sigmoid(x) end

---x where it is above 0, else 0.
---@param x seg.node
---@return seg.node
function seg.relu(x) end

---The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
---@param x seg.node
---@return seg.node
function seg.erf(x) end

---The largest whole number that is not above x.
---@param x seg.node
---@return seg.node
function seg.floor(x) end

---The nearest whole number; halves go to the even one, as in PyTorch.
---@param x seg.node
---@return seg.node
function seg.round(x) end

---The larger of two; where they are equal each gets half of the gradient. With `{ axes = }` the
---largest element over axes; its equals share the gradient.
---@param a seg.node|number
---@param b seg.node|number|seg.axes one of the two is a node
---@return seg.node
function seg.max(a, b) end

---The smaller of two, or with `{ axes = }` the smallest element over axes, as `max`.
---@param a seg.node|number
---@param b seg.node|number|seg.axes
---@return seg.node
function seg.min(a, b) end

---x limited to `low` .. `high`; either may be nil. With two numbers the gradient is 1 at a limit.
---@param x seg.node
---@param low? seg.node|number
---@param high? seg.node|number
---@return seg.node
function seg.clamp(x, low, high) end

---1 where a > b, else 0; 0 for NaN, as all comparisons but `ne`.
---@param a seg.node|number
---@param b seg.node|number
---@return seg.node
function seg.gt(a, b) end

---1 where a >= b, else 0.
---@param a seg.node|number
---@param b seg.node|number
---@return seg.node
function seg.ge(a, b) end

---1 where a < b, else 0.
---@param a seg.node|number
---@param b seg.node|number
---@return seg.node
function seg.lt(a, b) end

---1 where a <= b, else 0.
---@param a seg.node|number
---@param b seg.node|number
---@return seg.node
function seg.le(a, b) end

---1 where a and b are equal, else 0.
---@param a seg.node|number
---@param b seg.node|number
---@return seg.node
function seg.eq(a, b) end

---1 where a and b differ, else 0; 1 for NaN.
---@param a seg.node|number
---@param b seg.node|number
---@return seg.node
function seg.ne(a, b) end

---a where the condition is not 0, else b. The operand that is not chosen may be infinite or NaN there,
---but its gradient must be finite: limit the operand, as in `seg.log(seg.max(x, 1e-6))`.
---@param condition seg.node
---@param a seg.node|number
---@param b seg.node|number
---@return seg.node
function seg.where(condition, a, b) end

---@class seg.axes
---@field axes ("c"|"d"|"h"|"w")[] the axes that the function reduces
---@field keep? boolean = false; keeps the axes with extent 1; without it the others move up: h becomes w if w is summed

---Sum over axes. An axis of channels stays, with one channel. Over the batch there is seg.mean.
---@param x seg.node
---@param o seg.axes
---@return seg.node
function seg.sum(x, o) end

---@class seg.mean.options
---@field axes? ("c"|"d"|"h"|"w")[] default: everything, batch included: one number, a loss
---@field keep? boolean = false; keeps the axes with extent 1
---@field mask? seg.node 1 where an element counts; the mean over none is 0, with gradient 0
---@field weight? seg.node factor of each element; a constant, without a gradient of its own

---Mean over axes, or over everything: then it is a loss or a part of one. With `accumulate` it is the
---mean of each part of a batch, with several ranks that of the whole batch.
---@param x seg.node
---@param o? seg.mean.options
---@return seg.node
function seg.mean(x, o) end

---Variance over axes: the mean squared distance to the mean.
---@param x seg.node
---@param o seg.axes
---@return seg.node
function seg.var(x, o) end

---Logarithm of the sum of exponentials over axes, without overflow: `x - seg.logsumexp(x, { axes = {
---"c" }, keep = true })` is the logarithm of a softmax.
---@param x seg.node
---@param o seg.axes
---@return seg.node
function seg.logsumexp(x, o) end

---Square root of the sum of squares over axes; its gradient at 0 is not finite.
---@param x seg.node
---@param o seg.axes
---@return seg.node
function seg.norm(x, o) end

---x as a constant: no gradient flows back through it.
---@param x seg.node
---@return seg.node
function seg.stop(x) end
