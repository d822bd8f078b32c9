-- damage.lua -- texts that this program reads back, with random damage: any text is read with its
-- meaning or refused by name, without other effects. SEG_SOAK=1 tries thirty times as many.

local seg = require "seg"
local json = require "seg.json"
local util = require "seg.util"
local t = dofile("tests/support/harness.lua")
local folder, remove = t.folder()

local TIMES = os.getenv "SEG_SOAK" and 30 or 1
local PIECES = { "null", "true", "{}", "[]", '""', "-1", "-0", "1e999", "1.5", '{"trial":1}',
                 "[1,\"a\"]", "9223372036854775807", '"\\ud83d\\ude00"', "\\u0000", "{", "}", "[",
                 "]", ",", ":", '"', "\\", "\n", "\0", "\255", "e", "-", ".", "0" }

-- A number in 1 .. n, the same sequence in every run.
local state = 1
local function draw(n)
  state = state * 6364136223846793005 + 1442695040888963407
  return (state >> 33) % n + 1
end

-- The text with one to three changes: a part left out, inserted, repeated, cut off, or a value of
-- another type.
local function changed(text)
  for _ = 1, draw(3) do
    local at, piece, values = draw(#text), PIECES[draw(#PIECES)], {}
    local way = draw(6)
    if way == 1 then
      text = text:sub(1, at - 1) .. text:sub(at + draw(20))
    elseif way == 2 then
      text = text:sub(1, at - 1) .. piece .. text:sub(at)
    elseif way == 3 then
      local from = draw(#text)
      text = text:sub(1, at) .. text:sub(from, from + draw(60)) .. text:sub(at + 1)
    elseif way == 4 then
      text = text:sub(1, at)
    else
      for from, to in text:gmatch ":()[^,}%]]*()" do values[#values + 1] = { from, to } end
      local v = values[1] and values[draw(#values)] or { at, at }
      text = text:sub(1, v[1] - 1) .. " " .. piece .. text:sub(v[2])
    end
    if text == "" then text = " " end
  end
  return text
end

-- f(text) for many changed texts: it succeeds, or fails with a reason that names `name`. Returns
-- how many succeeded and how many failed.
local function survive(text, count, name, f)
  local good, bad = 0, 0
  for _ = 1, count * TIMES do
    local damaged = changed(text)
    local ok, why = pcall(f, damaged)
    t.check(ok or tostring(why):find(name, 1, true), "%s\nof the text:\n%s", tostring(why), damaged)
    t.check(ok or not tostring(why):find("attempt to", 1, true), "%s\nof the text:\n%s",
            tostring(why), damaged)
    if ok then good = good + 1 else bad = bad + 1 end
  end
  return good, bad
end

t.test("JSON is read as it stands, or refused", function()
  local text = util.json { a = { 1, -2.5e-3, 1e300, -0.0, true }, b = { c = "x\n\"\\\127" },
                           d = { { e = 0.1 }, {} }, f = "caf\u{e9} \u{1f600}" }
  local good, bad = survive(text, 4000, "some.json", function(damaged)
    local v = json.decode(damaged, "some.json")
    -- a parsed value is printed and parsed again without a difference
    if v ~= nil then
      local once = util.json(v)
      t.equal(util.json(json.decode(once, "some.json")), once)
    end
  end)
  t.check(good > 100 and bad > 100, "%d read, %d refused", good, bad)
  t.equal(util.json(json.decode(text, "text")), text)
  t.equal(1 / json.decode("-0", "text"), -math.huge)
end)

-- study.jsonl is in a folder that other programs may write to, and determines the trials.
t.test("the study of a search goes on as it was, or is refused", function()
  local path = folder .. "/study.jsonl"
  local function search(trials, text)
    if text then t.write(path, text) end
    return seg.search { space = { x = { -4.0, 4.0 }, k = { 1, 2, 3 } }, trials = trials, seed = 5,
                        study = path, metric = { "height", "max" }, objective = function(v)
      if v.k == 2 then error "no" end
      return v.k - (v.x - 1) ^ 2
    end }
  end
  search(6)
  local text = t.read(path)
  local good, bad = survive(text, 700, "study.jsonl", function(damaged) search(6, damaged) end)
  t.check(good > 5 and bad > 200, "%d read, %d refused", good, bad)
  for _, case in ipairs {
    { '"trial": 2,', "", "line 3 has no trial" },
    { '"trial": 2,', '"trial": 3,', "line 3 is of trial 3, wanted 2" },
    { '"trial": 2,', '"trial": 1,', "line 3 is of trial 1, wanted 2" },
    { '"trial": 2,', '"trial": 2, "round": 2,', "line 3 is of trial 2 in round 2" },
    { '"trial": 2,', '"trial": 2.5,', "line 3 has trial 2.5, wanted a whole number" },
    { '"trial": 2,', '"trial": 2, "planted": 0,', 'line 3 has "planted"' },
    { '"value": ', '"value": 1e999, "epoch": ', "a number that is too large" },
    { '"state": "', '"state": "done", "epoch": "', "wanted a whole number" },
    { "\n{", "\n[{", "json" },
    { "\n", "\n3\n", "line 2 is not a table" },
    { "^[^\n]*", "[7]", "line 1 does not describe the search" },
  } do
    t.raises(function() search(6, (text:gsub(case[1], case[2], 1))) end, case[3])
  end
  -- a refused file stays unchanged
  t.check(t.read(path) ~= text and t.read(path):find("[7]", 1, true), "it was written over")
end)

-- The files of the runs of a series determine its results.
t.test("a series whose files were changed is refused with their names", function()
  local series = require "seg.experiments.series"
  local head = { k = 3, kind = "folds", options = { "--lr=0.1", "--quick" }, recipe = "toy" }
  local part = { cases = { a = { dice = 0.5 } }, metrics = { dice = { mean = 0.5, unit = "" } } }
  local summary = { best = 0.5, best_epoch = 1, epochs = 2, valid = part, test = part }
  for _, case in ipairs { { "series.json", head, series.read },
                          { "summary.json", summary, series.summary } } do
    local path = folder .. "/" .. case[1]
    local good, bad = survive(util.json(case[2]), 700, case[1], function(damaged)
      t.write(path, damaged)
      case[3](folder)
    end)
    t.check(good > 5 and bad > 200, "%d read, %d refused", good, bad)
  end
  -- commands that only look at the folder show all existing results
  local facts, outside = require "seg.report.run_facts", require "seg.report.series_facts"
  for _, case in ipairs { { "series.json", head, outside.read },
                          { "summary.json", summary, facts.summary } } do
    local path = folder .. "/" .. case[1]
    local good, bad = survive(util.json(case[2]), 300, case[1], function(damaged)
      t.write(path, damaged)
      case[3](folder)
    end)
    t.check(good > 0 and bad == 0, "%d read, %d refused", good, bad)
  end
  for _, text in ipairs { "3", '{"kind": 1}', '{"kind": "folds", "recipe": {}}' } do
    t.write(folder .. "/series.json", text)
    t.equal(outside.read(folder), nil)
  end
  t.write(folder .. "/summary.json", '{"valid": {"cases": {"a": 3}}}')
  t.equal(next(facts.summary(folder)), nil)
  for _, case in ipairs {
    { "[]", "kind is missing, want a string" },
    { '{"kind": "folds"}', "k is missing, want a number" },
    { '{"kind": "repeat", "seeds": ["a"]}', "seeds: 1 is a string, want a number" },
    { '{"kind": "search", "options": ["--lr=1", "lr"]}', '"lr" is not an option' },
  } do
    t.write(folder .. "/series.json", case[1])
    t.raises(function() series.read(folder) end, case[2])
  end
end)

remove()
t.finish()
