/* resample.c -- resamples a volume on another grid (volume.h).
 *
 * Output index o maps to source index M o, M = inverse(source) * target. When
 * every row of M has one entry above rounding (the grids share their axes,
 * possibly permuted, flipped or scaled: spacing, crop, pad, resize and the
 * plane grids), the positions along each axis are computed once into a table of
 * taps, and a line of output needs at most four blended source lines. Other
 * grids are sampled voxel by voxel in double. */
#include "data/resample/resample.h"
#include <math.h>
#include <string.h>

/* Positions closer than this, in voxels, are equal: far above the rounding of
 * affines, far below any visible shift. */
#define SAME_PLACE 1e-5

/* One output index along one source axis: value = (1-t) x[lo] + t x[hi]; lo <
 * 0: outside. t == 0 has hi == lo, so that an infinite neighbour with weight 0
 * does not turn the value into NaN. */
typedef struct Tap {
    int32_t lo, hi;
    float t;
} Tap;

typedef struct Job {
    const Volume *in;
    Volume *out;
    Interpolation how;
    float outside;
    double map[4][4];  /* output index -> source index      */
    int64_t stride[3]; /* elements per step of in's w, h, d */
    int32_t in_n[3];   /* of the whole source               */
    int32_t in_first;  /* first slice of the source that `in` has */
    Box box;           /* voxels of the grid that are in `out` */
    int32_t out_n[3];  /* of the whole grid                 */
    int from[3];       /* source axis of output axis w, h, d; only if
                        * separable */
} Job;

/* Returns the two source indices around a position and the weight of the
 * second. Between the last centre and the outer face the edge is repeated. */
static Tap tap_at(double at, int32_t n, Interpolation how)
{
    Tap out = {-1, -1, 0};

    // NaN fails the first comparison and counts as outside
    if (!(at >= -0.5 - SAME_PLACE) || at >= n - 0.5 - SAME_PLACE) return out;

    if (how == NEAREST) {
        out.lo = (int32_t)(at + 0.5 + SAME_PLACE);
    } else {
        if (at < 0) at = 0;
        if (at > n - 1) at = n - 1;
        out.lo = (int32_t)at;
        // weights within SAME_PLACE of 0 or 1 are rounding: a plain copy
        double t = at - out.lo;
        if (t > 1 - SAME_PLACE) t = 0, out.lo++;
        out.t = t < SAME_PLACE ? 0 : (float)t;
    }

    out.hi = out.t > 0 ? out.lo + 1 : out.lo;
    return out;
}

/* Returns the tap of a position along source axis s, as indices into the slices
 * that are in memory. */
static Tap tap_of(const Job *j, int s, double at)
{
    Tap out = tap_at(at, j->in_n[s], j->how);
    if (s == 2 && out.lo >= 0) out.lo -= j->in_first, out.hi -= j->in_first;
    return out;
}

/* Sets elements i .. i+count-1 of the output to `outside`. */
static void fill(const Job *j, int64_t i, int64_t count)
{
    float v = roundf(j->outside);
    void *y = j->out->voxels.data;

    switch (j->out->voxels.type) {
    case U8: {
        uint8_t b = v > 255 ? 255 : v > 0 ? (uint8_t)v : 0;
        memset((uint8_t *)y + i, b, (size_t)count);
        break;
    }
    case I16: {
        int16_t s = 0; // also for NaN
        if (v >= 0 || v < 0)
            s = v > 32767 ? 32767 : v < -32768 ? -32768 : (int16_t)v;
        for (int64_t k = 0; k < count; k++) ((int16_t *)y)[i + k] = s;
        break;
    }
    default:
        for (int64_t k = 0; k < count; k++) ((float *)y)[i + k] = j->outside;
    }
}

/* Returns true when M is a scaled permutation up to SAME_PLACE over the whole
 * grid; from[a] is then the source axis along output axis a. */
static bool separable(Job *j)
{
    bool taken[3] = {false, false, false};
    for (int s = 0; s < 3; s++) {
        int most = 0;
        for (int a = 1; a < 3; a++)
            if (fabs(j->map[s][a]) > fabs(j->map[s][most])) most = a;
        double rest = 0;
        for (int a = 0; a < 3; a++)
            if (a != most) rest += fabs(j->map[s][a]) * (j->out_n[a] - 1);
        if (taken[most] || !(rest < SAME_PLACE)) return false;
        taken[most] = true;
        j->from[most] = s;
    }
    return true;
}

/* line[x*c + channel] (+)= weight * source, x from lo to hi along one axis;
 * `at` is the element of x == 0. */
#define BLEND(type)                                              \
    do {                                                         \
        const type *x = (const type *)j->in->voxels.data + at;   \
        if (first && weight == 1)                                \
            for (int64_t i = lo; i <= hi; i++)                   \
                for (int64_t k = 0; k < c; k++)                  \
                    line[i * c + k] = x[i * step + k];           \
        else if (first)                                          \
            for (int64_t i = lo; i <= hi; i++)                   \
                for (int64_t k = 0; k < c; k++)                  \
                    line[i * c + k] = weight * x[i * step + k];  \
        else                                                     \
            for (int64_t i = lo; i <= hi; i++)                   \
                for (int64_t k = 0; k < c; k++)                  \
                    line[i * c + k] += weight * x[i * step + k]; \
    } while (0)

/* Adds one weighted source line along the axis of output w: bilinear in the
 * other two axes, one line at a time. The caller skips lines of weight 0, so
 * that their infinities do not become NaN. */
static void blend(const Job *j, int64_t at, float weight, bool first,
                  int64_t lo, int64_t hi, float *line)
{
    int64_t c = j->in->voxels.dim.c, step = j->stride[j->from[0]];
    // one channel in memory order is the usual case and has a plain loop
    bool dense = step == c;
    if (dense) {
        at += lo * c, line += lo * c;
        hi = (hi - lo + 1) * c - 1, lo = 0;
        c = step = 1;
    }

    switch (j->in->voxels.type) {
    case U8:
        BLEND(uint8_t);
        break;
    case I16:
        BLEND(int16_t);
        break;
    default:
        BLEND(float);
    }
}

/* Interpolates out[i] between the two entries of `line` of tap i. */
static void interpolate(const Job *j, const Tap *taps, const float *line,
                        int64_t at)
{
    int64_t c = j->in->voxels.dim.c;
    float *y = (float *)j->out->voxels.data + at;

    for (int32_t i = 0; i < j->box.n[0]; i++, y += c) {
        Tap p = taps[i];
        for (int64_t k = 0; k < c; k++) {
            if (p.lo < 0) {
                y[k] = j->outside;
                continue;
            }
            float a = line[p.lo * c + k], b = line[p.hi * c + k];
            y[k] = p.t == 0 ? a : a + p.t * (b - a);
        }
    }
}

/* NEAREST: copies the elements of one line; `at` and `to` count elements. */
static void gather(const Job *j, const Tap *taps, int64_t at, int64_t to)
{
    size_t size = dtype_bytes(j->in->voxels.type);
    int64_t c = j->in->voxels.dim.c, step = j->stride[j->from[0]];
    const char *x = j->in->voxels.data;
    char *y = j->out->voxels.data;

    for (int32_t i = 0; i < j->box.n[0]; i++, to += c) {
        if (taps[i].lo < 0) {
            fill(j, to, c);
            continue;
        }
        const char *from = x + (size_t)(at + taps[i].lo * step) * size;
        char *into = y + (size_t)to * size;
        // constant sizes: the compiler turns these into single moves
        switch ((size_t)c * size) {
        case 1:
            *into = *from;
            break;
        case 2:
            memcpy(into, from, 2);
            break;
        case 4:
            memcpy(into, from, 4);
            break;
        default:
            memcpy(into, from, (size_t)c * size);
        }
    }
}

/* lo .. hi is the range of voxels of a source line that the taps along w read;
 * source lines are blended only there. */
static void resample_lines(const Job *j, Tap *const taps[3], float *line)
{
    int64_t c = j->in->voxels.dim.c, to = 0, length = j->box.n[0] * c;
    // taps do not always rise: an axis may be mirrored
    int64_t lo = INT64_MAX, hi = -1;

    for (int32_t i = 0; i < j->box.n[0]; i++) {
        if (taps[0][i].lo < 0) continue;
        lo = taps[0][i].lo < lo ? taps[0][i].lo : lo;
        hi = taps[0][i].lo > hi ? taps[0][i].lo : hi;
        lo = taps[0][i].hi < lo ? taps[0][i].hi : lo;
        hi = taps[0][i].hi > hi ? taps[0][i].hi : hi;
    }

    for (int32_t d = 0; d < j->box.n[2]; d++)
        for (int32_t h = 0; h < j->box.n[1]; h++, to += length) {
            Tap p = taps[2][d], q = taps[1][h];
            if (p.lo < 0 || q.lo < 0 || hi < 0) {
                fill(j, to, length);
                continue;
            }
            int64_t sp = j->stride[j->from[2]], sq = j->stride[j->from[1]];
            if (j->how == NEAREST) {
                gather(j, taps[0], p.lo * sp + q.lo * sq, to);
                continue;
            }
            // the first line is stored, further ones are added
            bool first = true;
            for (int k = 0; k < 4; k++) {
                float weight =
                    (k & 2 ? p.t : 1 - p.t) * (k & 1 ? q.t : 1 - q.t);
                if (weight == 0) continue;
                int64_t at =
                    (k & 2 ? p.hi : p.lo) * sp + (k & 1 ? q.hi : q.lo) * sq;
                blend(j, at, weight, first, lo, hi, line);
                first = false;
            }
            interpolate(j, taps[0], line, to);
        }
}

/* Makes tables of taps for all three axes, and one line of floats as scratch
 * memory. */
static bool resample_separable(const Job *j)
{
    Tap *taps[3] = {NULL, NULL, NULL};
    float *line = NULL;
    size_t count, bytes;
    bool ok = false;

    for (int a = 0; a < 3; a++) {
        int s = j->from[a];
        TRY(size_mul((size_t)j->box.n[a], sizeof(Tap), &bytes));
        TRY(taps[a] = mem_alloc(bytes));
        for (int32_t i = 0; i < j->box.n[a]; i++)
            taps[a][i] = tap_of(
                j, s, j->map[s][a] * (j->box.from[a] + i) + j->map[s][3]);
    }

    TRY(size_mul((size_t)j->in_n[j->from[0]], (size_t)j->in->voxels.dim.c,
                 &count));
    TRY(size_mul(count, sizeof *line, &bytes));
    TRY(line = mem_alloc(bytes));
    resample_lines(j, taps, line);
    ok = true;

done:
    for (int a = 0; a < 3; a++) mem_free(taps[a]);
    mem_free(line);
    return ok;
}

/* Computes one output voxel, element `to`, from taps along w, h and d of the
 * source. */
static void sample(const Job *j, const Tap tap[3], int64_t to)
{
    int64_t c = j->in->voxels.dim.c;
    if (tap[0].lo < 0 || tap[1].lo < 0 || tap[2].lo < 0) {
        fill(j, to, c);
        return;
    }

    if (j->how == NEAREST) {
        size_t size = dtype_bytes(j->in->voxels.type);
        int64_t at = tap[0].lo * j->stride[0] + tap[1].lo * j->stride[1] +
                     tap[2].lo * j->stride[2];
        memcpy((char *)j->out->voxels.data + (size_t)to * size,
               (const char *)j->in->voxels.data + (size_t)at * size,
               (size_t)c * size);
        return;
    }

    float *y = (float *)j->out->voxels.data + to;
    for (int64_t k = 0; k < c; k++) {
        double sum = 0;
        for (int corner = 0; corner < 8; corner++) {
            double weight = 1;
            int64_t at = k;
            for (int a = 0; a < 3; a++) {
                bool up = corner >> a & 1;
                weight *= up ? (double)tap[a].t : 1 - (double)tap[a].t;
                at += (up ? tap[a].hi : tap[a].lo) * j->stride[a];
            }
            if (weight > 0) sum += weight * volume_value(j->in, at);
        }
        y[k] = (float)sum;
    }
}

/* Oblique grids: eight corners per voxel, in double. */
static void resample_points(const Job *j)
{
    int64_t to = 0, c = j->in->voxels.dim.c;
    for (int32_t d = 0; d < j->box.n[2]; d++)
        for (int32_t h = 0; h < j->box.n[1]; h++)
            for (int32_t w = 0; w < j->box.n[0]; w++, to += c) {
                Tap tap[3];
                for (int s = 0; s < 3; s++) {
                    const double *m = j->map[s];
                    double at = m[0] * (j->box.from[0] + w) +
                                m[1] * (j->box.from[1] + h) +
                                m[2] * (j->box.from[2] + d) + m[3];
                    tap[s] = tap_of(j, s, at);
                }
                sample(j, tap, to);
            }
}

/* The source index of each output index is M * index with M = inverse(source) *
 * target; all sampling uses M. Only the source must be invertible. n: extents
 * of the whole source. */
static bool job_begin(Job *j, Dims n, const Grid *source, const Grid *target)
{
    Grid from = *source, to = *target;
    double inverse[4][4];
    // elements, not bytes
    j->stride[0] = n.c;
    j->stride[1] = j->stride[0] * n.w;
    j->stride[2] = j->stride[1] * n.h;
    j->in_n[0] = n.w, j->in_n[1] = n.h, j->in_n[2] = n.d;
    j->out_n[0] = to.w, j->out_n[1] = to.h, j->out_n[2] = to.d;
    if (!affine_invert(from.affine, inverse)) return false;
    affine_multiply(inverse, to.affine, j->map);
    return true;
}

static bool job_run(Job *j)
{
    if (separable(j)) return resample_separable(j);
    resample_points(j);
    return true;
}

bool volume_resample(const Volume *v, const Grid *grid, Interpolation how,
                     float outside, Volume *out)
{
    Dims n = v->voxels.dim, m = {1, grid->d, grid->h, grid->w, n.c};
    Job j = {.in = v, .out = out, .how = how, .outside = outside};
    CHECK(v != out && (v->unit != UNIT_LABEL || how == NEAREST));
    memset(out, 0, sizeof *out);
    Grid from = volume_grid(v);
    if (!job_begin(&j, n, &from, grid) ||
        !volume_new(out, m, how == NEAREST ? v->voxels.type : F32))
        return within("resample");
    j.box = (Box){{0, 0, 0}, {m.w, m.h, m.d}};
    memcpy(out->affine, grid->affine, sizeof out->affine);
    out->unit = v->unit;
    if (job_run(&j)) return true;
    volume_free(out);
    return within("resample");
}

/* ---- a source with some of its slices in memory -------------------------- */

bool resample_box(const Slices *from, const Grid *grid, const Box *box,
                  float *out)
{
    const Dims n = {1, from->grid.d, from->grid.h, from->grid.w,
                    from->channels};
    Volume v = {.voxels = {n, F32, RANK_MAX, (void *)(uintptr_t)from->data}};
    Volume y = {.voxels = {n, F32, RANK_MAX, out}};
    Job j = {.in = &v, .out = &y, .how = LINEAR, .in_first = from->first};
    j.box = *box;
    return (job_begin(&j, n, &from->grid, grid) && job_run(&j)) ||
           within("resample");
}

bool resample_reach(const Grid *source, const Grid *grid, int *axis,
                    int32_t *last)
{
    const Dims n = {1, source->d, source->h, source->w, 1};
    Job j = {.how = LINEAR};
    if (!job_begin(&j, n, source, grid)) return within("resample");
    *axis = -1;
    if (!separable(&j)) return true;
    for (int a = 0; a < 3; a++)
        if (j.from[a] == 2) *axis = a;
    for (int32_t i = 0; i < j.out_n[*axis]; i++)
        last[i] = tap_at(j.map[2][*axis] * i + j.map[2][3], n.d, LINEAR).hi;
    return true;
}
