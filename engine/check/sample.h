/* sample.h -- single elements of conv, upconv and linear, in double.
 *
 * A layer of a real network is too large for the plain loops: a 256x256 slice
 * of the brain U-Net would take minutes. But each element of a result or a
 * gradient is one sum that needs nothing of the others, so a few thousand of
 * them, drawn at random, judge a kernel as well. */
#ifndef SEG_ENGINE_CHECK_SAMPLE_H
#define SEG_ENGINE_CHECK_SAMPLE_H
#include "engine/check/oprun.h"

/* A sum: its value, the sum of the absolute products, how many there are. */
typedef struct Sample {
    double value, scale;
    int64_t terms;
} Sample;

/* Element i (memory order) of y (operand -1) or of dx[operand] of the case on
 * the values v. */
Sample sample_at(const OpCase *c, const OpValues *v, int operand, int64_t i);
#endif
