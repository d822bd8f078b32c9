/* device.cu -- one GPU: found, opened, its memory and faults.
 *
 * A fault of the driver is told in three parts: what was wanted, what CUDA
 * said, and what to do about it. After an asynchronous fault (a kernel that
 * read where it must not) CUDA refuses all further work of the process, so
 * every call here then fails with the first reason.
 *
 * The least capability is 8.0: the kernels of lower precision use
 * instructions that older GPUs lack, and the program carries no code for
 * them. */
#include "cuda/device/device.cuh"
#include <stdio.h>

enum { LEAST_MAJOR = 8 };

static const size_t WORD_BYTES = GPU_COUNTERS * sizeof(unsigned);

// -- faults ------------------------------------------------------------------

/* What to do about an error. */
static const char *advice(cudaError_t e)
{
    switch (e) {
    case cudaErrorMemoryAllocation:
        return "use a smaller batch or smaller images, or close other "
               "programs on this GPU (nvidia-smi lists them)";
    case cudaErrorDevicesUnavailable:
        return "another program holds this GPU for itself (nvidia-smi lists "
               "them); wait, choose another with --device cuda:N, or use "
               "--device cpu";
    case cudaErrorNoKernelImageForDevice:
        return "this program has no code for this GPU; build it with "
               "GPUS=NN, NN its compute capability without the dot";
    case cudaErrorUnsupportedPtxVersion:
        return "this driver is older than the nvcc that built this program: "
               "install a newer driver, or build with GPUS=NN, NN the GPU's "
               "compute capability without the dot";
    case cudaErrorSystemNotReady:
        return "the GPUs of this machine are not joined yet: start its fabric "
               "manager (nvidia-fabricmanager)";
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
               "the environment to learn which, and run `segengine check "
               "--device cuda` and report what they say";
    case cudaErrorLaunchTimeout:
        return "a kernel took longer than the limit of a GPU that also drives "
               "a screen; use another GPU or --device cpu";
    default:
        return "try again; if it stays, see what `nvidia-smi` and `dmesg` say "
               "of this GPU, or use --device cpu";
    }
}

bool gpu_good(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return true;
    // an error of a launch stays until it is read
    (void)cudaGetLastError();
    return fail_device("GPU: %s: %s (%s); %s", what, cudaGetErrorString(e),
                       cudaGetErrorName(e), advice(e));
}

// a launch returns nothing: what was wrong with it is the last error
bool gpu_launched(const char *kernel)
{
    return launch_told || gpu_good(cudaGetLastError(), kernel);
}

// -- finding one -------------------------------------------------------------

/* "13.0" of CUDA's 13000. */
static const char *version_text(int version, char text[16])
{
    snprintf(text, 16, "%d.%d", version / 1000, version % 1000 / 10);
    return text;
}

/* How many GPUs there are; false with the reason when CUDA cannot say, which
 * is how a machine without a driver answers. */
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
    // CUDA calls a missing driver insufficient; its version then is 0
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (!driver)
        return fail_device("no NVIDIA driver (a container needs --gpus all or "
                           "--nv): install it, or use --device cpu");
    if (e == cudaErrorInsufficientDriver)
        return fail_device("the NVIDIA driver serves CUDA %s, this program "
                           "wants %s: update the driver, or build with the "
                           "CUDA Toolkit %s",
                           version_text(driver, have),
                           version_text(runtime, need), have);
    return gpu_good(e, "looking for devices");
}

/* Device `number` exists and is new enough. */
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
    if (!gpu_good(cudaGetDeviceProperties(p, number), "asking what it is"))
        return false;
    if (p->major < LEAST_MAJOR)
        return fail_device("GPU cuda:%d (%s) has compute capability %d.%d, the "
                           "kernels need %d.0 or more (RTX 30, A100 and "
                           "later): use --device cpu",
                           number, p->name, p->major, p->minor, LEAST_MAJOR);
    return true;
}

bool gpu_describe(int device, char text[BACKEND_TEXT])
{
    cudaDeviceProp p;
    int driver = 0;
    char have[16];
    if (!suitable(device, &p)) return false;
    (void)cudaDriverGetVersion(&driver);
    snprintf(text, BACKEND_TEXT,
             "%s, %.1f GiB, compute capability %d.%d, driver %s", p.name,
             (double)p.totalGlobalMem / (1 << 30), p.major, p.minor,
             version_text(driver, have));
    return true;
}

bool gpu_address(void *dev, char text[BACKEND_ADDRESS])
{
    const Gpu *g = (const Gpu *)dev;
    return gpu_good(cudaDeviceGetPCIBusId(text, BACKEND_ADDRESS, g->number),
                    "asking for its address");
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
    TRY(gpu_good(cudaSetDevice(device), "opening"));
    TRY(gpu_good(cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking),
                 "opening a stream"));
    TRY(gpu_good(cudaStreamCreateWithFlags(&g->copies, cudaStreamNonBlocking),
                 "opening a stream"));
    TRY(gpu_good(cudaMalloc((void **)&g->step, sizeof *g->step), "opening"));
    TRY(gpu_memory(g, NULL, WORD_BYTES, (void **)&g->words));
    TRY(gpu_good(cudaMemsetAsync(g->words, 0, WORD_BYTES, g->stream),
                 "opening"));
    ok = true;
done:
    if (ok)
        *dev = g;
    else
        gpu_close(g);
    return ok;
}

// also of one that gpu_open could not finish. What fails here has failed
// before and been said then; on a context that a fault has ruined all of it
// does
void gpu_close(void *dev)
{
    Gpu *g = (Gpu *)dev;
    if (!g) return;
    if (g->next) {
        launch_told = NULL;
        mem_free(g);
        return;
    }
    gpu_allreduce_close(g);
    gpu_drop_staging(g);
    gpu_drop_marks(g);
    if (g->scratch) (void)cudaFree(g->scratch);
    if (g->step) (void)cudaFree(g->step);
    if (g->words) (void)cudaFree(g->words);
    if (g->copies) (void)cudaStreamDestroy(g->copies);
    if (g->stream) (void)cudaStreamDestroy(g->stream);
    (void)cudaGetLastError();
    mem_free(g);
}

// -- one that is not there ---------------------------------------------------

namespace {

const size_t ALIGN = 256; // what cudaMalloc promises of an address

/* A device without memory gives out addresses that nobody follows. */
void *next_address(Gpu *g, size_t bytes)
{
    char *at = g->next;
    g->next += (bytes / ALIGN + 1) * ALIGN;
    return at;
}

void tell_launch(const char *kernel, dim3 grid, dim3 block, size_t shared)
{
    Launch l = {};
    l.name = kernel, l.shared = shared;
    l.grid[0] = grid.x, l.grid[1] = grid.y, l.grid[2] = grid.z;
    l.block[0] = block.x, l.block[1] = block.y, l.block[2] = block.z;
    launch_log_add(l);
}

} // namespace

// its stream is NULL, and no call of CUDA is made: there may be no driver
bool gpu_dry_run(void **dev)
{
    CHECK(!launch_told); // one at a time: what is told would be mixed
    Gpu *g = (Gpu *)mem_alloc(sizeof *g);
    if (!g) return false;
    g->next = (char *)(uintptr_t)ALIGN;
    g->step = (Step *)next_address(g, sizeof *g->step);
    g->words = (unsigned *)next_address(g, WORD_BYTES);
    launch_told = tell_launch;
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
    if (g->next) return 64;
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, g->number);
    return count;
}

// a thread of a program has one current device, whatever it has open: who is
// about to allocate, copy or begin a run says which
bool gpu_use(void *dev)
{
    return gpu_good(cudaSetDevice(((Gpu *)dev)->number), "choosing it");
}

// -- what kernels ask --------------------------------------------------------

cudaStream_t gpu_stream(void *dev)
{
    return ((Gpu *)dev)->stream;
}

Step *gpu_step(void *dev)
{
    return ((Gpu *)dev)->step;
}

// a launch that could not start has used none, and after one that failed as it
// ran the device takes no others: nothing ever has to set them back
unsigned *gpu_counters(void *dev, int64_t count)
{
    CHECK(count <= GPU_COUNTERS);
    return ((Gpu *)dev)->words;
}

// -- memory ------------------------------------------------------------------

// of 0 bytes CUDA gives NULL, which callers take for a failure
bool gpu_memory(Gpu *g, const Staging *but, size_t bytes, void **out)
{
    size_t room = 0, all = 0;
    cudaError_t e = cudaMalloc(out, bytes ? bytes : 1);
    // once more without the places of copies that are done
    if (e == cudaErrorMemoryAllocation && gpu_trim(g, but)) {
        (void)cudaGetLastError();
        e = cudaMalloc(out, bytes ? bytes : 1);
    }
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&room, &all);
        return fail_memory(ERR_DEVICE, bytes, room,
                           "GPU: %zu bytes wanted, %zu of %zu free: %s", bytes,
                           room, all, advice(e));
    }
    return gpu_good(e, "memory");
}

// zeroed on the stream: what is queued after it finds zeros
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

// waits for what is queued, so a kernel that still uses p is safe
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
           gpu_good(cudaMemGetInfo(bytes, &all), "asking what is free");
}
