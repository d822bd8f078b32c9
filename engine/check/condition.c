#include "engine/check/condition.h"
#include <math.h>
#include <stdlib.h>

static const double FACTOR = 16, MOST = 16 * CONDITION_MOST;

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* |plain - want|; 0 if NaN or infinite, so that no tolerance is added. */
static double error_at(const double *plain, const double *want, int64_t i)
{
    const double e = fabs(plain[i] - want[i]);
    return isfinite(e) ? e : 0;
}

double *condition_room(const double *plain, const double *want, int64_t count,
                       Arena *mem)
{
    double *room = ARENA_NEW(mem, double, count), squares = 0;
    if (!room || count < 1) return room;
    for (int64_t i = 0; i < count; i++) {
        room[i] = error_at(plain, want, i);
        if (isfinite(want[i])) squares += want[i] * want[i];
    }
    qsort(room, (size_t)count, sizeof *room, by_size);
    const double median = room[count / 2];
    const double rms = sqrt(squares / (double)count);
    for (int64_t i = 0; i < count; i++) {
        const double e = fmax(error_at(plain, want, i), median);
        room[i] = fmin(FACTOR * e, MOST * fmax(fabs(want[i]), rms));
    }
    return room;
}

double condition_error(const double *plain, const double *want, int64_t count)
{
    double errors = 0, total = 0;
    for (int64_t i = 0; i < count; i++) {
        const double e = plain[i] - want[i];
        errors += e * e, total += want[i] * want[i];
    }
    return total > 0 ? sqrt(errors / total) : 0;
}
