/* beams.c -- see beams.h.
 *
 * All rays of a beam are parallel, so a ray is identified by its distance from
 * the ray through the centre of the grid, and a slice of a beam is one row of
 * numbers: the highest prescription by distance. Each voxel of a target writes
 * its prescription to the two marks next to its distance; then every voxel
 * reads the value at its distance, linear between two marks. */
#include "data/datasets/beams.h"
#include <math.h>
#include <string.h>

enum {
    E = OPENKBP_EDGE,
    HALF = 93, /* > 64 sqrt(2) + 1: marks on either side of the centre */
    MARKS = 2 * HALF + 1
};

/* One beam: distances from the centre are sx and sy per step of x and y, in
 * marks. The spacing of marks is the larger of both spacings, so a target
 * leaves no gap. */
typedef struct Beam {
    double sx, sy;
} Beam;

static double distance(const Beam *b, int x, int y)
{
    const double middle = 0.5 * (E - 1);
    return HALF + (x - middle) * b->sx + (y - middle) * b->sy;
}

/* mark[distance][z] is the highest prescription there; a voxel writes to both
 * marks next to it, so that it reads its own prescription. */
static void mark_targets(const OpenkbpPatient *p, const Beam *b,
                         float (*mark)[E])
{
    memset(mark, 0, MARKS * sizeof *mark);
    for (int t = 0; t < OPENKBP_TARGETS; t++) {
        const SparseGrid *g = &p->grid[OPENKBP_TARGET + t];
        for (int32_t i = 0; i < g->count; i++) {
            const int z = g->index[i] % E, y = g->index[i] / E % E;
            const int first = (int)distance(b, g->index[i] / E / E, y);
            // targets are sorted by dose
            mark[first][z] = mark[first + 1][z] = openkbp_target_gy[t];
        }
    }
}

static void add_beam(const Beam *b, float (*mark)[E], float *out)
{
    for (int x = 0; x < E; x++)
        for (int y = 0; y < E; y++) {
            const double at = distance(b, x, y);
            const int k = (int)at;
            const float far = (float)(at - k);
            for (int z = 0; z < E; z++)
                *out++ +=
                    (mark[k][z] + far * (mark[k + 1][z] - mark[k][z])) / BEAMS;
        }
}

bool openkbp_beams(const OpenkbpPatient *p, Volume *v)
{
    static const SparseGrid none;
    const SparseGrid *const empty = &none;
    const double pi = 3.14159265358979323846;
    const double widest = fmax(p->spacing_mm[0], p->spacing_mm[1]);

    float(*mark)[E] = mem_alloc(MARKS * sizeof *mark);
    if (!mark || !openkbp_volume(p, &empty, 1, v)) {
        mem_free(mark);
        return false;
    }
    v->unit = UNIT_GY;

    for (int k = 0; k < BEAMS; k++) {
        // x runs to posterior, y to the left: the beam of 0 degrees is parallel
        // to x, the beam of 90 degrees enters from the left
        const double angle = 2 * pi * k / BEAMS;
        const Beam b = {sin(angle) * p->spacing_mm[0] / widest,
                        cos(angle) * p->spacing_mm[1] / widest};
        mark_targets(p, &b, mark);
        add_beam(&b, mark, v->voxels.data);
    }

    mem_free(mark);
    return true;
}
