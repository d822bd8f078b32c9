/* opcase.h -- the properties that every operator must have, one case each.
 *
 *   gradient   ref's backward run against central differences of
 *              sum(q * y), q random: 1e-6 of max |g|
 *   agreement  a backend against ref within the row's bound, forward and
 *              backward; what a backend blurs within BLUR of the largest,
 *              and once more as it does not; in fewer bits than f32 twice: on
 *              operands that have no more bits, within the same bound, and on
 *              any
 *   bits       the same bits again, and with 1, 2, 4 threads
 *   adding     dx that starts at 1 and is added to
 *   in place   the same bits with y in x[0] or dx[0] in dy, where allowed
 *   fences     in each run of all of these (see oprun.h)
 *
 * suite.h draws the cases. Called by the tests and by `segengine check`, so
 * what fails is handed to a function of the caller. */
#ifndef SEG_ENGINE_CHECK_OPCASE_H
#define SEG_ENGINE_CHECK_OPCASE_H
#include "engine/check/compare.h"
#include "engine/check/oprun.h"

/* What the calls of Backend.approximate may be off, as a share of the largest
 * of a result or gradient: of Winograd's on the CPU 9e-6 is the most that the
 * suites and the recipes' layers have shown (tests/cpu/winograd.c). */
#define BLUR 4e-5

/* Told of each failure: the case, and what was found. */
typedef void OpReport(void *ctx, const char *text);

/* Who is checked, and what came of it so far. */
typedef struct OpCheck {
    const Backend *be;
    int device;          /* its number, for cuda:N              */
    Precision precision; /* one that it has                  */
    bool once; /* what reads and writes the same places a second time, other
                * values or not, does not run: for builds that watch only where
                * a kernel reads and writes */
    int shares, share; /* shares above 1: share `share` (0, 1, ..) of the draws
                        * of each suite; all shares together have all */
    int draws;         /* that have run */
    OpReport *report;  /* NULL: failures are only counted */
    void *ctx;         /* of report                       */
    int failures;
    double worst; /* largest share of a bound that agreement used */
    double blur;  /* largest error of what is blurred, as BLUR; 0: none was */
} OpCheck;

/* Agreement for layers that are too large for the plain loops: of conv,
 * upconv and linear at most so many elements of y and of each gradient are
 * compared, the same ones each time; of other rows all. */
void opcase_agree_sampled(const OpCase *c, OpCheck *k, int of_y, int of_dx);
void opcase_gradient(const OpCase *c, OpCheck *k);
void opcase_agree(const OpCase *c, OpCheck *k);
void opcase_bits(const OpCase *c, OpCheck *k);
void opcase_adding(const OpCase *c, OpCheck *k);
/* Bits, adding and in place, against one first run. */
void opcase_exact(const OpCase *c, OpCheck *k);

/* For checks of other files: run a case on the device that is checked, open for
 * this run only; and is every part of p and q the same bits? */
bool opcase_run(const OpCase *c, const OpCheck *k, int threads,
                const OpValues *v, OpOptions how, Arena *mem, OpValues *out);
void opcase_same(OpCheck *k, const OpCase *c, const OpValues *p,
                 const OpValues *q, const char *what);

/* A failure of a case that never ran, or the above. */
void opcheck_report(OpCheck *k, const OpCase *c, const char *fmt, ...)
    ERR_FORMAT(3, 4);
#endif
