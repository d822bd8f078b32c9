/* view4.cuh -- the operands of a loss, indexed by the elements of x.
 *
 * Target, mask and weight have, along each axis, the extent of x or 1 and are
 * broadcast; an absent one is 1 everywhere. A View has the strides. The cost of
 * the index computation is known at launch (Way), so that the usual case, equal
 * extents, has no division.
 *
 * Each thread takes a quad of four elements: one float4 of each operand that
 * has x's extents. Quads begin at multiples of 4 within a set (the batch, or a
 * sample); the last quad of a set may be short, and no float4 is used where a
 * set does not begin at a multiple of 4. Kernels that loop over rows of
 * channels use view_at() alone. */
#ifndef SEG_CUDA_LOSS_VIEW4_H
#define SEG_CUDA_LOSS_VIEW4_H
#include "cuda/lib/kernel.cuh"

enum { QUAD = 4 };

// -- operands broadcast to the extents of x ----------------------------------

/* The computation from an element of x to the element of an operand. */
enum Way {
    FLAT,   // the same index, or always the first
    ROWS,   // by row and channel: one division
    PLACES, // by position and channel: four divisions
};

struct View {
    const float *data; // NULL: 1 everywhere
    int64_t row;       // step between rows, unless the way is PLACES
    Steps step;
    bool all; // the extents are those of x
};

struct Views {
    const float *x;
    View t, m, q;
    Divisor channels;
    Grid grid;
    Way way;      // the most expensive of the three
    bool aligned; // element 4k of every set begins a float4
};

static inline Way way_of(const Tensor *t, Dims x)
{
    if (!t || numel(t->dim) == 1 || dims_equal(t->dim, x)) return FLAT;
    Dims s = t->dim;
    bool flat = s.n == x.n && s.d == x.d && s.h == x.h && s.w == x.w;
    return flat || rows(s) == 1 ? ROWS : PLACES;
}

static inline View view_of(const Tensor *t, Dims x)
{
    View v = {};
    if (!t) return v;
    v.data = values(t), v.all = dims_equal(t->dim, x);
    v.row = rows(t->dim) > 1 ? t->dim.c : 0;
    v.step = steps_of(t->dim);
    return v;
}

/* Operands broadcast to extents `whole`, in `sets` sets of samples. */
static inline Views views_of(const Tensor *x, const Tensor *t, const Tensor *m,
                             const Tensor *q, Dims whole, int64_t sets)
{
    Views v = {};
    v.x = values(x);
    v.t = view_of(t, whole), v.m = view_of(m, whole), v.q = view_of(q, whole);
    v.channels = divisor(whole.c), v.grid = grid_of(whole);
    v.way =
        (Way)most(way_of(t, whole), most(way_of(m, whole), way_of(q, whole)));
    v.aligned = sets == 1 || numel(whole) / sets % QUAD == 0;
    return v;
}

/* The four operands of a loss. */
static inline Views loss_views(const Call *c, int64_t sets)
{
    return views_of(c->x[0], c->x[1], c->x[2], c->x[3], c->x[0]->dim, sets);
}

/* The element of `v` at a row (and its position, read for PLACES) and
 * channel. */
static __device__ __forceinline__ float view_at(const View &v, Way way,
                                                int64_t row, const Place &p,
                                                int c)
{
    if (!v.data) return 1;
    int64_t i = way == PLACES ? offset(v.step, p, 0) : row * v.row;
    return v.data[i + c * v.step.c];
}

/* Row and channel of element e, which may exceed 32 bits. */
static __device__ __forceinline__ int64_t row_of(int64_t e, Divisor channels,
                                                 int *c)
{
    if (e < INT32_MAX) {
        uint32_t row = (uint32_t)e;
        *c = (int)split(&row, channels);
        return row;
    }
    *c = (int)(e % channels.by);
    return e / channels.by;
}

/* Loads n <= 4 elements from p on; the others are zero. */
static __device__ __forceinline__ void load4(const float *p, int n,
                                             bool aligned, float v[QUAD])
{
    if (n == QUAD && aligned) {
        float4 all = *(const float4 *)p;
        v[0] = all.x, v[1] = all.y, v[2] = all.z, v[3] = all.w;
        return;
    }
#pragma unroll
    for (int j = 0; j < QUAD; j++) v[j] = j < n ? p[j] : 0;
}

static __device__ __forceinline__ void put4(float *p, int n, bool aligned,
                                            const float v[QUAD], bool fresh)
{
    if (n == QUAD && aligned) {
        float4 to = {0, 0, 0, 0};
        if (!fresh) to = *(const float4 *)p;
        to.x += v[0], to.y += v[1], to.z += v[2], to.w += v[3];
        *(float4 *)p = to;
        return;
    }
#pragma unroll
    for (int j = 0; j < QUAD; j++)
        if (j < n) put(&p[j], v[j], fresh);
}

/* Four elements; w = m q. Elements beyond the end have m = w = 0. */
struct View4 {
    float x[QUAD], t[QUAD], m[QUAD], w[QUAD];
};

template <Way W>
static __device__ __forceinline__ void view4(const View &v, int64_t e, int n,
                                             bool aligned, const int64_t *row,
                                             const int *c, const Place *p,
                                             float out[QUAD])
{
    if (v.data && v.all) return load4(v.data + e, n, aligned, out);
#pragma unroll
    for (int j = 0; j < QUAD; j++)
        out[j] = j >= n      ? 0
                 : W == FLAT ? (v.data ? *v.data : 1.f)
                             : view_at(v, W, row[j], p[j], c[j]);
}

/* n <= 4 elements from e on. */
template <Way W>
static __device__ __forceinline__ View4 view4_at(const Views &v, int64_t e,
                                                 int n)
{
    View4 o;
    int64_t row[QUAD] = {};
    int c[QUAD] = {};
    Place p[QUAD] = {};

    if (W != FLAT)
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            row[j] = row_of(e + (j < n ? j : 0), v.channels, &c[j]);
            if (W == PLACES) p[j] = place(v.grid, (uint32_t)row[j]);
        }

    load4(v.x + e, n, v.aligned, o.x);
    view4<W>(v.t, e, n, v.aligned, row, c, p, o.t);
    view4<W>(v.m, e, n, v.aligned, row, c, p, o.m);
    view4<W>(v.q, e, n, v.aligned, row, c, p, o.w);
#pragma unroll
    for (int j = 0; j < QUAD; j++) o.w[j] *= o.m[j];
    return o;
}
#endif
