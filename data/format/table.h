/* table.h -- tables of labels in CSV: a header, then rows of text.
 *
 * RFC 4180, in UTF-8: fields between separators, quoted if they contain a
 * separator, a quote (doubled) or a line end; lines end in LF or CR LF; a byte
 * order mark before the header is skipped. The header is required, its names
 * are not empty and all different. Every row has as many fields as the header.
 * Spaces belong to a field. Nothing is padded, skipped or guessed: a defect
 * that a spreadsheet would repair silently is an error here.
 *
 * Fields are text until they are converted. Reasons read "PATH: csv: row R,
 * column "NAME": PROBLEM; fix: HOW", ERR_DATA, with the row numbers of a
 * spreadsheet: the header is row 1. */
#ifndef SEG_DATA_FORMAT_TABLE_H
#define SEG_DATA_FORMAT_TABLE_H
#include "engine/base/mem.h"

enum { TABLE_FIELD_MAX = 1 << 16 }; /* bytes of one field */

/* Zero-initialised: comma, and the limits given here. */
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
    /* private: */
    Arena mem;
    const char *path; /* NULL if read from memory */
    char separator;
    char *text;      /* of all fields, each with a terminating 0 */
    uint32_t *field; /* (rows + 1) * columns offsets in text; header first */
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

/* Finds the column with exactly that name; otherwise the reason names the
 * column with the most similar spelling, and lists all. */
bool table_column(const Table *t, const char *name, int *column);

/* Converts a field to a finite number or a whole number of 64 bits, with or
 * without spaces around it. An empty field is neither. */
bool table_number(const Table *t, int64_t row, int column, double *out);
bool table_integer(const Table *t, int64_t row, int column, int64_t *out);

/* Returns a field as a file below `root`: ROOT/FIELD, in memory of `mem`. It
 * must be relative, with slashes, without "..". The existence of the file is
 * not checked; nor are links, which are the responsibility of the owner of the
 * folder. */
bool table_path(const Table *t, int64_t row, int column, const char *root,
                Arena *mem, char **out);

/* Summary of a column, for display. */
typedef struct TableRange {
    int64_t numbers; /* fields that are finite numbers  */
    int64_t empty;   /* empty fields */
    bool whole;      /* all numbers are whole           */
    double min, max; /* of the numbers; 0 without any   */
} TableRange;
TableRange table_range(const Table *t, int column);
#endif
