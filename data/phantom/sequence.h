/* sequence.h -- made-up speech: sequences whose class is in the order alone.
 *
 * A speaker utters syllables out of M motifs, M being the smallest prime above
 * the number of classes. Class k (0, 1, ...) goes through them by steps of
 * k + 1, modulo M: twice through all of them, beginning with any. So each
 * class has each motif equally often and as long, and only what follows what
 * tells them apart: no two classes share a pair of neighbours. A syllable
 * rises from rest and falls to rest again, so that no single frame knows its
 * neighbours.
 *
 * A motif is two bumps along the features, as formants are along the bands of
 * a spectrum. Speakers move and stretch them, lie higher or lower, are louder
 * and faster than others; takes differ in loudness, speed and the length of
 * each syllable, by a factor of about two in all.
 *
 * Only + - * / and comparisons make the numbers, so that they are the same
 * bits with any library of mathematics. */
#ifndef SEG_DATA_PHANTOM_SEQUENCE_H
#define SEG_DATA_PHANTOM_SEQUENCE_H
#include "data/phantom/phantom.h"

enum {
    SEQUENCE_SPEAKERS,
    SEQUENCE_TAKES, /* of each class by each speaker */
    SEQUENCE_CLASSES,
    SEQUENCE_FEATURES,
};

/* How many frames that take has. Counts from 0. */
int sequence_frames(const Phantom *how, int speaker, int label, int take);

/* Those frames, `features` numbers each, to x. */
void sequence_fill(const Phantom *how, int speaker, int label, int take,
                   float *x);

/* features/PHANTOM_001/0_PHANTOM_001_0.npy (class, speaker, take), float32
 * (frames, features): all takes of a speaker, below a folder that is there. */
bool sequence_write(const char *folder, const Phantom *how, int speaker);

/* labels.csv: path, label, speaker, take, frames. */
bool sequence_table(const char *folder, const Phantom *how);
#endif
