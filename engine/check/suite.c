/* suite.c -- draws of cases, iteration over all suites, the run of one.
 *
 * A draw is a function of the suite's operator, the number of the case and how
 * many numbers the case has drawn before: see rng.h. */
#include "engine/check/suite.h"
#include "engine/base/rng.h"
#include "engine/check/opfused.h"
#include "engine/check/ophalf.h"
#include <string.h>

enum {
    GRADIENT_CASES = 12,
    AGREE_CASES = 56,
    AGREE_FIRST = 1000, // first number of these cases
    NARROW_CASES = 24,
    NARROW_FIRST = 2000,
    BITS_CASES = 16, // also adding and in place
    LARGE_STEP = 5,  // of large cases one in so many
    FOREIGN = 4,     // fraction of large cases for another backend
    REDRAWS = 1000,  // refused shapes before a suite gives up
    SMALL = 100000,
    SMALL_FLOPS = 20000000, // of a small case, see is_small
};

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

int draw_edge(Draw *d, int at)
{
    return draw_int(d, at - 1, at + 1);
}

int draw_pick(Draw *d, const int *list, int count)
{
    return list[draw_int(d, 0, count - 1)];
}

Dims draw_ranked(Draw *d, OpCase *c, int rank)
{
    if (d->image) return d->image(d, c);
    Dims s = {draw_int(d, 1, 3), 1, 1, 1, draw_int(d, 1, 9)};

    // a few elements more than the lanes of any vector register
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

/* Draws case `number` of a suite; false with a reason if the shape rule refuses
 * every draw. */
static bool draw_case(const OpSuite *s, uint32_t number, bool small, OpCase *c)
{
    Draw d = {.sample = number,
              .op = (uint16_t)s->op,
              .small = small,
              .image = s->image};

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
    return within("%s: every draw is refused", op_info[s->op].name);
}

// -- all suites --------------------------------------------------------------

const OpSuite *suite_next(int *at)
{
    static const OpSuite *const tables[] = {
        suites_conv, suites_pool,     suites_norm,  suites_elementwise,
        suites_loss, suites_sequence, suites_shape, suites_indices};
    int i = (*at)++;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const OpSuite *s = tables[t]; s->draw; s++)
            if (i-- == 0) return s;
    return NULL;
}

/* Does the case compute all that the operator can? A target of zeros only shows
 * little; evaluation changes less. */
static bool is_full(const OpCase *c)
{
    const bool loss = op_info[c->attr.op].flags & LOSS;
    return !c->eval && (!loss || c->fill[1].hi > 0);
}

bool suite_example(Op op, OpCase *out)
{
    const OpSuite *s;
    for (int at = 0; (s = suite_next(&at));) {
        if (s->op != op || s->note) continue;
        for (uint32_t i = 0; i < AGREE_CASES; i++) {
            if (!draw_case(s, AGREE_FIRST + i, false, out)) return false;
            if (is_full(out)) return true;
        }
    }
    return fail("%s has no suite", op_info[op].name);
}

// -- one suite ---------------------------------------------------------------

static int gradient_cases(const OpSuite *s, Precision p)
{
    bool has = op_info[s->op].grad && !s->cases && p == PRECISION_f32;
    return has ? GRADIENT_CASES : 0;
}

/* Returns the number of cases of a suite with large extents. */
static int large_cases(const OpSuite *s, const OpCheck *k)
{
    const bool own = !s->of || !strcmp(s->of, k->be->name);
    return own ? s->cases : (s->cases + FOREIGN - 1) / FOREIGN;
}

static int agree_cases(const OpSuite *s, const OpCheck *k)
{
    if (k->precision != PRECISION_f32 && !op_multiplies(s->op)) return 0;
    if (s->narrow && k->precision == PRECISION_f32) return 0;
    return s->cases ? large_cases(s, k) : AGREE_CASES;
}

/* Draws case i on 16-bit tensors; false if there is none. */
static bool narrow_case(const OpSuite *s, const OpCheck *k, int i, OpCase *c)
{
    return draw_case(s, NARROW_FIRST + (uint32_t)i, !s->cases, c) &&
           opnarrow_case(c) && opnarrow_bits(c, k) != 0;
}

/* Large products run nearly the same kernels as in f32, and take long. */
static int narrow_cases(const OpSuite *s, const OpCheck *k)
{
    if (!s->cases) return NARROW_CASES;
    return op_multiplies(s->op) ? 0 : large_cases(s, k) / 2;
}

SuiteSize suite_size(const OpSuite *s, const OpCheck *k)
{
    SuiteSize n = {0};
    OpCase c;
    for (int i = 0; i < gradient_cases(s, k->precision); i++)
        if (draw_case(s, (uint32_t)i, true, &c)) n.gradient += c.wrt != 0;
    for (int i = 0; i < agree_cases(s, k); i++)
        n.agree += draw_case(s, AGREE_FIRST + (uint32_t)i, false, &c);
    for (int i = 0; i < narrow_cases(s, k); i++)
        n.narrow += narrow_case(s, k, i, &c);
    return n;
}

/* Checks the agreement of a case of the suite. */
static void run_agree(const OpSuite *s, const OpCase *c, OpCheck *k)
{
    if (s->narrow && precision_copy(k->precision) != F32)
        opcase_agree_narrow(c, k, opnarrow_bits(c, k));
    else
        opcase_agree(c, k);
}

/* Checks bits, adding, in place and fused, on the backend and, unless `one`, on
 * ref. */
static void run_exact(const OpCase *c, bool one, OpCheck *k)
{
    OpCheck whole = *k;
    for (int i = one; i < 2; i++) {
        k->be = i ? whole.be : &backend_ref;
        k->device = i ? whole.device : 0;
        opcase_exact(c, k);
        opfused_agree(c, k, 0);
    }
}

/* Runs case i on 16-bit tensors; every third also with fused activations. */
static void run_narrow(const OpCase *c, int i, OpCheck *k)
{
    opnarrow_agree(c, k);
    if (i % 3 == 0) opfused_agree(c, k, opnarrow_bits(c, k));
}

/* Does draw i belong to this share? Counts it if so. Not simply i % shares:
 * every third draw is special below. */
static bool in_share(OpCheck *k, int i)
{
    const bool is = k->shares < 2 || (i + i / 3) % k->shares == k->share;
    k->draws += is;
    return is;
}

void suite_run(const OpSuite *s, OpCheck *k)
{
    OpCase c;
    for (int i = 0; i < gradient_cases(s, k->precision); i++) {
        if (!in_share(k, i)) continue;
        if (!draw_case(s, (uint32_t)i, true, &c)) {
            opcheck_report(k, &c, "%s", err_text());
            return;
        }
        if (c.wrt) opcase_gradient(&c, k);
    }

    for (int i = 0; i < agree_cases(s, k); i++) {
        if (!in_share(k, i)) continue;
        if (!draw_case(s, AGREE_FIRST + (uint32_t)i, false, &c)) {
            opcheck_report(k, &c, "%s", err_text());
            return;
        }
        if (!s->narrow && (s->cases ? i % LARGE_STEP == 0 : i < BITS_CASES))
            run_exact(&c, s->cases > 0 || k->precision != PRECISION_f32, k);
        // every third case omits one gradient, in turn
        if (i % 3 == 2) c.wrt &= ~(1u << i / 3 % MAX_IN);
        run_agree(s, &c, k);
    }

    for (int i = 0; i < narrow_cases(s, k); i++) {
        if (!in_share(k, i)) continue;
        if (narrow_case(s, k, i, &c)) run_narrow(&c, i, k);
        // with the number of channels that was drawn
        if (draw_case(s, NARROW_FIRST + (uint32_t)i, !s->cases, &c))
            opnarrow_alone(&c, k);
    }
}

/* Has the case at most SMALL elements in its operands and its result, and at
 * most SMALL_FLOPS in its product? */
static bool is_small(const OpCase *c)
{
    Tensor x[MAX_IN], y;
    if (!opcase_shape(c, &y)) return false;
    int64_t elements = numel(y.dim);
    for (int i = 0; i < MAX_IN; i++) {
        x[i] = (Tensor){c->x[i], F64, c->rank, NULL};
        if (c->x[i].n) elements += numel(c->x[i]);
    }
    return elements <= SMALL && op_flops(&c->attr, x, &y) <= SMALL_FLOPS;
}

void suite_run_first(const OpSuite *s, OpCheck *k)
{
    OpCase c;
    for (int i = 0; i < agree_cases(s, k); i++) {
        if (!draw_case(s, AGREE_FIRST + (uint32_t)i, false, &c) ||
            !is_full(&c) || !is_small(&c))
            continue;
        run_agree(s, &c, k);
        k->draws++;
        break;
    }

    for (int i = 0; i < narrow_cases(s, k); i++) {
        if (!narrow_case(s, k, i, &c) || !is_full(&c) || !is_small(&c))
            continue;
        opnarrow_agree(&c, k);
        k->draws++;
        break;
    }
}
