#!/bin/sh
# ranks.sh -- runs of several processes compared with runs of one.
#
# A small recipe (tests/golden/training.lua) with norm, dropout and augmentation, trained
# with SGD, so that no result depends on the rounding of a gradient that should be 0. Then
# failures: a rank that is killed, one that is stopped, another number of ranks on resume.
# With an installed MPI the same by mpirun.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh

# run NAME OPTION ...: a run into $tmp/NAME, with its output in $tmp/NAME.log
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

# bench measures the same values that plan predicts
options="--device cpu --ranks 2"
bench() {
    # shellcheck disable=SC2086  # words
    "$PROGRAM" tests/golden/training.lua bench --json $options > "$tmp/bench.json" &&
        "$PROGRAM" tests/golden/training.lua plan --json --step_ms 4 $options > "$tmp/plan.json"
}
field() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" | head -n 1; }
alike() {
    a=$(field "$1" < "$tmp/bench.json")
    b=$(sed -n '/"exchange"/,$p' "$tmp/plan.json" | field "$1")
    echo "bench $a, plan $b"
    [ -n "$a" ] && [ "$a" -gt 0 ] && [ $((a - b)) -le "$2" ] && [ $((b - a)) -le "$2" ]
}
step "bench of 2 ranks" bench
step "the bytes that plan says" alike bytes 64
step "the messages that plan says" alike messages 1
step "bench: what one rank alone needs" grep -q '"alone_ms": *[0-9]' "$tmp/bench.json"

# recomputation needs no exchange, so each rank may choose; the budget is a byte less than
# the shard of each needs
share=$("$PROGRAM" tests/golden/training.lua plan --json --device cpu --threads 1 \
    --batch 2 --recompute off | sed -n '/"train"/,$p' | field bytes)
step "values computed again" train twice --ranks 2 --threads 1 --recompute $((share - 1))
step "bench: one rank alone has the memory of both" "$PROGRAM" tests/golden/training.lua bench \
    --device cpu --ranks 2 --threads 1 --recompute $((share - 1))
step "which is said" said twice "recompute: .* are computed again"
step "2 ranks: the same bytes" same r2 twice

# stopped in the middle of an epoch and resumed; another number of ranks is refused
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

# errors are printed once, with the rank if they concern one rank only
options="--device cpu --ranks 3 --batch 2"
run small "$PROGRAM"
step "a batch too small: exit code" test $? -eq 2
step "a batch too small: said once" \
    test "$(grep -c '3 ranks share a batch' "$tmp/small.log")" -eq 1

# a rank that dies or hangs ends the others within 10 s ends NAME SIGNAL CODE OPTIONS
# COMMAND ...: starts the program by COMMAND with these options, which has three ranks as
# children; the second one gets the signal; its output is in $tmp/NAME.log
lives() {
    # a zombie does not
    case $(ps -o stat= -p "$1") in '' | Z*) return 1 ;; esac
}
ends() {
    name=$1 signal=$2 wanted=$3 options=$4
    shift 4
    # shellcheck disable=SC2086  # words
    "$@" tests/golden/training.lua --phantom "$tmp/phantom" --device cpu \
        --workers 0 --epochs 100000 --out "$tmp/$name" $options > "$tmp/$name.log" 2>&1 &
    pid=$!
    awaits "$tmp/$name.log" "^epoch"
    ranks=$(pgrep -P "$pid")
    # shellcheck disable=SC2086  # one word a process
    set -- $ranks
    [ $# -eq 3 ] || { echo "no three ranks: $ranks"; cat "$tmp/$name.log"; return 1; }
    begun=$(date +%s)
    kill -"$signal" "$2"
    wait "$pid"
    code=$?
    took=$(($(date +%s) - begun))
    for p in "$@"; do
        # mpirun may end before ranks that are already ending
        while lives "$p" && [ $(($(date +%s) - begun)) -lt 10 ]; do sleep 0.2; done
        lives "$p" || continue
        echo "rank $p is left"
        kill -9 "$p"
        return 1
    done
    # sanitizers end slowly
    [ "$took" -le $((10 + ${SAN:+10} + 0)) ] || { echo "took $took s"; return 1; }
    [ "$code" -eq "$wanted" ] || { echo "exit code $code"; return 1; }
}
step "a rank is killed" ends killed KILL 1 "--ranks 3" "$PROGRAM"
step "a rank is killed: which, and by what" said killed "segengine: rank 1: killed by signal 9"
step "a rank stands still" ends still STOP 1 "--ranks 3" "$PROGRAM"
step "a rank stands still: which" said still "rank 1: no sign of life"
step "one rank is told to stop: all save, once" ends told TERM 143 "--ranks 3" "$PROGRAM"
step "one rank is told to stop: how to go on" said told "SIGTERM: saved at epoch"

# the variables of launchers: mpirun of Open MPI, of MPICH and Intel (srun --mpi=pmi2 sets
# the same), srun --mpi=pmix; a program that was started alone does not look for an MPI
launched() {
    options="--device cpu --epochs 1"
    for set in "$@"; do
        # shellcheck disable=SC2086  # words
        run launched env $set "$PROGRAM"
        [ $? -eq 2 ] || { echo "$set: not taken for a launcher's"; return 1; }
        # the module of another MPI, if it is installed, finds a single process
        grep -q "fix: make mpi with" "$tmp/launched.log" || { cat "$tmp/launched.log"; return 1; }
    done
}
alone() {
    options="--device cpu --epochs 1"
    for set in "$@"; do
        # shellcheck disable=SC2086  # words
        run alone env $set "$PROGRAM" || { echo "$set"; cat "$tmp/alone.log"; return 1; }
    done
}
mpi=$(dirname "$PROGRAM")/segengine-mpi.so
if [ ! -e "$mpi" ]; then
    step "variables of launchers" launched OMPI_COMM_WORLD_SIZE=2 PMI_SIZE=2 \
        "PMIX_RANK=0 SLURM_NTASKS=2"
fi
step "not those of a batch job" alone SLURM_NTASKS=2 PMI_SIZE=1 "PMIX_RANK=0 SLURM_NTASKS=1"

# the same by MPI
had=
[ -e "$mpi" ] && had=1
command -v mpirun > /dev/null || skip "mpirun is not installed (sh vendor/fetch ci)"
    # a file: without one Open MPI's compiler wrapper would link
echo '#include <mpi.h>' > "$tmp/mpi.c"
${MPICC:-mpicc} -E "$tmp/mpi.c" > /dev/null 2>&1 ||
    [ -n "$had" ] || skip "mpicc with mpi.h is not installed (sh vendor/fetch ci)"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
over=
mpirun --version 2>&1 | grep -q "Open MPI" && over=--oversubscribe
if [ -z "$had" ]; then
    options="--device cpu"
    run none mpirun ${over:+"$over"} -n 2 "$PROGRAM"
    step "no module: what to do" said none "fix: make mpi"
fi
# an existing module may be outdated
step "make mpi" "$MAKE" BUILD="$BUILD" PROGRAM="$PROGRAM" mpi
options="--device cpu"
step "mpirun, 2 ranks" run mpi2 mpirun ${over:+"$over"} -n 2 "$PROGRAM"
step "mpirun: the bytes of --ranks" same r2 mpi2
options="--device cpu --batch 1"
run mpibad mpirun ${over:+"$over"} -n 2 "$PROGRAM"
step "mpirun: an error names its rank" said mpibad "segengine: rank [01]: --batch 1: 2 ranks"
ranked="mpirun ${over:+$over} -n 3 $PROGRAM"
# shellcheck disable=SC2086  # words
step "mpirun: a rank is killed" ends mpikilled KILL 137 "" $ranked
step "mpirun: a rank is killed: which" said mpikilled "rank 1 .*signal 9"
# shellcheck disable=SC2086  # words
step "mpirun: a rank stands still" ends mpistill STOP 1 "" $ranked
step "mpirun: a rank stands still: which" said mpistill "rank 1: no sign of life"
# shellcheck disable=SC2086  # words
step "mpirun: one is told to stop: all save" ends mpitold TERM 143 "" $ranked
step "mpirun: how to go on" said mpitold "SIGTERM: saved at epoch"
[ -n "$had" ] || rm -f "$mpi"
finish
