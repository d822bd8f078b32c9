/* kmeans.h -- k-means clustering.
 *
 * Points are rows of floats. Lloyd's iterations ("Least squares quantization in
 * PCM", IEEE Trans. Information Theory 28 (1982)) run from centres drawn by
 * k-means++ (Arthur and Vassilvitskii, SODA 2007). Of several starts, the one
 * with the smallest sum of squares is kept. The silhouette (Rousseeuw, J.
 * Comput. Appl. Math. 20 (1987)) measures the separation of the groups.
 *
 * All results are functions of the points, their order and the seed: sums run
 * in one order, and of two equal distances the first counts. */
#ifndef SEG_DATA_METRICS_KMEANS_H
#define SEG_DATA_METRICS_KMEANS_H
#include "engine/base/mem.h"

typedef struct Points {
    const float *x; /* (count, dim), all finite */
    int64_t count;
    int dim;
} Points;

typedef struct KMeans {
    int k;      /* number of groups, 1 .. count */
    int starts; /* 1 or more                                           */
    int steps;  /* maximum number of iterations of a start, which ends earlier
                 * when no point changes its group */
    uint64_t seed;
} KMeans;

/* Sets group[i] to the group of point i, 0 .. k-1, and *spread to the sum of
 * squared distances of the points from their centres. Groups are numbered in
 * the order of their first points, so that the numbers do not depend on which
 * random start was the best. A group that loses its last point gets the point
 * furthest from its own centre. Fails with fewer distinct points than groups,
 * with a point that is not finite, and without memory. */
bool kmeans_run(const Points *p, const KMeans *how, int32_t *group,
                double *spread);

/* Sets *mean to the mean of s(i) = (b - a) / max(a, b), where a is the mean
 * distance of point i to the other points of its group and b the smallest mean
 * distance to the points of another group; s is 0 for a point alone in its
 * group. If there are more than `most` points, a random `most` of the points
 * are used, because the work grows with the square of their number. With one
 * group the result is 0. Fails without memory. */
bool silhouette(const Points *p, const int32_t *group, int k, int64_t most,
                uint64_t seed, double *mean);

/* Sets match[a] to the group b of the other grouping that corresponds to a, one
 * to one, so that the sum of count[a * k + b], all finite, over all a is
 * maximal: Kuhn's assignment, by shortest augmenting paths (Jonker and
 * Volgenant, Computing 38 (1987)). Fails without memory. */
bool assign_groups(const double *count, int k, int32_t *match);
#endif
