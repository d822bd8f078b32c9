#!/bin/sh
# embed.sh FILE.lua ... -- prints the C table of Lua sources that
# lua/bind/embed.h declares, one row a file: lua/train/fit.lua is seg.train.fit.
set -eu

cat <<'END'
/* Made by lua/embed.sh; edit the .lua files instead. */
#include "lua/bind/embed.h"
#include <stddef.h>

END
rows=
for file; do
    path=${file#lua/}
    name=$(echo "${path%.lua}" | tr / .) text=text_$(echo "${path%.lua}" | tr / _)
    echo "static const char ${text}[] = {"
    # every byte as a signed number, and a terminating zero
    od -An -v -t d1 "$file" | sed 's/  *\(-*[0-9][0-9]*\)/\1,/g'
    echo '0};'
    rows="$rows    {\"seg.$name\", \"$path\", $text, sizeof $text - 1},
"
done
printf 'const struct EmbeddedLua embedded_lua[] = {\n%s' "$rows"
echo '    {NULL, NULL, NULL, 0},'
echo '};'
