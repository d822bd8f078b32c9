#include "engine/check/compare.h"
#include <math.h>

static const double U = 0x1p-24, LEAST = 0x1p-149; // smallest positive float

double float_spacing(double v)
{
    int e;
    v = fabs(v);
    if (v < 0x1p-126) return 0x1p-149;
    frexp(v, &e); // v in [2^(e-1), 2^e)
    return ldexp(1, e - 24);
}

/* Returns the allowed error of element i; nmse is judged as a whole. `largest`
 * is the maximum of |want|. */
static double room_at(const Judge *j, double want, double largest, int64_t i)
{
    if (j->bound == BOUND_dot && j->blur > 0)
        return j->blur * largest + j->operands * fabs(j->scale[i]);
    double chain = j->chain < 1 ? 1 : j->chain > 1024 ? 1024 : j->chain;

    switch (j->bound) {
    case BOUND_dot:
        return (U * (4 * sqrt(chain) + 8) + j->operands) * fabs(j->scale[i]) +
               U * fabs(want) + j->stored * fmax(fabs(want), j->least) + LEAST;
    case BOUND_ulp:
        return 4 * float_spacing(want) + j->floor;
    default:
        return 0;
    }
}

/* Error over allowed error; more than 1 fails. 0/0 is a match, x/0 infinite. */
static double ratio(double error, double room)
{
    if (error == 0) return 0;
    return room > 0 ? error / room : INFINITY;
}

Verdict compare_arrays(const Judge *j, const double *got, const double *want,
                       int64_t count)
{
    Verdict v = {.ok = count > 0, .at = -1};
    double errors = 0, total = 0, worst = -1, largest = 0;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(want[i]));

    for (int64_t i = 0; i < count; i++) {
        double w = j->bound == BOUND_exact ? (double)(float)want[i] : want[i];
        double room = room_at(j, want[i], largest, i);
        double error = fabs(got[i] - w), r;
        bool same = isinf(w) && got[i] == w &&
                    (j->bound == BOUND_exact || j->bound == BOUND_ulp);
        if (same) {
            r = 0;
        } else if (!isfinite(got[i]) || !isfinite(w) || isnan(room)) {
            r = INFINITY, v.ok = false;
        } else if (j->bound == BOUND_nmse) {
            r = fmax(error - LEAST - (j->room ? j->room[i] : 0), 0);
            errors += r * r, total += w * w;
        } else {
            r = ratio(error, room);
        }
        if (r > worst) {
            worst = r;
            v.at = i, v.got = got[i], v.want = want[i], v.room = room;
        }
    }

    if (j->bound == BOUND_nmse && v.ok) {
        double room = 1e-10 * total + (double)count * j->floor * j->floor;
        worst = ratio(errors, room);
        v.room = sqrt(room) + (j->room && v.at >= 0 ? j->room[v.at] : 0);
    }

    v.margin = worst < 0 ? 0 : worst;

    // in this form a NaN margin fails
    v.ok = v.ok && v.margin <= 1;
    return v;
}
