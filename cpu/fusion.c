/* fusion.c -- the operators that `cpu` fuses, and the calls that it splits into
 * micro-batches: see engine/backend/fusions.h.
 *
 * An activation is fused where it is bound by memory, so that one pass less
 * saves time: into a norm or a sum also in training; into a convolution only
 * without a backward run, because its gradients read dy more than once. */
#include "cpu/fusion.h"
#include "cpu/conv/bf16.h"
#include "cpu/conv/winograd.h"

/* No operand is broadcast; the plain loops do broadcasting. */
static bool is_even(const Call *c)
{
    return dims_equal(c->x[0]->dim, c->y->dim) &&
           dims_equal(c->x[1]->dim, c->y->dim);
}

/* Fusions.epilogue */
static bool fuses_epilogue(const Call *c)
{
    const int act = c->act ? c->act->op : OP_relu;
    if (act != OP_relu && act != OP_leaky_relu) return false;

    switch (call_op(c)) {
    case OP_batch_norm:
    case OP_instance_norm:
    case OP_group_norm:
        return !c->norm.attr;
    case OP_add:
        return !c->norm.attr && act == OP_relu && is_even(c);
    case OP_conv:
    case OP_linear:
        return !c->dy && op_window(c->attr, c->x[1]).groups == 1;
    default:
        return false;
    }
}

// Fusions.concat: the vectors of a Winograd tile are channels of one pixel, so
// the border between the two inputs falls between vectors; direct convolution
// reads rows of pixels as one long run
static bool fuses_concat(const Call *c)
{
    return c->x[X2] && call_op(c) == OP_conv && c->precision == PRECISION_f32 &&
           c->x[0]->dim.c % LANES_MAX == 0 && winograd_runs(c);
}

Fusions cpu_fusions(const Call *c)
{
    return (Fusions){.epilogue = fuses_epilogue(c), .concat = fuses_concat(c)};
}

// Schedule.microbatch, measured on the layers of a U-Net at batch 1, 2 and 4
// (docs/benchmarks.md): where weights are not small compared with samples,
// loading and transforming the weights once a micro-batch costs more than
// moving the samples to memory and back
static int32_t microbatch(const Call *c)
{
    // cores that share a cache; its bytes; minimum of samples / weights
    enum { CORES = 4, CACHE = 16 << 20, WEIGHTS = 24 };
    const Op op = call_op(c);
    const int64_t n = c->y->dim.n;
    const int64_t cache = CACHE * most(1, ceil_div(c->threads, CORES));
    int64_t bytes = (int64_t)tensor_bytes(c->y);
    for (int k = 0; k < MAX_IN; k++)
        if (c->x[k] && (c->program || op_by_sample(&op_info[op], k)))
            bytes +=
                (int64_t)tensor_bytes(c->half.x[k] ? c->half.x[k] : c->x[k]);
    const int64_t each = most(1, cache / (bytes / n + 1));
    const int64_t weights =
        op_multiplies(op) ? (int64_t)tensor_bytes(c->x[1]) : 0;
    const bool whole = bytes <= cache || each * (bytes / n) < WEIGHTS * weights;
    return (int32_t)(whole ? n : least(each, n));
}

Storage cpu_storage(const Call *c)
{
    return (Storage){.copies = bf16_copies(c)};
}

Schedule cpu_schedule(const Call *c)
{
    return (Schedule){.microbatch = microbatch(c),
                      .approximate = winograd_runs(c)};
}
