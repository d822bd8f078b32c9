/* suite.h -- random cases of every operator, and checks of all properties.
 *
 * An operator of ops.def has at least one OpSuite, in the table of its family
 * (suite_conv.c, ...): a function that draws cases, and properties of all of
 * them. suite_run uses a fixed seed, so failures are reproducible:
 *
 *     12 small cases    gradient
 *     56 cases          agreement, with a subset of the gradients
 *     the first 16      also bits, adding, in place and fused, of ref and the
 *                       backend
 *     24 cases          on 16-bit tensors, if the backend supports them
 *
 * Adding an operator:
 *
 *     static void draw_leaky_relu(Draw *d, OpCase *c)
 *     {
 *         c->x[0] = draw_image(d, c);                  // also sets c->rank
 *         c->attr.leaky_relu.slope = draw_real(d, 0.01f, 0.5f);
 *     }
 *     ...
 *     {.op = OP_leaky_relu,
 *      .draw = draw_leaky_relu,
 *      .wrt = 1 << 0,
 *      .fill = {{FILL_GAP, 0.1, 2}}},
 *
 * A case that the shape rule refuses is drawn again. */
#ifndef SEG_ENGINE_CHECK_SUITE_H
#define SEG_ENGINE_CHECK_SUITE_H
#include "engine/check/opcase.h"

/* Random numbers of one case. */
typedef struct Draw {
    uint32_t sample, index;
    uint16_t op;
    bool small; /* for a gradient check: keep it near 500 operand elements */
    Dims (*image)(struct Draw *d, OpCase *c); /* see OpSuite             */
} Draw;

int draw_int(Draw *d, int lo, int hi); /* lo .. hi, both included */
bool draw_bool(Draw *d);
float draw_real(Draw *d, float lo, float hi);
/* Draws extents of an image of random rank 0 .. 3 (sets c->rank): n 1..3, c
 * 1..9, spatial extents of mixed size; unless small sometimes c to 40 or w to
 * 70, to exceed the blocks of a fast kernel. */
Dims draw_image(Draw *d, OpCase *c);
/* The same for a given rank. */
Dims draw_ranked(Draw *d, OpCase *c, int rank);
/* Draws a boundary, minus one, plus zero, or plus one. */
int draw_edge(Draw *d, int at);
/* Draws one of `count` numbers. */
int draw_pick(Draw *d, const int *list, int count);
#define PICK(d, ...)                   \
    draw_pick(d, (int[]){__VA_ARGS__}, \
              (int)(sizeof(int[]){__VA_ARGS__} / sizeof(int)))

/* Draws a case. It has default attributes and the suite's fill, wrt and
 * changes; the function must set x (and rank, which draw_image does). */
typedef void DrawFn(Draw *d, OpCase *c);

/* Replaces draw_image and draw_ranked (sets c->rank >= 1). */
typedef Dims ImageFn(Draw *d, OpCase *c);

typedef struct OpSuite {
    const char *note; /* feature of the draws; NULL: none */
    Op op;
    DrawFn *draw;
    Fill fill[MAX_IN];
    unsigned wrt, changes; /* see OpCase                   */
    double floor;          /* see Judge                    */
    ImageFn *image;        /* NULL: any extents            */
    int cases;             /* 0: as above. Else number of agreements, of which
                            * every fifth also bits, adding, in place, and no
                            * gradients: for large extents */
    bool narrow;    /* on tensors of the precision's own type, for kernels
                     * that take no others: in 16 bits, or f32 in tf32;
                     * agreements alone, none in f32 */
    const char *of; /* the backend with the kernels that the extents are
                     * drawn for; another runs a quarter of them.
                     * NULL: all backends           */
} OpSuite;

/* The tables end with an entry without draw. */
extern const OpSuite suites_conv[], suites_elementwise[], suites_loss[],
    suites_norm[], suites_pool[], suites_sequence[], suites_shape[],
    suites_indices[];

/* Extents at and next to the boundaries of kernels: tiles, partial sums,
 * blocks. See suite_edges.c. */
ImageFn image_walk, image_channels, image_few, image_parts, image_global,
    image_turn;

/* Iterates over all suites: *at starts as 0. NULL after the last. */
const OpSuite *suite_next(int *at);

/* Draws a case of an operator in training mode, for its fill, wrt, changes and
 * floor: values that the operator is meant for (0 and 1 in a target, variances
 * above 0). */
bool suite_example(Op op, OpCase *out);

/* Numbers of cases in k->precision: gradients (of ref: in f32 only) of at least
 * one operand, agreements, and cases on 16-bit tensors (ophalf.h). In a
 * precision other than f32 only operators that multiply have agreements. */
typedef struct SuiteSize {
    int gradient, agree, narrow;
} SuiteSize;
SuiteSize suite_size(const OpSuite *s, const OpCheck *k);

/* Runs all cases, in k->precision; failures and margins go to k. */
void suite_run(const OpSuite *s, OpCheck *k);

/* Runs the first small case of the agreements and the first small one on 16-bit
 * tensors; k->draws counts both. */
void suite_run_first(const OpSuite *s, OpCheck *k);
#endif
