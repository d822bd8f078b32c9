/* opcase.c -- see opcase.h: each property is one function.
 *
 * All of them run the case through oprun(), on values that are the same floats
 * for every backend, and compare the results in double. */
#include "engine/check/opcase.h"
#include "engine/base/rng.h"
#include "engine/check/condition.h"
#include "engine/check/sample.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    FULL_INPUTS = 2000, // gradient: element by element up to here
    DIRECTIONS = 8,     // gradient: random directions beyond
};

static const double STEP = 1e-5, GRADIENT_TOLERANCE = 1e-6;

// -- reports -----------------------------------------------------------------

void opcheck_report(OpCheck *k, const OpCase *c, const char *fmt, ...)
{
    char name[OPCASE_TEXT], text[ERR_MAX], all[OPCASE_TEXT + ERR_MAX];
    k->failures++;
    if (!k->report) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(all, sizeof all, "%s: %s", opcase_text(c, name), text);
    k->report(k->ctx, all);
}

/* Name of part i of a result: 0 y, then dx, then x. */
enum { PARTS = 1 + 2 * MAX_IN };
static const char *const part_name[PARTS] = {
    "y",        "dx0",      "dx1",      "dx2",      "dx3",
    "dx4",      "dx5",      "x0 after", "x1 after", "x2 after",
    "x3 after", "x4 after", "x5 after",
};

static double *part(const OpValues *v, int i, int64_t *count)
{
    int k = (i - 1) % MAX_IN;
    *count = i ? v->count[k] : v->results;
    return i == 0 ? v->y : i <= MAX_IN ? v->dx[k] : v->x[k];
}

// -- gradient ----------------------------------------------------------------

/* Computes sum(dy * y) of a forward run on the operands in v. */
static bool weighted_sum(const OpCase *c, const OpDevice *d, const OpValues *v,
                         double *out)
{
    Arena mem = {0};
    OpValues r;
    bool ok = oprun(c, d, v, (OpOptions){.forward_only = true}, &mem, &r);
    *out = 0;
    for (int64_t i = 0; ok && i < v->results; i++) *out += v->dy[i] * r.y[i];
    arena_release(&mem);
    return ok;
}

/* Computes half the change of weighted_sum between operands keep + move and
 * keep - move. */
static bool difference(const OpCase *c, const OpDevice *d, OpValues *v,
                       double *const keep[MAX_IN], double *const move[MAX_IN],
                       double *out)
{
    double up, down;
    for (int side = 1; side >= -1; side -= 2) {
        for (int k = 0; k < MAX_IN; k++)
            for (int64_t i = 0; move[k] && i < v->count[k]; i++)
                v->x[k][i] = keep[k][i] + side * move[k][i];
        if (!weighted_sum(c, d, v, side > 0 ? &up : &down)) return false;
    }
    *out = (up - down) / 2;
    return true;
}

/* Checks each element of operand k separately. */
static bool check_elements(OpCheck *check, const OpCase *c, const OpDevice *d,
                           OpValues *v, double *const keep[MAX_IN],
                           double *move[MAX_IN], int k, const double *g)
{
    double scale = 1e-3, fd; // for a gradient that is zero everywhere
    for (int64_t i = 0; i < v->count[k]; i++) scale = fmax(scale, fabs(g[i]));
    double *only[MAX_IN] = {0};
    only[k] = move[k];
    memset(move[k], 0, (size_t)v->count[k] * sizeof *move[k]);

    for (int64_t i = 0; i < v->count[k]; i++) {
        double h = STEP * fmax(1, fabs(keep[k][i]));
        move[k][i] = h;
        if (!difference(c, d, v, keep, only, &fd)) return false;
        move[k][i] = 0;
        if (!(fabs(fd / h - g[i]) <= GRADIENT_TOLERANCE * scale)) {
            opcheck_report(
                check, c,
                "gradient %d [%lld]: %.12g, by differences %.12g (max "
                "%.3g)",
                k, (long long)i, g[i], fd / h, scale);
            break;
        }
    }

    memcpy(v->x[k], keep[k], (size_t)v->count[k] * sizeof *keep[k]);
    return true;
}

/* Checks all operands at once along a random direction. */
static bool check_direction(OpCheck *check, const OpCase *c, const OpDevice *d,
                            OpValues *v, double *const keep[MAX_IN],
                            double *move[MAX_IN], double *const g[MAX_IN],
                            int number)
{
    double want = 0, square = 0, fd;
    for (int k = 0; k < MAX_IN; k++) {
        Rng r = {.seed = 2,
                 .stream = RNG_TEST,
                 .op = (uint16_t)k,
                 .epoch = (uint32_t)number,
                 .sample = c->number};
        for (int64_t i = 0; g[k] && i < v->count[k]; i++) {
            double u = rng_normal(&r, (uint32_t)i);
            move[k][i] = STEP * u;
            want += g[k][i] * u;
            square += g[k][i] * g[k][i] * u * u;
        }
    }

    if (!difference(c, d, v, keep, move, &fd)) return false;
    if (!(fabs(fd / STEP - want) <=
          GRADIENT_TOLERANCE * fmax(1e-3, sqrt(square))))
        opcheck_report(
            check, c,
            "gradient along direction %d: %.12g, by differences %.12g", number,
            want, fd / STEP);
    return true;
}

void opcase_gradient(const OpCase *c, OpCheck *check)
{
    Arena mem = {0};
    OpDevice d = {0};
    OpValues v, r;
    double *keep[MAX_IN] = {0}, *move[MAX_IN] = {0};
    int64_t inputs = 0;
    bool ok = false;

    TRY(opdevice_open(&backend_ref, 1, &d));
    TRY(opcase_values(c, &mem, &v));
    TRY(oprun(c, &d, &v, (OpOptions){0}, &mem, &r));

    for (int k = 0; k < MAX_IN; k++) {
        if (!r.dx[k]) continue;
        inputs += v.count[k];
        keep[k] = ARENA_NEW(&mem, double, v.count[k]);
        move[k] = ARENA_NEW(&mem, double, v.count[k]);
        TRY(keep[k] && move[k]);
        memcpy(keep[k], v.x[k], (size_t)v.count[k] * sizeof **keep);
    }

    CHECK(inputs > 0);
    ok = check->once; // differences would run the same loops again
    if (ok) goto done;

    if (inputs <= FULL_INPUTS) {
        for (int k = 0; k < MAX_IN; k++)
            if (r.dx[k])
                TRY(check_elements(check, c, &d, &v, keep, move, k, r.dx[k]));
    } else {
        for (int i = 0; i < DIRECTIONS; i++)
            TRY(check_direction(check, c, &d, &v, keep, move, r.dx, i));
    }

    ok = true;

done:
    if (!ok) opcheck_report(check, c, "%s", err_text());
    if (d.be) opdevice_close(&d);
    arena_release(&mem);
}

// -- agreement ---------------------------------------------------------------

/* The element of a tensor of extents `own`, each equal to that of `all` or 1,
 * that goes with element i of a tensor of extents `all`. */
static int64_t broadcast_index(Dims own, Dims all, int64_t i)
{
    const int32_t *e = &all.n, *o = &own.n; // n, d, h, w, c
    int64_t at = 0, step = 1;
    for (int k = 4; k >= 0; i /= e[k], k--) {
        if (o[k] > 1) at += i % e[k] * step;
        step *= o[k];
    }
    return at;
}

/* dot_scale of an operator with broadcast operands. A gradient is then a sum of
 * terms. The terms are the gradients of operands that have been repeated to the
 * result's extents; `scale` gets the sum of their absolute values, `chain`
 * their number. */
static bool broadcast_scale(const OpCase *c, const OpDevice *ref,
                            const OpValues *in, OpOptions how, Arena *mem,
                            OpValues *scale, OpValues *chain)
{
    Tensor y;
    OpCase wide = *c;
    OpValues v = *in, terms;
    if (!opcase_shape(c, &y)) return false;
    const int64_t count = numel(y.dim);

    for (int k = 0; k < 2; k++) {
        wide.x[k] = y.dim;
        v.x[k] = ARENA_NEW(mem, double, count);
        v.count[k] = count;
        if (!v.x[k]) return false;
        for (int64_t i = 0; i < count; i++)
            v.x[k][i] = in->x[k][broadcast_index(c->x[k], y.dim, i)];
    }
    if (!oprun(&wide, ref, &v, how, mem, &terms)) return false;
    for (int64_t i = 0; i < count; i++) terms.y[i] = fabs(terms.y[i]);
    *scale = *chain = terms;

    for (int k = 0; k < 2; k++) {
        if (!terms.dx[k]) continue;
        double *sum = scale->dx[k] = ARENA_NEW(mem, double, in->count[k]);
        double *length = chain->dx[k] = ARENA_NEW(mem, double, in->count[k]);
        if (!sum || !length) return false;
        for (int64_t i = 0; i < in->count[k]; i++) sum[i] = length[i] = 0;
        for (int64_t i = 0; i < count; i++) {
            const int64_t at = broadcast_index(c->x[k], y.dim, i);
            sum[at] += fabs(terms.dx[k][i]), length[at]++;
        }
        scale->count[k] = chain->count[k] = in->count[k];
    }
    return true;
}

/* Computes the inputs of the dot bound: `scale`, ref on absolute values, and
 * the longest chain, ref on ones. Operators that only copy or select (exact)
 * keep their operands: each of their gradients is a sum of some dy, so only
 * |dy| matters. */
static bool dot_scale(const OpCase *c, const OpDevice *ref, const OpValues *in,
                      OpOptions how, Arena *mem, OpValues *scale,
                      OpValues *chain)
{
    bool exact = op_info[c->attr.op].bound == BOUND_exact;
    if (op_info[c->attr.op].shape == op_info[OP_add].shape)
        return broadcast_scale(c, ref, in, how, mem, scale, chain);
    for (int pass = 0; pass < 2; pass++) {
        OpValues v = *in;
        for (int k = 0; k <= MAX_IN; k++) {
            const double *from = k < MAX_IN ? in->x[k] : in->dy;
            int64_t n = k < MAX_IN ? in->count[k] : in->results;
            // lengths are no factors of a product
            bool lengths = op_info[c->attr.op].flags & LENGTHS &&
                           k == op_info[c->attr.op].in - 1;
            if (!from || ((exact || lengths) && k < MAX_IN)) continue;
            double *to = ARENA_NEW(mem, double, n);
            if (!to) return false;
            for (int64_t i = 0; i < n; i++) to[i] = pass ? 1 : fabs(from[i]);
            if (k < MAX_IN)
                v.x[k] = to;
            else
                v.dy = to;
        }
        if (!oprun(c, ref, &v, how, mem, pass ? chain : scale)) return false;
    }
    return true;
}

/* Opens the device under test, in its precision. */
static bool open_checked(const OpCheck *check, int threads, OpDevice *out)
{
    if (!opdevice_open_at(check->be, check->device, threads, out)) return false;
    out->precision = check->precision;
    return true;
}

/* Draws the values of a case for a precision. Rounded: products of operands are
 * then exact. Otherwise only values that would be subnormal in the format are
 * rounded, as they have no relative error bound. */
static bool values_for(const OpCase *c, Precision p, bool rounded, Arena *mem,
                       OpValues *out)
{
    if (!opcase_values(c, mem, out)) return false;
    if (p == PRECISION_f32) return true;
    double *const part[] = {out->x[0], out->x[1], out->dy};
    const int64_t count[] = {out->count[0], out->count[1], out->results};
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < count[k]; i++)
            if (rounded || fabs(part[k][i]) < precision_least(p))
                part[k][i] = precision_round(p, part[k][i]);
    return true;
}

/* Returns the relative error of a product when both operands are rounded. */
static double operands_error(Precision p, bool rounded)
{
    double u = precision_unit(p);
    return p == PRECISION_f32 || rounded ? 0 : 2 * u + u * u;
}

/* Returns the precision in which this operator computes. */
static Precision precision_of(const OpCheck *check, const OpCase *c)
{
    return op_multiplies((Op)c->attr.op) ? check->precision : PRECISION_f32;
}

static double largest(const double *v, int64_t count)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++) most = fmax(most, fabs(v[i]));
    return most;
}

/* Does this case run an approximate algorithm (Schedule.approximate)? */
static bool is_blurred(const OpCase *c, const OpCheck *check)
{
    const OpInfo *info = &op_info[c->attr.op];
    Tensor x[MAX_IN], y;
    Call call = {.attr = &c->attr,
                 .precision = check->precision,
                 .y = &y,
                 .no_winograd = c->no_winograd};

    if (!op_multiplies((Op)c->attr.op) || !opcase_shape(c, &y)) return false;
    for (int i = 0; i < info->in; i++) {
        x[i] = (Tensor){.dim = c->x[i], .type = F32, .rank = c->rank};
        if (c->x[i].n) call.x[i] = &x[i];
    }
    return backend_schedule(check->be, &call).approximate;
}

/* Returns the bound of part i: BLUR for y, dx and dw of approximate calls; a
 * bias gradient has no window. */
static double blur_of(const OpCase *c, const OpCheck *check, int i)
{
    return i <= 2 && is_blurred(c, check) ? BLUR : 0;
}

/* Records a verdict on part i; element `at` of the part is the worst. costs:
 * measured error of float itself in this part, if known. */
static void judged(OpCheck *check, const OpCase *c, int i, Verdict v,
                   int64_t at, double costs)
{
    char hint[128] = "";
    check->worst = fmax(check->worst, v.margin);
    check->blur = fmax(check->blur, v.margin * blur_of(c, check, i));
    if (v.ok) return;
    if (!(costs <= CONDITION_MOST))
        snprintf(hint, sizeof hint,
                 "; f32 itself is off by %.2g here, so no kernel can be "
                 "compared; fix: smaller initial parameters",
                 costs);

    opcheck_report(check, c,
                   "%s against ref: %s[%lld] is %.9g, want %.9g +- %.3g "
                   "(%.3g of the bound)%s",
                   check->be->name, part_name[i], (long long)at, v.got, v.want,
                   v.room, v.margin, hint);
}

/* Does the backend use the plain loops in float for this operator? Their error
 * widens the tolerance of other kernels only (condition.h). */
static bool is_plain(const OpCheck *check, Op op)
{
    return check->be->fwd[op] == backend_plain.fwd[op] &&
           check->be->bwd[op] == backend_plain.bwd[op];
}

/* The case in float by the plain loops, run on demand. */
typedef struct Plain {
    OpValues values;
    bool ran;
} Plain;

/* Computes the cost of rounding in part i: per element in *room, NULL if
 * nothing is excused, and in total in *costs. */
static bool room_of(const OpCase *c, OpCheck *check, const OpValues *v,
                    OpOptions how, Plain *p, int i, const double *want,
                    Arena *mem, const double **room, double *costs)
{
    int64_t count;
    OpDevice d;
    *room = NULL;
    if (is_plain(check, (Op)c->attr.op)) return true;

    if (!p->ran) {
        if (!opdevice_open(&backend_plain, 1, &d)) return false;
        p->ran = oprun(c, &d, v, how, mem, &p->values);
        opdevice_close(&d);
        if (!p->ran) return false;
    }

    const double *plain = part(&p->values, i, &count);
    *costs = condition_error(plain, want, count);
    *room = condition_room(plain, want, count, mem);
    return *room != NULL;
}

/* Is part i (0 y, 1 + k dx[k]) stored in 16 bits? */
static bool is_narrow(unsigned narrow, int i)
{
    return i ? i <= MAX_IN && narrow >> (i - 1) & 1 : narrow & NARROW_Y;
}

/* Checks agreement on values_for(rounded), with these tensors in 16 bits. */
static void agree(const OpCase *c, OpCheck *check, bool rounded,
                  unsigned narrow)
{
    const Backend *be = check->be;
    const OpInfo *info = &op_info[c->attr.op];
    Arena mem = {0};
    OpDevice ref = {0}, dev = {0};
    OpValues v, got, want, scale, chain;
    OpOptions how = {0}, on_device = {.narrow = narrow};
    Plain plain = {.ran = false};
    bool ok = false;
    bool dots = info->bound == BOUND_dot || info->bound == BOUND_exact;
    Precision p = precision_of(check, c);

    TRY(opdevice_open(&backend_ref, 1, &ref));
    TRY(open_checked(check, 2, &dev));
    TRY(values_for(c, p, rounded, &mem, &v));
    TRY(oprun(c, &dev, &v, on_device, &mem, &got));
    how.y = got.y; // backward is judged on the y that it gets
    TRY(oprun(c, &ref, &v, how, &mem, &want));
    if (dots) TRY(dot_scale(c, &ref, &v, how, &mem, &scale, &chain));

    for (int i = 0; i < PARTS; i++) {
        int64_t count;
        double *g = part(&got, i, &count), *w = part(&want, i, &count);
        if (!g && !w) continue;
        double costs = 0;
        Judge j = {.bound = info->bound, .floor = c->floor};
        if (i > MAX_IN && !(c->changes >> (i - 1 - MAX_IN) & 1)) continue;
        if (i && i <= MAX_IN && j.bound == BOUND_exact) j.bound = BOUND_dot;
        if (dots) {
            j.scale = part(&scale, i, &count);
            j.chain = fmax(27, largest(part(&chain, i, &count), count));
            j.operands = operands_error(p, rounded);
            j.blur = blur_of(c, check, i);
            if (is_narrow(narrow, i))
                j.stored = precision_unit(p), j.least = precision_least(p);
        }
        Verdict r = compare_arrays(&j, g, w, count);
        if (!r.ok && j.bound == BOUND_nmse) {
            TRY(room_of(c, check, &v, how, &plain, i, w, &mem, &j.room,
                        &costs));
            r = compare_arrays(&j, g, w, count);
        }
        judged(check, c, i, r, r.at, costs);
    }

    ok = true;

done:
    if (!ok) opcheck_report(check, c, "%s: %s", be->name, err_text());
    if (dev.be) opdevice_close(&dev);
    if (ref.be) opdevice_close(&ref);
    arena_release(&mem);
}

void opcase_agree(const OpCase *c, OpCheck *check)
{
    OpCase direct = *c;
    direct.no_winograd = true;
    if (precision_of(check, c) != PRECISION_f32 && !check->once)
        agree(c, check, true, 0);
    agree(c, check, false, 0);
    if (is_blurred(c, check)) agree(&direct, check, false, 0);
}

void opcase_agree_narrow(const OpCase *c, OpCheck *check, unsigned narrow)
{
    CHECK(op_multiplies((Op)c->attr.op));
    agree(c, check, true, narrow);
}

// -- agreement at some elements ----------------------------------------------

/* Compares part i of `got` (0 y, 1 + k dx[k]) at `most` elements. False: no
 * memory. */
static bool judge_samples(OpCheck *check, const OpCase *c, const OpValues *in,
                          const OpValues *got, int i, int most, bool rounded,
                          Arena *mem)
{
    int64_t count;
    const double *g = part(got, i, &count);
    int n = count < most ? (int)count : most;

    if (!g) return true;
    double *have = ARENA_NEW(mem, double, n), *want = ARENA_NEW(mem, double, n);
    double *sum = ARENA_NEW(mem, double, n), chain = 27;
    int64_t *at = ARENA_NEW(mem, int64_t, n);
    if (!have || !want || !sum || !at) return false;
    Rng r = {.seed = 4, .stream = RNG_TEST, .op = (uint16_t)i};

    for (int k = 0; k < n; k++) {
        // a large part is cut into n pieces, with one draw from each
        int64_t from = count * k / n, to = count * (k + 1) / n;
        at[k] = from + rng_below(&r, (uint32_t)k, (uint32_t)(to - from));
        Sample s = sample_at(c, in, i - 1, at[k]);
        have[k] = g[at[k]], want[k] = s.value, sum[k] = s.scale;
        chain = fmax(chain, (double)s.terms);
    }

    Judge j = {.bound = BOUND_dot, .scale = sum, .chain = chain};
    j.operands = operands_error(check->precision, rounded);
    j.blur = blur_of(c, check, i);
    Verdict v = compare_arrays(&j, have, want, n);
    judged(check, c, i, v, v.at < 0 ? -1 : at[v.at], 0);
    return true;
}

static void agree_sampled(const OpCase *c, OpCheck *check, int of_y, int of_dx,
                          bool rounded)
{
    Arena mem = {0};
    OpDevice dev = {0};
    OpValues v, got;
    bool ok = false;

    TRY(open_checked(check, check->be->threads(0), &dev));
    TRY(values_for(c, check->precision, rounded, &mem, &v));
    TRY(oprun(c, &dev, &v, (OpOptions){0}, &mem, &got));
    for (int i = 0; i <= MAX_IN; i++)
        TRY(judge_samples(check, c, &v, &got, i, i ? of_dx : of_y, rounded,
                          &mem));
    ok = true;

done:
    if (!ok) opcheck_report(check, c, "%s: %s", check->be->name, err_text());
    if (dev.be) opdevice_close(&dev);
    arena_release(&mem);
}

void opcase_agree_sampled(const OpCase *c, OpCheck *check, int of_y, int of_dx)
{
    if (!op_multiplies((Op)c->attr.op)) {
        opcase_agree(c, check);
        return;
    }
    if (check->precision != PRECISION_f32)
        agree_sampled(c, check, of_y, of_dx, true);
    agree_sampled(c, check, of_y, of_dx, false);
    OpCase direct = *c;
    direct.no_winograd = true;
    if (is_blurred(c, check)) agree_sampled(&direct, check, of_y, of_dx, false);
}

// -- bits, adding, in place --------------------------------------------------

void opcase_same(OpCheck *check, const OpCase *c, const OpValues *p,
                 const OpValues *q, const char *what)
{
    for (int i = 0; i < PARTS; i++) {
        int64_t count;
        const double *a = part(p, i, &count), *b = part(q, i, &count);
        if (!a || !b || !memcmp(a, b, (size_t)count * sizeof *a)) continue;
        int64_t at = 0;
        while (!memcmp(a + at, b + at, sizeof *a)) at++;
        opcheck_report(check, c, "%s, %s: %s[%lld] is %.17g and %.17g",
                       check->be->name, what, part_name[i], (long long)at,
                       a[at], b[at]);
    }
}

bool opcase_run(const OpCase *c, const OpCheck *check, int threads,
                const OpValues *v, OpOptions how, Arena *mem, OpValues *out)
{
    OpDevice d;
    if (!open_checked(check, threads, &d)) return false;
    bool ok = oprun(c, &d, v, how, mem, out);
    opdevice_close(&d);
    return ok;
}

/* Reference of `bits`, `adding` and `in place`: a run on one thread. */
typedef struct First {
    Arena mem;
    OpValues v, run;
} First;

/* Runs the case on the values of `first`. */
static bool run_on(const OpCase *c, const OpCheck *check, First *first,
                   int threads, OpOptions how, OpValues *out)
{
    return opcase_run(c, check, threads, &first->v, how, &first->mem, out);
}

/* One of the three checks; false with a reason if it could not run. */
typedef bool Exact(const OpCase *c, OpCheck *check, First *first);

static bool bits(const OpCase *c, OpCheck *check, First *first)
{
    static const int threads[] = {1, 2, 4};
    static const char *const name[] = {"twice", "1 and 2 threads",
                                       "1 and 4 threads"};
    OpValues recomputed;

    for (int i = 0; i < 3; i++) {
        const bool same_places = check->be->threads(threads[i]) == 1;
        // a device of one thread has run twice already
        if (same_places && (i || check->once)) continue;
        if (!run_on(c, check, first, threads[i], (OpOptions){0}, &recomputed))
            return false;
        opcase_same(check, c, &first->run, &recomputed, name[i]);
    }
    return true;
}

static bool adding(const OpCase *c, OpCheck *check, First *first)
{
    const Backend *be = check->be;
    const OpInfo *info = &op_info[c->attr.op];
    const OpValues *v = &first->v, *fresh = &first->run;
    OpValues added, scale, chain;
    bool ok = false, dots = info->bound == BOUND_dot;
    double u = be->real == F64 ? 0x1p-53 : 0x1p-24;
    OpDevice ref = {0};

    TRY(run_on(c, check, first, 2, (OpOptions){.accumulate = true}, &added));
    TRY(opdevice_open(&backend_ref, 1, &ref));
    if (dots)
        TRY(dot_scale(c, &ref, v, (OpOptions){0}, &first->mem, &scale, &chain));

    for (int k = 0; k < MAX_IN; k++) {
        if (!fresh->dx[k]) continue;
        double terms = dots ? fmax(27, largest(chain.dx[k], v->count[k])) : 1;
        terms = 4 * sqrt(fmin(terms, 1024)) + 8;
        for (int64_t i = 0; i < v->count[k]; i++) {
            double want = 1 + fresh->dx[k][i], got = added.dx[k][i];
            double sum = dots ? fabs(scale.dx[k][i]) : fabs(fresh->dx[k][i]);
            if (fabs(got - want) <= 2 * u * terms * (1 + sum)) continue;
            opcheck_report(check, c,
                           "%s: dx%d[%lld] added to 1 is %.9g, want %.9g",
                           be->name, k, (long long)i, got, want);
            break;
        }
    }

    ok = true;

done:
    if (ref.be) opdevice_close(&ref);
    return ok;
}

static bool in_place(const OpCase *c, OpCheck *check, First *first)
{
    int flags = op_info[c->attr.op].flags;
    OpValues same;

    if (flags & INPLACE) {
        OpOptions how = {.inplace = true};
        how.forward_only = op_info[c->attr.op].keep & KEEP_X;
        if (!run_on(c, check, first, 2, how, &same)) return false;
        same.x[0] = NULL; // holds y
        opcase_same(check, c, &first->run, &same, "y in x0");
    }

    if (flags & INPLACE_GRAD && c->wrt & 1) {
        OpOptions how = {.inplace_grad = true};
        if (!run_on(c, check, first, 2, how, &same)) return false;
        opcase_same(check, c, &first->run, &same, "dx0 in dy");
    }
    return true;
}

/* Runs `count` checks on one first run. */
static void exact(const OpCase *c, OpCheck *check, Exact *const which[],
                  int count)
{
    First first = {0};
    bool ok = opcase_values(c, &first.mem, &first.v) &&
              run_on(c, check, &first, 1, (OpOptions){0}, &first.run);
    for (int i = 0; ok && i < count; i++) ok = which[i](c, check, &first);
    if (!ok) opcheck_report(check, c, "%s: %s", check->be->name, err_text());
    arena_release(&first.mem);
}

void opcase_bits(const OpCase *c, OpCheck *check)
{
    exact(c, check, (Exact *const[]){bits}, 1);
}

void opcase_adding(const OpCase *c, OpCheck *check)
{
    exact(c, check, (Exact *const[]){adding}, 1);
}

void opcase_exact(const OpCase *c, OpCheck *check)
{
    exact(c, check, (Exact *const[]){bits, adding, in_place}, 3);
}
