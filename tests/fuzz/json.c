/* json.c -- fuzz target: any bytes as a JSON text.
 *
 * An accepted text is written and read again, and must give the same tree: no
 * value is lost, no name occurs twice, and only JSON numbers are numbers.
 * Single tokens are fuzzed by safetensors.c. */
#include "engine/base/json.h"
#include "data/format/decimal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A growing text. */
typedef struct Out {
    char *text;
    size_t used, room;
} Out;

static void put(Out *o, const char *text, size_t n)
{
    if (o->used + n + 1 > o->room) {
        o->room = 2 * (o->used + n + 1);
        o->text = mem_realloc(o->text, o->room);
        CHECK(o->text);
    }
    memcpy(o->text + o->used, text, n);
    o->used += n;
    o->text[o->used] = 0;
}

static void put_text(Out *o, const char *text)
{
    put(o, "\"", 1);
    for (const char *p = text; *p; p++) {
        char escape[8];
        if ((unsigned char)*p < 0x20 || *p == '"' || *p == '\\')
            put(o, escape,
                (size_t)snprintf(escape, sizeof escape, "\\u%04x",
                                 (unsigned)(unsigned char)*p));
        else
            put(o, p, 1);
    }
    put(o, "\"", 1);
}

static void write_value(Out *o, const JsonValue *v, int depth)
{
    static const char *const words[] = {"null", "true", "false"};
    double x;
    CHECK(depth <= JSON_DEPTH && v->name && v->text && *json_kind(v));

    switch (v->kind) {
    case JSON_TEXT:
        put_text(o, v->text);
        return;
    case JSON_NUMBER:
        CHECK(decimal_read(v->text, strlen(v->text), &x) == strlen(v->text));
        put(o, v->text, strlen(v->text));
        return;
    case JSON_LIST:
    case JSON_TABLE:
        break;
    default:
        put(o, words[v->kind], strlen(words[v->kind]));
        return;
    }

    const bool table = v->kind == JSON_TABLE;
    put(o, table ? "{" : "[", 1);

    for (const JsonValue *one = v->first; one; one = one->next) {
        if (one != v->first) put(o, ",", 1);
        // the first with this name; names are unique
        CHECK(json_get(v, one->name) == (table ? one : NULL));
        if (table) put_text(o, one->name), put(o, ":", 1);
        write_value(o, one, depth + 1);
    }
    put(o, table ? "}" : "]", 1);
}

static bool same(const JsonValue *a, const JsonValue *b)
{
    if (a->kind != b->kind || strcmp(a->name, b->name) ||
        strcmp(a->text, b->text))
        return false;
    for (a = a->first, b = b->first; a && b; a = a->next, b = b->next)
        if (!same(a, b)) return false;
    return !a && !b;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena mem = {NULL};
    JsonValue *v, *back;
    char *text = mem_alloc(size + 1);

    if (!text) return 0;
    memcpy(text, data, size);

    if (json_parse(text, "input", &mem, &v)) {
        Out o = {NULL, 0, 0};
        write_value(&o, v, 1);
        CHECK(json_parse(o.text, "copy", &mem, &back) && same(v, back));
        mem_free(o.text);
    } else {
        CHECK(*err_text());
    }

    arena_release(&mem);
    mem_free(text);
    CHECK(mem_live() == 0);
    return 0;
}
