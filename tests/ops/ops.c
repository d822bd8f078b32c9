/* ops.c -- every operator of ops.def has all properties of opcase.h.
 *
 * One test per operator, so that one can be run alone. `SEG_MARGINS=1` prints
 * how much of its bound each suite used. */
#include "engine/check/suite.h"
#include "tests/support/op_call.h"
#include <stdlib.h>

enum { GRADIENTS = 10, AGREEMENTS = 50, NARROW = 20 }; // per operator

/* Runs the suites of an operator in one precision; returns the number of
 * cases. */
static SuiteSize run_suites(Op op, Precision p)
{
    SuiteSize all = {0};
    const OpSuite *s;

    for (int at = 0; (s = suite_next(&at));) {
        if (s->op != op) continue;
        OpCheck k = {.be = given_backend(1),
                     .precision = p,
                     .once = given_once(),
                     .report = given_report};
        given_share(&k.shares, &k.share);
        SuiteSize n = suite_size(s, &k);
        all.gradient += n.gradient, all.agree += n.agree;
        all.narrow += n.narrow;
        suite_run(s, &k);
        if (getenv("SEG_MARGINS"))
            printf("%-18s %-10s %-4s %8.3g of its bound\n", op_info[op].name,
                   s->note ? s->note : "", precision_name(p), k.worst);
    }
    return all;
}

static void run_row(Op op)
{
    const OpInfo *info = &op_info[op];
    const Backend *be = given_backend(1);
    SuiteSize all = run_suites(op, PRECISION_f32);
    const Attr attr = op_default(op);
    Tensor t = {{1, 1, 8, 8, 8}, be->real, 2, NULL};
    const Call call = {.attr = &attr, .x = {&t, &t}, .y = &t};
    const bool narrow = backend_storage(be, &call).narrow;

    for (int p = 1; p < PRECISION_COUNT; p++) {
        if (!backend_has(be, (Precision)p)) continue;
        const int cases = run_suites(op, (Precision)p).narrow;
        if (narrow && precision_copy((Precision)p) != F32 && cases < NARROW)
            test_failed(__FILE__, __LINE__, "%s: %d cases on narrow tensors",
                        info->name, cases);
    }

    // an operator without a suite, or with a suite without gradient checks
    if ((info->grad && all.gradient < GRADIENTS) || all.agree < AGREEMENTS)
        test_failed(__FILE__, __LINE__,
                    "%s: %d gradient checks and %d cases against ref, want %d "
                    "and %d; add an OpSuite to engine/check/suite_*.c",
                    info->name, all.gradient, all.agree, GRADIENTS, AGREEMENTS);
}

/* The shares of draws that tests/all distributes to several runs are together
 * all draws. */
TEST(op_shares_are_all_draws)
{
    const OpSuite *s;
    for (int at = 0; (s = suite_next(&at));) {
        if (s->op != OP_concat) continue;
        int draws[4];
        for (int i = 0; i < 4; i++) {
            OpCheck k = {.be = given_backend(1),
                         .shares = i < 3 ? 3 : 0,
                         .share = i,
                         .report = given_report};
            suite_run(s, &k);
            draws[i] = k.draws;
        }
        EXPECT_INT(draws[0] + draws[1] + draws[2], draws[3]);
        EXPECT(draws[0] > 0 && draws[1] > 0 && draws[2] > 0);
    }
}

#define OP(name, ...)       \
    TEST(op_##name)         \
    {                       \
        run_row(OP_##name); \
    }
#include "engine/graph/ops.def"
