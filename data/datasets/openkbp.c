/* openkbp.c -- converts rows of "index,value" to lists of voxels, and back.
 *
 * A patient is megabytes of text and an epoch reads hundreds of patients, so a
 * file is read in one pass over memory: memory for as many rows as there are
 * line ends, one digit loop for the index, decimal_read for the value. Grids
 * stay lists; a dense channel takes 8 MiB, of which a mask fills a
 * hundredth. */
#include "data/datasets/openkbp.h"
#include "data/format/decimal.h"
#include "engine/base/file.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const openkbp_name[OPENKBP_GRIDS] = {
    "ct",          "dose",       "possible_dose_mask",
    "Brainstem",   "SpinalCord", "RightParotid",
    "LeftParotid", "Esophagus",  "Larynx",
    "Mandible",    "PTV56",      "PTV63",
    "PTV70"};

const float openkbp_target_gy[OPENKBP_TARGETS] = {56, 63, 70};

/* Every voxel with the longest row. */
static const size_t most_bytes = (size_t)OPENKBP_VOXELS * 40;
static const char header[] = ",data";
static const char dimensions[] = "voxel_dimensions";

void openkbp_grid_free(SparseGrid *g)
{
    mem_free(g->index); // `value` is part of the same block
    *g = (SparseGrid){0};
}

/* The start of a row for a message: one line, printable, short. */
static const char *shown(const char *p, const char *end, char text[28])
{
    size_t n = 0;
    while (n < 24 && p + n < end && p[n] != '\n') {
        text[n] = p[n] >= ' ' && p[n] <= '~' ? p[n] : '?';
        n++;
    }
    strcpy(text + n, p + n < end && p[n] != '\n' ? "..." : "");
    return text;
}

/* Skips the end of the line at p, LF or CR LF; NULL if there is none. */
static const char *line_end(const char *p, const char *end)
{
    if (p < end && *p == '\r') p++;
    return p < end && *p == '\n' ? p + 1 : NULL;
}

/* Reads the line ",data" and moves *p after it. */
static bool read_header(const char **p, const char *end)
{
    size_t n = sizeof header - 1;
    char got[28];
    const char *next = NULL;
    if (*p == end) return fail_data("file is empty");
    if ((size_t)(end - *p) >= n && !memcmp(*p, header, n))
        next = line_end(*p + n, end);
    if (!next)
        return fail_data("row 1: header is \"%s\", need \"%s\"",
                         shown(*p, end, got), header);
    *p = next;
    return true;
}

/* Reads "index,"; *index may exceed the grid. The limit on the number of digits
 * keeps it within an int. */
static const char *read_index(const char *p, const char *end, int32_t *index)
{
    const char *first = p;
    int32_t i = 0;
    while (p < end && (unsigned)(*p - '0') < 10 && p - first < 9)
        i = 10 * i + (*p++ - '0');
    *index = i;
    return p > first && p < end && *p == ',' ? p + 1 : NULL;
}

/* Reads all rows after the header. *sorted: indices ascend. */
static bool read_rows(const char *p, const char *end, SparseGrid *g, int *row,
                      bool *sorted)
{
    int32_t last = -1, index;
    char got[28];
    *sorted = true;

    for (*row = 2; p < end; ++*row) {
        const char *line = p, *next;
        double v = 0;
        p = read_index(p, end, &index);
        if (!p)
            return fail_data("\"%s\" does not begin with a voxel number and a "
                             "comma",
                             shown(line, end, got));
        if (index >= OPENKBP_VOXELS)
            return fail_data("voxel %d is outside of the grid, need 0 to %d",
                             (int)index, OPENKBP_VOXELS - 1);
        const char *number = p;
        size_t used = 0;
        if (g->value) {
            used = decimal_read(p, (size_t)(end - p), &v);
            p += used;
        }
        next = line_end(p, end);
        // a truncated number is still a number: only the line end shows that it
        // is complete
        if (!next && (p == end || (*p == '\r' && p + 1 == end)))
            return fail_data("file ends inside this row; fix: copy it again");
        if (!next && !g->value)
            return fail_data("a mask has no values, got \"%s\"",
                             shown(number, end, got));
        if (!next)
            return fail_data("value \"%s\" is not a finite number",
                             shown(number, end, got));
        if (g->value && !used)
            return fail_data("voxel %d has no value", (int)index);
        // the largest double that rounds to a finite float
        if (!(fabs(v) < 0x1.ffffffp127))
            return fail_data("value \"%s\" does not fit a float",
                             shown(number, end, got));
        if (g->value) g->value[g->count] = (float)v;
        *sorted &= index > last;
        last = index;
        g->index[g->count++] = index;
        p = next;
    }
    return true;
}

/* Rows in any order: checks that no voxel is repeated. */
static bool check_once(const SparseGrid *g)
{
    uint8_t *seen = mem_alloc(OPENKBP_VOXELS / 8);
    int32_t twice = -1;
    if (!seen) return false;
    for (int32_t i = 0; i < g->count && twice < 0; i++) {
        int32_t k = g->index[i];
        if (seen[k / 8] >> (k % 8) & 1) twice = i;
        seen[k / 8] |= (uint8_t)(1 << (k % 8));
    }
    mem_free(seen);
    return twice < 0 || fail_data("row %d: voxel %d for the second time",
                                  (int)twice + 2, (int)g->index[twice]);
}

/* Allocates `rows` rows in one block, the values after the indices. */
static bool grid_new(SparseGrid *g, size_t rows, OpenkbpKind kind)
{
    size_t each = sizeof *g->index;
    if (kind == OPENKBP_VALUES) each += sizeof *g->value;
    g->index = mem_alloc(rows * each);
    if (!g->index) return false;
    if (kind == OPENKBP_VALUES) g->value = (float *)(g->index + rows);
    return true;
}

bool openkbp_grid_decode(const char *text, size_t bytes, OpenkbpKind kind,
                         SparseGrid *g)
{
    const char *end = text + bytes, *p = text_begin(text, end);
    size_t rows = 0;
    int row = 1;
    bool sorted;

    *g = (SparseGrid){0};
    if (!read_header(&p, end)) return within("openkbp");
    for (const char *q = p; (q = memchr(q, '\n', (size_t)(end - q))); q++)
        rows++;

    // more rows than voxels cannot be right
    if (rows > OPENKBP_VOXELS) {
        fail_data("%zu rows for a grid of %d voxels", rows, OPENKBP_VOXELS);
        return within("openkbp");
    }
    if (!grid_new(g, rows, kind)) return false;
    bool ok = read_rows(p, end, g, &row, &sorted) || within("row %d", row);
    if (ok && !sorted) ok = check_once(g);
    if (!ok) openkbp_grid_free(g);
    return ok || within("openkbp");
}

bool openkbp_grid_read(const char *path, OpenkbpKind kind, SparseGrid *g)
{
    Arena mem = {0};
    char *text = NULL;
    size_t bytes;
    *g = (SparseGrid){0};
    bool ok = file_read(path, most_bytes, &mem, &text, &bytes)
                  ? openkbp_grid_decode(text, bytes, kind, g)
                  : within("openkbp");
    arena_release(&mem);
    return ok || within("%s", path);
}

void openkbp_scatter(const SparseGrid *g, float *voxels, int channels)
{
    for (int32_t i = 0; i < g->count; i++)
        voxels[(int64_t)g->index[i] * channels] = g->value ? g->value[i] : 1;
}

// -- a patient ----------------------------------------------------------------

/* Reads three lines, one spacing in mm each. */
static bool read_dimensions(const char *path, double spacing_mm[3])
{
    Arena mem = {0};
    char *text = NULL, got[28];
    size_t bytes;
    bool ok = false;

    TRY(file_read(path, 4096, &mem, &text, &bytes));
    const char *end = text + bytes, *p = text_begin(text, end);

    for (int k = 0; k < 3; k++) {
        double mm = 0;
        size_t used = decimal_read(p, (size_t)(end - p), &mm);
        const char *next = line_end(p + used, end);
        // no voxel is a metre thick, and a spacing is positive
        if (!used || !next || !(mm > 0 && mm < 1000)) {
            fail_data(
                "row %d: \"%s\" is not a spacing in mm, need three lines of "
                "a number above 0",
                k + 1, shown(p, end, got));
            goto done;
        }
        spacing_mm[k] = mm;
        p = next;
    }

    ok = p == end || fail_data("row 4: \"%s\" after the three spacings",
                               shown(p, end, got));

done:
    arena_release(&mem);
    return ok || (within("openkbp"), within("%s", path));
}

/* The grid of a file, by its name without ".csv"; -1: none. */
static int grid_of(const char *name)
{
    for (int k = 0; k < OPENKBP_GRIDS; k++)
        if (!strcmp(name, openkbp_name[k])) return k;
    return -1;
}

/* Records the existing files in p->has. If files have unknown names, the
 * alphabetically first one is in the reason. */
static bool list_files(const char *folder, OpenkbpPatient *p)
{
    char unknown[64] = "";
    DIR *dir = opendir(folder);
    if (!dir) return file_fails(errno, "cannot open the folder");

    for (;;) {
        // only errno tells an error of readdir from the end
        errno = 0;
        const struct dirent *e = readdir(dir);
        if (!e && errno) {
            file_fails(errno, "cannot read the folder");
            closedir(dir);
            return false;
        }
        if (!e) break;
        const char *dot = strrchr(e->d_name, '.');
        char name[64];
        // hidden files are metadata of other systems, and "~$ct.csv" is the
        // lock of a program that shows ct.csv
        if (*e->d_name == '.' || file_of_system(e->d_name) || !dot ||
            strcmp(dot, ".csv"))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(dot - e->d_name), e->d_name);
        int k = grid_of(name);
        if (k >= 0)
            p->has[k] = true;
        else if (strcmp(name, dimensions) &&
                 (!*unknown || strcmp(name, unknown) < 0))
            memcpy(unknown, name, sizeof name);
    }

    closedir(dir);
    return !*unknown ||
           fail_data("%s.csv is not a file of a patient; there are ct, dose, "
                     "possible_dose_mask, voxel_dimensions and structures (%s, "
                     "...); fix: rename or remove it",
                     unknown, openkbp_name[OPENKBP_STRUCTURE]);
}

/* FOLDER/NAME.csv, allocated in `mem`; NULL with a reason. */
static char *file_of(Arena *mem, const char *folder, const char *name)
{
    return arena_printf(mem, "%s/%s.csv", folder, name);
}

int openkbp_files(const char *folder, unsigned grids, Arena *mem,
                  const char *const **file)
{
    OpenkbpPatient p = {.spacing_mm = {0}};
    const char **list = ARENA_NEW(mem, const char *, OPENKBP_GRIDS + 1);
    int n = 0;

    if (!list) return -1;
    if (!list_files(folder, &p)) {
        within("%s: openkbp", folder);
        return -1;
    }
    for (int k = 0; k < OPENKBP_GRIDS; k++)
        if (p.has[k] && grids >> k & 1 &&
            !(list[n++] = file_of(mem, folder, openkbp_name[k])))
            return -1;
    if (!(list[n++] = file_of(mem, folder, dimensions))) return -1;
    *file = list;
    return n;
}

bool openkbp_read(const char *folder, unsigned grids, bool want_dose,
                  OpenkbpPatient *p)
{
    Arena mem = {0};
    bool ok = false;
    char *path;

    *p = (OpenkbpPatient){.spacing_mm = {0}};
    if (!list_files(folder, p)) {
        within("%s: openkbp", folder);
        goto done;
    }

    for (int k = 0; k < OPENKBP_GRIDS; k++) {
        bool need = k == OPENKBP_CT || k == OPENKBP_POSSIBLE ||
                    (k == OPENKBP_DOSE && want_dose);
        if (!p->has[k] && need) {
            fail_data("%s: openkbp: no %s.csv in this folder", folder,
                      openkbp_name[k]);
            goto done;
        }
        if (!p->has[k] || !(grids >> k & 1)) continue;
        bool mask = k >= OPENKBP_POSSIBLE;
        TRY(path = file_of(&mem, folder, openkbp_name[k]));
        TRY(openkbp_grid_read(path, mask ? OPENKBP_MASK : OPENKBP_VALUES,
                              &p->grid[k]));
        // an empty file means that the program that wrote it met an empty plan
        if (need && k != OPENKBP_DOSE && !p->grid[k].count) {
            fail_data("%s: openkbp: no voxels below the header", path);
            goto done;
        }
    }

    TRY(path = file_of(&mem, folder, dimensions));
    TRY(read_dimensions(path, p->spacing_mm));
    ok = true;

done:
    if (!ok) openkbp_free(p);
    arena_release(&mem);
    return ok;
}

void openkbp_free(OpenkbpPatient *p)
{
    for (int k = 0; k < OPENKBP_GRIDS; k++) openkbp_grid_free(&p->grid[k]);
    *p = (OpenkbpPatient){.spacing_mm = {0}};
}

size_t openkbp_bytes(const OpenkbpPatient *p)
{
    size_t bytes = 0;
    for (int k = 0; k < OPENKBP_GRIDS; k++) {
        const SparseGrid *g = &p->grid[k];
        size_t each = sizeof *g->index + (g->value ? sizeof *g->value : 0);
        bytes += (size_t)g->count * each;
    }
    return bytes;
}

/* Columns of the affine: w (z) runs to inferior, h (y) to the left, d (x) to
 * posterior; LPS points left, posterior, superior. */
bool openkbp_volume(const OpenkbpPatient *p, const SparseGrid *const *grid,
                    int channels, Volume *v)
{
    enum { E = OPENKBP_EDGE };
    if (!volume_new(v, (Dims){1, E, E, E, channels}, F32)) return false;
    memset(v->affine, 0, sizeof v->affine);
    v->affine[2][0] = -p->spacing_mm[2];
    v->affine[0][1] = p->spacing_mm[1];
    v->affine[1][2] = p->spacing_mm[0];
    v->affine[3][3] = 1;
    for (int c = 0; c < channels; c++)
        openkbp_scatter(grid[c], (float *)v->voxels.data + c, channels);
    return true;
}

// -- writing ------------------------------------------------------------------

/* Writes "index,value\n", for a mask "index,\n"; returns the length. */
static size_t put_row(char *p, int32_t index, float value, OpenkbpKind kind)
{
    char digits[8];
    size_t n = 0, k = 0;
    do {
        digits[n++] = (char)('0' + index % 10);
        index /= 10;
    } while (index);
    while (n) p[k++] = digits[--n];
    p[k++] = ',';
    if (kind == OPENKBP_VALUES) k += decimal_print(value, p + k);
    p[k++] = '\n';
    return k;
}

bool openkbp_grid_write(const char *path, OpenkbpKind kind, const float *x,
                        int channels)
{
    enum { ROW = 9 + DECIMAL_TEXT };
    size_t rows = 0, room, at = sizeof header;
    char *text = NULL;
    bool ok = false;

    for (int32_t i = 0; i < OPENKBP_VOXELS; i++) {
        float value = x[(int64_t)i * channels];
        if (!isfinite(value)) {
            fail_data("voxel %d is %s, need a finite dose", (int)i,
                      isnan(value) ? "NaN" : "infinite");
            goto done;
        }
        rows += value > 0;
    }

    TRY(size_mul(rows, ROW, &room) && size_add(room, sizeof header, &room));
    TRY(text = mem_alloc(room));
    memcpy(text, header, sizeof header - 1);
    text[sizeof header - 1] = '\n';
    for (int32_t i = 0; i < OPENKBP_VOXELS; i++) {
        float value = x[(int64_t)i * channels];
        if (value > 0) at += put_row(text + at, i, value, kind);
    }
    TRY(file_replace(path, text, at));
    ok = true;

done:
    mem_free(text);
    return ok || within("%s: openkbp", path);
}

bool openkbp_write_dose(const char *path, const Volume *v)
{
    const Dims dim = v->voxels.dim;
    CHECK(v->voxels.type == F32 && dim.c > 0 &&
          numel(dim) == (int64_t)OPENKBP_VOXELS * dim.c);
    return openkbp_grid_write(path, OPENKBP_VALUES, v->voxels.data, dim.c);
}
