-- file_kind.lua -- what files are by their names, and which reader a folder is for.

local core = require "seg.core"
local util = require "seg.util"

local M = {}

local PICTURES = { png = true, jpg = true, jpeg = true, bmp = true, tif = true, tiff = true }

-- Is a file an image of PNG, JPEG, BMP or TIFF by its name?
function M.is_image(path)
  return PICTURES[(path:match("%.(%w+)$") or ""):lower()] or false
end

-- What a file that is no DICOM is by its name: "NIfTI", ".npy", ".npz", ".mat", "image" or nil.
function M.of(path)
  local lower = path:lower()
  return core.data.nifti_is_name(path) and "NIfTI" or lower:match("%.np[yz]$")
         or lower:match("%.mat$") or M.is_image(path) and "image" or nil
end

-- Readers of folders by the kind of their files, what they call themselves, and how the files
-- are called in a sentence.
local READERS = {
  { kind = "NIfTI", reader = "nifti", word = "NIfTI file" },
  { kind = ".npy", reader = "npy", word = ".npy file" },
  { kind = "image", reader = "images", word = "image" },
  { kind = "DICOM", reader = "dicom", word = "DICOM file" },
}
local LOOKED_AT = 100 -- files without a known ending that are opened: DICOM has any name

-- What to do when `reader` (as "dicom") finds none of its files in a folder: the reader of
-- those that most of its files are for, where there is one.
function M.fix(root, reader)
  local count, opened = {}, 0
  util.files_below(root, function(path)
    local kind = M.of(path)
    if not kind and opened < LOOKED_AT then
      opened = opened + 1
      kind = core.data.dicom_is_file(root .. "/" .. path) and "DICOM" or nil
    end
    if kind then count[kind] = (count[kind] or 0) + 1 end
    return false
  end, true, {})
  local best
  for _, row in ipairs(READERS) do
    local n = row.reader ~= reader and count[row.kind] or 0
    if n > 0 and (not best or n > count[best.kind]) then best = row end
  end
  local look = "`segengine inspect " .. root .. "` says what lies there"
  if not best then return "the folder with the files; " .. look end
  local more = best.kind == "DICOM" and opened == LOOKED_AT and " or more" or ""
  return string.format("data.%s in the recipe, which reads the %s%s here; %s", best.reader,
                       util.plural(count[best.kind], best.word), more, look)
end

return M
