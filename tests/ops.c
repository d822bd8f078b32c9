/* ops.c -- every row of ops.def has all properties of opcase.h.
 *
 * One test a row, so that one operator can be tried alone. `SEG_MARGINS=1`
 * prints how much of its bound each suite used. */
#include "check/suite.h"
#include "given.h"
#include <stdlib.h>

enum { GRADIENTS = 10, AGREEMENTS = 50 }; // promised for each row

/* The suites of a row in one precision; how many cases. */
static SuiteSize run_suites(Op op, Precision p)
{
    SuiteSize all = {0};
    const OpSuite *s;
    for (int at = 0; (s = suite_next(&at));) {
        if (s->op != op) continue;
        SuiteSize n = suite_size(s, p);
        OpCheck k = {
            .be = given_backend(1), .precision = p, .report = given_report};
        all.gradient += n.gradient, all.agree += n.agree;
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
    for (int p = 1; p < PRECISION_COUNT; p++)
        if (be->precisions >> p & 1 && op_multiplies(op))
            run_suites(op, (Precision)p);
    // a row that was added without a suite, or whose suite checks no gradient
    if ((info->grad && all.gradient < GRADIENTS) || all.agree < AGREEMENTS)
        test_failed(__FILE__, __LINE__,
                    "%s: %d gradient checks and %d cases against ref, want %d "
                    "and %d; add an OpSuite to engine/check/suite_*.c",
                    info->name, all.gradient, all.agree, GRADIENTS, AGREEMENTS);
}

#define OP(name, ...)       \
    TEST(op_##name)         \
    {                       \
        run_row(OP_##name); \
    }
#include "ops.def"
