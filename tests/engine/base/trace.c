/* trace: bounded, safe with any number of threads, always valid JSON. */
#include "engine/base/trace.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "tests/test.h"
#include <pthread.h>

enum { THREADS = 4, EACH = 2000 };

static void *note(void *context)
{
    Trace *t = context;
    for (int i = 0; i < EACH; i++) {
        trace_span(t, "row", "span", "kind", i, trace_now(t));
        trace_count(t, "counter", i, trace_now(t));
    }
    trace_drop(t);
    return NULL;
}

/* Returns the text of the written file; *value is its tree. */
static const char *written(Trace *t, Arena *mem, JsonValue **value)
{
    char path[300], *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/trace.json", test_folder());
    REQUIRE(trace_write(t, path));
    REQUIRE(file_read(path, 1 << 28, mem, &text, &bytes));
    REQUIRE(json_parse(text, "trace", mem, value));
    return text;
}

TEST(trace_of_several_threads)
{
    Trace *t;
    pthread_t thread[THREADS];
    int64_t kept, lost;
    Arena mem = {0};
    JsonValue *v;

    REQUIRE(trace_open(&t));
    for (int i = 0; i < THREADS; i++)
        REQUIRE(!pthread_create(&thread[i], NULL, note, trace_hold(t)));
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    trace_events(t, &kept, &lost);
    EXPECT_INT(kept, 2 * THREADS * EACH);
    EXPECT_INT(lost, 0);
    written(t, &mem, &v);
    arena_release(&mem);
    trace_drop(t);
}

TEST(trace_is_bounded_and_says_what_it_lost)
{
    Trace *t;
    int64_t kept, lost;
    REQUIRE(trace_open(&t));
    for (int i = 0; i < TRACE_MOST + 5; i++)
        trace_put(t, "row", "span", "kind", -1, 0, 1);
    trace_events(t, &kept, &lost);
    EXPECT_INT(kept, TRACE_MOST);
    EXPECT_INT(lost, 5);
    trace_drop(t);

    // the number of names is bounded too
    REQUIRE(trace_open(&t));
    for (int i = 0; i < 5000; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        trace_put(t, "row", name, "kind", -1, 0, 1);
    }

    trace_events(t, &kept, &lost);
    EXPECT_INT(kept + lost, 5000);
    EXPECT(kept > 1000 && lost > 1000);
    trace_drop(t);
}

/* Enclosing spans first, whatever the order of recording; names of any bytes; a
 * span that ends before it begins has length 0. */
TEST(trace_is_ordered_json)
{
    Trace *t;
    Arena mem = {0};
    JsonValue *v;

    REQUIRE(trace_open(&t));
    const double at = clock_s();
    trace_put(t, "a \"row\"", "inner\\\n\xff\xc3\xa4", "k", 7, at, at + 1e-3);
    trace_put(t, "a \"row\"", "outer", "k", -1, at, at + 2e-3);
    trace_put(t, "a \"row\"", "back", "k", -1, at + 1, at);
    const char *text = written(t, &mem, &v);
    const char *outer = strstr(text, "outer"), *inner = strstr(text, "inner");
    REQUIRE(outer && inner);
    EXPECT(outer < inner);
    EXPECT(strstr(text, "\"inner\\u005c\\u000a\\u00ff\\u00c3\\u00a4\""));
    EXPECT(strstr(text, "\"dur\":2000.000,"));
    EXPECT(strstr(text, "\"dur\":0.000,"));
    EXPECT(strstr(text, "\"args\":{\"number\":7}"));
    arena_release(&mem);
    trace_drop(t);
}

TEST(trace_that_is_none)
{
    trace_span(NULL, "a", "b", "c", 0, trace_now(NULL));
    trace_count(NULL, "a", 1, 0);
    trace_drop(trace_hold(NULL));
    EXPECT(trace_now(NULL) == 0);
}
