/* given.h -- an operator run on values that the test itself gives. */
#ifndef SEG_GIVEN_H
#define SEG_GIVEN_H
#include "oprun.h"
#include "test.h"
#include <string.h>

static const Backend *const backends[2] = {&backend_ref, &backend_cpu};

/* Run a case on a backend, two threads, forward and (if the case wants a
 * gradient) backward. Operands and dy are those given, in memory order and
 * rounded to float; a NULL is drawn as the case says. Ends the test when the
 * run fails. */
static inline void given_run(const Backend *be, const OpCase *c,
                             const double *const x[MAX_IN], const double *dy,
                             Arena *mem, OpValues *out)
{
    OpDevice d;
    OpValues in;
    REQUIRE(opdevice_open(be, 2, &d));
    REQUIRE(opcase_values(c, mem, &in));
    for (int i = 0; i < MAX_IN; i++)
        for (int64_t k = 0; x[i] && k < in.count[i]; k++)
            in.x[i][k] = (float)x[i][k];
    for (int64_t k = 0; dy && k < in.results; k++) in.dy[k] = (float)dy[k];
    bool ok = oprun(c, &d, &in, (OpOptions){0}, mem, out);
    opdevice_close(&d);
    REQUIRE(ok);
}

/* got[i] is want[i] +- tol for all. */
static inline void given_near(const double *got, const double *want,
                              int64_t count, double tol)
{
    for (int64_t i = 0; i < count; i++) EXPECT_NEAR(got[i], want[i], tol);
}
#endif
