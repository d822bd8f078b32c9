/* table.c -- splits a file into fields in one pass, in place.
 *
 * The text of a field is never longer than its bytes in the file, so it is
 * written over the bytes of the file, with a 0 in place of a separator or line
 * end. The offset of each field is stored as well. */
#include "data/format/table.h"
#include "data/format/decimal.h"
#include "engine/base/file.h"
#include "engine/base/utf8.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const TableOptions limits = {
    .separator = ',',
    .max_bytes = (int64_t)256 << 20,
    .max_rows = 10 * 1000 * 1000,
    .max_columns = 4096,
};
/* offsets in the text have 32 bits */
static const int64_t most_bytes = UINT32_MAX;

enum { SHOWN = 40, NAMES_SHOWN = 20 };

/* Terminators of a field. */
typedef enum Stop { AT_SEPARATOR, AT_LINE, AT_END } Stop;

/* The rest of the file. */
typedef struct Cursor {
    char *base, *p, *end; /* p: the next byte; *end may be written */
    char separator;
    bool quoted; /* the last field had quotes */
} Cursor;

/* Returns the start of p as text for a message: without control characters, and
 * never cut inside a UTF-8 character. */
static const char *shown(const char *p, char text[SHOWN + 8])
{
    size_t n = 0;
    for (; p[n] && n < SHOWN; n++)
        text[n] = (unsigned char)p[n] < ' ' || p[n] == 127 ? '?' : p[n];
    bool cut = p[n] != 0;
    while (cut && n && ((unsigned char)p[n] & 0xc0) == 0x80) n--;
    strcpy(text + n, cut ? "..." : "");
    return text;
}

/* Checks the bytes of a field that was read. */
static bool check_text(const char *text, size_t n)
{
    uint32_t code;
    for (const char *p = text, *end = text + n; p < end;) {
        if (!*p) return fail_data("a byte 0, which no text has");
        // most of a table is ASCII
        int bytes = (unsigned char)*p < 0x80 ? 1 : utf8_length(p, end, &code);
        if (!bytes)
            return fail_data("byte %02x is not UTF-8; fix: save the file as "
                             "UTF-8",
                             (unsigned char)*p);
        p += bytes;
    }
    return true;
}

/* Reads a quoted field; c->p is after the opening quote. Sets *w to the end of
 * the text. */
static bool read_quoted(Cursor *c, char **w)
{
    for (char *begin = *w;;) {
        if (c->p == c->end)
            return fail_data("the quote is not closed before the end of the "
                             "file");
        if (*c->p == '"') {
            c->p++;
            // a doubled quote is a quote, a single one the end
            if (c->p == c->end || *c->p != '"') break;
        }
        *(*w)++ = *c->p++;
        if (*w - begin > TABLE_FIELD_MAX) return true; // rejected by read_field
    }

    if (c->p < c->end && *c->p != c->separator && *c->p != '\n' &&
        *c->p != '\r')
        return fail_data("text after the closing quote; fix: double the quotes "
                         "inside a field");
    return true;
}

static bool read_plain(Cursor *c, char **w)
{
    while (c->p < c->end && *c->p != c->separator && *c->p != '\n' &&
           *c->p != '\r') {
        if (*c->p == '"')
            return fail_data("a quote inside a field without quotes; fix: "
                             "quote the field and double the quote");
        *(*w)++ = *c->p++;
    }
    return true;
}

/* Reads the next field: its text from `*text` on, with a terminating 0, and its
 * terminator. Advances to the byte after the terminator. */
static bool read_field(Cursor *c, char **text, Stop *stop)
{
    char *w = *text = c->p;
    c->quoted = c->p < c->end && *c->p == '"';
    if (c->quoted) c->p++;
    if (!(c->quoted ? read_quoted(c, &w) : read_plain(c, &w))) return false;
    if (w - *text > TABLE_FIELD_MAX)
        return fail_data("a field of more than %d bytes%s", TABLE_FIELD_MAX,
                         c->quoted ? "; is its quote closed?" : "");
    if (!check_text(*text, (size_t)(w - *text))) return false;
    *stop = c->p == c->end          ? AT_END
            : *c->p == c->separator ? AT_SEPARATOR
                                    : AT_LINE;
    if (*stop == AT_LINE && *c->p == '\r' &&
        (c->p + 1 == c->end || *++c->p != '\n'))
        return fail_data("a carriage return without a line feed; fix: save "
                         "the file with the line ends of Unix or Windows");
    if (*stop != AT_END) c->p++;
    *w = 0; // w never passes c->p
    return true;
}

// -- rows ---------------------------------------------------------------------

/* Allocates all fields: as many as there are separators and line ends. */
static bool make_room(Table *t, const Cursor *c)
{
    size_t most = 1;
    for (const char *p = c->p; p < c->end; p++)
        most += *p == c->separator || *p == '\n';
    t->field = ARENA_NEW(&t->mem, uint32_t, most);
    return t->field != NULL;
}

/* Checks a name of the header, which must differ from the previous names. */
static bool check_name(const Table *t, int column)
{
    const char *name = table_name(t, column);
    char text[SHOWN + 8];
    if (!*name)
        return fail_data(
            "row 1: column %d has no name; fix: name it, or write the "
            "file without an index column (index=False)",
            column + 1);

    for (int k = 0; k < column; k++)
        if (!strcmp(table_name(t, k), name))
            return fail_data("row 1: columns %d and %d are both named \"%s\"",
                             k + 1, column + 1, shown(name, text));
    return true;
}

static bool read_header(Table *t, Cursor *c, int most)
{
    Stop stop = AT_SEPARATOR;
    while (stop == AT_SEPARATOR) {
        char *text;
        if (t->columns == most)
            return fail_data("row 1: more than %d columns", most);
        if (!read_field(c, &text, &stop))
            return within("row 1, column %d", t->columns + 1);
        t->field[t->columns++] = (uint32_t)(text - c->base);
    }

    if (t->columns == 1 && !*table_name(t, 0) && !c->quoted)
        return fail_data("row 1: a blank line, need the names of the columns");
    for (int k = 0; k < t->columns; k++)
        if (!check_name(t, k)) return false;
    return true;
}

/* Reads one row below the header; `row` is its number in messages. */
static bool read_row(Table *t, Cursor *c, long long row)
{
    uint32_t *field = t->field + (size_t)(t->rows + 1) * (size_t)t->columns;
    Stop stop = AT_SEPARATOR;
    int64_t count = 0;

    while (stop == AT_SEPARATOR) {
        char *text, name[SHOWN + 8];
        if (!read_field(c, &text, &stop)) {
            if (count >= t->columns)
                return within("row %lld, field %lld", row,
                              (long long)count + 1);
            return within("row %lld, column \"%s\"", row,
                          shown(table_name(t, (int)count), name));
        }
        // memory for the fields of one row only
        if (count < t->columns) field[count] = (uint32_t)(text - c->base);
        if (!count++ && stop != AT_SEPARATOR && !*text && !c->quoted)
            return fail_data("row %lld: a blank line; fix: remove it", row);
    }

    return count == t->columns ||
           fail_data("row %lld: %lld fields, the header has %d", row,
                     (long long)count, t->columns);
}

/* Skips the byte order mark of some programs. */
static bool skip_mark(Cursor *c)
{
    size_t n = (size_t)(c->end - c->p);
    if (n >= 2 &&
        (!memcmp(c->p, "\xff\xfe", 2) || !memcmp(c->p, "\xfe\xff", 2)))
        return fail_data("text in UTF-16; fix: save the file as UTF-8");
    c->p += text_begin(c->p, c->p + n) - c->p;
    return c->p < c->end || fail_data("file is empty");
}

static bool decode(Table *t, char *bytes, size_t size, const TableOptions *o)
{
    Cursor c = {.base = bytes, .p = bytes, .end = bytes + size};
    c.separator = o && o->separator ? o->separator : limits.separator;
    int64_t rows = o && o->max_rows > 0 ? o->max_rows : limits.max_rows;
    int columns = o && o->max_columns > 0 ? o->max_columns : limits.max_columns;
    CHECK(c.separator == ',' || c.separator == ';' || c.separator == '\t');
    t->text = bytes;
    t->separator = c.separator;
    if (!skip_mark(&c) || !make_room(t, &c)) return false;
    if (!read_header(t, &c, columns)) return false;

    while (c.p < c.end) {
        if (t->rows == rows)
            return fail_data("more than %lld rows", (long long)rows);
        if (!read_row(t, &c, (long long)t->rows + 2)) return false;
        t->rows++;
    }
    return t->rows > 0 || fail_data("no rows below the header");
}

/* The limit of the file size. */
static int64_t byte_limit(const TableOptions *o)
{
    int64_t most = o && o->max_bytes > 0 ? o->max_bytes : limits.max_bytes;
    return most < most_bytes ? most : most_bytes;
}

bool table_decode(const void *bytes, size_t size, const TableOptions *o,
                  Table *t)
{
    bool ok = false;
    *t = (Table){.columns = 0};
    if (size > (size_t)byte_limit(o)) {
        fail_data("%zu bytes, limit %lld", size, (long long)byte_limit(o));
    } else {
        char *copy = arena_alloc(&t->mem, size + 1);
        if (copy && size) memcpy(copy, bytes, size);
        ok = copy && decode(t, copy, size, o);
    }
    if (!ok) table_free(t);
    return ok || within("csv");
}

bool table_read(const char *path, const TableOptions *o, Table *t)
{
    char *text = NULL;
    size_t size;
    *t = (Table){.columns = 0};
    bool ok = file_read(path, (size_t)byte_limit(o), &t->mem, &text, &size) &&
              decode(t, text, size, o) &&
              (t->path = arena_strdup(&t->mem, path)) != NULL;
    if (!ok) table_free(t);
    return ok || (within("csv"), within("%s", path));
}

void table_free(Table *t)
{
    arena_release(&t->mem);
    *t = (Table){.columns = 0};
}

// ---- access -----------------------------------------------------------------

const char *table_name(const Table *t, int column)
{
    return t->text + t->field[column];
}

const char *table_text(const Table *t, int64_t row, int column)
{
    CHECK(row >= 0 && row < t->rows && column >= 0 && column < t->columns);
    return t->text +
           t->field[(size_t)(row + 1) * (size_t)t->columns + (size_t)column];
}

/* Prefixes the reason with path and format; returns false. */
static bool in_table(const Table *t)
{
    within("csv");
    return t->path ? within("%s", t->path) : false;
}

/* The same, with row and column before it. */
static bool in_field(const Table *t, int64_t row, int column)
{
    char name[SHOWN + 8];
    within("row %lld, column \"%s\"", (long long)row + 2,
           shown(table_name(t, column), name));
    return in_table(t);
}

/* Returns the edit distance (substitutions, insertions, deletions) of the first
 * SHOWN bytes of two names. */
static int distance(const char *a, const char *b)
{
    int row[SHOWN + 1], m = (int)strnlen(b, SHOWN);
    for (int k = 0; k <= m; k++) row[k] = k;

    for (int i = 0; i < SHOWN && a[i]; i++) {
        int corner = row[0];
        row[0] = i + 1;
        for (int k = 0; k < m; k++) {
            int change = corner + (a[i] != b[k]);
            corner = row[k + 1];
            int add = (row[k] < corner ? row[k] : corner) + 1;
            row[k + 1] = add < change ? add : change;
        }
    }
    return row[m];
}

/* Writes "there are: a, b, c" at the end of `text`. */
static void list_names(const Table *t, char *text, size_t room)
{
    size_t n = 0;
    for (int k = 0; k < t->columns && k < NAMES_SHOWN; k++) {
        char name[SHOWN + 8];
        n += (size_t)snprintf(text + n, room - n, "%s%s", k ? ", " : "",
                              shown(table_name(t, k), name));
    }
    if (t->columns > NAMES_SHOWN)
        snprintf(text + n, room - n, " and %d more", t->columns - NAMES_SHOWN);
}

bool table_column(const Table *t, const char *name, int *column)
{
    char list[NAMES_SHOWN * (SHOWN + 10) + 32], got[SHOWN + 8];
    char near_text[SHOWN + 8], fix[64] = "";
    int nearest = 0, least = INT32_MAX;

    for (int k = 0; k < t->columns; k++) {
        const char *there = table_name(t, k);
        if (!strcmp(name, there)) {
            *column = k;
            return true;
        }
        // a name that contains the other counts as near: "pitch" for
        // "pitch_deg"
        bool part = *name && (strstr(there, name) || strstr(name, there));
        int d = part ? 1 : distance(name, there);
        if (d < least) nearest = k, least = d;
    }

    list_names(t, list, sizeof list);

    // a table with another separator has one column with a long name
    const char *other = t->columns > 1 ? "" : table_name(t, 0);
    other += strcspn(other, ",;\t");
    if (*other)
        snprintf(fix, sizeof fix, "; fix: separator = \"%s\"",
                 *other == '\t'  ? "\\t"
                 : *other == ';' ? ";"
                                 : ",");

    fail_data("no column \"%s\"; nearest is \"%s\"; there are: %s%s",
              shown(name, got), shown(table_name(t, nearest), near_text), list,
              fix);
    return in_table(t);
}

/* Returns a field without the spaces around it; *n: its length. */
static const char *bare(const Table *t, int64_t row, int column, size_t *n)
{
    const char *p = table_text(t, row, column);
    p += strspn(p, " \t");
    *n = strlen(p);
    while (*n && (p[*n - 1] == ' ' || p[*n - 1] == '\t')) --*n;
    return p;
}

/* Recognises 1,5 and -0,25: digits, one comma, digits. */
static bool has_decimal_comma(const char *p, size_t n)
{
    static const char digits[] = "0123456789";
    size_t sign = n && (*p == '-' || *p == '+'), whole, part;
    whole = strspn(p + sign, digits);
    if (!whole || sign + whole >= n || p[sign + whole] != ',') return false;
    part = strspn(p + sign + whole + 1, digits);
    return part && sign + whole + 1 + part == n;
}

/* Recognises the words that programs write for a missing number. */
static bool is_missing(const char *p, size_t n)
{
    static const char *const word[] = {"nan",  "na",   "n/a", "#n/a",
                                       "null", "none", "inf", "infinity"};
    if (n && (*p == '-' || *p == '+')) p++, n--;

    for (size_t k = 0; k < sizeof word / sizeof *word; k++) {
        size_t i = 0;
        // ASCII letters differ from capitals in one bit
        while (i < n && word[k][i] &&
               (p[i] == word[k][i] ||
                (word[k][i] >= 'a' && (p[i] | 32) == word[k][i])))
            i++;
        if (i == n && !word[k][i]) return n > 0;
    }
    return false;
}

bool table_number(const Table *t, int64_t row, int column, double *out)
{
    size_t n;
    const char *p = bare(t, row, column, &n);
    char text[SHOWN + 8];
    double v = 0;
    bool whole = n && decimal_read(p, n, &v) == n;

    if (whole && isfinite(v)) {
        *out = v;
        return true;
    }
    shown(p, text);

    if (!n)
        fail_data("the field is empty, need a number");
    else if (whole)
        fail_data("\"%s\" is out of the range of a double", text);
    else if (has_decimal_comma(p, n))
        fail_data("\"%s\" has a decimal comma, need a point", text);
    else if (is_missing(p, n))
        fail_data("\"%s\" is not a finite number; fix: leave the row out, or "
                  "give it a number",
                  text);
    else
        fail_data("\"%s\" is not a number", text);
    return in_field(t, row, column);
}

bool table_integer(const Table *t, int64_t row, int column, int64_t *out)
{
    size_t n, i = 0;
    const char *p = bare(t, row, column, &n);
    char text[SHOWN + 8];
    bool minus = n && *p == '-', fits = true;
    uint64_t v = 0, most = (uint64_t)INT64_MAX + minus;

    if (n && (*p == '-' || *p == '+')) i++;
    size_t first = i;

    for (; i < n && p[i] >= '0' && p[i] <= '9'; i++) {
        uint64_t digit = (uint64_t)(p[i] - '0');
        // v is used only while it fits
        if (v > (most - digit) / 10) fits = false;
        if (fits) v = 10 * v + digit;
    }

    if (i == n && i > first && fits) {
        // -2^63 has no positive counterpart
        *out = !minus ? (int64_t)v : v ? -(int64_t)(v - 1) - 1 : 0;
        return true;
    }

    shown(p, text);
    if (!n)
        fail_data("the field is empty, need a whole number");
    else if (i == n && i > first)
        fail_data("\"%s\" is beyond 64 bits", text);
    else
        fail_data("\"%s\" is not a whole number", text);
    return in_field(t, row, column);
}

/* Does a path have a component ".."? */
static bool climbs(const char *path)
{
    for (const char *p = path; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || !p[2])) return true;
    }
    return false;
}

bool table_path(const Table *t, int64_t row, int column, const char *root,
                Arena *mem, char **out)
{
    const char *path = table_text(t, row, column);
    char text[SHOWN + 8];
    shown(path, text);

    if (!*path)
        fail_data("the field is empty, need a path");
    else if (*path == '/')
        fail_data("path \"%s\" is absolute, need one below %s", text, root);
    else if (strchr(path, '\\'))
        fail_data("path \"%s\" has backslashes; fix: write slashes", text);
    else if (climbs(path))
        fail_data("path \"%s\" leads out of %s", text, root);
    else
        return (*out = arena_printf(mem, "%s/%s", root, path)) != NULL;
    return in_field(t, row, column);
}

TableRange table_range(const Table *t, int column)
{
    TableRange r = {.whole = true};
    for (int64_t row = 0; row < t->rows; row++) {
        size_t n;
        const char *p = bare(t, row, column, &n);
        double v;
        r.empty += !n;
        if (!n || decimal_read(p, n, &v) != n || !isfinite(v)) continue;
        if (!r.numbers || v < r.min) r.min = v;
        if (!r.numbers || v > r.max) r.max = v;
        r.whole &= v == floor(v);
        r.numbers++;
    }
    return r;
}
