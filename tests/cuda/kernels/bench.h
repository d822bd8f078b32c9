/* bench.h -- single kernel calls on the emulated device, on random tensors. */
#ifndef SEG_EMU_TEST_BENCH_H
#define SEG_EMU_TEST_BENCH_H
#include "engine/check/oprun.h"
#include "tests/support/op_call.h"

extern const Backend backend_cuda;

enum { MAX_BLOCKS = 80 };

/* A device and the memory that was allocated on it. */
typedef struct Bench {
    OpDevice d;
    Precision precision;
    void *block[MAX_BLOCKS];
    int blocks;
    uint32_t draws;
} Bench;

void bench_open(Bench *b, Precision p);
void bench_close(Bench *b);
Tensor tensor_of(Bench *b, Dims dim, Dtype type);
/* Returns a tensor of uniform random values lo .. hi on the device. */
Tensor uniform(Bench *b, Dims dim, Dtype type, float lo, float hi);
void read_tensor(Bench *b, const Tensor *t, double *out);
/* Expects the same bits in p and q, and no NaN. */
void same(Bench *b, const Tensor *p, const Tensor *q);
/* Expects equal values up to rounding: the sum of squared differences is at
 * most `share` times the sum of q's squares, and there is no NaN. */
void near(Bench *b, const Tensor *p, const Tensor *q, double share);
/* Runs a call, backward if it has dy, with random values in the scratch memory.
 */
void run(Bench *b, Call *c);

/* A batch norm and the activation after it, with their parameters and
 * gradients. */
typedef struct NormAct {
    Attr norm, act;
    Tensor x[MAX_IN], dx[MAX_IN]; // gamma, beta, running mean and variance
    Tensor bias;                  // of the convolution
    DeferredNorm deferred_norm;
} NormAct;

/* Runs a convolution of x with deferred norm `h` and returns its y, stored
 * before the norm. Sets h and the call *c. c->y points to a local variable: the
 * caller must set it again. */
Tensor deferred_conv(Bench *b, const Attr *attr, const Tensor *x,
                     const Tensor *w, NormAct *h, Call *c);
/* The same with a linear layer; y has extents s. */
Tensor deferred_linear(Bench *b, Dims s, NormAct *h);

/* A conv, upconv or linear layer. `stride` and `pad` hold on h, w and, when
 * the filter is 3-D, d; linear has none. */
typedef struct Shape {
    Op op;
    Dims x, w; // w: B, k, k, k, A
    int stride, pad, groups;
} Shape;
Attr attr_of(const Shape *s);
/* A maxpool with windows of one element: copies its operand after the deferred
 * norm, without a product. */
Attr pool_of_one(void);
#endif
