/* embedding.c -- rows of a table, chosen by index: a gather. */
#include "engine/graph/embedding.h"
#include "cpu/lib/plain.h"

Space KERNEL(embedding_space)(const Call *c)
{
    EmbeddingGather g;
    embedding_gather(c, &g);
    return KERNEL(gather_space)(&g.call);
}

bool KERNEL(embedding_fwd)(const Call *c)
{
    EmbeddingGather g;
    embedding_gather(c, &g);
    return KERNEL(gather_fwd)(&g.call);
}

bool KERNEL(embedding_bwd)(const Call *c)
{
    EmbeddingGather g;
    embedding_gather(c, &g);
    return KERNEL(gather_bwd)(&g.call);
}
