/* write.c -- series that are written and read back, in every transfer
 * syntax. */
#include "data/dicom/frames.h"
#include "data/dicom/tag.h"
#include "tests/support/dicom_damage.h"
#include "tests/support/dicom_series.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void expect_same(const Volume *a, const Volume *b)
{
    REQUIRE(dims_equal(a->voxels.dim, b->voxels.dim));
    REQUIRE(b->voxels.type == I16);
    EXPECT(!memcmp(a->voxels.data, b->voxels.data, tensor_bytes(&a->voxels)));
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 4; c++)
            EXPECT_NEAR(b->affine[r][c], a->affine[r][c], 1e-9);
}

TEST(dicom_write_all_syntaxes_come_back)
{
    if (!dicom_ready()) SKIP("built without DCMTK");
    for (int syntax = 0; syntax < DICOM_SYNTAX_COUNT; syntax++)
        for (int form = 0; form < 6; form++) {
            Arena a = {0};
            Volume v, back;
            char name[64];
            kit_volume(&v, 3, 5, 7, form % 2);
            int16_t *p = v.voxels.data;
            DicomWrite how = kit_write();
            how.syntax = (DicomSyntax)syntax;
            how.shuffle = true;
            how.is_signed = form == 1 || form == 4;
            how.monochrome1 = form == 2 || form == 4;
            if (how.is_signed)
                for (int i = 0; i < 105; i++) p[i] = (int16_t)(p[i] - 2048);
            if (form == 3) how.slope = 2, how.intercept = -100;
            if (form == 3)
                for (int i = 0; i < 105; i++) p[i] = (int16_t)(p[i] * 2 - 100);
            if (form == 5) {
                how.bits_stored = 8;
                for (int i = 0; i < 105; i++) p[i] = (int16_t)(p[i] % 256);
            }
            snprintf(name, sizeof name, "syntax%d_%d", syntax, form);
            const char *folder = kit_folder(name);
            REQUIRE(dicom_write_series(folder, &v, &how));
            DicomNotes notes = {0};
            bool ok = dicom_load(kit_series(&a, folder), NULL, &back, &notes);
            EXPECT(ok);
            if (ok) expect_same(&v, &back);
            EXPECT(kit_noted(&notes, "MONOCHROME1 inverted") ==
                   how.monochrome1);
            EXPECT(kit_noted(&notes, "sign extended from 12 bits") ==
                   how.is_signed);
            EXPECT(kit_noted(&notes, "big endian") ==
                   (syntax == DICOM_BIG_ENDIAN));
            EXPECT(kit_noted(&notes, "InstanceNumber not in spatial order"));
            dicom_notes_free(&notes);
            volume_free(&v);
            volume_free(&back);
            arena_release(&a);
        }
}

/* Noise hardly compresses: files of about the size of the writer's buffer, and
 * of several times its size. */
TEST(dicom_write_large_slices_come_back)
{
    for (int h = 150; h <= 700; h += h < 230 ? 4 : 90) {
        Arena a = {0};
        Volume v, back;
        char name[64];
        uint32_t state = (uint32_t)h;
        kit_volume(&v, 1, h, 200, false);
        int16_t *p = v.voxels.data;
        for (int i = 0; i < h * 200; i++) {
            state = state * 1664525u + 1013904223u;
            p[i] = (int16_t)(state >> 20);
        }
        DicomWrite how = kit_write();
        how.syntax = DICOM_DEFLATED;
        snprintf(name, sizeof name, "large%d", h);
        const char *folder = kit_folder(name);
        REQUIRE(dicom_write_series(folder, &v, &how));
        bool ok = dicom_load(kit_series(&a, folder), NULL, &back, NULL);
        EXPECT(ok);
        if (ok) expect_same(&v, &back);
        volume_free(&v);
        if (ok) volume_free(&back);
        arena_release(&a);
    }
}

#if !defined(__SANITIZE_ADDRESS__)
// bytes of address space in use, from the first number of statm
static rlim_t address_space(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}
#endif

TEST(dicom_write_no_memory_to_decode_is_not_damage)
{
    if (!dicom_ready()) SKIP("built without DCMTK");
#if defined(__SANITIZE_ADDRESS__)
    SKIP("a sanitizer needs the address space");
#else
    // a frame so large that the decoder cannot take it from free blocks
    Volume v;
    KitFile f;
    char path[600];
    REQUIRE(volume_new(&v, (Dims){1, 1, 6000, 6000, 1}, U8));
    ((uint8_t *)v.voxels.data)[7] = 1;
    DicomWrite how = kit_write();
    how.bits_stored = 8, how.syntax = DICOM_JPEG_LS;
    const char *folder = kit_folder("nomemory");
    REQUIRE(dicom_write_series(folder, &v, &how));
    snprintf(path, sizeof path, "%s/IM0001.dcm", folder);
    REQUIRE(kit_read(path, &f));
    Arena a = {0};
    Walk w;
    DicomHeader h;
    WalkInput in = {
        .path = path, .bytes = f.bytes, .have = f.size, .size = f.size};
    REQUIRE(walk_file(&in, &w) == WALK_DONE);
    REQUIRE(header_identity(&w, &a, &h));
    REQUIRE(header_image(&w, NULL, false, folder, &h, NULL));
    REQUIRE(frames_check(&w, &h, folder, NULL));
    fflush(stdout);
    pid_t child = fork();

    if (!child) {
        struct rlimit most = {address_space() + (8 << 20), RLIM_INFINITY};
        if (setrlimit(RLIMIT_AS, &most)) _exit(2);
        // use up the memory that earlier tests have freed
        for (void *volatile taken = v.voxels.data; taken;)
            taken = malloc(16 << 20);
        // decode into the pixels of the volume
        if (frames_decode(&w, &h, v.voxels.data)) _exit(3);
        if (err_kind() != ERR_FAILURE) _exit(4);
        _exit(strstr(err_text(), "no memory to decode a frame of 6000 x 6000")
                  ? 0
                  : 5);
    }

    int status = -1;
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT_INT(status, 0);
    EXPECT(frames_decode(&w, &h, v.voxels.data));
    walk_free(&w);
    mem_free(f.bytes);
    arena_release(&a);
    volume_free(&v);
#endif
}

// runs an external tool on every file of a folder
static bool convert(const char *tool, const char *from, const char *to, int n)
{
    for (int i = 1; i <= n; i++) {
        char command[1200];
        snprintf(command, sizeof command,
                 "%s %s/IM%04d.dcm %s/IM%04d.dcm >%s/log 2>&1", tool, from, i,
                 to, i, test_folder());
        if (system(command)) return false;
    }
    return true;
}

/* Compresses a series of `slices` files with each of these tools, and reads it.
 * Returns how many files were equal. */
static int packed_by(const char *const *tools, size_t count, const char *name)
{
    enum { SLICES = 3 };
    static const struct {
        int bits;
        bool is_signed, monochrome1;
        double slope, intercept;
    } kind[] = {{12, false, false, 0, 0},
                {16, true, false, 2, -900},
                {16, false, true, 0, 0}};
    int files = 0;
    Volume v;
    kit_volume(&v, SLICES, 16, 12, true);

    // two slopes need even numbers
    for (int i = 0; i < SLICES * 16 * 12; i++)
        ((int16_t *)v.voxels.data)[i] &= ~1;

    for (size_t k = 0; k < sizeof kind / sizeof *kind; k++) {
        char folder[80];
        DicomWrite how = kit_write();
        how.bits_stored = kind[k].bits, how.is_signed = kind[k].is_signed;
        how.monochrome1 = kind[k].monochrome1;
        how.slope = kind[k].slope, how.intercept = kind[k].intercept;
        snprintf(folder, sizeof folder, "%s%zu", name, k);
        const char *plain = kit_folder(folder);
        REQUIRE(dicom_write_series(plain, &v, &how));
        for (size_t i = 0; i < count; i++) {
            Arena a = {0};
            Volume back;
            snprintf(folder, sizeof folder, "%s%zu_%zu", name, k, i);
            const char *packed = kit_folder(folder);
            EXPECT(convert(tools[i], plain, packed, SLICES));
            bool ok = dicom_load(kit_series(&a, packed), NULL, &back, NULL);
            if (!ok) printf("  %s\n", tools[i]);
            EXPECT(ok);
            if (ok) expect_same(&v, &back);
            files += ok * SLICES;
            volume_free(&back);
            arena_release(&a);
        }
    }

    volume_free(&v);
    return files;
}

TEST(dicom_write_other_writers_are_read)
{
    if (!dicom_ready()) SKIP("built without DCMTK");
    static const char *const tools[] = {
        "dcmcrle",        "dcmcjpeg +e1",  "dcmcjpeg +el", "dcmcjpls +el",
        "dcmconv +ti",    "dcmconv +tb",   "dcmconv +td",  "dcmconv -e",
        "dcmconv +te +g", "dcmcjpls +fs 1"};
    enum { TOOLS = sizeof tools / sizeof *tools };
    if (system("dcmcrle --version >/dev/null 2>&1"))
        SKIP("the tools of DCMTK are not installed (sh vendor/fetch test)");
    test_compared(packed_by(tools, TOOLS, "dcmtk"), "DICOM of DCMTK's tools");
}

TEST(dicom_write_lossy_jpeg_is_read_and_noted)
{
    if (!dicom_ready()) SKIP("built without DCMTK");
    // a smooth picture, which is restored to within a few of 256 or 4096
    static const struct {
        const char *tool, *name;
        int bits, off;
    } row[] = {
        {"dcmcjpeg +eb +q 95 +Ww 128 256", "lossy JPEG baseline", 8, 4},
        {"dcmcjpeg +ee +q 95 +Ww 2048 4096", "lossy JPEG extended", 12, 24}};
    if (system("dcmcrle --version >/dev/null 2>&1"))
        SKIP("the tools of DCMTK are not installed (sh vendor/fetch test)");

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        Arena a = {0};
        Volume v, back;
        DicomNotes notes = {0};
        DicomWrite how = kit_write();
        char name[64];
        how.bits_stored = row[r].bits;
        kit_volume(&v, 2, 24, 16, false);
        int16_t *p = v.voxels.data;
        for (int i = 0; i < 2 * 24 * 16; i++)
            p[i] =
                (int16_t)((20 + i % 16 * 6 + i / 16 * 2) << row[r].bits >> 8);
        snprintf(name, sizeof name, "lossy%zu", r);
        const char *plain = kit_folder(name);
        REQUIRE(dicom_write_series(plain, &v, &how));
        snprintf(name, sizeof name, "lossy%zu_packed", r);
        const char *packed = kit_folder(name);
        REQUIRE(convert(row[r].tool, plain, packed, 2));
        REQUIRE(dicom_load(kit_series(&a, packed), NULL, &back, &notes));
        EXPECT(kit_noted(&notes, row[r].name));
        REQUIRE(back.voxels.type == I16);
        int worst = 0, off;
        for (int i = 0; i < 2 * 24 * 16; i++) {
            off = abs(((int16_t *)back.voxels.data)[i] - p[i]);
            if (off > worst) worst = off;
        }
        EXPECT(worst <= row[r].off);
        dicom_notes_free(&notes);
        volume_free(&v);
        volume_free(&back);
        arena_release(&a);
    }
}

TEST(dicom_write_what_gdcm_packs_is_read)
{
    if (!dicom_ready()) SKIP("built without DCMTK");
    static const char *const tools[] = {"gdcmconv --rle", "gdcmconv --jpeg",
                                        "gdcmconv --jpegls",
                                        "gdcmconv --implicit"};
    enum { TOOLS = sizeof tools / sizeof *tools };
    if (system("command -v gdcmconv >/dev/null"))
        SKIP("gdcmconv is not installed (sh vendor/fetch test)");
    test_compared(packed_by(tools, TOOLS, "gdcm"), "DICOM of gdcm");
}

static bool load_damaged(void *ctx)
{
    Arena a = {0};
    DicomIndex index;
    Volume v;
    bool ok = dicom_scan(ctx, NULL, &a, &index) &&
              dicom_load(index.series, NULL, &v, NULL);
    if (ok) volume_free(&v);
    arena_release(&a);
    return ok;
}

TEST(dicom_write_packed_frames_damaged_are_refused)
{
    if (!dicom_ready()) SKIP("built without DCMTK");
    static const DicomSyntax syntaxes[] = {DICOM_RLE, DICOM_JPEG_LOSSLESS};
    Volume v;
    kit_volume(&v, 2, 6, 7, false);

    for (int k = 0; k < 2; k++) {
        char name[40], path[600];
        DicomWrite how = kit_write();
        how.syntax = syntaxes[k];
        snprintf(name, sizeof name, "packed_damage%d", k);
        char *folder = (char *)kit_folder(name);
        REQUIRE(dicom_write_series(folder, &v, &how));
        snprintf(path, sizeof path, "%s/IM0002.dcm", folder);
        EXPECT(damage_elements(path, load_damaged, folder) > 100);
        damage_memory(load_damaged, folder);
    }
    volume_free(&v);
}

TEST(dicom_write_same_arguments_same_bytes)
{
    Volume v;
    kit_volume(&v, 5, 4, 6, false);
    DicomWrite how = kit_write();
    how.shuffle = true;
    const char *a = kit_folder("same_a"), *b = kit_folder("same_b");
    REQUIRE(dicom_write_series(a, &v, &how));
    REQUIRE(dicom_write_series(b, &v, &how));

    for (int i = 1; i <= 5; i++) {
        char path[600];
        KitFile x, y;
        snprintf(path, sizeof path, "%s/IM%04d.dcm", a, i);
        REQUIRE(kit_read(path, &x));
        snprintf(path, sizeof path, "%s/IM%04d.dcm", b, i);
        REQUIRE(kit_read(path, &y));
        EXPECT(x.size == y.size && !memcmp(x.bytes, y.bytes, x.size));
        mem_free(x.bytes);
        mem_free(y.bytes);
    }
    volume_free(&v);
}

TEST(dicom_write_refuses_what_bits_cannot_hold)
{
    Volume v;
    kit_volume(&v, 2, 4, 4, false);
    DicomWrite how = kit_write();
    how.bits_stored = 8;
    const char *folder = kit_folder("narrow");
    EXPECT_FAIL(dicom_write_series(folder, &v, &how),
                "which 8 unsigned bits cannot hold");
    EXPECT_FAIL(dicom_write_series("/nowhere/at/all", &v, &how),
                "/nowhere/at/all: cannot make folder: ");
    volume_free(&v);
}

TEST(dicom_write_ct_is_in_hu)
{
    Arena a = {0};
    Volume v, back;
    kit_volume(&v, 3, 4, 5, false);
    int16_t *p = v.voxels.data;
    for (int i = 0; i < 60; i++) p[i] = (int16_t)(p[i] - 1024);
    DicomWrite how = kit_write();
    how.modality = "CT", how.slope = 1, how.intercept = -1024;
    const char *folder = kit_folder("ct");
    REQUIRE(dicom_write_series(folder, &v, &how));
    REQUIRE(dicom_load(kit_series(&a, folder), NULL, &back, NULL));
    expect_same(&v, &back);
    EXPECT_INT(back.unit, UNIT_HU);
    volume_free(&v);
    volume_free(&back);
    arena_release(&a);
}

// eight threads, one series each, half of them compressed
enum { THREADS = 8 };

typedef struct Job {
    const DicomSeries *series;
    Volume out;
    bool ok;
} Job;

static void *load_job(void *argument)
{
    Job *job = argument;
    job->ok = dicom_load(job->series, NULL, &job->out, NULL);
    return NULL;
}

TEST(dicom_write_threads_load_at_once)
{
    if (!dicom_ready()) SKIP("built without DCMTK");
    Arena a = {0};
    Volume v;
    kit_volume(&v, 6, 9, 11, false);
    Job jobs[THREADS];
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        char name[64];
        DicomWrite how = kit_write();
        how.syntax = i % 2 ? DICOM_JPEG_LOSSLESS : DICOM_JPEG_LS;
        snprintf(name, sizeof name, "thread%d", i);
        const char *folder = kit_folder(name);
        REQUIRE(dicom_write_series(folder, &v, &how));
        jobs[i] = (Job){.series = kit_series(&a, folder)};
    }

    for (int i = 0; i < THREADS; i++)
        REQUIRE(!pthread_create(&threads[i], NULL, load_job, &jobs[i]));
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        EXPECT(jobs[i].ok);
        if (jobs[i].ok) expect_same(&v, &jobs[i].out);
        volume_free(&jobs[i].out);
    }

    volume_free(&v);
    arena_release(&a);
}
