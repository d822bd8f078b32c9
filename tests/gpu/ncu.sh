#!/bin/sh
# ncu.sh -- finds out how Nsight Compute can profile the program's kernels here.
#
#     sh tests/gpu/ncu.sh [KERNEL]     a regular expression, by default wgrad_, all kernels of dw
#
# Profiles one launch in `segengine check --device cuda --op conv`, in several ways, each
# in at most LIMIT (40) seconds, and prints what ncu said and OK or FAILED for each. On one
# machine ncu answered "Failed to profile" with default options. Possible reasons, and the
# way below that tells them apart:
#
#   clocks    a container may not lock the GPU's clocks: all ways have --clock-control none
#   one pass  the counters of --set basic take several passes, between which ncu saves and
#             restores memory; one metric takes one pass
#   eager     code is loaded and decompressed at the first launch of a kernel (lazy loading,
#             nvcc's --compress-mode), within ncu's launch
#   restart   repeats the whole program for each pass in place of the kernel
#   default   ncu's own clock control: to compare
#
# "LibraryNotLoaded" or ERR_NVGPUCTRPERM are about the machine (gVisor has no counters; a
# driver may reserve them for root), not about the program. BUILD and NVCC as in run.sh.
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build/gpu} LIMIT=${LIMIT:-40}
NVCC=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
ncu=$(command -v ncu || ls "$(dirname "$NVCC")/ncu" 2> /dev/null)
[ -n "$ncu" ] || { echo "not run: there is no ncu"; exit 77; }
[ -x "$BUILD/segengine" ] || { echo "not run: there is no $BUILD/segengine"; exit 77; }
kernel=${1:-wgrad_}
said=$(mktemp)
trap 'rm -f "$said"' EXIT
"$ncu" --version | tail -n 1
uname -rv

# way NAME OPTION ...: of ncu
way() {
    name=$1
    shift
    echo "== $name: ncu $*"
    timeout -k 5 "$LIMIT" "$ncu" "$@" -k "regex:$kernel" -c 1 --target-processes all \
        "$BUILD/segengine" check --device cuda --op conv --precision bf16 --share 1/20 \
        > "$said" 2>&1
    status=$?
    grep -E '==(ERROR|WARNING)==|Duration|Throughput|Registers Per|Elapsed|FAILED|failures' \
        "$said" | head -n 12
    if [ "$status" -eq 124 ]; then
        echo "FAILED: not ended after $LIMIT s"
    elif [ "$status" -ne 0 ] || ! grep -q 'gpu__time_duration\|Duration' "$said"; then
        echo "FAILED: status $status; the last lines:"
        tail -n 5 "$said"
    else
        echo OK
    fi
}
free="--clock-control none"
# shellcheck disable=SC2086  # several words
{
    way "one pass" $free --metrics gpu__time_duration.sum
    way "basic" $free --set basic
    export CUDA_MODULE_LOADING=EAGER
    way "basic, eager" $free --set basic
    unset CUDA_MODULE_LOADING
    way "basic, restart" $free --replay-mode application --set basic
    way "basic, no flush" $free --cache-control none --set basic
    way "default" --set basic
}
