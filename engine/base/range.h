/* range.h -- valid ranges of attributes and hyperparameters.
 *
 * The rows of ops.def and optim.def give each attribute and hyperparameter a
 * range by name. So a wrong value is refused, with its name, where the recipe
 * gives it, instead of showing up as a loss of NaN an hour later. */
#ifndef SEG_ENGINE_BASE_RANGE_H
#define SEG_ENGINE_BASE_RANGE_H
#include "engine/base/err.h"
#include <float.h>

/* Name, minimum, maximum (both valid), description. Attributes are floats, so
 * the smallest positive float stands for "above 0"; the maximum of below_1 is
 * the largest float below 1, as kernels may compute in float. */
#define RANGES(X)                                            \
    X(any, -DBL_MAX, DBL_MAX, "a number")                    \
    X(shape, -DBL_MAX, DBL_MAX, "what the shape rule says")  \
    X(flag, 0, 1, "0 or 1")                                  \
    X(unit, 0, 1, "a number from 0 to 1")                    \
    X(below_1, 0, 1 - 0x1p-24, "a number from 0 to below 1") \
    X(upto_1, -DBL_MAX, 1, "a number of at most 1")          \
    X(from_0, 0, DBL_MAX, "a number of 0 or more")           \
    X(above_0, 0x1p-149, DBL_MAX, "a number above 0")

typedef enum Range {
#define X(name, least, most, words) RANGE_##name,
    RANGES(X)
#undef X
        RANGE_COUNT
} Range;

typedef struct RangeInfo {
    double least, most;
    const char *words; /* a reason says "want <words>" */
} RangeInfo;

extern const RangeInfo range_info[RANGE_COUNT];

/* Returns whether v is finite and in `range`. Else fails with ERR_USAGE and
 * "row: name is v, want ...", where `row` is an operator or an optimiser and
 * `name` its attribute or hyperparameter. */
bool range_check(Range range, const char *row, const char *name, double v);
#endif
