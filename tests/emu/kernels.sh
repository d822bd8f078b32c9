#!/bin/sh
# kernels.sh -- the kernels of cuda/ under one build of the emulator.
#
#     tests/emu/kernels.sh RUN suites|rest|all [NAME=VALUE ...]
#
# RUN is $BUILD/emu/{plain,asan,race}/run; `suites` are the operators' suites,
# `rest` all other tests that can be told which device to use; settings are
# those of emu_control.h. Which kernels ran is added to $BUILD/emu/*/reached.
cd "$(dirname "$0")/../.." || exit 1
run=$1 what=$2
shift 2

suites=engine/graph/ops.def
rest="$(grep -rlE --include='*.c' 'given_(backend|device)\(' tests/cpu tests/engine tests/ops |
    grep -vE 'tests/(ops/ops|cpu/simd)\.c') $(ls tests/emu/*.c)"
case $what in
suites) rest= ;;
rest) suites= ;;
esac

# the heap as it is between tests: to give large blocks back to the system
# and to get them again takes longer than the tests
export MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=1073741824 \
    MALLOC_TOP_PAD_=67108864
# shellcheck disable=SC2086  # one argument a file
exec env SEG_TEST_DEVICE=cuda EMU_REACHED="${run%/run}/reached" "$@" "$run" $suites $rest
