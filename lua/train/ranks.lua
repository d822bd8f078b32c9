-- ranks.lua -- this process as one of several ranks that train together.
--
-- --ranks N starts this program N times on this machine; mpirun and srun start it on many machines.
-- All ranks run the same script and the same loop on their shards of the data, and communicate in
-- every step. Rank 0 writes and prints. Before a decision, for example after a signal, all ranks
-- must agree: a rank that takes another branch would wait for the others for ever.

local core = require "seg.core"
local config = require "seg.recipe.config"
local devices = require "seg.train.device"
local show = require "seg.show"
local util = require "seg.util"

local fail = util.fail
local M = { rank = 0, count = 1 }

-- Whether this rank writes files and prints; true for a single process.
function M.writes() return M.rank == 0 end

-- The texts of all ranks, numbered from 1. All ranks must call this and the functions below
-- together.
function M.gather(text)
  if M.count == 1 then return { text } end
  return core.ranks.gather(text)
end

-- The text of rank 0.
function M.of_first(text) return M.gather(text)[1] end

function M.barrier() M.gather("") end

-- Runs f on rank 0 first, so that the other ranks find its files.
function M.in_turn(f)
  if M.rank == 0 then f() end
  M.barrier()
  if M.rank > 0 then f() end
end

-- The signal that stopped any of the ranks and its name, nil if there was none. Unlike sys.stopped
-- the answer is the same on all ranks.
function M.stopped()
  if M.count == 1 then return core.sys.stopped() end
  if not M.signal then
    local number, called = core.sys.stopped()
    for _, text in ipairs(M.gather(number and number .. " " .. called or "")) do
      if not M.signal and text ~= "" then
        number, called = text:match("^(%d+) (.*)$")
        M.signal, M.called = math.tointeger(tonumber(number)), called
      end
    end
  end
  return M.signal, M.called
end

-- Raises if `text` differs between ranks, because each would silently train another network. `text`
-- is sent to all ranks, so a large text should be a hash.
function M.same(what, text, advice)
  for k, other in ipairs(M.gather(text)) do
    if other ~= text then
      fail("failure", "rank %d has %s than rank %d: %s", k - 1, what, M.rank, advice)
    end
  end
end

-- The compute threads of a session if the config says `threads`: the ranks of a machine share its
-- cores.
function M.threads(threads)
  local here = M.count
  if M.via == "MPI" then
    here = tonumber(os.getenv("OMPI_COMM_WORLD_LOCAL_SIZE") or os.getenv("MPI_LOCALNRANKS")) or 1
  end
  if threads > 0 or here == 1 then return threads end
  return math.max(core.sys.machine().cores // here, 1)
end

-- Divides a pass over so many batches among the ranks: the number of rounds, and the number of
-- rounds in which this rank has a batch (whole_batches of data/loader/loader.h). With fewer batches
-- than ranks several ranks run the same batch.
function M.rounds(batches)
  local n = math.min(M.count, batches)
  if n == 0 then return 0, 0 end
  return (batches + n - 1) // n, (batches - 1 - M.rank % n) // n + 1
end

-- A batch as text, and back.
local function pack(b)
  local out = { string.pack("<i8di8i8i8", b.number, b.loss, b.counted, #b.values, #b.samples) }
  for i, n in ipairs(b.samples) do
    out[#out + 1] = string.pack("<i8s4", n, b.bad and b.bad[i] or "")
  end
  for _, v in ipairs(b.values) do out[#out + 1] = string.pack("<s8", core.ranks.pack(v)) end
  return table.concat(out)
end

local function unpack(text, at)
  local number, loss, counted, values, samples, next_at = string.unpack("<i8di8i8i8", text, at)
  local b = { number = number, loss = loss, counted = counted, samples = {}, values = {}, bad = {} }
  at = next_at
  for i = 1, samples do
    local bad
    b.samples[i], bad, at = string.unpack("<i8s4", text, at)
    b.bad[i] = bad ~= "" and bad or nil
  end
  for i = 1, values do
    b.values[i], at = string.unpack("<s8", text, at)
    b.values[i] = core.ranks.unpack(b.values[i])
  end
  return b, at
end

-- Merges the batches of all ranks, in order, each once. list: the batches of this rank, { {
-- number=, loss=, counted=, bad=, samples = {...}, values = {array, ...} }, ... } after
-- not_finite.judge.
function M.whole(list)
  if M.count == 1 then return list end
  local own, all, seen = {}, {}, {}
  for i, b in ipairs(list) do own[i] = pack(b) end
  for _, text in ipairs(M.gather(table.concat(own))) do
    local at = 1
    while at <= #text do
      local b
      b, at = unpack(text, at)
      if not seen[b.number] then all[#all + 1] = b end
      seen[b.number] = true
    end
  end
  table.sort(all, function(a, b) return a.number < b.number end)
  return all
end

-- The part of a run that depends on the ranks, for checkpoints; nil for a single process.
function M.text()
  if M.count == 1 then return nil end
  return M.count .. (config.values.sync_norm and "" or " own_norms")
end

-- Every batch must have a sample for each rank, except the last of an epoch.
function M.check_batch(size)
  -- in a single process it may still be "auto"
  if M.count > 1 and size < M.count then
    local less = size < config.values.batch and " (of " .. config.values.batch .. ", as there are "
      .. "no more samples)" or ""
    util.refuse("--batch %d%s: %d ranks share a batch, so each would have less than a sample; "
                .. "--batch %d or more, or fewer ranks", size, less, M.count, M.count)
  end
end

-- Seconds that this rank has spent in communication so far.
function M.spent()
  if M.count == 1 then return 0 end
  return (core.ranks.stats())
end

-- The GPU numbers of --devices, as doctor lists them; nil if not given.
local function listed(v)
  if v.devices == "" then return nil end
  local list, has = {}, {}
  for word in (v.devices .. ","):gmatch("([^,]*),") do
    local number = word:match("^%d+$") and math.tointeger(tonumber(word))
    if not number then
      util.refuse('--devices %s: "%s" is not the number of a GPU; give numbers that segengine '
                  .. 'doctor lists, with commas between: --devices 0,1', v.devices, word)
    end
    if has[number] and v.allreduce ~= "host" then
      util.refuse("--devices %s: two ranks on GPU %d would share its speed and its memory, and "
                  .. "NCCL accepts one rank a GPU; name others, or use --allreduce host to test "
                  .. "several ranks on one GPU", v.devices, number)
    end
    has[number], list[#list + 1] = true, number
  end
  if v.device ~= "auto" and v.device ~= "cuda" then
    util.refuse("--devices %s: they are GPUs, and --device is %s; leave one out", v.devices,
                v.device)
  end
  for _, number in ipairs(list) do
    local there, why = core.gpu(number)
    if not there then fail("device", "--devices %s: GPU %d: %s", v.devices, number, why) end
  end
  return list
end

-- Variables by which launchers give the number of a rank within its machine.
local LOCAL = { "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID" }

local function local_rank()
  if M.via ~= "MPI" then return M.rank end
  for _, name in ipairs(LOCAL) do
    local number = math.tointeger(tonumber(os.getenv(name)))
    if number then return number end
  end
  return 0
end

-- The number of the GPU of this rank; nil and the reason if this machine has none for it.
local function own_gpu()
  local place = local_rank()
  local there, why = core.gpu(place)
  if there then return place end
  -- a launcher may show each rank only its own GPU
  if M.via == "MPI" and core.gpu(0) and not core.gpu(1) then return 0 end
  return nil, why
end

-- --device auto: a GPU for each rank, or the CPU for all, since ranks of two kinds would wait for
-- the slower. Rank 0 prints why, and the warning of the rank that caused it.
local function auto_device(v)
  local number, lacks = own_gpu()
  local device, why, warning = "cpu", lacks or "", ""
  if number then device, why, warning = devices.find(v.precision, number) end
  local cause, said
  for k, text in ipairs(M.gather(string.pack("<s4s4", why, warning))) do
    local its_why, its_warning = string.unpack("<s4s4", text)
    local from = "rank " .. k - 1 .. ": "
    if its_why ~= "" and not cause then
      cause, said = from .. its_why, its_warning ~= "" and from .. its_warning
    elseif its_warning ~= "" then
      said = said or from .. its_warning
    end
  end
  if said then show.warn("%s", said) end
  devices.set(cause and "cpu" or device, cause)
end

-- The device of this rank, on a machine whose GPUs are divided among its ranks.
local function own_device(v, list)
  local place = local_rank()
  if list then
    if not list[place + 1] then
      util.refuse("--devices %s: it names %s, and this machine has rank %d of its own, from 0; "
                  .. "name a GPU for each", v.devices, util.plural(#list, "GPU"), place)
    end
    return "cuda:" .. list[place + 1]
  end
  if v.device ~= "cuda" then return v.device end
  local number, why = own_gpu()
  if number then return "cuda:" .. number end
  return fail("device", "rank %d is number %d of its machine: %s", M.rank, place, why)
end

-- Calls f() in the right number of ranks: in this process if it is a rank or the only one, else it
-- starts the ranks. args: the command line of this program. -> exit code
function M.run(args, f)
  local v, given = config.ensure(), nil
  for _, o in ipairs(config.line.options) do
    if o[1] == "ranks" then given = v.ranks end
  end
  local rank, count, via = core.ranks.open()
  local list = listed(v)
  if not rank then
    if list and given and given ~= #list then
      util.refuse("--ranks %d: --devices %s are %d; leave --ranks out", given, v.devices, #list)
    end
    if list then v.ranks = #list end
    if v.ranks == 1 then
      if list then devices.set("cuda:" .. list[1]) end
      devices.choose()
      return f()
    end
    if v.batch == "auto" then
      util.refuse("--batch auto: ranks may find different numbers; give one for all ranks together")
    end
    core.sys.catch_signals() -- signals are passed on to the ranks
    return core.ranks.start(v.ranks, args)
  end
  if given and given ~= count then
    util.refuse("--ranks %d: the launcher started %d; leave --ranks out", given, count)
  end
  M.rank, M.count, M.via, v.ranks = rank, count, via, count
  show.silent = rank > 0
  if v.device == "auto" and not list then
    auto_device(v)
  else
    devices.set(own_device(v, list))
  end
  if v.pin then core.sys.pin(local_rank() * M.threads(v.threads)) end
  if rank > 0 then
    config.line.flags.quiet = true
    print = function() end -- luacheck: ignore 121
  end
  return f()
end

return M
