/* sample.h -- single elements of conv, upconv and linear, in double.
 *
 * A layer of a real network is too large for the plain loops: a 256x256 slice
 * of the brain U-Net would take minutes. But each element of a result or a
 * gradient is an independent sum, so a few thousand random elements judge a
 * kernel as well. */
#ifndef SEG_ENGINE_CHECK_SAMPLE_H
#define SEG_ENGINE_CHECK_SAMPLE_H
#include "engine/check/oprun.h"

/* A sum: its value, the sum of the absolute products, the number of terms. */
typedef struct Sample {
    double value, scale;
    int64_t terms;
} Sample;

/* Returns element i (memory order) of y (operand -1) or of dx[operand] of the
 * case on the values v. */
Sample sample_at(const OpCase *c, const OpValues *v, int operand, int64_t i);
#endif
