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

# row NAME PRECISION MODE MB: its columns after these are eager, the three other variants,
# segengine, ratio, rate, memory, and that of PyTorch, which is not measured
row() {
    says "^| $1 | 2 | $2 | $3 | [0-9.]* | - |.*| [0-9.]* | [0-9.]* | [0-9]* | $4 | - |$"
}
step "steps of all networks" peer --precisions f32
for name in brain_unet openkbp_unet3d sequence_cnn_lstm headpose_cnn headpose_resnet18 \
    hippocampus_unet3d nfbs_unet; do
    step "$name" row "$name" f32 train '[0-9]*'
done
step "their PyTorch references are as large" not says "its network has"
step "what a CPU has not is named" says "train, captured: not run: CUDA graphs want a GPU"
step "two networks in bf16" peer --only brain_unet,hippocampus_unet3d --precisions bf16
for name in brain_unet hippocampus_unet3d; do
    step "$name, a step" row "$name" bf16 train '[0-9]*'
    step "$name, an inference" row "$name" bf16 infer -
done
step "no time at all" peer --seconds 0
step "is said of every row" says "sequence_cnn_lstm, batch 2, f16: not run: no time left"
step "too long" peer --only brain_unet --precisions f32 --wait 1.5
# the limit expires while PyTorch is imported, or later on a fast machine
step "is no hang" says "^| brain_unet | 2 | f32 | train |"
bad() { ! peer "$@"; }
step "no such network" bad --only unet
step "says which there are" says "there are: brain_unet, openkbp_unet3d,"
PROGRAM=/bin/false
step "a program that fails" peer --only brain_unet --precisions f32
step "is named" says "brain_unet, batch 2, f32, segengine: not run: exit code 1"
finish
