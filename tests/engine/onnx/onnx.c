/* onnx.c -- protocol buffers, byte for byte, and failures of onnx_save, which
 * leave nothing behind. tests/lua/predict/onnx.lua tests the content of
 * files. */
#include "engine/onnx/onnx.h"
#include "engine/base/file.h"
#include "engine/onnx/protobuf.h"
#include "tests/support/networks.h"
#include <unistd.h>

static void expect_bytes(const Proto *p, const char *want, size_t n)
{
    EXPECT(!p->failed);
    EXPECT_INT((long long)p->used, (long long)n);
    EXPECT(p->used == n && !memcmp(p->at, want, n));
}
#define BYTES(p, text) expect_bytes(p, text, sizeof text - 1)

// the examples of the encoding's description, and the ends of the ranges
TEST(protobuf_fields)
{
    Proto p = {0};
    proto_int(&p, 1, 150);
    BYTES(&p, "\x08\x96\x01");
    proto_clear(&p);
    proto_text(&p, 2, "testing");
    BYTES(&p, "\x12\x07testing");
    proto_clear(&p);
    proto_int(&p, 1, 0);
    proto_int(&p, 1, 127);
    proto_int(&p, 1, 128);
    BYTES(&p, "\x08\x00\x08\x7f\x08\x80\x01");
    proto_clear(&p);
    proto_int(&p, 1, -1);
    BYTES(&p, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    proto_clear(&p);
    proto_float(&p, 2, 1);
    proto_int(&p, 20, 1);
    BYTES(&p, "\x15\x00\x00\x80\x3f\xa0\x01\x01");
    proto_clear(&p);
    proto_head(&p, 9, 300);
    BYTES(&p, "\x4a\xac\x02");
    proto_free(&p);
}

TEST(protobuf_messages_nest)
{
    Proto p = {0};
    size_t outer = proto_begin(&p, 3);
    proto_int(&p, 1, 150);
    size_t inner = proto_begin(&p, 4);
    proto_end(&p, inner);
    proto_end(&p, outer);
    BYTES(&p, "\x1a\x05\x08\x96\x01\x22\x00");
    proto_clear(&p);

    // a length of two bytes moves the content
    outer = proto_begin(&p, 1);
    char text[201] = "";
    memset(text, 'x', 200);
    proto_text(&p, 1, text);
    proto_end(&p, outer);
    EXPECT_INT((long long)p.used, 3 + 3 + 200);
    EXPECT(!memcmp(p.at, "\x0a\xcb\x01\x0a\xc8\x01xxx", 9));
    EXPECT(p.at[p.used - 1] == 'x');
    proto_free(&p);
}

TEST(onnx_save_without_memory)
{
    char path[256];
    const OnnxOptions how = {
        .version = "0", .any_size = true, .probabilities = true};
    const char *const name[] = {"mask"};
    OnnxFacts facts;
    Net n;

    net_small(&n);
    net_open(&n, "ref", 1, NULL);
    snprintf(path, sizeof path, "%s/small.onnx", test_folder());
    const long live = mem_live();

    for (long k = 0;; k++) {
        REQUIRE(k < 5000);
        mem_fail_after(k, false);
        bool ok = onnx_save(path, &n.g, session_params(n.s), n.root, name, 1,
                            &how, &facts);
        mem_fail_after(-1, false);
        EXPECT_INT(mem_live(), live);
        if (ok) break;
        EXPECT(strstr(err_text(), "no memory"));
    }

    EXPECT_INT(facts.probabilities, 1);
    uint64_t bytes;
    int fd;
    REQUIRE(file_open(path, &fd, &bytes));
    close(fd);
    EXPECT_INT((long long)bytes, (long long)facts.bytes);
    net_free(&n);
}

TEST(onnx_save_of_a_folder)
{
    const OnnxOptions how = {.version = "0"};
    const char *const name[] = {"mask"};
    OnnxFacts facts;
    Net n;
    net_small(&n);
    net_open(&n, "ref", 1, NULL);
    EXPECT_FAIL(onnx_save(test_folder(), &n.g, session_params(n.s), n.root,
                          name, 1, &how, &facts),
                test_folder());
    net_free(&n);
}
