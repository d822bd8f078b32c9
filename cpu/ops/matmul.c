/* matmul.c -- products of matrices, fast: see matmul.h.
 *
 * A task makes up to ROWS rows by a few panels of columns of one matrix. It
 * packs the columns of b, DEPTH terms of the sum at a time, for Simd.product,
 * and reads the rows of a where they are, or transposes them first. The parts
 * of a sum are added in their order, so the bits depend on extents alone. Bound
 * by multiply-adds from about 64 rows on; packing b is one copy for ROWS
 * rows. */
#include "engine/graph/matmul.h"
#include "cpu/conv/panel.h"
#include "cpu/conv/transpose.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/thread_pool.h"

enum { ROWS = 192, PANELS = 4, DEPTH = 512 };

typedef struct Job {
    MatmulProduct p;
    const Simd *simd;
    float *private;           // buffers of the threads, `own` floats each
    int64_t own, wide;        // columns of a task
    int64_t row_parts, parts; // tasks of a matrix
    bool fresh;
} Job;

/* Floats of packed columns; the rows of a, transposed, follow them. */
static int64_t packed_floats(const Simd *s)
{
    return panel_floats(s, DEPTH, (int64_t)PANELS * s->panel);
}

static int64_t buffer_floats(const Simd *s)
{
    return packed_floats(s) + (int64_t)ROWS * DEPTH;
}

Space cpu_matmul_space(const Call *c)
{
    const size_t bytes =
        (size_t)(most(1, c->threads) * buffer_floats(simd())) * sizeof(float);
    return (Space){.fwd = bytes, .bwd = bytes};
}

/* Rows and columns of one task. */
typedef struct Part {
    int64_t row, rows, col, cols;
} Part;

/* Adds, or stores, the product of one pair of matrices at y. */
static void add_product(const Job *j, const Part *t, const float *a,
                        const float *b, float *y, float *packed, bool add)
{
    const MatmulProduct *p = &j->p;
    float *turned = packed + packed_floats(j->simd);
    for (int64_t k = 0; k < p->inner; k += DEPTH) {
        const int64_t deep = least(DEPTH, p->inner - k);
        const Matrix m = {b + k * p->b.row, deep, t->cols, p->b.row, p->b.col};
        PanelRows r = {a + k * p->a.col, y,       p->a.row,
                       p->c.row,         t->rows, add || k > 0};
        panel_pack_all(j->simd, &m, packed);
        if (p->a.col != 1) {
            transpose_rows(r.x, p->a.col, deep, t->rows, turned, deep);
            r.x = turned, r.ldx = deep;
        }
        panel_multiply(j->simd, packed, deep, t->cols, &r);
    }
}

static void run_task(void *ctx, int64_t task, int thread)
{
    const Job *j = ctx;
    const MatmulProduct *p = &j->p;
    const MatrixPlace own = matrix_place(p->own, task / j->parts), none = {0};
    const int64_t part = task % j->parts;
    Part t = {.row = part % j->row_parts * ROWS,
              .col = part / j->row_parts * j->wide};
    t.rows = least(ROWS, p->rows - t.row);
    t.cols = least(j->wide, p->cols - t.col);
    float *y = (float *)p->c.t->data + matrix_at(&p->c, own, none) +
               t.row * p->c.row + t.col;

    for (int64_t i = 0; i < matrix_count(p->again); i++) {
        const MatrixPlace again = matrix_place(p->again, i);
        const float *a = (const float *)p->a.t->data +
                         matrix_at(&p->a, own, again) + t.row * p->a.row;
        const float *b = (const float *)p->b.t->data +
                         matrix_at(&p->b, own, again) + t.col * p->b.col;
        add_product(j, &t, a, b, y, j->private + thread * j->own,
                    i > 0 || !j->fresh);
    }
}

static void run(const Call *c, int which, bool fresh)
{
    Job j = {.p = matmul_product(c, which), .simd = simd(), .fresh = fresh};
    j.private = c->scratch, j.own = buffer_floats(j.simd);
    j.wide = (int64_t)PANELS * j.simd->panel;
    j.row_parts = ceil_div(j.p.rows, ROWS);
    j.parts = j.row_parts * ceil_div(j.p.cols, j.wide);
    pool_run(c->dev, matrix_count(j.p.own) * j.parts, run_task, &j);
}

bool cpu_matmul_fwd(const Call *c)
{
    run(c, 0, true);
    return true;
}

// one operand after the other: both gradients may be the same memory
bool cpu_matmul_bwd(const Call *c)
{
    for (int i = 0; i < 2; i++)
        if (c->dx[i]) run(c, 1 + i, c->fresh >> i & 1);
    return true;
}
