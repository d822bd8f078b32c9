/* cuda.h -- the functions that the files of the `cuda` backend share.
 *
 * Kernels and copies are queued on one stream in the order of the calls; they
 * are complete when a copy to the host or gpu_sync returns. A launcher returns
 * false with the reason if its kernel does not start; an error during its run
 * is reported by the next call that waits. */
#ifndef SEG_CUDA_LIB_CUDA_H
#define SEG_CUDA_LIB_CUDA_H
#include "engine/backend/batch_gather.h"
#include "engine/backend/device_step.h"
#include "engine/backend/fusions.h"

struct Ranks;
struct Allreduce; /* backend.h */
struct LaunchLog; /* launch_log.h */

/* The stream of a device (Call.dev) that kernels are queued on. */
struct CUstream_st *gpu_stream(void *dev);
/* Makes `dev` the current device of this thread, for calls without a stream. */
bool gpu_use(void *dev);
/* The number of multiprocessors, which is the number of blocks that can wait
 * for each other; for a dry run 128, the most that any caller asks for. */
int gpu_processors(void *dev);
/* The limits of kernels on the target GPU (Backend.target), by its compute
 * capability: gpu_limits.cu has a row for each capability from which on a limit
 * changes. */
typedef struct GpuLimits {
    int capability;      /* the least of the row, 75 for 7.5 */
    int shared;          /* bytes of shared memory that a block may have, static
                          * and dynamic */
    int shared_of_two;   /* bytes with which two blocks fit a multiprocessor */
    int copy_stages;     /* as copy_stages() of ptx.cuh */
    unsigned precisions; /* bit p: it multiplies in Precision p */
} GpuLimits;
const GpuLimits *gpu_limits(void);
/* The least compute capability that the kernels run on, 75 for 7.5. */
int gpu_least_capability(void);
/* Are the kernels with Hopper's own instructions (sm_90a) used? Only if the
 * program has their code and the target GPU has compute capability 9.0.
 * SEG_HOPPER=0 in the environment leaves them out. */
bool gpu_is_hopper(void);
/* The state of one run of a plan (Step of op.h) in device memory. */
Step *gpu_step(void *dev);
/* `count` counters in device memory for last_block (ptx.cuh). They are 0 before
 * and after each launch; as launches of one stream run one after the other, all
 * launches share the same counters. */
enum { GPU_COUNTERS = 4096 };
unsigned *gpu_counters(void *dev, int64_t count);
/* At least `bytes` of device memory for work that has no Call; valid until the
 * next call. NULL with the reason. */
void *gpu_scratch(void *dev, size_t bytes);
/* Returns whether the last launch started; `kernel` names it in the reason. */
bool gpu_launched(const char *kernel);

/* Functions of backend.h in device.cu, transfer.cu and cuda_graph.cu. */
bool gpu_open(int device, int threads, void **dev);
bool gpu_dry_run(void **dev);
void gpu_target(int device, int capability);
const char *gpu_lacks(Precision p);
void gpu_close(void *dev);
int gpu_threads(int wanted);
bool gpu_alloc(void *dev, size_t bytes, void **out);
void gpu_release(void *dev, void *p);
bool gpu_upload(void *dev, void *dst, const void *host, size_t bytes);
bool gpu_upload_narrow(void *dev, const Tensor *to, const float *host);
size_t gpu_staging(size_t bytes);
bool gpu_download(void *dev, void *host, const void *src, size_t bytes);
bool gpu_sync(void *dev);
bool gpu_begin(void *dev, const Step *step);
bool gpu_copy(void *dev, void *dst, const void *src, size_t bytes);
bool gpu_room(void *dev, size_t *bytes);
bool gpu_capture(void *dev);
bool gpu_instantiate(void *dev, void **graph);
bool gpu_launch_graph(void *dev, void *graph);
void gpu_destroy_graph(void *dev, void *graph);
bool gpu_mark(void *dev, int i);
bool gpu_elapsed(void *dev, int i, double *ms);
bool gpu_time_launches(void *dev);
bool gpu_launch_times(void *dev, struct LaunchLog *log);

/* In allreduce.cu. */
bool gpu_allreduce_open(void *dev, struct Ranks *r, const char *how,
                        struct Allreduce *out);
bool gpu_allreduce(void *dev, void *v, Dtype type, int64_t count, double by);

/* In device_step.cu and optim.cu. */
extern const DeviceStep cuda_device_step;
bool cuda_update(void *dev, const Update *u);
bool cuda_blend(void *dev, void *y, const void *x, int64_t count, double by);
bool cuda_sum_squares(void *dev, const void *x, int64_t count, double *out);

/* In dispatch.cu: answers to the planner for conv, upconv and linear. */
Fusions cuda_conv_fusions(const Call *c);
unsigned cuda_conv_copies(const Call *c); /* Storage.copies */
int cuda_conv_tile(const Call *c);        /* Schedule.tile  */
/* In convert.cu. */
bool cuda_convert(const Call *c);
bool cuda_program(const Call *c); /* Backend.program */
/* In pool_max.cu and dropout.cu. */
bool cuda_maxpool_sums_grads(const Call *c);
bool cuda_spatial_dropout_sums_grads(const Call *c);
/* In device_dataset.cu. */
bool cuda_gather(void *dev, const Gather *g);

/* "NVIDIA H200, 139.8 GiB, compute capability 9.0, driver 13.0" */
bool gpu_describe(int device, char text[]); /* BACKEND_TEXT bytes */
/* The PCI address as the driver prints it: "0000:0b:00.0". */
bool gpu_address(void *dev, char text[]); /* BACKEND_ADDRESS bytes */
#endif
