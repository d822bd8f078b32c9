-- choosing.lua -- chooses the image files of --in: by the patterns of the user, else by the
-- patterns of training that the weights hold.

local files = require "seg.data.data_files"
local reading = require "seg.data.reading"
local show = require "seg.show"
local util = require "seg.util"

local fail = util.fail
local M = {}

-- The path below a folder without the file extension.
local function stem_of(name)
  return (name:gsub("%.gz$", ""):gsub("%.[^./]*$", ""))
end

-- Whether a path below the folder matches a pattern, which has no extension.
local function matches(name, pattern)
  return files.matches_pattern(stem_of(name) .. ".x", pattern)
end

-- A pattern and its shorter forms without leading folders, because --in may be deeper than the root
-- of training: "imagesTr/*", "*".
local function tails(pattern)
  local list, at = { pattern }, 1
  while true do
    local slash = pattern:find("/", at, true)
    if not slash then return list end
    at = slash + 1
    list[#list + 1] = pattern:sub(at)
  end
end

-- Name patterns for files of another format than training read: NIfTI files converted from a DICOM
-- series usually contain its series description, with any capitalisation.
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

-- Raises the error that no file of --in matches.
local function nothing(path, asked, patterns, names, what)
  fail("data", "--in %s: none of %s is %s \"%s\"; there %s %s; "
       .. "fix: --image PATTERN (* is any text), or predict = { image = PATTERN } in the recipe",
       path, util.plural(#names, (what:gsub("s$", ""))),
       asked.image and "called" or "named as the images of training,",
       table.concat(patterns, "\", \""), #names == 1 and "is" or "are", util.first_of(names, 5))
end

-- Returns the patterns that choose images from `names`, paths below the folder `path`: a list with
-- one pattern per channel, or nil to take every file. asked.image: the pattern of the user; without
-- it asked.kept, the pattern of training, is used; asked.foreign: training read another format.
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

-- Returns the members of `names` that are masks, as { name = true }, and the number of images that
-- remain; 0 if there are no masks. A file is a mask if it matches the mask pattern of training,
-- even if it also matches the image pattern. If the image pattern matches any name, or training
-- read another format, the usual names of masks count too.
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

-- Prints how many of the files of --in are taken, and names files that are not. taken: { name =
-- true }.
function M.say_taken(asked, taken, names, patterns, what)
  local left = {}
  for _, name in ipairs(names) do
    if not taken[name] then left[#left + 1] = name end
  end
  if not left[1] then return end
  show.line("--in: %d of %s %s (\"%s\"), left out: %s; --image PATTERN takes others",
            #names - #left, util.plural(#names, (what:gsub("s$", ""))),
            asked.image and "are taken" or "are named as in training",
            table.concat(patterns, "\", \""), util.first_of(left, 3))
end

-- The key that the NIfTI reader in C gives a file: its folder and the text that the stars match.
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
