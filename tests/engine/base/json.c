/* json.c -- trees of JSON: valid and invalid texts. Tests of the headers in
 * safetensors.c cover the tokens. */
#include "engine/base/json.h"
#include "tests/test.h"

TEST(json_values)
{
    Arena mem = {NULL};
    JsonValue *v;
    REQUIRE(json_parse(" {\"a\": [1, -2.5e3, \"\\u00e9\\n\"], \"b\": {}, "
                       "\"c\":true,\"d\":null, \"e\":false }\n",
                       "text", &mem, &v));
    EXPECT_INT(v->kind, JSON_TABLE);
    const JsonValue *a = json_get(v, "a");
    REQUIRE(a && a->kind == JSON_LIST && a->first && a->first->next);
    EXPECT_TEXT(a->name, "a");
    EXPECT_INT(a->first->kind, JSON_NUMBER);
    EXPECT_TEXT(a->first->text, "1");
    EXPECT_TEXT(a->first->next->text, "-2.5e3");
    EXPECT_TEXT(a->first->next->next->text, "\xc3\xa9\n");
    EXPECT(!a->first->next->next->next);
    EXPECT(json_get(v, "b")->kind == JSON_TABLE && !json_get(v, "b")->first);
    EXPECT_INT(json_get(v, "c")->kind, JSON_TRUE);
    EXPECT_INT(json_get(v, "d")->kind, JSON_NULL);
    EXPECT_INT(json_get(v, "e")->kind, JSON_FALSE);
    EXPECT(!json_get(v, "f") && !json_get(a, "a") && !json_get(NULL, "a"));
    EXPECT_TEXT(json_kind(a), "a list");
    arena_release(&mem);
}

TEST(json_that_is_none)
{
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"", "expected a value at byte 0"},
        {"{", "expected '\"'"},
        {"[1,]", "expected a value at byte 3"},
        {"[1 2]", "expected ','"},
        {"{\"a\" 1}", "expected ':'"},
        {"{\"a\":1,\"a\":2}", "\"a\" twice"},
        {"01", "leading zero"},
        {"-", "expected a value"},
        {"1.", "expected a value"},
        {"1e", "expected a value"},
        {"+1", "expected a value"},
        {"tru", "expected a value"},
        {"nan", "expected a value"},
        {"\"\\u0000\"", "zero character"},
        {"\"\xff\"", "not UTF-8"},
        {"\"a", "without an end"},
        {"1 2", "text after the end"},
    };
    Arena mem = {NULL};
    JsonValue *v;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        EXPECT_FAIL(json_parse(rows[i].text, "text", &mem, &v), rows[i].part);
        EXPECT(!strncmp(err_text(), "text: ", 6));
    }
    char deep[2 * JSON_DEPTH + 3] = "";
    for (int i = 0; i <= JSON_DEPTH; i++) strcat(deep, "[");
    EXPECT_FAIL(json_parse(deep, "text", &mem, &v), "nested too deeply");
    arena_release(&mem);
}

// each name is compared with all before it: a file must not make that slow
TEST(json_of_many_members)
{
    static char text[16 * (JSON_MEMBERS + 2)];
    for (int more = 0; more < 2; more++) {
        Arena mem = {NULL};
        JsonValue *v;
        char *at = text;
        for (int i = 0; i < JSON_MEMBERS + more; i++)
            at += sprintf(at, "%c\"%d\":0", i ? ',' : '{', i);
        strcpy(at, "}");
        if (more)
            EXPECT_FAIL(json_parse(text, "text", &mem, &v), "too many members");
        else
            EXPECT(json_parse(text, "text", &mem, &v));
        arena_release(&mem);
    }
}

// adjacent numbers fit in the room counted for them
TEST(json_of_many_numbers)
{
    enum { COUNT = 5000 };
    static char text[2 * COUNT + 2];
    Arena mem = {NULL};
    JsonValue *v;
    text[0] = '[';
    for (int i = 0; i < COUNT; i++) {
        text[1 + 2 * i] = (char)('0' + i % 10);
        text[2 + 2 * i] = i == COUNT - 1 ? ']' : ',';
    }
    REQUIRE(json_parse(text, "text", &mem, &v));
    int n = 0;
    for (const JsonValue *e = v->first; e; e = e->next, n++)
        EXPECT(e->text[0] == '0' + n % 10 && !e->text[1]);
    EXPECT_INT(n, COUNT);
    arena_release(&mem);
}
