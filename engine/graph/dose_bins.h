/* dose_bins.h -- how fine a dose-volume histogram of a loss may be.
 *
 * A kernel gives each bin a thread of a block, or a place in an array of its
 * own; and the sigmoids of all bins of a voxel come from one exponential,
 * e^(steep b - steep x / width), which must not overflow in double. */
#ifndef SEG_ENGINE_GRAPH_DOSE_BINS_H
#define SEG_ENGINE_GRAPH_DOSE_BINS_H
#include <math.h>

enum {
    DOSE_BINS = 256,  /* most bins                                  */
    DOSE_REACH = 600, /* most of steep times bins: e^600 is a double */
};

/* e^-u of a dose, NaN of NaN; u = steep x / width, bounded far beyond the last
 * bin, where a sigmoid is 0 or 1 in double anyway: e^-700 is still a normal
 * number and e^-700 e^600 nothing beside 1; e^100 e^600 does not overflow, and
 * no bin has more than e^-100 of it. */
static inline double dose_fall(double u)
{
    const double least = -100, most = 700;
    return exp(-(u > most ? most : u < least ? least : u));
}
#endif
