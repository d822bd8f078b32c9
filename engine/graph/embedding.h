/* embedding.h -- an embedding as a gather: its rows are the elements of fibres
 * along the positions, one fibre a channel. */
#ifndef SEG_ENGINE_GRAPH_EMBEDDING_H
#define SEG_ENGINE_GRAPH_EMBEDDING_H
#include "engine/graph/op.h"

typedef struct EmbeddingGather {
    Call call;
    Attr attr;
    Tensor table, grad;
} EmbeddingGather;

/* Sets g->call to the gather with the results and gradients of the embedding
 * `c`: the table (count,1,1,1,size) becomes (1,1,1,count,size), which has the
 * same memory. */
static inline void embedding_gather(const Call *c, EmbeddingGather *g)
{
    const Dims s = c->x[0]->dim, rows = {1, 1, 1, s.n, s.c};
    g->call = *c;
    g->attr = op_default(OP_gather);
    g->attr.gather.d = g->attr.gather.h = g->attr.gather.w = 1;
    g->call.attr = &g->attr;
    g->table = *c->x[0];
    g->table.dim = rows;
    g->call.x[0] = &g->table;
    if (!c->dx[0]) return;
    g->grad = *c->dx[0];
    g->grad.dim = rows;
    g->call.dx[0] = &g->grad;
}
#endif
