-- likeness.lua -- compares a new image with the training images. A checkpoint keeps ranges over the
-- whole training set; a difference is reported as a warning and changes nothing.
--
-- Compared are words in names and series descriptions, the Modality, the spacing, and the mean and
-- standard deviation of the voxels. The numbers detect a wrong unit, a mask or another scale; they
-- do not separate two MR sequences of similar brightness.

local core = require "seg.core"
local reading = require "seg.data.reading"
local show = require "seg.show"
local util = require "seg.util"

local M = {}

-- Limits: the factor beyond the training range for another spacing and for another spread of
-- intensities, and the distance of the mean from the training range in standard deviations. MR has
-- no unit: two scanners differ by a factor of 2 and more.
local SPACING, SPREAD, SHIFT = 1.5, 3, 1

-- Modalities (0008,0060) of images, by PS3.3 C.7.3.1.1.1; other values are not put into files of
-- weights.
local modalities = {}
for word in ("CR CT DX ES GM IO IVOCT MG MR NM OCT OP OPT PT PX RF RG SM US XA XC"):gmatch("%S+") do
  modalities[word] = true
end

local function modality_of(seen)
  return modalities[seen.modality] and seen.modality or "other"
end

-- The spacing of core.data.seen, from the finest axis to the coarsest, because files order their
-- axes differently.
local function sorted_spacing(seen)
  local s = table.move(seen.spacing, 1, 3, 1, {})
  table.sort(s)
  return s
end

-- The format that a case was read from, if it is a format with positions of voxels.
local function format_of(seen)
  if seen.description then return "DICOM" end
  return core.data.nifti_is_name(seen.path or "") and "NIfTI" or nil
end

local function widen(range, v)
  return { math.min(range and range[1] or v, v), math.max(range and range[2] or v, v) }
end

-- Rounds to six digits, so that no single image can be recognised.
local function rounded(t)
  for key, v in pairs(t) do
    t[key] = type(v) == "table" and rounded(v) or type(v) == "number"
      and tonumber(string.format("%.6g", v)) or v
  end
  return t
end

-- Ranges over the images of an opened set: { cases =, format =, modality = "MR", spacing = {{lo,
-- hi}, ...}, channels = { { range = {lo, hi}, mean = {lo, hi}, sd = {lo, hi} }, ... } }; mean and
-- sd are ranges of the means and standard deviations of cases.
function M.describe(pipeline)
  local out, found = { cases = #pipeline:cases(), spacing = {}, channels = {} }, {}
  for i = 1, out.cases do
    local seen = core.data.seen(pipeline, i)
    out.format = (i == 1 or out.format == format_of(seen)) and format_of(seen) or nil
    if seen.modality then found[modality_of(seen)] = true end
    for k, v in ipairs(sorted_spacing(seen)) do out.spacing[k] = widen(out.spacing[k], v) end
    -- skipped for sequences: their mean and spread are part of the signal
    for k, c in ipairs(seen.rank > 1 and seen.channels or {}) do
      local all = out.channels[k] or {}
      all.range = widen(widen(all.range, c.lo), c.hi)
      all.mean, all.sd = widen(all.mean, c.mean), widen(all.sd, c.sd)
      out.channels[k] = all
    end
  end
  out.modality = next(found) and table.concat(util.sorted_keys(found), ",") or nil
  return rounded(out)
end

local function range_text(r)
  local function text(v) return string.format("%.4g", v) end
  return r[1] == r[2] and text(r[1]) or text(r[1]) .. " to " .. text(r[2])
end

-- The kinds of images that the names of a case mention: in the series description, else in the
-- folder.
local function kinds_of(seen)
  if seen.description then
    local said = reading.kinds(seen.description)
    if next(said) then return said, "series description" end
  end
  return reading.kinds((seen.path or ""):match("([^/]*)/*$")), seen.description and "folder"
    or "name"
end

-- The kinds of images that the training patterns mention.
local function trained_kinds(source)
  local made = source.made and source.made.options or {}
  local image, found = made.image or source.options.image, {}
  for _, one in ipairs(type(image) == "table" and image or { image }) do
    if type(one) == "string" then
      for kind in pairs(reading.kinds(one)) do found[kind] = true end
    end
  end
  return found
end

local function share(a, b)
  for kind in pairs(a) do
    if b[kind] then return true end
  end
  return false
end

-- Whether a channel differs from training. If the voxels of a case hardly vary, the range of the
-- means gives the tolerance.
local function channel_differs(all, c)
  local away = SHIFT * math.max(all.sd[2], all.mean[2] - all.mean[1])
  return c.mean < all.mean[1] - away or c.mean > all.mean[2] + away
    or c.sd * SPREAD < all.sd[1] or c.sd > all.sd[2] * SPREAD
end

-- The differences between a case (core.data.seen) and the training images. kept: the result of
-- M.describe; source: the source of the training files. -> { {word, text}, ... }
function M.differences(kept, source, seen)
  local list, trained = {}, trained_kinds(source)
  local said, by = kinds_of(seen)
  local function add(word, ...) list[#list + 1] = { word, string.format(...) } end
  if next(said) and next(trained) and not share(said, trained) then
    add("name", "its %s says %s, training took %s", by,
        table.concat(util.sorted_keys(said), ", "), table.concat(util.sorted_keys(trained), ", "))
  end
  if kept.modality and seen.modality
    and not ("," .. kept.modality .. ","):find("," .. modality_of(seen) .. ",", 1, true) then
    add("modality", "its modality is %s, in training %s", seen.modality, kept.modality)
  end
  if format_of(seen) and kept.format then
    local spacing = sorted_spacing(seen)
    for k, range in ipairs(kept.spacing) do
      if spacing[k] * SPACING < range[1] or spacing[k] > range[2] * SPACING then
        local was = {}
        for i, r in ipairs(kept.spacing) do was[i] = range_text(r) end
        add("spacing", "its spacing is %.4g x %.4g x %.4g mm, in training %s", spacing[1],
            spacing[2], spacing[3], table.concat(was, " x "))
        break
      end
    end
  end
  for k, all in ipairs(kept.channels) do
    local c = seen.channels[k]
    if c and channel_differs(all, c) then
      add("intensities", "its intensities%s have mean %.4g and sd %.4g, in training %s and %s",
          #kept.channels > 1 and " of channel " .. k or "", c.mean, c.sd, range_text(all.mean),
          range_text(all.sd))
      break
    end
  end
  return list
end

-- Prints the differences as a warning about the case `name`. -> words, texts; nil if there are none
function M.warn(name, kept, source, seen)
  local words, texts = {}, {}
  for i, one in ipairs(M.differences(kept, source, seen)) do words[i], texts[i] = one[1], one[2] end
  if not words[1] then return nil end
  show.warn("%s differs from the training images: %s", name, table.concat(texts, "; "))
  return words, texts
end

-- The properties that cannot be checked for a case without modality and sequence name, as text, or
-- nil.
function M.unsaid(kept, source, seen)
  local trained = trained_kinds(source)
  if kept.format ~= "DICOM" or format_of(seen) ~= "NIfTI" or next((kinds_of(seen))) then
    return nil
  end
  if kept.modality then trained[kept.modality] = true end
  return table.concat(util.sorted_keys(trained), ", ")
end

-- The entry `training` of a file of weights, or nil.
function M.parse(text, path)
  if not text then return nil end
  local kept = require("seg.json").decode(text, path .. ": training")
  if type(kept) == "table" and type(kept.spacing) == "table" and type(kept.channels) == "table" then
    return kept
  end
  util.fail("data", "%s: training: want ranges over the images of training (spacing, channels); "
            .. "fix: the version of segengine that wrote it", path)
end

return M
