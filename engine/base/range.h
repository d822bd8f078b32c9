/* range.h -- what a number of a table may be.
 *
 * The rows of ops.def and optim.def give each attribute and hyperparameter a
 * range by name. So a wrong one is refused where it is given, with its name,
 * and not found as a loss that is no number an hour later. */
#ifndef SEG_ENGINE_BASE_RANGE_H
#define SEG_ENGINE_BASE_RANGE_H
#include "engine/base/err.h"
#include <float.h>

/* Name, least, most (both allowed), in words. Attributes are floats, so the
 * least positive float stands for "above 0"; most of below_1 is the largest
 * float below 1, as kernels may compute in float. */
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
    const char *words; /* what a reason says was wanted */
} RangeInfo;

extern const RangeInfo range_info[RANGE_COUNT];

/* Is v, number `name` of row `row`, finite and in its range? ERR_USAGE says
 * "row: name is v, want ...". */
bool range_check(Range range, const char *row, const char *name, double v);
#endif
