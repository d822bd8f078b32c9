#!/bin/sh
# mutants.sh -- each mistake of mutants.txt, planted in a copy of the kernels,
# must make a test fail.
#
# A mutant is compiled plain and linked with the objects of $BUILD/emu/plain;
# the tests that its line names must fail, stop or hang.
#
#     tests/cuda/mutants.sh BUILD/emu [EVERY | PART_OF_A_LINE | texts]
#
# EVERY is a number: 6 takes each sixth line. `texts` only plants each mutant: a
# change of the kernels may have removed its text.
emu=$1 only=${2:-} every=1 does=killed
case $only in
[1-9] | [1-9][0-9]) every=$only only= ;;
texts) does=planted only= ;;
esac
case $emu in /*) ;; *) emu=$PWD/$emu ;; esac
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh
CXX=${CXX:-g++}

# a file of the kernels, or a header that they share with the host
where() { find cuda engine -name "$1"; }

# plant NAME N OLD NEW: the N-th OLD of NAME becomes NEW, below $tmp
plant() {
    OLD=$3 NEW=$4 awk -v n="$2" '
        BEGIN { old = ENVIRON["OLD"] }
        {
            at = 1
            while (!done && (i = index(substr($0, at), old))) {
                at += i - 1
                if (--n == 0) {
                    $0 = substr($0, 1, at - 1) ENVIRON["NEW"] \
                        substr($0, at + length(old))
                    done = 1
                }
                at += length(old)
            }
            print
        }
        END { exit !done }' "$(where "$1")" > "$tmp/$(where "$1")"
}

# planted FILE COMPILED TESTS OLD NEW N
planted() {
    mkdir -p "$tmp/$(dirname "$(where "$1")")"
    plant "$1" "$6" "$4" "$5" || { echo "no such text in $1" && return 1; }
}

# killed: as planted; status 1 when no test failed, 2 when no test ran
most=300
killed() {
    rm -rf "$tmp/cuda" "$tmp/engine"
    cp -r cuda engine "$tmp"
    planted "$@" || return 2
    inputs=" $(cat "$emu/plain/run.inputs") "
    for f in $2; do
        f=$(where "$f") o=${f#cuda/} o=${o%.cu}.o
        mkdir -p "$tmp/$(dirname "$o")"
        # a mutant that does not compile or link proves nothing
        $CXX -std=c++17 -ffp-contract=off -O1 -w -I"$tmp" -I. -Itests/cuda/emulator \
            -x c++ -c -o "$tmp/$o" "$tmp/$f" || return 2
        inputs=$(echo "$inputs" | sed "s|[^ ]*/plain/$o|$tmp/$o|")
    done
    # shellcheck disable=SC2086  # words
    $CXX -pthread -rdynamic -o "$tmp/run" $inputs || return 2
    # both orders of threads, because a mistake may fail in one only; the time
    # limit is several times the longest row's tests on a busy machine
    for order in g h; do
        # shellcheck disable=SC2086  # words
        SEG_TEST_DEVICE=cuda SEG_TEST_FIRST=1 EMU_GUARD=0 EMU_ORDER=$order \
            TMPDIR=$tmp timeout "$most" "$tmp/run" $3 || return 0
    done
    return 1
}

line_number=0
while IFS= read -r line; do
    case $line in '' | '#'*) continue ;; esac
    case $line in *"$only"*) ;; *) continue ;; esac
    line_number=$((line_number + 1))
    [ $((line_number % every)) -ne 0 ] || echo "$line"
done < tests/cuda/mutants.txt > "$tmp/list"

# without a mutant none of the tests in the list fails
alive() {
    most=3600
    killed "$@"
    ended=$?
    most=300
    [ "$ended" -eq 1 ]
}
[ $does = planted ] ||
    step "the kernels as they are" alive col_reduce.cuh "norm.cu dispatch.cu" \
        "$(cut -d '|' -f 2 "$tmp/list" | tr -s ' ' '\n' | sort -u | tr '\n' ' ')" \
        "TILE_UNITS = 128" "TILE_UNITS = 128" 1

run=0
while IFS= read -r line; do
    run=$((run + 1)) n=1
    head=${line%%|*} rest=${line#*|}
    tests=${rest%%|*} edit=${rest#*| }
    file=$(echo "${head%%>*}" | tr -d ' ') compiled=${head#*>}
    case $head in *'>'*) ;; *) compiled=$file ;; esac
    case $edit in *' @'[0-9]) n=${edit##* @} edit=${edit% @?} ;; esac
    step "$line" $does "$file" "$compiled" "$tests" \
        "${edit%% ==> *}" "${edit##* ==> }" "$n"
done < "$tmp/list"
[ -n "$only" ] || step "the list was read" [ $((run * every)) -ge 100 ]
finish
