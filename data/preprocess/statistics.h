/* statistics.h -- the numbers of standardize steps, found on training cases.
 *
 * Mean, standard deviation and percentiles over all cases of a set, of each
 * channel of an image, or of each number of a case. They are stored in the
 * steps, whose text then suffices to prepare any other case. */
#ifndef SEG_DATA_PREPROCESS_STATISTICS_H
#define SEG_DATA_PREPROCESS_STATISTICS_H
#include "data/preprocess/pipeline.h"

/* Finds the missing numbers of the standardize steps of `steps`, in order, on
 * the cases of `ds`, which are the training cases. Images are taken after the
 * steps before it, in the slices that are samples (for patches whole volumes),
 * without padding after the end of a sequence.
 *
 * mean = sum x / n, sd = sqrt(sum (x - mean)^2 / n); percentile p is exact,
 * linear between the order statistics on either side of p / 100 (n - 1). The
 * same bits for any options->threads and cache: sums run in memory order within
 * a case, and over cases in their order. Memory: cache_bytes, two cases per
 * thread, and 1 MiB per thread and channel.
 *
 * *said: a line for each step found, in `mem`. ERR_USAGE for a field that does
 * not exist, or is neither an image nor numbers; ERR_DATA for a constant field,
 * or no foreground. After a failure the steps are unchanged. */
bool statistics_fit(const Dataset *ds, Steps *steps,
                    const PipelineOptions *options, Arena *mem,
                    const char **said);
#endif
