/* im2row_sm90.cu -- fprop of few input channels as a problem of igemm_sm90.cuh.
 *
 * x is copied with `channels` channels a position, the last ones zero, and with
 * its padding along w. In the copy the taps along w of a result's position are
 * neighbours in memory: a row of kw x channels elements. A tensor map whose
 * positions along w lie (stride x channels) elements apart makes each row one
 * position, so rows overlap in memory and nothing is copied twice (an im2col
 * along w alone). igemm_sm90 computes a convolution with kw x channels input
 * channels, a window of one position along w, and the window of x along d and
 * h. The filter is copied in that order.
 *
 * Bound by memory: x is read, its copy is written and read. A window of 4x4x4
 * with stride 2 over 11 channels becomes one of 4x4 over 64, with 16/11 of its
 * products. */
#include "cuda/conv/im2row_sm90.cuh"
#include "cuda/conv/sm90_host.cuh"

namespace {

enum {
    MOST_CHANNELS = 16, // of x
    VECTOR = 8,         // elements of 16 bytes
};

/* The problem of a fit, and its copies of x and of the filter. */
struct Im2row {
    ConvProblem rows;   // of igemm_sm90
    int channels;       // of a position of the copy: 4, 8 or 16
    int64_t line;       // elements of a line of the copy
    int64_t x_elements; // of the copies
    int64_t w_elements;
};

/* The copy of x: one vector a thread. Lines are (n, d, h); the first `a`
 * channels of a position are in `first`, b in `second`. */
struct RowCopy {
    const uint16_t *first, *second;
    int a, b, log_channels, wide, lo;
    Divisor vectors; // of a line
    int64_t count;   // vectors
    uint4 *to;
};

__global__ void __launch_bounds__(BLOCK)
    im2row_kernel(const __grid_constant__ RowCopy p)
{
    EACH(i, p.count)
    {
        uint32_t line = (uint32_t)i, v[VECTOR / 2] = {};
        const int from = (int)split(&line, p.vectors) * VECTOR;
#pragma unroll
        for (int e = 0; e < VECTOR; e++) {
            const int at = from + e, w = (at >> p.log_channels) - p.lo;
            const int c = at & ((1 << p.log_channels) - 1);
            if (w < 0 || w >= p.wide || c >= p.a + p.b) continue;
            const int64_t row = (int64_t)line * p.wide + w;
            const uint32_t x = c < p.a ? p.first[row * p.a + c]
                                       : p.second[row * p.b + c - p.a];
            v[e / 2] |= x << e % 2 * 16;
        }
        p.to[i] = make_uint4(v[0], v[1], v[2], v[3]);
    }
}

/* The filter (rows, kw, cin) as (rows, width), with `channels` channels a tap
 * and zeros after them. */
__global__ void __launch_bounds__(BLOCK)
    im2row_filter_kernel(const uint16_t *w, int kw, int cin, int channels,
                         Divisor width, int64_t count, uint16_t *to)
{
    EACH(i, count)
    {
        uint32_t row = (uint32_t)i;
        const int at = (int)split(&row, width);
        const int k = at / channels, c = at % channels;
        to[i] = k < kw && c < cin ? w[((int64_t)row * kw + k) * cin + c] : 0;
    }
}

/* Bytes of a copy in the workspace. */
size_t copy_bytes(int64_t elements)
{
    return conv_aligned(2 * (size_t)elements);
}

/* False: the call is no conv in 16 bits of 1 to 15 channels (not 8) in one
 * group without a deferred norm, or igemm_sm90 does not take its rows. Sets the
 * fit of igemm_sm90. */
bool im2row_of(const ConvProblem *r, Im2row *out, IgemmSm90Fit *fit)
{
    const Call *c = r->c;
    const Window *g = &r->win;
    if (call_op(c) != OP_conv || g->groups != 1 || g->dil[2] != 1 ||
        precision_copy(c->precision) == F32 || c->x_norm[0] || c->x_norm[X2] ||
        r->cin > MOST_CHANNELS || r->cin % VECTOR == 0)
        return false; // multiples of 8 may have a deferred norm
    *out = {};
    out->channels = 4;
    while (out->channels < r->cin || out->channels * g->s[2] % VECTOR)
        out->channels *= 2;

    ConvProblem *q = &out->rows;
    *q = *r;
    q->cin = (int)ceil_div(g->k[2] * out->channels, VECTOR) * VECTOR;
    q->input.c = q->cin, q->input.w = r->output.w;
    q->win.k[2] = q->win.s[2] = 1, q->win.lo[2] = 0;
    const int64_t wide =
        (int64_t)(r->output.w - 1) * g->s[2] * out->channels + q->cin;
    out->line = ceil_div(wide, VECTOR) * VECTOR;
    q->position = g->s[2] * out->channels, q->line = out->line;
    out->x_elements = (int64_t)r->input.n * r->input.d * r->input.h * out->line;
    out->w_elements = conv_filter_size(q);
    *fit = igemm_sm90_fit(q, false);
    return fit->takes;
}

bool copy_x(const ConvProblem *r, const Im2row &m, const Source &x, void *to)
{
    RowCopy p = {};
    p.first = (const uint16_t *)x.first.data;
    p.second = (const uint16_t *)x.second.data;
    p.a = x.border ? x.border : r->cin, p.b = r->cin - p.a;
    while (1 << p.log_channels < m.channels) p.log_channels++;
    p.wide = r->input.w, p.lo = r->win.lo[2];
    p.vectors = divisor(m.line / VECTOR), p.count = m.x_elements / VECTOR;
    p.to = (uint4 *)to;
    if (!countable(r->c, p.count)) return false;
    moves(conv_operand_bytes(r, numel(r->input) + m.x_elements));
    LAUNCH(im2row_kernel, blocks_for(p.count), BLOCK, 0, gpu_stream(r->c->dev),
           p);
    return gpu_launched("im2row_sm90, x");
}

bool copy_filter(const ConvProblem *r, const Im2row &m, const void *w, void *to)
{
    moves(conv_operand_bytes(r, conv_filter_size(r) + m.w_elements));
    LAUNCH(im2row_filter_kernel, blocks_for(m.w_elements), BLOCK, 0,
           gpu_stream(r->c->dev), (const uint16_t *)w, r->win.k[2], r->cin,
           m.channels, divisor(m.rows.cin), m.w_elements, (uint16_t *)to);
    return gpu_launched("im2row_sm90, filter");
}

} // namespace

IgemmSm90Fit im2row_sm90_fit(const ConvProblem *r)
{
    Im2row m;
    IgemmSm90Fit fit = {};
    if (im2row_of(r, &m, &fit))
        fit.workspace += copy_bytes(m.x_elements) + copy_bytes(m.w_elements);
    else
        fit = {};
    return fit;
}

bool im2row_sm90_run(const ConvProblem *r, const Source &x, const void *w,
                     const float *bias, const Result &to, void *workspace)
{
    Im2row m;
    IgemmSm90Fit fit;
    CHECK(im2row_of(r, &m, &fit));
    char *const x_copy = (char *)workspace;
    char *const w_copy = x_copy + copy_bytes(m.x_elements);
    Source rows = {};
    rows.first.data = x_copy;
    return copy_x(r, m, x, x_copy) && copy_filter(r, m, w, w_copy) &&
           igemm_sm90_run(&m.rows, false, rows, w_copy, bias, to,
                          w_copy + copy_bytes(m.w_elements));
}
