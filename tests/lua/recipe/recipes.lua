-- recipes.lua -- the recipes of scripts/examples, trained on small data of their kind.

local t = dofile("tests/support/harness.lua")
local seg = require "seg"

local folder, remove = t.folder()

-- The recipe scripts/examples/NAME.lua, copied and trained for one epoch on a folder of data.
local function train(name, options)
  local text = t.read("scripts/examples/" .. name .. ".lua")
  t.check(t.read("docs/guide.md"):find("examples/" .. name .. ".lua", 1, true),
          "docs/guide.md does not name %s.lua", name)
  local path = t.write(folder .. "/" .. name .. ".lua", text)
  local line = path .. " --epochs 1 --batch 4 --base 4 --out " .. folder .. "/runs " .. options
  t.says(path .. " plan", 0, "parameters")
  return t.says(line .. " --data " .. folder .. "/" .. name, 0, "done:")
end

-- An RGB picture of n x n pixels as BMP.
local function picture(path, n, red)
  local rows = {}
  for y = 1, n do rows[y] = string.char(red, y, 100):rep(n) .. ("\0"):rep(-3 * n % 4) end
  local body = table.concat(rows)
  t.write(path, "BM" .. string.pack("<I4I2I2I4", 54 + #body, 0, 0, 54)
          .. string.pack("<I4i4i4I2I2I4I4i4i4I4I4", 40, n, n, 1, 24, 0, #body, 0, 0, 0, 0) .. body)
end

t.test("classes of pictures", function()
  for i, name in ipairs { "cat", "dog" } do
    os.execute("mkdir -p " .. folder .. "/classes/" .. name)
    for k = 1, 5 do picture(folder .. "/classes/" .. name .. "/" .. k .. ".bmp", 12, 50 * i + k) end
  end
  train("classes", "--size 16")
end)

t.test("numbers of pictures", function()
  os.execute("mkdir " .. folder .. "/pose")
  local rows = { "path,person,x,y,width,height,tilt,pan" }
  for k = 1, 10 do
    picture(folder .. "/pose/" .. k .. ".bmp", 12, 20 * k)
    rows[#rows + 1] = string.format("%d.bmp,p%d,-2,1,10,10,%d,%d", k, k // 2, 5 * k, -3 * k)
  end
  t.write(folder .. "/pose/labels.csv", table.concat(rows, "\n") .. "\n")
  local said = train("pose", "--size 16")
  t.check(said:find("input 10 x 10 pixels; ", 1, true) and said:find("pictures kept", 1, true)
          and said:find("mean of 1 picture\n", 1, true), said)
  t.check(not said:find("overlays", 1, true), said)
end)

t.test("sequences", function()
  os.execute("mkdir " .. folder .. "/sequences")
  local rows = { "path,speaker" }
  for k = 1, 10 do
    seg.array.save(string.format("%s/sequences/%d.npy", folder, k), seg.array.zeros { 5 + k, 12 })
    rows[#rows + 1] = string.format("%d.npy,%d", k, k % 9)
  end
  t.write(folder .. "/sequences/labels.csv", table.concat(rows, "\n") .. "\n")
  local said = train("sequences", "--steps_long 16")
  t.check(said:find("input %d+%.%.%d+ steps; "), said)
  t.check(said:find("mean of 2 sequences", 1, true), said)
end)

t.test("volumes in patches", function()
  local set = seg.data.phantom { format = "nifti", patients = 6, size = 20, slices = 12,
                                 root = folder .. "/volumes" }
  set:dataset()
  train("volumes", "--size 8 --levels 2")
  -- the coarser output is only for the loss: the outputs do not need its weights
  local weights = folder .. "/runs/volumes/001"
  t.says(folder .. "/volumes.lua predict --in " .. folder .. "/volumes --out " .. folder
         .. "/masks --weights " .. weights, 0, "trained on real data")
  t.equal(#t.lines("ls " .. folder .. "/masks"), 6, "masks")
  local opened = seg.open(weights .. "/checkpoint_best.safetensors")
  t.equal(table.concat(opened:outputs().mask, "x"), "1x1x8x8x8")
end)

-- The recipes of scripts/: parameters as `plan` counts them, and a network checked node by node.
-- tests/lua/cli.lua and tests/lua/recipe/net.lua test the 2-D U-Nets.
t.test("brain_unet: variants and later options", function()
  local line = "scripts/brain_unet.lua --preset check --phantom " .. folder .. "/phantom --out "
    .. folder .. "/runs "
  for _, more in ipairs {
    "--depth 4", "--preset later --base 4 --size 32 --epochs 1 --patients 6 --slices 6",
    "--gates true --heads 4 --dropout 0.1 --rotate 15 --elastic 4 --patience 1 --epochs 2",
    "--optim sgd --schedule onecycle", "--schedule plateau", "--schedule constant --noise 0",
  } do t.says(line .. more, 0, "done:") end
  t.says(line .. "--schedule onecycl", 2, 'wanted one of constant, cosine, onecycle')
  t.says(line .. "folds --folds 3", 0, "6 cases of 6 patients, each validated in one of 3 folds")
end)

t.test("hippocampus_unet3d: folds and a split", function()
  local line = "scripts/hippocampus_unet3d.lua --preset check --phantom " .. folder
    .. "/phantom --out " .. folder .. "/runs "
  local said = t.says(line, 0, "by class: anterior")
  t.check(said:find("test: 1 case of 1 patient", 1, true), said)
  -- as cross-validation: no test set, and each fold has another validation set
  said = t.says(line .. "--folds 3 --fold 3", 0, "valid: 2 cases of 2 patients")
  t.check(not said:find("test: ", 1, true), said)
  said = t.says(line .. "--flip 0.5 --valid 0", 0, "done:")
  t.check(not said:find("\nvalid: ", 1, true), said)
  said = t.says(line .. "--test 0", 0, "valid set, weights of epoch")
  t.check(not said:find("\ntest: ", 1, true), said)
  t.says(line .. "--folds 1", 2, "folds must be a whole number, 2 or more, or 0 for none, got 1")
end)

t.test("bench: random numbers, or the first batch of the data", function()
  local line = "scripts/sequence_cnn_lstm.lua bench --preset check "
  t.says(line .. "--json", 0, '"fed": "random"')
  t.says(line .. "--json --phantom " .. folder .. "/phantom", 0, '"fed": "data"')
  t.says(line .. "--phantom " .. folder .. "/phantom", 0, "of the data, ")
  t.says(line .. "--data " .. folder .. "/nowhere", 3, folder .. "/nowhere")
end)

-- Definitions that the snippets of a page use. The test joins them into one line, so that errors
-- have the lines of the snippet.
local PRELUDE = [[
local seg = require "seg"; local data, nn, net = seg.data, seg.nn, seg.net;
local optim, metric = seg.optim, seg.metric;
local cases = data.npy { root = ".", patient = "file" }; local image, truth, logits;
nn.scope("prelude", function() image = nn.input("image", { c = 1, h = 64, w = 64 });
truth = nn.input("mask", { c = 1, h = 64, w = 64 }); logits = nn.conv(image, 1, 1) end) ]]

t.test("the snippets of guide and reference can be run", function()
  local count = 0
  for _, page in ipairs { "guide", "extend", "losses", "reference" } do
    for block in t.read("docs/" .. page .. ".md"):gmatch("```lua\n(.-)```") do
      if not block:find("^local seg") and not block:find("^%-%- mine") then
        count = count + 1
        block = block:gsub("m:load[^\n]*", "") -- a file of weights is not here
        local path = t.write(folder .. "/snippet.lua", PRELUDE:gsub("\n", " ") .. block)
        local code, said = t.program(path)
        t.check(code == 0, "docs/%s.md: %s\n%s", page, said, block)
      end
    end
  end
  t.check(count >= 14, "the pages have %d snippets", count)
end)

-- Copied as they are: a reader's first run of them.
t.test("the scripts of extend can be run", function()
  local count = 0
  for block in t.read("docs/extend.md"):gmatch("```lua\n(local seg.-)```") do
    count = count + 1
    t.write(folder .. "/own.lua", block)
    local code, said = t.program("own.lua", "cd " .. folder .. " && ")
    t.check(code == 0, "docs/extend.md: %s\n%s", said, block)
    if block:find("seg.recipe", 1, true) then
      t.check(said:find("apart [mm] per case", 1, true) and said:find("certain of all cases", 1,
                                                                      true), said)
    else
      t.check(said:find("\n2\t0%.") or said:find("\n2\t1%."), said)
      t.check(seg.open(folder .. "/teacher.safetensors"):outputs().loss ~= nil)
    end
  end
  t.equal(count, 2, "scripts in extend.md")
end)

remove()
t.finish()
