/* bundle.c -- entries of a bundle longer than this program writes them. Other
 * damage is tested in tests/lua/predict/export.lua and tests/fuzz/bundle.c. */
#include "engine/api/segengine_inside.h"
#include "tests/test.h"

enum { TEXT = 1 << 18 };

/* Reads a bundle with a `prepare` of `before`, then `count` times `each`, then
 * `after`. */
static bool read_rows(const char *before, const char *each, int count,
                      const char *after)
{
    static char text[TEXT];
    Arena mem = {NULL};
    Bundle *b;
    char *at =
        text + sprintf(text,
                       "{\"version\": 1, \"network\": \"n\", \"inputs\": "
                       "[\"image\"], \"output\": \"mask\", \"read\": "
                       "{\"kind\": \"nifti\", \"options\": {}}, "
                       "\"predict\": {}, \"run\": {}, \"prepare\": [%s",
                       before);

    for (int i = 0; i < count; i++)
        at += sprintf(at, "%s%s", i ? "," : "", each);
    sprintf(at, "%s]}", after);
    bool ok = bundle_read(text, &mem, &b);
    arena_release(&mem);
    return ok;
}

TEST(bundle_of_long_rows)
{
    const char *range = "{\"step\": \"clamp\", \"range\": [";
    EXPECT(read_rows(range, "1", 0, "-1, 1]}"));
    EXPECT_FAIL(read_rows(range, "1", 20000, "]}"), "longer than 4096 bytes");
    EXPECT_FAIL(read_rows(range, "[]", 20000, "]}"), "longer than 4096 bytes");
    EXPECT(read_rows("", "{\"step\": \"normalize\"}", 1, ""));
    EXPECT_FAIL(read_rows("", "{\"step\": \"clamp\"}", MAX_STEPS + 1, ""),
                "more than 32 steps");
    EXPECT_FAIL(read_rows("", "{\"step\": \"clamp\"}", 9000, ""),
                "prepare has more than 32 steps");
}
