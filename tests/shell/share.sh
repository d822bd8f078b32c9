#!/bin/sh
# share.sh -- a run uses no more processors than it was given.
#
# Processor time divided by wall time is at most threads + workers, plus 5 %, and the
# system lists only the threads of the pool, the loader threads of each part of the data
# and, while a checkpoint is written, the thread that writes it. Loader threads live as
# long as the run. On a busy machine the quotient is less, never more.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh
recipe="scripts/brain_unet.lua --preset check --size 64 --base 8 --quiet"

# a shell with the program as its only child, so that `times` measures it alone
cat > "$tmp/timed.sh" <<'END'
out=$1
shift
began=$(date +%s%N)
"$@" > "$out.log" 2>&1 &
echo $! > "$out.pid"
wait $!
status=$?
times > "$out.times"
echo "$began $(date +%s%N)" > "$out.wall"
exit $status
END
# percent of a core
share() {
    read -r began ended < "$1.wall"
    awk -v ns=$((ended - began)) 'NR == 2 { for (i = 1; i <= 2; i++) {
        split($i, t, /[ms]/); s += 60 * t[1] + t[2] }
        printf "%.0f", 100 * s * 1e9 / ns }' "$1.times"
}
rows() { wc -l 2> /dev/null < "$tmp/runs/$1/brain_unet/001/metrics.csv" || echo 0; }
# threads OUT COUNT: lists the threads, at a moment when there are so many, if there is one
threads() {
    for _ in $(seq 50); do
        ls /proc/"$pid"/task > "$1" 2> /dev/null
        cat /proc/"$pid"/task/*/stat > "$tmp/$name.stat" 2> /dev/null
        cat /proc/"$pid"/task/*/status > "$tmp/$name.status" 2> /dev/null
        [ "$(wc -l < "$1")" -ne "$2" ] || [ "$(wc -l < "$tmp/$name.stat")" -ne "$2" ] ||
            return 0
        kill -0 "$pid" 2> /dev/null || return 0
        sleep 0.01
    done
}
# run NAME THREADS WORKERS OPTIONS ...: trains; while it does, lists its threads
# after an epoch and after three
run() {
    name=$1
    # shellcheck disable=SC2086  # words
    sh "$tmp/timed.sh" "$tmp/$name" "$PROGRAM" $recipe --epochs 5 \
        --threads "$2" --workers "$3" --phantom "$tmp/phantom" \
        --out "$tmp/runs/$name" $4 &
    shell=$!
    until [ -s "$tmp/$name.pid" ]; do sleep 0.02; done
    read -r pid < "$tmp/$name.pid"
    for after in 2 4; do
        while kill -0 "$pid" 2> /dev/null && [ "$(rows "$name")" -lt "$after" ]; do
            sleep 0.05
        done
        threads "$tmp/$name.$after" $(($2 + 2 * $3))
    done
    wait "$shell"
}
# shellcheck disable=SC2086  # words
"$PROGRAM" $recipe --steps 1 --phantom "$tmp/phantom" --out "$tmp/first" \
    > /dev/null 2>&1
for pair in "1 0" "1 2" "2 2"; do
    # shellcheck disable=SC2086  # two words
    set -- $pair
    name=t$1w$2
    step "threads $1, workers $2" run "$name" "$1" "$2" ""
    all=$(share "$tmp/$name") seen=$(wc -l < "$tmp/$name.4")
    echo "  threads $1, workers $2: $all % of a core, $seen threads"
    step "... it worked" test "$all" -gt 10
    step "... $all % of a core" test "$all" -le $((($1 + $2) * 105))
    # the test set is opened, but its batches are not requested
    step "... $seen threads" test "$seen" -eq $(($1 + 2 * $2))
    step "... the same after three epochs" cmp "$tmp/$name.2" "$tmp/$name.4"
done
# how many threads have VALUE in field N after the name in /proc/PID/stat
with() {
    sed 's/.*) //' "$tmp/$1.stat" | awk -v n="$2" -v v="$3" '$n == v' | wc -l
}
# 17 is the nice value, 39 the policy, of which 5 is SCHED_IDLE
step "usual priority" test "$(with t2w2 17 "$(nice)")" -eq 6
step "no idle threads" test "$(with t2w2 39 5)" -eq 0
step "--nice, --idle_workers" run polite 2 2 "--nice 19 --idle_workers"
step "all threads give way" test "$(with polite 17 19)" -eq 6
step "loader threads twice" test "$(with polite 39 5)" -eq 4
step "the same weights" cmp "$tmp/runs/t2w2/brain_unet/001/checkpoint_last.safetensors" \
    "$tmp/runs/polite/brain_unet/001/checkpoint_last.safetensors"

# how many threads have one core only, a list without "," and "-"
bound() { grep -c '^Cpus_allowed_list:[[:blank:]]*[0-9]*$' "$tmp/$1.status"; }
step "--pin" run pinned 3 2 "--pin"
if [ "$(bound t2w2)" -eq 0 ]; then # else this machine has one core
    step "compute threads but the first have a core each" test "$(bound pinned)" -eq 2
fi
step "the same weights, pinned" cmp "$tmp/runs/t2w2/brain_unet/001/checkpoint_last.safetensors" \
    "$tmp/runs/pinned/brain_unet/001/checkpoint_last.safetensors"

# limits of a shell and of a batch system
says() { # TEXT COMMAND ...
    text=$1
    shift
    "$@" > "$tmp/said" 2>&1
    grep -E -- "$text" "$tmp/said" || { cat "$tmp/said"; return 1; }
}
tight() {
    # shellcheck disable=SC2086,SC3045  # words; dash and bash have -v
    (ulimit -v 3000000 && "$PROGRAM" ${recipe% --quiet} --steps 1 \
        --phantom "$tmp/phantom" --out "$tmp/tight" --threads 1)
}
step "the cache keeps to what memory is left" \
    says '^cache: at most [0-9.]+ [GM]iB of the 4\.0 GiB of --cache_mb' tight
if command -v taskset > /dev/null && [ "$(nproc)" -gt 1 ]; then
    core=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')
    step "one core of several" says '^processor .*\(1 of them for this process' \
        taskset -c "$core" "$PROGRAM" doctor
    step "one thread then" says '^threads +ok +1 by default' \
        taskset -c "$core" "$PROGRAM" doctor
fi
finish
