#!/bin/sh
# resume_training.sh -- the same bytes for any interruption, with all state of training:
# averages, plateau, early stopping, phases, accumulated batches.
#
# For each variant of tests/golden/training.lua one whole run is the reference. Others are
# stopped after some steps, in the middle of an epoch, at its end, in the middle of an
# accumulated step and between two phases, and resumed with other threads. Checkpoints
# must be equal to the byte. SEG_SOAK=1 stops after every step. SEG_TEST_DEVICE=cuda is
# for a GPU or the emulated one: then f16 and bf16 too, and without SEG_SOAK only these.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh

runs=$tmp/runs
run() {
    out=$1 variant=$2
    shift 2
    # in the background this subshell becomes the program, so that a signal reaches it
    exec "$PROGRAM" tests/golden/training.lua --variant "$variant" --quiet \
        --device "${SEG_TEST_DEVICE:-cpu}" --phantom "$tmp/phantom" \
        --out "$runs/$out" "$@"
}
train() {
    (run "$@")
}
# all files of weights of a run that ended, concatenated
weights() {
    cat "$runs/$1"/training/001/*.safetensors
}
# the cells of metrics.csv without times
rows() {
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) skip[i] = $i ~ /seconds|_s$/ }
             { for (i = 1; i <= NF; i++) if (!skip[i]) printf "%s,", $i
               print "" }' "$runs/$1/training/001/metrics.csv"
}
same() {
    weights "$1" > "$tmp/a" && weights "$2" > "$tmp/b" &&
        cmp "$tmp/a" "$tmp/b" && rows "$1" > "$tmp/a" &&
        rows "$2" > "$tmp/b" && cmp "$tmp/a" "$tmp/b"
}
# cut VARIANT STEPS [OPTION ...]: stopped after so many steps, then resumed
cut() {
    variant=$1 steps=$2
    shift 2
    rm -rf "$runs/cut"
    train cut "$variant" --steps "$steps" --threads 1 --workers 0 "$@" &&
        test ! -e "$runs/cut/training/001/summary.json" &&
        train cut "$variant" --resume auto --steps 0 --threads 2 --workers 3 &&
        same "whole_$variant$*" cut
}

pairs=0
# try VARIANT CUTS SOAK_CUTS [OPTION ...]
try() {
    variant=$1 cuts=$2 all=$3
    shift 3
    [ -z "${SEG_SOAK:-}" ] || cuts=$all
    step "$variant $*: a whole run" train "whole_$variant$*" "$variant" "$@"
    for at in $cuts; do
        step "$variant $*: cut after $at steps" cut "$variant" "$at" "$@"
        pairs=$((pairs + 1))
    done
}

# 20 samples in batches of 4: 5 steps an epoch
in_f32() {
    try plain "" "1 2 3 4 5 6 7 8 9 10 13 17 19"
    try ema "3 5" "1 2 3 4 5 6 7 8 9 10 15 19"
    try ema_parts "2 3" "1 2 3 4 5 6 7 8 9 10 11"
    try plateau "7 10" "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15"
    try swa "11 15 18" "1 5 9 10 11 12 13 14 15 16 17 18 19"
    try groups "4" "1 2 3 4 5 6 7 8 9 15"
    try phases "4 10 13 15" \
        "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 22 24"
    # resumed on a machine with enough memory, and with as many processes
    try ema_parts "2" "1 2 3 4 5 7 9 11" --recompute 160000
    step "computed twice: the same bytes" same whole_ema_parts \
        "whole_ema_parts--recompute 160000"
    try plateau "7" "1 3 4 5 7 8 10 12" --ranks 2
}
in_bf16() {
    try ema "" "1 3 4 5 8 10" --precision bf16
}
in_f16() {
    try ema_parts "2" "1 3 4 5 8" --precision f16
    try phases "13" "4 10 15 19" --precision f16
}

# killed at random moments, or asked to stop, in several variants: killed ROUND SIGNAL
killed() {
    for variant in ema_parts plateau swa phases; do
        rm -rf "$runs/kill"
        for attempt in 1 2 3; do
            run kill "$variant" --resume auto --workers 1 &
            pid=$!
            sleep "$(awk -v s="$attempt$1" \
                'BEGIN { srand(s); printf "%.3f", 0.05 + 0.3 * rand() }')"
            kill -"$2" "$pid" 2> /dev/null
            wait "$pid" 2> /dev/null
        done
        train kill "$variant" --resume auto || return 1
        for done in "$runs"/kill/training/*/summary.json; do
            weights "whole_$variant" > "$tmp/a"
            cat "${done%/*}"/*.safetensors > "$tmp/b"
            cmp "$tmp/a" "$tmp/b" || return 1
        done
    done
}

# killed between the best and the last checkpoint of the last epoch: the run resumes from
# the best one, and its last checkpoint is still that of the last epoch
between() {
    rm -rf "$runs/cut"
    train cut plain --save_every 3 || return 1
    folder=$runs/cut/training/001
    rm "$folder/summary.json"
    mv "$folder/checkpoint_0003.safetensors" "$folder/checkpoint_last.safetensors"
    train cut plain --resume "$folder" && same whole_plain cut
}

# killed before the numbered checkpoint of an epoch, or before the older one is removed
numbered() {
    rm -rf "$runs/cut" "$runs/numbered"
    train numbered ema --save_every 1 --keep_last 2 &&
        train cut ema --save_every 1 --keep_last 2 --until_epoch 2 || return 1
    folder=$runs/cut/training/001
    rm "$folder/checkpoint_0002.safetensors"
    train cut ema --resume "$folder" --until_epoch 3 &&
        cp "$folder/checkpoint_0003.safetensors" "$tmp/kept" || return 1
    test -e "$folder/checkpoint_0002.safetensors" || return 1
    cp "$tmp/kept" "$folder/checkpoint_0001.safetensors"
    train cut ema --resume "$folder" --until_epoch 0 && same numbered cut &&
        (cd "$runs/numbered/training/001" && ls ./*.safetensors) > "$tmp/a" &&
        (cd "$folder" && ls ./*.safetensors) > "$tmp/b" && cmp "$tmp/a" "$tmp/b"
}

want=16 times=1
[ -z "${SEG_SOAK:-}" ] || want=100 times=20
in_bf16
if [ "${SEG_TEST_DEVICE:-cpu}" = cuda ]; then
    in_f16
    [ -n "${SEG_SOAK:-}" ] || want=2 times=0
fi
[ "$times" -eq 0 ] || in_f32
[ "$times" -eq 0 ] || step "killed between two saves" between
[ "$times" -eq 0 ] || step "killed before a numbered save" numbered
step "$pairs pairs of cuts" test "$pairs" -ge "$want"
k=0
while [ "$k" -lt "$times" ]; do
    k=$((k + 1))
    step "killed, round $k" killed "$k" KILL
    step "told to stop, round $k" killed "$k" TERM
done
finish
