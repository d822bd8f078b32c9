/* json.h -- JSON (RFC 8259) read: the words that a reader of a known form takes
 * one by one, and any text as a tree.
 *
 * All input is hostile: it may be any bytes at all, no character is read behind
 * the end, and nesting is bounded. Texts are UTF-8 without a zero character. A
 * decoded text is never longer than it is in quotes, so one block of the size
 * of the whole takes all of them. */
#ifndef SEG_ENGINE_BASE_JSON_H
#define SEG_ENGINE_BASE_JSON_H
#include "engine/base/mem.h"

/* Where a reader stands; `text` is room for as many bytes as there are. */
typedef struct JsonReader {
    const char *start, *p, *end;
    char *text;       /* room for the next decoded text */
    const char *what; /* begins each reason             */
} JsonReader;

/* A reason with the place in the text: false. */
bool json_wrong(const JsonReader *r, const char *what);
void json_space(JsonReader *r);
/* True and past it when the next character is c. */
bool json_next(JsonReader *r, char c);
/* The next character is c, or there is a reason. */
bool json_expect(JsonReader *r, char c);
/* Between the members of an object or a list: past a comma (*more) or past the
 * `close` that ends it (not). */
bool json_more(JsonReader *r, char close, bool *more);
/* A text in quotes, decoded into r->text; *text is it, with a 0 behind it in
 * the place of its quotes. */
bool json_text(JsonReader *r, const char **text);

typedef enum JsonKind {
    JSON_NULL,
    JSON_TRUE,
    JSON_FALSE,
    JSON_NUMBER,
    JSON_TEXT,
    JSON_LIST,
    JSON_TABLE,
} JsonKind;

/* A value of a tree. Members and elements are a chain in the order of the
 * text; no table has a name twice. */
typedef struct JsonValue {
    JsonKind kind;
    const char *name; /* in its table; "" elsewhere                     */
    const char *text; /* a text, or a number as it is written; else ""  */
    struct JsonValue *first, *next;
} JsonValue;

enum {
    JSON_DEPTH = 64,     /* lists and tables inside each other               */
    JSON_MEMBERS = 4096, /* of a table: each is compared with those before it */
};

/* The value that `text` is, in `mem`. */
bool json_parse(const char *text, const char *what, Arena *mem,
                JsonValue **out);
/* The member of a table called `name`, or NULL; so it is of what is no table.
 */
const JsonValue *json_get(const JsonValue *table, const char *name);
/* "a text", "a list", ...: what a value is, for reasons. */
const char *json_kind(const JsonValue *v);
#endif
