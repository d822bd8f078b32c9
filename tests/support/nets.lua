-- nets.lua -- what the tests of seg.net share: inputs, counts, one step on ref and cpu, and the
-- comparison with PyTorch's numbers.
--
--   local help = dofile("tests/support/nets.lua")(t)     t: tests/support/harness.lua

local seg = require "seg"
local core = require "seg.core"
local nn, optim = seg.nn, seg.optim

local keys = { [2] = { "c" }, [3] = { "c", "w" }, [4] = { "c", "h", "w" },
               [5] = { "c", "d", "h", "w" } }

return function(t)
  local M = {}
  local count = 0

  -- The number in the newest name; with a step the next one.
  function M.count(step)
    count = count + (step or 0)
    return count
  end

  -- A new input, so that networks do not share names.
  function M.input(o)
    return nn.input("x" .. M.count(1), o)
  end

  -- f in a new scope.
  function M.in_scope(f)
    return nn.scope("s" .. M.count(1), f)
  end

  function M.shape(node)
    return table.concat(node.shape, "x")
  end

  -- The plan of one sample for these nodes: trained parameters, running statistics, FLOP forward.
  -- Nothing is allocated.
  function M.planned(x, ...)
    return core.plan { roots = { ... }, inputs = { [x.name] = x.shape }, device = "cpu",
                       precision = "f32", threads = 1 }
  end

  -- The numbers of trained parameters, and of these with running statistics.
  function M.parameters(x, ...)
    local plan = M.planned(x, ...)
    return plan.trained, plan.trained + plan.running
  end

  -- An array of this shape with different numbers.
  function M.numbers(of, seed)
    return seg.array.random(of, seed)
  end

  -- One training step of a network on ref and cpu: every parameter has a gradient, and both devices
  -- agree.
  local function step_of(y, loss, feeds)
    local got = {}
    for _, device in ipairs { "ref", "cpu" } do
      local s = seg.step { loss = loss, optim = optim.sgd { lr = 0.01 }, outputs = { y = y },
                           device = device, threads = 1 }
      local value = s:run(feeds)
      t.check(s.applied, "%s: not finite", device)
      got[device] = { loss = value, gradients = s:gradients() }
    end
    t.near(got.cpu.loss / got.ref.loss, 1, 1e-5, "loss of cpu over ref")
    local off, all = 0, 0
    for name, g in pairs(got.ref.gradients) do
      local e, power = got.cpu.gradients[name]:distance(g)
      t.check(power > 0, "%s has no gradient", name)
      off, all = off + e, all + power
    end
    t.check(off <= 1e-6 * all, "gradients of cpu and ref: %.3g, at most 1e-6", off / all)
  end

  -- A test of one step of build(x) on `samples` samples (32: batch norm of few numbers enlarges
  -- every rounding); axes: the extents of x.
  function M.learns(name, axes, build, samples)
    t.test(name .. ": every parameter gets a gradient, on cpu as on ref", function()
      -- a scope of its own, as initial weights depend on names
      nn.scope("learns." .. name:gsub("[^%w]", "_"), function()
        local x = M.input(axes)
        local y = build(x)
        local truth = nn.input(x.name .. "t", { c = y.c, d = y.rank > 2 and y.d or nil,
                                                h = y.rank > 1 and y.h or nil,
                                                w = y.rank > 0 and y.w or nil })
        local sizes, sizes_t = x.shape, y.shape
        sizes[1], sizes_t[1] = samples or 32, samples or 32
        step_of(y, nn.mse(y, truth), { [x.name] = M.numbers(sizes, 1),
                                       [truth.name] = M.numbers(sizes_t, 2) })
      end)
    end)
  end

  -- An input for arrays with this array's shape.
  local function input_for(name, array)
    local o = {}
    for i, key in ipairs(keys[#array.shape]) do o[key] = array.shape[i + 1] end
    return nn.input(name, o)
  end

  -- The file's tensors of a case have its name as a prefix; the rename selects them, and gives
  -- those of a package the names here.
  local function of(case, names)
    return { rename = function(name)
      local own = name:match("^" .. case .. "%.(.*)$")
      if own and names then own = names(own) end
      return own and case .. "." .. own
    end }
  end

  -- A test of build(x) against the case of this name in FILES.safetensors (weights) and FILES.npz
  -- (CASE_x, _t, _y, _train; with `ends` also _l, lengths of sequences). names: a function from a
  -- name in the file to the one here.
  function M.as_pytorch(files, case, build, ends, names)
    t.test(case .. ": forward, loss and gradients are PyTorch's", function()
      local weights = files .. ".safetensors"
      local function array(what) return seg.array.load(files .. ".npz", case .. "_" .. what) end
      local x, truth, want = array "x", array "t", array "y"
      local image, target = input_for(case .. "_x", x), input_for(case .. "_t", truth)
      local lengths = ends and nn.input(case .. "_l", { c = 1 })
      local y = nn.scope(case, function() return build(image, lengths) end)
      t.equal(table.concat(y.shape, "x", 2), table.concat(want.shape, "x", 2), "shape")
      local given, feeds = { [image.name] = x }, { [image.name] = x, [target.name] = truth }
      if lengths then given[lengths.name], feeds[lengths.name] = array "l", array "l" end
      local numbers_of = array "train"
      for device, limit in pairs { ref = 1e-6, cpu = 1e-4 } do
        local m = seg.model { outputs = { y = y }, device = device }
        m:load(weights, of(case, names))
        local off, power = m:run(given).y:distance(want)
        t.check(power > 0 and off <= limit ^ 2 * power, "%s: %.3g off, at most %g", device,
                math.sqrt(off / power), limit)
        local s = seg.step { loss = nn.mse(y, target), optim = optim.sgd { lr = 0 },
                             device = device }
        s:load(weights, of(case, names))
        t.near(s:run(feeds) / numbers_of:get(1), 1, limit, device .. ": loss over PyTorch's")
        t.near(s.grad_norm / numbers_of:get(2), 1, 10 * limit, device .. ": norm over PyTorch's")
      end
    end)
  end

  return M
end
