/* optim.c -- the table of optim.def, lookups in it, and factors of an update.
 *
 * The loops over elements are in the kernels (cpu/ref/optim.c and
 * cuda/device/optim.cu). The factors shared by all elements come from
 * rule_factors, once and in double, so that backends differ in rounding
 * only. */
#include "engine/graph/optim.h"
#include <string.h>

/* The H()s of a row as an array of this type: its length is their number. */
typedef struct Count {
    const char *name;
    double def;
    Range range;
} Count;

const OptimInfo optim_info[OPTIM_COUNT] = {
#define H(id, def, range) {#id, def, RANGE_##range},
#define OPTIM(id, count, hypers)                                     \
    [OPTIM_##id] = {#id,                                             \
                    count,                                           \
                    sizeof((const Count[]){hypers}) / sizeof(Count), \
                    {hypers}},
#include "engine/graph/optim.def"
};

#define H(id, def, range)
#define OPTIM(id, count, hypers) \
    _Static_assert(count <= 2, "an Update has room for two moments");
#include "engine/graph/optim.def"

OptimKind optim_find(const char *name)
{
    int i = 0;
    while (i < OPTIM_COUNT && strcmp(optim_info[i].name, name)) i++;
    return (OptimKind)i;
}

Optim optim_default(OptimKind kind)
{
    CHECK((unsigned)kind < OPTIM_COUNT);
    Optim o = {.kind = kind};
    for (int i = 0; i < optim_info[kind].hypers; i++)
        o.hyper[i] = optim_info[kind].hyper[i].def;
    return o;
}

// the numbers come from a recipe or from the saved config of a run
bool optim_valid(const Optim *o)
{
    const OptimInfo *info = &optim_info[o->kind];
    for (int i = 0; i < info->hypers; i++)
        if (!range_check(info->hyper[i].range, info->name, info->hyper[i].name,
                         o->hyper[i]))
            return false;
    return true;
}

double optim_hyper(const Optim *o, const char *name)
{
    CHECK((unsigned)o->kind < OPTIM_COUNT);
    const OptimInfo *info = &optim_info[o->kind];
    int i = 0;
    while (i < info->hypers && strcmp(info->hyper[i].name, name)) i++;
    CHECK(i < info->hypers);
    return o->hyper[i];
}

OptimRule optim_rule(const Optim *o)
{
    OptimRule r = {.kind = o->kind};
    if (o->kind == OPTIM_sgd) {
        r.momentum = optim_hyper(o, "momentum");
        r.nesterov = optim_hyper(o, "nesterov");
        return r;
    }
    r.beta1 = optim_hyper(o, "beta1");
    r.beta2 = optim_hyper(o, "beta2");
    r.eps = optim_hyper(o, "eps");
    return r;
}

void update_factors(const Update *u, double out[FACTOR_COUNT])
{
    OptimRule r = optim_rule(u->optim);
    rule_factors(&r, u->step, u->lr, u->decay, u->grad_scale, out);
}
