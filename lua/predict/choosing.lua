-- choosing.lua -- which files of --in are images as training took them: by the patterns of
-- the user, else by those that the weights hold.

local files = require "seg.data.data_files"
local reading = require "seg.data.reading"
local show = require "seg.show"
local util = require "seg.util"

local fail = util.fail
local M = {}

-- The path below a folder without the ending of its format.
local function stem_of(name)
  return (name:gsub("%.gz$", ""):gsub("%.[^./]*$", ""))
end

-- Whether a path below the folder is called as a pattern says, which has no ending.
local function matches(name, pattern)
  return files.matches_pattern(stem_of(name) .. ".x", pattern)
end

-- A pattern, and shorter ones without the folders in front: --in may lie deeper than the
-- root of training. "imagesTr/*", "*".
local function tails(pattern)
  local list, at = { pattern }, 1
  while true do
    local slash = pattern:find("/", at, true)
    if not slash then return list end
    at = slash + 1
    list[#list + 1] = pattern:sub(at)
  end
end

-- Patterns of names for files of another format than training read: a series description is
-- part of the name of what was made of it, in any case of letters.
function M.across(pattern)
  local word = pattern:gsub("^%*+", ""):gsub("%*+$", ""):gsub("^[_%-. ]+", "")
  if word == "" then return { "*" } end
  local list = {}
  for _, one in ipairs { word, word:lower(), word:upper() } do
    for _, spaced in ipairs { one, (one:gsub(" ", "_")), (one:gsub(" ", "")) } do
      list[#list + 1] = "*" .. spaced .. "*"
    end
  end
  return list
end

-- Raises that no file of --in is what is looked for.
local function nothing(path, asked, patterns, names, what)
  fail("data", "--in %s: none of %s is %s \"%s\"; there %s %s; "
       .. "fix: --image PATTERN (* is any text), or predict = { image = PATTERN } in the recipe",
       path, util.plural(#names, (what:gsub("s$", ""))),
       asked.image and "called" or "called as the images of training,",
       table.concat(patterns, "\", \""), #names == 1 and "is" or "are", util.first_of(names, 5))
end

-- The patterns by which images are taken out of `names`, paths below the folder `path`: a list
-- with one for each channel; and what of the names they leave out. asked.image: what the user
-- says, else what training took (asked.kept, of the format `asked.format`).
function M.choose(path, names, asked, what)
  local wanted, foreign = asked.image or asked.kept, not asked.image and asked.foreign
  if not wanted then return nil end
  local stems = {}
  for i, name in ipairs(names) do stems[i] = stem_of(name) end
  local function fits(patterns)
    for _, pattern in ipairs(patterns) do
      local found = false
      for _, name in ipairs(names) do found = found or matches(name, pattern) end
      if not found then return false end
    end
    return true
  end
  local ways = {}
  for k, pattern in ipairs(wanted) do
    ways[k] = foreign and M.across(pattern) or tails(pattern)
  end
  for way = 1, #ways[1] do
    local patterns = {}
    for k in ipairs(wanted) do patterns[k] = ways[k][math.min(way, #ways[k])] end
    if fits(patterns) then return patterns end
  end
  nothing(path, asked, wanted, stems, what)
end

-- Of `names` those that are masks, as { name = true }, and how many images are left without
-- them: 0 where none is. They are called as the masks of training, whose pattern that of
-- the images may fit too; where the pattern fits anything, or is of another format, also as
-- masks are called in general.
function M.masks_among(names, patterns, asked)
  if asked.image or not asked.kept then return {}, 0 end
  if asked.foreign or asked.masks and not patterns[1]:find("[^*/]") then
    local out, left = {}, 0
    for _, name in ipairs(names) do
      if reading.kinds(name)["a mask"] then
        out[name] = true
      elseif matches(name, patterns[1]) then
        left = left + 1
      end
    end
    if next(out) and left > 0 then return out, left end
  end
  if not asked.masks then return {}, 0 end
  for _, way in ipairs(tails(asked.masks[1])) do
    local out, left = {}, 0
    for _, name in ipairs(names) do
      if matches(name, way) then
        out[name] = true
      elseif matches(name, patterns[1]) then
        left = left + 1
      end
    end
    if next(out) and left > 0 then return out, left end
  end
  return {}, 0
end

-- Says how many of the files of --in are taken, and which are not. taken: { name = true }.
function M.say_taken(asked, taken, names, patterns, what)
  local left = {}
  for _, name in ipairs(names) do
    if not taken[name] then left[#left + 1] = name end
  end
  if not left[1] then return end
  show.line("--in: %d of %s %s (\"%s\"), left out: %s; --image PATTERN takes others",
            #names - #left, util.plural(#names, (what:gsub("s$", ""))),
            asked.image and "are taken" or "are called as in training",
            table.concat(patterns, "\", \""), util.first_of(left, 3))
end

-- What NIfTI's C code calls a file: the folder, and what the stars stand for.
function M.nifti_key(name, pattern)
  local stem = stem_of(name)
  local folder, base = stem:match("^(.*)/([^/]*)$")
  local whole = pattern:find("/", 1, true) ~= nil
  local lua = "^" .. pattern:gsub("[%^%$%(%)%%%.%[%]%+%-%?]", "%%%0"):gsub("%*", "([^/]-)") .. "$"
  local parts = table.pack((whole and stem or base or stem):match(lua))
  if parts[1] == nil then return nil end
  if not pattern:find("*", 1, true) then parts = {} end
  if folder and not whole then table.insert(parts, 1, folder) end
  return table.concat(parts, "/")
end

return M
