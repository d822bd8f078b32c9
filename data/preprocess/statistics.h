/* statistics.h -- the numbers of standardize steps, found on training cases.
 *
 * Mean, standard deviation and percentiles over all cases of a set, of each
 * channel of an image, or of each number of a case. They go into the steps,
 * whose text then holds all that is needed to prepare any other case. */
#ifndef SEG_DATA_PREPROCESS_STATISTICS_H
#define SEG_DATA_PREPROCESS_STATISTICS_H
#include "data/preprocess/pipeline.h"

/* Find the numbers of the standardize steps of `steps` that have none, in
 * order, on the cases of `ds`, which are the training cases. Images are as the
 * steps before leave them, of the slices that are samples (whole volumes of
 * patches), without what lies behind the end of a sequence.
 *
 * mean = sum x / n, sd = sqrt(sum (x - mean)^2 / n); percentile p is linear
 * between the order statistics on either side of p / 100 (n - 1), exact.
 * The same bits for any options->threads and cache: sums run inside a case in
 * memory order and over cases in their order. Takes as much memory as
 * cache_bytes, two cases a thread, and 1 MiB a thread and channel.
 *
 * *said: a line for each step found, in `mem`. ERR_USAGE for a field that is
 * not there, or no image and no numbers; ERR_DATA for one value everywhere, or
 * no foreground. After a failure the steps are as they were. */
bool statistics_fit(const Dataset *ds, Steps *steps,
                    const PipelineOptions *options, Arena *mem,
                    const char **said);
#endif
