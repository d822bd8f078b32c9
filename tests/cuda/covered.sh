#!/bin/sh
# covered.sh -- every kernel, every instance of a template, has run.
#
#     tests/cuda/covered.sh RUN REACHED
#
# RUN is $BUILD/emu/{plain,checked}/run, REACHED the list of the kernels that
# its tests have run, written by kernels.sh into the same folder.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh
run=$1 reached=$2

command -v nm > /dev/null || skip "there is no nm"
[ -s "$reached" ] || skip "the kernels' tests have not run"
# offset and name of each kernel in the program, without lambdas inside kernels and
# without the parts that gcc moves away because it expects them to run rarely
nm -C "$run" | grep -v '{lambda\|\[clone ' |
    sed -nE 's/^0*([0-9a-f]+) [tTwW] (.*_kernel(<.*>)?\(.*)/\1 \2/p' |
    sort > "$tmp/all"
sort -u "$reached" > "$tmp/reached"
join -v 1 "$tmp/all" "$tmp/reached" > "$tmp/missing"
found() { [ "$(wc -l < "$tmp/all")" -ge 100 ]; }
all() {
    cat "$tmp/missing"
    [ ! -s "$tmp/missing" ]
}
step "kernels were found in $run" found
step "all of them have run" all
# self-test: a kernel that is not listed is found
unseen() { sed 1d "$tmp/all" | join -v 1 "$tmp/all" - | grep -q .; }
step "a kernel that has not run is seen" unseen
finish
