/* dataset_list.h -- data sets whose cases are named one by one.
 *
 * Whoever knows where the files of a case are and what its numbers are (a
 * table of labels, a folder of a known layout) gives a list of fields, then
 * each case. What is in the files is looked at when they are loaded. */
#ifndef SEG_DATA_DATASET_DATASET_LIST_H
#define SEG_DATA_DATASET_DATASET_LIST_H
#include "data/dataset/reader.h"

typedef struct ListField {
    const char *name;
    FieldKind kind;
    int rank;              /* 1 to 3 of fields on the grid, 0 of others   */
    const char *reader;    /* of fields on the grid                      */
    int numbers;           /* of FIELD_NUMBER: how many a case has        */
    ReaderOptions options; /* of fields on the grid                      */
} ListField;

/* One case; strings and numbers are copied. */
typedef struct ListCase {
    const char *key, *patient;
    struct {
        const char *path[MAX_CHANNELS]; /* channels, in this order */
        int paths;
        const double *number; /* of FIELD_NUMBER */
        /* The part of a picture that is taken, NULL: all of it. x, y of its
         * upper left corner, width, height in pixels, each rounded; what lies
         * outside the picture is 0. */
        const double *box;
    } field[MAX_FIELDS];
} ListCase;

/* Begin with the fields; the first one is on the grid. Then add cases, and
 * dataset_finish or dataset_drop. ERR_USAGE for what does not fit together. */
bool dataset_list_begin(const ListField *field, int fields,
                        const DatasetOptions *options, DatasetBuilder **out);
bool dataset_list_add(DatasetBuilder *b, const ListCase *c);
#endif
