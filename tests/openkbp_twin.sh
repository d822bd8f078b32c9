#!/bin/sh
# openkbp_twin.sh -- scripts/openkbp_unet3d.lua and its twin in PyTorch: the same
# steps of the baseline and of what scores better, and training by itself.
cd "$(dirname "$0")/.." || exit 1
. tests/steps

PYTHON=${PYTHON:-/usr/bin/python3}
export PYTHONDONTWRITEBYTECODE=1
"$PYTHON" -c 'import numpy, torch' 2> /dev/null ||
    skip "no PyTorch in $PYTHON (apt-get install python3-torch)"

recipe() {
    "$PROGRAM" scripts/openkbp_unet3d.lua "$@" --preset check \
        --out "$tmp/runs" --quiet
}
better() {
    recipe export --twin "$tmp/better" --steps 8 --dropout 0 --coarse 2 &&
        "$PYTHON" tests/peer/openkbp.py "$tmp/better" --better --coarse 2
}
baseline() {
    recipe export --twin "$tmp/baseline" --steps 8 --dropout 0 \
        --better false --levels 5 &&
        "$PYTHON" tests/peer/openkbp.py "$tmp/baseline"
}
arrays() {
    recipe export --arrays "$tmp/arrays" &&
        "$PYTHON" tests/peer/openkbp.py --train "$tmp/arrays" --better \
            --filters 2 --levels 4 --epochs 1 --t_max 1 --ema 0.9
}
step "8 steps, on a coarser grid" better
step "8 steps of the baseline" baseline
step "the twin trains on exported patients" arrays
finish
