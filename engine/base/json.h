/* json.h -- JSON (RFC 8259): a token reader for known formats, and a parser
 * that returns a tree.
 *
 * Input is untrusted: it may be any bytes, nothing is read beyond the end, and
 * nesting is bounded. Strings are UTF-8 without a zero character. A decoded
 * string is never longer than its quoted form, so one block of the size of the
 * input holds all of them. */
#ifndef SEG_ENGINE_BASE_JSON_H
#define SEG_ENGINE_BASE_JSON_H
#include "engine/base/mem.h"

/* Position of a reader; `text` has room for as many bytes as the input. */
typedef struct JsonReader {
    const char *start, *p, *end;
    char *text;       /* room for the next decoded string */
    const char *what; /* prefix of each reason            */
} JsonReader;

/* Sets a reason with the byte position; returns false. */
bool json_wrong(const JsonReader *r, const char *what);
void json_space(JsonReader *r);
/* If the next character is c, consumes it and returns true. */
bool json_next(JsonReader *r, char c);
/* Consumes c, or fails with a reason. */
bool json_expect(JsonReader *r, char c);
/* Between the members of an object or an array: consumes a comma (*more is
 * true) or the closing character `close` (*more is false). */
bool json_more(JsonReader *r, char close, bool *more);
/* Reads a quoted string, decoded into r->text. *text points to it; a 0 ends
 * it. */
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

/* A value of a tree. Members and elements are a linked list in the order of the
 * text; no object has a name twice. */
typedef struct JsonValue {
    JsonKind kind;
    const char *name; /* key in its object; "" elsewhere           */
    const char *text; /* a string, or a number as written; else "" */
    struct JsonValue *first, *next;
} JsonValue;

enum {
    JSON_DEPTH = 64,     /* nesting of arrays and objects                     */
    JSON_MEMBERS = 4096, /* of an object: each is compared with all before it */
};

/* Parses `text` into a tree in `mem`. `what` is the prefix of each reason. */
bool json_parse(const char *text, const char *what, Arena *mem,
                JsonValue **out);
/* Returns the member `name` of an object, or NULL; NULL for any other kind. */
const JsonValue *json_get(const JsonValue *table, const char *name);
/* Returns "a text", "a list", ...: the kind of a value, for reasons. */
const char *json_kind(const JsonValue *v);
#endif
