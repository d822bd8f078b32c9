/* device.cuh -- what the files of the device share: device.cu finds and opens
 * it, transfer.cu copies, cuda_graph.cu records and takes times. */
#ifndef SEG_CUDA_DEVICE_DEVICE_H
#define SEG_CUDA_DEVICE_DEVICE_H
#include "cuda/lib/gpu.h"
extern "C" {
#include "cuda/lib/cuda.h"
#include "engine/backend/backend.h"
#include "engine/backend/launch_log.h"
}

/* A copy to the device on its way: host memory that the driver can read while
 * the program goes on, and its image on the device. */
struct Staging {
    void *host, *device; /* (bytes) each; NULL before the first use */
    size_t bytes;
    cudaEvent_t landed; /* on the copy stream: `device` holds it    */
    cudaEvent_t used;   /* on the stream: it was copied from there  */
    uint64_t since;     /* number of the upload that has it; 0: free */
};
/* The first of them are for small copies. */
enum { SMALL_STAGINGS = 32, STAGINGS = SMALL_STAGINGS + 16 };

struct Gpu {
    int number;
    cudaStream_t stream;  // all kernels, in the order of the calls
    cudaStream_t copies;  // copies to it, beside the kernels
    Step *step;           // on the device: see gpu_begin
    unsigned *words;      // on the device: see gpu_counters
    void *scratch;        // grows on demand, lives as long as the device
    size_t scratch_bytes; // of it
    Staging staging[STAGINGS];
    uint64_t uploads;  // so far
    cudaEvent_t *mark; // (marks), owned; NULL before the first
    int marks;
    struct Transport *transport; // of several ranks; NULL: alone
    char *next; // address of the next allocation on a device that is not there
                // (gpu_dry_run); NULL: it is
};

/* True when `e` is no error, else the reason: what was wanted, what CUDA said,
 * what to do. */
bool gpu_good(cudaError_t e, const char *what);
/* Memory of the device, not cleared; false with the bytes that are free. Takes
 * those of free places, except `but`, when there are no others. */
bool gpu_memory(Gpu *g, const Staging *but, size_t bytes, void **out);
/* Is it one that is not there? Then no call of CUDA may be made. */
bool gpu_dry_runs(void *dev);
/* Free all places of transfer.cu that no copy uses, except `but`; was there
 * one? */
bool gpu_trim(Gpu *g, const Staging *but);
/* Free what transfer.cu and cuda_graph.cu keep in a device. */
void gpu_drop_staging(Gpu *g);
void gpu_drop_marks(Gpu *g);
/* ... and allreduce.cu. */
void gpu_allreduce_close(Gpu *g);
#endif
