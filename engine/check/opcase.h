/* opcase.h -- the properties that every operator must have, one case each.
 *
 *   gradient   ref's backward run against central differences of
 *              sum(q * y), q random: 1e-6 of max |g|
 *   agreement  a backend against ref within the operator's bound, forward and
 *              backward. A call that is approximate (Winograd) within BLUR of
 *              the largest, and once more without the approximation. In fewer
 *              bits than f32 twice: on operands that are exact in the format,
 *              within the same bound, and on any operands
 *   bits       the same bits in a second run, and with 1, 2, 4 threads
 *   adding     dx that starts at 1 and is added to
 *   in place   the same bits with y in x[0] or dx[0] in dy, where allowed
 *   fences     in each run of all of these (see oprun.h)
 *
 * suite.h draws the cases. Called by the tests and by `segengine check`, so
 * failures go to a function of the caller. */
#ifndef SEG_ENGINE_CHECK_OPCASE_H
#define SEG_ENGINE_CHECK_OPCASE_H
#include "engine/check/compare.h"
#include "engine/check/oprun.h"

/* Allowed error of calls with Schedule.approximate, as a fraction of the
 * largest element of a result or gradient. The largest of Winograd on the CPU
 * in the suites and the recipes' layers is 9e-6 (tests/cpu/winograd.c). */
#define BLUR 4e-5

/* Receives each failure: the case, and the finding. */
typedef void OpReport(void *ctx, const char *text);

/* The backend under test, and the results so far. */
typedef struct OpCheck {
    const Backend *be;
    int device;          /* device number, for cuda:N    */
    Precision precision; /* one that the device supports */
    bool once; /* skip runs that access the same addresses a second time, with
                * other values or not: for builds that only watch the addresses
                * that a kernel reads and writes */
    int shares, share; /* shares above 1: share `share` (0, 1, ..) of the draws
                        * of each suite; all shares together have all */
    int draws;         /* number of draws that ran                    */
    OpReport *report;  /* NULL: failures are only counted             */
    void *ctx;         /* of report                                   */
    int failures;
    double worst; /* largest fraction of a bound that agreement used          */
    double blur;  /* largest error of approximate calls, as BLUR; 0: none ran */
} OpCheck;

/* Agreement for layers that are too large for the plain loops: for conv, upconv
 * and linear compares at most so many elements of y and of each gradient, the
 * same ones each time; for other operators all. */
void opcase_agree_sampled(const OpCase *c, OpCheck *k, int of_y, int of_dx);
void opcase_gradient(const OpCase *c, OpCheck *k);
void opcase_agree(const OpCase *c, OpCheck *k);
/* Agreement of conv, upconv or linear on tensors that the device stores in 16
 * bits, as a plan does; narrow: bits of Storage.narrow. Results may have the
 * rounding of the format more. */
void opcase_agree_narrow(const OpCase *c, OpCheck *k, unsigned narrow);
void opcase_bits(const OpCase *c, OpCheck *k);
void opcase_adding(const OpCase *c, OpCheck *k);
/* Checks bits, adding and in place, against one first run. */
void opcase_exact(const OpCase *c, OpCheck *k);

/* For checks in other files: runs a case on the device under test, opened for
 * this run only; and compares all parts of p and q bit by bit. */
bool opcase_run(const OpCase *c, const OpCheck *k, int threads,
                const OpValues *v, OpOptions how, Arena *mem, OpValues *out);
void opcase_same(OpCheck *k, const OpCase *c, const OpValues *p,
                 const OpValues *q, const char *what);

/* Reports a failure of a case, also of one that never ran. */
void opcheck_report(OpCheck *k, const OpCase *c, const char *fmt, ...)
    ERR_FORMAT(3, 4);
#endif
