/* bce.c -- sigmoid cross entropy of logits, one or several channels, each a
 * yes or no of its own. The formula is in loss.h: bce_dice has it, too. */
#include "cpu/ref/loss.h"

static double bce_value(const Attr *a, double x, double t)
{
    return cross_value(a->bce.pos_weight, x, t);
}

static double bce_grad(const Attr *a, double x, double t)
{
    return cross_grad(a->bce.pos_weight, x, t);
}

MEAN_LOSS(bce)
