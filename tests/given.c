#include "given.h"
#include <stdlib.h>

const Backend *given_backend(size_t i)
{
    const char *text = getenv("SEG_TEST_DEVICE");
    const Backend *be;
    int device;
    char why[ERR_MAX];
    if (!i) return &backend_ref;
    REQUIRE(backend_find(text ? text : "cpu", &be, &device, why));
    return be;
}

void given_report(void *ctx, const char *text)
{
    (void)ctx;
    test_failed("check", 0, "%s", text);
}
