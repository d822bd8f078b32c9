/* cuda.h -- the device behind the `cuda` backend, as its files see it.
 *
 * Calls are queued on one stream in the order they come; what they queue has
 * run when a copy to the host or a sync returns. A launcher returns false
 * with the reason when its kernel could not be started; a fault while it runs
 * is reported by the next call that waits. */
#ifndef SEG_CUDA_LIB_CUDA_H
#define SEG_CUDA_LIB_CUDA_H
#include "engine/backend/batch_gather.h"
#include "engine/backend/device_step.h"
#include "engine/graph/op.h"

struct Ranks;
struct Allreduce; /* of backend.h */

/* The stream of a device (Call.dev) that kernels are queued on. */
struct CUstream_st *gpu_stream(void *dev);
/* Calls of this thread that name no stream are for this device from here on. */
bool gpu_use(void *dev);
/* Its multiprocessors, which is how many blocks can wait for each other; 64,
 * the most that are asked for, of a device that is not there. */
int gpu_processors(void *dev);
/* On the device: what changes between two runs of a plan (see op.h). */
Step *gpu_step(void *dev);
/* On the device: words for last_block (ptx.cuh), `count` of which a launch
 * may use. They are 0 before each and behind it, as launches follow each other
 * on one stream: so all may have the same. */
enum { GPU_COUNTERS = 4096 };
unsigned *gpu_counters(void *dev, int64_t count);
/* Memory of the device itself, for what has no Call, of at least `bytes`;
 * lives until the next call. NULL with the reason. */
void *gpu_scratch(void *dev, size_t bytes);
/* Did the last launch start? `kernel` goes into the reason. */
bool gpu_launched(const char *kernel);

/* The functions of backend.h that device.cu, transfer.cu and cuda_graph.cu
 * have. */
bool gpu_open(int device, int threads, void **dev);
bool gpu_dry_run(void **dev);
void gpu_close(void *dev);
int gpu_threads(int wanted);
bool gpu_alloc(void *dev, size_t bytes, void **out);
void gpu_release(void *dev, void *p);
bool gpu_upload(void *dev, void *dst, const void *host, size_t bytes);
bool gpu_upload_narrow(void *dev, const Tensor *to, const float *host);
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

/* ... allreduce.cu. */
bool gpu_allreduce_open(void *dev, struct Ranks *r, const char *how,
                        struct Allreduce *out);
bool gpu_allreduce(void *dev, void *v, Dtype type, int64_t count, double by);

/* ... device_step.cu, and optim.cu. */
extern const DeviceStep cuda_device_step;
bool cuda_update(void *dev, const Update *u);
bool cuda_blend(void *dev, void *y, const void *x, int64_t count, double by);
bool cuda_sum_squares(void *dev, const void *x, int64_t count, double *out);

/* ... dispatch.cu and convert.cu. */
unsigned cuda_half(const Call *c);
bool cuda_fuses_concat(const Call *c);
unsigned cuda_loads_deferred(const Call *c);
unsigned cuda_sums_grads(const Call *c);
int32_t cuda_sqnorm_parts(const Call *c, int k);
bool cuda_convert(const Call *c);
/* ... pool.cu and dropout.cu. */
bool cuda_maxpool_sums_grads(const Call *c);
bool cuda_spatial_dropout_sums_grads(const Call *c);
/* ... and device_dataset.cu. */
bool cuda_gather(void *dev, const Gather *g);

/* "NVIDIA H200, 139.8 GiB, compute capability 9.0, driver 13.0" */
bool gpu_describe(int device, char text[]); /* BACKEND_TEXT bytes */
/* As the driver calls it: "0000:0b:00.0". */
bool gpu_address(void *dev, char text[]); /* BACKEND_ADDRESS bytes */
#endif
