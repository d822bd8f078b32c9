/* cpu.c -- the backends `ref`, `plain` and `cpu`: host memory, a thread pool,
 * three tables of kernels.
 *
 * A device is a Pool. A call returns after its kernel has ended, so sync has
 * nothing to wait for. The tables come from the rows of ops.def; the `cpu`
 * column says whether `cpu` runs the plain loops in float or a fast kernel. */
#include "cpu/conv/bf16.h"
#include "cpu/conv/winograd.h"
#include "cpu/fusion.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"
#include "cpu/lib/thread_pool.h"
#include "cpu/lib/window.h"
#include "engine/backend/backend.h"
#include <string.h>

/* Backend.threads: the number of threads that open() takes for `wanted`; for <=
 * 0 a default for this machine. The planner sizes the scratch memory with this
 * number before open(), so open() must start exactly as many threads. */
static int host_threads(int wanted)
{
    int threads = wanted > 0 ? wanted : pool_default_threads();
    return threads < POOL_MAX ? threads : POOL_MAX;
}

/* `name`: of the backend, for the message. *dev is set on success only. */
static bool host_open(const char *name, int device, int threads, void **dev)
{
    Pool *p;
    if (device)
        return fail_device("there is no %s:%d: all cores are one device; "
                           "leave the number out and set --threads",
                           name, device);
    if (!pool_open(host_threads(threads), &p)) return false;
    *dev = p;
    return true;
}

static bool ref_open(int device, int threads, void **dev)
{
    return host_open("ref", device, threads, dev);
}

/* Refuses an invalid SEG_ISA here, where an error can be returned: simd()
 * itself cannot fail. The plain loops of ref do not use SEG_ISA. */
static bool cpu_open(int device, int threads, void **dev)
{
    return simd_check() && host_open("cpu", device, threads, dev);
}

static void host_close(void *dev)
{
    pool_close(dev);
}

/* A job that populates the pages of new memory by its threads (mem_touch): the
 * system places the pages near the cores of the threads, and two threads take
 * half the time. */
typedef struct Touch {
    char *at;
    size_t bytes;
} Touch;

enum {
    TOUCH_BYTES = 16 << 20, // bytes of a task; a multiple of any page
    COPY_BYTES = 1 << 18,   // .. of a task that copies or transposes
};

static void touch_task(void *ctx, int64_t task, int thread)
{
    const Touch *f = ctx;
    const size_t from = (size_t)task * TOUCH_BYTES, rest = f->bytes - from;
    (void)thread;
    // a page that two tasks share is touched at its first use
    mem_touch(f->at + from, rest < TOUCH_BYTES ? rest : TOUCH_BYTES);
}

static bool host_alloc(void *dev, size_t bytes, void **out)
{
    *out = mem_pages(bytes);
    if (!*out) return false;
    Touch f = {*out, bytes};
    pool_run(dev, (int64_t)((bytes + TOUCH_BYTES - 1) / TOUCH_BYTES),
             touch_task, &f);
    return true;
}

static void host_release(void *dev, void *p)
{
    (void)dev;
    mem_pages_free(p);
}

/* A copy of bytes. One core alone does not reach the bandwidth of the
 * memory. */
typedef struct Copy {
    char *to;
    const char *from;
    size_t bytes;
} Copy;

static void copy_task(void *ctx, int64_t task, int thread)
{
    const Copy *m = ctx;
    const size_t from = (size_t)task * COPY_BYTES, rest = m->bytes - from;
    (void)thread;
    memcpy(m->to + from, m->from + from, rest < COPY_BYTES ? rest : COPY_BYTES);
}

/* Device memory is host memory: upload, download and copy are one function. */
static bool host_copy(void *dev, void *dst, const void *src, size_t bytes)
{
    Copy m = {dst, src, bytes};
    pool_run(dev, (int64_t)((bytes + COPY_BYTES - 1) / COPY_BYTES), copy_task,
             &m);
    return true;
}

/* A tensor and an array in user order (channels first) that it is read from or
 * written to; a task converts a part of a sample. */
typedef struct Reorder {
    const Tensor *t;
    const float *from; // or NULL
    float *to;
    int64_t part, parts; // positions of a part, parts of a sample
} Reorder;

static void reorder_task(void *ctx, int64_t task, int thread)
{
    const Reorder *u = ctx;
    const int64_t n = task / u->parts, at = task % u->parts * u->part;
    const int64_t end = least(at + u->part, positions(u->t->dim));
    (void)thread;
    if (u->from)
        tensor_part_from_user(u->from, u->t, n, at, end);
    else
        tensor_part_to_user(u->t, u->to, n, at, end);
}

static void reorder(void *dev, Reorder u)
{
    const Dims s = u.t->dim;
    // with a thousand channels a task of COPY_BYTES bytes would have a few
    // positions; 64 are whole blocks of the transpose in tensor.c
    u.part = most(COPY_BYTES / (int64_t)sizeof(float) / s.c, 64);
    u.parts = ceil_div(positions(s), u.part);
    pool_run(dev, s.n * u.parts, reorder_task, &u);
}

static void host_from_user(void *dev, const float *user, const Tensor *t)
{
    reorder(dev, (Reorder){.t = t, .from = user});
}

static void host_to_user(void *dev, const Tensor *t, float *user)
{
    reorder(dev, (Reorder){.t = t, .to = user});
}

static bool host_sync(void *dev)
{
    (void)dev;
    return true;
}

/* Members that do not depend on the element type. */
static void host_trace(void *dev, Trace *t)
{
    pool_trace(dev, t);
}

#define HOST                                                                 \
    .close = host_close, .threads = host_threads, .alloc = host_alloc,       \
    .release = host_release, .upload = host_copy, .download = host_copy,     \
    .copy = host_copy, .from_user = host_from_user, .to_user = host_to_user, \
    .sync = host_sync, .trace = host_trace

const Backend backend_ref = {
    .name = "ref",
    .real = F64,
    .precisions = 1u << PRECISION_f32,
    .open = ref_open,
    HOST,
    .update = ref_update,
    .blend = ref_blend,
    .sum_squares = ref_sum_squares,
#define OP(name, in, shape, grad, keep, sp, ...) KERNELS(ref, name, grad, sp)
#include "engine/graph/ops.def"
};

const Backend backend_plain = {
    .name = "plain",
    .real = F32,
    .precisions = 1u << PRECISION_f32,
    .open = ref_open,
    HOST,
    .update = cpu_update,
    .blend = cpu_blend,
    .sum_squares = cpu_sum_squares,
#define OP(name, in, shape, grad, keep, sp, ...) KERNELS(plain, name, grad, sp)
#include "engine/graph/ops.def"
};

/* cpu/ref in float, or a kernel of cpu/ops or cpu/conv. */
#define PATH_plain plain
#define PATH_fast  cpu

const Backend backend_cpu = {
    .name = "cpu",
    .real = F32,
    .precisions = 1u << PRECISION_f32 | 1u << PRECISION_bf16,
    .open = cpu_open,
    HOST,
    .fusions = cpu_fusions,
    .storage = cpu_storage,
    .schedule = cpu_schedule,
    .update = cpu_update,
    .blend = cpu_blend,
    .sum_squares = cpu_sum_squares,
    .convert = cpu_convert,
    .program = cpu_program,
#define OP(name, in, shape, grad, keep, sp, flags, bound, row, ...) \
    KERNELS(PATH_##row, name, grad, sp)
#include "engine/graph/ops.def"
};
