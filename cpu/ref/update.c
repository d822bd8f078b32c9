/* update.c -- the optimisers of optim.def, and the square of a norm.
 *
 * Elements are independent. Numbers that hold for all elements are computed
 * in double; the arithmetic on elements is in `real` and in PyTorch's order
 * for one tensor, so that curves compare. Their factors are rounded to `real`
 * once, as PyTorch rounds a Python number that meets a float tensor.
 *
 * Bound by memory (adam: four loads, three stores a number), so plain loops
 * serve `cpu`, too: the compiler finds their vectors. */
#include "plain.h"

/* What an update multiplies by, rounded. */
typedef struct Factors {
    real scale, decay, momentum; /* g = scale grad + decay p            */
    real beta1, rest1, beta2, rest2;
    real shrink, root, eps, rate; /* see the rows                       */
    bool nesterov, first;
} Factors;

/* One update of one parameter: value, gradient and buffers of u->count
 * numbers; a task is TASK_COST neighbours. */
typedef struct Job {
    const Update *u;
    Factors f;
} Job;

/* g += decay p;  m <- momentum m + g;  p -= lr (m, or g + momentum m). The
 * first m is g, so what stood in a new buffer does not matter. */
static void sgd(const Job *j, int64_t from, int64_t to)
{
    const Factors f = j->f;
    const real *grad = j->u->grad;
    real *p = j->u->value, *m = j->u->m;
    for (int64_t i = from; i < to; i++) {
        real g = grad[i] * f.scale;
        g += f.decay * p[i];
        m[i] = f.first ? g : m[i] * f.momentum + g;
        p[i] += f.rate * (f.nesterov ? g + f.momentum * m[i] : m[i]);
    }
}

/* m, v: running means of g and g^2, both too small in the first steps; root
 * and rate make up for it, root = sqrt(1 - beta2^t), rate = -lr/(1 - beta1^t).
 * adam has shrink = 1, adamw decay = 0. */
static void adam(const Job *j, int64_t from, int64_t to)
{
    const Factors f = j->f;
    const real *grad = j->u->grad;
    real *p = j->u->value, *m = j->u->m, *v = j->u->v;
    for (int64_t i = from; i < to; i++) {
        real g = grad[i] * f.scale;
        g += f.decay * p[i];
        m[i] = m[i] * f.beta1 + f.rest1 * g;
        v[i] = v[i] * f.beta2 + f.rest2 * g * g;
        real below = (real)sqrt(v[i]) / f.root + f.eps;
        p[i] = p[i] * f.shrink + f.rate * m[i] / below;
    }
}

/* Once an update, in double; rounded at the last moment. */
static Factors factors_of(const Update *u)
{
    const Optim *o = u->optim;
    Factors f = {.scale = (real)u->grad_scale,
                 .decay = (real)u->decay,
                 .shrink = 1,
                 .rate = (real)-u->lr,
                 .first = u->step == 1};
    if (o->kind == OPTIM_sgd) {
        f.momentum = (real)optim_hyper(o, "momentum");
        f.nesterov = optim_hyper(o, "nesterov") != 0;
        return f;
    }
    // the rest is adam and adamw; t counts from 1
    double beta1 = optim_hyper(o, "beta1"), beta2 = optim_hyper(o, "beta2");
    double t = (double)u->step;
    f.beta1 = (real)beta1, f.rest1 = (real)(1 - beta1);
    f.beta2 = (real)beta2, f.rest2 = (real)(1 - beta2);
    f.eps = (real)optim_hyper(o, "eps");
    f.root = (real)sqrt(1 - pow(beta2, t));
    f.rate = (real)(-u->lr / (1 - pow(beta1, t)));
    // decoupled: adamw shrinks the parameter, not its gradient's share
    if (o->kind == OPTIM_adamw)
        f.shrink = (real)(1 - u->lr * u->decay), f.decay = 0;
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

// -- sum of squares ----------------------------------------------------------

/* At most so many partial sums, cut by `count` alone: any number of threads
 * adds the same numbers in the same order. */
enum { PARTS = 256 };

typedef struct SquareJob {
    const real *x;
    int64_t count, grain;
    double sum[PARTS];
} SquareJob;

/* Part number `task`, with dot's fixed lanes; in double, as squares of floats
 * would overflow long before their root does. */
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
