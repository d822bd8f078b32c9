-- manifest.lua -- manifest.json of a run: the program and inputs that made it, and how each start
-- of it ended.
--
-- Two runs with the same hashes of recipe, network, preprocessing and data, the same config and the
-- same program have bit-identical weights on the same kind of device. The hashes are SHA-256 and
-- can be checked without this program: that of the recipe is printed by `sha256sum recipe.lua`.
-- Paths and names are not recorded, nor texts of errors, which may contain both.

local core = require "seg.core"
local config = require "seg.recipe.config"
local recipes = require "seg.recipe.recipe"
local run_folder = require "seg.report.run"
local run_kind = require "seg.report.run_kind"
local util = require "seg.util"

local sys = core.sys
local M = {}

local SHOWN = 100 -- characters of the name of a device

-- Seconds since 1970 as UTC, in the form of ISO 8601.
function M.time(seconds)
  return os.date("!%Y-%m-%dT%H:%M:%SZ", seconds)
end

-- Keys and flags with paths or commands as values.
local private = { data = true, out = true, phantom = true, cache_file = true, resume = true,
                  weights = true, on_finish = true, on_nan = true, on_stall = true }

-- The words of the command line after the script; a word that may be a path is replaced by PATH.
function M.command()
  local line, words = config.line, { config.line.command }
  local function add(key, v)
    words[#words + 1] = "--" .. key
    if v == true or v == nil then return end
    local text = tostring(v)
    words[#words + 1] = (private[key] and text ~= "auto" or text:find("[/\\]")) and "PATH" or text
  end
  for _, name in ipairs(line.names) do
    if line.flags[name] then add(name, line.flags[name]) end
  end
  for _, o in ipairs(line.options) do add(o[1], o[2]) end
  return words
end

-- The facts about a part of the data. Its hash is computed from the voxels of all images and from
-- no names: the same files give it on any machine, in any folder.
local function part_facts(d)
  local images, patients, count = {}, {}, 0
  for i, case in ipairs(d.pipeline:cases()) do
    images[i] = d.pipeline:facts(i).image
    if not patients[case.patient] then patients[case.patient], count = true, count + 1 end
  end
  table.sort(images)
  return { cases = #images, patients = count, samples = d.pipeline:samples(),
           sha256 = core.sha256(table.concat(images, "\n")) }
end

-- The manifest of a run's folder; nil if it is missing or unreadable.
function M.read(folder)
  return run_kind.read_json(folder .. "/manifest.json")
end

local Manifest = {}
Manifest.__index = Manifest

function Manifest:write()
  sys.write(self.path, util.json(self.facts) .. "\n")
end

-- The hashes of the data, for a checkpoint: the images that its weights were trained on.
local function data_text(data)
  local list = {}
  for _, part in ipairs { "train", "valid", "test" } do
    if data[part] then list[#list + 1] = part .. "=" .. data[part].sha256 end
  end
  return table.concat(list, " ")
end

-- Begins, or continues, the manifest of a run with open data and session.
function M.open(run)
  local v, r, facts = run.values, run.recipe, run.session:facts()
  local program = { version = core.version, build = core.build,
                    sha256 = core.sha256_file("/proc/self/exe") }
  local data = {}
  for part, d in pairs(run.data) do data[part] = part_facts(d) end
  run.data_sha256 = data_text(data)
  local gpu, name = core.gpu(math.tointeger(tonumber(v.device:match("^cuda:(%d+)$"))) or 0)
  local old = M.read(run.folder)
  local sessions = old and type(old.sessions) == "table" and old.sessions or {}
  for _, s in ipairs(sessions) do
    if s.state == "running" then s.state = "killed" end
  end
  sessions[#sessions + 1] = {
    state = "running", started = M.time(os.time()), command = M.command(),
    device = facts.device == "cuda" and gpu and name or facts.device, isa = core.isa(),
    threads = facts.threads, workers = v.workers, program = program.sha256,
    from_epoch = run.state.epoch, from_batch = run.state.batch, epochs = run.epochs }
  return setmetatable({ path = run.folder .. "/manifest.json", facts = {
    format = 1, kind = run_kind.of_values(v), seed = v.seed, precision = v.precision,
    preset = config.preset, program = program,
    recipe = { name = run.name, sha256 = core.sha256(run.text) },
    network = { sha256 = core.sha256((recipes.network(r))), parameters = facts.trained,
                running = facts.running },
    preparation = core.sha256(r.train:prepare_steps()), data = data,
    origin = r.train:origin(r.train:people()),
    config = run_folder.values(config.print(v, config.fixed)), sessions = sessions } }, Manifest)
end

-- Whether two instruction sets give the same bits: variants of AVX-512 differ only in bf16.
local function same_isa(a, b, precision)
  local has_512 = { avx512 = true, avx512_bf16 = true, amx = true }
  return precision ~= "bf16" and has_512[a] and has_512[b]
end

-- The differences of this start from the one before that may change the order of the arithmetic;
-- nil if there are none, or for the first start.
function Manifest:changed()
  local list = self.facts.sessions
  local now, was, out = list[#list], list[#list - 1], {}
  for _, e in ipairs { { "device", "another device or driver" },
                       { "isa", "other vector instructions" },
                       { "program", "another program, by its SHA-256" } } do
    local is, old = now[e[1]], was and was[e[1]]
    local same = old == is or e[1] == "isa" and same_isa(is, old, self.facts.precision)
    if old and not same then
      out[#out + 1] = string.format("%s (%s, was %s)", e[2], is:sub(1, SHOWN), old:sub(1, SHOWN))
    end
  end
  return out[1] and table.concat(out, ", ")
end

-- Records how this start of the run ended: "finished", "stopped", "diverged" or "failed".
function Manifest:ended(state, epoch)
  local s = self.facts.sessions[#self.facts.sessions]
  s.state, s.ended, s.to_epoch = state, M.time(os.time()), epoch
  self:write()
end

return M
