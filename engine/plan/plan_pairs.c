/* plan_pairs.c -- neighbouring calls that run in one launch.
 *
 * A kernel that waits more than it computes, as an LSTM does from step to step,
 * leaves most of a GPU idle. Where two such calls follow each other and neither
 * needs the other's result, as those of the two directions of a bidirectional
 * layer, the first runs both: Call.pair. Bits and the order of gradients stay
 * the same. An operator that computes in place is left out, as its result may
 * overwrite an operand that both calls read. */
#include "engine/plan/plan_inside.h"

/* Does call b read or write what call a writes? */
static bool depends(const Plan *p, const Call *a, const Call *b)
{
    for (int k = 0; k < MAX_IN; k++) {
        const int v = operand_of(p, b->node, k);
        if (v == a->node) return true;
        if (a->dx[k] == NULL) continue;
        if (a->dx[k] == b->dy) return true;
        for (int i = 0; i < MAX_IN; i++)
            if (a->dx[k] == b->dx[i]) return true;
    }
    return false;
}

void plan_pairs(Plan *p)
{
    const Backend *be = p->spec.be;
    const int over = INPLACE | INPLACE_GRAD;
    for (int c = 0; be->pairs && c + 1 < p->calls; c++) {
        Call *a = &p->call[c], *b = a + 1;
        if (a->runs_before || is_convert(a) || is_convert(b) ||
            call_op(a) != call_op(b) || is_backward(a) != is_backward(b) ||
            (c < p->forward) != (c + 1 < p->forward) ||
            (info_of(p, a->node)->flags & over) || depends(p, a, b) ||
            !be->pairs(a, b))
            continue;
        a->pair = b;
        b->runs_before = true;
    }
}
