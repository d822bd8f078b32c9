#include "engine/base/sha256.h"
#include "tests/test.h"

static bool hashes_to(const char *data, size_t bytes, const char *want)
{
    char text[SHA256_TEXT];
    Sha256 s;
    sha256_begin(&s);
    sha256_add(&s, data, bytes);
    sha256_end(&s, text);
    return !strcmp(text, want);
}

/* The examples of FIPS 180-4, and the empty message. */
TEST(sha256_examples)
{
    EXPECT(hashes_to("", 0,
                     "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934c"
                     "a495991b7852b855"));
    EXPECT(hashes_to("abc", 3,
                     "ba7816bf8f01cfea414140de5dae2223b00361a396177a9c"
                     "b410ff61f20015ad"));
    EXPECT(hashes_to("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                     56,
                     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd4"
                     "19db06c1"));
}

/* A million letters, in pieces that never end at a block; also from a file. */
TEST(sha256_million)
{
    static const char want[] = "cdc76e5c9914fb9281a1c7e284d73e67"
                               "f1809a48a497200e046d39ccc7112cd0";
    char text[SHA256_TEXT], piece[999], path[4096];
    Sha256 s;

    memset(piece, 'a', sizeof piece);
    snprintf(path, sizeof path, "%s/million", test_folder());
    FILE *f = fopen(path, "wb");
    REQUIRE(f);
    sha256_begin(&s);

    for (size_t left = 1000000; left;) {
        size_t n = left < sizeof piece ? left : sizeof piece;
        sha256_add(&s, piece, n);
        EXPECT(fwrite(piece, 1, n, f) == n);
        left -= n;
    }

    fclose(f);
    sha256_end(&s, text);
    EXPECT(!strcmp(text, want));
    EXPECT(sha256_file(path, text) && !strcmp(text, want));
    EXPECT(!sha256_file(test_folder(), text)); // a folder is not a file
}
