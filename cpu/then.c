/* then.c -- which rows `cpu` runs in the store or the load of another: see
 * Backend.fuses and Backend.beside.
 *
 * Rows that are bound by memory, where a pass less is time saved: behind a norm
 * or a sum on the way back, too; behind a convolution where there is no way
 * back, as its gradients read dy more often than once. */
#include "then.h"
#include "winograd.h"

/* No extent is repeated: those are summed by the plain loops. */
static bool is_even(const Call *c)
{
    return dims_equal(c->x[0]->dim, c->y->dim) &&
           dims_equal(c->x[1]->dim, c->y->dim);
}

bool cpu_fuses(const Call *c)
{
    const int then = c->then ? c->then->op : OP_relu;
    if (then != OP_relu && then != OP_leaky_relu) return false;
    switch (call_op(c)) {
    case OP_batch_norm:
    case OP_instance_norm:
    case OP_group_norm:
        return !c->norm;
    case OP_add:
        return !c->norm && then == OP_relu && is_even(c);
    case OP_conv:
    case OP_linear:
        return !c->dy && op_window(c->attr, c->x[1]).groups == 1;
    default:
        return false;
    }
}

// Winograd's tiles are vectors of channels of a pixel each, so the border is
// between two of them; direct sums read rows of pixels as one
bool cpu_beside(const Call *c)
{
    return call_op(c) == OP_conv && c->precision == PRECISION_f32 &&
           c->x[0]->dim.c % LANES_MAX == 0 && winograd_runs(c);
}
