/* dataset_nifti.c -- cases from NIfTI files, paired by the text that `*`
 * matches.
 *
 * All files below the root are listed once and sorted. Each pattern (one per
 * channel, one for the mask) selects its files from the list, and the text
 * matched by its stars is the key; files with one key are a case. Files are
 * paired by key, never by their position in a list, so a missing file cannot
 * shift all others by one. */
#include "data/dataset/dataset_build.h"
#include "data/format/nifti.h"
#include "engine/base/file.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FOLDER_DEPTH = 32, KEY_MAX = 1024 };

/* A file below the root with a NIfTI name. */
typedef struct Found {
    const char *path; /* with the root                        */
    const char *name; /* below the root, without .nii, .nii.gz */
} Found;

typedef struct Files {
    Found *at;
    int count, room;
    /* folders that cannot be opened are left out and listed instead of
     * failing */
    bool lenient;
} Files;

/* A file that matches a pattern. */
typedef struct Match {
    const char *key;
    const Found *file;
} Match;

typedef struct Matches {
    Match *at; /* sorted by key */
    int count;
} Matches;

/* ---- files -------------------------------------------------------------- */

/* Files without a NIfTI name are ignored silently: folders hold CSV and JSON
 * next to images. */
static bool files_add(Files *f, Arena *mem, const char *path, const char *below)
{
    size_t stem = nifti_stem(below);
    if (!stem) return true;

    if (f->count == f->room) {
        int room = f->room ? 2 * f->room : 64;
        Found *more = mem_realloc(f->at, (size_t)room * sizeof *more);
        if (!more) return false;
        f->at = more;
        f->room = room;
    }

    Found *one = &f->at[f->count];
    one->path = arena_strdup(mem, path);
    one->name = arena_printf(mem, "%.*s", (int)stem, below);
    if (!one->path || !one->name) return false;
    f->count++;
    return true;
}

/* A hidden file, or a file of an operating system ("._case_001.nii" of a Mac),
 * is ignored; it is recorded if the rest of its name is a NIfTI name. */
static bool ignore_file(DatasetStore *store, const char *name,
                        const char *below)
{
    const char *rest = name + strspn(name, "._~$");
    if (!nifti_stem(rest)) return true;
    // the list doubles at powers of two
    const int n = store->ignored_count;
    if (!(n & (n - 1))) {
        const char **more = ARENA_NEW(&store->mem, const char *, n ? 2 * n : 1);
        if (!more) return false;
        if (n) memcpy(more, store->ignored, (size_t)n * sizeof *more);
        store->ignored = more;
    }
    return (store->ignored[store->ignored_count++] =
                arena_strdup(&store->mem, below));
}

/* Leaves out a folder with the current reason. */
static bool leave_out(DatasetStore *store, const char *path)
{
    const int n = store->left_outs;
    const char *text = arena_strdup(&store->mem, err_text());
    DicomLeftOut *list = (DicomLeftOut *)store->left_out;

    path = arena_strdup(&store->mem, path);
    if (!text || !path) return false;

    // the list is full at each power of two
    if (!(n & (n - 1))) {
        list = ARENA_NEW(&store->mem, DicomLeftOut, n ? 2 * n : 1);
        if (!list) return false;
        if (n) memcpy(list, store->left_out, (size_t)n * sizeof *list);
    }

    list[n] = (DicomLeftOut){DICOM_LEFT_DAMAGED, path, text, NULL};
    store->left_out = list, store->left_outs = n + 1;
    return true;
}

/* A folder and its parents up to the root. */
typedef struct Above {
    dev_t device;
    ino_t inode;
    const struct Above *up;
} Above;

/* Lists all NIfTI files in `path` and below it; the first `root` bytes of path
 * are the root. */
static bool collect(Files *f, DatasetStore *store, const char *path,
                    size_t root, int depth, const Above *up)
{
    Arena *mem = &store->mem;
    struct stat st;

    // a link to a parent folder would recurse without end
    if (stat(path, &st)) return file_fails(errno, "%s", path);

    // the chain of parents is on the stack of this recursion
    const Above here = {st.st_dev, st.st_ino, up};
    for (; up; up = up->up)
        if (up->device == here.device && up->inode == here.inode) return true;
    DIR *dir = folder_open(path);
    bool ok = false;
    if (!dir)
        return depth && f->lenient && err_kind() == ERR_DATA &&
               leave_out(store, path);

    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(dir);
        if (!e && errno) {
            file_fails(errno, "%s: cannot read folder", path);
            goto done;
        }
        if (!e) break;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        char *full = arena_printf(mem, "%s/%s", path, e->d_name);
        TRY(full);
        if (e->d_name[0] == '.' || file_of_system(e->d_name)) {
            TRY(ignore_file(store, e->d_name, full + root));
            continue;
        }
        if (stat(full, &st)) {
            // a broken link matters only if its name is that of an image
            int error = errno;
            if ((error == ENOENT || error == ELOOP) && !nifti_stem(full))
                continue;
            fail_data("%s: a link that leads nowhere, or no access: %s", full,
                      strerror(error));
            goto done;
        }
        if (S_ISDIR(st.st_mode) && depth == FOLDER_DEPTH) {
            fail_data("%s: folders nested deeper than %d", full, FOLDER_DEPTH);
            goto done;
        }
        if (S_ISDIR(st.st_mode))
            TRY(collect(f, store, full, root, depth + 1, &here));
        else
            TRY(files_add(f, mem, full, full + root));
    }

    ok = true;

done:
    closedir(dir);
    return ok;
}

/* by path, as files are */
static int left_out_order(const void *a, const void *b)
{
    return strcmp(((const DicomLeftOut *)a)->path,
                  ((const DicomLeftOut *)b)->path);
}

/* by path: the order of directory entries must not matter */
static int found_order(const void *a, const void *b)
{
    return strcmp(((const Found *)a)->path, ((const Found *)b)->path);
}

/* ---- patterns ----------------------------------------------------------- */

/* Does `text` match `pattern`? The text matched by the stars is appended to
 * key, with slashes between. The first star matches as little as possible. */
static bool matches(const char *pattern, const char *text, char *key,
                    size_t used)
{
    if (*pattern != '*') {
        if (*pattern != *text) return false;
        return !*pattern || matches(pattern + 1, text + 1, key, used);
    }
    if (used && used < KEY_MAX - 1) key[used++] = '/';
    for (size_t n = 0;; n++) {
        key[used + n] = 0;
        if (matches(pattern + 1, text + n, key, used + n)) return true;
        if (!text[n] || text[n] == '/' || used + n >= KEY_MAX - 2) return false;
        key[used + n] = text[n];
    }
}

/* The key of a file that matches a pattern; false if it does not match. */
static bool file_matches(const Found *f, const char *pattern, char key[KEY_MAX])
{
    const char *slash = strrchr(f->name, '/');
    size_t folder =
        slash && !strchr(pattern, '/') ? (size_t)(slash - f->name) : 0;
    if (folder >= KEY_MAX) return false;
    memcpy(key, f->name, folder);
    key[folder] = 0;
    return matches(pattern, folder ? slash + 1 : f->name, key, folder);
}

/* Letters of a pattern without its stars: more letters are more specific. */
static int literal_length(const char *pattern)
{
    int n = 0;
    for (; *pattern; pattern++) n += *pattern != '*';
    return n;
}

/* by key; for qsort and bsearch */
static int match_order(const void *a, const void *b)
{
    return strcmp(((const Match *)a)->key, ((const Match *)b)->key);
}

/* Lists the files of `pattern` that match no more specific pattern of `all`. If
 * a pattern is a part of another ("*_T1w" and "*_T1w_brainmask"), it would
 * match the other's files too: the pattern with more letters gets them. */
static bool match_files(const Files *files, const char *pattern,
                        const char *const *all, int patterns, Arena *mem,
                        Matches *out)
{
    char key[KEY_MAX], other[KEY_MAX];
    out->count = 0;
    out->at = ARENA_NEW(mem, Match, files->count);
    if (!out->at) return false;

    for (int i = 0; i < files->count; i++) {
        // all[] also holds the pattern itself, which is not more specific
        bool mine = file_matches(&files->at[i], pattern, key);
        for (int k = 0; k < patterns && mine; k++)
            mine = literal_length(all[k]) <= literal_length(pattern) ||
                   !file_matches(&files->at[i], all[k], other);
        if (!mine) continue;
        // patterns without stars name one file each, and these form one case
        const char *name = *key ? key : all[0];
        Match *m = &out->at[out->count++];
        *m = (Match){arena_strdup(mem, name), &files->at[i]};
        if (!m->key) return false;
    }

    qsort(out->at, (size_t)out->count, sizeof *out->at, match_order);
    for (int i = 1; i < out->count; i++)
        if (!strcmp(out->at[i].key, out->at[i - 1].key))
            return fail_data("%s and %s are both \"%s\" of %s",
                             out->at[i - 1].file->path, out->at[i].file->path,
                             pattern, out->at[i].key);
    return true;
}

/* the file with this key; NULL if there is none */
static const Match *match_find(const Matches *m, const char *key)
{
    // bsearch compares with an element of the same type
    const Match want = {.key = key};
    return bsearch(&want, m->at, (size_t)m->count, sizeof want, match_order);
}

/* ---- cases -------------------------------------------------------------- */

/* The patient of a file, in the arena; NULL with a reason if it is unknown. */
static const char *patient_of(const Found *f, const char *key,
                              const char *pattern, PatientRule rule, Arena *mem)
{
    const char *base = path_tail(f->name);
    if (rule == PATIENT_FILE) return arena_strdup(mem, key);

    // BIDS: sub-XX up to the first underscore
    if (rule == PATIENT_AUTO && !strncmp(base, "sub-", 4) && base[4])
        return arena_printf(mem, "%.*s", (int)strcspn(base, "_"), base);

    // a folder that the pattern spells out ("imagesTr/") is not a patient
    bool named =
        strchr(pattern, '/') && !memchr(pattern, '*', strcspn(pattern, "/"));
    if (base != f->name && (rule == PATIENT_FOLDER || !named))
        return arena_printf(mem, "%.*s", (int)strcspn(f->name, "/"), f->name);
    fail_data(
        "%s: its patient is not known (no folder of a patient, no name "
        "sub-XX_...); fix: patient = \"file\" if every file is another person",
        f->path);
    return NULL;
}

bool source_read_nifti(const char *path, const NiftiOptions *how, Volume *out,
                       DicomNotes *notes)
{
    NiftiHeader h;
    char line[ERR_MAX];
    if (!nifti_read(path, how, out, &h)) return false;
    if (!*h.doubt) return true;
    snprintf(line, sizeof line, "%.700s: nifti: %s", path, h.doubt);
    return dicom_notes_add(notes, true, line);
}

/* the two functions for Source.load */
static bool load_image(const Source *s, Volume *out, DicomNotes *notes)
{
    return source_read_nifti(s->path, s->how, out, notes);
}

static bool load_label(const Source *s, Volume *out, DicomNotes *notes)
{
    NiftiOptions options = *(const NiftiOptions *)s->how;
    options.label = true;
    return source_read_nifti(s->path, &options, out, notes);
}

static bool depends(const Source *s, Arena *mem, SourceFacts *out)
{
    return source_nifti(s, s->how, mem, out);
}

/* The patterns of a data set and the files that match. */
typedef struct Plan {
    const char *pattern[MAX_CHANNELS + 1]; /* images, then the mask */
    Matches found[MAX_CHANNELS + 1];
    int images, patterns;
    const NiftiOptions *files; /* in the store */
} Plan;

/* Keys without a partner, by the pattern that lacks one. */
typedef struct Alone {
    Names lacks[MAX_CHANNELS + 1];
    int files;
} Alone;

/* Adds one case, or none (true, b->count unchanged) if a partner is missing. */
static bool add_case(DatasetBuilder *b, const Plan *plan,
                     const DatasetNifti *how, const Match *first, Alone *alone)
{
    Arena *mem = &b->store->mem;
    Source *s = builder_sources(b, plan->patterns);
    Case c = {.key = first->key};
    bool complete = true;

    if (!s) return false;
    for (int k = 0; k < plan->patterns; k++) {
        const Match *m = match_find(&plan->found[k], first->key);
        if (!m) names_add(&alone->lacks[k], first->key);
        complete = complete && m;
        if (!m) continue;
        s[k] = (Source){.load = k < plan->images ? load_image : load_label,
                        .how = plan->files,
                        .depends = depends,
                        .path = m->file->path};
    }

    if (!complete) {
        // always counted as skipped; add_cases decides whether to fail
        alone->files++;
        b->skipped++;
        return true;
    }

    c.patient =
        patient_of(first->file, c.key, plan->pattern[0], how->patient, mem);
    if (!c.patient) return false;
    c.field[0] = (struct CaseField){s, plan->images};
    if (plan->patterns > plan->images)
        c.field[1] = (struct CaseField){s + plan->images, 1};
    return builder_add(b, &c);
}

/* Finds partners without a first image. */
static void find_widows(const Plan *plan, Alone *alone, DatasetBuilder *b)
{
    for (int k = 1; k < plan->patterns; k++)
        for (int i = 0; i < plan->found[k].count; i++) {
            const char *key = plan->found[k].at[i].key;
            if (match_find(&plan->found[0], key)) continue;
            names_add(&alone->lacks[0], plan->found[k].at[i].file->name);
            alone->files++;
            b->skipped++;
        }
}

/* Fails because no file matches: names the first files found. */
static bool nothing_matches(const char *root, const Files *files,
                            const char *pattern, const char *option)
{
    enum { SHOWN = 5 };
    Names there = {.count = 0};
    for (int i = 0; i < files->count && i < SHOWN; i++)
        names_add(&there, files->at[i].name);
    return fail_data(
        "%s: none of %d NIfTI file%s is \"%s\"; there %s %s%s; fix: "
        "a pattern that fits, %s = \"PATTERN\" (* is any text)",
        root, files->count, files->count > 1 ? "s" : "", pattern,
        files->count > 1 ? "are" : "is", there.text,
        files->count > SHOWN ? ", ..." : "", option);
}

/* Fails with the missing partners: "no mask (*_seg) for sub-1, sub-2". */
static bool partners_missing(const char *root, const Plan *plan,
                             const Alone *alone)
{
    char text[1024] = "";
    for (int k = 0; k < plan->patterns; k++) {
        size_t used = strlen(text);
        if (!alone->lacks[k].count) continue;
        snprintf(text + used, sizeof text - used, "%sno %s (%s) for %s",
                 used ? "; " : "", k < plan->images ? "image" : "mask",
                 plan->pattern[k], alone->lacks[k].text);
    }

    return fail_data("%s: %d file%s without a partner: %s; fix: "
                     "skip_unmatched = true leaves %s out",
                     root, alone->files, alone->files == 1 ? "" : "s", text,
                     alone->files == 1 ? "it" : "them");
}

/* Makes cases from the files of the first pattern; partners are found by key,
 * never by position. */
static bool add_cases(DatasetBuilder *b, const Files *files,
                      const DatasetNifti *how, Plan *plan)
{
    Alone alone = {.files = 0};
    for (int k = 0; k < plan->patterns; k++) {
        if (!match_files(files, plan->pattern[k], plan->pattern, plan->patterns,
                         &b->store->mem, &plan->found[k]))
            return false;
        // a pattern without any match is a typing error, not missing data
        if (!plan->found[k].count)
            return nothing_matches(b->store->root, files, plan->pattern[k],
                                   k < plan->images ? "image" : "mask");
    }

    for (int i = 0; i < plan->found[0].count; i++)
        if (!add_case(b, plan, how, &plan->found[0].at[i], &alone))
            return false;
    find_widows(plan, &alone, b);
    if (!alone.files || how->all.skip_unmatched) return true;
    return partners_missing(b->store->root, plan, &alone);
}

/* Adds the only case: the file that the user named. */
static bool add_file(DatasetBuilder *b, const char *path,
                     const NiftiOptions *how)
{
    const char *base = path_tail(path);
    Source *s = builder_sources(b, 1);
    size_t stem = nifti_stem(base);

    if (!stem)
        return fail_data("%s: not the name of a NIfTI file (.nii, .nii.gz)",
                         path);
    Case c = {.key = arena_printf(&b->store->mem, "%.*s", (int)stem, base)};
    if (!s || !c.key) return false;
    *s = (Source){
        .load = load_image, .how = how, .depends = depends, .path = path};
    c.patient = c.key;
    c.field[0] = (struct CaseField){s, 1};
    return builder_add(b, &c);
}

/* Lists all files below the root once, then each pattern selects from the
 * list. */
bool dataset_nifti(const char *root, const DatasetNifti *how, Dataset **out)
{
    struct stat st;
    Files files = {.lenient = how->skip_damaged};
    DatasetBuilder *b = NULL;
    Plan plan = {.images = how->images};
    bool ok = false;

    *out = NULL;
    if (stat(root, &st)) return file_fails(errno, "%s", root);
    if (!dataset_begin(&how->all, &b)) return false;
    CHECK(how->images >= 0 && how->images <= MAX_CHANNELS);
    TRY(b->store->root = arena_strdup(&b->store->mem, root));
    NiftiOptions *files_how = ARENA_NEW(&b->store->mem, NiftiOptions, 1);
    TRY(files_how);
    *files_how = how->files;
    plan.files = files_how;
    bool folder = S_ISDIR(st.st_mode);
    builder_field(b, "image", FIELD_IMAGE, 3);
    if (how->mask && folder) builder_field(b, "mask", FIELD_LABEL, 3);

    if (folder) {
        for (int i = 0; i < how->images; i++) plan.pattern[i] = how->image[i];
        if (!how->images) plan.pattern[plan.images++] = "*";
        plan.patterns = plan.images;
        if (how->mask) plan.pattern[plan.patterns++] = how->mask;
        // names are kept without the root and its slash
        size_t skip = strlen(root);
        TRY(collect(&files, b->store, root, skip + 1, 0, NULL));
        if (b->store->left_outs)
            qsort((void *)b->store->left_out, (size_t)b->store->left_outs,
                  sizeof(DicomLeftOut), left_out_order);
        if (!files.count && b->store->left_outs) {
            fail_data("%s", b->store->left_out[0].text);
            goto done;
        }
        if (!files.count) {
            fail_data("%s: no NIfTI files (.nii, .nii.gz)", root);
            goto done;
        }
        qsort(files.at, (size_t)files.count, sizeof *files.at, found_order);
        TRY(add_cases(b, &files, how, &plan));
    } else {
        TRY(add_file(b, b->store->root, plan.files));
    }

    ok = true;

done:
    mem_free(files.at);
    if (!ok) dataset_drop(b);
    return ok && dataset_finish(b, out);
}

bool case_nifti_header(const Dataset *ds, int number, NiftiHeader *out)
{
    // the file was accepted before, under any options
    const NiftiOptions any = {.form = NIFTI_SFORM_OR_QFORM,
                              .assume_spacing = true,
                              .channels = true,
                              .no_voxels = true};
    const char *path = ds->cases[number].field[0].source->path;
    Volume v = {0};
    Arena mem = {0};
    const char *name[2];
    bool ok = path && nifti_files(path, &mem, name);

    arena_release(&mem);
    ok = ok && nifti_read(path, &any, &v, out);
    volume_free(&v);
    return ok;
}
