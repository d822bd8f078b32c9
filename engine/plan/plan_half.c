/* plan_half.c -- storage in 16 bits.
 *
 * With a precision of 16 bits a convolution rounds its operands to 16 bits in
 * any case; stored so, they lose nothing and every pass over them moves half
 * the bytes. The operators in between profit too, where the backend has kernels
 * for it (Storage.narrow). A value, and its gradient, is stored in 16 bits if
 * the operator that makes it and all that read it allow it.
 *
 * An operator without products has one type for all its tensors, since its
 * kernels have one. One f32 tensor therefore makes its neighbours f32, across
 * any number of such operators: the pass repeats until nothing changes.
 *
 * Roots and parameters are f32. A value that is computed from inputs and read
 * only by conv, upconv and linear, such as a concat of inputs, is stored in 16
 * bits although its operands are f32, if its operator can do so (NARROW_ALONE)
 * and no gradient of it is needed: its readers would copy it in 16 bits anyway.
 * An input with only such readers is rounded on its way to the device
 * (Backend.upload_narrow, GatherField.stored), to the bits of a copy. */
#include "engine/plan/plan_inside.h"

/* May node i, which shows itself, be stored in 16 bits at all? */
static bool may_be_narrow(const Plan *p, int i)
{
    const PlanNode *q = &p->node[i];
    return is_run(p, i) && q->first.x.dim.c % NARROW_CHANNELS == 0 &&
           !plan_keeps(p, i);
}

/* Returns the bits of Storage.narrow for the call of node i: the tensors that
 * may be in 16 bits. */
static unsigned allowed(Plan *p, int i)
{
    const Call c = plan_call(p, i);
    return backend_storage(p->spec.be, &c).narrow;
}

/* Makes node v f32; returns whether it was in 16 bits. */
static bool widen(Plan *p, int v)
{
    Tensor *x = &p->node[v].first.x;
    const bool was = is_narrow(x);
    x->type = p->spec.be->real;
    return was;
}

/* Applies the rules to the call of node i: makes tensors f32 where needed;
 * returns whether one changed. */
static bool settle(Plan *p, int i)
{
    const unsigned bits = allowed(p, i);
    const bool each = op_multiplies((Op)node_of(p, i)->attr.op);
    bool wide = bits & NARROW_Y && !is_narrow(&p->node[i].first.x);
    bool changed = bits & NARROW_Y ? false : widen(p, i);

    for (int k = 0; k < MAX_IN; k++) {
        const int v = operand_of(p, i, k);
        if (v < 0) continue;
        if (!(bits >> k & 1))
            changed |= widen(p, v);
        else
            wide = wide || !is_narrow(&p->node[v].first.x);
    }

    if (!wide || each) return changed;
    if (bits & NARROW_Y) changed |= widen(p, i);
    for (int k = 0; k < MAX_IN; k++)
        if (bits >> k & 1 && operand_of(p, i, k) >= 0)
            changed |= widen(p, operand_of(p, i, k));
    return changed;
}

/* Do only products read the value of node v, as data? */
static bool is_multiplied(Plan *p, int v)
{
    for (int i = v + 1; i < p->nodes; i++) {
        if (!p->node[i].used || p->node[i].alias_of != i) continue;
        for (int k = 0; k < MAX_IN; k++)
            if (operand_of(p, i, k) == v &&
                (!op_multiplies((Op)node_of(p, i)->attr.op) ||
                 !(allowed(p, i) >> k & 1)))
                return false;
    }
    return true;
}

/* May the value of operator node i be stored in 16 bits alone
 * (NARROW_ALONE)? */
static bool may_be_alone(Plan *p, int i)
{
    return !p->node[i].wants && !is_narrow(&p->node[i].first.x) &&
           !plan_keeps(p, i) && allowed(p, i) & NARROW_ALONE &&
           is_multiplied(p, i);
}

/* Does node i, which shows itself, accept a 16-bit input as operand k? An
 * operator without products has one type for all tensors. */
static bool takes_input(Plan *p, int i, int k)
{
    if (!(allowed(p, i) >> k & 1)) return false;
    if (op_multiplies((Op)node_of(p, i)->attr.op)) return true;
    if (!is_narrow(&p->node[i].first.x)) return false;
    for (int j = 0; j < MAX_IN; j++) {
        const int v = operand_of(p, i, j);
        if (v >= 0 && !is_narrow(&p->node[v].first.x)) return false;
    }
    return true;
}

/* Stores inputs in 16 bits, except inputs with a reader that needs f32. A
 * reader without products needs all or none of its operands in 16 bits. */
static void narrow_inputs(Plan *p, Dtype type)
{
    for (int i = 0; i < p->nodes; i++)
        if (p->node[i].used && node_of(p, i)->kind == NODE_INPUT &&
            !plan_keeps(p, i))
            p->node[i].first.x.type = type;

    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < p->nodes; i++) {
            if (!is_run(p, i)) continue;
            for (int k = 0; k < MAX_IN; k++) {
                const int v = operand_of(p, i, k);
                if (v >= 0 && node_of(p, v)->kind == NODE_INPUT &&
                    is_narrow(&p->node[v].first.x) && !takes_input(p, i, k))
                    changed |= widen(p, v);
            }
        }
    }
}

/* Sets the type of an implicit concat of node i, in case plan_recompute makes
 * it a call. The bits are the same, as the product rounds f32 operands; each
 * operand gets a gradient of its own type. */
static void type_apart(Plan *p, int i, Dtype type)
{
    PlanNode *q = &p->node[p->node[i].concat];
    bool narrow = true;
    for (int k = 0; k <= X2; k += X2)
        narrow = narrow && is_narrow(&p->node[operand_of(p, i, k)].first.x);
    q->first.x.type = narrow || !q->wants ? type : p->spec.be->real;
}

void plan_half(Plan *p)
{
    const Dtype type = precision_copy(p->spec.precision);
    if (type == F32) return;
    for (int i = 0; i < p->nodes; i++)
        if (may_be_narrow(p, i)) p->node[i].first.x.type = type;
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < p->nodes; i++)
            if (is_run(p, i)) changed |= settle(p, i);
    }

    for (int i = 0; i < p->nodes; i++)
        if (is_run(p, i) && may_be_alone(p, i)) p->node[i].first.x.type = type;
    if (p->spec.be->upload_narrow) narrow_inputs(p, type);
    for (int i = 0; i < p->nodes; i++)
        if (p->node[i].used && p->node[i].concat >= 0) type_apart(p, i, type);
}
