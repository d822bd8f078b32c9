/* table.h -- tables of labels in CSV: a header, then rows of text.
 *
 * RFC 4180, in UTF-8: fields between separators, quoted where they hold a
 * separator, a quote (doubled) or a line end; lines end in LF or CR LF; a
 * byte order mark before the header is passed over. The header is required,
 * its names are all there and all different. Every row has as many fields as
 * the header. Spaces belong to a field. Nothing is padded, skipped or
 * guessed: what a spreadsheet would mend is an error here.
 *
 * Fields are text until they are asked for as something else. Reasons read
 * "PATH: csv: row R, column "NAME": WHAT; fix: HOW", ERR_DATA, with rows as a
 * spreadsheet counts them: the header is row 1. */
#ifndef SEG_DATA_FORMAT_TABLE_H
#define SEG_DATA_FORMAT_TABLE_H
#include "engine/base/mem.h"

enum { TABLE_FIELD_MAX = 1 << 16 }; /* bytes of one field */

/* All zero: comma, and the limits named here. */
typedef struct TableOptions {
    char separator;    /* ',', ';' or a tab           */
    int64_t max_bytes; /* of the file; 0: 256 MiB     */
    int64_t max_rows;  /* below the header; 0: 10^7   */
    int max_columns;   /* 0: 4096                     */
} TableOptions;

/* Free with table_free(). */
typedef struct Table {
    int columns;
    int64_t rows; /* below the header */
    /* inside: */
    Arena mem;
    const char *path; /* NULL when it was read from memory          */
    char separator;
    char *text;      /* of all fields, each with its ending 0       */
    uint32_t *field; /* (rows + 1) * columns places in text; header first */
} Table;

/* On failure *t is empty. `o` may be NULL. */
bool table_read(const char *path, const TableOptions *o, Table *t);
/* The same from memory; reasons begin at "csv:". */
bool table_decode(const void *bytes, size_t size, const TableOptions *o,
                  Table *t);
void table_free(Table *t);

/* Rows and columns count from 0. Text lives as long as the table. */
const char *table_name(const Table *t, int column);
const char *table_text(const Table *t, int64_t row, int column);

/* The column of that name, exactly; else the reason names the one that is
 * spelt most like it, and lists what there is. */
bool table_column(const Table *t, const char *name, int *column);

/* A field as a finite number or a whole number of 64 bits, with spaces round
 * it or none. An empty field is neither. */
bool table_number(const Table *t, int64_t row, int column, double *out);
bool table_integer(const Table *t, int64_t row, int column, int64_t *out);

/* A field as a file below `root`: ROOT/FIELD, of memory of `mem`. It must be
 * relative, with slashes, without "..". Whether there is such a file is not
 * looked at; nor are links, which belong to whoever made the folder. */
bool table_path(const Table *t, int64_t row, int column, const char *root,
                Arena *mem, char **out);

/* What is in a column, for people. */
typedef struct TableRange {
    int64_t numbers; /* fields that are finite numbers  */
    int64_t empty;   /* fields without a character      */
    bool whole;      /* all numbers are whole           */
    double min, max; /* of the numbers; 0 without any   */
} TableRange;
TableRange table_range(const Table *t, int column);
#endif
