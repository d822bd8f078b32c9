#!/bin/sh
# checkers.sh -- the checkers are checked: each planted fault must be found.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh

# planted FILE LINE: tests/layers must reject a tree in which FILE has LINE
planted() {
    tree=$tmp/tree
    rm -rf "$tree"
    for header in engine/base/err engine/graph/tensor engine/graph/graph \
        engine/backend/backend engine/plan/plan data/volume data/format/npy \
        data/preprocess/pipeline lua/bind/bind; do
        mkdir -p "$tree/${header%/*}"
        touch "$tree/$header.h"
    done
    mkdir -p "$tree/${1%/*}"
    tests/layers "$tree" > /dev/null || return 1 # clean without the fault
    echo "$2" >> "$tree/$1"
    ! tests/layers "$tree"
}
step "a folder may not look up" planted engine/base/err.h \
    '#include "engine/graph/tensor.h"'
step "kernels and the graph" planted cpu/conv/conv.c '#include "engine/graph/graph.h"'
step "kernels and the plan" planted cuda/conv/dispatch.cu '#include "engine/plan/plan.h"'
step "data and the device" planted data/loader/loader.c '#include "engine/plan/plan.h"'
step "data and kernels" planted data/loader/loader.c '#include "cpu/lib/thread_pool.h"'
step "formats and pipelines" planted data/format/npy.c \
    '#include "data/preprocess/pipeline.h"'
step "augmentation and preprocessing" planted data/augment/blur.c \
    '#include "data/preprocess/pipeline.h"'
step "Lua outside lua/" planted engine/graph/graph.h '#include <lua.h>'
step "Lua by its folder" planted data/steps/step.c '  #  include <lua5.4/lua.h>'
step "bindings from below" planted engine/plan/plan.h '#include "lua/bind/bind.h"'
step "DCMTK outside its file" planted data/format/nifti.c '#include <dcmtk/x.h>'
step "a folder without a row" planted engine/novel/novel.c 'int x;'
step "a header that is not there" planted cpu/conv/conv.c '#include "cpu/conv/none.h"'
step "a header without its folder" planted data/format/npy.c '#include "npy.h"'

# allowed FILE LINE: tests/layers must accept it
allowed() { ! planted "$1" "$2"; }
step "downward" allowed engine/plan/plan.h '#include "engine/graph/tensor.h"'
step "kernels and the backend" allowed cpu/cpu.c '#include "engine/backend/backend.h"'
step "formats and volumes" allowed data/format/npy.h '#include "data/volume.h"'
step "preprocessing and formats" allowed data/preprocess/pipeline.h \
    '#include "data/format/npy.h"'
step "bindings and all" allowed lua/bind/bind.h '#include "engine/plan/plan.h"'
step "Lua in lua/" allowed lua/bind/bind.h '#include <lua.h>'

# all BODY: runs tests/all with a shell script in place of the C tests
all() {
    mkdir -p "$tmp/fake/tests"
    printf '#!/bin/sh\n%s\n' "$1" > "$tmp/fake/tests/run"
    chmod +x "$tmp/fake/tests/run"
    BUILD=$tmp/fake ONLY="C tests" LIMIT=${2:-9} tests/all > "$tmp/out"
}
closes() { [ "$(tail -n 1 "$tmp/out")" = "$1" ]; }
counts() { grep -qE "^$1 +C tests " "$tmp/out"; }
fails() { ! all "$@"; }
step "all is well" all 'echo 3 passed, 0 failed, 1 skipped'
step "and adds up" closes '3 passed, 0 failed, 1 skipped'
step "and counts parts" counts 'ok +1 of 1'
step "a failure is one" fails 'echo 3 passed, 2 failed, 0 skipped; exit 1'
step "and adds up" closes '3 passed, 2 failed, 0 skipped'
step "a crash is a failure" fails 'echo 3 passed; kill -9 $$'
step "and counts as one" closes '0 passed, 1 failed, 0 skipped'
step "and as a part" counts 'FAILED +1 of 1'
step "a status is a failure" fails 'echo 3 passed, 0 failed, 0 skipped; exit 3'
step "and counts as one" closes '3 passed, 1 failed, 0 skipped'
step "a hang is a failure" fails 'sleep 60' 1
step "nothing at all is a failure" fails 'echo 0 passed, 0 failed, 0 skipped'
step "and counts as one" closes '0 passed, 1 failed, 0 skipped'
# compared LINE STATUS CLOSE: tests/shell/compared.sh on a log of C tests
compared() {
    mkdir -p "$tmp/logs"
    printf '%b\n' "$1" > "$tmp/logs/C_tests"
    LOGS=$tmp/logs sh tests/shell/compared.sh > "$tmp/out"
    [ $? -eq "$2" ] && closes "$3"
}
step "files compared" compared '  compared 400 files: a\n  compared 300 files: b' 0 \
    '1 passed, 0 failed, 0 skipped'
step "too few of them" compared '  compared 400 files: a' 1 \
    '0 passed, 1 failed, 0 skipped'
step "for want of a tool" compared \
    '  compared 9 files: a\nskipped x: python3-x is not installed (sh vendor/fetch ci)' 0 \
    '0 passed, 0 failed, 1 skipped'

# listed ROW: tests/shell/defects.sh must reject a list of defects with this row
listed() {
    cp tests/shell/defects.csv "$tmp/list.csv"
    echo "$1" >> "$tmp/list.csv"
    ! sh tests/shell/defects.sh "$tmp/list.csv"
}
unlisted() { ! listed "$1"; }
t=table_defects
step "a list of defects" unlisted "new,1,E,\"{} fields, the header has {}\",$t"
step "a text that is nowhere" listed "new,1,E,no source says this,$t"
step "a test that is not there" listed 'new,1,E,file is empty,no_such_test'
step "a test of something else" listed "new,1,C,MONOCHROME1 inverted,$t"
step "a kind that is none" listed "new,1,X,file is empty,$t"
step "an error without a text" listed "new,1,E,,$t"
step "a row that is missing" listed "new,2,E,file is empty,$t"
step "a row that comes twice" listed "csv,1,C,,$t"
step "a row that is cut" listed "new,1,E,file is empty"
finish
