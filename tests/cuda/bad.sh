#!/bin/sh
# bad.sh -- each build of the emulator must find the planted faults it can.
#
# Each row of the table has a case N of bad.cu, the builds (p plain, c checked),
# a setting, and the message that must be printed. In both builds the same code
# without the fault must end with "right".
#
#     tests/cuda/bad.sh [PLAIN CHECKED]    programs built from bad.cu; without
#                                         them, builds its own (g++)
here=$(cd "$(dirname "$0")" && pwd) || exit 1
plain=${1:-} checked=${2:-}
for p in plain checked; do # tests/support/shell.sh leaves these two variables
    eval "case \$$p in ''|/*) ;; *) $p=\$PWD/\$$p ;; esac"
done
cd "$here/../.." || exit 1
. tests/support/shell.sh

if [ -z "$checked" ]; then
    CXX=${CXX:-g++}
    flags="-std=c++17 -g -Wno-unknown-pragmas -I. -Itests/cuda/emulator"
    checks="-fsanitize=thread,undefined -fno-sanitize-recover=undefined"
    checks="$checks -fno-sanitize=null" # as tests/cuda/build.mk
    plain=$tmp/plain checked=$tmp/checked
    # shellcheck disable=SC2086  # flags are words
    {
        for f in tests/cuda/emulator/*.cc; do
            $CXX $flags -O2 -c "$f" -o "$tmp/$(basename "$f" .cc).o" || exit 1
        done
        mv "$tmp/race.o" "$tmp/race.only"
        bad() { $CXX $flags "$@" -x c++ -c tests/cuda/emulator/bad.cu -o "$tmp/bad.x"; }
        bad -O2 && $CXX "$tmp/bad.x" "$tmp"/*.o -o "$plain" || exit 1
        bad -O1 $checks && $CXX -fsanitize=address,undefined "$tmp/bad.x" \
            "$tmp"/*.o "$tmp/race.only" -o "$checked" || exit 1
    }
fi

# finds TEXT PROGRAM N [SETTING]: the program must fail and print TEXT
finds() {
    env ${4:+"$4"} timeout 60 "$2" "$3" > "$tmp/said" 2>&1
    status=$?
    head -n 8 "$tmp/said"
    [ "$status" -ne 0 ] && [ "$status" -lt 124 ] &&
        grep -Eq -e "$1" "$tmp/said"
}
# fits PROGRAM N: without the fault the program must print "right" and no more
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
        case $b in p) program=$plain ;; *) program=$checked ;; esac
        step "case $number in build $b" finds "$text" "$program" "$number" \
            "$setting"
    done
done << 'END'
# case | builds | setting | message
 1 | p  |                   | wrong
 1 | c  |                   | k_no_barrier: reads uninitialised shared.*bad_warp.h:
 1 | c  | EMU_ORDER=d       | k_no_barrier: (race|reads uninit).*bad_warp.h:
 2 | p  |                   | wrong
 2 | c  | EMU_ORDER=a       | k_refill: race in shared memory: writes what thread.*read
 2 | c  |                   | k_refill: race in shared memory
 3 | pc |                   | wrong
 4 | p  |                   | wrong
 4 | c  | EMU_ORDER=d       | k_no_syncwarp: (race|reads uninit)
 5 | c  |                   | k_shuffle_orders: race in shared memory: reads what
 6 | pc |                   | k_divergent: divergent barrier.*bad_warp.h:[0-9]*.*bad_warp.h:
 7 | pc |                   | k_after_exit: __syncthreads after a thread.*returned
 8 | pc |                   | k_exit_late: thread .* returned, others wait
 9 | pc |                   | k_not_in_mask: __shfl_sync: lane 5 is missing
10 | pc |                   | k_inactive: shuffle: lane 7 reads lane 8, which
11 | pc |                   | k_lane_gone: .*lane 3
12 | pc |                   | k_split_warp: warp divergence: lane
13 | pc |                   | k_deadlock: deadlock: .*at __syncthreads.*at __syncwarp
14 | p  |                   | wrong
14 | c  |                   | k_reuse: race in shared memory: reads what
14 | c  | EMU_ORDER=h       | k_reuse: race in shared memory: writes what
15 | c  |                   | reads 4 bytes, 0 past the end of an allocation of 400
16 | p  |                   | k_past_end: the kernel touches memory, 120 past the end
16 | c  |                   | reads 4 bytes, 120 past the end
17 | p  |                   | k_write: red zone damaged 0 bytes past the end
17 | c  |                   | writes 4 bytes, 0 past the end
18 | p  |                   | k_write: red zone damaged 8 bytes before
18 | c  |                   | writes 4 bytes, 8 before an allocation
19 | pc |                   | mask ffffffff has lane 8, but the block's 40
20 | p  |                   | shared memory was written 0 bytes past the end of tile
20 | c  |                   | out of bounds for type
21 | p  |                   | written 0 bytes past the end of dynamic shared memory
21 | c  |                   | k_dynamic_past: out of bounds in shared memory
22 | p  |                   | wrong
22 | c  |                   | k_uninitialised: reads uninitialised shared
23 | p  |                   | wrong
23 | c  |                   | k_read: reads uninitialised device memory
24 | c  |                   | k_read: reads 4 bytes of the host
25 | p  |                   | k_read: the kernel touches address
25 | c  |                   | k_read: reads 4 bytes of the host
26 | p  |                   | k_read: the kernel touches memory.*was freed
26 | c  |                   | k_read: reads 4 bytes of an allocation.*was freed
27 | c  |                   | misaligned address
28 | c  |                   | signed integer overflow
29 | p  |                   | k_locals: a thread's local variables need more
29 | c  |                   | k_locals: a thread's local variables need more
30 | c  |                   | k_between_blocks: race between blocks: reads
30 | c  | EMU_ORDER=h       | k_between_blocks: race between blocks: writes
31 | c  |                   | k_write_same: race in global memory: writes what
32 | c  |                   | k_mixed_atomic: race in global memory: .* several
33 | pc |                   | not started by LAUNCH_COOP
34 | pc |                   | grid_barrier: its word is 3
35 | pc |                   | cp.async: global address not aligned
36 | pc |                   | cp.async reads 16 bytes.* end
37 | p  |                   | ldmatrix: out of bounds
37 | c  |                   | out of bounds for type
38 | pc |                   | k_much_smem: shared memory: 106496 bytes
39 | pc |                   | static shared memory: 49156 bytes
40 | pc |                   | wrong
41 | pc | EMU_STREAMS=ahead | wrong
42 | pc |                   | wrong
43 | pc |                   | wrong
44 | pc |                   | cudaFreeHost: a queued copy
45 | pc |                   | wrong
46 | pc |                   | cudaErrorStreamCaptureUnsupported
47 | pc |                   | cudaErrorStreamCaptureInvalidated
48 | pc |                   | cudaErrorStreamCaptureUnjoined
49 | pc |                   | host code follows a device pointer
50 | pc |                   | cudaFree: freed twice .100 bytes.*bad_host.h
51 | pc |                   | cudaMemcpy touches 80 bytes, 0 past the end
52 | pc |                   | cudaErrorInvalidConfiguration
53 | pc |                   | cudaErrorInvalidConfiguration
54 | pc |                   | cudaErrorInvalidValue
55 | c  |                   | k_double: touches device memory that is closed
56 | p  |                   | wrong
57 | c  |                   | k_any_block: race between blocks: reads
58 | c  |                   | k_late_write: race between blocks: reads
59 | pc |                   | last_block: its word is 5 of 4
60 | c  |                   | k_part_read: race in global memory: reads what thread .0,0,0. wrote
60 | c  | EMU_ORDER=h       | k_part_read: race in global memory: writes what thread .32,0,0. read
61 | c  |                   | k_part_write: race in global memory: reads what thread .32,0,0. wrote
61 | c  | EMU_ORDER=h       | k_part_write: race in global memory: writes what thread .1,0,0. read
62 | c  |                   | k_whole_read: race in global memory: writes what thread .0,0,0. read
62 | c  | EMU_ORDER=h       | k_whole_read: race in global memory: reads what thread .32,0,0. wrote
63 | c  |                   | k_halves: race in global memory: reads what thread .0,0,0. wrote
63 | c  | EMU_ORDER=h       | k_halves: race in global memory: reads what thread .32,0,0. wrote
64 | c  |                   | k_rejoined: race in global memory: writes what thread .32,0,0. read
64 | c  | EMU_ORDER=h       | k_rejoined: race in global memory: reads what thread .0,0,0. wrote
56 | c  |                   | k_double: reads uninitialised device memory
65 | c  |                   | out of bounds for type
66 | c  |                   | insufficient space for an object
67 | c  |                   | cudaMemcpy touches host memory out of bounds.*bad_host.h
68 | c  |                   | host code touches memory out of bounds
70 | pc |                   | k_flow: mbarrier_arrive: 3 arrivals, but the phase .* lacks
71 | pc |                   | k_flow: deadlock: .*the mbarrier of .*lacks 0 arrivals and 64 bytes
72 | pc |                   | k_flow: tma_load: the phase .* has got 64 bytes more than expected
72 | pc | EMU_ASYNC=early   | k_flow: tma_load: the phase .* has got 64 bytes more than expected
73 | pc |                   | k_flow: tma_load: no fence_async_shared after mbarrier_init
74 | pc | EMU_ORDER=h       | k_flow: mbarrier_wait: the mbarrier was not initialised
75 | pc |                   | k_flow: mbarrier_.*: the mbarrier was not initialised
76 | pc |                   | k_flow: mbarrier_.*: the mbarrier of .* was overwritten
77 | pc |                   | k_flow: deadlock: .*at mbarrier_test.*at mbarrier_wait.*lacks 1 arrivals and 0 bytes
77 | pc | EMU_ORDER=r3      | k_flow: deadlock: .*at mbarrier_test.*lacks 1 arrivals and 0 bytes
78 | pc |                   | k_flow: mbarrier_wait: 2 phases ended
79 | p  |                   | wrong
79 | c  |                   | k_flow: (reads uninit|touches shared memory)
79 | c  | EMU_ORDER=h       | k_flow: touches shared memory that a tma_load has not yet filled
80 | pc |                   | k_flow: wgmma: operand a is read while a tma_load into it is in flight
81 | pc |                   | k_flow: tma_load: the block has ended and no thread waited for it
82 | pc |                   | k_flow: tma_load: shared address not aligned to 1024
83 | pc |                   | k_flow: tma_load to where another load is in flight
84 | c  |                   | k_flow: TMA or wgmma reads what thread .* wrote without fence_async_shared
85 | pc |                   | k_flow: wgmma: no wgmma_fence
86 | pc |                   | k_flow: wgmma: operand a out of bounds of shared memory
87 | pc |                   | k_flow: wgmma: the threads of a warpgroup come with different products
88 | pc |                   | k_flow: wgmma: operand a was overwritten between
89 | pc |                   | wrong
90 | pc |                   | k_flow: wgmma: its thread returned without wgmma_wait
91 | pc |                   | setmaxnreg: thread .* came to 64 registers
92 | c  |                   | k_flow: TMA or wgmma reads what thread .* wrote without fence_async_shared
93 | p  |                   | wrong
93 | c  |                   | k_flow: (race|reads uninit)
93 | c  | EMU_ORDER=a       | k_flow: race in shared memory
94 | pc |                   | k_flow: (named_barrier 1 of .* threads; others wait|deadlock: .*named_barrier)
94 | pc | EMU_ORDER=a       | k_flow: named_barrier 1 of .* threads; others wait
95 | pc |                   | k_flow: tma_store: its shared memory was overwritten before
96 | pc |                   | k_flow: tma_store: its thread returned without tma_store_wait_read
97 | pc |                   | tensor_map_encode: stride 136 of axis 1 is no multiple of 16
98 | pc |                   | tensor_map_encode: a row of the box has 64 bytes, the swizzle 128
99 | pc |                   | k_flow: tma_load touches 128 bytes, .* past the end
100 | pc |                  | k_flow: mbarrier_init needs compute capability 9.0, the device has 8.0
101 | p |                   | wgmma: operand b was overwritten between
101 | c |                   | k_flow: (race|reads uninit)
101 | c | EMU_ORDER=a       | k_flow: (race|reads uninit)
END
step "the table was read" [ "$run" -gt 80 ]
for program in "$plain" "$checked"; do
    for number in $("$plain" | sed 's/ .*//'); do
        step "case $number without its fault" fits "$program" "$number"
    done
done
finish
