/* emu_control.h -- the emulator's own switches, for tests in C and C++.
 *
 * The environment is read at the first call of the runtime:
 *
 *   EMU_ORDER    g  one warp as far as it goes, then the next (default)
 *                h  the same from the last warp, lane and block backwards
 *                a, d  round robin, ascending and descending
 *                rN  random with seed N
 *   EMU_STREAMS  late  a stream runs only when the host waits (default)
 *                early  at once, in the order of calls
 *                ahead  before a stream runs, the others run as far as they may
 *                rN  random with seed N
 *   EMU_ASYNC    late (default) or early: completion of cp.async, tma_load
 *   EMU_CC       compute capability, 80 (default), 90, 75, ...: instructions,
 *                shared memory of a block, multiprocessors
 *   EMU_DEVICES  number of devices (1), 0 for none
 *   EMU_DRIVER   ok (default), none, old
 *   EMU_MEM      bytes of memory of each device (2 GiB), K M G allowed
 *   EMU_FAIL     K[,ERROR[,sticky]]: see emu_fail_at
 *   EMU_WRONG    NAME: kernels with NAME in their name leave out the last block
 *   EMU_REACHED  a file for the list of kernels that ran, see covered.sh
 *   EMU_GUARD    0: host access to device memory is not trapped (allocations
 *                over 4 MB never are)
 *
 * A fault stops the process with "emulator: KERNEL: TEXT (file:line)" and exit
 * code 65; the checked build goes on to find more and ends with 66, or with 1
 * after an error that UBSan or ASan reports.
 *
 * Any thread may call the runtime: one lock serialises all calls, and a
 * launch runs inside the call that waits for it. The functions below must be
 * called from one thread while no other thread is inside the runtime. */
#ifndef EMU_CONTROL_H
#define EMU_CONTROL_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Set EMU_ORDER, EMU_STREAMS, EMU_ASYNC; an unknown word stops the run. */
void emu_set_order(const char *order);
void emu_set_streams(const char *streams);
void emu_set_async(const char *async);
/* Sets the visible devices: EMU_CC, EMU_DEVICES, EMU_DRIVER, EMU_MEM. */
void emu_set_device(int capability, int devices, const char *driver,
                    size_t memory);

/* The k-th call from now that can fail (k from 1: allocation, launch, copy,
 * memset, event, stream, graph, synchronisation) returns `error`. k = 0
 * switches this off. When `sticky`, the first launch from the k-th call on
 * faults like an illegal access: the launch returns success, no more work runs,
 * and every later call returns the error until cudaDeviceReset(). */
void emu_fail_at(long k, int error, int sticky);
/* cudaDeviceReset() for C: makes the device usable after a sticky fault. */
void emu_reset_device(void);
/* Returns the number of calls since the last emu_fail_at() that can fail. */
long emu_fail_count(void);

/* Returns how many kernels with `part` in their name (NULL: all) have run since
 * the last emu_reset_counts(). A node of a graph counts each time it runs. */
long emu_launch_count(const char *part);
void emu_reset_counts(void);

/* Allocated device memory. */
size_t emu_live_bytes(void);
size_t emu_live_blocks(void);
/* Streams, events, graphs and executable graphs not yet destroyed. */
size_t emu_live_handles(void);

/* emu_close forbids accesses to [at, at + bytes) within one allocation (an
 * arena) until emu_open. The checked build reports an access; the plain build
 * does not. Both ends must be multiples of 8. */
void emu_close(const void *at, size_t bytes);
void emu_open(const void *at, size_t bytes);
/* Makes these bytes uninitialised: fills with 0xFF, and the checked build
 * reports a read before a write. */
void emu_forget(void *at, size_t bytes);

/* Number of places in the code that the checked build has reported; 0 in the
 * plain build. */
long emu_race_count(void);
/* 1 in the checked build. */
int emu_checked_build(void);

#ifdef __cplusplus
}
#endif
#endif
