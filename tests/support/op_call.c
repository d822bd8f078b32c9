#include "tests/support/op_call.h"
#include <stdlib.h>

const char *given_device(size_t i)
{
    const char *text = getenv("SEG_TEST_DEVICE");
    return !i ? "ref" : text ? text : "cpu";
}

const Backend *given_backend(size_t i)
{
    const Backend *be;
    int device;
    REQUIRE(backend_find(given_device(i), &be, &device));
    backend_target(be, device, 0);
    return be;
}

long given_every(void)
{
    const char *text = getenv("SEG_TEST_EVERY");
    long every = text ? atol(text) : 1;
    return every > 0 ? every : 1;
}

bool given_once(void)
{
    return getenv("SEG_TEST_ONCE") != NULL;
}

void given_share(int *shares, int *share)
{
    const char *text = getenv("SEG_TEST_SHARE");
    *shares = *share = 0;
    if (!text) return;
    REQUIRE(sscanf(text, "%d/%d", share, shares) == 2);
    REQUIRE(0 <= *share && *share < *shares);
}

void given_report(void *ctx, const char *text)
{
    (void)ctx;
    test_failed("check", 0, "%s", text);
}
