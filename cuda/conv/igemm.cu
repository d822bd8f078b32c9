/* igemm.cu -- launches of fprop and dgrad as an implicit GEMM; see
 * igemm_operands.cuh for the product and its residue classes. */
#include "cuda/conv/igemm.cuh"
#include "cuda/conv/igemm_tile.cuh"

namespace {

/* One launch over `classes` residue classes. */
bool launch(const ConvProblem *r, bool tile, IgemmParams *p, int classes)
{
    int positions = 0;
    for (int i = 0; i < classes; i++)
        if (p->cls[i].positions > positions) positions = p->cls[i].positions;
    if (!positions) return true;
    if (tile) {
        bool done, ok = igemm_tile_run(r, p, classes, &done);
        if (done) return ok;
    }

    switch (r->c->precision) {
    case PRECISION_tf32:
        return igemm_mma<PRECISION_tf32>(r, p, classes, positions);
    case PRECISION_bf16:
        return igemm_mma<PRECISION_bf16>(r, p, classes, positions);
    case PRECISION_f16:
        return igemm_mma<PRECISION_f16>(r, p, classes, positions);
    default:
        return igemm_f32(r, p, classes, positions);
    }
}

/* Sets the members that follow from the axes. */
void finish(ResidueClass *k, int samples, int channels)
{
    k->positions = samples;
    k->gemm_k = channels;
    for (int i = 0; i < 3; i++) {
        k->positions *= k->axis[i].count;
        k->gemm_k *= k->axis[i].taps;
        k->count[i] = divisor(most(1, k->axis[i].count));
        k->taps[i] = divisor(most(1, k->axis[i].taps));
    }
    k->channels = divisor(channels);
}

/* The axis of dgrad for input positions r mod s. The taps k with r + lo - k*dil
 * divisible by s are first, first + every, .., with every = s / gcd(dil, s). */
ConvAxis dgrad_axis(const Window *g, int i, int r, int size, int count)
{
    int s = g->s[i], first = 0, every = 1;
    ConvAxis x = {};
    x.count = r < size ? (size - r + s - 1) / s : 0;
    x.size = count, x.out_step = s, x.out_base = r, x.step = 1;
    while (first < g->k[i] && (r + g->lo[i] - first * g->dil[i]) % s) first++;
    while (every * g->dil[i] % s) every++;
    x.taps = first < g->k[i] ? (g->k[i] - first + every - 1) / every : 0;
    x.first = first, x.every = every;
    x.base = (r + g->lo[i] - first * g->dil[i]) / s;
    x.tap = -(every * g->dil[i] / s);
    return x;
}

/* Sets everything but the operands. False with the reason: a tensor has too
 * many rows for 32 bits. */
bool fprop_of(const ConvProblem *r, IgemmParams *p)
{
    const Window *g = &r->win;
    const int32_t *size = &r->input.d, *count = &r->output.d;
    *p = {};
    p->source_c = p->border = r->input.c;
    p->result_c = p->result_border = r->output.c;
    p->k_channels = r->cin, p->gemm_n = r->cout, p->extent = r->output;
    for (int i = 0; i < 3; i++) {
        p->taps[i] = g->k[i];
        p->cls[0].axis[i] = {count[i], g->s[i], -g->lo[i], g->dil[i], g->k[i],
                             0,        1,       size[i],   1,         0};
    }

    finish(&p->cls[0], r->output.n, r->cin);
    return countable(r->c, rows(r->input)) && countable(r->c, rows(r->output));
}

/* The same for dgrad, without its residue classes. */
bool dgrad_of(const ConvProblem *r, IgemmParams *p)
{
    *p = {};
    p->source_c = p->border = r->output.c;
    p->result_c = p->result_border = r->input.c;
    p->k_channels = r->cout, p->gemm_n = r->cin, p->extent = r->input;
    p->dgrad = true;
    for (int i = 0; i < 3; i++) p->taps[i] = r->win.k[i];
    return countable(r->c, rows(r->input)) && countable(r->c, rows(r->output));
}

/* Sets the next residue classes of a dgrad, up to RESIDUE_CLASSES, and returns
 * their number; *at begins at 0. */
int dgrad_classes(const ConvProblem *r, int *at, IgemmParams *p)
{
    const Window *g = &r->win;
    const int32_t *size = &r->input.d, *count = &r->output.d;
    const int all = g->s[0] * g->s[1] * g->s[2];
    int n = 0;

    for (; *at < all && n < RESIDUE_CLASSES; ++*at) {
        const int residue[3] = {*at / g->s[2] / g->s[1],
                                *at / g->s[2] % g->s[1], *at % g->s[2]};
        ResidueClass *k = &p->cls[n];
        *k = {};
        for (int a = 0; a < 3; a++)
            k->axis[a] = dgrad_axis(g, a, residue[a], size[a], count[a]);
        finish(k, r->input.n, r->cout);
        // a class without taps still stores the bias, or zero
        if (k->positions) n++;
    }
    return n;
}

/* Sets p and the classes of its first launch; returns their number, 0 if igemm
 * cannot compute the pass. *whole: this launch computes all of it. */
int first_launch(const ConvProblem *r, bool dgrad, IgemmParams *p, bool *whole)
{
    int at = 0;
    *whole = true;
    if (!dgrad) return fprop_of(r, p);
    if (!dgrad_of(r, p)) return 0;
    const int classes = dgrad_classes(r, &at, p);
    *whole = at == r->win.s[0] * r->win.s[1] * r->win.s[2];
    return classes;
}

/* Sets operands and result. */
void set_operands(IgemmParams *p, const Source &source, const void *w,
                  const float *bias, const Result &to)
{
    p->source = source.first.data, p->norm_on_load = source.first.norm_on_load;
    p->norm_bwd = source.first.norm_bwd,
    p->loads_norm_bwd = p->norm_bwd.table != NULL;
    if (source.border) p->second = source.second, p->border = source.border;
    p->sums = to.sums;
    p->w = w, p->bias = bias, p->result = to.first;
    if (to.border) p->second_result = to.second, p->result_border = to.border;
}

} // namespace

IgemmFusion igemm_tile_fusion(const ConvProblem *r, bool dgrad, bool norm_bwd)
{
    IgemmParams p;
    bool whole;
    const int classes = first_launch(r, dgrad, &p, &whole);
    if (!classes || !whole) return {};
    p.loads_norm_bwd = norm_bwd;
    IgemmTileFit fit = igemm_tile_fit(r, &p, classes);

    if (norm_bwd && !fit.number) {
        p.loads_norm_bwd = norm_bwd = false;
        fit = igemm_tile_fit(r, &p, classes);
    }
    return {norm_bwd, fit.sum_parts};
}

int igemm_tile_of(const ConvProblem *r, bool dgrad, bool loads_norm_bwd)
{
    IgemmParams p;
    bool whole;
    const int classes = first_launch(r, dgrad, &p, &whole);
    p.loads_norm_bwd = loads_norm_bwd;
    return classes ? igemm_tile_fit(r, &p, classes).number : 0;
}

bool igemm_run(const ConvProblem *r, bool dgrad, bool tile,
               const Source &source, const void *w, const float *bias,
               const Result &result)
{
    const Dims from = dgrad ? r->output : r->input;
    const Dims to = dgrad ? r->input : r->output;
    IgemmParams p;

    if (!(dgrad ? dgrad_of(r, &p) : fprop_of(r, &p))) return false;
    moves(operand_traffic(r, source.first.norm_bwd, numel(from)) +
              conv_operand_bytes(r, conv_filter_size(r)) +
              result_traffic(result, to),
          conv_flops(r));
    set_operands(&p, source, w, bias, result);
    if (!dgrad) return launch(r, tile, &p, 1);
    for (int n, at = 0; (n = dgrad_classes(r, &at, &p));)
        if (!launch(r, tile, &p, n)) return false;
    return true;
}
