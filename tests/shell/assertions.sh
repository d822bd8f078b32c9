#!/bin/sh
# assertions.sh -- no test of version 0.1 is lost: each test of assertions.csv still
# exists under its name, or assertions_gone.csv has the reason.
#
# Files have moved since, so tests are compared by name and language. tests/assertions
# makes the lists, in which a name ends at its first comma.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh
then=tests/fixtures/0.1/assertions.csv gone=tests/fixtures/0.1/assertions_gone.csv

# names: "LANGUAGE NAME" of each line of a list
names() {
    sed -n 's/^[^,"]*\.\([a-z]*\),"\(.*\)",[0-9]*$/\1 \2/p' | sed 's/^c[cu] /c /' |
        LC_ALL=C sort -u
}
without_language() { sed 's/^[a-z]* //' | LC_ALL=C sort -u; }
empty() { cat "$1" && [ ! -s "$1" ]; }

names < $then > "$tmp/then"
find tests \( -name '*.c' -o -name '*.cu' -o -name '*.lua' -o -name '*.sh' \) \
    -exec tests/assertions {} + | names > "$tmp/today"
sed -n '2,$s/^"\([^"]*\)","\(deleted\|renamed\): [^"]*"$/\1/p' $gone | LC_ALL=C sort > "$tmp/gone"
step "the list of 0.1 has tests" [ "$(wc -l < "$tmp/then")" -gt 2000 ]
step "the list of today has tests" [ "$(wc -l < "$tmp/today")" -gt 2000 ]
step "the gone tests have a head" [ "$(head -n 1 $gone)" = test,reason ]
step "the gone tests have a reason, each once" \
    [ "$(sort -u "$tmp/gone" | wc -l)" -eq $(($(wc -l < $gone) - 1)) ]

# lost PRESENT GONE: the tests of 0.1 that are in neither list
lost() { LC_ALL=C comm -23 "$tmp/then" "$1" | without_language | LC_ALL=C comm -23 - "$2"; }
lost "$tmp/today" "$tmp/gone" > "$tmp/lost"
step "no test is lost" empty "$tmp/lost"
without_language < "$tmp/today" | LC_ALL=C comm -12 - "$tmp/gone" > "$tmp/alive"
step "no gone test is there" empty "$tmp/alive"
without_language < "$tmp/then" | LC_ALL=C comm -13 - "$tmp/gone" > "$tmp/never"
step "each gone test was one of 0.1" empty "$tmp/never"

# the reason of a renamed test contains its new name
sed -n 's/^"[^"]*","renamed: \([^"]*\)"$/\1/p' $gone | LC_ALL=C sort -u > "$tmp/renamed"
without_language < "$tmp/today" | LC_ALL=C comm -13 - "$tmp/renamed" > "$tmp/nowhere"
step "each renamed test has its new name" empty "$tmp/nowhere"

# the check finds a lost test
sed '/^c loss_golden$/d' "$tmp/today" > "$tmp/less"
step "a lost test is named" [ "$(lost "$tmp/less" "$tmp/gone")" = loss_golden ]
step "so is a gone one without its line" \
    [ "$(lost "$tmp/today" /dev/null | wc -l)" -eq "$(wc -l < "$tmp/gone")" ]
finish
