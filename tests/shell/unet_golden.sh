#!/bin/sh
# unet_golden.sh -- whole networks against PyTorch in float64.
#
# Needs python3 with PyTorch (such as Debian's python3-torch); PYTHON names another
# interpreter. The bounds are in tests/golden/unet.py.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh

PYTHON=${PYTHON:-/usr/bin/python3}
export PYTHONDONTWRITEBYTECODE=1
"$PYTHON" -c 'import numpy, torch' 2> /dev/null ||
    skip "no PyTorch in $PYTHON (sh vendor/fetch ci)"

# network KIND DEVICE [OPTIMISER]: 10 steps of segengine and the comparison
network() {
    kind=$1 device=$2
    shift 2
    "$PROGRAM" tests/golden/unet.lua "$kind" "$tmp/$kind" "$device" "$@" &&
        "$PYTHON" tests/golden/unet.py check "$kind" "$tmp/$kind" "$device"
}
# the full size is too slow for a build with sanitizers
kinds="nfbs brain"
[ -z "${SAN:-}" ] || kinds=nfbs
for kind in $kinds; do
    step "$kind in PyTorch" "$PYTHON" tests/golden/unet.py make "$kind" "$tmp/$kind"
    step "$kind on cpu" network "$kind" cpu
    step "$kind on cpu, convolutions as they stand" network "$kind" direct sgd
    # double is slow: the large network uses AdamW only, which depends on all gradients
    optimisers=
    [ "$kind" = nfbs ] || optimisers=adamw
    step "$kind on ref" network "$kind" ref $optimisers
done
finish
