/* sm90_host.cu -- see sm90_host.cuh. */
#include "cuda/conv/sm90_host.cuh"

namespace {

enum { MOST_TAPS = 7, MOST_TAPS_W = 4 }; // of a window along an axis, along w

/* A tap of one axis: residue class of the source, distance of the source
 * position from the result position (in positions of their classes). */
struct AxisTap {
    int residue, at, k;
};

int floor_mod(int a, int b)
{
    return (a % b + b) % b;
}

/* The taps of axis a that reach the result's class `residue`. Returns their
 * number. */
int axis_taps(const Window *g, int a, bool dgrad, int residue, AxisTap *out)
{
    int count = 0;
    for (int k = 0; k < g->k[a]; k++) {
        const int v = dgrad ? residue + g->lo[a] - k : k - g->lo[a];
        const int rest = floor_mod(v, g->s[a]);
        if (dgrad && rest) continue;
        out[count++] = {dgrad ? 0 : rest, (v - rest) / g->s[a], k};
    }
    return count;
}

/* The range of `at` among the taps of a residue class; false: none. */
bool range_of(const AxisTap *t, int count, int residue, int *from, int *to)
{
    bool any = false;
    for (int i = 0; i < count; i++) {
        if (t[i].residue != residue) continue;
        if (!any || t[i].at < *from) *from = t[i].at;
        if (!any || t[i].at > *to) *to = t[i].at;
        any = true;
    }
    return any;
}

/* Adds the groups of one result class. */
bool class_taps(const Window *g, bool dgrad, const int *residue, Sm90Taps *out)
{
    AxisTap t[3][MOST_TAPS];
    int count[3], classes[3];
    for (int a = 0; a < 3; a++) {
        count[a] = axis_taps(g, a, dgrad, residue[a], t[a]);
        classes[a] = dgrad ? 1 : g->s[a];
    }

    for (int d = 0; d < count[0]; d++)
        for (int rh = 0; rh < classes[1]; rh++)
            for (int rw = 0; rw < classes[2]; rw++) {
                int h0, h1, w0, w1;
                if (!range_of(t[1], count[1], rh, &h0, &h1) ||
                    !range_of(t[2], count[2], rw, &w0, &w1))
                    continue;
                if (out->groups == SM90_GROUPS) return false;
                Sm90Group *to = &out->group[out->groups++];
                *to = {
                    (int8_t)w0,
                    (int8_t)h0,
                    (int8_t)t[0][d].at,
                    (uint8_t)((t[0][d].residue * classes[1] + rh) * classes[2] +
                              rw),
                    (uint8_t)out->taps,
                    0};
                out->span_h = (int)most(out->span_h, h1 - h0);
                out->span_w = (int)most(out->span_w, w1 - w0);
                for (int h = 0; h < count[1]; h++)
                    for (int w = 0; w < count[2]; w++) {
                        if (t[1][h].residue != rh || t[2][w].residue != rw)
                            continue;
                        if (out->taps == SM90_TAPS) return false;
                        out->tap[out->taps++] = {
                            t[1][h].at - h0, t[2][w].at - w0,
                            (t[0][d].k * g->k[1] + t[1][h].k) * g->k[2] +
                                t[2][w].k};
                        to->count++;
                    }
            }
    return true;
}

} // namespace

int sm90_processors(const ConvProblem *r)
{
    return launch_hook ? H100_PROCESSORS : gpu_processors(r->c->dev);
}

// the two tensors are x of the call, or dx: of conv's input, upconv's output
int sm90_border(const ConvProblem *r, bool input)
{
    const Call *c = r->c;
    if (!c->x[X2] || input != (call_op(c) != OP_upconv) || r->position)
        return 0;
    return c->x[0]->dim.c;
}

static bool is_16(const ConvProblem *r)
{
    return precision_copy(r->c->precision) != F32;
}

static bool takes_window(const ConvProblem *r)
{
    const Window *g = &r->win;
    if (!gpu_is_hopper() || g->groups != 1) return false;
    for (int a = 0; a < 3; a++) {
        if (g->dil[a] != 1 || g->s[a] > 2 ||
            g->k[a] > (a == 2 ? MOST_TAPS_W : MOST_TAPS))
            return false;
        if (g->s[a] == 2 && ((&r->input.d)[a] % 2 || g->k[a] < 2)) return false;
    }
    return true;
}

/* Do chunks of `from` and `to` channels pad the products to at most twice as
 * many? */
static bool pads_little(const ConvProblem *r, const Sm90Side &from,
                        const Sm90Side &to)
{
    return (int64_t)from.chunks * to.chunks * from.size * to.size <=
           2 * (int64_t)r->cin * r->cout;
}

bool sm90_takes_tf32(const ConvProblem *r, bool dgrad)
{
    const int from = dgrad ? r->cout : r->cin, to = dgrad ? r->cin : r->cout;
    // TMA wants rows of a multiple of 16 bytes
    return r->c->precision == PRECISION_tf32 && !r->c->x[X2] &&
           takes_window(r) && from % 4 == 0 &&
           pads_little(r, sm90_side(0, from, SM90_CHANNELS_F32),
                       sm90_side(0, to));
}

bool sm90_takes(const ConvProblem *r)
{
    if (!is_16(r) || !takes_window(r) || r->cin % 8 || r->cout % 8)
        return false;
    return pads_little(r, sm90_side(sm90_border(r, true), r->cin),
                       sm90_side(sm90_border(r, false), r->cout));
}

/* Do window, strides and width allow pairs of positions? */
static bool has_pairs(const ConvProblem *r)
{
    const Window *g = &r->win;
    return takes_window(r) && g->k[2] == 3 && g->lo[2] == 1 && g->s[0] == 1 &&
           g->s[1] == 1 && g->s[2] == 1 && r->input.w % 2 == 0 &&
           r->output.w == r->input.w;
}

bool sm90_takes_pairs_tf32(const ConvProblem *r, bool dgrad)
{
    return r->c->precision == PRECISION_tf32 && has_pairs(r) &&
           (dgrad ? r->cin : r->cout) == 32;
}

bool sm90_takes_pairs(const ConvProblem *r)
{
    if (!is_16(r) || !has_pairs(r)) return false;
    for (int side = 0; side < 2; side++) {
        const Sm90Side s =
            sm90_side(sm90_border(r, side), side ? r->cin : r->cout, 32);
        if (s.channels[0] != 32 || s.channels[1] % 32 || s.channels[1] > 32)
            return false;
    }
    return true;
}

bool sm90_takes_thin(const ConvProblem *r)
{
    const Call *c = r->c;
    return is_16(r) && takes_window(r) && call_op(c) == OP_conv &&
           r->cin <= 16 && r->cout % 8 == 0 && r->cout >= 32 && !c->x_norm[0] &&
           !c->x_norm[X2];
}

/* The problem of pairs along d and h: half as wide, with a window of one along
 * w. */
static ConvProblem pairs_of(const ConvProblem *r)
{
    ConvProblem p = *r;
    p.input.w /= 2, p.output.w /= 2;
    p.win.k[2] = 1, p.win.lo[2] = 0;
    return p;
}

/* False: too many taps or groups. */
static bool taps_of(const ConvProblem *r, bool dgrad, Sm90Taps *out)
{
    const Window *g = &r->win;
    const int classes = g->s[0] * g->s[1] * g->s[2];
    *out = {};
    out->source_classes = dgrad ? 1 : classes;
    out->result_classes = dgrad ? classes : 1;
    for (int i = 0; i < classes; i++) {
        const int residue[3] = {i / (g->s[1] * g->s[2]), i / g->s[2] % g->s[1],
                                i % g->s[2]};
        memcpy(out->residue[i], residue, sizeof residue);
    }
    for (int i = 0; i < out->result_classes; i++) {
        const int first = out->groups;
        const int none[3] = {};
        if (!class_taps(g, dgrad, dgrad ? out->residue[i] : none, out))
            return false;
        out->cls[i] = {(uint8_t)first, (uint8_t)(out->groups - first)};
        if (out->groups == first) return false; // a class without taps
    }
    return true;
}

/* Divides a result of extents s into boxes of so many lines, so that their
 * halos, which reach span_h lines beyond a box, have the fewest positions in
 * all. Returns the number of boxes. The bits of y and dx do not depend on the
 * boxes. */
static int64_t grid_of(Dims s, int box_lines, int span_h, Sm90Grid *out)
{
    enum { LOG_LEAST_H = 2 };
    int log_lines = 0;
    while (1 << log_lines < box_lines) log_lines++;
    int64_t fewest = 0, boxes = 0;
    for (int planes = 0; planes <= log_lines - LOG_LEAST_H; planes++)
        for (int d = 0; d <= planes; d++) {
            const int n = planes - d, h = log_lines - planes;
            const int64_t w_boxes = ceil_div(s.w, SM90_BOX_W),
                          h_boxes = ceil_div(s.h, 1 << h),
                          d_boxes = ceil_div(s.d, 1 << d);
            const int64_t count =
                w_boxes * h_boxes * d_boxes * ceil_div(s.n, 1 << n);
            const int64_t lines = count * (((1 << h) + span_h) << planes);
            if (fewest && lines >= fewest) continue;
            fewest = lines, boxes = count;
            *out = {divisor(w_boxes),
                    divisor(h_boxes),
                    divisor(d_boxes),
                    1 << h,
                    1 << d,
                    1 << n,
                    d,
                    n};
        }
    return boxes;
}

/* Is at most half of the boxes of a sample outside of the sample, if a box
 * holds as many samples as it can? */
static bool fills_boxes(Dims s)
{
    enum { LEAST_H = 4 };
    return ceil_div(s.w, SM90_BOX_W) * SM90_BOX_W * ceil_div(s.h, LEAST_H) *
               LEAST_H <=
           2 * (int64_t)s.w * s.h;
}

bool sm90_boxes_of(const ConvProblem *r, bool dgrad, bool pairs, int lines,
                   Sm90Boxes *out)
{
    const ConvProblem seen = pairs ? pairs_of(r) : *r;
    Sm90Taps *taps = &out->taps;
    Dims *s = &out->result;
    *s = dgrad ? seen.input : seen.output;
    if (dgrad)
        s->d /= seen.win.s[0], s->h /= seen.win.s[1], s->w /= seen.win.s[2];
    if (!taps_of(&seen, dgrad, taps) || !fills_boxes(*s)) return false;
    const int64_t count = grid_of(*s, lines, taps->span_h, &out->grid);
    if (count > INT32_MAX / SM90_BOX) return false;
    out->count = (int)count;
    out->halo_h = out->grid.box_h + taps->span_h;
    // the positions around a pair belong to three pairs, the first of them
    // before the box
    out->pitch = SM90_BOX_W + (pairs ? 2 : taps->span_w);
    CHECK(out->pitch <= SM90_MOST_PITCH);
    for (int i = 0; pairs && i < taps->groups; i++) taps->group[i].w = -1;
    return true;
}

bool sm90_map(const void *data, Dtype type, Dims size, const int (&s)[3],
              const int (&residue)[3], const Sm90Grid &grid, int w, int h,
              TensorMap *out, Sm90Extent *extent, int channels,
              int64_t position, int64_t line_of)
{
    TensorMapSpec m = {};
    const int bytes = (int)dtype_bytes(type);
    const int64_t row = bytes * (position ? position : size.c),
                  line = line_of ? bytes * line_of : row * size.w,
                  plane = line * size.h;
    m.data = (const char *)data + residue[0] * plane + residue[1] * line +
             residue[2] * row;
    m.type = type;
    m.extent[0] = size.c;
    m.extent[1] = ceil_div(size.w - residue[2], s[2]);
    m.extent[2] = ceil_div(size.d - residue[0], s[0]), m.extent[3] = size.n;
    m.extent[4] = ceil_div(size.h - residue[1], s[1]);
    m.stride[1] = row * s[2], m.stride[2] = plane * s[0];
    m.stride[3] = plane * size.d, m.stride[4] = line * s[1];
    m.box[0] = channels, m.box[1] = w, m.box[2] = grid.box_d;
    m.box[3] = grid.box_n, m.box[4] = h;
    m.swizzle = bytes * channels;
    *extent = {(int)m.extent[1], (int)m.extent[4], (int)m.extent[2],
               (int)m.extent[3]};
    return tensor_map_encode(&m, out);
}
