-- report.lua -- the page of a run: its contents, when it is written, and the names in it.

local t = dofile("tests/support/harness.lua")
local page = require "seg.report.page"
local report = require "seg.report.report"
local samples = require "seg.train.samples"
local folder, remove = t.folder()

local brain = "scripts/brain_unet.lua --preset check --quiet --phantom " .. folder .. "/phantom"
local run = folder .. "/runs/brain_unet/001"

-- The output of tests/support/page.py for a page; nil without Python.
local function judge(path)
  return t.lines("command -v python3 > /dev/null && python3 tests/support/page.py " .. path)[1]
end

t.test("text and pictures of a page", function()
  t.equal(page.text('<a href="x">&\1'), "&lt;a href=&quot;x&quot;&gt;&amp; ")
  t.equal(page.lines("a\r\nb\tc\0"), "a\nb\tc ")
  for text, code in pairs { [""] = "", f = "Zg==", fo = "Zm8=", foo = "Zm9v", foobar = "Zm9vYmFy",
                            ["\0\255\254"] = "AP/+" } do
    t.equal(page.base64(text), code) -- the vectors of RFC 4648, and bytes that are not text
  end
  t.equal(page.table({ "a", "b" }, { { "<", { html = "<b>x</b>", class = "ok" } } }, 2),
          '<div class="wide"><table><thead><tr><th>a</th><th class="number">b</th></tr></thead>'
          .. '<tbody>\n<tr><td>&lt;</td><td class="ok"><b>x</b></td></tr>\n</tbody></table></div>')
end)

t.test("samples: few of a long run, all of a short one", function()
  local list = {}
  for epoch = 1, 120 do
    if samples.wanted(epoch, 120) then list[#list + 1] = epoch end
  end
  t.equal(table.concat(list, " "), "1 2 5 10 20 50 100 120")
  t.check(samples.wanted(200, 1000) and not samples.wanted(300, 1000))
end)

t.test("a run's report has everything in it", function()
  t.says(brain .. " --out " .. folder .. "/runs --epochs 3", 0, "dice per case")
  local text = t.read(run .. "/report.html")
  for _, part in ipairs {
    'brain_unet <span>/ 001</span>', ">finished<", "epoch 3 of 3", ">Curves<", ">valid dice<",
    ">learning rate<", ">epoch 1<", ">epoch 2<", ">epoch 3<", ">dice<", "empty cases left out",
    ">train</td><td class=\"number\">4</td>", "normalize method=zscore", ">wait<", ">update<",
    ">save<", "values, gradients of them, workspace", "+0.0 %", "enc1.conv1", "122,021 trained",
    "<dt>t_max</dt><dd>1</dd>", "local cfg = seg.config", "--preset check",
    "Research use only", "prefers-color-scheme: dark",
  } do
    t.check(text:find(part, 1, true), "%s is missing", part)
  end
  t.check(not text:find(folder, 1, true), "a path in the report")
  t.check(text:find('<i style="background:#56b4e9"></i>truth', 1, true)
          and text:find('<i class="line" style="border-color:#e69f00"></i>prediction', 1, true))
  -- six tiles in a row, or three; not five and one
  t.check(text:find('<div class="cards" style="--wide:6;--half:3">', 1, true), "tiles")
  local log = t.read(run .. "/log.txt")
  local last = string.format("\nreport: %s/report.html\nnext: segengine scripts/brain_unet.lua "
                             .. "predict --weights %s --in NEW --out RESULTS\ndone: %s\n", run,
                             run, run)
  t.equal(log:sub(-#last), last)
  -- three epochs of one case of valid, one overlay
  local said = judge(run .. "/report.html")
  if said then t.equal(said, "bad [], open [], 4 images") end
  local _, count = text:gsub('src="data:image/png;base64,', "")
  t.equal(count, 4)
end)

t.test("stopped, then resumed: one report of both", function()
  local line = brain .. " --out " .. folder .. "/cut --epochs 3 --save_every 1"
  local cut = folder .. "/cut/brain_unet/001"
  t.says(line .. " --steps 8", 0, "")
  local text = t.read(cut .. "/report.html")
  t.check(text:find(">stopped<", 1, true) and text:find("epoch 1 of 3", 1, true), text:sub(1, 9000))
  -- a picture of an epoch that the checkpoint does not contain is removed
  local name = require("seg.core").sys.list(cut .. "/samples")[1]
  local case = name:match("^%x+")
  t.write(cut .. "/samples/" .. case .. "_00007.png", "left over")
  t.says(line .. " --steps 0 --resume " .. cut, 0, "")
  text = t.read(cut .. "/report.html")
  t.check(text:find(">finished<", 1, true) and text:find("epoch 3 of 3", 1, true))
  t.check(text:find("start 2", 1, true) and text:find(": stopped<", 1, true), "both starts")
  t.equal(io.open(cut .. "/samples/" .. case .. "_00007.png"), nil)
  t.check(text:find(">epoch 1<", 1, true), "the picture of before")
end)

t.test("a run without validation, test or metrics has a report too", function()
  local script = t.write(folder .. "/bare.lua", [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { epochs = 2, batch = 4, quick = false }
local set = seg.data.phantom { patients = 2, size = 32, slices = 6, root = "]] .. folder
  .. [[/bare", format = "nifti" }:normalize {}:slices {}:batches { size = cfg.batch }
local extents = { c = 1, h = 32, w = 32 }
local x, y = nn.input("image", extents), nn.input("mask", extents)
local logits = nn.conv(x, 1, 3)
seg.recipe { inputs = { x, y }, outputs = { mask = nn.sigmoid(logits) }, loss = nn.bce(logits, y),
             train = set, optim = seg.optim.sgd { lr = 0.1 }, epochs = cfg.epochs }
]])
  t.says(script .. " --quiet --out " .. folder .. "/bare_runs", 0, "")
  local path = folder .. "/bare_runs/bare/001/report.html"
  local text = t.read(path)
  t.check(text:find(">finished<", 1, true) and not text:find(">Samples<", 1, true))
  local said = judge(path)
  if said then t.equal(said, "bad [], open [], 0 images") end
end)

-- A regression target: image, truth and prediction side by side.
t.test("samples of a regression", function()
  local core = require "seg.core"
  for i = 1, 4 do
    for _, name in ipairs { "x", "dose" } do
      local a = core.array.random({ 24, 32 }, i, false)
      core.array.save(string.format("%s/%s%d.npy", folder, name, i), a)
    end
  end
  t.write(folder .. "/t.csv", "who,x,dose\np1,x1.npy,dose1.npy\np2,x2.npy,dose2.npy\n"
          .. "p3,x3.npy,dose3.npy\np4,x4.npy,dose4.npy\n")
  local script = t.write(folder .. "/dose.lua", [[
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { epochs = 2, batch = 1 }
local set = seg.data.csv { root = "]] .. folder .. [[", table = "t.csv", patient = "who",
  fields = { { name = "x", read = "npy", rank = 2, column = "x" },
             { name = "dose", read = "npy", rank = 2, column = "dose" } } }
local train, valid = set:split { valid = 2, test = 0 }
local x = nn.input("x", { c = 1, h = 24, w = 32 })
local dose = nn.input("dose", { c = 1, h = 24, w = 32 })
local y = nn.conv(x, 1, 3)
seg.recipe { inputs = { x, dose }, outputs = { dose = y }, loss = nn.mse(y, dose), train = train,
             valid = valid, optim = seg.optim.sgd { lr = 0.1 }, epochs = cfg.epochs }
]])
  t.says(script .. " --quiet --out " .. folder .. "/dose_runs", 0, "")
  local path = folder .. "/dose_runs/dose/001"
  local names = core.sys.list(path .. "/samples")
  t.equal(#names, 4) -- two cases, two epochs
  local w, h = string.unpack(">I4I4", t.read(path .. "/samples/" .. names[1]), 17)
  t.equal(w .. " " .. h, 3 * 256 .. " " .. 24 * 8)
  t.check(t.read(path .. "/report.html"):find("image, truth and prediction of cases", 1, true))
end)

-- Pictures that are bright or dark, some labelled as the other class: the confusion matrix, the
-- wrong ones with their pictures, and no section for volumes.
t.test("the report of a network of classes", function()
  local core = require "seg.core"
  local rows = { "who,path,label" }
  for i = 1, 24 do
    local bright = i % 2
    local a = core.array.zeros { 8, 8 }
    for y = 1, 8 do for x = 1, 8 do a:set(2 * bright - 1 + 0.001 * i * (x - y), y, x) end end
    core.array.save(string.format("%s/class%d.npy", folder, i), a)
    rows[i + 1] = string.format("p%d,class%d.npy,%d", i, i, i > 22 and 1 - bright or bright)
  end
  t.write(folder .. "/classes.csv", table.concat(rows, "\n") .. "\n")
  local script = t.write(folder .. "/classes.lua", [[
local seg = require "seg"
local nn, metric = seg.nn, seg.metric
local cfg = seg.config { epochs = 8, batch = 4 }
local set = seg.data.csv { root = "]] .. folder .. [[", table = "classes.csv", patient = "who",
  fields = { { name = "image", read = "npy", rank = 2, column = "path" },
             { name = "label", kind = "numbers", column = "label" } } }
local train, valid, test = set:split { valid = 2, test = { "p21", "p22", "p23", "p24" } }
local x, label = nn.input("image", { c = 1, h = 8, w = 8 }), nn.input("label", { c = 1 })
local logits = nn.linear(nn.global_pool(nn.conv(x, 2, 1)), 2)
seg.recipe { inputs = { x, label }, outputs = { label = nn.softmax(logits) },
             loss = nn.cross_entropy(logits, label), train = train:batches { size = cfg.batch },
             valid = valid, test = test, optim = seg.optim.adam { lr = 0.1 }, epochs = cfg.epochs,
             metrics = { accuracy = metric.accuracy(logits, label),
                         confusion = metric.confusion(logits, label) },
             best = { "accuracy", "max" }, predict = { names = { "dark", "bright" } } }
]])
  local said = t.says(script .. " --quiet --out " .. folder .. "/class_runs", 0, "taken for")
  -- two of each class, one of them labelled as the other
  t.check(said:find("dark +1 +1\nbright +1 +1"), said)
  local row = "%x+ +%a+ +%a+ +([%d.]+)\n"
  local first, second = said:match("probability\n" .. row .. row)
  t.check(tonumber(first) >= tonumber(second) and tonumber(second) >= 0.5, said)
  local path = folder .. "/class_runs/classes/001"
  local html, log = t.read(path .. "/report.html"), t.read(path .. "/log.txt")
  t.check(log:find("dark +1 +1\nbright +1 +1"), log)
  t.check(html:find('<td>dark</td><td class="number ok">1</td><td class="number">1</td>', 1, true),
          html:match("Confusion matrix.-</table>"))
  t.check(html:find("Wrong ones of which the network was surest", 1, true))
  t.equal(#core.sys.list(path .. "/overlays"), 2)
  for _, part in ipairs { ">valid confusion<", "slices used", "with something to find",
                          "accuracy by case", "test confusion", "case, worst first" } do
    t.check(not html:find(part, 1, true), "%s is there", part)
  end
end)

t.test("several classes are named in the page, each in its colour", function()
  local outlines = require "seg.report.outlines"
  local list = {}
  for i, l in ipairs(outlines.legend { "anterior", "posterior" }) do
    list[i] = (l.color and string.format("%06x ", l.color) or "") .. l.name
  end
  t.equal(table.concat(list, ", "), "56b4e9 anterior, e69f00 posterior, tinted: truth, "
          .. "outlined: prediction")
end)

t.test("names of a recipe cannot break the page", function()
  local evil = '<script>"x"</script>'
  local result = { part = "test", epoch = 1, metrics = { [evil] = { mean = 0.5, n = 2 } },
                   cases = { a = { [evil] = 0.25 }, [evil] = { [evil] = 0.75 } } }
  local html = report.html {
    recipe = evil, number = "001", state = "diverged", reason = evil, epoch = 1, epochs = 2,
    written = evil, loss = 0 / 0, seconds = 1, device = evil, parameters = 1, optimiser = evil,
    warnings = { evil }, samples = { { case = evil, pictures = { { epoch = 1, html = "" } } } },
    overlays = {}, result = result,
    data = { head = { "part" }, rows = { { evil } }, steps = evil, left_out = evil },
    time = { { "wait", 1, "x" } }, memory = { { evil, 10, 11 } }, settings = { { evil, evil } },
    program = { { evil, evil } }, text = evil, version = evil,
    network = { rows = { { name = evil, kind = evil, shape = evil, params = 1, flops = 1,
                           value_bytes = 1 } }, batch = 1, trained = 1, running = 0, flops = 1 } }
  t.check(not html:find("<script", 1, true), "a script in the page")
  t.check(html:find("+10.0 %", 1, true), "11 bytes measured where 10 were planned")
  local said = judge(t.write(folder .. "/evil.html", html))
  if said then t.equal(said, "bad [], open [], 0 images") end
end)

remove()
t.finish()
