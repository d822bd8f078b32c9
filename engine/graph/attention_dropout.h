/* attention_dropout.h -- draws for dropout on attention weights.
 *
 * The draw of a[p,j] is a function of seed, step, node, sample, head, query p
 * and key j only: the same in every backend, repeated by the backward pass, and
 * independent of the padding of a sequence. So the counter has 17 bits for the
 * query and 17 for the key. */
#ifndef SEG_ENGINE_GRAPH_ATTENTION_DROPOUT_H
#define SEG_ENGINE_GRAPH_ATTENTION_DROPOUT_H
#include "engine/base/rng.h"

enum { ATTEND_BITS = 17, ATTEND_DRAWS = 4 };
enum { ATTEND_MOST = 1 << ATTEND_BITS }; /* maximum number of positions */

/* Returns the counter of one head of one sample. */
HOST_DEVICE Rng attend_rng(uint64_t seed, int64_t step, int node, int64_t n,
                           int heads, int head)
{
    Rng r;
    r.seed = seed, r.stream = RNG_DROPOUT, r.op = (uint16_t)node;
    r.epoch = (uint32_t)step;
    r.sample = (uint32_t)(n * heads + head);
    return r;
}

/* Draws in [0, 1) of query p and keys 4 * fours .. 4 * fours + 3; a weight is
 * kept if its draw is at least the dropout probability. */
HOST_DEVICE void attend_draw(const Rng *r, uint32_t p, uint32_t fours,
                             float out[ATTEND_DRAWS])
{
    uint32_t word[ATTEND_DRAWS];
    rng_block(r, p << (ATTEND_BITS - 2) | fours, word);
    for (int i = 0; i < ATTEND_DRAWS; i++) out[i] = rng_unit(word[i]);
}
#endif
