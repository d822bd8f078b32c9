#!/bin/sh
# ranks.sh -- several ranks on emulated GPUs against one: the program as a whole.
#
#     tests/cuda/ranks.sh BUILD/emu
#
# With a substitute for NCCL and through the host; options that --devices accepts
# and refuses.
emu=$1
case $emu in /*) ;; *) emu=$PWD/$emu ;; esac
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh
. tests/cuda/runs

cat > "$tmp/tiny.lua" <<'END'
local seg = require "seg"
local nn, data, optim, metric = seg.nn, seg.data, seg.optim, seg.metric
local cfg = seg.config { epochs = 2, batch = 4, seed = 7, lr = 0.05, accumulate = 1 }
local set = data.phantom { patients = 3, size = 16, slices = 48 }
local train, valid = set:split { valid = 1, seed = 3 }
local function prepare(s) return s:fit { h = 8, w = 8 }:normalize {}:slices {} end
local image = nn.input("image", { c = 1, h = 8, w = 8 })
local mask = nn.input("mask", { c = 1, h = 8, w = 8 })
local x = nn.dropout(nn.relu(nn.batch_norm(nn.conv(image, 8, 3))), 0.2)
local logits = nn.conv(x, 1, 1)
seg.recipe {
  inputs = { image, mask }, outputs = { mask = nn.sigmoid(logits) },
  loss = nn.bce_dice(logits, mask),
  train = prepare(train):augment { flip = { axis = "hw" } }:batches { size = cfg.batch,
                                                                      shuffle = true },
  valid = prepare(valid):batches { size = cfg.batch },
  optim = optim.sgd { lr = cfg.lr }, epochs = cfg.epochs, accumulate = cfg.accumulate,
  metrics = { dice = metric.dice(logits, mask, { empty = "one" }) },
}
END
export EMU_DEVICES=2 SEGENGINE_NCCL="$emu/libnccl.so.2"

# without COMMAND ...: runs it without NCCL
without() {
    SEGENGINE_NCCL=/nowhere/libnccl.so.2
    "$@"
    ended=$?
    SEGENGINE_NCCL=$emu/libnccl.so.2
    return "$ended"
}
weights() { echo "$tmp/$1/tiny/001/checkpoint_last.safetensors"; }
same() { cmp "$(weights "$1")" "$(weights "$2")"; }
# losses and metrics of all epochs within 1e-3
near() {
    for name in "$1" "$2"; do
        cut -d, -f4-6 "$tmp/$name/tiny/001/metrics.csv" > "$tmp/$name.csv"
    done
    paste -d, "$tmp/$1.csv" "$tmp/$2.csv" | awk -F, 'NR > 1 { n++
        for (i = 1; i <= 3; i++) { d = $i - $(i + 3); if (d < 0) d = -d
            if (!(d <= 1e-3 * ($i > 1 ? $i : 1))) { print "row " NR ": " $0; bad = 1 } } }
        END { exit bad || n != 2 }'
}

step "one process" train one
step "2 GPUs, by NCCL" train nccl --devices 0,1
step "the losses of one" near one nccl
step "the transport is said" says nccl "ranks: 2 by shared memory.*all-reduce by NCCL 2.21.5"
step "again" train again --devices 0,1
step "the same bytes" same nccl again
step "2 GPUs, through the host" train host --devices 0,1 --allreduce host
step "the losses of one" near one host
step "which is said" says host "all-reduce by the host"
step "without NCCL by itself" without train auto --devices 0,1
step "why is said" says auto "all-reduce by the host (rank 0: NCCL was not found"
step "the same bytes as by the host" same host auto
step "--ranks has a GPU each" train ranks --ranks 2
step "the same bytes, too" same nccl ranks
step "statistics of each rank" train own --devices 0,1 --sync_norm false
step "stopped after 5 steps" train cut --devices 0,1 --steps 5
step "resumed" train cut --devices 0,1 --steps 0 --resume "$tmp/cut/tiny/001"
step "the bytes of a whole run" same nccl cut
step "batches that do not divide" train odd --devices 0,1 --batch 5 --accumulate 2
step "alone" train odd1 --batch 5 --accumulate 2
step "the losses of one" near odd1 odd
# shards of 2, 2, 3 samples and, at the end of an epoch, of 1, 2, 2
EMU_DEVICES=3
step "an extent that one rank has met" train met --ranks 3 --batch 7
EMU_DEVICES=2
step "alone" train met1 --batch 7
step "the losses of one" near met1 met
step "two on one GPU" train two --devices 0,0 --allreduce host
step "the bytes of two" same host two
step "bench of 2 GPUs" run bench "$tmp/tiny.lua" bench --devices 0,1 --phantom "$tmp/phantom"
step "bench: against one" says bench "2 are .* times as fast"
# all ranks use the tiles that one rank has measured
step "tiles are measured by 2 GPUs" train tuned --devices 0,1 --precision bf16 --autotune --epochs 1
step "and said once" [ "$(grep -c "^autotune: 2 convolutions measured with 8 tiles" \
    "$tmp/tuned.txt")" -eq 1 ]
step "and kept" grep -q "^tiles = " "$tmp/tuned/tiny/001/config.txt"

refused() {
    code=$1 text=$2
    shift 2
    ends "$code" train refused "$@" && says refused "$text"
}
step "a GPU that is not there" refused 4 \
    "devices 0,2: GPU 2: there is no cuda:2: this machine shows 2 GPUs" --devices 0,2
step "no number" refused 2 'devices 0,x: "x" is not the number of a GPU' --devices 0,x
step "one GPU twice" refused 2 "two ranks on GPU 1 would share" --devices 1,1
step "more ranks than GPUs" refused 4 "there is no cuda:2" --ranks 3
step "other ranks than GPUs" refused 2 "leave --ranks out" --devices 0,1 --ranks 3
step "a way that is none" refused 2 'allreduce is "ncll", wanted one of auto, host, nccl' \
    --devices 0,1 --allreduce ncll
step "no NCCL where it is wanted" without refused 4 \
    "allreduce nccl: rank 0: NCCL was not found .*install libnccl2" --devices 0,1 --allreduce nccl
step "doctor lists both" run doctor doctor
step "by the number that --devices wants" says doctor "^GPU 1  *ok "

# a rank that is killed while the other waits for it on its GPU
killed() {
    : > "$tmp/killed.txt" # empty the output of the last run
    "$program" "$tmp/tiny.lua" --device cuda --devices 0,1 --phantom "$tmp/phantom" \
        --out "$tmp/killed" --epochs 100000 > "$tmp/killed.txt" 2>&1 &
    pid=$!
    awaits "$tmp/killed.txt" "^epoch" || return 1
    # shellcheck disable=SC2046  # one word a process
    set -- $(pgrep -P "$pid")
    if [ $# -ne 2 ]; then
        echo "two ranks are wanted, these are there: $*"
        kill "$pid"
        return 1
    fi
    begun=$(date +%s)
    kill -"$signal" "$2"
    wait "$pid"
    code=$? took=$(($(date +%s) - begun))
    echo "exit code $code after $took s"
    [ "$code" -eq 1 ] && [ "$took" -le 10 ]
}
signal=KILL
step "a rank is killed" killed
step "which" says killed "rank 1: killed by signal 9"
signal=STOP
step "a rank stands still" killed
step "which" says killed "rank 1: no sign of life"

# energy of both GPUs from a substitute for NVML: 200 W each
mkdir "$tmp/driver"
if ${CC:-cc} -shared -fPIC -o "$tmp/driver/libnvidia-ml.so.1" \
    tests/support/stand_in/nvml.c 2> "$tmp/said"; then
    path=$tmp/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    step "2 GPUs that are looked at" with LD_LIBRARY_PATH="$path" \
        train looked --devices 0,1
    step "the watts of both" [ "$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++)
        if ($i == "gpu_w") at = i } NR > 1 && at { print $at }' \
        "$tmp/looked/tiny/001/metrics.csv" | sort -u)" = 400 ]
    step "the same bytes" same looked nccl
fi
finish
