#!/bin/sh
# startup.sh -- a program with CUDA on a machine without a driver.
#
# It prints why it uses the CPU, and looking for a driver costs almost nothing: at most 30
# ms more than the same program built without CUDA. The two run alternately, so that a
# busy machine slows both, and medians are compared.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh

unset CUDA_VISIBLE_DEVICES # tests/all hides GPUs
RUNS=${RUNS:-31} MOST_MS=30
"$PROGRAM" --version | grep -q 'CUDA yes' || skip "this build has no CUDA"
"$PROGRAM" doctor > "$tmp/doctor"
grep -q '^GPU *ok' "$tmp/doctor" && skip "there is a driver, and a GPU"

without=$BUILD/no_cuda/segengine
step "the program without CUDA" "$MAKE" BUILD="$BUILD" "$without"
[ "$failed" -eq 0 ] || finish

# says FILE TEXT
says() { grep -F "$2" "$1" || { cat "$1"; return 1; }; }
step "doctor: no driver" says "$tmp/doctor" 'none: no NVIDIA driver'
"$without" doctor > "$tmp/doctor.without"
step "doctor: no CUDA" says "$tmp/doctor.without" 'built without CUDA'
"$PROGRAM" scripts/brain_unet.lua --preset check --steps 1 \
    --phantom "$tmp/phantom" --out "$tmp/runs" > "$tmp/train" 2>&1
step "train: on the CPU, and why" says "$tmp/train" '(GPU: no NVIDIA driver'
"$PROGRAM" scripts/brain_unet.lua --preset check --device cuda \
    --phantom "$tmp/phantom" --out "$tmp/runs" > "$tmp/cuda" 2>&1
status=$?
step "train on cuda: exit code 4" test "$status" -eq 4
step "train on cuda: the way out" says "$tmp/cuda" 'or use --device cpu'

# microseconds PROGRAM: the duration of one start that looks for a GPU
microseconds() {
    began=$(date +%s%N)
    "$1" doctor > "$tmp/said"
    ended=$(date +%s%N)
    echo $(((ended - began) / 1000))
}
median() { sort -n "$1" | sed -n "$((RUNS / 2 + 1))p"; }
i=0
while [ $i -lt "$RUNS" ]; do
    microseconds "$PROGRAM" >> "$tmp/with"
    microseconds "$without" >> "$tmp/without"
    i=$((i + 1))
done
more=$(($(median "$tmp/with") - $(median "$tmp/without")))
echo "  start: $(median "$tmp/with") us, without CUDA" \
    "$(median "$tmp/without") us (medians of $RUNS)"
step "$more us more, at most $MOST_MS ms" test $more -lt $((MOST_MS * 1000))
finish
