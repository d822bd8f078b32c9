-- file_kind.lua -- the kind of a file by its name, and the reader for a folder.

local core = require "seg.core"
local util = require "seg.util"

local M = {}

local PICTURES = { png = true, jpg = true, jpeg = true, bmp = true, tif = true, tiff = true }

-- Whether a file name is that of a PNG, JPEG, BMP or TIFF image.
function M.is_image(path)
  return PICTURES[(path:match("%.(%w+)$") or ""):lower()] or false
end

-- The kind of a file that is not DICOM by its name: "NIfTI", ".npy", ".npz", ".mat", "image" or
-- nil.
function M.of(path)
  local lower = path:lower()
  return core.data.nifti_is_name(path) and "NIfTI" or lower:match("%.np[yz]$")
         or lower:match("%.mat$") or M.is_image(path) and "image" or nil
end

-- Readers of folders by the kind of their files: the name of the reader, and the kind in a
-- sentence.
local READERS = {
  { kind = "NIfTI", reader = "nifti", word = "NIfTI file" },
  { kind = ".npy", reader = "npy", word = ".npy file" },
  { kind = "image", reader = "images", word = "image" },
  { kind = "DICOM", reader = "dicom", word = "DICOM file" },
}
-- files without a known extension that are opened: DICOM files may have any name
local LOOKED_AT = 100

-- The fix if `reader` (for example "dicom") finds none of its files in a folder: the reader for
-- most of its files, if there is one.
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
  local look = "`segengine inspect " .. root .. "` shows the files there"
  if not best then return "the folder with the files; " .. look end
  local more = best.kind == "DICOM" and opened == LOOKED_AT and " or more" or ""
  return string.format("data.%s in the recipe, which reads the %s%s here; %s", best.reader,
                       util.plural(count[best.kind], best.word), more, look)
end

return M
