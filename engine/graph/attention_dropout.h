/* attention_dropout.h -- which weights of an attention are dropped in training.
 *
 * The draw of a[p,j] is a function of seed, step, node, sample, head, query p
 * and key j, and of nothing else: the same for every backend, drawn again by
 * the backward run, and the same whatever a sequence was padded to. So the
 * counter has 17 bits for the query and as many for the key. */
#ifndef SEG_ENGINE_GRAPH_ATTENTION_DROPOUT_H
#define SEG_ENGINE_GRAPH_ATTENTION_DROPOUT_H
#include "engine/base/rng.h"

enum { ATTEND_BITS = 17, ATTEND_DRAWS = 4 };
enum { ATTEND_MOST = 1 << ATTEND_BITS }; /* positions */

/* The series of draws of one head of one sample. */
EVERYWHERE Rng attend_rng(uint64_t seed, int64_t step, int node, int64_t n,
                          int heads, int head)
{
    Rng r;
    r.seed = seed, r.stream = RNG_DROPOUT, r.op = (uint16_t)node;
    r.epoch = (uint32_t)step;
    r.sample = (uint32_t)(n * heads + head);
    return r;
}

/* Draws in [0, 1) of query p and keys 4 * fours .. 4 * fours + 3; a weight is
 * kept when its draw is at least the share that is dropped. */
EVERYWHERE void attend_draw(const Rng *r, uint32_t p, uint32_t fours,
                            float out[ATTEND_DRAWS])
{
    uint32_t word[ATTEND_DRAWS];
    rng_block(r, p << (ATTEND_BITS - 2) | fours, word);
    for (int i = 0; i < ATTEND_DRAWS; i++) out[i] = rng_unit(word[i]);
}
#endif
