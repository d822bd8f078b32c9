-- check.lua -- the command check: compares a device with the reference.
--
--   segengine check [--device D] [--op NAME] [--precision NAME] [--share I/N] [--json]
--
-- Every operator of ops.def runs its cases on the device and on `ref` (plain loops in double),
-- forward and backward; gradients of `ref` are compared with central differences. The bounds are in
-- docs/numerics.md; a NaN never passes. The exit code is 1 if a case fails. Operators with products
-- in fewer bits than f32 are checked in each precision of the device. Batches from a device dataset
-- are compared with batches of the host. --share: one of N shares of the cases of each operator,
-- without runs that access the same addresses again, for tools that slow a program down, as
-- compute-sanitizer.

local core = require "seg.core"
local config = require "seg.recipe.config"
local devices = require "seg.train.device"
local util = require "seg.util"
local words = require "seg.args"

local M = {}

local known = { device = "auto, cpu, cuda, cuda:N", op = "the name of an operator",
                precision = core.precision_names, share = "I/N: share I of N of the cases",
                json = false }

-- The numbers of the suites of one operator, or of all.
local function suites_of(op)
  local all, out, names = core.suites(), {}, {}
  for i, s in ipairs(all) do
    names[s.op] = true
    if not op or s.op == op then out[#out + 1] = { number = i, op = s.op, note = s.note } end
  end
  if #out == 0 then
    util.refuse('--op: there is no operator "%s"; %s', op,
                util.suggest(op, util.sorted_keys(names)))
  end
  return out
end

-- Prints the failures of core.check or core.check_node, a line each.
function M.print_failures(found)
  if found.failures > 0 then print((found.text:gsub("([^\n]+)", "    %1"):gsub("\n$", ""))) end
end

-- Prints the largest error of Winograd convolutions, if there were any (opcase.h).
function M.print_blur(blur)
  if blur > 0 then
    print(string.format("winograd: %.2g of the largest (bound %.2g)", blur, core.blur))
  end
end

-- Prints a row of the table and its failures.
local function print_row(row, found)
  local verdict = row.failures == 0 and "ok" or row.failures .. " FAILED"
  print(string.format("%-19s %-5s %8d  %11d  %-9.2g %s%s", row.op, row.precision, row.gradient,
                      row.agree, row.worst, verdict, row.note and "  (" .. row.note .. ")" or ""))
  M.print_failures(found)
end

-- Refuses ref: a comparison of the reference with itself always passes.
function M.refuse_ref(device)
  if device == "ref" then
    util.refuse("--device ref: ref is the reference for all devices, and a comparison with itself "
                .. "shows nothing; use --device cpu, which checks the gradients of ref too")
  end
end

-- "2/20" -> 20, 2
local function share_of(text)
  if not text then return end
  local share, shares = text:match("^(%d+)/(%d+)$")
  share, shares = math.tointeger(tonumber(share)), math.tointeger(tonumber(shares))
  if not share or share < 1 or share > shares or shares > 1000 then
    util.refuse('--share %s: want I/N, share I of N of the cases of each operator, '
                .. "1 <= I <= N <= 1000, as in --share 1/20", text)
  end
  return shares, share
end

-- Runs the command with args, "check" and its options. -> exit code
function M.command(args)
  local o = words.parse(args, known, "--device D, --op NAME, --precision NAME, --share I/N "
                        .. "and --json")
  local shares, share = share_of(o.share)
  if o.precision then config.pick("--precision", o.precision, core.precisions_known) end
  M.refuse_ref(o.device)
  config.ensure().device = o.device or "auto"
  devices.choose()
  local name = config.values.device
  core.open_device(name)
  local precisions = core.precisions(name, o.precision)
  local list, failures, cases, rows, blur = suites_of(o.op), 0, 0, {}, 0
  if not o.json then
    print(string.format("%s against ref%s", name, devices.note()))
    print("operator            in    gradient  against ref  worst error / bound")
  end
  for _, s in ipairs(list) do
    for _, p in ipairs(precisions) do
      local r = core.check(name, s.number, p.name, shares, share)
      if r.gradient + r.agree > 0 then
        failures, cases = failures + r.failures, cases + r.gradient + r.agree
        blur = math.max(blur, r.blur)
        rows[#rows + 1] = { op = s.op, note = s.note, precision = p.name,
                            gradient = r.gradient, agree = r.agree, worst = r.worst,
                            failures = r.failures }
        if not o.json then print_row(rows[#rows], r) end
      end
    end
  end
  local batches
  if not o.op and not o.precision and not o.share then
    local r = core.check_data(name)
    failures, cases = failures + r.failures, cases + r.agree
    batches = r.agree > 0 and { op = "(batches)", precision = "f32", gradient = 0, agree = r.agree,
                                worst = r.worst, failures = r.failures } or nil
    if batches and not o.json then print_row(batches, r) end
  end
  if o.json then
    print(util.json { device = name, cases = cases, failures = failures, operators = rows,
                      batches = batches, winograd = blur > 0 and blur or nil })
  else
    M.print_blur(blur)
    print(string.format("%d cases: %s", cases,
                        failures == 0 and "all within their bounds" or failures .. " failures"))
  end
  return failures == 0 and 0 or 1
end

return M
