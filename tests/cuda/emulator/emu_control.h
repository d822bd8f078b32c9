/* emu_control.h -- the emulator's own switches, for tests in C and C++.
 *
 * The environment is read at the first call of the runtime:
 *
 *   EMU_ORDER    g  one warp as far as it goes, then the next (default)
 *                h  the same from the last warp, lane and block backwards
 *                a, d  round robin, ascending and descending
 *                rN  random with seed N
 *   EMU_STREAMS  late  a stream runs only when waited for (default)
 *                early  at once, in the order of calls
 *                ahead  before a stream runs, the others run as far as they may
 *                rN  random with seed N
 *   EMU_ASYNC    late (default) or early: when cp.async lands
 *   EMU_CC       compute capability, 80 (default), 90, 75, ...
 *   EMU_DEVICES  number of devices (1), 0 for none
 *   EMU_DRIVER   ok (default), none, old
 *   EMU_MEM      bytes of memory of each device (2 GiB), K M G allowed
 *   EMU_FAIL     K[,ERROR[,sticky]]: see emu_fail_at
 *   EMU_REACHED  a file that gets the kernels that ran, see covered.sh
 *   EMU_GUARD    0: host access to device memory is not trapped (allocations
 *                over 4 MB never are)
 *
 * A fault stops the process with "emulator: KERNEL: what (file:line)" and exit
 * code 65; the checked build goes on to find more and ends with 66, or with 1
 * after an error that UBSan or ASan reports.
 *
 * Any thread may call the runtime: one lock serialises all calls, and a
 * launch runs inside the call that waits for it. Call these from one thread
 * while nothing else is under way. */
#ifndef EMU_CONTROL_H
#define EMU_CONTROL_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

/* As EMU_ORDER, EMU_STREAMS, EMU_ASYNC; an unknown word stops the run. */
void emu_set_order(const char *order);
void emu_set_streams(const char *streams);
void emu_set_async(const char *async);
/* What the program finds: as EMU_CC, EMU_DEVICES, EMU_DRIVER, EMU_MEM. */
void emu_set_device(int capability, int devices, const char *driver,
                    size_t memory);

/* The k-th call from now that can fail (k from 1: allocation, launch, copy,
 * memset, event, stream, graph, synchronisation) returns `error`. 0 switches
 * failing off. When `sticky`, the first launch from the k-th call on is the one
 * that faults, as an illegal access does: it reports success, nothing more
 * runs, and every later call returns the error until cudaDeviceReset(). */
void emu_fail_at(long k, int error, int sticky);
/* cudaDeviceReset() for C: after a sticky fault the device is as new. */
void emu_reset_device(void);
/* Calls that could fail since the last emu_fail_at(). */
long emu_fail_count(void);

/* Launches that ran whose kernel's name contains `part` (NULL: all), since the
 * last emu_reset_counts(). A node of a graph counts each time it runs. */
long emu_launch_count(const char *part);
void emu_reset_counts(void);

/* Device memory that is allocated now. */
size_t emu_live_bytes(void);
size_t emu_live_blocks(void);
/* Streams, events, graphs and executable graphs not yet destroyed. */
size_t emu_live_handles(void);

/* Within device memory of one allocation (an arena): [at, at + bytes) may not
 * be touched until it is opened again. The checked build reports an access; the
 * plain build does not. Both ends at multiples of 8. */
void emu_close(const void *at, size_t bytes);
void emu_open(const void *at, size_t bytes);
/* These bytes hold nothing: filled with 0xFF, and the checked build reports a
 * read before a write. */
void emu_forget(void *at, size_t bytes);

/* Different places that the checked build has reported; 0 in the plain build.
 */
long emu_race_count(void);
/* 1 in the checked build. */
int emu_checked_build(void);

#ifdef __cplusplus
}
#endif
#endif
