#!/bin/sh
# gpu_sweep.sh -- tests/gpu/sweep.c under the emulator, sweep.py without a GPU.
#
# It tests the way from a recipe's plan to the table, with small images; times of an
# emulator mean nothing.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh
PYTHON=${PYTHON:-/usr/bin/python3}
sweep=$BUILD/emu/plain/sweep
[ -x "$sweep" ] || skip "the emulated sweep was not built"

# shapes NAME OPTION ...: of scripts/NAME.lua
shapes() {
    name=$1
    shift
    "$PROGRAM" "scripts/$name.lua" plan --json --device cpu "$@" > "$tmp/$name.json"
}
lines() { "$sweep" --rounds 1 "$@" > "$tmp/lines"; }
has() { grep -q -- "$1" "$tmp/${2:-lines}"; }
count() { [ "$(grep -c -- "$2" "$tmp/${3:-lines}")" -eq "$1" ]; }

# the networks of the kit in full size: their convolutions
step "the brain's network" shapes brain_unet --preset full
step "has 23 convolutions" count 23 '"op": "' brain_unet.json
step "one of them is a first layer" count 1 '"first_layer": true' brain_unet.json
step "OpenKBP's network" shapes openkbp_unet3d --preset full
step "has 12" count 12 '"op": "' openkbp_unet3d.json
step "six of them back up" count 6 '"op": "upconv"' openkbp_unet3d.json

step "small ones" shapes brain_unet --preset full --size 16 --batch 2
step "and in three axes" shapes openkbp_unet3d --preset check --size 16
step "are timed" lines --flush 1 --most 3 "$tmp/brain_unet.json" "$tmp/openkbp_unet3d.json"
step "forward" has '"pass": "forward"'
step "to the data" has '"pass": "data"'
step "to the weights" has '"pass": "weights"'
step "with a tile" has '"tile": "64x64"'
step "and with none" has '"tile": "none", "chosen": false'
# each shape and pass has one tile that the program takes
chosen_once() {
    sed 's/, "tile": .*//' "$tmp/lines" | sort -u | wc -l > "$tmp/passes"
    count "$(cat "$tmp/passes")" '"chosen": true'
}
step "one of them the program's own" chosen_once
cp "$tmp/lines" "$tmp/timed"
step "no time" lines --flush 0 --seconds 0 "$tmp/brain_unet.json"
step "all that was left out is named" count 19 '"not_run": "no time left"'
bad() { ! "$sweep" "$@" > "$tmp/said" 2>&1; }
step "no file" bad
step "a file that is not there" bad "$tmp/none.json"
echo '{"batch": 1, "convolutions": [{"op": "conv", "name": "a"}]}' > "$tmp/few.json"
step "a shape without extents" bad "$tmp/few.json"
echo '{"batch": 1, "convolutions": [{"op": "none", "name": "a"}]}' > "$tmp/odd.json"
step "one of no operator" bad "$tmp/odd.json"
echo '{"batch": 1}' > "$tmp/empty.json"
step "no shapes" bad "$tmp/empty.json"

[ -x "$(command -v "$PYTHON")" ] || skip "$PYTHON is not installed (sh vendor/fetch test)"
table() { "$PYTHON" tests/gpu/sweep.py --rounds 1 --flush 1 "$@" > "$tmp/table"; }
step "the table" table --rate 100 "$tmp/timed"
rows() { count "$(cat "$tmp/passes")" '^| [bo][a-z0-9_]* |' table; }
step "has a row for each shape and pass" rows
step "what the choice costs" has 'ms with the tiles that the program takes' table
if "$PYTHON" -c 'import torch' 2> /dev/null; then
    step "beside PyTorch" table --device cpu "$tmp/timed"
    none_missing() { ! has 'not run' table; }
    step "which does them all" none_missing
    step "no time for it" table --device cpu --seconds 0 "$tmp/timed"
    step "said" has 'PyTorch: not run: no time left' table
fi
step "nothing was timed" table "$tmp/lines"
step "which is said" has 'brain_unet enc1.conv1: not run: no time left' table
finish
