/* sequence.h -- synthetic speech: sequences whose class depends on order alone.
 *
 * A speaker utters syllables from M motifs, where M is the smallest prime above
 * the number of classes. Class k (0, 1, ...) steps through the motifs by k + 1,
 * modulo M: twice through all of them, from any start. So each class has each
 * motif equally often and equally long, and only the order distinguishes
 * classes: no two classes share a pair of neighbours. A syllable rises from
 * rest and falls to rest again, so that no single frame has information about
 * its neighbours.
 *
 * A motif is two bumps along the features, like formants along the bands of a
 * spectrum. Speakers shift and stretch the bumps, and differ in baseline,
 * loudness and pace; takes differ in loudness, speed and the length of each
 * syllable, by a factor of about two in all.
 *
 * The numbers are computed only with + - * / and comparisons, so that the bits
 * do not depend on the mathematical library. */
#ifndef SEG_DATA_PHANTOM_SEQUENCE_H
#define SEG_DATA_PHANTOM_SEQUENCE_H
#include "data/phantom/phantom.h"

enum {
    SEQUENCE_SPEAKERS,
    SEQUENCE_TAKES, /* of each class, per speaker */
    SEQUENCE_CLASSES,
    SEQUENCE_FEATURES,
};

/* Returns the number of frames of a take. All counts start at 0. */
int sequence_frames(const Phantom *how, int speaker, int label, int take);

/* Writes the frames of a take, `features` numbers each, to x. */
void sequence_fill(const Phantom *how, int speaker, int label, int take,
                   float *x);

/* Writes all takes of a speaker below an existing folder:
 * features/PHANTOM_001/0_PHANTOM_001_0.npy (class, speaker, take), float32
 * (frames, features). */
bool sequence_write(const char *folder, const Phantom *how, int speaker);

/* Writes labels.csv: path, label, speaker, take, frames. */
bool sequence_table(const char *folder, const Phantom *how);
#endif
