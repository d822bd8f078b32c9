#!/bin/sh
# defects.sh -- checks the list of defects against sources and tests.
#
# tests/shell/defects.csv has a row for each kind of bad input with an error of its own:
# format, row, kind (E error, W warning, C converted), text, test. The longest piece of
# the text between {} must be in a string of the sources. The test is a TEST of a C file
# or a file, and must contain part of the text, as a test that only expects a failure
# cannot distinguish two rows. A C row without a text is an irregularity that is read
# without a message. The rows of a format count from 1; the list below has their number.
#
#     tests/shell/defects.sh [LIST.csv]
cd "$(dirname "$0")/../.." || exit 1
list=${1:-tests/shell/defects.csv}

wanted='dicom 72
nifti 28
npy 18
png 14
jpeg 14
csv 16
mat 16
checkpoint 36'

# strings FILE ...: "FILE TAB string" for each string of C or Lua; adjacent strings are
# joined, escapes decoded, %% is %
strings() {
    awk '
    function flush() {
        gsub(/%%/, "%", text)
        if (text != "") print file "\t" text
        text = ""
        file = FILENAME
    }
    FNR == 1 { flush() }
    {
        line = $0
        sub(/^[ \t]+/, "", line)
        open = 0
        while (line != "") {
            c = substr(line, 1, 1)
            if (open && c == "\\") {
                text = text substr(line, 2, 1)
                line = substr(line, 3)
                continue
            }
            # a character literal that looks like the end of a string
            if (!open && substr(line, 1, 3) == "\047\"\047") {
                line = substr(line, 4)
                continue
            }
            if (c == "\"") open = !open
            else if (open) text = text c
            # any character but space ends a string, except those that paste macros
            else if (c !~ /[ \t]/) flush()
            line = substr(line, 2)
        }
    }
    END { flush() }' "$@"
}

# the rows with TAB between fields, and a blank for TAB inside a field
rows() {
    awk '
    NR == 1 { next }
    {
        out = ""
        rest = $0 ","
        while (rest != "") {
            if (substr(rest, 1, 1) == "\"") {
                field = ""
                rest = substr(rest, 2)
                # two quotes are one character, one quote is the end
                while ((i = index(rest, "\"")) &&
                    substr(rest, i + 1, 1) == "\"") {
                    field = field substr(rest, 1, i)
                    rest = substr(rest, i + 2)
                }
                field = field substr(rest, 1, i - 1)
                rest = substr(rest, i + 2)
            } else {
                i = index(rest, ",")
                field = substr(rest, 1, i - 1)
                rest = substr(rest, i + 1)
            }
            gsub(/\t/, " ", field)
            out = out (out == "" ? "" : "\t") field
        }
        print out
    }' "$list"
}

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
# shellcheck disable=SC2046  # one argument a file
strings $(find data engine lua -name '*.c' -o -name '*.cc' -o -name '*.lua') > "$tmp/strings"
# shellcheck disable=SC2046
strings $(find tests -name '*.c' -o -name '*.lua') > "$tmp/said"
find tests \( -name '*.sh' -o -name '*.py' \) -exec awk '{ print FILENAME "\t" $0 }' {} + >> "$tmp/said"
grep -ro --include='*.c' '^TEST([a-z0-9_]*' tests | sed 's/:TEST(/ /' > "$tmp/tests"
find tests -type f -name '*.*' | sed 's/.*/& &/' >> "$tmp/tests"
rows > "$tmp/rows"

printf '%s\n' "$wanted" | awk -F '\t' -v dir="$tmp" -v list="$list" '
function bad(why) {
    printf "  row %d of %s (%s %s): %s\n", line, list, $1, $2, why
    wrong = 1
}
# splits a text into piece[], its parts between numbers and names; returns the longest
function split_text(text,    i, best) {
    gsub(/; fix: /, "{}", text)
    pieces = split(text, piece, /[{][}]/)
    best = ""
    for (i = 1; i <= pieces; i++)
        if (length(piece[i]) > length(best)) best = piece[i]
    return best
}
function in_sources(what,    i) {
    for (i = 1; i <= strings; i++) if (index(string[i], what)) return 1
    return 0
}
# twelve consecutive letters of some piece are in the file of the test
function in_test(path,    i, k) {
    for (i = 1; i <= pieces; i++) {
        if (length(piece[i]) < 4) continue
        for (k = 1; k == 1 || k <= length(piece[i]) - 11; k++)
            if (index(said[path], substr(piece[i], k, 12))) return 1
    }
    return 0
}
BEGIN {
    while ((getline x < (dir "/strings")) > 0)
        string[++strings] = substr(x, index(x, "\t") + 1)
    while ((getline x < (dir "/said")) > 0) {
        i = index(x, "\t")
        said[substr(x, 1, i - 1)] = said[substr(x, 1, i - 1)] substr(x, i)
    }
    while ((getline x < (dir "/tests")) > 0) {
        i = index(x, " ")
        home[substr(x, i + 1)] = substr(x, 1, i - 1)
    }
    line = 1
    while ((getline < (dir "/rows")) > 0) {
        line++
        wrong = 0
        if (NF != 5) bad(NF " fields, need 5")
        if ($3 !~ /^[EWC]$/) bad("kind " $3 ", need E, W or C")
        if (seen[$1, $2]++) bad("for the second time")
        if ($2 !~ /^[1-9][0-9]*$/) bad("number " $2)
        if ($2 + 0 > last[$1]) last[$1] = $2 + 0
        count[$1]++
        long = split_text($4)
        if ($4 == "" && $3 != "C") bad("no text")
        if ($4 != "" && !in_sources(long))
            bad("no string of the sources has \"" long "\"")
        if (!($5 in home)) bad("no test " $5)
        else if ($4 != "" && !in_test(home[$5]))
            bad(home[$5] " says nothing of it")
        if (wrong) failed++
        else passed++
    }
    for (f in count) if (count[f] != last[f]) {
        printf "  %s: %d rows, the last is %d\n", f, count[f], last[f]
        failed++
    }
}
{
    split($0, want, " ")
    if (count[want[1]] >= want[2]) passed++
    else {
        printf "skipped %s: %d of %d rows\n", want[1], count[want[1]], want[2]
        skipped++
    }
}
END {
    printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    exit failed > 0 || passed == 0
}'
