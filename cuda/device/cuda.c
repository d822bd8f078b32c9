/* cuda.c -- the backend `cuda`: its table of kernels and device functions.
 *
 * ops.def lists the operators, as for cpu/cpu.c; an operator without its
 * launchers does not link. */
#define KERNEL_gpu(f) f /* operators whose sums need scratch memory here */
#include "cuda/lib/cuda.h"
#include "cuda/conv/igemm_tile_choice.h"
#include "engine/backend/backend.h"

#define OP(name, ...)                         \
    Space cuda_##name##_space(const Call *c); \
    bool cuda_##name##_fwd(const Call *c);    \
    bool cuda_##name##_bwd(const Call *c);
#include "engine/graph/ops.def"

/* Would a vector of four channels cross a group of the norm? Only norm_layer.cu
 * works by groups, on samples of one position. */
static bool vecs_cross(const Call *c)
{
    const Tensor *x = c->x[0];
    if (!x || positions(x->dim) > 1) return false;
    return call_op(c) == OP_instance_norm ||
           x->dim.c / c->attr->group_norm.groups % 4 != 0;
}

/* The tensors that a kernel takes in 16 bits: Storage.narrow. Operators that
 * move or scale elements are bound by memory, so half the bytes take half the
 * time. Losses, softmax, attention and the LSTM keep f32: their operands are
 * few, and sums and exponentials need the digits. */
static unsigned narrow(const Call *c)
{
    const unsigned pair = 1 | NARROW_Y; // operand 0 and the result
    const unsigned all = (1u << MAX_IN) - 1;
    if (c->program) return all | NARROW_Y;

    switch (call_op(c)) {
    case OP_conv: // and the second input of an implicit concat
    case OP_upconv:
        return pair | 1u << X2;
    case OP_linear:
    case OP_relu:
    case OP_leaky_relu:
    case OP_sigmoid:
    case OP_tanh:
    case OP_gelu:
    case OP_silu:
    case OP_scale:
    case OP_batch_norm:
    case OP_layer_norm:
    case OP_maxpool:
    case OP_avgpool:
    case OP_upsample_nearest:
    case OP_upsample_linear:
    case OP_pad:
    case OP_flatten:
    case OP_reshape:
    case OP_permute:
    case OP_flip:
    case OP_roll:
    case OP_repeats:
    case OP_dropout:
    case OP_spatial_dropout:
    case OP_global_avgpool:
    case OP_global_maxpool:
    case OP_last_step:
    case OP_mask_length:
#define UNARY(name, ...)      case OP_##name:
#define UNARY_STEP(name, ...) case OP_##name:
#include "engine/graph/elementwise.def"
        return pair;
    case OP_concat:
        return all | NARROW_Y | NARROW_ALONE;
    case OP_add:
    case OP_sub:
    case OP_mul:
    case OP_div:
#define BINARY(name, ...)      case OP_##name:
#define BINARY_STEP(name, ...) case OP_##name:
#include "engine/graph/elementwise.def"
        return 1 | 2 | NARROW_Y;
    case OP_slice: // vectors begin at a multiple of 4 channels of the operand
        return c->attr->slice.c0 % 4 ? 0 : pair;
    case OP_instance_norm:
    case OP_group_norm:
        return vecs_cross(c) ? 0 : pair;
    case OP_softmax:
    case OP_attention:
    case OP_lstm:
    case OP_bce:
    case OP_bce_dice:
    case OP_dice_loss:
    case OP_dvh_loss:
    case OP_cross_entropy:
    case OP_focal:
    case OP_tversky:
    case OP_mae:
    case OP_mse:
    case OP_huber:
    case OP_overlap:
    case OP_constant:
    case OP_sum: // its y may have channels that are no multiple of 4
    case OP_amax:
    case OP_cumsum:
    case OP_matmul:
    case OP_argsort: // numbers of elements need more digits
    case OP_argmax:
    case OP_gather:
    case OP_one_hot:
    case OP_embedding:
    case OP_normal: // the same bits on every device
    case OP_uniform:
    case OP_mean:
    case OP_COUNT:
        return 0;
    } // no default: the compiler names an operator without a case
    return 0;
}

static Storage storage(const Call *c)
{
    return (Storage){.narrow = narrow(c),
                     .copies =
                         op_multiplies(call_op(c)) ? cuda_conv_copies(c) : 0};
}

/* The operators with an activation epilogue, which take dy back through the
 * activation on load. */
static bool fuses_epilogue(const Call *c)
{
    const int act = c->act ? c->act->op : OP_relu;
    if (c->norm.attr || (act != OP_relu && act != OP_leaky_relu)) return false;

    switch (call_op(c)) {
    case OP_avgpool:
    case OP_batch_norm:
    case OP_dropout:
    case OP_spatial_dropout:
        return true;
    case OP_instance_norm:
    case OP_group_norm: // norm_layer.cu, for samples of one position, has none
        return positions(c->x[0]->dim) > 1;
    default:
        return false;
    }
}

/* The operands that may have a deferred norm. */
static unsigned takes_x_norm(const Call *c)
{
    switch (call_op(c)) {
    case OP_maxpool:
    case OP_avgpool:
    case OP_spatial_dropout:
        return 1;
    case OP_concat:
        return (1u << MAX_IN) - 1;
    default:
        return 0;
    }
}

static Fusions fusions(const Call *c)
{
    if (op_multiplies(call_op(c))) return cuda_conv_fusions(c);
    Fusions f = {.epilogue = fuses_epilogue(c), .x_norm = takes_x_norm(c)};
    if (c->dy && call_op(c) == OP_maxpool) f.sums = cuda_maxpool_sums_grads(c);
    if (c->dy && call_op(c) == OP_spatial_dropout)
        f.sums = cuda_spatial_dropout_sums_grads(c);
    return f;
}

/* Two LSTMs of equal extents run their steps together (ops/lstm.cu). */
static bool pairs(const Call *a, const Call *b)
{
    return call_op(a) == OP_lstm && dims_equal(a->y->dim, b->y->dim);
}

static Schedule schedule(const Call *c)
{
    return (Schedule){.tile =
                          op_multiplies(call_op(c)) ? cuda_conv_tile(c) : 0};
}

extern const Backend backend_cuda;
const Backend backend_cuda = {
    .name = "cuda",
    .real = F32,
    .precisions = (1u << PRECISION_COUNT) - 1,
    .target = gpu_target,
    .lacks = gpu_lacks,
    .describe = gpu_describe,
    .open = gpu_open,
    .dry_run = gpu_dry_run,
    .close = gpu_close,
    .threads = gpu_threads,
    .alloc = gpu_alloc,
    .release = gpu_release,
    .upload = gpu_upload,
    .upload_narrow = gpu_upload_narrow,
    .staging = gpu_staging,
    .download = gpu_download,
    .sync = gpu_sync,
    .begin = gpu_begin,
    .update = cuda_update,
    .blend = cuda_blend,
    .sum_squares = cuda_sum_squares,
    .fusions = fusions,
    .storage = storage,
    .schedule = schedule,
    .pairs = pairs,
    .tile = igemm_tile_listed,
    .convert = cuda_convert,
    .program = cuda_program,
    .allreduce_open = gpu_allreduce_open,
    .allreduce = gpu_allreduce,
    .device_step = &cuda_device_step,
    .capture = gpu_capture,
    .instantiate = gpu_instantiate,
    .launch = gpu_launch_graph,
    .destroy = gpu_destroy_graph,
    .mark = gpu_mark,
    .time_launches = gpu_time_launches,
    .launch_times = gpu_launch_times,
    .elapsed = gpu_elapsed,
    .copy = gpu_copy,
    .room = gpu_room,
    .address = gpu_address,
    .gather = cuda_gather,
#define OP(name, in, shape, grad, keep, sp, ...) KERNELS(cuda, name, grad, sp)
#include "engine/graph/ops.def"
};
