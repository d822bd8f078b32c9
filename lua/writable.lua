-- writable.lua -- checks that the files of a command can be written, before data is opened and
-- hours are spent.

local core = require "seg.core"
local util = require "seg.util"

local M = {}

-- Raises unless files can be made in `folder`, which need not exist yet. option: the option that
-- sets it.
function M.check_folder(folder, option)
  local fine, where, why = core.sys.may_write(folder)
  if not fine then
    util.fail("failure", "%s cannot be written: %s: %s; fix: give another place with --%s, or "
              .. "change its permissions", folder, where, why, option)
  end
end

local function folder_of(file) return file:match("^(.+)/[^/]*$") or file:match("^/") or "." end

-- The same for a file, which may or may not exist.
function M.check_file(file, option)
  local stat = core.sys.stat(file)
  if stat and stat.kind == "folder" then
    util.refuse("--%s %s: that is a folder; give the name of a file", option, file)
  end
  M.check_folder(folder_of(file), option)
end

-- The same for a file in a folder that is not created.
local function check_in_folder(file, option)
  M.check_file(file, option)
  local folder = folder_of(file)
  if not util.exists(folder) then
    util.refuse("--%s %s: there is no folder %s; fix: make it (mkdir -p %s), or give another place",
                option, file, folder, folder)
  end
end

-- The paths that commands write, by the names of their flags, else keys of the config. train writes
-- to the folder of its run.
local folders = {
  folds = { "out" }, ["repeat"] = { "out" }, search = { "out" }, predict = { "out" },
  lr_range = { "out" }, export = { "reference", "arrays" },
}
local files = {
  train = { "trace" }, bench = { "trace" }, predict = { "zip" }, doctor = { "html" },
  export = { "bundle", "onnx", "safetensors" },
}

-- Checks all paths that `command` will write. given: the flags of the line; values: the config;
-- resume: the folder of the resumed run, or nil.
function M.check(command, given, values, resume)
  if command == "train" then
    M.check_folder(resume or given.run or values.out, given.run and "run" or "out")
  end
  for _, name in ipairs(folders[command] or {}) do
    local folder = given[name] or values[name]
    if folder then M.check_folder(folder, name) end
  end
  for _, name in ipairs(files[command] or {}) do
    local check = command == "export" and check_in_folder or M.check_file
    if given[name] then check(given[name], name) end
  end
  local kept = values.cache_file
  if kept ~= "" and kept ~= "auto" then M.check_file(kept, "cache_file") end
end

return M
