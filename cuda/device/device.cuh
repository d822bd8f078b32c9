/* device.cuh -- the state of a device, shared by its files: device.cu finds and
 * opens it, transfer.cu copies, cuda_graph.cu captures steps and measures
 * times. */
#ifndef SEG_CUDA_DEVICE_DEVICE_H
#define SEG_CUDA_DEVICE_DEVICE_H
#include "cuda/lib/gpu.h"
extern "C" {
#include "cuda/lib/cuda.h"
#include "engine/backend/backend.h"
#include "engine/backend/launch_log.h"
}

/* A buffer for uploads: pinned host memory, which the driver reads while the
 * program goes on, and a buffer of the same size on the device. */
struct Staging {
    void *host, *device; /* (bytes) each; NULL before the first use */
    size_t bytes;
    cudaEvent_t landed; /* on the copy stream: `device` has the bytes */
    cudaEvent_t used;   /* on the main stream: copied out of `device` */
    uint64_t since;     /* number of the upload that uses it; 0: free */
};
/* The first SMALL_STAGINGS are for small copies. */
enum { SMALL_STAGINGS = 32, STAGINGS = SMALL_STAGINGS + 16 };

struct Gpu {
    int number;
    cudaStream_t stream;  // all kernels, in the order of the calls
    cudaStream_t copies;  // uploads, concurrent with kernels
    Step *step;           // in device memory: see gpu_begin
    unsigned *counters;   // in device memory: see gpu_counters
    void *scratch;        // grows on demand, lives as long as the device
    size_t scratch_bytes; // of `scratch`
    Staging staging[STAGINGS];
    uint64_t uploads;  // so far
    cudaEvent_t *mark; // (marks), owned; NULL before the first
    int marks;
    struct Transport *transport; // of several ranks; NULL: one rank
    char *next; // in a dry run: the next address to hand out; NULL: a real
                // device
};

/* True if `e` is no error; else the reason: the operation `what`, CUDA's text,
 * and advice. */
bool gpu_good(cudaError_t e, const char *what);
/* Allocates device memory, not cleared; false with the number of free bytes. If
 * memory is short it frees unused staging buffers except `but`. */
bool gpu_memory(Gpu *g, const Staging *but, size_t bytes, void **out);
/* Does a GPU of this compute capability, 90 for 9.0, run Hopper's kernels? See
 * gpu_is_hopper. */
bool gpu_runs_hopper(int capability);
/* In overlap_sm90.cu: sets launches_overlap of gpu.h, for a GPU that runs
 * Hopper's kernels. SEG_OVERLAP=0 in the environment clears it. */
void gpu_try_overlap(cudaStream_t stream);
/* Is the device a dry run? Then no function of CUDA may be called. */
bool gpu_dry_runs(void *dev);
/* Frees all staging buffers of transfer.cu that no copy uses, except `but`.
 * Returns whether there was one. */
bool gpu_trim(Gpu *g, const Staging *but);
/* Free the objects of transfer.cu and cuda_graph.cu in a device. */
void gpu_drop_staging(Gpu *g);
void gpu_drop_marks(Gpu *g);
/* As gpu_drop_marks, for allreduce.cu. */
void gpu_allreduce_close(Gpu *g);
#endif
