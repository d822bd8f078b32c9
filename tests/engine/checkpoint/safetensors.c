/* safetensors.c -- every kind of wrong file, with its reason.
 *
 * The files are made in memory: a length, a header, some bytes of data. */
#include "engine/checkpoint/safetensors.h"
#include "tests/test.h"
#include <stdlib.h>

enum { ROOM = 4096 };

/* Writes header length + header + `data` bytes counting from 0; returns the
 * size. */
static size_t make(char *file, const char *header, size_t data)
{
    uint64_t n = strlen(header);
    REQUIRE(n + 8 + data <= ROOM);
    memcpy(file, &n, 8);
    memcpy(file + 8, header, n);
    for (size_t i = 0; i < data; i++) file[8 + n + i] = (char)i;
    return 8 + n + data;
}

/* Opens a copy in a block of exactly its size, so that a sanitizer detects
 * reads beyond it. */
static bool opens(const char *file, size_t size, Safetensors *f)
{
    static char *copy;
    mem_free(copy);
    copy = mem_alloc(size);
    REQUIRE(copy);
    memcpy(copy, file, size);
    return safetensors_memory("f", copy, size, f);
}

#define T(shape, offsets) \
    "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *header;
    int data;
    const char *text; // the whole reason after "f: safetensors: "
} bad[] = {
    // grammar
    {"", 0, "not safetensors: no '{' at byte 8"},
    {" {}", 0, "not safetensors: no '{' at byte 8"},
    {"[]", 0, "not safetensors: no '{' at byte 8"},
    {"{", 0, "header: expected '\"' at byte 9"},
    {"{}x", 0, "header: something after the last '}' at byte 10"},
    {"{}\n", 0, "header: something after the last '}' at byte 10"},
    {"{\"a\":" T("[]", "[0,4]") ",}", 4, "header: expected '\"' at byte 61"},
    {"{\"a\"}", 0, "header: expected ':' at byte 12"},
    {"{\"a\":1}", 0, "header: expected '{' at byte 13"},
    {"{\"a", 0, "header: text without an end at byte 11"},
    {"{\"a\n\":1}", 0, "header: control character in text at byte 11"},
    {"{\"\\x\":1}", 0, "header: unknown escape at byte 11"},
    {"{\"\\", 0, "header: unknown escape at byte 11"},
    {"{\"\\u12g4\":1}", 0, "header: expected a hex digit at byte 14"},
    {"{\"\\u0000\":1}", 0, "header: zero character in text at byte 16"},
    {"{\"\\ud800x\":1}", 0, "header: half of a surrogate pair at byte 16"},
    {"{\"\\udc00\":1}", 0, "header: half of a surrogate pair at byte 16"},
    {"{\"\\ud800\\u0041\":1}", 0,
     "header: half of a surrogate pair at byte 22"},
    {"{\"\xff\":1}", 0, "header: text is not UTF-8 at byte 10"},
    {"{\"\xc0\x80\":1}", 0, "header: text is not UTF-8 at byte 10"},
    {"{\"\xed\xa0\x80\":1}", 0, "header: text is not UTF-8 at byte 10"},
    {"{\"\xe2\x82\":1}", 0, "header: text is not UTF-8 at byte 10"},
    // names
    {"{\"\":" T("[]", "[0,4]") "}", 4,
     "tensor name of 0 bytes (1 to 256 are allowed)"},
    {"{\"a\\nb\":" T("[]", "[0,4]") "}", 4,
     "tensor name with byte 0x0a, which is not printable"},
    {"{\"a\\u009bb\":" T("[]", "[0,4]") "}", 4,
     "tensor name with byte 0xc2, which is not printable"},
    {"{\"a\":" T("[]", "[0,4]") ",\"\\u0061\":" T("[]", "[4,8]") "}", 8,
     "tensor \"a\" appears twice"},
    // one entry
    {"{\"a\":{\"shape\":[],\"data_offsets\":[0,4]}}", 4,
     "tensor \"a\" has no \"dtype\""},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4,
     "tensor \"a\" has no \"shape\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 4,
     "tensor \"a\" has no \"data_offsets\""},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 4,
     "tensor \"a\" has \"dtype\" twice"},
    {"{\"a\":{\"strides\":[1]}}", 4,
     "tensor \"a\" has an unknown field \"strides\""},
    {"{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4,
     "tensor \"a\" has type \"F8_E4M3\", which is not known (F64 F32 F16 BF16 "
     "I64 I32 I16 I8 U8 BOOL are)"},
    {"{\"a\":" T("[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4,
     "tensor \"a\" has more than 8 axes"},
    {"{\"a\":" T("[-1]", "[0,4]") "}", 4,
     "header: expected a number, 0 or more at byte 37"},
    {"{\"a\":" T("[1.0]", "[0,4]") "}", 4, "header: expected ',' at byte 38"},
    {"{\"a\":" T("[01]", "[0,4]") "}", 4,
     "header: number with a leading zero at byte 39"},
    {"{\"a\":" T("[9223372036854775808]", "[0,4]") "}", 4,
     "header: number over 2^63-1 at byte 55"},
    {"{\"a\":" T("[4294967296,4294967296]", "[0,4]") "}", 4,
     "tensor \"a\": size 17179869184 x 4294967296 is more than this machine "
     "can "
     "address"},
    {"{\"a\":" T("[1]", "[0,4,8]") "}", 4,
     "data_offsets of tensor \"a\" are not two numbers"},
    {"{\"a\":" T("[1]", "[0]") "}", 4,
     "data_offsets of tensor \"a\" are not two numbers"},
    {"{\"a\":" T("[1]", "[4,0]") "}", 4, "tensor \"a\" ends before it begins"},
    {"{\"a\":" T("[2]", "[0,4]") "}", 4,
     "tensor \"a\" has 4 bytes, its shape needs 8"},
    // entries together
    {"{\"a\":" T("[1]", "[4,8]") "}", 8,
     "4 bytes before tensor \"a\" belong to no tensor"},
    {"{\"a\":" T("[1]", "[0,4]") ",\"b\":" T("[1]", "[8,12]") "}", 12,
     "4 bytes before tensor \"b\" belong to no tensor"},
    {"{\"a\":" T("[2]", "[0,8]") ",\"b\":" T("[1]", "[4,8]") "}", 8,
     "tensors \"a\" and \"b\" overlap"},
    {"{\"a\":" T("[1]", "[0,4]") ",\"b\":" T("[1]", "[0,4]") "}", 4,
     "tensors \"a\" and \"b\" overlap"},
    {"{\"a\":" T("[1]", "[0,4]") "}", 3,
     "the file is truncated: 66 bytes needed, it has 65"},
    {"{\"a\":" T("[1]", "[0,4]") "}", 5, "1 bytes after the last tensor"},
    {"{}", 1, "1 bytes after the last tensor"},
    // metadata
    {"{\"__metadata__\":{\"a\":1}}", 0, "metadata \"a\" is not text"},
    {"{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0,
     "metadata \"a\" appears twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0,
     "__metadata__ appears twice"},
    {"{\"__metadata__\":{\"\":\"\"}}", 0,
     "metadata key of 0 bytes (1 to 256 are allowed)"},
    // checksums
    {"{\"__metadata__\":{\"crc32c.header\":\"0\"}}", 0,
     "metadata \"crc32c.header\" is not 8 hex digits"},
    {"{\"__metadata__\":{\"crc32c.header\":\"\\u003012\"}}", 0,
     "the header is damaged: it has \"crc32c.header\" but not "
     "\"crc32c.tensors\""},
    {"{\"__metadata__\":{\"crc32c.tensors\":\"\"}}", 0,
     "the header is damaged: it has \"crc32c.tensors\" but not "
     "\"crc32c.header\""},
    {"{\"__metadata__\":{\"crc32c.header\":\"01234567\","
     "\"crc32c.tensors\":\"\"}}",
     0, "the header is damaged (checksum 01234567, computed b6672307)"},
};

TEST(safetensors_defects)
{
    char file[ROOM], want[512];
    Safetensors f;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t size = make(file, bad[i].header, (size_t)bad[i].data);
        snprintf(want, sizeof want, "f: safetensors: %s", bad[i].text);
        EXPECT(!opens(file, size, &f));
        EXPECT_TEXT(err_text(), want);
        EXPECT_INT(err_kind(), ERR_DATA);
    }
}

TEST(safetensors_foreign)
{
    static const struct {
        const char *bytes;
        int count;
        const char *text;
    } rows[] = {
        {"", 0, "the file is empty"},
        {"{}", 2, "the file has 2 bytes, too few for safetensors"},
        {"PK\3\4\x14\0\0\0\10\0", 10,
         "this is a zip archive (PyTorch's .pt, or .npz), not safetensors; "
         "fix: safetensors.torch.save_file(model.state_dict(), "
         "\"w.safetensors\")"},
        {"\x89HDF\r\n\x1a\n\0\0", 10,
         "this is HDF5 (Keras's .h5, or MATLAB), not safetensors; fix: "
         "safetensors.numpy.save_file(arrays, \"w.safetensors\")"},
        {"\x93NUMPY\1\0v\0", 10,
         "this is a NumPy array (.npy), not safetensors; fix: "
         "safetensors.numpy.save_file({name: array}, \"w.safetensors\")"},
        {"\x1f\x8b\10\0\0\0\0\0\0\3", 10,
         "this is compressed with gzip, not safetensors; fix: gunzip it "
         "first"},
        {"GGUF\3\0\0\0\1\0", 10,
         "this is GGUF, not safetensors; fix: convert it to safetensors"},
        {"\x80\2\x8a\nl\xfc\x9c\x46\xf9\x20", 10,
         "this is a Python pickle (an old PyTorch .pt), not safetensors; fix: "
         "safetensors.torch.save_file(model.state_dict(), "
         "\"w.safetensors\")"},
        {"once upon a time", 16,
         "not safetensors: its header would have 8030046917602012783 bytes "
         "(at most 100000000 are allowed)"},
        {"\1\xe1\xf5\5\0\0\0\0{}", 10,
         "not safetensors: its header would have 100000001 bytes (at most "
         "100000000 are allowed)"},
        {"\0\xe1\xf5\5\0\0\0\0{}", 10,
         "the file is truncated: its header ends at byte 100000008, the file "
         "at 10"},
    };
    Safetensors f;
    char want[512];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        EXPECT(!opens(rows[i].bytes, (size_t)rows[i].count, &f));
        snprintf(want, sizeof want, "f: safetensors: %s", rows[i].text);
        EXPECT_TEXT(err_text(), want);
    }

    EXPECT_FAIL(safetensors_open("/no/such/file", &f),
                "cannot open /no/such/file: No such file or directory");
    EXPECT_FAIL(safetensors_open("/", &f), "/ is a folder, not a file");
    EXPECT_FAIL(safetensors_open("/dev/null", &f),
                "/dev/null is not a regular file");
}

/* Valid variants that this program never writes. */
TEST(safetensors_unusual)
{
    char file[ROOM];
    Safetensors f;
    double x[8];

    // any order, spaces, escapes, a scalar, an empty tensor, trailing spaces
    size_t size = make(
        file,
        "{ \"b\" : {\"data_offsets\":[2, 6] ,\"shape\" :[ ],\"dtype\":\"I32\"}"
        ",\t\"__metadata__\":{\"\\u00fc\\ud83d\\ude00\":\"a\\\"\\/\\n\"},"
        "\"a/\\\\\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[0,2]},"
        "\"\xc3\xbc\":{\"dtype\":\"F32\",\"shape\":[0,3],"
        "\"data_offsets\":[6,6]}}   ",
        6);

    REQUIRE(opens(file, size, &f));
    EXPECT_INT(f.count, 3);
    EXPECT_TEXT(f.tensor[0].name, "a/\\");
    EXPECT_TEXT(f.tensor[1].name, "b");
    EXPECT_TEXT(f.tensor[2].name, "\xc3\xbc");
    EXPECT_INT(safetensors_find(&f, "b"), 1);
    EXPECT_INT(safetensors_find(&f, "c"), -1);
    EXPECT_INT(safetensors_count(&f, 2), 0);
    EXPECT_TEXT(meta_get(&f.meta, "\xc3\xbc\xf0\x9f\x98\x80"), "a\"/\n");
    EXPECT(!f.crcs && *f.meta.note);
    REQUIRE(safetensors_read_f64(&f, 0, x));
    EXPECT_NEAR(x[0], 0, 0);
    EXPECT_NEAR(x[1], 1, 0);
    REQUIRE(safetensors_read_f64(&f, 1, x));
    EXPECT_NEAR(x[0], 0x05040302, 0);
    EXPECT(safetensors_read_f64(&f, 2, x));
    EXPECT(safetensors_verify(&f));
    safetensors_close(&f);

    // a file without tensors is valid
    REQUIRE(opens(file, make(file, "{}", 0), &f));
    EXPECT_INT(f.count, 0);
    safetensors_close(&f);

    // a header of 640 bytes begins like a pickle
    char header[641];
    memset(header, ' ', 640);
    memcpy(header, "{}", 2);
    header[640] = 0;
    size = make(file, header, 0);
    EXPECT(!memcmp(file, "\x80\2", 2));
    EXPECT(opens(file, size, &f));
    safetensors_close(&f);
}

TEST(safetensors_types)
{
    // one tensor of each type, from its bits
    static const struct {
        const char *type;
        int bytes;
        uint64_t bits;
        double want;
    } rows[] = {
        {"F64", 8, 0x400921fb54442d18, 3.141592653589793},
        {"F32", 4, 0x40490fdb, 3.1415927410125732},
        {"F16", 2, 0x4248, 3.140625},
        {"F16", 2, 0x8001, -5.9604644775390625e-08},
        {"F16", 2, 0x7bff, 65504},
        {"F16", 2, 0xfc00, -INFINITY},
        {"BF16", 2, 0x4049, 3.140625},
        {"BF16", 2, 0xff80, -INFINITY},
        {"I64", 8, (uint64_t)-5, -5},
        {"I32", 4, 0xfffffffb, -5},
        {"I16", 2, 0xfffb, -5},
        {"I8", 1, 0xfb, -5},
        {"U8", 1, 0xfb, 251},
        {"BOOL", 1, 1, 1},
    };
    char file[ROOM], header[256];
    Safetensors f;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int n = rows[i].bytes;
        snprintf(header, sizeof header,
                 "{\"a\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":"
                 "[0,%d]}}",
                 rows[i].type, 3 * n);
        size_t size = make(file, header, (size_t)(3 * n));
        for (int k = 0; k < 3; k++)
            memcpy(file + size - (k + 1) * n, &rows[i].bits, (size_t)n);
        REQUIRE(opens(file, size, &f));
        double x[3];
        EXPECT(safetensors_read_f64(&f, 0, x));
        for (int k = 0; k < 3; k++) EXPECT(x[k] == rows[i].want);
        safetensors_close(&f);
    }

    // NaN stays NaN
    size_t size = make(file,
                       "{\"a\":{\"dtype\":\"F16\",\"shape\":[],"
                       "\"data_offsets\":[0,2]}}",
                       2);
    memcpy(file + size - 2, "\x01\x7c", 2);
    double x = 0;
    REQUIRE(opens(file, size, &f));
    EXPECT(safetensors_read_f64(&f, 0, &x) && isnan(x));
    safetensors_close(&f);
}

/* The limits: below, at and above. */
TEST(safetensors_limits)
{
    enum { ENTRY = 72 };
    char *header = malloc((size_t)(ST_ENTRIES + 2) * ENTRY), name[300];
    char *file = malloc((size_t)(ST_ENTRIES + 2) * ENTRY + 8);
    Safetensors f;

    for (int extra = -1; extra <= 1; extra++) {
        int count = ST_ENTRIES + extra;
        size_t n = 0;
        header[n++] = '{';
        for (int i = 0; i < count; i++)
            n += (size_t)snprintf(header + n, ENTRY,
                                  "%s\"%d\":{\"dtype\":\"U8\",\"shape\":[0],"
                                  "\"data_offsets\":[0,0]}",
                                  i ? "," : "", i);
        header[n++] = '}';
        uint64_t length = n;
        memcpy(file, &length, 8);
        memcpy(file + 8, header, n);
        bool ok = safetensors_memory("f", file, n + 8, &f);
        EXPECT(ok == (extra <= 0));
        if (ok) EXPECT_INT(f.count, count);
        if (!ok)
            EXPECT_TEXT(err_text(), "f: safetensors: more than 65536 tensors");
        safetensors_close(&f);
    }

    free(header);
    free(file);
    char small[ROOM], text[ROOM];

    for (int n = 255; n <= 257; n++) {
        memset(name, 'n', sizeof name);
        name[n] = 0;
        snprintf(text, sizeof text, "{\"%s\":" T("[]", "[0,4]") "}", name);
        bool ok = opens(small, make(small, text, 4), &f);
        EXPECT(ok == (n <= 256));
        if (!ok)
            EXPECT_TEXT(err_text(), "f: safetensors: tensor name of 257 bytes "
                                    "(1 to 256 are allowed)");
        safetensors_close(&f);
    }

    for (int axes = 7; axes <= 9; axes++) {
        snprintf(text, sizeof text, "{\"a\":" T("[%.*s]", "[0,4]") "}",
                 2 * axes - 1, "1,1,1,1,1,1,1,1,1");
        EXPECT(opens(small, make(small, text, 4), &f) == (axes <= 8));
        safetensors_close(&f);
    }
}
