#!/bin/sh
# folder_removed.sh -- the folder of a run is removed during training: the run ends at
# once with the reason, and does not make the folder again.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh

recipe="$PROGRAM tests/golden/training.lua --variant ema --device cpu --threads 1 --workers 0
    --phantom $tmp/phantom"

run=$tmp/runs/training/001
# removed COMMAND ...: runs the command during a long training; succeeds when that ends
removed() {
    rm -rf "$tmp/runs"
    # shellcheck disable=SC2086  # words
    $recipe --epochs 100000 --quiet --out "$tmp/runs" > "$tmp/said" 2>&1 &
    pid=$!
    until [ -e "$run/report.html" ]; do sleep 0.05; done
    "$@"
    begun=$(date +%s)
    wait "$pid"
    code=$?
    took=$(($(date +%s) - begun))
    cat "$tmp/said"
    [ "$code" -eq 1 ] && [ "$took" -le 20 ] &&
        grep -q "$run: the folder of this run, or its .lock, was removed or replaced" \
            "$tmp/said"
}
# A file that is written while rm works keeps it from removing the folder: rm again.
remove() {
    while [ -e "$1" ]; do rm -rf "$1" 2> /dev/null; done
}
gone() {
    removed remove "$run" && test ! -e "$run"
}
step "the folder is removed" gone
above() {
    removed remove "$tmp/runs" && test ! -e "$tmp/runs"
}
step "with all that is above it" above
# another folder of the same name, with a run of its own
replace() {
    mv "$run" "$tmp/moved" && mkdir "$run" && touch "$run/.lock"
}
other() {
    removed replace && test ! -e "$run/checkpoint_last.safetensors" &&
        test ! -e "$run/summary.json"
}
step "another folder takes its place" other
finish
