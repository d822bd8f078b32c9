-- same_network.lua -- checks that a script computes the network that its weights were trained for.
--
-- Loading weights only compares the names and shapes of parameters. A network with another
-- activation, eps or output factor loads as well and gives wrong results without an error. A file
-- of weights holds the graph of its outputs (`graph`), which is compared here with the graph of the
-- script: operators, their attributes and order, and the names of parameters. The loss is not
-- compared, nor anything that only training uses.

local core = require "seg.core"
local run_folder = require "seg.report.run"
local util = require "seg.util"

local M = {}

-- Attributes that are sizes. They follow from the extents of the inputs ("same" padding of a
-- stride, the remainder of a crop), so they are compared only if the inputs have the same extents.
local extents = {}
for name in ("kd kh kw pd0 pd1 ph0 ph1 pw0 pw1 d0 d h0 h w0 w"):gmatch("%S+") do
  extents[name] = true
end

-- Attributes that only training uses; and dropout's p, because --mc may use another probability.
local of_training = { momentum = true, p = true }
local dropouts = { dropout = true, spatial_dropout = true }

-- Parses the text of a graph. -> { nodes = { op =, name =, operands = {numbers from 0}, attributes
-- = {texts} } by number from 0, roots = numbers of the roots }
local function parse(text)
  local nodes, roots, count = {}, {}, 0
  for line in text:gmatch("[^\n]+") do
    local words = {}
    for word in line:gmatch("%S+") do words[#words + 1] = word end
    local node = { op = words[1], name = words[2], operands = {}, attributes = {} }
    if node.op == "root" then
      for i = 2, #words do roots[i - 1] = tonumber(words[i]) end
    elseif node.op == "input" or node.op == "param" then
      -- batch, d, h, w, channels, rank, trained, decayed
      node.shape = table.move(words, 3, 8, 1, {})
      nodes[count], count = node, count + 1
    elseif node.op ~= "segengine" then
      for number in words[3]:gmatch("-?%d+") do
        node.operands[#node.operands + 1] = tonumber(number)
      end
      node.attributes = table.move(words, 4, #words, 1, {})
      nodes[count], count = node, count + 1
    end
  end
  return { nodes = nodes, roots = roots }
end

-- The extents of the inputs of a graph, sorted by name, as a text.
local function input_extents(tape)
  local list = {}
  for _, node in pairs(tape.nodes) do
    if node.op == "input" then
      -- d, h, w and rank: a network may run on slices, or on volumes slice by slice
      list[#list + 1] = table.concat({ node.name, node.shape[2], node.shape[3], node.shape[4],
                                       node.shape[6] }, " ")
    end
  end
  table.sort(list)
  return table.concat(list, ",")
end

-- A node in words: "leaky_relu slope=0.02", "param enc.conv1.weight". loose: the images have other
-- extents.
local function words_of(node, loose)
  if node.op == "input" then
    return string.format("input %s of %s", node.name, util.plural(tonumber(node.shape[5]),
                                                                  "channel"))
  end
  -- the shape of a parameter was compared when the file was read
  if node.op == "param" then return "param " .. node.name end
  local list = { node.op }
  for _, text in ipairs(node.attributes) do
    local name = text:match("^[^=]+")
    if not (of_training[name] or loose and extents[name]) then list[#list + 1] = text end
  end
  return table.concat(list, " ")
end

-- The nodes that `root` depends on, operands first: { { words =, operands = text, node = }, ... }.
-- The order does not depend on the order in which a script builds its branches. Dropout is skipped:
-- it acts only in training and in Monte-Carlo draws.
local function steps_of(tape, root, loose)
  local list, place, stack = {}, { [-1] = -1 }, { root }
  -- an explicit stack, because a network may be deeper than calls may be nested
  while stack[1] do
    local number = stack[#stack]
    local node, at, ready = tape.nodes[number], {}, true
    -- pushed in reverse, so that the first missing operand is on top
    for i = #node.operands, 1, -1 do
      at[i] = place[node.operands[i]]
      if not at[i] then
        stack[#stack + 1], ready = node.operands[i], false
      end
    end
    if ready then
      stack[#stack] = nil
      if not place[number] and dropouts[node.op] then
        place[number] = at[1]
      elseif not place[number] then
        list[#list + 1] = { words = words_of(node, loose), operands = table.concat(at, ","),
                            node = node }
        place[number] = #list
      end
    end
  end
  return list
end

-- The position of step i in a list: "after enc.conv1", the last named layer before it.
local function where(list, i)
  for k = math.min(i, #list + 1) - 1, 1, -1 do
    local node = list[k].node
    if node.op ~= "param" and node.name ~= "-" then return " after " .. node.name end
  end
  return ""
end

-- The first difference between two lists, in words; nil if they are equal.
local function difference(was, is)
  for i = 1, math.max(#was, #is) do
    local a, b = was[i], is[i]
    if not a or not b or a.words ~= b.words or a.operands ~= b.operands then
      local function said(step)
        if not step then return "nothing more" end
        local named = step.node.op ~= "param" and step.node.op ~= "input" and step.node.name ~= "-"
        return step.words .. (named and " (" .. step.node.name .. ")" or "")
      end
      if a and b and a.words == b.words then
        return string.format("%s%s has other operands", said(a), where(was, i))
      end
      return string.format("%s there, %s here%s", said(a), said(b), where(was, i))
    end
  end
end

-- The names between commas, with their positions.
local function places_of(text)
  local list, place = {}, {}
  for name in text:gmatch("[^,]+") do
    list[#list + 1] = name
    place[name] = #list
  end
  return list, place
end

-- The pairs of outputs to compare: outputs of the same name if there are any, else by position,
-- because a script may rename its only output. If the file has the output `only`, that pair alone.
-- -> { { name, index in the file, index in the script }, ... }
local function pairs_of(theirs, ours, only)
  local _, there = places_of(theirs)
  local names, list = places_of(ours), {}
  for i, name in ipairs(names) do
    if there[name] and (name == only or not there[only or ""]) then
      list[#list + 1] = { name, there[name], i }
    end
  end
  if not list[1] then
    for i, name in ipairs(names) do list[i] = { name, i, i } end
  end
  return list
end

-- Raises unless the network of the script (text, outputs: from recipe.network) equals the network
-- that the file `path` with metadata `meta` was trained with. only: the one output that is used,
-- nil for all. A file without a graph passes.
function M.check(path, meta, text, outputs, only)
  if not meta.graph or not meta.outputs or meta.graph == text then return end
  local was, is = parse(meta.graph), parse(text)
  local loose = input_extents(was) ~= input_extents(is)
  for _, pair in ipairs(pairs_of(meta.outputs, outputs, only)) do
    local name, a, b = table.unpack(pair)
    local root = was.roots[a]
    local differs = root and difference(steps_of(was, root, loose),
                                        steps_of(is, is.roots[b], loose))
    if differs then
      local home = run_folder.of(path)
      local script = home and util.exists(home .. "/recipe.lua") and home .. "/recipe.lua"
      core.sys.raise("usage", string.format(
        "%s was trained with another network than the network of this script, so its results would "
        .. "be wrong: output %s: %s; fix: %s", path, name, differs,
        script and "use " .. script .. ", the script of that training, or restore this script"
        or "the script that trained these weights"), true)
    end
  end
end

return M
