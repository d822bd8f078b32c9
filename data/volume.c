/* volume.c -- grids in patient space: positions of voxels, and grids that are
 * derived from a given one.
 *
 * An index vector is (w, h, d) and column a of the affine is the step of index
 * a in mm. Every function here that makes a grid states which point of space it
 * keeps in place and computes the new origin from it, so that no shift by half
 * a voxel occurs. */
#include "data/volume.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Columns closer to linear dependence than this define no coordinate system. */
#define SINGULAR 1e-9
/* Tolerance of "the same grid" at its corners, in voxel edges. */
#define SAME_GRID 0.01

/* n is always 1: a batch consists of samples, not of volumes. */
bool volume_new(Volume *v, Dims dim, Dtype type)
{
    CHECK(type == F32 || type == I16 || type == U8);
    *v = (Volume){.voxels = {dim, type, RANK_MAX, NULL}};

    // identity until the caller sets another affine
    for (int i = 0; i < 4; i++) v->affine[i][i] = 1;

    if (dim.n != 1 || !dims_valid(dim, type)) {
        int w = dim.w, h = dim.h, d = dim.d, c = dim.c;
        memset(v, 0, sizeof *v);
        return fail_data("a volume of %d x %d x %d voxels, %d channels, is "
                         "empty or larger than this machine can address",
                         w, h, d, c);
    }

    v->voxels.data = mem_alloc(tensor_bytes(&v->voxels));
    if (!v->voxels.data) memset(v, 0, sizeof *v);
    return v->voxels.data != NULL;
}

void volume_free(Volume *v)
{
    mem_free(v->voxels.data);
    memset(v, 0, sizeof *v);
}

/* length of a vector in mm */
static double length(double x, double y, double z)
{
    return sqrt(x * x + y * y + z * z);
}

/* lengths of the first three columns */
static void column_lengths(const double m[3][4], double lengths[3])
{
    for (int a = 0; a < 3; a++) lengths[a] = length(m[0][a], m[1][a], m[2][a]);
}

void volume_spacing_mm(const Volume *v, double spacing[3])
{
    column_lengths(v->affine, spacing);
}

void grid_spacing_mm(const Grid *g, double spacing[3])
{
    column_lengths(g->affine, spacing);
}

void volume_world(const Volume *v, double w, double h, double d,
                  double lps_mm[3])
{
    for (int r = 0; r < 3; r++) {
        const double *a = v->affine[r];
        lps_mm[r] = a[0] * w + a[1] * h + a[2] * d + a[3];
    }
}

void affine_multiply(double a[4][4], double b[4][4], double out[4][4])
{
    double c[4][4]; // a copy: out may be a or b
    for (int r = 0; r < 4; r++)
        for (int k = 0; k < 4; k++)
            c[r][k] = a[r][0] * b[0][k] + a[r][1] * b[1][k] +
                      a[r][2] * b[2][k] + a[r][3] * b[3][k];
    memcpy(out, c, sizeof c);
}

/* Inverts by cofactors: the upper 3 x 3, then the origin. The determinant is
 * compared with the product of the edges, so that the test does not depend on
 * the size of voxels (1e-3 mm or 1 m). */
bool affine_invert(double a[4][4], double out[4][4])
{
    double inv[4][4] = {{0}}, det = 0, edges = 1;
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 3; c++) {
            // cofactor of (c,r): the cyclic indices carry the sign
            int i = (c + 1) % 3, j = (c + 2) % 3;
            int k = (r + 1) % 3, l = (r + 2) % 3;
            inv[r][c] = a[i][k] * a[j][l] - a[i][l] * a[j][k];
        }

    for (int c = 0; c < 3; c++) {
        det += a[0][c] * inv[c][0];
        edges *= length(a[0][c], a[1][c], a[2][c]);
    }

    // det / edges is the volume of the cell with unit edges
    if (!isfinite(det) || !(fabs(det) > SINGULAR * edges))
        return fail_data("the voxel axes are not three independent "
                         "directions (determinant %g)",
                         det);
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 3; c++) inv[r][c] /= det;
    for (int r = 0; r < 3; r++)
        inv[r][3] =
            -(inv[r][0] * a[0][3] + inv[r][1] * a[1][3] + inv[r][2] * a[2][3]);
    inv[3][3] = 1;
    memcpy(out, inv, sizeof inv);
    return true;
}

/* Sets axis[p] to the voxel axis assigned to direction p; cosine[p][a] is the
 * cosine between direction p and axis a. Tries all six assignments and takes
 * the best of all three axes together: in an oblique grid, the nearest axis of
 * two directions can be the same. */
static void assign(double cosine[3][3], int axis[3])
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

    // sum of |cosine|: 3 for axes that match exactly
    double best = -1;

    for (int o = 0; o < 6; o++) {
        double sum = 0;
        for (int p = 0; p < 3; p++) sum += fabs(cosine[p][orders[o][p]]);
        // the margin keeps the first of two orders that differ only by rounding
        if (sum <= best + 1e-9) continue;
        best = sum;
        memcpy(axis, orders[o], sizeof orders[o]);
    }
}

/* axis[p] = voxel axis along patient axis p; see volume_axis. */
static void assign_axes(const Volume *v, int axis[3])
{
    double edge[3], cosine[3][3] = {{0}};
    volume_spacing_mm(v, edge);
    for (int p = 0; p < 3; p++)
        for (int a = 0; a < 3; a++)
            if (edge[a] > 0) cosine[p][a] = v->affine[p][a] / edge[a];
    assign(cosine, axis);
}

int volume_axis(const Volume *v, int patient_axis)
{
    int axis[3] = {0, 1, 2};
    CHECK(patient_axis >= 0 && patient_axis < 3);
    assign_axes(v, axis);
    return axis[patient_axis];
}

char *volume_code(const Volume *v, char code[4])
{
    static const char toward[3][3] = {"RL", "AP", "IS"};
    for (int p = 0; p < 3; p++) {
        int axis = volume_axis(v, p);
        code[axis] = toward[p][v->affine[p][axis] >= 0];
    }
    code[3] = 0;
    return code;
}

char *volume_text(const Volume *v, char text[VOLUME_TEXT])
{
    static const char *planes[3] = {"sagittal", "coronal", "axial"};
    const char *plane = "?";
    char code[4];
    double s[3];
    Dims n = v->voxels.dim;

    volume_spacing_mm(v, s);
    for (int p = 0; p < 3; p++)
        if (volume_axis(v, p) == 2) plane = planes[p];
    snprintf(text, VOLUME_TEXT,
             "%dx%dx%d, %.4gx%.4gx%.4g mm, %s, axes %s, origin (%.1f %.1f "
             "%.1f)",
             n.w, n.h, n.d, s[0], s[1], s[2], plane, volume_code(v, code),
             v->affine[0][3], v->affine[1][3], v->affine[2][3]);
    return text;
}

char *volume_differences(const Volume *a, const Volume *b,
                         char text[VOLUME_DIFFERENCES])
{
    static const char *const name[] = {"spacing", "directions", "origin"};
    double sa[3], sb[3], edge = INFINITY, mm[3] = {0};
    int32_t n[3], m[3];
    int largest = 0;

    volume_spacing_mm(a, sa);
    volume_spacing_mm(b, sb);
    volume_extents(a, n);
    volume_extents(b, m);

    // displacement of an end of the grid by each of the three
    for (int i = 0; i < 3; i++) {
        double turned = 0;
        for (int r = 0; r < 3; r++)
            turned = hypot(turned,
                           a->affine[r][i] / sa[i] - b->affine[r][i] / sb[i]);
        edge = fmin(edge, sa[i]);
        mm[0] = fmax(mm[0], fabs(sa[i] - sb[i]) * n[i]);
        mm[1] = fmax(mm[1], turned * sa[i] * n[i]);
        mm[2] = hypot(mm[2], a->affine[i][3] - b->affine[i][3]);
    }

    for (int i = 1; i < 3; i++)
        if (!(mm[i] <= mm[largest])) largest = i;
    bool extents = n[0] != m[0] || n[1] != m[1] || n[2] != m[2];
    snprintf(text, VOLUME_DIFFERENCES, "%s", extents ? "extents" : "");

    for (int i = 0; i < 3; i++) {
        size_t used = strlen(text);
        // if every displacement is small but their sum is not, the largest; NaN
        // differs
        if (!(mm[i] <= SAME_GRID * edge) || (!extents && i == largest))
            snprintf(text + used, VOLUME_DIFFERENCES - used, "%s%s",
                     used ? ", " : "", name[i]);
    }
    return text;
}

/* Compares the outer corners of the grids, where a wrong spacing or direction
 * has the largest effect. 1 % of the smallest edge is far below any effect on
 * interpolation, and above the rounding of headers. */
bool volume_same_grid(const Volume *a, const Volume *b)
{
    Dims n = a->voxels.dim, m = b->voxels.dim;
    bool same = n.d == m.d && n.h == m.h && n.w == m.w;
    double edge = INFINITY, worst = 0, s[3];

    volume_spacing_mm(a, s);
    for (int i = 0; i < 3; i++) edge = fmin(edge, s[i]);

    for (int corner = 0; same && corner < 8; corner++) {
        double p[3], q[3], w = corner & 1 ? n.w - 0.5 : -0.5,
                           h = corner & 2 ? n.h - 0.5 : -0.5,
                           d = corner & 4 ? n.d - 0.5 : -0.5;
        volume_world(a, w, h, d, p);
        volume_world(b, w, h, d, q);
        // hypot neither overflows nor underflows on the way
        double apart = hypot(hypot(p[0] - q[0], p[1] - q[1]), p[2] - q[2]);
        // written so that NaN counts as different
        if (!(apart <= worst)) worst = apart;
    }

    if (same && worst <= SAME_GRID * edge) return true;
    char left[VOLUME_TEXT], right[VOLUME_TEXT], far[64] = "";
    char what[VOLUME_DIFFERENCES];
    if (same) snprintf(far, sizeof far, " (corners %.3g mm apart)", worst);
    return fail_data("the grids differ in %s%s: %s and %s",
                     volume_differences(a, b, what), far, volume_text(a, left),
                     volume_text(b, right));
}

Grid volume_grid(const Volume *v)
{
    Dims n = v->voxels.dim;
    Grid g = {.d = n.d, .h = n.h, .w = n.w};
    memcpy(g.affine, v->affine, sizeof g.affine);
    return g;
}

// volume of the field of view; exact for right angles, sufficient to choose the
// smaller of two
static double grid_mm3(const Grid *g)
{
    double s[3];
    grid_spacing_mm(g, s);
    return s[0] * s[1] * s[2] * g->w * g->h * g->d;
}

// samples the smaller field of view on a raster
bool grid_share(const Grid *a, const Grid *b, double *share)
{
    enum { SAMPLES = 24 };
    const bool first = grid_mm3(a) <= grid_mm3(b);
    const Grid *small = first ? a : b, *large = first ? b : a;
    double inverse[4][4], to[4][4], from[4][4];
    memcpy(from, large->affine, sizeof from);
    if (!affine_invert(from, inverse)) return false;
    memcpy(from, small->affine, sizeof from);
    affine_multiply(inverse, from, to);
    int inside = 0;
    const double extent[3] = {large->w, large->h, large->d};

    for (int n = 0; n < SAMPLES * SAMPLES * SAMPLES; n++) {
        // index of the centre of a cell of a raster of SAMPLES per side
        double p[3] = {
            (n % SAMPLES + 0.5) / SAMPLES * small->w - 0.5,
            (n / SAMPLES % SAMPLES + 0.5) / SAMPLES * small->h - 0.5,
            (n / SAMPLES / SAMPLES + 0.5) / SAMPLES * small->d - 0.5,
        };
        bool in = true;
        for (int x = 0; x < 3; x++) {
            double at =
                to[x][0] * p[0] + to[x][1] * p[1] + to[x][2] * p[2] + to[x][3];
            in = in && at >= -0.5 && at < extent[x] - 0.5;
        }
        inside += in;
    }

    *share = (double)inside / (SAMPLES * SAMPLES * SAMPLES);
    return true;
}

void volume_extents(const Volume *v, int32_t n[3])
{
    Dims dim = v->voxels.dim;
    n[0] = dim.w, n[1] = dim.h, n[2] = dim.d;
}

/* Makes the grid of n[0] x n[1] x n[2] voxels that starts at index `first` of
 * v; its index a steps by scale[a] times index from[a] of v. */
static Grid grid_from(const Volume *v, const int32_t n[3],
                      const double first[3], const int from[3],
                      const double scale[3])
{
    Grid g = {.d = n[2], .h = n[1], .w = n[0]};
    double origin[3];
    volume_world(v, first[0], first[1], first[2], origin);
    for (int r = 0; r < 3; r++) {
        for (int a = 0; a < 3; a++)
            g.affine[r][a] = v->affine[r][from[a]] * scale[a];
        g.affine[r][3] = origin[r];
    }
    g.affine[3][3] = 1;
    return g;
}

static const int in_order[3] = {0, 1, 2};

/* Extents are rounded, so the far corner moves by up to half a voxel; the
 * near one stays. */
Grid volume_grid_at(const Volume *v, const double spacing_mm[3])
{
    int32_t n[3];
    double edge[3], scale[3], first[3];
    volume_extents(v, n);
    volume_spacing_mm(v, edge);

    for (int a = 0; a < 3; a++) {
        CHECK(spacing_mm[a] >= 0);
        scale[a] = spacing_mm[a] > 0 ? spacing_mm[a] / edge[a] : 1;
        // the outer corner, index -0.5 in both grids, stays
        first[a] = -0.5 + 0.5 * scale[a];
        // at least one voxel, and no overflow of the cast
        double count = floor(n[a] / scale[a] + 0.5);
        n[a] = count >= INT32_MAX ? INT32_MAX : count < 1 ? 1 : (int32_t)count;
    }
    return grid_from(v, n, first, in_order, scale);
}

Grid volume_grid_cut(const Volume *v, const int32_t from[3], const int32_t n[3])
{
    const double scale[3] = {1, 1, 1};
    const double first[3] = {from[0], from[1], from[2]};
    return grid_from(v, n, first, in_order, scale);
}

/* Both outer corners stay; the spacing follows from the extents. */
Grid volume_grid_resize(const Volume *v, int d, int h, int w)
{
    const int want[3] = {w, h, d};
    double scale[3], first[3];
    int32_t n[3];

    volume_extents(v, n);
    for (int a = 0; a < 3; a++) {
        CHECK(want[a] >= 0);
        int32_t to = want[a] ? want[a] : n[a];
        scale[a] = (double)n[a] / to;
        first[a] = -0.5 + 0.5 * scale[a];
        n[a] = to;
    }
    return grid_from(v, n, first, in_order, scale);
}

/* Axes that run opposite to the view are mirrored: the grid then begins at the
 * last voxel of that axis. */
Grid volume_grid_plane(const Volume *v, Plane plane)
{
    // for each plane and index w, h, d: patient axis, and +1 or -1 along it
    static const struct {
        int patient, sign;
    } views[3][3] = {
        [AXIAL] = {{0, 1}, {1, 1}, {2, 1}},
        [CORONAL] = {{0, 1}, {2, -1}, {1, 1}},
        [SAGITTAL] = {{1, 1}, {2, -1}, {0, 1}},
    };
    double first[3] = {0, 0, 0}, sign[3];
    int32_t n[3], m[3];
    int from[3];

    volume_extents(v, n);
    for (int a = 0; a < 3; a++) {
        int p = views[plane][a].patient;
        from[a] = volume_axis(v, p);
        m[a] = n[from[a]];
        // does the index increase along the patient axis?
        bool up = v->affine[p][from[a]] >= 0;
        sign[a] = up == (views[plane][a].sign > 0) ? 1 : -1;
        if (sign[a] < 0) first[from[a]] = n[from[a]] - 1;
    }
    return grid_from(v, m, first, from, sign);
}

/* As volume_grid_plane, with the axes of another volume as the view. */
Grid volume_grid_along(const Volume *v, const Volume *like)
{
    double cosine[3][3] = {{0}}, first[3] = {0, 0, 0}, sign[3], mine[3], its[3];
    int32_t n[3], m[3];
    int from[3];

    volume_extents(v, n);
    volume_spacing_mm(v, mine);
    volume_spacing_mm(like, its);
    for (int p = 0; p < 3; p++)
        for (int a = 0; a < 3; a++)
            for (int r = 0; r < 3 && mine[a] > 0 && its[p] > 0; r++)
                cosine[p][a] +=
                    like->affine[r][p] / its[p] * v->affine[r][a] / mine[a];

    assign(cosine, from);
    for (int p = 0; p < 3; p++) {
        m[p] = n[from[p]];
        sign[p] = cosine[p][from[p]] >= 0 ? 1 : -1;
        if (sign[p] < 0) first[from[p]] = n[from[p]] - 1;
    }
    return grid_from(v, m, first, from, sign);
}

Volume volume_of_grid(const Grid *grid)
{
    Volume v = {.voxels = {.dim = {1, grid->d, grid->h, grid->w, 1}}};
    memcpy(v.affine, grid->affine, sizeof v.affine);
    return v;
}

bool volume_to_f32(const Volume *v, Volume *out)
{
    if (!volume_new(out, v->voxels.dim, F32)) return false;
    memcpy(out->affine, v->affine, sizeof v->affine);
    out->unit = v->unit;
    tensor_to_f32(v->voxels.data, v->voxels.type, 0, numel(v->voxels.dim),
                  out->voxels.data);
    return true;
}
