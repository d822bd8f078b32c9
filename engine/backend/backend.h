/* backend.h -- a device: the memory of tensors and the kernels of operators.
 *
 * Three backends: `ref` (plain loops in double, the reference), `cpu` (float,
 * threads, SIMD) and `cuda`. The code above this table of functions does not
 * know which one it uses, except for `real`, the type of every tensor. */
#ifndef SEG_ENGINE_BACKEND_BACKEND_H
#define SEG_ENGINE_BACKEND_BACKEND_H
#include "engine/backend/device_step.h"
#include "engine/backend/fusions.h"
#include "engine/base/trace.h"
#include "engine/graph/op.h"

/* Only these functions read or write the memory of a device; the program
 * computes addresses (base + offset) but does not dereference an address. A
 * function that returns false sets an error text; further calls are allowed. */
enum { BACKEND_TEXT = 320, BACKEND_ADDRESS = 32 };

struct Gather; /* batch_gather.h */
struct Ranks;
struct LaunchLog; /* launch_log.h */

/* The transport of the all-reduce between the devices of the ranks. */
typedef struct Allreduce {
    bool queues;             /* an all-reduce is queued, and may be captured */
    char text[BACKEND_TEXT]; /* "NCCL 2.21.5", or the host and why not NCCL  */
} Allreduce;

typedef struct Backend {
    const char *name;    /* "ref", "cpu", "cuda" */
    Dtype real;          /* F64 or F32           */
    unsigned precisions; /* bit p: it multiplies in Precision p */
    /* Sets the target: the device for which calls are planned from here on. A
     * compute capability, 90 for 9.0, stands for a GPU that need not be
     * present; 0: device number `device`, or a GPU of 8.0 if it cannot be
     * queried. open() sets the target, too. NULL: all devices are alike. */
    void (*target)(int device, int capability);
    /* Why the target lacks p, one of `precisions`, and what to use; NULL: it
     * does not. A NULL function: it has all. */
    const char *(*lacks)(Precision p);
    /* Name, memory and driver of the device as text, with all on which its
     * results depend. NULL: none. */
    bool (*describe)(int device, char text[BACKEND_TEXT]);
    /* threads <= 0: the default of this machine. */
    bool (*open)(int device, int threads, void **dev);
    /* Opens a dry-run device, the target, which need not be present. No kernel
     * runs on it: launches are added to this thread's LaunchLog, downloads give
     * zeros, memory is unlimited. One per thread at a time. NULL: the backend
     * has no launches. */
    bool (*dry_run)(void **dev);
    void (*close)(void *dev);   /* after all of its memory was released */
    int (*threads)(int wanted); /* how many open() would give */
    bool (*alloc)(void *dev, size_t bytes, void **out); /* 64-aligned, zero */
    void (*release)(void *dev, void *p);                /* NULL is fine */
    bool (*upload)(void *dev, void *dst, const void *host, size_t bytes);
    /* `to`, of BF16 or F16, = numbers of the host in the same order, rounded as
     * `convert` rounds. NULL: the backend stores nothing in 16 bits. */
    bool (*upload_narrow)(void *dev, const Tensor *to, const float *host);
    /* The bytes of device memory of the buffers through which an upload of
     * `bytes` passes on a device that waits for nothing else; they are kept for
     * later uploads. NULL: there are none. */
    size_t (*staging)(size_t bytes);
    bool (*download)(void *dev, void *host, const void *src, size_t bytes);
    /* tensor_from_user and tensor_to_user for a tensor on the device. NULL: the
     * program cannot address that memory; convert on the host and copy. */
    void (*from_user)(void *dev, const float *user, const Tensor *t);
    void (*to_user)(void *dev, const Tensor *t, float *user);
    bool (*sync)(void *dev); /* wait; report asynchronous failures */
    /* Later calls use this Step. NULL: they use Call.step. */
    bool (*begin)(void *dev, const Step *step);
    KernelFn *fwd[OP_COUNT], *bwd[OP_COUNT]; /* bwd NULL: no gradient */
    SpaceFn *space[OP_COUNT];                /* NULL: no memory */
    /* Runs the forward or, with dy, the backward code of c->program, without
     * scratch memory. NULL: each elementwise operator is a call. */
    KernelFn *program;

    /* Questions of the planner about a call with attributes, extents and types;
     * dy is non-NULL when there is a backward pass, dx[i] when that gradient is
     * computed. A NULL function answers with zeros. */

    Fusions (*fusions)(const Call *c);
    Storage (*storage)(const Call *c);
    Schedule (*schedule)(const Call *c);
    /* Can call `a` run call `b` in its own launch (Call.pair)? Both are forward
     * or both backward calls of one operator, and neither uses a result of the
     * other. Not with micro-batches. A NULL function: no. */
    bool (*pairs)(const Call *a, const Call *b);
    /* The name of tile `number` >= 1 that Call.tile may request; NULL after the
     * last. A NULL function: there is one tile. */
    const char *(*tile)(int number);
    /* y = x[0], of F32, rounded to y's type, BF16 or F16: to nearest, ties to
     * even; overflow becomes infinity, NaN stays NaN. attr is NULL. */
    KernelFn *convert;
    bool (*update)(void *dev, const Update *u);
    /* y[i] += by (x[i] - y[i]) for `count` reals; queued. */
    bool (*blend)(void *dev, void *y, const void *x, int64_t count, double by);
    /* out = sum of x[i]^2 over `count` reals, summed in double in an order
     * that depends on count only. */
    bool (*sum_squares)(void *dev, const void *x, int64_t count, double *out);
    /* dst = src, both on the device; queued. */
    bool (*copy)(void *dev, void *dst, const void *src, size_t bytes);
    /* Bytes that alloc can still provide. NULL: the host's memory. */
    bool (*room)(void *dev, size_t *bytes);
    /* See batch_gather.h; queued. NULL: the loader makes all batches. */
    bool (*gather)(void *dev, const struct Gather *g);

    /* Open the all-reduce over these ranks by `how`: "nccl", "host" or "auto",
     * the faster one that all ranks have. All ranks call it. ERR_USAGE or
     * ERR_DEVICE with the package to install or the option to give. NULL:
     * ranks_sum_values can add values in this backend's memory directly. */
    bool (*allreduce_open)(void *dev, struct Ranks *r, const char *how,
                           Allreduce *out);
    /* v[i] = by * the sum of v[i] over all ranks, for `count` numbers of F32 or
     * F64 on the device; the same bits at all ranks; queued. */
    bool (*allreduce)(void *dev, void *v, Dtype type, int64_t count, double by);

    /* The rest is for devices that queue their work; NULL where a call has run
     * when it returns. A device step also updates the copies of parameters in
     * 16 bits: params_copied. */
    const DeviceStep *device_step;
    /* CUDA graphs. Work queued after `capture` does not run; `instantiate`
     * makes a graph of it (NULL: discards it), which `launch` runs any number
     * of times in one call. Its addresses must stay valid for as long. */
    bool (*capture)(void *dev);
    bool (*instantiate)(void *dev, void **graph);
    bool (*launch)(void *dev, void *graph);
    void (*destroy)(void *dev, void *graph); /* NULL is fine */
    /* Queue event i, from 0 without gaps. `elapsed`, after all work is done:
     * the milliseconds between events i and i + 1. */
    bool (*mark)(void *dev, int i);
    bool (*elapsed)(void *dev, int i, double *ms);
    /* From here on each kernel and copy that this thread queues on `dev`, not
     * in a capture, is timed and added to the thread's LaunchLog.
     * `launch_times` ends that, waits for all work, and sets from_ms and to_ms
     * of these launches in `log`. NULL: the backend has no launches. */
    bool (*time_launches)(void *dev);
    bool (*launch_times)(void *dev, struct LaunchLog *log);
    /* Records the working times of the device's threads in `t`; NULL: stops
     * recording. A NULL function: the device has no threads in this process. */
    void (*trace)(void *dev, Trace *t);
    /* The PCI address of the device, "0000:0b:00.0". NULL: it has none. */
    bool (*address)(void *dev, char text[BACKEND_ADDRESS]);
} Backend;

extern const Backend backend_ref, backend_cpu;
/* The plain loops of `ref` in float, for check/condition.h; no device text
 * names it. */
extern const Backend backend_plain;

/* Finds the backend of a device text: "ref", "cpu", "cuda", "cuda:1"; "auto" is
 * chosen before (check/auto_device.h). ERR_USAGE for an unknown text,
 * ERR_DEVICE for a backend that this build lacks. */
bool backend_find(const char *text, const Backend **be, int *device);
/* Returns the backend with GPUs; NULL in a build without one. */
const Backend *backend_gpu(void);
/* The answers of a backend, zeros where it has no such function. */
Fusions backend_fusions(const Backend *be, const Call *c);
Storage backend_storage(const Backend *be, const Call *c);
Schedule backend_schedule(const Backend *be, const Call *c);

/* Opens the device found for `text`; an error text names it. */
bool backend_open(const Backend *be, const char *text, int device, int threads,
                  void **dev);

/* Backend.target, where the backend has it. */
void backend_target(const Backend *be, int device, int capability);
/* Returns whether the target has this precision. */
bool backend_has(const Backend *be, Precision p);
/* The same; if not: ERR_USAGE with the available precisions and a fix. */
bool backend_takes(const Backend *be, Precision p);

/* For tables made from ops.def: f where a column says yes, NULL where no;
 * `gpu` is yes for the cuda backend, which has a definition of its own. */
#define KERNEL_yes(f) f
#define KERNEL_no(f)  NULL
#ifndef KERNEL_gpu
#define KERNEL_gpu(f) NULL
#endif
/* The kernels of operator `name`, which are called `backend`_`name`_fwd, _bwd
 * and _space; grad and sp: its columns. */
#define KERNELS_OF(backend, name, grad, sp)                  \
    .fwd[OP_##name] = backend##_##name##_fwd,                \
    .bwd[OP_##name] = KERNEL_##grad(backend##_##name##_bwd), \
    .space[OP_##name] = KERNEL_##sp(backend##_##name##_space),
#define KERNELS(backend, name, grad, sp) KERNELS_OF(backend, name, grad, sp)
#endif
