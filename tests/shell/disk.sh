#!/bin/sh
# disk.sh -- full disks, closed files, limits and signals.
#
# A file is written completely or not at all; training survives a disk that is full for a
# while; however the program is stopped, it ends with the code that --help names. The full
# disk is a small file system in a mount namespace, which needs root: without root these
# steps are skipped.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh

recipe="scripts/brain_unet.lua --preset check --phantom $tmp/phantom"
export PROGRAM recipe tmp

# code N COMMAND: the shell command ends with N; its output is in $tmp/said
code() {
    timeout 60 bash -c "$2" > "$tmp/said" 2>&1
    got=$?
    cat "$tmp/said"
    [ "$got" -eq "$1" ] || { echo "code $got, want $1" && return 1; }
    # no message may name a line of an embedded module
    ! grep -q '^segengine: \[' "$tmp/said"
}
says() {
    code "$1" "$2" && grep -q -- "$3" "$tmp/said"
}
# full SIZE N COMMAND PART: the same on a disk of this size at $tmp/disk
full() {
    says "$2" "unshare -m bash -c 'mkdir -p $tmp/disk; mount -t tmpfs -o size=$1 none $tmp/disk; $3'" "$4"
}

# shellcheck disable=SC2016  # the inner shell expands
{
step "synthetic patients" code 0 '$PROGRAM $recipe --out $tmp/first --quiet'

# closed and full standard files
step "stdout closed" says 1 '$PROGRAM $recipe --out $tmp/o1 >&-' "standard output"
step "stdout full" code 1 '$PROGRAM ops > /dev/full'
step "stderr closed" code 0 '$PROGRAM $recipe --out $tmp/o2 2>&-'
step "stdin closed" code 0 '$PROGRAM $recipe --out $tmp/o3 <&-'
# shellcheck disable=SC2086  # two words
step "nothing printed into a file of the run" code 1 \
    'grep -rl "dice per case" $tmp/o1 --include=.lock --include="*.safetensors"'
# the log has its results once, written by the program itself
step "nor into its log" code 0 \
    'test "$(grep -c "dice per case" $tmp/o1/brain_unet/001/log.txt)" = 1'

# limits
step "files of 1 KiB" says 1 'ulimit -f 1; $PROGRAM $recipe --quiet --out $tmp/o4' "ulimit -f"
step "12 open files" code 0 'ulimit -n 12; $PROGRAM $recipe --out $tmp/o5 --quiet'
step "a traceback keeps the code" says 2 'SEG_TRACEBACK=1 $PROGRAM $recipe --lr x' "takes a number"

# signals outside of the training loop
cat > "$tmp/loop.lua" << 'EOF'
while true do end
EOF
step "a script, SIGINT" says 130 'timeout --preserve-status -s INT 0.3 $PROGRAM $tmp/loop.lua' \
    "loop.lua:1: interrupted"
cat > "$tmp/inner.lua" << 'EOF'
local function loop() while true do end end
local outer = coroutine.create(function() coroutine.wrap(loop)() end)
print(coroutine.resume(outer))
EOF
step "a loop in a coroutine, one SIGINT" says 130 \
    'timeout --preserve-status -s INT -k 5 0.3 $PROGRAM $tmp/inner.lua' "interrupted"
cat > "$tmp/again.lua" << 'EOF'
while true do coroutine.resume(coroutine.create(function() while true do end end)) end
EOF
step "a coroutine whose end is not looked at, one SIGINT" says 130 \
    'timeout --preserve-status -s INT -k 5 0.3 $PROGRAM $tmp/again.lua' "interrupted"
step "a script, SIGTERM" code 143 'timeout --preserve-status -s TERM 0.3 $PROGRAM $tmp/loop.lua'
step "a script that catches all, twice SIGINT" code 130 '
    echo "while true do pcall(function() while true do end end) end" > $tmp/deaf.lua
    timeout --preserve-status -s INT -k 0.3 0.3 $PROGRAM $tmp/deaf.lua; c=$?
    [ $c -eq 137 ] && exit 130; exit $c'
# loops that no hook reaches, all at once, as each takes 4 s to be ended
stuck() {
    printf 'io.open("%s/%s.begun", "w"):close()\n%s\n' "$tmp" "$1" "$2" > "$tmp/$1.lua"
}
stuck find 'string.find(string.rep("a", 100000), ".-.-.-.-b")'
stuck gmatch 'for _ in string.rep("a", 100000):gmatch(".-.-.-.-b") do end'
stuck move 'table.move({}, 1, 1 << 40, 2)'
stuck polls 'require("seg.core").sys.catch_signals()
string.find(string.rep("a", 100000), ".-.-.-.-b")'
step "in functions of Lua's library, SIGTERM" code 0 '
    for one in find gmatch move polls; do
        { $PROGRAM $tmp/$one.lua > $tmp/$one.said 2>&1 & p=$!
        until [ -e $tmp/$one.begun ]; do sleep 0.1; done; sleep 0.3
        from=$(date +%s); kill $p; wait $p
        echo "$? $(($(date +%s) - from))" > $tmp/$one.code; } &
    done; wait
    for one in find gmatch move polls; do
        read -r c s < $tmp/$one.code; echo "$one: code $c after $s s"; cat $tmp/$one.said
        [ $c -eq 143 ] && [ $s -le 6 ] && grep -q "cannot be interrupted" $tmp/$one.said || exit 1
    done'
step "there, SIGUSR1, which a batch system lets SIGTERM follow" code 0 '
    for one in find polls; do
        { rm -f $tmp/$one.begun; $PROGRAM $tmp/$one.lua > $tmp/$one.said 2>&1 & p=$!
        until [ -e $tmp/$one.begun ]; do sleep 0.1; done; sleep 0.3
        kill -USR1 $p; sleep 0.3; kill $p; (sleep 8; kill -KILL $p) 2> /dev/null & wait $p
        echo "$?" > $tmp/$one.code; } &
    done; wait
    for one in find polls; do
        read -r c < $tmp/$one.code; echo "$one: code $c"; cat $tmp/$one.said
        [ $c -eq 138 ] && grep -q "cannot be interrupted" $tmp/$one.said || exit 1
    done'
step "data opening, SIGINT" code 130 '
    big="$recipe --patients 60 --slices 60 --out $tmp/o6"
    $PROGRAM $big --steps 1 --quiet && timeout --preserve-status -s INT 0.2 $PROGRAM $big --epochs 500'

# full disks
if ! unshare -m true 2> /dev/null; then
    skip "a full disk wants root"
fi
step "no room for synthetic patients: not kept in part" \
    full 12m 1 '$PROGRAM scripts/brain_unet.lua --preset check --patients 40 --slices 60 --size 128 --out $tmp/disk; c=$?; ls $tmp/disk/phantom | grep -q . && c=9; exit $c' "No space left"
step "no room for results of predict: said how many there are" \
    full 300k 1 '$PROGRAM scripts/brain_unet.lua predict --weights $tmp/first/brain_unet/001 --in $tmp/phantom --out $tmp/disk' "of [0-9]* cases done, their results are in"
step "no room for checkpoints: said first, no run left" \
    full 3m 1 '$PROGRAM $recipe --out $tmp/disk; c=$?; ls $tmp/disk | grep -q . && c=9; exit $c' "checkpoints need"
step "full in the middle: three lost saves end it, the file before is whole" \
    full 8m 1 '$PROGRAM $recipe --quiet --epochs 100000 --save_every 100000 --keep_last 0 --out $tmp/disk & p=$!; until [ -e $tmp/disk/brain_unet/001/checkpoint_last.safetensors ]; do sleep 0.1; done; sleep 0.5; dd if=/dev/zero of=$tmp/disk/fill bs=1k 2>/dev/null; wait $p; c=$?; $PROGRAM inspect $tmp/disk/brain_unet/001/checkpoint_last.safetensors || c=9; exit $c' "checksums are right"
step "full for a while: the run goes on" \
    full 8m 143 '$PROGRAM $recipe --epochs 100000 --save_every 100000 --keep_last 0 --out $tmp/disk & p=$!; until [ -e $tmp/disk/brain_unet/001/checkpoint_last.safetensors ]; do sleep 0.1; done; sleep 0.5; dd if=/dev/zero of=$tmp/disk/fill bs=1k 2>/dev/null; sleep 2; rm $tmp/disk/fill; sleep 5; kill -TERM $p; wait $p; c=$?; $PROGRAM inspect $tmp/disk/brain_unet/001/checkpoint_last.safetensors || c=9; exit $c' "trying again"
}
finish
