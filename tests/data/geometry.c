/* geometry.c -- tests of positions, from the files of a patient to a sample.
 *
 * A phantom image has three channels, one for each axis of the file: each voxel
 * stores its index along the axis, a number that every voxel type represents
 * exactly. The tests read the files, run preprocessing steps, extract the
 * samples, and interpolate at the known patient positions of some landmark
 * voxels: the three values must be the index of the landmark, and the
 * difference is the error in voxels. The tests write the files byte by byte and
 * compute the affine themselves, so that they trust no reader or writer. A mask
 * with a cube of one label around each landmark is read in the same way: the
 * voxel nearest to the landmark must have that label. */
#include "tests/support/dicom_make.h"
#include "tests/support/nifti_make.h"
#include "tests/support/volumes.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <zlib.h>

enum { NW = 9, NH = 8, ND = 7, VOXELS = NW * NH * ND, LANDMARKS = 4 };
static const int extent[3] = {NW, NH, ND};

/* At least two voxels from every border, because interpolation needs
 * neighbours; cubes of 3 x 3 x 3 around the landmarks do not touch. */
static const int landmark[LANDMARKS][3] = {
    {2, 2, 2}, {6, 2, 3}, {2, 5, 4}, {5, 5, 2}};

static const double turns[3] = {0, 0.3, -1.1};
static const double edges[3][3] = {{0.9, 1.25, 2.5}, {1, 1, 1}, {0.5, 0.7, 3}};

/* Each case is prepared without steps, and with one of these; the new grids are
 * at most twice as coarse. */
static const char *const steps_of[] = {
    "orient plane=coronal\n",
    "slices axis=axial\n",
    "resample spacing_mm=0.8,0.8,0.8\nslices axis=sagittal\n",
    "fit d=9 h=6 w=12\nslices axis=stored\n",
    "resize d=11 h=13 w=10\nslices axis=coronal\n",
    "crop to=label margin=1\nresample spacing_mm=0,0,0.9\n",
};
enum { STEPS = sizeof steps_of / sizeof *steps_of };

/* Results so far. */
typedef struct Tally {
    int cases, landmarks, labels, off, wrong;
    double worst;
} Tally;

/* Returns channel 0 .. 2 of voxel i, or (3) the mask. */
static int value_of(int channel, int i)
{
    const int at[3] = {i % NW, i / NW % NH, i / (NW * NH)};
    if (channel < 3) return at[channel];
    for (int l = 0; l < LANDMARKS; l++)
        if (abs(at[0] - landmark[l][0]) < 2 &&
            abs(at[1] - landmark[l][1]) < 2 && abs(at[2] - landmark[l][2]) < 2)
            return l + 1;
    return 0;
}

/* Interpolates the samples of a prepared case, all its slices, linearly at an
 * index: got[] receives the channels of a field. */
static void read_at(const Prepared *p, const float *voxels, int channels,
                    const double at[3], double got[3])
{
    const int n[3] = {p->grid.w, p->grid.h, p->grid.d};
    memset(got, 0, (size_t)channels * sizeof *got);

    for (int corner = 0; corner < 8; corner++) {
        double weight = 1;
        int64_t i[3];
        for (int a = 0; a < 3; a++) {
            double low = floor(at[a]);
            bool up = corner >> a & 1;
            weight *= up ? at[a] - low : 1 - (at[a] - low);
            i[a] = (int64_t)low + up;
        }
        // no landmark needs a position beyond the grid
        if (weight < 1e-9) continue;
        for (int a = 0; a < 3; a++) REQUIRE(i[a] >= 0 && i[a] < n[a]);
        const float *v =
            voxels + ((i[2] * n[1] + i[1]) * n[0] + i[0]) * channels;
        for (int c = 0; c < channels; c++) got[c] += weight * (double)v[c];
    }
}

/* Returns all voxels of a field, slice by slice, as samples are extracted. */
static float *samples_of(const Prepared *p, int field)
{
    const int channels = p->field[field].dim.c;
    const int64_t slice = (int64_t)p->grid.h * p->grid.w * channels;
    float *v = mem_alloc((size_t)(slice * p->grid.d) * sizeof *v);
    REQUIRE(v);
    for (int32_t d = 0; d < p->grid.d; d++) {
        const Box box = {{0, 0, d}, {p->grid.w, p->grid.h, 1}};
        prepared_sample(p, field, &box, v + d * slice);
    }
    return v;
}

/* Checks one prepared case from files with this affine. */
static void look_up(const Prepared *p, double affine[4][4], bool mask, Tally *t)
{
    double inverse[4][4], there[4][4];
    float *v = samples_of(p, 0), *labels = mask ? samples_of(p, 1) : NULL;
    memcpy(there, p->grid.affine, sizeof there);
    REQUIRE(affine_invert(there, inverse));
    affine_multiply(inverse, affine, there);

    for (int l = 0; l < LANDMARKS; l++) {
        double at[3], got[3], far = 0;
        for (int a = 0; a < 3; a++)
            at[a] = there[a][0] * landmark[l][0] +
                    there[a][1] * landmark[l][1] +
                    there[a][2] * landmark[l][2] + there[a][3];
        read_at(p, v, 3, at, got);
        for (int a = 0; a < 3; a++) far = hypot(far, got[a] - landmark[l][a]);
        t->landmarks++;
        t->off += !(far <= 1e-3);
        t->worst = fmax(t->worst, far);
        if (!mask) continue;
        for (int a = 0; a < 3; a++) at[a] = floor(at[a] + 0.5);
        read_at(p, labels, 1, at, got);
        t->labels++;
        t->wrong += got[0] != l + 1;
    }

    mem_free(labels);
    mem_free(v);
}

/* Checks the cases of a data set, whose keys end in their axis code, after the
 * pipeline has prepared them. */
static void look(Dataset *ds, double affine[MADE_CODES][4][4], bool mask,
                 int variant, Tally *t)
{
    EXPECT_INT(ds->count, MADE_CODES);
    Pipeline *all[1 + STEPS] = {made_pipeline(ds, "")};
    for (int s = 0; s < STEPS; s++)
        if (mask || !strstr(steps_of[s], "label"))
            all[1 + s] = made_pipeline(ds, steps_of[s]);

    for (int i = 0; i < ds->count; i++) {
        const char *digits = strpbrk(ds->cases[i].key, "0123456789");
        int code = digits ? atoi(digits) : -1;
        REQUIRE(code >= 0 && code < MADE_CODES);
        Pipeline *other = all[1 + (code + variant) % STEPS];
        Pipeline *const used[] = {all[0], other ? other : all[1]};
        for (int k = 0; k < 2; k++) {
            const Prepared *p;
            REQUIRE(pipeline_get(used[k], i, &p));
            look_up(p, affine[code], mask, t);
            pipeline_put(used[k], p);
        }
        t->cases++;
    }

    for (int s = 0; s < 1 + STEPS; s++) pipeline_free(all[s]);
    dataset_free(ds);
}

static void report(const Tally *t)
{
    printf("  %d cases, %d landmarks, worst %.2g voxel, %d off; %d in masks, "
           "%d wrong\n",
           t->cases, t->landmarks, t->worst, t->off, t->labels, t->wrong);
    EXPECT_INT(t->off, 0);
    EXPECT_INT(t->wrong, 0);
}

/* ---- NIfTI -------------------------------------------------------------- */

static void save(const char *path, const uint8_t *bytes, size_t n)
{
    size_t length = strlen(path);
    bool gz = !strcmp(path + length - 3, ".gz");
    // "T": uncompressed
    gzFile f = gzopen(path, gz ? "wb1" : "wbT");
    REQUIRE(f && gzwrite(f, bytes, (unsigned)n) == (int)n);
    REQUIRE(gzclose(f) == Z_OK);
}

/* Computes the quaternion of a rotation, its largest component first. */
static void quaternion_of(double r[3][3], double q[4])
{
    const double s[4][3] = {{1, 1, 1}, {1, -1, -1}, {-1, 1, -1}, {-1, -1, 1}};
    double square[4];
    int big = 0;

    for (int i = 0; i < 4; i++) {
        square[i] =
            (1 + s[i][0] * r[0][0] + s[i][1] * r[1][1] + s[i][2] * r[2][2]) / 4;
        if (square[i] > square[big]) big = i;
    }

    // products of two of the four components
    double p[4][4] = {{0}};
    p[0][1] = (r[2][1] - r[1][2]) / 4, p[0][2] = (r[0][2] - r[2][0]) / 4;
    p[0][3] = (r[1][0] - r[0][1]) / 4, p[1][2] = (r[0][1] + r[1][0]) / 4;
    p[1][3] = (r[0][2] + r[2][0]) / 4, p[2][3] = (r[1][2] + r[2][1]) / 4;
    double largest = sqrt(square[big]);
    for (int i = 0; i < 4; i++)
        q[i] = i == big ? largest : (i < big ? p[i][big] : p[big][i]) / largest;

    // the first component is not stored and is taken as positive
    for (int i = 3; i >= 0; i--) q[i] = q[0] < 0 ? -q[i] : q[i];
}

/* Variants of NIfTI files. */
typedef struct NiftiKind {
    int version, container, form, type, units, scale;
    bool big;
} NiftiKind;

static const struct {
    int code, bits;
    char put;
} types[] = {{2, 8, 'b'},   {256, 8, 'b'},  {4, 16, 's'},    {512, 16, 's'},
             {8, 32, 'i'},  {768, 32, 'i'}, {1024, 64, 'l'}, {1280, 64, 'l'},
             {16, 32, 'f'}, {64, 64, 'd'}};
enum { TYPES = sizeof types / sizeof *types };
static const char *const endings[] = {".nii", ".nii.gz", ".hdr"};
// stored = (value - inter) / slope is whole
static const double scales[3][2] = {{1, 0}, {0.5, -3}, {0, 0}};

static void put_forms(Maker *m, const NiftiKind *k, double lps[4][4])
{
    // metres, millimetres, micrometres
    static const double per_mm[4] = {0, 1e-3, 1, 1e3};
    double ras[3][4], r[3][3], q[4], scale = per_mm[k->units];

    for (int i = 0; i < 3; i++)
        for (int a = 0; a < 4; a++)
            ras[i][a] = lps[i][a] * (i < 2 ? -scale : scale);
    for (int a = 0; a < 3; a++) {
        double mm = hypot(hypot(ras[0][a], ras[1][a]), ras[2][a]);
        set(m, &pixdim, 1 + a, mm);
        for (int i = 0; i < 3; i++) r[i][a] = ras[i][a] / mm;
    }

    double det = r[0][0] * (r[1][1] * r[2][2] - r[1][2] * r[2][1]) -
                 r[0][1] * (r[1][0] * r[2][2] - r[1][2] * r[2][0]) +
                 r[0][2] * (r[1][0] * r[2][1] - r[1][1] * r[2][0]);

    // a mirror flips the third axis
    for (int i = 0; i < 3; i++) r[i][2] *= det;
    quaternion_of(r, q);
    set(m, &pixdim, 0, det);
    set(m, &units, 0, k->units);
    set(m, &sform, 0, k->form != 1 ? 2 : 0);
    set(m, &qform, 0, k->form != 0);
    for (int i = 0; i < 3; i++) {
        set(m, &quatern, i, q[1 + i]);
        set(m, &offset, i, ras[i][3]);
        for (int a = 0; a < 4; a++) set(m, &srow, i * 4 + a, ras[i][a]);
    }
}

/* Writes one channel of a case, or its mask. */
static void make_nifti(const char *folder, int code, int channel,
                       const NiftiKind *k, double lps[4][4])
{
    static const char letter[] = "xyzm";
    char path[500];
    Maker m;
    int type = channel == 3 ? 0 : k->type;
    double by = scales[k->scale][0], from = scales[k->scale][1];

    if (channel == 3 || by == 0) by = 1, from = 0;
    make(&m, k->version, k->big);
    for (int a = 0; a < 3; a++) set(&m, &dim, 1 + a, extent[a]);
    set(&m, &datatype, 0, types[type].code);
    set(&m, &bitpix, 0, types[type].bits);
    set(&m, &slope, 0, channel == 3 ? 1 : scales[k->scale][0]);
    set(&m, &inter, 0, from);
    put_forms(&m, k, lps);
    size_t begin = k->version == 1 ? 352 : 544, size = types[type].bits / 8;
    for (int i = 0; i < VOXELS; i++)
        put(&m, begin + (size_t)i * size, types[type].put,
            (value_of(channel, i) - from) / by);
    size_t end = begin + (size_t)VOXELS * size;
    snprintf(path, sizeof path, "%s/c%02d_%c%s", folder, code, letter[channel],
             endings[k->container]);

    if (k->container == 2) {
        // header and image in two files
        m.bytes[k->version == 1 ? 345 : 5] = 'i';
        set(&m, &vox_offset, 0, 0);
        save(path, m.bytes, k->version == 1 ? 348 : 540);
        memcpy(strrchr(path, '.'), ".img", 4);
        save(path, m.bytes + begin, end - begin);
    } else {
        save(path, m.bytes, end);
    }
}

TEST(geometry_of_nifti_holds_every_landmark)
{
    Tally t = {.cases = 0};
    for (int variant = 0; variant < 27; variant++) {
        char folder[400];
        double affine[MADE_CODES][4][4];
        NiftiKind k = {.container = variant % 3, .form = variant / 3 % 3};
        snprintf(folder, sizeof folder, "%s/nifti%02d", test_folder(), variant);
        REQUIRE(!mkdir(folder, 0700));
        for (int code = 0; code < MADE_CODES; code++) {
            k.version = 1 + (code + variant) % 2;
            k.type = (code + variant * 3) % TYPES;
            k.units = code % 5 ? 2 : 1 + code % 2 * 2;
            k.scale = (code / 3 + variant) % 3;
            k.big = (code / 2 + variant) % 2;
            made_affine(code, turns[variant / 9], edges[(code + variant) % 3],
                        affine[code]);
            for (int c = 0; c < 4; c++)
                make_nifti(folder, code, c, &k, affine[code]);
        }
        const DatasetNifti how = {
            .all = {.labels = {1, 2, 3, 4}, .label_count = 4},
            .image = {"*_x", "*_y", "*_z"},
            .images = 3,
            .mask = "*_m",
            .patient = PATIENT_FILE};
        Dataset *ds;
        REQUIRE(dataset_nifti(folder, &how, &ds));
        look(ds, affine, true, variant, &t);
    }

    report(&t);
    EXPECT_INT(t.cases, 27 * MADE_CODES);
}

/* ---- DICOM -------------------------------------------------------------- */

static DicomSeries person(char text[3][64], int code)
{
    snprintf(text[0], 64, "P%02d", code);
    snprintf(text[1], 64, "2.25.4%02d", code);
    snprintf(text[2], 64, "2.25.5%02d", code);
    return (DicomSeries){
        .patient_id = text[0], .study_uid = text[1], .frame_uid = text[2]};
}

/* Writes slice k of a channel, file `file` of the series. */
static void make_slice(const char *path, const DicomSeries *who, int code,
                       int channel, int k, int file, int kind,
                       double affine[4][4])
{
    static const char *const called[] = {"x", "y", "z", "mask"};

    // bits, signed, slope, intercept
    static const struct {
        int allocated, stored;
        bool is_signed;
        double slope, intercept;
    } how[3] = {
        {16, 12, false, 1, 0}, {16, 16, true, 0.5, -3}, {8, 8, false, 1, -2}};
    Make m;
    char uid[64];
    double at[3], o[6], mm[3];
    double by = how[kind].slope, from = how[kind].intercept;

    if (channel == 3) by = 1, from = 0;
    for (int a = 0; a < 3; a++)
        mm[a] = hypot(hypot(affine[0][a], affine[1][a]), affine[2][a]);
    for (int a = 0; a < 3; a++) {
        at[a] = affine[a][3] + k * affine[a][2];
        o[a] = affine[a][0] / mm[0];
        o[3 + a] = affine[a][1] / mm[1];
    }

    snprintf(uid, sizeof uid, "2.25.6%02d%d", code, channel);
    make_begin_of(&m, "1.2.840.10008.5.1.4.1.1.4", uid, who, file);
    make_text(&m, TAG_Modality, "MR");
    make_text(&m, TAG_SeriesDescription, "%s", called[channel]);
    make_text(&m, TAG_InstanceNumber, "%d", file);
    make_numbers(&m, TAG_ImagePositionPatient, at, 3);
    make_numbers(&m, TAG_ImageOrientationPatient, o, 6);
    make_numbers(&m, TAG_PixelSpacing, (double[2]){mm[1], mm[0]}, 2);
    make_numbers(&m, TAG_SliceThickness, &mm[2], 1);
    make_text(&m, TAG_PhotometricInterpretation, "MONOCHROME2");
    make_pixels(&m, 0, NH, NW, how[kind].allocated, how[kind].stored,
                how[kind].is_signed);
    make_numbers(&m, TAG_RescaleIntercept, &from, 1);
    make_numbers(&m, TAG_RescaleSlope, &by, 1);
    uint8_t pixels[NW * NH * 2] = {0};
    int bytes = how[kind].allocated / 8;
    for (int i = 0; i < NW * NH; i++)
        pixels[i * bytes] =
            (uint8_t)lround((value_of(channel, k * NW * NH + i) - from) / by);
    make_put(&m, TAG_PixelData, pixels, (size_t)(NW * NH * bytes));
    make_save(&m, path);
}

/* Returns the position in the stack of the file that comes i-th. */
static int place_of(int order, int i)
{
    return order == 0 ? i : order == 1 ? ND - 1 - i : (3 * i + 1) % ND;
}

TEST(geometry_of_dicom_holds_every_landmark)
{
    Tally t = {.cases = 0};
    for (int variant = 0; variant < 3; variant++) {
        double affine[MADE_CODES][4][4];
        char name[40], text[3][64], path[600];
        snprintf(name, sizeof name, "dicom%02d", variant);
        const char *folder = kit_folder(name);
        for (int code = 0; code < MADE_CODES; code++) {
            const DicomSeries who = person(text, code);
            made_affine(code, turns[variant], edges[(code + variant) % 3],
                        affine[code]);
            for (int i = 0; i < 4 * ND; i++) {
                int k = place_of(code % 3, i % ND), kind = code / 2 % 3;
                snprintf(path, sizeof path, "%s/%02d-%03d", folder, code, i);
                make_slice(path, &who, code, i / ND, k, 1 + i % ND, kind,
                           affine[code]);
            }
        }
        const DatasetDicom how = {
            .all = {.labels = {1, 2, 3, 4}, .label_count = 4},
            .image = {"x", "y", "z"},
            .images = 3,
            .mask = "mask"};
        Dataset *ds;
        REQUIRE(dataset_dicom(folder, &how, &ds));
        look(ds, affine, true, variant, &t);
    }

    report(&t);
    EXPECT_INT(t.cases, 3 * MADE_CODES);
}

TEST(geometry_of_multi_frame_dicom_holds_every_landmark)
{
    Tally t = {.cases = 0};
    for (int variant = 0; variant < 3; variant++) {
        double affine[MADE_CODES][4][4];
        char name[64], text[3][64], path[600], uid[64];
        snprintf(name, sizeof name, "multi%02d", variant);
        const char *folder = kit_folder(name);
        int order[ND];
        for (int code = 0; code < MADE_CODES; code++) {
            const DicomSeries who = person(text, code);
            made_affine(code, turns[variant], edges[(code + variant) % 3],
                        affine[code]);
            snprintf(path, sizeof path, "%s/%02d", folder, code);
            REQUIRE(!mkdir(path, 0700));
            for (int i = 0; i < ND; i++) order[i] = place_of(code % 3, i);
            for (int c = 0; c < 3; c++) {
                Volume v;
                REQUIRE(volume_new(&v, (Dims){1, ND, NH, NW, 1}, I16));
                memcpy(v.affine, affine[code], sizeof v.affine);
                for (int i = 0; i < VOXELS; i++)
                    ((int16_t *)v.voxels.data)[i] = (int16_t)value_of(c, i);
                snprintf(uid, sizeof uid, "2.25.7%02d%d", code, c);
                snprintf(path, sizeof path, "%s/%02d/%c", folder, code,
                         'x' + c);
                REQUIRE(!mkdir(path, 0700));
                strcat(path, "/multi");
                make_multi(&(MadeMulti){.v = &v,
                                        .same_study = &who,
                                        .series_uid = uid,
                                        .order = order,
                                        .each = code / 3 % 2},
                           path);
                volume_free(&v);
            }
        }
        const DatasetDicom how = {.image = {"x", "y", "z"}, .images = 3};
        Dataset *ds;
        REQUIRE(dataset_dicom(folder, &how, &ds));
        look(ds, affine, false, variant, &t);
    }

    report(&t);
    EXPECT_INT(t.cases, 3 * MADE_CODES);
}
