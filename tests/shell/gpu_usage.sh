#!/bin/sh
# gpu_usage.sh -- the counters of a GPU's driver, with a stand-in for NVML.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh

mkdir "$tmp/driver" "$tmp/old"
${CC:-cc} -shared -fPIC -o "$tmp/driver/libnvidia-ml.so.1" \
    tests/support/stand_in/nvml.c 2> "$tmp/said" ||
    skip "no compiler for the stand-in: $(head -n 1 "$tmp/said")"
echo 'int nvmlInit_v2(void) { return 0; }' > "$tmp/old.c"
${CC:-cc} -shared -fPIC -o "$tmp/old/libnvidia-ml.so.1" "$tmp/old.c"

# with FOLDER COMMAND ...: the library of that folder is found first
with() {
    folder=$1
    shift
    LD_LIBRARY_PATH=$tmp/$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$@"
}
row() { # the text of doctor's row "driver"
    "$@" "$PROGRAM" doctor > "$tmp/doctor"
    sed -n 's/^driver *//p' "$tmp/doctor"
}
gpu="GPU 0 Stand-in 1, limit 700 W, now 200 W, 41 C, 0 % busy; GPU 1 Stand-in 2"
step "doctor" test "$(row with driver)" = "ok  550.54.14; $gpu"
step "a driver that was replaced" test "$(row with driver env NVML_INIT=18)" = \
    "-   NVML: Driver/library version mismatch; fix: restart the machine if its driver was updated"
step "a driver that is too old" test "$(row with old)" = \
    "-   libnvidia-ml.so.1 has no nvmlShutdown; fix: a newer driver"
if ! ldconfig -p 2> /dev/null | grep -q libnvidia-ml; then
    step "no driver" test -z "$(row env)"
    none=1
fi

cat > "$tmp/gpu_monitor.lua" <<'END'
local core = require "seg.core"
local mode = os.getenv "MODE"
local g, why = core.gpu_monitor("0000:00:00.0", mode == "slow" and 60 or 0.02)
if mode == "none" then
  assert(g == nil and why:find "libnvidia%-ml", why)
  return
end
assert(g, why)
local other, reason = core.gpu_monitor("0000:00:07.0")
assert(other == nil and reason == "NVML: GPU 0000:00:07.0: Not Found", reason)
if mode == "slow" then
  -- one look when it was opened (use 0), one at the reading
  local r = g:read()
  assert(r.looks == 1 and r.use == 10 and r.watts == 200 and r.celsius == 41, r.use)
  assert(r.bytes == 2 << 30 and r.joules == 50, r.joules)
  -- each reading begins where the one before it ended
  r = g:read()
  assert(r.looks == 1 and r.use == 20 and r.joules == 50, r.joules)
elseif mode == "power" then
  -- no count of energy: power times time
  local from = core.sys.clock()
  g:read()
  core.sys.sleep(0.3)
  local r = g:read()
  local most = 200 * (core.sys.clock() - from)
  assert(r.looks > 2 and r.joules > 0.8 * 200 * 0.3 and r.joules <= most, r.joules)
else
  core.sys.sleep(0.3)
  local r = g:read()
  assert(r.looks > 2 and r.joules == 50 * r.looks and r.use > 10, r.joules)
end
g:close()
assert(not pcall(g.read, g))
END
try() { with driver env MODE="$1" "$PROGRAM" "$tmp/gpu_monitor.lua"; }
step "a look at each reading" try slow
step "its thread looks too" try fast
step "power for energy" with driver env MODE=power NVML_ENERGY=none \
    "$PROGRAM" "$tmp/gpu_monitor.lua"
[ -z "${none:-}" ] ||
    step "no library" env MODE=none "$PROGRAM" "$tmp/gpu_monitor.lua"
finish
