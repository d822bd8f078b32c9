/* node.c -- see node.h. */
#include "engine/check/node.h"
#include "engine/check/suite.h"
#include <string.h>

enum { OF_RESULT = 2048, OF_GRADIENT = 256 }; /* elements that are compared */
enum { VECTORS = 16 }; /* batch size of a batch norm of vectors */

/* Returns the distribution of the random test values of a parameter: the
 * distribution of its initial values. A constant (gamma 1, beta 0) would hide
 * mistakes, so for a constant initialisation, or for one of zero spread, the
 * function returns `fill`, the distribution in the operator's test suite. */
static Fill fill_of(const Node *param, Fill fill)
{
    const double v = param->init.value;
    if (param->init.kind == INIT_CONST || !(v > 0)) return fill;
    if (param->init.kind == INIT_NORMAL) return (Fill){FILL_NORMAL, 0, v};
    return (Fill){FILL_RANGE, -v, v};
}

bool node_case(const Graph *g, int node, OpCase *out)
{
    const Node *n = &g->node[node];
    OpCase example;
    CHECK(n->kind == NODE_OP);
    if (!suite_example((Op)n->attr.op, &example)) return false;
    *out = (OpCase){.attr = n->attr,
                    .wrt = example.wrt,
                    .changes = example.changes,
                    .floor = example.floor,
                    .number = (uint32_t)node};
    memcpy(out->fill, example.fill, sizeof out->fill);

    for (int i = 0; i < MAX_IN; i++) {
        if (n->in[i] < 0) {
            out->wrt &= ~(1u << i);
            continue;
        }
        const Node *from = &g->node[n->in[i]];
        const Tensor *x = &from->y;
        out->x[i] = x->dim;
        if (from->kind == NODE_PARAM)
            out->fill[i] = fill_of(from, out->fill[i]);
        if (i == 0) out->rank = x->rank;
        // FILL_DISTINCT would need a list of all elements; and among millions
        // of normal numbers no two neighbours are equal
        if (out->fill[i].kind == FILL_DISTINCT)
            out->fill[i] = (Fill){FILL_NORMAL, 0, 0};
    }

    // one value has no deviation, and with two the gradient cancels: so vectors
    // get more samples
    if (n->attr.op == OP_batch_norm && positions(out->x[0]) == 1)
        out->x[0].n = VECTORS;

    // lengths up to the sequence length of this network
    const OpInfo *info = &op_info[n->attr.op];
    if (info->flags & LENGTHS)
        out->fill[info->in - 1] =
            (Fill){FILL_CLASS, 1, (double)positions(out->x[0])};

    // indices within the fibres of this network
    if (info->flags & INDICES)
        out->fill[info->in - 1] =
            (Fill){FILL_CLASS, 0, (double)op_indices(&n->attr, out->x[0]) - 1};

    // class numbers up to the number of classes of this network
    if (info->flags & LOSS && out->x[0].c > 1 && out->x[1].c == 1)
        out->fill[1] = (Fill){FILL_CLASS, 0, out->x[0].c - 1};
    return true;
}

void node_check(const Graph *g, int node, bool full, OpCheck *k)
{
    OpCase c = {.number = (uint32_t)node};
    if (!node_case(g, node, &c)) {
        k->failures++;
        if (k->report) k->report(k->ctx, err_text());
        return;
    }
    if (full)
        opcase_agree(&c, k);
    else
        opcase_agree_sampled(&c, k, OF_RESULT, OF_GRADIENT);
}
