/* dispatch.cu -- conv, upconv and linear on the GPU: the memory of a call, and
 * the run of the kernels that kernels.cu chose.
 *
 * The scratch memory of a call, in this order:
 *
 * - the partial sums of the fused statistics or gradient sums, and the
 *   workspace of the kernel: one after the other (ConvChoice.after_sums) or in
 *   the same memory. Each kernel of a backward call reuses this memory;
 * - a copy of x[0] after its deferred norm, for kernels that cannot apply it;
 * - the table of norm backward on load (a float4 a channel);
 * - dy of the convolution, which the kernel of dx makes of the gradient of the
 *   deferred norm (norm_bwd_on_load.cuh), in 16 bits, for the kernels after it.
 */
#include "cuda/conv/kernels.cuh"

namespace {

/* The operand that is multiplied, a 16-bit copy if there is one: operand i, and
 * dy. */
const void *operand(const Call *c, int i)
{
    return c->half.x[i] ? c->half.x[i]->data : c->x[i]->data;
}

const void *dy_operand(const Call *c)
{
    return c->half.dy ? c->half.dy->data : c->dy->data;
}

size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* A call with its kernels and the offsets of its scratch memory. */
struct ConvCall {
    ConvProblem r;
    ConvPlan plan;
    int stat_parts;     // partial sums over y, written by the kernel of y
    int grad_sum_parts; // over dx, written by the kernel of dx
    Space norm;         // memory of a deferred norm of y
    bool copies;        // x[0] is copied with its deferred norm applied
    bool loads_norm_bwd, stores_norm_bwd; // of any of the kernels
    size_t copy_at, table_at,
        dy_at;    // offsets, in the order of the file comment
    size_t bytes; // of all
};

/* Bytes of the partial sums at the start of the scratch memory. */
size_t sums_bytes(const ConvCall &o, const ConvChoice &k)
{
    if (k.passes & PASS_Y) return o.norm.fwd;
    if (!(k.passes & PASS_DX)) return 0;
    return channel_sums_bytes(o.grad_sum_parts, call_image(o.r.c).c);
}

/* The offset of the kernel's workspace. */
size_t workspace_at(const ConvCall &o, const ConvChoice &k)
{
    return k.after_sums ? conv_aligned(sums_bytes(o, k)) : 0;
}

ConvCall conv_call(const Call *c, bool bwd)
{
    ConvCall o = {};
    o.r = conv_problem_of(c);
    o.plan = conv_plan(&o.r, bwd);

    if (c->norm.deferred) {
        // the norm's backward has the partial sums of the forward kernel, too
        const ConvPlan y = bwd ? conv_plan(&o.r, false) : o.plan;
        o.stat_parts = c->recomputed ? 0 : y.choice[0].sum_parts;
        o.norm = deferred_norm_space(c, o.stat_parts);
    }

    o.bytes = bwd ? o.norm.bwd : 0;
    bool reads_x = !bwd;

    for (int i = 0; i < o.plan.count; i++) {
        const ConvChoice &k = o.plan.choice[i];
        if (k.passes & PASS_DX && (c->sums.dx[0] || c->sums.dx[X2]))
            o.grad_sum_parts = k.sum_parts;
        o.loads_norm_bwd = o.loads_norm_bwd || k.loads_norm_bwd;
        o.stores_norm_bwd = o.stores_norm_bwd || k.stores_norm_bwd;
        reads_x = reads_x || (k.passes & PASS_DW);
        o.bytes = larger(o.bytes, larger(workspace_at(o, k) + k.workspace,
                                         sums_bytes(o, k)));
    }

    o.copies = c->x_norm[0] && reads_x && !conv_loads_vectors(&o.r);
    if (o.copies) {
        o.copy_at = conv_aligned(o.bytes);
        o.bytes = o.copy_at + (size_t)numel(c->x[0]->dim) *
                                  dtype_bytes(precision_copy(c->precision));
    }

    if (o.loads_norm_bwd) {
        o.table_at = conv_aligned(o.bytes);
        o.dy_at =
            conv_aligned(o.table_at + (size_t)c->y->dim.c * sizeof(float4));
        o.bytes = o.dy_at + (o.stores_norm_bwd ? tensor_bytes(c->y) : 0);
    }
    return o;
}

Space conv_space(const Call *c)
{
    Space s = {};
    s.fwd = conv_call(c, false).bytes;
    s.bwd = conv_call(c, true).bytes;
    if (c->norm.deferred) s.saved = norm_on_load_bytes(c->y->dim.c);
    return s;
}

/* Operand 0 with its deferred norm, which the kernel applies on load; or a copy
 * to which the norm is applied here. */
bool source(const ConvCall &o, Source *x)
{
    const Call *c = o.r.c;
    *x = {};
    x->first = {operand(c, 0), norm_on_load_of(c, 0), {}};
    if (c->x[X2]) {
        x->border = c->x[0]->dim.c;
        x->second = {operand(c, X2), norm_on_load_of(c, X2), {}};
    }
    if (!o.copies) return true;
    char *to = (char *)c->scratch + o.copy_at;
    if (!norm_on_load_apply(c, x->first.norm_on_load, c->x[0]->dim,
                            x->first.data, precision_copy(c->precision), to))
        return false;
    x->first = {to, {}, {}};
    return true;
}

/* dx with its gradient sums. */
Result gradients(const ConvCall &o)
{
    const Call *c = o.r.c;
    Result to = {};
    if (c->dx[0]) to.first = target_of(c->dx[0], is_fresh(c, 0));
    to.sums = channel_sums_of(o.grad_sum_parts, call_image(c).c, c->scratch);
    to.sums.grads = grad_sums_of(c, 0), to.sums.second = grad_sums_of(c, X2);
    to.sums.ends = true;
    if (!c->x[X2]) return to;
    to.sums.border = to.border = c->x[0]->dim.c;
    if (c->dx[X2]) to.second = target_of(c->dx[X2], is_fresh(c, X2));
    return to;
}

/* y with the sums for the statistics of a deferred norm. */
Result output(const ConvCall &o)
{
    const Call *c = o.r.c;
    Result y = {};
    y.first = target_of(c->y, true);
    y.sums = channel_sums_of(o.stat_parts, c->y->dim.c, c->scratch);
    if (y.sums.parts)
        y.sums.ends = deferred_norm_keep(c, &y.sums.stats_out, &y.sums.rows);
    return y;
}

bool run_choice(const ConvCall &o, const ConvChoice &k, ConvRun *run)
{
    run->choice = &k;
    run->workspace = (char *)o.r.c->scratch + workspace_at(o, k);
    return k.kernel->run(run);
}

bool conv_fwd(const Call *c)
{
    const ConvCall o = conv_call(c, false);
    ConvRun run = {};
    run.r = &o.r, run.w = operand(c, 1), run.bias = values(c->x[2]);
    run.to = output(o);
    return source(o, &run.x) && run_choice(o, o.plan.choice[0], &run) &&
           (!c->norm.deferred || run.to.sums.ends ||
            deferred_norm_fwd(c, o.stat_parts));
}

/* The gradients that the call needs. The kernels share the scratch memory; the
 * stream runs them one after the other. */
bool conv_bwd(const Call *c)
{
    const ConvCall o = conv_call(c, true);
    char *const scratch = (char *)c->scratch;
    Tensor dy = *c->dy;
    ConvRun run = {};

    run.r = &o.r, run.w = operand(c, 1), run.dy_tensor = &dy;
    run.dy.first.data = dy_operand(c), run.to = gradients(o);
    run.dw = values(c->dx[1]), run.fresh_dw = is_fresh(c, 1);
    run.db = c->sums.written ? NULL : values(c->dx[2]);
    if (c->sums.sqnorm[1]) run.sqnorm = (double *)c->sums.sqnorm[1]->data;
    NormBwd *norm_bwd = &run.dy.first.norm_bwd;

    if (o.loads_norm_bwd) {
        if (o.stores_norm_bwd) norm_bwd->to = dy.data = scratch + o.dy_at;
        if (!deferred_norm_bwd_on_load(c, (float4 *)(scratch + o.table_at),
                                       norm_bwd))
            return false;
    } else if (c->norm.deferred && !deferred_norm_bwd(c)) {
        return false; // dy in place, before the kernels read it
    }

    for (int i = 0; i < o.plan.count; i++) {
        const ConvChoice &k = o.plan.choice[i];
        // a copy of x is made for dw alone
        if ((k.passes & PASS_DW || !o.copies) && !source(o, &run.x))
            return false;
        if (!run_choice(o, k, &run)) return false;
        // later kernels read the dy that norm backward made
        if (norm_bwd->to) run.dy.first = {norm_bwd->to, {}, {}};
    }
    return true;
}

} // namespace

/* Fusions.sums: over 16-bit gradients only; by some kernels only over those
 * that the call stores. The kernel of dx comes first. */
static unsigned sums_of(const Call *c, const ConvPlan &p)
{
    unsigned bits = 0;
    if (precision_copy(c->precision) == F32 || !p.count || !p.choice[0].sums_dx)
        return 0;
    for (int k = 0; k < MAX_IN; k++)
        if ((k == 0 || k == X2) && c->dx[k] &&
            dtype_bytes(c->dx[k]->type) == 2 &&
            (is_fresh(c, k) || !p.choice[0].sums_fresh))
            bits |= 1u << k;
    return bits;
}

extern "C" Fusions cuda_conv_fusions(const Call *c)
{
    Fusions f = {};
    const ConvProblem r = conv_problem_of(c);
    const ConvPlan fwd = conv_plan(&r, false), bwd = conv_plan(&r, true);
    f.epilogue = c->norm.deferred;
    f.concat = c->x[X2] && conv_fuses_concat(&r, fwd);

    // linear applies the norm on load, or reads a copy that has it applied
    if (call_op(c) == OP_linear)
        f.x_norm = 1;
    else if (conv_takes_deferred(fwd))
        f.x_norm = 1 | 1u << X2;
    f.sums = sums_of(c, bwd);

    // only dw: it has most of a network's parameters
    for (int i = 0; i < bwd.count; i++)
        f.sqnorm_parts[1] += bwd.choice[i].sqnorm_parts;
    return f;
}

extern "C" unsigned cuda_conv_copies(const Call *c)
{
    unsigned bits = 0;
    const ConvProblem r = conv_problem_of(c);
    const ConvPlan p = conv_plan(&r, c->dy != NULL);
    for (int i = 0; i < p.count; i++) bits |= p.choice[i].half;
    return bits;
}

extern "C" int cuda_conv_tile(const Call *c)
{
    const ConvProblem r = conv_problem_of(c);
    const ConvPlan p = conv_plan(&r, c->dy != NULL);
    return p.count ? conv_tile(&r, p.choice[0]) : 0;
}

// three operators with the same code; Call.attr tells which
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
