#!/bin/sh
# recipes.sh -- every recipe of docs/systems.md on the emulated GPU: each node against
# the reference, and training steps.
#
#     tests/emu/recipes.sh BUILD/emu
emu=$1
case $emu in /*) ;; *) emu=$PWD/$emu ;; esac
cd "$(dirname "$0")/../.." || exit 1
. tests/steps

for script in scripts/*.lua; do
    # what is no recipe of a system of its own has no preset for it
    grep -q "check = {" "$script" || continue
    step "$script" "$emu/plain/segengine" "$script" check --preset check --device cuda \
        --phantom "$tmp/phantom" --out "$tmp/runs"
done
step "there were six" [ "$passed" -eq 6 ]
finish
