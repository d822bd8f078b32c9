#!/bin/sh
# own.sh -- the emulator's tests of itself, in both builds and in several orders
# of threads.
#
#     tests/cuda/own.sh BUILD/emu
emu=$1
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh

for variant in plain checked; do
    for order in g h a d r7; do
        for name in prims prims_sm90 emu_test; do
            step "$name, $variant, order $order" \
                env EMU_ORDER=$order "$emu/$variant/$name"
        done
    done
    step "prims, $variant, capability 7.5" env EMU_CC=75 "$emu/$variant/prims"
done
finish
