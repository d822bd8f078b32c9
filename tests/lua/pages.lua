-- pages.lua -- the commands of README and docs run unchanged.
--
-- A command is an indented line that begins with segengine and names a script of scripts/. They run
-- in a folder in which all presets of a script have the numbers of its preset `check`, so that each
-- takes seconds; words in capitals are places and numbers that a reader fills in.
-- tests/shell/tutorial.sh follows docs/tutorial.md.

local t = dofile("tests/support/harness.lua")
local folder, remove = t.folder()
local here = t.lines("pwd")[1]
local program = t.path()
if not program:match "^/" then program = here .. "/" .. program end
local cuda = t.lines(program .. " --version")[1]:find("CUDA yes", 1, true)

-- Commands that are not run, by a part of their texts.
local left_out = {
  { "--device cuda", not cuda and "needs a build with CUDA" },
  { "--devices 0,1", "needs two GPUs" },
  { "--image ch2", "a real head, which make data fetches: tests/lua/data/real.lua" },
  { "--size 48,64,48", "the export of a benchmark, minutes" },
  { "pointing04", "photographs of that set: tests/lua/data/headpose.lua" },
  { "--channels 1024", "names the channels of the reader's own sequences" },
  { "check --preset full", "checked at that size by make soak" },
  { "replay.safetensors", "needs a step that was not finite: tests/lua/train/training.lua" },
}

-- The value of each word in capitals, by script where it differs.
local words = {
  DIR = "data", NEW = "data", STUDY = "data", PHOTOS = "data", AFLW2000 = "others",
  ["provided-data"] = "data", ["provided-data/test-pats"] = "data",
  ["DIR/imagesTs"] = "data", ["fsdd-logmel"] = "data", ["head.nii.gz"] = "head.nii.gz",
  RESULTS = "results", SLICES = "arrays", A = "arrays", FILE = "runs/%s/001", PATH = "data",
  N = "3", K = "1", ["runs/hippocampus_unet3d/NNN"] = "runs/hippocampus_unet3d/001",
}

-- The phantom of each script, in a format that its --data reads.
local phantoms = { brain_unet = "flair", nfbs_unet = "t1", hippocampus_unet3d = "hippocampus",
                   headpose_cnn = "faces", openkbp_unet3d = "dose",
                   sequence_cnn_lstm = "sequences" }
local sizes = { brain_unet = "--patients 9", nfbs_unet = "--patients 7",
                sequence_cnn_lstm = "--speakers 6" } -- enough for each part

local function run(command)
  local pipe = io.popen(string.format("cd %s && { %s; } 2>&1 < /dev/null; echo code $?", folder,
                                      command))
  local text = pipe:read "a"
  pipe:close()
  return tonumber(text:match "code (%d+)\n$"), text
end

-- The script with its preset `check` in place of all others.
local function shrunk(path)
  local text = t.read(path)
  local check = text:match "\n    check = (%b{})"
  local presets = check and text:match "\n  presets = (%b{})"
  if not presets then return text end
  local at, ends = text:find(presets, 1, true)
  local all = presets:gsub("\n    ([%l_]+) = (%b{})", function(name, own)
    -- the task, and whether there are folds, do not depend on the size
    local numbers = name == "check" and check or check:gsub("folds = 0,%s*", "")
      :gsub('learn = "%l+"', own:match 'learn = "%l+"' or "%0")
    return "\n    " .. name .. " = " .. numbers
  end)
  return text:sub(1, at - 1) .. all .. text:sub(ends + 1)
end

-- The commands of a page: { text, line }; a command of several lines is one text.
local function commands(path)
  local list, number, more = {}, 0, nil -- more: a command that continues in the next line
  for line in (t.read(path) .. "\n"):gmatch "([^\n]*)\n" do
    number = number + 1
    local text = more and more.text .. line:gsub("^%s+", " ") or line:match "^    (segengine .*)$"
    if text then
      local going = text:match "^(.-)%s*\\$"
      more = { text = going or text, line = more and more.line or number }
      if not going then
        -- without the remark that follows it
        more.text = more.text:gsub("%s%s+.*$", ""):gsub("%s+#.*$", "")
        list[#list + 1], more = more, nil
      end
    end
  end
  return list
end

local function filled(text, name)
  -- the second DIR of predict is for its results
  if text:find(" predict ", 1, true) then text = text:gsub("%-%-out DIR", "--out RESULTS") end
  if text:find(" export ", 1, true) then text = text:gsub("%-%-arrays DIR", "--arrays A") end
  return (text:gsub("[%w_./-]+", function(word)
    local means = words[word]
    return means and (means == "data" and "data/" .. name or means:format(name))
  end))
end

os.execute("mkdir -p " .. folder .. "/scripts " .. folder .. "/data " .. folder .. "/bin")
os.execute("ln -s " .. program .. " " .. folder .. "/bin/segengine")
for name, kind in pairs(phantoms) do
  t.write(folder .. "/scripts/" .. name .. ".lua", shrunk("scripts/" .. name .. ".lua"))
  t.test(name .. " makes data that its reader reads", function()
    local script = "bin/segengine scripts/" .. name .. ".lua --preset check --quiet "
    local code, text = run(script .. "--steps 1 --out made " .. (sizes[name] or ""))
    t.equal(code, 0, text)
    run(string.format("ln -s ../$(ls -d made/phantom/%s-*) data/%s", kind, name))
    if name == "openkbp_unet3d" then -- in the folders of the challenge
      run("cd data/" .. name .. [[/ && mkdir train-pats validation-pats test-pats &&
        cp -r pt_[1-4] train-pats && mv pt_5 validation-pats && mv pt_6 test-pats]])
    end
    -- weights of real data, as far as the program can tell
    code, text = run(script .. "--data data/" .. name)
    t.equal(code, 0, text)
  end)
end
run [[bin/segengine scripts/headpose_cnn.lua --preset check --quiet --size 48 --steps 1 --out other
  mkdir others
  for f in other/phantom/faces-*/*; do cp $f others/other_${f##*_}; done]]
run "cp $(ls data/nfbs_unet/*/*_T1w.nii.gz | head -n 1) head.nii.gz"

local pages = t.lines("ls README.md docs/*.md docs/systems/*.md")
for _, page in ipairs(pages) do
  for _, command in ipairs(page ~= "docs/tutorial.md" and commands(page) or {}) do
    local name = command.text:match "scripts/([%w_]+)%.lua"
    if name and phantoms[name] then
      local what = string.format("%s:%d: %s", page, command.line, command.text)
      local why
      for _, row in ipairs(left_out) do
        if row[2] and command.text:find(row[1], 1, true) then why = row[2] end
      end
      t.test(what, function()
        if why then t.skip(why) end
        local code, text = run("bin/" .. filled(command.text, name))
        t.check(code == 0, "exit code %s: %s", code, text:sub(-600))
        t.check(not text:find("changes nothing here", 1, true), text)
      end)
    end
  end
end

remove()
t.finish()
