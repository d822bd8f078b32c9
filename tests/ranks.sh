#!/bin/sh
# ranks.sh -- runs of several processes against runs of one.
#
# A small recipe (tests/golden/training.lua) with norm, dropout and random changes,
# under SGD, whose numbers do not hang on the rounding of a gradient that should be 0.
# Then what goes wrong: a rank that is killed, one that is stopped, other ranks on
# resume. With an MPI at hand the same by mpirun.
cd "$(dirname "$0")/.." || exit 1
. tests/steps

# run NAME OPTION ...: a run into $tmp/NAME, what it said in $tmp/NAME.log
run() {
    name=$1
    shift
    # shellcheck disable=SC2086  # words
    timeout 60 "$@" tests/golden/training.lua --phantom "$tmp/phantom" --workers 1 \
        --variant plateau --epochs 3 --out "$tmp/$name" $options \
        > "$tmp/$name.log" 2>&1
}
train() {
    name=$1
    shift
    options="--device cpu $*"
    run "$name" "$PROGRAM" || { cat "$tmp/$name.log"; return 1; }
}
file() { echo "$tmp/$1/training/001/$2"; }
same() { cmp "$(file "$1" checkpoint_last.safetensors)" "$(file "$2" checkpoint_last.safetensors)"; }
# losses and metrics of all epochs within 1e-3 of each other
near() {
    cut -d, -f4-6 "$(file "$1" metrics.csv)" > "$tmp/a"
    cut -d, -f4-6 "$(file "$2" metrics.csv)" > "$tmp/b"
    paste -d, "$tmp/a" "$tmp/b" | awk -F, 'NR > 1 { n++
        for (i = 1; i <= 3; i++) { d = $i - $(i + 3); if (d < 0) d = -d
            if (!(d <= 1e-3 * ($i > 1 ? $i : 1))) { print "row " NR ": " $0; bad = 1 } } }
        END { exit bad || n != 3 }'
}
said() { grep -q -- "$2" "$tmp/$1.log" || { cat "$tmp/$1.log"; return 1; }; }

step "one process" train one
for n in 2 4; do
    step "$n ranks" train "r$n" --ranks "$n"
    step "$n ranks: the losses of one process" near one "r$n"
    step "$n ranks: efficiency is printed" said "r$n" "$n ranks, efficiency [0-9-]* %"
done
step "one process has one folder" test ! -e "$tmp/r4/training/002"
step "2 ranks, more threads" train again --ranks 2 --threads 2
step "2 ranks: the same bytes with any threads" same r2 again
step "ref, 3 ranks, batches that do not divide" train ref3 --device ref --ranks 3
step "ref, 3 ranks: the losses of one process" near one ref3
step "statistics of each rank" train own --ranks 2 --sync_norm false
step "swa, with more ranks than a last batch has" \
    train swa --variant swa --ranks 4 --batch 7
step "phases" train phases --variant phases --ranks 2

# stopped in the middle of an epoch and resumed; other ranks are refused
step "stopped after 4 steps" train cut --ranks 2 --steps 4
folder=$tmp/cut/training/001
step "other ranks" sh -c "! $PROGRAM tests/golden/training.lua --phantom $tmp/phantom \
    --device cpu --resume $folder --ranks 3 > $tmp/other.log 2>&1"
step "other ranks: what differs, and both ways out" \
    said other "had ranks 2, this has 3.*--ranks 2 .*--other_ranks"
step "resumed" train cut --resume "$folder" --steps 0
step "resumed: the bytes of a whole run" same r2 cut
step "resumed with other ranks as told" \
    train cut --resume "$folder" --epochs 4 --ranks 4 --other_ranks

# mistakes are said once, with the rank where it is one's own
options="--device cpu --ranks 3 --batch 2"
run small "$PROGRAM"
step "a batch too small: exit code" test $? -eq 2
step "a batch too small: said once" \
    test "$(grep -c '3 ranks share a batch' "$tmp/small.log")" -eq 1

# a rank that dies or stands still ends the others, within 10 s
ends() {
    signal=$1
    "$PROGRAM" tests/golden/training.lua --phantom "$tmp/phantom" --device cpu \
        --workers 0 --ranks 3 --epochs 100000 --out "$tmp/dies$signal" \
        > "$tmp/dies$signal.log" 2>&1 &
    pid=$!
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        grep -q "^epoch" "$tmp/dies$signal.log" && break
        sleep 0.5
    done
    ranks=$(pgrep -P "$pid")
    # shellcheck disable=SC2086  # one word a process
    set -- $ranks
    begun=$(date +%s)
    kill -"$signal" "$2"
    wait "$pid"
    code=$?
    took=$(($(date +%s) - begun))
    for p in "$@"; do
        kill -0 "$p" 2> /dev/null && { echo "rank $p is left"; kill -9 "$p"; return 1; }
    done
    # sanitizers end slowly
    [ "$took" -le $((10 + ${SAN:+10} + 0)) ] || { echo "took $took s"; return 1; }
    if [ "$signal" = TERM ]; then [ "$code" -eq 143 ]; else [ "$code" -eq 1 ]; fi
}
step "a rank is killed" ends KILL
step "a rank is killed: which, and by what" said diesKILL "segengine: rank 1: killed by signal 9"
step "a rank stands still" ends STOP
step "a rank stands still: which" said diesSTOP "rank 1: nothing was heard of it"
step "one rank is told to stop: all save, once" ends TERM
step "one rank is told to stop: how to go on" said diesTERM "SIGTERM: saved at epoch"

# the same by MPI
mpi=$(dirname "$PROGRAM")/segengine-mpi.so
had=
[ -e "$mpi" ] && had=1
command -v mpirun > /dev/null || skip "no mpirun: MPI is not tested"
echo '#include <mpi.h>' | ${MPICC:-mpicc} -E - > /dev/null 2>&1 ||
    [ -n "$had" ] || skip "no mpicc with mpi.h: MPI is not tested"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
over=
mpirun --version 2>&1 | grep -q "Open MPI" && over=--oversubscribe
if [ -z "$had" ]; then
    options="--device cpu"
    run none mpirun ${over:+"$over"} -n 2 "$PROGRAM"
    step "no module: what to do" said none "fix: make mpi"
    step "make mpi" "$MAKE" BUILD="$BUILD" mpi
fi
options="--device cpu"
step "mpirun, 2 ranks" run mpi2 mpirun ${over:+"$over"} -n 2 "$PROGRAM"
step "mpirun: the bytes of --ranks" same r2 mpi2
options="--device cpu --batch 1"
run mpibad mpirun ${over:+"$over"} -n 2 "$PROGRAM"
step "mpirun: an error names its rank" said mpibad "segengine: rank [01]: --batch 1: 2 ranks"
[ -n "$had" ] || rm -f "$mpi"
finish
