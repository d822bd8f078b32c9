#!/bin/sh
# tutorial.sh -- follows docs/tutorial.md like a new user: runs its commands unchanged, in
# order, in one shell, after the README's demo. The copies of the recipes have smaller
# presets, so that it takes seconds; in a soak they are unchanged.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh

# a clone after "bootstrap demo", without building again; the data that the page names, 28
# synthetic patients of 96x96x20, keeps its size
clone=$tmp/clone
mkdir "$clone"
cp -r scripts "$clone/scripts"
[ -n "${SEG_SOAK:-}" ] || sed -i \
    -e 's/demo = { size = 96, base = 16, epochs = 20, t_max = 20,/demo = { size = 96, base = 4, epochs = 1, t_max = 1,/' \
    -e 's/quick = { size = 128, epochs = 25, t_max = 25 }/quick = { size = 32, base = 4, epochs = 1, t_max = 1 }/' \
    "$clone/scripts/brain_unet.lua"
demo() { (cd "$clone" && "$PROGRAM" scripts/brain_unet.lua --preset demo); }
demo > "$tmp/demo.log" 2>&1
smaller() { ! cmp -s scripts/brain_unet.lua "$clone/scripts/brain_unet.lua"; }
[ -n "${SEG_SOAK:-}" ] || step "the presets are smaller" smaller
step "the demo" grep -q "^done: runs/brain_unet/001" "$tmp/demo.log"
# make demo runs the README's command
same_demo() { make -n NVCC= demo PROGRAM=x | grep -qF "scripts/brain_unet.lua --preset demo"; }
step "which make demo runs" same_demo

# commands are the indented lines that begin with one of these words; tests/chroot and
# tests/shell/install.sh test section 1 (build, install, PATH)
sed -n 's/^    \(\(mkdir\|cp\|mv\|cd\|wait\|nohup\|segengine\) .*\|wait\)$/\1/p' \
    docs/tutorial.md > "$tmp/commands"
step "the commands are found" test "$(grep -c . "$tmp/commands")" -ge 18
mkdir "$tmp/bin" "$tmp/home"
ln -s "$PROGRAM" "$tmp/bin/segengine"

# the line that section 10 adds to the recipe before the run with a seed, at the place
# that the page names
added=$(sed -n '/^## 10/,$s/^    \([a-z]* = {.*\)/\1/p' docs/tutorial.md)
printf '/flip = { axis/a\\\n    %s\n' "$added" > "$tmp/edit"

# each after a line that prints it, until one fails
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
all() { sh "$tmp/follow" > "$tmp/said" 2> "$tmp/errors" || { tail -n 5 "$tmp/errors"; false; }; }
step "all of them, in order" all
calm() { ! grep -i "warning" "$tmp/errors"; }
step "none of them warns" calm

has() { [ -s "$tmp/home/tumours/$1" ]; }
step "a page of the data" has runs/tumours/doctor.html
step "a report of the run" has runs/tumours/001/report.html
step "what the night brought" has runs/tumours/004/summary.json
step "a result for each new patient" has results/PHANTOM_011.nii.gz
step "a SEG for each" has results/PHANTOM_012.dcm
step "a bundle" has tumours.bundle
split() { grep -qF "train: 18 cases of 18 patients" "$tmp/errors"; }
step "the page's numbers of patients" split

# the line of section 10 is the only difference of its runs, and it changes batches
differs() {
    grep -qx "recipe  the first  1 line differs" "$tmp/said" &&
        grep -qF "+     $added" "$tmp/said"
}
step "what differs in section 10" differs
changes() {
    for script in "$clone/scripts/brain_unet.lua" tumours.lua; do
        (cd "$tmp/home/tumours" && "$PROGRAM" "$script" export --reference "$tmp/${script##*/}.steps" \
            --steps 3 --data scans --preset quick) || return 1
    done
    ! cmp "$tmp/brain_unet.lua.steps/loss.csv" "$tmp/tumours.lua.steps/loss.csv"
}
step "the change of section 10" changes
finish
