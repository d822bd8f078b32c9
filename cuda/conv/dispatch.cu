/* dispatch.cu -- conv, upconv and linear as correlations; see conv.cuh.
 *
 *     conv    y = gather(x), dx = spread(dy), dw = weights(x, dy)
 *     upconv  y = spread(x), dx = gather(dy), dw = weights(dy, x)
 *     linear  conv with a window of one
 *
 * In 16 bits the products take narrow operands as they are, and of others the
 * copies that the planner had made; db is a sum of dy itself. head.cu has
 * calls of few results, upconv_head_fwd.cu and upconv_head_bwd.cu upconvs of
 * such, first.cu and small_cin.cu make y of those of few channels, and
 * dgrad_wgrad.cu dx and dw of narrow layers that left their norm. */
#include "cuda/conv/dgrad_wgrad.cuh"
#include "cuda/conv/first.cuh"
#include "cuda/conv/head.cuh"
#include "cuda/conv/igemm_tile.cuh"
#include "cuda/conv/small_cin.cuh"
#include "cuda/conv/upconv_head.cuh"
#include "cuda/lib/col_reduce.cuh"

namespace {

/* upconv is conv with its two sides exchanged. */
bool is_upconv(const Call *c)
{
    return c->attr->op == OP_upconv;
}

/* What is multiplied for operand i, and for dy. */
const void *operand(const Call *c, int i)
{
    return c->half[i] ? c->half[i]->data : c->x[i]->data;
}

const void *dy_operand(const Call *c)
{
    return c->half_dy ? c->half_dy->data : c->dy->data;
}

/* The image is the wide side: conv's operand, upconv's result. */
ConvProblem conv_problem_of(const Call *c)
{
    Window g = op_window(c->attr, c->x[1]);
    return is_upconv(c) ? conv_problem(c, g, c->y->dim, call_image(c))
                        : conv_problem(c, g, call_image(c), c->y->dim);
}

/* db[c] = the sum of dy over rows, by the walk of col_reduce.cuh. */
struct Bias {
    const void *dy;
    float *db;
    double *parts;
    unsigned *counters;
    ColReduce cols;
    bool fresh;
};

/* A part of the rows: RUN of them in float, then on in double. */
template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK, 4) bias_kernel(const Bias p)
{
    const ColPosition s = col_position<V>(p.cols);
    const int64_t step = (int64_t)p.cols.deep * p.cols.channels;
    const Element<D> *at =
        (const Element<D> *)p.dy + s.from * p.cols.channels + s.c;
    double sum[1][V] = {};
    for (int64_t row = s.from; row < s.to; row += RUN * (int64_t)p.cols.deep) {
        float run[V] = {};
#pragma unroll
        for (int i = 0; i < RUN; i++, at += step) {
            // no break: the loads of a run are under way together
            if (row + i * (int64_t)p.cols.deep >= s.to) continue;
            const Vec<V> y = load<V, D>(at);
            for (int v = 0; v < V; v++) run[v] += y.v[v];
        }
        for (int v = 0; v < V; v++) sum[0][v] += (double)run[v];
    }
    const ColTotal all =
        col_grid_sums<1, V>(p.cols, s, sum, p.parts, p.counters);
    if (!all.sum) return;
    for (int i = (int)threadIdx.x; i < all.count; i += BLOCK)
        put(&p.db[all.first + i], (float)all.sum[i], p.fresh);
}

/* All rows are one set: a bias is shared by the samples. */
ColReduce bias_cols(Dims s)
{
    return col_reduce_of(1, rows(s), s.c, vec_width(s.c));
}

} // namespace

size_t conv_bias_grad_bytes(Dims dy)
{
    return col_reduce_bytes(bias_cols(dy), 1, 1);
}

bool conv_bias_grad(const Call *c, const Tensor *dy, float *db, bool fresh)
{
    const Dims s = dy->dim;
    moves(moved(dy));
    Bias p = {dy->data, db, (double *)c->scratch, NULL, bias_cols(s), fresh};
    p.counters = gpu_counters(c->dev, col_reduce_counters(p.cols, 1));
    LAUNCH_STORED(dy->type, vec_width(s.c), bias_kernel, p.cols.blocks, c, p);
    return gpu_launched("bias");
}

namespace {

size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Parts of the sums that a lazy call measures as it stores y; 0: after. */
int stat_parts(const Call *c, const ConvProblem &r)
{
    if (c->recomputed) return 0;
    return conv_first_takes(&r)  ? conv_first_sum_parts(&r)
           : small_cin_takes(&r) ? small_cin_sum_parts(&r)
                                 : conv_sum_parts(&r, is_upconv(c), false);
}

/* The first channel of what stands beside operand 0; 0: nothing does. */
int concat_border(const Call *c)
{
    return c->x[X2] ? c->x[0]->dim.c : 0;
}

/* Are dx and dw of a lazy call made at once? db would want dy stored. */
bool is_dgrad_wgrad(const Call *c, const ConvProblem &r)
{
    bool data = false, narrow = true;
    for (int k = 0; k < MAX_IN; k++)
        if ((k == 0 || k == X2) && c->dx[k])
            data = true, narrow = narrow && dtype_bytes(c->dx[k]->type) == 2;
    return c->deferred && c->dy && data && narrow && c->dx[1] && !c->dx[2] &&
           !is_upconv(c) && dgrad_wgrad_takes(&r, concat_border(c));
}

/* Are all gradients of an upconv of few results made at once? */
bool is_upconv_head(const Call *c, const ConvProblem &r)
{
    return c->dy && (c->dx[0] || c->dx[X2] || c->dx[1]) &&
           upconv_head_takes(&r, concat_border(c));
}

/* Does the product that makes the data's gradient take that of a lazy call back
 * through the norm as it reads it? Where it is no twin of dw, it stores what it
 * makes of it. */
bool loads_norm_bwd(const Call *c, const ConvProblem &r)
{
    return c->deferred && c->dy && (c->dx[0] || c->dx[X2]) &&
           (is_dgrad_wgrad(c, r) || conv_loads_norm_bwd(&r, !is_upconv(c)));
}

/* Or does dw, where nobody else wants it and so nobody stores it: of a first
 * layer, whose data's gradient is not made? */
bool wgrad_loads_norm_bwd(const Call *c, const ConvProblem &r)
{
    return c->deferred && c->dy && !c->dx[0] && !c->dx[X2] && c->dx[1] &&
           !c->dx[2] && !is_upconv(c) && conv_loads_deferred(&r, true);
}

/* Parts of sums over gradients that a backward call can make; 0: it cannot. */
int sum_parts(const Call *c, const ConvProblem &r)
{
    if (is_upconv_head(c, r))
        return upconv_head_sum_parts(&r, concat_border(c));
    return is_dgrad_wgrad(c, r)
               ? dgrad_wgrad_sum_parts(&r)
               : conv_sum_parts(&r, !is_upconv(c), loads_norm_bwd(c, r));
}

/* Those of the gradients that it closes. */
int grad_sum_parts(const Call *c, const ConvProblem &r)
{
    if (!c->grad_sums[0] && !c->grad_sums[X2]) return 0;
    return sum_parts(c, r);
}

size_t grad_sum_bytes(const Call *c, const ConvProblem &r)
{
    return channel_sums_bytes(grad_sum_parts(c, r), call_image(c).c);
}

/* Did another call sum dy? That of a lazy one is taken back through the norm
 * before it is a bias's. */
bool sums_dy(const Call *c)
{
    return c->dy_sums && !c->deferred;
}

size_t aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Where in the scratch a twin or an exit has the parts of dw: behind those of
 * dx. */
size_t wgrad_parts_at(const Call *c, const ConvProblem &r)
{
    return aligned(grad_sum_bytes(c, r));
}

/* And where a gateway turns its weights: behind the parts of y. */
size_t small_cin_filter_at(const Space &norm)
{
    return aligned(norm.fwd);
}

/* What a lazy call's norm takes of it. */
Space norm_bytes(const Call *c, const ConvProblem &r)
{
    return c->deferred ? deferred_norm_space(c, stat_parts(c, r)) : Space{};
}

/* Parts of y, or of dx, dw and db and of a lazy norm, one after the other in
 * the same bytes. */
size_t work_bytes(const Call *c, const ConvProblem &r, bool back)
{
    if (conv_head_takes(&r)) return back ? conv_head_bytes(&r) : 0;
    if (back && is_upconv_head(c, r))
        return wgrad_parts_at(c, r) + upconv_head_bytes(&r, concat_border(c));
    const Space norm = norm_bytes(c, r);
    if (!back && small_cin_takes(&r))
        return small_cin_filter_at(norm) + small_cin_bytes(&r);
    if (!back) return larger(igemm_tile_bytes(&r, is_upconv(c)), norm.fwd);
    if (is_dgrad_wgrad(c, r))
        return larger(norm.bwd, wgrad_parts_at(c, r) + dgrad_wgrad_bytes(&r));
    size_t bytes = norm.bwd;
    if (c->dx[0] || c->dx[X2])
        bytes = larger(bytes, larger(igemm_tile_bytes(&r, !is_upconv(c)),
                                     grad_sum_bytes(c, r)));
    if (c->dx[1]) bytes = larger(bytes, conv_wgrad_bytes(&r));
    if (c->dx[2] && !sums_dy(c))
        bytes = larger(bytes, conv_bias_grad_bytes(c->y->dim));
    return bytes;
}

/* Is operand 0 wanted in a copy, as its lens shows it? What stands beside it
 * is always seen: cuda_fuses_concat. */
bool wants_copy(const Call *c, const ConvProblem &r, bool back)
{
    return c->deferred_norm[0] && !conv_loads_deferred(&r, is_upconv(c)) &&
           (!back || c->dx[1]);
}

/* Where in the scratch that copy is. */
size_t copy_at(const Call *c, const ConvProblem &r, bool back)
{
    return aligned(work_bytes(c, r, back));
}

/* What a product's operand is in memory. */
Dtype operand_type(const Call *c)
{
    return precision_copy(c->precision);
}

size_t copy_bytes(const Call *c)
{
    return (size_t)numel(c->x[0]->dim) * dtype_bytes(operand_type(c));
}

/* Where in the scratch the slant's table is, and behind it what a product
 * stores, of 16 bits. */
size_t norm_bwd_table_at(const Call *c, const ConvProblem &r)
{
    size_t at = copy_at(c, r, true);
    if (wants_copy(c, r, true)) at += copy_bytes(c);
    return aligned(at);
}

size_t norm_bwd_at(const Call *c, const ConvProblem &r)
{
    return aligned(norm_bwd_table_at(c, r) +
                   (size_t)c->y->dim.c * sizeof(float4));
}

size_t scratch_bytes(const Call *c, bool back)
{
    const ConvProblem r = conv_problem_of(c);
    // who makes dx stores dy, unless it makes dw, too
    if (back && (is_dgrad_wgrad(c, r) || wgrad_loads_norm_bwd(c, r)))
        return norm_bwd_at(c, r);
    if (back && loads_norm_bwd(c, r))
        return norm_bwd_at(c, r) + tensor_bytes(c->y);
    if (!wants_copy(c, r, back)) return work_bytes(c, r, back);
    return copy_at(c, r, back) + copy_bytes(c);
}

Space conv_space(const Call *c)
{
    Space s = {};
    s.fwd = scratch_bytes(c, false);
    s.bwd = scratch_bytes(c, true);
    if (c->deferred) s.saved = norm_on_load_bytes(c->y->dim.c);
    return s;
}

/* Operand 0, to be looked at through its lenses; or a copy. */
bool source(const Call *c, const ConvProblem &r, bool back, Source *x)
{
    *x = {};
    x->own = {operand(c, 0), norm_on_load_of(c, 0), {}};
    if (c->x[X2]) {
        x->from = c->x[0]->dim.c;
        x->second = {operand(c, X2), norm_on_load_of(c, X2), {}};
    }
    if (!wants_copy(c, r, back)) return true;
    char *to = (char *)c->scratch + copy_at(c, r, back);
    if (!norm_on_load_apply(c, x->own.norm_on_load, c->x[0]->dim, x->own.data,
                            operand_type(c), to))
        return false;
    x->own = {to, {}, {}};
    return true;
}

/* Where dx goes. */
Result gradients(const Call *c, const ConvProblem &r)
{
    Result to = {};
    if (c->dx[0]) to.own = target_of(c->dx[0], is_fresh(c, 0));
    to.sums =
        channel_sums_of(grad_sum_parts(c, r), call_image(c).c, c->scratch);
    to.sums.grads = grad_sums_of(c, 0), to.sums.second = grad_sums_of(c, X2);
    to.sums.ends = true;
    if (!c->x[X2]) return to;
    to.sums.border = c->x[0]->dim.c;
    to.from = c->x[0]->dim.c;
    if (c->dx[X2]) to.second = target_of(c->dx[X2], is_fresh(c, X2));
    return to;
}

bool conv_fwd(const Call *c)
{
    ConvProblem r = conv_problem_of(c);
    const void *w = operand(c, 1);
    const float *b = values(c->x[2]);
    Result y = {};
    Source x;
    if (conv_head_takes(&r))
        return conv_head_fprop(&r, {operand(c, 0), norm_on_load_of(c, 0), {}},
                               w);
    if (upconv_head_fprop_takes(&r, concat_border(c)))
        return source(c, r, false, &x) &&
               upconv_head_fprop(&r, x, w, b, values(c->y));
    const int parts = c->deferred ? stat_parts(c, r) : 0;
    y.own = target_of(c->y, true);
    y.sums = channel_sums_of(parts, c->y->dim.c, c->scratch);
    if (parts)
        y.sums.ends = deferred_norm_keep(c, &y.sums.stats_out, &y.sums.rows);
    if (!source(c, r, false, &x)) return false;
    char *const turned =
        (char *)c->scratch + small_cin_filter_at(norm_bytes(c, r));
    if (!(conv_first_takes(&r) ? conv_first_fprop(&r, w, b, y.sums)
          : small_cin_takes(&r)
              ? small_cin_fprop(&r, x, w, b, y.own, y.sums, turned)
          : is_upconv(c) ? conv_dgrad(&r, x, w, b, y)
                         : conv_fprop(&r, x, w, b, y)))
        return false;
    return !c->deferred || y.sums.ends || deferred_norm_fwd(c, parts);
}

/* Where those of dw go, or NULL. */
double *squares(const Call *c)
{
    return c->grad_sqnorm[1] ? (double *)c->grad_sqnorm[1]->data : NULL;
}

/* dx and dw at once. */
bool run_dgrad_wgrad(const Call *c, const ConvProblem &r, const Operand &dy,
                     const void *w)
{
    Source x;
    return source(c, r, true, &x) &&
           dgrad_wgrad_run(
               &r, x, dy, w, gradients(c, r), values(c->dx[1]), is_fresh(c, 1),
               (float *)((char *)c->scratch + wgrad_parts_at(c, r)));
}

/* All gradients of few results, but db where another call has made it. */
bool upconv_heads(const Call *c, const ConvProblem &r, const void *w)
{
    Source x;
    return source(c, r, true, &x) &&
           upconv_head_bwd(&r, x, w, gradients(c, r), values(c->dx[1]),
                           c->grads_written ? NULL : values(c->dx[2]),
                           (char *)c->scratch + wgrad_parts_at(c, r));
}

/* Each gradient that is wanted, in the order of the operands; the stream keeps
 * their uses of the scratch apart. */
bool conv_bwd(const Call *c)
{
    ConvProblem r = conv_problem_of(c);
    const void *w = operand(c, 1);
    Source dy_source = {{dy_operand(c), {}, {}}, {}, 0};
    Tensor dy = *c->dy;
    float *dw = values(c->dx[1]);
    const bool up = is_upconv(c);
    if (conv_head_takes(&r))
        return conv_head_bwd(&r, {operand(c, 0), norm_on_load_of(c, 0), {}}, w);
    if (is_upconv_head(c, r)) return upconv_heads(c, r, w);
    char *const scratch = (char *)c->scratch;
    NormBwd *norm_bwd = &dy_source.own.norm_bwd;
    const bool both = is_dgrad_wgrad(c, r),
               norm_bwd_loaded = loads_norm_bwd(c, r);
    if (norm_bwd_loaded || wgrad_loads_norm_bwd(c, r)) {
        if (norm_bwd_loaded && !both)
            norm_bwd->to = dy.data = scratch + norm_bwd_at(c, r);
        float4 *table = (float4 *)(scratch + norm_bwd_table_at(c, r));
        if (!deferred_norm_bwd_on_load(c, table, norm_bwd)) return false;
    } else if (c->deferred && !deferred_norm_bwd(c)) {
        return false; // in dy's memory, which the products read then
    }
    if (both) return run_dgrad_wgrad(c, r, dy_source.own, w);
    if (c->dx[0] || c->dx[X2]) {
        const auto product = up ? conv_fprop : conv_dgrad;
        if (!product(&r, dy_source, w, NULL, gradients(c, r))) return false;
    }
    // the first product has stored it
    if (norm_bwd->to) dy_source.own = {norm_bwd->to, {}, {}};
    if (dw) {
        Source x;
        if (!source(c, r, true, &x) ||
            !conv_wgrad(&r, up ? dy_source : x, up ? x : dy_source, dw,
                        is_fresh(c, 1), squares(c), c->scratch))
            return false;
    }
    if (!c->dx[2]) return true;
    if (!sums_dy(c))
        return conv_bias_grad(c, &dy, values(c->dx[2]), is_fresh(c, 2));
    return c->grads_written || grad_sums_store(c);
}

} // namespace

// few results and tiles that no segments are cut of, gradients in 16 bits
extern "C" unsigned cuda_sums_grads(const Call *c)
{
    unsigned bits = 0;
    if (precision_copy(c->precision) == F32) return 0;
    for (int k = 0; k < MAX_IN; k++)
        if ((k == 0 || k == X2) && c->dx[k] && dtype_bytes(c->dx[k]->type) == 2)
            bits |= 1u << k;
    const ConvProblem r = conv_problem_of(c);
    if (conv_head_takes(&r)) return bits;
    return bits && sum_parts(c, r) ? bits : 0;
}

// of dw, where most of a network is; not of one that is few numbers
extern "C" int32_t cuda_sqnorm_parts(const Call *c, int k)
{
    const ConvProblem r = conv_problem_of(c);
    return k == 1 && !conv_head_takes(&r) && !is_upconv_head(c, r) &&
                   !is_dgrad_wgrad(c, r)
               ? conv_wgrad_sqnorm_parts(&r)
               : 0;
}

// forward x and w; backward what the wanted gradients are made of
extern "C" unsigned cuda_half(const Call *c)
{
    if (!op_multiplies(call_op(c))) return 0;
    const bool input = c->dx[0] || c->dx[X2];
    const unsigned data = 1 | (c->x[X2] ? 1u << X2 : 0);
    const ConvProblem r = conv_problem_of(c);
    if (!c->dy) return conv_first_takes(&r) ? 2 : data | 2;
    unsigned wants = input || c->dx[1] ? (unsigned)HALF_DY : 0;
    if (conv_head_takes(&r) || is_upconv_head(c, r)) wants = 0;
    if (input) wants |= 2;
    if (c->dx[1]) wants |= data;
    return wants;
}

// a gateway looks through none, and its operands are the network's:
// cuda_fuses_concat
extern "C" unsigned cuda_sees(const Call *c)
{
    const ConvProblem r = conv_problem_of(c);
    return small_cin_takes(&r) ? 0 : 1 | 1u << X2;
}

// a gateway takes any two, unless their gradients would be in two parts
extern "C" bool cuda_fuses_concat(const Call *c)
{
    if (call_op(c) == OP_linear) return false;
    const ConvProblem r = conv_problem_of(c);
    if (small_cin_takes(&r)) return !c->dx[0] && !c->dx[X2];
    return c->x[X2]->dim.c % NARROW_CHANNELS == 0 && !conv_head_takes(&r) &&
           conv_fuses_concat(&r, is_upconv(c), c->x[0]->dim.c);
}

// three rows, one code: the attributes tell them apart
#define ROW(name)                            \
    Space cuda_##name##_space(const Call *c) \
    {                                        \
        return conv_space(c);                \
    }                                        \
    bool cuda_##name##_fwd(const Call *c)    \
    {                                        \
        return conv_fwd(c);                  \
    }                                        \
    bool cuda_##name##_bwd(const Call *c)    \
    {                                        \
        return conv_bwd(c);                  \
    }
extern "C" {
ROW(conv)
ROW(upconv)
ROW(linear)
}
