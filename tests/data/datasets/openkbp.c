/* openkbp.c -- tests of sparse grids and patients, of rejected and written
 * files, and of real patients against numpy. */
#include "data/datasets/openkbp.h"
#include "engine/base/file.h"
#include "engine/base/rng.h"
#include "tests/test.h"
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>

#define PYTHON "/usr/bin/python3 "

/* Runs openkbp_grid_decode on a copy of exactly that size. */
static bool decode_bytes(const char *text, size_t n, OpenkbpKind kind,
                         SparseGrid *g)
{
    char *copy = mem_alloc(n);
    REQUIRE(copy);
    memcpy(copy, text, n);
    bool ok = openkbp_grid_decode(copy, n, kind, g);
    mem_free(copy);
    return ok;
}

static bool decode(const char *text, OpenkbpKind kind, SparseGrid *g)
{
    return decode_bytes(text, strlen(text), kind, g);
}

TEST(openkbp_reads_rows)
{
    SparseGrid g;
    REQUIRE(
        decode(",data\n0,6.0\n17,0.438\n2097151,1e-3\n", OPENKBP_VALUES, &g));
    EXPECT_INT(g.count, 3);
    EXPECT(g.index[0] == 0 && g.index[1] == 17 && g.index[2] == 2097151);
    EXPECT(g.value[0] == 6 && g.value[1] == 0.438f && g.value[2] == 1e-3f);
    openkbp_grid_free(&g);
    EXPECT(!g.index && !g.value && !g.count);

    // a mask, with the line ends of Windows
    REQUIRE(decode(",data\r\n5,\r\n6,\r\n", OPENKBP_MASK, &g));
    EXPECT(g.count == 2 && g.index[0] == 5 && g.index[1] == 6 && !g.value);
    openkbp_grid_free(&g);

    // an empty table
    REQUIRE(decode(",data\n", OPENKBP_MASK, &g));
    EXPECT_INT(g.count, 0);
    openkbp_grid_free(&g);

    // any order, if no voxel occurs twice
    REQUIRE(decode(",data\n7,1\n3,2\n1000,3\n8,4\n", OPENKBP_VALUES, &g));
    EXPECT(g.index[0] == 7 && g.index[1] == 3 && g.value[3] == 4);
    float dense[2 * 1001];
    for (int i = 0; i < 2002; i++) dense[i] = -1;
    openkbp_scatter(&g, dense + 1, 2);
    EXPECT(dense[2 * 3 + 1] == 2 && dense[2 * 7 + 1] == 1);
    EXPECT(dense[2 * 1000 + 1] == 3 && dense[2 * 8 + 1] == 4);
    int set = 0;
    for (int i = 0; i < 2002; i++) set += dense[i] != -1;
    EXPECT_INT(set, 4);
    openkbp_grid_free(&g);
}

TEST(openkbp_defects)
{
    static const struct {
        const char *text;
        OpenkbpKind kind;
        const char *reason;
    } row[] = {
        {"", OPENKBP_VALUES, "openkbp: file is empty"},
        {",Data\n1,2\n", OPENKBP_VALUES, "row 1: header is \",Data\", need"},
        {"1,2\n", OPENKBP_VALUES, "row 1: header is \"1,2\", need \",data\""},
        {",data", OPENKBP_VALUES, "row 1: header is \",data\", need"},
        {",data,x\n", OPENKBP_VALUES, "row 1: header is \",data,x\""},
        {",data\n1,2\n-1,2\n", OPENKBP_VALUES,
         "row 3: \"-1,2\" does not begin with a voxel number and a comma"},
        {",data\nx\n", OPENKBP_MASK, "row 2: \"x\" does not begin"},
        {",data\n5\n", OPENKBP_MASK, "row 2: \"5\" does not begin"},
        {",data\n\n", OPENKBP_VALUES, "row 2: \"\" does not begin with"},
        {",data\n1.0,2\n", OPENKBP_VALUES, "row 2: \"1.0,2\" does not begin"},
        {",data\n2097152,2\n", OPENKBP_VALUES,
         "row 2: voxel 2097152 is outside of the grid, need 0 to 2097151"},
        {",data\n4294967296,2\n", OPENKBP_VALUES, "row 2: \"4294967296,2\" d"},
        {",data\n1,2\n1,3\n", OPENKBP_VALUES,
         "openkbp: row 3: voxel 1 for the second time"},
        {",data\n9,\n3,\n9,\n", OPENKBP_MASK, "row 4: voxel 9 for the second"},
        {",data\n1,2\n2,\n", OPENKBP_VALUES, "row 3: voxel 2 has no value"},
        {",data\n1,nan\n", OPENKBP_VALUES,
         "row 2: value \"nan\" is not a finite"},
        {",data\n1,inf\n", OPENKBP_VALUES,
         "row 2: value \"inf\" is not a finite"},
        {",data\n1,2x\n", OPENKBP_VALUES,
         "row 2: value \"2x\" is not a finite"},
        {",data\n1,2,3\n", OPENKBP_VALUES,
         "value \"2,3\" is not a finite numb"},
        {",data\n1,1e39\n", OPENKBP_VALUES, "\"1e39\" does not fit a float"},
        {",data\n1,-1e999\n", OPENKBP_VALUES, "\"-1e999\" does not fit a fl"},
        {",data\n1,1\n", OPENKBP_MASK, "row 2: a mask has no values, got \"1"},
        {",data\n1,2\n2,3", OPENKBP_VALUES,
         "row 3: file ends inside this row; fix: copy it again"},
        {",data\n1,2\n2,3\r", OPENKBP_VALUES, "row 3: file ends inside this"},
        {",data\n1,2\n2,", OPENKBP_VALUES, "row 3: file ends inside this row"},
        {",data\n1,2\n23", OPENKBP_VALUES, "row 3: \"23\" does not begin with"},
        {",data\n1,", OPENKBP_MASK, "row 2: file ends inside this row"},
        {",data\n1,\x01\x80zzzzzzzzzzzzzzzzzzzzzzzzzzzz\n", OPENKBP_MASK,
         "got \"??zzzzzzzzzzzzzzzzzzzzzz...\""},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        SparseGrid g;
        long live = mem_live();
        EXPECT_FAIL(decode(row[r].text, row[r].kind, &g), row[r].reason);
        EXPECT_FAIL(decode(row[r].text, row[r].kind, &g), "openkbp: ");
        EXPECT(err_kind() == ERR_DATA && !g.index && !g.count);
        EXPECT_INT(mem_live(), live);
    }

    SparseGrid g;
    EXPECT_FAIL(decode_bytes(",data\n1,\0\n", 10, OPENKBP_MASK, &g),
                "row 2: a mask has no values, got \"?\"");
    EXPECT_FAIL(openkbp_grid_read("no/ct.csv", OPENKBP_VALUES, &g),
                "no/ct.csv: openkbp: cannot open");
    EXPECT_FAIL(openkbp_grid_read(test_folder(), OPENKBP_VALUES, &g),
                "is a folder, not a file");
}

/* One row per voxel, and one more. */
TEST(openkbp_limit)
{
    size_t room = 6 + (size_t)(OPENKBP_VOXELS + 1) * 9, n;
    char *text = mem_alloc(room + 1);
    SparseGrid g;

    REQUIRE(text);
    n = (size_t)sprintf(text, ",data\n");

    for (int i = 0; i <= OPENKBP_VOXELS; i++) {
        if (i == OPENKBP_VOXELS) {
            REQUIRE(openkbp_grid_decode(text, n, OPENKBP_MASK, &g));
            EXPECT_INT(g.count, OPENKBP_VOXELS);
            openkbp_grid_free(&g);
        }
        n += (size_t)sprintf(text + n, "%d,\n", i % OPENKBP_VOXELS);
    }

    EXPECT_FAIL(openkbp_grid_decode(text, n, OPENKBP_MASK, &g),
                "2097153 rows for a grid of 2097152 voxels");
    mem_free(text);
}

// -- patients -----------------------------------------------------------------

static void put(const char *folder, const char *name, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    REQUIRE(file_replace(path, text, strlen(text)));
}

static void take(const char *folder, const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    remove(path);
}

/* Makes a patient of a few voxels with three structures. */
static void make_patient(char folder[300], const char *name)
{
    snprintf(folder, 300, "%s/%s", test_folder(), name);
    REQUIRE(file_mkdirs(folder));
    put(folder, "ct.csv", ",data\n0,1000.0\n16514,4095.0\n");
    put(folder, "dose.csv", ",data\n16514,70.25\n");
    put(folder, "possible_dose_mask.csv", ",data\n16513,\n16514,\n");
    put(folder, "voxel_dimensions.csv",
        "3.906000000000000139e+00\n4.0\n2.500000000000000000e+00\n");
    put(folder, "Brainstem.csv", ",data\n1,\n");
    put(folder, "PTV70.csv", ",data\n16514,\n");
    put(folder, "Larynx.csv", ",data\n");
    put(folder, "._ct.csv", "a note of another system");
    put(folder, "readme.txt", "no table");
}

TEST(openkbp_patient)
{
    char folder[300];
    OpenkbpPatient p;
    Volume v;

    make_patient(folder, "pt_1");
    REQUIRE(openkbp_read(folder, OPENKBP_ALL, true, &p));
    EXPECT_INT(p.grid[OPENKBP_CT].count, 2);
    EXPECT_INT(p.grid[OPENKBP_DOSE].count, 1);
    EXPECT_INT(p.grid[OPENKBP_POSSIBLE].count, 2);
    EXPECT(!p.grid[OPENKBP_POSSIBLE].value);
    static const bool has[] = {true, false, false, false, false,
                               true, false, false, false, true};
    for (int k = 0; k < OPENKBP_STRUCTURES; k++)
        EXPECT_INT(p.has[OPENKBP_STRUCTURE + k], has[k]);
    EXPECT_TEXT(openkbp_name[OPENKBP_STRUCTURE + 9], "PTV70");
    EXPECT(p.spacing_mm[0] == 3.906 && p.spacing_mm[1] == 4 &&
           p.spacing_mm[2] == 2.5);
    EXPECT_INT(openkbp_bytes(&p), 2 * 8 + 8 + 2 * 4 + 4 + 4);

    // 16514 = 2 + 128 * (1 + 128 * 1): x = 1, y = 1, z = 2
    const SparseGrid *grid[OPENKBP_STRUCTURES + 1] = {&p.grid[OPENKBP_CT]};
    for (int k = 0; k < OPENKBP_STRUCTURES; k++)
        grid[k + 1] = &p.grid[OPENKBP_STRUCTURE + k];
    REQUIRE(openkbp_volume(&p, grid, 11, &v));
    const float *x = v.voxels.data;
    EXPECT(dims_equal(v.voxels.dim, (Dims){1, 128, 128, 128, 11}));
    EXPECT(x[0] == 1000 && x[16514 * 11] == 4095);
    EXPECT(x[1 * 11 + 1] == 1 && x[16514 * 11 + 10] == 1);
    double sum = 0, mm[3];
    for (int64_t i = 0; i < numel(v.voxels.dim); i++) sum += (double)x[i];
    EXPECT(sum == 1000 + 4095 + 1 + 1);

    // patient axes: x to posterior, y to the left, z to inferior
    char code[4];
    EXPECT_TEXT(volume_code(&v, code), "ILP");
    volume_spacing_mm(&v, mm);
    EXPECT(mm[0] == 2.5 && mm[1] == 4 && mm[2] == 3.906);
    volume_world(&v, 2, 1, 1, mm); // w = z, h = y, d = x
    EXPECT(mm[0] == 4 && mm[1] == 3.906 && mm[2] == -5);
    volume_free(&v);
    openkbp_free(&p);

    // without dose: accepted when none is required
    take(folder, "dose.csv");
    REQUIRE(openkbp_read(folder, OPENKBP_ALL, false, &p));
    EXPECT(!p.has[OPENKBP_DOSE] && !p.grid[OPENKBP_DOSE].count);
    openkbp_free(&p);
    EXPECT_FAIL(openkbp_read(folder, OPENKBP_ALL, true, &p),
                "pt_1: openkbp: no dose.csv in this folder");
}

TEST(openkbp_files_are_those_that_are_read)
{
    char folder[300], path[400];
    const char *const *file;
    Arena mem = {0};
    make_patient(folder, "pt_files");

    // hidden files, and files that are no tables
    put(folder, ".ct.csv", "x");
    put(folder, "readme.txt", "x");
    put(folder, "noending", "x");
    EXPECT_INT(openkbp_files(folder, 1u << OPENKBP_CT, &mem, &file), 2);
    snprintf(path, sizeof path, "%s/ct.csv", folder);
    EXPECT_TEXT(file[0], path);
    snprintf(path, sizeof path, "%s/voxel_dimensions.csv", folder);
    EXPECT_TEXT(file[1], path);

    // three grids and three structures
    EXPECT_INT(openkbp_files(folder, OPENKBP_ALL, &mem, &file), 7);

    // of several unknown names, always the same is reported
    put(folder, "Larynz.csv", "x");
    put(folder, "Brain.csv", "x");
    put(folder, "Zoo.csv", "x");
    EXPECT(openkbp_files(folder, OPENKBP_ALL, &mem, &file) == -1);
    EXPECT(
        strstr(err_text(), "pt_files: openkbp: Brain.csv is not a file of a"));
    snprintf(path, sizeof path, "%s/absent", test_folder());
    EXPECT(openkbp_files(path, OPENKBP_ALL, &mem, &file) == -1);
    EXPECT(strstr(err_text(), "absent: openkbp: cannot open the folder: "));
    arena_release(&mem);
}

TEST(openkbp_patient_defects)
{
    static const struct {
        const char *file, *text; /* NULL: the file is removed */
        const char *reason;
    } row[] = {
        {"ct.csv", NULL, "openkbp: no ct.csv in this folder"},
        {"possible_dose_mask.csv", NULL, "no possible_dose_mask.csv in this"},
        {"voxel_dimensions.csv", NULL, "voxel_dimensions.csv: openkbp: cannot"},
        {"ct.csv", ",data\n", "ct.csv: openkbp: no voxels below the header"},
        {"possible_dose_mask.csv", ",data\n", "no voxels below the header"},
        {"possible_dose_mask.csv", ",data\n1,1.0\n", "row 2: a mask has no v"},
        {"PTV70.csv", ",data\n1,\n1,\n",
         "PTV70.csv: openkbp: row 3: voxel 1 for the second time"},
        {"PTV_70.csv", ",data\n",
         "PTV_70.csv is not a file of a patient; there are ct, dose"},
        {"voxel_dimensions.csv", "4\n4\n",
         "voxel_dimensions.csv: openkbp: row 3: \"\" is not a spacing in mm"},
        {"voxel_dimensions.csv", "4\n0\n4\n", "row 2: \"0\" is not a spacing"},
        {"voxel_dimensions.csv", "4\n-4\n4\n",
         "row 2: \"-4\" is not a spacing"},
        {"voxel_dimensions.csv", "nan\n4\n4\n",
         "row 1: \"nan\" is not a spacing"},
        {"voxel_dimensions.csv", "4\n4\n1e3\n",
         "row 3: \"1e3\" is not a spacing"},
        {"voxel_dimensions.csv", "4,4,4\n",
         "row 1: \"4,4,4\" is not a spacing"},
        {"voxel_dimensions.csv", "4\n4\n4",
         "row 3: \"4\" is not a spacing in mm"},
        {"voxel_dimensions.csv", "4\n4\n4\n4\n",
         "row 4: \"4\" after the three spacings"},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        char folder[300], name[32];
        OpenkbpPatient p;
        snprintf(name, sizeof name, "defect%zu", r);
        make_patient(folder, name);
        if (row[r].text)
            put(folder, row[r].file, row[r].text);
        else
            take(folder, row[r].file);
        long live = mem_live();
        EXPECT_FAIL(openkbp_read(folder, OPENKBP_ALL, true, &p), row[r].reason);
        EXPECT_FAIL(openkbp_read(folder, OPENKBP_ALL, true, &p), folder);
        EXPECT(err_kind() == ERR_DATA);
        EXPECT_INT(mem_live(), live);
    }

    OpenkbpPatient p;
    EXPECT_FAIL(openkbp_read("no/pt_1", OPENKBP_ALL, true, &p),
                "no/pt_1: openkbp: cannot open the folder: ");
}

TEST(openkbp_without_memory)
{
    char folder[300];
    OpenkbpPatient p;
    make_patient(folder, "poor");
    long live = mem_live();
    int k = 0;

    for (bool ok = false; !ok; k++) {
        mem_fail_after(k, false);
        ok = openkbp_read(folder, OPENKBP_ALL, true, &p);
        mem_fail_after(-1, false);
        if (ok)
            openkbp_free(&p);
        else
            EXPECT(strstr(err_text(), "no memory"));
        EXPECT_INT(mem_live(), live);
    }
    EXPECT(k > 10);
}

// -- writing ------------------------------------------------------------------

TEST(openkbp_write_reads_back)
{
    char path[300];
    Volume v;
    SparseGrid g;

    snprintf(path, sizeof path, "%s/written.csv", test_folder());
    REQUIRE(volume_new(&v, (Dims){1, 128, 128, 128, 2}, F32));
    float *x = v.voxels.data;
    Rng r = {.seed = 5, .stream = RNG_TEST};
    int rows = 0;

    for (uint32_t i = 0; i < OPENKBP_VOXELS; i += 97) {
        // all magnitudes, some not above 0
        uint32_t words[4];
        rng_block(&r, i, words);
        memcpy(&x[2 * i], words, sizeof *x);
        if (!isfinite(x[2 * i])) x[2 * i] = 70.5f;
        rows += x[2 * i] > 0;
    }

    x[1] = NAN; // another channel
    REQUIRE(openkbp_write_dose(path, &v));
    REQUIRE(openkbp_grid_read(path, OPENKBP_VALUES, &g));
    EXPECT_INT(g.count, rows);
    int wrong = 0;
    for (int i = 0; i < g.count; i++) wrong += g.value[i] != x[2 * g.index[i]];
    EXPECT_INT(wrong, 0);
    openkbp_grid_free(&g);

    // no value above 0; and a grid that is no dose
    memset(x, 0, tensor_bytes(&v.voxels));
    x[2 * 7] = -1;
    REQUIRE(openkbp_write_dose(path, &v));
    REQUIRE(openkbp_grid_read(path, OPENKBP_VALUES, &g));
    EXPECT_INT(g.count, 0);
    openkbp_grid_free(&g);
    x[2 * 9] = NAN;
    EXPECT_FAIL(openkbp_write_dose(path, &v),
                "written.csv: openkbp: voxel 9 is NaN, need a finite dose");
    x[2 * 9] = INFINITY;
    EXPECT_FAIL(openkbp_write_dose(path, &v), "voxel 9 is infinite, need a");
    x[2 * 9] = 1;
    EXPECT_FAIL(openkbp_write_dose("no/such/dose.csv", &v),
                "no/such/dose.csv: openkbp: cannot write");
    volume_free(&v);
}

// -- real patients ------------------------------------------------------------

/* Calls `each` with the folder of every real patient; returns their number. */
static int each_patient(void (*each)(const char *folder, void *ctx), void *ctx)
{
    static const char *const part[] = {"train-pats", "validation-pats",
                                       "test-pats"};
    int count = 0;

    for (int k = 0; k < 3; k++) {
        char folder[400], patient[700];
        snprintf(folder, sizeof folder, "%s/provided-data/%s", test_datasets(),
                 part[k]);
        DIR *dir = opendir(folder);
        for (const struct dirent *e; dir && (e = readdir(dir));) {
            if (strncmp(e->d_name, "pt_", 3)) continue;
            snprintf(patient, sizeof patient, "%s/%s", folder, e->d_name);
            each(patient, ctx);
            count++;
        }
        if (dir) closedir(dir);
    }
    return count;
}

/* Computes the centre of a structure in LPS mm. */
static void centre(const OpenkbpPatient *p, Volume *v, const char *name,
                   double mm[3])
{
    const SparseGrid *g = p->grid;
    for (int k = 0; k < OPENKBP_GRIDS; k++)
        if (!strcmp(openkbp_name[k], name)) g = &p->grid[k];
    double sum[3] = {0};
    for (int i = 0; i < g->count; i++) {
        int index = g->index[i];
        sum[0] += index % 128, sum[1] += index / 128 % 128;
        sum[2] += index / 128 / 128;
    }
    double n = g->count;
    volume_world(v, sum[0] / n, sum[1] / n, sum[2] / n, mm);
}

/* Anatomy that all people share shows the direction of the axes. An absent
 * structure has its centre at NaN, for which all comparisons are false. */
static void look_at_organs(const char *folder, void *ctx)
{
    int *wrong = ctx;
    OpenkbpPatient p;
    const SparseGrid *ct = &p.grid[OPENKBP_CT];
    Volume v;
    double left[3], right[3], stem[3], cord[3], jaw[3];

    REQUIRE(openkbp_read(folder, OPENKBP_ALL, true, &p));
    REQUIRE(openkbp_volume(&p, &ct, 1, &v));
    centre(&p, &v, "LeftParotid", left), centre(&p, &v, "RightParotid", right);
    centre(&p, &v, "Brainstem", stem), centre(&p, &v, "SpinalCord", cord);
    centre(&p, &v, "Mandible", jaw);
    *wrong += left[0] < right[0] + 50; // to the left is positive
    *wrong += jaw[1] > cord[1] - 30;   // to posterior is positive
    *wrong += stem[2] < cord[2] + 50;  // to superior is positive
    volume_free(&v);
    openkbp_free(&p);
}

TEST(openkbp_real_patients_lie_as_the_affine_says)
{
    int wrong = 0;
    int count = each_patient(look_at_organs, &wrong);
    if (!count) SKIP("the 32 OpenKBP patients are not here");
    EXPECT_INT(count, 32);
    EXPECT_INT(wrong, 0);
}

/* Writes the grids of one patient as binary numbers for openkbp_peer.py. */
static void dump(const char *folder, void *ctx)
{
    FILE *out = ctx;
    OpenkbpPatient p;
    REQUIRE(openkbp_read(folder, OPENKBP_ALL, true, &p));
    fprintf(out, "%s\n", folder);
    fwrite(p.spacing_mm, sizeof *p.spacing_mm, 3, out);

    for (int k = 0; k < OPENKBP_GRIDS; k++) {
        const SparseGrid *g = &p.grid[k];
        size_t n = (size_t)g->count;
        int32_t about[2] = {p.has[k] ? g->count : -1, g->value != NULL};
        fwrite(about, sizeof *about, 2, out);
        if (n) fwrite(g->index, sizeof *g->index, n, out);
        if (n && g->value) fwrite(g->value, sizeof *g->value, n, out);
    }
    openkbp_free(&p);
}

TEST(openkbp_agrees_with_numpy)
{
    if (system(PYTHON "-c 'import numpy' 2> /dev/null"))
        SKIP("python3-numpy is not installed (sh vendor/fetch test)");

    // real patients, else a synthetic one
    char path[300], folder[300], command[700];
    snprintf(path, sizeof path, "%s/openkbp.bin", test_folder());
    FILE *out = fopen(path, "wb");
    REQUIRE(out);
    make_patient(folder, "made");
    put(folder, "dose.csv",
        ",data\n3,1e-3\n5,70.123456789012345678\n7,3.4028235e38\n"
        "9,16777217\n11,0.30000001192092896\n13,+.5\n15,2.\n");
    dump(folder, out);
    int count = each_patient(dump, out);
    fclose(out);
    snprintf(command, sizeof command,
             PYTHON "tests/data/datasets/openkbp_peer.py %s", path);
    EXPECT(!system(command));
    remove(path);
    test_compared(count + 1, "OpenKBP patients, as NumPy reads them");
    if (!count) SKIP("one made patient agrees; the 32 real ones are not here");
}

/* Removes the rows that end in ",0.0"; returns the remaining bytes. */
static size_t drop_zeros(char *text, size_t n)
{
    size_t kept = 0;
    for (size_t at = 0, next; at < n; at = next) {
        next = (size_t)((char *)memchr(text + at, '\n', n - at) - text) + 1;
        if (next - at > 5 && !memcmp(text + next - 5, ",0.0\n", 5)) continue;
        memmove(text + kept, text + at, next - at);
        kept += next - at;
    }
    return kept;
}

/* The file of doses that segengine writes equals the original byte for byte,
 * except for rows of zeros, of which some files have thousands. */
static void rewrite(const char *folder, void *ctx)
{
    char from[800], to[300];
    OpenkbpPatient p;
    Volume v;
    Arena mem = {0};
    char *was, *is;
    size_t was_bytes, is_bytes;

    REQUIRE(openkbp_read(folder, OPENKBP_ALL, true, &p));
    const SparseGrid *dose = &p.grid[OPENKBP_DOSE];
    REQUIRE(openkbp_volume(&p, &dose, 1, &v));
    snprintf(from, sizeof from, "%s/dose.csv", folder);
    snprintf(to, sizeof to, "%s/again.csv", test_folder());
    REQUIRE(openkbp_write_dose(to, &v));
    REQUIRE(file_read(from, 1 << 30, &mem, &was, &was_bytes));
    REQUIRE(file_read(to, 1 << 30, &mem, &is, &is_bytes));
    was_bytes = drop_zeros(was, was_bytes);
    *(int *)ctx += was_bytes != is_bytes || memcmp(was, is, is_bytes);
    arena_release(&mem);
    volume_free(&v);
    openkbp_free(&p);
}

TEST(openkbp_real_doses_are_written_as_they_were)
{
    int changed = 0;
    if (!each_patient(rewrite, &changed))
        SKIP("the 32 OpenKBP patients are not here");
    EXPECT_INT(changed, 0);
}
