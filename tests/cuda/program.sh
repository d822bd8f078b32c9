#!/bin/sh
# program.sh -- the whole program with the emulated GPU: options, device datasets,
# checks and benchmarks that Lua puts together.
#
#     tests/cuda/program.sh BUILD/emu
emu=$1
case $emu in /*) ;; *) emu=$PWD/$emu ;; esac
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh
. tests/cuda/runs

cat > "$tmp/tiny.lua" <<'END'
local seg = require "seg"
local nn, data, optim, metric = seg.nn, seg.data, seg.optim, seg.metric
local cfg = seg.config { epochs = 2, batch = 5, seed = 7, blur = false }
local set = data.phantom { patients = 4, size = 16, slices = 48 }
local train, valid = set:split { valid = 1, seed = 3 }
local function prepare(s) return s:fit { h = 15, w = 13 }:normalize {}:slices {} end
train = prepare(train):augment {
  flip = { axis = "hw" }, affine = { p = 0.7, rotate = { -40, 40 } }, contrast = true,
  brightness = true, gamma = { p = 0.6 }, noise = { p = 0.6 }, blur = cfg.blur,
  elastic = { p = 0.7, spacing = 5, amplitude = { 1, 2 } },
}:batches { size = cfg.batch, shuffle = true }
valid = prepare(valid):batches { size = cfg.batch }
local image = nn.input("image", { c = 1, h = 15, w = 13 })
local mask = nn.input("mask", { c = 1, h = 15, w = 13 })
local logits = nn.conv(nn.relu(nn.batch_norm(nn.conv(image, 4, 3))), 1, 1)
seg.recipe {
  inputs = { image, mask }, outputs = { mask = nn.sigmoid(logits) },
  loss = nn.bce_dice(logits, mask), train = train, valid = valid,
  optim = optim.adamw { lr = 0.01 }, epochs = cfg.epochs,
  metrics = { dice = metric.dice(logits, mask, { empty = "one" }) }, best = { "dice", "max" },
}
END

# the columns without times
numbers() { cut -d, -f1-7 "$tmp/$1/tiny/001/metrics.csv"; }
same() { [ "$(numbers "$1")" = "$(numbers "$2")" ] && [ -n "$(numbers "$1")" ]; }

# the emulator rounds like the host, so batches of both are equal, not only close
step "a batch is made by the host" train off --device_dataset off
step "it does not speak of the device" not says off "samples on the device"
step "a batch is made by the device" train on --device_dataset on --workers 0
step "training set kept" says on "train: [0-9.]* KiB of samples on the device"
step "validation set kept" says on "valid: [0-9.]* KiB of samples on the device"
step "the same numbers" same on off
step "auto takes what fits" train auto
step "auto says so" says auto "train: .* of samples on the device"
step "the same numbers again" same auto off

step "less than half of what is free holds the data" with EMU_MEM=260000 train small
step "which is said" says small \
    "train: from the loader: its samples need [0-9.]* MiB, half of the free memory"
step "the same numbers, too" same small off

step "a change that has no kernel is made by the host" train blurred --blur
step "which is said" says blurred \
    "train: from the loader: augment has blur, which only the host's loader can run"
step "the set without changes is kept all the same" says blurred \
    "valid: [0-9.]* KiB of samples on the device"
step "told to keep them, it is an error" ends 2 train blurred_on --blur --device_dataset on
step "which says why" says blurred_on \
    "device_dataset on: train cannot be kept: augment has blur"

step "told to keep them, it fails" ends 4 with EMU_MEM=150000 train small_on --device_dataset on
step "what it wanted" says small_on \
    "device_dataset on: train cannot be kept: GPU: [0-9]* bytes needed, [0-9]* of"

# weights are aligned; the memory after them must fit as well
step "not even the weights" ends 4 with EMU_MEM=18000 train tight
step "what frees too little" says tight "--batch 1 .*, still too much"

# the part of `segengine check` about batches, without the other parts' minutes
cat > "$tmp/check.lua" <<'END'
local core = require "seg.core"
local r = core.check_data("cuda")
assert(r.agree > 300 and r.failures == 0 and r.text == "", r.text)
assert(core.check_data("cpu").agree == 0)
END
step "batches are checked" "$program" "$tmp/check.lua"

# a device dataset and a session that uses it, without a recipe
cat > "$tmp/hand.lua" <<'END'
local seg = require "seg"
local core = require "seg.core"
seg.config {}
local set = seg.data.phantom { patients = 1, size = 16, slices = 8,
                               root = os.getenv "HAND" .. "_phantom" }
set = set:fit { h = 16, w = 16 }:normalize {}:slices {}:batches { size = 2 }
local pipeline = set:pipeline { threads = 1, seed = 1 }
image = seg.nn.input("image", { c = 1, h = 16, w = 16 })
mask = seg.nn.input("mask", { c = 1, h = 16, w = 16 })
function session()
  return core.session { roots = { image, mask }, device = "cuda" }
end
function keep(s)
  return core.data.device_dataset(s, pipeline, { nodes = { image, mask }, batch = 2 })
end
function refuses(text, f, ...)
  local ok, why = pcall(f, ...)
  assert(not ok and tostring(why):find(text, 1, true), tostring(why))
end
dofile(os.getenv "HAND")
END
HAND=$tmp/do.lua && export HAND
hand() { cat > "$HAND" && hand=$1; }
by_hand() { run "$hand" "$tmp/hand.lua"; }

hand closed <<'END'
local s, other = session(), session()
local r, gone = assert(keep(s)), assert(keep(s))
local batch = r:draw(0, { 1, 2 })
s:forward({ image = batch, mask = batch }, false)
assert(r:bytes() == 16 * 16 * 8 * 5)
refuses("this batch belongs to another session", other.forward, other,
        { image = batch, mask = batch }, false)
assert(gone:bytes() > 0)
gone = nil
collectgarbage()
s:close()
assert(r:bytes() == 0)
refuses("this data set is closed", r.draw, r, 0, { 1, 2 })
refuses("this batch belongs to another session", other.forward, other,
        { image = batch, mask = batch }, false)
r, batch, s = nil, nil, nil
collectgarbage()
-- both at once, in the order of the collector, and at the end of the program
assert(keep(session()))
collectgarbage()
left = { keep(other), other }
END
# freed memory is filled, so that a use after free changes results
step "a session is closed before what lies on its device" \
    with MALLOC_PERTURB_=165 by_hand

hand fed <<'END'
local seg = require "seg"
local s = session()
local r = assert(keep(s))
local a, b = r:draw(0, { 1, 2 }), r:draw(0, { 3, 4 })
s:forward({ image = a, mask = a }, false)
local was = s:read(image)
refuses("inputs of two batches", s.forward, s, { image = a, mask = b }, false)
local own = seg.array.zeros { 2, 1, 16, 16 }
own:set(9, 2, 1, 3, 5)
s:forward({ image = a, mask = own }, false)
assert(s:read(mask):get(2, 1, 3, 5) == 9 and s:read(mask):get(1, 1, 3, 5) == 0)
assert(s:read(image):distance(was) == 0)
END
step "an input has what it was given" by_hand

# a device failure is not reported as too little memory
hand fault <<'END'
local r, why = keep(session())
print(r and "kept" or "loader: " .. why)
END
step "all goes well" by_hand
step "it is kept" says fault "^kept"
faulty() {
    for k in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        with "EMU_FAIL=$k,719" by_hand
        code=$?
        if says fault "^loader" || { [ "$code" -ne 0 ] && [ "$code" -ne 4 ]; }; then
            echo "call $k: exit code $code" && cat "$tmp/fault.txt"
            return 1
        fi
    done
}
step "a fault of the device is told" faulty

# resumed in the middle of the second epoch with the loader instead
step "a part" train part --device_dataset on --steps 41
step "the rest" train part --device_dataset off --resume "$tmp/part/tiny/001"
step "a resumed run has the same numbers" same part off
step "a part without" train rest --device_dataset off --steps 41
step "the rest with" train rest --device_dataset on --resume "$tmp/rest/tiny/001"
step "it has the same numbers, too" same rest off
step "what makes the batches is told when it changes" says part \
    "train: the host makes the batches now, not the device: the numbers"
step "in both directions" says rest \
    "train: the device makes the batches now, not the host: the numbers"

# a resumed run keeps its choice, with less free memory and with more
step "a run with its data on the device" train here --steps 41
step "which has no room for them later" ends 4 with EMU_MEM=150000 train here \
    --resume "$tmp/here/tiny/001"
step "does not go on otherwise by itself" says here \
    "train: the device made the batches of the resumed run, and cannot"
# with this memory a new run uses the loader; the resumed run keeps its dataset,
# and other requests fail
step "half of what is free is no limit" ends 4 with EMU_MEM=300000 train here \
    --resume "$tmp/here/tiny/001"
step "they are kept" says here "train: .* of samples on the device"
step "with room as before" train here --resume "$tmp/here/tiny/001"
step "it goes on" same here off
step "without a warning" not says here "makes the batches now"
step "a run from the loader" with EMU_MEM=300000 train there --steps 41
step "stays there" train there --resume "$tmp/there/tiny/001"
step "though there is room" not says there "train: .* of samples on the device"
step "without a warning, too" not says there "makes the batches now"
step "a run on the device goes to the CPU" train move --steps 41
step "which is told" train move --device cpu --resume "$tmp/move/tiny/001"
step "as it rounds otherwise" says move "the host makes the batches now"

# cases in which no device dataset is possible
step "not on the CPU" ends 2 train cpu --device cpu --device_dataset on
step "why not" says cpu "device_dataset on: train cannot be kept: the device is cpu"
step "the CPU by itself" train quiet --device cpu --epochs 1
step "does not speak of it" not says quiet "from the loader"

# precisions below f32
step "an operator in every precision" run rows check --device cuda --op linear
for precision in f32 tf32 bf16 f16; do
    step "$precision is one" says rows "^linear  *$precision .* ok"
done
# gradients are compared without their loss scale
step "a recipe's steps in f16" run steps scripts/brain_unet.lua check \
    --device cuda --precision f16 --steps_only --preset check \
    --phantom "$tmp/phantom" --out "$tmp/steps"
# compute capability 7.5: 64 KB of shared memory, no bf16 and no tf32
turing() { with EMU_CC=75 "$@"; }
step "steps in f16 on 7.5" turing run steps_75 scripts/headpose_cnn.lua check \
    --device cuda --precision f16 --steps_only --preset check \
    --phantom "$tmp/faces" --out "$tmp/steps"
step "the precisions of 7.5" turing run rows_75 check --device cuda --op linear
step "f16 is one" says rows_75 "^linear  *f16 .* ok"
step "bf16 and tf32 are none" not says rows_75 "bf16\|tf32"
step "no training in bf16 on 7.5" ends 2 turing train bf16_75 --precision bf16
step "no bench in tf32" ends 2 turing run tf32_75 "$tmp/tiny.lua" bench --device cuda \
    --precision tf32
step "no check in bf16" ends 2 turing run check_75 check --device cuda --op linear \
    --precision bf16
step "no plan for a T4 in bf16" ends 2 run plan_75 "$tmp/tiny.lua" plan --gpu t4 \
    --precision bf16
for name in bf16_75 tf32_75 check_75 plan_75; do
    step "$name says why" says $name "precision .* is not available on this GPU: the .*7\.5"
    step "$name says what to do" says $name "use --precision f16 or f32"
    step "$name has read no data" not says $name "^epoch\|patients"
done
step "training in bf16" train bf16 --precision bf16 --epochs 1
step "it says so" says bf16 "device: GPU, convolutions in bf16"
step "on in another" ends 2 train f32 --precision f32 \
    --resume "$tmp/bf16/tiny/001" --epochs 2
step "is another run" says f32 "precision f32 differs from the run"
# energy counters of the driver, from a substitute for NVML
mkdir "$tmp/driver"
if ${CC:-cc} -shared -fPIC -o "$tmp/driver/libnvidia-ml.so.1" \
    tests/support/stand_in/nvml.c 2> "$tmp/said"; then
    path=$tmp/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    column() { # NAME COLUMN: of metrics.csv
        awk -F, -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++)
            if ($i == name) at = i } NR > 1 && at { print $at }' \
            "$tmp/$1/tiny/001/metrics.csv"
    }
    step "a run that is looked at" with LD_LIBRARY_PATH="$path" train looked
    step "its power" [ "$(column looked gpu_w | sort -u)" = 200 ]
    step "its memory" [ "$(column looked gpu_mb | sort -u)" = 2048 ]
    step "its energy" [ "$(column looked gpu_j | awk '$1 >= 50' | wc -l)" = 2 ]
    step "the same numbers, looked at or not" same looked off
    step "in the summary" grep -q '"joules_per_sample"' \
        "$tmp/looked/tiny/001/summary.json"
    step "in the report" grep -q 'GPU: .* J an epoch.* at most 41 C' \
        "$tmp/looked/tiny/001/report.html"
    # on a machine without NVML the columns stay, empty
    step "that goes on without a driver" train looked --epochs 3 \
        --resume "$tmp/looked/tiny/001"
    step "as many cells in every row" [ "$(awk -F, '{ print NF }' \
        "$tmp/looked/tiny/001/metrics.csv" | sort -u | wc -l)" = 1 ]
    step "but no number" [ -z "$(column looked gpu_w | sed -n 3p)" ]
fi
step "no driver, no columns" not grep -q gpu_ "$tmp/off/tiny/001/metrics.csv"

step "bench keeps the batch there" run kept "$tmp/tiny.lua" bench --device cuda
step "and says so" says kept "^training step, batch [0-9]* kept on the device, "
# inputs larger than any parameter, which the buffers of parameters do not hold
step "bench of a large batch" run large scripts/headpose_cnn.lua bench --preset check \
    --size 64 --batch 12 --device cuda --json --phantom "$tmp/faces"
# near SAID BYTES: measured and planned bytes differ by at most so many
near() {
    awk -F': ' -v most="$2" '
        /planned_bytes/ { planned = $2 } /measured_bytes/ { measured = $2 }
        END { exit !(planned > 0 && (measured - planned) ^ 2 <= most ^ 2) }' "$tmp/$1.txt"
}
step "takes the planned memory" near large 65536
# on the GPU a step is one launch: its layers are timed by events on the device
step "bench writes a trace" run traced "$tmp/tiny.lua" bench --device cuda \
    --trace "$tmp/trace.json"
row=$(grep -o '"tid":[0-9]*,"name":"thread_name","args":{"name":"device"' \
    "$tmp/trace.json" | grep -o '[0-9]*' | head -n 1)
layer() { grep '"name":"conv1"' "$tmp/trace.json" | grep -c "\"tid\":$row,"; }
step "of the device" [ "$(layer)" = 2 ]
# and kernels of the whole step, the update included
cat > "$tmp/kernels.lua" << 'END'
local json = require "seg.json"
local function read(path)
  local f <close> = assert(io.open(path))
  return json.decode(f:read "a", path)
end
local row, busy, last, count, update = {}, 0, 0, 0, 0
local first, graph
for _, e in ipairs(read(arg[1]).traceEvents) do
  if e.ph == "M" and e.name == "thread_name" then row[e.tid] = e.args.name end
  if e.ph == "X" and row[e.tid] == "graph" then graph = e end
  if e.ph == "X" and row[e.tid] == "kernels" then
    assert(e.ts + 2e-3 >= last, "two kernels at once")
    busy, last, count = busy + e.dur, e.ts + e.dur, count + 1
    first = first or e.ts
    if e.cat:find "update" then update = update + 1 end
  end
end
assert(graph and graph.dur > 0, "no step as a graph")
assert(count > 10 and update > 0, count .. " kernels, " .. update .. " of the update")
assert(busy > 0 and busy <= last - first + 1, "more work than time")
END
step "and of its kernels, from begin to update" run kernels "$tmp/kernels.lua" "$tmp/trace.json"

finish
