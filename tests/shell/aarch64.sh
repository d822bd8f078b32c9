#!/bin/sh
# aarch64.sh -- the kernels on an aarch64 processor, emulated by qemu.
#
# It differs in the compiler, in vectors of four lanes in 32 registers (the instruction
# set neon) and in an unsigned char. qemu computes the same bits as the processor; its
# times mean nothing. `make crossed` has built tests/kernels (which needs only the C
# library) where a cross compiler is installed, and the whole program where vendor/arm64
# has the libraries (sh vendor/fetch arm64). The short form tests the operators with
# vector kernels of their own; SEG_SOAK=1 tests every operator with both instruction sets,
# and trains.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh

kernels=$BUILD/aarch64/tests/kernels program=$BUILD/aarch64/segengine
[ -z "${SAN:-}" ] || skip "not built with sanitizers"
[ "$(uname -m)" != aarch64 ] || skip "this is one: all tests are of it"
[ -x "$kernels" ] || skip "no compiler for aarch64 was installed when this was \
built (sh vendor/fetch ci)"
command -v qemu-aarch64 > /dev/null || skip "qemu-aarch64 is not installed (sh vendor/fetch ci)"
export QEMU_LD_PREFIX="${QEMU_LD_PREFIX:-/usr/aarch64-linux-gnu}"

# on SET COMMAND ...: with the kernels of an instruction set, "" for the best
on() {
    set=$1
    shift
    SEG_ISA=$set qemu-aarch64 "$@"
}
# rows SET NAME ...: each operator in a process of its own, as qemu keeps memory of ended
# threads, and the cases of an operator start thousands
rows() {
    set=$1
    shift
    for row; do
        step "$row, ${set:-neon}" on "$set" "$kernels" "op_$row"
    done
}
refused() {
    on avx2 "$kernels" session_bits_for_any_number_of_threads |
        grep -q "neon and portable on aarch64"
}

step "neon is the best set" on "" "$kernels" simd_choice
step "the kernels of both sets" on "" "$kernels" simd_kernels
step "the same bits with any number of threads" on "" "$kernels" \
    session_bits_for_any_number_of_threads
step "a set of another processor is refused" refused
if [ -z "${SEG_SOAK:-}" ]; then
    rows "" conv upconv linear maxpool batch_norm concat relu bce mae dropout \
        softmax sigmoid tanh gelu silu cross_entropy dice_loss lstm attention
    finish
fi

all=$(sed -n 's/^OP( *\([a-z_0-9]*\).*/\1/p' engine/graph/ops.def)
step "the table has rows" test -n "$all"
for set in neon portable; do
    # shellcheck disable=SC2086  # one argument an operator
    rows "$set" $all
    step "large convolutions, $set" on "$set" "$kernels" simd_large
    step "plans, $set" on "$set" "$kernels" plan_equals_no_plan_on_cpu
    step "sessions, $set" on "$set" "$kernels" session_
done

[ -x "$program" ] || skip "the program is not built for aarch64: no vendor/arm64 \
(sh vendor/fetch arm64)"
for row in $all; do
    step "check, $row" on "" "$program" check --device cpu --op "$row"
done
# a recipe that writes no DICOM, with enough channels for whole vectors
train() {
    on "" "$program" scripts/nfbs_unet.lua --preset check --features 16,16,32 \
        --epochs 1 --phantom "$tmp/phantom" --out "$tmp/$1" --threads "$1"
}
step "training, 1 thread" train 1
for threads in 2 3; do
    step "training, $threads threads" train $threads
    step "the same bytes with $threads threads" cmp \
        "$tmp/1/nfbs_unet/001/checkpoint_last.safetensors" \
        "$tmp/$threads/nfbs_unet/001/checkpoint_last.safetensors"
done
finish
