#!/bin/sh
# auto.sh -- --device auto with the emulated GPU: the self-check, its record in the
# cache folder, and what happens without either.
#
#     tests/cuda/auto.sh BUILD/emu
emu=$1
case $emu in /*) ;; *) emu=$PWD/$emu ;; esac
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh
. tests/cuda/runs

cat > "$tmp/tiny.lua" <<'END'
local seg = require "seg"
local nn, data, optim, metric = seg.nn, seg.data, seg.optim, seg.metric
local cfg = seg.config { epochs = 1, batch = 4, seed = 7 }
local set = data.phantom { patients = 3, size = 16, slices = 8 }
local train, valid = set:split { valid = 1, seed = 3 }
local function prepare(s) return s:fit { h = 8, w = 8 }:normalize {}:slices {} end
local image = nn.input("image", { c = 1, h = 8, w = 8 })
local mask = nn.input("mask", { c = 1, h = 8, w = 8 })
local logits = nn.conv(nn.relu(nn.batch_norm(nn.conv(image, 8, 3))), 1, 1)
seg.recipe {
  inputs = { image, mask }, outputs = { mask = nn.sigmoid(logits) },
  loss = nn.bce_dice(logits, mask),
  train = prepare(train):batches { size = cfg.batch, shuffle = true },
  valid = prepare(valid):batches { size = cfg.batch },
  optim = optim.sgd { lr = 0.05 }, epochs = cfg.epochs,
  metrics = { dice = metric.dice(logits, mask, { empty = "one" }) },
}
END

# trains NAME OPTION ...: trains without --device
trains() {
    name=$1
    shift
    run "$name" "$tmp/tiny.lua" --phantom "$tmp/phantom" --out "$tmp/$name" "$@"
}
cache() { export XDG_CACHE_HOME="$tmp/caches/$1"; } # cache NAME: uses another cache folder
records() { [ "$(find "$XDG_CACHE_HOME" -type f 2> /dev/null | wc -l)" -eq "$1" ]; }
# under NAME=VALUE NAME=VALUE COMMAND ...: with two variables
under() {
    (
        export "${1?}" "${2?}"
        shift 2
        "$@"
    )
}
checking="^GPU: a self-check of some seconds"
failing="^warning: the GPU failed its self-check, so the CPU computes; please report: "

cache first
step "a GPU that was never used" trains first
step "is checked" says first "$checking, once with this program and driver (emulated, "
step "and taken" says first "^device: GPU$"
step "which is remembered" records 1
step "the next run" trains second
step "does not check it" not says second "self-check"
step "but takes it" says second "^device: GPU$"
step "another precision" trains bf16 --precision bf16
step "is checked" says bf16 "$checking"
step "and remembered beside the first" records 2
step "another GPU" with EMU_CC=90 trains hopper
step "is checked" says hopper "$checking.*capability 9.0 with Hopper's kernels"
step "a Hopper GPU with other kernels" under EMU_CC=90 SEG_HOPPER=0 trains ampere
step "is checked, too" says ampere "$checking.*capability 9.0, driver"
step "all of it is remembered" records 4
mkdir "$tmp/driver"
if ${CC:-cc} -shared -fPIC -o "$tmp/driver/libnvidia-ml.so.1" \
    tests/support/stand_in/nvml.c 2> "$tmp/said"; then
    step "another driver" with \
        LD_LIBRARY_PATH="$tmp/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" trains driver
    step "is checked" says driver "$checking.*driver 550.54.14, CUDA "
    step "and remembered" records 5
fi

# a wrong kernel
cache wrong
step "a GPU with a wrong kernel" with EMU_WRONG=softmax_fwd trains wrong
step "computes nothing" says wrong "^device: CPU, .*(GPU: its self-check failed)"
line="f32: softmax #[0-9]* .*cuda against ref: y\[[0-9]*\] is .*, want .*; emulated, .*"
line="$line CUDA 13.0; build [0-9a-f]\{40\}; to repeat: segengine check"
step "in a line to report" says wrong \
    "$failing$line --device cuda:0 --op softmax --precision f32$"
step "and is not remembered" records 0
step "so it is checked again" with EMU_WRONG=softmax_fwd trains wrong2
step "with the same line" says wrong2 "$failing"
# shellcheck disable=SC2046  # words
repeated() { EMU_WRONG=softmax_fwd run repeat $(sed -n 's/.*to repeat: segengine //p' "$tmp/wrong.txt"); }
step "the command of the line finds it" ends 1 repeated
step "in the same case" says repeat \
    "$(sed -n 's/.*please report: f32: \(softmax #[0-9]*\) .*/\1 /p' "$tmp/wrong.txt")"
step "--device cuda does not check" with EMU_WRONG=softmax_fwd trains forced --device cuda
step "nor leave the GPU" says forced "^device: GPU$"
step "without the mistake" trains right
step "the GPU is taken" says right "^device: GPU$"
step "and that is remembered" records 1
step "a kernel of a product in 16 bits" with EMU_WRONG=igemm_tile trains wrong16 \
    --precision bf16
step "is in the line" says wrong16 "$failing"'bf16: \(conv\|upconv\|linear\) #.* --precision bf16$'
for kernel in igemm_sm90 wgrad_sm90; do
    step "a wrong $kernel of a Hopper GPU" under EMU_CC=90 EMU_WRONG=$kernel trains $kernel \
        --precision bf16
    step "is in the line" says $kernel "$failing"'bf16: conv #.* --op conv --precision bf16$'
done
step "not in a run in f32" with EMU_WRONG=igemm_tile trains right16
step "which takes the GPU" says right16 "^device: GPU$"
step "a GPU that fails" under EMU_FAIL=100,700,sticky XDG_CACHE_HOME="$tmp/caches/failed" \
    trains failed
step "is left" says failed "${failing}f32: .*an illegal memory access"
step "the run goes on" says failed "^device: CPU"

# no GPU
step "no GPU" with EMU_DEVICES=0 trains none
step "the CPU, and why" says none "^device: CPU, .*(GPU: no NVIDIA GPU is visible"
step "no GPU for --device cuda" ends 4 with EMU_DEVICES=0 trains none4 --device cuda

# records that cannot be written, or are none
cache file
: > "$XDG_CACHE_HOME"
step "a cache folder that is a file" trains file
step "the GPU is taken all the same" says file "^device: GPU$"
forever="^warning: the self-check of the GPU passed and runs again each time, as it cannot be"
step "and why it is not remembered" says file "$forever remembered: .*file is a file"
step "a cache folder that cannot be made" with XDG_CACHE_HOME=/proc trains proc
step "is told" says proc "$forever remembered: cannot make folder /proc/segengine"
step "a relative one is none" env XDG_CACHE_HOME=cache HOME="$tmp/home" \
    "$program" "$tmp/tiny.lua" --phantom "$tmp/phantom" --out "$tmp/home1"
step "the home is used" [ -d "$tmp/home/.cache/segengine" ]
homeless() { (unset HOME XDG_CACHE_HOME && trains homeless); }
step "no home" homeless
step "is told" says homeless "$forever remembered: no cache folder: neither XDG_CACHE_HOME"
step "the GPU is taken" says homeless "^device: GPU$"
if [ "$(id -u)" -ne 0 ]; then
    mkdir "$tmp/read_only" && chmod 555 "$tmp/read_only"
    step "a read-only home" with XDG_CACHE_HOME="$tmp/read_only" trains read_only
    step "is told" says read_only "$forever remembered: .*Permission denied"
fi
cache wrong
damage() { for f in "$XDG_CACHE_HOME"/segengine/*; do echo damaged > "$f"; done; }
step "a damaged record" damage
step "is none" trains damaged
step "so the GPU is checked" says damaged "$checking"
step "and the record repaired" trains repaired
step "for the next run" not says repaired "self-check"

# a precision that the GPU lacks
cache turing
step "bf16 with a GPU of 7.5" with EMU_CC=75 trains turing --precision bf16
step "is for the CPU" says turing "^device: CPU, .*(GPU: precision bf16 is not available on this GPU"
step "f16" with EMU_CC=75 trains turing_f16 --precision f16
step "passes there" says turing_f16 "^device: GPU, convolutions in f16$"

# ranks
export EMU_DEVICES=2 SEGENGINE_NCCL="$emu/libnccl.so.2"
cache ranks
step "two ranks with a GPU each" trains ranks --ranks 2
step "take them" says ranks "^device: GPU$"
step "and say so once" [ "$(grep -c "$checking" "$tmp/ranks.txt")" -eq 1 ]
step "one record for both" records 1
step "a wrong kernel for two" under EMU_WRONG=softmax_fwd XDG_CACHE_HOME="$tmp/caches/ranks2" \
    trains ranks_wrong --ranks 2
step "both on the CPU" says ranks_wrong "^device: CPU, .*(GPU: rank 0: its self-check failed)"
step "one line" [ "$(grep -c "^warning: rank 0: the GPU failed" "$tmp/ranks_wrong.txt")" -eq 1 ]
step "one GPU for two ranks" with EMU_DEVICES=1 trains ranks_one --ranks 2
step "both on the CPU, and why" says ranks_one \
    "^device: CPU, .*(GPU: rank 1: there is no cuda:1: this machine shows one GPU"
unset EMU_DEVICES

# a resumed run, and the other commands
cache first
step "the run keeps the word" grep -qx "device = auto" "$tmp/first/tiny/001/config.txt"
step "it goes on without a GPU" with EMU_DEVICES=0 trains first --resume "$tmp/first/tiny/001" \
    --epochs 2
step "on the CPU" says first "^device: CPU"
step "check takes the GPU" run check check --op softmax
step "it says so" says check "^cuda:0 against ref$"
step "bench takes the GPU" run bench "$tmp/tiny.lua" bench --phantom "$tmp/phantom"
step "it says so, too" says bench "^device: GPU$"
step "a recipe's check takes the GPU" run checks "$tmp/tiny.lua" check --phantom "$tmp/phantom"
step "it says so as well" says checks "^cuda:0 against ref"
step "evaluate on the GPU" with EMU_WRONG=none run evaluate "$tmp/tiny.lua" evaluate \
    --weights "$tmp/second/tiny/001" --split valid
rm -r "$XDG_CACHE_HOME"
step "evaluate checks the GPU" run evaluate "$tmp/tiny.lua" evaluate --phantom "$tmp/phantom" \
    --weights "$tmp/bf16/tiny/001" --split valid
step "in the precision of the weights" records 2
rm -r "$XDG_CACHE_HOME"
step "plan does not" run plan "$tmp/tiny.lua" plan --phantom "$tmp/phantom"
step "it opens no device" not says plan "self-check"
step "and leaves no record" records 0
finish
