/* backend.h -- a place where tensors live and operators run.
 *
 * Three of them: `ref` (plain loops in double, the judge), `cpu` (float,
 * threads, SIMD) and `cuda`. Nothing above this vtable knows which one it
 * talks to, except that `real` is the type of every tensor it is given. */
#ifndef SEG_ENGINE_BACKEND_BACKEND_H
#define SEG_ENGINE_BACKEND_BACKEND_H
#include "engine/backend/device_step.h"
#include "engine/base/trace.h"
#include "engine/graph/op.h"

/* Memory of a device is only ever touched through these functions; addresses
 * into it may be computed (base + offset) but not followed. Each of them that
 * returns bool gives a reason with false, and a call after that is allowed. */
enum { BACKEND_TEXT = 320, BACKEND_ADDRESS = 32 };

struct Gather; /* of batch_gather.h, for those who have data sets */
struct Ranks;

/* What carries sums over ranks from device to device. */
typedef struct Carry {
    bool queues;             /* a join only queues, and may be recorded */
    char text[BACKEND_TEXT]; /* "NCCL 2.21.5"; where it could be another, why
                              * it is not */
} Carry;

typedef struct Backend {
    const char *name;    /* "ref", "cpu", "cuda" */
    Dtype real;          /* F64 or F32           */
    unsigned precisions; /* bit p: its products in Precision p */
    /* What it is, for people: name, memory, driver. NULL: nothing to tell. */
    bool (*describe)(int device, char text[BACKEND_TEXT]);
    /* threads <= 0: the default of this machine. */
    bool (*open)(int device, int threads, void **dev);
    /* Instead of open: a device that is not there. Nothing runs on it, what it
     * is told to do goes to this thread's LaunchLog, downloads give zeros and
     * its room has no end. One a thread at a time. NULL: this backend launches
     * nothing. */
    bool (*dry_run)(void **dev);
    void (*close)(void *dev);   /* all of its memory was released before */
    int (*threads)(int wanted); /* how many open() would give */
    bool (*alloc)(void *dev, size_t bytes, void **out); /* 64-aligned, zero */
    void (*release)(void *dev, void *p);                /* NULL is fine */
    bool (*upload)(void *dev, void *dst, const void *host, size_t bytes);
    /* `to`, of BF16 or F16, = as many numbers of the host in its order, rounded
     * as `convert` does. NULL where nothing is narrow. */
    bool (*upload_narrow)(void *dev, const Tensor *to, const float *host);
    bool (*download)(void *dev, void *host, const void *src, size_t bytes);
    /* tensor_from_user and tensor_to_user of t, which is on the device. NULL:
     * its memory is not the program's, so these and a copy are wanted. */
    void (*from_user)(void *dev, const float *user, const Tensor *t);
    void (*to_user)(void *dev, const Tensor *t, float *user);
    bool (*sync)(void *dev); /* wait; report any asynchronous failure */
    /* Calls from here on see this step. NULL: they follow Call.step. */
    bool (*begin)(void *dev, const Step *step);
    KernelFn *fwd[OP_COUNT], *bwd[OP_COUNT]; /* bwd NULL: no gradient */
    SpaceFn *space[OP_COUNT];                /* NULL: wants none */
    /* Does a part of this call, forward or backward, run by an algorithm whose
     * error is not that of its sum but a small share of the largest result
     * (Winograd, docs/numerics.md)? Never with Call.no_winograd. Extents,
     * attributes and y or dy are set. NULL: no call does. */
    bool (*approximate)(const Call *c);
    /* The name of tile `number`, from 1 on, of those that Call.tile may ask
     * for; NULL behind the last. NULL: there is no choice. */
    const char *(*tile)(int number);
    /* The one that the last call of this thread took, of those since this was
     * asked; < 1: none. */
    int (*tile_taken)(void);
    /* Does it run c->norm and c->then, those that are there, in the store of
     * this row, and back through `then`? With the bits of all of them apart.
     * Of a lazy call: does it leave them to who reads y?
     * Attributes and extents are set; dy, too, where there will be a backward
     * run. NULL: never. */
    bool (*fuses)(const Call *c);
    /* Does it read x[X2], and write dx[X2], where they are, with the
     * bits of a concat before this row? As above; dx is set (non-NULL) of what
     * may want a gradient, but for its type. NULL: never. */
    bool (*fuses_concat)(const Call *c);
    /* Which operands a call, forward and back, reads through a lens: bit k of
     * x[k]. Values are those of rows apart but for rounding. Extents, types
     * and attributes are set; dy, too, where there will be a backward run.
     * NULL: of no call any. */
    unsigned (*loads_deferred)(const Call *c);
    /* Which gradients a backward call can sum as it stores them: bit k of
     * total[k]. It may be the last of several that add to one. Extents, types,
     * attributes, lenses, dy and dx (non-NULL: wanted) are set. NULL: of no
     * call any. */
    unsigned (*sums_grads)(const Call *c);
    /* How many sums of squares of dx[k] a backward call can leave as it stores
     * the last of it, in a number that depends on extents only; 0: none. As
     * above. NULL: none of any. */
    int32_t (*sqnorm_parts)(const Call *c, int k);
    /* Samples that a forward call is best given at a time, where what it reads
     * and writes would else be in memory by the time the next call wants it;
     * its batch or more: all at once. Their results have the same bits either
     * way. Extents, attributes and y are set. NULL: all, always. */
    int32_t (*microbatch)(const Call *c);
    /* In a plan whose precision has copies in 16 bits (precision_copy): which
     * tensors of a call it takes in that type instead of `real`; bit k: x[k]
     * and dx[k], NARROW_Y: y and dy. Of a row that multiplies each by itself,
     * of others all of these or none. NARROW_ALONE: it stores y so of operands
     * of `real`, too, in any number of channels; no way back. Extents and
     * attributes are set. NULL: of no call any. */
    unsigned (*narrow)(const Call *c);
    /* Copies in 16 bits that a call whose precision has them reads: bit k of
     * x[k], HALF_DY of dy. Extents, attributes, dy and dx (non-NULL: wanted)
     * are set. Neither NULL where such a precision is had. */
    unsigned (*half)(const Call *c);
    /* y = x[0], of F32, rounded to the nearest number of y's type, BF16 or
     * F16: ties to even, what is too large becomes infinite, NaN stays. attr
     * is NULL. */
    KernelFn *convert;
    bool (*update)(void *dev, const Update *u);
    /* y[i] += by (x[i] - y[i]) for `count` reals; queued. */
    bool (*blend)(void *dev, void *y, const void *x, int64_t count, double by);
    /* out = sum of x[i]^2 over `count` reals, summed in double in an order
     * that depends on count only. */
    bool (*sum_squares)(void *dev, const void *x, int64_t count, double *out);
    /* dst = src, both on the device; queued. */
    bool (*copy)(void *dev, void *dst, const void *src, size_t bytes);
    /* Bytes that alloc could still give. NULL: as much as the machine has. */
    bool (*room)(void *dev, size_t *bytes);
    /* See batch_gather.h; queued. NULL: data sets stay with the loader. */
    bool (*gather)(void *dev, const struct Gather *g);

    /* Joins are over these ranks from now on, carried by `how`: "nccl", "host"
     * or "auto", the better that all have. Of all ranks at once; ERR_USAGE or
     * ERR_DEVICE with what to install or say. NULL: values of this backend lie
     * where ranks_sum_values can add them. */
    bool (*carry)(void *dev, struct Ranks *r, const char *how, Carry *out);
    /* v[i] = by * the sum of v[i] over all ranks, `count` of F32 or F64, on the
     * device, the same bits at all ranks; queued behind what is. */
    bool (*join)(void *dev, void *v, Dtype type, int64_t count, double by);

    /* The rest is of a device that only queues what it is told; NULL where a
     * call has run when it returns. A device_step keeps copies of parameters,
     * too: params_copied. */
    const DeviceStep *device_step;
    /* CUDA graphs. Work queued after `capture` does not run; `instantiate`
     * makes a graph of it (NULL: discards it), which `launch` runs any number
     * of times in one call. Its addresses must stay valid for as long. */
    bool (*capture)(void *dev);
    bool (*instantiate)(void *dev, void **graph);
    bool (*launch)(void *dev, void *graph);
    void (*destroy)(void *dev, void *graph); /* NULL is fine */
    /* Note when all that is queued has run, as mark i (from 0, without gaps).
     * Then, once all is done, the milliseconds between marks i and i + 1. */
    bool (*mark)(void *dev, int i);
    bool (*elapsed)(void *dev, int i, double *ms);
    /* From now on note in `t` (NULL: nowhere) when the device's own threads
     * work. NULL: it has none of this process. */
    void (*trace)(void *dev, Trace *t);
    /* Where the device is on its bus, "0000:0b:00.0". NULL: on none. */
    bool (*address)(void *dev, char text[BACKEND_ADDRESS]);
} Backend;

extern const Backend backend_ref, backend_cpu;
/* The plain loops of `ref` in float, for check/condition.h; no device text
 * names it. */
extern const Backend backend_plain;

/* The backend of a device text: "ref", "cpu", "cuda", "cuda:1", "auto" (the
 * best there is; `why` then says why not a better one, "" when it is).
 * ERR_USAGE for an unknown text, ERR_DEVICE for one that is not there. */
bool backend_find(const char *text, const Backend **be, int *device,
                  char why[ERR_MAX]);
/* Open the device that was found for `text`, which a failure names. */
bool backend_open(const Backend *be, const char *text, int device, int threads,
                  void **dev);

/* Has it this precision? ERR_USAGE with what it has and what to do. */
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
