/* dataset_list.h -- data sets with cases that the caller lists one by one.
 *
 * A caller that knows the files and numbers of each case (from a table of
 * labels, or a folder with a known layout) gives a list of fields, then each
 * case. Files are opened only when they are loaded. */
#ifndef SEG_DATA_DATASET_DATASET_LIST_H
#define SEG_DATA_DATASET_DATASET_LIST_H
#include "data/dataset/reader.h"

typedef struct ListField {
    const char *name;
    FieldKind kind;
    int rank;              /* 1 to 3 for fields on the grid, else 0       */
    const char *reader;    /* for fields on the grid                     */
    int numbers;           /* for FIELD_NUMBER: count per case            */
    ReaderOptions options; /* for fields on the grid                     */
} ListField;

/* One case; strings and numbers are copied. */
typedef struct ListCase {
    const char *key, *patient;
    struct {
        const char *path[MAX_CHANNELS]; /* channels, in this order */
        int paths;
        const double *number; /* for FIELD_NUMBER */
        /* Crops a picture; NULL: the whole picture. x, y of the upper left
         * corner, width, height in pixels, each rounded; voxels outside the
         * picture are 0. */
        const double *box;
    } field[MAX_FIELDS];
} ListCase;

/* Begin with the fields, of which the first is on the grid. Then add cases, and
 * call dataset_finish or dataset_drop. ERR_USAGE for a contradiction. */
bool dataset_list_begin(const ListField *field, int fields,
                        const DatasetOptions *options, DatasetBuilder **out);
bool dataset_list_add(DatasetBuilder *b, const ListCase *c);
#endif
