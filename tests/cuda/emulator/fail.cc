/* fail.cc -- start of every call of the runtime: the lock, the last error and
 * injected failures.
 *
 * One recursive lock serialises the calls of all host threads; each thread has
 * its own last error, as in CUDA. A call fails for the first reason that holds:
 * a missing or old driver, a context with a sticky error of a kernel, a stream
 * under capture, a failure that a test has requested. Only the outermost call
 * of the runtime counts: cudaFree() synchronises, but is one call. */
#include "tests/cuda/emulator/core.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace emu {

static std::recursive_mutex lock;
__thread int calls_here;
static thread_local cudaError_t last_error;

static long fail_at, fail_count;
static cudaError_t fail_error = cudaErrorMemoryAllocation;
static bool fail_sticky;
static cudaError_t ruined; /* sticky error, returned by every later call */

bool context_faulted()
{
    return ruined != cudaSuccess;
}

static cudaError_t no_driver()
{
    if (settings.driver != Settings::DRIVER_OK)
        return cudaErrorInsufficientDriver;
    return settings.devices ? cudaSuccess : cudaErrorNoDevice;
}

/* Returns the requested error if this call is to fail, else cudaSuccess. A
 * sticky fault hits the first launch at or after the chosen call; the call
 * itself still succeeds. */
static cudaError_t requested(int kinds)
{
    if (!(kinds & CALL_FAILS)) return cudaSuccess;
    fail_count++;
    if (!fail_at || fail_count < fail_at) return cudaSuccess;
    if (!fail_sticky) {
        if (fail_count > fail_at) return cudaSuccess;
        return fail_error;
    }
    if (kinds & CALL_LAUNCH) {
        ruined = fail_error;
        fail_at = 0;
    }
    return cudaSuccess;
}

Call::Call(int kinds) : error(cudaSuccess)
{
    lock.lock();
    settings_read();
    if (running)
        stop_at(running->file, running->line,
                "a call of the runtime from inside a kernel");
    if (calls_here++) return;
    if (kinds & CALL_ALWAYS) return;
    error = no_driver();
    if (!error) error = ruined;
    if (!error && kinds & CALL_UNSAFE) error = capture_forbids();
    if (!error) error = requested(kinds);
}

Call::~Call()
{
    calls_here--;
    lock.unlock();
}

cudaError_t Call::end(cudaError_t e)
{
    if (e) last_error = e;
    return e;
}

} // namespace emu

using namespace emu;

cudaError_t cudaGetLastError()
{
    const cudaError_t e = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return e;
}

/* Does not report a fault that no other call has reported yet. */
cudaError_t cudaPeekAtLastError()
{
    Call call(CALL_ALWAYS);
    return last_error;
}

cudaError_t cudaDeviceReset()
{
    Call call(CALL_ALWAYS);
    if (no_driver()) return call.end(no_driver());
    if (!ruined) cudaDeviceSynchronize();
    ruined = cudaSuccess;
    last_error = cudaSuccess;
    streams_reset();
    events_reset();
    graphs_reset();
    memory_reset();
    return cudaSuccess;
}

void emu_reset_device(void)
{
    (void)cudaDeviceReset();
}

void emu_fail_at(long k, int error, int sticky)
{
    settings_read();
    fail_at = k > 0 ? k : 0;
    fail_count = 0;
    fail_error = (cudaError_t)error;
    fail_sticky = sticky != 0;
    ruined = cudaSuccess;
}

long emu_fail_count(void)
{
    return fail_count;
}
