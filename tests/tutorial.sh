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

# each behind a line that tells it, until one fails
{
    echo "export HOME='$tmp/home' PATH='$tmp/bin':\$PATH"
    echo "cd '$clone' || exit"
    while read -r line; do
        case $line in
        *"&") echo "$line" ;;
        *) echo "$line || { echo \"fails: \$0: $line\"; exit 1; }" ;;
        esac
    done < "$tmp/commands"
} > "$tmp/follow"
step "all of them, in order" sh "$tmp/follow"

has() { [ -s "$tmp/home/tumours/$1" ]; }
step "a page of the data" has runs/tumours/doctor.html
step "a report of the run" has runs/tumours/001/report.html
step "what the night brought" has runs/tumours/004/summary.json
step "a result for each new patient" has results/PHANTOM_011.nii.gz
step "a SEG for each" has results/PHANTOM_012.dcm
step "a bundle" has tumours.bundle

# the line that section 10 adds fits where it says
affine=$(sed -n 's/^    \(affine = .*\)/\1/p' docs/tutorial.md)
changed() {
    cd "$tmp/home/tumours" || return 1
    awk -v more="    $affine" '{ print } /flip = \{ axis = "w"/ { print more }' tumours.lua \
        > changed.lua || return 1
    grep -q "affine" changed.lua || return 1
    # shellcheck disable=SC2086  # words
    "$PROGRAM" changed.lua --data scans $small --steps 1
}
step "the change of section 10" changed
finish
