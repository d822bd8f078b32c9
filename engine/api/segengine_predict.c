/* segengine_predict.c -- predicts an image file with the network of a bundle
 * and writes a file of class numbers.
 *
 * Does for one case the work of lua/predict/predict.lua, with the same
 * functions of data/: reads and preprocesses the image as in training, runs its
 * samples in batches, stitches the results on the image's own grid (stitch.h),
 * postprocesses and writes. tests/lua/predict/export.lua compares the files of
 * both byte for byte. */
#include "data/dataset/relabel.h"
#include "data/metrics/stitch.h"
#include "data/preprocess/pipeline.h"
#include "engine/api/segengine_inside.h"
#include "engine/base/file.h"
#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A prediction in progress; in a zeroed Job all is free or closed. */
typedef struct Job {
    seg_model *m;
    const Bundle *b;
    Dataset *ds;
    Pipeline *p;
    Stitch *mosaic;
    StitchResult result;
    Volume written;       /* labels with the values of files             */
    float *sample, *user; /* of a batch: input, and output in user order */
    float *one;           /* of a sample: output, in memory order        */
    int32_t room;         /* samples that the first two have room for    */
    Dims dim;             /* of a sample, n = 1                          */
    int input, output, channels;
} Job;

// -- arguments ----------------------------------------------------------------

/* Finds a file at or below `path` that `test` accepts. A folder that cannot be
 * opened counts as empty: the later read reports it. */
typedef bool FileTest(const char *path, const void *ctx);
static bool holds(const char *path, FileTest *test, const void *ctx, int depth)
{
    struct stat st;
    if (stat(path, &st) || depth > 64) return false;
    if (!S_ISDIR(st.st_mode)) return test(path, ctx);
    DIR *dir = opendir(path);
    bool found = false;

    for (const struct dirent *e; dir && !found && (e = readdir(dir));) {
        char name[PATH_MAX];
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        int n = snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        found = n > 0 && n < PATH_MAX && holds(name, test, ctx, depth + 1);
    }

    if (dir) closedir(dir);
    return found;
}

static bool is_nifti(const char *path, const void *ctx)
{
    const char *name = path_tail(path);
    (void)ctx;
    // data sets skip "._a.nii"
    return *name != '.' && !file_of_system(name) && nifti_stem(path) > 0;
}

static bool is_dicom(const char *path, const void *ctx)
{
    (void)ctx;
    return dicom_is_file(path);
}

static bool is_same(const char *path, const void *ctx)
{
    const struct stat *out = ctx;
    struct stat st;
    return !stat(path, &st) && st.st_dev == out->st_dev &&
           st.st_ino == out->st_ino;
}

static bool ends_in(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);
    return n > m && !strcmp(path + n - m, ending);
}

/* Reads NIfTI? In a folder with NIfTI and DICOM the format of training wins. */
static bool as_nifti(const Bundle *b, const char *in)
{
    struct stat st;
    if (stat(in, &st) || !S_ISDIR(st.st_mode)) return is_nifti(in, NULL);
    return holds(in, is_nifti, NULL, 0) &&
           !(b->from_dicom && holds(in, is_dicom, NULL, 0));
}

/* Opens the NIfTI files with the names used in training. Its patterns may begin
 * with folders that are not below `in`: then leading folders are removed one by
 * one. */
static bool open_nifti(const Bundle *b, const char *in, Dataset **out)
{
    DatasetNifti how = b->nifti;
    while (!dataset_nifti(in, &how, out)) {
        bool shorter = false;
        for (int i = 0; i < how.images; i++) {
            const char *slash = strchr(how.image[i], '/');
            shorter = shorter || slash;
            if (slash) how.image[i] = slash + 1;
        }
        if (!shorter || err_kind() != ERR_DATA) return false;
    }
    return true;
}

static bool open_case(Job *j, const char *in)
{
    const bool nifti = as_nifti(j->b, in);
    if (!(nifti ? open_nifti(j->b, in, &j->ds)
                : dataset_dicom(in, &j->b->dicom, &j->ds)))
        return false;
    if (j->ds->count != 1)
        return fail_usage("%s holds %d images, want one; fix: one at a time, "
                          "or segengine predict --bundle",
                          in, j->ds->count);
    PipelineOptions o = {.cache_bytes = INT64_MAX};
    return pipeline_open(j->ds, &j->b->steps, &o, &j->p);
}

/* Checks that input, output and extents match. */
static bool check_network(Job *j)
{
    const seg_model *m = j->m;
    j->input = m->input[0];
    for (int i = 0; i < m->outputs; i++)
        if (!strcmp(m->output_name[i], j->b->output)) j->output = m->output[i];
    if (m->inputs != 1 || strcmp(j->b->input[0], j->ds->field[0].name))
        return fail_usage("this network has inputs besides one image; fix: "
                          "seg_run, or segengine predict --bundle");
    const Tensor *x = &m->graph.node[j->input].y,
                 *y = &m->graph.node[j->output].y;
    j->dim = pipeline_dims_of(j->p, 0, 0);
    j->channels = y->dim.c;
    if (x->rank != pipeline_rank(j->p, 0) || x->dim.c != j->dim.c)
        return fail_data("the image gives %d channel%s and %d axes a sample, "
                         "the network needs %d and %d",
                         j->dim.c, j->dim.c == 1 ? "" : "s",
                         pipeline_rank(j->p, 0), x->dim.c, x->rank);

    return (y->rank == x->rank && j->channels <= 256) ||
           fail_usage("output %s does not hold class numbers; fix: seg_run",
                      j->b->output);
}

// -- running ------------------------------------------------------------------

static bool make_room(Job *j)
{
    Dims out = j->dim;
    out.c = j->channels;
    size_t in_bytes, out_bytes, bytes;
    int32_t parts = pipeline_samples(j->p);
    j->room = parts < j->b->batch ? parts : j->b->batch;
    if (!size_mul((size_t)numel(j->dim), sizeof(float), &in_bytes) ||
        !size_mul((size_t)numel(out), sizeof(float), &out_bytes) ||
        !size_mul(in_bytes, (size_t)j->room, &bytes))
        return false;
    j->sample = mem_alloc(bytes);
    if (!j->sample || !size_mul(out_bytes, (size_t)j->room, &bytes))
        return false;
    j->user = mem_alloc(bytes);
    j->one = mem_alloc(out_bytes);
    return j->user && j->one;
}

/* Runs `count` samples, with values in j->sample, through the network. */
static bool run_batch(Job *j, int32_t count)
{
    Session *s = j->m->session;
    Plan *plan;
    PlanInput in = {j->input, j->dim};

    in.dim.n = count;
    const Tensor x = {.dim = in.dim,
                      .type = F32,
                      .rank = j->m->graph.node[j->input].y.rank,
                      .data = j->sample};
    if (!session_plan(s, false, &in, 1, &plan)) return false;
    const Dims y = plan_value(plan, j->output)->dim;
    if (y.d != j->dim.d || y.h != j->dim.h || y.w != j->dim.w)
        return fail_usage("output %s has other extents than the image; fix: "
                          "seg_run",
                          j->b->output);
    return session_bind(s, plan) &&
           session_feed_tensor(s, plan, j->input, &x) && session_run(s, plan) &&
           session_read(s, plan, j->output, j->user);
}

/* Runs all samples, in batches, and stitches the results. */
static bool run_parts(Job *j)
{
    const int rank = j->m->graph.node[j->output].y.rank;
    Dims out = j->dim;
    out.c = j->channels;
    const StitchOptions o = {.channels = j->channels,
                             .classes = j->channels,
                             .labels = true,
                             .threshold = j->b->threshold};
    if (!make_room(j) || !stitch_new(j->p, 0, &o, &j->mosaic)) return false;
    const int32_t parts = pipeline_samples(j->p);

    for (int32_t from = 0; from < parts; from += j->room) {
        int32_t count = parts - from < j->room ? parts - from : j->room;
        for (int32_t i = 0; i < count; i++) {
            float *field[MAX_FIELDS] = {j->sample + i * numel(j->dim)};
            if (!dims_equal(pipeline_dims_of(j->p, from + i, 0), j->dim))
                return fail_data("parts of the image differ in extents");
            if (!pipeline_sample(j->p, from + i, 0, false, NULL, field))
                return false;
        }
        if (!run_batch(j, count)) return false;
        for (int32_t i = 0; i < count; i++) {
            const Tensor t = {
                .dim = out, .type = F32, .rank = rank, .data = j->one};
            tensor_from_user(j->user + i * numel(out), &t);
            if (!stitch_put(j->mosaic, from + i, j->one))
                return within("output %s", j->b->output);
        }
    }
    return stitch_finish(j->mosaic, &j->result);
}

// -- the result ---------------------------------------------------------------

/* Returns the number of classes of the output, without the background. */
static int classes_of(const Job *j)
{
    return j->channels == 1 ? 1 : j->channels - 1;
}

static bool tidy(Job *j)
{
    Volume *v = &j->result.labels;
    const Dims d = v->voxels.dim;
    double mm[3];
    TidyDone done;

    volume_spacing_mm(v, mm);
    for (int i = 0; i < classes_of(j) && i < j->b->tidies; i++) {
        const BundleTidy *t = &j->b->tidy[i];
        Tidy how = t->how;
        if (!how.keep && t->min_ml <= 0 && !how.fill && !how.fill_slices)
            continue;
        how.least = labels_least(t->min_ml, mm);
        if (!labels_tidy(v->voxels.data, (const int32_t[]){d.w, d.h, d.d}, &how,
                         &done))
            return false;
    }
    return true;
}

/* Writes a DICOM SEG with the segment names of the recipe, else of the
 * output. */
static bool write_seg(Job *j, const char *out)
{
    char text[MAX_SEGMENTS][80];
    const char *name[MAX_SEGMENTS];
    const DicomSeries *series = case_series(j->ds, 0);
    const int n = j->b->segments ? j->b->segments : classes_of(j);

    if (!series)
        return fail_usage("%s: a DICOM SEG needs an image in DICOM; fix: a "
                          "name that ends in .nii.gz",
                          out);
    if (n > MAX_SEGMENTS) return fail_usage("%s: %d segments", out, n);

    for (int i = 0; i < n; i++) {
        name[i] = j->b->segment[i];
        if (j->b->segments) continue;
        snprintf(text[i], sizeof text[i],
                 j->channels == 1 ? "%.64s" : "%.64s_%d", j->b->output, i + 1);
        name[i] = text[i];
    }
    return dicom_write_seg(out, &j->result.labels, name, n, series);
}

static bool write_result(Job *j, const char *out)
{
    NiftiHeader h;
    const Bundle *b = j->b;
    const Volume *v = &j->result.labels;
    if (ends_in(out, ".dcm")) return write_seg(j, out);
    // not if the weights list no labels, or labels of other classes
    if (b->labels == classes_of(j)) {
        if (!volume_relabel(v, b->label, b->labels, &j->written)) return false;
        v = &j->written;
    }
    return nifti_write(out, v, case_nifti_header(j->ds, 0, &h) ? &h : NULL);
}

// -- seg_predict_file ---------------------------------------------------------

/* Checks that are possible before anything is opened. */
static bool check_call(const seg_model *m, const char *in, const char *out)
{
    struct stat st;
    if (!m) return fail_usage("seg_predict_file: the model is NULL");
    if (!in || !out) return fail_usage("seg_predict_file: a path is NULL");
    if (!m->bundle)
        return fail_usage(
            "this file holds weights without the preprocessing of images; fix: "
            "segengine SCRIPT.lua export --bundle FILE");
    if (m->bundle->cannot)
        return fail_usage("this bundle cannot be run on files from C: %s; fix: "
                          "seg_run, or segengine predict --bundle",
                          m->bundle->cannot);
    if (!nifti_stem(out) && !ends_in(out, ".dcm"))
        return fail_usage("%s: the name of a result must end in .nii, .nii.gz "
                          "or, for an image in DICOM, .dcm",
                          out);
    if (stat(in, &st))
        return fail_data("%s: there is no such file or folder", in);
    return stat(out, &st) || !holds(in, is_same, &st, 0) ||
           fail_usage("%s: the result would be written over an input; fix: "
                      "another name",
                      out);
}

static bool predict(Job *j, const char *in, const char *out)
{
    return open_case(j, in) && check_network(j) && run_parts(j) && tidy(j) &&
           write_result(j, out);
}

int seg_predict_file(seg_model *m, const char *in, const char *out)
{
    if (!check_call(m, in, out)) return -1;
    Job j = {.m = m, .b = m->bundle};
    const bool ok = predict(&j, in, out);
    stitch_result_free(&j.result);
    volume_free(&j.written);
    stitch_free(j.mosaic);
    pipeline_free(j.p);
    dataset_free(j.ds);
    mem_free(j.sample);
    mem_free(j.user);
    mem_free(j.one);
    return ok ? 0 : -1;
}
