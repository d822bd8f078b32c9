/* kernels.cu -- the table of convolution kernels; see kernels.cuh. A takes_
 * function tests the problem and fills in the ConvChoice, a run_ function
 * queues the kernel. conv.cuh has the table of the passes (fprop, dgrad, wgrad)
 * that compute y, dx and dw of conv, upconv and linear. */
#include "cuda/conv/dgrad_wgrad.cuh"
#include "cuda/conv/direct.cuh"
#include "cuda/conv/first.cuh"
#include "cuda/conv/head.cuh"
#include "cuda/conv/igemm.cuh"
#include "cuda/conv/igemm_sm90.cuh"
#include "cuda/conv/igemm_tile.cuh"
#include "cuda/conv/im2row_sm90.cuh"
#include "cuda/conv/kernels.cuh"
#include "cuda/conv/small_cin.cuh"
#include "cuda/conv/upconv_head.cuh"
#include "cuda/conv/wgrad_sm90.cuh"
#include "cuda/conv/wgrad_tile.cuh"

namespace {

/* The first channel of the second tensor of an implicit concat; 0: one tensor.
 */
int concat_border(const Call *c)
{
    return c->x[X2] ? c->x[0]->dim.c : 0;
}

/* The operand of fprop or dgrad: x for y, dy for dx. */
const Source &source_of(const ConvRun *o)
{
    return o->choice->passes == PASS_Y ? o->x : o->dy;
}

/* The operands of wgrad: those with the extents of the input and of the output
 * of the convolution, see ConvProblem. A transposed convolution's x has the
 * extents of the output. */
const Source &input_of(const ConvRun *o)
{
    return is_upconv(o->r->c) ? o->dy : o->x;
}

const Source &output_of(const ConvRun *o)
{
    return is_upconv(o->r->c) ? o->x : o->dy;
}

/* Are tensors of so many channels a group loaded 8 channels (16 bytes) at a
 * time? Other numbers are loaded one by one. */
bool loads_vectors(const ConvProblem *r, int channels)
{
    return precision_copy(r->c->precision) != F32 &&
           channels % NARROW_CHANNELS == 0;
}

// -- 1x1 convolutions of 1 to 8 output channels ------------------------------

bool takes_head(const ConvProblem *r, ConvChoice *out)
{
    if (!conv_head_takes(r)) return false;
    if (out->passes == PASS_Y) return true;
    out->workspace = conv_head_bytes(r);
    out->sums_dx = true; // the partial sums are in the workspace
    out->half &= ~(unsigned)HALF_DY;
    return true;
}

bool run_head_fprop(const ConvRun *o)
{
    return conv_head_fprop(o->r, o->x.first, o->w);
}

bool run_head_bwd(const ConvRun *o)
{
    return conv_head_bwd(o->r, o->x.first, o->w);
}

// -- transposed convolutions of 1 to 4 output channels -----------------------

bool takes_upconv_head_fwd(const ConvProblem *r, ConvChoice *)
{
    return upconv_head_fwd_takes(r, concat_border(r->c));
}

bool run_upconv_head_fwd(const ConvRun *o)
{
    return upconv_head_fwd(o->r, o->x, o->w, o->bias,
                           (float *)o->to.first.data);
}

bool takes_upconv_head_bwd(const ConvProblem *r, ConvChoice *out)
{
    const int border = concat_border(r->c);
    if (!(out->passes & (PASS_DX | PASS_DW)) || !upconv_head_takes(r, border))
        return false;
    out->workspace = upconv_head_bytes(r, border), out->after_sums = true;
    out->sum_parts = upconv_head_sum_parts(r, border);
    out->sums_dx = out->sum_parts > 0;
    out->half &= ~(unsigned)HALF_DY;
    return true;
}

bool run_upconv_head_bwd(const ConvRun *o)
{
    return upconv_head_bwd(o->r, o->x, o->w, o->to, o->dw, o->db, o->workspace);
}

// -- fprop of few input channels ---------------------------------------------

bool takes_first(const ConvProblem *r, ConvChoice *out)
{
    if (!conv_first_takes(r)) return false;
    out->sum_parts = conv_first_sum_parts(r);
    out->half = 1u << 1; // of w alone: x is rounded in registers
    return true;
}

bool run_first(const ConvRun *o)
{
    return conv_first_fprop(o->r, o->w, o->bias, o->to.sums);
}

bool takes_small_cin(const ConvProblem *r, ConvChoice *out)
{
    if (!small_cin_takes(r)) return false;
    out->sum_parts = small_cin_sum_parts(r);
    out->workspace = small_cin_bytes(r), out->after_sums = true;
    return true;
}

bool run_small_cin(const ConvRun *o)
{
    return small_cin_fprop(o->r, o->x, o->w, o->bias, o->to.first, o->to.sums,
                           o->workspace);
}

// -- dx and dw in one kernel -------------------------------------------------

/* Takes calls with a deferred norm of y, 16-bit gradients of the operand and no
 * bias: the gradient of a bias needs a stored dy. */
bool takes_dgrad_wgrad(const ConvProblem *r, ConvChoice *out)
{
    const Call *c = r->c;
    for (int k = 0; k < MAX_IN; k++)
        if ((k == 0 || k == X2) && c->dx[k] && dtype_bytes(c->dx[k]->type) != 2)
            return false;
    if (out->passes != (PASS_DX | PASS_DW) || !c->norm.deferred || c->dx[2] ||
        is_upconv(c) || !dgrad_wgrad_takes(r, concat_border(c)))
        return false;
    out->workspace = dgrad_wgrad_bytes(r), out->after_sums = true;
    out->sum_parts = dgrad_wgrad_sum_parts(r);
    out->sums_dx = out->sum_parts > 0;
    out->loads_norm_bwd = true;
    return true;
}

bool run_dgrad_wgrad(const ConvRun *o)
{
    return dgrad_wgrad_run(o->r, o->x, o->dy.first, o->w, o->to, o->dw,
                           o->fresh_dw, (float *)o->workspace);
}

// -- groups of few channels --------------------------------------------------

bool takes_direct(const ConvProblem *r, ConvChoice *)
{
    return direct_takes(r);
}

bool run_direct(const ConvRun *o)
{
    return direct_run(o->r, o->choice->runs_dgrad, source_of(o).first.data,
                      o->w, o->bias, o->to.first);
}

bool takes_direct_wgrad(const ConvProblem *r, ConvChoice *out)
{
    if (!direct_takes(r)) return false;
    out->workspace = direct_wgrad_bytes(r);
    out->sqnorm_parts = direct_wgrad_sqnorm_parts(r);
    return true;
}

bool run_direct_wgrad(const ConvRun *o)
{
    return direct_wgrad(o->r, input_of(o).first.data, output_of(o).first.data,
                        o->dw, o->fresh_dw, o->sqnorm, o->workspace);
}

/* If only wgrad reads dy (a first layer: dx is not needed), wgrad_tile applies
 * norm backward on load. */
bool wgrad_loads_norm_bwd(const ConvProblem *r)
{
    const Call *c = r->c;
    return c->norm.deferred && !wants_dx(c) && !c->dx[2] && !is_upconv(c) &&
           loads_vectors(r, r->cout);
}

// -- Hopper GPUs -------------------------------------------------------------

/* Do all results of the choice have the stored type of the precision? */
bool sm90_results(const ConvProblem *r, unsigned passes)
{
    const Call *c = r->c;
    const Dtype type = precision_copy(c->precision);
    if (passes & PASS_Y) return c->y->type == type;
    return (!c->dx[0] || c->dx[0]->type == type) &&
           (!c->dx[X2] || c->dx[X2]->type == type);
}

bool takes_igemm_sm90(const ConvProblem *r, ConvChoice *out)
{
    if (!sm90_results(r, out->passes)) return false;
    const IgemmSm90Fit f = igemm_sm90_fit(r, out->runs_dgrad);
    if (!f.takes) return false;
    out->workspace = f.workspace;
    out->sums_dx = out->sums_fresh = out->passes == PASS_DX && f.grad_sums;
    if (out->passes == PASS_Y || out->sums_dx) out->sum_parts = f.sum_parts;
    return true;
}

bool takes_im2row_sm90(const ConvProblem *r, ConvChoice *out)
{
    if (!sm90_results(r, out->passes)) return false;
    const IgemmSm90Fit f = im2row_sm90_fit(r);
    out->sum_parts = f.sum_parts, out->workspace = f.workspace;
    out->after_sums = true;
    return f.takes;
}

bool run_im2row_sm90(const ConvRun *o)
{
    return im2row_sm90_run(o->r, o->x, o->w, o->bias, o->to, o->workspace);
}

bool run_igemm_sm90(const ConvRun *o)
{
    return igemm_sm90_run(o->r, o->choice->runs_dgrad, source_of(o), o->w,
                          o->bias, o->to, o->workspace);
}

bool takes_wgrad_sm90(const ConvProblem *r, ConvChoice *out)
{
    const WgradSm90Fit f = wgrad_sm90_fit(r);
    out->workspace = f.workspace, out->sqnorm_parts = f.sqnorm_parts;
    return f.takes;
}

bool run_wgrad_sm90(const ConvRun *o)
{
    return wgrad_sm90_run(o->r, input_of(o), output_of(o), o->dw, o->fresh_dw,
                          o->sqnorm, o->workspace);
}

// -- implicit GEMM: all other problems ---------------------------------------

bool takes_igemm_tile(const ConvProblem *r, ConvChoice *out)
{
    if (!igemm_tile_takes(r)) return false;
    out->workspace = igemm_tile_bytes(r, out->runs_dgrad);
    if (out->passes == PASS_Y && !r->c->norm.deferred) return true;
    const IgemmFusion f = igemm_tile_fusion(
        r, out->runs_dgrad, out->passes == PASS_DX && r->c->norm.deferred);
    out->sum_parts = f.sum_parts;
    out->sums_dx = f.sum_parts > 0;
    out->loads_norm_bwd = out->stores_norm_bwd = f.loads_norm_bwd;
    return true;
}

bool takes_all(const ConvProblem *, ConvChoice *)
{
    return true;
}

bool run_igemm_tile(const ConvRun *o)
{
    return igemm_run(o->r, o->choice->runs_dgrad, true, source_of(o), o->w,
                     o->bias, o->to);
}

bool run_igemm(const ConvRun *o)
{
    return igemm_run(o->r, o->choice->runs_dgrad, false, source_of(o), o->w,
                     o->bias, o->to);
}

bool takes_wgrad_tile(const ConvProblem *r, ConvChoice *out)
{
    out->loads_norm_bwd = wgrad_loads_norm_bwd(r);
    const WgradTileFit f = wgrad_tile_fit(r, out->loads_norm_bwd);
    out->workspace = f.workspace, out->sqnorm_parts = f.sqnorm_parts;
    return f.takes;
}

bool run_wgrad_tile(const ConvRun *o)
{
    return wgrad_tile_run(o->r, input_of(o), output_of(o), o->dw, o->fresh_dw,
                          o->sqnorm, o->workspace);
}

bool takes_wgrad(const ConvProblem *r, ConvChoice *out)
{
    out->workspace = conv_wgrad_bytes(r);
    out->sqnorm_parts = conv_wgrad_sqnorm_parts(r);
    return true;
}

bool run_wgrad(const ConvRun *o)
{
    return conv_wgrad(o->r, input_of(o), output_of(o), o->dw, o->fresh_dw,
                      o->sqnorm, o->workspace);
}

// -- the gradient of a bias --------------------------------------------------

/* Has another call summed dy? With a deferred norm of y the sums are of dy
 * after the backward of the activation and before that of the norm: the
 * gradients of beta and gamma, not of a bias. */
bool has_dy_sums(const Call *c)
{
    return c->sums.dy && !c->norm.deferred;
}

bool takes_bias_grad(const ConvProblem *r, ConvChoice *out)
{
    if (!has_dy_sums(r->c))
        out->workspace = conv_bias_grad_bytes(r->c->dy->dim, r->c->dy->type);
    return true;
}

bool run_bias_grad(const ConvRun *o)
{
    const Call *c = o->r->c;
    if (!has_dy_sums(c))
        return conv_bias_grad(c, o->dy_tensor, values(c->dx[2]),
                              is_fresh(c, 2));
    // the call that summed dy has written db, or left the sums of which db is
    // made
    return c->sums.written || grad_sums_store(c);
}

// -- the table ---------------------------------------------------------------

// A call computes y or gradients, so a row may have PASS_Y and PASS_DX. Rows of
// dx come before rows of dw alone: a kernel of dx may make the dy of the
// convolution that later kernels read (ConvChoice.stores_norm_bwd).
const ConvKernel KERNELS[] = {
    {PASS_Y, takes_head, run_head_fprop},
    {PASS_DX | PASS_DW | PASS_DB, takes_head, run_head_bwd},
    {PASS_Y, takes_upconv_head_fwd, run_upconv_head_fwd},
    {PASS_DX | PASS_DW | PASS_DB, takes_upconv_head_bwd, run_upconv_head_bwd},
    {PASS_Y, takes_im2row_sm90, run_im2row_sm90},
    {PASS_Y, takes_first, run_first},
    {PASS_Y, takes_small_cin, run_small_cin},
    {PASS_Y | PASS_DX, takes_igemm_sm90, run_igemm_sm90},
    {PASS_DX | PASS_DW, takes_dgrad_wgrad, run_dgrad_wgrad},
    {PASS_Y | PASS_DX, takes_direct, run_direct},
    {PASS_Y | PASS_DX, takes_igemm_tile, run_igemm_tile},
    {PASS_Y | PASS_DX, takes_all, run_igemm}, // igemm_mma, igemm_f32
    {PASS_DW, takes_wgrad_sm90, run_wgrad_sm90},
    {PASS_DW, takes_direct_wgrad, run_direct_wgrad},
    {PASS_DW, takes_wgrad_tile, run_wgrad_tile},
    {PASS_DW, takes_wgrad, run_wgrad}, // wgrad_mma, wgrad_f32
    {PASS_DB, takes_bias_grad, run_bias_grad},
};

/* The passes that a call needs. */
unsigned passes_of(const Call *c, bool bwd)
{
    if (!bwd) return PASS_Y;
    if (!c->dy) return 0;
    return (wants_dx(c) ? PASS_DX : 0) | (c->dx[1] ? PASS_DW : 0) |
           (c->dx[2] ? PASS_DB : 0);
}

/* The 16-bit copies that these passes read, unless takes_ changes them: x and w
 * for y, w and dy for dx, x and dy for dw. */
unsigned copies_of(const Call *c, unsigned passes)
{
    const unsigned x = 1 | (c->x[X2] ? 1u << X2 : 0), w = 1u << 1;
    return (passes & PASS_Y ? x | w : 0) |
           (passes & PASS_DX ? w | HALF_DY : 0) |
           (passes & PASS_DW ? x | HALF_DY : 0);
}

} // namespace

ConvProblem conv_problem_of(const Call *c)
{
    const Window g = op_window(c->attr, c->x[1]);
    return is_upconv(c) ? conv_problem(c, g, c->y->dim, call_image(c))
                        : conv_problem(c, g, call_image(c), c->y->dim);
}

bool conv_takes_deferred(const ConvPlan &fwd)
{
    return fwd.choice[0].kernel->run != run_small_cin &&
           fwd.choice[0].kernel->run != run_im2row_sm90;
}

bool conv_loads_vectors(const ConvProblem *r)
{
    return loads_vectors(r, is_upconv(r->c) ? r->cout : r->cin);
}

// x[0] has a multiple of 32 channels (TILE_CHUNK), x[X2] of 8 (16 bytes).
// small_cin and im2row_sm90 take any two tensors, if dx is not needed.
bool conv_fuses_concat(const ConvProblem *r, const ConvPlan &fwd)
{
    const Call *c = r->c;
    if (call_op(c) == OP_linear) return false;
    if (!conv_takes_deferred(fwd)) return !wants_dx(c);
    return c->x[X2]->dim.c % NARROW_CHANNELS == 0 &&
           c->x[0]->dim.c % TILE_CHUNK == 0 && r->win.groups == 1 &&
           conv_loads_vectors(r);
}

int conv_tile(const ConvProblem *r, const ConvChoice &choice)
{
    return choice.kernel->run == run_igemm_tile
               ? igemm_tile_of(r, choice.runs_dgrad, choice.loads_norm_bwd)
               : 0;
}

ConvPlan conv_plan(const ConvProblem *r, bool bwd)
{
    ConvPlan p = {};
    unsigned left = passes_of(r->c, bwd);

    for (const ConvKernel &k : KERNELS) {
        ConvChoice o = {};
        o.kernel = &k, o.passes = k.passes & left;
        if (!o.passes) continue;
        o.runs_dgrad = (o.passes == PASS_Y) == is_upconv(r->c);
        o.half = copies_of(r->c, o.passes);
        if (!k.takes(r, &o)) continue;
        p.choice[p.count++] = o;
        left &= ~k.passes;
    }
    return p;
}
