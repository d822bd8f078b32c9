/* bucket.h -- batches of samples of similar length.
 *
 * Sequences differ in length, and a batch is as long as its longest sample: in
 * batches drawn at random most elements are padding. Bucketing puts samples of
 * similar length into one batch and keeps training random: the samples of an
 * epoch are drawn as usual, sorted by length within windows of a few batches,
 * cut into batches, and the batches are permuted. Members and order of the
 * batches therefore change in each epoch, and are a function of (seed, epoch,
 * lengths) alone. */
#ifndef SEG_DATA_LOADER_BUCKET_H
#define SEG_DATA_LOADER_BUCKET_H
#include "data/dataset/dataset.h"
#include "engine/base/rng.h"

typedef struct Bucket Bucket;

/* For `count` samples in batches of `batch`; bucket_free accepts NULL. */
bool bucket_new(int32_t count, int batch, Bucket **out);
void bucket_free(Bucket *b);

/* Sets the length of sample `number`, >= 1; all lengths must be set before
 * bucket_order. */
void bucket_set(Bucket *b, int32_t number, int32_t length);
int32_t bucket_length(const Bucket *b, int32_t number);

/* order[0 .. count-1]: batch k is order[k * batch ...]. A last batch that is
 * not full has samples of any length, as drawn; otherwise it would always have
 * the longest samples, and with drop_last they would never be trained on.
 * `draw` has op 0, and op 1 is used too; NULL: not random, all samples from the
 * shortest to the longest. */
void bucket_order(Bucket *b, const Rng *draw, uint32_t *order);

/* out (extents `to`) = x (extents `from`), cut or padded along w at its end,
 * with the padding of `fit` with at = "start": the smallest value of the
 * channel for an image, 0 for other kinds. x and out must not overlap. */
void bucket_place(const float *x, Dims from, FieldKind kind, Dims to,
                  float *out);

#endif
