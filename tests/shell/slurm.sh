#!/bin/sh
# slurm.sh -- a run that is asked to end at any moment saves, reports it and is resumed.
#
# The script of docs/clusters.md runs unchanged, with stand-ins for srun, scontrol and
# sbatch, until training is complete: its weights equal those of an uninterrupted run.
# Then signals at moments from the whole duration of a run, and to processes that wait for
# others.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh
recipe=scripts/brain_unet.lua

# the job script that sbatch would start: the text between the fences
mkdir "$tmp/bin"
awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' \
    docs/clusters.md > "$tmp/job.sh"
step "the page has a script" grep -q '^#SBATCH --signal=USR1@120' "$tmp/job.sh"
ln -s "$PROGRAM" "$tmp/bin/segengine"
cat > "$tmp/bin/srun" <<'END'
#!/bin/sh
echo $$ > "$FAKE/step"
exec "$@" --preset check --epochs 6 --save_every 100
END
cat > "$tmp/bin/scontrol" <<'END'
#!/bin/sh
[ "$*" = "requeue $SLURM_JOB_ID" ] && echo again > "$FAKE/again"
END
chmod +x "$tmp/bin/srun" "$tmp/bin/scontrol"

# synthetic patients on disk, and the uninterrupted run
"$PROGRAM" "$recipe" --preset check --steps 1 --phantom "$tmp/phantom" \
    --out "$tmp/first" > /dev/null 2>&1
data=$(ls -d "$tmp"/phantom/*)
# to be called in a subshell, which becomes the program, so that signals reach it
train() { # OUT OPTIONS ...
    out=$1
    shift
    exec "$PROGRAM" "$recipe" --data "$data" --preset check --epochs 6 \
        --out "$tmp/$out" "$@"
}
whole() { (train whole --quiet); }
step "a run in one piece" whole
last() { echo "$tmp/$1/brain_unet/001/checkpoint_last.safetensors"; }

# sbatch: a job whose time limit is near after two more epochs; it keeps its number and
# folder when it is requeued
starts=0
sbatch() {
    rows=$tmp/job/runs/7/brain_unet/001/metrics.csv
    while rm -f "$tmp/again" "$tmp/step"; do
        starts=$((starts + 1))
        [ "$starts" -le 9 ] || return 1
        had=$(wc -l < "$rows" 2> /dev/null || echo 0)
        (cd "$tmp/job" && exec sh "$tmp/job.sh") &
        job=$!
        while kill -0 "$job" 2> /dev/null; do
            now=$(wc -l < "$rows" 2> /dev/null || echo 0)
            [ "$now" -lt $((had + 2)) ] || break
            sleep 0.02
        done
        kill -USR1 "$(cat "$tmp/step")" 2> /dev/null
        wait "$job" || return 1
        [ -f "$tmp/again" ] || return 0
    done
}
mkdir "$tmp/job"
ln -s "$PWD/scripts" "$tmp/job/scripts"
export FAKE="$tmp" SLURM_JOB_ID=7 DATA="$data"
path=$PATH
PATH=$tmp/bin:$PATH
step "the job is requeued until it is done" sbatch
PATH=$path
step "it was ($starts starts)" test "$starts" -ge 3
mkdir -p "$tmp/jobs" && mv "$tmp/job/runs/7" "$tmp/jobs/run"
step "the weights of a run in one piece" cmp "$(last whole)" \
    "$(last jobs/run)"
step "and one run only" test "$(ls "$tmp/jobs/run/brain_unet")" = 001

# ended SIGNAL SECONDS: sends the signal to a run after so many seconds
ended() {
    train cut --quiet --resume auto &
    pid=$!
    sleep "$2"
    kill "-$1" "$pid" 2> /dev/null
    wait "$pid"
}

# at moments during data, steps, validation, saves and the test
anywhere() {
    k=0 hits=0
    rm -rf "$tmp/cut"
    while [ "$k" -lt 7 ]; do
        k=$((k + 1))
        ended "$1" "$(awk -v k="$k" 'BEGIN { printf "%.3f", 0.03 + k * 0.083 }')"
        code=$?
        [ "$code" -eq 0 ] && break
        [ "$code" -eq "$2" ] || { echo "code $code at $k"; return 1; }
        hits=$((hits + 1))
    done
    [ "$hits" -gt 0 ] || return 1
    [ "$code" -eq 0 ] || (train cut --quiet --resume auto) || return 1
    for done in "$tmp"/cut/brain_unet/*/summary.json; do
        cmp "$(last whole)" "${done%/*}/checkpoint_last.safetensors" || return 1
    done
}
step "SIGUSR1 anywhere: 138, then the same bytes" anywhere USR1 138
step "SIGTERM anywhere: 143, then the same bytes" anywhere TERM 143

# a signal that batch systems send twice, or two in a row, interrupt nothing; sent after
# the first epoch, as before the first step there is nothing to save
announced() {
    rm -rf "$tmp/cut"
    train cut --epochs 5000 --quiet &
    pid=$!
    rows=$tmp/cut/brain_unet/001/metrics.csv
    until [ "$(wc -l < "$rows" 2> /dev/null || echo 0)" -ge 2 ]; do sleep 0.02; done
    for signal in "$@"; do
        kill "-$signal" "$pid" 2> /dev/null
        sleep 0.15
    done
    wait "$pid"
}
code() { # CODE COMMAND ...
    want=$1
    shift
    "$@"
    got=$?
    [ "$got" -eq "$want" ] || { echo "code $got"; return 1; }
}
step "SIGUSR2 ends with 140" code 140 announced USR2
step "SIGUSR1, twice, and SIGTERM: 138" code 138 announced USR1 USR1 TERM
step "the run says so" grep -q "SIGUSR1: saved at epoch" \
    "$tmp/cut/brain_unet/001/log.txt"
step "the run says how it ended" grep -q '"state": *"stopped"' \
    "$tmp/cut/brain_unet/001/manifest.json"

# a process that waits for another one forwards the signal: check of another preset starts
# a second process, of the preset check, for its training steps
handed_on() {
    "$PROGRAM" "$recipe" check --preset demo --size 32 --base 4 --batch 4 \
        --patients 6 --slices 6 > "$tmp/said" 2>&1 &
    pid=$!
    child=
    while [ -z "$child" ] && kill -0 "$pid" 2> /dev/null; do
        child=$(cat /proc/"$pid"/task/*/children 2> /dev/null | tr -d ' ')
    done
    [ -n "$child" ] || { echo "no second process was started"; return 1; }
    kill -USR1 "$pid"
    wait "$pid"
    got=$?
    kill -0 "$child" 2> /dev/null && return 1
    return "$got"
}
if [ -e /proc/self/task/$$/children ] || [ -e /proc/$$/task/$$/children ]; then
    step "a process that is waited for ends too: 138" code 138 handed_on
fi

# while data is opened there is nothing to save, and on_finish gets that as its text
early() {
    "$PROGRAM" "$recipe" --size 512 --slices 60 --quiet --out "$tmp/early" \
        --on_finish "cat > '$tmp/told'" &
    pid=$!
    sleep 0.7
    kill -USR1 "$pid"
    wait "$pid"
}
step "while data is made: 138" code 138 early
step "on_finish is told that it was stopped" \
    grep -q '"state": *"stopped"' "$tmp/told"
step "no run is begun" test ! -e "$tmp/early/brain_unet/001"
finish
