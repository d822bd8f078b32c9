/* matmul.c -- products of matrices: see matmul.h. A task makes rows of the
 * result; each element is one sum in double. */
#include "engine/graph/matmul.h"
#include "cpu/lib/plain.h"

enum { BLOCK = 64 }; // columns that are summed together

typedef struct Job {
    MatmulProduct p;
    bool fresh;
} Job;

/* Adds the terms of row i and of columns from `first` on to `sum`, for one pair
 * of matrices. */
static void add_terms(const MatmulProduct *p, const real *a, const real *b,
                      int64_t count, double *sum)
{
    for (int64_t k = 0; k < p->inner; k++) {
        const double v = a[k * p->a.col];
        const real *x = b + k * p->b.row;
        for (int64_t j = 0; j < count; j++) sum[j] += v * x[j * p->b.col];
    }
}

static void write_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const MatmulProduct *p = &j->p;
    const MatrixPlace none = {0};

    for (int64_t item = from; item < to; item++) {
        const MatrixPlace own = matrix_place(p->own, item / p->rows);
        const int64_t row = item % p->rows;
        real *c = values(p->c.t) + matrix_at(&p->c, own, none) + row * p->c.row;
        for (int64_t first = 0; first < p->cols; first += BLOCK) {
            const int64_t count = least(BLOCK, p->cols - first);
            double sum[BLOCK] = {0};
            for (int64_t r = 0; r < matrix_count(p->again); r++) {
                const MatrixPlace again = matrix_place(p->again, r);
                add_terms(p,
                          values(p->a.t) + matrix_at(&p->a, own, again) +
                              row * p->a.row,
                          values(p->b.t) + matrix_at(&p->b, own, again) +
                              first * p->b.col,
                          count, sum);
            }
            for (int64_t i = 0; i < count; i++)
                put(c + first + i, sum[i], j->fresh);
        }
    }
}

static void run(const Call *c, int which, bool fresh)
{
    Job j = {matmul_product(c, which), fresh};
    const int64_t terms = j.p.inner * matrix_count(j.p.again);
    range_run(c, matrix_count(j.p.own) * j.p.rows, j.p.cols * terms, write_rows,
              &j);
}

Space KERNEL(matmul_space)(const Call *c)
{
    (void)c;
    return (Space){0};
}

bool KERNEL(matmul_fwd)(const Call *c)
{
    run(c, 0, true);
    return true;
}

// one operand after the other: both gradients may be the same memory
bool KERNEL(matmul_bwd)(const Call *c)
{
    for (int i = 0; i < 2; i++)
        if (c->dx[i]) run(c, 1 + i, is_fresh(c, i));
    return true;
}
