#!/bin/sh
# compared.sh -- the number of files that another program reads with the same result, or
# that another program wrote and this one reads alike. Tests report it with
# test_compared(); the reports are added up here, from the C tests that tests/all has just
# run, or else from a run of the test files that compare. Too small a number is a failure,
# unless a tool for comparing is not installed.
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
