#!/bin/sh
# embed.sh FILE.lua ... -- prints the C table of embedded Lua sources that
# lua/bind/embed.h declares, one row a file, the name without folder and ending.
set -eu

cat <<'END'
/* Made by lua/embed.sh; edit the .lua files instead. */
#include "lua/bind/embed.h"
#include <stddef.h>

END
rows=
for file; do
    name=$(basename "$file" .lua)
    echo "static const char text_${name}[] = {"
    # every byte as a signed number, and a zero that closes the text
    od -An -v -t d1 "$file" | sed 's/  *\(-*[0-9][0-9]*\)/\1,/g'
    echo '0};'
    rows="$rows    {\"$name\", text_$name, sizeof text_$name - 1},
"
done
printf 'const struct EmbeddedLua embedded_lua[] = {\n%s' "$rows"
echo '    {NULL, NULL, 0},'
echo '};'
