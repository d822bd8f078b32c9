/* dataset_build.h -- functions shared by the builders of datasets.
 *
 * A builder collects cases; strings, sources and reader options live in the
 * arena of the store, which every view of the finished dataset holds. */
#ifndef SEG_DATA_DATASET_DATASET_BUILD_H
#define SEG_DATA_DATASET_DATASET_BUILD_H
#include "data/dataset/dataset.h"
#include <stdatomic.h>

typedef struct DatasetStore {
    atomic_int views;
    Arena mem;
    DatasetOptions options;
    const char *root; /* as given by the user, for messages; may be NULL */
    Dataset **part;   /* (parts): views that own sources used by cases of this
                       * store */
    int parts;
    const char **ignored; /* (ignored_count), with spare room */
    int ignored_count;
    const DicomLeftOut *left_out; /* files and studies that the scan left out */
    int left_outs;
} DatasetStore;

struct DatasetBuilder {
    DatasetStore *store;
    DatasetField field[MAX_FIELDS];
    int fields;
    const void *list[MAX_FIELDS]; /* for dataset_list.c: how a field is read */
    bool has_labels;              /* for dataset_list.c: the user listed
                                   * labels */
    Case *cases;
    int count, room, skipped;
};

/* Makes a view of `store` with room for `count` cases, all zero, and the fields
 * of `like` (may be NULL); adds 1 to store->views. */
bool dataset_view(DatasetStore *store, const Dataset *like, int count,
                  Dataset **out);

/* Makes a builder with the fields and options of ds, without cases. */
bool builder_like(const Dataset *ds, DatasetBuilder **out);

/* Appends a copy of `c`. */
bool builder_add(DatasetBuilder *b, const Case *c);

/* Adds a field; call before the first case is added. `name` lives as long as
 * the store. */
void builder_field(DatasetBuilder *b, const char *name, FieldKind kind,
                   int rank);

/* Returns `count` zeroed sources in the store; NULL with a reason. */
Source *builder_sources(DatasetBuilder *b, int count);

/* Sets *out for a source of one file, with the reader's options `asked` as text
 * (NULL: it could not be allocated, and the call fails). */
bool source_file(const Source *s, char *asked, Arena *mem, SourceFacts *out);
/* The same for a NIfTI file read with these options. */
bool source_nifti(const Source *s, const NiftiOptions *how, Arena *mem,
                  SourceFacts *out);

/* Names collected for one message: "3 images without a mask: a, b, c". */
typedef struct Names {
    char text[1024];
    int count;
} Names;
void names_add(Names *n, const char *name); /* keeps the first ten    */

/* Converts v to U8 class numbers, or fails with its values and the fix. A
 * number within LABEL_ROUNDING of a label counts as that label, with a warning
 * in `notes` (may be NULL), which begins with `path`. `ready`: the reader has
 * already turned labels[i] into i + 1. `dicom`: the error must not suggest
 * "nonzero", which DICOM refuses. */
bool labels_settle(const DatasetOptions *o, bool ready, bool dicom,
                   const char *path, Volume *v, DicomNotes *notes);

/* nifti_read; doubts of the reader become warnings in `notes`. */
bool source_read_nifti(const char *path, const NiftiOptions *how, Volume *out,
                       DicomNotes *notes);

/* Writes the accepted values: "0, 1". */
void labels_text(const DatasetOptions *o, bool ready, char *text, size_t room);

/* qsort comparison of two cases: by key, as bytes. */
int case_order(const void *a, const void *b);

#endif
