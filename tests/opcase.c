#include "opcase.h"
#include "rng.h"
#include "test.h"
#include <stdarg.h>
#include <stdlib.h>

enum {
    GRADIENT_CASES = 12,
    AGREE_CASES = 56,
    BITS_CASES = 16,    // also adding and in place
    FULL_INPUTS = 2000, // gradient: one by one up to here
    DIRECTIONS = 8,     // gradient: random directions beyond
    REDRAWS = 1000,     // refused shapes before a suite gives up
};

static const double STEP = 1e-5, GRADIENT_TOLERANCE = 1e-6;

// -- draws -------------------------------------------------------------------

static Rng draw_rng(const Draw *d)
{
    return (Rng){
        .seed = 1, .stream = RNG_TEST, .op = d->op, .sample = d->sample};
}

int draw_int(Draw *d, int lo, int hi)
{
    Rng r = draw_rng(d);
    return lo + (int)rng_below(&r, d->index++, (uint32_t)(hi - lo + 1));
}

bool draw_bool(Draw *d)
{
    return draw_int(d, 0, 1);
}

float draw_real(Draw *d, float lo, float hi)
{
    Rng r = draw_rng(d);
    return rng_range(&r, d->index++, lo, hi);
}

Dims draw_ranked(Draw *d, OpCase *c, int rank)
{
    Dims s = {draw_int(d, 1, 3), 1, 1, 1, draw_int(d, 1, 9)};
    // a few elements more than the lanes of any vector
    if (!d->small && draw_int(d, 0, 3) == 0) s.c = draw_int(d, 10, 40);
    int most = rank == 1 ? 19 : rank == 2 ? 9 : 5;
    if (d->small) most = rank == 1 ? 12 : rank == 2 ? 6 : 4;
    if (d->small && rank > 1 && s.c > 4) s.c -= 4;
    if (rank >= 3) s.d = draw_int(d, 1, most);
    if (rank >= 2) s.h = draw_int(d, 1, most);
    if (rank >= 1) s.w = draw_int(d, 1, most);
    // and a row longer than any block of positions
    if (!d->small && rank >= 1 && draw_int(d, 0, 7) == 0)
        s.w = draw_int(d, 20, 70);
    c->rank = rank;
    return s;
}

Dims draw_image(Draw *d, OpCase *c)
{
    return draw_ranked(d, c, draw_int(d, 0, 3));
}

/* Case `number` of a suite; false, and reported, when the shape rule refuses
 * every draw. */
static bool draw_case(const OpSuite *s, uint32_t number, bool small, OpCase *c)
{
    Draw d = {.sample = number, .op = (uint16_t)s->op, .small = small};
    for (int i = 0; i < REDRAWS; i++) {
        Tensor y;
        *c = (OpCase){.attr = op_default(s->op),
                      .wrt = s->wrt,
                      .changes = s->changes,
                      .floor = s->floor,
                      .number = number};
        memcpy(c->fill, s->fill, sizeof c->fill);
        s->draw(&d, c);
        for (int k = 0; k < MAX_IN; k++)
            if (!c->x[k].n) c->wrt &= ~(1u << k);
        if (opcase_shape(c, &y)) return true;
    }
    test_failed("opcase", 0, "%s: every draw is refused: %s",
                op_info[s->op].name, err_text());
    return false;
}

// -- reports -----------------------------------------------------------------

// where failures are counted instead of reported; NULL outside mutants.c
static int *listener;

void opcase_listen(int *count)
{
    listener = count;
}

static void report(const OpCase *c, const char *fmt, ...) ERR_FORMAT(2, 3);
static void report(const OpCase *c, const char *fmt, ...)
{
    char name[OPCASE_TEXT], text[ERR_MAX];
    if (listener) {
        ++*listener;
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    test_failed("opcase", (int)c->number, "%s: %s", opcase_text(c, name), text);
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

/* sum(dy * y) of a forward run on the operands in v. */
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

/* Operand `op` moved by h[i] * dir[i] up and down: out = the difference. */
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

/* Each element of operand k by itself. */
static bool check_elements(const OpCase *c, const OpDevice *d, OpValues *v,
                           double *const keep[MAX_IN], double *move[MAX_IN],
                           int k, const double *g)
{
    double scale = 1e-3, fd; // of a gradient that is zero throughout
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
            report(c,
                   "gradient %d [%lld]: %.12g, by differences %.12g (max "
                   "%.3g)",
                   k, (long long)i, g[i], fd / h, scale);
            break;
        }
    }
    memcpy(v->x[k], keep[k], (size_t)v->count[k] * sizeof *keep[k]);
    return true;
}

/* All operands at once along a random direction. */
static bool check_direction(const OpCase *c, const OpDevice *d, OpValues *v,
                            double *const keep[MAX_IN], double *move[MAX_IN],
                            double *const g[MAX_IN], int number)
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
        report(c, "gradient along direction %d: %.12g, by differences %.12g",
               number, want, fd / STEP);
    return true;
}

void opcase_gradient(const OpCase *c)
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
    if (inputs <= FULL_INPUTS) {
        for (int k = 0; k < MAX_IN; k++)
            if (r.dx[k]) TRY(check_elements(c, &d, &v, keep, move, k, r.dx[k]));
    } else {
        for (int i = 0; i < DIRECTIONS; i++)
            TRY(check_direction(c, &d, &v, keep, move, r.dx, i));
    }
    ok = true;
done:
    if (!ok) report(c, "%s", err_text());
    if (d.be) opdevice_close(&d);
    arena_release(&mem);
}

// -- agreement ---------------------------------------------------------------

/* What the dot bound needs: `scale`, ref on absolute values, and the longest
 * chain, ref on ones. Rows that only copy or select (exact) keep their
 * operands: there each result is a sum of some dy, so |dy| alone matters. */
static bool dot_scale(const OpCase *c, const OpDevice *ref, const OpValues *in,
                      OpOptions how, Arena *mem, OpValues *scale,
                      OpValues *chain)
{
    bool exact = op_info[c->attr.op].bound == BOUND_exact;
    for (int pass = 0; pass < 2; pass++) {
        OpValues v = *in;
        for (int k = 0; k <= MAX_IN; k++) {
            const double *from = k < MAX_IN ? in->x[k] : in->dy;
            int64_t n = k < MAX_IN ? in->count[k] : in->results;
            if (!from || (exact && k < MAX_IN)) continue;
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

static double largest(const double *v, int64_t count)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++) most = fmax(most, fabs(v[i]));
    return most;
}

double opcase_agree(const OpCase *c, const Backend *be)
{
    const OpInfo *info = &op_info[c->attr.op];
    Arena mem = {0};
    OpDevice ref = {0}, dev = {0};
    OpValues v, got, want, scale, chain;
    OpOptions how = {0};
    double worst = 0;
    bool ok = false;
    bool dots = info->bound == BOUND_dot || info->bound == BOUND_exact;
    TRY(opdevice_open(&backend_ref, 1, &ref));
    TRY(opdevice_open(be, 2, &dev));
    TRY(opcase_values(c, &mem, &v));
    TRY(oprun(c, &dev, &v, how, &mem, &got));
    how.y = got.y; // each kernel is judged on what it was given
    TRY(oprun(c, &ref, &v, how, &mem, &want));
    if (dots) TRY(dot_scale(c, &ref, &v, how, &mem, &scale, &chain));
    for (int i = 0; i < PARTS; i++) {
        int64_t count;
        double *g = part(&got, i, &count), *w = part(&want, i, &count);
        if (!g && !w) continue;
        Judge j = {.bound = info->bound, .floor = c->floor};
        if (i > MAX_IN && !(c->changes >> (i - 1 - MAX_IN) & 1)) continue;
        if (i && i <= MAX_IN && j.bound == BOUND_exact) j.bound = BOUND_dot;
        if (dots) {
            j.scale = part(&scale, i, &count);
            j.chain = fmax(27, largest(part(&chain, i, &count), count));
        }
        Verdict r = compare_arrays(&j, g, w, count);
        worst = fmax(worst, r.margin);
        if (!r.ok)
            report(c,
                   "%s against ref: %s[%lld] is %.9g, want %.9g +- %.3g "
                   "(%.3g of the bound)",
                   be->name, part_name[i], (long long)r.at, r.got, r.want,
                   r.room, r.margin);
    }
    ok = true;
done:
    if (!ok) report(c, "%s: %s", be->name, err_text());
    if (dev.be) opdevice_close(&dev);
    if (ref.be) opdevice_close(&ref);
    arena_release(&mem);
    return worst;
}

// -- bits, adding, in place --------------------------------------------------

/* Every part of two results has the same bits. */
static void same_bits(const OpCase *c, const OpValues *p, const OpValues *q,
                      const char *be, const char *what)
{
    for (int i = 0; i < PARTS; i++) {
        int64_t count;
        const double *a = part(p, i, &count), *b = part(q, i, &count);
        if (!a || !b || !memcmp(a, b, (size_t)count * sizeof *a)) continue;
        int64_t at = 0;
        while (!memcmp(a + at, b + at, sizeof *a)) at++;
        report(c, "%s, %s: %s[%lld] is %.17g and %.17g", be, what, part_name[i],
               (long long)at, a[at], b[at]);
    }
}

/* Run a case with some threads; the device lives for this run only. */
static bool run_with(const OpCase *c, const Backend *be, int threads,
                     const OpValues *v, OpOptions how, Arena *mem,
                     OpValues *out)
{
    OpDevice d;
    if (!opdevice_open(be, threads, &d)) return false;
    bool ok = oprun(c, &d, v, how, mem, out);
    opdevice_close(&d);
    return ok;
}

void opcase_bits(const OpCase *c, const Backend *be)
{
    static const int threads[] = {1, 2, 4};
    static const char *const name[] = {"twice", "1 and 2 threads",
                                       "1 and 4 threads"};
    Arena mem = {0};
    OpValues v, first, again;
    bool ok = false;
    OpOptions how = {0};
    TRY(opcase_values(c, &mem, &v));
    TRY(run_with(c, be, 1, &v, how, &mem, &first));
    for (int i = 0; i < 3; i++) {
        TRY(run_with(c, be, threads[i], &v, how, &mem, &again));
        same_bits(c, &first, &again, be->name, name[i]);
    }
    ok = true;
done:
    if (!ok) report(c, "%s: %s", be->name, err_text());
    arena_release(&mem);
}

void opcase_adding(const OpCase *c, const Backend *be)
{
    const OpInfo *info = &op_info[c->attr.op];
    Arena mem = {0};
    OpValues v, fresh, added, scale, chain;
    bool ok = false, dots = info->bound == BOUND_dot;
    double u = be->real == F64 ? 0x1p-53 : 0x1p-24;
    OpDevice ref = {0};
    TRY(opdevice_open(&backend_ref, 1, &ref));
    TRY(opcase_values(c, &mem, &v));
    TRY(run_with(c, be, 2, &v, (OpOptions){0}, &mem, &fresh));
    TRY(run_with(c, be, 2, &v, (OpOptions){.accumulate = true}, &mem, &added));
    if (dots) TRY(dot_scale(c, &ref, &v, (OpOptions){0}, &mem, &scale, &chain));
    for (int k = 0; k < MAX_IN; k++) {
        if (!fresh.dx[k]) continue;
        double terms = dots ? fmax(27, largest(chain.dx[k], v.count[k])) : 1;
        terms = 4 * sqrt(fmin(terms, 1024)) + 8;
        for (int64_t i = 0; i < v.count[k]; i++) {
            double want = 1 + fresh.dx[k][i], got = added.dx[k][i];
            double sum = dots ? fabs(scale.dx[k][i]) : fabs(fresh.dx[k][i]);
            if (fabs(got - want) <= 2 * u * terms * (1 + sum)) continue;
            report(c, "%s: dx%d[%lld] added to 1 is %.9g, want %.9g", be->name,
                   k, (long long)i, got, want);
            break;
        }
    }
    ok = true;
done:
    if (!ok) report(c, "%s: %s", be->name, err_text());
    if (ref.be) opdevice_close(&ref);
    arena_release(&mem);
}

void opcase_inplace(const OpCase *c, const Backend *be)
{
    int flags = op_info[c->attr.op].flags;
    Arena mem = {0};
    OpValues v, apart, same;
    bool ok = false;
    TRY(opcase_values(c, &mem, &v));
    TRY(run_with(c, be, 2, &v, (OpOptions){0}, &mem, &apart));
    if (flags & INPLACE) {
        OpOptions how = {.inplace = true};
        how.forward_only = op_info[c->attr.op].keep & KEEP_X;
        TRY(run_with(c, be, 2, &v, how, &mem, &same));
        same.x[0] = NULL; // holds y
        same_bits(c, &apart, &same, be->name, "y in x0");
    }
    if (flags & INPLACE_GRAD && c->wrt & 1) {
        OpOptions how = {.inplace_grad = true};
        TRY(run_with(c, be, 2, &v, how, &mem, &same));
        same_bits(c, &apart, &same, be->name, "dx0 in dy");
    }
    ok = true;
done:
    if (!ok) report(c, "%s: %s", be->name, err_text());
    arena_release(&mem);
}

// -- all of a row ------------------------------------------------------------

void opsuite_run(const OpSuite *s)
{
    double worst = 0;
    OpCase c;
    for (uint32_t i = 0; i < GRADIENT_CASES && op_info[s->op].grad; i++) {
        if (!draw_case(s, i, true, &c)) return;
        if (c.wrt) opcase_gradient(&c);
    }
    for (uint32_t i = 0; i < AGREE_CASES; i++) {
        if (!draw_case(s, 1000 + i, false, &c)) return;
        if (i < BITS_CASES) {
            const Backend *be[] = {&backend_ref, &backend_cpu};
            for (int k = 0; k < 2; k++) {
                opcase_bits(&c, be[k]);
                opcase_adding(&c, be[k]);
                opcase_inplace(&c, be[k]);
            }
        }
        // every third case wants one gradient less, in turn
        if (i % 3 == 2) c.wrt &= ~(1u << i / 3 % MAX_IN);
        worst = fmax(worst, opcase_agree(&c, &backend_cpu));
    }
    if (getenv("SEG_MARGINS"))
        printf("%-18s %8.3g of its bound\n", op_info[s->op].name, worst);
}
