#!/bin/sh
# gpu_peer.sh -- tests/gpu/peer.py on the CPU with small networks. It tests that each
# network has a PyTorch reference of the same size and that failures are reported in time;
# times of networks so small mean nothing.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh
PYTHON=${PYTHON:-/usr/bin/python3}
"$PYTHON" -c 'import torch' 2> /dev/null || skip "no PyTorch in $PYTHON (sh vendor/fetch ci)"

peer() {
    "$PYTHON" tests/gpu/peer.py --program "$PROGRAM" --device cpu --small \
        --rounds 1 "$@" > "$tmp/said" 2>&1
}
says() { grep -q -- "$1" "$tmp/said"; }
not() { ! "$@"; }

step "steps of all networks" peer --precisions f32,bf16
for name in brain_unet openkbp_unet3d sequence_cnn_lstm; do
    for precision in f32 bf16; do
        # columns: eager, three other modes, segengine, ratio, rate, memory, no PyTorch
        step "$name in $precision" says \
            "^| $name | 2 | $precision | [0-9.]* |.*| [0-9.]* | [0-9.]* | [0-9]* | [0-9]* | - |$"
    done
done
step "their PyTorch references are as large" not says "its network has"
step "what a CPU has not is named" says "captured: not run: CUDA graphs want a GPU"
step "no time at all" peer --seconds 0
step "is said of every row" says "sequence_cnn_lstm, batch 2, f16: not run: no time left"
step "too long" peer --only brain_unet --precisions f32 --wait 1.5
# the limit expires while PyTorch is imported, or later on a fast machine
step "is no hang" says "^| brain_unet | 2 | f32 |"
PROGRAM=/bin/false
step "a program that fails" peer --only brain_unet --precisions f32
step "is named" says "brain_unet, batch 2, f32, segengine: not run: exit code 1"
finish
