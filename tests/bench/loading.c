/* loading.c -- speed of the data path in samples per second, compared with
 * Python.
 *
 *     build/tests/bench/loading [ROUNDS]
 *
 * Every loader runs without a cache, so that each sample is made from its files
 * again, which are in the page cache:
 *
 *     photos   JPEG of 224 x 224, decoded, all four parts of jitter
 *     series   DICOM of 24 slices of 256 x 256, read, sorted, normalised
 *     packed   the same volumes out of a file of prepared cases (store.h)
 *
 * with one worker and with two. The peer (loading_peer.py) does the same with
 * OpenCV and with Pillow, with pydicom and numpy, and with one memory-mapped
 * .npy per volume; there, two threads are two processes that do not send their
 * results back. It is started and has imported its modules before the first
 * round. All take turns in each round; figures are medians of rounds, ratios
 * medians of the ratios in a round. */
#include "data/dataset/dataset_list.h"
#include "data/loader/loader.h"
#include "data/phantom/scan.h"
#include "engine/base/rng.h"
#include "tests/bench/timing.h"
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

enum {
    PHOTOS = 128,
    SIDE = 224,
    SERIES = 8,
    SLICES = 24,
    PACKED_EPOCHS = 8,
    THREADS = 2,
    PREFETCH = 2,
    ROUNDS = 15,
    MOST_ROUNDS = 101,
    PATH = 128
};

/* A measurement: our pipeline and its peers. */
static const struct Row {
    const char *name, *unit;
    int samples, epochs;
    const char *peer[2];
} rows[] = {
    {"photos", "photographs", PHOTOS, 1, {"opencv", "pillow"}},
    {"series", "volumes", SERIES, 1, {"pydicom", NULL}},
    {"packed", "volumes", SERIES, PACKED_EPOCHS, {"numpy", NULL}},
};
enum { ROWS = sizeof rows / sizeof *rows, WHO = 3 };

static char folder[64];

static bool may(bool ok)
{
    if (ok) return true;
    fprintf(stderr, "%s\n", err_text());
    exit(1);
}

static char *in_folder(char path[PATH], const char *format, int number)
{
    int at = snprintf(path, PATH, "%s/", folder);
    snprintf(path + at, (size_t)(PATH - at), format, number);
    return path;
}

/* -- data ------------------------------------------------------------------ */

/* Synthetic photograph: slowly varying colours, and grain. */
static void photo_pixels(uint8_t *x, uint32_t number)
{
    const Rng r = {.seed = 2, .stream = RNG_TEST, .sample = number};
    float wave[3][4];
    for (uint32_t i = 0; i < 12; i++)
        wave[i / 4][i % 4] = rng_range(&r, i, 0.005f, 0.05f);

    for (int p = 0; p < SIDE * SIDE; p++)
        for (int c = 0; c < 3; c++) {
            const float *w = wave[c], u = (float)(p % SIDE),
                        v = (float)(p / SIDE);
            float grain = rng_range(&r, 12 + (uint32_t)(3 * p + c), -9, 9);
            float y = 128 + 60 * sinf(w[0] * u + 40 * w[1]) +
                      50 * cosf(w[2] * v + w[3] * u) + grain;
            x[3 * p + c] = (uint8_t)(y < 0 ? 0 : y > 255 ? 255 : y);
        }
}

static void write_photo(const char *path, uint32_t number)
{
    static uint8_t x[SIDE * SIDE * 3];
    struct jpeg_compress_struct z;
    struct jpeg_error_mgr errors;
    FILE *f = fopen(path, "wb");

    if (!f) may(fail("cannot write %s", path));
    photo_pixels(x, number);
    z.err = jpeg_std_error(&errors);
    jpeg_create_compress(&z);
    jpeg_stdio_dest(&z, f);
    z.image_width = z.image_height = SIDE;
    z.input_components = 3;
    z.in_color_space = JCS_RGB;
    jpeg_set_defaults(&z);
    jpeg_set_quality(&z, 90, TRUE);
    jpeg_start_compress(&z, TRUE);
    while (z.next_scanline < SIDE) {
        JSAMPROW row = x + (size_t)z.next_scanline * SIDE * 3;
        jpeg_write_scanlines(&z, &row, 1);
    }
    jpeg_finish_compress(&z);
    jpeg_destroy_compress(&z);
    if (fclose(f)) may(fail("cannot write %s", path));
}

/* Writes a synthetic head per folder, with slices in no order, as from a
 * scanner. */
static void write_series(int number)
{
    char path[PATH], id[16];
    const Phantom how = {.form = phantom_form("dicom"),
                         .number = {[SCAN_PATIENTS] = SERIES,
                                    [SCAN_SIZE] = 256,
                                    [SCAN_SLICES] = SLICES},
                         .seed = 3,
                         .noise = 0.03};
    Volume image, mask;

    may(scan_make(&how, HEAD_FLAIR, number, &image, &mask));
    snprintf(id, sizeof id, "p%02d", number);
    may(dicom_write_series(in_folder(path, "series/p%02d", number), &image,
                           &(DicomWrite){.patient_id = id,
                                         .description = "FLAIR",
                                         .bits_stored = 12,
                                         .shuffle = true}));
    volume_free(&image);
    volume_free(&mask);
}

static Dataset *photo_dataset(void)
{
    char path[PATH], key[16];
    const ListField field = {
        .name = "image", .kind = FIELD_IMAGE, .rank = 2, .reader = "image"};
    DatasetBuilder *b;
    Dataset *ds;

    may(dataset_list_begin(&field, 1, NULL, &b));
    for (int i = 0; i < PHOTOS; i++) {
        snprintf(key, sizeof key, "%03d", i);
        ListCase c = {.key = key, .patient = key};
        c.field[0].path[0] = in_folder(path, "photos/%03d.jpg", i);
        c.field[0].paths = 1;
        may(dataset_list_add(b, &c));
    }

    may(dataset_finish(b, &ds));
    return ds;
}

static Pipeline *opened(const Dataset *ds, const char *steps, const char *store)
{
    Steps s;
    Pipeline *p;
    may(steps_parse(steps, &s) &&
        pipeline_open(ds, &s,
                      &(PipelineOptions){.threads = THREADS, .store = store},
                      &p));
    return p;
}

static void make_data(Pipeline *p[ROWS])
{
    char path[PATH];
    snprintf(folder, sizeof folder, "/tmp/segbench.XXXXXX");
    if (!mkdtemp(folder)) may(fail("no folder in /tmp"));
    mkdir(in_folder(path, "photos", 0), 0700);
    mkdir(in_folder(path, "series", 0), 0700);
    for (int i = 0; i < PHOTOS; i++)
        write_photo(in_folder(path, "photos/%03d.jpg", i), (uint32_t)i);
    for (int i = 0; i < SERIES; i++) write_series(i);
    Dataset *photos = photo_dataset(), *series;
    const DatasetDicom how = {.image = {"FLAIR"}, .images = 1};
    may(dataset_dicom(in_folder(path, "series", 0), &how, &series));
    p[0] = opened(photos, "jitter hue=0.05 top=255\n", NULL);
    p[1] = opened(series, "normalize\n", NULL);
    p[2] = opened(series, "normalize\n", in_folder(path, "prepared", 0));
    dataset_free(photos);
    dataset_free(series);
}

static int remove_one(const char *path, const struct stat *st, int flag,
                      struct FTW *at)
{
    (void)st, (void)flag, (void)at;
    return remove(path);
}

/* -- peer ------------------------------------------------------------------ */

static FILE *ask, *answer;

/* Starts the peer and waits until it is ready; without Python it exits at once,
 * and gives no answer. */
static void start_peer(void)
{
    int to[2], from[2];
    signal(SIGPIPE, SIG_IGN);
    if (pipe(to) || pipe(from)) may(fail("no pipe"));

    if (!fork()) {
        dup2(to[0], 0), dup2(from[1], 1);
        close(to[1]), close(from[0]);
        execl("/usr/bin/python3", "python3", "tests/bench/loading_peer.py",
              folder, (char *)NULL);
        _exit(127);
    }

    close(to[0]), close(from[1]);
    ask = fdopen(to[1], "w"), answer = fdopen(from[0], "r");
}

/* Returns the seconds of a peer for the same number of samples; 0:
 * unavailable. */
static double peer_seconds(const struct Row *row, const char *peer, int threads)
{
    double time = 0;
    if (!peer) return 0;
    fprintf(ask, "%s %d %d\n", peer, threads, row->samples * row->epochs);
    fflush(ask);
    return fscanf(answer, "%lf", &time) == 1 ? time : 0;
}

/* -- segengine ------------------------------------------------------------- */

static double our_seconds(const struct Row *row, Pipeline *p, int workers)
{
    const LoaderOptions how = {.batch = 4,
                               .workers = workers,
                               .prefetch = PREFETCH,
                               .shuffle = true,
                               .augment = true};
    Loader *l;
    const Batch *b;

    may(loader_open(p, &how, &l));

    // a training run touches the memory of its batches for the first time only
    // once
    for (int i = 0; i <= PREFETCH; i++) may(loader_next(l, &b));
    may(loader_seek(l, 99, 0)); // discards prefetched batches
    double begin = seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < row->epochs * loader_batches(l); i++)
        may(loader_next(l, &b));
    double time = seconds(CLOCK_MONOTONIC) - begin;
    loader_close(l);
    return time;
}

/* -- the table ------------------------------------------------------------- */

/* Seconds of each row, number of threads, program and round. */
typedef double Table[ROWS][THREADS][WHO][MOST_ROUNDS];

static double middle(const double *v, int rounds)
{
    double copy[MOST_ROUNDS];
    memcpy(copy, v, (size_t)rounds * sizeof *v);
    return median(copy, rounds);
}

/* Returns the median ratio of the first time to the second. */
static double ratio(const double *a, const double *b, int rounds)
{
    double v[MOST_ROUNDS];
    for (int i = 0; i < rounds; i++) v[i] = a[i] / b[i];
    return median(v, rounds);
}

static void print(Table t, int rounds)
{
    printf("samples a second, medians of %d rounds\n", rounds);
    for (int r = 0; r < ROWS; r++)
        for (int n = 0; n < THREADS; n++) {
            const struct Row *row = &rows[r];
            const double count = row->samples * row->epochs;
            printf("  %-7s %d thread%s  %8.1f %s", row->name, n + 1,
                   n ? "s" : " ", count / middle(t[r][n][0], rounds),
                   row->unit);
            for (int k = 1; k < WHO; k++) {
                if (t[r][n][k][0] <= 0) continue;
                printf("   %s %.1f, ratio %.2f", row->peer[k - 1],
                       count / middle(t[r][n][k], rounds),
                       ratio(t[r][n][k], t[r][n][0], rounds));
            }
            puts("");
        }
}

static void target(const char *what, double got, double want)
{
    printf("  %s: %.2f times, want %.0f: %s\n", what, got, want,
           got >= want ? "pass" : "FAIL");
}

int main(int argc, char **argv)
{
    static Table t;
    Pipeline *p[ROWS];
    int rounds = argc > 1 ? atoi(argv[1]) : ROUNDS;

    if (rounds < 1 || rounds > MOST_ROUNDS) rounds = ROUNDS;

    // without DICOM there are no series to read
    if (!dicom_ready()) {
        printf("loading: not measured: %s\n", err_text());
        return 0;
    }
    make_data(p);
    start_peer();

    for (int i = 0; i < rounds; i++)
        for (int r = 0; r < ROWS; r++)
            for (int n = 0; n < THREADS; n++) {
                t[r][n][0][i] = our_seconds(&rows[r], p[r], n + 1);
                for (int k = 1; k < WHO; k++)
                    t[r][n][k][i] =
                        peer_seconds(&rows[r], rows[r].peer[k - 1], n + 1);
            }

    print(t, rounds);

    // per sample
    for (int i = 0; i < rounds; i++) t[1][0][0][i] *= PACKED_EPOCHS;
    target("packed cases against DICOM", ratio(t[1][0][0], t[2][0][0], rounds),
           10);
    for (int k = 1; k < WHO; k++)
        if (t[0][0][k][0] > 0)
            target(k == 1 ? "photographs against OpenCV, one thread"
                          : "photographs against Pillow, one thread",
                   ratio(t[0][0][k], t[0][0][0], rounds), 1);

    for (int r = 0; r < ROWS; r++) pipeline_free(p[r]);
    fclose(ask);
    fclose(answer);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}
