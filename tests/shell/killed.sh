#!/bin/sh
# killed.sh -- runs of every kind are killed at random moments and resumed.
#
# For each kind one uninterrupted run is the reference. Others are killed (the command, or
# one of the processes that it started) at moments drawn from the duration of a whole run.
# After each kill every file of weights below the folder is valid. The resumed run does
# not wait for processes that the killed one left. In the end all files of weights, the
# trials of a search and the results of a series have the same bytes, and no temporary
# file is left. Short: two kills a kind; SEG_SOAK=1: 220 kills.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh

runs=$tmp/runs rounds=1 times=2
[ -z "${SEG_SOAK:-}" ] || rounds=10

# A recipe for series: folds, seeds, searches.
cat > "$tmp/toy.lua" << 'EOF'
local seg = require "seg"
local nn = seg.nn
local cfg = seg.config { lr = 0.02, width = 2, folds = false, method = "tpe", epochs = 3 }
local cases = seg.data.phantom { patients = 6, size = 16, slices = 4 }
local train, valid
if cfg.folds then train, valid = cases:kfold { k = 3, seed = 1 }
else train, valid = cases:split { valid = 2, seed = 1 } end
local function prepare(set)
  return set:resize { h = 16, w = 16 }:normalize {}:slices { axis = "axial" }
end
local x = nn.input("image", { c = 1, h = 16, w = 16 })
local y = nn.input("mask", { c = 1, h = 16, w = 16 })
local z = nn.conv(nn.dropout(nn.relu(nn.conv(x, cfg.width, 3)), 0.1), 1, 1)
seg.recipe { inputs = { x, y }, outputs = { mask = nn.sigmoid(z) }, loss = nn.bce_dice(z, y),
  metrics = { dice = seg.metric.dice(z, y) }, best = { "dice", "max" }, ema = 0.9,
  train = prepare(train):augment { flip = true }:batches { size = 4, shuffle = true },
  valid = prepare(valid):batches { size = 4 }, optim = seg.optim.adam { lr = cfg.lr },
  schedule = seg.optim.cosine {}, epochs = cfg.epochs }
seg.search { trials = 4, startup = 2, method = cfg.method, metric = { "loss", "min" }, eta = 2,
  space = { lr = { 1e-3, 1e-1, log = true }, width = { 2, 4 } } }
EOF
cat > "$tmp/whole.lua" << 'EOF'
-- Is every file of weights whole, among them the last checkpoint where there is one?
local core = require "seg.core"
for path in io.popen("find " .. arg[1] .. " -name '*.safetensors'"):lines() do
  local ok, why = core.checkpoint.verify(path)
  if not ok then error(why, 0) end
end
EOF

training=tests/golden/training.lua
words() {
    case $1 in
    ema | swa | plateau | phases | ema_parts) echo "$training --variant $1" ;;
    recompute) echo "$training --variant ema_parts --recompute 160000" ;;
    ranks) echo "$training --variant plateau --ranks 2" ;;
    folds) echo "$tmp/toy.lua folds --folds true" ;;
    repeat) echo "$tmp/toy.lua repeat --seeds 2" ;;
    search) echo "$tmp/toy.lua search" ;;
    halving) echo "$tmp/toy.lua search --method halving" ;;
    esac
}
# run KIND OUT OPTION ...: replaces this shell
run() {
    kind=$1 out=$2
    shift 2
    # shellcheck disable=SC2046  # words
    exec "$PROGRAM" $(words "$kind") --quiet --device cpu --workers 1 \
        --phantom "$tmp/phantom" --out "$runs/$out" "$@" > "$tmp/said" 2>&1
}
train() {
    (run "$@") || { cat "$tmp/said"; return 1; }
}

# Checksums by name of the files of this folder that must not differ.
sums() {
    (cd "$1" && find . -name '*.safetensors' -o -name study.jsonl | sort |
        xargs sha256sum)
}
measure() {
    begun=$(date +%s%N)
    train "$1" "whole_$1" || return 1
    echo $((($(date +%s%N) - begun) / 1000000)) > "$tmp/$1.ms"
    sums "$runs/whole_$1"/*/001 > "$tmp/$1.sums" && grep -q last "$tmp/$1.sums"
}

# The mark of a finished run is written after all other files: a run that is killed before
# it is resumed, and no file is left incomplete.
last() {
    later=$(find "$1"/*/001 -type f -newer "$(echo "$1"/*/001/summary.json)" \
        ! -name log.txt)
    test -z "$later" || { echo "$later"; return 1; }
}

kills=0 drawn=1
# draw N: a number below N in $drawn
draw() {
    drawn=$(((drawn * 1103515245 + 12345) % 2147483648))
    number=$((drawn / 65536 % $1))
}

# Ranks without their command end by themselves, a moment later; until then they hold the
# lock of the folder.
ended() {
    for _ in $(seq 200); do
        pgrep -f "$runs/cut" > "$tmp/alive" || return 0
        sleep 0.05
    done
    ps -o pid=,args= -p "$(paste -sd, "$tmp/alive")"
    return 1
}

# killed KIND: a run that is killed $times times, then ends
killed() {
    rm -rf "$runs/cut"
    for attempt in $(seq "$times"); do
        run "$1" cut --resume auto &
        pid=$!
        draw "$(cat "$tmp/$1.ms")"
        sleep "$(awk -v ms="$number" 'BEGIN { printf "%.3f", ms / 1000 }')"
        # every other time one of its processes is killed, if it has some; not of a
        # search, where a failed trial is a result too
        victim=
        case $1 in
        ranks | folds | repeat)
            [ $((attempt % 2)) -eq 1 ] || victim=$(pgrep -P "$pid" | tail -n 1)
            ;;
        esac
        kill -KILL "${victim:-$pid}" 2> /dev/null
        # a command that has lost a process ends by itself
        wait "$pid" 2> /dev/null
        kills=$((kills + 1))
        ended || return 1
        "$PROGRAM" "$tmp/whole.lua" "$runs/cut" || return 1
    done
    train "$1" cut --resume auto || return 1
    # a kill before the first checkpoint leaves a folder that is never resumed, one after
    # the end a finished run: --resume auto then begins a new one
    over=0
    for done in "$runs"/cut/*/*/summary.json; do
        sums "${done%/*}" > "$tmp/cut.sums"
        diff "$tmp/cut.sums" "$tmp/$1.sums" || return 1
        left=$(find "${done%/*}" -name '*.tmp.*')
        test -z "$left" || { echo "left: $left"; return 1; }
        over=$((over + 1))
    done
    test "$over" -gt 0
}

for kind in ema swa plateau phases ema_parts recompute ranks folds repeat search \
    halving; do
    # the others are killed by resume_training.sh, series.lua and search.lua too
    case $kind in
    recompute | ranks | halving) ;;
    *) [ -n "${SEG_SOAK:-}" ] || continue ;;
    esac
    step "$kind: a whole run" measure "$kind"
    step "$kind: summary.json is the last" last "$runs/whole_$kind"
    for round in $(seq "$rounds"); do
        step "$kind, round $round: killed $times times" killed "$kind"
    done
done
[ -z "${SEG_SOAK:-}" ] || step "220 kills" test "$kills" -eq 220
echo "$kills kills"
finish
