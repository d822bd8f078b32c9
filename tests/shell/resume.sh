#!/bin/sh
# resume.sh -- the same bytes for any interruption, thread count and worker count.
#
# One run of the brain recipe on synthetic patients is the reference. Runs with other
# threads and workers, stopped by step count in the middle and at the end of an epoch,
# killed at random moments and resumed, must end in a byte-equal checkpoint. SEG_SOAK=1
# kills 201 times instead of 21.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh

runs=$tmp/runs
train() {
    out=$1
    shift
    # in a subshell of its own, so that a signal to it reaches the program
    (exec "$PROGRAM" scripts/brain_unet.lua --preset check --quiet --epochs 3 \
        --phantom "$tmp/phantom" --out "$runs/$out" "$@")
}
# the same in the background; $pid is the program's process
start() {
    out=$1
    shift
    "$PROGRAM" scripts/brain_unet.lua --preset check --quiet --epochs 3 \
        --phantom "$tmp/phantom" --out "$runs/$out" "$@" &
    pid=$!
}
last() {
    echo "$runs/$1/brain_unet/001/checkpoint_last.safetensors"
}
same() {
    cmp "$(last whole)" "$(last "$1")"
}

step "a whole run" train whole --threads 2 --workers 2
for pair in "1 0" "4 4" "2 1"; do
    # shellcheck disable=SC2086  # two words
    set -- $pair
    name=t$1w$2
    step "threads $1, workers $2" train "$name" --threads "$1" --workers "$2"
    step "threads $1, workers $2: same bytes" same "$name"
done
step "best too" cmp "$runs/whole/brain_unet/001/checkpoint_best.safetensors" \
    "$runs/t1w0/brain_unet/001/checkpoint_best.safetensors"

# stopped in the middle of an epoch, resumed twice with other threads
step "stop after 4 steps" train cut --steps 4
step "resume to 10 steps" train cut --resume "$runs/cut/brain_unet/001" \
    --steps 10 --threads 1 --workers 0
step "resume to the end" train cut --resume auto --steps 0 --workers 3
step "cut run: same bytes" same cut
step "cut run: as many rows" test "$(wc -l < "$runs/cut/brain_unet/001/metrics.csv")" \
    -eq "$(wc -l < "$runs/whole/brain_unet/001/metrics.csv")"

# killed without warning, repeatedly, and resumed each time
runs_killed=7
[ -z "${SEG_SOAK:-}" ] || runs_killed=67
torture() {
    k=0
    while [ "$k" -lt "$runs_killed" ]; do
        k=$((k + 1))
        rm -rf "$runs/kill"
        for attempt in 1 2 3; do
            start kill --resume auto
            # a delay from the whole duration of the run: 0.02 to 0.4 s
            sleep "$(awk -v s="$((k * 37 + attempt * 11))" \
                'BEGIN { srand(s); printf "%.3f", 0.02 + 0.38 * rand() }')"
            kill -9 "$pid" 2> /dev/null
            wait "$pid" 2> /dev/null
        done
        # a kill before the first checkpoint leaves a folder that stays empty:
        # the run that ended is the one with a summary
        train kill --resume auto || return 1
        for done in "$runs"/kill/brain_unet/*/summary.json; do
            cmp "$(last whole)" "${done%/*}/checkpoint_last.safetensors" ||
                return 1
        done
    done
}
step "$runs_killed runs, each killed three times" torture

# after Ctrl-C and SIGTERM the run saves and reports it
interrupted() {
    rm -rf "$runs/int"
    # not by &: a shell starts its background jobs with SIGINT ignored
    timeout --preserve-status -s "$1" 1 "$PROGRAM" scripts/brain_unet.lua \
        --preset check --quiet --epochs 5000 --phantom "$tmp/phantom" \
        --out "$runs/int"
    [ $? -eq "$2" ] && test -s "$(last int)"
}
step "SIGINT ends with 130" interrupted INT 130
step "SIGTERM ends with 143" interrupted TERM 143

# long work before the first epoch stops too, and leaves no incomplete files
opening() {
    timeout --preserve-status -s INT 1 "$PROGRAM" scripts/brain_unet.lua \
        --size 512 --slices 60 --quiet --out "$tmp/open"
    [ $? -eq 130 ] && [ -z "$(ls "$tmp/open/phantom")" ]
}
step "SIGINT while patients are made" opening
finish
