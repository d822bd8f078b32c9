/* openkbp.h -- patients of the OpenKBP challenge: sparse grids in CSV.
 *
 * A patient is a folder of files; ababier/open-kbp describes them. A file holds
 * the nonzero voxels of a 128 x 128 x 128 grid:
 *
 *     ,data           the header
 *     483491,6.0      index,value; a mask has no value: "483491,"
 *
 * index = z + 128 * (y + 128 * x) for array[x][y][z]. voxel_dimensions.csv has
 * the spacing of x, y and z in mm, one per line.
 *
 * Order of axes. x, y, z are d, h, w of this program: memory is in the order of
 * the index, and a network gets the array that numpy's reshape(128, 128, 128)
 * gives other programs. The files do not state the directions of the axes. The
 * organs of the 32 patients that tests use agree that x runs to posterior, y to
 * the left and z to inferior, so the affine of a volume has axes ILP. The
 * origin is unknown: voxel (0,0,0) is at 0.
 *
 * Reasons read "PATH: openkbp: row R: WHAT; fix: HOW", ERR_DATA; row 1 is the
 * header. */
#ifndef SEG_DATA_DATASETS_OPENKBP_H
#define SEG_DATA_DATASETS_OPENKBP_H
#include "data/volume.h"

enum {
    OPENKBP_EDGE = 128,
    OPENKBP_VOXELS = OPENKBP_EDGE * OPENKBP_EDGE * OPENKBP_EDGE
};

/* The grids of a patient. The structures come last, in channel order: seven
 * organs at risk, then the three targets by their dose. */
enum {
    OPENKBP_CT,
    OPENKBP_DOSE,     /* Gy                       */
    OPENKBP_POSSIBLE, /* where dose is possible   */
    OPENKBP_STRUCTURE,
    OPENKBP_STRUCTURES = 10,
    OPENKBP_GRIDS = OPENKBP_STRUCTURE + OPENKBP_STRUCTURES,
    OPENKBP_TARGETS = 3,
    OPENKBP_TARGET = OPENKBP_GRIDS - OPENKBP_TARGETS /* the first target  */
};

/* The names of the grids: file names without ".csv". */
extern const char *const openkbp_name[OPENKBP_GRIDS];

/* The prescribed doses of the targets, in Gy. */
extern const float openkbp_target_gy[OPENKBP_TARGETS];

/* The voxels of one file, each at most once, in file order. A zeroed struct is
 * empty and owns nothing. */
typedef struct SparseGrid {
    int32_t count;
    int32_t *index; /* 0 .. OPENKBP_VOXELS - 1                       */
    float *value;   /* finite; NULL for a mask, whose voxels are 1   */
} SparseGrid;

typedef enum OpenkbpKind { OPENKBP_VALUES, OPENKBP_MASK } OpenkbpKind;

/* Reads one file. A repeated row, an index outside the grid, a value in a mask,
 * a missing value elsewhere, and a last line without newline (a truncated file)
 * are errors. On failure *g is empty. */
bool openkbp_grid_read(const char *path, OpenkbpKind kind, SparseGrid *g);

/* The same from memory; reasons begin with "openkbp:". */
bool openkbp_grid_decode(const char *text, size_t bytes, OpenkbpKind kind,
                         SparseGrid *g);
void openkbp_grid_free(SparseGrid *g);

/* voxels[index * channels] = value (1 for a mask); `voxels` is the first
 * element of one channel. Other elements are not changed. */
void openkbp_scatter(const SparseGrid *g, float *voxels, int channels);

typedef struct OpenkbpPatient {
    SparseGrid grid[OPENKBP_GRIDS];
    bool has[OPENKBP_GRIDS]; /* the file exists; else the grid is empty */
    double spacing_mm[3];    /* of d, h, w, which are x, y, z           */
} OpenkbpPatient;

/* Reads the grids selected by `grids`, bit k for grid k, of the files that
 * exist. voxel_dimensions, ct and possible_dose_mask are required, and dose if
 * `want_dose`. A structure without a file is an empty grid. A .csv with another
 * name is an error: it may be a structure with a misspelt name. On failure *p
 * is empty. */
enum { OPENKBP_ALL = (1 << OPENKBP_GRIDS) - 1 };
bool openkbp_read(const char *folder, unsigned grids, bool want_dose,
                  OpenkbpPatient *p);
/* Lists the files that such a call reads, in `mem`; returns how many, or -1
 * with a reason. */
int openkbp_files(const char *folder, unsigned grids, Arena *mem,
                  const char *const **file);
void openkbp_free(OpenkbpPatient *p);
size_t openkbp_bytes(const OpenkbpPatient *p); /* memory of its grids */

/* Makes a volume with one channel per grid, F32, with p's spacing and the axes
 * above; its unit is UNIT_NONE. */
bool openkbp_volume(const OpenkbpPatient *p, const SparseGrid *const *grid,
                    int channels, Volume *v);

/* Writes the voxels x[index * channels] above 0 as a file: rows that read back
 * as the same floats, for a mask only the indices. The file is complete or
 * absent. A value that is not finite is an error. */
bool openkbp_grid_write(const char *path, OpenkbpKind kind, const float *x,
                        int channels);

/* Writes the first channel of v (F32, 128 x 128 x 128) as such a file. */
bool openkbp_write_dose(const char *path, const Volume *v);
#endif
