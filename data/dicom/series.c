/* series.c -- groups files by UIDs. Headers are sorted so that members of a
 * series are adjacent; every order ends with a comparison of paths, so that the
 * result does not depend on how files were found. */
#include "data/dicom/series.h"
#include "engine/base/file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// length of the path up to, and without, its last slash
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) : 0;
}

// compares the folders of two files; 0: the same
static int compare_folders(const char *a, const char *b)
{
    size_t n = folder_length(a), m = folder_length(b);
    int order = memcmp(a, b, n < m ? n : m);
    return order ? order : (n > m) - (n < m);
}

bool path_same_folder(const char *a, const char *b)
{
    return !compare_folders(a, b);
}

// files of every class may have one frame, so classes are checked first
static DicomKind kind_of(const DicomHeader *h)
{
    static const struct {
        const char *uid;
        DicomKind kind;
    } classes[] = {{CLASS_SEG, DICOM_SEG},
                   {CLASS_LABELMAP, DICOM_SEG},
                   {CLASS_STRUCTURE, DICOM_STRUCTURE},
                   {CLASS_DOSE, DICOM_DOSE}};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (!strcmp(h->sop_class, classes[i].uid)) return classes[i].kind;
    return h->frames > 1 || dicom_class_enhanced(h->sop_class) ? DICOM_MULTI
                                                               : DICOM_IMAGE;
}

// same patient, study, series and kind: 0
static int compare_series(const DicomHeader *a, const DicomHeader *b)
{
    int order = strcmp(a->patient_id, b->patient_id);
    if (!order) order = strcmp(a->study_uid, b->study_uid);
    if (!order) order = strcmp(a->series_uid, b->series_uid);
    return order ? order : (int)kind_of(a) - (int)kind_of(b);
}

// the three orders in which headers are sorted; for qsort
static int by_instance(const void *x, const void *y)
{
    const DicomHeader *a = x, *b = y;
    int order = compare_series(a, b);
    if (!order) order = strcmp(a->sop_uid, b->sop_uid);
    return order ? order : strcmp(a->path, b->path);
}

static int by_path(const void *x, const void *y)
{
    const DicomHeader *a = x, *b = y;
    return strcmp(a->path, b->path);
}

static int by_folder(const void *x, const void *y)
{
    const DicomHeader *a = x, *b = y;
    int order = compare_folders(a->path, b->path);
    return order ? order : strcmp(a->path, b->path);
}

// order of the finished series, as documented in dicom.h
static int compare_found(const void *x, const void *y)
{
    const DicomSeries *a = x, *b = y;
    int order = strcmp(a->patient_id, b->patient_id);
    if (!order) order = strcmp(a->study_uid, b->study_uid);
    if (!order) order = (a->number > b->number) - (a->number < b->number);
    if (!order) order = strcmp(a->series_uid, b->series_uid);
    if (!order) order = strcmp(a->folder, b->folder);
    return order ? order : (int)a->kind - (int)b->kind;
}

// h is sorted by instance: is one object in two folders?
static bool repeats(const DicomHeader *h, int32_t n)
{
    for (int32_t i = 1; i < n; i++)
        if (*h[i].sop_uid && !strcmp(h[i].sop_uid, h[i - 1].sop_uid) &&
            compare_folders(h[i].path, h[i - 1].path))
            return true;
    return false;
}

// Makes *s from the n headers of one series, sorted by path. Texts are those of
// its first file.
static bool add_series(const DicomHeader *h, int32_t n, Arena *arena,
                       DicomSeries *s)
{
    const char **paths = ARENA_NEW(arena, const char *, n);
    if (!paths) return false;

    // the sum must not overflow; a series of so many frames is refused later
    // for its extents
    int32_t frames = 0;
    const char *damaged = NULL;
    // the common folder starts as the folder of the first file
    size_t common = folder_length(h->path);

    for (int32_t i = 0; i < n; i++) {
        paths[i] = h[i].path;
        if (!damaged) damaged = h[i].damaged;
        frames += h[i].frames < INT32_MAX - frames ? h[i].frames : 0;
        // shorten to a common prefix that ends before a slash
        while (common && (strncmp(h[i].path, h->path, common) ||
                          h[i].path[common] != '/'))
            do common--;
            while (common && h->path[common] != '/');
    }

    // no slash in common: the root, or the working folder
    const char *folder = common
                             ? arena_printf(arena, "%.*s", (int)common, h->path)
                             : arena_strdup(arena, *h->path == '/' ? "/" : ".");
    *s = (DicomSeries){.kind = kind_of(h),
                       .patient_id = h->patient_id,
                       .study_uid = h->study_uid,
                       .series_uid = h->series_uid,
                       .description = h->description,
                       .modality = h->modality,
                       .sop_class = h->sop_class,
                       .frame_uid = h->frame_uid,
                       .folder = folder,
                       .number = h->number,
                       .rows = h->rows,
                       .cols = h->cols,
                       .count = n,
                       .frames = frames,
                       .paths = paths,
                       .damaged = damaged};
    return folder != NULL;
}

// For each series: sorts by instance to see whether one object is in two
// folders; if so the series is split by folder.
bool series_group(DicomHeader *h, int32_t n, Arena *arena, DicomIndex *out)
{
    // at most one series per file
    DicomSeries *found = ARENA_NEW(arena, DicomSeries, n);
    if (!found) return false;
    int32_t count = 0;
    qsort(h, (size_t)n, sizeof *h, by_instance);

    for (int32_t i = 0, end; i < n; i = end) {
        end = i + 1;
        while (end < n && !compare_series(&h[i], &h[end])) end++;
        // split: a mask that was saved with the UIDs of its image is in a
        // folder of its own and must not be mixed with it
        bool split = repeats(h + i, end - i);
        qsort(h + i, (size_t)(end - i), sizeof *h, split ? by_folder : by_path);
        for (int32_t a = i, b; a < end; a = b) {
            b = split ? a + 1 : end;
            while (b < end && !compare_folders(h[a].path, h[b].path)) b++;
            if (!add_series(h + a, b - a, arena, &found[count++])) return false;
        }
    }

    qsort(found, (size_t)count, sizeof *found, compare_found);
    out->series = found, out->count = count, out->files = n;
    return true;
}

// "NAME (DESCRIPTION, UID), ..." for at most ten series
static void list_series(const DicomIndex *index, char *text, size_t room)
{
    size_t used = 0;
    *text = 0;
    for (int32_t i = 0; i < index->count && i < 10 && used < room; i++) {
        const DicomSeries *s = &index->series[i];
        int n = snprintf(text + used, room - used, "%s%s%s%s%s", i ? ", " : "",
                         s->series_uid, *s->description ? " (" : "",
                         s->description, *s->description ? ")" : "");
        if (n > 0) used += (size_t)n;
    }
    if (index->count > 10 && used < room)
        snprintf(text + used, room - used, ", ...");
}

// the three ways to select a series, in the order in which they are tried
static bool matches(const DicomSeries *s, const char *series, int way)
{
    if (way == 0) return !strcmp(s->series_uid, series);
    if (way == 1) return !strcmp(s->description, series);
    return !strcmp(path_tail(s->folder), series);
}

const DicomSeries *dicom_select(const DicomIndex *index, const char *series)
{
    char list[1024];
    list_series(index, list, sizeof list);

    if (!series) {
        if (index->count == 1) return index->series;
        // series are sorted by patient, so changes of the name can be counted
        int patients = 1;
        for (int32_t i = 1; i < index->count; i++)
            patients += strcmp(index->series[i].patient_id,
                               index->series[i - 1].patient_id) != 0;
        if (patients > 1)
            dicom_fail(index->root, TAG_PatientID, NULL,
                       "%d patients in folder", patients);
        else
            dicom_fail(index->root, TAG_SeriesInstanceUID, "series = \"...\"",
                       "%d series in folder: %s", index->count, list);
        return NULL;
    }

    // a UID that matches ends the search, even if a folder has that name too
    for (int way = 0; way < 3; way++) {
        const DicomSeries *hit = NULL;
        int hits = 0;
        for (int32_t i = 0; i < index->count; i++)
            if (matches(&index->series[i], series, way))
                hit = &index->series[i], hits++;
        if (hits == 1) return hit;
        if (hits > 1) {
            dicom_fail(
                index->root, TAG_SeriesInstanceUID, "series = one of the UIDs",
                "%d series called \"%s\" in folder: %s", hits, series, list);
            return NULL;
        }
    }

    dicom_fail(index->root, TAG_SeriesInstanceUID, NULL,
               "no series \"%s\" in folder, only: %s", series, list);
    return NULL;
}
