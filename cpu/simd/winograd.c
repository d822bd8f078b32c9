/* winograd.c -- the transforms of Winograd's convolutions: grids of numbers
 * into 36 planes, and 36 planes into grids (Lavin and Gray 2016; points 0, 1,
 * -1, 2, -2 and infinity).
 *
 *     image     6x6 -> 36   B' d B       of F(4x4, 3x3) and F(3x3, 4x4)
 *     weights   3x3 -> 36   G g G'       of F(4x4, 3x3)
 *     result    36 -> 4x4   A' m A       of F(4x4, 3x3)
 *     dy        4x4 -> 36   H s H'       of F(3x3, 4x4)
 *     dw        36 -> 3x3   C' m C       of F(3x3, 4x4)
 *
 * Vectors lie along the channels, so a transform consists of additions of whole
 * vectors, columns first and then rows. 36 vectors do not fit the registers:
 * the results of the columns wait in L1. There is about one load or store for
 * each two additions. */
#include "cpu/simd/vec.h"

enum { SIX = 6, PLANES = 36 };

// -- along one axis: `n` numbers at distance `s` ------------------------------

/* B': six pixels of the image. */
INLINE void image_line(const V *d, int s, V *o)
{
    const V two = v_set(2), four = v_set(4), minus = v_set(-4);
    V a = v_fma(minus, d[2 * s], d[4 * s]), b = v_fma(minus, d[s], d[3 * s]);
    V c = d[4 * s] - d[2 * s], e = two * (d[3 * s] - d[s]);
    o[0] = v_fma(four, d[0], v_fma(v_set(-5), d[2 * s], d[4 * s]));
    o[1] = a + b, o[2] = a - b;
    o[3] = c + e, o[4] = c - e;
    o[5] = v_fma(four, d[s], v_fma(v_set(-5), d[3 * s], d[5 * s]));
}

/* G: three weights. */
INLINE void weights_line(const V *g, int s, V *o)
{
    const V sixth = v_set(-1 / 6.f), part = v_set(1 / 24.f);
    V even = sixth * (g[0] + g[2 * s]), odd = sixth * g[s];
    V far = part * v_fma(v_set(4), g[2 * s], g[0]), side = part * (g[s] + g[s]);
    o[0] = v_set(.25f) * g[0];
    o[1] = even + odd, o[2] = even - odd;
    o[3] = far + side, o[4] = far - side;
    o[5] = g[2 * s];
}

/* H: four numbers of dy, in the place of the weights. */
INLINE void dy_line(const V *y, int s, V *o)
{
    const V sixth = v_set(-1 / 6.f), part = v_set(1 / 24.f), four = v_set(4);
    V even = sixth * (y[0] + y[2 * s]), odd = sixth * (y[s] + y[3 * s]);
    V far = part * v_fma(four, y[2 * s], y[0]);
    V side = v_set(1 / 12.f) * v_fma(four, y[3 * s], y[s]);
    o[0] = v_set(.25f) * y[0];
    o[1] = even + odd, o[2] = even - odd;
    o[3] = far + side, o[4] = far - side;
    o[5] = y[3 * s];
}

/* A' and C': the first `n` results of six products; C' is A' without its third
 * row, with the point at infinity in the last one. */
INLINE void result_line(const V *m, int s, int n, V *o)
{
    V sum = m[s] + m[2 * s], gap = m[s] - m[2 * s];
    V far = m[3 * s] + m[4 * s], side = m[3 * s] - m[4 * s];
    o[0] = (m[0] + sum) + far;
    o[1] = v_fma(v_set(2), side, gap);
    o[2] = v_fma(v_set(4), far, sum);
    if (n == 3)
        o[2] += m[5 * s];
    else
        o[3] = v_fma(v_set(8), side, gap) + m[5 * s];
}

// -- into planes --------------------------------------------------------------

typedef enum Kind { IMAGE, WEIGHTS, DY } Kind;

/* A vector of channels at p, of which `last` lanes exist. */
INLINE V part_load(const float *p, bool part, int last)
{
    return part ? v_load_part(p, last) : v_load(p);
}

/* The same at element `at` of x, f32 or bf16. */
INLINE V element(const void *x, ptrdiff_t at, bool half, bool part, int last)
{
    if (!half) return part_load((const float *)x + at, part, last);
    const uint16_t *p = (const uint16_t *)x + at;
    uint16_t some[LANES] = {0};
    if (!part) return v_load_half(p);
    memcpy(some, p, (size_t)last * sizeof *some);
    return v_load_half(some);
}

/* Transforms the vector of channels from k on. `kind`, `half`, n (elements
 * along an axis), `whole` (no element is outside) and `part` are constants. */
INLINE void into_planes(const Tile *t, const void *x, int64_t k, float *to,
                        Kind kind, bool half, int n, bool whole, bool part,
                        int last)
{
    V d[SIX], e[PLANES], o[SIX];
    UNROLL for (int b = 0; b < n; b++)
    {
        UNROLL for (int a = 0; a < n; a++)
        {
            bool inside =
                whole || (a >= t->r0 && a < t->r1 && b >= t->c0 && b < t->c1);
            ptrdiff_t at = a * t->row + b * t->pixel + k;
            d[a] = inside ? element(x, at, half, part, last) : v_zero();
        }
        if (kind == IMAGE) image_line(d, 1, o);
        if (kind == WEIGHTS) weights_line(d, 1, o);
        if (kind == DY) dy_line(d, 1, o);
        UNROLL for (int a = 0; a < SIX; a++) e[a * n + b] = o[a];
    }
    UNROLL for (int a = 0; a < SIX; a++)
    {
        if (kind == IMAGE) image_line(e + a * n, 1, o);
        if (kind == WEIGHTS) weights_line(e + a * n, 1, o);
        if (kind == DY) dy_line(e + a * n, 1, o);
        UNROLL for (int b = 0; b < SIX; b++)
            v_store(to + (a * SIX + b) * t->plane + k, o[b]);
    }
}

/* All channels of a grid; planes get whole vectors. */
INLINE void all_into_planes(const Tile *t, const void *x, float *to, Kind kind,
                            bool half, int n)
{
    bool whole = t->r0 <= 0 && t->c0 <= 0 && t->r1 >= n && t->c1 >= n;
    int64_t k = 0;
    if (whole)
        for (; k + LANES <= t->channels; k += LANES)
            into_planes(t, x, k, to, kind, half, n, true, false, LANES);
    else
        for (; k + LANES <= t->channels; k += LANES)
            into_planes(t, x, k, to, kind, half, n, false, false, LANES);
    int last = (int)(t->channels - k);
    if (last) into_planes(t, x, k, to, kind, half, n, false, true, last);
}

void ISA_NAME(tile_image)(const Tile *t, const void *x, float *planes);
void ISA_NAME(tile_image)(const Tile *t, const void *x, float *planes)
{
    if (t->half)
        all_into_planes(t, x, planes, IMAGE, true, 6);
    else
        all_into_planes(t, x, planes, IMAGE, false, 6);
}

void ISA_NAME(tile_weights)(const Tile *t, const float *w, float *planes);
void ISA_NAME(tile_weights)(const Tile *t, const float *w, float *planes)
{
    all_into_planes(t, w, planes, WEIGHTS, false, 3);
}

void ISA_NAME(tile_dy)(const Tile *t, const void *dy, float *planes);
void ISA_NAME(tile_dy)(const Tile *t, const void *dy, float *planes)
{
    if (t->half)
        all_into_planes(t, dy, planes, DY, true, 4);
    else
        all_into_planes(t, dy, planes, DY, false, 4);
}

// -- out of planes ------------------------------------------------------------

/* The epilogue of one vector of channels, or none. Testing it for each result
 * costs next to nothing, because the branch is always the same. */
typedef struct Finish {
    const Epilogue *epilogue;
    V hi, lo, scale, beta, low;
} Finish;

INLINE Finish finish_of(const Epilogue *epilogue, int64_t k, bool part,
                        int last)
{
    Finish f = {.epilogue = epilogue};
    if (epilogue) f.low = v_set(epilogue->act.slope);
    if (!epilogue || !epilogue->norm.hi) return f;
    f.hi = part_load(epilogue->norm.hi + k, part, last);
    f.lo = part_load(epilogue->norm.lo + k, part, last);
    f.scale = part_load(epilogue->norm.scale + k, part, last);
    f.beta = part_load(epilogue->norm.beta + k, part, last);
    return f;
}

/* With the bits of bn_apply, relu and leaky. */
INLINE V finish(const Finish *f, V v)
{
    if (!f->epilogue) return v;
    if (f->epilogue->norm.hi) v = v_fma(v - f->hi - f->lo, f->scale, f->beta);
    switch (f->epilogue->act.kind) {
    case ACT_RELU:
        return v_act(ACT_RELU, f->low, v);
    case ACT_LEAKY_RELU:
        return v_act(ACT_LEAKY_RELU, f->low, v);
    default:
        return v;
    }
}

/* Transforms one vector of channels into n x n numbers and writes those inside;
 * n, `whole` and `part` are constants. */
INLINE void out_of_planes(const Tile *t, const float *from, V bias,
                          const Finish *f, float *y, int n, bool whole,
                          bool part, int last)
{
    V d[SIX], e[4 * SIX], o[4];
    UNROLL for (int b = 0; b < SIX; b++)
    {
        UNROLL for (int a = 0; a < SIX; a++) d[a] =
            v_load(from + (a * SIX + b) * t->plane);
        result_line(d, 1, n, o);
        UNROLL for (int a = 0; a < n; a++) e[a * SIX + b] = o[a];
    }
    UNROLL for (int a = 0; a < n; a++)
    {
        result_line(e + a * SIX, 1, n, o);
        UNROLL for (int b = 0; b < n; b++)
        {
            float *at = y + a * t->row + b * t->pixel;
            if (!whole && !(a < t->r1 && b < t->c1)) continue;
            V old = t->add ? part_load(at, part, last) : bias;
            V v = finish(f, o[b] + old);
            if (part)
                v_store_part(at, v, last);
            else
                v_store(at, v);
        }
    }
}

/* All channels of a grid. */
INLINE void all_out_of_planes(const Tile *t, const float *from,
                              const float *bias, const Epilogue *epilogue,
                              float *y, int n)
{
    bool whole = t->r1 >= n && t->c1 >= n;
    int64_t k = 0;

    for (; k + LANES <= t->channels; k += LANES) {
        V b = bias ? v_load(bias + k) : v_zero();
        const Finish f = finish_of(epilogue, k, false, LANES);
        if (whole)
            out_of_planes(t, from + k, b, &f, y + k, n, true, false, LANES);
        else
            out_of_planes(t, from + k, b, &f, y + k, n, false, false, LANES);
    }

    int last = (int)(t->channels - k);
    if (!last) return;
    V b = bias ? v_load_part(bias + k, last) : v_zero();
    const Finish f = finish_of(epilogue, k, true, last);
    out_of_planes(t, from + k, b, &f, y + k, n, false, true, last);
}

void ISA_NAME(tile_result)(const Tile *t, const float *planes,
                           const float *bias, const Epilogue *epilogue,
                           float *y);
void ISA_NAME(tile_result)(const Tile *t, const float *planes,
                           const float *bias, const Epilogue *epilogue,
                           float *y)
{
    all_out_of_planes(t, planes, bias, epilogue, y, 4);
}

void ISA_NAME(tile_dw)(const Tile *t, const float *planes, float *dw);
void ISA_NAME(tile_dw)(const Tile *t, const float *planes, float *dw)
{
    all_out_of_planes(t, planes, NULL, NULL, dw, 3);
}
