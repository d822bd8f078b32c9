/* dose_bins.h -- limits on the bins of a dose-volume histogram in a loss.
 *
 * A kernel has a thread of a block, or an element of a local array, per bin.
 * The sigmoids of all bins of a voxel come from one exponential, e^(steep b -
 * steep x / width), which must not overflow in double. */
#ifndef SEG_ENGINE_GRAPH_DOSE_BINS_H
#define SEG_ENGINE_GRAPH_DOSE_BINS_H
#include <math.h>

enum {
    DOSE_BINS = 256,  /* maximum number of bins                     */
    DOSE_REACH = 600, /* maximum of steep * bins: e^600 is a double */
};

/* Returns e^-u for a dose with u = steep x / width; NaN for NaN. u is clamped
 * far outside the bins, where a sigmoid is 0 or 1 in double: e^-700 is still
 * normal, and e^-700 e^600 vanishes when added to 1; e^100 e^600 does not
 * overflow, and each bin differs from its limit by at most e^-100. */
static inline double dose_fall(double u)
{
    const double least = -100, most = 700;
    return exp(-(u > most ? most : u < least ? least : u));
}
#endif
