#!/bin/sh
# compared.sh -- how many files were equal to what a reader of others makes of
# them, or ours in its eyes. Tests say so with test_compared(); here the lines
# are added up: of the C tests that tests/all has just run, or else of a run of
# the files that compare. Too few are a failure, unless a tool that compares is
# not installed.
#
#     BUILD=build tests/shell/compared.sh
cd "$(dirname "$0")/../.." || exit 1
WANTED=600

log=${LOGS:-}/C_tests
if [ ! -s "$log" ]; then
    log=$(mktemp) || exit 1
    trap 'rm -f "$log"' EXIT
    # shellcheck disable=SC2046  # split on purpose: names of files
    "${BUILD:-build}/tests/run" $(grep -rl --include='*.c' '^ *test_compared(' tests/data) > "$log"
fi
awk -v wanted=$WANTED '
/^ *compared [0-9]+ files: / {
    files += $2
    rows++
    $1 = $1
    print "  " $0
}
/^skipped .* is not installed / { absent = absent "; " $0 }
END {
    printf "  %d files in all, wanted %d\n", files, wanted
    ok = files >= wanted
    skip = !ok && absent != ""
    if (skip) print "skipped: only " files " of " wanted absent
    printf "%d passed, %d failed, %d skipped\n", ok, !ok && !skip, skip
    exit !ok && !skip
}' "$log"
