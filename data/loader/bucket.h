/* bucket.h -- samples of like length in one batch.
 *
 * Sequences differ in length, and a batch is as long as its longest: drawn
 * blindly, most of it is padding. Bucketing puts samples of like length into
 * one batch and leaves training random: the samples of an epoch are drawn as
 * always, sorted by length inside windows of some batches, cut into batches,
 * and these are permuted. So membership and order of the batches are new in
 * each epoch, and both are a function of (seed, epoch, lengths) alone. */
#ifndef SEG_DATA_LOADER_BUCKET_H
#define SEG_DATA_LOADER_BUCKET_H
#include "data/dataset/dataset.h"
#include "engine/base/rng.h"

typedef struct Bucket Bucket;

/* For `count` samples in batches of `batch`; bucket_free takes NULL. */
bool bucket_new(int32_t count, int batch, Bucket **out);
void bucket_free(Bucket *b);

/* The length of sample `number`, >= 1; all are set before an order is asked
 * for. */
void bucket_set(Bucket *b, int32_t number, int32_t length);
int32_t bucket_length(const Bucket *b, int32_t number);

/* order[0 .. count-1]: batch k is order[k * batch ...]. A last batch that is
 * not full has samples of any length, drawn as they come: it would else always
 * have the longest, which drop_last would never let train. `draw` (its op is
 * 0; 1 is used too) NULL: no chance, all samples from the shortest to the
 * longest. */
void bucket_order(Bucket *b, const Rng *draw, uint32_t *order);

/* out (extents `to`) = x (extents `from`): the same but for w, where x is cut
 * at its end or goes on as `fit` with at = "start" lets it: an image with the
 * smallest value of its channel, all else with 0. x and out are apart. */
void bucket_place(const float *x, Dims from, FieldKind kind, Dims to,
                  float *out);

#endif
