#!/bin/sh
# install.sh -- `make install`: the installed files, the exported symbols, and a program
# compiled against the installed copy as C and as C++.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh
[ -z "${SAN:-}" ] || skip "a build with sanitizers is not installed"

at=$tmp/opt # prefix, below DESTDIR as a packager would have it
lib=$at/lib
step "make install" "$MAKE" --no-print-directory BUILD="$BUILD" install \
    DESTDIR="$tmp" prefix=/opt
for file in bin/segengine include/segengine.h lib/libsegengine.a \
    lib/libsegengine.so lib/libsegengine.so.0 lib/pkgconfig/segengine.pc \
    share/segengine/scripts/brain_unet.lua \
    share/segengine/scripts/examples/volumes.lua; do
    step "$file" test -s "$at/$file"
done
step "installed program" "$at/bin/segengine" --version

# Both libraries export the functions of the header and no others.
grep '^SEG_API' "$at/include/segengine.h" | grep -o '\bseg_[a-z_0-9]*(' |
    tr -d '(' | sort -u > "$tmp/declared"
nm -D --defined-only "$lib/libsegengine.so" | awk '{ print $NF }' |
    sort -u > "$tmp/shared"
nm -g --defined-only "$lib/libsegengine.a" | awk 'NF == 3 { print $3 }' |
    sort -u > "$tmp/static"
step "something is declared" test -s "$tmp/declared"
step "names in libsegengine.so" diff "$tmp/declared" "$tmp/shared"
step "names in libsegengine.a" diff "$tmp/declared" "$tmp/static"

# Compile flags come from the pkg-config file, which is read here without the tool: that
# would not add DESTDIR to the paths.
pc() {
    sed -n "s|^$1: *||p" "$lib/pkgconfig/segengine.pc" |
        sed "s|\${includedir}|$at/include|; s|\${libdir}|$lib|"
}
own=vendor/prefix/usr/lib/$(gcc -print-multiarch) # empty unless unpacked
# shellcheck disable=SC2046  # flags are words
{
    step "compile as C, shared" gcc -std=c11 -Wall -Wextra -Wpedantic -Werror \
        $(pc Cflags) tests/engine/api/embed.c -o "$tmp/c" $(pc Libs) -Wl,-rpath,"$lib" \
        -Wl,-rpath-link,"$own"
    step "compile as C++, static" g++ -x c++ -std=c++11 -Wall -Wextra -Werror \
        $(pc Cflags) tests/engine/api/embed.c -x none -o "$tmp/cxx" \
        "$lib/libsegengine.a" $(pc Libs.private) \
        -L"$own" -Wl,-rpath-link,"$own" -Wl,-rpath,"$PWD/$own"
}

# The weights file of a training run, opened and run from C and from C++.
step train "$PROGRAM" scripts/brain_unet.lua train --preset check \
    --out "$tmp/runs" --quiet
weights=$(find "$tmp/runs" -name checkpoint_last.safetensors | head -n 1)
# and a bundle that predicts from file to file, as the program does
step bundle "$PROGRAM" scripts/brain_unet.lua export --weights "$weights" \
    --bundle "$tmp/bundle.safetensors"
image=$(find "$tmp/runs" -type d -name FLAIR | sort | head -n 1)
step predict "$PROGRAM" predict --bundle "$tmp/bundle.safetensors" \
    --in "$image" --out "$tmp/predicted"
same() {
    "$tmp/$1" "$weights" "$tmp/bundle.safetensors" "$image" "$tmp/$1.nii.gz" &&
        cmp "$tmp"/predicted/*.nii.gz "$tmp/$1.nii.gz"
}
step "embed, C" same c
step "embed, C++" same cxx

# Starting takes less than 20 ms: the minimum of many starts, as the machine may be busy.
fastest() {
    best=1000000000
    for _ in $(seq 100); do
        [ "$best" -ge 20000000 ] || break
        began=$(date +%s%N)
        "$PROGRAM" --version > /dev/null
        took=$(($(date +%s%N) - began))
        [ "$took" -ge "$best" ] || best=$took
    done
    echo "best of a hundred starts: $best ns"
    [ "$best" -lt 20000000 ]
}
step "start-up time" fastest

# A private prefix: make install prints the needed settings, and they suffice.
own_prefix() {
    "$MAKE" --no-print-directory BUILD="$BUILD" install \
        prefix="$tmp/own" > "$tmp/said" 2>&1 || return 1
    grep -q "export PKG_CONFIG_PATH=$tmp/own/lib/pkgconfig" "$tmp/said" &&
        grep -q "Wl,-rpath,$tmp/own/lib" "$tmp/said" || return 1
    rm -rf "$tmp/own"
}
step "a private prefix" own_prefix

step "make uninstall" "$MAKE" --no-print-directory BUILD="$BUILD" uninstall \
    DESTDIR="$tmp" prefix=/opt
left=$(find "$at" ! -type d)
step "nothing is left${left:+: $left}" test -z "$left"
finish
