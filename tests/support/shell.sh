# shellcheck shell=sh
# shell.sh -- functions of the tests in shell. A test starts with
#
#     cd "$(dirname "$0")/../.." || exit 1
#     . tests/support/shell.sh
#
# and gets BUILD, PROGRAM and MAKE, a scratch folder $tmp that is removed at
# the end, and these functions. Each step is one counted check.
set -u
BUILD=${BUILD:-build} PROGRAM=${PROGRAM:-$PWD/segengine} MAKE=${MAKE:-make}
passed=0 failed=0 skipped=0
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# step NAME COMMAND ...: the command must succeed; its output is shown if it fails
step() {
    what=$1
    shift
    if "$@" > "$tmp/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "  $0: $what: failed, and said:"
        tail -n 20 "$tmp/log"
    fi
}

# awaits FILE PATTERN: waits until the file has such a line, a minute at most, as the
# machine may be busy
awaits() {
    tries=0
    until grep -q "$2" "$1"; do
        sleep 0.5
        tries=$((tries + 1))
        [ "$tries" -lt 120 ] || return 1
    done
}

# finish: prints the closing line; its status is 0 when nothing failed
finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
}

# skip REASON: ends the test; the checks so far count
skip() {
    echo "skipped $0: $1"
    skipped=$((skipped + 1))
    finish
}
