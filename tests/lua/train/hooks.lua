-- hooks.lua -- functions of a recipe that training calls: what they get and may do, the same bits
-- with and without them and after a resume, and what happens when they fail.

local t = dofile("tests/support/harness.lua")
local core = require "seg.core"
local hook_state = require "seg.train.hook_state"

local folder, remove = t.folder()
local device = os.getenv "SEG_TEST_DEVICE" or "cpu"
local places = " --phantom " .. folder .. "/phantom --device " .. device

-- The fields of a recipe come from a text, so that all variants share network and data.
local BASE = [[
local seg = require "seg"
local data, nn, optim, metric = seg.data, seg.nn, seg.optim, seg.metric
local cfg = seg.config { batch = 4, epochs = 3, lr = 1e-2 }
local function prepare(set) return set:normalize {}:slices { axis = "axial" } end
local train, valid = data.phantom { patients = 6, size = 16, slices = 5 }:split { valid = 2,
                                                                                 seed = 1 }
train = prepare(train):augment { flip = true, noise = true }
valid = prepare(valid):batches { size = 4 }
local image = nn.input("image", { c = 1, h = 16, w = 16 })
local truth = nn.input("mask", { c = 1, h = 16, w = 16 })
local logits = nn.conv(nn.relu(nn.batch_norm(nn.conv(image, 4, 3))), 1, 1, { name = "head" })
local r = {
  inputs = { image, truth }, outputs = { mask = nn.sigmoid(logits) },
  loss = nn.bce_dice(logits, truth), train = train:batches { size = cfg.batch, shuffle = true },
  valid = valid, optim = optim.adamw { lr = cfg.lr },
  metrics = { dice = metric.dice(logits, truth) },
}
local break_now = os.getenv "BREAK"
local function broken(where)
  if break_now ~= where then return end
  if os.getenv "KILL" then os.execute "kill -9 $PPID" end
  error "the hook is broken"
end
-- hooks that use everything
local function all()
  r.on_batch = function(at)
    at.state.steps = (at.state.steps or 0) + 1
    at.state.sum = (at.state.sum or 0.0) + (at:loss() or 0)
    at.lr = at.lr * (1 - at.batch / 20)
    if at.epoch == 2 and at.batch == 3 then broken "on_batch" end
  end
  r.on_valid = function(at)
    at.state.valid = at.state.valid or {}
    at.state.valid[#at.state.valid + 1] = at.valid_loss
    if at.epoch == 2 then broken "on_valid" end
  end
  r.on_epoch = function(at)
    at:column("gap", at.valid_loss - at.train_loss)
    at:column("sum", at.state.sum)
    at.lr = at.lr * 0.5
    if at.epoch == 2 then broken "on_epoch" end
  end
  r.on_save = function(at) if at.epoch == 2 then broken "on_save" end end
end
]]

local count = 0
-- A script with these further lines; its path.
local function script(lines)
  count = count + 1
  os.execute("mkdir -p " .. folder .. "/" .. count)
  return t.write(folder .. "/" .. count .. "/hooked.lua", BASE .. lines .. "\nseg.recipe(r)\n")
end

-- Runs a script in a folder of its own. -> the run's folder, output, code
local function train(path, options, before)
  local out = path:match("^(.*)/") .. "/out"
  local code, said = t.program(path .. places .. " --out " .. out .. " " .. (options or ""), before)
  return out .. "/hooked/001", said, code
end

local function trained(path, options, before)
  local run, said, code = train(path, options, before)
  t.equal(code, 0, said:sub(-400))
  return run, said
end

local function last(run) return t.read(run .. "/checkpoint_last.safetensors") end

-- The tensors of a checkpoint, without its metadata.
local function tensors(run)
  local bytes = last(run)
  return bytes:sub(9 + string.unpack("<I8", bytes))
end

-- The rows of metrics.csv as { column = text }.
local function rows(run)
  local list, head = {}, nil
  for line in t.read(run .. "/metrics.csv"):gmatch("[^\n]+") do
    local cells, row = {}, {}
    for cell in (line .. ","):gmatch("([^,]*),") do cells[#cells + 1] = cell end
    for i, name in ipairs(head or {}) do row[name] = cells[i] end
    if head then list[#list + 1] = row end
    head = head or cells
  end
  return list
end

t.test("hooks that do nothing change no bit", function()
  local plain = trained(script "")
  local idle = trained(script [[
for _, name in ipairs { "on_batch", "on_epoch", "on_valid", "on_save" } do
  r[name] = function() end
end]])
  t.equal(tensors(plain), tensors(idle), "the tensors")
  local without = core.checkpoint.meta(plain .. "/checkpoint_last.safetensors")
  t.equal(without.hook_state, nil, "state of a recipe without hooks")
  t.equal(without.hook_numbers, nil, "numbers of a recipe without hooks")
  for i, row in ipairs(rows(plain)) do
    for _, name in ipairs { "lr", "train_loss", "valid_loss", "valid_dice", "train_dice" } do
      t.equal(rows(idle)[i][name], row[name], name)
    end
  end
end)

local whole -- the uninterrupted run of all()

t.test("hooks see the run, set rates and add columns", function()
  whole = trained(script "all()")
  local list = rows(whole)
  t.near(tonumber(list[1].lr), 1e-2 * 0.75, 1e-9, "the rate of the last step")
  t.near(tonumber(list[2].lr), 1e-2 * 0.75 * 0.5 * 0.75, 1e-9, "half of it, and then 3/4")
  for i, row in ipairs(list) do
    t.near(tonumber(row.gap), row.valid_loss - row.train_loss, 1e-9, "gap of epoch " .. i)
  end
  local meta = core.checkpoint.meta(whole .. "/checkpoint_last.safetensors")
  local state = hook_state.read(meta.hook_state)
  t.equal(state.steps, 15)
  t.equal(#state.valid, 3)
  t.near(state.valid[3], tonumber(list[3].valid_loss), 0)
  t.near(state.sum, tonumber(list[3].sum), 0)
end)

t.test("a run that is killed in a hook and resumed has the same bytes", function()
  local path = script "all()"
  for _, hook in ipairs { "on_batch", "on_valid", "on_epoch", "on_save" } do
    os.execute("rm -rf " .. path:match("^(.*)/") .. "/out")
    local run, _, code = train(path, "", "export KILL=1 BREAK=" .. hook .. "; ")
    t.equal(code, 137, "the code of a killed run")
    trained(path, "--resume auto")
    t.check(last(run) == last(whole), "killed in " .. hook)
    for i, row in ipairs(rows(whole)) do
      for _, name in ipairs { "lr", "train_loss", "valid_loss", "train_dice", "gap", "sum" } do
        t.equal(rows(run)[i][name], row[name], hook .. ": " .. name)
      end
    end
  end
end)

t.test("a run that stops between two steps and resumes has the same bytes", function()
  local path = script "all()"
  trained(path, "--steps 7")
  local run = trained(path, "--resume auto --steps 0")
  t.check(last(run) == last(whole))
end)

t.test("a hook that fails is named with its line, and the run is saved and resumes", function()
  local path = script "all()"
  local _, line = BASE:match("^(.*)error \"the hook"):gsub("\n", "\n")
  for _, e in ipairs { { "on_batch", "epoch 2, batch 3" }, { "on_valid", "epoch 2, batch 6" },
                       { "on_epoch", "epoch 2, batch 6" }, { "on_save", "saved at epoch 3" } } do
    os.execute("rm -rf " .. path:match("^(.*)/") .. "/out")
    local run, said, code = train(path, "", "export BREAK=" .. e[1] .. "; ")
    t.equal(code, 1, said)
    t.check(said:find(string.format("hooked.lua:%d: the hook is broken (%s)", line + 1, e[1]), 1,
                      true), said:sub(-500))
    t.check(said:find(e[2], 1, true) and said:find("--resume " .. run, 1, true), said:sub(-500))
    trained(path, "--resume auto")
    t.check(last(run) == last(whole), "resumed after " .. e[1])
  end
end)

t.test("an on_save that fails is told also after the last epoch", function()
  for epoch, at in pairs { [1] = "saved at epoch", [3] = "saved at epoch 4, batch 1" } do
    local path = script(string.format(
      "r.on_save = function(at) if at.epoch == %d and os.getenv 'BREAK' then error 'no' end end",
      epoch))
    local _, said, code = train(path, "", "export BREAK=1; ")
    t.equal(code, 1, said)
    t.check(said:find("no (on_save); " .. at, 1, true), said:sub(-300))
    local run = trained(path, "--resume auto")
    t.equal(#rows(run), 3)
    t.check(core.sys.stat(run .. "/summary.json"))
  end
end)

t.test("hostile hooks are refused by name", function()
  for body, want in pairs {
    ["on_batch = function(at) at.lr = 0 / 0 end"] = "at.lr must be a number >= 0, got",
    ["on_batch = function(at) at.lr = -1 end"] = "at.lr must be a number >= 0, got -1",
    ["on_epoch = function(at) at.lr = 1e999 end"] = "at.lr must be a number >= 0, got inf",
    ["on_batch = function(at) at.lr = nil end"] = "at.lr must be a number >= 0, got nil",
    ["on_batch = function(at) at.epoch = nil end"] = "at.epoch cannot be set, only at.lr",
    ["on_epoch = function(at) for k in pairs(at) do at[k] = nil end end"] = "(on_epoch)",
    ["on_valid = function(at) at.lr = 1 end"] = "at.lr cannot be set; what a hook keeps",
    ["on_batch = function(at) at.state = nil end"] = "at.state must be a table, got nil",
    ["on_save = function(at) return at.state.n end"] = "on_save has no at.state",
    ["on_batch = function(at) return at.los end"] = "on_batch has no at.los; did you mean \"loss\"",
    ["on_batch = function(at) return false end"] = "on_batch returned a boolean, wanted nothing",
    ["on_epoch = function(at) return at.metrics end"] = "on_epoch returned a table",
    ["on_batch = function(at) at.state.f = print end"] = "at.state.f is a function, which a check",
    ["on_epoch = function(at) at.state.a = at:get 'head.bias' end"] = "at.state.a is a userdata",
    ["on_batch = function(at) at.state.me = at.state end"] = "at.state.me is the same table as at",
    ["on_batch = function(at) at.state[true] = 1 end"] = "at.state has a boolean as a key",
    ["on_batch = function(at) at.state.x = ('x'):rep(1 << 21) end"] = "wanted at most 1.0 MiB",
    ["on_batch = function(at) local function f() return 1 + f() end f() end"] = "stack overflow",
    ["on_batch = function() error({}) end"] = "an error that is a table, not a text",
    ["on_batch = function() error() end"] = "an error that is a nil, not a text",
    ["on_epoch = function(at) at:column('lr', 1) end"] = "metrics.csv has a column lr of its own",
    ["on_epoch = function(at) at:column('a,b', 1) end"] = "must be letters, digits and _",
    ["on_epoch = function(at) at:column('a', 'b') end"] = "a must be a number, got string",
    ["on_epoch = function(at) at.column('a', 1) end"] = "write a colon, at:column(...)",
    ["on_batch = function(at) at:get(nil) end"] = "must be a text, got nil",
    ["on_batch = function(at) at:get 'none' end"] = 'the network has no parameter "none"',
    ["on_batch = function(at) at:set('head.bias', 3) end"] =
      "at:set: the value of head.bias must be a seg.array, got number",
    ["on_batch = function(at) at:set('head.bias') end"] = "must be a seg.array, got nil",
    ["on_batch = function(at) at:stop(7) end"] = "the reason must be a text, got number",
    ["on_batch = function(at) at:stop(('x'):rep(201)) end"] = "at most 200 bytes, got 201 bytes",
    ["on_batch = function(at) at:stop 'a\\0' end"] = "got 2 bytes with a control character",
    ["on_batch = function(at) error 'a\\0b\\27[31m' end"] = "a\\x00b\\x1b[31m (on_batch)",
    ["on_batch = function(at) if kept then kept:loss() end kept = at end"] =
      "this table is valid during its call of on_batch only",
  } do
    local path = script("r." .. body)
    local _, said, code = train(path)
    t.equal(code, 1, body .. ": " .. said:sub(-300))
    t.check(said:find(want, 1, true), body .. ": " .. said:sub(-400))
    t.check(said:find("\nsegengine: [^\n]*hooked%.lua:%d+: "), body .. ": " .. said:sub(-400))
    t.check(said:find("continue with --resume", 1, true), body)
  end
end)

t.test("mistakes in the recipe are found when it is read", function()
  for body, want in pairs {
    ["r.on_batch = 3"] = "on_batch must be a function of a table, got number",
    ["r.on_save = 'mail me'"] = "commands of the shell are --on_finish",
    ["r.valid, r.on_valid = nil, print"] = "the recipe has no valid set; use on_epoch",
    ["r.on_bach = print"] = 'unknown option "on_bach"; did you mean "on_batch"',
  } do t.says(script(body) .. " plan", 2, want) end
end)

t.test("each hook can end the training, and the run is finished", function()
  for hook, epochs in pairs { on_batch = 2, on_valid = 2, on_epoch = 2 } do
    local when = hook == "on_batch" and "at.epoch == 2 and at.batch == 3" or "at.epoch == 2"
    local path = script(string.format(
      "r.%s = function(at) if %s then at:stop 'enough' end end", hook, when))
    local run, said = trained(path)
    t.equal(#rows(run), epochs, hook)
    t.check(said:find(hook .. " ends the training", 1, true) and said:find("enough", 1, true), said)
    t.equal(rows(run)[2].step, hook == "on_batch" and "8" or "10", hook)
    t.check(t.read(run .. "/summary.json"):find('"stopped_early": true', 1, true))
  end
end)

t.test("with accumulation a hook is called before each step, which it can end with", function()
  local run, said = trained(script [[
r.accumulate = 2
r.on_batch = function(at)
  print("batch", at.batch, at.step, at:loss() ~= nil)
  if at.step == 5 then at:stop() end
end]])
  local seen = {}
  for batch, step in said:gmatch "batch\t(%d)\t(%d)" do seen[#seen + 1] = batch .. "/" .. step end
  t.equal(table.concat(seen, " "), "1/1 3/2 5/3 1/4 3/5")
  t.equal(rows(run)[2].step, "5")
end)

t.test("phases share the state, and one without a valid set has no on_valid", function()
  local run = trained(script [[
r.phases = { { epochs = 1, valid = false }, { epochs = 2, on_batch = false } }
r.on_batch = function(at) at.state.steps = (at.state.steps or 0) + 1 end
r.on_valid = function(at) at.state.validated = (at.state.validated or 0) + 1 end]])
  local meta = core.checkpoint.meta(run .. "/checkpoint_last.safetensors")
  local state = hook_state.read(meta.hook_state)
  t.equal(state.steps, 5)
  t.equal(state.validated, 2)
end)

t.test("a hook ends its phase", function()
  local run, said = trained(script [[
r.phases = { { epochs = 2 }, { epochs = 1 } }
r.on_batch = function(at) if at.phase == 1 and at.step == 2 then at:stop() end end]])
  t.check(said:find("on_batch ends the phase in epoch 1", 1, true), said)
  t.equal(rows(run)[1].step, "2")
  t.equal(rows(run)[2].phase .. " " .. rows(run)[2].step, "2 7")
end)

t.test("weights that a hook sets are trained on", function()
  local run, said = trained(script [[
r.on_batch = function(at)
  if at.step == 3 then at:set("head.bias", seg.array { shape = { 1 }, data = { 7 } }) end
  if at.step == 3 then print("bias", at:get("head.bias"):get(1), at:parameters()["head.bias"]) end
  at.lr = 0
end]])
  t.check(said:find("bias\t7.0", 1, true), said)
  t.equal(hook_state.read(core.checkpoint.meta(run .. "/checkpoint_last.safetensors")
                            .hook_numbers).numbers.lr, 0, "the rate")
end)

t.test("ranks call hooks alike, and a rank that sets another rate is refused", function()
  local path = script "all()"
  local run = trained(path, "--ranks 2 --device cpu")
  local one = rows(whole)
  for i, row in ipairs(rows(run)) do
    t.near(tonumber(row.train_loss), tonumber(one[i].train_loss), 1e-4, "epoch " .. i)
    t.equal(row.lr, one[i].lr)
  end
  local _, said, code = train(script [[
r.on_batch = function(at) at.lr = io.open("/proc/self/stat"):read "n" end]],
                              "--ranks 2 --device cpu")
  t.check(code ~= 0 and said:find("it must depend on the run alone", 1, true), said:sub(-400))
  _, said, code = train(script [[
r.on_batch = function(at)
  local own = seg.array { shape = { 1 }, data = { io.open("/proc/self/stat"):read "n" } }
  at:set("head.bias", own)
end]], "--ranks 2 --device cpu")
  t.check(code ~= 0 and said:find("a hook must set the same arrays on all ranks", 1, true),
          said:sub(-400))
end)

t.test("a hook that fails on one rank has changed the state of none", function()
  local flag = t.write(folder .. "/flag", "")
  local path = script(string.format([[
r.on_batch = function(at)
  at.state.n = (at.state.n or 0) + 1
  if at.step == 3 and os.remove(%q) then error "one of them" end
end]], flag))
  local run, said, code = train(path, "--ranks 2 --device cpu")
  t.check(code ~= 0 and said:find("one of them (on_batch); saved at epoch 1, batch 3", 1, true),
          said:sub(-400))
  local file = run .. "/checkpoint_last.safetensors"
  t.equal(hook_state.read(core.checkpoint.meta(file).hook_state).n, 2)
  trained(path, "--ranks 2 --device cpu --resume auto")
  t.equal(hook_state.read(core.checkpoint.meta(file).hook_state).n, 15)
end)

t.test("the hooks of training.md can be copied", function()
  local block = t.read("docs/training.md"):match("\n## Hooks.-```lua\n(.-)\n```")
  local lines, n = block:gsub("seg.recipe { ..., on_batch = on_batch, on_epoch = on_epoch }",
                              "r.on_batch, r.on_epoch = on_batch, on_epoch")
  t.equal(n, 1)
  local run = trained(script(lines))
  t.check(rows(run)[3].gap ~= "")
  local meta = core.checkpoint.meta(run .. "/checkpoint_last.safetensors")
  t.check(hook_state.read(meta.hook_state).mean > 0)
end)

-- The text of a state ------------------------------------------------------------

t.test("a state is read as it was written", function()
  local state = { n = 1, x = 0.1, inf = math.huge, least = math.mininteger, [3] = "a",
                  [-0.5] = true,
                  text = 'quotes " and \\ and \n and \0 and \xff', empty = {}, deep = { { { 1 } } },
                  ["a key, with = and }"] = false, minus = -0.0, whole = 3.0 }
  local text = hook_state.write(state)
  t.check(text:find("^[ -~]*$"), "ASCII only")
  local back = hook_state.read(text)
  t.equal(hook_state.write(back), text)
  for _, key in ipairs { "n", "x", "inf", "least", "text", "whole", 3, -0.5,
                         "a key, with = and }" } do
    t.equal(back[key], state[key], tostring(key))
    t.equal(math.type(back[key]), math.type(state[key]), tostring(key))
  end
  t.equal(1 / back.minus, -math.huge)
  t.equal(back.deep[1][1][1], 1)
  local nan = hook_state.read(hook_state.write { x = 0 / 0 }).x
  t.check(nan ~= nan)
  t.equal(hook_state.write {}, "")
  t.equal(next(hook_state.read ""), nil)
end)

t.test("what a checkpoint cannot hold is told by its name", function()
  local deep = {}
  for _ = 1, 40 do deep = { deep } end
  local twice = { 1 }
  for want, state in pairs {
    ["nested deeper than 32 tables"] = { deep = deep },
    ["at.state.list[2] is a table with a metatable"] = { list = { 1, setmetatable({}, {}) } },
    ["at.state.b is the same table as at.state.a"] = { a = twice, b = twice },
    ["at.state.a.b[1.5] is a thread"] = { a = { b = { [1.5] = coroutine.create(print) } } },
  } do
    local text, why = hook_state.write(state)
    t.equal(text, nil)
    t.check(why:find(want, 1, true), why)
  end
end)

t.test("a state that is damaged is refused and never run", function()
  for _, text in ipairs { "{", "}", "{1}", "{1=}", "{1=2", '{"a=1}', "{1=2}x", "{nan=1}", "{{}=1}",
                          "os.exit()", "{1=os}", ("{1="):rep(99) .. "1" .. ("}"):rep(99), "7" } do
    local ok, why = pcall(hook_state.read, text)
    t.check(not ok and why:find("state of hooks cannot be read", 1, true), text)
  end
end)

remove()
t.finish()
