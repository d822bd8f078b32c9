/* dataset_build.h -- what the builders of datasets share.
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
    const char *root; /* what the user gave, for messages; may be NULL */
    Dataset **part;   /* (parts): views whose sources cases here share */
    int parts;
    const char **passed; /* (passes), with room for more: see dataset_passed */
    int passes;
    const DicomLeftOut *left_out; /* files and studies that the scan left out */
    int left_outs;
} DatasetStore;

struct DatasetBuilder {
    DatasetStore *store;
    DatasetField field[MAX_FIELDS];
    int fields;
    const void *list[MAX_FIELDS]; /* of dataset_list.c: how a field is read */
    bool has_labels;              /* of dataset_list.c: the user listed them */
    Case *cases;
    int count, room, skipped;
};

/* A view of `store` with room for `count` cases, all zero, and the fields of
 * `like` (may be NULL); it counts as a view. */
bool dataset_view(DatasetStore *store, const Dataset *like, int count,
                  Dataset **out);

/* Append a copy of `c`. */
bool builder_add(DatasetBuilder *b, const Case *c);

/* Add a field in front of the first case; `name` lives as long as the store. */
void builder_field(DatasetBuilder *b, const char *name, FieldKind kind,
                   int rank);

/* `count` zeroed sources in the store; NULL with a reason. */
Source *builder_sources(DatasetBuilder *b, int count);

/* What a source of one file depends on; `asked` NULL: no memory for it. */
bool source_file(const Source *s, char *asked, Arena *mem, SourceFacts *out);
/* The same of a NIfTI file read with these options. */
bool source_nifti(const Source *s, const NiftiOptions *how, Arena *mem,
                  SourceFacts *out);

/* Names collected for one message: "3 images without a mask: a, b, c". */
typedef struct Names {
    char text[1024];
    int count;
} Names;
void names_add(Names *n, const char *name); /* the first ten are kept */

/* v becomes U8 class numbers, or is refused with its values and what to do. A
 * number within LABEL_ROUNDING of a label is that label, and a warning in
 * `notes` (may be NULL), which begins with `path`. `ready`: the reader has
 * already turned labels[i] into i + 1. `dicom`: "nonzero" is not offered where
 * it is refused. */
bool labels_settle(const DatasetOptions *o, bool ready, bool dicom,
                   const char *path, Volume *v, DicomNotes *notes);

/* nifti_read, with what the reader doubted as a warning in `notes`. */
bool source_read_nifti(const char *path, const NiftiOptions *how, Volume *out,
                       DicomNotes *notes);

/* "0, 1": the values that are accepted. */
void labels_text(const DatasetOptions *o, bool ready, char *text, size_t room);

/* The order of two cases: by key, as bytes. */
int case_order(const void *a, const void *b);

#endif
