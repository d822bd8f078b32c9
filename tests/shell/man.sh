#!/bin/sh
# man.sh -- the manual page agrees with the program's help.
#
# Both have the same options and commands, no more and no less; and a formatter, if one is
# installed, finds no errors in the page.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh
page=lua/segengine.1

"$PROGRAM" --help > "$tmp/help" 2> /dev/null
grep -oE '^  --[a-z_]+' "$tmp/help" | tr -d ' ' | sort -u > "$tmp/help.options"
sed -n 's/^\.It Fl -\([a-z_]*\).*/--\1/p' $page | sort -u > "$tmp/page.options"
step "the help has options" test -s "$tmp/help.options"
step "options" diff "$tmp/help.options" "$tmp/page.options"

# "  train   text" below the first line of usage; "segengine doctor   text"
sed -n 's/^  \([a-z_]\{1,\}\)  .*/\1/p; s/^segengine \([a-z]\{1,\}\)  *.*/\1/p' \
    "$tmp/help" | sort -u > "$tmp/help.commands"
sed -n 's/^\.It Cm \([a-z_]*\).*/\1/p' $page | sort -u > "$tmp/page.commands"
step "the help has commands" test -s "$tmp/help.commands"
step "commands" diff "$tmp/help.commands" "$tmp/page.commands"

# lists that the program makes from its tables, which the page has written out
words() { # OPTION: "a, b or c" in its line of the help
    sed -n "/^  --$1 /p" "$tmp/help" | grep -oE '[a-z0-9]+(, [a-z0-9]+)* or [a-z0-9]+'
}
step "GPUs" grep -qF "on that GPU ($(words gpu))," $page
step "precisions" grep -qF "($(words precision);" $page

if command -v mandoc > /dev/null; then
    step "form" mandoc -T lint -W warning $page
elif command -v groff > /dev/null; then
    groff -mdoc -Tascii -ww $page > /dev/null 2> "$tmp/said"
    step "form" test ! -s "$tmp/said"
fi
finish
