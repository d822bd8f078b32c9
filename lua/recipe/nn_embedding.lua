-- nn_embedding.lua -- learnt vectors of categories: a part of nn.lua, which passes the functions
-- that make parameters and names.

local core = require "seg.core"
local util = require "seg.util"

local none = util.none

local M = {}

-- Functions of nn.lua: layer(kind, name), param(name, shape, rank, init), positive(what, v),
-- values_of(what, init).
local made

-- A vector of `size` numbers for each index from 0 to count - 1: (N,1,...) to (N,size,...).
function M.embedding(index, o)
  o = util.options("nn.embedding", o, { count = none, size = none, init = { normal = 1 },
                                        name = none })
  local count = made.positive("nn.embedding: count", o.count)
  local size = made.positive("nn.embedding: size", o.size)
  local name = made.layer("embedding", o.name)
  local w = made.param(name .. ".weight", { count, size }, 0,
                       made.values_of("nn.embedding", o.init))
  return core.op.embedding(w, index, { name = name })
end

return function(given)
  made = given
  return M
end
