/* bench.h -- calls of the emulated device that a test makes by hand, on
 * tensors that it draws there. */
#ifndef SEG_EMU_TEST_BENCH_H
#define SEG_EMU_TEST_BENCH_H
#include "engine/check/oprun.h"
#include "tests/support/op_call.h"

extern const Backend backend_cuda;

enum { BENCH_MOST = 80 };

/* A device and what was allocated on it. */
typedef struct Bench {
    OpDevice d;
    Precision precision;
    void *block[BENCH_MOST];
    int blocks;
    uint32_t draws;
} Bench;

void bench_open(Bench *b, Precision p);
void bench_close(Bench *b);
Tensor tensor_of(Bench *b, Dims dim, Dtype type);
/* Values lo .. hi. */
Tensor drawn(Bench *b, Dims dim, Dtype type, float lo, float hi);
void read_tensor(Bench *b, const Tensor *t, double *out);
/* The same bits, which are no NaN. */
void same(Bench *b, const Tensor *p, const Tensor *q);
/* The same but for rounding: the sum of squared differences is at most such a
 * share of that of q's squares, and there is no NaN. */
void near(Bench *b, const Tensor *p, const Tensor *q, double share);
/* Run it, forward or back, with garbage as scratch. */
void run(Bench *b, Call *c);

/* A norm and the activation behind it (NULL: none), of `channels`. */
typedef struct Behind {
    Attr norm, act;
    Tensor x[MAX_IN], dx[MAX_IN]; // gamma, beta, running mean and variance
    Tensor bias;                  // of the convolution
    DeferredNorm deferred_norm;
} Behind;

/* y of a convolution of x, left before `h`; *c is its call, whose y is to be
 * set again. */
Tensor deferred(Bench *b, const Attr *attr, const Tensor *x, const Tensor *w,
                Behind *h, Call *c);
/* Likewise of these extents: a product of rows, as any convolution is. */
Tensor left(Bench *b, Dims s, Behind *h);

/* A product with a window, which conv and upconv have on the axes that `w` has;
 * linear has none. */
typedef struct Shape {
    Op op;
    Dims x, w; // w: B, k, k, k, A
    int stride, pad, groups;
} Shape;
Attr attr_of(const Shape *s);
/* maxpool with windows of one: shows what it sees, and is no product. */
Attr pool_of_one(void);
#endif
