/* bce.c -- sigmoid cross entropy of logits; each channel is a binary decision
 * of its own. The formula is in loss.h, for bce_dice too. */
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
