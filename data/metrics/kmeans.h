/* kmeans.h -- points in groups whose members lie near each other.
 *
 * Points are rows of floats. Lloyd's iterations ("Least squares quantization in
 * PCM", IEEE Trans. Information Theory 28 (1982)) from centres that k-means++
 * draws (Arthur and Vassilvitskii, SODA 2007), several times over; the start
 * with the least sum of squares is kept. How well groups are apart says the
 * silhouette (Rousseeuw, J. Comput. Appl. Math. 20 (1987)).
 *
 * All is a function of the points, their order and the seed: sums run in one
 * order, and of two that are equally near the first one counts. */
#ifndef SEG_DATA_METRICS_KMEANS_H
#define SEG_DATA_METRICS_KMEANS_H
#include "engine/base/mem.h"

typedef struct Points {
    const float *x; /* (count, dim), all finite */
    int64_t count;
    int dim;
} Points;

typedef struct KMeans {
    int k;      /* groups, 1 .. count                                  */
    int starts; /* 1 or more                                           */
    int steps;  /* iterations of a start at most; it ends before that
                 * when no point changes its group                     */
    uint64_t seed;
} KMeans;

/* group[i] = the group of point i, 0 .. k-1, numbered in the order of their
 * first points, so that a name does not depend on which start was kept.
 * *spread: the sum of squared distances from the centres. A group that loses
 * its last point gets the point that is furthest from its own centre. Fails
 * with fewer different points than groups, with one that is not finite, and
 * without memory. */
bool kmeans_run(const Points *p, const KMeans *how, int32_t *group,
                double *spread);

/* *mean = mean of s(i) = (b - a) / max(a, b), a the mean distance of point i to
 * the others of its group, b the least mean distance to those of another one;
 * 0 for a point alone in its group. Of more than `most` points that many are
 * drawn, since the work grows with their square. With one group it is 0. Fails
 * without memory. */
bool silhouette(const Points *p, const int32_t *group, int k, int64_t most,
                uint64_t seed, double *mean);

/* match[a] = the group b of the other naming that a is, one to one, so that the
 * sum of count[a * k + b], all finite, over all a is the largest: Kuhn's
 * assignment, by shortest augmenting paths (Jonker and Volgenant, Computing 38
 * (1987)). Fails without memory. */
bool assign_groups(const double *count, int k, int32_t *match);
#endif
