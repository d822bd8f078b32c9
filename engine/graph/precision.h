/* precision.h -- the type of number that convolutions, transposed convolutions
 * and linear layers multiply in.
 *
 * A property of a plan. Products are added up in f32 whatever they are made
 * of, and everything else (weights that are updated, norms, losses, sums) is
 * f32: see docs/numerics.md. */
#ifndef SEG_ENGINE_GRAPH_PRECISION_H
#define SEG_ENGINE_GRAPH_PRECISION_H
#include "engine/graph/tensor.h"

/* Name; bits of the significand, the leading one counted; exponent of the
 * least normal number; type of the copies that kernels read (F32: none, they
 * round what they fetch). */
#define PRECISIONS(X)      \
    X(f32, 24, -126, F32)  \
    X(tf32, 11, -126, F32) \
    X(bf16, 8, -126, BF16) \
    X(f16, 11, -14, F16)

typedef enum Precision {
#define X(name, bits, least, type) PRECISION_##name,
    PRECISIONS(X)
#undef X
        PRECISION_COUNT
} Precision;

const char *precision_name(Precision p); /* "bf16" */
/* All of them as a sentence names them: "f32, tf32, bf16 or f16". */
enum { PRECISION_NAMES = 64 };
const char *precision_names(char out[PRECISION_NAMES]);
/* ERR_USAGE for a name that is none, with all that are. */
bool precision_find(const char *name, Precision *out);
/* BF16 or F16; F32 where no copies are made. */
Dtype precision_copy(Precision p);

/* A float as the nearest number of the type: ties to even, in tf32 away from
 * zero as the instruction does; what is beyond the largest becomes infinite,
 * what is below the least normal number loses bits. NaN stays. */
double precision_round(Precision p, double v);
/* The value of 16 bits, and the bits of the nearest number; of BF16 or F16. */
double precision_value(Precision p, uint16_t bits);
uint16_t precision_bits(Precision p, double v);
/* y[i] = the bits of the nearest number to x[i], as above; of BF16 or F16. */
void precision_narrow(Dtype type, const float *x, int64_t n, uint16_t *y);
/* The precision whose copies are of this type; f32 for those that are none. */
Precision precision_of_type(Dtype t);
/* The largest relative error of rounding, for normal numbers: 2^-bits. */
double precision_unit(Precision p);
/* The least normal number. */
double precision_least(Precision p);
#endif
