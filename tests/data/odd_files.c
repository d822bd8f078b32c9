/* odd_files.c -- passes unreadable files to every reader: a pipe, a folder, a
 * missing file, no permission, an empty file, no descriptors left. Each must
 * fail at once and name the file.
 *
 * Every attempt runs in its own process, which may have to be stopped, drop its
 * rights or have its limits lowered. */
#include "data/dataset/dataset_list.h"
#include "data/datasets/biwi.h"
#include "data/datasets/openkbp.h"
#include "data/dicom/dicom.h"
#include "data/format/mat.h"
#include "data/format/npy.h"
#include "data/format/npz.h"
#include "data/format/table.h"
#include "data/loader/loader.h"
#include "data/preprocess/store.h"
#include "engine/checkpoint/safetensors.h"
#include "tests/support/volumes.h"
#include "tests/test.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- readers: true when they accepted the file ----------------------------- */

static bool by_nifti(const char *path)
{
    Volume v;
    return nifti_read(path, NULL, &v, NULL);
}

static bool by_npy(const char *path)
{
    NpyArray a;
    return npy_read(path, &a);
}

static bool by_npy_part(const char *path)
{
    NpyFile f;
    return npy_open(path, &f);
}

static bool by_npz(const char *path)
{
    Npz z;
    return npz_open(path, &z);
}

static bool by_mat(const char *path)
{
    Mat m;
    return mat_open(path, &m);
}

static bool by_image(const char *path)
{
    Volume v;
    return image_read(path, NULL, &v);
}

static bool by_probe(const char *path)
{
    ImageInfo info;
    return image_probe(path, NULL, &info);
}

static bool by_table(const char *path)
{
    Table t;
    return table_read(path, &(TableOptions){.separator = ','}, &t);
}

static bool by_openkbp(const char *path)
{
    SparseGrid g;
    return openkbp_grid_read(path, OPENKBP_VALUES, &g);
}

/* A patient is a folder, and the missing file in it is named. */
static bool by_patient(const char *path)
{
    OpenkbpPatient p;
    return openkbp_read(path, OPENKBP_ALL, true, &p);
}

static bool by_pose(const char *path)
{
    BiwiPose pose;
    return biwi_pose_read(path, false, &pose);
}

static bool by_camera(const char *path)
{
    BiwiCamera camera;
    return biwi_camera_read(path, &camera);
}

static bool by_depth(const char *path)
{
    Volume v;
    return biwi_depth_read(path, &v);
}

static bool by_weights(const char *path)
{
    Safetensors f;
    return safetensors_open(path, &f);
}

static bool by_scan(const char *path)
{
    Arena mem = {0};
    DicomIndex index;
    return dicom_scan(path, NULL, &mem, &index);
}

/* The one file of a series that was replaced after the scan. */
static DicomSeries series_of(DicomKind kind, const char *const *path)
{
    return (DicomSeries){
        .kind = kind, .folder = *path, .paths = path, .count = 1};
}

static bool by_slice(const char *path)
{
    const DicomSeries s = series_of(DICOM_IMAGE, &path);
    Volume v;
    return dicom_load(&s, NULL, &v, NULL);
}

static bool by_multi(const char *path)
{
    const DicomSeries s = series_of(DICOM_MULTI, &path);
    Volume v;
    return dicom_load(&s, NULL, &v, NULL);
}

static bool by_seg(const char *path)
{
    const DicomSeries s = series_of(DICOM_SEG, &path);
    Arena mem = {0};
    DicomSegInfo info;
    return dicom_seg_info(&s, &mem, &info);
}

static bool by_structures(const char *path)
{
    const DicomSeries s = series_of(DICOM_STRUCTURE, &path);
    Arena mem = {0};
    DicomSegInfo info;
    return dicom_seg_info(&s, &mem, &info);
}

static bool by_dose(const char *path)
{
    const DicomSeries s = series_of(DICOM_DOSE, &path);
    Volume v;
    return dicom_load_dose(&s, NULL, false, NULL, &v, NULL);
}

static bool by_nifti_set(const char *path)
{
    const DatasetNifti how = {.images = 0};
    Dataset *ds;
    Volume v;
    return dataset_nifti(path, &how, &ds) &&
           case_load(ds, 0, 0, NULL, &v, NULL);
}

static bool by_store(const char *path)
{
    Store *s;
    return store_open(path, &s);
}

enum { FIFO, FOLDER, NOTHING, LOCKED, EMPTY, LIMIT, ODDITIES };

/* `any`: kinds that this reader may accept. */
static const struct {
    const char *name;
    bool (*read)(const char *path);
    const char *ending;
    unsigned any;
} readers[] = {
    {"nifti", by_nifti, "x.nii", 0},
    {"nifti, packed", by_nifti, "x.nii.gz", 0},
    {"nifti, in two files", by_nifti, "x.hdr", 0},
    {"npy", by_npy, "x.npy", 0},
    {"npy, mapped", by_npy_part, "x.npy", 0},
    {"npz", by_npz, "x.npz", 0},
    {"mat", by_mat, "x.mat", 0},
    {"image", by_image, "x.png", 0},
    {"image, probed", by_probe, "x.jpg", 0},
    {"table", by_table, "x.csv", 0},
    {"openkbp", by_openkbp, "ct.csv", 0},
    {"openkbp patient", by_patient, "pt_1", 0},
    {"biwi pose", by_pose, "frame_00003_pose.txt", 0},
    {"biwi camera", by_camera, "depth.cal", 0},
    {"biwi depth", by_depth, "frame_00003_depth.bin", 0},
    {"safetensors", by_weights, "x.safetensors", 0},
    {"dicom scan", by_scan, "x.dcm", 0},
    {"dicom slice", by_slice, "x.dcm", 0},
    {"dicom frames", by_multi, "x.dcm", 0},
    {"dicom segmentation", by_seg, "x.dcm", 0},
    {"dicom structures", by_structures, "x.dcm", 0},
    {"dicom dose", by_dose, "x.dcm", 0},
    {"nifti set", by_nifti_set, "y.nii", 0},
    // creates a missing file
    {"store", by_store, "x.cases", 1u << NOTHING | 1u << EMPTY},
};
enum { READERS = sizeof readers / sizeof *readers };

static const char *const oddity[ODDITIES] = {"a pipe",        "a folder",
                                             "nothing",       "no permission",
                                             "an empty file", "no descriptors"};

/* -- one attempt -------------------------------------------------------------
 */

static void put_there(const char *path, int kind)
{
    int fd;
    switch (kind) {
    case FIFO:
        REQUIRE(!mkfifo(path, 0600));
        break;
    case FOLDER:
        REQUIRE(!mkdir(path, 0700));
        break;
    case NOTHING:
        break;
    default:
        fd = open(path, O_WRONLY | O_CREAT, 0600);
        REQUIRE(fd >= 0 && !close(fd));
    }
}

/* Sets up the state in which a reader must fail. */
static void change_world(const char *path, int kind)
{
    if (kind == LOCKED) {
        chmod(path, 0);
        // root ignores permissions
        if (!geteuid() && (setgid(65534) || setuid(65534))) _exit(2);
    }

    if (kind == LIMIT) {
        // the first free descriptor becomes the limit
        int fd = open("/dev/null", O_RDONLY);
        close(fd);
        struct rlimit r = {(rlim_t)fd, (rlim_t)fd};
        if (setrlimit(RLIMIT_NOFILE, &r)) _exit(2);
    }
}

typedef struct Answer {
    bool ok;
    ErrKind kind;
    char text[ERR_MAX];
} Answer;

static bool read_all(int fd, Answer *out)
{
    size_t have = 0;
    ssize_t n = 1;
    while (have < sizeof *out && n > 0) {
        n = read(fd, (char *)out + have, sizeof *out - have);
        if (n > 0) have += (size_t)n;
    }
    return have == sizeof *out;
}

/* Runs a reader in its own process; false when it had to be stopped. */
static bool attempt(bool read(const char *path), const char *path, int kind,
                    Answer *out)
{
    int to[2], status;
    REQUIRE(!pipe(to));
    fflush(stdout);
    pid_t child = fork();
    REQUIRE(child >= 0);

    if (!child) {
        Answer a = {.kind = ERR_NONE};
        alarm(20);
        change_world(path, kind);
        a.ok = read(path);
        a.kind = err_kind();
        snprintf(a.text, sizeof a.text, "%s", err_text());
        _exit(write(to[1], &a, sizeof a) != sizeof a);
    }

    close(to[1]);
    bool whole = read_all(to[0], out);
    close(to[0]);
    waitpid(child, &status, 0);
    return whole && WIFEXITED(status) && !WEXITSTATUS(status);
}

/* Part of the system's message for each kind, or NULL. */
static const char *const said[ODDITIES] = {[NOTHING] = "No such file",
                                           [LOCKED] = "Permission denied",
                                           [LIMIT] = "Too many open files"};

TEST(odd_files_are_refused_at_once_and_named)
{
    for (int r = 0; r < READERS; r++)
        for (int kind = 0; kind < ODDITIES; kind++) {
            char path[300];
            Answer a;
            snprintf(path, sizeof path, "%s/odd", test_folder());
            REQUIRE(!mkdir(path, 0755));
            chmod(test_folder(), 0755);
            strcat(strcat(path, "/"), readers[r].ending);
            // for a patient, the folder is locked
            const bool patient = readers[r].read == by_patient;
            put_there(path, patient && kind == LOCKED ? FOLDER : kind);
            bool ended = attempt(readers[r].read, path, kind, &a);
            const bool may = readers[r].any >> kind & 1;
            if (!ended)
                test_failed(__FILE__, __LINE__, "%s, %s: does not return",
                            readers[r].name, oddity[kind]);
            else if (a.ok ? !may : !strstr(a.text, path))
                test_failed(__FILE__, __LINE__, "%s, %s: %s", readers[r].name,
                            oddity[kind], a.ok ? "taken" : a.text);
            else if (!a.ok && said[kind] && !strstr(a.text, said[kind]))
                test_failed(__FILE__, __LINE__, "%s, %s: %s", readers[r].name,
                            oddity[kind], a.text);
            // an error of the file, except for the limit of the process
            else if (!a.ok && readers[r].read != by_store) {
                EXPECT_INT(a.kind, kind == LIMIT ? ERR_FAILURE : ERR_DATA);
                EXPECT(kind != LIMIT || strstr(a.text, "fix: a higher limit"));
            }
            chmod(path, 0700);
            remove(path);
            *strrchr(path, '/') = 0;
            REQUIRE(!rmdir(path));
        }
}

/* Opens a data set of files that exist. */
static Dataset *three_files(char path[3][300])
{
    const ListField field = {
        .name = "x", .kind = FIELD_IMAGE, .rank = 1, .reader = "npy"};
    DatasetBuilder *b;
    Dataset *ds;

    REQUIRE(dataset_list_begin(&field, 1, NULL, &b));
    for (int i = 0; i < 3; i++) {
        const float x[4] = {1, 2, 3, (float)i};
        char key[8];
        snprintf(path[i], 300, "%s/odd-%d.npy", test_folder(), i);
        snprintf(key, sizeof key, "odd-%d", i);
        REQUIRE(npy_write(path[i], 1, (int64_t[]){4}, x));
        ListCase c = {.key = key, .patient = key};
        c.field[0].path[0] = path[i], c.field[0].paths = 1;
        REQUIRE(dataset_list_add(b, &c));
    }

    REQUIRE(dataset_finish(b, &ds));
    return ds;
}

/* A file that is removed, or replaced by a pipe, between the opening of a data
 * set and the reading of a sample: the error of the worker names case and
 * file. */
TEST(odd_files_in_a_worker_are_named)
{
    for (int kind = 0; kind <= NOTHING; kind++)
        for (int workers = 0; workers <= 2; workers++) {
            char path[3][300], want[400];
            const PipelineOptions options = {.cache_bytes = 0};
            const LoaderOptions how = {.batch = 3, .workers = workers};
            Dataset *ds = three_files(path);
            Steps none = made_steps("");
            Pipeline *p;
            Loader *l;
            const Batch *b;
            REQUIRE(pipeline_open(ds, &none, &options, &p));
            REQUIRE(loader_open(p, &how, &l));
            remove(path[1]);
            put_there(path[1], kind);
            snprintf(want, sizeof want, "odd-1: x: %s: npy: ", path[1]);
            EXPECT_FAIL(loader_next(l, &b), want);
            EXPECT_INT(err_kind(), ERR_DATA);
            loader_close(l);
            pipeline_free(p);
            dataset_free(ds);
            for (int i = 0; i < 3; i++) remove(path[i]);
        }
}
