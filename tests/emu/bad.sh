#!/bin/sh
# bad.sh -- each build of the emulator must find the planted faults it can.
#
# The table says which of the builds (p plain, a asan, r race) must say what
# about case N of bad.cu, under which setting. In every build the same code
# without the fault must end with "right".
#
#     tests/emu/bad.sh [PLAIN ASAN RACE]    programs built from bad.cu; without
#                                           them, builds its own (g++)
here=$(cd "$(dirname "$0")" && pwd) || exit 1
plain=${1:-} asan=${2:-} race=${3:-}
for p in plain asan race; do # tests/support/shell.sh changes nothing of what was given
    eval "case \$$p in ''|/*) ;; *) $p=\$PWD/\$$p ;; esac"
done
cd "$here/../.." || exit 1
. tests/support/shell.sh

if [ -z "$race" ]; then
    CXX=${CXX:-g++}
    flags="-std=c++17 -g -Wno-unknown-pragmas -I. -Itests/emu"
    checks="-fsanitize=address,undefined -fno-sanitize-recover=undefined"
    checks="$checks -fno-sanitize=null,object-size" # as tests/emu/build.mk
    plain=$tmp/plain asan=$tmp/asan race=$tmp/race
    # shellcheck disable=SC2086  # flags are words
    {
        for f in tests/emu/*.cc; do
            $CXX $flags -O2 -c "$f" -o "$tmp/$(basename "$f" .cc).o" || exit 1
        done
        mv "$tmp/race.o" "$tmp/race.only"
        bad() { $CXX $flags "$@" -x c++ -c tests/emu/bad.cu -o "$tmp/bad.x"; }
        bad -O2 && $CXX "$tmp/bad.x" "$tmp"/*.o -o "$plain" || exit 1
        bad -O1 $checks && $CXX $checks "$tmp/bad.x" "$tmp"/*.o -o "$asan" ||
            exit 1
        bad -O1 -fsanitize=thread &&
            $CXX "$tmp/bad.x" "$tmp"/*.o "$tmp/race.only" -o "$race" || exit 1
    }
fi

# finds TEXT PROGRAM N [SETTING]: it must fail and say so
finds() {
    env ${4:+"$4"} timeout 60 "$2" "$3" > "$tmp/said" 2>&1
    status=$?
    head -n 8 "$tmp/said"
    [ "$status" -ne 0 ] && [ "$status" -lt 124 ] &&
        grep -Eq -e "$1" "$tmp/said"
}
# fits PROGRAM N: without the fault it must be right, and say nothing else
fits() {
    timeout 60 "$1" "$2" whole > "$tmp/said" 2>&1 || return 1
    cat "$tmp/said"
    [ "$(cat "$tmp/said")" = right ]
}

run=0
while IFS='|' read -r number builds setting text; do
    number=$(echo "$number" | tr -d ' ') setting=$(echo "$setting" | tr -d ' ')
    builds=$(echo "$builds" | tr -d ' ') text=${text# }
    case $number in '' | '#'*) continue ;; esac
    run=$((run + 1))
    for b in $(echo "$builds" | sed 's/./& /g'); do
        case $b in p) program=$plain ;; a) program=$asan ;; *) program=$race ;; esac
        step "case $number in build $b" finds "$text" "$program" "$number" \
            "$setting"
    done
done << 'END'
# case | builds | setting | what must be said
 1 | pa  |                   | wrong
 1 | r   |                   | k_no_barrier: reads uninitialised shared.*bad_warp.h:
 1 | r   | EMU_ORDER=d       | k_no_barrier: (race|reads uninit).*bad_warp.h:
 2 | pa  |                   | wrong
 2 | r   | EMU_ORDER=a       | k_refill: race in shared memory: writes what thread.*read
 2 | r   |                   | k_refill: race in shared memory
 3 | par |                   | wrong
 4 | pa  |                   | wrong
 4 | r   | EMU_ORDER=d       | k_no_syncwarp: (race|reads uninit)
 5 | r   |                   | k_shuffle_orders: race in shared memory: reads what
 6 | par |                   | k_divergent: divergent barrier.*bad_warp.h:[0-9]*.*bad_warp.h:
 7 | par |                   | k_after_exit: __syncthreads after a thread.*returned
 8 | par |                   | k_exit_late: thread .* returned, others wait
 9 | par |                   | k_not_in_mask: __shfl_sync: lane 5 is missing
10 | par |                   | k_inactive: shuffle: lane 7 reads lane 8, which
11 | par |                   | k_lane_gone: .*lane 3
12 | par |                   | k_split_warp: warp divergence: lane
13 | par |                   | k_deadlock: deadlock: .*at __syncthreads.*at __syncwarp
14 | pa  |                   | wrong
14 | r   |                   | k_reuse: race in shared memory: reads what
14 | r   | EMU_ORDER=h       | k_reuse: race in shared memory: writes what
15 | a   |                   | use-after-poison
15 | r   |                   | reads 4 bytes, 0 past the end of an allocation of 400
16 | p   |                   | k_past_end: the kernel touches memory, 120 past the end
16 | a   |                   | use-after-poison|120 past the end
16 | r   |                   | reads 4 bytes, 120 past the end
17 | p   |                   | k_write: red zone damaged 0 bytes past the end
17 | a   |                   | use-after-poison
17 | r   |                   | writes 4 bytes, 0 past the end
18 | p   |                   | k_write: red zone damaged 8 bytes before
18 | a   |                   | use-after-poison
18 | r   |                   | writes 4 bytes, 8 before an allocation
19 | par |                   | mask ffffffff has lane 8, but the block's 40
20 | p   |                   | shared memory was written 0 bytes past the end of tile
20 | a   |                   | out of bounds for type|use-after-poison
20 | r   |                   | k_smem_past: out of bounds in shared memory
21 | p   |                   | written 0 bytes past the end of dynamic shared memory
21 | a   |                   | use-after-poison
21 | r   |                   | k_dynamic_past: out of bounds in shared memory
22 | pa  |                   | wrong
22 | r   |                   | k_uninitialised: reads uninitialised shared
23 | pa  |                   | wrong
23 | r   |                   | k_read: reads uninitialised device memory
24 | r   |                   | k_read: reads 4 bytes of the host
25 | pa  |                   | k_read: the kernel touches address
25 | r   |                   | k_read: reads 4 bytes of the host
26 | p   |                   | k_read: the kernel touches memory.*was freed
26 | a   |                   | use-after-poison
26 | r   |                   | k_read: reads 4 bytes of an allocation.*was freed
27 | a   |                   | misaligned address
28 | a   |                   | signed integer overflow
29 | p   |                   | k_locals: a thread's local variables need more
29 | a   |                   | stack-overflow|local variables need more
29 | r   |                   | k_locals: a thread's local variables need more
30 | r   |                   | k_between_blocks: race between blocks: reads
30 | r   | EMU_ORDER=h       | k_between_blocks: race between blocks: writes
31 | r   |                   | k_write_same: race in global memory: writes what
32 | r   |                   | k_mixed_atomic: race in global memory: .* several
33 | par |                   | not started by LAUNCH_COOP
34 | par |                   | grid_barrier: its word is 3
35 | par |                   | cp.async: global address not aligned
36 | par |                   | cp.async reads 16 bytes.* end
37 | pr  |                   | ldmatrix: out of bounds
37 | a   |                   | out of bounds
38 | par |                   | k_much_smem: shared memory: 106496 bytes
39 | par |                   | static shared memory: 49156 bytes
40 | par |                   | wrong
41 | par | EMU_STREAMS=ahead | wrong
42 | par |                   | wrong
43 | par |                   | wrong
44 | par |                   | cudaFreeHost: a queued copy
45 | par |                   | wrong
46 | par |                   | cudaErrorStreamCaptureUnsupported
47 | par |                   | cudaErrorStreamCaptureInvalidated
48 | par |                   | cudaErrorStreamCaptureUnjoined
49 | par |                   | host code follows a device pointer
50 | par |                   | cudaFree: freed twice .100 bytes.*bad_host.h
51 | par |                   | cudaMemcpy touches 80 bytes, 0 past the end
52 | par |                   | cudaErrorInvalidConfiguration
53 | par |                   | cudaErrorInvalidConfiguration
54 | par |                   | cudaErrorInvalidValue
55 | a   |                   | use-after-poison
55 | r   |                   | k_double: touches device memory that is closed
56 | pa  |                   | wrong
57 | r   |                   | k_any_block: race between blocks: reads
58 | r   |                   | k_late_write: race between blocks: reads
59 | par |                   | last_block: its word is 5 of 4
60 | r   |                   | k_part_read: race in global memory: reads what thread .0,0,0. wrote
60 | r   | EMU_ORDER=h       | k_part_read: race in global memory: writes what thread .32,0,0. read
61 | r   |                   | k_part_write: race in global memory: reads what thread .32,0,0. wrote
61 | r   | EMU_ORDER=h       | k_part_write: race in global memory: writes what thread .1,0,0. read
62 | r   |                   | k_whole_read: race in global memory: writes what thread .0,0,0. read
62 | r   | EMU_ORDER=h       | k_whole_read: race in global memory: reads what thread .32,0,0. wrote
63 | r   |                   | k_halves: race in global memory: reads what thread .0,0,0. wrote
63 | r   | EMU_ORDER=h       | k_halves: race in global memory: reads what thread .32,0,0. wrote
64 | r   |                   | k_rejoined: race in global memory: writes what thread .32,0,0. read
64 | r   | EMU_ORDER=h       | k_rejoined: race in global memory: reads what thread .0,0,0. wrote
56 | r   |                   | k_double: reads uninitialised device memory
END
step "the table was read" [ "$run" -gt 80 ]
for program in "$plain" "$asan" "$race"; do
    for number in $("$plain" | sed 's/ .*//'); do
        step "case $number without its fault" fits "$program" "$number"
    done
done
finish
