/* opcase.h -- the properties that every operator must have.
 *
 * A row of ops.def gets one OpSuite: a function that draws random cases and
 * what is true of all of them. opsuite_run then checks, with a fixed seed:
 *
 *   gradient   ref's backward run against central differences of
 *              sum(q * y), q random: 12 small cases, 1e-6 of max |g|
 *   agreement  cpu against ref within the row's bound, forward and backward,
 *              56 cases, with a random subset of the gradients wanted
 *   bits       ref and cpu: the same bits again and with 1, 2, 4 threads
 *   adding     dx that starts at 1 and is added to
 *   in place   the same bits with y in x[0] or dx[0] in dy, where allowed
 *   fences     in each run of all of these (see oprun.h)
 *
 * Adding an operator to the tests:
 *
 *     static void draw_leaky_relu(Draw *d, OpCase *c)
 *     {
 *         c->x[0] = draw_image(d, c);                  // also sets c->rank
 *         c->attr.leaky_relu.slope = draw_real(d, 0.01f, 0.5f);
 *     }
 *     TEST(op_leaky_relu)
 *     {
 *         opsuite_run(&(OpSuite){.op = OP_leaky_relu,
 *                                .draw = draw_leaky_relu,
 *                                .wrt = 1 << 0,
 *                                .fill = {{FILL_GAP, 0.1, 2}}});
 *     }
 *
 * A case that the shape rule refuses is drawn again. A failure prints the
 * case; `SEG_MARGINS=1` prints the worst error of each suite as a share of
 * its bound. */
#ifndef SEG_OPCASE_H
#define SEG_OPCASE_H
#include "compare.h"
#include "oprun.h"

/* Random numbers of one case. */
typedef struct Draw {
    uint32_t sample, index;
    uint16_t op;
    bool small; /* for a gradient check: keep it near 500 operand elements */
} Draw;

int draw_int(Draw *d, int lo, int hi); /* lo .. hi, both possible */
bool draw_bool(Draw *d);
float draw_real(Draw *d, float lo, float hi);
/* Extents of an image of random rank 0 .. 3 (sets c->rank): n 1..3, c 1..9,
 * spatial extents of mixed size; when not small sometimes c to 40 or w to 70,
 * to go beyond the blocks of a fast kernel. */
Dims draw_image(Draw *d, OpCase *c);
/* The same with a given rank. */
Dims draw_ranked(Draw *d, OpCase *c, int rank);

/* The case arrives with default attributes and the suite's fill, wrt and
 * changes; it must set x (and rank, which draw_image does). */
typedef void DrawFn(Draw *d, OpCase *c);

typedef struct OpSuite {
    Op op;
    DrawFn *draw;
    Fill fill[MAX_IN];
    unsigned wrt, changes;
    double floor;
} OpSuite;

void opsuite_run(const OpSuite *s);

/* The parts, for cases written by hand; each reports through test_failed. */
void opcase_gradient(const OpCase *c);
/* Worst share of the bound that was used. */
double opcase_agree(const OpCase *c, const Backend *be);
void opcase_bits(const OpCase *c, const Backend *be);
void opcase_adding(const OpCase *c, const Backend *be);
void opcase_inplace(const OpCase *c, const Backend *be);

/* From now on failures are counted in *count and not reported; NULL ends
 * that. For tests of these properties themselves. */
void opcase_listen(int *count);
#endif
