#!/bin/sh
# recipes.sh -- every recipe of docs/systems/README.md on the emulated GPU: each node against
# the reference, and training steps; and the number of launches of the largest recipes.
#
#     tests/cuda/recipes.sh BUILD/emu
emu=$1
case $emu in /*) ;; *) emu=$PWD/$emu ;; esac
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh

for script in scripts/*.lua; do
    # only a recipe with a system of its own has a preset `check`
    grep -q "check = {" "$script" || continue
    step "$script" "$emu/plain/segengine" "$script" check --preset check --device cuda \
        --phantom "$tmp/phantom" --out "$tmp/runs"
done
step "there were six" [ "$passed" -eq 6 ]
step "trees of elementwise operators" env SEG_TEST_DEVICE=cuda \
    "$emu/plain/segengine" tests/lua/recipe/programs.lua

# at_most GPU NAME BATCH NODES GB MIB: limits of launches and traffic of a training
# step in bf16, and of the memory kept for the backward pass. A lost fusion would
# not make a result wrong, so no other test would notice it.
at_most() {
    on=$1
    shift
    for gpu in "--gpu $on" ""; do
        # shellcheck disable=SC2086 # two words or none
        "$emu/plain/segengine" "scripts/$1.lua" plan --preset full --batch "$2" \
            --device cuda $gpu --precision bf16 || return 1
    done > "$tmp/plan.txt"
    grep "^one training step\|^kept" "$tmp/plan.txt"
    awk -v nodes="$3" -v gb="$4" -v mib="$5" '
        /^kept/ { gsub(",", "", $2); small = $2 <= mib * 1048576 }
        /^one training step/ {
            for (i = 2; i <= NF; i++) {
                if ($i == "nodes") few = $(i - 1) <= nodes
                if ($i == "GB,") little = $(i - 1) <= gb
            }
        }
        END { exit !(few && little && small) }' "$tmp/plan.txt"
}
# wgrad_tile leaves sums of split-K to a launch of their own
step "launches and bytes of the brain U-Net" at_most a100 brain_unet 16 111 6.40 658
step "launches and bytes of OpenKBP" at_most a100 openkbp_unet3d 2 65 7.14 204
# the kernels of Hopper fuse less: the additions of partial sums over y and dx, the norm's backward
# and sums of split-K are launches of their own
step "the brain U-Net on Hopper" at_most h200 brain_unet 16 169 7.53 658
step "OpenKBP on Hopper" at_most h200 openkbp_unet3d 2 88 7.84 204
finish
