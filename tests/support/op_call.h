/* op_call.h -- runs an operator on values from the test. */
#ifndef SEG_TESTS_SUPPORT_OP_CALL_H
#define SEG_TESTS_SUPPORT_OP_CALL_H
#include "engine/check/opcase.h"
#include "tests/test.h"
#include <string.h>

/* 0: ref. 1: the backend under test, `cpu` or the backend in SEG_TEST_DEVICE
 * (the emulated build runs the same tests with "cuda"). */
const Backend *given_backend(size_t i);
/* The same two as device names: "ref", and "cpu" or "cuda". */
const char *given_device(size_t i);
/* The stride of tests that let each call of a function fail in turn: 1, or
 * SEG_TEST_EVERY (larger in slow builds). */
long given_every(void);
/* SEG_TEST_ONCE: see OpCheck.once. */
bool given_once(void);
/* SEG_TEST_SHARE=1/3: see OpCheck.shares, here 3, and .share, here 1. */
void given_share(int *shares, int *share);
/* An OpReport that fails the test. */
void given_report(void *ctx, const char *text);

/* Run a case on a backend with all its values; ends the test when the run
 * fails. */
static inline void given_values(const Backend *be, int threads, const OpCase *c,
                                const OpValues *in, Arena *mem, OpValues *out)
{
    OpDevice d;
    REQUIRE(opdevice_open(be, threads, &d));
    bool ok = oprun(c, &d, in, (OpOptions){0}, mem, out);
    opdevice_close(&d);
    REQUIRE(ok);
}

/* The same with two threads, forward and (if the case has a gradient) backward.
 * Operands and dy are the given ones, in memory order and rounded to float;
 * NULL: drawn as the case says. Ends the test when the run fails. */
static inline void given_run(const Backend *be, const OpCase *c,
                             const double *const x[MAX_IN], const double *dy,
                             Arena *mem, OpValues *out)
{
    OpValues in;
    REQUIRE(opcase_values(c, mem, &in));
    for (int i = 0; i < MAX_IN; i++)
        for (int64_t k = 0; x[i] && k < in.count[i]; k++)
            in.x[i][k] = (float)x[i][k];
    for (int64_t k = 0; dy && k < in.results; k++) in.dy[k] = (float)dy[k];
    given_values(be, 2, c, &in, mem, out);
}

/* |got[i] - want[i]| <= tol for all i. */
static inline void given_near(const double *got, const double *want,
                              int64_t count, double tol)
{
    for (int64_t i = 0; i < count; i++) EXPECT_NEAR(got[i], want[i], tol);
}
#endif
