/* dose_bins.h -- how fine a dose-volume histogram of a loss may be.
 *
 * A kernel gives each bin a thread of a block, or a place in an array of its
 * own; and the sigmoids of all bins of a voxel come from one exponential,
 * e^(steep b - steep x / width), which must not overflow in double. */
#ifndef SEG_DOSE_BINS_H
#define SEG_DOSE_BINS_H

enum {
    DOSE_BINS = 256,  /* most bins                                  */
    DOSE_REACH = 600, /* most of steep times bins: e^600 is a double */
};
#endif
