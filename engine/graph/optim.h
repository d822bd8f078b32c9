/* optim.h -- the optimiser table, expanded from optim.def.
 *
 * An Optim is a row of the table with its hyperparameters; an Update is one
 * update that a backend runs. Learning rate, clipping and the choice of decayed
 * parameters are not part of an Optim: they may change from step to step and
 * are decided by the caller. */
#ifndef SEG_ENGINE_GRAPH_OPTIM_H
#define SEG_ENGINE_GRAPH_OPTIM_H
#include "engine/base/host_device.h"
#include "engine/base/range.h"
#include "engine/graph/tensor.h"
#include <math.h>

enum { MAX_HYPER = 6 }; /* maximum over all rows */

typedef enum OptimKind {
#define H(name, def, range)
#define OPTIM(name, ...) OPTIM_##name,
#include "engine/graph/optim.def"
    OPTIM_COUNT
} OptimKind;

typedef struct OptimInfo {
    const char *name;
    int states; /* moment buffers    */
    int hypers; /* length of hyper[] */
    struct {
        const char *name;
        double def;
        Range range;
    } hyper[MAX_HYPER];
} OptimInfo;

extern const OptimInfo optim_info[OPTIM_COUNT];

OptimKind optim_find(const char *name); /* OPTIM_COUNT if unknown */

/* An optimiser with its hyperparameters, in the order of its row. */
typedef struct Optim {
    OptimKind kind;
    double hyper[MAX_HYPER];
} Optim;

Optim optim_default(OptimKind kind);
/* Checks the range of every number; ERR_USAGE names the first bad one. */
bool optim_valid(const Optim *o);
/* Returns hyperparameter `name`, which the row must have. */
double optim_hyper(const Optim *o, const char *name);

/* Factors of a group of parameters: `rate` multiplies the step's learning rate,
 * `decay` is its weight decay. A network with uniform decay has one group. */
typedef struct OptimGroup {
    double rate, decay;
} OptimGroup;
enum { MAX_GROUPS = 64 };

/* One update of `count` consecutive elements of the real type. */
typedef struct Update {
    const Optim *optim;
    void *value, *grad, *m, *v; /* (count) each; m, v if the row has states */
    int64_t count;
    int64_t step; /* t: 1 at the first update                     */
    double lr;
    double decay;      /* replaces the row's decay (0 for biases, say) */
    double grad_scale; /* g = grad * grad_scale                        */
} Update;

/* Factors of an update, equal for all of its elements:
 *
 *     g = SCALE grad + DECAY p
 *     sgd   m = FIRST ? g : MOMENTUM m + g
 *           p += RATE (NESTEROV ? g + MOMENTUM m : m)
 *     adam  m = BETA1 m + REST1 g,  v = BETA2 v + REST2 g^2
 *           p = SHRINK p + RATE m / (sqrt(v) / ROOT + EPS)
 *
 * so t and the bias correction of the moments are in RATE and ROOT, and adamw
 * differs from adam in SHRINK and DECAY alone. radam is adam with a RATE that
 * takes the variance of its adaptive rate into account and EPS / ROOT for EPS;
 * while that variance is intractable, ROOT is infinite and EPS 1, so that m is
 * divided by 1. */
typedef enum Factor {
    FACTOR_SCALE,
    FACTOR_DECAY,
    FACTOR_RATE,
    FACTOR_FIRST, /* 1 or 0 */
    FACTOR_MOMENTUM,
    FACTOR_NESTEROV, /* 1 or 0 */
    FACTOR_BETA1,
    FACTOR_REST1,
    FACTOR_BETA2,
    FACTOR_REST2,
    FACTOR_SHRINK,
    FACTOR_ROOT,
    FACTOR_EPS,
    FACTOR_COUNT
} Factor;

/* Computes all factors; a backend rounds each to its real type once. */
void update_factors(const Update *u, double out[FACTOR_COUNT]);

/* An optimiser with its hyperparameters by name; a hyperparameter that its row
 * in optim.def does not have is 0. */
typedef struct OptimRule {
    OptimKind kind;
    double momentum, nesterov, beta1, beta2, eps;
} OptimRule;
OptimRule optim_rule(const Optim *o);

/* Changes adam's factors to radam's. rho is the length of the simple moving
 * average that approximates the average in v after t steps. */
HOST_DEVICE void rectify(double beta2, int64_t t, double out[FACTOR_COUNT])
{
    double n = 2 / (1 - beta2) - 1, left = pow(beta2, (double)t);
    double rho = n - 2 * (double)t * left / (1 - left);
    if (rho > 5) {
        out[FACTOR_RATE] *=
            sqrt((rho - 4) * (rho - 2) * n / ((n - 4) * (n - 2) * rho));
        out[FACTOR_EPS] /= out[FACTOR_ROOT];
    } else {
        out[FACTOR_ROOT] = INFINITY;
        out[FACTOR_EPS] = 1;
    }
}

/* Computes the factors of step t (from 1); other arguments as in Update. Also
 * for a GPU that runs device steps. */
HOST_DEVICE void rule_factors(const OptimRule *r, int64_t t, double lr,
                              double decay, double grad_scale,
                              double out[FACTOR_COUNT])
{
    for (int i = 0; i < FACTOR_COUNT; i++) out[i] = 0;
    out[FACTOR_SCALE] = grad_scale;
    out[FACTOR_DECAY] = decay;
    out[FACTOR_SHRINK] = 1;
    out[FACTOR_RATE] = -lr;
    out[FACTOR_FIRST] = t == 1;
    out[FACTOR_MOMENTUM] = r->momentum;
    out[FACTOR_NESTEROV] = r->nesterov != 0;
    if (r->kind == OPTIM_sgd) return;
    // the rest is adam and adamw; t counts from 1
    out[FACTOR_BETA1] = r->beta1, out[FACTOR_REST1] = 1 - r->beta1;
    out[FACTOR_BETA2] = r->beta2, out[FACTOR_REST2] = 1 - r->beta2;
    out[FACTOR_EPS] = r->eps;
    out[FACTOR_ROOT] = sqrt(1 - pow(r->beta2, (double)t));
    out[FACTOR_RATE] = -lr / (1 - pow(r->beta1, (double)t));
    if (r->kind == OPTIM_radam) rectify(r->beta2, t, out);
    // decoupled: adamw shrinks the parameter, not its gradient's share
    if (r->kind == OPTIM_adamw)
        out[FACTOR_SHRINK] = 1 - lr * decay, out[FACTOR_DECAY] = 0;
}
#endif
