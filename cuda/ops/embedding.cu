/* embedding.cu -- rows of a table, chosen by index: a gather (gather.cu). */
#include "cuda/lib/kernel.cuh"
extern "C" {
#include "engine/graph/embedding.h"

Space cuda_gather_space(const Call *c);
bool cuda_gather_fwd(const Call *c);
bool cuda_gather_bwd(const Call *c);

Space cuda_embedding_space(const Call *c)
{
    EmbeddingGather g;
    embedding_gather(c, &g);
    return cuda_gather_space(&g.call);
}

bool cuda_embedding_fwd(const Call *c)
{
    EmbeddingGather g;
    embedding_gather(c, &g);
    return cuda_gather_fwd(&g.call);
}

bool cuda_embedding_bwd(const Call *c)
{
    EmbeddingGather g;
    embedding_gather(c, &g);
    return cuda_gather_bwd(&g.call);
}
}
