-- reference.lua -- docs/reference.md is generated from lua/types/*.d.lua, and both agree with
-- the program.
--
--   segengine tests/lua/reference.lua            test: the page, the functions, the options
--   segengine tests/lua/reference.lua --write    writes docs/reference.md
--
-- Options of every recipe, the defaults of augmentations and the sizes of networks come from the
-- program itself. The test compares names and defaults of all other options with the table that
-- the called function passes to util.options.

local util = require "seg.util"
local probe = {} -- the option table of the call under test; seen: the options of the function

-- Calls f(...) until it passes probe.o to util.options, and stores the known options.
local function probed(f, ...)
  probe.seen = nil
  debug.sethook(function()
    if debug.getinfo(2, "f").func ~= util.options then return end
    local _, o = debug.getlocal(2, 2)
    if o ~= probe.o then return end
    local _, known = debug.getlocal(2, 3)
    probe.seen = known
    error("probed", 0)
  end, "c")
  local ok, why = pcall(f, ...)
  debug.sethook()
  return ok, why
end

local t = dofile("tests/support/harness.lua")
local seg = require "seg"
local core = require "seg.core"
local config = require "seg.recipe.config"

local FILES = { "segengine", "segengine_losses", "segengine_functions", "segengine_shapes",
                "segengine_indices", "segengine_data", "segengine_net", "segengine_training" }

-- The public tables by their names in the annotations.
local set = seg.data.npy { root = "x", patient = "file" }
local roots = { nn = seg.nn, net = seg.net, data = seg.data, optim = seg.optim, seg = seg,
                metric = seg.metric, set = set }

-- Reading the annotations -----------------------------------------------------

-- Splits s after the type at its start. Unions, tables, generics and functions with their results
-- belong to a type; a space outside of brackets and quotes ends it.
local function split_type(s)
  local i, n, depth, fun = 1, #s, 0, nil
  local function result() -- of a function: ": type, type"
    local at = s:match("^:%s*()", i)
    if not at then return end
    i = at
    repeat
      local _, rest = split_type(s:sub(i))
      i = n - #rest + 1
      at = s:match("^,%s+()%f[%a]", i - 1) or s:match("^,%s*()", i)
      if at then i = at end
    until not at
  end
  while i <= n do
    local c = s:sub(i, i)
    if c == '"' then
      i = s:find('"', i + 1, true) + 1
    elseif c:match "[({<%[]" then
      if depth == 0 then fun = s:sub(1, i):match "fun%($" end
      depth, i = depth + 1, i + 1
    elseif c:match "[)}>%]]" then
      depth, i = depth - 1, i + 1
      if depth == 0 and fun then
        result()
        break
      end
    elseif depth == 0 and (c == " " or c == ",") then
      break
    else
      i = i + 1
    end
  end
  return s:sub(1, i - 1), s:sub(i):gsub("^%s+", "")
end

-- "= 1; text" -> "1", "text"
local function split_default(text)
  local default, rest = text:match "^= ([^;]*);?%s*(.*)$"
  return default, rest or text
end

-- Parses the files into classes and aliases by name and the items of the page in order:
-- { kind = "section" | "text" | "class" | "function", ... }.
local function read_types()
  local all = { classes = {}, aliases = {}, items = {} }
  local block -- the annotations above the next line of code
  local class -- the class that fields belong to

  local function add(item)
    all.items[#all.items + 1] = item
  end
  local function text_of(lines)
    return (table.concat(lines, "\n"):gsub("^\n+", ""):gsub("\n+$", ""))
  end
  local function finish() -- a block without a function: a paragraph, or a class
    if block and not block.class and not block.alias and #block.text > 0 then
      add { kind = "text", text = text_of(block.text) }
    end
    block = nil
  end
  local function tag(name, rest)
    if name == "class" then
      local id, parent = rest:match "^([%w_.]+):?%s*([%w_.]*)"
      class = all.classes[id] or { id = id, fields = {} }
      class.parent = parent ~= "" and parent or class.parent
      class.text = #block.text > 0 and text_of(block.text) or class.text
      block.class, block.text = true, {}
      all.classes[id] = class
      local item = { kind = "class", class = class, fields = {} }
      class.item = item
      add(item)
    elseif name == "field" then
      local key, optional, after = rest:match "^([%w_]+)(%??)%s+(.*)$"
      if not key then return end -- [string] of any name
      local kind, text = split_type(after)
      local field = { name = key, optional = optional ~= "", type = kind }
      field.default, field.text = split_default(text)
      class.fields[#class.fields + 1] = field
      class.item.fields[#class.item.fields + 1] = field
    elseif name == "alias" then
      local id, after = rest:match "^(%S+)%s*(.*)$"
      all.aliases[id] = { type = after, text = text_of(block.text), item = #all.items }
      block.alias, block.last = true, id
    elseif name == "param" then
      local key, optional, after = rest:match "^(%S-)(%??)%s+(.*)$"
      local kind, text = split_type(after)
      local param = { name = key, optional = optional ~= "", type = kind }
      param.default, param.text = split_default(text)
      block.params[#block.params + 1] = param
    elseif name == "return" then
      local kind, text = split_type(rest)
      block.returns[#block.returns + 1] = { type = kind, text = text }
    end
  end

  for _, file in ipairs(FILES) do
    for line in io.lines("lua/types/" .. file .. ".d.lua") do
      local section = line:match "^%-%- (.-) %-%-%-+$"
      local doc = line:match "^%-%-%-(.*)$"
      if section then
        finish()
        add { kind = "section", title = section }
      elseif doc and doc:match "^@meta" then
        block = nil
      elseif doc then
        block = block or { text = {}, params = {}, returns = {} }
        local name, rest = doc:match "^@(%a+)%s*(.*)$"
        local choice = doc:match "^|%s*(.*)$"
        if choice then
          local alias = all.aliases[block.last]
          alias.type = alias.type .. (alias.type == "" and "" or "|") .. choice:match "^%S+"
        elseif name then
          tag(name, rest)
        else
          block.text[#block.text + 1] = doc
        end
      else
        local full, args = line:match "^function ([%w_.:]+)%((.-)%)"
        if full then
          local own = block or { text = {}, params = {}, returns = {} }
          add { kind = "function", name = full, args = args, params = own.params,
                returns = own.returns, text = text_of(own.text) }
          block = nil
        else
          finish()
        end
      end
    end
    finish()
  end
  return all
end

-- Writing the page ------------------------------------------------------------

local function short(name) return (name:gsub("^seg%.", "")) end

local types = read_types()

-- Names on the page for types without an entry of their own.
local PLAIN = { ["seg.extent"] = "extents", ["seg.init"] = "init", ["seg.net.norm"] = "norm",
                ["seg.net.act"] = "act", ["seg.part"] = "number|string[]",
                ["seg.metric.one"] = "metric", ["seg.optimiser"] = "optimiser",
                ["seg.recipe.tidy"] = "table", ["seg.data.case"] = "table" }

local function type_text(kind)
  local args = kind:match "^fun(%b())"
  if args then
    local names = {}
    for name in args:sub(2, -2):gmatch "([%w_.]+)%??:" do names[#names + 1] = name end
    if args == "(...: string)" then names = { "..." } end
    return "function(" .. table.concat(names, ", ") .. ")"
  end
  if kind:match "^{.*}$" then
    local names = {}
    for name in kind:gmatch "[{,]%s*([%w_]+)%??:" do names[#names + 1] = name end
    return #names > 0 and "{ " .. table.concat(names, ", ") .. " }" or "table"
  end
  kind = kind:gsub("table<string, table>", "table"):gsub("fun%b().*", "function")
  return (kind:gsub("seg%.[%w_.]*[%w_]", function(name) return PLAIN[name] or short(name) end))
end

-- The function of a class's field, or nil: aliases are looked up.
local function function_type(kind)
  local alias = types.aliases[kind]
  kind = alias and alias.type or kind
  return kind:match "^fun%(" and kind or nil
end

-- The functions that take a class as option table, by class.
local users = {}
local function count_users()
  for _, item in ipairs(types.items) do
    local function use(kind, by)
      local id = kind:match "^seg%.[%w_.]+$"
      if not (id and types.classes[id]) then return end
      users[id] = users[id] or {}
      users[id][#users[id] + 1] = by
    end
    for _, p in ipairs(item.params or {}) do use(p.type, item.name) end
    if item.kind == "class" then
      for _, f in ipairs(item.fields) do
        local fun = function_type(f.type)
        for kind in (fun or ""):gmatch ":%s*(seg%.[%w_.]+)" do
          use(kind, short(item.class.id) .. "." .. f.name)
        end
      end
      if item.class.parent then use(item.class.parent, "a class") end
    end
  end
end
count_users()

-- Whether the fields of a class are listed below the function `by`, its only user.
local function nested(class, by)
  local list = users[class.id] or {}
  if short(class.id) == by or "seg." .. short(class.id):gsub("%.options$", "") == by then
    return true
  end
  for _, name in ipairs(list) do
    if name == short(class.id) then return false end
  end
  return #list == 1 and list[1] == by
end

local lines = {}
local function out(text) lines[#lines + 1] = text end

local BARE = { number = true, integer = true, boolean = true, string = true }

-- Whether a default is a Lua value and not a description such as "channels of the input".
local function literal(default)
  local value = load("return " .. default, "", "t", {})
  local ok, result = pcall(value or error)
  return ok and result ~= nil or false
end

-- The parts of a field: `name = default`, its type if the default does not show it, and a default
-- in words.
local function field_head(f)
  local kind = type_text(f.type)
  local head, said = f.name, nil
  if f.default and (literal(f.default) or f.default:match "^%l+$" or f.default:match "^%(") then
    head = head .. " = " .. f.default
  else
    said = f.default and "default: " .. f.default
  end
  local typed = not BARE[kind] and not (f.default and kind:match "^[%l]+%[%]$" ) and kind ~= "table"
    and kind ~= "extents" and kind ~= "init" and kind ~= "norm" and kind ~= "act"
    and not (f.name == "lengths") and not (f.text ~= "" and kind == "node")
  return "`" .. head .. "`", typed and " `" .. kind .. "`" or "", said
end

-- Writes the list of fields. A field with a description has its own line; neighbours without one
-- share a line.
local function field_lines(list)
  local plain = {}
  local function flush()
    if #plain > 0 then out("- " .. table.concat(plain, ", ")) end
    plain = {}
  end
  for _, f in ipairs(list) do
    local head, kind, said = field_head(f)
    local text = said and (f.text ~= "" and said .. "; " .. f.text or said) or f.text
    if text == "" then
      plain[#plain + 1] = head .. kind
    else
      flush()
      out("- " .. head .. kind .. ": " .. text)
    end
  end
  flush()
end

-- The defaults of an augmentation as the program writes them.
local function change_defaults(name)
  return set:augment { [name] = true }.steps:match("^" .. name .. " ([^\n]*)")
end

local function fields_of(class)
  if class.id ~= "seg.set.augment" then return field_lines(class.item.fields) end
  for _, f in ipairs(class.item.fields) do
    if f.name == "vary" then
      field_lines { f }
    else
      out("- `" .. f.name .. ": " .. change_defaults(f.name) .. "`"
          .. (f.text ~= "" and " " .. f.text or ""))
    end
  end
end

local function option_class(kind)
  local id = kind:match "^seg%.[%w_.]+$"
  local class = id and types.classes[id]
  return class and #class.fields > 0 and id ~= "seg.node" and not id:match "^seg%.array"
    and id ~= "seg.optimiser" and id ~= "seg.case.field" and class or nil
end

-- Result types that the page omits, as the functions of a section return the same type.
local USUAL = { T = true }
for _, name in ipairs { "node", "set", "optimiser", "schedule", "metric.one", "model",
                        "case.field" } do
  USUAL["seg." .. name] = true
end

-- Writes the entry of a function: call, results, text, parameters, options, example.
local function function_entry(names, item)
  local class, options
  local inner = {}
  for i, p in ipairs(item.params) do
    local o = i == #item.params and (option_class(p.type) or p.type:match "^{")
    if o and (p.name == "o" or p.name == "fields") then
      class = option_class(p.type)
      inner[#inner + 1] = class and "{ ... }" or type_text(p.type)
      options = true
    elseif p.name ~= "self" then
      inner[#inner + 1] = p.name .. (p.default and " = " .. p.default or "")
    end
  end
  local args = table.concat(inner, ", ")
  if options and #inner == 1 then args = " " .. args else args = "(" .. args .. ")" end
  local text = "`" .. names[1] .. args .. "`"
  for i = 2, #names do
    text = text .. (i == 2 and ", also `" or ", `") .. names[i]:match "[%w_]+$" .. "`"
  end
  local results, named = {}, false
  for _, r in ipairs(item.returns) do named = named or r.text ~= "" end
  for _, r in ipairs(item.returns) do
    local word = r.text:match "^%S+"
    if word then
      results[#results + 1] = word
    elseif named or not USUAL[r.type] then
      results[#results + 1] = "`" .. type_text(r.type) .. "`"
    end
  end
  if #results > 0 then text = text .. " → " .. table.concat(results, ", ") end
  local code
  local said = item.text:gsub("\n*(```.*)$", function(rest) code = rest return "" end)
  said = said:gsub("\n", " ")
  local list = {}
  for i, p in ipairs(item.params) do
    if p.text ~= "" and not (options and i == #item.params) then
      list[#list + 1] = { name = p.name, type = p.type, text = p.text }
    end
  end
  local after = ""
  if class and not nested(class, names[1]) then
    after = "Options: `" .. short(class.id) .. "`."
  elseif class and class.parent then
    after = "Options of `" .. short(class.parent) .. "`, and"
  end
  if said ~= "" then text = text .. ": " .. said end
  if after ~= "" then text = text .. (said:match "[%w`]$" and ". " or " ") .. after end
  out(text)
  local before = #lines
  out ""
  field_lines(list)
  if class and nested(class, names[1]) then fields_of(class) end
  if #lines > before + 1 then out "" end
  if code then
    out(code)
    out ""
  end
end

-- The parameters of "fun(x: seg.node, o?: seg.nn.loss): seg.node".
local function params_of(kind)
  local list = {}
  local args, rest = kind:match "^fun(%b())%s*:?%s*(.*)$"
  args = args:sub(2, -2)
  while args ~= "" do
    local name, optional, after = args:match "^([%w_.]+)(%??):%s*(.*)$"
    if not name then break end
    local type_, more = split_type(after)
    list[#list + 1] = { name = name, optional = optional ~= "", type = type_, text = "" }
    args = more:gsub("^,%s*", "")
  end
  return list, rest
end

-- Writes the functions among the fields of a class; neighbours of one type without text share an
-- entry.
local function function_fields(item)
  local prefix = item.class.id == "seg.array.module" and "seg.array"
    or item.class.id == "seg.array" and "array" or short(item.class.id)
  local sep = item.class.id == "seg.array" and ":" or "."
  local i = 1
  while i <= #item.fields do
    local f = item.fields[i]
    local fun = function_type(f.type)
    if fun then
      local names = { prefix .. sep .. f.name }
      while f.text == "" and item.fields[i + 1] and item.fields[i + 1].type == f.type
        and item.fields[i + 1].text == "" do
        i = i + 1
        names[#names + 1] = prefix .. sep .. item.fields[i].name
      end
      local params, rest = params_of(fun)
      local returns = {}
      if rest ~= "" then returns[1] = { type = (split_type(rest)), text = "" } end
      function_entry(names, { params = params, returns = returns, text = f.text })
    end
    i = i + 1
  end
end

-- Writes the entry of a class: an option table of several functions, or a class with a text.
local function class_entry(item)
  local class = item.class
  local by = users[class.id] or {}
  for _, name in ipairs(by) do
    if nested(class, name) then return end
  end
  if #by == 0 and not class.text or #item.fields == 0 and not class.text then return end
  if PLAIN[class.id] and not class.text then return end
  local plain = {}
  for _, f in ipairs(item.fields) do
    if not function_type(f.type) or class.id == "seg.schedule" then plain[#plain + 1] = f end
  end
  if #plain == 0 and not class.text then return end
  local text = "**`" .. short(class.id) .. "`**"
  if class.text then text = text .. ": " .. class.text:gsub("\n", " ") end
  if class.parent then text = text .. (class.text and " " or ": ") .. "Options of `"
    .. short(class.parent) .. "`, and" end
  out(text)
  out ""
  field_lines(plain)
  if #plain > 0 then out "" end
end

-- Writes the options of every recipe, from lua/recipe/config.lua, by the groups of the help.
local function option_table()
  out "## Options of every recipe"
  out ""
  out("Keys of `cfg` and options of the command line (`--seed 7`); a recipe may give them other "
      .. "defaults in `seg.config`. `segengine SCRIPT.lua --help` explains each, and adds the "
      .. "options of commands.")
  out ""
  local groups, list = { all = "data and network", train = "training",
                         machine = "processor and memory", ranks = "several processes" }, {}
  for _, row in ipairs(config.reserved) do
    local value, group = row[2], row.group or "all"
    local shown = value ~= nil and value ~= "" and " = " .. tostring(value) or ""
    list[group] = list[group] or {}
    table.insert(list[group], "`" .. row[1] .. shown .. "`")
  end
  for _, group in ipairs { "all", "train", "machine", "ranks" } do
    out("- " .. groups[group] .. ": " .. table.concat(list[group], ", "))
    list[group] = nil
  end
  assert(next(list) == nil, "a group of options without a heading: " .. tostring(next(list)))
  out ""
end

-- Networks of the table of sizes, with the extents of their input.
local SIZES = {
  { "net.unet(x)", "{ c = 1, h = 256, w = 256 }" },
  { "net.unet(x, { features = { 32, 64, 128, 256, 512 }, bias = true })",
    "{ c = 1, h = 256, w = 256 }" },
  { "net.unet(x, { features = { 32, 64, 128, 256 }, bias = true })",
    "{ c = 1, h = 256, w = 256 }" },
  { "net.unet(x, { residual = true, squeeze = 16, gates = true })",
    "{ c = 1, h = 256, w = 256 }" },
  { "net.unet(x, { norm = \"instance\", features = { 32, 64, 128, 256, 320 }, bottom = 320 })",
    "{ c = 1, d = 128, h = 128, w = 128 }" },
  { "net.unet(x, { levels = 3, deep = 2 })", "{ c = 1, w = 1024 }" },
  { "net.unet(x, { heads = 8 })", "{ c = 1, h = 256, w = 256 }" },
  { "net.nnunet(x, { encoder = \"plain\" })", "{ c = 1, d = 128, h = 128, w = 128 }" },
  { "net.nnunet(x)", "{ c = 1, d = 128, h = 128, w = 128 }" },
  { "net.mednext(x)", "{ c = 1, d = 128, h = 128, w = 128 }" },
  { "net.mednext(x, { size = \"L\", kernel = 5 })", "{ c = 1, d = 128, h = 128, w = 128 }" },
  { "net.unetr(x)", "{ c = 1, d = 96, h = 96, w = 96 }" },
  { "net.vit(x)", "{ c = 3, h = 224, w = 224 }" },
  { "net.vit(x, { width = 192, heads = 3 })", "{ c = 3, h = 224, w = 224 }" },
  { "net.pix2pix(x, { filters = 32 })", "{ c = 11, d = 128, h = 128, w = 128 }" },
  { "net.pix2pix(x)", "{ c = 11, d = 128, h = 128, w = 128 }" },
  { "net.resnet(x)", "{ c = 3, h = 224, w = 224 }" },
  { "net.resnet(x, { depth = 50 })", "{ c = 3, h = 224, w = 224 }" },
  { "net.pose_resnet(x)", "{ c = 3, h = 224, w = 224 }" },
  { "net.pose_cnn(x)", "{ c = 3, h = 112, w = 112 }" },
  { "net.cnn_lstm(x)", "{ c = 1024, w = 500 }" },
  { "net.mlp(x, { hidden = { 256, 128 }, dropout = 0.4, out = 5 })", "{ c = 512 }" },
}

local inputs = 0
local function input(o)
  inputs = inputs + 1
  return seg.nn.input("reference" .. inputs, o)
end

local function in_scope(f)
  inputs = inputs + 1
  return seg.nn.scope("reference" .. inputs, f)
end

-- Writes parameters and arithmetic of each network of SIZES as `plan` counts them.
local function size_table()
  out "## Sizes of networks"
  out ""
  out("As `plan` counts them. Parameters are those that are trained (PyTorch's `parameters()`); "
      .. "a multiplication and an addition are two operations.")
  out ""
  out "| call | input | parameters | with running statistics | GFLOP forward |"
  out "|---|---|---|---|---|"
  for _, row in ipairs(SIZES) do
    in_scope(function()
      local x = input(load("return " .. row[2])())
      local y, deep = load("local net, x = ... return " .. row[1])(seg.net, x)
      local plan = core.plan { roots = { y, table.unpack(deep or {}) }, device = "cpu",
                               inputs = { [x.name] = x.shape }, precision = "f32", threads = 1 }
      out(string.format("| `%s` | `%s` | %s | %s | %.4g |", row[1], row[2],
                        util.thousands(plan.trained), util.thousands(plan.trained + plan.running),
                        plan.flops / 1e9))
    end)
  end
  out ""
end

local HEAD = [[
# Reference of the Lua interface

Generated from `lua/types/*.d.lua`, which are also annotations for editors (LuaCATS), by
`segengine tests/lua/reference.lua --write`. A beginner reads [guide.md](guide.md) first. An entry
shows the call and its options as `name = default`. An unknown option is an error that names the
nearest; a mistake in the network is an error at the script's line, before any file is opened.

```lua
local seg = require "seg"
local data, nn, net, optim, metric = seg.data, seg.nn, seg.net, seg.optim, seg.metric
```
]]

-- The key under which a function shares an entry with its neighbours: arguments and results; nil
-- if it has a text of its own.
local function same(item)
  if item.kind ~= "function" or item.text ~= "" then return nil end
  local list = { item.args }
  for _, p in ipairs(item.params) do
    if p.text ~= "" then return nil end
    if p.name == "o" then
      local class = option_class(p.type)
      if not class or nested(class, item.name) then return nil end
      list[#list + 1] = class.id
    end
  end
  for _, r in ipairs(item.returns) do list[#list + 1] = r.type end
  return item.name:match "^%w+" .. table.concat(list, " ")
end

local function page()
  lines = {}
  local done = {} -- items that stand in the entry of another
  for line in (HEAD .. "\n"):gmatch "([^\n]*)\n" do out(line) end
  local shown = {} -- names that have an entry
  for i, item in ipairs(types.items) do
    local next_ = types.items[i + 1]
    if item.kind == "section" then
      if not (next_ and next_.kind == "section") then
        out("## " .. item.title)
        out ""
      end
    elseif item.kind == "text" then
      local code = item.text:match "```.*$"
      local said = code and item.text:sub(1, #item.text - #code) or item.text
      out((said:gsub("\n+$", ""):gsub("\n", " ")))
      out ""
      if code then
        out(code)
        out ""
      end
    elseif item.kind == "class" then
      if item.class.id ~= "seg" then class_entry(item) end
      if roots[short(item.class.id)] or item.class.id:match "^seg%.array" then
        function_fields(item)
      end
      if item.class.id == "seg.node" then
        local init = types.aliases["seg.init"]
        out("**extents**: " .. types.aliases["seg.extent"].text:gsub("\n", " "))
        out ""
        out("**init**: `" .. init.type:gsub("|", "`, `") .. "`. " .. init.text:gsub("\n", " "))
        out ""
      elseif item.class.id == "seg.net" then
        for _, name in ipairs { "norm", "act" } do
          local alias = types.aliases["seg.net." .. name]
          out("**" .. name .. "**: `" .. alias.type:gsub("|table$", ""):gsub("|", "`, `") .. "`. "
              .. alias.text)
          out ""
        end
      end
    elseif not done[i] then
      local names, args = { item.name }, same(item)
      shown[item.name] = true
      local k = i + 1
      while args and types.items[k] and same(types.items[k]) == args do
        names[#names + 1], done[k] = types.items[k].name, true
        shown[types.items[k].name] = true
        k = k + 1
      end
      function_entry(names, item)
      if item.name == "seg.search" then option_table() end
      if item.name == "net.self_attention" then size_table() end
    end
  end
  -- wraps text outside of code at 100 columns, with one empty line between paragraphs
  local wrapped, code = {}, false
  for _, line in ipairs(lines) do
    for part in (line .. "\n"):gmatch "([^\n]*)\n" do
      if part:match "^```" then code = not code end
      local indent = part:match "^%- " and "  " or ""
      if not code and not part:match "^|" then
        while utf8.len(part) > 100 do
          local cut
          for at in part:gmatch "() " do
            if utf8.len(part:sub(1, at - 1)) <= 100 and at > #indent + 1 then cut = at end
          end
          if not cut then break end
          wrapped[#wrapped + 1] = part:sub(1, cut - 1)
          part = indent .. part:sub(cut + 1)
        end
      end
      if part ~= "" or wrapped[#wrapped] ~= "" then wrapped[#wrapped + 1] = part end
    end
  end
  local text = table.concat(wrapped, "\n"):gsub("## [^\n]*\n\n(## )", "%1") -- without the empty
  return (text:gsub("\n+$", "") .. "\n"), shown
end

-- Comparing with the program --------------------------------------------------

local PAGE = "docs/reference.md"
local text, shown = page()

if arg[1] == "--write" then
  t.write(PAGE, text)
  print("wrote " .. PAGE)
  return
end

t.test(PAGE .. " is generated from lua/types", function()
  local have = t.read(PAGE)
  if have == text then return end
  local number, other = 0, (text .. "\n"):gmatch "([^\n]*)\n"
  for line in (have .. "\n"):gmatch "([^\n]*)\n" do
    number = number + 1
    local want = other() or "nothing"
    t.check(line == want, "%s:%d is\n%s\nwant\n%s\nfix: segengine tests/lua/reference.lua --write",
            PAGE, number, line, want)
  end
  t.check(false, "it ends early; fix: segengine tests/lua/reference.lua --write")
end)

for _, item in ipairs(types.items) do
  if item.kind == "class" then
    for _, f in ipairs(item.fields) do
      shown[(item.class.id == "seg" and "seg" or short(item.class.id)) .. "." .. f.name] = true
    end
  end
end

-- Options that the program sets itself.
local internal = { ["set:standardize.kind"] = true }

t.test("every public function is annotated and exists", function()
  for name, root in pairs(roots) do
    if name ~= "set" then
      for key in pairs(root) do
        local full = name .. "." .. key
        t.check(shown[full] or shown["seg." .. key], "%s is not in lua/types", full)
      end
    end
  end
  for full in pairs(shown) do
    local name, key = full:match "^(%w+)[.:]([%w_]+)$"
    if roots[name] and not full:match "^set%." then
      t.check(roots[name][key] ~= nil, "%s is in lua/types, but not in the program", full)
    end
  end
end)

local attributes

-- Arguments for a call of `item` before its options, by type.
local function arguments(item)
  local list, x = {}, input { c = 2, h = 8, w = 8 }
  for i, p in ipairs(item.params) do
    if i == #item.params then break end
    local kind = p.type
    if p.name == "t" or p.name == "target" then list[i] = input { c = 2, h = 8, w = 8 }
    elseif p.name == "structures" then list[i] = input { c = 3, h = 8, w = 8 }
    elseif p.name == "lengths" then list[i] = input { c = 1 }
    elseif kind == "seg.node" then
      list[i] = seg.nn.conv(x, 2, 1)
    elseif kind == "integer" or kind == "number" then list[i] = 2
    elseif kind == "seg.extent" then list[i] = 3
    elseif kind == "string" then list[i] = "reference" .. inputs
    elseif kind:match "^fun" then list[i] = function() return x end
    elseif kind:match "%[%]$" then list[i] = {}
    end
  end
  return list
end

-- All fields of an option class and its parents, by name.
local function all_fields(class)
  local list = class.parent and all_fields(types.classes[class.parent]) or {}
  for _, f in ipairs(class.fields) do list[f.name] = f end
  return list
end

local function value_text(v)
  if math.type(v) then return string.format("%.9g", v) end
  if type(v) ~= "table" then return type(v) .. " " .. tostring(v) end
  local list = {}
  for _, key in ipairs(util.sorted_keys(v)) do
    list[#list + 1] = (math.type(key) and "" or key .. "=") .. value_text(v[key])
  end
  return "{" .. table.concat(list, ",") .. "}"
end

-- The attributes of a step of data/steps/steps.def with their defaults, from the text of the step.
local needed = { resample = { spacing_mm = 1 }, fit = { d = 1 }, resize = { d = 1 },
                 patches = { d = 1 }, select = { labels = { 1 } }, clamp = { range = { 0, 1 } },
                 standardize = { field = "x", mean = { 0 }, sd = { 1 }, clip = { 1, 99 },
                                 low = { 0 }, high = { 1 } } }
function attributes(name)
  name = name:match "[%w_]+$"
  if name == "augment" then
    local known = { vary = util.none }
    for _, f in ipairs(types.classes["seg.set.augment"].fields) do
      if f.name ~= "vary" then known[f.name] = change_defaults(f.name) and util.none end
    end
    return known
  end
  local steps = set[name](set, needed[name] or {}).steps
  local known = {}
  for key, value in steps:gmatch " ([%w_]+)=(%S*)" do
    local list = {}
    for number in value:gmatch "[^,]+" do list[#list + 1] = tonumber(number) end
    known[key] = util.none
    if not (needed[name] and needed[name][key]) then
      if value:find(",", 1, true) then known[key] = list
      elseif tonumber(value) then known[key] = tonumber(value)
      elseif value == "true" or value == "false" then known[key] = value == "true"
      elseif value ~= "" then known[key] = value end
    end
  end
  return known
end

local compared = 0
local function check_options(name, f, item, self)
  local class = option_class(item.params[#item.params].type)
  if not class then return end
  t.test("options of " .. name, function()
    inputs = inputs + 1
    local fields, said = all_fields(class), nil
    in_scope(function()
      probe.o = {}
      local args = arguments(item)
      if self then table.insert(args, 1, self) end
      args[#args + 1] = probe.o
      local _, why = probed(f, table.unpack(args))
      said = why
      -- each format of a phantom has its own options; the default format has the defaults
      local known = name == "data.phantom" and probe.seen
      for format in (known and fields.format.type or ""):gmatch '"(%l+)"' do
        probe.o = { format = format }
        probed(f, probe.o)
        for key in pairs(probe.seen) do
          if known[key] == nil then known[key] = util.none end
        end
      end
      probe.seen = known or probe.seen
    end)
    if not probe.seen and self then probe.seen = attributes(name) end
    if not probe.seen then t.skip("it has no table of options of its own: " .. tostring(said)) end
    compared = compared + 1
    for key, value in pairs(probe.seen) do
      local field = fields[key]
      t.check(field or internal[name .. "." .. key], "%s: the option %s is not in lua/types", name,
              key)
      if field and field.default and value ~= util.none then
        local ok, want = pcall(load("return " .. field.default) or error)
        if ok and want ~= nil then
          t.equal(value_text(want), value_text(value), name .. ": default of " .. key)
        end
      end
    end
    for key in pairs(fields) do
      t.check(probe.seen[key] ~= nil, "%s has no option %s", name, key)
    end
  end)
end

for _, item in ipairs(types.items) do
  if item.kind == "function" and #item.params > 0 then
    local name, sep, key = item.name:match "^(%w+)([.:])([%w_]+)$"
    local root = roots[name]
    if root then check_options(item.name, root[key], item, sep == ":" and root or nil) end
  elseif item.kind == "class" then
    for _, f in ipairs(item.fields) do
      local fun = function_type(f.type)
      local root = roots[short(item.class.id)]
      if fun and root then
        local params = params_of(fun)
        if #params > 0 then
          check_options(short(item.class.id) .. "." .. f.name, root[f.name], { params = params })
        end
      end
    end
  end
end

t.test("the options were compared", function()
  t.check(compared >= 40, "of %d functions", compared)
end)

t.finish()
