/* optim.c -- the optimisers of optim.def, a moving average of parameters, and
 * the sum of squares of a tensor.
 *
 * Elements are independent. Factors that hold for all elements are computed in
 * double (engine/graph/optim.h) and rounded to `real` once, as PyTorch rounds a
 * Python number that is combined with a float tensor. Arithmetic on elements is
 * in `real` and in PyTorch's order for one tensor, so that training curves can
 * be compared.
 *
 * In float, cpu/ops/optim.c must equal it bit by bit. */
#include "cpu/lib/plain.h"

/* update_factors, rounded. */
typedef struct Factors {
    real of[FACTOR_COUNT];
} Factors;

/* One update of one parameter: value, gradient and buffers of u->count numbers.
 * A task is TASK_COST contiguous elements. */
typedef struct Job {
    const Update *u;
    Factors f;
} Job;

/* At the first step m = g, so the content of a new buffer does not matter. */
static void sgd(const Job *j, int64_t from, int64_t to)
{
    const Factors f = j->f;
    const real rate = f.of[FACTOR_RATE], momentum = f.of[FACTOR_MOMENTUM];
    const bool first = f.of[FACTOR_FIRST] != 0;
    const bool nesterov = f.of[FACTOR_NESTEROV] != 0;
    const real *grad = j->u->grad;
    real *p = j->u->value, *m = j->u->m;

    for (int64_t i = from; i < to; i++) {
        real g = grad[i] * f.of[FACTOR_SCALE];
        g += f.of[FACTOR_DECAY] * p[i];
        m[i] = first ? g : m[i] * momentum + g;
        p[i] += rate * (nesterov ? g + momentum * m[i] : m[i]);
    }
}

/* m, v: running means of g and g^2. Both are too small in the first steps; root
 * and rate correct for it. */
static void adam(const Job *j, int64_t from, int64_t to)
{
    const Factors f = j->f;
    const real *grad = j->u->grad;
    real *p = j->u->value, *m = j->u->m, *v = j->u->v;
    for (int64_t i = from; i < to; i++) {
        real g = grad[i] * f.of[FACTOR_SCALE];
        g += f.of[FACTOR_DECAY] * p[i];
        m[i] = m[i] * f.of[FACTOR_BETA1] + f.of[FACTOR_REST1] * g;
        v[i] = v[i] * f.of[FACTOR_BETA2] + f.of[FACTOR_REST2] * g * g;
        real below = (real)sqrt(v[i]) / f.of[FACTOR_ROOT] + f.of[FACTOR_EPS];
        p[i] = p[i] * f.of[FACTOR_SHRINK] + f.of[FACTOR_RATE] * m[i] / below;
    }
}

/* Computes the factors in double and rounds them. */
static Factors factors_of(const Update *u)
{
    double exact[FACTOR_COUNT];
    Factors f;
    update_factors(u, exact);
    for (int i = 0; i < FACTOR_COUNT; i++) f.of[i] = (real)exact[i];
    return f;
}

static void update_task(void *ctx, int64_t task, int thread)
{
    const Job *j = ctx;
    int64_t from = task * TASK_COST;
    int64_t to = least(from + TASK_COST, j->u->count);
    (void)thread;
    if (j->u->optim->kind == OPTIM_sgd)
        sgd(j, from, to);
    else
        adam(j, from, to);
}

bool KERNEL(update)(void *dev, const Update *u)
{
    Job j = {u, factors_of(u)};
    CHECK(u->step >= 1);
    pool_run(dev, ceil_div(u->count, TASK_COST), update_task, &j);
    return true;
}

// -- moving average of parameters --------------------------------------------

typedef struct BlendJob {
    real *y;
    const real *x;
    int64_t count;
    real by;
} BlendJob;

static void blend_task(void *ctx, int64_t task, int thread)
{
    const BlendJob *j = ctx;
    int64_t from = task * TASK_COST;
    int64_t to = least(from + TASK_COST, j->count);
    (void)thread;
    // as a difference: equal numbers stay equal to the last bit
    for (int64_t i = from; i < to; i++) j->y[i] += j->by * (j->x[i] - j->y[i]);
}

bool KERNEL(blend)(void *dev, void *y, const void *x, int64_t count, double by)
{
    BlendJob j = {y, x, count, (real)by};
    pool_run(dev, ceil_div(count, TASK_COST), blend_task, &j);
    return true;
}

// -- sum of squares ----------------------------------------------------------

/* Partial sums at most; cut by `count` alone, so that any number of threads
 * adds the same numbers in the same order. */
enum { PARTS = 256 };

typedef struct SquareJob {
    const real *x;
    int64_t count, grain;
    double sum[PARTS];
} SquareJob;

/* Part number `task`, with dot's fixed lanes; in double, because squares of
 * floats overflow long before their root does. */
static void square_task(void *ctx, int64_t task, int thread)
{
    SquareJob *j = ctx;
    int64_t from = task * j->grain;
    (void)thread;
    j->sum[task] =
        dot(j->x + from, j->x + from, least(j->grain, j->count - from));
}

/* For clipping by the norm of all gradients. */
bool KERNEL(sum_squares)(void *dev, const void *x, int64_t count, double *out)
{
    SquareJob j = {.x = x, .count = count};
    j.grain = most(TASK_COST, ceil_div(count, PARTS));
    int64_t parts = ceil_div(count, j.grain);
    pool_run(dev, parts, square_task, &j);
    *out = 0;
    for (int64_t i = 0; i < parts; i++) *out += j.sum[i];
    return true;
}
