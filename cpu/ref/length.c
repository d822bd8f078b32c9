/* length.c -- mask_length sets positions beyond a sample's length to 0;
 * last_step selects the last position within it.
 *
 * Both only copy, so each direction is one loop over rows of channels (n,p). */
#include "engine/graph/length.h"
#include "cpu/lib/plain.h"

/* Is row i of a tensor of these extents within the length? */
static bool is_own(const Call *c, Dims s, int64_t i)
{
    int64_t p = i % positions(s);
    return p < length_of(c->x[1], i / positions(s), positions(s));
}

typedef struct Job {
    const Call *c;
    const real *from;
    real *to;
    bool fresh;
} Job;

/* to = from within the length, else 0. */
static void mask_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    Dims s = j->c->y->dim;
    for (int64_t i = from; i < to; i++) {
        bool own = is_own(j->c, s, i);
        // 0 beyond the length even if x is not finite
        for (int64_t k = i * s.c; k < (i + 1) * s.c; k++)
            put(&j->to[k], own ? j->from[k] : 0, j->fresh);
    }
}

bool KERNEL(mask_length_fwd)(const Call *c)
{
    Dims s = c->y->dim;
    Job j = {c, values(c->x[0]), values(c->y), true};
    range_run(c, rows(s), s.c, mask_rows, &j);
    return true;
}

bool KERNEL(mask_length_bwd)(const Call *c)
{
    Dims s = c->y->dim;
    Job j = {c, values(c->dy), values(c->dx[0]), is_fresh(c, 0)};
    if (c->dx[0]) range_run(c, rows(s), s.c, mask_rows, &j);
    return true;
}

/* y[n] = x[n, length - 1], or 0. A sample is one short copy. */
bool KERNEL(last_step_fwd)(const Call *c)
{
    Dims s = c->x[0]->dim;
    for (int64_t n = 0; n < s.n; n++) {
        int64_t last = length_of(c->x[1], n, positions(s)) - 1;
        const real *x = values(c->x[0]) + (n * positions(s) + last) * s.c;
        for (int64_t k = 0; k < s.c; k++)
            values(c->y)[n * s.c + k] = last < 0 ? 0 : x[k];
    }
    return true;
}

/* Rows (n,p) of dx: dy at the last position, else 0. */
static void last_bwd(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    Dims s = j->c->x[0]->dim;
    for (int64_t i = from; i < to; i++) {
        int64_t n = i / positions(s), p = i % positions(s);
        bool last = p == length_of(j->c->x[1], n, positions(s)) - 1;
        for (int64_t k = 0; k < s.c; k++)
            put(&j->to[i * s.c + k], last ? j->from[n * s.c + k] : 0, j->fresh);
    }
}

bool KERNEL(last_step_bwd)(const Call *c)
{
    Dims s = c->x[0]->dim;
    Job j = {c, values(c->dy), values(c->dx[0]), is_fresh(c, 0)};
    if (c->dx[0]) range_run(c, rows(s), s.c, last_bwd, &j);
    return true;
}
