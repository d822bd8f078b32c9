/* range.c -- the table of range.h and the one comparison with it. */
#include "engine/base/range.h"
#include <math.h>

const RangeInfo range_info[RANGE_COUNT] = {
#define X(name, least, most, words) [RANGE_##name] = {least, most, words},
    RANGES(X)
#undef X
};

bool range_check(Range range, const char *row, const char *name, double v)
{
    CHECK((unsigned)range < RANGE_COUNT);
    const RangeInfo *r = &range_info[range];
    // a check of its own: "is nan, want a number" would not help
    if (!isfinite(v)) return fail_usage("%s: %s is not finite", row, name);
    if (v >= r->least && v <= r->most) return true;
    return fail_usage("%s: %s is %.9g, want %s", row, name, v, r->words);
}
