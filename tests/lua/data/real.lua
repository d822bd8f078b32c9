-- real.lua -- files of other projects, from Debian's packages: each is read or refused as in a
-- committed table.
--
-- A table is a .csv: file (below the folder of the package), output of `inspect`: lines with "; "
-- between, or the reason without the path. A changed row is printed in its new form; a person
-- decides whether it is better. Files of pydicom are in dicom_real.csv, which
-- tests/data/dicom/peer.c reads.

local t = dofile("tests/support/harness.lua")

local tables = {
  { "tests/data/format/nibabel_real.csv",
    "/usr/lib/python3/dist-packages/nibabel", "python3-nibabel", 100, "sh vendor/fetch ci" },
  { "tests/data/format/octave_real.csv",
    "/usr/share/octave/packages/dicom-0.5.1/imdata", "octave-dicom", 5,
    "apt-get install octave-dicom" },
  { "tests/data/format/scipy_real.csv",
    "/usr/lib/python3/dist-packages", "python3-scipy", 100, "sh vendor/fetch ci" },
}

local function is_folder(path)
  local handle = io.open(path .. "/")
  return handle and handle:close()
end

-- The output for a file, on one line and without the folder of the package; was it read?
local function outcome(root, file)
  local code, text = t.program("inspect '" .. root .. "/" .. file .. "'")
  t.check(code == 0 or code == 3, "%s: exit code %s (%s)", file, code, text)
  text = text:gsub("^segengine: ", "")
  -- removes every occurrence of the folder, with any characters in its name
  for _, path in ipairs { root .. "/" .. file .. ": ", root .. "/", root } do
    text = text:gsub(path:gsub("%p", "%%%0"), "")
  end
  text = text:gsub("%s*\n%s*", "; "):gsub("%s+", " "):gsub("[; ]+$", "")
  return text, code == 0
end

for _, row in ipairs(tables) do
  local path, root, package, least, get = table.unpack(row)
  t.test(package, function()
    local absent = package .. " is not installed (" .. get .. ")"
    if not is_folder(root) then t.skip(absent) end
    local files, read, wrong, others = 0, 0, 0, 0
    for line in io.lines(path) do
      local file, want = line:match("^([^,]+),(.*)$")
      -- a table may have files of two packages: NumPy and SciPy
      if file ~= "file" and not is_folder(root .. "/" .. (file:match("^(.-)/") or "")) then
        others = others + 1
      elseif file ~= "file" then
        local got, ok = outcome(root, file)
        files = files + 1
        read = read + (ok and 1 or 0)
        if got ~= want then
          wrong = wrong + 1
          print("  " .. file .. "," .. got)
        end
      end
    end
    print(("  %d files of %s, %d of them read"):format(files, package, read))
    t.equal(wrong, 0, "rows of " .. path .. " that changed")
    if others > 0 then t.skip(absent) end
    t.check(files >= least, "%s: %d rows, wanted %d", path, files, least)
  end)
end

t.finish()
