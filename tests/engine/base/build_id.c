#include "engine/base/build_id.h"
#include "tests/test.h"
#include <ctype.h>
#include <unistd.h>

/* The id of the Makefile's linker: 20 bytes (SHA-1), as `readelf -n` prints
 * them. */
TEST(build_id_of_the_program)
{
    char text[BUILD_ID_TEXT], again[BUILD_ID_TEXT], line[256], command[4200];
    char path[4096];
    bool found = false;

    REQUIRE(build_id(text));
    EXPECT_INT((int)strlen(text), 40);
    for (const char *c = text; *c; c++)
        EXPECT(isdigit((unsigned char)*c) || (*c >= 'a' && *c <= 'f'));
    REQUIRE(build_id(again));
    EXPECT_TEXT(again, text);

    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    REQUIRE(n > 0);
    path[n] = 0;
    snprintf(command, sizeof command, "readelf -n '%s' 2> /dev/null", path);
    FILE *f = popen(command, "r");
    REQUIRE(f);
    bool any = false;
    while (fgets(line, sizeof line, f)) {
        any = true;
        found = found || strstr(line, text);
    }
    pclose(f);
    EXPECT(found || !any); // any: there is a readelf
}
