#!/bin/sh
# saving.sh -- checkpoints that are written while the run trains: a kill loses no epoch that
# was said to be saved, and leaves no epoch with some of its checkpoints.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh

recipe="$PROGRAM tests/golden/training.lua --variant ema --device cpu --threads 1 --workers 0
    --phantom $tmp/phantom --save_every 2 --keep_last 3"
run=$tmp/runs/training/001

# number KEY NAME: a number in the metadata of a checkpoint of the run
number() {
    "$PROGRAM" inspect "$run/checkpoint_$2.safetensors" | sed -n "s/^$1  *\\([0-9]*\\)\$/\\1/p"
}
epoch() { number epoch "$1"; }

# killed MILLISECONDS: kills a run and compares the checkpoints with what was said
killed() {
    rm -rf "$tmp/runs"
    # shellcheck disable=SC2086  # words
    $recipe --epochs 100000 --quiet --out "$tmp/runs" > "$tmp/said" 2>&1 &
    pid=$!
    until grep -qs "saved epoch 3" "$run/log.txt"; do
        kill -0 "$pid" || return 1
        sleep 0.02
    done
    sleep "$(awk -v ms="$1" 'BEGIN { printf "%.3f", ms / 1000 }')"
    kill -KILL "$pid"
    wait "$pid" 2> /dev/null
    said=$(sed -n 's/^saved epoch \([0-9]*\)$/\1/p' "$run/log.txt" | tail -n 1)
    last=$(epoch last)
    echo "said $said, last $last"
    [ "$last" -ge "$said" ] || return 1
    # every second epoch up to the last one has its file, with the newest three kept
    even=$((last / 2 * 2))
    [ -e "$run/checkpoint_$(printf %04d "$even").safetensors" ] || return 1
    best=$(number best_epoch last)
    echo "best of the last $best, of its file $(epoch best)"
    [ "$(epoch best)" -ge "$best" ] || return 1
    # the resumed run goes on from there, and completes an epoch that was not committed
    # shellcheck disable=SC2086  # words
    $recipe --epochs 100000 --quiet --resume "$run" --until_epoch $((last + 2)) || return 1
    rows=$(($(wc -l < "$run/metrics.csv") - 1))
    echo "rows $rows, last $(epoch last)"
    [ "$rows" -eq "$(epoch last)" ] && [ -z "$(find "$run" -name '*.tmp.*')" ]
}
for ms in 3 17 40 71 110 160; do
    step "killed $ms ms after a save" killed "$ms"
done

# A run whose epoch 2 was cut after some of its checkpoints were renamed ends as a whole one.
# cut NAME ...: the names that are of epoch 2 already; the others are of epoch 1
cut() {
    rm -rf "$tmp/runs"
    # shellcheck disable=SC2086  # words
    $recipe --epochs 3 --quiet --out "$tmp/runs" --until_epoch 1 &&
        cp -r "$run" "$tmp/runs/first" &&
        $recipe --epochs 3 --quiet --resume "$run" --until_epoch 2 || return 1
    [ "$(epoch best)" -eq 2 ] || return 1
    for name in 0002 best last; do
        case " $* " in
        *" $name "*) continue ;;
        esac
        rm "$run/checkpoint_$name.safetensors"
        cp "$tmp/runs/first/checkpoint_$name.safetensors" "$run" 2> /dev/null
    done
    # shellcheck disable=SC2086  # words
    $recipe --epochs 3 --quiet --resume "$run" --until_epoch 0 > "$tmp/said" 2>&1 || return 1
    cat "$tmp/said"
    ! grep -q "are lost" "$tmp/said" || return 1
    (cd "$run" && ls ./*.safetensors) > "$tmp/got"
    diff "$tmp/want" "$tmp/got" || return 1
    for name in 0002 best last; do
        cmp "$tmp/whole/training/001/checkpoint_$name.safetensors" \
            "$run/checkpoint_$name.safetensors" || return 1
    done
}
whole() {
    # shellcheck disable=SC2086  # words
    $recipe --epochs 3 --quiet --out "$tmp/whole" &&
        (cd "$tmp/whole/training/001" && ls ./*.safetensors) > "$tmp/want"
}
step "a whole run" whole
step "cut before any name" cut
step "cut after the numbered one" cut 0002
step "cut after the best" cut 0002 best
step "cut after the last" cut 0002 best last
finish
