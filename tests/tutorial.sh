#!/bin/sh
# tutorial.sh -- docs/tutorial.md as a new user follows it: each of its commands, in
# its order, in one shell. Only the sizes are smaller, so that it takes seconds.
cd "$(dirname "$0")/.." || exit 1
. tests/steps

# a clone with a demo behind it, as "bootstrap demo" leaves it, without building again
here=$PWD clone=$tmp/clone
mkdir "$clone"
ln -s "$here/scripts" "$clone/scripts"
small="--preset check --size 32 --base 4 --batch 4 --epochs 1"
demo() {
    # shellcheck disable=SC2086  # words
    (cd "$clone" && "$PROGRAM" scripts/brain_unet.lua $small --patients 12 --steps 1)
}
demo > "$tmp/demo.log" 2>&1 || ! grep -q "built without DCMTK" "$tmp/demo.log" ||
    skip "DICOM cannot be written in this build"
step "the demo's made-up patients" demo

# commands are the indented lines that begin with one of these words; presets shrink, and
# what section 1 does (build, install, PATH) is tests/chroot's and tests/install.sh's
sed -n 's/^    \(\(mkdir\|cp\|mv\|cd\|wait\|nohup\|segengine\) .*\|wait\)$/\1/p' docs/tutorial.md |
    sed "s/--preset [a-z]*/$small/; s/--epochs 1 --overfit 8 --epochs 5/--overfit 8 --epochs 1/" \
        > "$tmp/commands"
step "the commands are found" test "$(grep -c . "$tmp/commands")" -ge 18
mkdir "$tmp/bin" "$tmp/home"
ln -s "$PROGRAM" "$tmp/bin/segengine"

# what section 10 writes into the recipe before the run with a seed, where it says
added=$(sed -n '/^## 10/,$s/^    \([a-z]* = {.*\)/\1/p' docs/tutorial.md)
printf '/flip = { axis/a\\\n    %s\n' "$added" > "$tmp/edit"

# each behind a line that tells it, until one fails
{
    echo "export HOME='$tmp/home' PATH='$tmp/bin':\$PATH"
    echo "cd '$clone' || exit"
    while read -r line; do
        case $line in
        *"--seed 42"*) echo "sed -i -f '$tmp/edit' tumours.lua" ;;
        esac
        case $line in
        *"&") echo "$line" ;;
        *) echo "$line || { echo \"fails: \$0: $line\"; exit 1; }" ;;
        esac
    done < "$tmp/commands"
} > "$tmp/follow"
# 5 runs: two of section 6, two of 7, one of 10
all() { sh "$tmp/follow" > "$tmp/said"; }
step "all of them, in order" all

has() { [ -s "$tmp/home/tumours/$1" ]; }
step "a page of the data" has runs/tumours/doctor.html
step "a report of the run" has runs/tumours/001/report.html
step "what the night brought" has runs/tumours/004/summary.json
step "a result for each new patient" has results/PHANTOM_011.nii.gz
step "a SEG for each" has results/PHANTOM_012.dcm
step "a bundle" has tumours.bundle

# the line of section 10 is all that its runs have different, and it changes batches
differs() {
    grep -qx "recipe  the first  1 line differs" "$tmp/said" &&
        grep -qF "+     $added" "$tmp/said"
}
step "what differs in section 10" differs
changes() {
    for script in "$here/scripts/brain_unet.lua" tumours.lua; do
        # shellcheck disable=SC2086  # words
        (cd "$tmp/home/tumours" && "$PROGRAM" "$script" export --twin "$tmp/${script##*/}.twin" \
            --steps 3 --data scans $small) || return 1
    done
    ! cmp "$tmp/brain_unet.lua.twin/loss.csv" "$tmp/tumours.lua.twin/loss.csv"
}
step "the change of section 10" changes
finish
