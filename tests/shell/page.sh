#!/bin/sh
# page.sh -- the pages of runs in a browser: no errors on its console, and the right
# colours in light and dark mode.
#
# Chromium runs headless. A page with a known fault shows that its errors are noticed.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh
browser=$(command -v chromium || command -v chromium-browser) ||
    skip "chromium is not installed (sh vendor/fetch ci)"

# shot PAGE PICTURE SCHEME (0: dark, 1: light): console messages go to $tmp/said
shot() {
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu \
        --disable-dev-shm-usage --hide-scrollbars --user-data-dir="$tmp/profile" \
        --window-size=1000,800 --blink-settings=preferredColorScheme="$3" \
        --enable-logging=stderr --screenshot="$2" "file://$1" 2> "$tmp/all" ||
        return 1
    grep -i 'CONSOLE' "$tmp/all" > "$tmp/said"
    test -s "$2"
}
quiet() {
    shot "$@" || return 1
    cat "$tmp/said"
    ! [ -s "$tmp/said" ]
}
complains() {
    shot "$@"
    test -s "$tmp/said"
}
differ() {
    ! cmp -s "$1" "$2"
}
echo '<!DOCTYPE html><script>console.error("seen")</script>' > "$tmp/fault.html"
step "a fault is seen" complains "$tmp/fault.html" "$tmp/fault.png" 1

step "a run" "$PROGRAM" scripts/brain_unet.lua --preset check --epochs 2 \
    --phantom "$tmp/phantom" --out "$tmp/runs"
report=$tmp/runs/brain_unet/001/report.html
step "report by day" quiet "$report" "$tmp/day.png" 1
step "report by night" quiet "$report" "$tmp/night.png" 0
step "which differ" differ "$tmp/day.png" "$tmp/night.png"

step "two seeds" "$PROGRAM" scripts/brain_unet.lua repeat --seeds 2 \
    --preset check --epochs 2 --phantom "$tmp/phantom" --out "$tmp/seeds"
series=$tmp/seeds/brain_unet/001/series.html
step "several runs by day" quiet "$series" "$tmp/day2.png" 1
step "several runs by night" quiet "$series" "$tmp/night2.png" 0
step "which differ, too" differ "$tmp/day2.png" "$tmp/night2.png"
finish
