#include "engine/check/oprun.h"
#include "engine/base/rng.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    PAD = 256,     // bytes of canary on each side; keeps the alignment
    CANARY = 0xA5, //
    NOTHING = 0xFF // in every byte of a float or double: NaN
};

// -- cases -------------------------------------------------------------------

char *opcase_text(const OpCase *c, char text[OPCASE_TEXT])
{
    const OpInfo *info = &op_info[c->attr.op];
    int at = snprintf(text, OPCASE_TEXT, "%s #%u%s%s", info->name,
                      (unsigned)c->number, c->eval ? " eval" : "",
                      c->no_winograd ? " no_winograd" : "");

    for (int i = 0; i < info->attrs && at < OPCASE_TEXT; i++) {
        float f;
        memcpy(&f, &c->attr.word[1 + i], 4);
        double v = info->attr[i].kind == 'f' ? f : c->attr.word[1 + i];
        at += snprintf(text + at, (size_t)(OPCASE_TEXT - at), " %s %g",
                       info->attr[i].name, v);
    }

    for (int i = 0; i < info->in && at < OPCASE_TEXT; i++) {
        Dims s = c->x[i];
        at += snprintf(text + at, (size_t)(OPCASE_TEXT - at),
                       " x%d %dx%dx%dx%dx%d%s", i, s.n, s.d, s.h, s.w, s.c,
                       c->wrt >> i & 1 ? "'" : "");
    }
    return text;
}

bool opcase_shape(const OpCase *c, Tensor *y)
{
    const OpInfo *info = &op_info[c->attr.op];
    Tensor x[MAX_IN] = {{{0}, F64, 0, NULL}};
    for (int i = 0; i < info->in; i++)
        x[i] = (Tensor){c->x[i], F64, c->rank, NULL};
    *y = x[0];
    return info->shape(&c->attr, x, y);
}

static double fill_between(const Fill *f, const Rng *r, uint32_t i)
{
    return f->lo + (f->hi - f->lo) * rng_uniform(r, 2 * i + 1);
}

/* Draws element i of operand `op` for a fill; each kind draws only the numbers
 * it needs. x0 is operand 0's element, 0 except for FILL_OFFSET. */
static double fill_value(const Fill *f, const Rng *r, uint32_t i, double x0)
{
    double size;
    switch (f->kind) {
    case FILL_RANGE:
        return fill_between(f, r, i);
    case FILL_GAP:
    case FILL_OFFSET:
        size = fill_between(f, r, i);
        return x0 + (rng_below(r, 2 * i, 2) ? size : -size);
    default: // FILL_CLASS; the other kinds are drawn as a whole
        return f->lo + rng_below(r, i, (uint32_t)(f->hi - f->lo) + 1);
    }
}

static bool fill_operand(const OpCase *c, int op, int64_t count, Arena *mem,
                         const double *x0, double *out)
{
    const Fill *f = &c->fill[op];
    Rng r = {.seed = 1,
             .stream = RNG_TEST,
             .op = (uint16_t)c->attr.op,
             .epoch = (uint32_t)op + 1,
             .sample = c->number};

    if (f->kind == FILL_DISTINCT) {
        uint32_t *order = ARENA_NEW(mem, uint32_t, count);
        if (!order) return false;
        rng_permutation(&r, (uint32_t)count, order);
        double step = (f->hi - f->lo) / (double)(count > 1 ? count - 1 : 1);
        for (int64_t i = 0; i < count; i++) out[i] = f->lo + step * order[i];
    } else if (f->kind == FILL_NORMAL) {
        const double deviation = f->hi > 0 ? f->hi : 1;
        for (int64_t i = 0; i < count; i += 2) {
            float pair[2];
            rng_normal_pair(&r, (uint32_t)(i / 2), pair);
            out[i] = deviation * pair[0];
            if (i + 1 < count) out[i + 1] = deviation * pair[1];
        }
    } else {
        // only FILL_OFFSET guarantees that the extents are those of x0
        bool from_x0 = f->kind == FILL_OFFSET;
        for (int64_t i = 0; i < count; i++)
            out[i] = fill_value(f, &r, (uint32_t)i, from_x0 ? x0[i] : 0);
    }

    // the same numbers for a backend in float and for ref
    for (int64_t i = 0; i < count; i++) out[i] = (float)out[i];
    return true;
}

bool opcase_values(const OpCase *c, Arena *mem, OpValues *out)
{
    Tensor y;
    *out = (OpValues){.results = 0};
    if (!opcase_shape(c, &y)) return false;
    out->results = numel(y.dim);

    for (int i = 0; i < MAX_IN; i++) {
        if (!c->x[i].n) continue;
        CHECK(i == 0 || c->fill[i].kind != FILL_OFFSET ||
              dims_equal(c->x[i], c->x[0]));
        out->count[i] = numel(c->x[i]);
        out->x[i] = ARENA_NEW(mem, double, out->count[i]);
        if (!out->x[i] ||
            !fill_operand(c, i, out->count[i], mem, out->x[0], out->x[i]))
            return false;
    }

    out->dy = ARENA_NEW(mem, double, out->results);
    if (!out->dy) return false;
    OpCase normal = {.attr = c->attr, .number = c->number};
    return fill_operand(&normal, MAX_IN - 1, out->results, mem, NULL, out->dy);
}

// -- devices and fenced buffers ----------------------------------------------

bool opdevice_open_at(const Backend *be, int number, int threads, OpDevice *out)
{
    *out = (OpDevice){.be = be, .threads = threads};
    return be->open(number, threads, &out->dev);
}

bool opdevice_open(const Backend *be, int threads, OpDevice *out)
{
    return opdevice_open_at(be, 0, threads, out);
}

void opdevice_close(OpDevice *d)
{
    d->be->close(d->dev);
}

typedef struct Buffer {
    const char *what;
    char *base; // device memory: PAD, bytes, PAD
    size_t bytes;
    Tensor t; // data points after the first PAD
} Buffer;

enum {
    X0,
    Y = MAX_IN,
    DY,
    DX0,
    SAVED = DX0 + MAX_IN,
    SCRATCH,
    HALF0, // 16-bit copies
    HALFDY = HALF0 + MAX_IN,
    BUFFERS
};

typedef struct FencedCall {
    const OpCase *c;
    const OpDevice *d;
    Arena *mem;
    Buffer b[BUFFERS];
    unsigned copied; // operands that are NaN now
} FencedCall;

/* Fills the payload with values or (NULL) with a byte; canaries around it. */
static bool buffer_write(FencedCall *r, int i, const double *v, int byte)
{
    Buffer *b = &r->b[i];
    char *host = arena_alloc(r->mem, b->bytes + 2 * PAD);
    if (!host) return false;
    memset(host, CANARY, b->bytes + 2 * PAD);

    if (v) {
        Tensor t = b->t;
        t.data = host + PAD;
        tensor_write(&t, 0, numel(t.dim), v);
    } else {
        memset(host + PAD, byte, b->bytes);
    }
    return r->d->be->upload(r->d->dev, b->base, host, b->bytes + 2 * PAD);
}

static bool buffer_make(FencedCall *r, int i, const char *what, size_t bytes)
{
    Buffer *b = &r->b[i];
    void *base;
    b->what = what;
    b->bytes = bytes;
    if (!r->d->be->alloc(r->d->dev, bytes + 2 * PAD, &base)) return false;
    b->base = base;
    b->t.data = b->base + PAD;
    return buffer_write(r, i, NULL, NOTHING);
}

static bool tensor_make(FencedCall *r, int i, const char *what, Dims s,
                        int rank, bool narrow)
{
    const Dtype type =
        narrow ? precision_copy(r->d->precision) : r->d->be->real;
    r->b[i].t = (Tensor){s, type, rank, NULL};
    return buffer_make(r, i, what, tensor_bytes(&r->b[i].t));
}

/* Copies the payload to the host; false if a canary was overwritten. */
static bool buffer_read(FencedCall *r, int i, Tensor *out)
{
    Buffer *b = &r->b[i];
    unsigned char *host = arena_alloc(r->mem, b->bytes + 2 * PAD);
    if (!host ||
        !r->d->be->download(r->d->dev, host, b->base, b->bytes + 2 * PAD))
        return false;

    for (size_t k = 0; k < PAD; k++) {
        if (host[PAD - 1 - k] != CANARY)
            return fail("%s: written %zu bytes before its start", b->what,
                        k + 1);
        if (host[PAD + b->bytes + k] != CANARY)
            return fail("%s: written %zu bytes after its end", b->what, k + 1);
    }

    *out = b->t;
    out->data = host + PAD;
    return true;
}

static bool read_values(FencedCall *r, int i, double **out)
{
    Tensor t;
    if (!buffer_read(r, i, &t)) return false;
    int64_t count = numel(t.dim);
    if (!(*out = ARENA_NEW(r->mem, double, count))) return false;
    tensor_read(&t, 0, count, *out);
    return true;
}

/* Does buffer i hold the values v? Any value matches a NaN. */
static bool same_values(const FencedCall *r, int i, const double *now,
                        const double *v)
{
    for (int64_t k = 0; k < numel(r->b[i].t.dim); k++)
        if (now[k] != v[k] && v[k] == v[k])
            return fail("%s: element %lld was changed", r->b[i].what,
                        (long long)k);
    return true;
}

static bool unchanged(FencedCall *r, int i, const double *v)
{
    double *now;
    return read_values(r, i, &now) && same_values(r, i, now, v);
}

// -- one run -----------------------------------------------------------------

static const char *const x_name[MAX_IN] = {"x0", "x1", "x2", "x3", "x4", "x5"};
static const char *const dx_name[MAX_IN] = {"dx0", "dx1", "dx2",
                                            "dx3", "dx4", "dx5"};

static bool make_all(FencedCall *r, const OpValues *in, OpOptions how, Call *c)
{
    const OpCase *oc = r->c;
    const OpInfo *info = &op_info[oc->attr.op];
    Tensor y;

    if (!opcase_shape(oc, &y)) return false;
    for (int i = 0; i < info->in; i++) {
        const bool narrow = how.narrow >> i & 1;
        if (!oc->x[i].n) continue;
        if (!tensor_make(r, X0 + i, x_name[i], oc->x[i], oc->rank, narrow) ||
            !buffer_write(r, X0 + i, in->x[i], 0))
            return false;
        c->x[i] = &r->b[X0 + i].t;
        if (!info->grad || how.forward_only || !(oc->wrt >> i & 1)) continue;
        if (!tensor_make(r, DX0 + i, dx_name[i], oc->x[i], oc->rank, narrow))
            return false;
        c->dx[i] = &r->b[DX0 + i].t;
    }

    const bool narrow = how.narrow & NARROW_Y;
    if (!tensor_make(r, Y, "y", y.dim, y.rank, narrow) ||
        !tensor_make(r, DY, "dy", y.dim, y.rank, narrow) ||
        !buffer_write(r, DY, in->dy, 0))
        return false;
    c->y = &r->b[Y].t;
    c->dy = &r->b[DY].t;
    return true;
}

/* Makes buffer `to` the 16-bit copy of `from`. */
static bool copy_make(FencedCall *r, int from, int to, const Call *c)
{
    const Backend *be = r->d->be;
    Tensor t = r->b[from].t;
    t.type = precision_copy(r->d->precision);
    if (!r->b[to].base) {
        r->b[to].t = t;
        if (!buffer_make(r, to, "copy in 16 bits", tensor_bytes(&t)))
            return false;
    }

    Call convert = {.step = c->step,
                    .dev = c->dev,
                    .threads = c->threads,
                    .x = {&r->b[from].t},
                    .y = &r->b[to].t};
    return be->convert(&convert) && be->sync(r->d->dev);
}

/* Makes the copies that a call needs. An operand with a copy becomes NaN, as a
 * plan may reuse its memory. */
static bool copies_make(FencedCall *r, Call *c)
{
    const Backend *be = r->d->be;
    c->precision = op_multiplies(call_op(c)) ? r->d->precision : PRECISION_f32;
    if (precision_copy(c->precision) == F32) return true;
    const unsigned wants = backend_storage(be, c).copies;

    for (int i = 0; i < MAX_IN; i++) {
        if (!(wants >> i & 1) || c->x[i]->type != be->real) continue;
        // made by the forward run, or now
        if (!(r->copied >> i & 1) && (!copy_make(r, X0 + i, HALF0 + i, c) ||
                                      !buffer_write(r, X0 + i, NULL, NOTHING)))
            return false;
        r->copied |= 1u << i;
        c->half.x[i] = &r->b[HALF0 + i].t;
    }

    if (!(wants & HALF_DY) || c->dy->type != be->real) return true;
    c->half.dy = &r->b[HALFDY].t;
    return copy_make(r, DY, HALFDY, c);
}

/* Checks that the copies still have their initial values: rounded like the
 * reference, and not overwritten. */
static bool copies_read(FencedCall *r, const OpValues *in)
{
    for (int i = 0; i <= MAX_IN; i++) {
        const double *v = i < MAX_IN ? in->x[i] : in->dy;
        Tensor t;
        if (!r->b[HALF0 + i].base) continue;
        if (!buffer_read(r, HALF0 + i, &t)) return false;
        const uint16_t *bits = t.data;
        for (int64_t k = 0; k < numel(t.dim); k++) {
            double want = precision_round(r->d->precision, v[k]);
            double got = precision_value(r->d->precision, bits[k]);
            if (got != want && !(isnan(got) && isnan(want)))
                return fail("%s: element %lld of operand %d is %g, want %g",
                            r->b[HALF0 + i].what, (long long)k, i, got, want);
        }
    }
    return true;
}

static bool run_forward(FencedCall *r, const OpValues *in, OpOptions how,
                        Call c, size_t scratch, OpValues *out)
{
    const Backend *be = r->d->be;
    Op op = (Op)r->c->attr.op;
    int y = how.inplace ? X0 : Y;
    Tensor result = r->b[y].t; // operand 0's memory may have another rank

    result.rank = r->b[Y].t.rank;
    c.y = &result;
    c.dy = NULL;
    memset(c.dx, 0, sizeof c.dx);
    if (!buffer_make(r, SCRATCH, "scratch", scratch) || !copies_make(r, &c))
        return false;
    c.scratch = r->b[SCRATCH].t.data;
    if (!be->fwd[op](&c) || !be->sync(r->d->dev)) return within("fwd");
    if (!read_values(r, y, &out->y)) return within("fwd");

    for (int i = 0; i < op_info[op].in; i++) {
        if (!c.x[i]) continue;
        if (r->copied >> i & 1) {
            out->x[i] = in->x[i];
            continue;
        }
        bool may = r->c->changes >> i & 1 || (how.inplace && i == 0);
        if (!read_values(r, X0 + i, &out->x[i]) ||
            (!may && !same_values(r, X0 + i, out->x[i], in->x[i])))
            return within("fwd");
    }

    Tensor t;
    bool ok = buffer_read(r, SAVED, &t) && buffer_read(r, SCRATCH, &t);
    be->release(r->d->dev, r->b[SCRATCH].base);
    r->b[SCRATCH].base = NULL;
    return ok || within("fwd");
}

static bool run_backward(FencedCall *r, const OpValues *in, OpOptions how,
                         Call c, size_t scratch, OpValues *out)
{
    const Backend *be = r->d->be;
    Op op = (Op)r->c->attr.op;
    const OpInfo *info = &op_info[op];
    Tensor alias = r->b[DY].t;

    if (!buffer_make(r, SCRATCH, "scratch", scratch) || !copies_make(r, &c))
        return false;
    c.scratch = r->b[SCRATCH].t.data;

    // a plan may have overwritten tensors that are not kept
    for (int i = 0; i < info->in; i++)
        if (c.x[i] && !op_keeps(info, i) &&
            !buffer_write(r, X0 + i, NULL, NOTHING))
            return false;
    bool keeps = info->keep & KEEP_Y || how.act;
    const double *y = !keeps ? NULL : how.y ? how.y : out->y;
    if (!buffer_write(r, Y, y, NOTHING)) return false;
    if (!(info->keep & KEEP_S) && !buffer_write(r, SAVED, NULL, NOTHING))
        return false;
    if (how.inplace_grad && c.dx[0]) c.dx[0] = &alias;

    for (int i = 0; i < info->in; i++) {
        if (!c.dx[i]) continue;
        c.fresh |= 1u << i;
        if (!how.accumulate) continue;
        c.fresh = 0;
        double *ones = ARENA_NEW(r->mem, double, in->count[i]);
        if (!ones) return false;
        for (int64_t k = 0; k < in->count[i]; k++) ones[k] = 1;
        if (!buffer_write(r, DX0 + i, ones, 0)) return false;
    }

    if (!be->bwd[op](&c) || !be->sync(r->d->dev)) return within("bwd");
    for (int i = 0; i < info->in; i++) {
        int from = i == 0 && how.inplace_grad ? DY : DX0 + i;
        if (c.dx[i] && !read_values(r, from, &out->dx[i])) return within("bwd");
        // running statistics of batch norm: unchanged since fwd
        if (c.x[i] && op_keeps(info, i) && !(r->copied >> i & 1) &&
            !unchanged(r, X0 + i, out->x[i]))
            return within("bwd");
    }

    Tensor t;
    bool ok = (how.inplace_grad || unchanged(r, DY, in->dy)) &&
              (!y || unchanged(r, Y, y)) && buffer_read(r, SAVED, &t) &&
              buffer_read(r, SCRATCH, &t);
    return ok || within("bwd");
}

bool oprun(const OpCase *oc, const OpDevice *d, const OpValues *in,
           OpOptions how, Arena *mem, OpValues *out)
{
    const Step step = {.seed = 3, .count = 5};
    FencedCall r = {.c = oc, .d = d, .mem = mem};
    Call c = {.attr = &oc->attr,
              .act = how.act,
              .step = &step,
              .dev = d->dev,
              .threads = d->threads,
              .node = 7,
              .train = !oc->eval,
              .no_winograd = oc->no_winograd,
              .tile = {oc->tile[0], oc->tile[1]}};
    Op op = (Op)oc->attr.op;
    Space space = {0};
    bool ok = false;

    *out = (OpValues){.results = in->results};
    memcpy(out->count, in->count, sizeof out->count);
    TRY(!d->be->begin || d->be->begin(d->dev, &step));
    TRY(make_all(&r, in, how, &c));
    c.precision = op_multiplies(op) ? d->precision : PRECISION_f32;
    if (d->be->space[op]) space = d->be->space[op](&c);
    TRY(buffer_make(&r, SAVED, "saved", space.saved));
    c.saved = r.b[SAVED].t.data;
    TRY(run_forward(&r, in, how, c, space.fwd, out));
    bool back = false;
    for (int i = 0; i < MAX_IN; i++) back = back || c.dx[i];
    if (back) TRY(run_backward(&r, in, how, c, space.bwd, out));
    TRY(copies_read(&r, in));
    ok = true;

done:
    for (int i = 0; i < BUFFERS; i++)
        if (r.b[i].base) d->be->release(d->dev, r.b[i].base);
    return ok;
}
