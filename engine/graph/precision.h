/* precision.h -- the number format in which convolutions, transposed
 * convolutions and linear layers multiply.
 *
 * A property of a plan. Products are always accumulated in f32, and parameters,
 * losses, statistics and sums are f32. With storage in 16 bits (bf16 and f16 on
 * a GPU) the tensors between operators are stored in that type, among them the
 * operands and results of norms and activations: see docs/numerics.md. */
#ifndef SEG_ENGINE_GRAPH_PRECISION_H
#define SEG_ENGINE_GRAPH_PRECISION_H
#include "engine/graph/tensor.h"

/* Name; bits of the significand, the implicit one included; exponent of the
 * smallest normal number; type of the 16-bit copies that kernels read (F32: no
 * copies, kernels round the values they load). */
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
/* Lists all names for a message: "f32, tf32, bf16 or f16". */
enum { PRECISION_NAMES = 64 };
const char *precision_names(char out[PRECISION_NAMES]);
/* ERR_USAGE for an unknown name, with a list of the valid ones. */
bool precision_find(const char *name, Precision *out);
/* Returns BF16 or F16; F32 if the precision makes no copies. */
Dtype precision_copy(Precision p);

/* Rounds to the nearest number of the format. Ties go to even, but in tf32 away
 * from zero as in the instruction. Values beyond the largest number become
 * infinite, values below the smallest normal number lose bits. NaN stays. */
double precision_round(Precision p, double v);
/* Decode 16 bits, and encode the nearest number; for BF16 or F16. */
double precision_value(Precision p, uint16_t bits);
uint16_t precision_bits(Precision p, double v);
/* y[i] = the bits of the nearest number to x[i], as above; for BF16 or F16. */
void precision_narrow(Dtype type, const float *x, int64_t n, uint16_t *y);
/* Returns the precision with copies of this type; f32 for any other type. */
Precision precision_of_type(Dtype t);
/* Returns the largest relative rounding error of normal numbers: 2^-bits. */
double precision_unit(Precision p);
/* Returns the smallest normal number. */
double precision_least(Precision p);
#endif
