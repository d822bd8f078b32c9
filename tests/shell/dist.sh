#!/bin/sh
# dist.sh -- `make dist` makes a tar that runs on an empty machine.
#
# The empty machine is a folder with nothing but the C library and the unpacked tar: no
# shell, no other library, no /usr/share. The folder is the root of the program, which has
# no network.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh
[ -z "${SAN:-}" ] || skip "a build with sanitizers is not for other machines"
[ ! -d vendor/prefix ] || skip "the packages are only unpacked (no root)"
# a new user namespace without root
alone="unshare -n"
$alone true 2> /dev/null || alone="unshare -rn"
$alone true 2> /dev/null || skip "no right to make a name space"

step "make dist" "$MAKE" --no-print-directory BUILD="$BUILD" dist
[ "$failed" -eq 0 ] || finish
tar=$(ls "$BUILD"/dist/*.tar.gz)
root=$tmp/root
mkdir -p "$root/tmp" "$root/lib64"
step unpack tar -C "$root" --strip-components=1 -xzf "$tar"
step checksums sh -c "cd '$root' && sha256sum --quiet -c SHA256SUMS"

# the C library of this machine, at the paths that are built into programs
loader=$(ldd "$BUILD/dist/segengine" | awk '/ld-linux/ { print $1 }')
clib=$(ldd "$BUILD/dist/segengine" | awk '$1 == "libc.so.6" { print $3 }')
mkdir -p "$root/$(dirname "$loader")" "$root/$(dirname "$clib")"
cp -L "$loader" "$root/$loader"
for name in libc.so.6 libm.so.6 libdl.so.2 librt.so.1 libpthread.so.0; do
    cp -L "$(dirname "$clib")/$name" "$root/$(dirname "$clib")/"
done

inside() { $alone env -i PATH="$PATH" chroot "$root" /segengine "$@"; }
step version inside --version
step plan inside scripts/brain_unet.lua plan
# a whole small run: writes and reads DICOM, so DCMTK finds its dictionary
step train inside scripts/brain_unet.lua train --preset check --out /tmp/runs
finish
