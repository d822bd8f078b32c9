#!/bin/sh
# kernels.sh -- the kernels of cuda/ under one build of the emulator.
#
#     tests/cuda/kernels.sh RUN suites|rest|kernels|all [NAME=VALUE ...]
#
# RUN is $BUILD/emu/{plain,checked}/run; `suites` are the operators' suites,
# `rest` all other tests with a choice of device, `kernels` the suites and the
# part of `rest` with kernels of its own; settings as in emu_control.h. The
# kernels that ran are appended to $BUILD/emu/*/reached.
cd "$(dirname "$0")/../.." || exit 1
run=$1 what=$2
shift 2

suites=engine/graph/ops.def
rest="$(grep -rlE --include='*.c' 'given_(backend|device)\(' tests/cpu tests/engine tests/ops |
    grep -vE 'tests/(ops/ops|cpu/simd)\.c') $(ls tests/cuda/kernels/*.c)"
case $what in
suites) rest= ;;
kernels)
    # without training and most of gpu_*.c, which launch the same kernels
    rest=$(find tests/cuda/kernels -name '*.c' ! -name inputs.c ! -name precision.c \
        ! -name 'gpu_*' -o -name gpu_data.c)
    ;;
rest) suites= ;;
esac

# large blocks stay in the heap between tests: returning and requesting memory
# again takes longer than the tests
export MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=1073741824 \
    MALLOC_TOP_PAD_=67108864
# shellcheck disable=SC2086  # one argument a file
exec env SEG_TEST_DEVICE=cuda EMU_REACHED="${run%/run}/reached" "$@" "$run" $suites $rest
