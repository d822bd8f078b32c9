/* device.cu -- one GPU: device selection, opening, memory and errors.
 *
 * An error of the driver is reported in three parts: the operation, CUDA's text
 * and advice. After an asynchronous error (a kernel with an illegal access)
 * CUDA refuses all further work of the process, so each later call fails with
 * the first reason.
 *
 * The least compute capability is 7.5: the kernels in lower precision use
 * instructions that older GPUs lack, and the program has no code for older
 * GPUs. */
#include "cuda/device/device.cuh"
extern "C" {
#include "engine/base/nvml.h"
}
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t COUNTER_BYTES = GPU_COUNTERS * sizeof(unsigned);

// -- faults ------------------------------------------------------------------

/* Advice for an error. */
static const char *advice(cudaError_t e)
{
    switch (e) {
    case cudaErrorMemoryAllocation:
        return "use a smaller batch or smaller images, or close other "
               "programs on this GPU (nvidia-smi lists them)";
    case cudaErrorDevicesUnavailable:
        return "another program uses this GPU exclusively (nvidia-smi lists "
               "it); wait, choose another GPU with --device cuda:N, or use "
               "--device cpu";
    case cudaErrorNoKernelImageForDevice:
        return "this program has no code for this GPU; build it with "
               "GPUS=NN, NN its compute capability without the dot";
    case cudaErrorUnsupportedPtxVersion:
        return "this driver is older than the nvcc that built this program: "
               "install a newer driver, or build with GPUS=NN, NN the GPU's "
               "compute capability without the dot";
    case cudaErrorSystemNotReady:
        return "the NVLink fabric of this machine is not ready: start its "
               "fabric manager (nvidia-fabricmanager)";
    case cudaErrorSystemDriverMismatch:
        return "the driver's library and its kernel module have different "
               "versions: restart the machine, or the container with the "
               "library of its driver";
    case cudaErrorECCUncorrectable:
        return "the GPU's memory is damaged: have it checked";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorLaunchFailure:
        return "a kernel failed while it ran: run again with SEG_CAREFUL=1 in "
               "the environment to learn which, run `segengine check --device "
               "cuda`, and report both outputs";
    case cudaErrorLaunchTimeout:
        return "a kernel took longer than the limit of a GPU that also drives "
               "a screen; use another GPU or --device cpu";
    default:
        return "try again; if the error persists, read what `nvidia-smi` and "
               "`dmesg` report about this GPU, or use --device cpu";
    }
}

bool gpu_good(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return true;
    // the error of a launch stays until it is read
    (void)cudaGetLastError();
    return fail_device("GPU: %s: %s (%s); %s", what, cudaGetErrorString(e),
                       cudaGetErrorName(e), advice(e));
}

// a launch returns nothing: its error is the last error
bool gpu_launched(const char *kernel)
{
    return launch_hook || gpu_good(cudaGetLastError(), kernel);
}

// -- finding one -------------------------------------------------------------

/* "13.0" for CUDA's 13000. */
static const char *version_text(int version, char text[16])
{
    snprintf(text, 16, "%d.%d", version / 1000, version % 1000 / 10);
    return text;
}

/* The number of GPUs; false with the reason if CUDA reports an error, which is
 * also its answer on a machine without a driver. */
static bool count_devices(int *count)
{
    int driver = 0, runtime = 0;
    char have[16], need[16];
    cudaError_t e = cudaGetDeviceCount(count);

    (void)cudaGetLastError();
    if (e == cudaSuccess && *count > 0) return true;
    if (e == cudaSuccess || e == cudaErrorNoDevice)
        return fail_device("no NVIDIA GPU is visible (CUDA_VISIBLE_DEVICES "
                           "hides some; a container needs --gpus all or "
                           "--nv): use --device cpu");

    // CUDA reports a missing driver as insufficient, with version 0
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (!driver)
        return fail_device("no NVIDIA driver (a container needs --gpus all or "
                           "--nv): install it, or use --device cpu");
    if (e == cudaErrorInsufficientDriver)
        return fail_device(
            "the NVIDIA driver supports CUDA %s, this program needs %s: update "
            "the driver, or build with the CUDA Toolkit %s",
            version_text(driver, have), version_text(runtime, need), have);
    return gpu_good(e, "looking for devices");
}

/* Checks that device `number` exists and is new enough. */
static bool suitable(int number, cudaDeviceProp *p)
{
    int count;
    if (!count_devices(&count)) return false;
    if (number >= count && count == 1)
        return fail_device("there is no cuda:%d: this machine shows one GPU, "
                           "cuda:0",
                           number);
    if (number >= count)
        return fail_device("there is no cuda:%d: this machine shows %d GPUs, "
                           "cuda:0 to cuda:%d",
                           number, count, count - 1);
    if (!gpu_good(cudaGetDeviceProperties(p, number),
                  "querying its properties"))
        return false;
    const int least = gpu_least_capability();
    if (p->major * 10 + p->minor < least)
        return fail_device("GPU cuda:%d (%s) has compute capability %d.%d, the "
                           "kernels need %d.%d or more (T4, RTX 20 and "
                           "later): use --device cpu",
                           number, p->name, p->major, p->minor, least / 10,
                           least % 10);
    return true;
}

// the version of CUDA that a driver supports is that of many drivers; NVML has
// the driver's own
bool gpu_describe(int device, char text[BACKEND_TEXT])
{
    cudaDeviceProp p;
    int cuda = 0;
    char have[16], driver[80];
    if (!suitable(device, &p)) return false;
    (void)cudaDriverGetVersion(&cuda);
    const bool known = gpu_driver_version(NVML_LIBRARY, driver, sizeof driver);
    snprintf(
        text, BACKEND_TEXT,
        "%.100s, %.1f GiB, compute capability %d.%d%s, driver %s%sCUDA %s",
        p.name, (double)p.totalGlobalMem / (1 << 30), p.major, p.minor,
        gpu_runs_hopper(p.major * 10 + p.minor) ? " with Hopper's kernels" : "",
        known ? driver : "", known ? ", " : "of ", version_text(cuda, have));
    return true;
}

bool gpu_address(void *dev, char text[BACKEND_ADDRESS])
{
    const Gpu *g = (const Gpu *)dev;
    return gpu_good(cudaDeviceGetPCIBusId(text, BACKEND_ADDRESS, g->number),
                    "querying its PCI address");
}

// -- open and close ----------------------------------------------------------

// host threads: a call only queues work
int gpu_threads(int wanted)
{
    (void)wanted;
    return 1;
}

bool gpu_open(int device, int threads, void **dev)
{
    cudaDeviceProp p;
    bool ok = false;
    (void)threads;
    Gpu *g = (Gpu *)mem_alloc(sizeof *g);
    if (!g) return false;
    g->number = device;
    TRY(suitable(device, &p));
    gpu_target(device, p.major * 10 + p.minor);
    TRY(gpu_good(cudaSetDevice(device), "opening"));
    TRY(gpu_good(cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking),
                 "opening a stream"));
    TRY(gpu_good(cudaStreamCreateWithFlags(&g->copies, cudaStreamNonBlocking),
                 "opening a stream"));
    TRY(gpu_good(cudaMalloc((void **)&g->step, sizeof *g->step), "opening"));
    TRY(gpu_memory(g, NULL, COUNTER_BYTES, (void **)&g->counters));
    TRY(gpu_good(cudaMemsetAsync(g->counters, 0, COUNTER_BYTES, g->stream),
                 "opening"));
    launches_overlap = false;
    if (gpu_is_hopper()) gpu_try_overlap(g->stream);
    ok = true;

done:
    if (ok)
        *dev = g;
    else
        gpu_close(g);
    return ok;
}

// Also closes a device that gpu_open could not finish. An error here has
// occurred and been reported before; after an asynchronous error all of these
// calls fail
void gpu_close(void *dev)
{
    Gpu *g = (Gpu *)dev;
    if (!g) return;
    if (g->next) {
        launch_hook = NULL;
        mem_free(g);
        return;
    }

    gpu_allreduce_close(g);
    gpu_drop_staging(g);
    gpu_drop_marks(g);
    if (g->scratch) (void)cudaFree(g->scratch);
    if (g->step) (void)cudaFree(g->step);
    if (g->counters) (void)cudaFree(g->counters);
    if (g->copies) (void)cudaStreamDestroy(g->copies);
    if (g->stream) (void)cudaStreamDestroy(g->stream);
    (void)cudaGetLastError();
    mem_free(g);
}

// -- dry run -----------------------------------------------------------------

namespace {

const size_t ALIGN = 256; // the alignment that cudaMalloc guarantees

/* Addresses of a device without memory; they are never dereferenced. */
void *next_address(Gpu *g, size_t bytes)
{
    char *at = g->next;
    g->next += (bytes / ALIGN + 1) * ALIGN;
    return at;
}

void log_launch(const char *kernel, dim3 grid, dim3 block, size_t shared)
{
    Launch l = {};
    l.name = kernel, l.shared = shared;
    l.grid[0] = grid.x, l.grid[1] = grid.y, l.grid[2] = grid.z;
    l.block[0] = block.x, l.block[1] = block.y, l.block[2] = block.z;
    launch_log_add(l);
}

} // namespace

// the stream is NULL, and no function of CUDA is called: there may be no driver
bool gpu_dry_run(void **dev)
{
    CHECK(!launch_hook); // one at a time, or their launches would be mixed
    Gpu *g = (Gpu *)mem_alloc(sizeof *g);
    if (!g) return false;
    g->next = (char *)(uintptr_t)ALIGN;
    g->step = (Step *)next_address(g, sizeof *g->step);
    g->counters = (unsigned *)next_address(g, COUNTER_BYTES);
    launch_hook = log_launch;
    *dev = g;
    return true;
}

bool gpu_dry_runs(void *dev)
{
    return ((Gpu *)dev)->next != NULL;
}

int gpu_processors(void *dev)
{
    Gpu *g = (Gpu *)dev;
    int count = 0;
    if (g->next) return 128;
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, g->number);
    return count;
}

// a thread has one current device, however many it has opened: a caller that is
// about to allocate, copy or begin a run selects its device
bool gpu_use(void *dev)
{
    return gpu_good(cudaSetDevice(((Gpu *)dev)->number), "choosing it");
}

// -- state that kernels read -------------------------------------------------

cudaStream_t gpu_stream(void *dev)
{
    return ((Gpu *)dev)->stream;
}

Step *gpu_step(void *dev)
{
    return ((Gpu *)dev)->step;
}

// nothing ever has to reset the counters: a launch that did not start has used
// none, and after one that failed as it ran the device accepts no other
unsigned *gpu_counters(void *dev, int64_t count)
{
    CHECK(count <= GPU_COUNTERS);
    return ((Gpu *)dev)->counters;
}

// -- memory ------------------------------------------------------------------

// for 0 bytes CUDA returns NULL, which callers take for a failure
bool gpu_memory(Gpu *g, const Staging *but, size_t bytes, void **out)
{
    size_t room = 0, all = 0;
    cudaError_t e = cudaMalloc(out, bytes ? bytes : 1);

    // try again without the staging buffers of finished copies
    if (e == cudaErrorMemoryAllocation && gpu_trim(g, but)) {
        (void)cudaGetLastError();
        e = cudaMalloc(out, bytes ? bytes : 1);
    }

    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&room, &all);
        return fail_memory(ERR_DEVICE, bytes, room,
                           "GPU: %zu bytes needed, %zu of %zu free: %s", bytes,
                           room, all, advice(e));
    }
    return gpu_good(e, "memory");
}

// zeroed on the stream, before any later work
bool gpu_alloc(void *dev, size_t bytes, void **out)
{
    if (gpu_dry_runs(dev)) {
        *out = next_address((Gpu *)dev, bytes);
        return true;
    }
    Gpu *g = (Gpu *)dev;
    if (!gpu_use(dev)) return false;
    if (!gpu_memory(g, NULL, bytes, out)) return false;
    cudaError_t e =
        cudaMemsetAsync(*out, 0, bytes ? bytes : 1, gpu_stream(dev));
    if (e == cudaSuccess) return true;
    (void)cudaFree(*out);
    *out = NULL;
    return gpu_good(e, "clearing memory");
}

// cudaFree waits for queued work, so a kernel may still use p
void gpu_release(void *dev, void *p)
{
    if (p && !gpu_dry_runs(dev)) (void)cudaFree(p);
}

void *gpu_scratch(void *dev, size_t bytes)
{
    Gpu *g = (Gpu *)dev;
    if (bytes <= g->scratch_bytes) return g->scratch;
    gpu_release(dev, g->scratch);
    g->scratch = NULL, g->scratch_bytes = 0;
    if (!gpu_alloc(dev, bytes, &g->scratch)) return NULL;
    g->scratch_bytes = bytes;
    return g->scratch;
}

bool gpu_room(void *dev, size_t *bytes)
{
    size_t all;
    if (gpu_dry_runs(dev)) {
        *bytes = SIZE_MAX;
        return true;
    }
    return gpu_use(dev) &&
           gpu_good(cudaMemGetInfo(bytes, &all), "querying its free memory");
}
