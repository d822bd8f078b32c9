/* matmul.h -- the three products of a matmul in one form.
 *
 * With A and B the operands as they are multiplied, M by K and K by N, the
 * result is A B and its gradients are dA = dy Bt and dB = At dy. Each is
 *
 *     c(i,j) (+)= sum over repeats and k of a(i,k) b(k,j)
 *
 * for every matrix of c. An operand that is broadcast along n, d or h has one
 * matrix for several of the result, so its gradient is a sum over them: the
 * repeats. Kernels write along the rows of c, whose elements are adjacent in
 * memory. The gradient of a transposed operand has adjacent elements along its
 * columns instead; there the product is transposed as a whole: ct = bt at. */
#ifndef SEG_ENGINE_GRAPH_MATMUL_H
#define SEG_ENGINE_GRAPH_MATMUL_H
#include "engine/base/host_device.h"
#include "engine/graph/op.h"

/* A tensor of matrices: memory elements from one element to the next along each
 * axis; 0 along n, d or h of extent 1, which is repeated. */
typedef struct Matrices {
    const Tensor *t;
    int64_t n, d, h, row, col;
} Matrices;

/* c = a b: a has `rows` rows and `inner` columns, b `inner` rows and `cols`
 * columns. */
typedef struct MatmulProduct {
    Matrices a, b, c;
    int64_t rows, cols, inner;
    Dims own, again; /* matrices of c, and repeats, along n, d and h */
} MatmulProduct;

/* A number of own or again along n, d, h. */
typedef struct MatrixPlace {
    int64_t n, d, h;
} MatrixPlace;

/* Number i of s.n x s.d x s.h, the last fastest. */
HOST_DEVICE MatrixPlace matrix_place(Dims s, int64_t i)
{
    MatrixPlace p;
    p.n = i / s.h / s.d, p.d = i / s.h % s.d, p.h = i % s.h;
    return p;
}

HOST_DEVICE int64_t matrix_count(Dims s)
{
    return (int64_t)s.n * s.d * s.h;
}

/* Memory elements to the matrix at `own` and `again`: along each axis one of
 * them is 0. */
HOST_DEVICE int64_t matrix_at(const Matrices *m, MatrixPlace own,
                              MatrixPlace again)
{
    return (own.n + again.n) * m->n + (own.d + again.d) * m->d +
           (own.h + again.h) * m->h;
}

static inline Matrices matrices_transposed(Matrices m)
{
    const int64_t row = m.row;
    m.row = m.col, m.col = row;
    return m;
}

/* The matrices of t; transposed: rows and columns exchanged. */
static inline Matrices matrices_of(const Tensor *t, bool transposed)
{
    const Dims s = t->dim;
    int64_t step = (int64_t)s.w * s.c;
    Matrices m;
    m.t = t, m.row = s.c, m.col = 1;
    m.h = s.h > 1 ? step : 0, step *= s.h;
    m.d = s.d > 1 ? step : 0, step *= s.d;
    m.n = s.n > 1 ? step : 0;
    return transposed ? matrices_transposed(m) : m;
}

/* The product of an a of `rows` rows and a b of `cols` columns. */
static inline MatmulProduct matmul_of(Matrices a, Matrices b, Matrices c,
                                      int64_t rows, int64_t cols, int64_t inner)
{
    MatmulProduct p;
    p.a = a, p.b = b, p.c = c;
    p.rows = rows, p.cols = cols, p.inner = inner;
    return p;
}

/* The product that makes y (which = 0), dx[0] (1) or dx[1] (2). */
static inline MatmulProduct matmul_product(const Call *call, int which)
{
    const bool ta = call->attr->matmul.transpose_a;
    const bool tb = call->attr->matmul.transpose_b;
    const bool turned = which == 1 ? ta : which == 2 ? tb : false; // ct = bt at
    const Tensor *whole = which ? call->dy : call->y;
    const Tensor *result = which ? call->dx[which - 1] : call->y;
    const Dims x = call->x[0]->dim, all = whole->dim, own = result->dim;
    const int64_t m = all.w, k = ta ? x.w : x.c, n = all.c;
    const Matrices a = matrices_of(call->x[0], ta);
    const Matrices b = matrices_of(call->x[1], tb);
    const Matrices y = matrices_of(whole, false);
    const Matrices c = matrices_of(result, turned);
    MatmulProduct p = matmul_of(a, b, c, m, n, k);
    if (which == 1) p = matmul_of(y, matrices_transposed(b), c, m, k, n);
    if (which == 2) p = matmul_of(matrices_transposed(a), y, c, k, n, m);
    if (turned)
        p = matmul_of(matrices_transposed(p.b), matrices_transposed(p.a),
                      matrices_transposed(p.c), p.cols, p.rows, p.inner);
    p.own = own, p.again = dims_repeats(own, all);
    return p;
}
#endif
